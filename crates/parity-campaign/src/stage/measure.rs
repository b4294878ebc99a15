//! measure and gate: interleaved pairs of one row, one process at a time, then the verdict.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use canonical_json::Sha256;
use cpu_placement::{CancelToken, CpuSet, Finished, LockError, NodeLock, Run, check_alike};
use paired_run::{
    Attempt, BoxError, Ending, Event, Execution, JournalRecorder, Observer, PairedRun, Processes, Reading,
    Recorder, RunOutcome, Subject, events_of,
};
use paired_stats::{Judgement, PairedSample, Reason, Verdict};
use tempfile::TempDir;

use crate::campaign::labels;
use crate::context::{Context, claim, milliseconds};
use crate::definition::{Definition, Row};
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::harness::{Outputs, arguments};
use crate::profile::Profile;
use crate::record::{Both, Measurable, MeasureRecord, PerformanceVerdict, RatioBounds, Side};
use crate::scratch::ScratchClaim;
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::profile::profile;
use crate::stage::run::{harness_run, is_taken_back, last_line};
use crate::stage::slice::Sliced;
use crate::timing_record::TimingRecord;

/// Where the record of a row's measurement is.
pub(crate) fn record_path(row: &Row) -> String {
    format!("records/measure-{}.json", row.name)
}

/// What the clean-up says of the folder that is measured in.
const STAGED: &str = "copies of both artifacts and of the window, on storage of this node";

/// The label of a result whose arms did not do the same work (M12).
const UNEQUAL_WORK: &str = "unequal semantic work, not a parity verdict";

/// The label of a row whose attempt was ended between its last sample and its seal.
const CARRIED_OVER: &str = "measured by an attempt that was ended before its seal";

/// This node, made ready: nobody builds on it, and artifacts and inputs are on its own storage.
pub(crate) struct Node {
    _lock: NodeLock,
    staging: TempDir,
    _claim: ScratchClaim,
    harness: Both<PathBuf>,
    trace: PathBuf,
}

impl Node {
    /// Takes the node's lock and stages what is measured; every copy is checked against its recorded digest (M2, P7).
    pub(crate) fn prepare(
        context: &mut Context<'_>,
        built: &Built,
        sliced: &Sliced,
    ) -> Result<Self, CampaignError> {
        let lock = take_lock(context)?;
        let staging = tempfile::Builder::new()
            .prefix("kvrp-stage-")
            .tempdir_in(&context.options.staging)
            .at(Stage::Measure, Cause::HostUnfit)?;
        context.made_elsewhere.push((staging.path().to_owned(), STAGED));
        let claim = claim(context.options, staging.path())?;
        let harness = Both::try_make(|side| {
            let folder = staging.path().join(side.letter());
            fs::create_dir(&folder).at(Stage::Measure, Cause::HostUnfit)?;
            let sha256 = built.record.artifacts.get(side).sha256;
            staged(built.harness.get(side), &folder.join("harness"), sha256)
        })?;
        let trace = staged(&sliced.path, &staging.path().join("trace.jsonl"), sliced.manifest.slice.sha256)?;
        Ok(Node { _lock: lock, staging, _claim: claim, harness, trace })
    }
}

/// Waits until nobody builds or measures on this node, and says so when that takes time.
fn take_lock(context: &mut Context<'_>) -> Result<NodeLock, CampaignError> {
    let purpose = format!("measure {}", context.definition().name);
    let directory = &context.options.node_lock;
    if let Ok(lock) = NodeLock::try_exclusive(directory, &purpose) {
        return Ok(lock);
    }
    context.progress.note("waiting for builds and measurements on this node to end");
    NodeLock::exclusive(directory, &purpose, context.cancel).map_err(refused)
}

fn refused(error: LockError) -> CampaignError {
    match error {
        LockError::Cancelled { .. } => CampaignError::cancelled(Stage::Measure),
        other => CampaignError::new(Stage::Measure, Cause::HostUnfit, other),
    }
}

