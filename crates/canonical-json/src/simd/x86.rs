//! What the vector and bit instructions of x86-64 can do.

use std::arch::x86_64::*;

use super::lane::{NoLane, ShaLane};
use super::portable::count_smaller;
use super::{BitTask, Bits, Block, Masks, Outline, Task, Utf8, Vector, utf8};

/// Proof that AVX2, PCLMULQDQ and the bit instructions are there.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Proof that AVX-512 F, BW and VBMI2 are there, and all that [`Avx2`] proves.
#[derive(Clone, Copy)]
pub(super) struct Avx512(Avx2);

/// Proof that PCLMULQDQ and the bit instructions are there.
#[derive(Clone, Copy)]
pub(super) struct Bmi(());

/// Proof that the SHA instructions and SSE4.1 are there, and all that [`Bmi`] proves.
#[derive(Clone, Copy)]
pub(super) struct BmiSha(Bmi);

#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn run_avx2<T: Task>(task: T) -> T::Output {
    task.run(Avx2(()))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn run_avx512<T: Task>(task: T) -> T::Output {
    task.run(Avx512(Avx2(())))
}

#[target_feature(enable = "pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn run_bmi<T: BitTask>(task: T) -> T::Output {
    task.run(Bmi(()))
}

// No AVX here, on purpose: see the module's documentation.
#[target_feature(enable = "sha,sse4.1,ssse3,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn run_bmi_sha<T: BitTask>(task: T) -> T::Output {
    task.run(BmiSha(Bmi(())))
}

impl Bits for Bmi {
    type Lane = NoLane;

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        // SAFETY: the token proves PCLMULQDQ. Multiplying without carries by all ones sums up every prefix.
        let product = unsafe {
            let bits = _mm_set_epi64x(0, bits.cast_signed());
            _mm_cvtsi128_si64(_mm_clmulepi64_si128(bits, _mm_set1_epi8(-1), 0))
        };
        product.cast_unsigned()
    }

    #[inline(always)]
    fn lane(self, _: &[u32; 8]) -> Option<NoLane> {
        None
    }
}

impl Bits for BmiSha {
    type Lane = ShaLane;

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        self.0.prefix_xor(bits)
    }

    #[inline(always)]
    fn lane(self, state: &[u32; 8]) -> Option<ShaLane> {
        // SAFETY: the token proves SHA and SSE4.1.
        Some(unsafe { ShaLane::new(state) })
    }
}

/// Space, tab, line feed and carriage return, each at its low half.
const SPACES: [i8; 16] = [32, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1];
/// The same for colon, brackets and comma, with bit 5 set.
const STRUCTURAL: [i8; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0x3A, 0x7B, 0x2C, 0x7D, -1, -1];

/// For each selection of eight bytes, one of them a bit, where they are, the first one lowest.
static SELECTED: [u64; 256] = {
    let mut all = [0; 256];
    let mut bits = 0;
    while bits < all.len() {
        let mut place = 8;
        while place > 0 {
            place -= 1;
            if bits >> place & 1 != 0 {
                all[bits] = all[bits] << 8 | place;
            }
        }
        bits += 1;
    }
    all
};

#[inline(always)]
fn prefetch(bytes: &[u8], at: usize) {
    // SAFETY: this is a hint, which no address makes fail.
    unsafe { _mm_prefetch(bytes.as_ptr().wrapping_add(at).cast(), _MM_HINT_T0) };
}

/// A block in two registers.
#[derive(Clone, Copy)]
struct Pair(__m256i, __m256i);

