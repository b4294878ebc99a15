//! Every rule of the contract, each broken by one small trace; which one wins when several are broken; and where.

use std::collections::BTreeSet;

use master_replay::{Rule, Trace};

const V1: &str = r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#;
const V2: &str = r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}"#;
const U: &str = r#"{"type":"master_rpc_trace","time_unit":"us"}"#;
const READ: &str = r#"{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#;
const REGISTER: &str =
    r#"{"id":"r","timestamp_us":0,"client_id":"c","op":"ReMountSegment","phase":"setup","segments":[]}"#;
const MOUNT: &str = r#"{"id":"m","timestamp_us":0,"client_id":"c","op":"MountSegment","phase":"setup","segment_id":"s","size_bytes":9}"#;
const READ2: &str =
    r#"{"id":"q","timestamp_us":0,"client_id":"c","op":"BatchExistKey","phase":"workload","keys":["k"]}"#;
const UNMOUNT: &str = r#"{"id":"u","timestamp_us":0,"client_id":"c","op":"UnmountSegment","phase":"teardown","segment_id":"s"}"#;
const START: &str = r#"{"id":"s","timestamp_us":0,"client_id":"c","op":"BatchPutStart","keys":["k","l"],"value_sizes":[1,2]}"#;
const END: &str =
    r#"{"id":"e","timestamp_us":0,"client_id":"c","op":"BatchPutEnd","keys":["k","l"],"put_start":"s"}"#;

/// The row with this replaced by that, which must be in it.
fn with(row: &str, this: &str, that: &str) -> String {
    assert!(row.contains(this), "{this} in {row}");
    row.replacen(this, that, 1)
}

fn check(lines: &[&str], rule: &str, line: Option<u64>) {
    let text = lines.join("\n");
    match Trace::parse(text.as_bytes()) {
        Ok(trace) => panic!("{} events where {rule} was expected:\n{text}", trace.len()),
        Err(fault) => assert_eq!((fault.rule.id(), fault.line), (rule, line), "{fault}\n{text}"),
    }
}

/// Breaks a rule with one row after the header.
fn second(header: &str, row: &str, rule: &str) {
    check(&[header, row], rule, Some(2));
}

fn v2(rows: &[&str], rule: &str, line: u64) {
    check(&[&[V2], rows].concat(), rule, Some(line));
}

