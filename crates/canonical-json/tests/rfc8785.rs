//! RFC 8785 against its own examples, the test data of its reference implementation, and an independent algorithm.

use canonical_json::{Form, Rules, Sha256, canonicalize};
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

#[test]
fn what_i_json_forbids_is_refused() {
    let rules = Rules::new(Form::Jcs);
    for text in [
        "1e400",
        "[-1e309]",
        "\"\u{ffff}\"",
        "\"\\ufdd0\"",
        "{\"\u{1fffe}\":1}",
        "\"\\ud800\"",
        "{\"a\":1,\"a\":1}",
    ] {
        assert!(canonicalize(text.as_bytes(), &rules, std::io::sink()).is_err(), "{text}");
    }
    // The largest double, and what rounds to it; the replacement character is a character.
    check("1.7976931348623158e308", "1.7976931348623157e+308");
    check("[1e-400,\"\u{fffd}\"]", "[0,\"\u{fffd}\"]");
}
