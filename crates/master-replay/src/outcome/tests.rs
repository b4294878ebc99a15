//! The numeric examples of the contract.

use super::*;
use crate::contract::{Phase, Trace};
use crate::schedule::Speed;

fn trace(rows: &[&str]) -> Trace {
    let header =
        r#"{"type":"master_rpc_trace","version":1,"time_unit":"us","metadata":{"n":18446744073709551615}}"#;
    Trace::parse([&[header], rows].concat().join("\n").as_bytes()).expect("valid")
}

/// Due 0, start 1, finish 2,000,000, four keys of which one was skipped, sent; and one that was not sent, due 1.
fn example() -> (Trace, Outcomes) {
    let trace = trace(&[
        r#"{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k","l","m","n"]}"#,
        r#"{"id":"b","timestamp_us":1,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
    ]);
    let mut outcomes = Outcomes::new(&trace, Speed::ONE);
    outcomes.begin_phase(Phase::Workload, 0);
    outcomes.start(0, 1);
    outcomes.statuses_mut(0..3).copy_from_slice(&[KeyStatus::Ok, KeyStatus::Miss, KeyStatus::NotReady]);
    outcomes.finish(0, 2_000_000, true);
    outcomes.start(1, 1);
    outcomes.finish(1, 1, false);
    (trace, outcomes)
}

#[test]
fn traffic() {
    let (trace, outcomes) = example();
    let traffic = Traffic::of(&trace, &outcomes).expect("a workload");
    let counts = |offered_calls, sent_calls, completed_calls, issued_keys| TrafficCounts {
        offered_calls,
        sent_calls,
        completed_calls,
        issued_keys,
    };
    assert_eq!(traffic.totals, counts(2, 1, 1, 3));
    assert_eq!(serde_json::json!(traffic.arrival_span_s), 1e-6);
    assert_eq!(serde_json::json!(traffic.offered_calls_per_second), 2_000_000.0);
    assert_eq!(serde_json::json!(traffic.mean_per_second.expect("a duration").completed_calls), 0.5);
    assert_eq!(traffic.peak_client_calls_inflight, 1);
    let buckets = [
        TrafficBucket { second: 0, counts: counts(2, 1, 0, 3) },
        TrafficBucket { second: 2, counts: counts(0, 0, 1, 0) },
    ];
    assert_eq!(traffic.buckets, buckets);
}

