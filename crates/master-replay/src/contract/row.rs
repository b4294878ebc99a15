//! One line as JSON: which members it has and what they are, before any rule looks at them.
//!
//! [`plain`] takes a line that it understands without doubt and gives up on anything else; the strict event reader is the
//! authority, and knows what is wrong and where.

use std::borrow::Cow;

use canonical_json::{Event, Limits, Number, ReadError, ReadErrorKind, Reader, Text};

use super::rule::Rule;

mod plain;

pub(crate) use plain::Layout;

/// Containers that may be nested, the row itself included.
const MAX_DEPTH: usize = 128;

/// A broken rule within one line, by the offset of the place in the line. Boxed, so that what succeeds stays small.
#[derive(Debug)]
pub(crate) struct Bad(Box<Broken>);

#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Bad {
    pub(crate) fn new(rule: Rule, at: usize, message: impl Into<String>) -> Self {
        Bad(Box::new(Broken { rule, at, message: message.into() }))
    }

    pub(crate) fn into_inner(self) -> Broken {
        *self.0
    }
}

macro_rules! fields {
    ($($name:ident = $text:literal,)+) => {
        /// The members that some row may have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Field { $($name,)+ }

        impl Field {
            pub(crate) const ALL: &[Field] = &[$(Field::$name),+];

            fn of(name: &str) -> Option<Field> {
                match name { $($text => Some(Field::$name),)+ _ => None }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Field::$name => $text,)+ }
            }
        }
    };
}

fields! {
    // Events.
    Id = "id",
    TimestampUs = "timestamp_us",
    ClientId = "client_id",
    Op = "op",
    Keys = "keys",
    ValueSizes = "value_sizes",
    ValueSlices = "value_slices",
    ReplicaNum = "replica_num",
    DependsOn = "depends_on",
    PutStart = "put_start",
    Phase = "phase",
    SegmentId = "segment_id",
    SizeBytes = "size_bytes",
    Segments = "segments",
    // Headers.
    Type = "type",
    Version = "version",
    TimeUnit = "time_unit",
    Metadata = "metadata",
    // Events of a later dialect.
    OperationId = "operation_id",
    DelayUs = "delay_us",
    HoldUs = "hold_us",
    Workers = "workers",
    Connections = "connections",
}

impl Field {
    /// A set that holds this field alone.
    pub(crate) const fn alone(self) -> Fields {
        Fields(1 << self as u32)
    }
}

/// A set of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields(u32);

impl Fields {
    /// The fields of events.
    pub(crate) const EVENT: Fields = Fields(Field::Type.alone().0 - 1);
    /// The fields of headers.
    pub(crate) const HEADER: Fields = Fields(Field::OperationId.alone().0 - 1 - Fields::EVENT.0);
    /// The fields that an unversioned trace must not have, lest they be ignored.
    pub(crate) const FOREIGN: Fields = Fields(!(Field::OperationId.alone().0 - 1) | Field::Phase.alone().0);
    /// The fields of writes.
    pub(crate) const WRITE: Fields =
        Field::ValueSizes.alone().or(Field::ValueSlices.alone()).or(Field::ReplicaNum.alone());

    /// The fields of registrations, mounts and unmounts.
    pub(crate) const LIFECYCLE: Fields =
        Field::SegmentId.alone().or(Field::SizeBytes.alone()).or(Field::Segments.alone());

    pub(crate) const fn or(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    pub(crate) const fn not(self) -> Fields {
        Fields(!self.0)
    }
}

/// A string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    Plain(&'a str),
    Escaped(Text<'a>),
}

impl<'a> Word<'a> {
    fn of(text: Text<'a>) -> Self {
        if text.is_escaped() { Word::Escaped(text) } else { Word::Plain(text.raw()) }
    }

    /// What stands between the quotes.
    pub(crate) fn raw(self) -> &'a str {
        match self {
            Word::Plain(text) => text,
            Word::Escaped(text) => text.raw(),
        }
    }

    /// The string that is meant.
    pub(crate) fn decode(self) -> Cow<'a, str> {
        match self {
            Word::Plain(text) => Cow::Borrowed(text),
            Word::Escaped(text) => text.decode(),
        }
    }

    /// The string that is meant; the buffer is used if it has to be put together.
    pub(crate) fn decode_in<'b>(self, buffer: &'b mut String) -> &'b str
    where
        'a: 'b,
    {
        match self {
            Word::Plain(text) => text,
            Word::Escaped(text) => {
                buffer.clear();
                buffer.extend(text.chars());
                buffer
            }
        }
    }
}

/// A value: arrays come before their elements in the tape, and say where they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node<'a> {
    Text(Word<'a>),
    /// Its value, if it is written in plain digits and fits.
    Number(Option<u64>),
    Array {
        end: usize,
    },
    Object,
    Literal,
}

