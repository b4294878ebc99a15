//! What one check found.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::canonical_report::value_text;

macro_rules! item_ids {
    ($($variant:ident = $id:literal, $proves:literal;)*) => {
        /// The stable name of a coverage item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum ItemId {
            $(#[doc = $proves] #[serde(rename = $id)] $variant,)*
        }

        impl ItemId {
            /// Every item, in the order they are reported.
            pub const ALL: &'static [ItemId] = &[$(ItemId::$variant,)*];

            /// The name used in files and reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(ItemId::$variant => $id,)* }
            }

            /// One sentence: what it means when the item holds.
            #[must_use]
            pub fn proves(self) -> &'static str {
                match self { $(ItemId::$variant => $proves,)* }
            }
        }
    };
}

item_ids! {
    Layout = "layout", "The layout is a known one and every kind of evidence was captured.";
    ReplayBench = "d3.replay_bench", "The report says that seeded routing was compiled in.";
    Exclusions = "d2.exclusions", "The harness leaves out exactly the closed list of fields, or what a reviewer accepted.";
    Declaration = "row.declaration", "The run had the engine, topology, workers, capacities and router of the row.";
    Requests = "q2.requests", "Every request of the window is there once, and all counts of requests agree.";
    TerminalStatus = "q2.terminal_status", "Every request completed and produced its tokens.";
    TokenTotals = "q2.token_totals", "Token sums over requests, the summary and the trace window are equal.";
    OverlapRouting = "q2.overlap_routing", "The router placed requests by the cached blocks it knew of.";
    PrefixReuse = "q2.prefix_reuse", "Engines found cached prefixes, as requests, histories and summary agree.";
    EveryWorker = "q2.every_worker", "Every configured worker of every pool was chosen, and no other.";
    Placements = "q2.placements", "Every route decision is accounted for; queued ones exist only with a queue threshold.";
    Admissions = "q2.admissions", "Admission histories are complete, in order, and agree with the counts and times beside them.";
    KvEvents = "q2.kv_events", "The router received KV events of device memory only, and their counts agree.";
    PressureBand = "q2.pressure_band", "Pressure events are inside the row's band, of the engine's kind, and as many as stated.";
    PressureLinks = "q2.pressure_links", "Pressure records and the requests they belong to name each other.";
    CapacityEdge = "q2.capacity_edge", "Each pressure event happened where blocks ran out.";
    Readmitted = "q2.readmitted", "Every request under pressure was admitted again later, in the same pool.";
    NoCycling = "q2.no_cycling", "No request lost its blocks again and again.";
    HandoffComplete = "q2.handoff_complete", "Every completed request of a disaggregated row has a whole handoff; no other has any.";
    HandoffOrder = "q2.handoff_order", "The steps of every handoff are in the engine's order.";
    SourceReleasedLast = "q2.source_released_last", "The source kept its blocks until the destination owned them.";
    VirtualTime = "q2.virtual_time", "Virtual time went forward from the first arrival to the last completion.";
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The first place that contradicts an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// JSON pointer into the report.
    pub pointer: String,
    /// What is there; scalars as they are written.
    pub found: String,
    /// What should be.
    pub expected: String,
    /// How many contradictions the item has in all.
    pub occurrences: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.pointer, self.found, self.expected)?;
        match self.occurrences {
            0 | 1 => Ok(()),
            n => write!(f, " ({n} contradictions in all)"),
        }
    }
}

/// Whether an item holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It does.
    Held,
    /// It does not: the row does not qualify.
    Failed {
        /// The first contradiction.
        finding: Finding,
    },
    /// A reviewer must decide before the campaign goes on.
    StopForReview {
        /// What to decide about.
        finding: Finding,
    },
    /// The row has nothing of the kind.
    NotApplicable {
        /// Why.
        reason: String,
    },
}

