//! Any row, read event by event: the authority on what a line says and where it says it.

use canonical_json::{Event, ReadError, Reader};

use super::{Fields, MAX_TIMESTAMP_MS, MAX_TOKENS, Refused, Rules, Scratch, UnknownFields};
use crate::error::{Expected, RowErrorKind};

/// Fields that make several rows one session, in Dynamo's reading of a Mooncake row.
const MULTI_TURN: [&str; 3] = ["session_id", "delay", "delay_ms"];
/// Other names that Dynamo's loader accepts. A row could have both, and two readers could take different ones.
const ALIASES: [(&str, &str); 3] =
    [("created_time", "timestamp"), ("input_tokens", "input_length"), ("output_tokens", "output_length")];
/// How much of an unexpected number an error shows.
const SHOWN_CHARS: usize = 40;

/// Where the values of a row stand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    timestamp: usize,
    hash_ids: usize,
}

impl Places {
    /// Points at the value that a violation is about.
    pub(super) fn refuse(&self, kind: RowErrorKind) -> Refused {
        let (at, pointer) = match kind {
            RowErrorKind::TimestampWentBack { .. } => (self.timestamp, "/timestamp"),
            _ => (self.hash_ids, "/hash_ids"),
        };
        Refused { at, pointer: pointer.to_owned(), kind }
    }
}

/// Reads a line, or says which byte of it is not acceptable.
pub(super) fn parse(line: &[u8], rules: &Rules, scratch: &mut Scratch) -> Result<(Fields, Places), Refused> {
    if line.iter().all(|byte| is_space(*byte)) {
        return Err(refuse(0, "", RowErrorKind::EmptyLine));
    }
    let mut row = Members { json: Json::new(line), rules, scratch, found: Found::default() };
    row.read()?;
    row.found.complete(row.json.at)
}

fn refuse(at: usize, pointer: &str, kind: RowErrorKind) -> Refused {
    Refused { at, pointer: pointer.to_owned(), kind }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The event reader, with the place of the event last read.
struct Json<'a> {
    line: &'a [u8],
    reader: Reader<'a>,
    at: usize,
}

impl<'a> Json<'a> {
    fn new(line: &'a [u8]) -> Self {
        Json { line, reader: Reader::new(line), at: 0 }
    }

    fn next(&mut self) -> Result<Event<'a>, Refused> {
        // The reader stands after the event before; what separates the two is punctuation and space.
        let separates = |byte: &u8| is_space(*byte) || matches!(byte, b',' | b':');
        let from = self.reader.offset();
        self.at = from + self.line[from..].iter().take_while(|byte| separates(byte)).count();
        self.reader.next_event().map_err(broken)
    }

    /// Goes over a value that nobody asked for; it is checked all the same.
    fn skip(&mut self) -> Result<(), Refused> {
        self.reader.skip_value().map(|_| ()).map_err(broken)
    }
}

fn broken(error: ReadError) -> Refused {
    refuse(error.offset, error.pointer.as_ref(), RowErrorKind::Json { problem: error.kind })
}

/// What is wrong right after a member is best shown at that member: in `"output_length":2748 610` it is the number that
/// is broken, although the reader only knows that the row does not go on as it should.
fn after_member(refused: Refused, last: &str) -> Refused {
    if refused.pointer.is_empty() { Refused { pointer: last.to_owned(), ..refused } } else { refused }
}

