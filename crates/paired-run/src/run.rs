//! The run itself: it asks what is next, lets it be done, and has it recorded.

use std::collections::BTreeSet;

use cpu_placement::CancelToken;
use paired_stats::{Pair, PairedSample, SampleError, Schedule, Series};

use crate::attempt::{Attempt, Execution, ProductFailure, Reading};
use crate::definition::RunDefinition;
use crate::event::{BoxError, Event, Invalid, Recorder};
use crate::execute::Executor;
use crate::progress::{Next, Progress, Taken, Unexpected, by_arm};

/// How a run came to a stop.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use]
pub enum RunOutcome {
    /// Every pair was taken.
    Complete,
    /// The program failed in an attempt: the row fails.
    Failed {
        /// In this one.
        attempt: Attempt,
        /// Like this.
        failure: ProductFailure,
    },
    /// A pair was invalid more often than the definition allows, or was interrupted and no rule answers that.
    Blocked {
        /// This pair.
        pair: u32,
        /// For these reasons, the last time.
        reasons: Vec<Invalid>,
    },
    /// The token was cancelled. The run can go on.
    Cancelled,
}

/// The run of one row: warm-ups, then pairs in the order of the schedule, one process at a time.
#[derive(Debug, Clone)]
pub struct PairedRun {
    progress: Progress,
    begun: bool,
}

impl PairedRun {
    /// A run that has not begun.
    pub fn new(definition: RunDefinition) -> Self {
        Self { progress: Progress::new(definition), begun: false }
    }

    /// The run that these events tell of, as far as it came.
    ///
    /// # Errors
    /// [`ResumeError`] when the events are not those of one run of this definition.
    pub fn resume(definition: RunDefinition, events: &[Event]) -> Result<Self, ResumeError> {
        let Some((began, rest)) = events.split_first() else { return Ok(Self::new(definition)) };
        let mut progress = Progress::new(definition);
        if *began != progress.began() {
            return Err(ResumeError::OtherDefinition);
        }
        for (index, event) in rest.iter().enumerate() {
            let at = |source| ResumeError::Unexpected { event: index + 1, source };
            progress.apply(event).map_err(at)?;
        }
        Ok(Self { progress, begun: true })
    }

    /// Runs until every pair is taken, the program fails, the rules are exhausted, or the token is cancelled.
    ///
    /// Every event is recorded before anything that follows from it is done.
    ///
    /// # Errors
    /// [`RunError`] when an attempt could not be carried out or an event not be recorded. The run can be
    /// resumed from what was recorded.
    pub fn run(
        &mut self,
        executor: &mut dyn Executor,
        recorder: &mut dyn Recorder,
        cancel: &CancelToken,
    ) -> Result<RunOutcome, RunError> {
        self.open(recorder)?;
        loop {
            match self.progress.next() {
                Next::Start(_) if cancel.is_cancelled() => return Ok(RunOutcome::Cancelled),
                Next::Start(attempt) => self.attempt(attempt, executor, recorder, cancel)?,
                Next::Invalidate { pair, rerun, reasons } => {
                    self.note(Event::PairInvalidated { pair, rerun, reasons }, recorder)?;
                }
                Next::Ended(outcome) => return Ok(outcome),
            }
        }
    }

    /// How the run ended, if it has: nothing while it can go on.
    pub fn outcome(&self) -> Option<RunOutcome> {
        match self.progress.next() {
            Next::Ended(outcome) => Some(outcome),
            Next::Start(_) | Next::Invalidate { .. } => None,
        }
    }

    /// Begins, or goes on after a stop: what the stop cut short is recorded as interrupted first.
    fn open(&mut self, recorder: &mut dyn Recorder) -> Result<(), RunError> {
        if !self.begun {
            let began = self.progress.began();
            recorder.record(&began).map_err(|source| RunError::Record { source })?;
            self.begun = true;
            return Ok(());
        }
        if self.outcome().is_some() {
            return Ok(());
        }
        if let Some(attempt) = self.progress.in_flight() {
            let evidence = "the run stopped before the end of this attempt was recorded".to_owned();
            self.note(Event::AttemptInterrupted { attempt, evidence }, recorder)?;
        } else if let Some(attempt) = self.progress.parted() {
            let evidence = "the run stopped between the two members of this pair".to_owned();
            self.note(Event::AttemptInterrupted { attempt, evidence }, recorder)?;
        }
        self.note(Event::Resumed { session: self.progress.session() + 1 }, recorder)
    }

    fn attempt(
        &mut self,
        attempt: Attempt,
        executor: &mut dyn Executor,
        recorder: &mut dyn Recorder,
        cancel: &CancelToken,
    ) -> Result<(), RunError> {
        self.note(Event::AttemptStarted { attempt }, recorder)?;
        match executor.execute(&attempt, cancel) {
            Ok(execution) => {
                let execution = Box::new(writable(execution));
                self.note(Event::AttemptEnded { attempt, execution }, recorder)
            }
            Err(source) => {
                let evidence = format!("the attempt could not be carried out: {}", with_causes(&*source));
                self.note(Event::AttemptInterrupted { attempt, evidence }, recorder)?;
                Err(RunError::Execute { attempt, source })
            }
        }
    }

