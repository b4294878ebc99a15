//! SHA-256 a quarter of a block at a time, so that other work fits in between.
//!
//! The rounds of SHA-256 are one long chain: each waits for the one before, and the processor has nothing else to do.
//! It could look ahead to other work, but not far, because the waiting rounds fill its queues. So the other work is
//! put between the rounds.

use super::Block;

/// Hashing on the side.
pub(crate) trait Lane {
    /// Takes the next block; its four quarters follow.
    fn begin(&mut self, block: &Block);
    fn quarter<const INDEX: usize>(&mut self);
    fn state(&self) -> [u32; 8];
}

/// No hashing on the side.
pub(crate) struct NoLane;

impl Lane for NoLane {
    #[inline(always)]
    fn begin(&mut self, _: &Block) {}

    #[inline(always)]
    fn quarter<const INDEX: usize>(&mut self) {}

    fn state(&self) -> [u32; 8] {
        [0; 8]
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::ShaLane;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Block, Lane};

    /// The state in the order of the SHA instructions, and with it the proof that they and SSE4.1 are there.
    pub(in crate::simd) struct ShaLane {
        abef: __m128i,
        cdgh: __m128i,
        before: (__m128i, __m128i),
        /// The last sixteen words of the message schedule.
        words: [__m128i; 4],
    }

    impl ShaLane {
        #[inline]
        #[target_feature(enable = "sha,sse4.1,ssse3")]
        pub(in crate::simd) fn new(state: &[u32; 8]) -> Self {
            // SAFETY: the state has 32 readable bytes, and these loads need no alignment.
            let (dcba, hgfe) = unsafe {
                let start = state.as_ptr().cast::<__m128i>();
                (_mm_loadu_si128(start), _mm_loadu_si128(start.add(1)))
            };
            let cdab = _mm_shuffle_epi32(dcba, 0xB1);
            let efgh = _mm_shuffle_epi32(hgfe, 0x1B);
            let abef = _mm_alignr_epi8(cdab, efgh, 8);
            let cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
            ShaLane { abef, cdgh, before: (abef, cdgh), words: [_mm_setzero_si128(); 4] }
        }

        /// Four rounds with four words of the message schedule.
        #[inline(always)]
        fn rounds(&mut self, first: usize, words: __m128i) {
            // SAFETY: a lane is only made where SHA and SSE4.1 are there; the table has 16 readable bytes from `first`.
            unsafe {
                let constants = _mm_loadu_si128(ROUND_CONSTANTS[first..first + 4].as_ptr().cast());
                let sum = _mm_add_epi32(words, constants);
                self.cdgh = _mm_sha256rnds2_epu32(self.cdgh, self.abef, sum);
                self.abef = _mm_sha256rnds2_epu32(self.abef, self.cdgh, _mm_shuffle_epi32(sum, 0x0E));
            }
        }

        /// The four words of the schedule after the last sixteen, of which `i` are the oldest.
        #[inline(always)]
        fn schedule(&mut self, i: usize) {
            let [w0, w1, w2, w3] = [0, 1, 2, 3].map(|offset| self.words[(i + offset) % 4]);
            // SAFETY: as in `rounds`.
            self.words[i] = unsafe {
                let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
                _mm_sha256msg2_epu32(sum, w3)
            };
        }
    }

    impl Lane for ShaLane {
        #[inline(always)]
        fn begin(&mut self, block: &Block) {
            self.before = (self.abef, self.cdgh);
            let start = block.as_ptr().cast::<__m128i>();
            for (i, words) in self.words.iter_mut().enumerate() {
                // SAFETY: as in `rounds`; a block has four times 16 readable bytes.
                *words = unsafe {
                    let swap = _mm_set_epi64x(0x0C0D_0E0F_0809_0A0B, 0x0405_0607_0001_0203);
                    _mm_shuffle_epi8(_mm_loadu_si128(start.add(i)), swap)
                };
            }
        }

        #[inline(always)]
        fn quarter<const INDEX: usize>(&mut self) {
            for i in 0..4 {
                if INDEX > 0 {
                    self.schedule(i);
                }
                self.rounds(16 * INDEX + 4 * i, self.words[i]);
            }
            if INDEX == 3 {
                // SAFETY: as in `rounds`.
                unsafe {
                    self.abef = _mm_add_epi32(self.abef, self.before.0);
                    self.cdgh = _mm_add_epi32(self.cdgh, self.before.1);
                }
            }
            // SAFETY: no instruction at all. Without it the compiler moves the rounds past the work between them.
            unsafe {
                std::arch::asm!(
                    "/* {0} {1} */",
                    inout(xmm_reg) self.abef,
                    inout(xmm_reg) self.cdgh,
                    options(nomem, nostack, preserves_flags)
                );
            }
        }

        #[inline(always)]
        fn state(&self) -> [u32; 8] {
            let mut state = [0; 8];
            // SAFETY: as in `rounds`; the state has 32 writable bytes, and these stores need no alignment.
            unsafe {
                let feba = _mm_shuffle_epi32(self.abef, 0x1B);
                let dchg = _mm_shuffle_epi32(self.cdgh, 0xB1);
                let start = state.as_mut_ptr().cast::<__m128i>();
                _mm_storeu_si128(start, _mm_blend_epi16(feba, dchg, 0xF0));
                _mm_storeu_si128(start.add(1), _mm_alignr_epi8(dchg, feba, 8));
            }
            state
        }
    }

    /// FIPS 180-4, section 4.2.2.
    static ROUND_CONSTANTS: [u32; 64] = [
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    ];
}
