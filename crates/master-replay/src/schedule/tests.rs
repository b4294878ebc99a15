//! Section by section what a schedule promises, on a clock turned by hand.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// One event of a test trace: id, timestamp, phase letter (`s`, `w`, `t`), what it depends on.
type Row<'a> = (&'a str, u64, char, &'a [&'a str]);

fn trace(rows: &[Row<'_>]) -> Trace {
    let mut lines = vec![r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}"#.to_owned()];
    let mut teardown = vec![];
    for (id, time, phase, depends_on) in rows {
        let depends_on = serde_json::json!(depends_on);
        let common = format!(r#""id":"{id}","timestamp_us":{time},"depends_on":{depends_on}"#);
        match phase {
            's' => {
                lines.push(format!(
                    r#"{{{common},"client_id":"{id}","op":"ReMountSegment","phase":"setup","segments":[]}}"#
                ));
            }
            'm' => {
                lines.push(format!(
                    r#"{{{common},"client_id":"c","op":"MountSegment","phase":"setup","segment_id":"{id}","size_bytes":9}}"#
                ));
                teardown.push(format!(
                    r#"{{"id":"un-{id}","timestamp_us":1000,"client_id":"c","op":"UnmountSegment","phase":"teardown","segment_id":"{id}"}}"#
                ));
            }
            _ => {
                lines.push(format!(
                    r#"{{{common},"client_id":"c","op":"BatchExistKey","phase":"workload","keys":["k"]}}"#
                ));
            }
        }
    }
    lines.extend(teardown);
    Trace::parse(lines.join("\n").as_bytes()).expect("a valid trace")
}

/// A version 1 trace: only a workload.
fn workload(rows: &[(&str, u64, &[&str])]) -> Trace {
    let header = r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#.to_owned();
    let rows = rows.iter().map(|(id, time, depends_on)| {
        let depends_on = serde_json::json!(depends_on);
        format!(
            r#"{{"id":"{id}","timestamp_us":{time},"client_id":"c","op":"BatchExistKey","keys":["k"],"depends_on":{depends_on}}}"#
        )
    });
    let lines: Vec<String> = std::iter::once(header).chain(rows).collect();
    Trace::parse(lines.join("\n").as_bytes()).expect("a valid trace")
}

/// When an event was sent and when it finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    scheduled: u64,
    start: u64,
    finish: u64,
}

/// Replays on a virtual clock: each event takes `takes(index)` µs.
fn replay(mut scheduler: Scheduler<'_>, takes: impl Fn(u32) -> u64) -> BTreeMap<u32, Ran> {
    let mut ran = BTreeMap::new();
    let mut flying: BTreeSet<(u64, u32)> = BTreeSet::new();
    let mut now = 0;
    loop {
        match scheduler.next(now) {
            Step::Dispatch(index) => {
                let finish = now + takes(index);
                ran.insert(index, Ran { scheduled: scheduler.scheduled_us(index), start: now, finish });
                flying.insert((finish, index));
                continue;
            }
            Step::Done => return ran,
            Step::PhaseEnded(_) => {
                scheduler.begin_phase(now);
                continue;
            }
            Step::SleepUntil(due) => match flying.first() {
                Some((finish, _)) if *finish <= due => now = now.max(*finish),
                _ => now = due,
            },
            Step::WaitForFinish => now = now.max(flying.first().expect("something is in flight").0),
        }
        while let Some((finish, index)) = flying.first().copied().filter(|(finish, _)| *finish <= now) {
            flying.remove(&(finish, index));
            scheduler.finish(index);
        }
    }
}

fn scheduler(trace: &Trace, speed: f64, in_flight: u32) -> Scheduler<'_> {
    let in_flight = NonZeroU32::new(in_flight).expect("at least one");
    Scheduler::new(trace, Speed::new(speed).expect("positive"), in_flight).expect("schedulable")
}

fn starts(ran: &BTreeMap<u32, Ran>) -> Vec<u64> {
    ran.values().map(|ran| ran.start).collect()
}

#[test]
fn an_event_is_due_at_its_phase_origin_plus_its_timestamp_over_the_speed() {
    let trace = workload(&[("a", 0, &[]), ("b", 1000, &[]), ("c", 1003, &[])]);
    let ran = replay(scheduler(&trace, 10.0, 8), |_| 1);
    assert_eq!(starts(&ran), [0, 100, 100]);
}

