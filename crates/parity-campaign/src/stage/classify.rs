//! classify: every difference of a row is held against the exception records (E1, E2).

use std::collections::{BTreeMap, BTreeSet};

use canonical_json::{CanonicalError, DiffLimits, Exclusion, Rules, diff};

use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::exception::Exception;
use crate::record::{Both, Classification, ExceptionUse, RowOutcome, RowRecord, Side, TestEnd, TestRun};
use crate::stage::Stage;
use crate::stage::checkout_test::CheckoutTest;

/// The journal's kind of a [`TestRun`].
pub(crate) const TEST_KIND: &str = "exception.test";

/// Tests that were run, by the name of their record.
pub(crate) type Proofs = BTreeMap<String, Both<TestRun>>;

/// The tests that an earlier process ran to their end in both checkouts.
pub(crate) fn proofs(context: &Context<'_>) -> Result<Proofs, CampaignError> {
    context.earlier.as_ref().map_or(Ok(Proofs::new()), |earlier| Ok(pair_up(earlier.payloads(TEST_KIND)?)))
}

/// Runs of both checkouts by record; what has only one of them proves nothing.
pub(crate) fn pair_up(runs: Vec<TestRun>) -> Proofs {
    let mut sides: BTreeMap<String, [Option<TestRun>; 2]> = BTreeMap::new();
    for run in runs {
        let (name, at) = (run.record.clone(), usize::from(run.side == Side::Candidate));
        sides.entry(name).or_default()[at] = Some(run);
    }
    let both = |(name, [baseline, candidate]): (String, [Option<TestRun>; 2])| {
        Some((name, Both { baseline: baseline?, candidate: candidate? }))
    };
    sides.into_iter().filter_map(both).collect()
}

/// What the records cover of the difference between two reports of one row.
///
/// A difference is covered when leaving out what the records name leaves no difference: nothing has to be listed for that,
/// however many values differ.
pub(crate) fn cover(
    exceptions: &[Exception],
    row: &str,
    reports: [&[u8]; 2],
    rules: &Rules,
) -> Result<Classification, CanonicalError> {
    let applicable: Vec<&Exception> = exceptions.iter().filter(|record| record.applies_to(row)).collect();
    let differing =
        |left_out: &[&Exception]| diff(reports[0], reports[1], &without(rules, left_out), &limits());
    let all = differing(&[])?;
    let shapes: BTreeSet<&str> = all.groups.iter().map(|group| group.shape.as_str()).collect();
    let mut records = Vec::new();
    let mut used = Vec::new();
    for exception in &applicable {
        let covers = all.total - differing(&[exception])?.total.min(all.total);
        if covers > 0 {
            used.push(*exception);
        }
        let broad = |pointer: &&String| {
            !shapes.iter().any(|shape| is_within(pointer, shape))
                || shapes.iter().any(|shape| reaches_above(pointer, shape))
        };
        let over_broad = if covers == 0 || all.truncated {
            Vec::new()
        } else {
            exception.record.pointers.iter().filter(broad).cloned().collect()
        };
        records.push(ExceptionUse { name: exception.record.name.clone(), covers, over_broad });
    }
    // The test of a record that covers nothing is not run, so what it names is not left out either.
    let uncovered = diff(reports[0], reports[1], &without(rules, &used), &DiffLimits::default())?;
    Ok(Classification { records, uncovered_total: uncovered.total, uncovered: uncovered.groups })
}

/// Whether a pointer names a shape that differs, or single places of it.
fn is_within(pointer: &str, shape: &str) -> bool {
    let (mut pointer, mut shape) = (pointer.split('/'), shape.split('/'));
    loop {
        match (pointer.next(), shape.next()) {
            (None, None) => return true,
            (Some(step), Some(of_shape)) if step == of_shape || of_shape == "*" => {}
            _ => return false,
        }
    }
}

/// Whether a pointer names something that a shape is only a part of: whatever else is in there is waived with it.
fn reaches_above(pointer: &str, shape: &str) -> bool {
    let (mut pointer, mut shape) = (pointer.split('/'), shape.split('/'));
    loop {
        match (pointer.next(), shape.next()) {
            (None, Some(_)) => return true,
            (Some(step), Some(of_shape)) if step == of_shape || step == "*" || of_shape == "*" => {}
            _ => return false,
        }
    }
}

/// Enough to know every shape.
fn limits() -> DiffLimits {
    let mut limits = DiffLimits::default();
    limits.max_groups = 100_000;
    limits.max_examples = 0;
    limits
}

