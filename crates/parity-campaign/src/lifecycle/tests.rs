use testkit::{edit_pointer, reports};

use super::*;
use crate::coverage::Expectation;
use crate::definition::tests::good;
use crate::definition::{Engine, PressureBand, Row, Topology};

fn lifecycle(kind: LifecycleKind, row: Row) -> Lifecycle {
    Lifecycle { kind, revision: PatchTarget::Both, reason: None, requests: None, row: Some(row), test: None }
}

/// The rows of the small reports, as a campaign file declares them.
fn row(name: &str) -> Row {
    let text = good_with_rows();
    text.rows.into_iter().find(|row| row.name == name).expect("a row of that name")
}

fn good_with_rows() -> Definition {
    let rows: toml::Value = toml::from_str(testkit::ROWS_TOML).expect("rows");
    let rows: Vec<Row> = rows["row"].clone().try_into().expect("rows");
    Definition { rows, ..good() }
}

fn totals(report: &str) -> WorkloadTotals {
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    let number = |key: &str| report["summary"][key].as_u64().expect("a number");
    WorkloadTotals {
        requests: number("num_requests"),
        input_tokens: number("total_input_tokens"),
        output_tokens: number("total_output_tokens"),
    }
}

/// What stands against a lifecycle in a report whose totals are those of `original`.
fn found(kind: LifecycleKind, row: &Row, original: &str, report: &str) -> Vec<String> {
    let expectation = Expectation::new(row, totals(original))
        .with_reviewed_exclusions(["/planner/html_report_path"].into());
    let coverage = Coverage::check(report.as_bytes(), &expectation).expect("a report");
    against_coverage(kind, &coverage)
}

/// A real report shows its lifecycle; with one value changed it does not, and the item that says so is named.
fn check(kind: LifecycleKind, row: &Row, report: &str, edits: &[(&str, &str, &str)]) {
    assert_eq!(found(kind, row, report, report), Vec::<String>::new(), "{kind:?}");
    for (pointer, value, item) in edits {
        let against = found(kind, row, report, &edit_pointer(report, pointer, value));
        assert!(against.iter().any(|what| what.starts_with(item)), "{pointer} = {value}: {against:?}");
    }
}

#[test]
fn an_edge_without_readmission_or_with_standing_time_is_none() {
    let record = "/coverage/pressure/records/0/";
    for (name, report) in
        [("vllm-aggregated", reports::VLLM_AGGREGATED), ("sglang-aggregated", reports::SGLANG_AGGREGATED)]
    {
        check(
            LifecycleKind::PreemptionEdge,
            &row(name),
            report,
            &[
                (&format!("{record}readmitted_at_ms"), "null", "q2.readmitted"),
                ("/summary/duration_ms", "0.0", "q2.virtual_time"),
                ("/per_request/0/terminal_status", "\"failed\"", "q2.terminal_status"),
                ("/metadata/replay_bench", "false", "d3.replay_bench"),
            ],
        );
    }
}

#[test]
fn an_edge_outside_its_band_is_none() {
    let report = reports::VLLM_AGGREGATED;
    let edge = row("vllm-aggregated");
    let beyond = Row { pressure: PressureBand { min: 19, max: 20 }, ..edge.clone() };
    assert!(found(LifecycleKind::PreemptionEdge, &beyond, report, report)[0].starts_with("q2.pressure_band"));
    let none = Row { pressure: PressureBand { min: 0, max: 0 }, ..edge };
    assert!(found(LifecycleKind::PreemptionEdge, &none, report, report)[0].starts_with("q2.pressure_band"));
}

#[test]
fn a_handoff_out_of_order_is_none() {
    for (kind, name, report) in [
        (LifecycleKind::VllmHandoff, "vllm-disaggregated", reports::VLLM_DISAGGREGATED),
        (LifecycleKind::SglangHandoff, "sglang-disaggregated", reports::SGLANG_DISAGGREGATED),
    ] {
        check(
            kind,
            &row(name),
            report,
            &[
                ("/per_request/0/source_held_ms", "1e9", "q2.handoff_order"),
                ("/per_request/0/source_released_ms", "0.0", "q2.source_released_last"),
                ("/per_request/0/destination_activated_ms", "null", "q2.handoff_complete"),
            ],
        );
    }
}

#[test]
fn queueing_that_did_not_happen_is_noticed() {
    let row = Row { router_queue_threshold: Some(1.0), ..row("vllm-aggregated") };
    let report = reports::VLLM_AGGREGATED;
    let against = found(LifecycleKind::RouterQueueing, &row, report, report);
    assert!(against.iter().any(|what| what.contains("no queued placement")), "{against:?}");
}

#[test]
fn what_is_not_exercised_is_not_shown() {
    let report = reports::VLLM_AGGREGATED;
    let against = found(LifecycleKind::VllmHandoff, &row("vllm-aggregated"), report, report);
    assert!(against.iter().any(|what| what.contains("handoff_order: not exercised")), "{against:?}");
}

#[test]
fn both_revisions_must_show_it_and_no_other_counts() {
    let test = |end| Some(LifecycleEvidence::Test { end });
    let failed = |against: &[&str]| LifecycleOutcome::Failed {
        against: against.iter().map(|what| (*what).to_owned()).collect(),
    };
    let both = lifecycle(LifecycleKind::PreemptionEdge, row("vllm-aggregated"));
    let candidate = Lifecycle { revision: PatchTarget::Candidate, ..both.clone() };
    for (of, baseline, shown, expected) in [
        (&both, test(TestEnd::Passed), test(TestEnd::Passed), LifecycleOutcome::Forced),
        (&both, test(TestEnd::Failed), test(TestEnd::Passed), failed(&["baseline: its test: failed"])),
        (&both, test(TestEnd::Passed), None, failed(&["candidate: nothing was recorded"])),
        (
            &both,
            test(TestEnd::Passed),
            Some(LifecycleEvidence::Fault { fault: "it crashed".into() }),
            failed(&["candidate: it crashed"]),
        ),
        (&candidate, None, test(TestEnd::Passed), LifecycleOutcome::Forced),
        (
            &candidate,
            test(TestEnd::Passed),
            test(TestEnd::NotRun { why: "w".into() }),
            failed(&["baseline: the campaign does not force it here", "candidate: its test: not run: w"]),
        ),
    ] {
        assert_eq!(outcome(of, &Both { baseline, candidate: shown }), expected);
    }
}

#[test]
fn what_nothing_shows_is_named() {
    let mut definition = good();
    let missing = |definition: &Definition| definition.lifecycles_not_covered().join("\n");
    assert_eq!(missing(&definition).lines().count(), 5);
    let handoff = Row {
        topology: Topology::Disaggregated,
        engine: Engine::Vllm,
        workers: None,
        prefill_workers: Some(1),
        decode_workers: Some(1),
        ..row("vllm-aggregated")
    };
    definition.rows.push(handoff);
    assert!(!missing(&definition).contains("vLLM") && missing(&definition).contains("SGLang"));
    definition.lifecycles = vec![Lifecycle {
        revision: PatchTarget::Candidate,
        reason: Some("the baseline has no such option".into()),
        ..lifecycle(LifecycleKind::RouterQueueing, row("vllm-aggregated"))
    }];
    let says = "router queueing with an explicit threshold on the baseline: the baseline has no such option";
    assert!(missing(&definition).contains(says), "{}", missing(&definition));
    definition.lifecycles[0].revision = PatchTarget::Both;
    assert!(!missing(&definition).contains("router queueing"));
}
