//! run: two repetitions per revision of one row, each in a fresh process with its own folder.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use canonical_json::Sha256;
use cpu_placement::{CancelToken, CpuSet, Finished, Outcome, Output, Run, SpawnError};

use crate::context::Context;
use crate::definition::{Definition, Row};
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::harness::{Outputs, arguments};
use crate::record::{Both, RepetitionRecord, ReportFile, Side};
use crate::stage::Stage;
use crate::timing_record::{TimingError, TimingRecord};

/// Repetitions per revision (D4). More would only hide an entropy leak.
const REPETITIONS: u32 = 2;

/// One repetition that ended, well or badly.
pub(crate) struct Repetition {
    pub(crate) side: Side,
    pub(crate) number: u32,
    /// The report file, when the harness ended well and wrote one.
    pub(crate) report: PathBuf,
    pub(crate) record: RepetitionRecord,
    /// Why the metric cannot be measured, when the harness does not emit it (M1).
    pub(crate) metric_missing: Option<String>,
}

#[derive(Clone, Copy)]
struct Job {
    side: Side,
    number: u32,
}

/// Baseline and candidate take turns, so that a machine that changes under us changes under both.
fn jobs() -> VecDeque<Job> {
    (1..=REPETITIONS).flat_map(|number| Side::BOTH.map(|side| Job { side, number })).collect()
}

/// What every process of a row shares.
pub(crate) struct Workload<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) row: &'a Row,
    pub(crate) harness: &'a Both<PathBuf>,
    pub(crate) trace: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) cancel: &'a CancelToken,
}

pub(crate) fn run(
    context: &Context<'_>,
    row: &Row,
    harness: &Both<PathBuf>,
    trace: &Path,
    sets: &[CpuSet],
) -> Result<Vec<Repetition>, CampaignError> {
    let folder = context.work.join("runs").join(&row.name);
    let shared = Workload {
        definition: context.definition(),
        row,
        harness,
        trace,
        folder: &folder,
        cancel: context.cancel,
    };
    let queue = Mutex::new(jobs());
    let (sender, receiver) = mpsc::channel();
    let mut repetitions = Vec::new();
    thread::scope(|scope| {
        for set in sets {
            let (sender, queue, shared) = (sender.clone(), &queue, &shared);
            scope.spawn(move || work_off(shared, queue, set, &sender));
        }
        drop(sender);
        for result in receiver {
            let repetition = result.map_err(|error: CampaignError| error.in_row(&row.name))?;
            context.append(Stage::Run, REPETITION_KIND, &repetition.record)?;
            repetitions.push(repetition);
        }
        Ok::<(), CampaignError>(())
    })?;
    if context.cancel.is_cancelled() {
        return Err(CampaignError::cancelled(Stage::Run).in_row(&row.name));
    }
    repetitions.sort_by_key(|repetition| (repetition.side, repetition.number));
    Ok(repetitions)
}

/// The journal's kind of a [`RepetitionRecord`].
pub(crate) const REPETITION_KIND: &str = "repetition";

/// Why the metric cannot be measured, from the repetitions of a row.
pub(crate) fn metric_missing(records: &[RepetitionRecord], metric: &str, row: &Row) -> Option<String> {
    let of_row = records.iter().filter(|record| record.row == row.name);
    of_row.cloned().find_map(|mut record| {
        let side = record.side;
        check_timing(&mut record, metric, side)
    })
}

/// One worker: takes jobs until none is left. Nobody holds the queue while a process runs.
fn work_off(
    shared: &Workload<'_>,
    queue: &Mutex<VecDeque<Job>>,
    set: &CpuSet,
    results: &mpsc::Sender<Result<Repetition, CampaignError>>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(job) = next else { return };
        if shared.cancel.is_cancelled() || results.send(one(shared, job, set)).is_err() {
            return;
        }
    }
}

/// One repetition apart from the others.
pub(crate) fn one_repetition(
    workload: &Workload<'_>,
    side: Side,
    number: u32,
    set: &CpuSet,
) -> Result<Repetition, CampaignError> {
    one(workload, Job { side, number }, set)
}

fn one(shared: &Workload<'_>, job: Job, set: &CpuSet) -> Result<Repetition, CampaignError> {
    let folder = shared.folder.join(format!("{}{}", job.side.letter(), job.number));
    fs::create_dir_all(&folder).at(Stage::Run, Cause::HostUnfit)?;
    let (report, timings) = (folder.join("report.jsonl"), folder.join("timing.jsonl"));
    let outputs = Outputs::Report { report: Path::new("report.jsonl"), timings: Path::new("timing.jsonl") };
    let run = prepared(shared, job.side, &folder, set, outputs);
    let finished = match run.wait(shared.cancel) {
        Ok(finished) => finished,
        Err(SpawnError::Cancelled { .. }) => return Err(CampaignError::cancelled(Stage::Run)),
        Err(error) => return Err(CampaignError::new(Stage::Run, Cause::HostUnfit, error)),
    };
    if is_taken_back(finished.outcome, shared.cancel) {
        return Err(CampaignError::cancelled(Stage::Run));
    }
    let mut record = describe(shared, job, set, &run, &finished, &report, &timings)?;
    let metric_missing = check_timing(&mut record, &shared.definition.measure.metric, job.side);
    Ok(Repetition { side: job.side, number: job.number, report, record, metric_missing })
}

