//! What each procedure says of one campaign.

use paired_stats::{
    Estimate, Gate, Judgement, OnBreach, PairedSample, PreparedGate, ReaderDefinition, Verdict,
};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

const LIMIT: f64 = 1.05;

/// What a procedure can say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Pass,
    Fail,
    Nothing,
}

/// The procedures, in the order of the columns.
pub(crate) const METHODS: [&str; 8] = [
    "this gate",
    "one row",
    "on breach d.a.",
    "order stat.",
    "dep.-aware",
    "perfgate",
    "t interval",
    "bare median",
];

/// Gates are prepared once: their null distributions serve every campaign.
pub(crate) struct Methods {
    gate: PreparedGate,
    one_row: PreparedGate,
    dependence_aware: PreparedGate,
    t: f64,
}

impl Methods {
    pub(crate) fn new() -> Self {
        let readers = ReaderDefinition { bootstrap_resamples: 0, ..ReaderDefinition::default() };
        let gate = Gate { readers, ..Gate::default() };
        let mut one_row = gate.clone();
        one_row.diagnostics.rows = 1;
        let dependence_aware = Gate { on_breach: OnBreach::DependenceAware, ..gate.clone() };
        let prepare = |gate: Gate| gate.prepare().expect("the default gate can be prepared");
        let student = StudentsT::new(0.0, 1.0, 59.0).expect("59 degrees of freedom");
        Self {
            gate: prepare(gate),
            one_row: prepare(one_row),
            dependence_aware: prepare(dependence_aware),
            t: student.inverse_cdf(0.95),
        }
    }

    pub(crate) fn all(&self, sample: &PairedSample) -> [Said; METHODS.len()] {
        let judge = |gate: &PreparedGate| gate.judge(sample).expect("sixty pairs are judged");
        let judged = judge(&self.gate);
        let logs = sample.log_ratios();
        [
            verdict(&judged),
            verdict(&judge(&self.one_row)),
            verdict(&judge(&self.dependence_aware)),
            bounds(&judged.order_statistics),
            bounds(&judged.dependence_aware),
            perfgate(sample),
            t_interval(&logs, self.t),
            if judged.order_statistics.point_ratio <= LIMIT { Said::Pass } else { Said::Fail },
        ]
    }
}

fn verdict(judged: &Judgement) -> Said {
    match judged.verdict {
        Verdict::Pass => Said::Pass,
        Verdict::Fail => Said::Fail,
        Verdict::Inconclusive { .. } => Said::Nothing,
    }
}

fn bounds(estimate: &Estimate) -> Said {
    let lower = estimate.lower.map_or(f64::NEG_INFINITY, |bound| bound.ratio);
    let upper = estimate.upper.map_or(f64::INFINITY, |bound| bound.ratio);
    between(lower, upper, LIMIT)
}

fn between(lower: f64, upper: f64, limit: f64) -> Said {
    if upper <= limit {
        Said::Pass
    } else if lower > limit {
        Said::Fail
    } else {
        Said::Nothing
    }
}

/// The mean log ratio with Student's interval, one-sided 95 % each.
fn t_interval(logs: &[f64], t: f64) -> Said {
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let reach = t * (variance / count).sqrt();
    between(mean - reach, mean + reach, LIMIT.ln())
}

/// The published crate, as its documentation uses it: its two-sided 95 % interval of the mean difference
/// against 5 % of the baseline that it divides by.
fn perfgate(sample: &PairedSample) -> Said {
    let pairs: Vec<perfgate_types::PairedSample> = sample.pairs().iter().map(perfgate_pair).collect();
    let stats =
        perfgate_paired::compute_paired_stats(&pairs, None, None).expect("sixty pairs are summarised");
    let compared = perfgate_paired::compare_paired_stats(&stats);
    let limit = stats.baseline_wall_ms.median as f64 * (LIMIT - 1.0);
    between(compared.ci_95_lower, compared.ci_95_upper, limit)
}

fn perfgate_pair(pair: &paired_stats::Pair) -> perfgate_types::PairedSample {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "simulated times are around 10,000"
    )]
    let half = |wall: f64| perfgate_types::PairedSampleHalf {
        wall_ms: wall.round() as u64,
        exit_code: 0,
        timed_out: false,
        max_rss_kb: None,
        stdout: None,
        stderr: None,
    };
    let (baseline, current) = (half(pair.baseline), half(pair.candidate));
    let difference = |current: u64, baseline: u64| current.cast_signed() - baseline.cast_signed();
    perfgate_types::PairedSample {
        pair_index: pair.pair,
        warmup: false,
        wall_diff_ms: difference(current.wall_ms, baseline.wall_ms),
        rss_diff_kb: None,
        baseline,
        current,
    }
}
