use proptest::prelude::*;

use super::*;
use crate::sample::Pair;
use crate::schedule::{Arm, Schedule};

/// A gate for few pairs whose permutations are cheap.
fn gate(pairs: u32) -> Gate {
    let diagnostics = DiagnosticsDefinition { rows: 1, permutations: 999, lags: 3, ..Default::default() };
    let readers = ReaderDefinition { bootstrap_resamples: 200, ..Default::default() };
    Gate { pairs, diagnostics, readers, ..Gate::default() }
}

fn sample(ratios: &[f64]) -> PairedSample {
    let schedule = Schedule::generate(1, u32::try_from(ratios.len()).unwrap(), 0);
    let pair = |(index, (&ratio, &first)): (usize, (&f64, &Arm))| Pair {
        pair: u32::try_from(index).unwrap(),
        first: Some(first),
        baseline: 100.0,
        candidate: 100.0 * ratio,
    };
    PairedSample::new("ms", ratios.iter().zip(&schedule.first).enumerate().map(pair).collect()).unwrap()
}

/// `count` ratios around `centre`, at most `spread` away, in an order without pattern.
fn scattered(count: u32, centre: f64, spread: f64) -> Vec<f64> {
    let mut stream = crate::random::Stream::new("scatter", u64::from(count));
    (0..count).map(|_| centre + spread * (f64::from(stream.below(2_001)) / 1_000.0 - 1.0)).collect()
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive { .. } => "inconclusive",
    }
}

#[test]
fn the_limit_decides() {
    let check = |centre: f64, expected: &str| {
        let judged = gate(60).judge(&sample(&scattered(60, centre, 0.02))).unwrap();
        assert_eq!(word(&judged.verdict), expected, "{centre}: {:?}", judged.verdict);
        assert_eq!(judged.method, Method::OrderStatistics);
        let estimate = judged.deciding();
        assert_eq!(
            (estimate.lower.unwrap().rank, estimate.upper.unwrap().rank, estimate.count),
            (24, 37, 60)
        );
    };
    check(1.0, "pass");
    check(1.02, "pass");
    check(1.05, "inconclusive");
    check(1.09, "fail");
}

/// Campaigns of equal programs pass about as often as each of them states for its own noise.
#[test]
fn equal_programs_pass_as_often_as_stated() {
    const CAMPAIGNS: u32 = 150;
    let prepared = gate(60).prepare().unwrap();
    let check = |name: &str, sd: f64, expected: std::ops::Range<f64>| {
        let world = crate::World::all().iter().find(|world| world.name() == name).unwrap();
        let (mut passed, mut stated) = (0, 0.0);
        for campaign in 0..CAMPAIGNS {
            let judged = prepared.judge(&world.noise("equal", campaign, 60, sd).at(1.0)).unwrap();
            passed += u32::from(judged.verdict == Verdict::Pass);
            stated += judged.for_readers.equal_pass_probability;
        }
        let (passed, stated) = (f64::from(passed) / f64::from(CAMPAIGNS), stated / f64::from(CAMPAIGNS));
        assert!(expected.contains(&stated), "{name} {sd}: stated {stated:.3}");
        // Three standard errors of a share of 150 are 0.12 at most.
        assert!((passed - stated).abs() < 0.12, "{name} {sd}: {passed:.3} passed, stated {stated:.3}");
    };
    check("independent", 0.04, 0.9..1.0);
    check("independent", 0.12, 0.5..0.9);
    check("independent", 0.2, 0.2..0.6);
    check("heavy-tailed", 0.12, 0.5..1.0);
}

#[test]
fn without_a_bound_that_is_far_enough_out_equal_programs_never_pass() {
    // One pair below the rank that dependence pushes outwards: the wide bound lies outside of the sample.
    let drifting: Vec<f64> = (0..60).map(|at| 0.8 + f64::from(at) * 0.01).collect();
    let judged = gate(60).judge(&sample(&drifting)).unwrap();
    assert_eq!(judged.dependence_aware.upper, None);
    assert!(judged.for_readers.equal_pass_probability.abs() < f64::EPSILON);
    let alone = Gate { corroborate: false, ..gate(60) }.judge(&sample(&drifting)).unwrap();
    assert!(alone.for_readers.equal_pass_probability > 0.0);
}

