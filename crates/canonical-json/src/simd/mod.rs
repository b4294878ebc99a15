//! Sixty-four bytes at a time: which of them are quotes, digits, brackets.
//!
//! This is the one module with `unsafe` code: intrinsics need it. Everything above works on plain `u64` masks, bit `i`
//! for byte `i`.
//!
//! There are two kinds of work, which are kept apart. [`Vector`] work looks at the bytes themselves, in the widest
//! registers there are. [`Bits`] work looks at masks, and never touches a register wider than 128 bits, so that a
//! SHA-256 [`Lane`] can run beside it: its instructions have no form that leaves the upper halves of wide registers
//! alone, and on a processor where those are in use each of them takes hundreds of cycles (measured on virtual machines,
//! a Sapphire Rapids and an EPYC). Nor does it pay to look at the bytes in registers of 128 bits beside the lane: canonical
//! text is then digested a tenth to a quarter slower (measured on the EPYC).
//!
//! Backends are tokens: a value of one only exists inside [`dispatch`] and [`dispatch_bits`], after the features were
//! detected, so their methods are safe to call.

mod lane;
mod portable;
#[cfg(target_arch = "x86_64")]
mod utf8;
#[cfg(target_arch = "x86_64")]
mod x86;

use portable::Portable;

pub(crate) use lane::{Lane, NoLane};

/// A block of input.
pub(crate) type Block = [u8; 64];

/// Which bytes of a block are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masks {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    /// Below 0x20.
    pub(crate) control: u64,
    /// 0x80 and above.
    pub(crate) non_ascii: u64,
    /// Space, tab, line feed, carriage return.
    pub(crate) space: u64,
    /// `{` and `[`
    pub(crate) open: u64,
    /// `}` and `]`
    pub(crate) close: u64,
    /// Of brackets: which are braces.
    pub(crate) brace: u64,
    pub(crate) colon: u64,
    pub(crate) comma: u64,
    pub(crate) digit: u64,
    pub(crate) zero: u64,
    pub(crate) minus: u64,
    pub(crate) plus: u64,
    pub(crate) point: u64,
    /// `e` and `E`
    pub(crate) exponent: u64,
}

/// The masks that matter in text whose grammar was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    pub(crate) space: u64,
    pub(crate) open: u64,
    pub(crate) close: u64,
    pub(crate) comma: u64,
    /// Brackets, commas and colons, and the control characters 0x0C and 0x1A.
    pub(crate) structural: u64,
}

/// How the bytes of blocks are looked at.
pub(crate) trait Vector: Copy {
    fn masks(self, block: &Block) -> Masks;
    fn outline(self, block: &Block) -> Outline;
    /// Bit `i` of the result is the parity of the bits `0..=i`.
    fn prefix_xor(self, bits: u64) -> u64;
    /// Moves the bytes whose bit is set to the front; what comes after them is unspecified.
    fn compress(self, block: &Block, keep: u64, out: &mut Block);
    /// Checks one more block of UTF-8; whether it is wrong.
    fn utf8_is_wrong(self, block: &Block, state: &mut Utf8) -> bool;
    /// See [`rank`].
    fn ranks(self, numbers: &[u64], ranks: &mut [u8]);
    /// The byte at this place after the first, if there is one, will be read soon.
    fn prefetch(self, bytes: &[u8], at: usize);
}

/// How masks are looked at.
pub(crate) trait Bits: Copy {
    type Lane: Lane;
    /// Bit `i` of the result is the parity of the bits `0..=i`.
    fn prefix_xor(self, bits: u64) -> u64;
    /// Hashing on the side from this state on; nothing if it is no faster than hashing alone.
    fn lane(self, state: &[u32; 8]) -> Option<Self::Lane>;
}

/// Work on bytes that is compiled once for each backend.
///
/// `run` and all the hot code it calls must be `#[inline(always)]`: only what ends up inside the functions that enable
/// the features can use them. The same goes for [`BitTask`].
pub(crate) trait Task {
    type Output;
    fn run<V: Vector>(self, vector: V) -> Self::Output;
}

