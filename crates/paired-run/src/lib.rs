//! Takes the pairs of a measurement: warm-ups, attempts, invalidation, resume.
//!
//! A [`PairedRun`] follows the schedule of its [`RunDefinition`]: alternating warm-ups, then pairs whose
//! members run one directly after the other, one process at a time. An [`Executor`] carries out each attempt;
//! [`Processes`] does it with two [`Subject`]s, [`Scripted`] without running anything. Every [`Event`] goes
//! to a [`Recorder`] before anything that follows from it is done, so a run that was killed is continued by
//! [`PairedRun::resume`] from what was kept: no pair that was taken is lost or taken again. [`JournalRecorder`] waits
//! for the disk at every event, [`OverlappedRecorder`] while the next attempt runs ([`Durability`]).
//!
//! Two things can go wrong, and they are kept apart. A *failure of the program* (its status, a signal, its
//! time limit, a malformed metric) fails the row and is never measured again. An *environmental condition*
//! that the definition names ([`Invalidation`]) makes both members of its pair invalid; they stay in the
//! record with the evidence, and the whole pair is taken again in the same order, a bounded number of times.
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use cpu_placement::{CancelToken, Finished, Run};
//! use paired_run::{Attempt, BoxError, Event, PairedRun, Processes, Reading, RunDefinition, RunOutcome, Subject};
//!
//! struct Shell(&'static str);
//!
//! impl Subject for Shell {
//!     fn prepare(&mut self, _attempt: &Attempt) -> Result<Run, BoxError> {
//!         Ok(Run::new("/bin/sh").args(["-c", self.0]))
//!     }
//!
//!     fn read(&mut self, _attempt: &Attempt, finished: &Finished) -> Result<Reading, BoxError> {
//!         Ok(Reading::Value { value: finished.wall_ns as f64 / 1e6, also: BTreeMap::new() })
//!     }
//! }
//!
//! let definition = RunDefinition { pairs: 4, warmups_per_arm: 1, ..RunDefinition::default() };
//! let mut run = PairedRun::new(definition);
//! let mut events: Vec<Event> = Vec::new();
//! let mut processes = Processes::new(Shell("exit 0"), Shell("true && exit 0"));
//! assert_eq!(run.run(&mut processes, &mut events, &CancelToken::new())?, RunOutcome::Complete);
//! assert_eq!(run.sample("wall_ms")?.count(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attempt;
mod definition;
mod event;
mod execute;
mod overlapped;
mod progress;
mod run;
mod scripted;

pub use crate::{
    attempt::{
        Attempt, Condition, ConditionKind, Ending, Execution, ProductFailure, Purpose, Reading, Usage,
    },
    definition::{Invalidation, RunDefinition, TELEMETRY},
    event::{BoxError, Event, Invalid, JournalRecorder, Recorder, events_of},
    execute::{Executor, Observer, Processes, Subject},
    overlapped::{Durability, OverlapError, OverlappedRecorder},
    progress::{Taken, Unexpected},
    run::{PairedRun, ResumeError, RunError, RunOutcome},
    scripted::{Fault, Scripted},
};
