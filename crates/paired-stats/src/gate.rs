//! The gate: a definition fixed before any run, a sealed sample, one verdict with everything it rests on.

use serde::{Deserialize, Serialize};

use crate::dependence::Dependence;
use crate::diagnostics::{
    DefinitionError, Diagnostics, DiagnosticsDefinition, Examiner, NotApplied, TestName, TestOutcome,
};
use crate::effect::{self, ForReaders, MAX_RESAMPLES, ReaderDefinition};
use crate::rank::{Probability, RankBound, RankBounds};
use crate::sample::{PairedSample, SampleDigest};

/// What a breached diagnostic leads to. Never to a decision by the order-statistic bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnBreach {
    /// The row is inconclusive.
    #[default]
    Inconclusive,
    /// The dependence-aware bounds decide, and the verdict says so, if every breach is about time (serial
    /// correlation, trend, change point); otherwise the row is inconclusive.
    DependenceAware,
}

/// The definition of a gate. It is part of the definition file of a campaign, fixed before any run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// Pass if the upper bound is at most this, fail if the lower bound is above it.
    pub limit_ratio: f64,
    /// The quantile of the ratios that is bounded.
    pub quantile: Probability,
    /// The confidence of each bound, one-sided.
    pub confidence: Probability,
    /// How many pairs are measured. A sample of another size is refused: a gate is not extended.
    pub pairs: u32,
    /// What a breached diagnostic leads to.
    pub on_breach: OnBreach,
    /// Whether a pass or fail by the order-statistic bounds also needs the dependence-aware bound on its side
    /// of the limit. Diagnostics cannot see weak dependence in few pairs; this is what keeps the error rates
    /// while they do not.
    pub corroborate: bool,
    /// The dependence diagnostics.
    pub diagnostics: DiagnosticsDefinition,
    /// Numbers for readers.
    pub readers: ReaderDefinition,
}

/// The most pairs that a gate judges: some of what it looks at grows with the cube of their number.
pub const MAX_PAIRS: u32 = 2_000;

impl Default for Gate {
    fn default() -> Self {
        Self {
            limit_ratio: 1.05,
            quantile: Probability::HALF,
            confidence: Probability::NINETY_FIVE_PERCENT,
            pairs: 60,
            on_breach: OnBreach::default(),
            corroborate: true,
            diagnostics: DiagnosticsDefinition::default(),
            readers: ReaderDefinition::default(),
        }
    }
}

impl Gate {
    /// Checks the definition and makes it ready for any number of samples.
    ///
    /// # Errors
    /// [`GateError`] when the limit is not a positive finite number, too few pairs are declared for any
    /// bound, more of anything than a judgement can look at, or the diagnostics cannot be applied as declared.
    pub fn prepare(&self) -> Result<PreparedGate, GateError> {
        if !(self.limit_ratio.is_finite() && self.limit_ratio > 0.0) {
            return Err(GateError::Limit { limit_ratio: self.limit_ratio });
        }
        if self.pairs > MAX_PAIRS {
            return Err(GateError::TooManyPairs { pairs: self.pairs });
        }
        if self.readers.bootstrap_resamples > MAX_RESAMPLES {
            return Err(GateError::TooManyResamples { resamples: self.readers.bootstrap_resamples });
        }
        let exact = RankBounds::exact(self.pairs as usize, self.quantile, self.confidence);
        if exact.lower.is_none() || exact.upper.is_none() {
            let (pairs, quantile, confidence) = (self.pairs, self.quantile.get(), self.confidence.get());
            return Err(GateError::TooFewPairs { pairs, quantile, confidence });
        }
        let examiner = Examiner::new(self.diagnostics.clone())?;
        Ok(PreparedGate { gate: self.clone(), exact, examiner })
    }

    /// Judges one sample.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), and when the sample does not have the declared number of pairs.
    pub fn judge(&self, sample: &PairedSample) -> Result<Judgement, GateError> {
        self.prepare()?.judge(sample)
    }
}

