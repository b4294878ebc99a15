//! `replay.json`: counts, rates and times, for the whole replay and for each phase.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::distribution::Distribution;
use super::record::{KeyStatus, KeyStatusCounts, Outcomes};
use crate::contract::{Op, Phase, Trace, per_second};

/// What one operation amounted to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationSummary {
    /// Events.
    pub planned_calls: u64,
    /// Events with an error.
    pub failed_calls: u64,
    /// Events that were sent.
    pub rpc_calls: u64,
    /// Keys of the events that were sent, without those left out.
    pub issued_keys: u64,
    /// What became of all planned keys.
    pub key_status: KeyStatusCounts,
    /// From due to sent, of all events: our own queue and the dependencies.
    pub dispatch_lag_us: Distribution,
    /// From sent to answered, of the events that were sent.
    pub client_call_latency_us: Distribution,
    /// From due to answered, of the events that were sent. Unlike the call's own latency this does not leave out
    /// what a call waited before it was sent, which is where the time goes when the master falls behind.
    pub scheduled_to_completion_us: Distribution,
    /// Sent events over the whole elapsed time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc_per_second: Option<f64>,
    /// Issued keys over the whole elapsed time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_per_second: Option<f64>,
}

/// What one phase amounted to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseSummary {
    /// 1
    pub schema_version: u32,
    /// `null`
    pub trace_metadata: Option<()>,
    /// Events.
    pub events: u64,
    /// The latest finish, after the phase's origin.
    pub elapsed_us: u64,
    /// Where the phase began, after the replay's origin; not there when the phase is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_origin_us: Option<u64>,
    /// The operations that occur; not there when the phase is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<BTreeMap<String, OperationSummary>>,
}

/// What a replay amounted to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// 2
    pub schema_version: u32,
    /// The header's metadata, unchanged. It is only written: numbers in it need not fit anything.
    #[serde(skip_deserializing)]
    pub trace_metadata: Option<Box<RawValue>>,
    /// Events.
    pub events: u64,
    /// The latest finish, after the replay's origin.
    pub elapsed_us: u64,
    /// The operations that occur.
    pub operations: BTreeMap<String, OperationSummary>,
    /// The same for each phase.
    pub phases: BTreeMap<String, PhaseSummary>,
    /// Whether any event has an error, or any key.
    pub has_errors: bool,
}

impl Summary {
    /// Sums a replay up. No event is copied: for each operation one list of times at a time is made.
    #[must_use]
    pub fn of(trace: &Trace, outcomes: &Outcomes) -> Self {
        let all = 0..u32::try_from(trace.len()).unwrap_or(u32::MAX);
        let elapsed_us = latest_finish(trace, outcomes, all.clone()).unwrap_or(0);
        let metadata = trace.metadata_json().and_then(|text| RawValue::from_string(text.to_owned()).ok());
        Summary {
            schema_version: 2,
            trace_metadata: metadata,
            events: trace.len() as u64,
            elapsed_us,
            operations: operations(trace, outcomes, &all, elapsed_us),
            phases: Phase::ALL
                .iter()
                .map(|phase| (phase.name().to_owned(), PhaseSummary::of(trace, outcomes, *phase)))
                .collect(),
            has_errors: outcomes.has_errors(),
        }
    }
}

impl PhaseSummary {
    fn of(trace: &Trace, outcomes: &Outcomes, phase: Phase) -> Self {
        let range = trace.phase_range(phase);
        let origin_us = outcomes.phase_origin_us(phase).filter(|_| !range.is_empty());
        let finish_us = latest_finish(trace, outcomes, range.clone()).unwrap_or(0);
        let elapsed_us = finish_us.saturating_sub(origin_us.unwrap_or(0));
        PhaseSummary {
            schema_version: 1,
            trace_metadata: None,
            events: range.len() as u64,
            elapsed_us,
            phase_origin_us: origin_us,
            operations: (!range.is_empty()).then(|| operations(trace, outcomes, &range, elapsed_us)),
        }
    }
}

fn latest_finish(trace: &Trace, outcomes: &Outcomes, range: std::ops::Range<u32>) -> Option<u64> {
    range.map(|event| outcomes.sample(trace, event).finish_us).max()
}

fn operations(
    trace: &Trace,
    outcomes: &Outcomes,
    range: &std::ops::Range<u32>,
    elapsed_us: u64,
) -> BTreeMap<String, OperationSummary> {
    let occurs = |op: &&Op| range.clone().any(|event| trace.event(event).op() == **op);
    let found = Op::ALL.iter().filter(occurs);
    found.map(|op| (op.name().to_owned(), operation(trace, outcomes, range, *op, elapsed_us))).collect()
}

fn operation(
    trace: &Trace,
    outcomes: &Outcomes,
    range: &std::ops::Range<u32>,
    op: Op,
    elapsed_us: u64,
) -> OperationSummary {
    let samples = || {
        let events = range.clone().filter(|event| trace.event(*event).op() == op);
        events.map(|event| outcomes.sample(trace, event))
    };
    let sent = || samples().filter(|sample| sample.rpc_sent);
    let mut summary = OperationSummary::default();
    for sample in samples() {
        summary.planned_calls += 1;
        summary.failed_calls += u64::from(!sample.error.is_empty());
        summary.key_status.add(&KeyStatusCounts::of(sample.statuses));
    }
    for sample in sent() {
        summary.rpc_calls += 1;
        summary.issued_keys += issued_keys(sample.statuses);
    }
    summary.dispatch_lag_us =
        Distribution::of(&mut samples().map(|s| s.dispatch_lag_us()).collect::<Vec<u64>>());
    summary.client_call_latency_us = Distribution::of(&mut sent().map(|s| s.call_us()).collect::<Vec<u64>>());
    summary.scheduled_to_completion_us =
        Distribution::of(&mut sent().map(|s| s.from_due_us()).collect::<Vec<u64>>());
    summary.rpc_per_second = per_second(summary.rpc_calls, elapsed_us);
    summary.keys_per_second = per_second(summary.issued_keys, elapsed_us);
    summary
}

pub(super) fn issued_keys(statuses: &[KeyStatus]) -> u64 {
    statuses.iter().filter(|status| **status != KeyStatus::Skipped).count() as u64
}
