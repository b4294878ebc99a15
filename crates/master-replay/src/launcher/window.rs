//! What the samples say of the workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::metrics::{COUNTERS, GAUGES, Values};
use super::watch::{MetricsRow, ProcessRow};

/// A part of the replay, in seconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) start_s: f64,
    pub(super) finish_s: f64,
}

impl Window {
    fn contains(self, time_s: f64) -> bool {
        self.start_s <= time_s && time_s <= self.finish_s
    }
}

/// What one process, or the replayers together, used within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkloadProcess {
    /// Samples within the window.
    pub samples: u64,
    /// The largest resident size sampled; nothing without a sample.
    pub peak_rss_bytes: Option<u64>,
    /// The most threads sampled; nothing without a sample.
    pub peak_threads: Option<u64>,
    /// Processor time over time, between the first and the last sample; nothing with fewer than two. 1 is one core.
    pub mean_cpu_cores: Option<f64>,
}

pub(super) fn process(rows: &[ProcessRow], name: &str, window: Window) -> WorkloadProcess {
    let inside = rows.iter().filter(|row| window.contains(row.monotonic_s));
    let found: Vec<_> = inside.filter_map(|row| Some((row.monotonic_s, row.usage.get(name)?))).collect();
    let mean = match (found.first(), found.last()) {
        (Some((first_s, first)), Some((last_s, last))) if last_s > first_s => {
            Some((last.cpu_seconds - first.cpu_seconds) / (last_s - first_s))
        }
        _ => None,
    };
    WorkloadProcess {
        samples: found.len() as u64,
        peak_rss_bytes: found.iter().map(|(_, usage)| usage.rss_bytes).max(),
        peak_threads: found.iter().map(|(_, usage)| usage.threads).max(),
        mean_cpu_cores: mean,
    }
}

pub(super) fn sampled_peak(rows: &[MetricsRow], window: Window) -> Values {
    let mut peaks = Values::new();
    for row in rows.iter().filter(|row| window.contains(row.monotonic_s)) {
        for gauge in GAUGES {
            if let Some(value) = row.values.get(gauge) {
                let peak = peaks.entry(gauge).or_insert(*value);
                *peak = peak.max(*value);
            }
        }
    }
    peaks
}

fn deltas(from: &Values, to: &Values) -> BTreeMap<&'static str, f64> {
    let both = COUNTERS.iter().filter_map(|name| Some((*name, to.get(name)? - from.get(name)?)));
    both.collect()
}

/// The evictions within the window; whether any was observed.
pub(super) fn evictions(rows: &[MetricsRow], window: Window) -> (Value, bool) {
    let is_inside =
        |row: &&MetricsRow| window.start_s < row.monotonic_s && row.monotonic_s <= window.finish_s;
    let inside: Vec<&MetricsRow> = rows.iter().filter(is_inside).collect();
    let before = rows.iter().rev().find(|row| row.monotonic_s <= window.start_s);
    let (Some(baseline), Some(last)) = (before.or(inside.first().copied()), inside.last()) else {
        return (json!({ "observed": false, "counter_deltas": {}, "intervals": [] }), false);
    };
    let counters = deltas(&baseline.values, &last.values);
    let grew = |name: &str| counters.get(name).is_some_and(|delta| *delta > 0.0);
    let observed = grew("master_successful_evictions_total") && grew("master_evicted_size_bytes");
    let mut intervals = Vec::new();
    let mut previous = baseline;
    for row in &inside {
        let grown = deltas(&previous.values, &row.values);
        if grown.get("master_attempted_evictions_total").is_some_and(|delta| *delta > 0.0) {
            intervals.push(json!({ "end_s": row.monotonic_s - window.start_s, "counter_deltas": grown }));
        }
        previous = row;
    }
    let evictions = json!({
        "observed": observed,
        "counter_deltas": counters,
        "intervals": intervals,
        "sample_start_s": baseline.monotonic_s - window.start_s,
        "sample_end_s": last.monotonic_s - window.start_s,
    });
    (evictions, observed)
}

#[cfg(test)]
mod tests {
    use super::super::watch::Usage;
    use super::*;

    fn metrics(monotonic_s: f64, attempted: f64, successful: f64, bytes: f64) -> MetricsRow {
        let values = Values::from([
            ("master_attempted_evictions_total", attempted),
            ("master_successful_evictions_total", successful),
            ("master_evicted_size_bytes", bytes),
            ("master_key_count", bytes),
        ]);
        MetricsRow { monotonic_s, values }
    }

    const WINDOW: Window = Window { start_s: 10.0, finish_s: 20.0 };

    #[test]
    fn evictions_leave_out_setup_and_teardown() {
        let rows =
            [metrics(5.0, 9.0, 9.0, 90.0), metrics(15.0, 9.0, 9.0, 90.0), metrics(25.0, 20.0, 20.0, 200.0)];
        assert!(!evictions(&rows, WINDOW).1);
        let (none, observed) = evictions(&rows[..1], WINDOW);
        assert_eq!(
            (none, observed),
            (json!({"observed": false, "counter_deltas": {}, "intervals": []}), false)
        );
        assert_eq!(sampled_peak(&rows, WINDOW), Values::from([("master_key_count", 90.0)]));
    }

    #[test]
    fn evictions_within_the_workload() {
        let rows =
            [metrics(9.0, 1.0, 1.0, 10.0), metrics(12.0, 1.0, 1.0, 10.0), metrics(18.0, 3.0, 2.0, 50.0)];
        let (found, observed) = evictions(&rows, WINDOW);
        assert!(observed);
        assert_eq!(found["counter_deltas"]["master_evicted_size_bytes"], 40.0);
        assert_eq!(found["intervals"].as_array().map(Vec::len), Some(1));
        assert_eq!(found["intervals"][0]["end_s"], 8.0);
        assert_eq!(found["sample_start_s"], -1.0);
        // Attempts that free nothing are no evictions.
        let rows = [metrics(9.0, 1.0, 1.0, 10.0), metrics(18.0, 3.0, 2.0, 10.0)];
        assert!(!evictions(&rows, WINDOW).1);
    }

    #[test]
    fn process_figures_use_the_window_only() {
        let row = |monotonic_s, cpu_seconds, rss_bytes| ProcessRow {
            monotonic_s,
            usage: BTreeMap::from([("master", Usage { cpu_seconds, rss_bytes, threads: 3 })]),
        };
        let rows = [row(9.0, 0.0, 99), row(11.0, 1.0, 5), row(15.0, 3.0, 7), row(21.0, 30.0, 99)];
        let found = process(&rows, "master", WINDOW);
        assert_eq!((found.samples, found.peak_rss_bytes, found.peak_threads), (2, Some(7), Some(3)));
        assert_eq!(found.mean_cpu_cores, Some(0.5));
        assert_eq!(process(&rows[..2], "master", WINDOW).mean_cpu_cores, None);
        assert_eq!(process(&rows, "replayer", WINDOW), WorkloadProcess::default());
    }
}
