//! The common row, read at nearly the speed of hashing it: four known fields in any order, plain digits, spaces where
//! JSON allows them. Anything else is `None`, which means "ask the strict reader", never "wrong".
//!
//! A row is mostly block ids, so what is tuned is the loop over them.

use std::hint::black_box;

use super::{Fields, HashIds};

/// Bits of the fields seen, to notice a second one and a missing one.
const TIMESTAMP: u8 = 1;
const INPUT_LENGTH: u8 = 2;
const OUTPUT_LENGTH: u8 = 4;
const HASH_IDS: u8 = 8;
const ALL: u8 = TIMESTAMP | INPUT_LENGTH | OUTPUT_LENGTH | HASH_IDS;

/// Reads a line whose meaning is beyond doubt.
pub(super) fn parse(line: &[u8], hash_ids: &mut HashIds) -> Option<Fields> {
    let mut cursor = Cursor { rest: line };
    let mut fields = Fields::default();
    let mut seen = 0;
    cursor.punctuation(b'{')?;
    loop {
        let field = cursor.key()?;
        cursor.punctuation(b':')?;
        if seen & field != 0 {
            return None;
        }
        seen |= field;
        cursor.skip_space();
        match field {
            TIMESTAMP => fields.timestamp_ms = cursor.number()?,
            INPUT_LENGTH => fields.input_length = cursor.number()?,
            OUTPUT_LENGTH => fields.output_length = cursor.number()?,
            _ if hash_ids.is_kept() => cursor.rest = array::<true>(cursor.rest, hash_ids)?,
            _ => cursor.rest = array::<false>(cursor.rest, hash_ids)?,
        }
        match cursor.token()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    cursor.skip_space();
    (cursor.rest.is_empty() && seen == ALL).then_some(fields)
}

/// Reads an array of whole numbers, and gives what follows it.
///
/// The cursor is a local here, and so are the slots: through a `&mut` they would be stored and loaded for every id. Not
/// inlined, so that the loop has the registers for itself. Where ids are only counted, their digits are checked, and the
/// arithmetic for their values falls away.
#[inline(never)]
fn array<'a, const KEEP: bool>(text: &'a [u8], hash_ids: &mut HashIds) -> Option<&'a [u8]> {
    let mut cursor = Cursor { rest: text };
    let mut count = 0;
    hash_ids.count = 0;
    cursor.punctuation(b'[')?;
    cursor.skip_space();
    if let [b']', rest @ ..] = cursor.rest {
        return Some(rest);
    }
    let mut slots = hash_ids.slots.as_mut_slice();
    let mut stride = 0;
    loop {
        while let Some(id) = short_id(cursor.rest) {
            if KEEP {
                if count == slots.len() {
                    slots = hash_ids.grow();
                }
                slots[count] = id.value;
            }
            count += 1;
            // Neighbours are mostly of one length. Going on by the length of the id before, which a branch has found to be
            // right, lets the processor begin with the next id before this one is understood: without, every id waits
            // for the one before it. The black box keeps the compiler from seeing that the two are the same number.
            if id.stride != stride {
                stride = black_box(id.stride);
            }
            cursor.rest = cursor.rest.get(stride..)?;
        }
        // A long id, the last one, or one with more space around it.
        match after_long_id(cursor.rest) {
            Some(rest) if !KEEP => cursor.rest = rest,
            _ => {
                let id = cursor.number()?;
                if KEEP {
                    if count == slots.len() {
                        slots = hash_ids.grow();
                    }
                    slots[count] = id;
                }
            }
        }
        count += 1;
        if let [b',', b' ', rest @ ..] = cursor.rest {
            cursor.rest = rest;
            continue;
        }
        match cursor.token()? {
            b',' => cursor.skip_space(),
            b']' => break,
            _ => return None,
        }
    }
    hash_ids.count = count;
    Some(cursor.rest)
}

/// An id, and the bytes up to the next one.
struct ShortId {
    value: u64,
    stride: usize,
}

