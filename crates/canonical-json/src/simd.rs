//! Sixty-four bytes at a time: which of them are quotes, digits, brackets.
//!
//! This is the one module with `unsafe` code: intrinsics need it. Everything above works on plain `u64` masks, bit `i`
//! for byte `i`, and is generic over a [`Backend`], of which the [portable](Portable) one needs nothing of the machine.
//!
//! A backend is a token: a value of [`Avx512`] or [`Avx2`] only exists inside [`dispatch`], after the features were
//! detected, so its methods are safe to call.

/// A block of input.
pub(crate) type Block = [u8; 64];

/// A block and the four bytes after it.
pub(crate) type Ahead = [u8; 68];

/// Which bytes of a block are what.
pub(crate) struct Masks {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    /// Below 0x20.
    pub(crate) control: u64,
    /// 0x80 and above.
    pub(crate) non_ascii: u64,
    /// `{` and `[`
    pub(crate) open: u64,
    /// `}` and `]`
    pub(crate) close: u64,
    /// Among the opening and closing ones: braces.
    pub(crate) brace: u64,
    pub(crate) colon: u64,
    pub(crate) comma: u64,
    pub(crate) digit: u64,
    pub(crate) zero: u64,
    pub(crate) minus: u64,
    pub(crate) point: u64,
}

/// Which bytes of a block can be of an exponent.
pub(crate) struct Exponents {
    /// `e` and `E`
    pub(crate) letter: u64,
    /// `+` and `-`
    pub(crate) sign: u64,
}

/// Where words begin.
pub(crate) struct Words {
    /// `true` and `null`
    pub(crate) of_four: u64,
    /// `false`
    pub(crate) of_five: u64,
}

/// What UTF-8 validation must remember from one block to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8 {
    /// The last bytes of the block before, newest last.
    last: [u8; 3],
    /// Whether that block ended inside a character.
    incomplete: bool,
}

impl Utf8 {
    /// Whether what was checked so far ends inside a character.
    pub(crate) const fn is_incomplete(&self) -> bool {
        self.incomplete
    }
}

/// How blocks are looked at.
pub(crate) trait Backend: Copy {
    fn masks(self, block: &Block) -> Masks;
    /// Space, tab, line feed, carriage return.
    fn spaces(self, block: &Block) -> u64;
    fn exponents(self, block: &Block) -> Exponents;
    fn words(self, ahead: &Ahead) -> Words;
    /// Only what is needed to find the end of a value whose grammar was checked.
    fn outline(self, block: &Block) -> Outline;
    /// Bit `i` of the result is the parity of the bits `0..=i`.
    fn prefix_xor(self, bits: u64) -> u64;
    /// Checks one more block; whether it is wrong.
    fn utf8(self, block: &Block, state: &mut Utf8) -> bool;
    /// Moves the bytes whose bit is set to the front; what comes after them is unspecified.
    fn compress(self, block: &Block, keep: u64, out: &mut Block);
}

/// The masks that matter in text whose grammar was checked.
pub(crate) struct Outline {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    pub(crate) space: u64,
    pub(crate) open: u64,
    pub(crate) close: u64,
    pub(crate) comma: u64,
}

/// Work that is compiled once for each backend.
///
/// `run` and all the hot code it calls must be `#[inline(always)]`: only what ends up inside the functions below that
/// enable the features can use them.
pub(crate) trait Task {
    type Output;
    fn run<B: Backend>(self, backend: B) -> Self::Output;
}

/// What the machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The best level of this machine.
    pub(crate) fn detect() -> Self {
        *Level::available().last().expect("there is always the portable level")
    }

    /// All levels of this machine, slowest first.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn available() -> &'static [Level] {
        const ALL: [Level; 3] = [Level(Kind::Portable), Level(Kind::Avx2), Level(Kind::Avx512)];
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi2");
        match (avx2, avx512) {
            (_, true) => &ALL,
            (true, false) => &ALL[..2],
            (false, false) => &ALL[..1],
        }
    }

    /// All levels of this machine, slowest first.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn available() -> &'static [Level] {
        &[Level(Kind::Portable)]
    }
}

