use crate::Pointer;
use crate::members::key_end;
use crate::text::Text;

/// A place in a text that is known to be canonical.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Cursor { text: std::str::from_utf8(text).expect("canonical text is UTF-8"), at: 0 }
    }

    /// The byte here.
    pub(crate) fn peek(&self) -> u8 {
        self.text.as_bytes()[self.at]
    }

    /// Goes past one byte.
    pub(crate) fn step(&mut self) {
        self.at += 1;
    }

    pub(crate) fn skip_comma(&mut self) {
        if self.peek() == b',' {
            self.step();
        }
    }

    /// Whether a container ends here.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.peek(), b'}' | b']')
    }

    /// Goes past a key and its colon.
    pub(crate) fn key(&mut self) -> Text<'a> {
        let start = self.at + 1;
        let escaped = self.skip_string();
        let raw = &self.text[start..self.at - 1];
        self.step();
        Text::new(raw, escaped)
    }

    /// Goes past the value that begins here; its text.
    pub(crate) fn value(&mut self) -> &'a str {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'"' => {
                    self.skip_string();
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.step();
                }
                b'}' | b']' => {
                    depth -= 1;
                    self.step();
                }
                b',' | b':' => self.step(),
                _ => self.skip_scalar(),
            }
            if depth == 0 {
                return &self.text[start..self.at];
            }
        }
    }

    /// Goes past a string; whether there are escapes in it.
    fn skip_string(&mut self) -> bool {
        let (length, escaped) = key_end(&self.text.as_bytes()[self.at + 1..], 0);
        self.at += length + 2;
        escaped
    }

    fn skip_scalar(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| !matches!(byte, b',' | b'}' | b']')).count();
    }

    /// The text of the value at this place inside the value here, if it has one there.
    pub(crate) fn find(&self, pointer: &Pointer) -> Option<&'a str> {
        let mut cursor = self.clone();
        pointer.tokens().try_for_each(|token| cursor.enter(&token))?;
        Some(cursor.value())
    }

    /// Goes to the member or element with this name; nothing if there is none.
    fn enter(&mut self, token: &str) -> Option<()> {
        let index = match self.peek() {
            b'{' => None,
            b'[' => Some(token.parse::<usize>().ok().filter(|index| index.to_string() == token)?),
            _ => return None,
        };
        self.step();
        for at in 0.. {
            if self.is_at_end() {
                return None;
            }
            if index.map_or_else(|| self.key() == *token, |index| at == index) {
                break;
            }
            self.value();
            self.skip_comma();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<'e>(text: &str, pointer: &str, expected: impl Into<Option<&'e str>>) {
        let cursor = Cursor::new(text.as_bytes());
        assert_eq!(cursor.find(&pointer.parse().expect("a pointer")), expected.into());
    }

    #[test]
    fn values_are_found() {
        let text = r#"{"a":[1,{"\"":"x,]}"}],"b\n":-2.5,"c":{}}"#;
        check(text, "", text);
        check(text, "/a", r#"[1,{"\"":"x,]}"}]"#);
        check(text, "/a/0", "1");
        check(text, "/a/1/\"", r#""x,]}""#);
        check(text, "/b\n", "-2.5");
        check(text, "/c", "{}");
        check("7", "", "7");
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for (text, pointer) in [
            ("7", "/a"),
            ("\"a\"", "/0"),
            ("{}", "/a"),
            ("[]", "/0"),
            (r#"{"a":{"b":1},"c":2}"#, "/a/c"),
            (r#"{"a":{"b":1}}"#, "/c"),
            ("[1,[2]]", "/2"),
            ("[1,[2]]", "/00"),
            ("[1,[2]]", "/+0"),
            ("[1,[2]]", "/-"),
            ("[1,[2]]", "/"),
            ("[1,[2]]", "/99999999999999999999"),
        ] {
            check(text, pointer, None);
        }
    }
}
