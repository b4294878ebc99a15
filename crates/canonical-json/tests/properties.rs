//! What holds for every document.

use std::collections::BTreeMap;
use std::fmt::Write;

use canonical_json::{
    CanonicalError, DiffLimits, Event, Form, ReadError, Reader, Rules, Unordered, canonicalize,
    canonicalize_lines, diff, digest, digest_lines, digest_reader,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

/// A document whose numbers are text. Two are equal if they are the same value with the same number texts.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |number| number.is_finite())
            .prop_map(|number| format!("{number:?}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
    ]
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-c]{0,3}", "prefix_of_a_key_[a-c\u{e9}\u{10000}\u{e000}\n\"\\\\]{0,2}"]
}

/// What may be wrong in a text, and whether it takes the place of what is there.
fn fault() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let known: [&[u8]; 17] = [
        b"\"",
        b"\\",
        b"\\ud800",
        b"\\udc00",
        b"\\u12",
        b"\\x",
        b"\x1f",
        b"\xff",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"01",
    ];
    let bytes = prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    (bytes, any::<bool>())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        string().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::btree_map(string(), inner, 0..8).prop_map(Value::Object),
        ]
    })
}

/// How a document is written: decisions are taken from a sequence of numbers.
struct Style(u64);

impl Style {
    fn below(&mut self, bound: u64) -> u64 {
        // A linear congruential generator; only its high bits are used.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", " ", "\n", "\r\n    ", "\t"][usize::try_from(self.below(6)).expect("small")]);
    }

    fn string(&mut self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            let must = matches!(c, '"' | '\\' | '\0'..='\x1f');
            match self.below(8) {
                0 => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| write!(out, "\\u{unit:04x}").expect("text")),
                1 => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| write!(out, "\\u{unit:04X}").expect("text")),
                2 if c == '/' => out.push_str("\\/"),
                _ if must => write!(out, "\\u{:04x}", u32::from(c)).expect("text"),
                _ => out.push(c),
            }
        }
        out.push('"');
    }

    fn value(&mut self, out: &mut String, value: &Value) {
        self.space(out);
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => write!(out, "{value}").expect("text"),
            Value::Number(text) => out.push_str(text),
            Value::String(text) => self.string(out, text),
            Value::Array(values) => {
                out.push('[');
                for (i, value) in values.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.value(out, value);
                }
                out.push(']');
            }
            Value::Object(members) => self.object(out, members),
        }
        self.space(out);
    }

    fn object(&mut self, out: &mut String, members: &BTreeMap<String, Value>) {
        let mut left: Vec<_> = members.iter().collect();
        out.push('{');
        while !left.is_empty() {
            let (key, value) = left.remove(usize::try_from(self.below(left.len() as u64)).expect("small"));
            self.space(out);
            self.string(out, key);
            self.space(out);
            out.push(':');
            self.value(out, value);
            out.push_str(if left.is_empty() { "" } else { "," });
        }
        self.space(out);
        out.push('}');
    }
}

fn written(value: &Value, style: u64) -> String {
    let mut out = String::new();
    Style(style).value(&mut out, value);
    out
}

/// What is wrong with a text, one event after the other.
fn read_by_events(text: &[u8]) -> Option<ReadError> {
    let mut reader = Reader::new(text);
    loop {
        match reader.next_event() {
            Ok(Event::End) => return None,
            Ok(_) => {}
            Err(error) => return Some(error),
        }
    }
}

/// What every other way of reading says is wrong with a text.
fn errors_of_all_ways(text: &[u8], rules: &Rules) -> Vec<Option<ReadError>> {
    let mut out = Vec::new();
    let other: &[u8] = if rules.unordered.is_empty() { b"{}" } else { b"[]" };
    let limits = DiffLimits::default();
    let mut results = vec![
        canonicalize(text, rules, &mut out).map(|_| ()),
        digest(text, rules).map(|_| ()),
        digest_reader(text, rules).map(|_| ()),
        diff(text, other, rules, &limits).map(|_| ()),
        diff(other, text, rules, &limits).map(|_| ()),
    ];
    // A line is a record, and a carriage return before its end is part of the end.
    if !text.contains(&b'\n') && !text.ends_with(b"\r") && !text.is_empty() {
        results.push(digest_lines(text, rules, |_| {}).map(|_| ()).map_err(|error| error.source));
        results.push(canonicalize_lines(text, rules, &mut out).map(|_| ()).map_err(|error| error.source));
    }
    let read = |result| match result {
        Err(CanonicalError::Read(error)) => Some(error),
        _ => None,
    };
    results.into_iter().map(read).collect()
}

fn canonical(text: &str, form: Form) -> Option<String> {
    let mut out = Vec::new();
    canonicalize(text.as_bytes(), &Rules::new(form), &mut out).ok()?;
    Some(String::from_utf8(out).expect("canonical text is UTF-8"))
}

/// The lexical form in the plainest way: maps that sort, and numbers that serde_json does not look at.
fn naive(text: &str) -> String {
    let parse = |text: &str| -> Box<RawValue> { serde_json::from_str(text).expect("a document") };
    match parse(text).get().as_bytes()[0] {
        b'{' => {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).expect("an object");
            let member = |(key, value): (String, Box<RawValue>)| {
                format!("{}:{}", serde_json::to_string(&key).expect("a string"), naive(value.get()))
            };
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        b'[' => {
            let elements: Vec<Box<RawValue>> = serde_json::from_str(text).expect("an array");
            format!("[{}]", elements.iter().map(|element| naive(element.get())).collect::<Vec<_>>().join(","))
        }
        b'"' => {
            let string: String = serde_json::from_str(text).expect("a string");
            serde_json::to_string(&string).expect("a string")
        }
        _ => parse(text).get().to_owned(),
    }
}