#[test]
fn an_upper_bound_at_the_limit_passes_and_a_lower_bound_at_it_does_not_fail() {
    let exactly = sample(&[1.05; 60]);
    assert_eq!(gate(60).judge(&exactly).unwrap().verdict, Verdict::Pass);
}

#[test]
fn another_number_of_pairs_is_another_experiment() {
    let more = sample(&scattered(61, 1.0, 0.02));
    assert_eq!(gate(60).judge(&more), Err(GateError::Count { declared: 60, found: 61 }));
}

#[test]
fn a_breach_is_inconclusive_or_dependence_aware_but_never_decided_by_order_statistics() {
    let mut drifting = scattered(60, 0.9, 0.02);
    drifting.iter_mut().enumerate().for_each(|(index, ratio)| *ratio += index as f64 * 0.001);
    let undeclared = gate(60).judge(&sample(&drifting)).unwrap();
    assert_eq!(word(&undeclared.verdict), "inconclusive");
    let declared = Gate { on_breach: OnBreach::DependenceAware, ..gate(60) };
    assert_eq!(declared.judge(&sample(&drifting)).unwrap().method, Method::DependenceAware);
}

#[test]
fn an_unknown_order_of_the_arms_is_a_reason() {
    let known = sample(&scattered(60, 1.0, 0.02));
    let unknown = known.pairs().iter().map(|pair| Pair { first: None, ..*pair }).collect();
    let unknown = PairedSample::new("ms", unknown).unwrap();
    let reasons = vec![Reason::ArmOrderUnknown];
    assert_eq!(gate(60).judge(&unknown).unwrap().verdict, Verdict::Inconclusive { reasons });
    let mut tolerant = gate(60);
    tolerant.diagnostics.require_arm_order = false;
    assert_eq!(tolerant.judge(&unknown).unwrap().verdict, Verdict::Pass);
}

#[test]
fn definitions_that_cannot_decide_are_refused() {
    let check = |gate: Gate, message: &str| assert_eq!(gate.prepare().err().unwrap().to_string(), message);
    check(Gate { limit_ratio: 0.0, ..gate(60) }, "use 0 as the limit of a ratio");
    check(Gate { limit_ratio: f64::NAN, ..gate(60) }, "use NaN as the limit of a ratio");
    check(gate(2_001), "judge 2001 pairs, more than 2000");
    let readers = ReaderDefinition { bootstrap_resamples: u32::MAX, ..Default::default() };
    check(Gate { readers, ..gate(60) }, "bootstrap 4294967295 resamples, more than 1000000");
    check(gate(4), "bound the quantile 0.5 at confidence 0.95 with 4 pairs, which are too few");
}

/// Bounds exist for five pairs, and nothing can be said about dependence among them.
#[test]
fn a_prepared_gate_tells_what_it_was_prepared_from() {
    let mut given = gate(30);
    given.limit_ratio = 1.25;
    assert_eq!(given.clone().prepare().unwrap().definition(), &given);
}

#[test]
fn pairs_that_nobody_examined_do_not_decide() {
    let mut few = Gate { corroborate: false, ..gate(6) };
    let judged = few.judge(&sample(&scattered(6, 1.0, 0.01))).unwrap();
    assert_eq!(judged.verdict, Verdict::Pass, "three lags can be looked at");
    few.diagnostics.lags = 8;
    let judged = few.judge(&sample(&scattered(6, 1.0, 0.01))).unwrap();
    let Verdict::Inconclusive { reasons } = &judged.verdict else { panic!("{judged:?}") };
    assert_eq!(reasons, &[Reason::TooFewPairsToExamine { pairs: 6 }]);
    assert_eq!(reasons[0].to_string(), "6 pairs are too few for the declared diagnostics");
}

/// What an inconclusive verdict says, as the rest of a sentence.
#[test]
fn every_reason_can_be_said() {
    let check = |reason: Reason, expected: &str| assert_eq!(reason.to_string(), expected);
    check(
        Reason::BoundsStraddleLimit { lower_ratio: Some(1.0), upper_ratio: None },
        "the limit lies between the bounds 1.0000 and no bound",
    );
    let test = TestName::Telemetry("temperature_c".to_owned());
    check(
        Reason::DiagnosticBreached { test, p_value: 0.001, threshold: 0.0125 },
        "the diagnostic telemetry:temperature_c was breached (p = 0.00100, threshold 0.01250)",
    );
    check(
        Reason::NotCorroborated { bound_ratio: Some(1.0612), rank_distance_factor: 1.5 },
        "the bound that allows for dependence (1.0612, 1.50 times as far out) does not agree",
    );
    check(Reason::ArmOrderUnknown, "it is not known which arm ran first in each pair");
}

