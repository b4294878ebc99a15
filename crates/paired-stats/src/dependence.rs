//! Bounds for pairs that are not independent: the ranks of the exact bounds, moved outwards by what
//! dependence costs.
//!
//! What counts is the variance of the number of ratios below the quantile, relative to independent pairs. It
//! is estimated twice, and the larger estimate is used:
//!
//! * from the neighbours, as in a first-order autoregression whose autocorrelation is one standard error
//!   above its estimate, which is strong on dependence that fades within a few pairs;
//! * from the slowest cosines of the series (Lazarus, Lewis, Stock and Watson 2018: equal-weighted, with
//!   Student's distribution for their small number), which is strong on weak dependence that does not fade.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

use crate::diagnostics::{Scores, autocorrelation};
use crate::rank::{Probability, RankBound, RankBounds};

/// How strongly the pairs hang together, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dependence {
    /// The lag-1 autocorrelation of the normal scores, corrected for the bias of short series.
    pub autocorrelation: f64,
    /// The same plus its allowance for estimation, not below 0.
    pub assumed_autocorrelation: f64,
    /// The variance that this autocorrelation implies, relative to independent pairs.
    pub neighbour_variance_ratio: f64,
    /// The variance in the slowest cosines of the series, relative to independent pairs.
    pub slow_variance_ratio: f64,
    /// How many cosines that is.
    pub slow_cosines: usize,
    /// By how much the ranks of the exact bounds are moved away from the middle.
    pub rank_distance_factor: f64,
    /// How many independent pairs would have bounds as wide.
    pub effective_count: f64,
}

/// The allowance for estimating the autocorrelation from these very pairs, in its own standard errors. With
/// none, and without the cosines, autoregressions of 0.8 and more passed wrongly in up to 8 % of simulated
/// campaigns.
const ALLOWANCE: f64 = 1.0;

/// How many cosines are used at most. Fewer see slower dependence and leave wider bounds: with 4, one
/// campaign in fifteen of independent pairs at a ratio of 1.08 (noise 4 %) stayed undecided, with 6 one in
/// twenty-five.
const COSINES: usize = 6;

impl Dependence {
    /// Estimates dependence from log ratios in the order in which they ran.
    pub(crate) fn of(log_ratios: &[f64], confidence: Probability) -> Self {
        let count = log_ratios.len() as f64;
        let scores = Scores::of(log_ratios).normal;
        let raw = if scores.len() < 3 { 0.0 } else { autocorrelation(&scores, 1) };
        // Marriott and Pope 1954, Kendall 1954: E[r] = phi - (1 + 3 phi) / n.
        let corrected = ((raw * count + 1.0) / (count - 3.0).max(1.0)).clamp(-0.999, 0.999);
        let error = ((1.0 - corrected * corrected) / count).sqrt();
        let assumed = (corrected + ALLOWANCE * error).clamp(0.0, 0.999);
        let neighbours = median_variance_ratio(assumed);
        let (slow_cosines, slow) = slow_variance_ratio(&scores);
        let factor =
            neighbours.sqrt().max(slow.sqrt() * student_per_normal(slow_cosines, confidence)).max(1.0);
        Self {
            autocorrelation: corrected,
            assumed_autocorrelation: assumed,
            neighbour_variance_ratio: neighbours,
            slow_variance_ratio: slow,
            slow_cosines,
            rank_distance_factor: factor,
            effective_count: count / (factor * factor),
        }
    }

    /// Exact bounds with the distance of each rank from the middle multiplied; absent once they leave the
    /// sample.
    ///
    /// The ratio of variances is that of the median. Other quantiles have less to lose from the same
    /// dependence.
    pub(crate) fn widen(&self, exact: &RankBounds) -> RankBounds {
        let centre = exact.quantile.get() * exact.count as f64;
        // A bound of rank r stands for "fewer than r values": half a unit belongs to the step of the
        // distribution.
        let lower = exact.lower.and_then(|bound| {
            let reach = (centre - (bound.rank as f64 - 0.5)) * self.rank_distance_factor;
            ranked((centre - reach + 0.5).floor(), exact.count, bound.coverage)
        });
        let upper = exact.upper.and_then(|bound| {
            let reach = (bound.rank as f64 - 0.5 - centre) * self.rank_distance_factor;
            ranked((centre + reach + 0.5).ceil(), exact.count, bound.coverage)
        });
        RankBounds { lower, upper, ..*exact }
    }
}

fn ranked(rank: f64, count: usize, coverage: f64) -> Option<RankBound> {
    if !(rank >= 1.0 && rank <= count as f64) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie in 1..=count"
    )]
    Some(RankBound { rank: rank as usize, coverage })
}

