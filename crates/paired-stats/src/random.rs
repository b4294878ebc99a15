//! The one source of random order: ChaCha20 keyed by SHA-256 of a label and a seed.
//!
//! A library's shuffle may change between releases, so the bounded draw and the shuffle are written out here
//! and held by golden files.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

/// A stream of random numbers that is the same on every platform and in every release.
pub(crate) struct Stream(ChaCha20Rng);

impl Stream {
    /// The stream for one purpose (`label`) and one `seed`. Different labels give unrelated streams.
    pub(crate) fn new(label: &str, seed: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(label.as_bytes());
        hash.update([0]);
        hash.update(seed.to_le_bytes());
        Self(ChaCha20Rng::from_seed(hash.finalize().into()))
    }

    /// A number below `bound`, every one equally likely (Lemire's multiplication with rejection, 2019).
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0, "an empty range has no number");
        let reject_below = bound.wrapping_neg() % bound;
        loop {
            let wide = u64::from(self.0.next_u32()) * u64::from(bound);
            let (high, low) = (wide >> 32, wide & u64::from(u32::MAX));
            if low >= u64::from(reject_below) {
                return u32::try_from(high).expect("the high half of a 64-bit product fits 32 bits");
            }
        }
    }

    /// Fisher-Yates from the last element to the first.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u32::try_from(last + 1).expect("fewer than 2^32 items are shuffled");
            items.swap(last, self.below(bound) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_about_equally_likely() {
        let mut stream = Stream::new("test", 1);
        let mut seen = [0_u32; 7];
        for _ in 0..70_000 {
            seen[stream.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_600..10_400).contains(&count)), "{seen:?}");
    }

    #[test]
    fn labels_and_seeds_separate_streams() {
        let draw = |label, seed| (0..4).map(|_| Stream::new(label, seed).below(u32::MAX)).next();
        assert_eq!(draw("a", 1), draw("a", 1));
        assert_ne!(draw("a", 1), draw("b", 1));
        assert_ne!(draw("a", 1), draw("a", 2));
    }

    #[test]
    fn a_shuffle_keeps_the_items() {
        let mut items: Vec<u32> = (0..100).collect();
        Stream::new("test", 2).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
