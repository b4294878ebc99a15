use super::*;
use canonical_json::Sha256;

fn digests(texts: &[&str]) -> Vec<CanonicalDigest> {
    let digest = |text: &&str| CanonicalDigest {
        sha256: Sha256::of(text.as_bytes()),
        bytes: 1,
        excluded_present: Vec::new(),
    };
    texts.iter().map(digest).collect()
}

#[test]
fn digests_say_what_is_stable_and_what_is_equal() {
    use Side::{Baseline, Candidate};
    let unstable = |sides: &[Side]| RowOutcome::Unstable { sides: sides.to_vec() };
    for (baseline, candidate, expected) in [
        (["a", "a"], ["a", "a"], RowOutcome::Match),
        (["a", "a"], ["b", "b"], RowOutcome::Differs),
        (["a", "b"], ["a", "a"], unstable(&[Baseline])),
        (["a", "a"], ["a", "b"], unstable(&[Candidate])),
        (["a", "b"], ["a", "b"], unstable(&[Baseline, Candidate])),
    ] {
        let all = Both { baseline: digests(&baseline), candidate: digests(&candidate) };
        let (stable, equal) = agreement(&all);
        assert_eq!(equal, expected == RowOutcome::Match, "{baseline:?} {candidate:?}");
        assert_eq!(outcome_of_digests(&stable, equal), expected, "{baseline:?} {candidate:?}");
    }
}

#[test]
fn the_gravest_finding_is_the_outcome() {
    let text = |text: &str| vec![text.to_owned()];
    let unstable = RowOutcome::Unstable { sides: vec![Side::Baseline] };
    let unqualified = RowOutcome::Unqualified { items: text("failed") };
    let stop = RowOutcome::StopForReview { reason: "review".to_owned() };
    let target = RowOutcome::TargetFailed { fault: "malformed".to_owned() };
    let findings = |failed: bool, reviews: bool, malformed: bool| Findings {
        failed: if failed { text("failed") } else { Vec::new() },
        reviews: if reviews { text("review") } else { Vec::new() },
        malformed: if malformed { text("malformed") } else { Vec::new() },
    };
    for (found, so_far, expected) in [
        (findings(false, false, false), RowOutcome::Match, None),
        (findings(false, false, false), RowOutcome::Differs, None),
        (findings(true, false, false), RowOutcome::Match, Some(unqualified.clone())),
        (findings(true, false, false), RowOutcome::Differs, Some(unqualified)),
        (findings(true, false, false), unstable.clone(), None),
        (findings(true, true, false), unstable, Some(stop)),
        (findings(true, true, true), RowOutcome::Match, Some(target)),
    ] {
        assert_eq!(found.outcome(&so_far), expected, "{so_far:?}");
    }
}

