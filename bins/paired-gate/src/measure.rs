//! A run with its evidence: begun, gone on with, and judged again from what was kept.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use command_line::{Exit, Interrupt, MessageFormat, Output};
use cpu_placement::{CancelToken, HostRecord, NodeLock, SpawnError, check_alike};
use evidence::{Bundle, Verification, read_journal};
use paired_run::{
    BoxError, Durability, Event, JournalRecorder, OverlappedRecorder, PairedRun, Processes, Recorder,
    RunError, RunOutcome, events_of,
};
use paired_stats::{Arm, Judgement, PairedSample};
use serde_json::json;
use signal_hook::consts::SIGTSTP;

use crate::cli::{Classified, LockArgs, RunArgs, exit_for};
use crate::definition::{Definition, read_gate};
use crate::print::{self, Judged, Origin};
use crate::program::Program;
use crate::strict;

/// The kind of the journal's records that hold the events of the run.
const EVENTS: &str = "paired-run";
const DEFINITION_FILE: &str = "campaign.toml";
pub(crate) const REPORT_FILE: &str = "report.json";
const PAIRS_FILE: &str = "samples/pairs.csv";

pub(crate) fn run(args: &RunArgs, format: MessageFormat) -> anyhow::Result<Exit> {
    let definition = match &args.definition {
        Some(path) => read_definition(path)?,
        None => Definition::from_args(args).map_err(|error| Classified::error(Exit::Usage, error))?,
    };
    let creating = || format!("create {}", args.out.display());
    let bundle = Bundle::create(&args.out).with_context(creating).map_err(bad_input)?;
    let written = bundle.write_file(DEFINITION_FILE, definition.to_toml()?.as_bytes())?;
    bundle.append("paired-gate.host", &HostRecord::read())?;
    bundle.append("paired-gate.definition", &json!({ "sha256": written.sha256.to_string() }))?;
    measure(bundle, &definition, PairedRun::new(definition.run.clone()), &args.lock, format)
}

pub(crate) fn resume(directory: &Path, lock: &LockArgs, format: MessageFormat) -> anyhow::Result<Exit> {
    let opening = || format!("go on with {}", directory.display());
    let mut verification = evidence::verify(directory).with_context(opening).map_err(bad_input)?;
    // A run that was killed may have left a file that it could not record; it is set aside.
    verification.added.clear();
    require_consistent(directory, &verification)?;
    let definition = read_definition(&directory.join(DEFINITION_FILE))?;
    let events = read_events(directory).with_context(opening).map_err(bad_input)?;
    let bundle = Bundle::open_within(directory, REMAINS).with_context(opening).map_err(bad_input)?;
    let run = PairedRun::resume(definition.run.clone(), &events).with_context(opening).map_err(bad_input)?;
    measure(bundle, &definition, run, lock, format)
}

/// How long the remains of a killed process may hold its bundle.
const REMAINS: Duration = Duration::from_secs(10);

/// The verdict again, from the directory alone. Another definition gives what that definition would have
/// said.
pub(crate) fn judge_again(
    directory: &Path,
    definition: Option<&Path>,
    format: MessageFormat,
) -> anyhow::Result<Exit> {
    let reading = || format!("read the run in {}", directory.display());
    require_unaltered(directory)?;
    let own = read_definition(&directory.join(DEFINITION_FILE))?;
    let gate = definition.map_or_else(|| Ok(own.gate.clone()), read_gate)?;
    let origin = if gate == own.gate { Origin::OfRun } else { Origin::NotOfRun };
    let events = read_events(directory).with_context(reading).map_err(bad_input)?;
    let run = PairedRun::resume(own.run.clone(), &events).with_context(reading).map_err(bad_input)?;
    match run.outcome() {
        Some(RunOutcome::Complete) => {}
        None => {
            let (taken, pairs) = (run.pairs().len(), own.run.pairs);
            let error =
                anyhow::anyhow!("judge a run that has taken {taken} of {pairs} pairs; `resume` goes on");
            return Err(bad_input(error));
        }
        Some(other) => {
            let (exit, message) = without_verdict(&other)?;
            command_line::say!("paired-gate: {message}");
            return Ok(exit);
        }
    }
    let sample = run.sample(own.metric.name()).map_err(bad_input)?;
    let judgement = gate.judge(&sample).map_err(bad_input)?;
    print::judgement(&judgement, &sample, origin, format)?;
    Ok(exit_for(&judgement.verdict))
}

