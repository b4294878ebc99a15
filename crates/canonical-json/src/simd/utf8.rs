//! UTF-8 on vectors.

use std::arch::x86_64::*;

use super::{Block, Utf8};
use fault::*;

/// Validates UTF-8 by three table look-ups on each pair of neighbouring bytes, after Keiser and Lemire,
/// "Validating UTF-8 in less than one instruction per byte" (2021): every table says which faults a half byte
/// still allows, and a fault that all three allow is one.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn is_wrong(state: &mut Utf8, block: &Block) -> bool {
    // SAFETY: all three are 32 readable bytes, and these loads need no alignment.
    let (before, low, high) = unsafe {
        let start = block.as_ptr().cast::<__m256i>();
        let before = _mm256_loadu_si256(state.last.as_ptr().cast());
        (before, _mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1)))
    };
    // A block that ended between two characters need not have been looked at.
    let before = if state.is_incomplete { before } else { _mm256_setzero_si256() };
    let faults = _mm256_or_si256(faults_of(before, low), faults_of(low, high));
    state.last.copy_from_slice(&block[32..]);
    state.is_incomplete = block[63] >= 0xC0 || block[62] >= 0xE0 || block[61] >= 0xF0;
    _mm256_testz_si256(faults, faults) == 0
}

/// The faults that a pair of bytes can show.
mod fault {
    pub(super) const TOO_SHORT: u8 = 1 << 0;
    pub(super) const TOO_LONG: u8 = 1 << 1;
    pub(super) const OVERLONG_3: u8 = 1 << 2;
    pub(super) const TOO_LARGE: u8 = 1 << 3;
    pub(super) const SURROGATE: u8 = 1 << 4;
    pub(super) const OVERLONG_2: u8 = 1 << 5;
    pub(super) const TOO_LARGE_1000: u8 = 1 << 6;
    pub(super) const OVERLONG_4: u8 = 1 << 6;
    pub(super) const TWO_CONTINUATIONS: u8 = 1 << 7;
    pub(super) const CARRY: u8 = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS;
}

const FIRST_HIGH: [u8; 16] = [
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TWO_CONTINUATIONS,
    TWO_CONTINUATIONS,
    TWO_CONTINUATIONS,
    TWO_CONTINUATIONS,
    TOO_SHORT | OVERLONG_2,
    TOO_SHORT,
    TOO_SHORT | OVERLONG_3 | SURROGATE,
    TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4,
];

const FIRST_LOW: [u8; 16] = [
    CARRY | OVERLONG_2 | OVERLONG_3 | OVERLONG_4,
    CARRY | OVERLONG_2,
    CARRY,
    CARRY,
    CARRY | TOO_LARGE,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000 | SURROGATE,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
    CARRY | TOO_LARGE | TOO_LARGE_1000,
];

const SECOND_HIGH: [u8; 16] = [
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
];

#[inline]
#[target_feature(enable = "avx2")]
fn look_up(table: &[u8; 16], halves: __m256i) -> __m256i {
    // SAFETY: the table has 16 readable bytes, and this load needs no alignment.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), halves)
}

#[inline]
#[target_feature(enable = "avx2")]
fn faults_of(before: __m256i, bytes: __m256i) -> __m256i {
    let low_half = _mm256_set1_epi8(0x0F);
    let high = |v| _mm256_and_si256(_mm256_srli_epi16(v, 4), low_half);
    // The sixteen bytes before each half, so that bytes can be shifted in across the lanes.
    let shifted = _mm256_permute2x128_si256(before, bytes, 0x21);
    let first = _mm256_alignr_epi8(bytes, shifted, 15);
    let faults = _mm256_and_si256(
        _mm256_and_si256(
            look_up(&FIRST_HIGH, high(first)),
            look_up(&FIRST_LOW, _mm256_and_si256(first, low_half)),
        ),
        look_up(&SECOND_HIGH, high(bytes)),
    );
    // The third and fourth byte of a character must be continuations, where two in a row are no fault.
    let third = _mm256_subs_epu8(_mm256_alignr_epi8(bytes, shifted, 14), _mm256_set1_epi8(0x60));
    let fourth = _mm256_subs_epu8(_mm256_alignr_epi8(bytes, shifted, 13), _mm256_set1_epi8(0x70));
    let continued = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(-128));
    _mm256_xor_si256(continued, faults)
}
