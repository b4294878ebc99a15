//! What is read and what is refused, and where, by every way of reading.

use canonical_json::{
    CanonicalError, Event, Limits, ReadError, ReadErrorKind, Reader, Rules, canonicalize, digest,
};

fn read(text: &[u8]) -> Result<usize, ReadError> {
    let mut reader = Reader::new(text);
    let mut events = 0;
    while reader.next_event()? != Event::End {
        events += 1;
    }
    Ok(events)
}

fn check_accepted(text: &[u8], canonical: &str) {
    let shown = String::from_utf8_lossy(text);
    read(text).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut out = Vec::new();
    canonicalize(text, &Rules::default(), &mut out).unwrap_or_else(|error| panic!("{shown}: {error:?}"));
    assert_eq!(String::from_utf8_lossy(&out), canonical, "{shown}");
}

/// The kind of the error, and its byte offset, line, column and JSON pointer.
fn check_refused(text: &[u8], kind: &ReadErrorKind, place: (usize, usize, usize, &str)) {
    let shown = String::from_utf8_lossy(text);
    let error = read(text).expect_err(&shown);
    assert_eq!(&error.kind, kind, "{shown}");
    assert_eq!((error.offset, error.line, error.column, error.pointer.as_str()), place, "{shown}");
    let same = |result: Result<(), CanonicalError>| {
        let Err(CanonicalError::Read(found)) = result else { panic!("{shown} is accepted") };
        assert_eq!(found, error, "{shown}");
    };
    let mut out = Vec::new();
    same(canonicalize(text, &Rules::default(), &mut out).map(|_| ()));
    assert!(out.is_empty(), "{shown}: nothing is written before an error is known");
    same(digest(text, &Rules::default()).map(|_| ()));
}