/// A value and where it is: the offset of the end of what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) after: usize,
}

impl<'a> Item<'a> {
    pub(crate) fn nonempty_text(&self) -> Option<Word<'a>> {
        match self.node {
            Node::Text(text) if !text.raw().is_empty() => Some(text),
            _ => None,
        }
    }

    /// A string without escapes.
    pub(crate) fn plain_text(&self) -> Option<&'a str> {
        match self.node {
            Node::Text(Word::Plain(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn whole_number(&self) -> Option<u64> {
        match self.node {
            Node::Number(number) => number,
            _ => None,
        }
    }

    pub(crate) fn positive(&self) -> Option<u64> {
        self.whole_number().filter(|value| *value > 0)
    }
}

/// The members of one row. It is used for many rows, so that reading one allocates little.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    line: &'a [u8],
    fault: Option<Bad>,
    tape: Vec<Item<'a>>,
    open: Vec<usize>,
    /// The place in the tape of each member that is present.
    fields: [u32; Field::ALL.len()],
    present: Fields,
    /// The first member of each row that no dialect knows.
    pub(crate) unknown: Option<(Text<'a>, usize)>,
    /// The text of the metadata.
    pub(crate) metadata: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    pub(crate) fn new() -> Self {
        Row {
            line: &[],
            fault: None,
            tape: Vec::new(),
            open: Vec::new(),
            fields: [0; Field::ALL.len()],
            present: Fields(0),
            unknown: None,
            metadata: None,
        }
    }

    /// Reads a line; the layout is that of lines before it. What is wrong with the line is kept until its turn comes.
    pub(crate) fn read(&mut self, line: &'a [u8], layout: &mut Layout) {
        self.clear(line);
        if self.read_plain(line, layout).is_none() && !self.is_blank() {
            self.fault = self.read_strictly(line).err();
        }
    }

    fn read_strictly(&mut self, line: &'a [u8]) -> Result<(), Bad> {
        self.clear(line);
        if line.starts_with(b"\xEF\xBB\xBF") {
            return Err(Bad::new(Rule::JBom, 0, "the line starts with a byte order mark"));
        }
        self.object(line).map_err(|error| match std::str::from_utf8(line) {
            // Wherever the bad byte is, it is what is wrong with the line.
            Err(utf8) => Bad::new(Rule::JUtf8, utf8.valid_up_to(), "the line is not well-formed UTF-8"),
            Ok(_) => error,
        })
    }

    /// The line.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.line
    }

    /// What is wrong with the line as JSON.
    pub(crate) fn take_fault(&mut self) -> Option<Bad> {
        self.fault.take()
    }

    /// Whether the line is nothing but space.
    pub(crate) fn is_blank(&self) -> bool {
        self.line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
    }

    fn clear(&mut self, line: &'a [u8]) {
        self.line = line;
        self.fault = None;
        self.tape.clear();
        self.open.clear();
        self.present = Fields(0);
        self.unknown = None;
        self.metadata = None;
    }

    fn object(&mut self, line: &'a [u8]) -> Result<(), Bad> {
        let mut reader = Reader::with_limits(line, Limits::with_max_depth(MAX_DEPTH));
        let first = self.next(&mut reader)?;
        if first == Event::ObjectStart {
            self.members(&mut reader)?;
        } else {
            self.value(&mut reader, first, 0)?;
        }
        self.next(&mut reader)?;
        if first == Event::ObjectStart {
            return Ok(());
        }
        Err(Bad::new(Rule::JObject, self.begin(0), "the row is JSON, but not an object"))
    }

    #[inline]
    fn next(&self, reader: &mut Reader<'a>) -> Result<Event<'a>, Bad> {
        match reader.next_event() {
            Ok(event) => Ok(event),
            Err(error) => Err(json_error(&error)),
        }
    }

    /// Puts one step of a value into the tape.
    fn take(&mut self, event: Event<'a>, after: usize) -> Result<(), Bad> {
        match event {
            Event::String(text) => self.push(Node::Text(Word::of(text)), after),
            Event::Number(number) => {
                check_number(number, after)?;
                self.push(Node::Number(number.as_u64()), after);
            }
            Event::ArrayStart => {
                self.open.push(self.tape.len());
                self.push(Node::Array { end: 0 }, after);
            }
            Event::ObjectStart => {
                self.open.push(self.tape.len());
                self.push(Node::Object, after);
            }
            Event::ArrayEnd | Event::ObjectEnd => self.close(),
            Event::Key(_) => {}
            _ => self.push(Node::Literal, after),
        }
        Ok(())
    }

    fn push(&mut self, node: Node<'a>, after: usize) {
        self.tape.push(Item { node, after });
    }

    fn close(&mut self) {
        let Some(start) = self.open.pop() else { return };
        let length = self.tape.len();
        match &mut self.tape[start].node {
            Node::Array { end } => *end = length,
            // Nothing looks into objects.
            _ => self.tape.truncate(start + 1),
        }
    }

    fn members(&mut self, reader: &mut Reader<'a>) -> Result<(), Bad> {
        loop {
            let before = reader.offset();
            let Event::Key(name) = self.next(reader)? else { return Ok(()) };
            let field = if name.is_escaped() { Field::of(&name.decode()) } else { Field::of(name.raw()) };
            let after = reader.offset();
            let at = self.tape.len();
            let event = self.next(reader)?;
            self.value(reader, event, after)?;
            match field {
                Some(field) => self.put(field, at),
                None if self.unknown.is_none() => self.unknown = Some((name, before)),
                None => {}
            }
            if field == Some(Field::Metadata) {
                self.metadata = Some(self.line[after..reader.offset()].trim_ascii());
            }
        }
    }

    /// Reads the rest of the value that begins with `event`.
    fn value(&mut self, reader: &mut Reader<'a>, event: Event<'a>, after: usize) -> Result<(), Bad> {
        let base = self.open.len();
        self.take(event, after)?;
        while self.open.len() > base {
            let after = reader.offset();
            let event = self.next(reader)?;
            self.take(event, after)?;
        }
        Ok(())
    }

    /// The member's value is at this place of the tape.
    fn put(&mut self, field: Field, place: usize) {
        // A row of 2^32 values would take 200 GB before it came here.
        self.fields[field as usize] = u32::try_from(place).unwrap_or(u32::MAX);
        self.present = self.present.or(field.alone());
    }

    /// The member's value, if the row has that member.
    pub(crate) fn get(&self, field: Field) -> Option<Item<'a>> {
        self.has(field).then(|| self.tape[self.fields[field as usize] as usize])
    }

    pub(crate) fn has(&self, field: Field) -> bool {
        self.present.0 & field.alone().0 != 0
    }

    /// The elements of the member's value, if it is an array.
    pub(crate) fn array(&self, field: Field) -> Option<Elements<'_, 'a>> {
        if self.has(field) { self.elements(self.fields[field as usize] as usize) } else { None }
    }

    /// The elements of the value at this place of the tape, if it is an array.
    pub(crate) fn elements(&self, place: usize) -> Option<Elements<'_, 'a>> {
        match self.tape[place].node {
            Node::Array { end } => Some(Elements { tape: &self.tape, at: place + 1, end }),
            _ => None,
        }
    }

    /// The first present member of this set, in the order in which rules name them.
    pub(crate) fn first(&self, wanted: Fields) -> Option<Field> {
        let found = self.present.0 & wanted.0;
        Field::ALL.get(found.trailing_zeros() as usize).copied()
    }

    /// Where the member's value is; where the row begins if it has none.
    pub(crate) fn place(&self, field: Field) -> usize {
        self.get(field).map_or_else(|| self.begin(0), |item| self.begin(item.after))
    }

    /// The first byte of what comes after `after`.
    pub(crate) fn begin(&self, after: usize) -> usize {
        let rest = self.line.get(after..).unwrap_or_default();
        let skipped = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b',')).count();
        after + skipped
    }
}

