//! Ranks and normal scores: what every test looks at, so that no test depends on the shape of the noise.

use statrs::distribution::{ContinuousCDF as _, Normal};

/// The ranks of some values (ties share the mean of theirs) and their normal scores.
pub(crate) struct Scores {
    /// Ranks from 1, in the order of the values.
    pub(crate) ranks: Vec<f64>,
    /// Normal scores, centred, in the order of the values.
    pub(crate) normal: Vec<f64>,
    /// Whether any two values are equal.
    pub(crate) tied: bool,
}

impl Scores {
    pub(crate) fn of(values: &[f64]) -> Self {
        let (ranks, tied) = midranks(values);
        let normal = centred(&ranks.iter().map(|&rank| normal_score(rank, values.len())).collect::<Vec<_>>());
        Self { ranks, normal, tied }
    }
}

/// Ranks from 1; equal values share the mean of the ranks that they cover.
fn midranks(values: &[f64]) -> (Vec<f64>, bool) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let (mut done, mut tied) = (0, false);
    for equal in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        let mean = done as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = mean);
        done += equal.len();
        tied |= equal.len() > 1;
    }
    (ranks, tied)
}

/// The normal quantile at the middle of the rank's share (Hazen's plotting position).
fn normal_score(rank: f64, count: usize) -> f64 {
    Normal::standard().inverse_cdf((rank - 0.5) / count as f64)
}

/// The values minus their mean.
pub(crate) fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| value - mean).collect()
}

/// The autocorrelation of centred values at one lag; 0 when they do not vary or the lag is too long.
pub(crate) fn autocorrelation(centred: &[f64], lag: usize) -> f64 {
    let square: f64 = centred.iter().map(|value| value * value).sum();
    if square > 0.0 { product_at(centred, lag) / square } else { 0.0 }
}

/// The sum of products of values `lag` apart. A loop by index: permutations call it very often.
pub(crate) fn product_at(values: &[f64], lag: usize) -> f64 {
    let mut sum = 0.0;
    for later in lag..values.len() {
        sum += values[later] * values[later - lag];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(midranks(&[3.0, 1.0, 3.0, 2.0]), (vec![3.5, 1.0, 3.5, 2.0], true));
        assert_eq!(midranks(&[0.2, 0.1]), (vec![2.0, 1.0], false));
    }

    #[test]
    fn normal_scores_are_symmetric() {
        let scores = Scores::of(&[5.0, 1.0, 3.0]);
        assert!((scores.normal[0] + scores.normal[1]).abs() < 1e-12 && scores.normal[2].abs() < 1e-12);
    }
}