#[test]
fn only_timestamps_are_scaled_never_phase_origins() {
    let trace = trace(&[("c", 0, 's', &[]), ("m", 100, 'm', &[]), ("a", 50, 'w', &[])]);
    let ran = replay(scheduler(&trace, 2.0, 8), |_| 7);
    // The mount is due at 50 and takes 7: the workload begins at 57.
    assert_eq!(ran[&1].start, 50);
    assert_eq!(ran[&2], Ran { scheduled: 57 + 25, start: 82, finish: 89 });
    assert_eq!(ran[&3], Ran { scheduled: 89 + 500, start: 589, finish: 596 });
}

#[test]
fn the_next_phase_starts_only_when_every_event_of_this_one_has_finished() {
    let trace = trace(&[("c", 0, 's', &[]), ("d", 0, 's', &[]), ("m", 0, 'm', &[]), ("a", 0, 'w', &[])]);
    let ran = replay(scheduler(&trace, 1.0, 8), |index| if index == 1 { 5000 } else { 1 });
    assert_eq!(ran[&2].finish, 2, "the mount waits for its client's registration only");
    assert_eq!(ran[&3].start, 5000);
    assert_eq!(ran[&4].scheduled, ran[&3].finish + 1000);
}

#[test]
fn a_dependency_is_satisfied_when_the_event_has_finished_however_it_ended() {
    // The scheduler is never told how an event ended, so success cannot matter.
    let trace = workload(&[("a", 0, &[]), ("b", 0, &["a"]), ("c", 10, &[])]);
    let ran = replay(scheduler(&trace, 1.0, 8), |index| if index == 0 { 300 } else { 1 });
    assert_eq!(starts(&ran), [0, 300, 10]);
}

#[test]
fn what_waits_for_a_dependency_holds_no_place_among_the_calls_in_flight() {
    let trace = workload(&[("a", 0, &[]), ("b", 0, &["a"]), ("c", 0, &[]), ("d", 0, &[])]);
    let ran = replay(scheduler(&trace, 1.0, 2), |index| if index == 0 { 100 } else { 10 });
    assert_eq!(starts(&ran), [0, 100, 0, 10]);
}

#[test]
fn what_is_not_due_holds_no_place_either() {
    let trace = workload(&[("a", 0, &[]), ("b", 500, &["a"]), ("c", 500, &[])]);
    let ran = replay(scheduler(&trace, 1.0, 1), |_| 10);
    assert_eq!(starts(&ran), [0, 500, 510]);
}

#[test]
fn calls_in_flight_are_bounded_whatever_the_number_of_clients() {
    let trace = workload(&[("a", 0, &[]), ("b", 0, &[]), ("c", 0, &[]), ("d", 0, &[]), ("e", 0, &[])]);
    let mut scheduler = scheduler(&trace, 1.0, 3);
    for expected in 0..3 {
        assert_eq!(scheduler.next(0), Step::Dispatch(expected));
    }
    assert_eq!(scheduler.next(1), Step::WaitForFinish);
    scheduler.finish(1);
    assert_eq!(scheduler.next(1), Step::Dispatch(3));
    assert_eq!((scheduler.next(1), scheduler.running()), (Step::WaitForFinish, 3));
}

