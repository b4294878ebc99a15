//! The stages, by name and in order.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One stage of a campaign. The order of the variants is the order of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Names become commits and isolated checkouts.
    Pin,
    /// Each revision becomes one artifact.
    Build,
    /// The window is cut from the trace.
    Slice,
    /// Processes get their CPUs and memory.
    Place,
    /// Two repetitions per revision and row.
    Run,
    /// Each report becomes one digest.
    Canonicalise,
    /// Digests are compared, within and across revisions.
    Compare,
    /// Each row proves what it exercised.
    Qualify,
    /// Every difference is held against the records that explain it.
    Classify,
    /// Rare lifecycles are forced where the rows cannot reach them.
    Lifecycle,
    /// Interleaved pairs are taken.
    Measure,
    /// The bounds are held against the limit.
    Gate,
    /// What is recorded is rendered.
    Report,
    /// What was only needed on the way is removed.
    Cleanup,
}

impl Stage {
    /// Every stage in order.
    pub const ALL: [Stage; 14] = [
        Stage::Pin,
        Stage::Build,
        Stage::Slice,
        Stage::Place,
        Stage::Run,
        Stage::Canonicalise,
        Stage::Compare,
        Stage::Qualify,
        Stage::Classify,
        Stage::Lifecycle,
        Stage::Measure,
        Stage::Gate,
        Stage::Report,
        Stage::Cleanup,
    ];

    /// The name used in files and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Pin => "pin",
            Stage::Build => "build",
            Stage::Slice => "slice",
            Stage::Place => "place",
            Stage::Run => "run",
            Stage::Canonicalise => "canonicalise",
            Stage::Compare => "compare",
            Stage::Qualify => "qualify",
            Stage::Classify => "classify",
            Stage::Lifecycle => "lifecycle",
            Stage::Measure => "measure",
            Stage::Gate => "gate",
            Stage::Report => "report",
            Stage::Cleanup => "cleanup",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) mod build;
pub(crate) mod checkout_test;
pub(crate) mod classify;
pub(crate) mod cleanup;
pub(crate) mod judge;
pub(crate) mod lifecycle;
pub(crate) mod measure;
pub(crate) mod pin;
pub(crate) mod place;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod slice;