/// Why a gate cannot judge.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The limit is not a ratio.
    #[error("use {limit_ratio} as the limit of a ratio")]
    Limit {
        /// The number that was given.
        limit_ratio: f64,
    },
    /// No order statistic reaches the confidence.
    #[error("bound the quantile {quantile} at confidence {confidence} with {pairs} pairs, which are too few")]
    TooFewPairs {
        /// The declared count.
        pairs: u32,
        /// The quantile.
        quantile: f64,
        /// The confidence.
        confidence: f64,
    },
    /// More pairs than [`MAX_PAIRS`].
    #[error("judge {pairs} pairs, more than {MAX_PAIRS}")]
    TooManyPairs {
        /// The declared count.
        pairs: u32,
    },
    /// More resamples than [`MAX_RESAMPLES`].
    #[error("bootstrap {resamples} resamples, more than {MAX_RESAMPLES}")]
    TooManyResamples {
        /// The declared count.
        resamples: u32,
    },
    /// The sample has more or fewer pairs than were declared.
    #[error("judge {found} pairs by a gate that declares {declared}: another number is another experiment")]
    Count {
        /// The declared count.
        declared: u32,
        /// The pairs of the sample.
        found: usize,
    },
    /// The diagnostics cannot be applied as declared.
    #[error("use the definition of the diagnostics")]
    Diagnostics(#[from] DefinitionError),
}

/// One bound: an order statistic of the ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// The ratio at this rank.
    pub ratio: f64,
    /// 1 is the smallest ratio.
    pub rank: usize,
    /// The probability that the bound holds: exact for independent pairs, nominal for dependence-aware
    /// bounds.
    pub coverage: f64,
}

/// A point, its bounds, their level and the count, which belong together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
pub struct Estimate {
    /// How many pairs.
    pub count: usize,
    /// The quantile of the ratios that is estimated.
    pub quantile: Probability,
    /// The confidence that each bound reaches on its own.
    pub confidence: Probability,
    /// The sample quantile (for the median of an even count, the mean of the two middle ratios).
    pub point_ratio: f64,
    /// The lower bound; absent when no order statistic is low enough.
    pub lower: Option<Bound>,
    /// The upper bound; absent when no order statistic is high enough.
    pub upper: Option<Bound>,
}

/// By which bounds a verdict was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Exact bounds for independent pairs.
    OrderStatistics,
    /// Bounds widened for the dependence that was estimated, as predeclared for a breach.
    DependenceAware,
}

/// What the gate says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "verdict")]
#[must_use]
pub enum Verdict {
    /// The quantile is at most the limit.
    Pass,
    /// The quantile is above the limit.
    Fail,
    /// It cannot be told.
    Inconclusive {
        /// Every reason.
        reasons: Vec<Reason>,
    },
}

/// One reason why it cannot be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Reason {
    /// The limit lies between the bounds.
    BoundsStraddleLimit {
        /// The lower bound.
        lower_ratio: Option<f64>,
        /// The upper bound.
        upper_ratio: Option<f64>,
    },
    /// A diagnostic was breached.
    DiagnosticBreached {
        /// Which.
        test: TestName,
        /// The chance of as much by accident.
        p_value: f64,
        /// What it was held against.
        threshold: f64,
    },
    /// The exact bounds decide, but bounds that allow for the dependence in these pairs do not.
    NotCorroborated {
        /// The dependence-aware bound on the deciding side; absent when it lies outside the sample.
        bound_ratio: Option<f64>,
        /// By how much that bound is further from the middle, in ranks.
        rank_distance_factor: f64,
    },
    /// The pairs are so few that no declared diagnostic could look at them: nothing speaks for their independence.
    TooFewPairsToExamine {
        /// How many there are.
        pairs: usize,
    },
    /// It is not known which arm ran first in each pair, so balance cannot be shown.
    ArmOrderUnknown,
}

/// Reads after "because".
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bound = |ratio: &Option<f64>| ratio.map_or("no bound".to_owned(), |ratio| format!("{ratio:.4}"));
        match self {
            Self::BoundsStraddleLimit { lower_ratio, upper_ratio } => {
                let (lower, upper) = (bound(lower_ratio), bound(upper_ratio));
                write!(f, "the limit lies between the bounds {lower} and {upper}")
            }
            Self::DiagnosticBreached { test, p_value, threshold } => {
                write!(f, "the diagnostic {test} was breached (p = {p_value:.5}, threshold {threshold:.5})")
            }
            Self::NotCorroborated { bound_ratio, rank_distance_factor } => write!(
                f,
                "the bound that allows for dependence ({}, {rank_distance_factor:.2} times as far out) does not agree",
                bound(bound_ratio)
            ),
            Self::TooFewPairsToExamine { pairs } => {
                write!(f, "{pairs} pairs are too few for the declared diagnostics")
            }
            Self::ArmOrderUnknown => f.write_str("it is not known which arm ran first in each pair"),
        }
    }
}

