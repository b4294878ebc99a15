//! Which order statistics bound a quantile, and with what probability exactly.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF as _};

/// A probability strictly between 0 and 1: a quantile, or a confidence.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

impl Probability {
    /// One half: the median.
    pub const HALF: Self = Self(0.5);
    /// 95 %.
    pub const NINETY_FIVE_PERCENT: Self = Self(0.95);

    /// Checks that `value` lies strictly between 0 and 1.
    ///
    /// # Errors
    /// [`ProbabilityError`] names the value otherwise, NaN included.
    pub fn new(value: f64) -> Result<Self, ProbabilityError> {
        if value > 0.0 && value < 1.0 { Ok(Self(value)) } else { Err(ProbabilityError { value }) }
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Probability {
    type Error = ProbabilityError;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        Self::new(value)
    }
}

impl From<Probability> for f64 {
    fn from(probability: Probability) -> Self {
        probability.0
    }
}

/// A number that is not strictly between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("use {value} as a probability, which must lie strictly between 0 and 1")]
pub struct ProbabilityError {
    /// The number that was given.
    pub value: f64,
}

/// One order statistic (the smallest value has rank 1) and the exact probability that it bounds the quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RankBound {
    /// 1 is the smallest of the sorted values.
    pub rank: usize,
    /// The probability, for any continuous distribution, that this order statistic lies on its side of the
    /// quantile. With ties it is a lower limit of that probability.
    pub coverage: f64,
}

/// The one-sided bounds of a quantile for one count and confidence; each is absent when the count is too
/// small for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct RankBounds {
    /// How many values there are.
    pub count: usize,
    /// The quantile that is bounded: 0.5 is the median.
    pub quantile: Probability,
    /// What each bound was asked to reach on its own (one-sided).
    pub confidence: Probability,
    /// The largest rank whose order statistic lies at or below the quantile with at least that confidence.
    pub lower: Option<RankBound>,
    /// The smallest rank whose order statistic lies at or above the quantile with at least that confidence.
    pub upper: Option<RankBound>,
}

/// A coverage this close to the confidence counts as reaching it: the tails carry rounding of about this
/// size, and a confidence such as 0.9375 (five values, four ranks) is reached exactly.
const ROUNDING: f64 = 1e-12;

impl RankBounds {
    /// The exact one-sided bounds of `quantile` among `count` independent values (Conover, *Practical
    /// Nonparametric Statistics*, 3rd ed., section 3.2; David and Nagaraja, *Order Statistics*, section 7.1).
    ///
    /// The number of values at or below the quantile is Binomial(`count`, `quantile`); nothing is assumed
    /// about the distribution of the values.
    pub fn exact(count: usize, quantile: Probability, confidence: Probability) -> Self {
        let reaches = |coverage: &f64| *coverage >= confidence.get() - ROUNDING;
        let tails = Tails::new(count, quantile);
        let lower = last_true(count, |rank| reaches(&tails.at_least(rank)));
        let upper = first_true(count, |rank| reaches(&tails.at_most(rank - 1)));
        Self {
            count,
            quantile,
            confidence,
            lower: lower.map(|rank| RankBound { rank, coverage: tails.at_least(rank) }),
            upper: upper.map(|rank| RankBound { rank, coverage: tails.at_most(rank - 1) }),
        }
    }
}

/// Tails of Binomial(count, quantile).
struct Tails(Binomial);

impl Tails {
    fn new(count: usize, quantile: Probability) -> Self {
        let binomial = Binomial::new(quantile.get(), count as u64);
        Self(binomial.expect("a probability strictly between 0 and 1 is accepted for every count"))
    }

    /// P(B >= rank): then `rank` values lie at or below the quantile, so the `rank`-th smallest does.
    fn at_least(&self, rank: usize) -> f64 {
        if rank == 0 { 1.0 } else { self.0.sf(rank as u64 - 1) }
    }

    /// P(B <= below): then at most `below` values lie below the quantile, so the next one does not.
    fn at_most(&self, below: usize) -> f64 {
        self.0.cdf(below as u64)
    }
}

/// The probability that at least `rank` of `count` independent values are among a share of their distribution.
pub(crate) fn at_least(rank: usize, count: usize, share: f64) -> f64 {
    match Probability::new(share) {
        Ok(share) => Tails::new(count, share).at_least(rank),
        // All of them are, or none.
        Err(_) => f64::from(u8::from(share >= 1.0 && rank <= count || rank == 0)),
    }
}

/// The largest rank in `1..=count` for which a decreasing predicate holds.
fn last_true(count: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut good, mut bad) = (0, count + 1);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if holds(middle) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good)
}