#[test]
fn json() {
    for (row, rule) in [
        ("{\"id\":\"\t\"}", "J-CONTROL"),
        ("{\"id\":\"a\r\"}", "J-CONTROL"),
        (r#"{"id":"\udc00"}"#, "J-SURROGATE"),
        (r#"{"id":"\ud800\ud800"}"#, "J-SURROGATE"),
        (r#"{"id":"\ud800x"}"#, "J-SURROGATE"),
        (r#"{"timestamp_us":1e400}"#, "J-NUMBER"),
        (r#"{"timestamp_us":-1e400}"#, "J-NUMBER"),
        (r#"{"x":{"y":[1E999]}}"#, "J-NUMBER"),
        (r#"{"id":"a","id":"b"}"#, "J-DUPKEY"),
        (r#"{"keys":[{"a":1,"\u0061":1}]}"#, "J-DUPKEY"),
        ("{} {}", "J-TRAILING"),
        ("{},", "J-TRAILING"),
        ("{}}", "J-TRAILING"),
        ("{}\u{c}", "J-TRAILING"),
        ("[]", "J-OBJECT"),
        ("\"id\"", "J-OBJECT"),
        ("true", "J-OBJECT"),
        ("{", "J-SYNTAX"),
        ("{\"id\"}", "J-SYNTAX"),
        ("{'id':1}", "J-SYNTAX"),
        ("{\"id\":01}", "J-SYNTAX"),
        ("{\"id\":[1,]}", "J-SYNTAX"),
        ("\0", "J-SYNTAX"),
        (" \u{feff}{}", "J-SYNTAX"),
        ("\u{feff}", "J-BOM"),
    ] {
        second(V1, row, rule);
        second(U, row, rule);
        check(&[row], rule, Some(1));
    }
    let huge = format!("{{\"timestamp_us\":{}}}", "9".repeat(310));
    second(V1, &huge, "J-NUMBER");
}

#[test]
fn nesting() {
    let nested = |depth: usize| {
        let metadata = format!("{{\"a\":{}{}}}", "[".repeat(depth - 2), "]".repeat(depth - 2));
        with(V1, "}", &format!(",\"metadata\":{metadata}}}")) + "\n" + READ
    };
    assert!(Trace::parse(nested(128).as_bytes()).is_ok());
    check(&[&nested(129)], "J-DEPTH", Some(1));
    let bottomless = "[".repeat(1_000_000);
    second(V1, &bottomless, "J-DEPTH");
}

#[test]
fn utf8_wherever_it_is() {
    for bytes in [b"\xff" as &[u8], b"{\"a\":\"\xc0\xaf\"}", b"{} \xf0\x90", b"{\"id\":\xed\xa0\x80}"] {
        let text = [V1.as_bytes(), b"\n", bytes, b"\n"].concat();
        let fault = Trace::parse(&text).expect_err("not UTF-8");
        assert_eq!((fault.rule.id(), fault.line), ("J-UTF8", Some(2)));
    }
}

#[test]
fn headers() {
    for (header, rule) in [
        (with(V1, "}", ",\"x\":1}"), "H-FIELD"),
        (with(V2, "}", ",\"id\":1}"), "H-FIELD"),
        (READ.to_owned(), "H-FIELD"),
        ("{}".to_owned(), "H-TYPE"),
        (r#"{"timestamp": 1, "input_length": 2}"#.to_owned(), "H-FIELD"),
        (with(V1, "\"master_rpc_trace\"", "null"), "H-TYPE"),
        (with(U, "\"type\":\"master_rpc_trace\",", ""), "H-TYPE"),
        (with(V1, "1", "1.0"), "H-VERSION"),
        (with(V1, "1", "18446744073709551617"), "H-VERSION"),
        (with(V1, "1", "-0"), "H-VERSION"),
        (with(V2, "\"us\"", "null"), "H-TIMEUNIT"),
        (with(U, "us\"", "us \""), "H-TIMEUNIT"),
        (with(V1, "}", ",\"metadata\":null}"), "H-METADATA"),
        (with(U, "}", ",\"metadata\":[]}"), "H-METADATA"),
    ] {
        check(&[&header, READ], rule, Some(1));
        check(&["", " \t\r", &header, READ], rule, Some(3));
    }
    check(&[], "T-EMPTY", None);
    check(&["", " "], "T-EMPTY", None);
    check(&[V1, ""], "T-EMPTY", None);
    check(&[V1, V2], "E-FIELD", Some(2));
    check(&[U, U], "E-ID", Some(2));
}

#[test]
fn common_fields() {
    let cases: &[(&str, &str, &str)] = &[
        ("\"id\"", "\"iD\"", "E-FIELD"),
        ("\"keys\"", "\"extra\":0,\"keys\"", "E-FIELD"),
        ("\"id\":\"a\"", "\"id\":\"\"", "E-ID"),
        ("\"client_id\":\"c\",", "", "E-CLIENT"),
        ("\"c\"", "null", "E-CLIENT"),
        ("\"BatchExistKey\"", "\"\"", "E-OP"),
        ("BatchExistKey", "Ping", "E-OP-UNKNOWN"),
        ("BatchExistKey", "ExistKey", "E-OP-UNKNOWN"),
        ("BatchExistKey", "UnmountSegment", "E-OP-V1"),
        (":0", ":1.0", "E-TS"),
        (":0", ":-1", "E-TS"),
        (":0", ":-0", "E-TS"),
        (":0", ":true", "E-TS"),
        (":0", ":\"0\"", "E-TS"),
        (":0", ":1e3", "E-TS"),
        ("[\"k\"]", "[]", "E-KEYS"),
        ("[\"k\"]", "null", "E-KEYS"),
        ("[\"k\"]", "[[\"k\"]]", "E-KEYS"),
        (",\"keys\":[\"k\"]", "", "E-KEYS"),
        ("}", ",\"depends_on\":null}", "E-DEPS-TYPE"),
        ("}", ",\"depends_on\":\"a\"}", "E-DEPS-TYPE"),
        ("}", ",\"depends_on\":[1]}", "E-DEPS-REF"),
        ("}", ",\"depends_on\":[\"a\"]}", "E-DEPS-REF"),
        ("}", ",\"depends_on\":[\"\"]}", "E-DEPS-REF"),
        ("}", ",\"phase\":\"workload\"}", "E-PHASE-V1"),
        ("}", ",\"segment_id\":\"s\"}", "F-SEGMENT"),
        ("}", ",\"size_bytes\":1}", "F-SIZE"),
        ("}", ",\"segments\":[]}", "F-SEGMENTS"),
        ("}", ",\"value_sizes\":[1]}", "F-PUTFIELDS"),
        ("}", ",\"replica_num\":1}", "F-PUTFIELDS"),
        ("}", ",\"put_start\":null}", "F-PUTSTART"),
    ];
    for (this, that, rule) in cases {
        second(V1, &with(READ, this, that), rule);
    }
    check(&[V1, READ, &with(READ, "\"a\"", "\"\\u0061\"")], "E-ID-DUP", Some(3));
    check(&[V1, &with(READ, ":0", ":1"), &with(READ, "\"a\"", "\"b\"")], "E-TS-ORDER", Some(3));
}

#[test]
fn writes() {
    let cases: &[(&str, &str, &str)] = &[
        (",\"value_sizes\":[1,2]", "", "S-ONEOF"),
        ("}", ",\"value_slices\":null}", "S-ONEOF"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":{}", "S-SLICES"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1]]", "S-SLICES"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1],[]]", "S-SLICE-LIST"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1],1]", "S-SLICE-LIST"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1],null]", "S-SLICE-LIST"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1],[0]]", "S-SLICE"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[1],[[1]]]", "S-SLICE"),
        ("\"value_sizes\":[1,2]", "\"value_slices\":[[18446744073709551615,1],[1]]", "S-OVERFLOW"),
        ("[1,2]", "[1]", "S-SIZES"),
        ("[1,2]", "{}", "S-SIZES"),
        ("[1,2]", "[1,0]", "S-SIZE"),
        ("[1,2]", "[1,1.5]", "S-SIZE"),
        ("\"l\"", "\"k\"", "S-DUPKEY"),
        ("}", ",\"replica_num\":0}", "S-REPLICA"),
        ("}", ",\"replica_num\":null}", "S-REPLICA"),
        ("}", ",\"put_start\":\"x\"}", "F-PUTSTART"),
    ];
    for (this, that, rule) in cases {
        check(&[V1, &with(START, this, that), END], rule, Some(2));
    }
    let cases: &[(&str, &str, &str)] = &[
        (",\"put_start\":\"s\"", "", "P-FIELD"),
        ("\"put_start\":\"s\"", "\"put_start\":1", "P-FIELD"),
        ("\"put_start\":\"s\"", "\"put_start\":\"e\"", "P-REF"),
        ("\"put_start\":\"s\"", "\"put_start\":\"z\"", "P-REF"),
        ("\"c\"", "\"d\"", "P-MATCH"),
        ("[\"k\",\"l\"]", "[\"l\",\"k\"]", "P-MATCH"),
        ("[\"k\",\"l\"]", "[\"k\"]", "P-MATCH"),
        ("}", ",\"value_sizes\":[1,2]}", "F-PUTFIELDS"),
    ];
    for (this, that, rule) in cases {
        check(&[V1, START, &with(END, this, that)], rule, Some(3));
    }
    let revoke = with(&with(END, "\"e\"", "\"f\""), "PutEnd", "PutRevoke");
    check(&[V1, START, END, &revoke], "P-TWICE", Some(4));
    check(&[V1, START, &READ.replace("\"a\"", "\"e\"")], "T-UNFINISHED", Some(2));
    check(&[V1, &with(READ, "\"a\"", "\"s\""), END], "P-MATCH", Some(3));
}

#[test]
fn lifecycle() {
    let base = [REGISTER, MOUNT, READ2, UNMOUNT];
    assert!(Trace::parse([&[V2], &base[..]].concat().join("\n").as_bytes()).is_ok());
    let replaced = |at: usize, this: &str, that: &str| {
        let row = with(base[at], this, that);
        let mut rows: Vec<String> = base.iter().map(|row| (*row).to_owned()).collect();
        rows[at] = row;
        rows
    };
    let cases: &[(usize, &str, &str, &str)] = &[
        (0, "\"phase\":\"setup\",", "", "E-PHASE"),
        (0, "\"setup\"", "\"\"", "E-PHASE"),
        (0, "\"setup\"", "\"Setup\"", "E-PHASE"),
        (0, "\"setup\"", "\"workload\"", "R-SETUP"),
        (0, "[]", "[{}]", "R-SEGMENTS"),
        (0, "}", ",\"keys\":[]}", "E-KEYS-LIFECYCLE"),
        (0, "}", ",\"segment_id\":\"s\"}", "F-SEGMENT"),
        (1, "\"c\"", "\"d\"", "R-REQUIRED"),
        (1, "\"setup\"", "\"workload\"", "M-PHASE"),
        (1, "\"s\"", "\"\"", "M-SEGMENT"),
        (1, ":9", ":0", "M-SIZE"),
        (1, ":9", ":\"9\"", "M-SIZE"),
        (1, "}", ",\"segments\":[]}", "F-SEGMENTS"),
        (1, "}", ",\"value_slices\":[]}", "F-PUTFIELDS"),
        (1, "}", ",\"put_start\":\"r\"}", "F-PUTSTART"),
        (2, "\"c\"", "\"d\"", "R-REQUIRED"),
        (2, "\"workload\"", "\"setup\"", "K-PHASE"),
        (2, "\"workload\"", "\"teardown\"", "K-PHASE"),
        (3, "\"teardown\"", "\"workload\"", "U-PHASE"),
        (3, ",\"segment_id\":\"s\"", "", "U-SEGMENT"),
        (3, "\"s\"", "\"t\"", "U-UNKNOWN"),
        (3, "}", ",\"size_bytes\":9}", "F-SIZE"),
    ];
    for (at, this, that, rule) in cases {
        let rows = replaced(*at, this, that);
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        v2(&rows, rule, *at as u64 + 2);
    }
    v2(&[REGISTER, &with(REGISTER, "\"r\"", "\"r2\"")], "R-DUP", 3);
    v2(&[REGISTER, MOUNT, &with(MOUNT, "\"m\"", "\"m2\"")], "M-DUP", 4);
    v2(&[REGISTER, MOUNT, UNMOUNT, &with(UNMOUNT, "\"u\"", "\"u2\"")], "U-TWICE", 5);
    v2(&[REGISTER, MOUNT, UNMOUNT, READ2], "E-PHASE-ORDER", 5);
    let other = with(&with(REGISTER, "\"r\"", "\"r2\""), "\"c\"", "\"d\"");
    v2(&[REGISTER, &other, MOUNT, &with(UNMOUNT, "\"c\"", "\"d\"")], "U-OWNER", 5);
    check(&[V2, REGISTER, READ2], "T-NOMOUNT", None);
    v2(&[REGISTER, MOUNT, READ2], "T-UNMOUNTED", 3);
}

#[test]
fn unversioned() {
    let plain = |row: &str| row.replace(",\"phase\":\"setup\"", "").replace(",\"phase\":\"workload\"", "");
    let (register, mount) = (plain(REGISTER), plain(MOUNT));
    for (this, that, rule) in [
        ("\"keys\"", "\"delay_us\":0,\"keys\"", "U-FOREIGN"),
        ("\"keys\"", "\"phase\":null,\"keys\"", "U-FOREIGN"),
        ("BatchExistKey", "Ping", "U-PING"),
        ("BatchExistKey", "BatchUpsert", "E-OP-UNKNOWN"),
        ("\"c\"", "\"d\"", "R-REQUIRED"),
    ] {
        check(&[U, &register, &with(READ, this, that)], rule, Some(3));
    }
    check(&[U, &register, &with(&mount, "}", ",\"keys\":[]}")], "E-KEYS-LIFECYCLE", Some(3));
    let ignored = with(READ, "}", ",\"x\":[1],\"put_start\":5,\"segment_id\":null,\"value_sizes\":\"?\"}");
    let text = [U, &register, &ignored, &mount].join("\n");
    assert_eq!(Trace::parse(text.as_bytes()).expect("unknown members are ignored").len(), 3);
}

/// A row breaks several rules: the first in the order of the contract is named.
#[test]
fn the_first_rule_in_order_wins() {
    second(V1, r#"{"x":1,"timestamp_us":-1}"#, "E-FIELD");
    second(V1, r#"{"timestamp_us":-1,"keys":[]}"#, "E-ID");
    second(V1, r#"{"id":"a","client_id":"c","op":"?","timestamp_us":-1,"phase":"x"}"#, "E-PHASE-V1");
    second(V1, r#"{"id":"a","client_id":"c","op":"?","timestamp_us":-1}"#, "E-OP-UNKNOWN");
    second(V1, r#"{"id":"a","client_id":"c","op":"BatchPutStart","timestamp_us":-1,"keys":[]}"#, "E-TS");
    v2(&[&with(READ2, "\"k\"", "")], "E-KEYS", 2);
    v2(&[&with(&with(READ2, "\"workload\"", "\"setup\""), "}", ",\"size_bytes\":1}")], "R-REQUIRED", 2);
}

#[test]
fn columns_are_counted_in_characters() {
    for (row, column) in [
        (with(READ, ":0", ": é"), 27),
        (with(READ, "\"a\"", "  \"\""), 9),
        (with(READ, "[\"k\"]", "[\"k\", 5]"), 78),
        (r#"{"id":"é","client_id":1}"#.to_owned(), 23),
    ] {
        let fault = Trace::parse(format!("{V1}\n{row}").as_bytes()).expect_err("broken");
        assert_eq!(fault.column, Some(column), "{fault}\n{row}");
    }
}

#[test]
fn every_rule_is_named_in_these_tests_or_the_corpus() {
    let here = include_str!("rules.rs");
    let corpus = include_str!("../../../testdata/master-traces/expect.jsonl");
    // Cannot be broken by a trace that fits a test.
    let beyond = BTreeSet::from(["T-TOO-LARGE"]);
    for rule in Rule::ALL.iter().map(|rule| rule.id()).filter(|rule| !beyond.contains(rule)) {
        let quoted = format!("\"{rule}\"");
        assert!(here.contains(&quoted) || corpus.contains(&quoted), "{rule}");
    }
}
