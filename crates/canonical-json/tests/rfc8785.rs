//! RFC 8785 against its own examples, the test data of its reference implementation, and an independent algorithm.

use std::io::Write;

use canonical_json::{
    CanonicalError, DiffLimits, Exclusion, Form, ReadErrorKind, Rules, Sha256, Unordered, canonicalize,
    canonicalize_lines, diff, digest, digest_file, digest_lines, digest_reader,
};
use sha2::Digest;

fn jcs(text: &str) -> String {
    let mut out = Vec::new();
    canonicalize(text.as_bytes(), &Rules::new(Form::Jcs), &mut out).expect("a document");
    String::from_utf8(out).expect("canonical text is UTF-8")
}

fn check(text: &str, expected: &str) {
    assert_eq!(jcs(text), expected, "{text}");
    assert_eq!(jcs(expected), expected);
}

/// RFC 8785, sections 3.2.2 to 3.2.4.
#[test]
fn the_example_of_the_rfc() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
    check(text, expected);
}

/// RFC 8785, section 3.2.3.
#[test]
fn the_order_of_the_rfc() {
    let text = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let names = jcs(text);
    let expected = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ];
    let places: Vec<_> = expected.iter().map(|name| names.find(name).expect("every name is there")).collect();
    assert!(places.is_sorted(), "{names}");
}

/// `testdata` of <https://github.com/cyberphone/json-canonicalization>.
#[test]
fn the_reference_test_data() {
    check(r#"[ 56, { "d": true, "10": null, "1": [ ] } ]"#, r#"[56,{"1":[],"10":null,"d":true}]"#);
    check(
        r#"{ "peach": "This", "péché": "is", "pêche": "but", "sin":   "ignore" }"#,
        r#"{"peach":"This","péché":"is","pêche":"but","sin":"ignore"}"#,
    );
    check(
        r#"{ "1": {"f": {"f": "hi","F": 5} ,"\n": 56.0}, "10": { }, "": "empty", "a": { },
             "111": [ {"e": "yes","E": "no" } ], "A": { } }"#,
        r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
    );
    check("{ \"Unnormalized Unicode\":\"A\\u030a\" }", "{\"Unnormalized Unicode\":\"A\u{30a}\"}");
    check(
        r#"{ "\u20ac": 1, "\r": 2, "\u000a": 3, "1": 4, "\u0080": "Control\u007f", "\ud83d\ude02": 5, "\u00f6": 6,
             "\ufb33": 7, "</script>": 8 }"#,
        "{\"\\n\":3,\"\\r\":2,\"1\":4,\"</script>\":8,\"\u{80}\":\"Control\u{7f}\",\"ö\":6,\"€\":1,\"😂\":5,\"\u{fb33}\":7}",
    );
}

/// The published sequence of doubles, described in `tests/data/README.md`.
fn published_numbers() -> impl Iterator<Item = f64> {
    let fixed = include_str!("data/es6-static.txt").lines();
    let fixed = fixed.map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).expect("hexadecimal")));
    let serial = (0..2000).map(|i| f64::from_bits(0x0010_0000_0000_0000 + i));
    let mut block = [0; 32];
    let hashed = std::iter::repeat_with(move || {
        block = sha2::Sha256::digest(block).into();
        let (numbers, _) = block.as_chunks::<8>();
        [0, 1, 2, 3].map(|i| f64::from_le_bytes(numbers[i]))
    });
    fixed.chain(serial).chain(hashed.flatten().filter(|number| number.is_finite() && *number != 0.0))
}

#[test]
fn a_hundred_thousand_published_numbers_have_the_published_checksum() {
    let mut lines = String::new();
    let mut buffer = ryu_js::Buffer::new();
    for number in published_numbers().take(100_000) {
        let text = jcs(&format!("{number:e}"));
        assert_eq!(text, buffer.format_finite(number), "{:x}", number.to_bits());
        lines.push_str(&format!("{:x},{text}\n", number.to_bits()));
    }
    let expected = "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7";
    assert_eq!(Sha256::of(lines.as_bytes()).to_string(), expected);
}

/// Text that is not how ECMAScript prints a number, but means one.
#[test]
fn numbers_written_in_other_ways() {
    let mut buffer = ryu_js::Buffer::new();
    for (i, number) in published_numbers().skip(2000).take(20_000).enumerate() {
        let text = match i % 4 {
            0 => format!("{number:.30e}"),
            1 => format!("{number:E}"),
            2 => format!("{}e{}", number / 1e3, 3),
            _ => format!("{number:?}"),
        };
        let Some(meant) = text.parse().ok().filter(|meant: &f64| meant.is_finite()) else { continue };
        assert_eq!(jcs(&text), buffer.format_finite(meant), "{text}");
    }
}