/// A copy on the node's own storage, held against the digest that was recorded.
pub(crate) fn staged(from: &Path, to: &Path, recorded: Sha256) -> Result<PathBuf, CampaignError> {
    fs::copy(from, to)
        .map_err(|error| format!("copy {} to {}: {error}", from.display(), to.display()))
        .at(Stage::Measure, Cause::HostUnfit)?;
    let (found, _) = Sha256::of_file(to).at(Stage::Measure, Cause::HostUnfit)?;
    if found != recorded {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let message =
            format!("{name} has digest {found}, recorded as {recorded}: it changed after it was recorded");
        return Err(CampaignError::new(Stage::Measure, Cause::HostUnfit, message));
    }
    Ok(to.to_path_buf())
}

/// One arm of one row.
struct Arm<'a> {
    program: &'a Path,
    trace: &'a Path,
    staging: &'a Path,
    definition: &'a Definition,
    row: &'a Row,
    cpus: &'a CpuSet,
}

impl Arm<'_> {
    fn folder(&self, attempt: &Attempt) -> PathBuf {
        attempt_folder(self.staging, self.definition, self.row, attempt)
    }

    fn run(&self, folder: &Path) -> Run {
        let outputs = Outputs::Timing { timings: Path::new("timing.jsonl") };
        let run = harness_run(self.program, folder, self.cpus, self.definition);
        run.args(arguments(self.definition, self.row, self.trace, outputs))
    }
}

impl Subject for Arm<'_> {
    fn prepare(&mut self, attempt: &Attempt) -> Result<Run, BoxError> {
        let folder = self.folder(attempt);
        fs::create_dir(&folder)?;
        Ok(self.run(&folder))
    }

    fn read(&mut self, attempt: &Attempt, _: &Finished) -> Result<Reading, BoxError> {
        let folder = self.folder(attempt);
        let reading = match fs::read(folder.join("timing.jsonl")) {
            Ok(bytes) => reading(&bytes, &self.definition.measure.metric),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Reading::Malformed { message: "the harness wrote no timing record".to_owned() }
            }
            Err(error) => return Err(error.into()),
        };
        fs::remove_dir_all(&folder)?;
        Ok(reading)
    }
}

fn reading(bytes: &[u8], metric: &str) -> Reading {
    match TimingRecord::parse(bytes, metric) {
        Ok(record) => {
            let also = record.others.into_iter().map(|field| (field.name, field.value)).collect();
            Reading::Value { value: record.metric.value, also }
        }
        Err(error) => Reading::Malformed { message: with_causes(&error) },
    }
}

/// Tells a node that was taken back from a product that failed.
struct TakenBack<'a>(&'a CancelToken);

impl Observer for TakenBack<'_> {
    fn before(&mut self, _: &Attempt, _: &Run) -> Result<(), BoxError> {
        Ok(())
    }

    fn after(&mut self, _: &Attempt, execution: &mut Execution) -> Result<(), BoxError> {
        let outcome = execution.finished.as_ref().map(|finished| finished.outcome);
        if outcome.is_some_and(|outcome| is_taken_back(outcome, self.0)) {
            execution.ending = Ending::Cancelled;
        }
        Ok(())
    }
}

/// Counts attempts on their way to the journal.
struct Counting<'a> {
    journal: JournalRecorder<'a>,
    attempts: BTreeMap<String, u64>,
}

impl Counting<'_> {
    fn count(&mut self, event: &Event) {
        count(&mut self.attempts, event);
    }
}

fn count(attempts: &mut BTreeMap<String, u64>, event: &Event) {
    let kind = match event {
        Event::AttemptEnded { attempt, .. } => format!("{} ended", attempt.arm),
        Event::AttemptInterrupted { attempt, .. } => format!("{} interrupted", attempt.arm),
        Event::PairInvalidated { .. } => "pairs invalidated".to_owned(),
        _ => return,
    };
    *attempts.entry(kind).or_default() += 1;
}

impl Recorder for Counting<'_> {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        self.count(event);
        self.journal.record(event)
    }
}

/// Both arms start with arguments, variables and paths of the same lengths (M13).
fn refuse_unlike_arms(baseline: &Arm<'_>, candidate: &Arm<'_>) -> Result<(), CampaignError> {
    let run = |arm: &Arm<'_>, side: Side| arm.run(&arm.staging.join(side.letter()));
    check_alike(&run(baseline, Side::Baseline), &run(candidate, Side::Candidate))
        .at(Stage::Measure, Cause::Bug)
        .map_err(|error| error.in_row(&baseline.row.name))
}

