//! What a real master cannot be made to do: every fault of a stand-in becomes an error of the events it meets, and the
//! replay goes on.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use master_replay::{
    Alone, EngineReport, KeyStatus, Progress, ReplayError, ReplayOptions, Replayed, Trace, replay,
};
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
fn a_reply_of_another_length_is_an_error_of_its_event() {
    for (results, text) in
        [(0, "the reply has 0 results for 2 keys"), (3, "the reply has 3 results for 2 keys")]
    {
        let trace = writes();
        // The first is how the dialect is told.
        let script = format!("BatchGetReplicaList 2 miscount {results}");
        let replayed = run(&trace, &script, &options()).expect("replayed");
        let sample = |event| replayed.outcomes.sample(&trace, event);
        assert_eq!((sample(2).error, sample(2).statuses), (text, [KeyStatus::Error; 2].as_slice()));
        assert_eq!((sample(0).error, sample(1).error), ("", ""));
    }
    // Of a write that began for one of its keys, the end is told one result.
    let trace = writes();
    let replayed = run(&trace, "BatchPutEnd 1 miscount 1", &options()).expect("replayed");
    assert_eq!(replayed.outcomes.sample(&trace, 1).error, "the reply has 1 results for 2 keys");
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

/// A client that registers, mounts, asks and unmounts.
fn lifecycle() -> Trace {
    let rows = [
        r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}"#,
        r#"{"id":"r","timestamp_us":0,"client_id":"c","op":"ReMountSegment","phase":"setup","segments":[]}"#,
        r#"{"id":"m","timestamp_us":0,"client_id":"c","op":"MountSegment","phase":"setup","segment_id":"s","size_bytes":67108864}"#,
        r#"{"id":"x","timestamp_us":0,"client_id":"c","op":"BatchExistKey","phase":"workload","keys":["k"]}"#,
        r#"{"id":"u","timestamp_us":0,"client_id":"c","op":"UnmountSegment","phase":"teardown","segment_id":"s"}"#,
    ];
    Trace::parse(rows.join("\n").as_bytes()).expect("valid")
}

