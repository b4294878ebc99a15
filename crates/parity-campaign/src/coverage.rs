//! Proves from a report's own evidence that a row exercised the paths it claims (requirements Q2, Q3, F2, D2, D3).
//!
//! A run that completes proves nothing about routing, pressure or handoff. Each [`Item`] here reads the records that would
//! be different if the path had not been taken, checks them against each other, and keeps what it counted.
//!
//! The items are cut so that each member of a report belongs to one of them: one changed value contradicts one item. Where
//! a value is stated twice (a handoff time and the admission it repeats), [`ItemId::Admissions`] owns the agreement and
//! the other items read the history.
//!
//! # What is invariant in a handoff
//!
//! Studied on reports of 1.5.1 and 1.6.1, and the same in both:
//!
//! * vLLM and TensorRT-LLM hold the source first: prefill admission, source held, destination reserved, destination
//!   activated, decode admission. SGLang reserves the destination first, mostly before the prefill is even admitted; the
//!   rest of the order is the same. (The list in requirement Q2 is vLLM's.)
//! * The source is released after the destination owns the blocks, never before. What "last" means differs: vLLM releases
//!   when its worker next looks, which may be before the decode scheduler admits the request; in SGLang activation is the
//!   admission, so the release follows it. In both it may come after the first token and, for short outputs, after the
//!   request's end, because the prefill worker is in the middle of another pass.
//!
//! # What repeats without being pressure
//!
//! SGLang 1.5 admits every further chunk of a long prefill again, with `is_readmission: true`: thousands of readmissions
//! beside a handful of retractions. So pressure is counted from its own records, and a readmission is matched to a record,
//! never the other way round.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::canonical_report::{Pool, Report, ReportError, Request, RequestUuid};
use crate::definition::{Engine, Row, Topology};

mod admission;
mod handoff;
mod identity;
mod item;
mod pressure;
mod requests;
mod routing;
mod time;

pub use item::{Counter, CounterValue, Finding, Item, ItemId, Status};

/// How often one request may lose its blocks before that counts as cycling.
///
/// Real rows inside their band show one request in thousands that meets the edge twice, long apart; a third time would be
/// the same request going round.
pub const MAX_PRESSURE_PER_REQUEST: u64 = 2;

/// How often one request may be admitted to one pool at one virtual time.
///
/// SGLang 1.5.1 admits two chunks of one prefill at one time now and then (36 of 5,000 requests); more than twice that
/// means that time stands still.
pub const MAX_ADMISSIONS_AT_ONE_TIME: u64 = 4;

/// What the trace window holds, from the slice manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadTotals {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Output tokens asked for.
    pub output_tokens: u64,
}

/// What one report is held against.
#[derive(Clone, Debug)]
pub struct Expectation<'a> {
    /// The frozen row.
    pub row: &'a Row,
    /// The trace window.
    pub totals: WorkloadTotals,
    /// Pointers that a reviewer accepted beyond the closed exclusion list.
    pub reviewed_exclusions: BTreeSet<&'a str>,
    /// How much faster than recorded the requests arrive; not compared when `None`.
    pub arrival_speedup_ratio: Option<f64>,
    /// Tokens per hash id of the trace; not compared when `None`.
    pub trace_block_size: Option<u64>,
    /// See [`MAX_PRESSURE_PER_REQUEST`].
    pub max_pressure_per_request: u64,
}

impl<'a> Expectation<'a> {
    /// A row and its window, with nothing reviewed and the default bound on repeated pressure.
    #[must_use]
    pub fn new(row: &'a Row, totals: WorkloadTotals) -> Self {
        Expectation {
            row,
            totals,
            reviewed_exclusions: BTreeSet::new(),
            arrival_speedup_ratio: None,
            trace_block_size: None,
            max_pressure_per_request: MAX_PRESSURE_PER_REQUEST,
        }
    }

    /// Also compares the settings that all rows of a campaign share.
    #[must_use]
    pub fn with_replay(mut self, arrival_speedup_ratio: f64, trace_block_size: u64) -> Self {
        self.arrival_speedup_ratio = Some(arrival_speedup_ratio);
        self.trace_block_size = Some(trace_block_size);
        self
    }

    /// Accepts these additions to the closed exclusion list, and no others.
    #[must_use]
    pub fn with_reviewed_exclusions(mut self, pointers: BTreeSet<&'a str>) -> Self {
        self.reviewed_exclusions = pointers;
        self
    }
}