impl Pair {
    #[inline(always)]
    fn load(_: Avx2, block: &Block) -> Self {
        // SAFETY: the token proves AVX2; a block has 64 readable bytes and these loads need no alignment.
        unsafe {
            let start = block.as_ptr().cast::<__m256i>();
            Pair(_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1)))
        }
    }

    #[inline(always)]
    fn map(self, f: impl Fn(__m256i) -> __m256i) -> Self {
        Pair(f(self.0), f(self.1))
    }

    /// The top bit of every byte.
    #[inline(always)]
    fn bits(self, _: Avx2) -> u64 {
        // SAFETY: the token proves AVX2.
        let (low, high) = unsafe { (_mm256_movemask_epi8(self.0), _mm256_movemask_epi8(self.1)) };
        u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
    }

    #[inline(always)]
    fn equal(self, avx2: Avx2, wanted: u8) -> u64 {
        // SAFETY: the token proves AVX2.
        self.map(|v| unsafe { _mm256_cmpeq_epi8(v, _mm256_set1_epi8(wanted.cast_signed())) }).bits(avx2)
    }

    /// The bytes that are at most this one.
    #[inline(always)]
    fn at_most(self, avx2: Avx2, most: u8) -> u64 {
        // SAFETY: the token proves AVX2.
        let cut =
            |v| unsafe { _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(most.cast_signed())), v) };
        self.map(cut).bits(avx2)
    }

    #[inline(always)]
    fn or(self, _: Avx2, bits: u8) -> Self {
        // SAFETY: the token proves AVX2.
        self.map(|v| unsafe { _mm256_or_si256(v, _mm256_set1_epi8(bits.cast_signed())) })
    }

    #[inline(always)]
    fn minus(self, _: Avx2, amount: u8) -> Self {
        // SAFETY: the token proves AVX2.
        self.map(|v| unsafe { _mm256_sub_epi8(v, _mm256_set1_epi8(amount.cast_signed())) })
    }

    /// The bytes for which looking up the low half gives the byte itself.
    #[inline(always)]
    fn listed(self, avx2: Avx2, table: &[i8; 16]) -> u64 {
        // SAFETY: the token proves AVX2; the table has 16 readable bytes.
        let same = |v| unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, v), v)
        };
        self.map(same).bits(avx2)
    }
}

impl Vector for Avx2 {
    #[inline(always)]
    fn masks(self, block: &Block) -> Masks {
        let bytes = Pair::load(self, block);
        let lower = bytes.or(self, 0x20);
        Masks {
            quote: bytes.equal(self, b'"'),
            backslash: bytes.equal(self, b'\\'),
            control: bytes.at_most(self, 0x1F),
            non_ascii: bytes.bits(self),
            space: bytes.listed(self, &SPACES),
            open: lower.equal(self, b'{'),
            close: lower.equal(self, b'}'),
            // SAFETY: the token proves AVX2. Bit 5 of each byte becomes bit 7 of the same byte.
            brace: bytes.map(|v| unsafe { _mm256_slli_epi16(v, 2) }).bits(self),
            colon: bytes.equal(self, b':'),
            comma: bytes.equal(self, b','),
            digit: bytes.minus(self, b'0').at_most(self, 9),
            zero: bytes.equal(self, b'0'),
            minus: bytes.equal(self, b'-'),
            plus: bytes.equal(self, b'+'),
            point: bytes.equal(self, b'.'),
            exponent: lower.equal(self, b'e'),
        }
    }

    #[inline(always)]
    fn outline(self, block: &Block) -> Outline {
        let bytes = Pair::load(self, block);
        let lower = bytes.or(self, 0x20);
        Outline {
            quote: bytes.equal(self, b'"'),
            backslash: bytes.equal(self, b'\\'),
            space: bytes.listed(self, &SPACES),
            open: lower.equal(self, b'{'),
            close: lower.equal(self, b'}'),
            comma: bytes.equal(self, b','),
            structural: lower.listed(self, &STRUCTURAL),
        }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        Bmi(()).prefix_xor(bits)
    }