/// The line feed at the end of a report is not part of it, and what is left out is named.
#[test]
fn a_report_is_one_line_without_its_end() {
    let rules = rules(&Canonical::default()).expect("rules");
    let digest = |text: &str| canonical_digest(&mut text.as_bytes().to_vec(), &rules).expect("a report");
    let report = r#"{"summary":{"wall_time_ms":1.5,"x":1},"per_request":[{"uuid":"b"},{"uuid":"a"}]}"#;
    let found = digest(&format!("{report}\n"));
    assert_eq!(found, digest(report));
    assert_eq!(found.excluded_present, ["/summary/wall_time_ms"]);
    let same =
        report.replace("1.5", "2.5").replace(r#"{"uuid":"b"},{"uuid":"a"}"#, r#"{"uuid":"a"},{"uuid":"b"}"#);
    assert_eq!(found.sha256, digest(&same).sha256, "no order, and no wall time");
    assert_ne!(found.sha256, digest(&report.replace("\"x\":1", "\"x\":2")).sha256);
}

fn attempt(row: &str, side: Side, repetition: u32, fault: Option<&str>) -> RepetitionRecord {
    RepetitionRecord {
        row: row.to_owned(),
        side,
        repetition,
        cpus: "0".to_owned(),
        arguments: Vec::new(),
        finished: serde_json::Value::Null,
        report: None,
        timing: None,
        fault: fault.map(str::to_owned),
    }
}

fn repetition(side: Side, number: u32, fault: Option<&str>) -> Repetition {
    let record = attempt("row", side, number, fault);
    Repetition { side, number, report: "unread".into(), record, metric_missing: None }
}

/// What failed once stays failed, and only where it failed.
#[test]
fn the_first_fault_of_a_row_is_named_with_revision_and_repetition() {
    let attempts = [
        attempt("other", Side::Baseline, 1, Some("not ours")),
        attempt("row", Side::Baseline, 1, None),
        attempt("row", Side::Candidate, 2, Some("it crashed")),
        attempt("row", Side::Candidate, 1, Some("later")),
    ];
    assert_eq!(fault_of(&attempts, "row").as_deref(), Some("candidate repetition 2: it crashed"));
    assert_eq!(fault_of(&attempts[..2], "row"), None);
    let of_one = |fault| target_fault(&repetition(Side::Baseline, 2, fault));
    assert_eq!(of_one(Some("it hung")).as_deref(), Some("baseline repetition 2: it hung"));
    assert_eq!(of_one(None), None);
}

#[test]
fn earlier_digests_are_those_of_the_row_by_revision_and_in_order() {
    let record = |row: &str, side: Side, repetition: u32, text: &str| CanonicalRecord {
        row: row.to_owned(),
        side,
        repetition,
        digest: digests(&[text]).remove(0),
    };
    let found = digests_of(
        vec![
            record("row", Side::Candidate, 1, "c"),
            record("other", Side::Baseline, 1, "x"),
            record("row", Side::Baseline, 1, "a"),
            record("row", Side::Baseline, 2, "b"),
        ],
        "row",
    );
    assert_eq!(found.baseline, digests(&["a", "b"]));
    assert_eq!(found.candidate, digests(&["c"]));
}

/// Coverage of one item, or of none.
fn coverage(status: Option<&str>) -> Coverage {
    let finding = serde_json::json!({ "pointer": "/a", "found": "1", "expected": "2", "occurrences": 1 });
    let item = |status| serde_json::json!({ "id": "q2.requests", "status": status, "finding": finding, "counters": [] });
    let items: Vec<_> = status.into_iter().map(item).collect();
    let exclusions = serde_json::to_value(crate::coverage::ExclusionAudit::default()).expect("an audit");
    serde_json::from_value(serde_json::json!({ "items": items, "exclusions": exclusions })).expect("coverage")
}

/// A verifier has the record only: the outcome must follow from its digests and coverage, whatever it says of itself.
#[test]
fn the_outcome_follows_from_the_evidence() {
    let check = |baseline: &[&str], candidate: &[&str], covered: [Option<Option<&str>>; 2], expected| {
        let [on_baseline, on_candidate] = covered.map(|status| status.map(coverage));
        let record = RowRecord {
            row: "row".to_owned(),
            options: Vec::new(),
            digests: Both { baseline: digests(baseline), candidate: digests(candidate) },
            stable: Both { baseline: true, candidate: true },
            equal: true,
            coverage: Both { baseline: on_baseline, candidate: on_candidate },
            difference: None,
            drift: Vec::new(),
            classification: None,
            outcome: RowOutcome::Match,
        };
        assert_eq!(outcome_from_evidence(&record), expected, "{baseline:?} {candidate:?} {covered:?}");
    };
    let whole = [Some(None), Some(None)];
    let unstable = RowOutcome::Unstable { sides: vec![Side::Candidate] };
    check(&["a", "a"], &["a", "a"], whole, Some(RowOutcome::Match));
    check(&["a", "a"], &["b", "b"], whole, Some(RowOutcome::Differs));
    check(&["a", "a"], &["a", "b"], whole, Some(unstable));
    check(&[], &["a", "a"], whole, None);
    check(&["a", "a"], &[], whole, None);
    check(&["a", "a"], &["a", "a"], [Some(None), None], None);
    let failed = "q2.requests: /a: found 1, expected 2";
    let unqualified = RowOutcome::Unqualified { items: vec![format!("candidate: {failed}")] };
    check(&["a", "a"], &["a", "a"], [Some(None), Some(Some("failed"))], Some(unqualified));
    let stop = RowOutcome::StopForReview { reason: format!("baseline: {failed}") };
    check(&["a", "a"], &["a", "a"], [Some(Some("stop_for_review")), Some(None)], Some(stop));
}

/// An unstable revision is shown against itself: its first report and its last.
#[test]
fn the_pair_that_is_shown_explains_the_most() {
    let repetitions = Side::BOTH.map(|side| [repetition(side, 1, None), repetition(side, 2, None)]);
    let check = |texts: [[&str; 2]; 2], expected: Option<(&str, [(Side, u32); 2])>| {
        let mut reports = Vec::new();
        for (of_side, texts) in repetitions.iter().zip(texts) {
            for (repetition, text) in of_side.iter().zip(texts) {
                let digest = digests(&[text]).remove(0);
                reports.push(Canonicalised { repetition, bytes: text.into(), digest });
            }
        }
        let sides = Both { baseline: of(&reports, Side::Baseline), candidate: of(&reports, Side::Candidate) };
        let stable = Both { baseline: all_equal(&sides.baseline), candidate: all_equal(&sides.candidate) };
        let equal = all_equal(&reports.iter().collect::<Vec<_>>());
        let found = differing_pair(&sides, &stable, equal).map(|(between, left, right)| {
            (between, [left, right].map(|report| (report.repetition.side, report.repetition.number)))
        });
        assert_eq!(found, expected, "{texts:?}");
    };
    use Side::{Baseline, Candidate};
    check([["a", "a"], ["a", "a"]], None);
    check([["a", "b"], ["a", "b"]], Some(("baseline with itself", [(Baseline, 1), (Baseline, 2)])));
    check([["a", "a"], ["a", "b"]], Some(("candidate with itself", [(Candidate, 1), (Candidate, 2)])));
    check([["a", "a"], ["b", "b"]], Some(("baseline with candidate", [(Baseline, 1), (Candidate, 1)])));
}

/// A layout that nobody knows is for a reviewer, anything else that cannot be read is the harness's fault.
#[test]
fn what_cannot_be_checked_is_kept_apart() {
    let mut findings = Findings::default();
    let row = crate::coverage::tests::row("dynamo-1.5.1-vllm-aggregated");
    let expectation =
        Expectation::new(&row, WorkloadTotals { requests: 1, input_tokens: 1, output_tokens: 1 });
    assert!(findings.take(Side::Candidate, Coverage::check(b"{}", &expectation)).is_none());
    assert_eq!((findings.reviews.len(), findings.malformed.len()), (1, 0), "a layout that nobody knows");
    assert!(findings.reviews[0].starts_with("candidate: "));
    assert!(findings.take(Side::Baseline, Coverage::check(b"[", &expectation)).is_none());
    assert_eq!((findings.reviews.len(), findings.malformed.len()), (1, 1), "no JSON");
    assert!(findings.malformed[0].starts_with("baseline: "));
    assert!(findings.take(Side::Baseline, Ok(coverage(None))).is_some());
}

/// Repetitions are recorded as their processes end; which revision is named must not depend on that.
#[test]
fn a_metric_that_both_lack_is_missed_of_the_baseline_first() {
    let definition = crate::definition::tests::good();
    let row = &definition.rows[0];
    let record = |side, repetition, timing: &str| RepetitionRecord {
        timing: Some(timing.to_owned()),
        ..attempt(&row.name, side, repetition, None)
    };
    let lacking = r#"{"iteration":0,"replay_bench":true}"#;
    let missing = |records: &[RepetitionRecord]| {
        let what = crate::stage::run::metric_missing(records, "replay_execution_ms", row)?;
        what.split(':').next().map(str::to_owned)
    };
    let both = [record(Side::Candidate, 1, lacking), record(Side::Baseline, 1, lacking)];
    assert_eq!(missing(&both).as_deref(), Some("baseline"));
    assert_eq!(missing(&both[..1]).as_deref(), Some("candidate"));
    let other = RepetitionRecord { row: "other".to_owned(), ..both[0].clone() };
    assert_eq!(missing(&[other]), None);
}

/// What a report says of how a row was run is every option of it, flag and value.
#[test]
fn a_row_is_run_with_its_options() {
    let commits = [String::from("a").repeat(40), String::from("b").repeat(40)];
    let text = testkit::campaign_toml("/r".as_ref(), &commits, &Sha256::of(b""), 20, "");
    let file = crate::CampaignFile::parse(text.into_bytes(), "/".into()).expect("a campaign");
    let row = |name: &str| {
        let row = file.definition.rows.iter().find(|row| row.name == name).expect("a row");
        options(&file.definition, row).join(" ")
    };
    assert_eq!(
        row("vllm-aggregated"),
        "--engine-type vllm --serving-mode aggregated --router-mode kv-router --arrival-speedup-ratio 4 \
         --trace-block-size 512 --block-size 64 --num-gpu-blocks 225 --max-num-seqs 16 --max-num-batched-tokens 8192 \
         --num-workers 4"
    );
    assert!(row("sglang-disaggregated").starts_with("--engine-type sglang --serving-mode disagg "));
}