/// Work on masks that is compiled once for each backend.
pub(crate) trait BitTask {
    type Output;
    fn run<B: Bits>(self, bits: B) -> Self::Output;
}

/// What the machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    vector: VectorKind,
    bits: BitsKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VectorKind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitsKind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Bmi,
    #[cfg(target_arch = "x86_64")]
    BmiSha,
}

const PORTABLE: Level = Level { vector: VectorKind::Portable, bits: BitsKind::Portable };

impl Level {
    /// The best level of this machine.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Self {
        let has_bits = is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        if !has_bits || !is_x86_feature_detected!("avx2") {
            return PORTABLE;
        }
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi2");
        let has_sha = is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
        Level {
            vector: if has_avx512 { VectorKind::Avx512 } else { VectorKind::Avx2 },
            bits: if has_sha { BitsKind::BmiSha } else { BitsKind::Bmi },
        }
    }

    /// The best level of this machine.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Self {
        PORTABLE
    }

    /// All levels of this machine, slowest first.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Level> {
        let best = Level::detect();
        let mut levels = vec![PORTABLE];
        #[cfg(target_arch = "x86_64")]
        if best != PORTABLE {
            levels.push(Level { vector: VectorKind::Avx2, bits: BitsKind::Bmi });
        }
        if best != PORTABLE {
            levels.push(best);
        }
        levels
    }
}

/// Runs a task on the widest registers of this level.
#[inline]
pub(crate) fn dispatch<T: Task>(level: Level, task: T) -> T::Output {
    match level.vector {
        VectorKind::Portable => task.run(Portable),
        // SAFETY: a level of this kind is only made after its features were detected.
        #[cfg(target_arch = "x86_64")]
        VectorKind::Avx2 => unsafe { x86::run_avx2(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        VectorKind::Avx512 => unsafe { x86::run_avx512(task) },
    }
}

/// Runs a task on masks.
#[inline]
pub(crate) fn dispatch_bits<T: BitTask>(level: Level, task: T) -> T::Output {
    match level.bits {
        BitsKind::Portable => task.run(Portable),
        // SAFETY: a level of this kind is only made after its features were detected.
        #[cfg(target_arch = "x86_64")]
        BitsKind::Bmi => unsafe { x86::run_bmi(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        BitsKind::BmiSha => unsafe { x86::run_bmi_sha(task) },
    }
}

/// How far ahead text is fetched: about as much as is looked at at once.
pub(crate) const FETCHED_AHEAD: usize = 1 << 13;

/// Looks at blocks, of which there are as many as masks; whether they are UTF-8, after those before.
pub(crate) fn scan(level: Level, blocks: &[Block], masks: &mut [Masks], utf8: &mut Utf8) -> bool {
    struct Scan<'a>(&'a [Block], &'a mut [Masks], &'a mut Utf8);

    impl Task for Scan<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> bool {
            let Scan(blocks, masks, utf8) = self;
            let mut is_wrong = false;
            for (block, masks) in blocks.iter().zip(masks) {
                // Other work comes between two scans, and what is read then is not known to be wanted soon.
                vector.prefetch(block, FETCHED_AHEAD);
                *masks = vector.masks(block);
                if masks.non_ascii != 0 || utf8.is_incomplete {
                    is_wrong |= vector.utf8_is_wrong(block, utf8);
                }
            }
            !is_wrong
        }
    }

    dispatch(level, Scan(blocks, masks, utf8))
}

/// For each number, how many of the others come before it in order; of equal ones, the first comes first.
pub(crate) fn rank(level: Level, numbers: &[u64], ranks: &mut [u8]) {
    struct Rank<'a>(&'a [u64], &'a mut [u8]);

    impl Task for Rank<'_> {
        type Output = ();

        #[inline(always)]
        fn run<V: Vector>(self, vector: V) {
            vector.ranks(self.0, self.1);
        }
    }

    dispatch(level, Rank(numbers, ranks));
}

/// What UTF-8 validation must remember from one block to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8 {
    /// The second half of the block before.
    last: [u8; 32],
    /// Whether that block ended inside a character; else its bytes do not matter.
    is_incomplete: bool,
}

#[cfg(test)]
mod tests;
