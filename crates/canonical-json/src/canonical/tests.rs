//! The fast way is held against the plain way, on every backend.

use proptest::prelude::*;

use super::*;
use crate::members::MAX_MOVED;
use crate::testing::{canonical_document, document, records, some_rules, tight_document};
use crate::tidy::Sizes;

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// The canonical form and which exclusions were present; nothing if there is no canonical form.
type Outcome = Option<(Vec<u8>, Vec<bool>)>;

fn plain_outcome(input: &[u8], rules: &Rules) -> Outcome {
    let mut out = Vec::new();
    let present = tree::canonicalize(input, rules, Limits::default(), &mut out).ok()?;
    Some((out, present))
}

fn fast_outcome<O: Position>(level: Level, input: &[u8], rules: &Rules) -> Outcome {
    let indexed = index::<O>(level, input, rules).ok()?;
    let mut out = Vec::new();
    let emit = Emit { input, form: rules.form, indexed: &indexed, sink: &mut out };
    dispatch(level, emit).expect("memory can be written");
    Some((out, indexed.present))
}

fn check_outcome(input: &[u8], rules: &Rules) {
    let shown = String::from_utf8_lossy(input);
    let plain = plain_outcome(input, rules);
    for level in Level::available() {
        let fast = fast_outcome::<u32>(level, input, rules);
        assert_eq!(fast, plain, "{level:?} {shown}");
    }
    assert_eq!(fast_outcome::<usize>(Level::detect(), input, rules), plain, "{shown}");
    // Where both refuse, the reason is found without the plain way.
    let is_canonicalized = canonicalize(input, rules, io::sink()).is_ok();
    assert_eq!(is_canonicalized, plain.is_some() && super::check(rules).is_ok(), "{shown}");
    check_tidy(input, rules, plain.as_ref());
    let trimmed = input.trim_ascii_end();
    let is_canonical = plain.is_some_and(|(out, _)| out == trimmed);
    let expected = if is_canonical { Ok(trimmed.len()) } else { Err(Stop) };
    for level in Level::available() {
        let mut hash = BlockHash::new();
        assert_eq!(verify(level, input, rules, Some(&mut hash.words)), expected, "{level:?} {shown}");
        if is_canonical {
            assert_eq!(hash.finish(trimmed), Sha256::of(trimmed), "{level:?} {shown}");
        }
    }
    assert_eq!(verify(Level::detect(), input, rules, None), expected, "{shown}");
}

/// What is digested in one pass has the digest that the plain way gives. With a large window that is every document
/// that is not long, and of which no string must be written in another way.
fn check_tidy(input: &[u8], rules: &Rules, plain: Option<&(Vec<u8>, Vec<bool>)>) {
    let shown = String::from_utf8_lossy(input);
    let expected = plain.map(|(out, _)| (Sha256::of(out), out.len() as u64));
    for level in Level::available() {
        let tidy = tidy::digest(level, input, rules, Sizes::DEFAULT);
        let is_rewritten = || index::<u32>(level, input, rules).is_ok_and(|indexed| indexed.needs_rewriting);
        let is_left = *rules != Rules::default() || is_rewritten();
        match input.len() > MAX_MOVED {
            false => assert_eq!(tidy, expected.filter(|_| !is_left), "{level:?} {shown}"),
            true => assert!(tidy.is_none() || tidy == expected, "{level:?} {shown}"),
        }
        for sizes in [Sizes { step: 64, window: 512 }, Sizes { step: 192, window: 700 }] {
            let tidy = tidy::digest(level, input, rules, sizes);
            assert!(tidy.is_none() || tidy == expected, "{level:?} {sizes:?} {shown}");
        }
    }
    // The general way says what is wrong, and where.
    let mut out = Vec::new();
    let canonicalized = canonicalize(input, rules, &mut out).map(|_| Sha256::of(&out));
    let digested = digest(input, rules).map(|digested| digested.sha256);
    match (digested, canonicalized) {
        (Ok(digested), Ok(canonicalized)) => assert_eq!(digested, canonicalized, "{shown}"),
        (digested, canonicalized) => {
            assert_eq!(format!("{:?}", digested.err()), format!("{:?}", canonicalized.err()), "{shown}")
        }
    }
}

