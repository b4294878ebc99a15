use super::*;
use crate::random::Stream;
use crate::sample::{Pair, Series};
use crate::schedule::Schedule;

/// Sixty pairs whose log ratio is noise of about 4 % plus what `add` says for (index, first arm).
fn sample(seed: u64, add: impl Fn(usize, Arm) -> f64) -> PairedSample {
    let schedule = Schedule::generate(seed, 60, 0);
    let mut stream = Stream::new("noise", seed);
    let mut uniform = move || f64::from(stream.below(1 << 24)) / f64::from(1 << 24);
    let mut noise = move || ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) * 0.04;
    let pair = |(index, &first): (usize, &Arm)| {
        let candidate = 100.0 * (noise() + add(index, first)).exp();
        Pair { pair: u32::try_from(index).unwrap(), first: Some(first), baseline: 100.0, candidate }
    };
    PairedSample::new("ms", schedule.first.iter().enumerate().map(pair).collect()).unwrap()
}

fn breached(sample: &PairedSample, definition: DiagnosticsDefinition) -> Vec<String> {
    let found = Examiner::new(definition).unwrap().examine(sample);
    found.breaches().map(|result| result.test.to_string()).collect()
}

#[test]
fn each_disturbance_is_named() {
    let check = |sample: PairedSample, expected: &str| {
        let names = breached(&sample, DiagnosticsDefinition::default());
        assert!(names.iter().any(|name| name == expected), "wanted {expected}, found {names:?}");
    };
    check(sample(1, |index, _| index as f64 * 0.003), "order_trend");
    check(sample(2, |index, _| if index < 24 { 0.0 } else { 0.1 }), "change_point");
    check(sample(3, |_, first| if first == Arm::Baseline { 0.05 } else { -0.05 }), "arm_order");
    check(sample(4, |index, _| if index / 3 % 2 == 0 { 0.06 } else { -0.06 }), "serial_correlation");
    let late: Vec<f64> = (0..60_u32).map(|index| if index < 50 { f64::from(index) } else { 1e4 }).collect();
    let slow_end = sample(5, |index, _| if index < 50 { 0.0 } else { 0.12 }).with_elapsed_s(late).unwrap();
    check(slow_end, "elapsed_trend");
}

#[test]
fn quiet_pairs_raise_no_alarm() {
    for seed in 10..20 {
        assert_eq!(
            breached(&sample(seed, |_, _| 0.0), DiagnosticsDefinition::default()),
            [""; 0],
            "seed {seed}"
        );
    }
}

#[test]
fn telemetry_is_tested_where_declared_and_recorded() {
    let temperature: Vec<f64> = (0..60).map(|index| 50.0 + f64::from(index * 7 % 13)).collect();
    let warm = temperature.clone();
    let sample = sample(1, move |index, _| (warm[index] - 56.0) * 0.01);
    let declared = DiagnosticsDefinition {
        telemetry: vec!["temperature_c".to_owned(), "frequency_mhz".to_owned()],
        ..DiagnosticsDefinition::default()
    };
    let sample =
        sample.with_telemetry(Series { name: "temperature_c".to_owned(), values: temperature }).unwrap();
    let found = Examiner::new(declared).unwrap().examine(&sample);
    let outcome =
        |name: &str| found.tests.iter().find(|result| result.test.to_string() == name).unwrap().outcome;
    assert!(matches!(outcome("telemetry:temperature_c"), TestOutcome::Breached(_)));
    assert_eq!(outcome("telemetry:frequency_mhz"), TestOutcome::NotApplied { why: NotApplied::NotRecorded });
}

#[test]
fn thresholds_add_up_to_the_share_of_the_row() {
    let definition = DiagnosticsDefinition { telemetry: vec!["a".into(), "b".into()], ..Default::default() };
    let sum: f64 = definition.thresholds().iter().map(|(_, threshold)| threshold).sum();
    assert!((sum - 0.0125).abs() < 1e-12, "{sum}");
}

#[test]
fn a_threshold_out_of_reach_is_refused() {
    let few = DiagnosticsDefinition { permutations: 99, ..Default::default() };
    let error = few.check().unwrap_err();
    assert!(matches!(error, DefinitionError::TooFewPermutations { permutations: 99, .. }), "{error}");
    let check = |definition: DiagnosticsDefinition, expected| assert_eq!(definition.check(), Err(expected));
    check(DiagnosticsDefinition { rows: 0, ..Default::default() }, DefinitionError::NoRow);
    let permutations = u32::MAX;
    check(
        DiagnosticsDefinition { permutations, ..Default::default() },
        DefinitionError::TooManyPermutations { permutations },
    );
    let telemetry = ["a", "b", "a"].map(str::to_owned).to_vec();
    let name = "a".to_owned();
    check(
        DiagnosticsDefinition { telemetry, ..Default::default() },
        DefinitionError::SeriesRepeated { name },
    );
    check(DiagnosticsDefinition { lags: 0, ..Default::default() }, DefinitionError::NoLag);
}

#[test]
fn ties_are_permuted_and_constants_not_applied() {
    let tied = |candidate: fn(u32) -> f64| {
        let pair = |index| Pair {
            pair: index,
            first: Some(Arm::BOTH[index as usize % 2]),
            baseline: 10.0,
            candidate: candidate(index),
        };
        let sample = PairedSample::new("ms", (0..60).map(pair).collect()).unwrap();
        Examiner::new(DiagnosticsDefinition::default()).unwrap().examine(&sample)
    };
    let rounded = tied(|index| f64::from(10 + index * 31 % 7));
    let calculated = |result: &TestResult| match result.outcome {
        TestOutcome::Held(value) | TestOutcome::Breached(value) => Some(value.calculation),
        TestOutcome::NotApplied { .. } => None,
    };
    let calculations: Vec<_> = rounded.tests.iter().filter_map(calculated).collect();
    assert_eq!(calculations, [Calculation::Permutations(19_999); 4]);
    let constant = tied(|_| 10.0);
    let not_applied = TestOutcome::NotApplied { why: NotApplied::Constant };
    assert!(
        constant
            .tests
            .iter()
            .all(|result| result.outcome == not_applied || result.test == TestName::ElapsedTrend)
    );
}

#[test]
fn results_survive_a_round_trip() {
    let found = Examiner::new(DiagnosticsDefinition::default()).unwrap().examine(&sample(1, |_, _| 0.0));
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Diagnostics>(&text).unwrap(), found);
}