/// One to seven digits that do not start with a zero, then a comma, then perhaps a space.
#[inline(always)]
fn short_id(text: &[u8]) -> Option<ShortId> {
    let chunk = text.first_chunk::<16>()?;
    let Digits { value, count } = Digits::of(chunk.first_chunk::<8>()?);
    let plain = (b'1'..=b'9').contains(&chunk[0]) && count < 8 && chunk[count] == b',';
    plain.then(|| ShortId { value, stride: count + 1 + usize::from(chunk[count + 1] == b' ') })
}

/// What follows an id of 16 to 20 digits that is beyond doubt below 2^64. Ids that are hashes are of this length.
#[inline(always)]
fn after_long_id(text: &[u8]) -> Option<&[u8]> {
    let [first, second, third] = text.first_chunk::<24>()?.as_chunks::<8>().0 else { return None };
    let all_digits = (non_digits(first) | non_digits(second)) == 0;
    let last = Digits::of(third).count;
    // Numbers of 20 digits are compared by their first eight, as text; one that begins like 2^64 is left in doubt.
    let small = last < 4 || (last == 4 && u64::from_be_bytes(*first) < u64::from_be_bytes(*b"18446744"));
    (all_digits && small && first[0] != b'0').then(|| &text[16 + last..])
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    #[inline(always)]
    fn token(&mut self) -> Option<u8> {
        self.skip_space();
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline(always)]
    fn punctuation(&mut self, expected: u8) -> Option<()> {
        (self.token()? == expected).then_some(())
    }

    /// A field name in its plain spelling.
    #[inline(always)]
    fn key(&mut self) -> Option<u8> {
        self.skip_space();
        match self.rest.get(1)? {
            b't' => self.name(b"\"timestamp\"", TIMESTAMP),
            b'i' => self.name(b"\"input_length\"", INPUT_LENGTH),
            b'o' => self.name(b"\"output_length\"", OUTPUT_LENGTH),
            b'h' => self.name(b"\"hash_ids\"", HASH_IDS),
            _ => None,
        }
    }

    /// The length is a constant, so that this is a few loads and not a call.
    #[inline(always)]
    fn name<const N: usize>(&mut self, name: &[u8; N], field: u8) -> Option<u8> {
        let (start, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        (start == name).then_some(field)
    }

    /// Digits without a leading zero. What follows them is for the caller to judge: a fraction or an exponent is
    /// neither a comma nor a closing bracket.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        let digits = match self.rest.first_chunk::<8>() {
            None => return self.take(number_near_end(self.rest)),
            Some(chunk) => Digits::of(chunk),
        };
        if self.rest[0] == b'0' && digits.count != 1 {
            return None;
        }
        match digits.count {
            0 => None,
            8 => self.take(long_number(&self.rest[8..], digits.value)),
            count => {
                self.rest = &self.rest[count..];
                Some(digits.value)
            }
        }
    }

    #[inline(always)]
    fn take(&mut self, number: Option<(u64, &'a [u8])>) -> Option<u64> {
        let (value, rest) = number?;
        self.rest = rest;
        Some(value)
    }
}

// The rarer numbers take the text and give it back, because a cursor whose address they had would live in memory.

/// Goes on with a number after its first eight digits.
#[inline(never)]
fn long_number(mut rest: &[u8], mut value: u64) -> Option<(u64, &[u8])> {
    while let Some(chunk) = rest.first_chunk::<8>() {
        let digits = Digits::of(chunk);
        value = value.checked_mul(POWERS_OF_TEN[digits.count])?.checked_add(digits.value)?;
        rest = &rest[digits.count..];
        if digits.count < 8 {
            return Some((value, rest));
        }
    }
    push_digits(rest, value)
}

/// Reads a number after which not even eight bytes are left.
#[inline(never)]
fn number_near_end(rest: &[u8]) -> Option<(u64, &[u8])> {
    match rest {
        [b'0', b'0'..=b'9', ..] => None,
        [b'0'..=b'9', ..] => push_digits(rest, 0),
        _ => None,
    }
}

fn push_digits(mut rest: &[u8], mut value: u64) -> Option<(u64, &[u8])> {
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        rest = after;
    }
    Some((value, rest))
}

const ZEROS: u64 = u64::from_le_bytes(*b"00000000");