/// An object or an array, longer than a small window, of many documents.
fn long_document(parts: &[Vec<u8>], order: usize, is_object: bool) -> Vec<u8> {
    let spaces =
        ["", " ", "\r\n\t", "\n                                                                        "];
    let mut members = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let number = i.wrapping_mul(order | 1) % 1000;
        let space = spaces[number % 4];
        let part = String::from_utf8(document(part)).expect("documents are text");
        let key = if is_object {
            format!("\"a \\\" key{space_in} {number:03}\"{space}:", space_in = " ".repeat(i))
        } else {
            String::new()
        };
        members.push(format!("{space}{key}{part}{space}"));
    }
    let [open, close] = if is_object { ["{", "}"] } else { ["[", "]"] };
    format!("{open}{}{close}", members.join(",")).into_bytes()
}

fn check_long(text: &[u8]) {
    let plain = plain_outcome(text, &Rules::default());
    check_tidy(text, &Rules::default(), plain.as_ref());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn loose_documents(seed: Vec<u8>, rules: u8) {
        check_outcome(&document(&seed), &some_rules(rules));
    }

    #[test]
    fn tight_documents(seed: Vec<u8>, rules: u8) {
        check_outcome(&tight_document(&seed), &some_rules(rules));
    }

    #[test]
    fn canonical_documents(seed: Vec<u8>, rules: u8) {
        let mut text = canonical_document(&seed);
        check_outcome(&text, &some_rules(rules));
        text.push(b'\n');
        check_outcome(&text, &some_rules(rules));
    }

    #[test]
    fn records_with_keys(seed: Vec<u8>, rules: u8) {
        check_outcome(&records(&seed), &some_rules(rules));
        if let Some((canonical, _)) = plain_outcome(&records(&seed), &some_rules(rules)) {
            check_outcome(&canonical, &some_rules(rules));
        }
    }

    #[test]
    fn broken_documents(seed: Vec<u8>, rules: u8, at: prop::sample::Index, kind in 0..3, byte in any::<prop::sample::Index>()) {
        const BYTES: &[u8] = b"{}[]:,\"\\ \n09-+.eEtfnul/\x00\x1f\x7f\x80\xbf\xc3\xe2\xf0\xff";
        let byte = BYTES[byte.index(BYTES.len())];
        for mut text in [document(&seed), tight_document(&seed)] {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => { text.remove(at); }
            }
            check_outcome(&text, &some_rules(rules));
        }
    }

    #[test]
    fn long_documents(
        parts in prop::collection::vec(any::<Vec<u8>>(), 0..30),
        order: usize,
        is_object: bool,
        at: prop::sample::Index,
        byte: prop::sample::Index,
    ) {
        let mut text = long_document(&parts, order, is_object);
        check_long(&text);
        const BYTES: &[u8] = b"{}[]:,\"\\ \n\t09-.efl\x1f\xc3";
        let at = at.index(text.len());
        text[at] = BYTES[byte.index(BYTES.len())];
        check_long(&text);
    }

    #[test]
    fn wide_documents(seed: Vec<u8>, width in 17..80_usize, shuffle: u64) {
        let part = String::from_utf8(document(&seed)).expect("documents are text");
        let key = |i: usize| (i as u64).wrapping_mul(shuffle | 1) % 1000;
        let members: Vec<String> = (0..width).map(|i| format!("\"key {:03}\" : {part}", key(i))).collect();
        check_outcome(format!("{{{}}}", members.join(",")).as_bytes(), &Rules::default());
    }
}

