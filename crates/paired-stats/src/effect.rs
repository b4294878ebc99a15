//! Numbers for readers. None of them decides anything.

use serde::{Deserialize, Serialize};

use crate::random::Stream;
use crate::rank::{Probability, at_least};

/// Settings of the numbers for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReaderDefinition {
    /// How often the pairs are drawn again with replacement.
    pub bootstrap_resamples: u32,
    /// The seed of those draws.
    pub bootstrap_seed: u64,
}

/// The most resamples of the bootstrap.
pub const MAX_RESAMPLES: u32 = 1_000_000;

impl Default for ReaderDefinition {
    fn default() -> Self {
        Self { bootstrap_resamples: 10_000, bootstrap_seed: 1 }
    }
}

/// The geometric mean of the ratios with bootstrap bounds. It never decides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bootstrap {
    /// exp of the mean log ratio.
    pub geometric_mean_ratio: f64,
    /// The lower percentile bound (one-sided).
    pub lower_ratio: f64,
    /// The upper percentile bound (one-sided).
    pub upper_ratio: f64,
    /// The confidence of each bound.
    pub confidence: Probability,
    /// How often the pairs were drawn again.
    pub resamples: u32,
    /// With this seed.
    pub seed: u64,
}

/// Which true ratios a sample as noisy as this one can decide.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    /// A median of at most this, with these distances to its bounds, would have passed.
    pub passes_up_to_ratio: f64,
    /// A median above this, with these distances to its bounds, would have failed.
    pub fails_above_ratio: f64,
    /// About how many pairs would decide the median that was seen, if it is the true one and the noise stays.
    /// They would be a new experiment. Absent when the median is the limit itself.
    pub pairs_to_decide_this_median: Option<u64>,
}

/// Numbers for readers: they explain a verdict and never make one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ForReaders {
    /// exp of the median of all pairwise means of log ratios (Hodges and Lehmann 1963).
    pub hodges_lehmann_ratio: f64,
    /// The bootstrap of log ratios; absent when no resamples were asked for.
    pub bootstrap: Option<Bootstrap>,
    /// What this noise can decide; absent without both bounds.
    pub resolution: Option<Resolution>,
    /// The smallest ratio.
    pub smallest_ratio: f64,
    /// The largest ratio.
    pub largest_ratio: f64,
    /// The probability that two equal programs would pass, from 0 to 1, if their pairs were independent and spread like these.
    /// Where it is small, the measurement could hardly have passed whatever it measured: it needs less noise or more pairs.
    pub equal_pass_probability: f64,
}

/// The mean of the two middle values, or the middle one.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

pub(crate) fn hodges_lehmann_ratio(log_ratios: &[f64]) -> f64 {
    let from = |at: usize| log_ratios[at..].iter().map(move |&other| f64::midpoint(log_ratios[at], other));
    let mut means: Vec<f64> = (0..log_ratios.len()).flat_map(from).collect();
    means.sort_by(f64::total_cmp);
    median_of_sorted(&means).exp()
}

pub(crate) fn bootstrap(
    log_ratios: &[f64],
    confidence: Probability,
    define: ReaderDefinition,
) -> Option<Bootstrap> {
    let count = u32::try_from(log_ratios.len()).ok()?;
    if define.bootstrap_resamples == 0 {
        return None;
    }
    let mut stream = Stream::new("paired-stats bootstrap 1", define.bootstrap_seed);
    let mut mean_of_draw = || {
        let drawn = (0..count).map(|_| log_ratios[stream.below(count) as usize]);
        drawn.sum::<f64>() / f64::from(count)
    };
    let mut means: Vec<f64> = (0..define.bootstrap_resamples).map(|_| mean_of_draw()).collect();
    means.sort_by(f64::total_cmp);
    let beyond = (1.0 - confidence.get()) * (means.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of resamples"
    )]
    let outside = beyond.floor() as usize;
    Some(Bootstrap {
        geometric_mean_ratio: (log_ratios.iter().sum::<f64>() / f64::from(count)).exp(),
        lower_ratio: means[outside].exp(),
        upper_ratio: means[means.len() - 1 - outside].exp(),
        confidence,
        resamples: define.bootstrap_resamples,
        seed: define.bootstrap_seed,
    })
}

