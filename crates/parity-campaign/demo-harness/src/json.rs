//! Just enough JSON: values that print with sorted keys, and a reader for trace lines.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

/// A JSON value. Maps are sorted by key, so printing one is canonical.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Whole(u64),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    Map(BTreeMap<String, Json>),
}

impl Json {
    /// A map from pairs.
    pub(crate) fn map<const N: usize>(pairs: [(&str, Json); N]) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// A list from anything that turns into values.
    pub(crate) fn list<T: Into<Json>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Map(members) => members.get(key),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Whole(value) => Some(*value),
            _ => None,
        }
    }

    /// The value over several lines, for people.
    pub(crate) fn pretty(&self) -> String {
        let mut text = String::new();
        self.indented(&mut text, 0);
        text
    }

    fn indented(&self, out: &mut String, depth: usize) {
        let (open, close, lines): (_, _, Vec<(String, &Json)>) = match self {
            Self::List(items) if !items.is_empty() => {
                ('[', ']', items.iter().map(|item| (String::new(), item)).collect())
            }
            Self::Map(members) if !members.is_empty() => {
                ('{', '}', members.iter().map(|(key, value)| (format!("{}: ", quoted(key)), value)).collect())
            }
            plain => return out.push_str(&plain.to_string()),
        };
        let pad = "  ".repeat(depth + 1);
        out.push(open);
        for (i, (label, value)) in lines.into_iter().enumerate() {
            out.push_str(if i == 0 { "\n" } else { ",\n" });
            out.push_str(&pad);
            out.push_str(&label);
            value.indented(out, depth + 1);
        }
        out.push('\n');
        out.push_str(&pad[2..]);
        out.push(close);
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Whole(value) => write!(f, "{value}"),
            // The shortest text that reads back as the same number; always with a point or an exponent.
            Self::Real(value) => write!(f, "{value:?}"),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(items) => {
                f.write_char('[')?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
                }
                f.write_char(']')
            }
            Self::Map(members) => {
                f.write_char('{')?;
                for (i, (key, value)) in members.iter().enumerate() {
                    write!(f, "{}{}:{value}", if i == 0 { "" } else { "," }, quoted(key))?;
                }
                f.write_char('}')
            }
        }
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Whole(u64::from(value))
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Real(value) } else { Self::Null }
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            control if u32::from(control) < 0x20 => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}

/// Reads one JSON value; the error says what was expected and at which byte.
pub(crate) fn parse(text: &str) -> Result<Json, String> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let value = reader.value()?;
    reader.skip_space();
    if reader.at == reader.bytes.len() { Ok(value) } else { Err(reader.expected("the end of the line")) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> String {
        format!("expected {what} at byte {}", self.at)
    }

    fn skip_space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Steps over `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json, String> {
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.map(),
            Some(b'[') => self.list(),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn map(&mut self) -> Result<Json, String> {
        self.at += 1;
        let mut members = BTreeMap::new();
        if self.take(b'}') {
            return Ok(Json::Map(members));
        }
        loop {
            self.skip_space();
            let key = self.text()?;
            if !self.take(b':') {
                return Err(self.expected("a colon"));
            }
            let value = self.value()?;
            if members.insert(key, value).is_some() {
                return Err(self.expected("no second member of that name"));
            }
            if self.take(b'}') {
                return Ok(Json::Map(members));
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or a closing brace"));
            }
        }
    }

    fn list(&mut self) -> Result<Json, String> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or a closing bracket"));
            }
        }
    }

    /// A string without escapes: traces have none.
    fn text(&mut self) -> Result<String, String> {
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        let start = self.at;
        while !matches!(self.bytes.get(self.at), None | Some(b'"' | b'\\')) {
            self.at += 1;
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned();
        if self.take(b'"') { Ok(text) } else { Err(self.expected("the end of a plain string")) }
    }

    fn number(&mut self) -> Result<Json, String> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).expect("only ASCII was stepped over");
        if let Ok(whole) = text.parse() {
            return Ok(Json::Whole(whole));
        }
        text.parse().map(Json::Real).map_err(|_| self.expected(&format!("a number, not {text:?},")))
    }

    fn word(&mut self) -> Result<Json, String> {
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("a value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, printed: Result<&str, &str>) {
        let outcome = parse(text).map(|value| value.to_string());
        assert_eq!(outcome.as_deref().map_err(String::as_str), printed, "{text}");
    }

    #[test]
    fn values_print_with_sorted_keys() {
        check(
            r#"{"b": [1, 2.5, null], "a": {"y": true, "x": "t"}}"#,
            Ok(r#"{"a":{"x":"t","y":true},"b":[1,2.5,null]}"#),
        );
        check("[]", Ok("[]"));
    }

    #[test]
    fn broken_lines_say_where() {
        check(r#"{"a":2748 610}"#, Err("expected a comma or a closing brace at byte 10"));
        check(r#"{"a":1,"a":2}"#, Err("expected no second member of that name at byte 12"));
        check("[1] 2", Err("expected the end of the line at byte 4"));
        check("[1-2]", Err("expected a number, not \"1-2\", at byte 4"));
        check("", Err("expected a value at byte 0"));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(Json::from("a\"b\\c\nd\u{1}").to_string(), r#""a\"b\\c\nd\u0001""#);
        assert_eq!(Json::from(f64::NAN).to_string(), "null");
    }
}