/// What an error calls a value.
fn describe(event: &Event<'_>) -> String {
    match event {
        Event::ObjectStart => "an object".to_owned(),
        Event::ArrayStart => "an array".to_owned(),
        Event::String(_) => "a string".to_owned(),
        Event::Bool(value) => value.to_string(),
        Event::Null => "null".to_owned(),
        Event::Number(number) => clip(number.text()),
        _ => "nothing".to_owned(),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A row while its members are read.
struct Members<'a, 'b> {
    json: Json<'a>,
    rules: &'b Rules,
    scratch: &'b mut Scratch,
    found: Found,
}

impl Members<'_, '_> {
    fn read(&mut self) -> Result<(), Refused> {
        let first = self.json.next()?;
        if !matches!(first, Event::ObjectStart) {
            let found = describe(&first);
            return Err(refuse(self.json.at, "", RowErrorKind::NotAnObject { found }));
        }
        let mut last = String::new();
        while let Event::Key(name) = self.json.next().map_err(|refused| after_member(refused, &last))? {
            let name = name.decode();
            self.member(&name)?;
            last = pointer_to(&name);
        }
        let end = self.json.at;
        // The reader refuses whatever follows the object.
        self.json.next()?;
        self.json.at = end;
        Ok(())
    }

    fn member(&mut self, name: &str) -> Result<(), Refused> {
        let key = self.json.at;
        match name {
            "timestamp" => {
                let (place, value) = self.number(Expected::TimestampMs, "/timestamp", 0, MAX_TIMESTAMP_MS)?;
                self.found.timestamp = Some((place, value));
            }
            "input_length" => {
                let (_, value) = self.number(Expected::InputLength, "/input_length", 1, MAX_TOKENS)?;
                self.found.input_length = Some(value);
            }
            "output_length" => {
                let (_, value) = self.number(Expected::OutputLength, "/output_length", 0, MAX_TOKENS)?;
                self.found.output_length = Some(value);
            }
            "hash_ids" => self.hash_ids()?,
            _ => self.other(name, key)?,
        }
        Ok(())
    }

    fn number(
        &mut self,
        expected: Expected,
        pointer: &str,
        min: u64,
        max: u64,
    ) -> Result<(usize, u64), Refused> {
        let event = self.json.next()?;
        let place = self.json.at;
        let whole = expected == Expected::TimestampMs;
        match exact(&event, whole).filter(|value| (min..=max).contains(value)) {
            Some(value) => Ok((place, value)),
            None => Err(self.unexpected(&event, expected, pointer)),
        }
    }

    fn unexpected(&self, event: &Event<'_>, expected: Expected, pointer: &str) -> Refused {
        let kind = RowErrorKind::Value { expected, found: describe(event) };
        refuse(self.json.at, pointer, kind)
    }

    fn hash_ids(&mut self) -> Result<(), Refused> {
        let event = self.json.next()?;
        self.found.hash_ids = Some(self.json.at);
        if !matches!(event, Event::ArrayStart) {
            return Err(self.unexpected(&event, Expected::HashIds, "/hash_ids"));
        }
        self.scratch.hash_ids.clear();
        loop {
            let event = self.json.next()?;
            if matches!(event, Event::ArrayEnd) {
                return Ok(());
            }
            match exact(&event, false) {
                Some(id) => self.scratch.hash_ids.push(id),
                None => {
                    let pointer = format!("/hash_ids/{}", self.scratch.hash_ids.count());
                    return Err(self.unexpected(&event, Expected::HashId, &pointer));
                }
            }
        }
    }

    fn other(&mut self, name: &str, key: usize) -> Result<(), Refused> {
        let kind = if MULTI_TURN.contains(&name) {
            RowErrorKind::MultiTurn { name: name.to_owned() }
        } else if let Some((_, field)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            RowErrorKind::Alias { name: name.to_owned(), field }
        } else if self.rules.unknown_fields == UnknownFields::Reject {
            RowErrorKind::UnknownField { name: clip(name) }
        } else {
            self.scratch.other_fields.push(name.to_owned());
            return self.json.skip();
        };
        Err(refuse(key, &pointer_to(name), kind))
    }
}

/// RFC 6901, for a member of the row.
fn pointer_to(name: &str) -> String {
    format!("/{}", clip(name).replace('~', "~0").replace('/', "~1"))
}

/// The whole number an event is, never by way of a double. With `zero_fraction`, `123.0` is 123: writers that keep
/// timestamps as doubles, as Dynamo's own exporter does, spell a whole number so.
fn exact(event: &Event<'_>, zero_fraction: bool) -> Option<u64> {
    let Event::Number(number) = event else { return None };
    let text = number.text();
    let digits = match text.split_once('.') {
        Some((whole, fraction)) if zero_fraction && fraction.bytes().all(|digit| digit == b'0') => whole,
        _ => text,
    };
    // `u64` would also read a plus sign, which JSON does not have.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The fields seen so far.
#[derive(Default)]
struct Found {
    timestamp: Option<(usize, u64)>,
    input_length: Option<u64>,
    output_length: Option<u64>,
    hash_ids: Option<usize>,
}

impl Found {
    /// All four, or the first one missing, which is shown where the object ends.
    fn complete(&self, end: usize) -> Result<(Fields, Places), Refused> {
        let missing = |expected, pointer| move || refuse(end, pointer, RowErrorKind::Missing { expected });
        let (timestamp, timestamp_ms) =
            self.timestamp.ok_or_else(missing(Expected::TimestampMs, "/timestamp"))?;
        let input_length = self.input_length.ok_or_else(missing(Expected::InputLength, "/input_length"))?;
        let output_length =
            self.output_length.ok_or_else(missing(Expected::OutputLength, "/output_length"))?;
        let hash_ids = self.hash_ids.ok_or_else(missing(Expected::HashIds, "/hash_ids"))?;
        let fields = Fields { timestamp_ms, input_length, output_length };
        Ok((fields, Places { timestamp, hash_ids }))
    }
}
