//! The twin of [`Processes`](crate::Processes) for tests: it states times without running anything.

use std::collections::BTreeMap;

use cpu_placement::CancelToken;

use crate::attempt::{Attempt, Condition, Ending, Execution, Reading, Usage};
use crate::event::BoxError;
use crate::execute::Executor;

/// What goes wrong in one attempt of a script.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The program exits with this status.
    Exit(i32),
    /// This signal ends it.
    Signal(i32),
    /// It runs past its time limit.
    TimeOut,
    /// Its metric is malformed.
    Malformed(String),
    /// A condition is seen around it.
    Condition(Condition),
    /// A reading of telemetry.
    Telemetry(String, f64),
    /// The run is cancelled while it runs.
    Cancel,
    /// It cannot be carried out.
    Error(String),
}

/// States times without running anything.
///
/// ```
/// use cpu_placement::CancelToken;
/// use paired_run::{Event, PairedRun, RunDefinition, RunOutcome, Scripted};
/// use paired_stats::Arm;
///
/// let mut times = Scripted::new(|attempt| if attempt.arm == Arm::Baseline { 100.0 } else { 103.0 });
/// let mut events: Vec<Event> = Vec::new();
/// let mut run = PairedRun::new(RunDefinition::default());
/// assert_eq!(run.run(&mut times, &mut events, &CancelToken::new())?, RunOutcome::Complete);
/// assert_eq!(run.sample("wall_ms")?.ratios(), [1.03; 60]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scripted<'a> {
    value: Box<dyn FnMut(&Attempt) -> f64 + 'a>,
    faults: BTreeMap<u32, Fault>,
    clock_unix_ns: u64,
    /// Every attempt that was carried out, in order.
    pub executed: Vec<Attempt>,
}

impl<'a> Scripted<'a> {
    /// A script whose attempts have the metric that `value` states, in milliseconds, and take that long on
    /// its clock.
    pub fn new(value: impl FnMut(&Attempt) -> f64 + 'a) -> Self {
        Self { value: Box::new(value), faults: BTreeMap::new(), clock_unix_ns: 0, executed: Vec::new() }
    }

    /// Lets something go wrong in the attempt of this number.
    #[must_use]
    pub fn fault(mut self, attempt: u32, fault: Fault) -> Self {
        self.faults.insert(attempt, fault);
        self
    }

    fn undisturbed(&mut self, attempt: &Attempt) -> Execution {
        let value = (self.value)(attempt);
        let wall_ns = std::time::Duration::try_from_secs_f64(value / 1e3)
            .map_or(0, |wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
        let started_unix_ns = self.clock_unix_ns;
        self.clock_unix_ns = started_unix_ns.saturating_add(wall_ns);
        Execution {
            started_unix_ns,
            ending: Ending::Exited { status: 0 },
            reading: Reading::Value { value, also: BTreeMap::new() },
            usage: Usage { wall_ns, user_ns: wall_ns, ..Usage::default() },
            conditions: Vec::new(),
            telemetry: BTreeMap::new(),
            finished: None,
        }
    }
}

impl Executor for Scripted<'_> {
    fn execute(&mut self, attempt: &Attempt, cancel: &CancelToken) -> Result<Execution, BoxError> {
        self.executed.push(*attempt);
        let mut execution = self.undisturbed(attempt);
        let mut ends = |ending| (execution.ending, execution.reading) = (ending, Reading::NotRead);
        match self.faults.get(&attempt.number).cloned() {
            None => {}
            Some(Fault::Exit(status)) => ends(Ending::Exited { status }),
            Some(Fault::Signal(signal)) => ends(Ending::Signalled { signal }),
            Some(Fault::TimeOut) => ends(Ending::TimedOut),
            Some(Fault::Malformed(message)) => execution.reading = Reading::Malformed { message },
            Some(Fault::Condition(condition)) => execution.conditions.push(condition),
            Some(Fault::Telemetry(name, value)) => drop(execution.telemetry.insert(name, value)),
            Some(Fault::Cancel) => {
                cancel.cancel();
                ends(Ending::Cancelled);
            }
            Some(Fault::Error(message)) => return Err(message.into()),
        }
        Ok(execution)
    }
}
