use proptest::prelude::*;

use super::*;
use crate::attempt::{Condition, ConditionKind, Purpose};
use crate::definition::Invalidation;
use crate::scripted::{Fault, Scripted};
use paired_stats::Arm;

fn definition(pairs: u32, warmups_per_arm: u32) -> RunDefinition {
    RunDefinition { seed: 3, pairs, warmups_per_arm, ..RunDefinition::default() }
}

fn script<'a>() -> Scripted<'a> {
    Scripted::new(|attempt| {
        100.0 + f64::from(attempt.number) + if attempt.arm == Arm::Candidate { 5.0 } else { 0.0 }
    })
}

fn seen(kind: ConditionKind) -> Fault {
    Fault::Condition(Condition { kind, evidence: "seen".to_owned(), at_ns: None })
}

fn run(definition: RunDefinition, mut script: Scripted<'_>) -> (RunOutcome, Vec<Event>, Vec<Attempt>) {
    let mut events = Vec::new();
    let outcome = PairedRun::new(definition)
        .run(&mut script, &mut events, &CancelToken::new())
        .expect("the script can be run");
    (outcome, events, script.executed)
}

/// `B` or `C` per attempt, warm-ups before `|`.
fn order(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        if !text.contains('|') && matches!(attempt.purpose, Purpose::Pair { .. }) {
            text.push('|');
        }
        text.push(if attempt.arm == Arm::Baseline { 'B' } else { 'C' });
    }
    text
}

fn doubled(schedule: &Schedule) -> String {
    schedule.first.iter().map(|arm| if *arm == Arm::Baseline { "BC" } else { "CB" }).collect()
}

#[test]
fn warmups_alternate_and_pairs_follow_the_schedule() {
    let definition = definition(6, 2);
    let (outcome, _, attempts) = run(definition.clone(), script());
    assert_eq!(outcome, RunOutcome::Complete);
    assert_eq!(order(&attempts), format!("BCBC|{}", doubled(&definition.schedule())));
    assert!(attempts.iter().enumerate().all(|(index, attempt)| attempt.number as usize == index));
}

#[test]
fn failures_of_the_program_fail_the_row_at_once() {
    let check = |number: u32, fault: Fault, expected: ProductFailure| {
        let (outcome, _, attempts) = run(definition(4, 1), script().fault(number, fault));
        let RunOutcome::Failed { attempt, failure } = outcome else { panic!("{outcome:?}") };
        assert_eq!((attempt.number, failure), (number, expected));
        assert_eq!(attempts.len(), number as usize + 1, "nothing runs after a failure");
    };
    check(5, Fault::Exit(3), ProductFailure::Exited { status: 3 });
    check(2, Fault::Signal(9), ProductFailure::Signalled { signal: 9 });
    check(0, Fault::TimeOut, ProductFailure::TimedOut);
    check(
        4,
        Fault::Malformed("no such field".into()),
        ProductFailure::Metric { message: "no such field".into() },
    );
}

#[test]
fn a_metric_that_is_no_positive_number_is_a_failure_that_can_be_recorded() {
    for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let bad = Scripted::new(move |attempt| if attempt.number == 3 { value } else { 1.0 });
        let (outcome, events, _) = run(definition(4, 1), bad);
        assert!(
            matches!(outcome, RunOutcome::Failed { failure: ProductFailure::Metric { .. }, .. }),
            "{outcome:?}"
        );
        let text = serde_json::to_string(&events).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Event>>(&text).unwrap(), events);
    }
}

#[test]
fn an_invalid_pair_is_taken_again_in_the_same_order() {
    // Attempts 0 and 1 are warm-ups; 2 and 3 are pair 0; 4 and 5 are pair 1.
    for (number, rerun_from) in [(4, 5), (5, 6)] {
        let disturbed = script().fault(number, seen(ConditionKind::RanOutside));
        let (outcome, events, attempts) = run(definition(3, 1), disturbed);
        assert_eq!(outcome, RunOutcome::Complete);
        let again = &attempts[rerun_from];
        assert_eq!(again.arm, attempts[4].arm);
        assert_eq!(again.purpose, Purpose::Pair { pair: 1, rerun: 1, first: true });
        let invalidated = |event: &&Event| matches!(event, Event::PairInvalidated { pair: 1, rerun: 0, .. });
        assert_eq!(events.iter().filter(invalidated).count(), 1);
    }
}

