//! One start of one program, and everything that is known of it afterwards.

use std::collections::BTreeMap;
use std::fmt;

use cpu_placement::{Finished, LoadKind, Outcome, ViolationKind, Watched};
use paired_stats::Arm;
use serde::{Deserialize, Serialize};

use crate::definition::TELEMETRY;

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "purpose")]
pub enum Purpose {
    /// To warm the machine; its time is kept and not used.
    WarmUp {
        /// Which of the warm-ups, from 0.
        warmup: u32,
    },
    /// To measure one member of a pair.
    Pair {
        /// Which pair, from 0: its identity.
        pair: u32,
        /// 0 for the first time the pair is taken, 1 for its first rerun.
        rerun: u32,
        /// Whether this member runs first.
        first: bool,
    },
}

/// One attempt: a number that no other attempt of the row has, the arm, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    /// Counts all attempts of the row from 0, across stops and reruns; good for names of fresh files.
    pub number: u32,
    /// Which program.
    pub arm: Arm,
    /// What for.
    #[serde(flatten)]
    pub purpose: Purpose,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} ({}, ", self.number, self.arm)?;
        match self.purpose {
            Purpose::WarmUp { warmup } => write!(f, "warm-up {warmup})"),
            Purpose::Pair { pair, rerun: 0, .. } => write!(f, "pair {pair})"),
            Purpose::Pair { pair, rerun, .. } => write!(f, "pair {pair}, rerun {rerun})"),
        }
    }
}

/// How the process of an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "how")]
#[non_exhaustive]
pub enum Ending {
    /// It exited.
    Exited {
        /// With this status.
        status: i32,
    },
    /// A signal that was not ours ended it.
    Signalled {
        /// This one.
        signal: i32,
    },
    /// It ran past its time limit.
    TimedOut,
    /// The run was cancelled while it ran.
    Cancelled,
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exited(status) => Self::Exited { status },
            Outcome::Signalled(signal) => Self::Signalled { signal },
            Outcome::TimedOut => Self::TimedOut,
            // Outcome may grow; whatever else stops a process was not the process.
            _ => Self::Cancelled,
        }
    }
}

/// What was read after the process ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "metric")]
#[non_exhaustive]
pub enum Reading {
    /// The metric.
    Value {
        /// A positive finite number, in the unit of the metric.
        value: f64,
        /// Other numbers that the program reported, by name with unit: diagnostics.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        also: BTreeMap<String, f64>,
    },
    /// The program ended well and did not report its metric as it should: a failure of the program.
    Malformed {
        /// What is wrong with it.
        message: String,
    },
    /// The process did not end well, so nothing was read.
    NotRead,
}

/// Kinds of environmental conditions. They are evidence; which of them invalidate is in the definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConditionKind {
    /// A thread's affinity, read back from the kernel, was not the requested one.
    AffinityDiffers,
    /// A thread was seen outside its CPUs.
    RanOutside,
    /// The process was moved although its set is a single CPU.
    Migrated,
    /// The kernel refused the memory policy.
    MemoryPolicyRefused,
    /// Memory was on other nodes than requested.
    MemoryElsewhere,
    /// The kernel moved memory of the process between nodes.
    MemoryMoved,
    /// Processes were left behind when the program ended.
    LeftBehind,
    /// The process was held back for want of processor time.
    Throttled,
    /// More else ran on the CPUs of the measurement than the limits of its [`Run`](cpu_placement::Run) allow.
    CompetingLoad,
    /// The program was stopped for a while by Ctrl-Z, a signal or a debugger.
    Suspended,
    /// The run was stopped between the start of the pair and its end: killed, cancelled, evicted by a
    /// scheduler.
    Interrupted,
    /// Anything else that the caller has seen.
    Other,
}

/// An environmental condition and its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Condition {
    /// Which kind.
    pub kind: ConditionKind,
    /// What was seen, for a reader.
    pub evidence: String,
    /// When, since the process was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// From just before the start until the end was seen.
    pub wall_ns: u64,
    /// Processor time in user mode.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub system_ns: u64,
    /// The largest resident size.
    pub max_rss_bytes: u64,
    /// Times the CPU was given up.
    pub voluntary_switches: u64,
    /// Times the CPU was taken away.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Processor time divided by wall time: far below 1 for a single-threaded program means that it waited or
    /// was kept waiting.
    #[must_use]
    pub fn cpu_per_wall(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| (self.user_ns + self.system_ns) as f64 / self.wall_ns as f64)
    }
}

/// Everything that is known of one attempt once it is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
pub struct Execution {
    /// When its process was started, on the wall clock, since 1970.
    pub started_unix_ns: u64,
    /// How its process ended.
    #[serde(flatten)]
    pub ending: Ending,
    /// What was read afterwards.
    #[serde(flatten)]
    pub reading: Reading,
    /// What it used.
    pub usage: Usage,
    /// What was not as it should be around it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Readings that may explain its time, by name with unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub telemetry: BTreeMap<String, f64>,
    /// All that the placement layer saw, affinity included; absent when no process was run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "finished_from_json")]
    pub finished: Option<Finished>,
}

/// Events carry their kind as a key among others, so serde keeps their parts in a buffer of its own, which does not
/// turn the text of a key back into a number. JSON values do.
fn finished_from_json<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Finished>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(from)?;
    value.map(serde_json::from_value).transpose().map_err(serde::de::Error::custom)
}

