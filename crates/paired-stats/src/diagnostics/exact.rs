//! Exact null distributions: Kendall's S and the rank sum, for values without ties.

/// For each distance `d` of Kendall's sum S from 0, the chance that |S| is at least `d`, over all orders of
/// `count` values.
///
/// The number of inversions is a sum of independent uniform numbers on 0..i for i = 1..count-1, so its
/// distribution is their convolution; S is the number of pairs less twice the inversions.
pub(crate) fn kendall_tails(count: usize) -> Vec<f64> {
    let pairs = count * count.saturating_sub(1) / 2;
    let chance = (2..=count).fold(vec![1.0], |chance, wide| convolved_with_uniform(&chance, wide));
    let mut exactly = vec![0.0; pairs + 1];
    for (inversions, chance) in chance.iter().enumerate() {
        exactly[pairs.abs_diff(2 * inversions)] += chance;
    }
    tails(exactly)
}

/// Sums from each place to the end.
fn tails(mut exactly: Vec<f64>) -> Vec<f64> {
    for at in (1..exactly.len()).rev() {
        exactly[at - 1] += exactly[at];
    }
    exactly
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

/// For each distance `d`, the chance that twice the Mann-Whitney count is at least `d` away from twice its
/// mean, or `None` when the number of selections does not fit 128 bits.
///
/// The number of selections with count u is the coefficient of q^u in the Gaussian binomial, built here by
/// the recurrence on the largest value: it is in the selection or it is not.
pub(crate) fn rank_sum_tails(first: usize, second: usize) -> Option<Vec<f64>> {
    let ways = mann_whitney_counts(first, second)?;
    let total = ways.iter().try_fold(0_u128, |sum, &ways| sum.checked_add(ways))?;
    let mut exactly = vec![0.0; first * second + 1];
    for (u, &ways) in ways.iter().enumerate() {
        exactly[(2 * u).abs_diff(first * second)] += ways as f64 / total as f64;
    }
    Some(tails(exactly))
}

/// How many selections of `first` of `first + second` values there are. Asked before a table is made, which would be
/// gigabytes for numbers of pairs whose selections cannot be counted anyway.
fn selections(first: usize, second: usize) -> Option<u128> {
    let fewer = first.min(second) as u128;
    let all = first.checked_add(second)? as u128;
    (1..=fewer).try_fold(1_u128, |ways, taken| Some(ways.checked_mul(all - fewer + taken)? / taken))
}

/// How many selections of `first` of `first + second` values have each Mann-Whitney count.
fn mann_whitney_counts(first: usize, second: usize) -> Option<Vec<u128>> {
    selections(first, second)?;
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

    #[test]
    fn selections_that_cannot_be_counted_make_no_table() {
        assert_eq!(selections(2, 3), Some(10));
        assert_eq!(selections(30, 30), Some(118_264_581_564_861_424));
        assert!(rank_sum_tails(1_000_000, 1_000_000).is_none());
        assert!(rank_sum_tails(60, 60).is_some());
    }

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
            let tails = kendall_tails(count);
            for &s in &all {
                let far = all.iter().filter(|other| other.abs() >= s.abs()).count();
                let found = tails[usize::try_from(s.abs()).unwrap()];
                assert!((found - far as f64 / all.len() as f64).abs() < 1e-12, "{count} {s}");
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
            let all: Vec<usize> =
                selections.map(|chosen| (2 * u_of(chosen)).abs_diff(first * second)).collect();
            let tails = rank_sum_tails(first, second).unwrap();
            for &distance in &all {
                let far = all.iter().filter(|&&other| other >= distance).count();
                let expected = far as f64 / all.len() as f64;
                assert!((tails[distance] - expected).abs() < 1e-12, "{first} {second} {distance}");
            }
        }
    }

    #[test]
    fn thirty_against_thirty_is_exact() {
        let ways = mann_whitney_counts(30, 30).unwrap();
        assert_eq!(ways.iter().sum::<u128>(), 118_264_581_564_861_424, "60 choose 30");
        assert!((rank_sum_tails(30, 30).unwrap()[0] - 1.0).abs() < 1e-12);
    }
}
