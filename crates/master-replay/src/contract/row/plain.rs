//! The common row, read without an event reader: known members whose values are strings without escapes, whole numbers,
//! and arrays of these.
//!
//! Anything else, wrong or only unusual, is `None`, which means "ask the strict reader", never "wrong". What is taken here
//! means the same to the strict reader, which a property test holds.

use super::{Field, Node, Row, Word};

/// Deep enough for the slices of a write.
const MAX_DEPTH: usize = 2;

/// What leads to a value is mostly shorter; anything longer is not worth remembering.
const MAX_LEAD_BYTES: usize = 32;

/// How the rows before were laid out: for each member in turn, the bytes from the end of the value before it to its own value.
///
/// Who writes traces writes the members of rows in the same way again and again, and to compare some bytes takes a fraction of the
/// time in which their meaning is found.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    leads: Vec<(Field, Lead)>,
}

#[derive(Clone, Copy, Debug)]
struct Lead {
    bytes: [u8; MAX_LEAD_BYTES],
    length: u8,
}

impl Lead {
    const NONE: Lead = Lead { bytes: [0; MAX_LEAD_BYTES], length: 0 };

    fn of(bytes: &[u8]) -> Lead {
        let mut lead = Lead::NONE;
        if let (Some(room), Ok(length)) = (lead.bytes.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            room.copy_from_slice(bytes);
            lead.length = length;
        }
        lead
    }

    /// Whether this text begins with it; nothing begins with no lead.
    #[inline]
    fn begins(&self, text: &[u8]) -> bool {
        self.length > 0 && text.starts_with(&self.bytes[..usize::from(self.length)])
    }
}

impl Layout {
    fn remember(&mut self, member: usize, field: Field, lead: &[u8]) {
        let lead = Lead::of(lead);
        match self.leads.get_mut(member) {
            Some(known) => *known = (field, lead),
            // A row has each field once: there are not many.
            None => self.leads.push((field, lead)),
        }
    }
}

impl<'a> Row<'a> {
    /// Reads a line that is plain. Of any other line a part may have been read.
    pub(super) fn read_plain(&mut self, line: &'a [u8], layout: &mut Layout) -> Option<()> {
        let mut scanner = Scanner { text: std::str::from_utf8(line).ok()?, at: 0 };
        let mut member = 0;
        loop {
            let rest = &line[scanner.at..];
            let field = match layout.leads.get(member) {
                Some((field, lead)) if lead.begins(rest) => {
                    scanner.at += usize::from(lead.length);
                    *field
                }
                _ => match scanner.token()? {
                    b'{' if member == 0 => scanner.lead(member, rest, layout)?,
                    b',' if member > 0 => scanner.lead(member, rest, layout)?,
                    b'}' if member > 0 => break,
                    _ => return None,
                },
            };
            // Of metadata, the text is wanted as well.
            if field == Field::Metadata || self.has(field) {
                return None;
            }
            let place = self.tape.len();
            let after = scanner.at;
            self.plain_value(&mut scanner, 0, after)?;
            self.put(field, place);
            member += 1;
        }
        scanner.is_at_end().then_some(())
    }

    /// Reads a value; what came before it ends at `after`.
    fn plain_value(&mut self, scanner: &mut Scanner<'a>, depth: usize, after: usize) -> Option<()> {
        let node = match scanner.peek()? {
            b'[' if depth < MAX_DEPTH => return self.plain_array(scanner, depth + 1, after),
            b'"' => Node::Text(Word::Plain(scanner.string()?)),
            b'0'..=b'9' => Node::Number(Some(scanner.whole_number()?)),
            _ => return None,
        };
        self.push(node, after);
        Some(())
    }

    fn plain_array(&mut self, scanner: &mut Scanner<'a>, depth: usize, after: usize) -> Option<()> {
        let start = self.tape.len();
        self.push(Node::Array { end: 0 }, after);
        scanner.take(b'[')?;
        let mut before = scanner.at;
        if scanner.peek()? == b']' {
            scanner.at += 1;
        } else {
            loop {
                self.plain_value(scanner, depth, before)?;
                before = scanner.at;
                match scanner.token()? {
                    b',' => {}
                    b']' => break,
                    _ => return None,
                }
            }
        }
        self.tape[start].node = Node::Array { end: self.tape.len() };
        Some(())
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The first byte that is not space; the scanner stands before it then.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    #[inline]
    fn token(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.token()? == wanted).then_some(())
    }

    /// Reads the name of a member, up to its value; `rest` is the text from the end of what came before.
    fn lead(&mut self, member: usize, rest: &[u8], layout: &mut Layout) -> Option<Field> {
        let begin = self.text.len() - rest.len();
        let field = Field::of(self.string()?)?;
        self.take(b':')?;
        layout.remember(member, field, &rest[..self.at - begin]);
        Some(field)
    }

    fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    #[inline]
    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        let end = start + plain_length(&self.text.as_bytes()[start..]);
        self.at = end;
        self.take_here(b'"')?;
        Some(&self.text[start..end])
    }

    #[inline]
    fn take_here(&mut self, wanted: u8) -> Option<()> {
        let found = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        (found == wanted).then_some(())
    }

    /// Digits without a leading zero, few enough to fit whatever they are.
    fn whole_number(&mut self) -> Option<u64> {
        const FITS: usize = 19;
        let digits = &self.text.as_bytes()[self.at..];
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length > FITS || length > 1 && digits[0] == b'0' {
            return None;
        }
        self.at += length;
        Some(digits[..length].iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
    }
}

/// How many bytes come before the first that is a quote, a backslash or a control character.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let marks = special_bytes(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return length + (marks.trailing_zeros() / 8) as usize;
        }
        length += 8;
        rest = after;
    }
    length + rest.iter().take_while(|byte| **byte >= 0x20 && !matches!(byte, b'"' | b'\\')).count()
}

/// The high bit of every byte that is a quote, a backslash or a control character; bytes above the first such byte may be
/// marked by a borrow.
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let marks = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    marks & (ONES << 7)
}