#[test]
fn only_predeclared_conditions_invalidate() {
    let (outcome, _, attempts) = run(definition(3, 1), script().fault(4, seen(ConditionKind::LeftBehind)));
    assert_eq!((outcome, attempts.len()), (RunOutcome::Complete, 8));
    let above =
        |limit| Invalidation { above: [("steal_ms".to_owned(), limit)].into(), ..Invalidation::default() };
    let steal = || script().fault(4, Fault::Telemetry("steal_ms".into(), 7.0));
    let attempts =
        |limit| run(RunDefinition { invalidation: above(limit), ..definition(3, 1) }, steal()).2.len();
    assert_eq!((attempts(7.0), attempts(6.9)), (8, 9));
}

#[test]
fn a_failure_is_never_excused_by_a_condition() {
    let both = Scripted::new(|attempt| if attempt.number == 4 { -1.0 } else { 1.0 })
        .fault(4, seen(ConditionKind::AffinityDiffers));
    assert!(matches!(run(definition(3, 1), both).0, RunOutcome::Failed { .. }));
}

#[test]
fn reruns_are_bounded_per_pair_and_per_row() {
    let always = |numbers: std::ops::Range<u32>| {
        numbers.fold(script(), |script, number| script.fault(number, seen(ConditionKind::AffinityDiffers)))
    };
    let (outcome, _, attempts) = run(definition(3, 1), always(2..99));
    let RunOutcome::Blocked { pair: 0, reasons } = outcome else { panic!("{outcome:?}") };
    assert_eq!((attempts.len(), reasons.len()), (2 + 3, 1), "once and two reruns, no second member");
    let few = Invalidation { reruns_per_row: 1, ..Invalidation::default() };
    let (outcome, _, attempts) = run(RunDefinition { invalidation: few, ..definition(3, 1) }, always(2..4));
    assert!(matches!(outcome, RunOutcome::Blocked { pair: 0, .. }), "{outcome:?}");
    assert_eq!(attempts.len(), 4);
}

#[test]
fn a_cancelled_run_goes_on_where_it_was() {
    let definition = definition(4, 1);
    let (cancel, mut events) = (CancelToken::new(), Vec::new());
    let mut first = script().fault(5, Fault::Cancel);
    let mut run = PairedRun::new(definition.clone());
    assert_eq!(run.run(&mut first, &mut events, &cancel).unwrap(), RunOutcome::Cancelled);
    assert_eq!(run.outcome(), None);
    let mut second = script();
    assert_eq!(run.run(&mut second, &mut events, &CancelToken::new()).unwrap(), RunOutcome::Complete);
    assert_eq!(run.outcome(), Some(RunOutcome::Complete));
    assert_eq!(order(&second.executed), format!("BC|{}", &doubled(&definition.schedule())[2..]));
    assert_eq!(second.executed[2].purpose, Purpose::Pair { pair: 1, rerun: 1, first: true });
    assert_eq!(second.executed[0].number, 6, "numbers go on, so files of different attempts never meet");
}

#[test]
fn what_cannot_be_carried_out_stops_the_run_and_is_kept() {
    let mut events = Vec::new();
    let mut run = PairedRun::new(definition(4, 1));
    let broken =
        run.run(&mut script().fault(3, Fault::Error("disk full".into())), &mut events, &CancelToken::new());
    assert!(
        matches!(broken, Err(RunError::Execute { attempt: Attempt { number: 3, .. }, .. })),
        "{broken:?}"
    );
    assert!(matches!(events.last(), Some(Event::AttemptInterrupted { .. })));
    assert_eq!(run.run(&mut script(), &mut events, &CancelToken::new()).unwrap(), RunOutcome::Complete);
}

#[test]
fn an_interruption_that_no_rule_answers_blocks() {
    let mut definition = definition(4, 0);
    definition.invalidation.conditions.clear();
    let (outcome, events, _) = run(definition.clone(), script());
    assert_eq!(outcome, RunOutcome::Complete);
    // Cut in the middle of the second pair: began, then start and end for each attempt.
    let mut resumed = PairedRun::resume(definition, &events[..1 + 5]).unwrap();
    let outcome = resumed.run(&mut script(), &mut Vec::new(), &CancelToken::new()).unwrap();
    assert!(matches!(outcome, RunOutcome::Blocked { pair: 1, .. }), "{outcome:?}");
}

