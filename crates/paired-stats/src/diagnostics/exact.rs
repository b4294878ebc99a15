//! Exact null distributions: Kendall's S and the rank sum, for values without ties.

/// The chance that |S| is at least `s`, where S is Kendall's sum over all pairs of an order of `count` values.
///
/// The number of inversions is a sum of independent uniform numbers on 0..i for i = 1..count-1, so its distribution is
/// their convolution.
pub(crate) fn kendall_p(count: usize, s: i64) -> f64 {
    let pairs = count * count.saturating_sub(1) / 2;
    let mut chance = vec![1.0];
    for wide in 2..=count {
        chance = convolved_with_uniform(&chance, wide);
    }
    // S = pairs - 2 * inversions, symmetric about 0.
    let far = |inversions: usize| (pairs as i64 - 2 * inversions as i64).abs() >= s.abs();
    chance
        .iter()
        .enumerate()
        .filter(|&(inversions, _)| far(inversions))
        .map(|(_, chance)| chance)
        .sum::<f64>()
        .min(1.0)
}

/// The distribution of X + U where U is uniform on 0..wide.
fn convolved_with_uniform(chance: &[f64], wide: usize) -> Vec<f64> {
    let mut sums = Vec::with_capacity(chance.len() + wide);
    let mut window = 0.0;
    for at in 0..chance.len() + wide - 1 {
        window += chance.get(at).copied().unwrap_or(0.0);
        sums.push(window.max(0.0) / wide as f64);
        if let Some(leaving) = (at + 1).checked_sub(wide) {
            window -= chance[leaving];
        }
    }
    sums
}

/// The chance that a rank sum over `first` of `first + second` values is at least `distance` from its mean, or `None` when
/// the number of selections does not fit 128 bits.
///
/// The number of selections with Mann-Whitney count u is the coefficient of q^u in the Gaussian binomial, built here by
/// the recurrence on the largest value: it is in the selection or it is not.
pub(crate) fn rank_sum_p(first: usize, second: usize, distance: f64) -> Option<f64> {
    let ways = mann_whitney_counts(first, second)?;
    let total = ways.iter().try_fold(0_u128, |sum, &ways| sum.checked_add(ways))?;
    let mean = (first * second) as f64 / 2.0;
    let far = |u: usize| (u as f64 - mean).abs() >= distance - 1e-9;
    let far_ways: u128 = ways.iter().enumerate().filter(|&(u, _)| far(u)).map(|(_, &ways)| ways).sum();
    Some(far_ways as f64 / total as f64)
}

/// How many selections of `first` of `first + second` values have each Mann-Whitney count.
fn mann_whitney_counts(first: usize, second: usize) -> Option<Vec<u128>> {
    let size = first * second + 1;
    // ways[i][u]: selections of i among the values seen so far.
    let mut ways = vec![vec![0_u128; size]; first + 1];
    ways[0][0] = 1;
    for seen in 1..=first + second {
        for chosen in (1..=first.min(seen)).rev() {
            let not_chosen = seen - chosen;
            let (smaller, larger) = ways.split_at_mut(chosen);
            // Choosing this, the largest value so far, beats every one not chosen before it.
            for u in (0..size).rev() {
                let with = u.checked_sub(not_chosen).map_or(0, |before| smaller[chosen - 1][before]);
                larger[0][u] = larger[0][u].checked_add(with)?;
            }
        }
    }
    ways.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(count - 1);
        let insert = |order: &Vec<usize>, at: usize| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        };
        shorter.iter().flat_map(|order| (0..count).map(move |at| insert(order, at))).collect()
    }

    #[test]
    fn kendall_agrees_with_enumeration() {
        for count in 2..=7 {
            let orders = permutations(count);
            let s_of = |order: &Vec<usize>| -> i64 {
                let later = |at: usize| {
                    order[at + 1..].iter().map(move |&next| if next > order[at] { 1 } else { -1 })
                };
                (0..count).flat_map(later).sum()
            };
            let all: Vec<i64> = orders.iter().map(s_of).collect();
            for &s in &all {
                let far = all.iter().filter(|other| other.abs() >= s.abs()).count();
                assert!((kendall_p(count, s) - far as f64 / all.len() as f64).abs() < 1e-12, "{count} {s}");
            }
        }
    }

    #[test]
    fn rank_sum_agrees_with_enumeration() {
        for (first, second) in [(1, 1), (2, 3), (4, 4), (5, 3), (6, 6)] {
            let count = first + second;
            let u_of = |chosen: u32| -> usize {
                let is_chosen = |value: usize| chosen >> value & 1 == 1;
                (0..count).filter(|&v| is_chosen(v)).map(|v| (0..v).filter(|&w| !is_chosen(w)).count()).sum()
            };
            let selections = (0_u32..1 << count).filter(|chosen| chosen.count_ones() as usize == first);
            let all: Vec<f64> =
                selections.map(|chosen| u_of(chosen) as f64 - (first * second) as f64 / 2.0).collect();
            for u in &all {
                let far = all.iter().filter(|other| other.abs() >= u.abs()).count();
                let expected = far as f64 / all.len() as f64;
                assert!(
                    (rank_sum_p(first, second, u.abs()).unwrap() - expected).abs() < 1e-12,
                    "{first} {second} {u}"
                );
            }
        }
    }

    #[test]
    fn thirty_against_thirty_is_exact() {
        let ways = mann_whitney_counts(30, 30).unwrap();
        assert_eq!(ways.iter().sum::<u128>(), 118_264_581_564_861_424, "60 choose 30");
        assert!((rank_sum_p(30, 30, 0.0).unwrap() - 1.0).abs() < 1e-12);
    }
}
