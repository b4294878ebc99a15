//! Who was the bottleneck.

use serde::{Deserialize, Serialize};

use super::drive::ReplayReport;
use crate::outcome::{Distribution, OperationSummary};

/// Which side could not do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Saturated {
    /// Every call was sent about when it was due, or waited for an answer no longer than that took.
    Neither,
    /// The master had no processor time left, or stood still.
    Master,
    /// The replayer had no processor time left, or others took it: its times say little about the master.
    Generator,
    /// The calls in flight were used up while both had processor time left: allow more of them.
    InFlight,
    /// Calls waited for those they depend on, ever longer, while both sides had processor time left: the trace's chains of calls,
    /// each as slow as its answers are.
    Dependencies,
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
    /// How long calls waited for those they depend on, beyond one call.
    pub(super) chained_us: u64,
    /// How many calls were at the master at once, in the mean and about; nothing where that is not known.
    pub(super) calls_at_once: Option<f64>,
    /// From the first due time to the last.
    pub(super) span_us: u64,
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

/// More than this part of the time in which calls were due, and a backlog is no hiccup: fewer than 95 % of what was due was sent by
/// its end.
const BEHIND: f64 = 0.05;

/// A master with no more calls at once than this for each of its threads has nothing waiting for it: it is not what limits, even where
/// it is half busy, as it is with calls that come one after the other.
const CALLS_FOR_A_THREAD: f64 = 1.25;

/// Whether calls that are so late have fallen behind what was due within this span.
#[expect(clippy::cast_precision_loss, reason = "a part of a duration")]
pub(super) fn is_behind(late_us: u64, span_us: u64) -> bool {
    late_us as f64 > BEHIND * span_us as f64
}

/// What calls of the workload waited for besides themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// The whole lag, waits for dependencies included, of the operation in which it is largest.
    pub(super) dispatch_lag_us: Distribution,
    /// From when the last call was due to when the last one finished.
    pub(super) finished_after_due_us: Option<u64>,
    /// From sent to answered, of the call that took longest.
    pub(super) longest_call_us: Option<u64>,
}

/// Of the workload.
fn operations(report: &ReplayReport) -> impl Iterator<Item = &OperationSummary> {
    let workload = report.summary.phases.get("workload").and_then(|phase| phase.operations.as_ref());
    workload.into_iter().flat_map(|operations| operations.values())
}

/// How many calls were at the master at once, after Little: how many came in a time, by how long one was there. That is the median,
/// of which a few that took long make no other number.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
pub(super) fn calls_at_once(report: &ReplayReport, duration_us: u64) -> Option<f64> {
    let time_us = |of: &OperationSummary| Some(of.rpc_calls as f64 * of.client_call_latency_us.p50? as f64);
    let sent = operations(report).filter(|operation| operation.rpc_calls > 0);
    let all_us = sent.map(time_us).sum::<Option<f64>>()?;
    (duration_us > 0).then(|| all_us / duration_us as f64)
}

impl Waits {
    pub(super) fn of(report: &ReplayReport) -> Self {
        let traffic = report.traffic.as_ref();
        Waits {
            dispatch_lag_us: operations(report)
                .map(|found| found.dispatch_lag_us)
                .max_by_key(|lag| lag.p95)
                .unwrap_or_default(),
            finished_after_due_us: traffic.map(|traffic| micros(traffic.duration_s - traffic.arrival_span_s)),
            longest_call_us: operations(report).filter_map(|found| found.client_call_latency_us.max).max(),
        }
    }

    /// The own lag leaves out what a call waits for the ones before it, which is all of the backlog where each waits for one. It
    /// counts where it lasted to the end, and beyond one call: to wait for a single slow answer is latency.
    pub(super) fn beyond_a_call_us(&self) -> u64 {
        let waited_us = self.dispatch_lag_us.p95.unwrap_or(0).min(self.finished_after_due_us.unwrap_or(0));
        waited_us.saturating_sub(self.longest_call_us.unwrap_or(0))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0, and not for years")]
pub(super) fn micros(time_s: f64) -> u64 {
    (time_s * 1e6).round().max(0.0) as u64
}

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
        let is_idle = master.is_some_and(|part| part < BUSY / 2.0);
        let is_late = lag_p99_us > LAG_OF_A_SLEEP_US || saturated >= 0.1;
        let is_chained =
            evidence.chained_us > LAG_OF_A_SLEEP_US && is_behind(evidence.chained_us, evidence.span_us);
        if is_chained {
            facts.push_str(&format!(
                "; calls waited for {} us for others, beyond one call",
                evidence.chained_us
            ));
        }
        let calls_for_a_thread = evidence.calls_at_once.map(|calls| calls / evidence.master_threads.max(1.0));
        let is_unqueued =
            master.is_some() && calls_for_a_thread.is_some_and(|calls| calls < CALLS_FOR_A_THREAD);
        let has_room = is_idle || is_unqueued;
        let verdict = if !is_late && !is_chained {
            Saturated::Neither
        } else if waited > TAKEN || replayer.is_some_and(|part| part > BUSY) {
            Saturated::Generator
        } else if silent > STILL.max(saturated / 2.0) || master.is_some_and(|part| part > BUSY) {
            Saturated::Master
        } else if !is_late && has_room {
            Saturated::Dependencies
        } else if saturated > 0.5 && has_room {
            Saturated::InFlight
        } else {
            Saturated::Unclear
        };
        Saturation { verdict, reason: facts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_saturated() {
        let base = Evidence {
            lag_p99_us: 50_000,
            chained_us: 0,
            calls_at_once: Some(64.0),
            span_us: 500_000,
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
        // Calls that wait for each other: none is late by itself.
        let chained = Evidence { lag_p99_us: 60, saturated_us: 0, chained_us: 400_000, ..base };
        check(chained, Saturated::Master);
        check(Evidence { replayer_cores: Some(0.95), ..chained }, Saturated::Generator);
        check(Evidence { master_cores: Some(0.3), ..chained }, Saturated::Dependencies);
        check(Evidence { master_cores: Some(0.6), ..chained }, Saturated::Unclear);
        check(Evidence { master_cores: None, ..chained }, Saturated::Unclear);
        // One after the other: half busy is all that a master can be of that.
        let single = Evidence { calls_at_once: Some(0.97), master_cores: Some(0.6), ..chained };
        check(single, Saturated::Dependencies);
        check(
            Evidence { calls_at_once: Some(3.9), master_threads: 4.0, master_cores: Some(2.4), ..single },
            Saturated::Dependencies,
        );
        check(Evidence { calls_at_once: Some(1.5), ..single }, Saturated::Unclear);
        check(Evidence { calls_at_once: None, ..single }, Saturated::Unclear);
        check(Evidence { master_cores: None, ..single }, Saturated::Unclear);
        check(Evidence { master_cores: Some(0.9), ..single }, Saturated::Master);
        check(Evidence { lag_p99_us: 5_000, ..single }, Saturated::Unclear);
        check(Evidence { saturated_us: 950_000, ..single }, Saturated::InFlight);
        check(Evidence { chained_us: 25_000, ..chained }, Saturated::Neither);
        check(Evidence { chained_us: 900, span_us: 0, ..chained }, Saturated::Neither);
        // Late by themselves, too: the chains alone do not explain it.
        check(Evidence { master_cores: Some(0.1), lag_p99_us: 5_000, ..chained }, Saturated::Unclear);
    }
}
