//! How the pairs of one row are taken: fixed before the first warm-up.

use std::collections::{BTreeMap, BTreeSet};

use paired_stats::Schedule;
use serde::{Deserialize, Serialize};

use crate::attempt::ConditionKind;

/// The definition of a row's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RunDefinition {
    /// The seed of the schedule.
    pub seed: u64,
    /// How many pairs are wanted.
    pub pairs: u32,
    /// How many warm-ups each arm gets before the first pair.
    pub warmups_per_arm: u32,
    /// Whether the warm-ups are repeated when a run goes on after it was stopped.
    pub warm_up_on_resume: bool,
    /// What makes a pair invalid, and how often one may be taken again.
    pub invalidation: Invalidation,
}

impl Default for RunDefinition {
    fn default() -> Self {
        Self {
            seed: 1,
            pairs: 60,
            warmups_per_arm: 5,
            warm_up_on_resume: true,
            invalidation: Invalidation::default(),
        }
    }
}

impl RunDefinition {
    /// The order in which this row is measured.
    pub fn schedule(&self) -> Schedule {
        Schedule::generate(self.seed, self.pairs, self.warmups_per_arm)
    }
}

/// The names of what [`Execution::new`](crate::Execution::new) keeps of a watched process, where the machine exposes it:
/// shares of the time of the CPU set in millionths, milliseconds, the lowest frequency and the highest temperature seen.
pub const TELEMETRY: [&str; 8] = [
    "steal_ppm",
    "others_ppm",
    "siblings_ppm",
    "cpu_pressure_ms",
    "run_delay_ms",
    "held_back_ms",
    "frequency_khz",
    "temperature_millicelsius",
];

/// The environmental conditions that make a pair invalid, both members together. A failure of the program
/// that is measured is never one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Invalidation {
    /// Conditions that invalidate whenever they are seen.
    pub conditions: BTreeSet<ConditionKind>,
    /// Telemetry that invalidates above a limit, by name, as in `others_ppm = 50000`; [`TELEMETRY`] names what
    /// executions of processes have. A reading that is missing exceeds nothing.
    pub above: BTreeMap<String, f64>,
    /// How often one pair may be taken again.
    pub reruns_per_pair: u32,
    /// How often pairs of this row may be taken again, all together.
    pub reruns_per_row: u32,
}

impl Default for Invalidation {
    fn default() -> Self {
        use ConditionKind::{
            AffinityDiffers, CompetingLoad, Interrupted, MemoryElsewhere, MemoryMoved, MemoryPolicyRefused,
            Migrated, RanOutside, Suspended, Throttled,
        };
        let placement =
            [AffinityDiffers, RanOutside, Migrated, MemoryPolicyRefused, MemoryElsewhere, MemoryMoved];
        let conditions = placement.into_iter().chain([Throttled, CompetingLoad, Suspended, Interrupted]);
        Self {
            conditions: conditions.collect(),
            above: BTreeMap::new(),
            reruns_per_pair: 2,
            reruns_per_row: 6,
        }
    }
}