fn prepared(shared: &Workload<'_>, side: Side, folder: &Path, set: &CpuSet, outputs: Outputs<'_>) -> Run {
    harness_run(shared.harness.get(side), folder, set, shared.definition).args(arguments(
        shared.definition,
        shared.row,
        shared.trace,
        outputs,
    ))
}

/// A fresh process of the harness: the same environment for everybody, no more than it needs.
pub(crate) fn harness_run(program: &Path, folder: &Path, set: &CpuSet, definition: &Definition) -> Run {
    Run::new(program)
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .cwd(folder)
        .stdout(Output::File(folder.join("stdout")))
        .stderr(Output::File(folder.join("stderr")))
        .cpus(set.clone())
        .time_limit(Duration::from_secs(definition.replay.time_limit_s))
}

fn describe(
    shared: &Workload<'_>,
    job: Job,
    set: &CpuSet,
    run: &Run,
    finished: &Finished,
    report: &Path,
    timings: &Path,
) -> Result<RepetitionRecord, CampaignError> {
    let folder = timings.parent().unwrap_or(Path::new("."));
    let fault = ended_badly(finished, shared.definition, folder);
    let written = if fault.is_none() { report_file(report)? } else { None };
    let missing = (fault.is_none() && written.is_none()).then(|| "the harness wrote no report".to_owned());
    let (timing, unreadable) = timing_file(timings)?;
    let unreadable = unreadable.filter(|_| fault.is_none());
    Ok(RepetitionRecord {
        row: shared.row.name.clone(),
        side: job.side,
        repetition: job.number,
        cpus: set.to_string(),
        arguments: shown_arguments(run, shared.trace),
        finished: serde_json::to_value(finished).at(Stage::Run, Cause::Bug)?,
        report: written,
        timing,
        fault: fault.or(missing).or(unreadable),
    })
}

/// How long after a process of a job its parent may learn that the job was ended.
const SIGNAL_SPREADS: Duration = Duration::from_secs(5);

/// Whether a process was ended because somebody took the node back: a scheduler signals every process of a job, and which of
/// them notices first is chance. A product that ends itself by the same signal, while nobody asks us to stop, failed.
pub(crate) fn is_taken_back(outcome: Outcome, cancel: &CancelToken) -> bool {
    const SIGTERM: i32 = 15;
    if outcome != Outcome::Signalled(SIGTERM) {
        return false;
    }
    let start = Instant::now();
    while !cancel.is_cancelled() && start.elapsed() < SIGNAL_SPREADS {
        thread::sleep(Duration::from_millis(10));
    }
    cancel.is_cancelled()
}

/// The text of a timing file, or why there is none.
fn timing_file(path: &Path) -> Result<(Option<String>, Option<String>), CampaignError> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok((Some(text), None)),
            Err(error) => Ok((None, Some(format!("the timing file is not UTF-8: {error}")))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok((None, Some("the harness wrote no timing record".to_owned())))
        }
        Err(error) => Err(error).at(Stage::Run, Cause::HostUnfit),
    }
}

/// A timing record that is malformed, doubled or not of seeded routing is a fault; one that lacks the metric is a stop.
fn check_timing(record: &mut RepetitionRecord, metric: &str, side: Side) -> Option<String> {
    if record.fault.is_some() {
        return None;
    }
    match TimingRecord::parse(record.timing.as_deref().unwrap_or_default().as_bytes(), metric) {
        Ok(_) => None,
        Err(error @ TimingError::MetricMissing { .. }) => Some(format!("{}: {error}", side.name())),
        Err(error) => {
            record.fault = Some(with_causes(&error));
            None
        }
    }
}

/// Why a process that ended does not count, with the end of what it said.
fn ended_badly(finished: &Finished, definition: &Definition, folder: &Path) -> Option<String> {
    let how = match finished.outcome {
        Outcome::Exited(0) => return None,
        Outcome::Exited(code) => format!("the harness exited with status {code}"),
        Outcome::Signalled(number) => format!("the harness was ended by signal {number}"),
        Outcome::TimedOut => {
            format!("the harness ran longer than the limit of {} s", definition.replay.time_limit_s)
        }
        Outcome::Cancelled => "the campaign was interrupted".to_owned(),
        other => format!("the harness ended unexpectedly: {other:?}"),
    };
    match last_line(&folder.join("stderr")) {
        Some(line) => Some(format!("{how}; it said: {line}")),
        None => Some(how),
    }
}

/// The last line of a log that holds anything, cut to a readable length.
pub(crate) fn last_line(path: &Path) -> Option<String> {
    const TAIL_BYTES: u64 = 4096;
    const SHOWN_CHARS: usize = 300;
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(SHOWN_CHARS).collect())
}

fn report_file(path: &Path) -> Result<Option<ReportFile>, CampaignError> {
    if !path.is_file() {
        return Ok(None);
    }
    let (sha256, bytes) = Sha256::of_file(path).at(Stage::Run, Cause::HostUnfit)?;
    Ok(Some(ReportFile { sha256, bytes }))
}

/// The arguments without paths of this machine.
fn shown_arguments(run: &Run, trace: &Path) -> Vec<String> {
    let shown = |arg: &std::ffi::OsString| {
        if arg == trace.as_os_str() { "trace.jsonl".to_owned() } else { arg.to_string_lossy().into_owned() }
    };
    run.args.iter().map(shown).collect()
}