/// Takes the pairs of one row and judges them.
pub(crate) fn measure(
    context: &mut Context<'_>,
    node: &Node,
    row: &Row,
    decision: &Measurable,
    cpus: &CpuSet,
) -> Result<MeasureRecord, CampaignError> {
    let start = Instant::now();
    let definition = context.definition();
    let kind = format!("measure.{}", row.name);
    let earlier =
        context.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| events_of(earlier.records(), &kind));
    let earlier = earlier.at(Stage::Measure, Cause::BadInput)?;
    let mut run = PairedRun::resume(definition.measure.run.clone(), &earlier)
        .at(Stage::Measure, Cause::BadInput)
        .map_err(|error| error.in_row(&row.name))?;
    let (outcome, attempts) = context.timed(Stage::Measure, |context| {
        context.progress.note(&format!("row {}: {} pairs", row.name, definition.measure.run.pairs));
        let arm = |side: Side| Arm {
            program: node.harness.get(side),
            trace: &node.trace,
            staging: node.staging.path(),
            definition,
            row,
            cpus,
        };
        refuse_unlike_arms(&arm(Side::Baseline), &arm(Side::Candidate))?;
        let mut processes =
            Processes::new(arm(Side::Baseline), arm(Side::Candidate)).observed_by(TakenBack(context.cancel));
        let mut recorder =
            Counting { journal: JournalRecorder::new(&context.bundle, &kind), attempts: BTreeMap::new() };
        earlier.iter().for_each(|event| recorder.count(event));
        let outcome = run.run(&mut processes, &mut recorder, context.cancel).map_err(|error| {
            // An attempt that was cancelled before its process started is an error of the run, not of the host.
            let cancelled = context.cancel.is_cancelled();
            let other = || CampaignError::new(Stage::Measure, Cause::HostUnfit, error);
            if cancelled { CampaignError::cancelled(Stage::Measure) } else { other() }.in_row(&row.name)
        })?;
        Ok((outcome, recorder.attempts))
    })?;
    let blank = MeasureRecord { attempts, ..not_measured(definition, row, String::new()) };
    let staging = Some(node.staging.path());
    let mut record =
        context.timed(Stage::Gate, |_| decide(definition, row, decision, &run, outcome, blank, staging))?;
    record.wall_ms = milliseconds(start);
    if context.options.profile.is_wanted(record.verdict) {
        let is_equal = *decision == Measurable::Yes;
        let taken = context.timed(Stage::Gate, |context| {
            context.progress.note(&format!("row {}: profile of both arms", row.name));
            take_profile(context, node, row, is_equal, cpus)
        });
        record.profile = Some(taken.map_err(|error| error.in_row(&row.name))?);
    }
    Ok(record)
}

/// The record of a measurement that an earlier process brought to its end; nothing is run.
pub(crate) fn carried_over(
    definition: &Definition,
    row: &Row,
    decision: &Measurable,
    run: &PairedRun,
    events: &[Event],
) -> Result<MeasureRecord, CampaignError> {
    let outcome = run.outcome().ok_or("a measurement without an end").at(Stage::Gate, Cause::Bug)?;
    let mut attempts = BTreeMap::new();
    events.iter().for_each(|event| count(&mut attempts, event));
    let mut blank = MeasureRecord { attempts, ..not_measured(definition, row, String::new()) };
    blank.labels.push(CARRIED_OVER.to_owned());
    decide(definition, row, decision, run, outcome, blank, None)
}

/// A profile of both arms, with the arguments and on the CPUs of the measured samples.
fn take_profile(
    context: &Context<'_>,
    node: &Node,
    row: &Row,
    equal_work: bool,
    cpus: &CpuSet,
) -> Result<Profile, CampaignError> {
    let definition = context.definition();
    let start = |side: Side, profiler: &Path, folder: &Path, before: Vec<OsString>| {
        let outputs = Outputs::Timing { timings: Path::new("timing.jsonl") };
        harness_run(profiler, folder, cpus, definition)
            .args(before)
            .arg(node.harness.get(side))
            .args(arguments(definition, row, &node.trace, outputs))
    };
    profile(context, &row.name, equal_work, &node.staging.path().join("profile"), &start)
}

