//! What a trace offers, without replaying it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::trace::{Dialect, Op, Phase, PhaseCounts, Trace};

/// What one operation of a trace amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpStats {
    /// Events.
    pub calls: u64,
    /// Keys of these events, repeats counted.
    pub keys: u64,
}

/// What a trace offers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceStats {
    /// Its dialect.
    pub dialect: Dialect,
    /// Events.
    pub events: u64,
    /// Logical clients.
    pub clients: u64,
    /// Events of each phase; nothing in the unversioned dialect.
    pub phases: Option<PhaseCounts>,
    /// Segments mounted.
    pub segments: u64,
    /// Bytes of all segments together.
    pub capacity_bytes: u128,
    /// Different keys.
    pub distinct_keys: u64,
    /// Keys of all events, repeats counted.
    pub planned_keys: u64,
    /// Dependencies, those that the contract implies included.
    pub dependencies: u64,
    /// Bytes of all objects that are written, replicas not counted.
    pub written_bytes: u128,
    /// Each operation that occurs.
    pub operations: BTreeMap<&'static str, OpStats>,
    /// The latest due time of the workload, after its origin.
    pub workload_span_us: u64,
    /// Calls of the workload divided by that time; nothing when all are due at once.
    pub offered_calls_per_second: Option<f64>,
    /// The most calls due within one second of the workload.
    pub busiest_second_calls: u64,
}

impl TraceStats {
    /// Counts a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let workload = trace.phase_range(Phase::Workload);
        let span_us = workload.clone().last().map_or(0, |last| trace.event(last).timestamp_us());
        TraceStats {
            dialect: trace.dialect(),
            events: trace.len() as u64,
            clients: trace.clients() as u64,
            phases: trace.phases(),
            segments: trace.segments() as u64,
            capacity_bytes: trace.columns.mounts.iter().map(|mount| u128::from(mount.size_bytes)).sum(),
            distinct_keys: trace.distinct_keys() as u64,
            planned_keys: trace.planned_keys() as u64,
            dependencies: trace.columns.dependencies.len() as u64,
            written_bytes: trace.columns.sizes.iter().map(|size| u128::from(*size)).sum(),
            operations: operations(trace),
            workload_span_us: span_us,
            offered_calls_per_second: per_second(workload.len() as u64, span_us),
            busiest_second_calls: busiest_second(trace, workload),
        }
    }
}

/// `count` over a time, as a rate.
#[expect(clippy::cast_precision_loss, reason = "a rate is a reading aid; the counts beside it are exact")]
pub(crate) fn per_second(count: u64, time_us: u64) -> Option<f64> {
    (time_us > 0).then(|| count as f64 * 1e6 / time_us as f64)
}

fn operations(trace: &Trace) -> BTreeMap<&'static str, OpStats> {
    let mut operations: BTreeMap<&'static str, OpStats> = BTreeMap::new();
    for op in Op::ALL {
        let mut found = OpStats::default();
        for event in trace.events().filter(|event| event.op() == *op) {
            found.calls += 1;
            found.keys += event.key_count() as u64;
        }
        if found.calls > 0 {
            operations.insert(op.name(), found);
        }
    }
    operations
}

fn busiest_second(trace: &Trace, workload: std::ops::Range<u32>) -> u64 {
    let (mut best, mut second, mut calls) = (0, 0, 0);
    for index in workload {
        let found = trace.event(index).timestamp_us() / 1_000_000;
        calls = if found == second { calls + 1 } else { 1 };
        second = found;
        best = best.max(calls);
    }
    best
}
