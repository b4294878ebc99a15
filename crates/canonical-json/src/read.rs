use std::borrow::Cow;
use std::collections::{HashSet, TryReserveError};
use std::fmt;

use thiserror::Error;

use crate::error::Shown;
use crate::text::{Number, Text};
use crate::{Pointer, escape_token};

/// How much a [`Reader`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many objects and arrays may be open at once.
    pub max_depth: usize,
}

impl Limits {
    /// The depth accepted unless something else is asked for.
    pub const DEFAULT_MAX_DEPTH: usize = 1024;

    /// Accepts this depth.
    ///
    /// Nothing recurses on the machine stack; each open level costs some tens of bytes of memory.
    #[must_use]
    pub const fn with_max_depth(max_depth: usize) -> Self {
        Limits { max_depth }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::with_max_depth(Limits::DEFAULT_MAX_DEPTH)
    }
}

/// One step through a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// `{`
    ObjectStart,
    /// `}`
    ObjectEnd,
    /// `[`
    ArrayStart,
    /// `]`
    ArrayEnd,
    /// The key of a member; its value follows.
    Key(Text<'a>),
    /// A string that is a value.
    String(Text<'a>),
    /// A number.
    Number(Number<'a>),
    /// `true` or `false`
    Bool(bool),
    /// `null`
    Null,
    /// The document is complete, and nothing but whitespace follows it.
    End,
}

/// A strict pull reader: RFC 8259 and nothing else.
///
/// Repeated keys (after unescaping), lone surrogates, invalid UTF-8, a byte order mark, text after the document
/// and depth beyond the [limit](Limits) are errors that say where. Numbers stay text, so no integer ever passes
/// through a double. Nothing is copied: texts borrow from the input.
///
/// ```
/// use canonical_json::{Event, Reader};
///
/// let mut reader = Reader::new(br#"{"uuid": 18446744073709551615}"#);
/// assert_eq!(reader.next_event()?, Event::ObjectStart);
/// assert!(matches!(reader.next_event()?, Event::Key(key) if key == "uuid"));
/// assert!(matches!(reader.next_event()?, Event::Number(n) if n.as_u64() == Some(u64::MAX)));
/// assert_eq!(reader.next_event()?, Event::ObjectEnd);
/// assert_eq!(reader.next_event()?, Event::End);
/// # Ok::<(), canonical_json::ReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    next: Next,
    limits: Limits,
    frames: Vec<Frame<'a>>,
    /// The keys read so far of every open object, outermost object first.
    keys: Vec<Text<'a>>,
}

/// What the grammar asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Value,
    ElementOrEnd,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

#[derive(Clone, Debug)]
enum Frame<'a> {
    Array { index: usize },
    Object { first_key: usize, keys: KeySet<'a> },
}

/// How repeated keys of one object are found.
#[derive(Clone, Debug)]
enum KeySet<'a> {
    /// Every key so far was greater than the one before: comparing with the last is enough.
    Ascending,
    /// Few keys: comparing with each is cheapest.
    Few,
    /// Many keys; the hashes are keyed at random, so no input can make them collide.
    Many(HashSet<Cow<'a, str>>),
}

const FEW_KEYS: usize = 16;

impl<'a> Reader<'a> {
    /// Reads this document with the default limits.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Reader::with_limits(input, Limits::default())
    }

    /// Reads this document with these limits.
    #[must_use]
    pub fn with_limits(input: &'a [u8], limits: Limits) -> Self {
        Reader { input, at: 0, next: Next::Value, limits, frames: Vec::new(), keys: Vec::new() }
    }

    /// How many bytes have been read: the end of the last event.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// How many objects and arrays are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The place of the innermost value that has begun and is not complete: after a key that of its member, otherwise that of the
    /// innermost object or array that is open, and of the whole document where none is. What an error is in, the
    /// [error](ReadError::pointer) says.
    #[must_use]
    pub fn pointer(&self) -> Pointer {
        let inside = matches!(self.next, Next::Value | Next::Nothing);
        self.pointer_of(if inside { self.frames.len() } else { self.frames.len().saturating_sub(1) })
    }

    /// The place of the value that the last event began or was.
    pub(crate) fn value_pointer(&self) -> Pointer {
        let is_open = matches!(self.next, Next::KeyOrEnd | Next::ElementOrEnd);
        self.pointer_of(self.frames.len() - usize::from(is_open))
    }

    /// Takes the next step.
    ///
    /// After the end, every further step is [`Event::End`] again.
    ///
    /// # Errors
    ///
    /// The input is not strict JSON here. The reader does not move past an error.
    pub fn next_event(&mut self) -> Result<Event<'a>, ReadError> {
        self.skip_whitespace();
        match self.next {
            Next::Value => self.value(),
            Next::ElementOrEnd if self.peek() == Some(b']') => Ok(self.end(Event::ArrayEnd)),
            Next::ElementOrEnd => {
                self.next = Next::Value;
                self.value()
            }
            Next::KeyOrEnd if self.peek() == Some(b'}') => Ok(self.end(Event::ObjectEnd)),
            Next::KeyOrEnd => self.key(),
            Next::CommaOrEnd => self.after_value(),
            Next::Nothing if self.at == self.input.len() => Ok(Event::End),
            Next::Nothing => Err(self.error(ReadErrorKind::TrailingText)),
        }
    }

    /// Reads the next value whole, checking all of it, and returns its text; nothing if what follows is no value
    /// but the end of an array, an object or the document, which is then taken, or a key, whose value is then skipped.
    ///
    /// # Errors
    ///
    /// The input is not strict JSON within the value.
    pub fn skip_value(&mut self) -> Result<Option<&'a [u8]>, ReadError> {
        let depth = self.frames.len();
        self.skip_whitespace();
        if self.next == Next::CommaOrEnd && self.peek() == Some(b',') && self.in_array() {
            self.comma();
            self.skip_whitespace();
        }
        let start = self.at;
        match self.next_event()? {
            Event::Key(_) => return self.skip_value().map(|_| None),
            Event::ObjectEnd | Event::ArrayEnd | Event::End => return Ok(None),
            _ => {}
        }
        while self.frames.len() > depth {
            self.next_event()?;
        }
        Ok(Some(&self.input[start..self.at]))
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn in_array(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Array { .. }))
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Event<'a>, ReadError> {
        match self.peek() {
            Some(b'{') => self.open(Event::ObjectStart),
            Some(b'[') => self.open(Event::ArrayStart),
            Some(b'"') => self.string().map(|text| self.finish(Event::String(text))),
            Some(b'-' | b'0'..=b'9') => self.number().map(|number| self.finish(Event::Number(number))),
            Some(b't') => self.literal("true", Event::Bool(true)),
            Some(b'f') => self.literal("false", Event::Bool(false)),
            Some(b'n') => self.literal("null", Event::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn open(&mut self, event: Event<'a>) -> Result<Event<'a>, ReadError> {
        if self.frames.len() == self.limits.max_depth {
            return Err(self.error(ReadErrorKind::TooDeep { limit: self.limits.max_depth }));
        }
        self.frames.try_reserve(1).map_err(|_| self.error(ReadErrorKind::NoRoom))?;
        self.at += 1;
        if event == Event::ObjectStart {
            self.frames.push(Frame::Object { first_key: self.keys.len(), keys: KeySet::Ascending });
            self.next = Next::KeyOrEnd;
        } else {
            self.frames.push(Frame::Array { index: 0 });
            self.next = Next::ElementOrEnd;
        }
        Ok(event)
    }

    fn end(&mut self, event: Event<'a>) -> Event<'a> {
        self.at += 1;
        if let Some(Frame::Object { first_key, .. }) = self.frames.pop() {
            self.keys.truncate(first_key);
        }
        self.finish(event)
    }

    /// A value is complete.
    fn finish(&mut self, event: Event<'a>) -> Event<'a> {
        self.next = if self.frames.is_empty() { Next::Nothing } else { Next::CommaOrEnd };
        event
    }

    fn after_value(&mut self) -> Result<Event<'a>, ReadError> {
        let in_array = self.in_array();
        match self.peek() {
            Some(b',') => {
                let comma = self.at;
                self.comma();
                self.skip_whitespace();
                let event = if in_array { self.value() } else { self.key() };
                // Stay on the comma, so that asking again gives the same error.
                event.inspect_err(|_| self.rewind(comma))
            }
            Some(b']') if in_array => Ok(self.end(Event::ArrayEnd)),
            Some(b'}') if !in_array => Ok(self.end(Event::ObjectEnd)),
            _ if in_array => Err(self.unexpected("`,` or `]`")),
            _ => Err(self.unexpected("`,` or `}`")),
        }
    }

    fn comma(&mut self) {
        self.at += 1;
        self.next = match self.frames.last_mut() {
            Some(Frame::Array { index }) => {
                *index += 1;
                Next::Value
            }
            _ => Next::CommaOrEnd,
        };
    }

    fn rewind(&mut self, comma: usize) {
        self.at = comma;
        self.next = Next::CommaOrEnd;
        if let Some(Frame::Array { index }) = self.frames.last_mut() {
            *index -= 1;
        }
    }

    fn key(&mut self) -> Result<Event<'a>, ReadError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a key"));
        }
        let key = self.string()?;
        let kind = match self.is_repeated(key) {
            Ok(false) => None,
            Ok(true) => Some(ReadErrorKind::RepeatedKey { key: key.decode().into_owned() }),
            Err(_) => Some(ReadErrorKind::NoRoom),
        };
        if let Some(kind) = kind {
            let error = self.error_at(start, kind);
            return Err(self.reset(start, error));
        }
        self.keys.push(key);
        self.skip_whitespace();
        if self.peek() != Some(b':') {
            let error = self.unexpected("`:`");
            // Asking again is to give the same error, not that the key is repeated.
            self.keys.pop();
            if let Some(Frame::Object { keys: KeySet::Many(set), .. }) = self.frames.last_mut() {
                set.remove(&key.decode());
            }
            return Err(self.reset(start, error));
        }
        self.at += 1;
        self.next = Next::Value;
        Ok(Event::Key(key))
    }

    fn reset(&mut self, start: usize, error: ReadError) -> ReadError {
        self.at = start;
        error
    }

    /// Whether the object has this key; makes room for it.
    fn is_repeated(&mut self, key: Text<'a>) -> Result<bool, TryReserveError> {
        self.keys.try_reserve(1)?;
        let Some(Frame::Object { first_key, keys }) = self.frames.last_mut() else { return Ok(false) };
        let before = &self.keys[*first_key..];
        match keys {
            KeySet::Ascending => {
                if before.last().is_none_or(|last| *last < key) {
                    return Ok(false);
                }
                *keys = if before.len() < FEW_KEYS { KeySet::Few } else { KeySet::many(before)? };
                self.is_repeated(key)
            }
            KeySet::Few => {
                if before.len() == FEW_KEYS {
                    *keys = KeySet::many(before)?;
                    return self.is_repeated(key);
                }
                Ok(before.contains(&key))
            }
            KeySet::Many(set) => {
                set.try_reserve(1)?;
                Ok(!set.insert(key.decode()))
            }
        }
    }

    fn string(&mut self) -> Result<Text<'a>, ReadError> {
        let start = self.at + 1;
        let found = self.string_end(start);
        let end = found.as_ref().map_or_else(|error| error.offset, |(end, _)| *end);
        // What comes first is said, so the characters before any other error are looked at, too.
        match std::str::from_utf8(&self.input[start..end]) {
            Ok(raw) => {
                let (end, escaped) = found?;
                self.at = end + 1;
                Ok(Text::new(raw, escaped))
            }
            Err(error) => Err(self.error_at(start + error.valid_up_to(), ReadErrorKind::InvalidUtf8)),
        }
    }

    /// Where the closing quote is, and whether there are escapes before it.
    fn string_end(&self, start: usize) -> Result<(usize, bool), ReadError> {
        let mut at = start;
        let mut escaped = false;
        loop {
            at += plain_length(&self.input[at..]);
            match self.input.get(at) {
                Some(b'"') => return Ok((at, escaped)),
                Some(b'\\') => {
                    escaped = true;
                    at = self.escape_end(at)?;
                }
                Some(byte) => return Err(self.error_at(at, ReadErrorKind::ControlCharacter { byte: *byte })),
                None => return Err(self.error_at(at, ReadErrorKind::UnexpectedEnd { expected: "`\"`" })),
            }
        }
    }

    fn escape_end(&self, backslash: usize) -> Result<usize, ReadError> {
        match self.input.get(backslash + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(backslash + 2),
            Some(b'u') => self.unicode_escape_end(backslash),
            Some(_) => Err(self.error_at(backslash, ReadErrorKind::InvalidEscape)),
            None => Err(self.error_at(backslash + 1, ReadErrorKind::UnexpectedEnd { expected: "an escape" })),
        }
    }

    fn unicode_escape_end(&self, backslash: usize) -> Result<usize, ReadError> {
        let unit = self.unicode_unit(backslash)?;
        match unit {
            0xD800..0xDC00 => {
                let low = backslash + 6;
                let paired = self.input.get(low..).is_some_and(|rest| rest.starts_with(b"\\u"))
                    && self.unicode_unit(low).is_ok_and(|unit| (0xDC00..0xE000).contains(&unit));
                if paired { Ok(low + 6) } else { Err(self.error_at(backslash, ReadErrorKind::LoneSurrogate)) }
            }
            0xDC00..0xE000 => Err(self.error_at(backslash, ReadErrorKind::LoneSurrogate)),
            _ => Ok(backslash + 6),
        }
    }

    fn unicode_unit(&self, backslash: usize) -> Result<u32, ReadError> {
        let Some(digits) = self.input.get(backslash + 2..backslash + 6) else {
            return Err(self.error_at(backslash, ReadErrorKind::InvalidEscape));
        };
        let digit = |unit: u32, byte: &u8| Some(unit << 4 | char::from(*byte).to_digit(16)?);
        let unit = digits.iter().try_fold(0, digit);
        unit.ok_or_else(|| self.error_at(backslash, ReadErrorKind::InvalidEscape))
    }

    fn number(&mut self) -> Result<Number<'a>, ReadError> {
        let end = number_end(self.input, self.at).map_err(|at| self.number_error(at))?;
        let text =
            std::str::from_utf8(&self.input[self.at..end]).expect("digits, signs, points and e are ASCII");
        self.at = end;
        Ok(Number::new(text))
    }

    fn number_error(&self, at: usize) -> ReadError {
        match self.input.get(at) {
            Some(_) => self.error_at(at, ReadErrorKind::InvalidNumber),
            None => self.error_at(at, ReadErrorKind::UnexpectedEnd { expected: "a digit" }),
        }
    }

    fn literal(&mut self, word: &'static str, event: Event<'a>) -> Result<Event<'a>, ReadError> {
        let rest = &self.input[self.at..];
        let common = rest.iter().zip(word.as_bytes()).take_while(|(found, wanted)| found == wanted).count();
        if common < word.len() {
            let kind = match rest.get(common) {
                Some(_) => ReadErrorKind::InvalidLiteral { expected: word },
                None => ReadErrorKind::UnexpectedEnd { expected: word },
            };
            return Err(self.error_at(self.at + common, kind));
        }
        self.at += word.len();
        Ok(self.finish(event))
    }

    fn unexpected(&self, expected: &'static str) -> ReadError {
        let rest = &self.input[self.at..];
        let kind = match rest.first() {
            None if self.frames.is_empty() => ReadErrorKind::Empty,
            None => ReadErrorKind::UnexpectedEnd { expected },
            Some(_) if self.at == 0 && rest.starts_with(b"\xEF\xBB\xBF") => ReadErrorKind::ByteOrderMark,
            Some(byte) => ReadErrorKind::Unexpected { byte: *byte, expected },
        };
        self.error(kind)
    }

    fn error(&self, kind: ReadErrorKind) -> ReadError {
        self.error_at(self.at, kind)
    }

    /// An error of this kind at a byte inside the value that is being read.
    fn error_at(&self, offset: usize, kind: ReadErrorKind) -> ReadError {
        let mut pointer = self.pointer();
        if let ReadErrorKind::RepeatedKey { key } = &kind {
            pointer.push_key(key);
        }
        self.error_in(pointer, offset, kind)
    }

    /// An error of this kind in the key, string or number that the last event was, so many bytes into its text.
    pub(crate) fn error_within(&self, event: &Event<'a>, into: usize, kind: ReadErrorKind) -> ReadError {
        let (length, end) = match event {
            Event::Key(text) | Event::String(text) => {
                // After the quote that ends a key there only are whitespace and the colon.
                let quote = memchr::memrchr(b'"', &self.input[..self.at]);
                (text.raw().len(), quote.expect("a string ends in a quote"))
            }
            Event::Number(number) => (number.text().len(), self.at),
            _ => (0, self.at),
        };
        let pointer = match event {
            // A name is in the object that has the member, not in the member.
            Event::Key(_) => self.pointer_of(self.frames.len() - 1),
            _ => self.value_pointer(),
        };
        self.error_in(pointer, end - length + into, kind)
    }

    fn error_in(&self, pointer: Pointer, offset: usize, kind: ReadErrorKind) -> ReadError {
        let before = &self.input[..offset.min(self.input.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let column = before[line_start..].iter().filter(|byte| **byte & 0xC0 != 0x80).count() + 1;
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        ReadError { kind, offset, line, column, pointer }
    }

    /// The place reached through the first `depth` open containers.
    fn pointer_of(&self, depth: usize) -> Pointer {
        let mut pointer = Pointer::root();
        // The key an open object is at is the one before the first key of the next open object.
        let mut ends = self.frames.iter().filter_map(Frame::first_key).skip(1).chain([self.keys.len()]);
        for frame in &self.frames[..depth] {
            match frame {
                Frame::Array { index } => pointer.push_index(*index),
                Frame::Object { .. } => {
                    let end = ends.next().unwrap_or(self.keys.len());
                    if let Some(key) = end.checked_sub(1).and_then(|last| self.keys.get(last)) {
                        pointer.push_key(&key.decode());
                    }
                }
            }
        }
        pointer
    }
}

impl Frame<'_> {
    fn first_key(&self) -> Option<usize> {
        match self {
            Frame::Object { first_key, .. } => Some(*first_key),
            Frame::Array { .. } => None,
        }
    }
}