/// The verdict of a measurement that came to its end; `staging` is where its attempts left what they said.
fn decide(
    definition: &Definition,
    row: &Row,
    decision: &Measurable,
    run: &PairedRun,
    outcome: RunOutcome,
    mut blank: MeasureRecord,
    staging: Option<&Path>,
) -> Result<MeasureRecord, CampaignError> {
    if *decision == Measurable::UnequalWork {
        blank.labels.push(UNEQUAL_WORK.to_owned());
    }
    let stopped = |verdict, reason| Ok(MeasureRecord { verdict, reasons: vec![reason], ..blank.clone() });
    match outcome {
        RunOutcome::Complete => {}
        RunOutcome::Failed { attempt, failure } => {
            let said = staging.map(|staging| last_words(&attempt_folder(staging, definition, row, &attempt)));
            let said = said.unwrap_or_default();
            return stopped(PerformanceVerdict::Blocked, format!("{attempt}: {failure}{said}"));
        }
        RunOutcome::Blocked { pair, reasons } => {
            let shown = serde_json::to_string(&reasons).at(Stage::Gate, Cause::Bug)?;
            let reason = format!("pair {pair} was invalid more often than the definition allows: {shown}");
            return stopped(PerformanceVerdict::Inconclusive, reason);
        }
        RunOutcome::Cancelled => return Err(CampaignError::cancelled(Stage::Measure).in_row(&row.name)),
        other => {
            let message = format!("the run ended in an unknown way: {other:?}");
            return Err(CampaignError::new(Stage::Gate, Cause::Bug, message).in_row(&row.name));
        }
    }
    let sample = run.sample(&definition.measure.metric).at(Stage::Gate, Cause::TargetFailed)?;
    let judgement = definition.measure.gate.judge(&sample).at(Stage::Gate, Cause::Bug)?;
    Ok(judged(blank, &sample, judgement))
}

/// A fresh folder per row and attempt; its path is equally long for both arms and for every attempt (M13).
fn attempt_folder(staging: &Path, definition: &Definition, row: &Row, attempt: &Attempt) -> PathBuf {
    let letter = match attempt.arm {
        paired_stats::Arm::Baseline => Side::Baseline.letter(),
        paired_stats::Arm::Candidate => Side::Candidate.letter(),
    };
    let index =
        definition.rows.iter().position(|other| other.name == row.name).unwrap_or(definition.rows.len());
    staging.join(letter).join(format!("{index:04}-{:08}", attempt.number))
}

fn last_words(folder: &Path) -> String {
    last_line(&folder.join("stderr")).map(|line| format!("; it said: {line}")).unwrap_or_default()
}

pub(crate) fn judged(blank: MeasureRecord, sample: &PairedSample, judgement: Judgement) -> MeasureRecord {
    let (verdict, reasons) = match &judgement.verdict {
        Verdict::Pass => (PerformanceVerdict::Pass, Vec::new()),
        Verdict::Fail => (PerformanceVerdict::Fail, Vec::new()),
        Verdict::Inconclusive { reasons } => {
            (PerformanceVerdict::Inconclusive, reasons.iter().map(explain).collect())
        }
    };
    MeasureRecord {
        verdict,
        reasons,
        median_ms: Some(Both {
            baseline: median(sample.pairs().iter().map(|pair| pair.baseline).collect()),
            candidate: median(sample.pairs().iter().map(|pair| pair.candidate).collect()),
        }),
        ratio: Some(ratio(&judgement)),
        judgement: Some(judgement),
        ..blank
    }
}