/// Rules that meet the members below, or their names, or nothing: what is refused does not depend on them.
fn all_rules() -> Vec<Rules> {
    let exclusions = |patterns: &[&str]| {
        let exclusion =
            |pattern: &&str| Exclusion { pattern: pattern.parse().expect("a pattern"), required: false };
        patterns.iter().map(exclusion).collect()
    };
    let unordered = |at: &str, by: &str| Unordered {
        at: at.parse().expect("a pattern"),
        by: by.parse().expect("a pointer"),
    };
    let plain = Rules::new(Form::Jcs);
    vec![
        plain.clone(),
        Rules { exclusions: exclusions(&["/*", "/a/*", "/r/*/w"]), ..plain.clone() },
        Rules { exclusions: exclusions(&["/z", "/b/0"]), ..plain.clone() },
        Rules { unordered: vec![unordered("", ""), unordered("/r", "/id")], ..plain.clone() },
        Rules { exclusions: exclusions(&["/a"]), unordered: vec![unordered("/r", "/w")], ..plain },
    ]
}

/// Where an error is: byte offset, line, column and JSON pointer.
type Place<'p> = (usize, usize, usize, &'p str);

fn check_refused(text: &str, kind: &ReadErrorKind, place: Place<'_>) {
    all_rules().iter().for_each(|rules| check_refused_under(rules, text, kind, place));
    // None of this is wrong in the other form.
    let lexical = canonicalize(text.as_bytes(), &Rules::default(), std::io::sink());
    lexical.unwrap_or_else(|error| panic!("{text}: {error:?}"));
}

/// By every way of reading.
fn check_refused_under(rules: &Rules, text: &str, kind: &ReadErrorKind, place: Place<'_>) {
    let check = |result: Result<(), CanonicalError>| {
        let Err(CanonicalError::Read(error)) = result else { panic!("{text}: {result:?}") };
        assert_eq!(&error.kind, kind, "{text}");
        assert_eq!((error.offset, error.line, error.column, error.pointer.as_str()), place, "{text}");
    };
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("it is written");
    let (bytes, limits, mut out) = (text.as_bytes(), DiffLimits::default(), Vec::new());
    check(canonicalize(bytes, rules, &mut out).map(|_| ()));
    assert!(out.is_empty(), "{text}: nothing is written before an error is known");
    check(digest(bytes, rules).map(|_| ()));
    check(digest_reader(bytes, rules).map(|_| ()));
    check(digest_file(file.path(), rules).map(|_| ()));
    let ordinary: &[u8] = if rules.unordered.is_empty() { b"{}" } else { b"[]" };
    check(diff(bytes, ordinary, rules, &limits).map(|_| ()));
    check(diff(ordinary, bytes, rules, &limits).map(|_| ()));
}

