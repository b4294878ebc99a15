//! What the samples say of the workload, and who was the bottleneck.

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

/// Which side could not do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Saturated {
    /// Every call was sent about when it was due.
    Neither,
    /// The master had no processor time left, or stood still.
    Master,
    /// The replayer had no processor time left, or others took it: its times say little about the master.
    Generator,
    /// The calls in flight were used up while both had processor time left: allow more of them.
    InFlight,
    /// Calls were late, and nothing measured says why: also where the master's processor time is not known, because it is not ours
    /// or the workload was too short to see it, or lies between what tells one side from the other.
    Unclear,
}

/// Who was the bottleneck, and why that is thought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Saturation {
    /// Which side.
    pub verdict: Saturated,
    /// What that is read from.
    pub reason: String,
}

/// What the judgement is made from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    pub(super) lag_p99_us: u64,
    pub(super) duration_us: u64,
    pub(super) saturated_us: u64,
    /// Of all replayers.
    pub(super) replayer_cores: Option<f64>,
    pub(super) replayers: f64,
    pub(super) spin_cores: f64,
    /// How many cores the replayers could have used more, had nothing else used them.
    pub(super) waited_cores: f64,
    /// Time in which the master answered nothing.
    pub(super) silent_us: u64,
    pub(super) master_cores: Option<f64>,
    pub(super) master_threads: f64,
}

/// A lag below this is what a sleep costs.
const LAG_OF_A_SLEEP_US: u64 = 1_000;

/// A process above this part of the processors it can use has none left.
const BUSY: f64 = 0.85;

/// A replayer that had to wait for its processor for more than this part of the time had too little of it, however little it used.
const TAKEN: f64 = 0.15;

/// A master that answered nothing for more than this part of the time, and for half of that in which all calls were in flight, stood
/// still.
const STILL: f64 = 0.1;

impl Saturation {
    #[expect(clippy::cast_precision_loss, reason = "parts of a duration")]
    pub(super) fn judge(evidence: &Evidence) -> Self {
        let Evidence { lag_p99_us, duration_us, saturated_us, .. } = *evidence;
        // Watching the clock uses the processor, but only while nothing else is to be done.
        let replayers = evidence.replayers.max(1.0);
        let replayer =
            evidence.replayer_cores.map(|cores| (cores - evidence.spin_cores).max(0.0) / replayers);
        let waited = evidence.waited_cores / replayers;
        let share = |time_us: u64| if duration_us == 0 { 0.0 } else { time_us as f64 / duration_us as f64 };
        let silent = share(evidence.silent_us);
        let master = evidence.master_cores.map(|cores| cores / evidence.master_threads.max(1.0));
        let part =
            |part: Option<f64>| part.map_or("unknown".to_owned(), |part| format!("{:.0} %", part * 100.0));
        let saturated = share(saturated_us);
        let mut facts = format!(
            "lag without dependencies p99 {lag_p99_us} us; all calls in flight for {:.0} % of the workload; replayer at {} of its core; master at {} of its threads",
            saturated * 100.0,
            part(replayer),
            part(master),
        );
        if waited > TAKEN {
            facts.push_str(&format!("; the replayer waited for its core for {:.0} %", waited * 100.0));
        }
        if silent > 0.0 {
            facts.push_str(&format!("; the master answered nothing for {:.0} %", silent * 100.0));
        }
        let verdict = if lag_p99_us <= LAG_OF_A_SLEEP_US && saturated < 0.1 {
            Saturated::Neither
        } else if waited > TAKEN || replayer.is_some_and(|part| part > BUSY) {
            Saturated::Generator
        } else if silent > STILL.max(saturated / 2.0) || master.is_some_and(|part| part > BUSY) {
            Saturated::Master
        } else if saturated > 0.5 && master.is_some_and(|part| part < BUSY / 2.0) {
            Saturated::InFlight
        } else {
            Saturated::Unclear
        };
        Saturation { verdict, reason: facts }
    }
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

    #[test]
    fn who_was_saturated() {
        let base = Evidence {
            lag_p99_us: 50_000,
            duration_us: 1_000_000,
            saturated_us: 950_000,
            replayer_cores: Some(0.2),
            replayers: 1.0,
            spin_cores: 0.0,
            waited_cores: 0.0,
            silent_us: 0,
            master_cores: Some(1.0),
            master_threads: 1.0,
        };
        let check = |evidence: Evidence, verdict: Saturated| {
            let found = Saturation::judge(&evidence);
            assert_eq!(found.verdict, verdict, "{}", found.reason);
        };
        check(base, Saturated::Master);
        check(Evidence { replayer_cores: Some(0.95), ..base }, Saturated::Generator);
        check(Evidence { replayer_cores: Some(0.95), spin_cores: 0.5, ..base }, Saturated::Master);
        check(Evidence { master_cores: Some(0.1), ..base }, Saturated::InFlight);
        // Others took the replayer's processor, or the master stood still: more calls in flight would not have helped.
        check(Evidence { master_cores: Some(0.3), waited_cores: 0.6, ..base }, Saturated::Generator);
        check(Evidence { master_cores: Some(0.1), silent_us: 800_000, ..base }, Saturated::Master);
        check(Evidence { master_cores: Some(0.1), silent_us: 200_000, ..base }, Saturated::InFlight);
        let hiccup = Evidence { master_cores: Some(0.1), saturated_us: 0, silent_us: 90_000, ..base };
        check(hiccup, Saturated::Unclear);
        check(Evidence { silent_us: 110_000, ..hiccup }, Saturated::Master);
        check(
            Evidence { lag_p99_us: 60, saturated_us: 0, waited_cores: 0.6, silent_us: 9, ..base },
            Saturated::Neither,
        );
        // Several replayers have several cores, and watch as many clocks.
        check(Evidence { replayer_cores: Some(3.8), replayers: 4.0, ..base }, Saturated::Generator);
        check(
            Evidence { replayer_cores: Some(3.8), replayers: 4.0, spin_cores: 3.0, ..base },
            Saturated::Master,
        );
        // Nothing is said of a master that nothing is known of, or that is neither busy nor idle.
        check(Evidence { master_cores: None, ..base }, Saturated::Unclear);
        check(Evidence { master_cores: Some(0.6), ..base }, Saturated::Unclear);
        check(Evidence { saturated_us: 0, master_cores: Some(0.9), ..base }, Saturated::Master);
        check(Evidence { lag_p99_us: 60, saturated_us: 0, ..base }, Saturated::Neither);
        check(Evidence { saturated_us: 0, master_cores: Some(0.3), ..base }, Saturated::Unclear);
    }
}