/// A reason as a sentence.
fn explain(reason: &Reason) -> String {
    match reason {
        Reason::BoundsStraddleLimit { lower_ratio, upper_ratio } => {
            let bound = |ratio: &Option<f64>| ratio.map_or("none".to_owned(), |ratio| format!("{ratio:.5}"));
            format!("the limit lies between the bounds {} and {}", bound(lower_ratio), bound(upper_ratio))
        }
        Reason::DiagnosticBreached { test, p_value, threshold } => {
            format!("diagnostic {test} was breached: p = {p_value:.2e}, threshold {threshold:.2e}")
        }
        Reason::NotCorroborated { bound_ratio, rank_distance_factor } => format!(
            "bounds that allow for dependence (ranks {rank_distance_factor:.2} times as far out) do not decide (bound {})",
            bound_ratio.map_or("outside the sample".to_owned(), |ratio| format!("{ratio:.5}"))
        ),
        other => other.to_string(),
    }
}

fn ratio(judgement: &Judgement) -> RatioBounds {
    let estimate = judgement.deciding();
    RatioBounds {
        lower: estimate.lower.map(|bound| bound.ratio),
        median: estimate.point_ratio,
        upper: estimate.upper.map(|bound| bound.ratio),
        lower_rank: estimate.lower.map(|bound| bound.rank as u64),
        upper_rank: estimate.upper.map(|bound| bound.rank as u64),
        confidence: estimate.confidence.get(),
        pairs: estimate.count as u64,
    }
}

/// The median of at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The record of a row that is not measured.
pub(crate) fn not_measured(definition: &Definition, row: &Row, reason: String) -> MeasureRecord {
    MeasureRecord {
        row: row.name.clone(),
        metric: definition.measure.metric.clone(),
        labels: labels(definition),
        verdict: PerformanceVerdict::NotMeasured,
        reasons: if reason.is_empty() { Vec::new() } else { vec![reason] },
        judgement: None,
        median_ms: None,
        ratio: None,
        attempts: BTreeMap::new(),
        wall_ms: 0,
        profile: None,
    }
}

#[cfg(test)]
mod tests {
    use paired_run::Purpose;

    use super::*;
    use crate::definition::tests::good;

    fn prepared(side: Side, number: u32) -> Run {
        let folder = tempfile::Builder::new().prefix("kvrp-test-").tempdir().expect("a folder");
        fs::create_dir(folder.path().join(side.letter())).expect("a folder");
        let definition = good();
        let mut arm = Arm {
            program: &folder.path().join(side.letter()).join("harness"),
            trace: &folder.path().join("trace.jsonl"),
            staging: folder.path(),
            definition: &definition,
            row: &definition.rows[0],
            cpus: &CpuSet::new(),
        };
        let arm_of = match side {
            Side::Baseline => paired_stats::Arm::Baseline,
            Side::Candidate => paired_stats::Arm::Candidate,
        };
        let attempt = Attempt { number, arm: arm_of, purpose: Purpose::WarmUp { warmup: 0 } };
        arm.prepare(&attempt).expect("a run")
    }

    #[test]
    fn both_arms_get_arguments_and_paths_of_one_length() {
        let lengths = |run: &Run| {
            let args: Vec<usize> = run.args.iter().map(|arg| arg.len()).collect();
            let env: Vec<usize> = run.env.iter().map(|(name, value)| name.len() + value.len()).collect();
            (run.program.as_os_str().len(), args, env, run.cwd.as_ref().map(|cwd| cwd.as_os_str().len()))
        };
        assert_eq!(lengths(&prepared(Side::Baseline, 1)), lengths(&prepared(Side::Candidate, 12_345_678)));
    }

    #[test]
    fn a_staged_copy_that_differs_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("harness"), folder.path().join("copy"));
        fs::write(&from, "recorded").expect("a file");
        let recorded = Sha256::of(b"recorded");
        assert!(staged(&from, &to, recorded).is_ok());
        fs::write(&from, "rebuilt").expect("a file");
        let error = staged(&from, &to, recorded).expect_err("another artifact");
        assert!(with_causes(&error).contains("changed after it was recorded"), "{error}");
    }

    #[test]
    fn medians_are_those_of_the_textbook() {
        for (values, expected) in
            [(vec![3.0], 3.0), (vec![4.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 2.0, 9.0], 3.0)]
        {
            assert!((median(values.clone()) - expected).abs() < 1e-12, "{values:?}");
        }
    }
}
