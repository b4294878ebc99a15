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

use cpu_placement::{CancelToken, Finished, Run};
use evidence::Bundle;
use paired_run::{
    Attempt, BoxError, Executor, JournalRecorder, PairedRun, Processes, Reading, RunDefinition, RunOutcome,
    Subject,
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

fn measure() -> Result<bool, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|arg| arg == "--attempts").and_then(|at| args.get(at + 1));
    let benchmark = args.iter().any(|arg| arg == "--bench");
    let attempts: u32 = given.map_or(Ok(if benchmark { 600 } else { 20 }), |text| text.parse())?;
    println!("{:<58} {:>14}", "target", "measured");
    // What the disk takes to keep two records per attempt is the disk's; a journal in memory shows what is
    // ours.
    let memory = std::path::Path::new("/dev/shm");
    let ours = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let (per_attempt, growth) = per_attempt_in(&ours, attempts)?;
    let (on_disk, _) = per_attempt_in(&std::env::temp_dir(), attempts.min(100))?;
    let own = own_time_while_asleep(if benchmark { 2.0 } else { 0.1 })?;
    let met = [
        line("adds at most 1 ms per attempt (median, journal in memory)", per_attempt, 1.0, "ms"),
        line("the last tenth costs at most 1 ms more than the first", growth, 1.0, "ms"),
        line("own processor time per second of a sleeping sample: 5 ms", own, 5.0, "ms"),
    ];
    println!("{:<58} {on_disk:>11.3} ms", "not a target: with a journal that waits for the disk");
    Ok(met.iter().all(|&met| met) || !args.iter().any(|arg| arg == "--check"))
}

/// The median time per attempt that is not the process itself, and how much it grew over the run.
fn per_attempt_in(parent: &std::path::Path, attempts: u32) -> Result<(f64, f64), Box<dyn Error>> {
    let dir = tempfile::tempdir_in(parent)?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let mut definition =
        RunDefinition { pairs: attempts / 2, warmups_per_arm: 0, ..RunDefinition::default() };
    definition.invalidation.conditions.clear();
    let processes = Processes::new(Program("/bin/true", &[]), Program("/bin/true", &[]));
    let mut timed = Timed { inner: processes, inside: Vec::new() };
    let mut recorder = Stamped { inner: JournalRecorder::new(&bundle, "bench"), stamps: Vec::new() };
    let outcome = PairedRun::new(definition).run(&mut timed, &mut recorder, &CancelToken::new())?;
    if outcome != RunOutcome::Complete {
        return Err(format!("the run ended with {outcome:?}").into());
    }
    let laps = recorder.stamps.windows(2).zip(&timed.inside);
    let ours: Vec<f64> =
        laps.map(|(two, &inside)| (two[1] - two[0]).saturating_sub(inside).as_secs_f64() * 1e3).collect();
    let tenth = (ours.len() / 10).max(1);
    Ok((median(&ours), median(&ours[ours.len() - tenth..]) - median(&ours[..tenth])))
}

/// Notes when each attempt is about to start.
struct Stamped<R> {
    inner: R,
    stamps: Vec<Instant>,
}

impl<R: paired_run::Recorder> paired_run::Recorder for Stamped<R> {
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
    let before = own_ns()?;
    let mut events = Vec::new();
    let _outcome = PairedRun::new(definition).run(&mut processes, &mut events, &CancelToken::new())?;
    Ok((own_ns()? - before) as f64 / 1e6 / (2.0 * seconds))
}

/// Time that this thread spent on a CPU.
fn own_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn line(target: &str, measured: f64, limit: f64, unit: &str) -> bool {
    let met = measured <= limit;
    println!("{target:<58} {measured:>11.3} {unit} {}", if met { "met" } else { "missed" });
    met
}