#[test]
fn what_i_json_forbids_is_refused() {
    use ReadErrorKind::NumberTooLarge;
    let noncharacter = |code_point: u32| ReadErrorKind::Noncharacter { code_point };
    // A number is wrong from its first byte on, whatever follows it.
    check_refused("1e400", &NumberTooLarge, (0, 1, 1, ""));
    check_refused(" -1e309 ", &NumberTooLarge, (1, 1, 2, ""));
    check_refused("[-1e309]", &NumberTooLarge, (1, 1, 2, "/0"));
    check_refused("[1, 1e400]", &NumberTooLarge, (4, 1, 5, "/1"));
    check_refused(r#"{"a":1,"b":-1e999}"#, &NumberTooLarge, (11, 1, 12, "/b"));
    check_refused(r#"{"a":[[], {"b/c" : [0,1e400 ,2]}]}"#, &NumberTooLarge, (22, 1, 23, "/a/1/b~1c/1"));
    check_refused("{\"é\": 1,\r\n \"ü\": [\n  1e400]}", &NumberTooLarge, (22, 3, 3, "/ü/0"));
    let long = format!("[{}]", "9".repeat(400));
    check_refused(&long, &NumberTooLarge, (1, 1, 2, "/0"));

    // A string is wrong at the character or at its escape.
    check_refused("\"\u{ffff}\"", &noncharacter(0xFFFF), (1, 1, 2, ""));
    check_refused(r#""\ufdd0""#, &noncharacter(0xFDD0), (1, 1, 2, ""));
    check_refused(r#"["ab\uffffcd"]"#, &noncharacter(0xFFFF), (4, 1, 5, "/0"));
    check_refused("[\"ab\u{ffff}cd\"]", &noncharacter(0xFFFF), (4, 1, 5, "/0"));
    check_refused(r#"["\n\ud83f\udffe\uffff", 1]"#, &noncharacter(0x1_FFFE), (4, 1, 5, "/0"));
    check_refused(
        "{\"a\":{\"b\": [true,\n\"éé\u{10ffff}\"]}}",
        &noncharacter(0x10_FFFF),
        (23, 2, 4, "/a/b/1"),
    );

    // A name is wrong in the object that has it.
    check_refused("{\"\u{1fffe}\":1}", &noncharacter(0x1_FFFE), (2, 1, 3, ""));
    check_refused(r#"{"a":1, "x\ufffe" : 2}"#, &noncharacter(0xFFFE), (10, 1, 11, ""));
    check_refused(r#"[0,{"a":[{"\ufdef":[1e400]}]}]"#, &noncharacter(0xFDEF), (11, 1, 12, "/1/a/0"));
    check_refused("{\"a\":{\n\t\"é\u{fdd0}\"\n : {}}}", &noncharacter(0xFDD0), (11, 2, 4, "/a"));
    check_refused(r#"{"\\uffff\uffff":1}"#, &noncharacter(0xFFFF), (9, 1, 10, ""));

    // The first of several, also before what does not fit the rules.
    check_refused(
        r#"{"r":[{"id":1},{"id":1,"w":1e400}],"b":"\uffff"}"#,
        &NumberTooLarge,
        (27, 1, 28, "/r/1/w"),
    );
    check_refused(r#"{"r":{"id":1e400}}"#, &NumberTooLarge, (11, 1, 12, "/r/id"));

    // The largest double, and what rounds to it; the replacement character is a character.
    check("1.7976931348623158e308", "1.7976931348623157e+308");
    check("[1e-400,\"\u{fffd}\"]", "[0,\"\u{fffd}\"]");
}

/// Far from the beginning and at the end of whatever is looked at in one piece.
#[test]
fn what_i_json_forbids_is_found_at_any_distance() {
    let rules = Rules::new(Form::Jcs);
    for before in (0..70).chain([1 << 16, (1 << 17) - 3, 200_001]) {
        let space = " ".repeat(before);
        let too_large = ReadErrorKind::NumberTooLarge;
        let noncharacter = ReadErrorKind::Noncharacter { code_point: 0xFFFF };
        for (text, kind, offset, pointer) in [
            (format!("{space}[1e400]"), too_large, before + 1, "/0"),
            (format!("[\"{space}\u{ffff}\"]"), noncharacter.clone(), before + 2, "/0"),
            (format!("{{\"{space}\\uffff\":0}}"), noncharacter, before + 2, ""),
        ] {
            let place = (offset, 1, offset + 1, pointer);
            check_refused_under(&rules, &text, &kind, place);
        }
    }
}

/// In a file of records the line is named, and the place in it.
#[test]
fn what_i_json_forbids_is_refused_in_records() {
    let text = "{\"a\":1}\r\n{\"a\": [0, 1e400]}\n[\"\u{ffff}\"]\n";
    for rules in all_rules().into_iter().filter(|rules| rules.unordered.is_empty()) {
        let of_digest = digest_lines(text.as_bytes(), &rules, |_| {}).map(|_| ());
        let of_text = canonicalize_lines(text.as_bytes(), &rules, std::io::sink()).map(|_| ());
        for result in [of_digest, of_text] {
            let error = result.expect_err("the second record");
            assert_eq!((error.line, error.offset), (2, 9));
            let CanonicalError::Read(error) = error.source else { panic!("{error:?}") };
            assert_eq!(error.kind, ReadErrorKind::NumberTooLarge);
            assert_eq!((error.offset, error.line, error.column, error.pointer.as_str()), (10, 1, 11, "/a/1"));
        }
    }
}

/// Refused in either form, and at the same place.
#[test]
fn what_json_forbids_is_refused_as_in_the_other_form() {
    for text in ["\"\\ud800\"", "{\"a\":1,\"a\":1}", "[1,{\"\\ud800\":1}]", "[1e400,NaN]", "[NaN,1e400]"] {
        let place = |form: Form| match digest(text.as_bytes(), &Rules::new(form)) {
            Err(CanonicalError::Read(error)) => error,
            other => panic!("{text}: {other:?}"),
        };
        match text {
            "[1e400,NaN]" => assert_eq!(place(Form::Jcs).offset, 1),
            _ => assert_eq!(place(Form::Jcs), place(Form::Lexical)),
        }
    }
}