/// The rules, leaving out what the records name as well.
fn without(rules: &Rules, records: &[&Exception]) -> Rules {
    let mut rules = rules.clone();
    for pointer in records.iter().flat_map(|exception| &exception.record.pointers) {
        if let Ok(pattern) = pointer.parse() {
            rules.exclusions.push(Exclusion { pattern, required: false });
        }
    }
    rules
}

/// The outcome of a row that differs, once its records and their tests are known.
pub(crate) fn outcome(classification: &Classification, proofs: &Proofs) -> RowOutcome {
    let used: Vec<&ExceptionUse> = classification.records.iter().filter(|record| record.covers > 0).collect();
    let is_proved = |record: &&ExceptionUse| proofs.get(&record.name).is_some_and(proves);
    if classification.uncovered_total > 0 || used.is_empty() || !used.iter().all(is_proved) {
        return RowOutcome::Differs;
    }
    RowOutcome::Excepted { records: used.iter().map(|record| record.name.clone()).collect() }
}

/// Whether a test failed on the baseline and passed on the candidate.
pub(crate) fn proves(runs: &Both<TestRun>) -> bool {
    runs.baseline.end == TestEnd::Failed && runs.candidate.end == TestEnd::Passed
}

/// Classifies a row that differs; a row that needs a record gets its tests run, once per campaign.
pub(crate) fn classify(
    context: &mut Context<'_>,
    proofs: &mut Proofs,
    record: &mut RowRecord,
    reports: [&[u8]; 2],
    rules: &Rules,
) -> Result<(), CampaignError> {
    let found = cover(&context.exceptions, &record.row, reports, rules)
        .at(Stage::Classify, Cause::TargetFailed)
        .map_err(|error| error.in_row(&record.row))?;
    if !context.tests_elsewhere {
        prove(context, proofs, &found)?;
    }
    record.outcome = outcome(&found, proofs);
    record.classification = Some(found);
    Ok(())
}

/// Settles a row that was classified where there are no checkouts.
pub(crate) fn settle(
    context: &mut Context<'_>,
    proofs: &mut Proofs,
    record: &mut RowRecord,
) -> Result<(), CampaignError> {
    let Some(found) = record.classification.clone() else { return Ok(()) };
    if record.outcome == RowOutcome::Differs {
        prove(context, proofs, &found)?;
        record.outcome = outcome(&found, proofs);
    }
    Ok(())
}

/// Runs the tests of the records that cover something, once per campaign.
fn prove(
    context: &mut Context<'_>,
    proofs: &mut Proofs,
    found: &Classification,
) -> Result<(), CampaignError> {
    for used in found.records.iter().filter(|used| used.covers > 0) {
        if proofs.contains_key(&used.name) {
            continue;
        }
        let named = |exception: &&Exception| exception.record.name == used.name;
        let Some(exception) = context.exceptions.iter().find(named).cloned() else { continue };
        let runs = Both::try_make(|side| test(context, &exception, side))?;
        proofs.insert(used.name.clone(), runs);
    }
    Ok(())
}

