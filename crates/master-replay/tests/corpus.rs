//! Every small trace of `testdata/master-traces`, against what is expected of it.

use std::path::{Path, PathBuf};

use master_replay::{Phase, Trace};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/master-traces")
}

/// The file's bytes; the two long ones are made here.
fn bytes_of(file: &str) -> Vec<u8> {
    let header = "{\"type\":\"master_rpc_trace\",\"version\":1,\"time_unit\":\"us\"}\n";
    let event = |id: String, time: usize, keys: &str| {
        format!(
            "{{\"id\":\"{id}\",\"timestamp_us\":{time},\"client_id\":\"c\",\"op\":\"BatchExistKey\",\"keys\":[{keys}]}}"
        )
    };
    match file {
        "invalid/x_4mib_line_bad_tail.jsonl" => {
            let keys: Vec<String> = (0..380_000).map(|key| format!("\"k{key:07}\"")).collect();
            format!("{header}{}}}\n", event("a".into(), 0, &keys.join(","))).into_bytes()
        }
        "invalid/x_last_of_many_lines.jsonl" => {
            let rows = (0..=5000).map(|n| event(format!("n{}", n % 5000), n, "\"k\"") + "\n");
            rows.fold(header.to_owned(), |text, row| text + &row).into_bytes()
        }
        _ => std::fs::read(folder().join(file)).expect("a file of the corpus"),
    }
}

fn check(expected: &Value) {
    let file = expected["file"].as_str().expect("a name");
    let bytes = bytes_of(file);
    assert_eq!(expected["bytes"], bytes.len(), "{file}");
    match (Trace::parse(&bytes), expected["valid"] == true) {
        (Ok(trace), true) => check_valid(file, &trace, expected),
        (Err(fault), false) => {
            // The corpus lets any reason on line 1 do for a file in another encoding.
            assert_eq!(expected["rule"], fault.rule.id(), "{file}: {fault}");
            assert_eq!(expected["line"], serde_json::json!(fault.line), "{file}: {fault}");
            assert_eq!(expected["dialect"], fault.dialect.name(), "{file}: {fault}");
        }
        (result, _) => panic!("{file}: {result:?}"),
    }
    // The same through a reader that gives one byte at a time, where that is quick.
    if bytes.len() < 10_000 {
        let slowly = Trace::read(OneByte(&bytes));
        assert_eq!(slowly.is_ok(), expected["valid"] == true, "{file}");
    }
}

struct OneByte<'a>(&'a [u8]);

impl std::io::Read for OneByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        buffer[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}

fn check_valid(file: &str, trace: &Trace, expected: &Value) {
    let column =
        |of: &dyn Fn(master_replay::Event<'_>) -> Value| Value::Array(trace.events().map(of).collect());
    let is = |name: &str, found: Value| assert_eq!(expected[name], found, "{file}: {name}");
    is("dialect", trace.dialect().name().into());
    is("events", trace.len().into());
    is("clients", trace.clients().into());
    is("phases", serde_json::to_value(trace.phases()).expect("counts"));
    is("timestamp_us", column(&|event| event.timestamp_us().into()));
    is("keys", column(&|event| event.key_count().into()));
    is("dependencies", column(&|event| event.dependencies().into()));
    is("put_start", column(&|event| event.put_start().into()));
    if !expected["phase"].is_null() {
        is("phase", column(&|event| event.phase().name().into()));
    }
    for (name, of) in [
        ("segment_id", (|event| event.segment_id().into()) as fn(master_replay::Event<'_>) -> Value),
        ("size_bytes", |event| event.size_bytes().into()),
        ("value_slices", |event| serde_json::json!(event.value_slices())),
        ("replica_num", |event| event.replica_num().into()),
    ] {
        if expected.get(name).is_some_and(|value| !value.is_null()) {
            is(name, column(&of));
        }
    }
    let phases: usize = Phase::ALL.iter().map(|phase| trace.phase_range(*phase).len()).sum();
    assert_eq!(phases, trace.len(), "{file}");
}

#[test]
fn every_file_has_the_verdict_that_is_expected() {
    let expected = std::fs::read_to_string(folder().join("expect.jsonl")).expect("expect.jsonl");
    let mut files = 0;
    for line in expected.lines() {
        check(&serde_json::from_str(line).expect("a row of expect.jsonl"));
        files += 1;
    }
    assert_eq!(files, 192);
}
