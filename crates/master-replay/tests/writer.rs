//! What the writer lets through is a valid trace, and the same one; what it refuses, the reader would refuse.

use master_replay::{
    Action, Dialect, Intent, Phase, Trace, TraceWriter, Values, Window, WriteTraceError, convert_to_v2,
    slice_trace,
};
use proptest::prelude::*;

/// An event made of small numbers, so that many of them are valid together and some are not.
#[derive(Clone, Debug)]
struct Draft {
    id: u8,
    time: u64,
    client: u8,
    phase: Option<Phase>,
    depends_on: Vec<u8>,
    kind: u8,
    keys: Vec<String>,
    number: u64,
    slices: Vec<Vec<u64>>,
}

fn draft() -> impl Strategy<Value = Draft> {
    let key = prop_oneof!["[a-c]", "[\\x00-\\x1f\"\\\\é😀]{0,2}"];
    let phase = proptest::option::of(proptest::sample::select(Phase::ALL));
    let number = prop_oneof![0_u64..4, Just(u64::MAX)];
    let slices = proptest::collection::vec(proptest::collection::vec(number.clone(), 0..3), 0..3);
    (
        (any::<u8>(), 0_u64..50, 0_u8..3, phase),
        (proptest::collection::vec(any::<u8>(), 0..3), 0_u8..10, proptest::collection::vec(key, 0..3)),
        (number, slices),
    )
        .prop_map(|((id, time, client, phase), (depends_on, kind, keys), (number, slices))| Draft {
            id,
            time,
            client,
            phase,
            depends_on,
            kind,
            keys,
            number,
            slices,
        })
}

fn name(what: &str, number: u8) -> String {
    format!("{what}{number}")
}

/// Writes as many of the drafts as are valid, and gives those back.
fn write(dialect: Dialect, drafts: &[Draft]) -> (usize, Result<Vec<u8>, WriteTraceError>) {
    let metadata = r#"{"producer": "é",
        "n": 18446744073709551615}"#;
    let mut writer = TraceWriter::new(Vec::new(), dialect, Some(metadata)).expect("a header");
    let mut written = 0;
    for draft in drafts {
        let keys = || draft.keys.iter().map(String::as_str).collect::<Vec<_>>();
        let (id, client) = (name("e", draft.id), name("c", draft.client));
        let depends_on: Vec<String> = draft.depends_on.iter().map(|id| name("e", *id)).collect();
        let start = name("e", u8::try_from(draft.number % 256).expect("small"));
        let segment = name("s", u8::try_from(draft.number % 3).expect("small"));
        let slices: Vec<&[u64]> = draft.slices.iter().map(Vec::as_slice).collect();
        let action = match draft.kind {
            0 => Action::Exist { keys: keys() },
            1 => Action::ReplicaList { keys: keys() },
            2 => Action::Remove { keys: keys() },
            3 => Action::PutEnd { keys: keys(), put_start: &start },
            4 => Action::PutRevoke { keys: keys(), put_start: &start },
            5 => Action::Register,
            6 => Action::Mount { segment_id: &segment, size_bytes: draft.number },
            7 => Action::Unmount { segment_id: &segment },
            8 => Action::PutStart { keys: keys(), values: Values::Slices(slices), replica_num: None },
            _ => Action::PutStart {
                keys: keys(),
                values: Values::Sizes(vec![draft.number; draft.keys.len()]),
                replica_num: Some(draft.number),
            },
        };
        let intent = Intent {
            id: &id,
            timestamp_us: draft.time,
            client_id: &client,
            phase: draft.phase,
            depends_on: depends_on.iter().map(String::as_str).collect(),
            action,
        };
        match writer.event(&intent) {
            Ok(()) => written += 1,
            Err(WriteTraceError::Invalid(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (written, writer.finish())
}

fn events_of(trace: &Trace) -> Vec<Intent<'_>> {
    trace.events().map(|event| event.intent()).collect()
}

fn rewritten(trace: &Trace) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), trace.dialect(), trace.metadata_json()).expect("a header");
    for event in trace.events() {
        writer.event(&event.intent()).expect("an event of a valid trace");
    }
    writer.finish().expect("a valid trace")
}

fn sorted(mut drafts: Vec<Draft>) -> Vec<Draft> {
    drafts.sort_by_key(|draft| (draft.phase, draft.time));
    drafts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(
        drafts in proptest::collection::vec(draft(), 1..60),
        dialect in proptest::sample::select(Dialect::ALL),
    ) {
        let (written, result) = write(dialect, &sorted(drafts));
        if let Ok(bytes) = result {
            let trace = Trace::parse(&bytes).expect("the writer only lets valid traces through");
            prop_assert_eq!(trace.len(), written);
            let again = rewritten(&trace);
            let second = Trace::parse(&again).expect("valid");
            prop_assert_eq!(events_of(&trace), events_of(&second));
            prop_assert_eq!(trace.metadata_json(), second.metadata_json());
            let dependencies = |trace: &Trace| {
                trace.events().map(|event| event.dependencies().to_vec()).collect::<Vec<_>>()
            };
            prop_assert_eq!(dependencies(&trace), dependencies(&second));
        }
    }

    /// Random bytes never do worse than break a rule.
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let header = b"{\"type\":\"master_rpc_trace\",\"time_unit\":\"us\"}\n";
        let _ = Trace::parse(&bytes);
        let _ = Trace::parse(&[header.as_slice(), &bytes].concat());
    }
}

