//! The one source of chance, owned by the replay and seeded.

use crate::hash::mix;

/// The seed every replay starts from; it is part of the report.
pub(crate) const SEED: u64 = 20_240_607;

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wide = u128::from(mix(self.state, 0)) * bound as u128;
        (wide >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_bound_turns_up_and_none_above() {
        let mut random = Random::new(SEED);
        let mut seen = [0_u32; 5];
        for _ in 0..1_000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    }
}