/// The variance of the number of values below the median, relative to independence, for a first-order
/// autoregression: two normal values of correlation r fall on the same side with probability 1/2 + asin(r)/pi
/// (Sheppard 1899).
fn median_variance_ratio(phi: f64) -> f64 {
    let mut power = phi;
    let mut sum = 0.0;
    while power > 1e-6 {
        sum += power.asin();
        power *= phi;
    }
    1.0 + 4.0 / std::f64::consts::PI * sum
}

/// How many cosines were used, and the mean of their squared coefficients relative to the variance: 1 on
/// average for independent values, the long-run variance for others.
fn slow_variance_ratio(scores: &[f64]) -> (usize, f64) {
    let cosines = COSINES.min(scores.len() / 4).max(1);
    let variance = scores.iter().map(|score| score * score).sum::<f64>() / scores.len() as f64;
    if variance <= 0.0 {
        return (cosines, 1.0);
    }
    let squares: f64 = (1..=cosines).map(|frequency| coefficient(scores, frequency).powi(2)).sum();
    (cosines, squares / cosines as f64 / variance)
}

/// The coefficient of the orthonormal cosine with `frequency` half periods (type II).
fn coefficient(scores: &[f64], frequency: usize) -> f64 {
    let count = scores.len() as f64;
    let angle = std::f64::consts::PI * frequency as f64 / count;
    let term = |(index, score): (usize, &f64)| score * (angle * (index as f64 + 0.5)).cos();
    (2.0 / count).sqrt() * scores.iter().enumerate().map(term).sum::<f64>()
}

/// How much wider Student's distribution with few degrees of freedom is than the normal one, at this
/// confidence.
fn student_per_normal(degrees: usize, confidence: Probability) -> f64 {
    let normal = Normal::standard().inverse_cdf(confidence.get());
    let student = StudentsT::new(0.0, 1.0, degrees as f64).expect("there is at least one degree of freedom");
    // At the middle both are 0 and neither is wider.
    if normal.abs() < 1e-9 { 1.0 } else { student.inverse_cdf(confidence.get()) / normal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    const LEVEL: Probability = Probability::NINETY_FIVE_PERCENT;

    fn exact() -> RankBounds {
        RankBounds::exact(60, Probability::HALF, LEVEL)
    }

    #[test]
    fn ranks_move_outwards_by_the_factor() {
        let found = Dependence::of(&[0.0; 60], LEVEL);
        let check = |rank_distance_factor: f64, ranks: Option<(usize, usize)>| {
            let wide = Dependence { rank_distance_factor, ..found }.widen(&exact());
            let found = wide.lower.zip(wide.upper).map(|(lower, upper)| (lower.rank, upper.rank));
            assert_eq!(found, ranks, "{rank_distance_factor}");
        };
        check(1.0, Some((24, 37)));
        check(1.01, Some((23, 38)));
        check(2.0, Some((17, 44)));
        check(4.5, Some((1, 60)));
        check(4.6, None);
    }

    #[test]
    fn strong_dependence_leaves_no_bound() {
        let ramp: Vec<f64> = (0..60).map(f64::from).collect();
        let strong = Dependence::of(&ramp, LEVEL);
        assert!(strong.rank_distance_factor > 5.0, "{strong:?}");
        assert_eq!((strong.widen(&exact()).lower, strong.widen(&exact()).upper), (None, None));
    }

    #[test]
    fn slow_weak_dependence_is_seen_where_neighbours_hardly_differ() {
        let mut stream = Stream::new("slow", 5);
        let wave = |index: u32| 0.7 * (f64::from(index) * std::f64::consts::PI / 30.0).sin();
        let series: Vec<f64> =
            (0..60).map(|index| wave(index) + f64::from(stream.below(4_001)) / 1e3 - 2.0).collect();
        let found = Dependence::of(&series, LEVEL);
        assert!(found.slow_variance_ratio > 1.5 * found.neighbour_variance_ratio, "{found:?}");
    }

    /// The squared coefficients of all cosines but the constant one add up to the sum of squares.
    #[test]
    fn the_cosines_are_orthonormal() {
        let mut stream = Stream::new("cosines", 1);
        let values: Vec<f64> = (0..21).map(|_| f64::from(stream.below(1_000))).collect();
        let centred = crate::diagnostics::centred(&values);
        let all: f64 = (1..21).map(|frequency| coefficient(&centred, frequency).powi(2)).sum();
        let squares: f64 = centred.iter().map(|value| value * value).sum();
        assert!((all / squares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn constants_and_tiny_series_have_a_finite_factor() {
        for series in [&[1.0][..], &[1.0, 2.0], &[2.0, 2.0, 2.0], &[3.0, 1.0, 2.0, 5.0, 4.0]] {
            let found = Dependence::of(series, LEVEL);
            assert!(found.rank_distance_factor.is_finite() && found.rank_distance_factor >= 1.0, "{found:?}");
        }
    }
}
