//! Numbers as ECMAScript prints them, which is what RFC 8785 asks for.

use std::fmt::Write;

/// Appends the text of a finite double as `Number.prototype.toString` gives it.
///
/// The digits are the shortest that read back as the same double, and of those the nearest, which is what the
/// standard library prints in exponent form; only their layout differs, and what happens when the double lies exactly
/// between two such digit strings: ECMAScript takes the even one, the standard library the greater one.
pub(crate) fn push_ecmascript(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 {
        // Negative zero prints without its sign.
        return out.push(b'0');
    }
    let mut scientific = Stack::default();
    write!(scientific, "{:e}", value.abs()).expect("a double has at most 17 digits");
    scientific.break_tie(value.abs());
    let (digits, point) = scientific.digits_and_point();
    if value < 0.0 {
        out.push(b'-');
    }
    lay_out(out, digits, point);
}

/// Whether a number is printed as it is written; nothing if it has no double or is no number.
pub(crate) fn is_ecmascript(text: &[u8]) -> Option<bool> {
    let is_short_integer = text.len() <= 15 && text.iter().all(u8::is_ascii_digit);
    if is_short_integer && !text.is_empty() {
        return Some(true);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if !value.is_finite() {
        return None;
    }
    let mut printed = Vec::new();
    push_ecmascript(&mut printed, value);
    Some(printed == text)
}

/// Writes digits so that the decimal point comes after `point` of them.
fn lay_out(out: &mut Vec<u8>, digits: &[u8], point: i32) {
    let count = i32::try_from(digits.len()).expect("a double has at most 17 digits");
    let zeros = |n: i32| std::iter::repeat_n(b'0', usize::try_from(n).unwrap_or(0));
    match point {
        _ if count <= point && point <= 21 => {
            out.extend_from_slice(digits);
            out.extend(zeros(point - count));
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).expect("positive"));
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        -5..=0 => {
            out.extend_from_slice(b"0.");
            out.extend(zeros(-point));
            out.extend_from_slice(digits);
        }
        _ => {
            out.push(digits[0]);
            if count > 1 {
                out.push(b'.');
                out.extend_from_slice(&digits[1..]);
            }
            out.extend_from_slice(if point > 0 { b"e+" } else { b"e-" });
            out.extend_from_slice((point - 1).abs().to_string().as_bytes());
        }
    }
}

/// Whether a double is exactly half a unit of the last digit above these digits.
fn is_between(value: f64, digits: &str) -> bool {
    // No double has more than 767 significant digits.
    let exact = format!("{value:.767e}");
    let exact = exact.split('e').next().unwrap_or_default().chars().filter(|c| *c != '.');
    let below = digits.chars().filter(|c| *c != '.').chain(['5']).chain(std::iter::repeat('0'));
    exact.zip(below).all(|(exact, below)| exact == below)
}

/// The exponent form of a double, on the stack.
#[derive(Default)]
struct Stack {
    bytes: [u8; 32],
    length: usize,
}

impl Stack {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("only text was written")
    }

    /// Takes the digit below an odd last digit if `value` lies exactly between the two.
    fn break_tie(&mut self, value: f64) {
        let e = self.text().find('e').expect("exponent form");
        let last = self.bytes[e - 1];
        if last & 1 == 0 {
            return;
        }
        self.bytes[e - 1] = last - 1;
        let is_tie = self.text().parse() == Ok(value) && is_between(value, &self.text()[..e]);
        if !is_tie {
            self.bytes[e - 1] = last;
        }
    }

    /// Turns `d.ddde±x` into the digits alone and the place of the point among them.
    fn digits_and_point(&mut self) -> (&[u8], i32) {
        let text = &mut self.bytes[..self.length];
        let e = text.iter().position(|byte| *byte == b'e').expect("exponent form");
        let exponent = std::str::from_utf8(&text[e + 1..]).ok().and_then(|digits| digits.parse::<i32>().ok());
        let point = exponent.expect("an exponent is an integer") + 1;
        if e == 1 {
            return (&text[..1], point);
        }
        text.copy_within(2..e, 1);
        (&text[..e - 1], point)
    }
}

impl Write for Stack {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bits: u64, expected: &str) {
        let mut out = Vec::new();
        push_ecmascript(&mut out, f64::from_bits(bits));
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected), "{bits:016x}");
    }

    /// RFC 8785, appendix B, "Number Serialization Samples".
    #[test]
    fn samples_of_the_rfc() {
        for (bits, expected) in [
            (0x0000000000000000, "0"),
            (0x8000000000000000, "0"),
            (0x0000000000000001, "5e-324"),
            (0x8000000000000001, "-5e-324"),
            (0x7fefffffffffffff, "1.7976931348623157e+308"),
            (0xffefffffffffffff, "-1.7976931348623157e+308"),
            (0x4340000000000000, "9007199254740992"),
            (0xc340000000000000, "-9007199254740992"),
            (0x4430000000000000, "295147905179352830000"),
            (0x44b52d02c7e14af5, "9.999999999999997e+22"),
            (0x44b52d02c7e14af6, "1e+23"),
            (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
            (0x444b1ae4d6e2ef4e, "999999999999999700000"),
            (0x444b1ae4d6e2ef4f, "999999999999999900000"),
            (0x444b1ae4d6e2ef50, "1e+21"),
            (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
            (0x3eb0c6f7a0b5ed8d, "0.000001"),
            (0x41b3de4355555553, "333333333.3333332"),
            (0x41b3de4355555554, "333333333.33333325"),
            (0x41b3de4355555555, "333333333.3333333"),
            (0x41b3de4355555556, "333333333.3333334"),
            (0x41b3de4355555557, "333333333.33333343"),
            (0xbecbf647612f3696, "-0.0000033333333333333333"),
            (0x43143ff3c1cb0959, "1424953923781206.2"),
        ] {
            check(bits, expected);
        }
    }
}