pub(crate) fn resolution(point: f64, lower: f64, upper: f64, limit: f64, count: usize) -> Resolution {
    let distance = (limit / point).ln();
    // The bound on the side of the limit is the one that decides.
    let reach = if distance > 0.0 { (upper / point).ln() } else { (point / lower).ln() };
    // A whole number of pairs stays one although its logarithms were rounded.
    let pairs = (count as f64 * (reach / distance).powi(2) - 1e-6).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number below 2^53"
    )]
    let pairs_to_decide_this_median = (pairs < 9e15).then(|| pairs.max(1.0) as u64);
    Resolution {
        passes_up_to_ratio: limit * point / upper,
        fails_above_ratio: limit * point / lower,
        pairs_to_decide_this_median,
    }
}

/// The chance that the ratio at `rank` is at most the limit, for as many independent ratios of equal programs.
///
/// These ratios, moved to a median of one, and their inverses, since equal programs can change places, stand for the
/// distribution. How many of so many are at most the limit is binomial.
pub(crate) fn equal_pass_probability(log_ratios: &[f64], limit: f64, rank: usize) -> f64 {
    let mut sorted = log_ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (median, limit) = (median_of_sorted(&sorted), limit.ln());
    let within = |log: &f64| usize::from(log - median <= limit) + usize::from(median - log <= limit);
    let count = sorted.len();
    let share = sorted.iter().map(within).sum::<usize>() as f64 / (2 * count) as f64;
    at_least(rank, count, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hodges_lehmann_of_a_symmetric_sample_is_its_centre() {
        let logs: Vec<f64> = (-5..=5).map(|step| 0.1 + f64::from(step) * 0.01).collect();
        assert!((hodges_lehmann_ratio(&logs) - 0.1_f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn the_bootstrap_brackets_its_point_and_repeats() {
        let logs: Vec<f64> = (0..60).map(|step| f64::from(step * 37 % 60) * 0.001).collect();
        let run = || bootstrap(&logs, Probability::NINETY_FIVE_PERCENT, ReaderDefinition::default()).unwrap();
        let found = run();
        assert!(
            found.lower_ratio < found.geometric_mean_ratio && found.geometric_mean_ratio < found.upper_ratio
        );
        assert_eq!(found, run());
    }

    #[test]
    fn resolution_says_how_many_pairs_would_do() {
        // Half the distance to the limit is covered by the bound: a quarter of the pairs would have done.
        let found = resolution(1.0, 1.0 / 1.05, 1.05, 1.05 * 1.05, 60);
        assert_eq!(found.pairs_to_decide_this_median, Some(15));
        assert!((found.passes_up_to_ratio - 1.05).abs() < 1e-12);
        assert_eq!(resolution(1.05, 1.0, 1.1, 1.05, 60).pairs_to_decide_this_median, None);
    }

    #[test]
    fn equal_programs_pass_as_often_as_their_spread_allows() {
        let even = |step: f64| -> Vec<f64> { (-30..=30).map(|at| f64::from(at) * step).collect() };
        // All within the limit, wherever their median is; none within a limit that no median reaches.
        let moved: Vec<f64> = even(0.001).iter().map(|log| log + 0.2).collect();
        assert!((equal_pass_probability(&moved, 1.05, 37) - 1.0).abs() < 1e-12);
        assert!(equal_pass_probability(&even(0.001), 0.9, 37).abs() < 1e-12);
        // Evenly from -0.2 to 0.2: 0.0488 and the 37 steps below it and above -0.2 are 38 of 61.
        let spread = equal_pass_probability(&even(0.2 / 30.0), 1.05, 37);
        let share = 38.0 / 61.0;
        let chance = |k: u32| {
            let ways = (0..k).fold(1.0, |ways, i| ways * f64::from(61 - i) / f64::from(i + 1));
            ways * f64::powi(share, i32::try_from(k).unwrap())
                * f64::powi(1.0 - share, 61 - i32::try_from(k).unwrap())
        };
        let expected: f64 = (37..=61).map(chance).sum();
        assert!((spread - expected).abs() < 1e-12, "{spread} {expected}");
        // One-sided noise counts for both arms.
        let one_sided: Vec<f64> = (0..60).map(|at| if at < 31 { 0.0 } else { 0.3 }).collect();
        let mirrored: Vec<f64> = one_sided.iter().map(|log| -log).collect();
        let chance = equal_pass_probability(&one_sided, 1.05, 37);
        assert!((0.5..0.999).contains(&chance), "{chance}");
        assert!((chance - equal_pass_probability(&mirrored, 1.05, 37)).abs() < 1e-12);
    }
}