const V1: &str = r#"{"type":"master_rpc_trace","version":1,"time_unit":"us","metadata":{"a":[1,2]}}
{"id":"s","timestamp_us":5,"client_id":"a","op":"BatchPutStart","keys":["k","l"],"value_slices":[[1,2],[3]],"replica_num":2}
{"id":"q","timestamp_us":6,"client_id":"b","op":"BatchExistKey","keys":["k"],"depends_on":["s"]}
{"id":"e","timestamp_us":9,"client_id":"a","op":"BatchPutEnd","keys":["k","l"],"put_start":"s","depends_on":["q"]}
{"id":"g","timestamp_us":12,"client_id":"b","op":"BatchGetReplicaList","keys":["k"],"depends_on":["e","q"]}
"#;

const UNVERSIONED: &str = r#"{"type":"master_rpc_trace","time_unit":"us"}
{"id":"r1","timestamp_us":1,"client_id":"a","op":"ReMountSegment","segments":[]}
{"id":"m1","timestamp_us":2,"client_id":"a","op":"MountSegment","segment_id":"x","size_bytes":64}
{"id":"q1","timestamp_us":7,"client_id":"a","op":"BatchExistKey","keys":["k"],"depends_on":["m1"]}
{"id":"q2","timestamp_us":9,"client_id":"a","op":"BatchExistKey","keys":["k"]}
"#;

fn sizes() -> std::num::NonZeroU64 {
    std::num::NonZeroU64::new(4096).expect("not zero")
}

#[test]
fn version_1_becomes_version_2() {
    let trace = Trace::parse(V1.as_bytes()).expect("valid");
    let bytes = convert_to_v2(&trace, sizes(), Vec::new()).expect("convertible");
    let converted = Trace::parse(&bytes).expect("valid");
    assert_eq!(converted.dialect(), Dialect::V2);
    assert_eq!(converted.metadata_json(), trace.metadata_json());
    assert_eq!(converted.phase_range(Phase::Workload).len(), 4);
    assert_eq!((converted.clients(), converted.segments(), converted.len()), (2, 2, 10));
    let start = converted.event(4);
    assert_eq!(start.value_slices(), Some(vec![[1, 2].as_slice(), [3].as_slice()]));
    assert_eq!((start.timestamp_us(), start.replica_num()), (5, Some(2)));
    assert!(convert_to_v2(&converted, sizes(), Vec::new()).is_err());
}

#[test]
fn an_unversioned_trace_becomes_version_2() {
    let trace = Trace::parse(UNVERSIONED.as_bytes()).expect("valid");
    let bytes = convert_to_v2(&trace, sizes(), Vec::new()).expect("convertible");
    let converted = Trace::parse(&bytes).expect("valid");
    let times: Vec<u64> = converted.events().map(|event| event.timestamp_us()).collect();
    assert_eq!(times, [1, 2, 5, 7, 0]);
    // One worker per client: each event waits for the one before of its client.
    assert_eq!(converted.event(3).dependencies(), [0, 2]);
    let late = UNVERSIONED.to_owned()
        + r#"{"id":"m2","timestamp_us":9,"client_id":"a","op":"MountSegment","segment_id":"y","size_bytes":64}"#;
    let trace = Trace::parse(late.as_bytes()).expect("valid");
    let error = convert_to_v2(&trace, sizes(), Vec::new()).expect_err("a mount after a key operation");
    assert!(error.to_string().contains("m2"), "{error}");
}

#[test]
fn a_slice_keeps_writes_whole() {
    let trace = Trace::parse(V1.as_bytes()).expect("valid");
    let slice = |window| {
        let (bytes, sliced) = slice_trace(&trace, &window, Vec::new()).expect("something is left");
        let ids = |trace: &Trace| trace.events().map(|event| event.id().to_owned()).collect::<Vec<_>>();
        let slice = Trace::parse(&bytes).expect("valid");
        let times: Vec<u64> = slice.events().map(|event| event.timestamp_us()).collect();
        (ids(&slice).join(" "), times, sliced)
    };
    let (ids, times, sliced) = slice(Window::Events(0..2));
    assert_eq!((ids.as_str(), times.as_slice()), ("s q e", [0, 1, 4].as_slice()));
    assert_eq!((sliced.events, sliced.finalisers_added), (3, 1));
    let (ids, times, sliced) = slice(Window::TimeUs(6..13));
    assert_eq!((ids.as_str(), times.as_slice()), ("q g", [0, 6].as_slice()));
    assert_eq!((sliced.finalisers_dropped, sliced.dependencies_dropped), (1, 2));
    assert!(slice_trace(&trace, &Window::TimeUs(50..60), Vec::new()).is_err());
}