impl Execution {
    /// An execution from a finished process. The violations that were seen become conditions, and what was
    /// watched becomes telemetry: `steal_ppm`, `others_ppm`, `siblings_ppm` (shares of the set's time),
    /// `cpu_pressure_ms`, `run_delay_ms`, `held_back_ms`, `frequency_khz` (the lowest seen) and
    /// `temperature_millicelsius` (the highest seen), where the machine exposes them.
    pub fn new(finished: Finished, reading: Reading) -> Self {
        let usage = Usage {
            wall_ns: finished.wall_ns,
            user_ns: finished.user_ns,
            system_ns: finished.system_ns,
            max_rss_bytes: finished.max_rss_bytes,
            voluntary_switches: finished.voluntary_switches,
            involuntary_switches: finished.involuntary_switches,
        };
        let condition = |violation: &cpu_placement::Violation| Condition {
            kind: condition_kind(&violation.kind),
            evidence: violation.kind.to_string(),
            at_ns: Some(violation.at_ns),
        };
        Self {
            started_unix_ns: finished.started_unix_ns,
            ending: finished.outcome.into(),
            reading,
            usage,
            conditions: finished.violations.iter().map(condition).collect(),
            telemetry: finished.watched.as_ref().map(telemetry).unwrap_or_default(),
            finished: Some(finished),
        }
    }

    /// The metric, if the attempt ended well.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        match self.reading {
            Reading::Value { value, .. } if self.failure().is_none() => Some(value),
            _ => None,
        }
    }

    /// How the program failed, if it did. A failure is never an environmental condition, whatever else was
    /// seen.
    #[must_use]
    pub fn failure(&self) -> Option<ProductFailure> {
        match (&self.ending, &self.reading) {
            (Ending::Cancelled, _) => None,
            (Ending::Exited { status: 0 }, Reading::Value { value, .. }) => {
                let usable = value.is_finite() && *value > 0.0;
                (!usable)
                    .then(|| ProductFailure::Metric { message: format!("the value {value} is not positive") })
            }
            (Ending::Exited { status: 0 }, Reading::Malformed { message }) => {
                Some(ProductFailure::Metric { message: message.clone() })
            }
            (Ending::Exited { status: 0 }, Reading::NotRead) => {
                Some(ProductFailure::Metric { message: "the metric was not read".to_owned() })
            }
            (&Ending::Exited { status }, _) => Some(ProductFailure::Exited { status }),
            (&Ending::Signalled { signal }, _) => Some(ProductFailure::Signalled { signal }),
            (Ending::TimedOut, _) => Some(ProductFailure::TimedOut),
        }
    }
}

fn telemetry(watched: &Watched) -> BTreeMap<String, f64> {
    let load = watched.load.value();
    let share = |kind| load.map(|load| load.ppm(kind) as f64);
    let ms = |ns: u64| ns as f64 / 1e6;
    let seen = &watched.telemetry;
    let readings = [
        ("steal_ppm", share(LoadKind::Steal)),
        ("others_ppm", share(LoadKind::Others)),
        ("siblings_ppm", share(LoadKind::Siblings)),
        ("cpu_pressure_ms", load.and_then(|load| load.pressure_ns.value()).copied().map(ms)),
        ("run_delay_ms", watched.run_delay_ns.value().copied().map(ms)),
        ("held_back_ms", watched.throttling.value().map(|throttling| ms(throttling.held_back_ns))),
        ("frequency_khz", seen.frequency_khz.value().map(|range| range.min as f64)),
        ("temperature_millicelsius", seen.temperature_millicelsius.value().map(|range| range.max as f64)),
    ];
    debug_assert!(
        readings.iter().map(|(name, _)| *name).eq(TELEMETRY),
        "every name and no other is declared"
    );
    readings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn condition_kind(violation: &ViolationKind) -> ConditionKind {
    match violation {
        ViolationKind::AffinityDiffers { .. } => ConditionKind::AffinityDiffers,
        ViolationKind::RanOutside { .. } => ConditionKind::RanOutside,
        ViolationKind::MemoryPolicyRefused { .. } => ConditionKind::MemoryPolicyRefused,
        ViolationKind::Migrated { .. } => ConditionKind::Migrated,
        ViolationKind::MemoryElsewhere { .. } => ConditionKind::MemoryElsewhere,
        ViolationKind::MemoryMoved { .. } => ConditionKind::MemoryMoved,
        ViolationKind::Throttled { .. } => ConditionKind::Throttled,
        ViolationKind::CompetingLoad { .. } => ConditionKind::CompetingLoad,
        ViolationKind::Suspended { .. } | ViolationKind::Stopped { .. } => ConditionKind::Suspended,
        ViolationKind::LeftBehind { .. } => ConditionKind::LeftBehind,
        _ => ConditionKind::Other,
    }
}

/// A failure of the program that is measured: it fails the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "failure")]
#[non_exhaustive]
pub enum ProductFailure {
    /// It exited with a status other than 0.
    #[error("it exited with status {status}")]
    Exited {
        /// The status.
        status: i32,
    },
    /// A signal ended it.
    #[error("signal {signal} ended it")]
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// It ran past its time limit.
    #[error("it ran past its time limit")]
    TimedOut,
    /// It did not report its metric as it should.
    #[error("its metric cannot be used: {message}")]
    Metric {
        /// What is wrong.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    /// Whatever the placement layer saw of a real process comes back as it was written, numbers as keys included.
    #[test]
    fn an_execution_of_a_real_process_survives_its_record() {
        let cpus = cpu_placement::Topology::read().unwrap().allowed.last().into_iter().collect();
        let run = cpu_placement::Run::new("/bin/sleep").arg("0.3").cpus(cpus);
        let finished = run.wait(&cpu_placement::CancelToken::new()).unwrap();
        let execution =
            Box::new(Execution::new(finished, Reading::Value { value: 0.1, also: BTreeMap::new() }));
        let purpose = Purpose::Pair { pair: 0, rerun: 0, first: true };
        let attempt = Attempt { number: 0, arm: Arm::Baseline, purpose };
        let event = Event::AttemptEnded { attempt, execution };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
