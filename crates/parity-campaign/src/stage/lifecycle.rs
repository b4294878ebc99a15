//! lifecycle: rare paths are forced where the rows cannot reach them (F1, F2).

use std::fs;
use std::path::{Path, PathBuf};

use cpu_placement::CpuSet;
use mooncake_trace::{Rules, Slicer, Window};

use crate::context::Context;
use crate::coverage::{Coverage, WorkloadTotals};
use crate::definition::{Lifecycle, LifecycleTest, Row};
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::lifecycle::{
    LifecycleCoverage, LifecycleEvidence, LifecycleRecord, LifecycleWindow, against_coverage, arguments,
    is_forced_on, outcome, record_path, report_path,
};
use crate::record::{Both, RepetitionRecord, Side, TestRun};
use crate::stage::Stage;
use crate::stage::checkout_test::CheckoutTest;
use crate::stage::judge::{canonical_digest, expectation, rules};
use crate::stage::run::{Repetition, Workload, one_repetition};
use crate::stage::slice::Sliced;

/// The journal's kind of a row's process; its payload is a [`RepetitionRecord`].
pub(crate) const RUN_KIND: &str = "lifecycle.run";

/// The journal's kind of a [`LifecycleCoverage`].
pub(crate) const LIFECYCLE_KIND: &str = "lifecycle";

/// The journal's kind of a test; its payload is a [`TestRun`].
pub(crate) const TEST_KIND: &str = "lifecycle.test";

/// Forces every lifecycle of the campaign and says which kinds nothing shows.
pub(crate) fn force_all(
    context: &mut Context<'_>,
    harness: &Both<PathBuf>,
    sliced: &Sliced,
    cpus: &[CpuSet],
) -> Result<Vec<LifecycleRecord>, CampaignError> {
    let first = cpus.first().ok_or("the plan has no set").at(Stage::Lifecycle, Cause::Bug)?;
    let lifecycles = &context.definition().lifecycles;
    let records = lifecycles
        .iter()
        .map(|lifecycle| force(context, lifecycle, harness, sliced, first))
        .collect::<Result<Vec<_>, _>>()?;
    let covered = records.iter().map(|record| record.name.clone()).collect();
    let not_covered = context.definition().lifecycles_not_covered();
    let payload = LifecycleCoverage { covered, not_covered };
    context.append(Stage::Lifecycle, LIFECYCLE_KIND, &payload)?;
    Ok(records)
}

fn force(
    context: &mut Context<'_>,
    lifecycle: &Lifecycle,
    harness: &Both<PathBuf>,
    sliced: &Sliced,
    cpus: &CpuSet,
) -> Result<LifecycleRecord, CampaignError> {
    let name = lifecycle.name();
    if let Some(record) = context.recorded(Stage::Lifecycle, &record_path(name))? {
        return Ok(record);
    }
    context.progress.note(&format!("lifecycle {name}"));
    let folder = context.work.join("lifecycle").join(name);
    fs::create_dir_all(&folder).at(Stage::Lifecycle, Cause::HostUnfit)?;
    let cut = lifecycle.row.as_ref().map(|_| cut(context, lifecycle, sliced, &folder)).transpose()?;
    let sides = Both::try_make(|side| {
        if !is_forced_on(lifecycle, side) {
            return Ok(None);
        }
        let shown = match (&lifecycle.row, &cut, &lifecycle.test) {
            (Some(row), Some((window, trace)), _) => {
                let definition = context.definition();
                let cancel = context.cancel;
                let workload = Workload { definition, row, harness, trace, folder: &folder, cancel };
                replay(context, lifecycle, &workload, window.totals, side, cpus)
            }
            (_, _, Some(test)) => run_test(context, test, side),
            _ => Err(CampaignError::new(Stage::Lifecycle, Cause::Bug, "a lifecycle has no row and no test")),
        };
        shown.map(Some).map_err(|error| error.in_row(name))
    })?;
    fs::remove_dir_all(&folder).at(Stage::Lifecycle, Cause::HostUnfit)?;
    let record = LifecycleRecord {
        name: name.to_owned(),
        kind: lifecycle.kind,
        arguments: arguments(context.definition(), lifecycle),
        window: cut.map(|(window, _)| window),
        outcome: outcome(lifecycle, &sides),
        sides,
    };
    context.record(Stage::Lifecycle, &record_path(name), &record)?;
    Ok(record)
}

