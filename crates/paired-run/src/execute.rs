//! How an attempt is carried out: by a process, or, in tests, by a script.

use cpu_placement::{CancelToken, Finished, Run};
use paired_stats::Arm;

use crate::attempt::{Attempt, Execution, Reading};
use crate::event::BoxError;

/// Carries out one attempt from beginning to end.
pub trait Executor {
    /// Runs one program once and reads its metric. What the program does wrong is part of the [`Execution`].
    ///
    /// # Errors
    /// Whatever kept the attempt from being carried out and is not the program's doing: no space for its
    /// files, a program that cannot be started. The attempt is recorded as interrupted and the run stops
    /// there.
    fn execute(&mut self, attempt: &Attempt, cancel: &CancelToken) -> Result<Execution, BoxError>;
}

impl<F> Executor for F
where
    F: FnMut(&Attempt, &CancelToken) -> Result<Execution, BoxError>,
{
    fn execute(&mut self, attempt: &Attempt, cancel: &CancelToken) -> Result<Execution, BoxError> {
        self(attempt, cancel)
    }
}

/// One of the two programs that are compared.
pub trait Subject {
    /// What to run for this attempt, with a fresh file for its metric. Both arms should get arguments, paths
    /// and environment of the same length.
    ///
    /// # Errors
    /// Whatever kept the attempt from being prepared.
    fn prepare(&mut self, attempt: &Attempt) -> Result<Run, BoxError>;

    /// Reads the metric of a program that exited with status 0. A metric that is missing or malformed is the
    /// program's failure, [`Reading::Malformed`].
    ///
    /// # Errors
    /// Whatever kept the metric from being read and is not the program's doing.
    fn read(&mut self, attempt: &Attempt, finished: &Finished) -> Result<Reading, BoxError>;
}

/// Looks at the machine around each attempt and adds what it saw.
pub trait Observer {
    /// Called just before the process is started.
    ///
    /// # Errors
    /// Whatever kept it from looking.
    fn before(&mut self, attempt: &Attempt, run: &Run) -> Result<(), BoxError>;

    /// Called once the process has ended; adds telemetry and conditions.
    ///
    /// # Errors
    /// Whatever kept it from looking.
    fn after(&mut self, attempt: &Attempt, execution: &mut Execution) -> Result<(), BoxError>;
}

/// Runs the two programs as processes, one at a time, and sleeps while one runs.
pub struct Processes<'a> {
    baseline: Box<dyn Subject + 'a>,
    candidate: Box<dyn Subject + 'a>,
    observers: Vec<Box<dyn Observer + 'a>>,
}

impl<'a> Processes<'a> {
    /// The two programs.
    pub fn new(baseline: impl Subject + 'a, candidate: impl Subject + 'a) -> Self {
        Self { baseline: Box::new(baseline), candidate: Box::new(candidate), observers: Vec::new() }
    }

    /// Adds one that looks at the machine around each attempt.
    #[must_use]
    pub fn observed_by(mut self, observer: impl Observer + 'a) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    fn subject(&mut self, arm: Arm) -> &mut (dyn Subject + 'a) {
        match arm {
            Arm::Baseline => &mut *self.baseline,
            Arm::Candidate => &mut *self.candidate,
        }
    }
}

impl Executor for Processes<'_> {
    fn execute(&mut self, attempt: &Attempt, cancel: &CancelToken) -> Result<Execution, BoxError> {
        let run = self.subject(attempt.arm).prepare(attempt)?;
        self.observers.iter_mut().try_for_each(|observer| observer.before(attempt, &run))?;
        let finished = run.wait(cancel)?;
        let mut execution = Execution::new(finished, Reading::NotRead);
        for observer in &mut self.observers {
            observer.after(attempt, &mut execution)?;
        }
        if let Some(finished) = execution.finished.as_ref().filter(|finished| finished.outcome.is_success()) {
            execution.reading = self.subject(attempt.arm).read(attempt, finished)?;
        }
        Ok(execution)
    }
}
