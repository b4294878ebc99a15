use std::collections::BTreeMap;

use super::*;
use crate::campaign::{all_labels, asked_for, measurable};
use crate::definition::{Review, ReviewKind};
use crate::record::{Both, Growth, Measurable};

fn row(outcome: RowOutcome) -> RowRecord {
    RowRecord {
        row: "row".into(),
        options: Vec::new(),
        digests: Both { baseline: Vec::new(), candidate: Vec::new() },
        stable: Both { baseline: true, candidate: true },
        equal: true,
        coverage: Both { baseline: None, candidate: None },
        difference: None,
        drift: Vec::new(),
        classification: None,
        outcome,
    }
}

fn measured(verdict: PerformanceVerdict) -> MeasureRecord {
    MeasureRecord {
        row: "row".into(),
        metric: "replay_execution_ms".into(),
        labels: Vec::new(),
        verdict,
        reasons: Vec::new(),
        judgement: None,
        median_ms: None,
        ratio: None,
        attempts: BTreeMap::new(),
        wall_ms: 0,
        profile: None,
    }
}

/// Every outcome that is not a match, and the conclusion it leads to whatever was measured.
fn grave() -> Vec<(RowOutcome, Conclusion)> {
    vec![
        (RowOutcome::Differs, Conclusion::Fail),
        (RowOutcome::Unqualified { items: vec!["x".into()] }, Conclusion::Fail),
        (RowOutcome::Unstable { sides: vec![crate::record::Side::Candidate] }, Conclusion::Unstable),
        (RowOutcome::TargetFailed { fault: "x".into() }, Conclusion::TargetFailed),
        (RowOutcome::StopForReview { reason: "x".into() }, Conclusion::StopForReview),
    ]
}

#[test]
fn one_bad_row_is_enough_to_fail() {
    assert_eq!(
        semantic_verdict(&[row(RowOutcome::Match), row(RowOutcome::Match)], &[]),
        SemanticVerdict::Pass
    );
    assert_eq!(semantic_verdict(&[], &[]), SemanticVerdict::Fail);
    for (outcome, _) in grave() {
        assert_eq!(semantic_verdict(&[row(RowOutcome::Match), row(outcome)], &[]), SemanticVerdict::Fail);
    }
}

#[test]
fn reviews_that_lift_nothing_are_stale() {
    let review = |kind, subject: &str| Review {
        kind,
        subject: subject.into(),
        reason: "x".into(),
        reviewer: "x".into(),
        date: "2026-01-01".into(),
    };
    let reviews = [
        review(ReviewKind::Growth, "size"),
        review(ReviewKind::Growth, "text"),
        review(ReviewKind::Exclusion, "/planner/html_report_path"),
    ];
    let growth = |size_ratio, text_ratio| Growth { size_ratio, text_ratio };
    for (growth, expected) in [
        (growth(0.06, 0.06), vec!["exclusion /planner/html_report_path"]),
        (growth(0.06, 0.05), vec!["growth text", "exclusion /planner/html_report_path"]),
        (growth(0.0, 0.0), vec!["growth size", "growth text", "exclusion /planner/html_report_path"]),
    ] {
        assert_eq!(stale_reviews(&reviews, growth, 0.05, &[], &[], &[row(RowOutcome::Match)]), expected);
    }
}

