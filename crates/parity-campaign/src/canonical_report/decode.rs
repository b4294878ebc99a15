//! Reads typed values from JSON events and notes, with pointers, whatever is not where the protocol expects it.

use std::borrow::Cow;
use std::fmt;

use canonical_json::{Event, ReadError, Reader, escape_token};

/// One place where a report's layout is not the one this protocol knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// JSON pointer to the first such place.
    pub pointer: String,
    /// What the protocol expects there.
    pub expected: String,
    /// What is there; `nothing` when the member is missing.
    pub found: String,
    /// How many places with the same shape (array indexes aside) have the same gap.
    pub count: u64,
    shape: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.pointer, self.expected, self.found)?;
        if self.count > 1 {
            write!(f, " ({} places like it)", self.count)?;
        }
        Ok(())
    }
}

/// A value as read; `None` when it was something else, which has been noted as a gap.
pub(crate) type Read<T> = Result<Option<T>, ReadError>;

/// A member of an object that is being read.
pub(crate) enum Slot<T> {
    /// Not seen yet.
    Missing,
    /// Seen with a type the protocol does not expect; noted.
    Unusable,
    /// Seen and read.
    Got(T),
}

impl<T> From<Option<T>> for Slot<T> {
    fn from(read: Option<T>) -> Self {
        read.map_or(Slot::Unusable, Slot::Got)
    }
}

enum Step<'a> {
    Key(Cow<'a, str>),
    Index(usize),
}

