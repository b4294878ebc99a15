//! What any machine can do.

use super::lane::NoLane;
use super::{Bits, Block, Masks, Outline, Utf8, Vector};

#[derive(Clone, Copy)]
pub(super) struct Portable;

/// The bytes for which `is` holds.
#[inline(always)]
fn select(block: &Block, is: impl Fn(u8) -> bool) -> u64 {
    block.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(is(*byte)))
}

fn spaces(block: &Block) -> u64 {
    select(block, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

impl Vector for Portable {
    fn masks(self, block: &Block) -> Masks {
        let equal = |wanted: u8| select(block, |byte| byte == wanted);
        Masks {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            control: select(block, |byte| byte < 0x20),
            non_ascii: select(block, |byte| byte >= 0x80),
            space: spaces(block),
            open: select(block, |byte| byte | 0x20 == b'{'),
            close: select(block, |byte| byte | 0x20 == b'}'),
            brace: select(block, |byte| byte & 0x20 != 0),
            colon: equal(b':'),
            comma: equal(b','),
            digit: select(block, |byte| byte.is_ascii_digit()),
            zero: equal(b'0'),
            minus: equal(b'-'),
            plus: equal(b'+'),
            point: equal(b'.'),
            exponent: select(block, |byte| byte | 0x20 == b'e'),
        }
    }

    fn outline(self, block: &Block) -> Outline {
        let equal = |wanted: u8| select(block, |byte| byte == wanted);
        Outline {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            space: spaces(block),
            open: select(block, |byte| byte | 0x20 == b'{'),
            close: select(block, |byte| byte | 0x20 == b'}'),
            comma: equal(b','),
            structural: select(block, |byte| matches!(byte | 0x20, b'{' | b'}' | b',' | b':')),
        }
    }

    fn prefix_xor(self, mut bits: u64) -> u64 {
        for shift in [1, 2, 4, 8, 16, 32] {
            bits ^= bits << shift;
        }
        bits
    }

    fn compress(self, block: &Block, keep: u64, out: &mut Block) {
        let mut left = keep;
        let mut at = 0;
        while left != 0 {
            let start = left.trailing_zeros();
            let run = (!(left >> start)).trailing_zeros().min(64 - start);
            let (from, length) = (start as usize, run as usize);
            out[at..at + length].copy_from_slice(&block[from..from + length]);
            at += length;
            left &= u64::MAX.unbounded_shl(start + run);
        }
    }

    fn utf8_is_wrong(self, block: &Block, state: &mut Utf8) -> bool {
        let mut text = [0; 67];
        let carried = if state.is_incomplete { carried_bytes(&state.last) } else { 0 };
        text[..carried].copy_from_slice(&state.last[32 - carried..]);
        text[carried..carried + 64].copy_from_slice(block);
        state.last.copy_from_slice(&block[32..]);
        let result = std::str::from_utf8(&text[..carried + 64]);
        state.is_incomplete = result.is_err();
        result.is_err_and(|error| error.error_len().is_some())
    }

    fn ranks(self, numbers: &[u64], ranks: &mut [u8]) {
        count_smaller(numbers, ranks);
    }

    fn prefetch(self, _: &[u8], _: usize) {}
}

/// The quadratic way, which for a few dozen numbers is the fastest: no branch depends on them.
#[inline(always)]
pub(super) fn count_smaller(numbers: &[u64], ranks: &mut [u8]) {
    for (i, (number, rank)) in numbers.iter().zip(ranks).enumerate() {
        let (before, after) = numbers.split_at(i);
        let not_greater = before.iter().map(|other| u64::from(other <= number)).sum::<u64>();
        let smaller = after.iter().map(|other| u64::from(other < number)).sum::<u64>();
        #[expect(clippy::cast_possible_truncation, reason = "at most 256 numbers are ranked")]
        let sum = (not_greater + smaller) as u8;
        *rank = sum;
    }
}

impl Bits for Portable {
    type Lane = NoLane;

    fn prefix_xor(self, bits: u64) -> u64 {
        Vector::prefix_xor(self, bits)
    }

    fn lane(self, _: &[u32; 8]) -> Option<NoLane> {
        None
    }
}

/// How many of the last bytes belong to a character that is not complete.
fn carried_bytes(last: &[u8; 32]) -> usize {
    match last {
        [.., 0xC0..=0xFF] => 1,
        [.., 0xC0..=0xFF, _] => 2,
        _ => 3,
    }
}