#[test]
fn ready_events_go_in_the_order_of_the_file() {
    let trace = workload(&[("a", 0, &[]), ("b", 0, &["a"]), ("c", 0, &[]), ("d", 0, &[]), ("e", 0, &["a"])]);
    let mut scheduler = scheduler(&trace, 1.0, 1);
    let mut order = vec![];
    while let Step::Dispatch(index) = scheduler.next(0) {
        order.push(index);
        scheduler.finish(index);
    }
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn two_events_of_one_client_may_run_at_the_same_time() {
    let trace = workload(&[("a", 0, &[]), ("b", 0, &[])]);
    let ran = replay(scheduler(&trace, 1.0, 2), |_| 50);
    assert_eq!(starts(&ran), [0, 0]);
}

#[test]
fn overload_keeps_scheduled_times_and_shows_as_lag() {
    let trace = workload(&[("a", 0, &[]), ("b", 1000, &[])]);
    let ran = replay(scheduler(&trace, 1.0, 1), |_| 20_000);
    assert_eq!(ran[&1], Ran { scheduled: 1000, start: 20_000, finish: 40_000 });
}

#[test]
fn dependencies_on_earlier_phases_are_satisfied_already() {
    let trace =
        trace(&[("c", 0, 's', &[]), ("m", 0, 'm', &[]), ("a", 0, 'w', &["c", "m"]), ("b", 0, 'w', &["a"])]);
    let ran = replay(scheduler(&trace, 1.0, 8), |_| 10);
    assert_eq!(ran[&2].start, 20);
    assert_eq!(ran[&3].start, 30);
}

#[test]
fn a_due_time_that_no_clock_can_tell_is_refused_before_anything_is_sent() {
    let trace = workload(&[("a", 0, &[]), ("late", 1 << 63, &[])]);
    let error = Scheduler::new(&trace, Speed::ONE, NonZeroU32::MIN).expect_err("beyond the clock");
    assert_eq!(error, ScheduleError::BeyondClock { id: "late".to_owned(), timestamp_us: 1 << 63 });
    assert!(trace.check_schedulable(Speed::ONE).is_err());
    let fast = Speed::new(1e6).expect("positive");
    assert!(trace.check_schedulable(fast).is_ok());
}

#[test]
fn a_due_time_near_the_clocks_limit_in_a_later_phase_does_not_wrap() {
    let late = CLOCK_LIMIT_US - 5;
    let trace = trace(&[("c", 0, 's', &[]), ("m", 0, 'm', &[]), ("a", late, 'w', &[])]);
    let mut scheduler = scheduler(&trace, 1.0, 1);
    for index in 0..2 {
        assert_eq!(scheduler.next(0), Step::Dispatch(index));
        scheduler.finish(index);
    }
    assert_eq!(scheduler.next(100), Step::PhaseEnded(Phase::Setup));
    assert_eq!(scheduler.begin_phase(100), Phase::Workload);
    assert_eq!(scheduler.next(101), Step::SleepUntil(late + 100));
}

#[test]
fn an_unversioned_client_has_one_worker() {
    let trace = Trace::parse(
        br#"{"type":"master_rpc_trace","time_unit":"us"}
{"id":"r","timestamp_us":0,"client_id":"a","op":"ReMountSegment","segments":[]}
{"id":"s","timestamp_us":0,"client_id":"b","op":"ReMountSegment","segments":[]}
{"id":"x","timestamp_us":0,"client_id":"a","op":"BatchExistKey","keys":["k"]}
{"id":"y","timestamp_us":0,"client_id":"b","op":"BatchExistKey","keys":["k"]}
{"id":"z","timestamp_us":10,"client_id":"a","op":"BatchExistKey","keys":["k"]}"#,
    )
    .expect("valid");
    // One call in flight was asked for, but this dialect has a worker for each client.
    let ran = replay(scheduler(&trace, 1.0, 1), |index| if index == 2 { 70 } else { 5 });
    assert_eq!(starts(&ran), [0, 0, 5, 5, 75]);
}

#[test]
fn replayers_share_a_trace_by_what_depends_on_what() {
    let trace = workload(&[("a", 0, &[]), ("b", 0, &[]), ("c", 0, &["a"]), ("d", 0, &["b"]), ("e", 0, &[])]);
    let shares = Shares::of(&trace, NonZeroU32::new(2).expect("two"));
    let shards: Vec<u32> = (0..5).map(|index| shares.shard_of(index)).collect();
    assert_eq!(shards, [0, 1, 0, 1, 0]);
    assert_eq!(shares.counts(), [3, 2]);
    for (shard, expected) in [(0, vec![0, 2, 4]), (1, vec![1, 3])] {
        let ran = replay(scheduler(&trace, 1.0, 8).of_shard(&shares, shard), |_| 1);
        assert_eq!(ran.keys().copied().collect::<Vec<u32>>(), expected);
    }
}

fn any_trace() -> impl Strategy<Value = Trace> {
    proptest::collection::vec(
        (0_u64..40, proptest::collection::vec(any::<prop::sample::Index>(), 0..3)),
        1..40,
    )
    .prop_map(|mut rows| {
        rows.sort_by_key(|(time, _)| *time);
        let names: Vec<String> = (0..rows.len()).map(|row| format!("e{row}")).collect();
        let rows: Vec<(&str, u64, Vec<&str>)> = rows
            .iter()
            .enumerate()
            .map(|(at, (time, picks))| {
                let before = picks.iter().filter(|_| at > 0).map(|pick| names[pick.index(at)].as_str());
                (names[at].as_str(), *time, before.collect())
            })
            .collect();
        let rows: Vec<_> = rows.iter().map(|(id, time, before)| (*id, *time, before.as_slice())).collect();
        workload(&rows)
    })
}

proptest! {
    /// Against a replayer that looks at everything at every µs.
    #[test]
    fn the_schedule_is_that_of_the_definition(
        trace in any_trace(),
        in_flight in 1_u32..5,
        takes in proptest::collection::vec(1_u64..30, 40),
    ) {
        let takes = |index: u32| takes[index as usize];
        let found = replay(scheduler(&trace, 1.0, in_flight), takes);
        let mut expected: BTreeMap<u32, Ran> = BTreeMap::new();
        let mut now = 0;
        while expected.len() < trace.len() || expected.values().any(|ran| ran.finish > now) {
            for event in trace.events() {
                let done = |index: &u32| expected.get(index).is_some_and(|ran| ran.finish <= now);
                let flying = expected.values().filter(|ran| ran.finish > now).count();
                let free = flying < in_flight as usize;
                let ready = event.dependencies().iter().all(done) && event.timestamp_us() <= now;
                if free && ready && !expected.contains_key(&event.index()) {
                    let finish = now + takes(event.index());
                    expected.insert(event.index(), Ran { scheduled: event.timestamp_us(), start: now, finish });
                }
            }
            now += 1;
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn what_is_due_next_is_told_ahead_whatever_it_waits_for() {
    let trace = workload(&[("a", 0, &[]), ("b", 100, &[]), ("c", 100, &["a"]), ("d", 300, &[])]);
    let speed = Speed::new(2.0).expect("a speed");
    let mut scheduler = Scheduler::new(&trace, speed, NonZeroU32::MAX).expect("a schedule");
    assert_eq!(scheduler.next(0), Step::Dispatch(0));
    assert_eq!(scheduler.next(0), Step::SleepUntil(50));
    assert_eq!(scheduler.upcoming_us().collect::<Vec<_>>(), [50, 50, 150]);
    assert_eq!(scheduler.next(50), Step::Dispatch(1));
    // What waits for a dependency is passed over.
    assert_eq!(scheduler.next(50), Step::SleepUntil(150));
    assert_eq!(scheduler.upcoming_us().collect::<Vec<_>>(), [150]);
    scheduler.finish(0);
    assert_eq!(scheduler.next(60), Step::Dispatch(2));
    assert_eq!(scheduler.upcoming_us().collect::<Vec<_>>(), [150]);
    assert_eq!(scheduler.next(150), Step::Dispatch(3));
    assert_eq!(scheduler.upcoming_us().count(), 0);
}

#[test]
fn what_is_due_next_is_of_the_phase_that_runs_and_of_the_own_share() {
    let trace = trace(&[("c", 0, 's', &[]), ("m", 10, 'm', &[]), ("a", 0, 'w', &[]), ("b", 100, 'w', &[])]);
    let scheduler = Scheduler::new(&trace, Speed::ONE, NonZeroU32::MAX).expect("a schedule");
    assert_eq!(scheduler.upcoming_us().collect::<Vec<_>>(), [0, 10]);
    let shares = Shares::of(&trace, NonZeroU32::new(2).expect("two"));
    for shard in 0..2 {
        let scheduler = Scheduler::new(&trace, Speed::ONE, NonZeroU32::MAX).expect("a schedule");
        let mut scheduler = scheduler.of_shard(&shares, shard);
        if shard == 0 {
            for event in 0..2 {
                assert_eq!(scheduler.next(10), Step::Dispatch(event));
                scheduler.finish(event);
            }
        }
        let _ = scheduler.begin_phase(1_000);
        let mine = if shares.shard_of(2) == shard { 1_000 } else { 1_100 };
        assert_eq!(scheduler.upcoming_us().collect::<Vec<_>>(), [mine], "{shard}");
    }
}
