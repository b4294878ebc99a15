//! The common row, read at nearly the speed of hashing it: four known fields in any order, plain digits, spaces where
//! JSON allows them. Anything else is `None`, which means "ask the strict reader", never "wrong".

use super::Fields;

/// Bits of the fields seen, to notice a second one and a missing one.
const TIMESTAMP: u8 = 1;
const INPUT_LENGTH: u8 = 2;
const OUTPUT_LENGTH: u8 = 4;
const HASH_IDS: u8 = 8;
const ALL: u8 = TIMESTAMP | INPUT_LENGTH | OUTPUT_LENGTH | HASH_IDS;

/// Reads a line whose meaning is beyond doubt.
pub(super) fn parse(line: &[u8], hash_ids: &mut Vec<u64>) -> Option<Fields> {
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
        match field {
            TIMESTAMP => fields.timestamp_ms = cursor.number()?,
            INPUT_LENGTH => fields.input_length = cursor.number()?,
            OUTPUT_LENGTH => fields.output_length = cursor.number()?,
            _ => cursor.numbers(hash_ids)?,
        }
        match cursor.next_token()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    cursor.skip_space();
    (cursor.rest.is_empty() && seen == ALL).then_some(fields)
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    #[inline]
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    #[inline]
    fn next_token(&mut self) -> Option<u8> {
        self.skip_space();
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline]
    fn punctuation(&mut self, expected: u8) -> Option<()> {
        (self.next_token()? == expected).then_some(())
    }

    /// A field name in its plain spelling.
    #[inline]
    fn key(&mut self) -> Option<u8> {
        self.skip_space();
        let (name, field): (&[u8], u8) = match self.rest.get(1)? {
            b't' => (b"\"timestamp\"", TIMESTAMP),
            b'i' => (b"\"input_length\"", INPUT_LENGTH),
            b'o' => (b"\"output_length\"", OUTPUT_LENGTH),
            b'h' => (b"\"hash_ids\"", HASH_IDS),
            _ => return None,
        };
        self.rest = self.rest.strip_prefix(name)?;
        Some(field)
    }

    /// An array of whole numbers.
    fn numbers(&mut self, numbers: &mut Vec<u64>) -> Option<()> {
        numbers.clear();
        self.punctuation(b'[')?;
        self.skip_space();
        if let [b']', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(());
        }
        loop {
            numbers.push(self.number()?);
            // The two spellings that writers use, before the general one.
            match self.rest {
                [b',', b' ', rest @ ..] => self.rest = rest,
                [b']', rest @ ..] => {
                    self.rest = rest;
                    return Some(());
                }
                _ => match self.next_token()? {
                    b',' => {}
                    b']' => return Some(()),
                    _ => return None,
                },
            }
        }
    }

    /// Digits without a leading zero. What follows them is for the caller to judge: a fraction or an exponent is
    /// neither a comma nor a closing bracket.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        if let [b' ' | b'\t' | b'\r', ..] = self.rest {
            self.skip_space();
        }
        match self.rest.first_chunk::<8>() {
            Some(chunk) => {
                let chunk = u64::from_le_bytes(*chunk);
                let digits = leading_digits(chunk);
                if digits == 8 { self.long_number() } else { self.short_number(chunk, digits) }
            }
            None => self.long_number(),
        }
    }

    /// Up to seven digits, all of them in `chunk`.
    #[inline]
    fn short_number(&mut self, chunk: u64, digits: u32) -> Option<u64> {
        let zero_first = chunk & 0xff == u64::from(b'0');
        if digits == 0 || (zero_first && digits > 1) {
            return None;
        }
        self.rest = &self.rest[digits as usize..];
        Some(eight_digits((chunk & 0x0f0f_0f0f_0f0f_0f0f) << (64 - 8 * digits)))
    }

    /// Any number of digits, one by one.
    #[cold]
    fn long_number(&mut self) -> Option<u64> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if digits == 0 || (number[0] == b'0' && digits > 1) {
            return None;
        }
        self.rest = rest;
        number
            .iter()
            .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }
}

/// How many bytes of a little-endian chunk are digits before the first that is not.
#[inline]
fn leading_digits(chunk: u64) -> u32 {
    // With the high nibble of '0' taken off, a digit is 0 to 9. Adding 0x76 lifts 10 to 127 over 0x7f and never carries
    // out of a byte, as the top bit was masked away; bytes from 0x80 are caught by that bit itself.
    let low = chunk ^ 0x3030_3030_3030_3030;
    let over = ((low & 0x7f7f_7f7f_7f7f_7f7f) + 0x7676_7676_7676_7676) | low;
    (over & 0x8080_8080_8080_8080).trailing_zeros() / 8
}

/// The value of eight digits, the first in the lowest byte, each 0 to 9. Pairs, then fours, then eight, in three
/// multiplications: the well-known way to use a 64-bit register as eight lanes.
#[inline]
fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits * 10) + (digits >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    low.wrapping_add(high) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_up_to_the_first_other_byte() {
        for other in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            for count in 0..8_usize {
                let mut chunk = *b"59059059";
                chunk[count] = other;
                assert_eq!(leading_digits(u64::from_le_bytes(chunk)), u32::try_from(count).unwrap());
            }
        }
        assert_eq!(leading_digits(u64::from_le_bytes(*b"01234567")), 8);
    }

    #[test]
    fn short_numbers_are_what_they_say() {
        for value in (0..10_000_000_u64).step_by(379).chain([9_999_999, 1_000_000, 999_999, 10, 9, 0]) {
            let text = format!("{value},padding");
            let mut cursor = Cursor { rest: text.as_bytes() };
            assert_eq!(cursor.number(), Some(value));
            assert_eq!(cursor.rest, b",padding");
        }
    }

    #[test]
    fn numbers_in_doubt_are_left_to_the_strict_reader() {
        for text in ["", "-1,      ", "007,     ", "00", "+1", "18446744073709551616", " "] {
            assert_eq!(Cursor { rest: text.as_bytes() }.number(), None, "{text}");
        }
        for (text, value) in [("18446744073709551615", u64::MAX), ("0", 0), ("12345678", 12_345_678)] {
            assert_eq!(Cursor { rest: text.as_bytes() }.number(), Some(value), "{text}");
        }
    }
}
