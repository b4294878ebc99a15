//! One test for each line of the README's table that speaks of a single row, and the property that holds the fast
//! path to the strict one.

use proptest::prelude::*;

use super::*;

/// Reads a line as the third of a trace whose second row arrived at 100 ms.
fn read(line: &str, rules: &Rules) -> Result<(Fields, Vec<u64>), (usize, String, String)> {
    let mut scratch = Scratch::default();
    match parse(line.as_bytes(), rules, 100, &mut scratch) {
        Ok(fields) => Ok((fields, scratch.hash_ids.as_slice().to_vec())),
        Err(Refused { at, pointer, kind }) => Err((at, pointer, kind.to_string())),
    }
}

fn accept_under(rules: &Rules, line: &str, fields: [u64; 3], hash_ids: &[u64]) {
    let [timestamp_ms, input_length, output_length] = fields;
    let fields = Fields { timestamp_ms, input_length, output_length };
    assert_eq!(read(line, rules), Ok((fields, hash_ids.to_vec())), "{line}");
}

fn accept(line: &str, fields: [u64; 3], hash_ids: &[u64]) {
    accept_under(&Rules::default(), line, fields, hash_ids);
}

/// `mark` stands in the line before the byte an error must point at, and is taken out.
fn refuse_under(rules: &Rules, marked: &str, pointer: &str, expected: &str) {
    let at = marked.find('▸').expect("a mark");
    let line = marked.replace('▸', "");
    let (found_at, found_pointer, message) = read(&line, rules).expect_err(&line);
    assert_eq!((found_at, found_pointer.as_str()), (at, pointer), "{line}: {message}");
    assert!(message.contains(expected), "{line}: {message}");
}

fn refuse(marked: &str, pointer: &str, expected: &str) {
    refuse_under(&Rules::default(), marked, pointer, expected);
}

#[test]
fn a_row_as_published() {
    accept(
        r#"{"timestamp": 27482, "input_length": 1030, "output_length": 52, "hash_ids": [46, 2353, 9]}"#,
        [27482, 1030, 52],
        &[46, 2353, 9],
    );
}

#[test]
fn space_and_order_are_free() {
    accept(
        " {\t\"hash_ids\" :[ 1 ,2\t] ,\"output_length\":1,\"timestamp\" : 100 , \"input_length\":513 } \r",
        [100, 513, 1],
        &[1, 2],
    );
}