#[test]
fn accepted() {
    check_accepted(b"0", "0");
    check_accepted(b"-0.0E-00", "-0.0E-00");
    check_accepted(b"123456789012345678901234567890.5e+12345", "123456789012345678901234567890.5e+12345");
    check_accepted(b"\t\r\n true \n", "true");
    check_accepted(b"\"\"", "\"\"");
    check_accepted(br#""\u0000\u001F\u007f\/\"\b""#, "\"\\u0000\\u001f\u{7f}/\\\"\\b\"");
    check_accepted(br#""\ud83d\ude00\uDBFF\uDFFF""#, "\"😀\u{10ffff}\"");
    check_accepted(
        "\"\u{2028}\u{fffe}\u{0}\"".replace('\0', "\\u0000").as_bytes(),
        "\"\u{2028}\u{fffe}\\u0000\"",
    );
    check_accepted(
        br#"{"":{"":[]}, "\u0000":{}, "\u0000\u0000":null}"#,
        r#"{"":{"":[]},"\u0000":{},"\u0000\u0000":null}"#,
    );
    check_accepted(
        "{\"e\u{301}\":1, \"\u{e9}\":2, \"\u{1f600}\":3, \"\u{ffff}\":4}".as_bytes(),
        "{\"e\u{301}\":1,\"\u{e9}\":2,\"\u{ffff}\":4,\"\u{1f600}\":3}",
    );
    check_accepted(b"[[[[[[]]]]],{}]", "[[[[[[]]]]],{}]");
    check_accepted(b"[1,1.0,1e0,10e-1]", "[1,1.0,1e0,10e-1]");
}

#[test]
fn refused() {
    use ReadErrorKind::*;
    let key = |key: &str| RepeatedKey { key: key.to_owned() };
    let unexpected = |byte: u8, expected: &'static str| Unexpected { byte, expected };
    let end = |expected: &'static str| UnexpectedEnd { expected };
    check_refused(b"", &Empty, (0, 1, 1, ""));
    check_refused(b"\n  ", &Empty, (3, 2, 3, ""));
    check_refused(b"\xef\xbb\xbf1", &ByteOrderMark, (0, 1, 1, ""));
    check_refused(b"1 2", &TrailingText, (2, 1, 3, ""));
    check_refused(b"{}\n{}", &TrailingText, (3, 2, 1, ""));
    check_refused(b"{} ,", &TrailingText, (3, 1, 4, ""));
    check_refused(b"[1,]", &unexpected(b']', "a value"), (3, 1, 4, "/1"));
    check_refused(b"[,1]", &unexpected(b',', "a value"), (1, 1, 2, "/0"));
    check_refused(b"[1 2]", &unexpected(b'2', "`,` or `]`"), (3, 1, 4, ""));
    check_refused(b"[1}", &unexpected(b'}', "`,` or `]`"), (2, 1, 3, ""));
    check_refused(b"{\"a\":1,}", &unexpected(b'}', "a key"), (7, 1, 8, ""));
    check_refused(b"{\"a\":1 \"b\":2}", &unexpected(b'"', "`,` or `}`"), (7, 1, 8, ""));
    check_refused(b"{\"a\" 1}", &unexpected(b'1', "`:`"), (5, 1, 6, ""));
    check_refused(b"{a:1}", &unexpected(b'a', "a key"), (1, 1, 2, ""));
    check_refused(b"{\"a\":[0,{\"b\":}]}", &unexpected(b'}', "a value"), (13, 1, 14, "/a/1/b"));
    check_refused(b"'a'", &unexpected(b'\'', "a value"), (0, 1, 1, ""));
    check_refused(b"[1,\x0c2]", &unexpected(0x0C, "a value"), (3, 1, 4, "/1"));
    check_refused(b"/**/1", &unexpected(b'/', "a value"), (0, 1, 1, ""));
    check_refused(b"Infinity", &unexpected(b'I', "a value"), (0, 1, 1, ""));
    check_refused(b"+1", &unexpected(b'+', "a value"), (0, 1, 1, ""));
    check_refused(b".5", &unexpected(b'.', "a value"), (0, 1, 1, ""));
    check_refused(b"nil", &InvalidLiteral { expected: "null" }, (1, 1, 2, ""));
    check_refused(b"tru", &end("true"), (3, 1, 4, ""));
    check_refused(b"-", &end("a digit"), (1, 1, 2, ""));
    check_refused(b"1.", &end("a digit"), (2, 1, 3, ""));
    check_refused(b"[1.]", &InvalidNumber, (3, 1, 4, "/0"));
    check_refused(b"[-a]", &InvalidNumber, (2, 1, 3, "/0"));
    check_refused(b"[1e]", &InvalidNumber, (3, 1, 4, "/0"));
    check_refused(b"[1e+]", &InvalidNumber, (4, 1, 5, "/0"));
    check_refused(b"[00]", &InvalidNumber, (2, 1, 3, "/0"));
    check_refused(b"[-01]", &InvalidNumber, (3, 1, 4, "/0"));
    check_refused(b"[", &end("a value"), (1, 1, 2, "/0"));
    check_refused(b"{", &end("a key"), (1, 1, 2, ""));
    check_refused(b"{\"a", &end("`\"`"), (3, 1, 4, ""));
    check_refused(b"\"a\\", &end("an escape"), (3, 1, 4, ""));
    check_refused(b"\"\\x\"", &InvalidEscape, (1, 1, 2, ""));
    check_refused(b"\"\\u00g0\"", &InvalidEscape, (1, 1, 2, ""));
    check_refused(b"\"\\u+123\"", &InvalidEscape, (1, 1, 2, ""));
    check_refused(b"\"\\u12\"", &InvalidEscape, (1, 1, 2, ""));
    check_refused(b"[\"\\udc00\"]", &LoneSurrogate, (2, 1, 3, "/0"));
    check_refused(b"\"\\ud800\\n\"", &LoneSurrogate, (1, 1, 2, ""));
    check_refused(b"\"\\ud800\\ud800\"", &LoneSurrogate, (1, 1, 2, ""));
    check_refused(br#"["\ud800\u00g0"]"#, &LoneSurrogate, (2, 1, 3, "/0"));
    check_refused(b"\"\t\"", &ControlCharacter { byte: 9 }, (1, 1, 2, ""));
    check_refused(b"\"\xff\"", &InvalidUtf8, (1, 1, 2, ""));
    check_refused(b"[\"\xc3\xa9\xed\xa0\x80\"]", &InvalidUtf8, (4, 1, 4, "/0"));
    check_refused("{\"é\":1,\n \"\\u00e9\":2}".as_bytes(), &key("é"), (10, 2, 2, "/é"));
    check_refused(br#"{"a/b":{"x":0,"y":[{"k":1,"j":2,"k":3}]}}"#, &key("k"), (32, 1, 33, "/a~1b/y/0/k"));
}

/// Of several errors in one string the first is said, whatever kinds they are of.
#[test]
fn the_first_error_in_a_string_is_said() {
    use ReadErrorKind::*;
    let faults: [(&[u8], ReadErrorKind); 5] = [
        (b"\xe2\x82", InvalidUtf8),
        (b"\x1f", ControlCharacter { byte: 0x1f }),
        (b"\\x", InvalidEscape),
        (b"\\ud800", LoneSurrogate),
        (b"\\udc00", LoneSurrogate),
    ];
    for (first, kind) in &faults {
        for (second, _) in &faults {
            for apart in [1, 2, 7, 8, 9, 70] {
                let name = "\u{e9}".as_bytes().repeat(30);
                let between = b"a".repeat(apart);
                let string = [&name, *first, &between, second, b"\""].concat();
                check_refused(
                    &[b"{\"k\":[0,\"", string.as_slice(), b"]}"].concat(),
                    kind,
                    (69, 1, 40, "/k/1"),
                );
                check_refused(
                    &[b"{\"k\":{  \"", string.as_slice(), b":0}}"].concat(),
                    kind,
                    (69, 1, 40, "/k"),
                );
            }
        }
        let cut = [b"[\"", *first].concat();
        check_refused(&cut, kind, (2, 1, 3, "/0"));
    }
}

#[test]
fn a_reader_says_what_it_is_in() {
    let mut reader = Reader::new(br#" {"a":[1,{"b":null}],"c":{}} "#);
    let mut places = vec![reader.pointer()];
    while reader.next_event().expect("valid") != Event::End {
        places.push(reader.pointer());
    }
    places.push(reader.pointer());
    let places: Vec<&str> = places.iter().map(|place| place.as_str()).collect();
    let expected = ["", "", "/a", "/a", "/a", "/a/1", "/a/1/b", "/a/1", "/a", "", "/c", "/c", "", "", ""];
    assert_eq!(places, expected);
}

#[test]
fn a_reader_stays_at_an_error() {
    // However many keys there were, and however they are remembered.
    let keys = |count: usize| (0..count).rev().map(|key| format!("\"{key:02}\":0,")).collect::<String>();
    let objects = [0, 3, 17, 40].map(|count| format!("{{{}\"last\" 1}}", keys(count)));
    for text in objects.iter().map(String::as_str).chain(["[1,tru]", "[\"a", "{\"a\":1,\"a\":2}"]) {
        let mut reader = Reader::new(text.as_bytes());
        let mut last = reader.next_event();
        while last.is_ok() {
            last = reader.next_event();
        }
        assert_eq!(reader.next_event(), last, "{text}");
    }
}

#[test]
fn many_keys_are_compared() {
    for count in [2_usize, 15, 16, 17, 18, 100, 3000] {
        let keys: Vec<String> = (0..count).map(|i| format!("\"{}\":0", i * 7919 % count)).collect();
        check_accepted(format!("{{{}}}", keys.join(",")).as_bytes(), &{
            let mut sorted = keys.clone();
            sorted.sort();
            format!("{{{}}}", sorted.join(","))
        });
        let repeated = format!("{{{},\"0\":0}}", keys.join(","));
        let error = read(repeated.as_bytes()).expect_err("the key is there twice");
        assert_eq!(error.kind, ReadErrorKind::RepeatedKey { key: "0".to_owned() });
        assert!(digest(repeated.as_bytes(), &Rules::default()).is_err());
    }
}

#[test]
fn depth_is_limited_and_needs_no_stack() {
    let deep = |depth: usize| format!("{}{}", "[{\"a\":".repeat(depth / 2), "[").into_bytes();
    let mut reader = Reader::with_limits(&[], Limits::with_max_depth(1));
    assert!(reader.next_event().is_err());
    let text = deep(2_000_000);
    let mut reader = Reader::with_limits(&text, Limits::with_max_depth(usize::MAX));
    let error = loop {
        match reader.next_event() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ReadErrorKind::UnexpectedEnd { expected: "a value" });
    let error = read(&text).expect_err("too deep");
    assert_eq!(error.kind, ReadErrorKind::TooDeep { limit: 1024 });
    assert_eq!((error.offset, error.pointer.tokens().count()), (512 * 6, 1024));
}

#[test]
fn skipping_gives_the_text() {
    let mut reader = Reader::new(br#"{"a": [1, {"b": "]"}] , "c": 2, "d": [3, 4]}"#);
    assert_eq!(reader.next_event(), Ok(Event::ObjectStart));
    assert!(matches!(reader.next_event(), Ok(Event::Key(key)) if key == "a"));
    assert_eq!(reader.skip_value(), Ok(Some(&br#"[1, {"b": "]"}]"#[..])));
    assert!(matches!(reader.next_event(), Ok(Event::Key(key)) if key == "c"));
    assert_eq!(reader.pointer().as_str(), "/c");
    assert_eq!(reader.skip_value(), Ok(Some(&b"2"[..])));
    assert_eq!(reader.skip_value(), Ok(None));
    assert_eq!(reader.skip_value(), Ok(None));
    assert_eq!(reader.skip_value(), Ok(None));
    let mut reader = Reader::new(b"[1, [2], 3]");
    assert_eq!(reader.next_event(), Ok(Event::ArrayStart));
    for expected in [Some(&b"1"[..]), Some(b"[2]"), Some(b"3"), None, None] {
        assert_eq!(reader.skip_value(), Ok(expected));
    }
}

/// What does not fit the rules is refused before anything is written, whether or not it is canonical already.
#[test]
fn nothing_is_written_of_a_document_that_lacks_what_is_required() {
    let pattern = "/a".parse().expect("a pattern");
    let exclusions = vec![canonical_json::Exclusion { pattern, required: true }];
    for form in [canonical_json::Form::Lexical, canonical_json::Form::Jcs] {
        let rules =
            canonical_json::Rules { exclusions: exclusions.clone(), ..canonical_json::Rules::new(form) };
        for text in ["{}", "{ }", "{\"b\":1}", "{\"c\":1, \"b\":1}", "[]", "1"] {
            let mut out = Vec::new();
            canonical_json::canonicalize(text.as_bytes(), &rules, &mut out).expect_err("it is required");
            assert!(out.is_empty(), "{text}");
        }
    }
}
