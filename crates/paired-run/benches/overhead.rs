//! What taking pairs costs beyond running the programs: time per attempt, growth, and processor time while
//! one runs.
//!
//! ```text
//! cargo bench -p paired-run --bench overhead -- [--check] [--attempts N]
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cpu_placement::{CancelToken, CpuSet, Finished, Run};
use evidence::Bundle;
use paired_run::{
    Attempt, BoxError, Executor, JournalRecorder, OverlappedRecorder, PairedRun, Processes, Reading,
    Recorder, RunDefinition, RunOutcome, Subject,
};

/// A program whose metric is its wall time.
struct Program(&'static str, &'static [&'static str]);

impl Program {
    fn run(&self) -> Run {
        Run::new(self.0).args(self.1.iter().copied())
    }
}

impl Subject for Program {
    fn prepare(&mut self, _attempt: &Attempt) -> Result<Run, BoxError> {
        Ok(self.run())
    }

    fn read(&mut self, _attempt: &Attempt, finished: &Finished) -> Result<Reading, BoxError> {
        Ok(Reading::Value { value: finished.wall_ns as f64 / 1e6, also: BTreeMap::new() })
    }
}

/// Notes how long the inner executor had, so that the rest of the time is ours.
struct Timed<E> {
    inner: E,
    inside: Vec<Duration>,
}

impl<E: Executor> Executor for Timed<E> {
    fn execute(
        &mut self,
        attempt: &Attempt,
        cancel: &CancelToken,
    ) -> Result<paired_run::Execution, BoxError> {
        let started = Instant::now();
        let execution = self.inner.execute(attempt, cancel);
        self.inside.push(started.elapsed());
        execution
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("overhead: {error}");
            ExitCode::from(70)
        }
    }
}

/// What waits for the disk, and when.
#[derive(Clone, Copy, PartialEq)]
enum Journal {
    Overlapped,
    Strict,
    Memory,
}

/// What one run of many attempts cost.
struct Cost {
    /// Time per attempt that is not the program's, in order.
    added_ms: Vec<f64>,
    /// The median time of the program itself.
    program_ms: f64,
    /// Resident memory gained per attempt.
    grown_bytes: f64,
}

impl Cost {
    fn growth_ms(&self) -> f64 {
        let tenth = (self.added_ms.len() / 10).max(1);
        median(&self.added_ms[self.added_ms.len() - tenth..]) - median(&self.added_ms[..tenth])
    }
}

/// Longer than a disk needs to settle, shorter than anything that is worth measuring.
const PROGRAM: Program = Program("/bin/sleep", &["0.03"]);

fn measure() -> Result<bool, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|arg| arg == "--attempts").and_then(|at| args.get(at + 1));
    let benchmark = args.iter().any(|arg| arg == "--bench");
    let attempts: u32 = given.map_or(Ok(if benchmark { 600 } else { 20 }), |text| text.parse())?;
    println!("{:<72} {:>14}", "target", "measured");
    let overlapped = cost(Journal::Overlapped, attempts)?;
    let own = own_time_while_asleep(if benchmark { 2.0 } else { 0.1 })?;
    let met = [
        line(
            "adds at most 1 ms per attempt (median, journal on disk)",
            median(&overlapped.added_ms),
            1.0,
            "ms",
        ),
        line("the last tenth adds at most 0.1 ms more than the first", overlapped.growth_ms(), 0.1, "ms"),
        line("own processor time per second of a sleeping sample: at most 5 ms", own, 5.0, "ms"),
    ];
    let strict = cost(Journal::Strict, attempts.min(100))?;
    let memory = cost(Journal::Memory, attempts.min(200))?;
    note("nine in ten attempts are given at most", quantile(&overlapped.added_ms, 0.9), "ms");
    note("the same with every record waiting for the disk", median(&strict.added_ms), "ms");
    note("the same without any disk", median(&memory.added_ms), "ms");
    let beside = overlapped.program_ms - memory.program_ms;
    note("what waiting beside it does to the program's own median", beside, "ms");
    note("evidence kept in memory per attempt", overlapped.grown_bytes / 1024.0, "KiB");
    Ok(met.iter().all(|&met| met) || !args.iter().any(|arg| arg == "--check"))
}

