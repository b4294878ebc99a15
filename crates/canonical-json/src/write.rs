//! The canonical text of single strings and numbers.

use crate::number::push_ecmascript;
use crate::text::{Number, Text};
use crate::{Form, ReadErrorKind};

/// Appends a string with its quotes, escaped as little as RFC 8259 allows.
pub(crate) fn push_string(out: &mut Vec<u8>, text: Text<'_>) {
    out.push(b'"');
    if text.is_escaped() {
        let mut utf8 = [0; 4];
        text.chars().for_each(|c| push_escaped(out, c.encode_utf8(&mut utf8)));
    } else {
        // Without escapes there is nothing to change: what must be escaped cannot stand unescaped.
        out.extend_from_slice(text.raw().as_bytes());
    }
    out.push(b'"');
}

/// Appends the inside of a string that is not JSON yet.
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0C => b'f',
            b'\r' => b'r',
            0x00..0x20 => {
                out.extend_from_slice(if byte < 0x10 { b"\\u000" } else { b"\\u001" });
                out.push(b"0123456789abcdef"[usize::from(byte & 15)]);
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
}

/// Appends a number in the given form.
pub(crate) fn push_number(out: &mut Vec<u8>, number: Number<'_>, form: Form) -> Result<(), ReadErrorKind> {
    match form {
        Form::Lexical => out.extend_from_slice(number.text().as_bytes()),
        Form::Jcs => push_ecmascript(out, number.as_f64().ok_or(ReadErrorKind::NumberTooLarge)?),
    }
    Ok(())
}

/// The first character of a string that I-JSON forbids (RFC 7493, section 2.1), and where in the raw text it begins.
///
/// Surrogates cannot be in a checked text; what remains are the noncharacters.
pub(crate) fn noncharacter(text: Text<'_>) -> Option<(usize, char)> {
    if !text.is_escaped() && text.raw().is_ascii() {
        return None;
    }
    text.places().find(|(_, c)| is_noncharacter(*c))
}

/// Whether Unicode says that this never will be a character.
pub(crate) fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xFFFE == 0xFFFE
}

/// Whether four hexadecimal digits are how [`push_escaped`] writes some character.
pub(crate) fn is_minimal_escape(digits: &[u8]) -> bool {
    match digits {
        b"0008" | b"0009" | b"000a" | b"000c" | b"000d" => false,
        [b'0', b'0', b'0' | b'1', b'0'..=b'9' | b'a'..=b'f'] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        push_escaped(&mut out, text);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }

    #[test]
    fn escapes_are_short_and_lower_case() {
        check("\0\u{1}\u{8}\t\n\u{b}\u{c}\r\u{e}\u{1f}", r"\u0000\u0001\b\t\n\u000b\f\r\u000e\u001f");
        check("\"\\/\u{7f}é\u{2028}😀", "\\\"\\\\/\u{7f}é\u{2028}😀");
    }

    #[test]
    fn noncharacters_are_found() {
        for (text, expected) in [
            ("a\u{fdd0}\u{fdd1}", Some((1, '\u{fdd0}'))),
            ("é\u{fdef}", Some((2, '\u{fdef}'))),
            ("\u{1ffff}", Some((0, '\u{1ffff}'))),
            ("\u{fffd}é\u{fdcf}\u{fdf0}", None),
        ] {
            assert_eq!(noncharacter(Text::new(text, false)), expected);
        }
        assert_eq!(noncharacter(Text::new(r"\n\uffff", true)), Some((2, '\u{ffff}')));
        assert_eq!(noncharacter(Text::new(r"\ud83f\udffe", true)), Some((0, '\u{1fffe}')));
    }
}