/// A verdict and everything that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
#[must_use]
pub struct Judgement {
    /// What the gate says.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// By which bounds.
    pub method: Method,
    /// The metric of the sample.
    pub metric: String,
    /// The limit.
    pub limit_ratio: f64,
    /// The exact bounds for independent pairs.
    pub order_statistics: Estimate,
    /// The bounds that allow for dependence.
    pub dependence_aware: Estimate,
    /// The dependence that they allow for.
    pub dependence: Dependence,
    /// What the diagnostics found.
    pub diagnostics: Diagnostics,
    /// Numbers that never decide.
    pub for_readers: ForReaders,
    /// The sealed sample that was judged.
    pub sample_sha256: SampleDigest,
}

impl Judgement {
    /// The estimate of the bounds by which the verdict was reached.
    pub fn deciding(&self) -> &Estimate {
        match self.method {
            Method::OrderStatistics => &self.order_statistics,
            Method::DependenceAware => &self.dependence_aware,
        }
    }
}

/// A checked gate. Judging many samples of one shape with it is cheaper than preparing it for each.
pub struct PreparedGate {
    gate: Gate,
    exact: RankBounds,
    examiner: Examiner,
}

/// On which side of the limit a pair of bounds lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Pass,
    Fail,
    Straddles,
}

impl PreparedGate {
    /// The definition.
    #[must_use]
    pub fn definition(&self) -> &Gate {
        &self.gate
    }

    /// The exact bounds that the definition leads to.
    pub fn rank_bounds(&self) -> &RankBounds {
        &self.exact
    }

    /// Judges one sample.
    ///
    /// # Errors
    /// [`GateError::Count`] when the sample does not have the declared number of pairs.
    pub fn judge(&self, sample: &PairedSample) -> Result<Judgement, GateError> {
        if sample.count() != self.gate.pairs as usize {
            return Err(GateError::Count { declared: self.gate.pairs, found: sample.count() });
        }
        let log_ratios = sample.log_ratios();
        let mut sorted = sample.ratios();
        sorted.sort_by(f64::total_cmp);
        let dependence = Dependence::of(&log_ratios, self.gate.confidence);
        let order_statistics = estimate(&sorted, &self.exact);
        let dependence_aware = estimate(&sorted, &dependence.widen(&self.exact));
        let diagnostics = self.examiner.examine(sample);
        let method = self.method(&diagnostics);
        let evidence =
            Evidence { sample, order_statistics, dependence_aware, dependence, diagnostics: &diagnostics };
        let verdict = self.verdict(method, &evidence);
        Ok(Judgement {
            verdict,
            method,
            metric: sample.metric().to_owned(),
            limit_ratio: self.gate.limit_ratio,
            for_readers: self.for_readers(&sorted, &log_ratios, &order_statistics, &dependence_aware),
            order_statistics,
            dependence_aware,
            dependence,
            diagnostics,
            sample_sha256: sample.digest(),
        })
    }

    /// The dependence-aware bounds decide only if that was declared and every breach is one that they answer.
    fn method(&self, diagnostics: &Diagnostics) -> Method {
        let mut breaches = diagnostics.breaches().peekable();
        let answered = breaches.peek().is_some() && breaches.all(|breach| breach.test.is_about_time());
        if answered && self.gate.on_breach == OnBreach::DependenceAware {
            Method::DependenceAware
        } else {
            Method::OrderStatistics
        }
    }

    fn verdict(&self, method: Method, evidence: &Evidence<'_>) -> Verdict {
        let mut reasons = Vec::new();
        if method == Method::OrderStatistics {
            reasons.extend(evidence.diagnostics.breaches().filter_map(breach_reason));
            reasons.extend(unexamined(evidence));
        }
        if self.gate.diagnostics.require_arm_order
            && evidence.sample.pairs().iter().any(|pair| pair.first.is_none())
        {
            reasons.push(Reason::ArmOrderUnknown);
        }
        let (deciding, side) = match method {
            Method::OrderStatistics => (&evidence.order_statistics, self.side(&evidence.order_statistics)),
            Method::DependenceAware => (&evidence.dependence_aware, self.side(&evidence.dependence_aware)),
        };
        if side == Side::Straddles {
            let ratio = |bound: Option<Bound>| bound.map(|bound| bound.ratio);
            let (lower_ratio, upper_ratio) = (ratio(deciding.lower), ratio(deciding.upper));
            reasons.push(Reason::BoundsStraddleLimit { lower_ratio, upper_ratio });
        } else if self.gate.corroborate && self.side(&evidence.dependence_aware) != side {
            reasons.push(not_corroborated(side, evidence));
        }
        match side {
            Side::Pass if reasons.is_empty() => Verdict::Pass,
            Side::Fail if reasons.is_empty() => Verdict::Fail,
            _ => Verdict::Inconclusive { reasons },
        }
    }