/// What the harness says it leaves out, held against the closed list (D2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ExclusionAudit {
    /// The report's own list.
    pub stated: Vec<String>,
    /// Stated beyond the closed list.
    pub additions: Vec<String>,
    /// In the closed list and not stated.
    pub removals: Vec<String>,
    /// Fields of either list that the report has.
    pub present: Vec<String>,
    /// Fields of either list that the report lacks: the harness had already left them out.
    pub absent: Vec<String>,
    /// Reviewed additions that this report does not state. One revision may state what the other does not; a review that
    /// no report of a campaign uses is stale.
    pub unused_reviews: Vec<String>,
}

/// Every item of one report.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Coverage {
    /// In the order of [`ItemId::ALL`].
    pub items: Vec<Item>,
    /// The exclusion list of the report.
    pub exclusions: ExclusionAudit,
}

/// A counter that is not what a seed recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Drift {
    /// The counter's name.
    pub name: String,
    /// What the seed recorded.
    pub expected: CounterValue,
    /// What the report shows; `None` when no such counter was taken.
    pub found: Option<CounterValue>,
}

impl Coverage {
    /// Checks one report line.
    ///
    /// # Errors
    ///
    /// The report cannot be read at all, or has a layout that this protocol does not know; see [`ReportError`]. Whatever
    /// else is wrong is a failed item.
    pub fn check(report_line: &[u8], expectation: &Expectation<'_>) -> Result<Self, ReportError> {
        let report = Report::parse(report_line)?;
        Ok(Self::of(&report, report_line, expectation))
    }

    /// Checks a report that has been read; `report_line` is what it was read from.
    pub fn of(report: &Report, report_line: &[u8], expectation: &Expectation<'_>) -> Self {
        let context = Context::new(report, report_line, expectation);
        let (exclusions, exclusions_item) = identity::exclusions(&context);
        let items = vec![
            identity::layout(&context),
            identity::replay_bench(&context),
            exclusions_item,
            identity::declaration(&context),
            requests::requests(&context),
            requests::terminal_status(&context),
            requests::token_totals(&context),
            routing::overlap_routing(&context),
            admission::prefix_reuse(&context),
            routing::every_worker(&context),
            routing::placements(&context),
            admission::admissions(&context),
            time::kv_events(&context),
            pressure::band(&context),
            pressure::links(&context),
            pressure::capacity_edge(&context),
            pressure::readmitted(&context),
            pressure::no_cycling(&context),
            handoff::complete(&context),
            handoff::order(&context),
            handoff::source_released_last(&context),
            time::virtual_time(&context),
        ];
        Coverage { items, exclusions }
    }

    /// Whether the row qualifies: nothing failed and nothing waits for a reviewer.
    #[must_use]
    pub fn qualifies(&self) -> bool {
        self.failures().next().is_none() && self.reviews().next().is_none()
    }

    /// What this must have, being of a row of the matrix, and has not: an item that is absent, or that is said not to apply
    /// although such a row has what it is about. A coverage that was taken from a report lacks nothing.
    #[must_use]
    pub fn lack(&self, row: &Row) -> Option<String> {
        let listed: Vec<ItemId> = self.items.iter().map(|item| item.id).collect();
        if listed != ItemId::ALL {
            let absent = ItemId::ALL.iter().find(|id| !listed.contains(id));
            return Some(
                absent.map_or("the items are in another order".to_owned(), |id| {
                    format!("{id} was not checked")
                }),
            );
        }
        // Without pressure, which fails the row, there is nothing to check of its records.
        if !self.qualifies() {
            return None;
        }
        let handoff = [ItemId::HandoffComplete, ItemId::HandoffOrder, ItemId::SourceReleasedLast];
        let may_lack = |id| row.topology == Topology::Aggregated && handoff.contains(&id);
        let is_lacking =
            |item: &&Item| matches!(item.status, Status::NotApplicable { .. }) && !may_lack(item.id);
        self.items
            .iter()
            .find(is_lacking)
            .map(|item| format!("{} cannot be out of place in this row", item.id))
    }

    /// Items that failed.
    pub fn failures(&self) -> impl Iterator<Item = (ItemId, &Finding)> {
        self.items.iter().filter_map(|item| match &item.status {
            Status::Failed { finding } => Some((item.id, finding)),
            _ => None,
        })
    }