#[test]
fn events_of_another_run_are_refused() {
    let (_, events, _) = run(definition(4, 1), script());
    let refused = |definition, events: &[Event]| PairedRun::resume(definition, events).unwrap_err();
    assert_eq!(refused(definition(5, 1), &events), ResumeError::OtherDefinition);
    let mut gap = events.clone();
    gap.remove(4);
    assert!(matches!(refused(definition(4, 1), &gap), ResumeError::Unexpected { event: 4, .. }));
    let mut twice = events.clone();
    twice.insert(3, events[0].clone());
    let source = Unexpected::BeganTwice;
    assert_eq!(refused(definition(4, 1), &twice), ResumeError::Unexpected { event: 3, source });
}

#[test]
fn a_sample_carries_time_and_telemetry() {
    let warm = Scripted::new(|attempt| if attempt.arm == Arm::Baseline { 100.0 } else { 110.0 });
    let mut run = PairedRun::new(definition(4, 0));
    let outcome = run.run(
        &mut warm.fault(0, Fault::Telemetry("only_once".into(), 1.0)),
        &mut Vec::new(),
        &CancelToken::new(),
    );
    assert_eq!(outcome.unwrap(), RunOutcome::Complete);
    let sample = run.sample("wall_ms").unwrap();
    assert_eq!(sample.ratios(), [1.1; 4]);
    assert_eq!(sample.elapsed_s(), Some(&[0.0, 0.21, 0.42, 0.63][..]));
    let names: Vec<&str> = sample.telemetry().iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["cpu_per_wall", "cpu_per_wall_difference"]);
}

/// Counts how often each member of each pair was accepted, and which values the pairs have.
fn accepted(run: &PairedRun) -> Vec<(u32, u32)> {
    run.pairs().iter().map(|pair| (pair[0].attempt.number, pair[1].attempt.number)).collect()
}

proptest! {
    /// A run killed after any event, any number of times, ends with every pair taken once, keeps every pair
    /// that was complete, and never starts an attempt under a number that was used.
    #[test]
    fn killed_anywhere_nothing_is_lost_or_taken_twice(cuts in prop::collection::vec(1_usize..40, 0..6), pairs in 1_u32..8) {
        let mut definition = definition(pairs, 1);
        definition.invalidation.reruns_per_row = 99;
        definition.invalidation.reruns_per_pair = 99;
        let mut events: Vec<Event> = Vec::new();
        let mut kept: Vec<(u32, u32)> = Vec::new();
        for cut in cuts {
            let mut run = PairedRun::resume(definition.clone(), &events).unwrap();
            let mut limited = Limited { events: Vec::new(), left: cut };
            let died = run.run(&mut script(), &mut limited, &CancelToken::new());
            events.extend(limited.events);
            let seen = accepted(&PairedRun::resume(definition.clone(), &events).unwrap());
            prop_assert_eq!(&seen[..kept.len()], &kept[..]);
            kept = seen;
            if died.is_ok() { break }
        }
        let mut last = PairedRun::resume(definition.clone(), &events).unwrap();
        prop_assert_eq!(last.run(&mut script(), &mut events, &CancelToken::new()).unwrap(), RunOutcome::Complete);
        let seen = accepted(&last);
        prop_assert_eq!(&seen[..kept.len()], &kept[..]);
        prop_assert_eq!(seen.len(), pairs as usize);
        prop_assert!(seen.iter().all(|&(first, second)| second == first + 1), "members are adjacent");
        let started: Vec<u32> = events.iter().filter_map(|event| match event {
            Event::AttemptStarted { attempt } => Some(attempt.number),
            _ => None,
        }).collect();
        prop_assert!(started.windows(2).all(|two| two[1] == two[0] + 1));
    }
}

/// Keeps so many events and dies.
struct Limited {
    events: Vec<Event>,
    left: usize,
}

impl Recorder for Limited {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        self.left = self.left.checked_sub(1).ok_or("killed")?;
        self.events.push(event.clone());
        Ok(())
    }
}