/// The top bit of the first of eight bytes that is no digit; bits above it mean nothing.
#[inline(always)]
fn non_digits(chunk: &[u8; 8]) -> u64 {
    // A digit becomes 0 to 9. Adding 0x76 then lifts 10 to 127 to the top bit, and from 128 on the bit is there already.
    // A carry comes only out of a byte that is no digit, so nothing before the first such byte is touched.
    let low = u64::from_le_bytes(*chunk) ^ ZEROS;
    (low.wrapping_add(0x7676_7676_7676_7676) | low) & 0x8080_8080_8080_8080
}

const POWERS_OF_TEN: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The digits that eight bytes begin with.
struct Digits {
    value: u64,
    count: usize,
}

impl Digits {
    /// Eight bytes at a time in one register, the first in the lowest byte: the well-known way to read numbers without a
    /// loop over their digits.
    #[inline(always)]
    fn of(chunk: &[u8; 8]) -> Self {
        let low = u64::from_le_bytes(*chunk) ^ ZEROS;
        let over = non_digits(chunk);
        match over.trailing_zeros() {
            64 => Digits { value: eight_digits(low), count: 8 },
            // Shifting by 64 - 8 × count puts zeros in front and drops what is behind; twice, as the count may be 0.
            top => Digits { value: eight_digits(low << (63 - (top & 56)) << 1), count: (top / 8) as usize },
        }
    }
}

/// The value of eight digits, each 0 to 9: pairs, then fours and eight by multiplications that add up lanes.
#[inline(always)]
fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    low.wrapping_add(high) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> (Option<u64>, &[u8]) {
        let mut cursor = Cursor { rest: text.as_bytes() };
        (cursor.number(), cursor.rest)
    }

    #[test]
    fn digits_end_at_any_other_byte() {
        for other in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            for count in 0..8_usize {
                for after in [b'9', b'0', 0, 0xff] {
                    let mut chunk = [after; 8];
                    chunk[..count].copy_from_slice(&b"5905905"[..count]);
                    chunk[count] = other;
                    let digits = Digits::of(&chunk);
                    assert_eq!(digits.count, count);
                    let value = std::str::from_utf8(&chunk[..count]).unwrap().parse().unwrap_or(0);
                    assert_eq!(digits.value, value);
                }
            }
        }
        let digits = Digits::of(b"91234567");
        assert_eq!((digits.value, digits.count), (91_234_567, 8));
    }

    #[test]
    fn numbers_of_every_length_are_what_they_say() {
        let mut values = vec![0, u64::MAX, u64::MAX - 1];
        values.extend(
            (0..20).flat_map(|power| [10_u64.pow(power), 10_u64.pow(power) - 1, 7 * (10_u64.pow(power) / 9)]),
        );
        for value in values {
            for end in ["", ",", "]}", ",        ", ", 12345678901234567890"] {
                assert_eq!(number(&format!("{value}{end}")), (Some(value), end.as_bytes()), "{value}{end}");
            }
        }
    }

    #[test]
    fn long_ids_are_passed_over_only_when_they_fit() {
        for (digits, length) in [
            ("1000000000000000", Some(16)),
            ("18446743999999999999", Some(20)),
            ("9999999999999999999", Some(19)),
            ("18446744073709551615", None),
            ("18446744073709551616", None),
            ("99999999999999999999", None),
            ("184467440737095516150", None),
            ("999999999999999", None),
            ("0000000000000000", None),
            ("-100000000000000000", None),
        ] {
            let text = format!("{digits}, 7 and more");
            let found = after_long_id(text.as_bytes());
            assert_eq!(found.map(<[u8]>::len), length.map(|length| text.len() - length), "{digits}");
        }
    }

    #[test]
    fn numbers_in_doubt_are_left_to_the_strict_reader() {
        for text in
            ["", "-1", "007", "00", "+1", "18446744073709551616", "99999999999999999999", " 1", "0123456789"]
        {
            for end in ["", ",        "] {
                assert_eq!(number(&format!("{text}{end}")).0, None, "{text}{end}");
            }
        }
    }
}