    /// Items that a reviewer must decide on.
    pub fn reviews(&self) -> impl Iterator<Item = (ItemId, &Finding)> {
        self.items.iter().filter_map(|item| match &item.status {
            Status::StopForReview { finding } => Some((item.id, finding)),
            _ => None,
        })
    }

    /// One item.
    #[must_use]
    pub fn item(&self, id: ItemId) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    /// Whether one item holds; false as well when the row has nothing of the kind. A forced lifecycle asks this of exactly
    /// the items it exists for.
    #[must_use]
    pub fn holds(&self, id: ItemId) -> bool {
        self.item(id).is_some_and(|item| item.status == Status::Held)
    }

    /// Every counter, in the order of the items.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.items.iter().flat_map(|item| &item.counters)
    }

    /// One counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<&CounterValue> {
        self.counters().find(|counter| counter.name == name).map(|counter| &counter.value)
    }

    /// The counters that differ from what a seed recorded. Drift decides nothing; it says where to look.
    #[must_use]
    pub fn drift<'n>(&self, seed: impl IntoIterator<Item = (&'n str, CounterValue)>) -> Vec<Drift> {
        let differs = |(name, expected): (&str, CounterValue)| {
            let found = self.counter(name).cloned();
            (found.as_ref() != Some(&expected)).then(|| Drift { name: name.to_owned(), expected, found })
        };
        seed.into_iter().filter_map(differs).collect()
    }
}

/// One line per item: status, name, first contradiction or counters.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.iter().try_for_each(|item| writeln!(f, "{item}"))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, detail) = match &self.status {
            Status::Held => ("held", String::new()),
            Status::Failed { finding } => ("FAILED", format!(" {finding};")),
            Status::StopForReview { finding } => ("REVIEW", format!(" {finding};")),
            Status::NotApplicable { reason } => ("n/a", format!(" {reason};")),
        };
        write!(f, "{word:<6} {:<23}{detail}", self.id)?;
        self.counters.iter().try_for_each(|counter| write!(f, " {}={}", counter.name, counter.value))
    }
}

/// What every check reads.
struct Context<'a> {
    report: &'a Report,
    bytes: &'a [u8],
    expectation: &'a Expectation<'a>,
    /// Request by identity: its position in `/per_request`.
    positions: HashMap<RequestUuid, usize>,
}

impl<'a> Context<'a> {
    fn new(report: &'a Report, bytes: &'a [u8], expectation: &'a Expectation<'a>) -> Self {
        let positions = report.requests.iter().enumerate().map(|(at, request)| (request.uuid, at)).collect();
        Context { report, bytes, expectation, positions }
    }

    fn row(&self) -> &'a Row {
        self.expectation.row
    }

    fn is_disaggregated(&self) -> bool {
        self.row().topology == Topology::Disaggregated
    }

    /// The pools of the row's topology and how many workers each has; the harness's own default is one.
    fn pools(&self) -> Vec<(Pool, u64)> {
        let row = self.row();
        match row.topology {
            Topology::Aggregated => vec![(Pool::Agg, row.workers.unwrap_or(1))],
            Topology::Disaggregated => vec![
                (Pool::Prefill, row.prefill_workers.unwrap_or(1)),
                (Pool::Decode, row.decode_workers.unwrap_or(1)),
            ],
        }
    }

    fn request(&self, uuid: RequestUuid) -> Option<(usize, &'a Request)> {
        let at = *self.positions.get(&uuid)?;
        Some((at, &self.report.requests[at]))
    }

    fn requests(&self) -> impl Iterator<Item = (usize, &'a Request)> {
        self.report.requests.iter().enumerate()
    }
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::Vllm => "vllm",
        Engine::Sglang => "sglang",
        Engine::Trtllm => "trtllm",
    }
}

/// A member of a request's record.
fn in_request(at: usize, member: &str) -> String {
    format!("/per_request/{at}/{member}")
}

/// A member of a pressure record.
fn in_pressure(at: usize, member: &str) -> String {
    format!("/coverage/pressure/records/{at}/{member}")
}

/// Equality of times and ratios that were computed the same way: exact, with both zeros equal.
fn same(left: f64, right: f64) -> bool {
    left <= right && right <= left
}

/// A sum that a malformed report cannot overflow.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// A sum of counts as a double, for ratios that the harness computed from the same integers.
fn to_f64(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the harness converts the same integer the same way")]
    let value = count as f64;
    value
}

#[cfg(test)]
pub(crate) mod tests;