#[test]
fn every_place_in_a_block() {
    let parts = [
        "{}",
        "[]",
        "\"\"",
        "\"\\\\\"",
        "\"\\n\\\"\"",
        "-0.5e+10",
        "true",
        "false",
        "null",
        "\"é\"",
        "\"\\ud83d\\ude00\"",
        "{\"b\":1,\"a\":[2,{}]}",
        "[1 , 2]",
        "-",
        "1.",
        "01",
        "tru",
        "nul l",
        "\"\\u12",
        "\"\u{1}\"",
        "1e",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{1:1}",
        "[\"a\":1]",
        "{\"a\":1]",
        "[}",
        "\"\\x\"",
        "[1 2]",
        "{\"a\":1 \"b\":2}",
        "{,}",
        "[,]",
        "1 1",
        "\"\\ud800\"",
    ];
    for part in parts {
        for before in 40..70 {
            for wrap in ["[\"{}\",%]", "{\"{}\":%}", "[\"{}\", % ]  "] {
                let text = wrap.replace("{}", &"x".repeat(before)).replace('%', part);
                check_outcome(text.as_bytes(), &Rules::default());
                check_outcome(text.as_bytes(), &Rules::new(crate::Form::Jcs));
            }
            let text = format!("{}{part}", " ".repeat(before));
            check_outcome(text.as_bytes(), &Rules::default());
            check_outcome(format!("{part}{}", "\n".repeat(before)).as_bytes(), &Rules::default());
            check_outcome(format!("{part}{},", "\n".repeat(before)).as_bytes(), &Rules::default());
        }
    }
}

#[test]
fn every_short_text() {
    const BYTES: &[u8] = b"{}[]:,\"\\ 10-.ea";
    for length in 0..=3_u32 {
        for number in 0..BYTES.len().pow(length) {
            let text: Vec<u8> =
                (0..length).map(|i| BYTES[number / BYTES.len().pow(i) % BYTES.len()]).collect();
            check_outcome(&text, &Rules::default());
            check_outcome(&[b"1,", text.as_slice()].concat(), &Rules::default());
            check_outcome(&[b"[1", text.as_slice(), b"]"].concat(), &Rules::default());
            check_outcome(&[b"{\"a\"", text.as_slice(), b"}"].concat(), &Rules::default());
        }
    }
}

/// Records of every kind: packed, of bytes, of two bytes, and the lengths at which one kind follows the other.
#[test]
fn objects_of_every_length() {
    let lengths = (0..10).chain(110..135).chain(240..265).chain(500..520).chain([65_500, 65_535, 70_000]);
    for length in lengths {
        for count in 2..9 {
            let members: Vec<String> = (0..count).rev().map(|i| format!("\"k{i}\":{i}")).collect();
            let object = format!("{{{},\"a\":\"{}\"}}", members.join(","), "x".repeat(length));
            if length > 1000 && count != 3 {
                continue;
            }
            check_outcome(object.as_bytes(), &Rules::default());
            // In another, which has some members before and some after.
            let nested = format!("{{\"z\":[{object}],\"y\":0,\"x\":{object},\"a\": 1}}");
            check_outcome(nested.as_bytes(), &Rules::default());
        }
    }
}

/// Objects that are so long that the list of open members changes hands, in others before and after.
#[test]
fn long_objects_in_others() {
    let object = |count: usize, inner: &str| {
        let member =
            |i: usize| format!("\"key {:05}\":{}", i * 7 % count, if i == count / 2 { inner } else { "1" });
        format!("{{{}}}", (0..count).map(member).collect::<Vec<_>>().join(","))
    };
    for counts in [[10_000, 10], [10, 10_000], [10_000, 10_001], [20_000, 6_000]] {
        let innermost = object(6_000, "[2,{\"b\":1,\"a\":2}]");
        let text = object(counts[0], &object(counts[1], &innermost));
        let fast = fast_outcome::<u32>(Level::detect(), text.as_bytes(), &Rules::default());
        assert!(fast == plain_outcome(text.as_bytes(), &Rules::default()), "{counts:?}");
    }
}