/// What builds on a registration or a mount that failed is not sent.
#[test]
fn a_registration_or_mount_that_fails_takes_with_it_what_needs_it() {
    let trace = lifecycle();
    let errors = |script: &str| {
        let replayed = run(&trace, script, &options()).expect("replayed");
        let samples = (0..4).map(|event| replayed.outcomes.sample(&trace, event));
        let found: Vec<(bool, String)> =
            samples.map(|sample| (sample.rpc_sent, sample.error.to_owned())).collect();
        (found, replayed.left_mounted)
    };
    let (honest, left) = errors("");
    assert!(honest.iter().all(|(sent, error)| *sent && error.is_empty()) && left == 0, "{honest:?}");
    let (refused, left) = errors("ReMountSegment 1 refuse -1");
    assert!(refused[0].0 && refused[0].1.starts_with("INTERNAL_ERROR"), "{refused:?}");
    let not_registered = (false, "the client's registration failed".to_owned());
    assert_eq!(refused[1..], [not_registered.clone(), not_registered.clone(), not_registered]);
    assert_eq!(left, 0);
    let (unmounted, left) = errors("MountSegment 1 refuse -1");
    assert!(unmounted[1].0 && unmounted[1].1.starts_with("INTERNAL_ERROR"), "{unmounted:?}");
    assert_eq!(unmounted[2], (true, String::new()));
    assert_eq!((&unmounted[3], left), (&(false, "the segment's mount failed".to_owned()), 0));
    // Of a mount without an answer nobody knows what became: no event uses it, and at the end it is unmounted.
    let (unanswered, left) = errors("MountSegment 1 swallow");
    assert_eq!(unanswered[1], (false, "the master did not answer in time".to_owned()));
    assert_eq!((&unanswered[3], left), (&(false, "the segment's mount failed".to_owned()), 0));
    let (_, left) = errors("MountSegment 1 swallow\nUnmountSegment 1 swallow");
    assert_eq!(left, 1, "it may still be mounted");
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

/// Between two pings nothing is expected on a connection of the heartbeats: what comes there means that nobody will ping its
/// clients any more.
#[test]
fn a_heartbeat_connection_that_breaks_between_two_pings_is_a_failure() {
    let trace = reads_every(600_000, 2);
    let mut options = options();
    options.heartbeat_interval = Duration::from_secs(60);
    let replayed = run(&trace, "Ping 1 repeat", &options).expect("replayed");
    let sample = |event| replayed.outcomes.sample(&trace, event);
    assert_eq!(sample(0).error, "");
    assert!(sample(1).error.starts_with("a heartbeat failed"), "{}", sample(1).error);
    let beats = &replayed.heartbeats;
    assert_eq!((beats.rpc_calls, beats.failed_calls), (1, 0), "the ping itself succeeded");
    assert!(!beats.is_healthy() && beats.first_error.is_some(), "{beats:?}");
}

/// A client may be given up between its last ping and the end.
#[test]
fn every_client_is_pinged_once_more_at_the_end() {
    // By the second call the first ping has been answered.
    let trace = reads_every(250_000, 2);
    let mut options = options();
    options.heartbeat_interval = Duration::from_secs(60);
    let replayed = run(&trace, "", &options).expect("replayed");
    assert_eq!((replayed.heartbeats.rpc_calls, replayed.heartbeats.is_healthy()), (2, true));
    let replayed = run(&trace, "Ping 2 refuse -1", &options).expect("replayed");
    assert!(!replayed.outcomes.has_errors());
    assert_eq!((replayed.heartbeats.rpc_calls, replayed.heartbeats.is_healthy()), (2, false));
}

/// The master stands still in setup, then in the workload, then for ever: each silence is of its phase, and what is said of the
/// workload is of the workload.
#[test]
fn times_are_told_of_the_workload_alone_too() {
    let silences = |script: &str| {
        let replayed = run(&lifecycle(), script, &options()).expect("replayed");
        let engine = replayed.engine;
        assert!(engine.workload.cpu_ns > 0 && engine.workload.cpu_ns < engine.times.cpu_ns, "{engine:?}");
        (engine.times.silent_us / 1_000, engine.workload.silent_us / 1_000)
    };
    let (whole_ms, workload_ms) = silences("MountSegment 1 delay 220");
    assert!(whole_ms >= 220 && workload_ms < 220, "{whole_ms} {workload_ms}");
    let (whole_ms, workload_ms) = silences("BatchExistKey 1 delay 220");
    assert!(whole_ms >= 220 && workload_ms >= 220, "{whole_ms} {workload_ms}");
    // No reply ends that one: the call has had its time.
    let (whole_ms, workload_ms) = silences("BatchExistKey 1 swallow\nUnmountSegment 1 swallow");
    assert!(whole_ms >= workload_ms + 400 && workload_ms >= 400, "{whole_ms} {workload_ms}");
}

/// Where nothing is asked, nobody is silent.
#[test]
fn a_silence_ends_with_the_call_that_was_given_up() {
    let replayed = run(&reads_every(900_000, 2), "BatchExistKey 1 swallow", &options()).expect("replayed");
    let silent_ms = replayed.engine.times.silent_us / 1_000;
    assert!(
        (400..900).contains(&silent_ms),
        "{silent_ms} ms of a call that has 400 ms, and 500 ms without one"
    );
}

/// The clock is watched before a call is due, and not at all if that is turned off.
#[test]
fn spinning_is_measured_and_can_be_turned_off() {
    let trace = reads_every(2_000, 50);
    for (spin_us, spins) in [(0, false), (500, true)] {
        let mut options = options();
        options.spin = Duration::from_micros(spin_us);
        let replayed = run(&trace, "", &options).expect("replayed");
        let engine = &replayed.engine;
        assert_eq!(engine.times.spin_ns > 5_000_000, spins, "{engine:?}");
        assert!(engine.times.spin_ns <= engine.times.cpu_ns + 50_000_000, "{engine:?}");
        assert!(engine.sleeps >= 40 && engine.writes >= 40 && engine.reads >= 40, "{engine:?}");
        assert!(engine.unread_us.p50.is_some() && engine.write_us.p50.is_some(), "{engine:?}");
    }
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

/// One that has answered everything while its replies were left unread would wait for the replayer. Where nothing is learnt from that,
/// two fifths of the time are waited; where it is, a seventh at most, but for what a busy machine adds to a sleep.
#[test]
fn replies_of_a_fast_master_are_not_left_unread_for_long() {
    let trace = reads(150_000);
    let mut options = options();
    options.in_flight = NonZeroU32::new(256).expect("many");
    let reports: Vec<EngineReport> =
        (0..3).map(|_| run(&trace, "", &options).expect("replayed").engine).collect();
    let is_short = |report: &EngineReport| {
        assert!(report.times.saturated_us > 200_000, "{report:?}");
        report.read_delay_total_us < report.times.saturated_us / 4
    };
    assert!(reports.iter().any(is_short), "{reports:?}");
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