    /// Eight bytes at a time, in whose place those that are kept move to the front.
    #[inline(always)]
    fn compress(self, block: &Block, keep: u64, out: &mut Block) {
        let parts = block.as_chunks::<16>().0;
        let kept = keep.to_le_bytes();
        for (i, (part, [low, high])) in parts.iter().zip(kept.as_chunks().0).enumerate() {
            // SAFETY: the token proves AVX2, and with it SSE4.1; a part has 16 readable bytes.
            let words = unsafe {
                let high = SELECTED[usize::from(*high)] + 0x0808_0808_0808_0808;
                let low = SELECTED[usize::from(*low)];
                let bytes = _mm_loadu_si128(part.as_ptr().cast());
                let moved = _mm_shuffle_epi8(bytes, _mm_set_epi64x(high.cast_signed(), low.cast_signed()));
                [_mm_cvtsi128_si64(moved), _mm_extract_epi64(moved, 1)]
            };
            for (half, word) in words.iter().enumerate() {
                // What is written beyond the bytes that are kept is overwritten by what follows.
                let before = (keep & !(u64::MAX << (16 * i + 8 * half))).count_ones() as usize;
                out[before..before + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    #[inline(always)]
    fn utf8_is_wrong(self, block: &Block, state: &mut Utf8) -> bool {
        // SAFETY: the token proves AVX2.
        unsafe { utf8::is_wrong(state, block) }
    }

    #[inline(always)]
    fn ranks(self, numbers: &[u64], ranks: &mut [u8]) {
        count_smaller(numbers, ranks);
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        prefetch(bytes, at);
    }
}

impl Vector for Avx512 {
    #[inline(always)]
    fn masks(self, block: &Block) -> Masks {
        let bytes = Wide::load(self, block);
        let lower = bytes.or(0x20);
        Masks {
            quote: bytes.equal(b'"'),
            backslash: bytes.equal(b'\\'),
            control: bytes.below(0x20),
            non_ascii: bytes.test(0x80),
            space: bytes.listed(&SPACES),
            open: lower.equal(b'{'),
            close: lower.equal(b'}'),
            brace: bytes.test(0x20),
            colon: bytes.equal(b':'),
            comma: bytes.equal(b','),
            digit: bytes.minus(b'0').below(10),
            zero: bytes.equal(b'0'),
            minus: bytes.equal(b'-'),
            plus: bytes.equal(b'+'),
            point: bytes.equal(b'.'),
            exponent: lower.equal(b'e'),
        }
    }

    #[inline(always)]
    fn outline(self, block: &Block) -> Outline {
        let bytes = Wide::load(self, block);
        let lower = bytes.or(0x20);
        Outline {
            quote: bytes.equal(b'"'),
            backslash: bytes.equal(b'\\'),
            space: bytes.listed(&SPACES),
            open: lower.equal(b'{'),
            close: lower.equal(b'}'),
            comma: bytes.equal(b','),
            structural: lower.listed(&STRUCTURAL),
        }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        self.0.prefix_xor(bits)
    }

    #[inline(always)]
    fn compress(self, block: &Block, keep: u64, out: &mut Block) {
        // SAFETY: the token proves VBMI2; both blocks have 64 bytes and these accesses need no alignment.
        unsafe {
            let bytes = _mm512_loadu_si512(block.as_ptr().cast());
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(keep, bytes));
        }
    }

    #[inline(always)]
    fn utf8_is_wrong(self, block: &Block, state: &mut Utf8) -> bool {
        self.0.utf8_is_wrong(block, state)
    }

    #[inline(always)]
    fn ranks(self, numbers: &[u64], ranks: &mut [u8]) {
        count_smaller(numbers, ranks);
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        prefetch(bytes, at);
    }
}

/// A block in one register, and with it the proof that the instructions for it are there.
#[derive(Clone, Copy)]
struct Wide(__m512i);

impl Wide {
    #[inline(always)]
    fn load(_: Avx512, block: &Block) -> Self {
        // SAFETY: the token proves AVX-512 F; a block has 64 readable bytes and this load needs no alignment.
        Wide(unsafe { _mm512_loadu_si512(block.as_ptr().cast()) })
    }

    #[inline(always)]
    fn equal(self, wanted: u8) -> u64 {
        // SAFETY: a `Wide` is only made by `load`, with a token that proves AVX-512 BW.
        unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(wanted.cast_signed())) }
    }

    #[inline(always)]
    fn below(self, bound: u8) -> u64 {
        // SAFETY: as in `equal`.
        unsafe { _mm512_cmplt_epu8_mask(self.0, _mm512_set1_epi8(bound.cast_signed())) }
    }

    #[inline(always)]
    fn test(self, bits: u8) -> u64 {
        // SAFETY: as in `equal`.
        unsafe { _mm512_test_epi8_mask(self.0, _mm512_set1_epi8(bits.cast_signed())) }
    }

    #[inline(always)]
    fn or(self, bits: u8) -> Self {
        // SAFETY: as in `equal`.
        Wide(unsafe { _mm512_or_si512(self.0, _mm512_set1_epi8(bits.cast_signed())) })
    }

    #[inline(always)]
    fn minus(self, amount: u8) -> Self {
        // SAFETY: as in `equal`.
        Wide(unsafe { _mm512_sub_epi8(self.0, _mm512_set1_epi8(amount.cast_signed())) })
    }

    /// As [`Pair::listed`].
    #[inline(always)]
    fn listed(self, table: &[i8; 16]) -> u64 {
        // SAFETY: as in `equal`; the table has 16 readable bytes.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_cmpeq_epi8_mask(_mm512_shuffle_epi8(table, self.0), self.0)
        }
    }
}
