//! What the plain way takes, the strict reader takes, and both find the same in it.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// What the rules see of a row.
fn seen<'r, 'a>(row: &'r Row<'a>) -> (Vec<Option<Item<'a>>>, &'r [Item<'a>]) {
    (Field::ALL.iter().map(|field| row.get(*field)).collect(), &row.tape)
}

/// Whether the line is plain.
fn check(line: &[u8]) -> bool {
    check_after(&mut Layout::default(), line)
}

/// The same after lines that were laid out like this: they change nothing.
fn check_after(layout: &mut Layout, line: &[u8]) -> bool {
    let (mut plain, mut strict) = (Row::new(), Row::new());
    plain.clear(line);
    if plain.read_plain(line, layout).is_none() {
        return false;
    }
    let shown = String::from_utf8_lossy(line);
    assert!(strict.read_strictly(line).is_ok(), "{shown}");
    assert_eq!(seen(&plain), seen(&strict), "{shown}");
    assert_eq!((plain.unknown, plain.metadata), (strict.unknown, strict.metadata), "{shown}");
    true
}

#[test]
fn what_producers_write_is_plain() {
    for line in [
        r#"{"id":"e","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
        r#"{ "id" : "é😀" , "timestamp_us" : 9999999999999999999 , "keys" : [ ] , "segments": [ ]}"#,
        "\t{\"value_slices\":[[1,2],[3]],\r\"depends_on\":[\"a\", \"b\"],\"op\":\"\"} \r",
    ] {
        assert!(check(line.as_bytes()), "{line}");
    }
}

#[test]
fn the_unusual_is_left_to_the_strict_reader() {
    for line in [
        "",
        " ",
        "{}",
        "[]",
        r#"{"id":"e"} x"#,
        r#"{"id":"e","id":"f"}"#,
        r#"{"id":"\u0061"}"#,
        r#"{"\u0069d":"e"}"#,
        r#"{"other":"e"}"#,
        r#"{"metadata":[]}"#,
        r#"{"id":null}"#,
        r#"{"id":{}}"#,
        r#"{"id":[[[]]]}"#,
        r#"{"id":["a",]}"#,
        r#"{"id":"e",}"#,
        r#"{"size_bytes":01}"#,
        r#"{"size_bytes":1.0}"#,
        r#"{"size_bytes":-1}"#,
        r#"{"size_bytes":1e3}"#,
        r#"{"size_bytes":18446744073709551615}"#,
        "{\"id\":\"a\tb\"}",
        "\u{feff}{\"id\":\"a\"}",
    ] {
        assert!(!check(line.as_bytes()), "{line}");
    }
    assert!(!check(b"{\"id\":\"\xff\"}"));
}

#[test]
fn a_layout_is_followed_only_as_far_as_it_is_the_same() {
    let mut layout = Layout::default();
    let mut check =
        |line: &str, is_plain| assert_eq!(check_after(&mut layout, line.as_bytes()), is_plain, "{line}");
    check(r#"{"id":"a","timestamp_us":1,"op":"x"}"#, true);
    check(r#"{"id":"a","timestamp_us":1,"op":"x"}"#, true);
    check(r#"{"id":"a","timestamp_us":1}"#, true);
    check(r#"{"id":"a","timestamp_us":1,"op":"x","keys":["k"]}"#, true);
    check(r#"{"timestamp_us":1,"id":"a"}"#, true);
    check(r#"{"id":"a","timestamp_us":1,"id":"b"}"#, false);
    check(r#"{"id":"a","timestamp_us":1,"op":"x","keys":["k"]}"#, true);
    check(r#"{"id":"a","timestamp_us":1,"op":"x""#, false);
    check(r#"{"id":"a","timestamp_us":1,"op":"x","#, false);
    check(r#"{"id":"a","timestamp_us":1,"op":"x","keys":"#, false);
    check(r#","timestamp_us":1"#, false);
    check(&format!(r#"{{"id":"a",{}"op":"x"}}"#, " ".repeat(300)), true);
    check(&format!(r#"{{"id":"a",{}"op":"x"}}"#, " ".repeat(300)), true);
}

fn value() -> impl Strategy<Value = String> {
    let string = "\"([a-c \u{e9}\u{1f600}/]|\\\\n|\\\\u0061|\t|\u{7f}|\u{80}){0,12}\"";
    let number = select(vec![
        "0",
        "7",
        "00",
        "01",
        "-0",
        "-1",
        "1.0",
        "1e3",
        "9999999999999999999",
        "18446744073709551616",
    ]);
    let leaf = prop_oneof![
        6 => string,
        4 => number.prop_map(str::to_owned),
        2 => (0..u64::MAX).prop_map(|number| number.to_string()),
        1 => select(vec!["null", "true", "{}", "{\"a\":1}", "nul", ""]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 12, 4, |inner| {
        let elements = proptest::collection::vec((space(), inner, space()), 0..4);
        elements.prop_map(|elements| {
            let elements: Vec<String> =
                elements.iter().map(|(before, value, after)| format!("{before}{value}{after}")).collect();
            format!("[{}]", elements.join(","))
        })
    })
}

fn space() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\t", "\r", "  "])
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let mut names: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    names.extend(["other", "i\\u0064", ""]);
    let member = (space(), select(names), space(), value(), space());
    let object =
        (space(), proptest::collection::vec(member, 0..6), space()).prop_map(|(before, members, after)| {
            let members: Vec<String> = members
                .iter()
                .map(|(a, name, b, value, c)| format!("{a}\"{name}\"{b}:{c}{value}{a}"))
                .collect();
            format!("{before}{{{}}}{after}", members.join(",")).into_bytes()
        });
    (object, any::<Index>(), any::<u8>(), 0..6_u8).prop_map(|(mut line, at, byte, wound)| {
        let at = at.index(line.len());
        match wound {
            0 => line[at] = byte,
            1 => line.insert(at, byte),
            2 => line.truncate(at),
            _ => {}
        }
        line.retain(|byte| *byte != b'\n');
        line
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn both_ways_agree(line in line()) {
        check(&line);
    }

    #[test]
    fn lines_before_change_nothing(lines in proptest::collection::vec(line(), 1..6)) {
        let mut layout = Layout::default();
        for line in lines.iter().chain(&lines) {
            assert_eq!(check_after(&mut layout, line), check(line), "{}", String::from_utf8_lossy(line));
        }
    }
}