/// A typed reader over one JSON text.
pub(crate) struct Decoder<'a> {
    reader: Reader<'a>,
    /// An event looked at to tell whether an array goes on.
    peeked: Option<Event<'a>>,
    path: Vec<Step<'a>>,
    gaps: Vec<Gap>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { reader: Reader::new(bytes), peeked: None, path: Vec::new(), gaps: Vec::new() }
    }

    /// The first byte not yet read.
    pub(crate) fn offset(&self) -> usize {
        self.reader.offset()
    }

    pub(crate) fn into_gaps(self) -> Vec<Gap> {
        self.gaps
    }

    /// Notes that what the last read value holds is not what the protocol expects.
    pub(crate) fn note(&mut self, expected: impl Into<String>, found: impl Into<String>) {
        let (pointer, shape) = (self.pointer(false), self.pointer(true));
        self.note_at(pointer, shape, expected.into(), found.into());
    }

    /// Notes a member that should have been below the current place.
    pub(crate) fn note_member(&mut self, name: &str, expected: &str, found: &str) {
        let pointer = format!("{}/{}", self.pointer(false), escape_token(name));
        let shape = format!("{}/{}", self.pointer(true), escape_token(name));
        self.note_at(pointer, shape, expected.to_owned(), found.to_owned());
    }

    fn note_at(&mut self, pointer: String, shape: String, expected: String, found: String) {
        let known = self.gaps.iter_mut().find(|gap| gap.shape == shape && gap.expected == expected);
        match known {
            Some(gap) => gap.count += 1,
            None => self.gaps.push(Gap { pointer, expected, found, count: 1, shape }),
        }
    }

    /// The value of a member that must be there.
    pub(crate) fn require<T>(&mut self, name: &str, slot: Slot<T>) -> Option<T> {
        match slot {
            Slot::Got(value) => Some(value),
            Slot::Unusable => None,
            Slot::Missing => {
                self.note_member(name, "a member", "nothing");
                None
            }
        }
    }

    fn next(&mut self) -> Result<Event<'a>, ReadError> {
        match self.peeked.take() {
            Some(event) => Ok(event),
            None => self.reader.next_event(),
        }
    }

    /// Whether the next value is `null`, which stays to be read.
    pub(crate) fn next_is_null(&mut self) -> Result<bool, ReadError> {
        let event = self.next()?;
        self.peeked = Some(event);
        Ok(event == Event::Null)
    }

    /// The error of whatever follows the finished document.
    pub(crate) fn finish(&mut self) -> Result<(), ReadError> {
        self.reader.next_event().map(drop)
    }

    /// Steps over one value.
    pub(crate) fn skip(&mut self) -> Result<(), ReadError> {
        match self.peeked.take() {
            Some(Event::ObjectStart | Event::ArrayStart) => self.leave_container(),
            Some(_) => Ok(()),
            None => self.reader.skip_value().map(drop),
        }
    }

    /// Reads an object, one call per member; false when there is no object.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<(), ReadError>,
    ) -> Result<bool, ReadError> {
        match self.next()? {
            Event::ObjectStart => {}
            other => return self.unexpected::<()>(&other, "an object").map(|_| false),
        }
        while let Event::Key(key) = self.reader.next_event()? {
            let key = key.decode();
            self.path.push(Step::Key(key.clone()));
            member(self, &key)?;
            self.path.pop();
        }
        Ok(true)
    }

    /// Reads an array, one call per element; false when there is no array.
    pub(crate) fn array(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), ReadError>,
    ) -> Result<bool, ReadError> {
        match self.next()? {
            Event::ArrayStart => {}
            other => return self.unexpected::<()>(&other, "an array").map(|_| false),
        }
        let mut index = 0;
        loop {
            match self.reader.next_event()? {
                Event::ArrayEnd => break,
                event => self.peeked = Some(event),
            }
            self.path.push(Step::Index(index));
            element(self)?;
            self.path.pop();
            index += 1;
        }
        Ok(true)
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        match self.next()? {
            Event::Number(number) if number.as_u64().is_some() => Ok(number.as_u64()),
            other => self.unexpected(&other, "a whole number"),
        }
    }

    pub(crate) fn nullable_u64(&mut self) -> Read<Option<u64>> {
        match self.next()? {
            Event::Null => Ok(Some(None)),
            Event::Number(number) if number.as_u64().is_some() => Ok(Some(number.as_u64())),
            other => self.unexpected(&other, "a whole number or null"),
        }
    }

    pub(crate) fn f64(&mut self) -> Read<f64> {
        match self.next()? {
            Event::Number(number) if number.as_f64().is_some() => Ok(number.as_f64()),
            other => self.unexpected(&other, "a number"),
        }
    }

    pub(crate) fn nullable_f64(&mut self) -> Read<Option<f64>> {
        match self.next()? {
            Event::Null => Ok(Some(None)),
            Event::Number(number) if number.as_f64().is_some() => Ok(Some(number.as_f64())),
            other => self.unexpected(&other, "a number or null"),
        }
    }

    pub(crate) fn bool(&mut self) -> Read<bool> {
        match self.next()? {
            Event::Bool(value) => Ok(Some(value)),
            other => self.unexpected(&other, "true or false"),
        }
    }

    pub(crate) fn string(&mut self) -> Read<Box<str>> {
        match self.next()? {
            Event::String(text) => Ok(Some(text.decode().into())),
            other => self.unexpected(&other, "a string"),
        }
    }

    /// A string that `parse` understands; `expected` says which those are.
    pub(crate) fn word<T>(&mut self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        match self.next()? {
            Event::String(text) => {
                let decoded = text.decode();
                let value = parse(&decoded);
                if value.is_none() {
                    self.note(expected, format!("{decoded:?}"));
                }
                Ok(value)
            }
            other => self.unexpected(&other, expected),
        }
    }

    /// Notes a value of the wrong type and steps over it.
    fn unexpected<T>(&mut self, event: &Event<'a>, expected: &str) -> Read<T> {
        self.note(expected, describe(event));
        if matches!(event, Event::ObjectStart | Event::ArrayStart) {
            self.leave_container()?;
        }
        Ok(None)
    }

    fn leave_container(&mut self) -> Result<(), ReadError> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.reader.next_event()? {
                Event::ObjectStart | Event::ArrayStart => depth += 1,
                Event::ObjectEnd | Event::ArrayEnd => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn pointer(&self, as_shape: bool) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                Step::Key(key) => pointer.push_str(&escape_token(key)),
                Step::Index(_) if as_shape => pointer.push('*'),
                Step::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }
}

/// The text of a scalar exactly as it stands in the JSON, or the kind of a container.
pub(crate) fn describe(event: &Event<'_>) -> String {
    match event {
        Event::ObjectStart => "an object".to_owned(),
        Event::ArrayStart => "an array".to_owned(),
        Event::String(text) => format!("{:?}", text.decode()),
        Event::Number(number) => number.text().to_owned(),
        Event::Bool(value) => value.to_string(),
        Event::Null => "null".to_owned(),
        _ => "nothing".to_owned(),
    }
}
