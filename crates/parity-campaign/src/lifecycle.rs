//! What a forced lifecycle left, and whether it shows what it was forced for (F1, F2).

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::coverage::{Coverage, ItemId, Status, WorkloadTotals};
use crate::definition::{Definition, Lifecycle, LifecycleKind, PatchTarget};
use crate::harness::row_options;
use crate::record::{Both, CanonicalDigest, Side, TestEnd};

/// `records/lifecycle-NAME.json`: one forced lifecycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LifecycleRecord {
    /// Its name.
    pub name: String,
    /// What it forces.
    pub kind: LifecycleKind,
    /// The options of the row, or the command of the test.
    pub arguments: Vec<String>,
    /// What a row replayed.
    pub window: Option<LifecycleWindow>,
    /// What each revision showed; `null` for one that it is not forced on.
    pub sides: Both<Option<LifecycleEvidence>>,
    /// The conclusion.
    pub outcome: LifecycleOutcome,
}

/// The requests of a lifecycle's row: the first of the campaign's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LifecycleWindow {
    /// Digest of their lines.
    pub sha256: Sha256,
    /// What they hold.
    pub totals: WorkloadTotals,
}

/// What one revision showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "by")]
#[non_exhaustive]
pub enum LifecycleEvidence {
    /// A row was replayed to its end.
    Row {
        /// Digest of its report.
        digest: CanonicalDigest,
        /// What the report proves.
        coverage: Box<Coverage>,
        /// The report itself, where it does not show the lifecycle.
        kept: Option<String>,
    },
    /// The harness failed or wrote something that is no report.
    Fault {
        /// What happened.
        fault: String,
    },
    /// A test was run.
    Test {
        /// How it ended.
        end: TestEnd,
    },
}

/// The outcome of a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum LifecycleOutcome {
    /// It was forced, and went as it should.
    Forced,
    /// It was not.
    Failed {
        /// `side: what`
        against: Vec<String>,
    },
}

/// `lifecycle` in the journal: what the campaign forced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LifecycleCoverage {
    /// Names of what was forced.
    pub covered: Vec<String>,
    /// Kinds that nothing shows.
    pub not_covered: Vec<String>,
}

impl LifecycleRecord {
    /// Whether it went as it should.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.outcome == LifecycleOutcome::Forced
    }
}

/// Where the record of a lifecycle is.
pub(crate) fn record_path(name: &str) -> String {
    format!("records/lifecycle-{name}.json")
}

/// Where a report that does not show its lifecycle is.
pub(crate) fn report_path(name: &str, side: Side) -> String {
    format!("reports/lifecycle-{name}-{}.json", side.name())
}

/// Whether a lifecycle is forced on a revision.
pub(crate) fn is_forced_on(lifecycle: &Lifecycle, side: Side) -> bool {
    match lifecycle.revision {
        PatchTarget::Both => true,
        PatchTarget::Baseline => side == Side::Baseline,
        PatchTarget::Candidate => side == Side::Candidate,
    }
}

/// What is given to the harness, or run.
pub(crate) fn arguments(definition: &Definition, lifecycle: &Lifecycle) -> Vec<String> {
    let of_row = lifecycle.row.iter().flat_map(|row| row_options(definition, row));
    let of_test = lifecycle.test.iter().flat_map(|test| test.command.clone());
    of_row.flat_map(|(flag, value)| [flag.to_owned(), value]).chain(of_test).collect()
}

/// What every lifecycle rests on: the run was the declared one, each request is accounted for and completed, and virtual
/// time went forward.
const ALWAYS: [ItemId; 11] = [
    ItemId::Layout,
    ItemId::ReplayBench,
    ItemId::Exclusions,
    ItemId::Declaration,
    ItemId::Requests,
    ItemId::TerminalStatus,
    ItemId::TokenTotals,
    ItemId::Placements,
    ItemId::Admissions,
    ItemId::KvEvents,
    ItemId::VirtualTime,
];

/// What shows the lifecycle itself. That queueing happened is part of [`ItemId::Placements`], because the row declares a
/// threshold.
fn of_kind(kind: LifecycleKind) -> &'static [ItemId] {
    match kind {
        LifecycleKind::RouterQueueing => &[ItemId::Placements],
        LifecycleKind::PreemptionEdge => &[
            ItemId::PressureBand,
            ItemId::PressureLinks,
            ItemId::CapacityEdge,
            ItemId::Readmitted,
            ItemId::NoCycling,
        ],
        LifecycleKind::Scaling => &[],
        LifecycleKind::VllmHandoff | LifecycleKind::SglangHandoff => {
            &[ItemId::HandoffComplete, ItemId::HandoffOrder, ItemId::SourceReleasedLast]
        }
    }
}

/// What only the rows of the matrix claim: a small row need not reuse a prefix, nor spread over workers.
const NOT_CLAIMED: [ItemId; 3] = [ItemId::OverlapRouting, ItemId::PrefixReuse, ItemId::EveryWorker];

/// What stands against a lifecycle in the coverage of its row.
pub(crate) fn against_coverage(kind: LifecycleKind, coverage: &Coverage) -> Vec<String> {
    let is_needed = |id| ALWAYS.contains(&id) || of_kind(kind).contains(&id);
    let missing = ItemId::ALL.iter().filter(|id| is_needed(**id) && coverage.item(**id).is_none());
    let missing = missing.map(|id| format!("{id}: was not checked"));
    let found = coverage.items.iter().filter_map(|item| match &item.status {
        Status::Failed { finding } | Status::StopForReview { finding } if !NOT_CLAIMED.contains(&item.id) => {
            Some(format!("{}: {finding}", item.id))
        }
        Status::NotApplicable { reason } if is_needed(item.id) => {
            Some(format!("{}: not exercised: {reason}", item.id))
        }
        _ => None,
    });
    missing.chain(found).collect()
}

/// What stands against a lifecycle in what one revision showed.
pub(crate) fn against(kind: LifecycleKind, evidence: &LifecycleEvidence) -> Vec<String> {
    match evidence {
        LifecycleEvidence::Row { coverage, .. } => against_coverage(kind, coverage),
        LifecycleEvidence::Fault { fault } => vec![fault.clone()],
        LifecycleEvidence::Test { end: TestEnd::Passed } => Vec::new(),
        LifecycleEvidence::Test { end } => vec![format!("its test: {end}")],
    }
}

/// The conclusion from what both revisions showed.
pub(crate) fn outcome(lifecycle: &Lifecycle, sides: &Both<Option<LifecycleEvidence>>) -> LifecycleOutcome {
    let of_side = |side: Side| {
        let found = match (sides.get(side), is_forced_on(lifecycle, side)) {
            (Some(evidence), true) => against(lifecycle.kind, evidence),
            (None, false) => Vec::new(),
            (None, true) => vec!["nothing was recorded".to_owned()],
            (Some(_), false) => vec!["the campaign does not force it here".to_owned()],
        };
        found.into_iter().map(move |what| format!("{}: {what}", side.name()))
    };
    let against: Vec<String> = Side::BOTH.into_iter().flat_map(of_side).collect();
    if against.is_empty() { LifecycleOutcome::Forced } else { LifecycleOutcome::Failed { against } }
}

#[cfg(test)]
mod tests;