/// Runs a task on the backend of this level.
pub(crate) fn dispatch<T: Task>(level: Level, task: T) -> T::Output {
    match level.0 {
        Kind::Portable => task.run(Portable),
        // SAFETY: a level with this kind is only handed out after its features were detected.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { x86::run_avx2(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => unsafe { x86::run_avx512(task) },
    }
}

/// Any machine.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// The bytes for which `is` holds.
#[inline(always)]
fn select(block: &Block, is: impl Fn(u8) -> bool) -> u64 {
    block.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(is(*byte)))
}

impl Backend for Portable {
    fn masks(self, block: &Block) -> Masks {
        let equal = |wanted: u8| select(block, |byte| byte == wanted);
        Masks {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            control: select(block, |byte| byte < 0x20),
            non_ascii: select(block, |byte| byte >= 0x80),
            open: select(block, |byte| byte | 0x20 == b'{'),
            close: select(block, |byte| byte | 0x20 == b'}'),
            brace: select(block, |byte| byte & 0x20 != 0),
            colon: equal(b':'),
            comma: equal(b','),
            digit: select(block, |byte| byte.is_ascii_digit()),
            zero: equal(b'0'),
            minus: equal(b'-'),
            point: equal(b'.'),
        }
    }

    fn spaces(self, block: &Block) -> u64 {
        select(block, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
    }

    fn exponents(self, block: &Block) -> Exponents {
        Exponents {
            letter: select(block, |byte| byte | 0x20 == b'e'),
            sign: select(block, |byte| matches!(byte, b'+' | b'-')),
        }
    }

    fn words(self, ahead: &Ahead) -> Words {
        let starts = |word: &[u8]| {
            let is_word = |(i, window): (usize, &[u8])| u64::from(window == word) << i;
            ahead.windows(word.len()).take(64).enumerate().map(is_word).fold(0, |mask, bit| mask | bit)
        };
        Words { of_four: starts(b"true") | starts(b"null"), of_five: starts(b"false") }
    }

    fn outline(self, block: &Block) -> Outline {
        let equal = |wanted: u8| select(block, |byte| byte == wanted);
        Outline {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            space: select(block, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')),
            open: select(block, |byte| byte | 0x20 == b'{'),
            close: select(block, |byte| byte | 0x20 == b'}'),
            comma: equal(b','),
        }
    }

    fn prefix_xor(self, mut bits: u64) -> u64 {
        for shift in [1, 2, 4, 8, 16, 32] {
            bits ^= bits << shift;
        }
        bits
    }

    fn utf8(self, block: &Block, state: &mut Utf8) -> bool {
        let mut text = [0; 67];
        let carried = if state.incomplete { carried_bytes(&state.last) } else { 0 };
        text[..carried].copy_from_slice(&state.last[3 - carried..]);
        text[carried..carried + 64].copy_from_slice(block);
        state.last.copy_from_slice(&block[61..]);
        match std::str::from_utf8(&text[..carried + 64]) {
            Ok(_) => state.incomplete = false,
            Err(error) => {
                state.incomplete = true;
                return error.error_len().is_some();
            }
        }
        false
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
}

/// How many of the last bytes belong to a character that is not complete.
fn carried_bytes(last: &[u8; 3]) -> usize {
    match last {
        [_, _, 0xC0..=0xFF] => 1,
        [_, 0xC0..=0xFF, _] => 2,
        _ => 3,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Ahead, Backend, Block, Exponents, Masks, Outline, Task, Utf8, Words};

    /// Proof that AVX2, PCLMULQDQ and the bit instructions are there.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    /// Proof that AVX-512 F, BW and VBMI2 are there, and all that [`Avx2`] proves.
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(Avx2);

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn run_avx2<T: Task>(task: T) -> T::Output {
        task.run(Avx2(()))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn run_avx512<T: Task>(task: T) -> T::Output {
        task.run(Avx512(Avx2(())))
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

        /// Space, tab, line feed and carriage return: for these, looking up the low half gives the byte itself.
        #[inline(always)]
        fn spaces(self, avx2: Avx2) -> u64 {
            const TABLE: [i8; 16] = [32, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1];
            // SAFETY: the token proves AVX2; the table has 16 readable bytes.
            let same = |v| unsafe {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(TABLE.as_ptr().cast()));
                _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, v), v)
            };
            self.map(same).bits(avx2)
        }
    }

    impl Backend for Avx2 {
        #[inline(always)]
        fn masks(self, block: &Block) -> Masks {
            let bytes = Pair::load(self, block);
            let lower = bytes.or(self, 0x20);
            Masks {
                quote: bytes.equal(self, b'"'),
                backslash: bytes.equal(self, b'\\'),
                control: bytes.at_most(self, 0x1F),
                non_ascii: bytes.bits(self),
                open: lower.equal(self, b'{'),
                close: lower.equal(self, b'}'),
                // SAFETY: the token proves AVX2. Bit 5 of each byte becomes bit 7 of the same byte.
                brace: bytes.map(|v| unsafe { _mm256_slli_epi16(v, 2) }).bits(self),
                colon: bytes.equal(self, b':'),
                comma: bytes.equal(self, b','),
                digit: bytes.minus(self, b'0').at_most(self, 9),
                zero: bytes.equal(self, b'0'),
                minus: bytes.equal(self, b'-'),
                point: bytes.equal(self, b'.'),
            }
        }

        #[inline(always)]
        fn spaces(self, block: &Block) -> u64 {
            Pair::load(self, block).spaces(self)
        }

        #[inline(always)]
        fn exponents(self, block: &Block) -> Exponents {
            let bytes = Pair::load(self, block);
            Exponents {
                letter: bytes.or(self, 0x20).equal(self, b'e'),
                sign: bytes.equal(self, b'+') | bytes.equal(self, b'-'),
            }
        }

        #[inline(always)]
        fn words(self, ahead: &Ahead) -> Words {
            Words {
                of_four: word_starts(self, ahead, b"true") | word_starts(self, ahead, b"null"),
                of_five: word_starts(self, ahead, b"false"),
            }
        }

        #[inline(always)]
        fn outline(self, block: &Block) -> Outline {
            let bytes = Pair::load(self, block);
            let lower = bytes.or(self, 0x20);
            Outline {
                quote: bytes.equal(self, b'"'),
                backslash: bytes.equal(self, b'\\'),
                space: bytes.spaces(self),
                open: lower.equal(self, b'{'),
                close: lower.equal(self, b'}'),
                comma: bytes.equal(self, b','),
            }
        }

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
        fn utf8(self, block: &Block, state: &mut Utf8) -> bool {
            utf8_block(self, block, state)
        }

        #[inline(always)]
        fn compress(self, block: &Block, keep: u64, out: &mut Block) {
            super::Portable.compress(block, keep, out);
        }
    }

    impl Backend for Avx512 {
        #[inline(always)]
        fn masks(self, block: &Block) -> Masks {
            let bytes = Wide::load(self, block);
            let lower = bytes.or(0x20);
            Masks {
                quote: bytes.equal(b'"'),
                backslash: bytes.equal(b'\\'),
                control: bytes.below(0x20),
                non_ascii: bytes.test(0x80),
                open: lower.equal(b'{'),
                close: lower.equal(b'}'),
                brace: bytes.test(0x20),
                colon: bytes.equal(b':'),
                comma: bytes.equal(b','),
                digit: bytes.minus(b'0').below(10),
                zero: bytes.equal(b'0'),
                minus: bytes.equal(b'-'),
                point: bytes.equal(b'.'),
            }
        }

        #[inline(always)]
        fn spaces(self, block: &Block) -> u64 {
            Wide::load(self, block).spaces()
        }

        #[inline(always)]
        fn exponents(self, block: &Block) -> Exponents {
            let bytes = Wide::load(self, block);
            Exponents { letter: bytes.or(0x20).equal(b'e'), sign: bytes.equal(b'+') | bytes.equal(b'-') }
        }

        #[inline(always)]
        fn words(self, ahead: &Ahead) -> Words {
            // SAFETY: the token proves AVX-512 BW; each of these loads ends within the 68 bytes, unaligned.
            let at = |offset: usize| unsafe { _mm512_loadu_si512(ahead.as_ptr().add(offset).cast()) };
            let bytes = [at(0), at(1), at(2), at(3), at(4)];
            let starts = |word: &[u8]| {
                let mut mask = u64::MAX;
                for (bytes, letter) in bytes.iter().zip(word) {
                    // SAFETY: as above.
                    mask = unsafe {
                        _mm512_mask_cmpeq_epi8_mask(mask, *bytes, _mm512_set1_epi8(letter.cast_signed()))
                    };
                }
                mask
            };
            Words { of_four: starts(b"true") | starts(b"null"), of_five: starts(b"false") }
        }

        #[inline(always)]
        fn outline(self, block: &Block) -> Outline {
            let bytes = Wide::load(self, block);
            let lower = bytes.or(0x20);
            Outline {
                quote: bytes.equal(b'"'),
                backslash: bytes.equal(b'\\'),
                space: bytes.spaces(),
                open: lower.equal(b'{'),
                close: lower.equal(b'}'),
                comma: bytes.equal(b','),
            }
        }

        #[inline(always)]
        fn prefix_xor(self, bits: u64) -> u64 {
            self.0.prefix_xor(bits)
        }

        #[inline(always)]
        fn utf8(self, block: &Block, state: &mut Utf8) -> bool {
            utf8_block(self.0, block, state)
        }

        #[inline(always)]
        fn compress(self, block: &Block, keep: u64, out: &mut Block) {
            // SAFETY: the token proves VBMI2; both blocks have 64 bytes and these accesses need no alignment.
            unsafe {
                let bytes = _mm512_loadu_si512(block.as_ptr().cast());
                _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(keep, bytes));
            }
        }
    }