/// A value that was counted or read while checking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum CounterValue {
    /// A count.
    Count(u64),
    /// A name, a list, or a time or ratio in its shortest exact text: as a JSON number it would come back from some
    /// parsers with another last bit, and look like drift.
    Text(String),
}

impl fmt::Display for CounterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterValue::Count(count) => write!(f, "{count}"),
            CounterValue::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for CounterValue {
    fn from(count: u64) -> Self {
        CounterValue::Count(count)
    }
}

impl From<f64> for CounterValue {
    fn from(value: f64) -> Self {
        CounterValue::Text(format!("{value:?}"))
    }
}

impl From<String> for CounterValue {
    fn from(text: String) -> Self {
        CounterValue::Text(text)
    }
}

/// A named observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Counter {
    /// Unique among all counters of a report; ends in the unit, if it has one.
    pub name: String,
    /// What was seen.
    pub value: CounterValue,
}

/// One item of the coverage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Item {
    /// Which one.
    pub id: ItemId,
    /// Whether it holds.
    #[serde(flatten)]
    pub status: Status,
    /// What was seen on the way, whether it holds or not.
    pub counters: Vec<Counter>,
}

/// What stands at the pointer of a finding.
pub(super) enum Seen {
    /// Whatever the report has there.
    InReport,
    /// Something derived from several places.
    Derived(String),
}

struct Contradiction {
    pointer: String,
    seen: Seen,
    expected: String,
}

/// Collects what one check sees; the first contradiction decides.
pub(super) struct Check {
    id: ItemId,
    counters: Vec<Counter>,
    first: Option<Contradiction>,
    contradictions: u64,
}

impl Check {
    pub(super) fn new(id: ItemId) -> Self {
        Check { id, counters: Vec::new(), first: None, contradictions: 0 }
    }

    pub(super) fn count(&mut self, name: impl Into<String>, value: impl Into<CounterValue>) {
        self.counters.push(Counter { name: name.into(), value: value.into() });
    }

    /// Notes a contradiction unless `holds`; the texts are made for the first one only.
    pub(super) fn expect(&mut self, holds: bool, contradiction: impl FnOnce() -> (String, Seen, String)) {
        if holds {
            return;
        }
        self.contradictions += 1;
        if self.first.is_none() {
            let (pointer, seen, expected) = contradiction();
            self.first = Some(Contradiction { pointer, seen, expected });
        }
    }

    /// As [`Check::expect`], for a value that stands in the report.
    pub(super) fn at(&mut self, holds: bool, place: impl FnOnce() -> (String, String)) {
        self.expect(holds, || {
            let (pointer, expected) = place();
            (pointer, Seen::InReport, expected)
        });
    }

    fn finding(&mut self, report: &[u8]) -> Option<Finding> {
        let Contradiction { pointer, seen, expected } = self.first.take()?;
        let found = match seen {
            Seen::Derived(text) => text,
            Seen::InReport => value_text(report, &pointer).unwrap_or_else(|| "nothing".to_owned()),
        };
        Some(Finding { pointer, found, expected, occurrences: self.contradictions })
    }

    /// Held, or failed with the first contradiction.
    pub(super) fn finish(mut self, report: &[u8]) -> Item {
        let status = self.finding(report).map_or(Status::Held, |finding| Status::Failed { finding });
        Item { id: self.id, status, counters: self.counters }
    }

    /// Held, or a matter for a reviewer.
    pub(super) fn finish_for_review(mut self, report: &[u8]) -> Item {
        let status = self.finding(report).map_or(Status::Held, |finding| Status::StopForReview { finding });
        Item { id: self.id, status, counters: self.counters }
    }

    /// Failed if something contradicts; otherwise there was nothing to hold.
    pub(super) fn finish_not_applicable(mut self, report: &[u8], reason: impl Into<String>) -> Item {
        let status = match self.finding(report) {
            Some(finding) => Status::Failed { finding },
            None => Status::NotApplicable { reason: reason.into() },
        };
        Item { id: self.id, status, counters: self.counters }
    }
}