    fn note(&mut self, event: Event, recorder: &mut dyn Recorder) -> Result<(), RunError> {
        recorder.record(&event).map_err(|source| RunError::Record { source })?;
        self.progress.apply(&event).map_err(|source| RunError::Unreachable { source })
    }

    /// The pairs taken so far, each in the order in which its members ran.
    #[must_use]
    pub fn pairs(&self) -> &[[Taken; 2]] {
        self.progress.accepted()
    }

    /// How often pairs were taken again.
    #[must_use]
    pub fn reruns(&self) -> u32 {
        self.progress.reruns()
    }

    /// The order in which this row is measured.
    pub fn schedule(&self) -> &Schedule {
        self.progress.schedule()
    }

    /// The pairs taken so far as a sample of this metric: with the time at which each pair began, processor
    /// time per wall time, and every reading of telemetry that all of them have, as the mean of both members
    /// and as candidate minus baseline (`…_difference`).
    ///
    /// # Errors
    /// [`SampleError`] when the values of a pair are too far apart to be a ratio.
    pub fn sample(&self, metric: &str) -> Result<PairedSample, SampleError> {
        let taken = self.pairs();
        let pairs = taken.iter().filter_map(pair).collect();
        let sample = PairedSample::new(metric, pairs)?.with_elapsed_s(elapsed_s(taken))?;
        series(taken).into_iter().try_fold(sample, PairedSample::with_telemetry)
    }
}

fn pair(members: &[Taken; 2]) -> Option<Pair> {
    let crate::attempt::Purpose::Pair { pair, .. } = members[0].attempt.purpose else { return None };
    let (baseline, candidate) = by_arm(members)?;
    Some(Pair {
        pair,
        first: Some(members[0].attempt.arm),
        baseline: baseline.execution.value()?,
        candidate: candidate.execution.value()?,
    })
}

fn elapsed_s(taken: &[[Taken; 2]]) -> Vec<f64> {
    let began = |members: &[Taken; 2]| members[0].execution.started_unix_ns;
    let origin = taken.first().map_or(0, began);
    // The wall clock may have been set back between two pairs.
    let signed = |members: &[Taken; 2]| i128::from(began(members)) - i128::from(origin);
    taken.iter().map(|members| signed(members) as f64 / 1e9).collect()
}

fn series(taken: &[[Taken; 2]]) -> Vec<Series> {
    let names: BTreeSet<&str> = taken.first().into_iter().flatten().flat_map(names_of).collect();
    let read = |name: &str| -> Option<Vec<(f64, f64)>> {
        let both = |members| {
            let (baseline, candidate) = by_arm(members)?;
            Some((reading(&baseline.execution, name)?, reading(&candidate.execution, name)?))
        };
        taken.iter().map(both).collect()
    };
    let named = |name: &str| {
        let both = read(name)?;
        let mean = both.iter().map(|&(baseline, candidate)| f64::midpoint(baseline, candidate)).collect();
        let difference = both.iter().map(|&(baseline, candidate)| candidate - baseline).collect();
        let difference = Series { name: format!("{name}_difference"), values: difference };
        Some([Series { name: name.to_owned(), values: mean }, difference])
    };
    names.into_iter().filter_map(named).flatten().collect()
}

/// Processor time per wall time, under the name it has beside the telemetry.
const CPU_PER_WALL: &str = "cpu_per_wall";

fn names_of(taken: &Taken) -> impl Iterator<Item = &str> {
    taken.execution.telemetry.keys().map(String::as_str).chain([CPU_PER_WALL])
}

fn reading(execution: &Execution, name: &str) -> Option<f64> {
    let own = || (name == CPU_PER_WALL).then(|| execution.usage.cpu_per_wall()).flatten();
    execution.telemetry.get(name).copied().or_else(own)
}

/// The execution without numbers that a file cannot hold: JSON has no infinity and no NaN.
fn writable(mut execution: Execution) -> Execution {
    execution.telemetry.retain(|_, value| value.is_finite());
    if let Reading::Value { value, also } = &mut execution.reading {
        also.retain(|_, value| value.is_finite());
        if !value.is_finite() {
            let message = format!("the value {value} is not a finite number");
            execution.reading = Reading::Malformed { message };
        }
    }
    execution
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Why events cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// They do not begin with the beginning of this definition and its schedule.
    #[error("resume a run that was begun by another definition")]
    OtherDefinition,
    /// One of them cannot follow those before it.
    #[error("resume a run from its event {event}")]
    Unexpected {
        /// Which, from 0.
        event: usize,
        /// Why.
        source: Unexpected,
    },
}

/// Why a run stopped without an outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An attempt could not be carried out, and not by the program's doing.
    #[error("carry out {attempt}")]
    Execute {
        /// The attempt.
        attempt: Attempt,
        /// What kept it.
        source: BoxError,
    },
    /// An event could not be recorded.
    #[error("record what happened")]
    Record {
        /// What kept it.
        source: BoxError,
    },
    /// The run contradicted itself: a bug of this crate.
    #[error("follow its own rules")]
    Unreachable {
        /// How.
        source: Unexpected,
    },
}

#[cfg(test)]
mod tests;
