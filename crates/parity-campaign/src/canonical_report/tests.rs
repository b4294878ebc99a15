use super::*;

/// A real report of `testdata/reports`.
pub(crate) fn report(name: &str) -> Vec<u8> {
    let path = format!("{}/../../testdata/reports/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Replaces the value at a pointer and leaves every other byte as it was.
pub(crate) fn edit(bytes: &[u8], pointer: &str, value: &str) -> Vec<u8> {
    let raw = raw_value(bytes, pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    let start = raw.as_ptr() as usize - bytes.as_ptr() as usize;
    [&bytes[..start], value.as_bytes(), &bytes[start + raw.len()..]].concat()
}

/// Renames the key of a member, which is to take it away and add another.
fn rename(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(bytes).expect("reports are UTF-8");
    text.replacen(&format!("\"{from}\":"), &format!("\"{to}\":"), 1).into_bytes()
}

const VA: &str = "dynamo-1.5.1-vllm-aggregated";

fn gaps(bytes: &[u8]) -> Vec<String> {
    match Report::parse(bytes) {
        Err(ReportError::ProtocolNeedsUpdating { gaps }) => gaps.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_known_versions_are_read() {
    for (name, engine) in [
        (VA, "/metadata/engine_config/aggregated/engine_type"),
        ("dynamo-1.6.1-vllm-queued", "/metadata/engine_config/aggregated/engine/backend"),
    ] {
        let report = Report::parse(&report(name)).expect("a known layout");
        assert_eq!(report.requests.len(), 40, "{name}");
        let found = report.metadata.pools[0].engine.as_ref().expect("an engine");
        assert_eq!((&*found.value, found.pointer.as_str()), ("vllm", engine));
    }
}

#[test]
fn histories_belong_to_their_requests() {
    let report = Report::parse(&report("dynamo-1.5.1-vllm-disaggregated")).expect("a known layout");
    let request = &report.requests[12];
    assert_eq!(request.uuid.to_string(), "00000000-0000-0000-0000-00000000000d");
    assert_eq!(report.admissions(request).len(), 3);
    assert_eq!(
        report.routes(request).iter().map(|route| route.pool).collect::<Vec<_>>(),
        [Pool::Prefill, Pool::Decode]
    );
    assert_eq!(report.pressure_ordinals(request), [2]);
    assert_eq!(report.evidence.pressure.records[2].uuid, request.uuid);
}

#[test]
fn a_report_of_1_4_stops() {
    let old = rename(&rename(&report(VA), "coverage", "coverage_of_old"), "metadata", "meta_of_old");
    assert_eq!(
        gaps(&old),
        ["/coverage: expected a member, found nothing", "/metadata: expected a member, found nothing"]
    );
    let text = Report::parse(&old).expect_err("an old layout").to_string();
    assert_eq!(
        text,
        "protocol needs updating, or the historical protocol must be used: /coverage: expected a member, found nothing, \
         and 1 more"
    );
}

#[test]
fn what_is_missing_or_changed_is_named() {
    let bytes = report(VA);
    let changed = |pointer: &str, value: &str| gaps(&edit(&bytes, pointer, value));
    let cases = [
        (
            "/metadata/schema_version",
            r#""dynamo.offline-replay.v2""#,
            "/metadata/schema_version: expected \"dynamo.offline-replay.v1\", found \"dynamo.offline-replay.v2\"",
        ),
        ("/coverage/kv_ingest", "null", "/coverage/kv_ingest: expected an object, found null"),
        ("/summary/num_requests", "40.0", "/summary/num_requests: expected a whole number, found 40.0"),
        ("/summary/duration_ms", "1e999", "/summary/duration_ms: expected a number, found 1e999"),
        (
            "/per_request/7/admission_history/0/pool",
            r#""warm""#,
            "/per_request/7/admission_history/0/pool: expected one of \"agg\", \"prefill\", \"decode\", found \"warm\"",
        ),
        ("/per_request/7/uuid", r#""7""#, "/per_request/7/uuid: expected a request UUID, found \"7\""),
        ("/per_request/7", "{}", "/per_request/7/uuid: expected a member, found nothing"),
        ("/per_request", "{}", "/per_request: expected an array, found an object"),
        (
            "/per_request/0/routing_history",
            "[[{\"a\":[1]}]]",
            "/per_request/0/routing_history/0: expected an object, found an array",
        ),
    ];
    for (pointer, value, first) in cases {
        assert_eq!(changed(pointer, value)[0], first);
    }
}

#[test]
fn the_same_gap_in_every_request_is_one_gap() {
    let text = String::from_utf8(report(VA)).expect("reports are UTF-8");
    let gaps = gaps(text.replace("\"admission_history\":", "\"admissions\":").as_bytes());
    assert_eq!(
        gaps,
        ["/per_request/0/admission_history: expected a member, found nothing (40 places like it)"]
    );
}

#[test]
fn an_engine_without_a_name_is_a_gap() {
    let gaps = gaps(&rename(&report(VA), "engine_type", "engine_kind"));
    assert_eq!(
        gaps,
        [
            "/metadata/engine_config/aggregated/engine_type: expected the engine's name here or at engine/backend, found nothing"
        ]
    );
}

#[test]
fn members_beyond_the_known_ones_are_left_alone() {
    let edited = edit(&report(VA), "/summary/duration_ms", "30357.767682999714,\"power_w\":{\"a\":[1,{}]}");
    let report = Report::parse(&edited).expect("a known layout");
    assert!(report.has_member("summary", "power_w"));
}

#[test]
fn what_is_not_one_report_is_refused() {
    let whole = report(VA);
    let message = |bytes: &[u8]| Report::parse(bytes).expect_err("not one report").to_string();
    assert_eq!(message(b""), "report of 0 bytes is empty where one JSON record was expected");
    assert_eq!(message(b"\n \n"), "report of 3 bytes is empty where one JSON record was expected");
    let twice = [&whole[..], &whole[..]].concat();
    let expected =
        format!("second record on line 2 (byte {}) where exactly one report was expected", whole.len());
    assert_eq!(message(&twice), expected);
    let trailing = [whole.trim_ascii_end(), b"}"].concat();
    assert!(
        message(&trailing).starts_with("malformed JSON in the report at line 1, column "),
        "{}",
        message(&trailing)
    );
    let broken = edit(&whole, "/summary/num_requests", "40 1");
    let Err(ReportError::Malformed { source, .. }) = Report::parse(&broken) else { panic!("accepted") };
    assert_eq!(source.pointer.as_str(), "/summary");
}

#[test]
fn a_cut_report_is_an_error_and_never_a_panic() {
    let whole = report(VA);
    let end = whole.trim_ascii_end().len();
    for cut in (0..end).step_by(97).chain([end - 1]) {
        assert!(Report::parse(&whole[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_flipped_byte_is_never_a_panic() {
    let whole = report("dynamo-1.5.1-sglang-disaggregated");
    let mut state = 1_u32;
    for at in (0..whole.len()).step_by(997) {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (state >> 29);
        drop(Report::parse(&flipped));
    }
}

#[test]
fn uuids_are_read_in_one_form() {
    let check =
        |text: &str, expected: bool| assert_eq!(RequestUuid::parse(text).is_some(), expected, "{text}");
    check("00000000-0000-0000-0000-000000001388", true);
    check("ffffffff-ffff-ffff-ffff-ffffffffffff", true);
    check("00000000000000000000000000001388", false);
    check("00000000-0000-0000-0000-00000000138", false);
    check("0000000-00000-0000-0000-000000001388", false);
    check("00000000-0000-0000-0000-0000000é388", false);
    check("00000000-0000-0000-0000-00000000138g", false);
    let text = "12345678-9abc-def0-1234-56789abcdef0";
    assert_eq!(RequestUuid::parse(text).map(|uuid| uuid.to_string()).as_deref(), Some(text));
}

#[test]
fn values_are_found_as_written() {
    let json = br#"{"a/b":[1.50,{"c":"d\u0065"},[1,2],null],"e":{"f":1}}"#;
    let check =
        |pointer: &str, expected: Option<&str>| assert_eq!(value_text(json, pointer).as_deref(), expected);
    check("/a~1b/0", Some("1.50"));
    check("/a~1b/1/c", Some("\"de\""));
    check("/a~1b/2", Some("an array of 2"));
    check("/a~1b/3", Some("null"));
    check("/a~1b/4", None);
    check("/e", Some("an object of 1"));
    check("/e/g", None);
    check("/a~1b/0/x", None);
    check("", Some("an object of 2"));
    check("no pointer", None);
}