impl<'a> KeySet<'a> {
    fn many(keys: &[Text<'a>]) -> Result<Self, TryReserveError> {
        let mut set = HashSet::new();
        set.try_reserve(keys.len())?;
        set.extend(keys.iter().map(Text::decode));
        Ok(KeySet::Many(set))
    }
}

/// How many bytes come before the first that is a quote, a backslash or a control character.
fn plain_length(bytes: &[u8]) -> usize {
    let mut chunks = bytes.chunks_exact(8);
    let mut length = 0;
    for chunk in chunks.by_ref() {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let special = special_bytes(word);
        if special != 0 {
            return length + (special.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    length
        + chunks.remainder().iter().take_while(|byte| **byte >= 0x20 && !matches!(byte, b'"' | b'\\')).count()
}

/// The high bit of every byte that is a quote, a backslash or a control character; bytes above the first such byte
/// may be marked by a borrow.
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let marks = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    marks & (ONES << 7)
}

/// The end of the number that begins at `start`, or where it stops being one.
fn number_end(input: &[u8], start: usize) -> Result<usize, usize> {
    let mut at = start;
    let peek = |at: usize| input.get(at).copied();
    let digits = |at: usize| at + input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let some_digits = |at: usize| if digits(at) > at { Ok(digits(at)) } else { Err(at) };
    if peek(at) == Some(b'-') {
        at += 1;
    }
    at = match peek(at) {
        Some(b'0') if peek(at + 1).is_some_and(|byte| byte.is_ascii_digit()) => return Err(at + 1),
        _ => some_digits(at)?,
    };
    if peek(at) == Some(b'.') {
        at = some_digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = peek(at) {
        let sign = usize::from(matches!(peek(at + 1), Some(b'+' | b'-')));
        at = some_digits(at + 1 + sign)?;
    }
    Ok(at)
}

/// Where and why an input is not acceptable JSON.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct ReadError {
    /// What is wrong.
    pub kind: ReadErrorKind,
    /// How many bytes come before it.
    pub offset: usize,
    /// The line it is in, counted from one.
    pub line: usize,
    /// Its place in the line, in characters, counted from one.
    pub column: usize,
    /// The innermost value it is in. What is wrong with a name is in the object whose member has it; only a
    /// [repeated key](ReadErrorKind::RepeatedKey) is in the member, since there is a first one of that name.
    pub pointer: Pointer,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadError { kind, offset, line, column, pointer } = self;
        write!(f, "{kind} at line {line}, column {column} (byte {offset}, ")?;
        if pointer.is_root() {
            f.write_str("the whole document)")
        } else {
            write!(f, "in `{}`)", Shown(pointer))
        }
    }
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// There is nothing at all.
    #[error("empty input")]
    Empty,
    /// The input begins with a byte order mark.
    #[error("byte order mark")]
    ByteOrderMark,
    /// The input ends too early.
    #[error("input ends where {expected} was expected")]
    UnexpectedEnd {
        /// What could have come next.
        expected: &'static str,
    },
    /// Something else was expected.
    #[error("found {} where {expected} was expected", printable(*.byte))]
    Unexpected {
        /// What was found.
        byte: u8,
        /// What could have come next.
        expected: &'static str,
    },
    /// There is something after the document.
    #[error("text after the end of the document")]
    TrailingText,
    /// A word begins like this one, but is another.
    #[error("word that is not `{expected}`")]
    InvalidLiteral {
        /// The word it begins like.
        expected: &'static str,
    },
    /// A number breaks the grammar: a leading zero, a missing digit.
    #[error("malformed number")]
    InvalidNumber,
    /// A control character stands unescaped in a string.
    #[error("unescaped control character 0x{byte:02x}")]
    ControlCharacter {
        /// The character.
        byte: u8,
    },
    /// A backslash is followed by something that is no escape.
    #[error("invalid escape")]
    InvalidEscape,
    /// One half of a surrogate pair stands alone.
    #[error("lone surrogate")]
    LoneSurrogate,
    /// A string is not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// An object has a key twice, perhaps written in two ways.
    #[error("repeated key `{}`", Shown(escape_token(key)))]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// Too many objects and arrays are open.
    #[error("more than {limit} levels of nesting")]
    TooDeep {
        /// How many are allowed.
        limit: usize,
    },
    /// There is no room for the keys of the objects that are open, of which each must be remembered.
    #[error("out of memory")]
    NoRoom,
    /// A number that no double is near to, which I-JSON forbids (only in the `jcs` form); its first byte is meant.
    #[error("number too large for a double")]
    NumberTooLarge,
    /// A code point that I-JSON forbids in strings and names (only in the `jcs` form); its first byte, or the backslash
    /// of its escape, is meant.
    #[error("noncharacter U+{code_point:04X}")]
    Noncharacter {
        /// The code point.
        code_point: u32,
    },
}

fn printable(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("`{}`", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}