fn note(what: &str, measured: f64, unit: &str) {
    println!("{:<72} {measured:>11.3} {unit}", format!("no target: {what}"));
}

fn cost(journal: Journal, attempts: u32) -> Result<Cost, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let mut definition =
        RunDefinition { pairs: attempts / 2, warmups_per_arm: 0, ..RunDefinition::default() };
    definition.invalidation.conditions.clear();
    let mut timed = Timed { inner: Processes::new(PROGRAM, PROGRAM), inside: Vec::new() };
    let (mut overlapped, mut strict, mut memory) =
        (overlapped(&bundle)?, JournalRecorder::new(&bundle, "bench"), Vec::new());
    let inner: &mut dyn Recorder = match journal {
        Journal::Overlapped => &mut overlapped,
        Journal::Strict => &mut strict,
        Journal::Memory => &mut memory,
    };
    let mut recorder = Stamped { inner, stamps: Vec::new() };
    let resident_before = resident_bytes()?;
    let outcome = PairedRun::new(definition).run(&mut timed, &mut recorder, &CancelToken::new())?;
    let grown_bytes = (resident_bytes()? - resident_before) / f64::from(attempts);
    if outcome != RunOutcome::Complete {
        return Err(format!("the run ended with {outcome:?}").into());
    }
    let laps = recorder.stamps.windows(2).zip(&timed.inside);
    let added_ms =
        laps.map(|(two, &inside)| (two[1] - two[0]).saturating_sub(inside).as_secs_f64() * 1e3).collect();
    let inside: Vec<f64> = timed.inside.iter().map(|inside| inside.as_secs_f64() * 1e3).collect();
    overlapped.finish()?;
    Ok(Cost { added_ms, program_ms: median(&inside), grown_bytes })
}

fn overlapped(bundle: &Bundle) -> Result<OverlappedRecorder<'_>, Box<dyn Error>> {
    let recorder = OverlappedRecorder::new(bundle, "bench", &CpuSet::new())?;
    recorder.ok_or_else(|| "there is no CPU for the journal".into())
}

fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no resident size")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

/// Notes when each attempt is about to start.
struct Stamped<'a> {
    inner: &'a mut dyn Recorder,
    stamps: Vec<Instant>,
}

impl Recorder for Stamped<'_> {
    fn record(&mut self, event: &paired_run::Event) -> Result<(), BoxError> {
        if matches!(event, paired_run::Event::AttemptStarted { .. }) {
            self.stamps.push(Instant::now());
        }
        self.inner.record(event)
    }
}

/// Processor time of this process per second of a sample that sleeps.
fn own_time_while_asleep(seconds: f64) -> Result<f64, Box<dyn Error>> {
    let long: &'static str = if seconds < 1.0 { "0.1" } else { "2" };
    let argument: &'static [&'static str] = Box::leak(Box::new([long]));
    let definition = RunDefinition { pairs: 1, warmups_per_arm: 0, ..RunDefinition::default() };
    let mut processes = Processes::new(Program("/bin/sleep", argument), Program("/bin/sleep", argument));
    let dir = tempfile::tempdir()?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let mut recorder = overlapped(&bundle)?;
    let before = own_ns()?;
    let _outcome = PairedRun::new(definition).run(&mut processes, &mut recorder, &CancelToken::new())?;
    let used = own_ns()? - before;
    recorder.finish()?;
    Ok(used as f64 / 1e6 / (2.0 * seconds))
}

/// Time that all threads of this process spent on a CPU.
fn own_ns() -> Result<u64, Box<dyn Error>> {
    let mut all = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        all += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(all)
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let at = (part * sorted.len() as f64) as usize;
    sorted[at.min(sorted.len() - 1)]
}

fn line(target: &str, measured: f64, limit: f64, unit: &str) -> bool {
    let met = measured <= limit;
    println!("{target:<72} {measured:>11.3} {unit} {}", if met { "met" } else { "missed" });
    met
}