    fn side(&self, estimate: &Estimate) -> Side {
        let limit = self.gate.limit_ratio;
        if estimate.upper.is_some_and(|bound| bound.ratio <= limit) {
            Side::Pass
        } else if estimate.lower.is_some_and(|bound| bound.ratio > limit) {
            Side::Fail
        } else {
            Side::Straddles
        }
    }

    /// The rank that a passing ratio must have, at least; none if no bound is far enough out.
    fn passing_rank(&self, exact: &Estimate, wide: &Estimate) -> Option<usize> {
        let (exact, wide) = (exact.upper?.rank, wide.upper.map(|bound| bound.rank));
        if self.gate.corroborate { wide.map(|wide| wide.max(exact)) } else { Some(exact) }
    }

    fn for_readers(
        &self,
        sorted: &[f64],
        log_ratios: &[f64],
        estimate: &Estimate,
        wide: &Estimate,
    ) -> ForReaders {
        let limit = self.gate.limit_ratio;
        let no_alarm = 1.0 - self.gate.diagnostics.row_false_alarm_rate();
        let passes = |rank| effect::equal_pass_probability(log_ratios, limit, rank) * no_alarm;
        let (point, count) = (estimate.point_ratio, estimate.count);
        let resolution = estimate
            .lower
            .zip(estimate.upper)
            .map(|(lower, upper)| effect::resolution(point, lower.ratio, upper.ratio, limit, count));
        ForReaders {
            hodges_lehmann_ratio: effect::hodges_lehmann_ratio(log_ratios),
            bootstrap: effect::bootstrap(log_ratios, self.gate.confidence, self.gate.readers),
            resolution,
            smallest_ratio: sorted[0],
            largest_ratio: sorted[sorted.len() - 1],
            equal_pass_probability: self.passing_rank(estimate, wide).map_or(0.0, passes),
        }
    }
}

/// What a verdict looks at.
struct Evidence<'a> {
    sample: &'a PairedSample,
    order_statistics: Estimate,
    dependence_aware: Estimate,
    dependence: Dependence,
    diagnostics: &'a Diagnostics,
}

fn breach_reason(result: &crate::diagnostics::TestResult) -> Option<Reason> {
    let TestOutcome::Breached(value) = result.outcome else { return None };
    let (test, threshold) = (result.test.clone(), result.threshold);
    Some(Reason::DiagnosticBreached { test, p_value: value.p_value, threshold })
}

fn unexamined(evidence: &Evidence<'_>) -> Option<Reason> {
    let too_few = TestOutcome::NotApplied { why: NotApplied::TooFewPairs };
    let unseen = evidence.diagnostics.tests.iter().any(|result| result.outcome == too_few);
    unseen.then(|| Reason::TooFewPairsToExamine { pairs: evidence.sample.count() })
}

fn not_corroborated(side: Side, evidence: &Evidence<'_>) -> Reason {
    let wide = &evidence.dependence_aware;
    let bound = if side == Side::Pass { wide.upper } else { wide.lower };
    Reason::NotCorroborated {
        bound_ratio: bound.map(|bound| bound.ratio),
        rank_distance_factor: evidence.dependence.rank_distance_factor,
    }
}

/// The estimate that some bounds give on sorted ratios.
fn estimate(sorted: &[f64], bounds: &RankBounds) -> Estimate {
    let bound = |at: RankBound| Bound { ratio: sorted[at.rank - 1], rank: at.rank, coverage: at.coverage };
    Estimate {
        count: sorted.len(),
        quantile: bounds.quantile,
        confidence: bounds.confidence,
        point_ratio: sample_quantile(sorted, bounds.quantile.get()),
        lower: bounds.lower.map(bound),
        upper: bounds.upper.map(bound),
    }
}

/// Linear between the two nearest order statistics (Hyndman and Fan 1996, definition 7); the usual median for
/// 0.5.
fn sample_quantile(sorted: &[f64], quantile: f64) -> f64 {
    let at = quantile * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0 and below the count"
    )]
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

#[cfg(test)]
mod tests;
