//! What a real master cannot be made to do: every fault of a stand-in becomes an error of the events it meets, and the
//! replay goes on.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use master_replay::{Alone, KeyStatus, Progress, ReplayError, ReplayOptions, Replayed, Trace, replay};
use master_wire::Dialect;
use testkit::master::{Script, StandIn};

/// One client, one segment, and so many reads of one key, all due at once.
fn reads(count: usize) -> Trace {
    reads_every(0, count)
}

/// The same, so many µs after each other.
fn reads_every(period_us: usize, count: usize) -> Trace {
    let mut lines = vec![r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#.to_owned()];
    lines.extend((0..count).map(|read| {
        let due_us = read * period_us;
        format!(
            r#"{{"id":"r{read}","timestamp_us":{due_us},"client_id":"c","op":"BatchExistKey","keys":["k"]}}"#
        )
    }));
    Trace::parse(lines.join("\n").as_bytes()).expect("valid")
}

fn writes() -> Trace {
    let rows = [
        r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#,
        r#"{"id":"s","timestamp_us":0,"client_id":"c","op":"BatchPutStart","keys":["k","l"],"value_sizes":[9,9]}"#,
        r#"{"id":"e","timestamp_us":0,"client_id":"c","op":"BatchPutEnd","keys":["k","l"],"put_start":"s"}"#,
        r#"{"id":"g","timestamp_us":0,"client_id":"c","op":"BatchGetReplicaList","keys":["k","l"],"depends_on":["e"]}"#,
    ];
    Trace::parse(rows.join("\n").as_bytes()).expect("valid")
}

fn options() -> ReplayOptions {
    let mut options = ReplayOptions::default();
    options.call_timeout = Duration::from_millis(400);
    options.connections = NonZeroU32::new(2).expect("two");
    options.in_flight = NonZeroU32::new(4).expect("four");
    options
}

fn run(trace: &Trace, script: &str, options: &ReplayOptions) -> Result<Replayed, ReplayError> {
    let master = StandIn::start(Dialect::D, Script::parse(script));
    replay(trace, master.address(), options, &mut Alone, &Progress::default(), &CancelToken::new())
}

/// Replays so many reads and gives the errors that events have, each once.
fn errors(count: usize, script: &str) -> (usize, Vec<String>) {
    let trace = reads(count);
    let replayed = run(&trace, script, &options()).expect("the replay comes to its end");
    let samples = (0..).take(count).map(|event| replayed.outcomes.sample(&trace, event));
    let failed: Vec<String> =
        samples.filter(|sample| !sample.error.is_empty()).map(|sample| sample.error.to_owned()).collect();
    let mut different = failed.clone();
    different.sort();
    different.dedup();
    (failed.len(), different)
}

#[test]
fn an_honest_master_has_no_errors() {
    let trace = writes();
    let replayed = run(&trace, "", &options()).expect("replayed");
    assert!(!replayed.outcomes.has_errors());
    assert_eq!(replayed.outcomes.sample(&trace, 2).statuses, [KeyStatus::Ok; 2]);
    assert_eq!(replayed.heartbeats.failed_calls, 0);
    assert_eq!(replayed.left_mounted, 0);
}

#[test]
fn faults_of_one_call_are_errors_of_its_event() {
    for (fault, text) in [
        ("fail 10", "the call failed"),
        ("refuse -600", "INVALID_PARAMS"),
        ("swallow", "did not answer in time"),
    ] {
        let (count, texts) = errors(20, &format!("BatchExistKey 3 {fault}"));
        assert_eq!((count, texts.len()), (1, 1), "{fault}: {texts:?}");
        assert!(texts[0].contains(text), "{fault}: {texts:?}");
    }
}

#[test]
fn a_connection_that_breaks_loses_its_calls_and_no_others() {
    for fault in ["drop", "truncate 5", "corrupt 0 255", "renumber 999999", "repeat"] {
        let (count, texts) = errors(40, &format!("BatchExistKey 3 {fault}"));
        assert!((1..=4).contains(&count), "{fault}: {count} {texts:?}");
    }
    // Both connections break: what is left fails at once.
    let (count, texts) = errors(40, "BatchExistKey * drop");
    assert_eq!(count, 40, "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("no connection is left")), "{texts:?}");
}

#[test]
fn replies_in_another_order_are_matched() {
    let (count, texts) = errors(40, "BatchExistKey 3 reorder\nBatchExistKey 9 reorder");
    assert_eq!(count, 0, "{texts:?}");
}

#[test]
fn keys_whose_start_failed_are_skipped() {
    let trace = writes();
    let replayed = run(&trace, "BatchPutStart 1 refuse -200", &options()).expect("replayed");
    let sample = |event| replayed.outcomes.sample(&trace, event);
    assert_eq!(
        (sample(0).statuses, sample(0).error),
        ([KeyStatus::Error; 2].as_slice(), "NO_AVAILABLE_HANDLE (-200)")
    );
    assert_eq!((sample(1).statuses, sample(1).rpc_sent), ([KeyStatus::Skipped; 2].as_slice(), false));
    assert_eq!(sample(2).statuses, [KeyStatus::Miss; 2], "failures release what depends on them");
}

#[test]
fn a_failed_heartbeat_makes_every_later_event_fail_without_a_call() {
    let trace = Trace::parse(
        br#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}
{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}
{"id":"b","timestamp_us":600000,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
    )
    .expect("valid");
    let mut options = options();
    options.heartbeat_interval = Duration::from_millis(50);
    let replayed = run(&trace, "Ping 3 refuse -1", &options).expect("replayed");
    let sample = |event| replayed.outcomes.sample(&trace, event);
    assert_eq!(sample(0).error, "");
    assert!(sample(1).error.starts_with("a heartbeat failed"), "{}", sample(1).error);
    assert!(!sample(1).rpc_sent && sample(1).start_us >= 600_000);
    assert_eq!(replayed.heartbeats.failed_calls, 1);
}

/// The only thing the workload and the heartbeats share is the master.
#[test]
fn a_stalled_workload_never_delays_heartbeats() {
    let trace = reads(4);
    let mut options = options();
    options.heartbeat_interval = Duration::from_millis(50);
    options.call_timeout = Duration::from_secs(2);
    let replayed = run(&trace, "BatchExistKey * stall", &options).expect("replayed");
    assert!(replayed.heartbeats.rpc_calls >= 15, "{:?}", replayed.heartbeats);
    assert_eq!(replayed.heartbeats.failed_calls, 0);
}

/// Only a master that falls ever more behind is read later than it answers, and only if that is allowed.
#[test]
fn replies_of_a_saturated_master_alone_are_left_unread() {
    let slow = "BatchExistKey * delay 1";
    let read_delays = |trace: &Trace, options: &ReplayOptions| {
        let replayed = run(trace, slow, options).expect("replayed");
        assert!(
            !replayed.outcomes.has_errors()
                && trace.events().all(|event| replayed.outcomes.is_finished(event.index()))
        );
        (replayed.engine.read_delays, replayed.engine.read_delay_total_us)
    };
    let (times, total_us) = read_delays(&reads(1_000), &options());
    assert!(times > 0 && total_us >= 20 * times, "{times} times, {total_us} us");
    let mut at_once = options();
    at_once.max_read_delay = Duration::ZERO;
    assert_eq!(read_delays(&reads(1_000), &at_once), (0, 0));
    // A call every 4 ms is what this master can do.
    assert_eq!(read_delays(&reads_every(4_000, 100), &options()), (0, 0));
}

#[test]
fn a_client_that_cannot_be_registered_stops_the_replay_before_it_begins() {
    let error = run(&reads(1), "ReMountSegment 1 refuse -1", &options()).expect_err("refused");
    assert!(
        matches!(&error, ReplayError::Refused { code, .. } if code.starts_with("INTERNAL_ERROR")),
        "{error}"
    );
}

#[test]
fn a_cancelled_replay_ends_at_once() {
    let trace = Trace::parse(
        br#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}
{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}
{"id":"b","timestamp_us":600000000,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#,
    )
    .expect("valid");
    let master = StandIn::start(Dialect::C, Script::honest());
    let cancel = CancelToken::new();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            cancel.cancel();
        });
        let progress = Progress::default();
        let error = replay(&trace, master.address(), &options(), &mut Alone, &progress, &cancel);
        assert!(matches!(error, Err(ReplayError::Cancelled { finished: 1, events: 2 })), "{error:?}");
    });
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn every_dialect_is_spoken() {
    for dialect in Dialect::ALL {
        let master = StandIn::start(dialect, Script::honest());
        let trace = writes();
        let progress = Progress::default();
        let replayed =
            replay(&trace, master.address(), &options(), &mut Alone, &progress, &CancelToken::new());
        let replayed = replayed.expect("replayed");
        assert!(!replayed.outcomes.has_errors(), "{dialect}: {:?}", replayed.outcomes.error_counts());
        assert_eq!(replayed.outcomes.sample(&trace, 2).statuses, [KeyStatus::Ok; 2], "{dialect}");
    }
}