#[test]
fn a_judgement_survives_a_round_trip_and_an_unknown_key_is_refused() {
    let judged = gate(60).judge(&sample(&scattered(60, 1.05, 0.02))).unwrap();
    let text = serde_json::to_string(&judged).unwrap();
    assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judged);
    assert!(serde_json::from_str::<Gate>(r#"{"limit_ratios": 1.1}"#).is_err());
    assert_eq!(serde_json::from_str::<Gate>("{}").unwrap(), Gate::default());
}

fn reasons(judged: &Judgement) -> &[Reason] {
    match &judged.verdict {
        Verdict::Inconclusive { reasons } => reasons,
        Verdict::Pass | Verdict::Fail => &[],
    }
}

/// The limit itself is allowed: what is not above it does not fail.
#[test]
fn a_lower_bound_at_the_limit_does_not_fail_beside_an_upper_bound_above_it() {
    let mut stream = crate::random::Stream::new("two values", 1);
    let mut ratios = [vec![1.05; 30], vec![1.06; 30]].concat();
    stream.shuffle(&mut ratios);
    let judged = gate(60).judge(&sample(&ratios)).unwrap();
    let (lower_ratio, upper_ratio) = (Some(1.05), Some(1.06));
    assert!(
        reasons(&judged).contains(&Reason::BoundsStraddleLimit { lower_ratio, upper_ratio }),
        "{judged:?}"
    );
}

/// The largest that is allowed is allowed.
#[test]
fn limits_of_a_definition_are_part_of_what_is_allowed() {
    let readers = ReaderDefinition { bootstrap_resamples: MAX_RESAMPLES, ..Default::default() };
    for gate in [gate(MAX_PAIRS), Gate { readers, ..gate(60) }] {
        assert!(gate.prepare().is_ok(), "{gate:?}");
    }
    // Twenty pairs bound the 95th percentile from below and not from above, and the fifth the other way round.
    for quantile in [0.95, 0.05] {
        let one_sided = Gate { quantile: Probability::new(quantile).unwrap(), ..gate(20) };
        assert!(matches!(one_sided.prepare().err(), Some(GateError::TooFewPairs { .. })), "{quantile}");
    }
}

/// Bounds that allow for dependence decide only when a breach asks for them, and only one that they answer.
#[test]
fn dependence_aware_bounds_are_for_breaches_about_time() {
    let declared = Gate { on_breach: OnBreach::DependenceAware, ..gate(60) };
    let quiet = declared.judge(&sample(&scattered(60, 1.0, 0.02))).unwrap();
    assert_eq!((quiet.diagnostics.breaches().count(), quiet.method), (0, Method::OrderStatistics));
    let schedule = Schedule::generate(1, 60, 0);
    let mut biased = scattered(60, 0.9, 0.02);
    for (ratio, first) in biased.iter_mut().zip(&schedule.first) {
        *ratio += if *first == Arm::Baseline { 0.02 } else { -0.02 };
    }
    let biased = declared.judge(&sample(&biased)).unwrap();
    let is_of_order = |reason: &Reason| {
        matches!(reason, Reason::DiagnosticBreached { test: TestName::ArmOrder, p_value, threshold }
            if p_value < threshold)
    };
    assert!(reasons(&biased).iter().any(is_of_order), "{:?}", biased.verdict);
    assert_eq!((biased.method, word(&biased.verdict)), (Method::OrderStatistics, "inconclusive"));
    let mut drifting = scattered(60, 0.9, 0.02);
    drifting.iter_mut().enumerate().for_each(|(index, ratio)| *ratio += index as f64 * 0.001);
    assert_eq!(gate(60).judge(&sample(&drifting)).unwrap().method, Method::OrderStatistics);
    assert!(
        reasons(&declared.judge(&sample(&drifting)).unwrap())
            .iter()
            .all(|reason| { !matches!(reason, Reason::DiagnosticBreached { .. }) })
    );
}

/// Where the exact bounds lie on one side of the limit and the wider ones do not, the wider one on that side is named.
#[test]
fn what_is_not_corroborated_names_the_bound_on_its_side() {
    let quiet = |count: u32| {
        let judged = gate(count).judge(&sample(&scattered(count, 1.0, 0.02))).unwrap();
        let (exact, wide) = (judged.order_statistics, judged.dependence_aware);
        let is_wider = wide.lower?.ratio < exact.lower?.ratio && wide.upper?.ratio > exact.upper?.ratio;
        (is_wider && judged.diagnostics.breaches().count() == 0).then_some((count, judged))
    };
    let (count, judged) = (30..120).find_map(quiet).expect("pairs that look a little dependent");
    let (exact, wide) = (judged.order_statistics, judged.dependence_aware);
    for (limit_ratio, bound) in
        [(exact.upper.unwrap().ratio, wide.upper), (wide.lower.unwrap().ratio, wide.lower)]
    {
        let strict = Gate { limit_ratio, ..gate(count) };
        let judged = strict.judge(&sample(&scattered(count, 1.0, 0.02))).unwrap();
        let expected = Reason::NotCorroborated {
            bound_ratio: bound.map(|bound| bound.ratio),
            rank_distance_factor: judged.dependence.rank_distance_factor,
        };
        assert_eq!(reasons(&judged), [expected], "{limit_ratio}");
        let alone = Gate { corroborate: false, ..strict };
        assert!(reasons(&alone.judge(&sample(&scattered(count, 1.0, 0.02))).unwrap()).is_empty());
    }
}

/// Hyndman and Fan's seventh definition, by hand.
#[test]
fn a_sample_quantile_lies_between_its_neighbours() {
    for (sorted, quantile, expected) in [
        (&[5.0][..], 0.5, 5.0),
        (&[1.0, 2.0, 3.0, 4.0], 0.5, 2.5),
        (&[1.0, 2.0, 3.0, 4.0], 0.25, 1.75),
        (&[1.0, 2.0, 4.0], 0.9, 3.6),
        (&[1.0, 2.0, 4.0], 0.5, 2.0),
    ] {
        assert!((sample_quantile(sorted, quantile) - expected).abs() < 1e-12, "{sorted:?} {quantile}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn permuting_pairs_keeps_the_bounds(seed: u64, ratios in prop::collection::vec(0.8_f64..1.3, 30)) {
        let mut shuffled = ratios.clone();
        crate::random::Stream::new("test", seed).shuffle(&mut shuffled);
        let prepared = gate(30).prepare().unwrap();
        let bounds = |ratios: &[f64]| prepared.judge(&sample(ratios)).unwrap().order_statistics;
        prop_assert_eq!(bounds(&ratios), bounds(&shuffled));
    }

    #[test]
    fn swapping_arms_mirrors_the_verdict(
        ratios in prop::collection::vec(0.8_f64..1.3, 30),
        limit in 0.95_f64..1.1,
    ) {
        let sample = sample(&ratios);
        let judged = Gate { limit_ratio: limit, ..gate(30) }.judge(&sample).unwrap();
        let mirrored = Gate { limit_ratio: 1.0 / limit, ..gate(30) }.judge(&sample.swapped()).unwrap();
        let expected = match word(&judged.verdict) { "pass" => "fail", "fail" => "pass", other => other };
        prop_assert_eq!(word(&mirrored.verdict), expected);
        let (lower, upper) = (judged.order_statistics.lower.unwrap(), judged.order_statistics.upper.unwrap());
        prop_assert!((mirrored.order_statistics.lower.unwrap().ratio * upper.ratio - 1.0).abs() < 1e-12);
        prop_assert!((mirrored.order_statistics.upper.unwrap().ratio * lower.ratio - 1.0).abs() < 1e-12);
    }

    #[test]
    fn scaling_both_arms_changes_no_bound(
        ratios in prop::collection::vec(0.8_f64..1.3, 30),
        scale in 0_i32..40,
    ) {
        let sample = sample(&ratios);
        let factor = 2_f64.powi(scale - 20);
        let scale = |pair: &Pair| {
            Pair { baseline: pair.baseline * factor, candidate: pair.candidate * factor, ..*pair }
        };
        let scaled = PairedSample::new("ms", sample.pairs().iter().map(scale).collect()).unwrap();
        let prepared = gate(30).prepare().unwrap();
        prop_assert_eq!(prepared.judge(&sample).unwrap().verdict, prepared.judge(&scaled).unwrap().verdict);
    }
}