/// What the rules refuse, by both ways, and why.
#[test]
fn what_does_not_fit_the_rules() {
    let rules = |unordered: &[(&str, &str)], exclusions: &[&str]| {
        let mut rules = Rules::default();
        for (at, by) in unordered {
            let (at, by) = (at.parse().expect("a pattern"), by.parse().expect("a pointer"));
            rules.unordered.push(crate::Unordered { at, by });
        }
        for pattern in exclusions {
            let pattern = pattern.parse().expect("a pattern");
            rules.exclusions.push(crate::Exclusion { pattern, required: false });
        }
        rules
    };
    let check = |text: &str, rules: &Rules, expected: &str| {
        let mut out = Vec::new();
        let error = canonicalize(text.as_bytes(), rules, &mut out).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
        assert!(out.is_empty(), "{text}");
        assert_eq!(digest(text.as_bytes(), rules).expect_err(text).to_string(), expected, "{text}");
        check_outcome(text.as_bytes(), rules);
    };
    let by_id = [("/r", "/id")];
    let text = r#"{"r":[{"id":2,"w":0},{"id":1}],"s":{}}"#;
    let left_out =
        |element| format!("the element `/r/{element}` cannot be sorted by `/id`, which is left out");
    check(text, &rules(&by_id, &["/r/*/id"]), &left_out(0));
    check(text, &rules(&by_id, &["/r/1/id"]), &left_out(1));
    check(text, &rules(&[("/r", "/w")], &[]), "the element `/r/1` has no `/w` to be sorted by");
    check(text, &rules(&[("/*", "/id")], &[]), "`/s` is called unordered, but is not an array");
    check(
        r#"{"r":[{"id":1},{"id":1}]}"#,
        &rules(&by_id, &[]),
        "the elements `/r/0` and `/r/1` have the same `/id`",
    );
    let neither = "`/id` of the element `/r/0` is neither a string nor an integer";
    for key in ["null", "1.0", "1e0", "[]", "true"] {
        check(&format!(r#"{{"r":[{{"id":{key}}}]}}"#), &rules(&by_id, &[]), neither);
    }
    check("1", &rules(&[("", "")], &[]), "`` is called unordered, but is not an array");
    check("1", &rules(&[], &[""]), "an exclusion matches the whole document");
    // What is left out is not looked at.
    for exclusion in ["/r", "/r/*"] {
        assert!(digest(text.as_bytes(), &rules(&by_id, &[exclusion])).is_ok(), "{exclusion}");
    }
}

#[test]
fn depth_at_the_limit_and_beyond() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [1023, 1024, 1025] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(plain_outcome(text.as_bytes(), &Rules::default()).is_some(), depth <= 1024);
            check_outcome(text.as_bytes(), &Rules::default());
        }
    }
}

/// Long enough for the radix sort, and for records that do not fit in sixteen bits.
#[test]
fn very_wide_objects() {
    let object = |key: &dyn Fn(u64) -> String, count: u64| {
        let mixed = |i: u64| (i * 7_919) % count;
        let members: Vec<String> = (0..count).map(|i| format!("{}:{i}", key(mixed(i)))).collect();
        format!("[{{{}}}]", members.join(", "))
    };
    let count = 33_001;
    for key in [
        &|i| format!("\"{i}\"") as String,
        &|i| format!("\"{:x>120}\"", i),
        &|i| format!("\"{}\\n{i}\"", i % 3),
        &|i| format!("\"é{i}\u{10000}\""),
        &|i| format!("\"{}\"", i % 33_000),
    ] as [&dyn Fn(u64) -> String; 5]
    {
        let text = object(key, count);
        let plain = plain_outcome(text.as_bytes(), &Rules::default());
        let fast = fast_outcome::<u32>(Level::detect(), text.as_bytes(), &Rules::default());
        assert!(fast == plain, "{}", &text[..100]);
        let jcs = Rules::new(crate::Form::Jcs);
        let fast = fast_outcome::<u32>(Level::detect(), text.as_bytes(), &jcs);
        assert!(fast == plain_outcome(text.as_bytes(), &jcs), "{}", &text[..100]);
    }
}

/// A document with something of everything, and with each of its bytes left out, doubled or replaced.
#[test]
fn an_error_at_every_place() {
    let record = |i: usize| {
        format!(
            "\r\n\t{{\"b \\\\{i}\": [ 1.5e+3,\t-0 , true ],  \"a\\n\" : {{ \"\u{e9} \": null, \"\": \"x  y\\\"\" }} }}"
        )
    };
    let records: Vec<String> = (0..5).map(record).collect();
    let text = format!("{{ \"z\": 0, \"r\": [{}\n], \"a\" : {} }}\n", records.join(" ,"), record(9));
    check_long(text.as_bytes());
    for at in 0..text.len() {
        for with in [&b""[..], b" ", b"\"", b"}"] {
            let changed = [&text.as_bytes()[..at], with, &text.as_bytes()[at + 1..]].concat();
            check_long(&changed);
            let added = [&text.as_bytes()[..at], with, &text.as_bytes()[at..]].concat();
            check_long(&added);
        }
    }
}