    /// Where a word of at most five letters begins.
    #[inline(always)]
    fn word_starts(avx2: Avx2, ahead: &Ahead, word: &[u8]) -> u64 {
        // SAFETY: the token proves AVX2; there are 68 readable bytes, of which at most those from 4 to 68 are loaded.
        unsafe {
            let mut all = Pair(_mm256_set1_epi8(-1), _mm256_set1_epi8(-1));
            for (offset, letter) in word.iter().enumerate() {
                let start = ahead.as_ptr().add(offset).cast::<__m256i>();
                let letter = _mm256_set1_epi8(letter.cast_signed());
                let low = _mm256_cmpeq_epi8(_mm256_loadu_si256(start), letter);
                let high = _mm256_cmpeq_epi8(_mm256_loadu_si256(start.add(1)), letter);
                all = Pair(_mm256_and_si256(all.0, low), _mm256_and_si256(all.1, high));
            }
            all.bits(avx2)
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

        /// As [`Pair::spaces`].
        #[inline(always)]
        fn spaces(self) -> u64 {
            const TABLE: [i8; 16] = [32, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1];
            // SAFETY: as in `equal`; the table has 16 readable bytes.
            unsafe {
                let table = _mm512_broadcast_i32x4(_mm_loadu_si128(TABLE.as_ptr().cast()));
                _mm512_cmpeq_epi8_mask(_mm512_shuffle_epi8(table, self.0), self.0)
            }
        }
    }

    /// Validates UTF-8 by three table look-ups on each pair of neighbouring bytes, after Keiser and Lemire,
    /// "Validating UTF-8 in less than one instruction per byte" (2021): every table says which faults a half byte
    /// still allows, and a fault that all three allow is one.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn utf8_lookup(block: &Block, state: &mut Utf8) -> bool {
        let mut before = [0; 32];
        before[29..].copy_from_slice(&state.last);
        // SAFETY: all three are 32 readable bytes, and these loads need no alignment.
        let (before, low, high) = unsafe {
            let start = block.as_ptr().cast::<__m256i>();
            let before = _mm256_loadu_si256(before.as_ptr().cast());
            (before, _mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1)))
        };
        let faults = _mm256_or_si256(utf8_faults(before, low), utf8_faults(low, high));
        state.last.copy_from_slice(&block[61..]);
        state.incomplete = state.last[2] >= 0xC0 || state.last[1] >= 0xE0 || state.last[0] >= 0xF0;
        _mm256_testz_si256(faults, faults) == 0
    }

    #[inline(always)]
    fn utf8_block(_: Avx2, block: &Block, state: &mut Utf8) -> bool {
        // SAFETY: the token proves AVX2.
        unsafe { utf8_lookup(block, state) }
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

    use fault::*;

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
    fn utf8_faults(before: __m256i, bytes: __m256i) -> __m256i {
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything a backend says about a block.
    struct Describe<'a>(&'a Block, u64);

    impl Task for Describe<'_> {
        type Output = Vec<u64>;

        #[inline(always)]
        fn run<B: Backend>(self, b: B) -> Vec<u64> {
            let Masks { quote, backslash, control, non_ascii, open, close, brace, .. } = b.masks(self.0);
            let Masks { colon, comma, digit, zero, minus, point, .. } = b.masks(self.0);
            let Exponents { letter, sign } = b.exponents(self.0);
            let outline = b.outline(self.0);
            let mut all = vec![quote, backslash, control, non_ascii, open, close, brace & (open | close)];
            all.extend([b.spaces(self.0), colon, comma, digit, zero, minus, point, letter, sign]);
            all.extend([
                outline.quote,
                outline.backslash,
                outline.space,
                outline.open,
                outline.close,
                outline.comma,
            ]);
            let mut out = [0; 64];
            b.compress(self.0, self.1, &mut out);
            all.extend(out[..self.1.count_ones() as usize].iter().map(|byte| u64::from(*byte)));
            all.push(b.prefix_xor(self.1));
            all
        }
    }

    struct FindWords<'a>(&'a Ahead);

    impl Task for FindWords<'_> {
        type Output = [u64; 2];

        #[inline(always)]
        fn run<B: Backend>(self, b: B) -> [u64; 2] {
            let Words { of_four, of_five } = b.words(self.0);
            [of_four, of_five]
        }
    }

    struct CheckUtf8<'a>(&'a [u8]);

    impl Task for CheckUtf8<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<B: Backend>(self, b: B) -> bool {
            let mut state = Utf8::default();
            for chunk in self.0.chunks(64) {
                let mut block = [b' '; 64];
                block[..chunk.len()].copy_from_slice(chunk);
                if b.utf8(&block, &mut state) {
                    return false;
                }
            }
            !state.is_incomplete() || !self.0.len().is_multiple_of(64)
        }
    }

    fn check_utf8(bytes: &[u8]) {
        for level in Level::available() {
            let expected = std::str::from_utf8(bytes).is_ok();
            assert_eq!(dispatch(*level, CheckUtf8(bytes)), expected, "{level:?} {bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn backends_agree(block: [u8; 64], keep: u64) {
            let expected = dispatch(Level::available()[0], Describe(&block, keep));
            for level in Level::available() {
                prop_assert_eq!(&dispatch(*level, Describe(&block, keep)), &expected, "{:?}", level);
            }
        }

        #[test]
        fn words_are_found(parts in prop::collection::vec("true|false|null|nul|tru|x|[1,]{0,9}", 30)) {
            let mut text = parts.concat().into_bytes();
            text.resize(68, b' ');
            let ahead = text.first_chunk().expect("68 bytes");
            for level in Level::available() {
                let expected = dispatch(Level::available()[0], FindWords(ahead));
                prop_assert_eq!(dispatch(*level, FindWords(ahead)), expected, "{:?}", level);
            }
        }

        #[test]
        fn utf8_is_what_the_standard_library_says(text in "\\PC{0,80}", at: prop::sample::Index, byte: u8) {
            check_utf8(text.as_bytes());
            let mut bytes = text.into_bytes();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            check_utf8(&bytes);
        }
    }

    #[test]
    fn utf8_at_the_borders_of_blocks() {
        for character in ["é", "\u{800}", "\u{ffff}", "\u{10000}", "\u{10ffff}"] {
            for before in 56..66 {
                let mut text = "x".repeat(before);
                text.push_str(character);
                for end in before..=text.len() {
                    check_utf8(&text.as_bytes()[..end]);
                }
                text.push_str(&"y".repeat(70));
                check_utf8(text.as_bytes());
            }
        }
        for bytes in [
            &b"\xED\xA0\x80"[..],
            b"\xC0\x80",
            b"\xE0\x80\x80",
            b"\xF4\x90\x80\x80",
            b"\xF0\x80\x80\x80",
            b"\x80",
        ] {
            for before in 60..65 {
                let mut text = vec![b'x'; before];
                text.extend_from_slice(bytes);
                check_utf8(&text);
            }
        }
    }
}
