//! What happens in a run, in the order in which it happens. The events of a run are the whole of its memory.

use paired_stats::Schedule;
use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, ConditionKind, Execution};
use crate::definition::RunDefinition;

/// One thing that happened. Each is recorded before anything that follows from it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "event")]
#[non_exhaustive]
pub enum Event {
    /// The run began.
    Began {
        /// By this definition.
        definition: RunDefinition,
        /// In this order.
        schedule: Schedule,
    },
    /// The run went on after it was stopped.
    Resumed {
        /// How often it has gone on, this time included.
        session: u32,
    },
    /// An attempt is about to be started.
    AttemptStarted {
        /// Which.
        attempt: Attempt,
    },
    /// An attempt is over.
    AttemptEnded {
        /// Which.
        attempt: Attempt,
        /// What is known of it.
        execution: Box<Execution>,
    },
    /// An attempt was started and its end never recorded, or it could not be carried out: kept as it is.
    AttemptInterrupted {
        /// Which.
        attempt: Attempt,
        /// What is known.
        evidence: String,
    },
    /// Both members of a pair are invalid.
    PairInvalidated {
        /// Which pair.
        pair: u32,
        /// Which time it was taken: 0 is the first.
        rerun: u32,
        /// By which predeclared rules, and on what evidence.
        reasons: Vec<Invalid>,
    },
}

/// One predeclared rule that applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "rule")]
#[non_exhaustive]
pub enum Invalid {
    /// A condition was seen.
    Condition {
        /// In this attempt.
        attempt: u32,
        /// Which kind.
        kind: ConditionKind,
        /// What was seen.
        evidence: String,
    },
    /// A reading was above its limit.
    Above {
        /// In this attempt.
        attempt: u32,
        /// The name of the reading.
        name: String,
        /// The reading.
        value: f64,
        /// The limit.
        limit: f64,
    },
}

/// Where events go. An event that [`record`](Self::record) has returned from must survive the end of this
/// process.
pub trait Recorder {
    /// Keeps one event.
    ///
    /// # Errors
    /// Whatever kept the event from being kept; the run stops there.
    fn record(&mut self, event: &Event) -> Result<(), BoxError>;
}

/// Any error of a caller's part.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps events in memory: for tests.
impl Recorder for Vec<Event> {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        self.push(event.clone());
        Ok(())
    }
}

/// Keeps events in the journal of an evidence bundle, each on the disk before the call returns, as records of
/// one kind.
#[derive(Clone, Copy)]
pub struct JournalRecorder<'bundle> {
    bundle: &'bundle evidence::Bundle,
    kind: &'bundle str,
}

impl<'bundle> JournalRecorder<'bundle> {
    /// A recorder that appends records of this `kind`, as in `measure.vllm-disaggregated`.
    pub fn new(bundle: &'bundle evidence::Bundle, kind: &'bundle str) -> Self {
        Self { bundle, kind }
    }
}

impl Recorder for JournalRecorder<'_> {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        self.bundle.append(self.kind, event)?;
        Ok(())
    }
}

/// The events of one `kind` in the records of a journal.
///
/// # Errors
/// When a record of that kind does not hold an event.
pub fn events_of(records: &[evidence::Record], kind: &str) -> Result<Vec<Event>, evidence::PayloadError> {
    records.iter().filter(|record| record.kind == kind).map(evidence::Record::payload).collect()
}
