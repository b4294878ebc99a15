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

/// One process to run.
#[derive(Clone, Copy)]
struct Job<'a> {
    workload: &'a Workload<'a>,
    side: Side,
    number: u32,
}

/// Baseline and candidate take turns, so that a machine that changes under us changes under both.
fn jobs<'a>(workloads: &'a [Workload<'a>]) -> VecDeque<Job<'a>> {
    let of_row = |workload: &'a Workload<'a>| {
        let repetition = move |number| Side::BOTH.map(|side| Job { workload, side, number });
        (1..=REPETITIONS).flat_map(repetition)
    };
    workloads.iter().flat_map(of_row).collect()
}

/// Processes of one row: every revision's repetitions.
pub(crate) const PROCESSES_PER_ROW: usize = 2 * REPETITIONS as usize;

/// Rows that are worked off together (N2): as many as it takes to keep every set busy, so one where a row already does.
pub(crate) fn rows_at_once(sets: usize) -> usize {
    sets.div_ceil(PROCESSES_PER_ROW).max(1)
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

/// The repetitions of some rows, for each row in the order of `rows`.
pub(crate) fn run(
    context: &Context<'_>,
    rows: &[&Row],
    harness: &Both<PathBuf>,
    trace: &Path,
    sets: &[CpuSet],
) -> Result<Vec<Vec<Repetition>>, CampaignError> {
    let folders: Vec<PathBuf> = rows.iter().map(|row| context.work.join("runs").join(&row.name)).collect();
    let workloads: Vec<Workload<'_>> = rows
        .iter()
        .zip(&folders)
        .map(|(row, folder)| Workload {
            definition: context.definition(),
            row,
            harness,
            trace,
            folder,
            cancel: context.cancel,
        })
        .collect();
    let keep = |record: &RepetitionRecord| context.append(Stage::Run, REPETITION_KIND, record);
    let mut repetitions = run_all(&workloads, sets, keep)?;
    if context.cancel.is_cancelled() {
        let row = rows.first().map_or("", |row| row.name.as_str());
        return Err(CampaignError::cancelled(Stage::Run).in_row(row));
    }
    repetitions.sort_by_key(|repetition| (repetition.side, repetition.number));
    let of_row = |row: &&Row| repetitions.extract_if(.., |one| one.record.row == row.name).collect();
    Ok(rows.iter().map(of_row).collect())
}

/// Works off every repetition, one process per set at a time, and hands each record on as soon as it is there.
fn run_all(
    workloads: &[Workload<'_>],
    sets: &[CpuSet],
    keep: impl Fn(&RepetitionRecord) -> Result<(), CampaignError>,
) -> Result<Vec<Repetition>, CampaignError> {
    let queue = Mutex::new(jobs(workloads));
    let (sender, receiver) = mpsc::channel();
    let mut repetitions = Vec::new();
    thread::scope(|scope| {
        for set in sets {
            let (sender, queue) = (sender.clone(), &queue);
            scope.spawn(move || work_off(queue, set, &sender));
        }
        drop(sender);
        for result in receiver {
            let repetition: Repetition = result?;
            keep(&repetition.record)?;
            repetitions.push(repetition);
        }
        Ok::<(), CampaignError>(())
    })?;
    Ok(repetitions)
}

/// The journal's kind of a [`RepetitionRecord`].
pub(crate) const REPETITION_KIND: &str = "repetition";

/// Why the metric cannot be measured, from the repetitions of a row.
pub(crate) fn metric_missing(records: &[RepetitionRecord], metric: &str, row: &Row) -> Option<String> {
    let mut of_row: Vec<&RepetitionRecord> = records.iter().filter(|record| record.row == row.name).collect();
    // Records come as their processes ended, which says nothing.
    of_row.sort_by_key(|record| (record.side == Side::Candidate, record.repetition));
    of_row.into_iter().cloned().find_map(|mut record| {
        let side = record.side;
        check_timing(&mut record, metric, side)
    })
}

/// One worker: takes jobs until none is left. Nobody holds the queue while a process runs.
fn work_off(
    queue: &Mutex<VecDeque<Job<'_>>>,
    set: &CpuSet,
    results: &mpsc::Sender<Result<Repetition, CampaignError>>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(job) = next else { return };
        let Workload { row, cancel, .. } = job.workload;
        let result = || one(job, set).map_err(|error| error.in_row(&row.name));
        if cancel.is_cancelled() || results.send(result()).is_err() {
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
    one(Job { workload, side, number }, set)
}

fn one(job: Job<'_>, set: &CpuSet) -> Result<Repetition, CampaignError> {
    let shared = job.workload;
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
    let mut record = describe(job, set, &run, &finished, &report, &timings)?;
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
    job: Job<'_>,
    set: &CpuSet,
    run: &Run,
    finished: &Finished,
    report: &Path,
    timings: &Path,
) -> Result<RepetitionRecord, CampaignError> {
    let shared = job.workload;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::definition::tests::good;

    /// Writes where it ran into the timing file.
    const HARNESS: &str = "#!/bin/sh
printf '{}' > report.jsonl
printf '{\"row\":\"%s\"}' \"$PWD\" > timing.jsonl
";

    #[test]
    fn sets_that_a_row_leaves_idle_take_the_next_row() {
        assert_eq!([1, 2, 4, 5, 8, 16].map(rows_at_once), [1, 1, 1, 2, 2, 4]);
    }

    #[test]
    fn rows_that_run_at_once_keep_their_repetitions_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("harness");
        fs::write(&program, HARNESS).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        let harness = Both { baseline: program.clone(), candidate: program };
        let mut definition = good();
        let mut other = definition.rows[0].clone();
        other.name = "other".into();
        definition.rows.push(other);
        let folders: Vec<PathBuf> = definition.rows.iter().map(|row| folder.path().join(&row.name)).collect();
        let cancel = CancelToken::new();
        let workloads: Vec<Workload<'_>> = definition
            .rows
            .iter()
            .zip(&folders)
            .map(|(row, folder)| Workload {
                definition: &definition,
                row,
                harness: &harness,
                trace: Path::new("trace.jsonl"),
                folder,
                cancel: &cancel,
            })
            .collect();
        let allowed = cpu_placement::Topology::read().expect("a machine").allowed;
        let sets = vec![allowed; 3];
        let kept = Mutex::new(Vec::new());
        let keep = |record: &RepetitionRecord| {
            kept.lock().expect("the list").push((record.row.clone(), record.side, record.repetition));
            Ok(())
        };
        let repetitions = run_all(&workloads, &sets, keep).expect("eight processes");
        let mut seen: Vec<_> = repetitions
            .iter()
            .map(|one| {
                let own =
                    folder.path().join(&one.record.row).join(format!("{}{}", one.side.letter(), one.number));
                assert_eq!(one.report, own.join("report.jsonl"));
                let timing = one.record.timing.as_deref().expect("a timing file");
                assert!(timing.contains(&own.display().to_string()), "{timing}");
                (one.record.row.clone(), one.side, one.number)
            })
            .collect();
        let mut kept = kept.into_inner().expect("the list");
        seen.sort();
        kept.sort();
        assert_eq!(seen, kept, "every record is handed on");
        let expected: Vec<_> = ["other", "vllm-aggregated"]
            .into_iter()
            .flat_map(|row| Side::BOTH.map(|side| (1..=REPETITIONS).map(move |n| (row.to_owned(), side, n))))
            .flatten()
            .collect();
        assert_eq!(seen, expected);
    }
}