#[test]
fn peaks_are_of_half_open_ranges() {
    let rows: Vec<String> = (0..4)
        .map(|n| {
            format!(r#"{{"id":"{n}","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}}"#)
        })
        .collect();
    let trace = trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    for (times, expected) in [
        ([(0, 10), (10, 20), (20, 30), (30, 40)], 1),
        ([(0, 11), (10, 20), (10, 10), (30, 40)], 2),
        ([(5, 5), (5, 5), (5, 5), (5, 5)], 0),
        ([(0, 9), (1, 9), (2, 9), (9, 10)], 3),
    ] {
        let mut outcomes = Outcomes::new(&trace, Speed::ONE);
        outcomes.begin_phase(Phase::Workload, 0);
        for (event, (start, finish)) in (0..).zip(times) {
            outcomes.start(event, start);
            outcomes.finish(event, finish, true);
        }
        let traffic = Traffic::of(&trace, &outcomes).expect("a workload");
        assert_eq!(traffic.peak_client_calls_inflight, expected, "{times:?}");
        assert_eq!(traffic.offered_calls_per_second, None, "all are due at 0");
    }
}

#[test]
fn summary() {
    let (trace, mut outcomes) = example();
    outcomes.set_error(1, "no connection");
    outcomes.set_error(1, "a second error does not replace the first");
    let found = serde_json::to_value(Summary::of(&trace, &outcomes)).expect("JSON");
    let operation = &found["operations"]["BatchExistKey"];
    assert_eq!(operation["planned_calls"], 2);
    assert_eq!(operation["failed_calls"], 1);
    assert_eq!(operation["rpc_calls"], 1);
    assert_eq!(operation["issued_keys"], 3);
    let statuses =
        serde_json::json!({"ok":1,"miss":1,"not_ready":1,"already_exists":0,"error":0,"skipped":2});
    assert_eq!(operation["key_status"], statuses);
    assert_eq!(operation["dispatch_lag_us"], serde_json::json!({"p50":0,"p95":1,"p99":1,"max":1}));
    let one = serde_json::json!({"p50":1_999_999,"p95":1_999_999,"p99":1_999_999,"max":1_999_999});
    assert_eq!(operation["client_call_latency_us"], one);
    assert_eq!(operation["rpc_per_second"], 0.5);
    assert_eq!(
        found["phases"]["setup"],
        serde_json::json!({
            "schema_version": 1, "trace_metadata": null, "events": 0, "elapsed_us": 0,
        })
    );
    assert_eq!(found["phases"]["workload"]["phase_origin_us"], 0);
    assert_eq!(found["has_errors"], true);
    let text = serde_json::to_string(&Summary::of(&trace, &outcomes)).expect("JSON");
    assert!(text.contains(r#""trace_metadata":{"n":18446744073709551615}"#), "{text}");
    assert_eq!(outcomes.error_counts(), [("no connection", 1)]);
}

#[test]
fn samples_and_histograms() {
    let (trace, outcomes) = example();
    let mut samples = Vec::new();
    write_samples(&trace, &outcomes, &mut samples).expect("written");
    let samples = String::from_utf8(samples).expect("UTF-8");
    let first = concat!(
        r#"{"id":"a","client_id":"c","op":"BatchExistKey","phase":"workload","phase_origin_us":0,"#,
        r#""scheduled_us":0,"start_us":1,"finish_us":2000000,"planned_keys":4,"rpc_sent":true,"#,
        r#""key_status":{"ok":1,"miss":1,"not_ready":1,"already_exists":0,"error":0,"skipped":1},"error":""}"#,
    );
    assert_eq!(samples.lines().next(), Some(first));
    assert_eq!(samples.lines().count(), 2);
    let mut log = Vec::new();
    write_histograms(&trace, &outcomes, &mut log).expect("written");
    let log = String::from_utf8(log).expect("UTF-8");
    assert!(log.contains("Tag=workload.BatchExistKey.client_call_latency_us,"), "{log}");
    let lines: Vec<Vec<&str>> =
        log.lines().filter(|line| line.starts_with("Tag=")).map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{log}");
    // When the phase began and how long it lasted, in seconds, whatever the times in it are.
    assert!(lines.iter().all(|fields| (fields[1], fields[2]) == ("0.000", "2.000")), "{log}");
}

/// Times of events: sent and finished.
fn outcomes_of(trace: &Trace, times: &[(u64, u64)]) -> Outcomes {
    let mut outcomes = Outcomes::new(trace, Speed::ONE);
    outcomes.begin_phase(Phase::Workload, 0);
    for (event, (start, finish)) in (0..).zip(times) {
        outcomes.start(event, *start);
        outcomes.finish(event, *finish, true);
    }
    outcomes
}

#[test]
fn the_own_lag_is_without_what_an_event_has_to_wait_for() {
    let waiting = trace(&[
        r#"{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
        r#"{"id":"b","timestamp_us":5,"client_id":"c","op":"BatchExistKey","keys":["k"],"depends_on":["a"]}"#,
        r#"{"id":"c","timestamp_us":5,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
    ]);
    let outcomes = outcomes_of(&waiting, &[(1, 100), (103, 110), (103, 110)]);
    assert_eq!(outcomes.own_lags_us(&waiting, Phase::Workload).collect::<Vec<_>>(), [1, 3, 98]);
    // Without versions a client does one thing after the other.
    let rows = [
        r#"{"type":"master_rpc_trace","time_unit":"us"}"#,
        r#"{"id":"r","timestamp_us":0,"client_id":"c","op":"ReMountSegment","segments":[]}"#,
        r#"{"id":"s","timestamp_us":0,"client_id":"d","op":"ReMountSegment","segments":[]}"#,
        r#"{"id":"a","timestamp_us":5,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
        r#"{"id":"b","timestamp_us":5,"client_id":"d","op":"BatchExistKey","keys":["k"]}"#,
    ];
    let one_by_one = Trace::parse(rows.join("\n").as_bytes()).expect("valid");
    let outcomes = outcomes_of(&one_by_one, &[(0, 100), (0, 4), (102, 110), (6, 110)]);
    assert_eq!(outcomes.own_lags_us(&one_by_one, Phase::Workload).collect::<Vec<_>>(), [0, 0, 2, 1]);
}