/// Refuses a directory whose files or journal are not what was recorded.
pub(crate) fn require_unaltered(directory: &Path) -> anyhow::Result<()> {
    let reading = || format!("read the run in {}", directory.display());
    let verification = evidence::verify(directory).with_context(reading).map_err(bad_input)?;
    require_consistent(directory, &verification)
}

fn require_consistent(directory: &Path, verification: &Verification) -> anyhow::Result<()> {
    if verification.is_consistent() {
        return Ok(());
    }
    Err(bad_input(anyhow::anyhow!("trust {}: its evidence was altered", directory.display())))
}

fn read_definition(path: &Path) -> anyhow::Result<Definition> {
    let read = || Definition::from_toml(&strict::text(path)?);
    read().with_context(|| format!("use the definition {}", path.display())).map_err(bad_input)
}

fn read_events(directory: &Path) -> anyhow::Result<Vec<Event>> {
    Ok(events_of(&read_journal(directory)?.records, EVENTS)?)
}

fn bad_input(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Classified::error(Exit::BadInput, error)
}

fn measure(
    bundle: Bundle,
    definition: &Definition,
    mut run: PairedRun,
    lock: &LockArgs,
    format: MessageFormat,
) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::install().context("take over signals")?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    let _lock = NodeLock::exclusive(&lock.directory(), "paired-gate", &cancel)
        .context("keep builds and other measurements of this node apart")?;
    let scratch = bundle.scratch()?;
    warn_if_unlike(&bundle, definition, &scratch)?;
    let stop = Arc::default();
    signal_hook::flag::register(SIGTSTP, Arc::clone(&stop)).context("take over signals")?;
    let program = |arm| Program::new(definition, arm, &scratch, Arc::clone(&stop));
    let mut processes = Processes::new(program(Arm::Baseline), program(Arm::Candidate));
    let mut recorder = Told {
        journal: Journal::of(&bundle, definition)?,
        out: Output::stdout(),
        format,
        pairs: definition.run.pairs,
    };
    let outcome = run.run(&mut processes, &mut recorder, &cancel);
    let kept = recorder.finish();
    let outcome = outcome.map_err(|error| Classified::error(fault_of(&error), error))?;
    kept?;
    match outcome {
        RunOutcome::Cancelled => {
            command_line::say!(
                "paired-gate: stopped; `paired-gate resume` goes on with {}",
                bundle.dir().display()
            );
            Ok(interrupt.exit().unwrap_or(Exit::HostUnfit))
        }
        RunOutcome::Complete => {
            let sample = run.sample(definition.metric.name()).map_err(bad_input)?;
            judge(bundle, definition, &sample, format)
        }
        other => stopped(bundle, &other, &scratch),
    }
}

/// A program that is not there is the definition's fault, whatever else keeps one from being started the machine's.
fn fault_of(error: &RunError) -> Exit {
    let source = match error {
        RunError::Execute { source, .. } => source,
        RunError::Unreachable { .. } => return Exit::Bug,
        _ => return Exit::HostUnfit,
    };
    match source.downcast_ref::<SpawnError>() {
        Some(
            SpawnError::ProgramMissing { .. } | SpawnError::NotExecutable { .. } | SpawnError::NulByte { .. },
        ) => Exit::BadInput,
        _ => Exit::HostUnfit,
    }
}

/// Arms whose arguments differ in length start at different stack addresses, which alone can change times.
fn warn_if_unlike(bundle: &Bundle, definition: &Definition, scratch: &Path) -> anyhow::Result<()> {
    let run = |arm| Program::new(definition, arm, scratch, Arc::default()).run(0);
    if let Err(unlike) = check_alike(&run(Arm::Baseline), &run(Arm::Candidate)) {
        command_line::say!("paired-gate: warning: failed to {unlike}");
        bundle.append("paired-gate.unlike", &json!({ "warning": unlike.to_string() }))?;
    }
    Ok(())
}

fn judge(
    bundle: Bundle,
    definition: &Definition,
    sample: &PairedSample,
    format: MessageFormat,
) -> anyhow::Result<Exit> {
    let judgement = definition.gate.judge(sample).map_err(bad_input)?;
    write_results(&bundle, sample, &judgement)?;
    seal(bundle)?;
    print::judgement(&judgement, sample, Origin::OfRun, format)?;
    Ok(exit_for(&judgement.verdict))
}

