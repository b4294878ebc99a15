//! What the fuzz targets check, apart from them, so that tests can check it too.

use std::collections::BTreeMap;

use canonical_json::{
    DiffLimits, Event, Exclusion, Form, Reader, Rules, Sha256, Unordered, canonicalize, diff, digest,
};
use serde_json::Value;

/// Some sets of rules, by number.
pub fn rules(choice: u8) -> Rules {
    let exclusion =
        |pattern: &str| Exclusion { pattern: pattern.parse().expect("a pattern"), required: false };
    let unordered = |at: &str, by: &str| Unordered {
        at: at.parse().expect("a pattern"),
        by: by.parse().expect("a pointer"),
    };
    let mut rules = Rules::new(if choice & 1 == 0 { Form::Lexical } else { Form::Jcs });
    match choice >> 1 & 7 {
        1 => rules.exclusions = vec![exclusion("/a"), exclusion("/*/b"), exclusion("/*/*/0")],
        2 => rules.unordered = vec![unordered("", ""), unordered("/*", "/a"), unordered("/a/*", "/b/0")],
        3 => {
            rules.exclusions = vec![exclusion("/0"), exclusion("/*/*/b")];
            rules.unordered = vec![unordered("", "/a"), unordered("/*/*", "")];
        }
        // Keys that are left out, and indices that are others in the canonical form.
        4 => {
            rules.exclusions = vec![exclusion("/*/*/a"), exclusion("/0/1")];
            rules.unordered = vec![unordered("/*", "/a")];
        }
        5 => {
            rules.exclusions = vec![exclusion("/0"), exclusion("/*/*/0")];
            rules.unordered = vec![unordered("/0", ""), unordered("/1", "/0"), unordered("/2", "/1")];
        }
        6 => rules.unordered = vec![unordered("", "/0/a"), unordered("/*", "/a"), unordered("/0/0/b", "")],
        _ => {}
    }
    rules
}

fn read(text: &[u8]) -> bool {
    let mut reader = Reader::new(text);
    loop {
        match reader.next_event() {
            Ok(Event::End) => return true,
            Ok(_) => {}
            Err(error) => {
                assert!(error.offset <= text.len());
                return false;
            }
        }
    }
}

/// The reader and the fast way agree, and canonical text is its own canonical form.
pub fn check_reader(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let is_read = read(text);
    assert_eq!(digest(text, &Rules::default()).is_ok(), is_read);
    let rules = rules(*choice);
    let mut once = Vec::new();
    if canonicalize(text, &rules, &mut once).is_ok() {
        assert!(is_read);
        let digested = digest(text, &rules).expect("it has a canonical form");
        assert_eq!((digested.sha256, digested.bytes), (Sha256::of(&once), once.len() as u64));
        // What was left out or moved must not be looked for again in the same place.
        let form = Rules::new(rules.form);
        let mut twice = Vec::new();
        canonicalize(&once, &form, &mut twice).expect("canonical text is a document");
        assert_eq!(once, twice);
    }
}

/// The lexical form in the plainest way.
pub fn naive(value: Value) -> String {
    match value {
        Value::Array(values) => {
            format!("[{}]", values.into_iter().map(naive).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let members: BTreeMap<String, Value> = members.into_iter().collect();
            let member = |(key, value)| format!("{}:{}", Value::String(key), naive(value));
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// With exponents spelled as `serde_json` spells them even where it keeps numbers as text: `e`, and always a sign.
fn respelled(text: &str) -> String {
    let mut out = String::new();
    let (mut in_string, mut is_escaped) = (false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        match c {
            'e' | 'E' if !in_string && next.is_ascii_digit() => out.push_str("e+"),
            'E' if !in_string => out.push('e'),
            _ => out.push(c),
        }
        in_string ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
    }
    out
}

/// The lexical form is what the naive way writes.
pub fn check_differential(text: &[u8]) {
    let mut fast = Vec::new();
    if canonicalize(text, &Rules::default(), &mut fast).is_err() {
        return;
    }
    // It reads less deep than we do.
    if let Ok(value) = serde_json::from_slice::<Value>(text) {
        let fast = String::from_utf8(fast).expect("canonical text is UTF-8");
        assert_eq!(respelled(&fast), naive(value));
    }
}

/// Two documents, divided by a byte that no document has, differ where their digests do.
pub fn check_diff(data: &[u8]) {
    let Some((choice, texts)) = data.split_first() else { return };
    let Some(divider) = texts.iter().position(|byte| *byte == 0xFF) else { return };
    let (left, right) = (&texts[..divider], &texts[divider + 1..]);
    let (rules, limits) = (rules(*choice), DiffLimits::default());
    let Ok(found) = diff(left, right, &rules, &limits) else { return };
    let digests = [left, right].map(|text| digest(text, &rules).expect("it was read before").sha256);
    assert_eq!([found.left, found.right], digests);
    assert_eq!(found.total == 0, digests[0] == digests[1]);
    let back = diff(right, left, &rules, &limits).expect("it was read before");
    assert_eq!(back.total, found.total);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: [&str; 15] = [
        "1.50e+007",
        "{\"9E99\":[9E99,1e5,2E-7,3E+1,true,\"\\\\\",4E1]}",
        "[-0, 0.0, 1E5, 123456789012345678901234567890.1234567890]",
        r#"{"b": [true, false, null], "a": {"z": 1e-5, "y": {}, "x": []}}"#,
        r#""\u0000\u001f\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#,
        "{\"\u{e9}\":1, \"e\u{301}\":2, \"\u{ffff}\":3, \"\u{10000}\":4, \"\":5}",
        r#"[{"a":3,"b":[1]},{"b":[0],"a":1},{"a":2,"b":[5]}]"#,
        r#"{"a":[[3,1,2]],"0":{"b":1}}"#,
        "[[[[[[[[[[1]]]]]]]]]]",
        r#"[[3,1,2],[[1,5],[0,4]],[[9,2],[8,1]]]"#,
        r#"[[{"a":2,"b":[2,1]},{"a":1}],[{"b":0,"a":"k"}]]"#,
        "{\"a\":1,\"a\":2}",
        "[1,]",
        "",
        "\u{feff}[]",
    ];

    #[test]
    fn written_documents() {
        for text in DOCUMENTS {
            check_differential(text.as_bytes());
            for choice in 0..16 {
                check_reader(&[&[choice], text.as_bytes()].concat());
                for other in DOCUMENTS {
                    check_diff(&[&[choice], text.as_bytes(), &[0xFF], other.as_bytes()].concat());
                }
            }
        }
    }
}