/// The elements of an array, each with its place in the tape.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'r, 'a> {
    tape: &'r [Item<'a>],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Elements<'_, 'a> {
    type Item = (usize, Item<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let place = self.at;
        let item = self.tape[place];
        self.at = match item.node {
            Node::Array { end } => end,
            _ => place + 1,
        };
        Some((place, item))
    }
}

/// A number must have a finite double; anything short enough and without exponent has.
fn check_number(number: Number<'_>, after: usize) -> Result<(), Bad> {
    let text = number.text();
    let plain = text.len() <= 300 && !text.bytes().any(|byte| matches!(byte, b'e' | b'E'));
    if plain || number.as_f64().is_some() {
        return Ok(());
    }
    Err(Bad::new(Rule::JNumber, after, format!("the number {} has no finite double", shortened(text))))
}

/// Text of the input, cut so that a message stays readable.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const KEPT: usize = 60;
    match text.char_indices().nth(KEPT) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
    }
}

#[cold]
fn json_error(error: &ReadError) -> Bad {
    let rule = match error.kind {
        ReadErrorKind::ByteOrderMark => Rule::JBom,
        ReadErrorKind::TrailingText => Rule::JTrailing,
        ReadErrorKind::ControlCharacter { .. } => Rule::JControl,
        ReadErrorKind::LoneSurrogate => Rule::JSurrogate,
        ReadErrorKind::InvalidUtf8 => Rule::JUtf8,
        ReadErrorKind::RepeatedKey { .. } => Rule::JDupKey,
        ReadErrorKind::TooDeep { .. } => Rule::JDepth,
        _ => Rule::JSyntax,
    };
    Bad::new(rule, error.offset, error.kind.to_string())
}

#[cfg(test)]
mod tests;