#[test]
fn a_row_that_was_not_asked_for_is_no_pass_and_the_verdict_says_what_it_is_of() {
    use PerformanceVerdict::{NotMeasured, Pass};
    let mut definition = crate::definition::tests::good();
    let mut other = definition.rows[0].clone();
    other.name = "other".into();
    definition.rows.push(other);
    let named = |name: &str, verdict| MeasureRecord { row: name.into(), ..measured(verdict) };
    let records = [named("vllm-aggregated", Pass), named("other", NotMeasured)];
    assert_eq!(performance_verdict(&asked_for(&definition, &records)), PerformanceVerdict::Inconclusive);
    assert!(!all_labels(&definition, &records).iter().any(|label| label.contains("IN PART")));

    definition.measure.rows = vec!["vllm-aggregated".into()];
    let matching = |name: &str| RowRecord { row: name.into(), ..row(RowOutcome::Match) };
    let decision = |name: &str| measurable(&definition, &matching(name), None);
    assert!(matches!(decision("vllm-aggregated"), Measurable::Yes));
    let Measurable::No { reason } = decision("other") else { panic!("it was not asked for") };
    assert_eq!(reason, "not asked for: measure.rows does not name it");
    assert_eq!(performance_verdict(&asked_for(&definition, &records)), Pass);
    let part = "IN PART: 1 of 2 rows asked to be measured: vllm-aggregated";
    assert!(all_labels(&definition, &records).iter().any(|label| label == part));
    let unmeasured = [named("vllm-aggregated", NotMeasured), named("other", NotMeasured)];
    assert_eq!(performance_verdict(&asked_for(&definition, &unmeasured)), NotMeasured);
}

#[test]
fn the_worst_measured_row_decides() {
    use PerformanceVerdict::{Blocked, Fail, Inconclusive, NotMeasured, Pass};
    for (rows, expected) in [
        (vec![], NotMeasured),
        (vec![NotMeasured, NotMeasured], NotMeasured),
        (vec![Pass, Pass], Pass),
        (vec![Pass, NotMeasured], Inconclusive),
        (vec![Pass, Inconclusive], Inconclusive),
        (vec![Inconclusive, Blocked], Blocked),
        (vec![Blocked, Fail, Pass], Fail),
    ] {
        let records: Vec<MeasureRecord> = rows.iter().copied().map(measured).collect();
        assert_eq!(performance_verdict(&records), expected, "{rows:?}");
    }
}

fn report(outcomes: Vec<RowOutcome>, performance: PerformanceVerdict) -> Report {
    let text = include_str!("../../../../testdata/bundles/demo-report.json");
    let mut report: Report = serde_json::from_str(text).expect("a report of this schema");
    report.rows = outcomes.into_iter().map(row).collect();
    report.semantic = semantic_verdict(&report.rows, &[]);
    report.performance = performance;
    report.stops = Vec::new();
    report
}

#[test]
fn a_grave_outcome_is_never_hidden_by_a_pass() {
    for (outcome, conclusion) in grave() {
        let report = report(vec![RowOutcome::Match, outcome], PerformanceVerdict::Pass);
        assert_eq!(report.conclusion(), conclusion);
    }
}

#[test]
fn an_exception_free_match_still_needs_its_performance() {
    use PerformanceVerdict::{Blocked, Fail, Inconclusive, NotMeasured, Pass};
    for (performance, conclusion) in [
        (Pass, Conclusion::Pass),
        (Fail, Conclusion::Fail),
        (Inconclusive, Conclusion::Inconclusive),
        (NotMeasured, Conclusion::Inconclusive),
        (Blocked, Conclusion::TargetFailed),
    ] {
        assert_eq!(report(vec![RowOutcome::Match], performance).conclusion(), conclusion);
    }
}

#[test]
fn a_stop_outranks_everything() {
    let mut report = report(vec![RowOutcome::TargetFailed { fault: "x".into() }], PerformanceVerdict::Fail);
    report.stops.push("grew".into());
    assert_eq!(report.conclusion(), Conclusion::StopForReview);
}

#[test]
fn the_comment_fits_whatever_the_rows_say() {
    let long = RowOutcome::Unqualified {
        items: (0..5_000).map(|at| format!("item {at}: ä says too much")).collect(),
    };
    let text = markdown(&report(vec![long], PerformanceVerdict::NotMeasured));
    assert!(text.chars().count() <= PULL_REQUEST_COMMENT_CHARS, "{}", text.chars().count());
    assert!(text.contains("semantic: **FAIL**") && text.contains("Cut to fit"));
}

#[test]
fn a_preflight_says_so() {
    let mut report = report(vec![RowOutcome::Match], PerformanceVerdict::Pass);
    report.preflight = true;
    assert!(markdown(&report).contains("**Preflight.**"));
}
