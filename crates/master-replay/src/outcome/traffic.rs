//! What was offered, sent and completed in each second of the workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Outcomes;
use super::summary::issued_keys;
use crate::contract::{Phase, Trace, per_second};

/// Counts of calls and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficCounts {
    /// Calls that were due.
    pub offered_calls: u64,
    /// Calls that were sent.
    pub sent_calls: u64,
    /// Calls that were sent and answered.
    pub completed_calls: u64,
    /// Keys of calls that were sent.
    pub issued_keys: u64,
}

/// The counts over the whole workload, for each second of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficRates {
    /// Calls that were due.
    pub offered_calls: f64,
    /// Calls that were sent.
    pub sent_calls: f64,
    /// Calls that were sent and answered.
    pub completed_calls: f64,
    /// Keys of calls that were sent.
    pub issued_keys: f64,
}

/// One second with something in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrafficBucket {
    /// Which second, from 0.
    pub second: u64,
    /// What happened in it.
    #[serde(flatten)]
    pub counts: TrafficCounts,
}

/// The workload as traffic; all times are after its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Traffic {
    /// The latest finish.
    pub duration_s: f64,
    /// The latest due time.
    pub arrival_span_s: f64,
    /// Calls divided by the latest due time; nothing when all are due at 0.
    pub offered_calls_per_second: Option<f64>,
    /// The most calls that were in flight at once.
    pub peak_client_calls_inflight: u64,
    /// Counts of the whole workload.
    pub totals: TrafficCounts,
    /// Those divided by the duration; nothing when that is 0.
    pub mean_per_second: Option<TrafficRates>,
    /// Each second with something in it.
    pub buckets: Vec<TrafficBucket>,
}

#[expect(clippy::cast_precision_loss, reason = "seconds for a reader; the µs are in the samples")]
fn seconds(time_us: u64) -> f64 {
    time_us as f64 / 1e6
}

impl Traffic {
    /// Counts the workload of a replay; nothing when there is none.
    #[must_use]
    pub fn of(trace: &Trace, outcomes: &Outcomes) -> Option<Self> {
        let workload = trace.phase_range(Phase::Workload);
        let origin_us = outcomes.phase_origin_us(Phase::Workload).filter(|_| !workload.is_empty())?;
        let mut buckets: BTreeMap<u64, TrafficCounts> = BTreeMap::new();
        let (mut duration_us, mut span_us) = (0, 0);
        for event in workload.clone() {
            let sample = outcomes.sample(trace, event);
            let due_us = sample.scheduled_us.saturating_sub(origin_us);
            let (start_us, finish_us) =
                (sample.start_us.saturating_sub(origin_us), sample.finish_us.saturating_sub(origin_us));
            duration_us = finish_us.max(duration_us);
            span_us = due_us.max(span_us);
            second(&mut buckets, due_us).offered_calls += 1;
            if sample.rpc_sent {
                let start = second(&mut buckets, start_us);
                start.sent_calls += 1;
                start.issued_keys += issued_keys(sample.statuses);
                second(&mut buckets, finish_us).completed_calls += 1;
            }
        }
        let totals = sum(&buckets);
        Some(Traffic {
            duration_s: seconds(duration_us),
            arrival_span_s: seconds(span_us),
            offered_calls_per_second: per_second(totals.offered_calls, span_us),
            peak_client_calls_inflight: peak(trace, outcomes, workload),
            totals,
            mean_per_second: means(&totals, duration_us),
            buckets: buckets.into_iter().map(|(second, counts)| TrafficBucket { second, counts }).collect(),
        })
    }
}

fn second(buckets: &mut BTreeMap<u64, TrafficCounts>, time_us: u64) -> &mut TrafficCounts {
    buckets.entry(time_us / 1_000_000).or_default()
}

fn sum(buckets: &BTreeMap<u64, TrafficCounts>) -> TrafficCounts {
    let mut totals = TrafficCounts::default();
    for counts in buckets.values() {
        totals.offered_calls += counts.offered_calls;
        totals.sent_calls += counts.sent_calls;
        totals.completed_calls += counts.completed_calls;
        totals.issued_keys += counts.issued_keys;
    }
    totals
}

fn means(totals: &TrafficCounts, duration_us: u64) -> Option<TrafficRates> {
    Some(TrafficRates {
        offered_calls: per_second(totals.offered_calls, duration_us)?,
        sent_calls: per_second(totals.sent_calls, duration_us)?,
        completed_calls: per_second(totals.completed_calls, duration_us)?,
        issued_keys: per_second(totals.issued_keys, duration_us)?,
    })
}

/// Sent calls as half-open ranges of µs; at one instant a finish comes before a start, and calls of no length do not
/// count.
fn peak(trace: &Trace, outcomes: &Outcomes, workload: std::ops::Range<u32>) -> u64 {
    let calls = || {
        let samples = workload.clone().map(|event| outcomes.sample(trace, event));
        samples.filter(|sample| sample.rpc_sent && sample.finish_us > sample.start_us)
    };
    let mut starts: Vec<u64> = calls().map(|sample| sample.start_us).collect();
    let mut finishes: Vec<u64> = calls().map(|sample| sample.finish_us).collect();
    starts.sort_unstable();
    finishes.sort_unstable();
    let (mut finished, mut peak) = (0, 0);
    for (started, start_us) in starts.iter().enumerate() {
        while finishes.get(finished).is_some_and(|finish_us| finish_us <= start_us) {
            finished += 1;
        }
        peak = peak.max(started + 1 - finished);
    }
    peak as u64
}