#[test]
fn escaped_names_are_the_same_names() {
    accept(r#"{"\u0074imestamp":100,"input_length":1,"output_length":1,"hash_ids":[1]}"#, [100, 1, 1], &[1]);
}

#[test]
fn the_line_that_was_once_published_broken() {
    let ids = "0, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, \
               219, 220, 221, 222, 223, 224, 225, 226, 227, 228, 229, 230, 231, 232, 233";
    let line = format!(
        r#"{{"timestamp": 0, "input_length": 17448, "output_length":2748 ▸610, "hash_ids": [{ids}]}}"#
    );
    refuse(&line, "/output_length", "expected one JSON object per line");
}

#[test]
fn broken_json() {
    let json = "expected one JSON object per line";
    refuse(r#"{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":[1▸"#, "/hash_ids", json);
    refuse(r#"{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":[1]}▸{"#, "", json);
    refuse(r#"{"timestamp":0▸07}"#, "/timestamp", json);
    refuse("▸hello", "", json);
    let (_, _, message) = read(r#"{"timestamp":100,"timestamp":100}"#, &Rules::default()).unwrap_err();
    assert_eq!(message, json, "a second field of the same name");
}

#[test]
fn values_that_are_no_object() {
    refuse("▸[1, 2]", "", "expected a JSON object, found an array");
    refuse(" ▸7", "", "expected a JSON object, found 7");
    refuse("▸null", "", "expected a JSON object, found null");
}

#[test]
fn missing_fields() {
    let missing = "found no such field";
    refuse(r#"{"input_length":1,"output_length":1,"hash_ids":[1]▸}"#, "/timestamp", missing);
    refuse(r#"{"timestamp":100,"output_length":1,"hash_ids":[1]▸}"#, "/input_length", missing);
    refuse(r#"{"timestamp":100,"input_length":1,"hash_ids":[1] ▸}"#, "/output_length", missing);
    refuse(r#"{"timestamp":100,"input_length":1,"output_length":1▸}"#, "/hash_ids", missing);
    refuse("{▸}", "/timestamp", missing);
}

fn refuse_value(field: &str, value: &str, found: &str) {
    let fields = ["timestamp", "input_length", "output_length"];
    let member =
        |name| if name == field { format!(r#""{name}": ▸{value}"#) } else { format!(r#""{name}":100"#) };
    let line = format!("{{{},\"hash_ids\":[1]}}", fields.map(member).join(","));
    refuse(&line, &format!("/{field}"), &format!("found {found}"));
}

#[test]
fn values_of_another_kind() {
    for field in ["timestamp", "input_length", "output_length"] {
        refuse_value(field, "null", "null");
        refuse_value(field, "\"5\"", "a string");
        refuse_value(field, "[5]", "an array");
        refuse_value(field, "{}", "an object");
        refuse_value(field, "true", "true");
    }
    refuse(
        r#"{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":▸null}"#,
        "/hash_ids",
        "found null",
    );
    refuse(r#"{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":▸1}"#, "/hash_ids", "found 1");
}

#[test]
fn negative_fractional_and_exponential_numbers() {
    for field in ["timestamp", "input_length", "output_length"] {
        for value in ["-1", "-0", "1.5", "1e3", "1E3", "100.0e1", "-0.0"] {
            refuse_value(field, value, value);
        }
    }
    refuse_value("input_length", "100.0", "100.0");
    refuse_value("output_length", "100.0", "100.0");
}

#[test]
fn timestamps_written_as_doubles_are_whole_or_refused() {
    let with =
        |value: &str| format!(r#"{{"timestamp":{value},"input_length":1,"output_length":1,"hash_ids":[1]}}"#);
    accept(&with("123.0"), [123, 1, 1], &[1]);
    accept(&with("123.000"), [123, 1, 1], &[1]);
    accept(&with("9007199254740992"), [1 << 53, 1, 1], &[1]);
    refuse_value("timestamp", "123.4", "123.4");
    refuse_value("timestamp", "9007199254740993", "9007199254740993");
    refuse_value("timestamp", "9007199254740993.0", "9007199254740993.0");
}

#[test]
fn lengths_have_bounds() {
    refuse_value("input_length", "0", "0");
    refuse_value("input_length", "4294967296", "4294967296");
    refuse_value("output_length", "4294967296", "4294967296");
    refuse_value("output_length", "99999999999999999999999999", "99999999999999999999999999");
    accept(r#"{"timestamp":100,"input_length":1,"output_length":0,"hash_ids":[1]}"#, [100, 1, 0], &[1]);
    accept(
        r#"{"timestamp":100,"input_length":1,"output_length":4294967295,"hash_ids":[1]}"#,
        [100, 1, 4_294_967_295],
        &[1],
    );
}

#[test]
fn hash_ids_are_exact_up_to_64_bits() {
    for id in [0, 1 << 32, (1 << 53) + 1, u64::MAX] {
        let line = format!(r#"{{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":[{id}]}}"#);
        accept(&line, [100, 1, 1], &[id]);
    }
    let line = |value| {
        format!(r#"{{"timestamp":100,"input_length":513,"output_length":1,"hash_ids":[5, ▸{value}]}}"#)
    };
    for value in ["18446744073709551616", "-1", "1.0", "1e2"] {
        refuse(&line(value), "/hash_ids/1", &format!("18446744073709551615, found {value}"));
    }
    refuse(&line("null"), "/hash_ids/1", "found null");
    refuse(&line("\"7\""), "/hash_ids/1", "found a string");
}

#[test]
fn timestamps_do_not_go_back() {
    accept(r#"{"timestamp":100,"input_length":1,"output_length":1,"hash_ids":[1]}"#, [100, 1, 1], &[1]);
    refuse(
        r#"{"timestamp": ▸99,"input_length":1,"output_length":1,"hash_ids":[1]}"#,
        "/timestamp",
        "expected at least 100 ms, the timestamp of the row above, found 99 ms",
    );
}

#[test]
fn the_hash_count_fits_the_prompt() {
    let line = |input: u64, ids: &str| {
        format!(r#"{{"timestamp":100,"input_length":{input},"output_length":1,"hash_ids":▸[{ids}]}}"#)
    };
    let plain = |input, ids| line(input, ids).replace('▸', "");
    accept(&plain(512, "1"), [100, 512, 1], &[1]);
    accept(&plain(513, "1,2"), [100, 513, 1], &[1, 2]);
    refuse(&line(513, "1"), "/hash_ids", "expected 2 block ids for 513 tokens in blocks of 512, found 1");
    refuse(&line(512, "1,2"), "/hash_ids", "expected 1 block ids for 512 tokens in blocks of 512, found 2");
    refuse(&line(512, ""), "/hash_ids", "found 0");

    let cover = Rules { hash_count: HashCount::Cover, ..Rules::default() };
    accept_under(&cover, &plain(512, "1,2"), [100, 512, 1], &[1, 2]);
    refuse_under(&cover, &line(513, "1"), "/hash_ids", "expected at least 2 block ids");

    let small = Rules { block_size: 16.try_into().unwrap(), ..Rules::default() };
    accept_under(&small, &plain(17, "1,2"), [100, 17, 1], &[1, 2]);
    refuse_under(&small, &line(512, "1"), "/hash_ids", "expected 32 block ids");
}

#[test]
fn ids_may_repeat() {
    accept(
        r#"{"timestamp":100,"input_length":1025,"output_length":1,"hash_ids":[7,7,7]}"#,
        [100, 1025, 1],
        &[7, 7, 7],
    );
}

#[test]
fn multi_turn_rows_are_refused_whatever_the_rules() {
    let keep = Rules { unknown_fields: UnknownFields::Keep, ..Rules::default() };
    for rules in [Rules::default(), keep] {
        for name in ["session_id", "delay", "delay_ms"] {
            let line = format!(r#"{{"timestamp":100, ▸"{name}":0,"input_length":1}}"#);
            refuse_under(&rules, &line, &format!("/{name}"), &format!("multi-turn field `{name}`"));
        }
    }
}

#[test]
fn aliases_are_refused_whatever_the_rules() {
    let keep = Rules { unknown_fields: UnknownFields::Keep, ..Rules::default() };
    for rules in [Rules::default(), keep] {
        refuse_under(
            &rules,
            r#"{▸"input_tokens":1}"#,
            "/input_tokens",
            "expected the field name `input_length`",
        );
        refuse_under(&rules, r#"{▸"output_tokens":1}"#, "/output_tokens", "its alias `output_tokens`");
        refuse_under(
            &rules,
            r#"{▸"created_time":1}"#,
            "/created_time",
            "expected the field name `timestamp`",
        );
    }
}

#[test]
fn unknown_fields_are_refused_or_kept() {
    let line = r#"{"timestamp":100,▸"a/b":{"x":[1,{}]},"input_length":1,"output_length":1,"hash_ids":[1],"priority":null}"#;
    refuse(line, "/a~1b", "found `a/b` (the rule for unknown fields is: reject)");

    let keep = Rules { unknown_fields: UnknownFields::Keep, ..Rules::default() };
    let mut scratch = Scratch::default();
    let fields = parse(line.replace('▸', "").as_bytes(), &keep, 0, &mut scratch).unwrap();
    assert_eq!(fields, Fields { timestamp_ms: 100, input_length: 1, output_length: 1 });
    assert_eq!(scratch.hash_ids.as_slice(), [1]);
    assert_eq!(scratch.other_fields, ["a/b", "priority"]);
    refuse_under(&keep, r#"{"a":[1,▸}"#, "/a/1", "expected one JSON object per line");
}

#[test]
fn empty_lines_are_no_rows() {
    refuse("▸", "", "found an empty line");
    refuse("▸ \t\r", "", "found an empty line");
}

#[test]
fn long_texts_are_clipped_in_errors() {
    let digits = "9".repeat(1_000);
    refuse_value("input_length", &digits, &format!("{}…", "9".repeat(40)));
}

/// Lines that are rows, nearly rows, or nothing like a row.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        any::<u64>().prop_map(|value| value.to_string()),
        (0..2_000_u64).prop_map(|value| value.to_string()),
        proptest::sample::select(vec![
            "-1",
            "-0",
            "00",
            "1.0",
            "1e3",
            "",
            "18446744073709551616",
            "null",
            "\"1\"",
            " 1 "
        ])
        .prop_map(str::to_owned),
    ];
    let ids = proptest::collection::vec(number.clone(), 0..5).prop_map(|ids| format!("[{}]", ids.join(", ")));
    let name = proptest::sample::select(vec![
        "timestamp",
        "input_length",
        "output_length",
        "hash_ids",
        "session_id",
        "timestam",
        "timestampp",
        "\\u0074imestamp",
    ]);
    let value = prop_oneof![3 => number, 1 => ids.clone()];
    let space = proptest::sample::select(vec!["", " ", "\t", "\r", "  "]);
    let member = (name, value, space)
        .prop_map(|(name, value, space)| format!("{space}\"{name}\"{space}:{space}{value}"));
    let mostly = (0..300_u64, 0..1_200_u64, 0..300_u64, ids)
        .prop_map(|(t, i, o, ids)| {
            [
                format!("\"timestamp\": {t}"),
                format!("\"input_length\": {i}"),
                format!("\"output_length\":{o}"),
                format!("\"hash_ids\": {ids}"),
            ]
        })
        .prop_shuffle();
    let members = prop_oneof![
        2 => mostly.prop_map(Vec::from),
        1 => proptest::collection::vec(member, 0..6),
    ];
    let object = members.prop_map(|members| format!("{{{}}}", members.join(",")).into_bytes());
    // A byte changed, taken out or put in makes the lines that matter most: those one step from being rows.
    let wounded = (object.clone(), any::<proptest::sample::Index>(), any::<u8>(), 0..3_u8).prop_map(
        |(mut line, index, byte, how)| {
            let index = index.index(line.len());
            match how {
                0 => line[index] = byte,
                1 => drop(line.remove(index)),
                _ => line.insert(index, byte),
            }
            line
        },
    );
    prop_oneof![4 => object, 4 => wounded, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_the_fast_path_reads_the_strict_one_reads_alike(line in lines()) {
        let mut fast_ids = HashIds::default();
        let mut scratch = Scratch::default();
        let strict = strict::parse(&line, &Rules::default(), &mut scratch);
        if let Some(fields) = fast::parse(&line, &mut fast_ids).filter(in_range) {
            let (strict, _) = strict.map_err(|refused| TestCaseError::fail(format!("{refused:?}")))?;
            prop_assert_eq!(fields, strict);
            prop_assert_eq!(fast_ids.as_slice(), scratch.hash_ids.as_slice());
        }
    }

    #[test]
    fn the_fast_path_takes_every_plain_row(
        timestamp in 0..MAX_TIMESTAMP_MS, input in 1..=MAX_TOKENS, output in 0..=MAX_TOKENS,
        ids in proptest::collection::vec(any::<u64>(), 0..9),
    ) {
        let line = format!(
            "{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids:?}}}"
        );
        let mut fast_ids = HashIds::default();
        let fields = fast::parse(line.as_bytes(), &mut fast_ids);
        prop_assert_eq!(fields, Some(Fields { timestamp_ms: timestamp, input_length: input, output_length: output }));
        prop_assert_eq!(fast_ids.as_slice(), ids.as_slice());
        let mut counted = HashIds::only_counted();
        prop_assert_eq!(fast::parse(line.as_bytes(), &mut counted), fields);
        prop_assert_eq!(counted.count(), ids.len());
    }

    #[test]
    fn counting_ids_accepts_and_refuses_as_keeping_them_does(line in lines()) {
        let mut kept = Scratch::default();
        let mut counted = Scratch { hash_ids: HashIds::only_counted(), ..Scratch::default() };
        let outcome = |result: Result<Fields, Refused>| {
            result.map_err(|Refused { at, pointer, kind }| (at, pointer, kind.to_string()))
        };
        let with_ids = outcome(parse(&line, &Rules::default(), 100, &mut kept));
        prop_assert_eq!(&with_ids, &outcome(parse(&line, &Rules::default(), 100, &mut counted)));
        if with_ids.is_ok() {
            prop_assert_eq!(kept.hash_ids.as_slice().len(), counted.hash_ids.count());
        }
        prop_assert!(counted.hash_ids.as_slice().is_empty());
    }

    #[test]
    fn errors_point_into_the_line(line in lines()) {
        let mut scratch = Scratch::default();
        if let Err(refused) = parse(&line, &Rules::default(), 100, &mut scratch) {
            prop_assert!(refused.at <= line.len());
            prop_assert!(!refused.kind.to_string().is_empty());
        }
    }
}