/// The first requests of the window, as a file of their own.
fn cut(
    context: &Context<'_>,
    lifecycle: &Lifecycle,
    sliced: &Sliced,
    folder: &Path,
) -> Result<(LifecycleWindow, PathBuf), CampaignError> {
    let count = lifecycle.requests.unwrap_or(sliced.totals.requests);
    let window = Window::new(0, count).at(Stage::Lifecycle, Cause::BadInput)?;
    let mut rules = Rules::default();
    rules.block_size = context.definition().trace.block_size;
    let stop = || context.cancel.is_cancelled();
    let trace = folder.join("trace.jsonl");
    let slicer = Slicer::new(window).rules(rules).stop_when(&stop);
    let slice = slicer.slice_file(&sliced.path, &trace).at(Stage::Lifecycle, Cause::HostUnfit)?.slice;
    let totals = WorkloadTotals {
        requests: slice.rows.get(),
        input_tokens: slice.input_tokens,
        output_tokens: slice.output_tokens,
    };
    Ok((LifecycleWindow { sha256: slice.sha256, totals }, trace))
}

fn replay(
    context: &Context<'_>,
    lifecycle: &Lifecycle,
    workload: &Workload<'_>,
    totals: WorkloadTotals,
    side: Side,
    cpus: &CpuSet,
) -> Result<LifecycleEvidence, CampaignError> {
    // A fault that an earlier process saw is not undone by starting again (M8).
    let runs: Vec<RepetitionRecord> =
        context.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| earlier.payloads(RUN_KIND))?;
    if let Some(fault) = fault_of(&runs, lifecycle.name(), side) {
        return Ok(LifecycleEvidence::Fault { fault });
    }
    let repetition = one_repetition(workload, side, 1, cpus)?;
    if context.cancel.is_cancelled() {
        return Err(CampaignError::cancelled(Stage::Lifecycle));
    }
    context.append(Stage::Lifecycle, RUN_KIND, &repetition.record)?;
    match fault_of(std::slice::from_ref(&repetition.record), lifecycle.name(), side) {
        Some(fault) => Ok(LifecycleEvidence::Fault { fault }),
        None => judge(context, lifecycle, workload.row, totals, &repetition),
    }
}

/// The first fault of a lifecycle's row on one revision.
pub(crate) fn fault_of(runs: &[RepetitionRecord], name: &str, side: Side) -> Option<String> {
    runs.iter().filter(|run| run.row == name && run.side == side).find_map(|run| run.fault.clone())
}

/// What a report shows; it is kept only where that is not the lifecycle.
fn judge(
    context: &Context<'_>,
    lifecycle: &Lifecycle,
    row: &Row,
    totals: WorkloadTotals,
    repetition: &Repetition,
) -> Result<LifecycleEvidence, CampaignError> {
    let rules = rules(&context.definition().canonical)?;
    let mut report = fs::read(&repetition.report).at(Stage::Lifecycle, Cause::HostUnfit)?;
    let malformed = |error: &(dyn std::error::Error + 'static)| LifecycleEvidence::Fault {
        fault: format!("the report is malformed: {}", with_causes(error)),
    };
    let digest = match canonical_digest(&mut report, &rules) {
        Ok(digest) => digest,
        Err(error) => return Ok(malformed(&error)),
    };
    let coverage = match Coverage::check(&report, &expectation(context.definition(), row, totals)) {
        Ok(coverage) => Box::new(coverage),
        Err(error) => return Ok(malformed(&error)),
    };
    let mut kept = None;
    if !against_coverage(lifecycle.kind, &coverage).is_empty() {
        let path = report_path(lifecycle.name(), repetition.side);
        context.write_file(Stage::Lifecycle, &path, &report)?;
        kept = Some(path);
    }
    Ok(LifecycleEvidence::Row { digest, coverage, kept })
}

/// A test that an earlier process ran to its end is not run again.
fn run_test(
    context: &Context<'_>,
    test: &LifecycleTest,
    side: Side,
) -> Result<LifecycleEvidence, CampaignError> {
    let runs: Vec<TestRun> =
        context.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| earlier.payloads(TEST_KIND))?;
    if let Some(run) = run_of(runs, &test.name, side) {
        return Ok(LifecycleEvidence::Test { end: run.end });
    }
    let checkout_test = CheckoutTest {
        stage: Stage::Lifecycle,
        label: format!("lifecycle-{}", test.name),
        prepare: &test.prepare,
        files: &[],
        command: &test.command,
        proof: &test.proof,
        time_limit_s: test.time_limit_s,
    };
    let end = checkout_test.run(context, side)?;
    let run = TestRun { record: test.name.clone(), side, end };
    context.append(Stage::Lifecycle, TEST_KIND, &run)?;
    Ok(LifecycleEvidence::Test { end: run.end })
}

/// The first run of a lifecycle's test on one revision.
pub(crate) fn run_of(runs: Vec<TestRun>, name: &str, side: Side) -> Option<TestRun> {
    runs.into_iter().find(|run| run.record == name && run.side == side)
}