/// The smallest rank in `1..=count` for which an increasing predicate holds.
fn first_true(count: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let first = last_true(count, |rank| !holds(rank)).map_or(1, |last_false| last_false + 1);
    (first <= count).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    fn choose(count: u32, k: u32) -> u128 {
        (0..k).fold(1, |product, i| product * u128::from(count - i) / u128::from(i + 1))
    }

    /// (rank, coverage as an exact integer numerator over 2^count) by adding binomial coefficients.
    fn median_by_integers(count: u32, confidence: f64) -> Option<(usize, u128)> {
        let at_least =
            |rank: usize| (u32::try_from(rank).unwrap()..=count).map(|k| choose(count, k)).sum::<u128>();
        let wanted = confidence * 2_f64.powi(i32::try_from(count).unwrap());
        (1..=count as usize).rev().map(|rank| (rank, at_least(rank))).find(|&(_, ways)| ways as f64 >= wanted)
    }

    #[test]
    fn sixty_pairs_give_ranks_24_and_37() {
        let bounds = RankBounds::exact(60, Probability::HALF, Probability::NINETY_FIVE_PERCENT);
        let (lower, upper) = (bounds.lower.unwrap(), bounds.upper.unwrap());
        assert_eq!((lower.rank, upper.rank), (24, 37));
        // 1 - P(Bin(60, 1/2) <= 23), by integers: 1,099,623,055,455,371,140 / 2^60.
        let (rank, ways) = median_by_integers(60, 0.95).unwrap();
        assert_eq!(rank, 24);
        let exact = ways as f64 / 2_f64.powi(60);
        assert!((lower.coverage - exact).abs() < 1e-13 && (upper.coverage - exact).abs() < 1e-13);
        assert_eq!(format!("{exact:.5}"), "0.95377");
    }

    #[test]
    fn median_ranks_agree_with_integer_arithmetic() {
        for count in 1..=100_u32 {
            for confidence in [0.5, 0.75, 0.9, 0.9375, 0.95, 0.975, 0.99, 0.999] {
                let bounds = RankBounds::exact(count as usize, Probability::HALF, probability(confidence));
                let expected = median_by_integers(count, confidence);
                assert_eq!(
                    bounds.lower.map(|bound| bound.rank),
                    expected.map(|(rank, _)| rank),
                    "{count} {confidence}"
                );
                let mirrored = bounds.upper.map(|bound| count as usize + 1 - bound.rank);
                assert_eq!(mirrored, expected.map(|(rank, _)| rank), "{count} {confidence}");
                if let (Some(bound), Some((_, ways))) = (bounds.lower, expected) {
                    let exact = ways as f64 / 2_f64.powi(i32::try_from(count).unwrap());
                    assert!((bound.coverage - exact).abs() < 1e-12, "{count} {confidence}");
                }
            }
        }
    }

    /// Brute force over every way in which the values can fall on either side of the quantile.
    #[test]
    fn any_quantile_agrees_with_enumeration() {
        for count in 1..=12_usize {
            for quantile in [0.05_f64, 0.1, 0.25, 0.5, 0.8, 0.99] {
                let mut at_most = vec![0.0; count + 1];
                for sides in 0_u32..1 << count {
                    let below = sides.count_ones() as usize;
                    let weight = quantile.powi(i32::try_from(below).unwrap())
                        * (1.0 - quantile).powi(i32::try_from(count - below).unwrap());
                    at_most.iter_mut().skip(below).for_each(|sum| *sum += weight);
                }
                for confidence in [0.5, 0.9, 0.95, 0.99] {
                    let bounds = RankBounds::exact(count, probability(quantile), probability(confidence));
                    let lower = (1..=count).rev().find(|rank| 1.0 - at_most[rank - 1] >= confidence - 1e-12);
                    let upper = (1..=count).find(|rank| at_most[rank - 1] >= confidence - 1e-12);
                    let context = format!("count {count}, quantile {quantile}, confidence {confidence}");
                    assert_eq!(bounds.lower.map(|bound| bound.rank), lower, "{context}");
                    assert_eq!(bounds.upper.map(|bound| bound.rank), upper, "{context}");
                }
            }
        }
    }

    /// Rational quantiles in twentieths by whole numbers alone: every count up to 25, every rank.
    #[test]
    fn any_quantile_agrees_with_whole_numbers() {
        for (count, twentieths) in (1..=25_u32).flat_map(|count| (1..20_u32).map(move |part| (count, part))) {
            let ways = |below: u32| {
                choose(count, below)
                    * u128::from(twentieths).pow(below)
                    * u128::from(20 - twentieths).pow(count - below)
            };
            let all = 20_u128.pow(count) as f64;
            let at_least =
                |rank: usize| (u32::try_from(rank).unwrap()..=count).map(ways).sum::<u128>() as f64 / all;
            let quantile = probability(f64::from(twentieths) / 20.0);
            let bounds = RankBounds::exact(count as usize, quantile, Probability::NINETY_FIVE_PERCENT);
            let lower = (1..=count as usize).rev().find(|&rank| at_least(rank) >= 0.95);
            let upper = (1..=count as usize).find(|&rank| 1.0 - at_least(rank) >= 0.95);
            let context = format!("count {count}, quantile {twentieths}/20");
            assert_eq!(bounds.lower.map(|bound| bound.rank), lower, "{context}");
            assert_eq!(bounds.upper.map(|bound| bound.rank), upper, "{context}");
            if let Some(bound) = bounds.lower {
                assert!((bound.coverage - at_least(bound.rank)).abs() < 1e-12, "{context}");
            }
        }
    }

    #[test]
    fn too_few_values_have_no_bound() {
        for count in 0..=4 {
            let bounds = RankBounds::exact(count, Probability::HALF, Probability::NINETY_FIVE_PERCENT);
            assert_eq!((bounds.lower, bounds.upper), (None, None), "{count}");
        }
        let five = RankBounds::exact(5, Probability::HALF, Probability::NINETY_FIVE_PERCENT);
        assert_eq!((five.lower.unwrap().rank, five.upper.unwrap().rank), (1, 5));
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        for value in [0.0, 1.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            assert!(Probability::new(value).is_err(), "{value}");
        }
    }
}
