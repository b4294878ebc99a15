//! Hashes of block contents, and a map keyed by them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by content hashes. It is never iterated, so its order cannot matter; the fixed hasher keeps the time of a look-up
/// the same in every process too.
pub(crate) type HashKeyed<V> = HashMap<u64, V, BuildHasherDefault<PassThrough>>;

/// Content hashes are well mixed already, so they are used as they are.
#[derive(Clone, Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0, u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// One hash of two values (the finaliser of SplitMix64 over their combination).
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    let mut value = left ^ right.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The rolling hash of a sequence of tokens, after one more.
pub(crate) fn extend(state: u64, token: u64) -> u64 {
    (state.rotate_left(5) ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The hash of a full block, from the rolling hash at its end.
pub(crate) fn seal(state: u64) -> u64 {
    mix(state, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_of_tokens_count() {
        let of = |tokens: &[u64]| seal(tokens.iter().fold(0, |state, &token| extend(state, token)));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[1, 2]), of(&[1, 3]));
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
    }
}
