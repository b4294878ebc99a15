//! Bounds for pairs that are not independent: the ranks of the exact bounds, moved outwards by what dependence costs.

use serde::{Deserialize, Serialize};

use crate::diagnostics::{Scores, autocorrelation};
use crate::rank::{RankBound, RankBounds};

/// How strongly neighbouring pairs hang together, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Dependence {
    /// The lag-1 autocorrelation of the normal scores, corrected for the bias of short series.
    pub autocorrelation: f64,
    /// The same plus its allowance for estimation: what the bound assumes.
    pub assumed_autocorrelation: f64,
    /// By how much the variance of the number of ratios below the quantile exceeds that of independent ones.
    pub variance_inflation: f64,
    /// How many independent pairs would say as much.
    pub effective_count: f64,
}

/// The allowance for estimating the autocorrelation from these very pairs, in its own standard errors.
const ALLOWANCE: f64 = 1.0;

impl Dependence {
    /// Estimates dependence from log ratios in the order in which they ran.
    pub(crate) fn of(log_ratios: &[f64]) -> Self {
        let count = log_ratios.len() as f64;
        let raw = if log_ratios.len() < 3 { 0.0 } else { autocorrelation(&Scores::of(log_ratios).normal, 1) };
        // Marriott and Pope 1954, Kendall 1954: E[r] = phi - (1 + 3 phi) / n.
        let corrected = ((raw * count + 1.0) / (count - 3.0).max(1.0)).clamp(-0.999, 0.999);
        let error = ((1.0 - corrected * corrected) / count).sqrt();
        let assumed = (corrected + ALLOWANCE * error).clamp(0.0, 0.999);
        let variance_inflation = median_inflation(assumed);
        Self {
            autocorrelation: corrected,
            assumed_autocorrelation: assumed,
            variance_inflation,
            effective_count: count / variance_inflation,
        }
    }

    /// Exact bounds with the distance of each rank from the middle widened; absent once they leave the sample.
    pub(crate) fn widen(&self, exact: &RankBounds) -> RankBounds {
        let centre = exact.quantile.get() * exact.count as f64;
        let factor = self.variance_inflation.sqrt();
        // A bound of rank r stands for "fewer than r values": half a unit belongs to the step of the distribution.
        let lower = exact.lower.and_then(|bound| {
            let reach = (centre - (bound.rank as f64 - 0.5)) * factor;
            ranked((centre - reach + 0.5).floor(), exact.count, bound.coverage)
        });
        let upper = exact.upper.and_then(|bound| {
            let reach = (bound.rank as f64 - 0.5 - centre) * factor;
            ranked((centre + reach + 0.5).ceil(), exact.count, bound.coverage)
        });
        RankBounds { lower, upper, ..*exact }
    }
}

fn ranked(rank: f64, count: usize, coverage: f64) -> Option<RankBound> {
    let inside = rank >= 1.0 && rank <= count as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie in 1..=count"
    )]
    inside.then(|| RankBound { rank: rank as usize, coverage })
}

/// The variance of the number of values below the median, relative to independence, for a first-order autoregression:
/// two normal values of correlation r fall on the same side with probability 1/2 + asin(r)/pi (Sheppard 1899).
fn median_inflation(phi: f64) -> f64 {
    let mut power = phi;
    let mut sum = 0.0;
    while power > 1e-6 {
        sum += power.asin();
        power *= phi;
    }
    1.0 + 4.0 / std::f64::consts::PI * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Probability;

    #[test]
    fn no_dependence_leaves_the_exact_ranks() {
        let exact = RankBounds::exact(60, Probability::HALF, Probability::NINETY_FIVE_PERCENT);
        let none = Dependence {
            autocorrelation: 0.0,
            assumed_autocorrelation: 0.0,
            variance_inflation: median_inflation(0.0),
            effective_count: 60.0,
        };
        assert_eq!(none.widen(&exact), exact);
    }

    #[test]
    fn strong_dependence_leaves_no_bound() {
        let exact = RankBounds::exact(60, Probability::HALF, Probability::NINETY_FIVE_PERCENT);
        let ramp: Vec<f64> = (0..60).map(f64::from).collect();
        let strong = Dependence::of(&ramp);
        assert!(strong.variance_inflation > 30.0, "{strong:?}");
        assert_eq!((strong.widen(&exact).lower, strong.widen(&exact).upper), (None, None));
    }
}
