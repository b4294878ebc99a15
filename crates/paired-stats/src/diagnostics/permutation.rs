//! Statistics of scores in an order, and their distribution over every order.

use super::scores::{centred, product_at};
use crate::random::Stream;

/// A number that is large when scores in this order look unlike scores in a random order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statistic {
    /// Weighted portmanteau: squared autocorrelations, those at short lags counting most.
    Portmanteau { lags: usize },
    /// The absolute sum of products with a centred covariate.
    Trend { covariate: Vec<f64> },
    /// The largest standardised sum of a beginning against the rest.
    ChangePoint,
    /// The absolute sum over the marked places.
    Marked { marks: Vec<bool> },
}

impl Statistic {
    /// A trend against any covariate, or `None` if it does not vary.
    pub(crate) fn trend(covariate: &[f64]) -> Option<Self> {
        let varies = covariate.iter().any(|value| value.total_cmp(&covariate[0]).is_ne());
        varies.then(|| Self::Trend { covariate: centred(covariate) })
    }

    /// The value for centred scores in some order.
    pub(crate) fn value(&self, scores: &[f64]) -> f64 {
        match self {
            Self::Portmanteau { lags } => portmanteau(scores, *lags),
            Self::Trend { covariate } => scores.iter().zip(covariate).map(|(a, b)| a * b).sum::<f64>().abs(),
            Self::ChangePoint => change_point(scores).1,
            Self::Marked { marks } => {
                scores.iter().zip(marks).filter(|&(_, &mark)| mark).map(|(score, _)| score).sum::<f64>().abs()
            }
        }
    }

    /// Its values over `permutations` random orders of these scores, sorted.
    pub(crate) fn null(&self, scores: &[f64], permutations: u32, seed: u64) -> Vec<f64> {
        // The order in which the scores arrive must not matter, only which scores there are.
        let mut scores = scores.to_vec();
        scores.sort_by(f64::total_cmp);
        let mut stream = Stream::new("paired-stats permutation 1", seed);
        let mut values: Vec<f64> = std::iter::repeat_with(|| {
            stream.shuffle(&mut scores);
            self.value(&scores)
        })
        .take(permutations as usize)
        .collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// The share of random orders, the observed one among them, whose statistic is at least the observed (Phipson
/// and Smyth 2010: a permutation p-value is never 0).
pub(crate) fn p_value(sorted_null: &[f64], observed: f64) -> f64 {
    // Equal sums may differ in their last bits when added in another order.
    let almost = observed - 1e-9 * observed.abs();
    let reached = sorted_null.len() - sorted_null.partition_point(|&value| value < almost);
    (reached + 1) as f64 / (sorted_null.len() + 1) as f64
}

/// Fisher and Gallagher's weighted Ljung-Box statistic (JASA 2012).
fn portmanteau(scores: &[f64], lags: usize) -> f64 {
    let (count, all) = (scores.len() as f64, lags as f64);
    let square: f64 = scores.iter().map(|score| score * score).sum();
    let term = |lag: usize| {
        let weight = (all - lag as f64 + 1.0) / all;
        weight * (product_at(scores, lag) / square).powi(2) / (count - lag as f64)
    };
    count * (count + 2.0) * (1..=lags).map(term).sum::<f64>()
}

/// The first place after the most likely change of level, and how far the beginning is from the rest in
/// standard deviations, for beginnings of at least a tenth of the values that leave at least a tenth.
pub(crate) fn change_point(scores: &[f64]) -> (usize, f64) {
    let count = scores.len();
    let margin = count.div_ceil(10).max(1);
    let (mut sum, mut best) = (0.0, (0, 0.0));
    for (index, score) in scores.iter().enumerate() {
        sum += score;
        let before = index + 1;
        if before >= margin && count - before >= margin {
            let spread = (before as f64 * (count - before) as f64 / count as f64).sqrt();
            if sum.abs() / spread > best.1 {
                best = (before, sum.abs() / spread);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_where_it_is() {
        let scores: Vec<f64> = (0..20).map(|index| if index < 8 { -1.5 } else { 1.0 }).collect();
        assert_eq!(change_point(&scores).0, 8);
    }

    #[test]
    fn the_distribution_does_not_depend_on_the_observed_order() {
        let null = |scores: &[f64]| Statistic::Portmanteau { lags: 2 }.null(scores, 50, 3);
        assert_eq!(null(&[1.0, -1.0, 0.5, -0.5]), null(&[0.5, -0.5, 1.0, -1.0]));
    }

    #[test]
    fn p_values_count_the_observed_order() {
        assert!((p_value(&[1.0, 2.0, 3.0], 2.0) - 0.75).abs() < 1e-12);
        assert!((p_value(&[1.0, 2.0, 3.0], 9.0) - 0.25).abs() < 1e-12);
    }
}
