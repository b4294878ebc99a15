//! One place of a JSON text, changed without touching any other byte.
//!
//! A report that went through a parser and a printer is another report. So a place is found by scanning, and replaced as text.
//! The scanner trusts the text to be JSON; what is put in may be anything, even nonsense.

use std::ops::Range;

/// The text of the value at a JSON pointer (RFC 6901), if there is one.
#[must_use]
pub fn value_at<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    find(json, pointer).map(|place| &json[place.value])
}

/// Puts `new` in place of the value at `pointer`, which must be there.
#[must_use]
pub fn edit_pointer(json: &str, pointer: &str, new: &str) -> String {
    let place = expect(json, pointer).value;
    format!("{}{new}{}", &json[..place.start], &json[place.end..])
}

/// Takes out the member or element at `pointer`, which must be there, and the comma that goes with it.
#[must_use]
pub fn remove_pointer(json: &str, pointer: &str) -> String {
    let Range { mut start, mut end } = expect(json, pointer).entry;
    let (before, after) = (json[..start].trim_end(), json[end..].trim_start());
    if after.starts_with(',') {
        end = json.len() - after.len() + 1;
    } else if before.ends_with(',') {
        start = before.len() - 1;
    }
    format!("{}{}", &json[..start], &json[end..])
}

/// Adds a member at the start of the object at `pointer`, which must be there.
#[must_use]
pub fn insert_member(json: &str, pointer: &str, name: &str, value: &str) -> String {
    let Range { start, end } = expect(json, pointer).value;
    let object = &json[start..end];
    assert!(object.starts_with('{'), "{pointer:?} is not an object");
    let comma = if object[1..].trim_start().starts_with('}') { "" } else { "," };
    format!("{}{{{name:?}:{value}{comma}{}", &json[..start], &json[start + 1..])
}

/// Where a value is, and where its member or element is: the same, with the name.
struct Place {
    value: Range<usize>,
    entry: Range<usize>,
}

fn expect(json: &str, pointer: &str) -> Place {
    find(json, pointer).unwrap_or_else(|| panic!("nothing at {pointer:?} in {:.200}", json))
}

fn find(json: &str, pointer: &str) -> Option<Place> {
    let mut scanner = Scanner { bytes: json.as_bytes(), at: 0 };
    scanner.space();
    let mut entry = scanner.at;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        entry = match scanner.peek()? {
            b'{' => scanner.enter_member(json, &token)?,
            b'[' => scanner.enter_element(token.parse().ok()?)?,
            _ => return None,
        };
    }
    let start = scanner.at;
    scanner.skip_value()?;
    Some(Place { value: start..scanner.at, entry: entry..scanner.at })
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Steps over the byte and the space behind it, if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
            self.space();
        }
        found
    }

    /// Goes to the value of a member, and says where the member starts.
    fn enter_member(&mut self, json: &str, name: &str) -> Option<usize> {
        self.take(b'{');
        while self.peek()? == b'"' {
            let entry = self.at;
            self.skip_string()?;
            let found = serde_json::from_str::<String>(&json[entry..self.at]).ok()?;
            self.space();
            self.take(b':');
            if found == name {
                return Some(entry);
            }
            self.skip_value()?;
            self.space();
            self.take(b',');
        }
        None
    }

    /// Goes to an element, and says where it starts.
    fn enter_element(&mut self, index: usize) -> Option<usize> {
        self.take(b'[');
        for _ in 0..index {
            self.skip_value()?;
            self.space();
            if !self.take(b',') {
                return None;
            }
        }
        (self.peek()? != b']').then_some(self.at)
    }

    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let byte = self.peek()?;
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return Some(());
            }
        }
    }

    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_u32;
        loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => self.skip_word(),
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// A number or a literal.
    fn skip_word(&mut self) {
        let ends = |byte: u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const TEXT: &str = r#"{"a": [1.50, {"b\"": "x,}"}, []], "c/d": null , "e~": {}}"#;

    #[test]
    fn values_are_found_as_they_are_written() {
        let check = |pointer: &str, expected: Option<&str>| {
            assert_eq!(value_at(TEXT, pointer), expected, "{pointer}")
        };
        check("", Some(TEXT));
        check("/a/0", Some("1.50"));
        check("/a/1/b\"", Some("\"x,}\""));
        check("/a/2", Some("[]"));
        check("/a/2/0", None);
        check("/a/3", None);
        check("/c~1d", Some("null"));
        check("/e~0", Some("{}"));
        check("/e~0/f", None);
        check("/c~1d/f", None);
    }

    #[test]
    fn edits_leave_the_rest_alone() {
        let check = |edited: String, expected: &str| assert_eq!(edited, expected);
        check(edit_pointer(r#"{"a":1.50,"b":2}"#, "/b", "NaN"), r#"{"a":1.50,"b":NaN}"#);
        check(remove_pointer(r#"{"a":1.50,"b":2}"#, "/b"), r#"{"a":1.50}"#);
        check(remove_pointer(r#"{"a":1.50,"b":2}"#, "/a"), r#"{"b":2}"#);
        check(remove_pointer("[1, 2 ,3]", "/1"), "[1, 3]");
        check(remove_pointer("[1]", "/0"), "[]");
        check(insert_member(r#"{"a":{}}"#, "/a", "b", "[]"), r#"{"a":{"b":[]}}"#);
        check(insert_member(r#"{"a":1}"#, "", "b", "2"), r#"{"b":2,"a":1}"#);
    }

    #[test]
    #[should_panic(expected = "nothing at \"/z\"")]
    fn a_missing_place_is_a_surprise() {
        drop(edit_pointer(TEXT, "/z", "1"));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn pointers(value: &Value, at: &str, into: &mut Vec<String>) {
        into.push(at.to_owned());
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, item)| pointers(item, &format!("{at}/{i}"), into));
            }
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                let token = name.replace('~', "~0").replace('/', "~1");
                pointers(member, &format!("{at}/{token}"), into);
            }),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn an_edit_does_what_a_parser_would_do(value in value(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.expect("a value prints");
            let mut all = Vec::new();
            pointers(&value, "", &mut all);
            for pointer in all {
                let found: Value = serde_json::from_str(value_at(&text, &pointer).expect("there")).expect("JSON");
                prop_assert_eq!(Some(&found), value.pointer(&pointer));
                let edited: Value = serde_json::from_str(&edit_pointer(&text, &pointer, "\"new\"")).expect("JSON");
                let mut expected = value.clone();
                *expected.pointer_mut(&pointer).expect("there") = Value::from("new");
                prop_assert_eq!(edited, expected);
            }
        }
    }
}
