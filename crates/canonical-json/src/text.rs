use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The text of a string or a key, as it stands between its quotes.
///
/// Two texts are equal, ordered and hashed by what they mean: `"a"` and `"\u0061"` are the same.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// `raw` was checked: every escape in it is valid and surrogates come in pairs.
    pub(crate) const fn new(raw: &'a str, escaped: bool) -> Self {
        Text { raw, escaped }
    }

    /// What stands between the quotes, escapes and all.
    #[must_use]
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether anything between the quotes is escaped.
    #[must_use]
    pub const fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// The string that is meant; borrowed from the input unless something in it is escaped.
    #[must_use]
    pub fn decode(&self) -> Cow<'a, str> {
        if self.escaped { Cow::Owned(self.chars().collect()) } else { Cow::Borrowed(self.raw) }
    }

    /// The characters that are meant, one by one.
    pub fn chars(&self) -> impl Iterator<Item = char> + use<'a> {
        Chars { rest: self.raw }
    }

    /// The characters that are meant, each with where it begins in the raw text.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, char)> + use<'a> {
        let (length, mut chars) = (self.raw.len(), Chars { rest: self.raw });
        std::iter::from_fn(move || Some((length - chars.rest.len(), chars.next()?)))
    }

    /// Compares by UTF-16 code unit, as RFC 8785 sorts keys.
    pub(crate) fn cmp_utf16(&self, other: &Self) -> Ordering {
        if self.raw.is_ascii() && other.raw.is_ascii() && !self.escaped && !other.escaped {
            return self.raw.cmp(other.raw);
        }
        // Only the first characters that differ are looked at as units: a long key is not copied.
        let (mut own, mut others) = (self.chars(), other.chars());
        loop {
            match (own.next(), others.next()) {
                (Some(a), Some(b)) if a == b => {}
                (Some(a), Some(b)) => return a.encode_utf16(&mut [0; 2]).cmp(&b.encode_utf16(&mut [0; 2])),
                (a, b) => return a.is_some().cmp(&b.is_some()),
            }
        }
    }
}

struct Chars<'a> {
    rest: &'a str,
}

impl Iterator for Chars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        if first != '\\' {
            self.rest = chars.as_str();
            return Some(first);
        }
        let code = chars.next()?;
        self.rest = chars.as_str();
        match code {
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => self.code_point(),
            other => Some(other),
        }
    }
}

impl Chars<'_> {
    /// The character of a `\u` escape, or of two that form a surrogate pair.
    fn code_point(&mut self) -> Option<char> {
        let high = self.unit()?;
        if !(0xD800..0xDC00).contains(&high) {
            return char::from_u32(high);
        }
        self.rest = self.rest.get(2..)?;
        let low = self.unit()?;
        char::from_u32(0x1_0000 + ((high & 0x3FF) << 10 | low & 0x3FF))
    }

    fn unit(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        u32::from_str_radix(digits, 16).ok()
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        if self.escaped || other.escaped { self.chars().eq(other.chars()) } else { self.raw == other.raw }
    }
}

impl Eq for Text<'_> {}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        if self.escaped { self.chars().eq(other.chars()) } else { self.raw == other }
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.escaped || other.escaped { self.chars().cmp(other.chars()) } else { self.raw.cmp(other.raw) }
    }
}

impl Hash for Text<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.decode().hash(state);
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.raw)
    }
}

/// A number, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number<'a> {
    text: &'a str,
}

impl<'a> Number<'a> {
    /// `text` was checked against the grammar of RFC 8259.
    pub(crate) const fn new(text: &'a str) -> Self {
        Number { text }
    }

    /// The digits exactly as they stand in the input.
    #[must_use]
    pub const fn text(&self) -> &'a str {
        self.text
    }

    /// The value, if it is written in plain digits and fits; never through a double.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.text.parse().ok()
    }

    /// The value, if it is written in plain digits with at most a minus and fits; never through a double.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.text.parse().ok()
    }

    /// The nearest double, or nothing if the number is too large to have one.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        self.text.parse().ok().filter(|value: &f64| value.is_finite())
    }
}

impl fmt::Debug for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_mean_what_they_stand_for() {
        let text = Text::new(r#"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z"#, true);
        assert_eq!(text.decode(), "a\"\\/\u{8}\u{c}\n\r\té😀z");
        assert_eq!(text, "a\"\\/\u{8}\u{c}\n\r\té😀z");
    }

    #[test]
    fn order_is_by_code_point_or_by_utf16_unit() {
        let (low, high) = (Text::new("\u{ffff}", false), Text::new("\u{10000}", false));
        assert_eq!(low.cmp(&high), Ordering::Less);
        assert_eq!(low.cmp_utf16(&high), Ordering::Greater);
        let (less, more) = (Text::new("a\u{10000}", false), Text::new("a\u{10001}", false));
        assert_eq!(less.cmp_utf16(&more), Ordering::Less);
        assert_eq!(
            Text::new("\u{10000}", false).cmp_utf16(&Text::new(r"\ud800\udc00\u0000", true)),
            Ordering::Less
        );
        assert_eq!(Text::new(r"\u0061", true), Text::new("a", false));
    }

    #[test]
    fn integers_never_pass_through_a_double() {
        let number = Number::new("9007199254740993");
        assert_eq!(number.as_u64(), Some(9_007_199_254_740_993));
        assert_eq!(Number::new("-3").as_u64(), None);
        assert_eq!(Number::new("-3").as_i64(), Some(-3));
        assert_eq!(Number::new("3.0").as_u64(), None);
        assert_eq!(Number::new("1e400").as_f64(), None);
    }
}