/// What a document means to I-JSON; nothing if it does not allow it.
fn i_json(value: &Value) -> Option<Value> {
    let is_noncharacter =
        |c: char| matches!(u32::from(c), 0xFDD0..=0xFDEF) || u32::from(c) & 0xFFFE == 0xFFFE;
    let is_allowed = |text: &str| !text.chars().any(is_noncharacter);
    Some(match value {
        Value::Number(text) => {
            let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
            // Zero has no sign there.
            Value::Number(format!("{:x}", if number == 0.0 { 0 } else { number.to_bits() }))
        }
        Value::String(text) if !is_allowed(text) => return None,
        Value::Array(values) => Value::Array(values.iter().map(i_json).collect::<Option<_>>()?),
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, value)| is_allowed(key).then_some((key.clone(), i_json(value)?)));
            Value::Object(members.collect::<Option<_>>()?)
        }
        other => other.clone(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn order_and_spelling_never_matter(value in value(), styles: [u64; 2]) {
        let texts = styles.map(|style| written(&value, style));
        for form in [Form::Lexical, Form::Jcs] {
            prop_assert_eq!(canonical(&texts[0], form), canonical(&texts[1], form));
        }
        let digests = texts.map(|text| digest(text.as_bytes(), &Rules::default()).expect("a document"));
        prop_assert_eq!(&digests[0], &digests[1]);
    }

    #[test]
    fn canonical_text_is_its_own_canonical_form(value in value(), style: u64) {
        for form in [Form::Lexical, Form::Jcs] {
            if let Some(text) = canonical(&written(&value, style), form) {
                prop_assert_eq!(canonical(&text, form), Some(text.clone()));
                let found = digest(text.as_bytes(), &Rules::new(form)).expect("a document");
                prop_assert_eq!(found.sha256, canonical_json::Sha256::of(text.as_bytes()));
                prop_assert_eq!(found.bytes, text.len() as u64);
            }
        }
    }

    #[test]
    fn the_plain_way_gives_the_same(value in value(), style: u64) {
        let text = written(&value, style);
        prop_assert_eq!(canonical(&text, Form::Lexical), Some(naive(&text)));
    }

    #[test]
    fn different_values_have_different_forms(pair in prop::array::uniform2(value()), styles: [u64; 2]) {
        let texts = [written(&pair[0], styles[0]), written(&pair[1], styles[1])];
        let lexical = texts.clone().map(|text| canonical(&text, Form::Lexical));
        prop_assert_eq!(pair[0] == pair[1], lexical[0] == lexical[1]);
        let meant = pair.map(|value| i_json(&value));
        for (text, meant) in texts.iter().zip(&meant) {
            prop_assert_eq!(canonical(text, Form::Jcs).is_some(), meant.is_some());
        }
        if meant.iter().all(Option::is_some) {
            let forms = texts.map(|text| canonical(&text, Form::Jcs));
            prop_assert_eq!(meant[0] == meant[1], forms[0] == forms[1]);
        }
    }

    #[test]
    fn i_json_numbers_are_the_same_if_their_doubles_are(number: f64, other in number()) {
        prop_assume!(number.is_finite());
        let text = canonical(&format!("{number:e}"), Form::Jcs).expect("a number");
        prop_assert_eq!(text.parse::<f64>().map(|read| read + 0.0), Ok(number + 0.0));
        // Adding zero takes the sign from zero.
        let same = other.parse::<f64>().map(|other| (other + 0.0).to_bits()) == Ok((number + 0.0).to_bits());
        prop_assert_eq!(canonical(&other, Form::Jcs) == Some(text), same);
    }

    #[test]
    fn the_text_of_every_double_round_trips(number: f64) {
        prop_assume!(number.is_finite());
        for text in [format!("{number:?}"), format!("{number:e}"), format!("{number:.40e}")] {
            let kept = canonical(&text, Form::Lexical).expect("a number");
            prop_assert_eq!(&kept, &text);
            prop_assert_eq!(kept.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
        }
    }

    #[test]
    fn documents_differ_where_their_digests_do(pair in prop::array::uniform2(value()), styles: [u64; 2]) {
        let texts = [written(&pair[0], styles[0]), written(&pair[1], styles[1])];
        let found = diff(texts[0].as_bytes(), texts[1].as_bytes(), &Rules::default(), &DiffLimits::default());
        let found = found.expect("documents");
        prop_assert_eq!(found.total == 0, pair[0] == pair[1]);
        prop_assert_eq!(found.is_same(), pair[0] == pair[1]);
        let counted: u64 = found.groups.iter().map(|group| group.count).sum();
        prop_assert!(found.truncated || counted == found.total);
    }

    /// The first error is said, whichever way a text is read.
    #[test]
    fn all_ways_of_reading_say_the_same_error(
        value in value(),
        style: u64,
        faults in prop::collection::vec((any::<prop::sample::Index>(), fault()), 1..4),
    ) {
        let mut text = written(&value, style).into_bytes();
        for (place, (fault, replaces)) in faults {
            let at = place.index(text.len() + 1);
            let end = if replaces { (at + fault.len()).min(text.len()) } else { at };
            text.splice(at..end, fault);
        }
        let expected = read_by_events(&text);
        let sorts = Rules {
            unordered: vec![Unordered { at: "".parse().expect("all"), by: "/a".parse().expect("a pointer") }],
            ..Rules::default()
        };
        for rules in [Rules::default(), sorts] {
            for found in errors_of_all_ways(&text, &rules) {
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