/// Runs the regression test of a record in one checkout and keeps what it said.
fn test(context: &mut Context<'_>, exception: &Exception, side: Side) -> Result<TestRun, CampaignError> {
    let name = &exception.record.name;
    let test = &exception.record.regression_test;
    context.progress.note(&format!("regression test of {name} on the {}", side.name()));
    let test = CheckoutTest {
        stage: Stage::Classify,
        label: format!("exception-{name}"),
        prepare: &test.prepare,
        files: &test.files,
        command: &test.command,
        proof: &test.proof,
        time_limit_s: test.time_limit_s,
    };
    let end = test.run(context, side)?;
    let run = TestRun { record: name.clone(), side, end };
    context.append(Stage::Classify, TEST_KIND, &run)?;
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canonical_json::{Sha256, Unordered};

    fn record(name: &str, row: &str, pointers: &[&str]) -> Exception {
        let text = format!(
            "schema = \"kvrp.exception.v1\"\nname = {name:?}\nrows = [{row:?}]\npointers = {pointers:?}\n\
             baseline_behavior = \"a\"\nwhy_incorrect = \"a\"\ncandidate_behavior = \"a\"\n\
             source_of_truth = \"a\"\nwhy_not_entropy = \"a\"\ndownstream_impact = \"a\"\ndisposition = \"a\"\n\
             reviewer = \"a\"\ndate = \"2026-01-31\"\n[regression_test]\nproof = \"a\"\ncommand = [\"a\"]\n"
        );
        let record = crate::definition::from_toml(&text).expect("a record");
        Exception { record, bytes: Vec::new(), sha256: Sha256::of(b"") }
    }

    fn test_run(record: &str, side: Side, end: TestEnd) -> TestRun {
        TestRun { record: record.to_owned(), side, end }
    }

    fn runs(baseline: TestEnd, candidate: TestEnd) -> Both<TestRun> {
        Both {
            baseline: test_run("a", Side::Baseline, baseline),
            candidate: test_run("a", Side::Candidate, candidate),
        }
    }

    fn not_run() -> TestEnd {
        TestEnd::NotRun { why: "it was not built".to_owned() }
    }

    #[test]
    fn a_record_covers_what_it_names_and_nothing_else() {
        let reports: [&[u8]; 2] =
            [br#"{"a":{"x":1,"y":2},"b":[1,2],"same":0}"#, br#"{"a":{"x":9,"y":8},"b":[1,3],"same":0}"#];
        let check = |records: &[Exception], expected: &[(&str, u64, &[&str])], uncovered: u64| {
            let found = cover(records, "row", reports, &Rules::default()).expect("two reports");
            let used: Vec<_> = found
                .records
                .iter()
                .map(|used| {
                    let broad: Vec<&str> = used.over_broad.iter().map(String::as_str).collect();
                    (used.name.as_str(), used.covers, broad)
                })
                .collect();
            let expected: Vec<_> =
                expected.iter().map(|(name, covers, broad)| (*name, *covers, broad.to_vec())).collect();
            assert_eq!((used, found.uncovered_total), (expected, uncovered));
            assert_eq!(found.uncovered.iter().map(|group| group.count).sum::<u64>(), uncovered);
        };
        check(&[], &[], 3);
        check(&[record("x", "row", &["/a/x"])], &[("x", 1, &[])], 2);
        check(&[record("elsewhere", "other", &["/a/x"])], &[], 3);
        check(&[record("place", "row", &["/b/1"])], &[("place", 1, &[])], 2);
        check(&[record("broad", "row", &["/a/*"])], &[("broad", 2, &["/a/*"])], 1);
        // What covers nothing is stale, not too broad.
        check(&[record("stale", "row", &["/same/*"])], &[("stale", 0, &[])], 3);
        let both = [record("x", "row", &["/a/x", "/a/y"]), record("b", "row", &["/b/*"])];
        check(&both, &[("x", 2, &[]), ("b", 1, &[])], 0);
    }

    /// Leaving out more may make two reports differ more. A record that covers nothing by itself, and so is never tested,
    /// must not help another to cover everything.
    #[test]
    fn a_record_that_covers_nothing_leaves_nothing_out() {
        let reports: [&[u8]; 2] = [
            br#"{"s":{"max":1},"list":[{"k":1,"v":5},{"k":2}]}"#,
            br#"{"s":{"max":2},"list":[{"k":1},{"k":2,"v":5}]}"#,
        ];
        let records =
            [record("untested", "row", &["/s/max", "/list/0/k"]), record("proved", "row", &["/list/*/v"])];
        let found = cover(&records, "row", reports, &Rules::default()).expect("two reports");
        let covers: Vec<u64> = found.records.iter().map(|used| used.covers).collect();
        assert_eq!((covers, found.uncovered_total), (vec![1, 2], 0), "the first covers, and must be proved");
        let swapped: [&[u8]; 2] = [
            br#"{"s":{"max":1},"list":[{"k":1,"v":5},{"k":2,"v":6}]}"#,
            br#"{"s":{"max":2},"list":[{"k":2,"v":6},{"k":1,"v":5}]}"#,
        ];
        let rules = Rules {
            unordered: vec![Unordered {
                at: "/list".parse().expect("a pattern"),
                by: "/k".parse().expect("a pointer"),
            }],
            ..Rules::default()
        };
        let records =
            [record("untested", "row", &["/s/max", "/list/0/v"]), record("proved", "row", &["/list/*/v"])];
        let found = cover(&records, "row", swapped, &rules).expect("two reports");
        let covers: Vec<u64> = found.records.iter().map(|used| used.covers).collect();
        assert_eq!((covers, found.uncovered_total), (vec![0, 0], 1));
    }

    /// However many shapes differ, a pointer is held against all of them.
    #[test]
    fn a_record_is_not_called_broad_for_lack_of_room() {
        let report = |value: u32| {
            let members: Vec<String> = (0..2_000).map(|i| format!("\"k{i:04}\":{{\"x\":{value}}}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let (left, right) = (report(1), report(2));
        let reports = [left.as_bytes(), right.as_bytes()];
        let records = [record("last", "row", &["/k1999/x"]), record("all", "row", &["/*/x"])];
        let found = cover(&records, "row", reports, &Rules::default()).expect("two reports");
        assert_eq!((found.records[0].covers, found.uncovered_total), (1, 0));
        assert!(found.records[0].over_broad.is_empty());
        assert_eq!(found.records[1].over_broad, ["/*/x"], "no shape has a star there");
    }

    #[test]
    fn only_a_test_that_fails_before_and_passes_after_proves() {
        for (baseline, candidate, expected) in [
            (TestEnd::Failed, TestEnd::Passed, true),
            (TestEnd::Passed, TestEnd::Passed, false),
            (TestEnd::Failed, TestEnd::Failed, false),
            (not_run(), TestEnd::Passed, false),
            (TestEnd::Failed, not_run(), false),
        ] {
            assert_eq!(proves(&runs(baseline, candidate)), expected);
        }
    }

    #[test]
    fn a_row_is_excepted_when_all_of_it_is_covered_and_proved() {
        let used =
            |name: &str, covers: u64| ExceptionUse { name: name.to_owned(), covers, over_broad: Vec::new() };
        let proved = || runs(TestEnd::Failed, TestEnd::Passed);
        let check =
            |records: Vec<ExceptionUse>, uncovered_total: u64, names: &[&str], expected: Option<&[&str]>| {
                let classification = Classification { records, uncovered_total, uncovered: Vec::new() };
                let mut proofs: Proofs = names.iter().map(|name| ((*name).to_owned(), proved())).collect();
                proofs.insert("unproved".to_owned(), runs(TestEnd::Passed, TestEnd::Passed));
                let expected = expected.map_or(RowOutcome::Differs, |names| RowOutcome::Excepted {
                    records: names.iter().map(|name| (*name).to_owned()).collect(),
                });
                assert_eq!(outcome(&classification, &proofs), expected);
            };
        check(vec![used("a", 3)], 0, &["a"], Some(&["a"]));
        check(vec![used("a", 3), used("b", 1)], 0, &["a", "b"], Some(&["a", "b"]));
        // One that covers nothing needs no proof and explains nothing.
        check(vec![used("a", 3), used("unproved", 0)], 0, &["a"], Some(&["a"]));
        check(vec![used("a", 0)], 0, &["a"], None);
        check(vec![used("a", 3)], 1, &["a"], None);
        check(vec![used("a", 3)], 0, &[], None);
        check(vec![used("a", 3), used("unproved", 1)], 0, &["a"], None);
        check(Vec::new(), 0, &["a"], None);
    }

    #[test]
    fn runs_of_both_checkouts_belong_together() {
        let all = vec![
            test_run("a", Side::Candidate, TestEnd::Failed),
            test_run("a", Side::Baseline, TestEnd::Failed),
            test_run("alone", Side::Baseline, TestEnd::Failed),
            test_run("a", Side::Candidate, TestEnd::Passed),
        ];
        let found = pair_up(all);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a"]);
        assert!(
            found["a"].baseline.side == Side::Baseline && proves(&found["a"]),
            "the last run of each counts"
        );
    }

    /// A request that is only on one side makes `/per_request/*` a shape; so named, every member of every request is waived.
    #[test]
    fn a_pointer_above_another_shape_is_broad() {
        let reports: [&[u8]; 2] = [br#"{"r":[{"x":1,"y":1},{"x":2,"y":2}]}"#, br#"{"r":[{"x":9,"y":1}]}"#];
        let found = cover(&[record("wide", "row", &["/r/*"])], "row", reports, &Rules::default());
        assert_eq!(found.expect("two reports").records[0].over_broad, ["/r/*"]);
    }

    #[test]
    fn a_pointer_reaches_above_a_shape_that_goes_on_where_it_ends() {
        for (pointer, shape, expected) in [
            ("/r/*", "/r/*/x", true),
            ("/r/3", "/r/*/x", true),
            ("/*/a", "/r/a/x", true),
            ("/r/*", "/r/*", false),
            ("/r/*/x", "/r/*", false),
            ("/s/*", "/r/*/x", false),
            ("/r/*/y", "/r/*/x/z", false),
        ] {
            assert_eq!(reaches_above(pointer, shape), expected, "{pointer} {shape}");
        }
    }

    #[test]
    fn a_pointer_is_within_a_shape_only_if_it_names_no_more() {
        for (pointer, shape, expected) in [
            ("/a/*/b", "/a/*/b", true),
            ("/a/3/b", "/a/*/b", true),
            ("/a/*/*", "/a/*/b", false),
            ("/a/*", "/a/*/b", false),
            ("/a/*/b", "/a/*", false),
            ("/summary/*", "/summary/x", false),
        ] {
            assert_eq!(is_within(pointer, shape), expected, "{pointer} {shape}");
        }
    }
}