/// The digest of the manifest stands for everything in the directory; kept elsewhere, it shows a rewrite.
fn seal(bundle: Bundle) -> anyhow::Result<()> {
    let manifest = bundle.seal()?;
    command_line::say!("paired-gate: evidence sealed, manifest {}", manifest.sha256);
    Ok(())
}

/// A run that was stopped while it wrote its results has some of them already.
fn write_results(bundle: &Bundle, sample: &PairedSample, judgement: &Judgement) -> anyhow::Result<()> {
    let mut report = serde_json::to_vec_pretty(&Judged::new(judgement, sample, Origin::OfRun))?;
    report.push(b'\n');
    for (path, bytes) in [(PAIRS_FILE, print::csv(sample)?.into_bytes()), (REPORT_FILE, report)] {
        if bundle.file(path).is_none() {
            bundle.write_file(path, &bytes)?;
        }
    }
    Ok(())
}

/// The exit code and the words for a run that ended without a verdict: the program failed, or the machine did not
/// keep still.
fn without_verdict(outcome: &RunOutcome) -> anyhow::Result<(Exit, String)> {
    Ok(match outcome {
        RunOutcome::Failed { attempt, failure } => {
            (Exit::TargetFailed, format!("{attempt} failed: {failure}"))
        }
        RunOutcome::Blocked { pair, reasons } => {
            let reasons = serde_json::to_string(reasons)?;
            let message = format!("pair {pair} was invalid more often than the definition allows: {reasons}");
            (Exit::HostUnfit, message)
        }
        other => (Exit::Bug, format!("the run ended in an unknown way: {other:?}")),
    })
}

/// Both are results, with evidence.
fn stopped(bundle: Bundle, outcome: &RunOutcome, scratch: &Path) -> anyhow::Result<Exit> {
    let (exit, message) = without_verdict(outcome)?;
    for (name, path) in [("stdout", "logs/last-stdout.txt"), ("stderr", "logs/last-stderr.txt")] {
        let source = scratch.join(name);
        if source.is_file() && bundle.file(path).is_none() {
            bundle.adopt_file(path, &source)?;
        }
    }
    bundle.append("paired-gate.stopped", &json!({ "message": message, "exit": exit.code() }))?;
    seal(bundle)?;
    command_line::say!("paired-gate: {message}");
    Ok(exit)
}

/// The journal, with the durability that the definition asks for.
enum Journal<'a> {
    Strict(JournalRecorder<'a>),
    Overlapped(OverlappedRecorder<'a>),
}

impl<'a> Journal<'a> {
    fn of(bundle: &'a Bundle, definition: &Definition) -> anyhow::Result<Self> {
        if definition.durability == Durability::Overlapped {
            let cpus = definition.cpus.clone().unwrap_or_default();
            if let Some(recorder) = OverlappedRecorder::new(bundle, EVENTS, &cpus)? {
                return Ok(Self::Overlapped(recorder));
            }
            command_line::say!(
                "paired-gate: note: no CPU beside the measured ones; every record waits for the disk"
            );
        }
        Ok(Self::Strict(JournalRecorder::new(bundle, EVENTS)))
    }
}

/// Keeps events and tells of them: as JSON lines on standard output, or as a counter on a terminal.
struct Told<'a> {
    journal: Journal<'a>,
    out: Output,
    format: MessageFormat,
    pairs: u32,
}

impl Recorder for Told<'_> {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        match &mut self.journal {
            Journal::Strict(journal) => journal.record(event)?,
            Journal::Overlapped(journal) => journal.record(event)?,
        }
        match self.format {
            MessageFormat::Json => {
                writeln!(self.out, "{}", serde_json::to_string(event)?)?;
                self.out.flush()?;
            }
            MessageFormat::Human => self.count(event),
        }
        Ok(())
    }
}

impl Told<'_> {
    fn count(&self, event: &Event) {
        let Event::AttemptStarted { attempt } = event else { return };
        if std::io::stderr().is_terminal() {
            command_line::show!("\r\x1b[K{attempt} of {} pairs", self.pairs);
        }
    }

    /// The barrier before a verdict: everything that was recorded is on the disk.
    fn finish(self) -> anyhow::Result<()> {
        if self.format == MessageFormat::Human && std::io::stderr().is_terminal() {
            command_line::show!("\r\x1b[K");
        }
        match self.journal {
            Journal::Strict(_) => Ok(()),
            Journal::Overlapped(journal) => journal.finish().context("keep the journal"),
        }
    }
}
