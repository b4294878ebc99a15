//! Percentiles by nearest rank.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Percentiles of some times, in the unit of the key it stands under; empty (`{}`) when there are none.
///
/// Nearest rank: the values sorted ascending, the one at index ceil(q n) - 1.
///
/// ```
/// use master_replay::Distribution;
///
/// let found = Distribution::of(&mut (1..=100).collect::<Vec<u64>>());
/// assert_eq!((found.p50, found.p95, found.p99, found.max), (Some(50), Some(95), Some(99), Some(100)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Distribution {
    /// Half of the values are not above this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<u64>,
    /// 95 of 100 are not above this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95: Option<u64>,
    /// 99 of 100 are not above this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<u64>,
    /// The largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl Distribution {
    /// The percentiles of these values, whose order is lost.
    #[must_use]
    pub fn of(values: &mut [u64]) -> Self {
        let p50 = select(values, 50);
        let p95 = select(values, 95);
        let p99 = select(values, 99);
        Distribution { p50, p95, p99, max: values.iter().copied().max() }
    }

    /// The percentiles of values that were only counted, to the digits with which they were.
    pub(crate) fn of_histogram(values: &Histogram<u64>) -> Self {
        if values.is_empty() {
            return Distribution::default();
        }
        let at = |quantile| Some(values.value_at_quantile(quantile));
        Distribution { p50: at(0.50), p95: at(0.95), p99: at(0.99), max: Some(values.max()) }
    }

    /// The larger one of each.
    pub(crate) fn max(&self, other: &Distribution) -> Self {
        Distribution {
            p50: self.p50.max(other.p50),
            p95: self.p95.max(other.p95),
            p99: self.p99.max(other.p99),
            max: self.max.max(other.max),
        }
    }
}

/// The value of nearest rank, without sorting all of them.
fn select(values: &mut [u64], percent: u128) -> Option<u64> {
    let rank = (values.len() as u128 * percent).div_ceil(100);
    let index = usize::try_from(rank).ok()?.checked_sub(1)?;
    Some(*values.select_nth_unstable(index).1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[u64], expected: [u64; 4]) {
        let found = Distribution::of(&mut values.to_vec());
        assert_eq!([found.p50, found.p95, found.p99, found.max], expected.map(Some));
    }

    #[test]
    fn examples_of_the_contract() {
        check(&[7], [7, 7, 7, 7]);
        check(&[1, 2], [1, 2, 2, 2]);
        check(&(1..=100).rev().collect::<Vec<u64>>(), [50, 95, 99, 100]);
        assert_eq!(Distribution::of(&mut []), Distribution::default());
        assert_eq!(serde_json::json!(Distribution::default()), serde_json::json!({}));
    }

    proptest! {
        #[test]
        fn nearest_rank_of_the_sorted_values(mut values in proptest::collection::vec(0_u64..50, 1..300)) {
            let found = Distribution::of(&mut values.clone());
            values.sort_unstable();
            for (value, percent) in [(found.p50, 50), (found.p95, 95), (found.p99, 99), (found.max, 100)] {
                prop_assert_eq!(value, Some(values[(values.len() * percent).div_ceil(100) - 1]));
            }
        }
    }
}
