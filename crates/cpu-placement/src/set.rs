//! Sets of CPU numbers and of NUMA node numbers: one representation, two types that cannot be swapped.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest number a set may hold. Linux supports 8,192 CPUs and 1,024 nodes; the limit only keeps a typing
/// error such as `0-4000000000` from asking for gigabytes.
pub const MAX_INDEX: u32 = 65_535;

/// Why a text is not a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSetError {
    /// A member is not a decimal number.
    #[error("{text:?} is not a number in the set {whole:?}")]
    NotANumber {
        /// The member that could not be read.
        text: String,
        /// The whole text.
        whole: String,
    },
    /// A range runs backwards.
    #[error("range {first}-{last} runs backwards in the set {whole:?}")]
    Backwards {
        /// Start of the range.
        first: u32,
        /// End of the range.
        last: u32,
        /// The whole text.
        whole: String,
    },
    /// A number is above [`MAX_INDEX`].
    #[error("{index} in the set {whole:?} is above {MAX_INDEX}, the largest number a set may hold")]
    TooLarge {
        /// The number found.
        index: u64,
        /// The whole text.
        whole: String,
    },
    /// A group of a mask is not hexadecimal, or longer than 32 bits.
    #[error("{group:?} is not a group of up to eight hexadecimal digits in the mask {whole:?}")]
    BadMask {
        /// The group.
        group: String,
        /// The whole text.
        whole: String,
    },
    /// The mask is one of hwloc's infinite masks (`0xf...f`), which names no definite set.
    #[error("mask {whole:?} is infinite")]
    Infinite {
        /// The whole text.
        whole: String,
    },
}

/// Words of 64 bits, lowest first, without trailing zero words, so that equality is equality of sets.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn insert(&mut self, index: u32) {
        let word = index as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    /// Adds every number from `first` to `last`, a word at a time.
    fn insert_range(&mut self, first: u32, last: u32) {
        let (from, to) = (first as usize / 64, last as usize / 64);
        if self.0.len() <= to {
            self.0.resize(to + 1, 0);
        }
        for (word, bits) in self.0.iter_mut().enumerate().take(to + 1).skip(from) {
            let low = if word == from { u64::MAX << (first % 64) } else { u64::MAX };
            let high = if word == to { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            *bits |= low & high;
        }
    }

    fn remove(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut(index as usize / 64) {
            *word &= !(1 << (index % 64));
        }
        self.trim();
    }

    fn contains(&self, index: u32) -> bool {
        self.0.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn combine(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let at = |bits: &Self, i: usize| bits.0.get(i).copied().unwrap_or(0);
        let len = self.0.len().max(other.0.len());
        let mut out = Self((0..len).map(|i| op(at(self, i), at(other, i))).collect());
        out.trim();
        out
    }

    fn is_subset(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().zip(&other.0).all(|(word, others)| word & !others == 0)
    }

    fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, others)| word & others == 0)
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(position, word)| {
            let base = u32::try_from(position * 64).expect("members are at most MAX_INDEX");
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn parse_list(whole: &str) -> Result<Self, ParseSetError> {
        let mut bits = Self::default();
        let trimmed = whole.trim();
        if trimmed.is_empty() {
            return Ok(bits);
        }
        for part in trimmed.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (parse_index(first, whole)?, parse_index(last, whole)?),
                None => (parse_index(part, whole)?, parse_index(part, whole)?),
            };
            if first > last {
                return Err(ParseSetError::Backwards { first, last, whole: whole.to_owned() });
            }
            bits.insert_range(first, last);
        }
        Ok(bits)
    }

    /// Groups of 32 bits, the highest first, separated by commas: the kernel's form, and hwloc's with `0x`, in which
    /// a group of zeroes is left empty.
    fn parse_mask(whole: &str) -> Result<Self, ParseSetError> {
        if whole.contains("...") {
            return Err(ParseSetError::Infinite { whole: whole.to_owned() });
        }
        let groups: Vec<&str> = whole.trim().split(',').collect();
        let mut bits = Self::default();
        for (position, group) in groups.iter().rev().enumerate() {
            let value = parse_group(group, whole)?;
            for bit in (0..32).filter(|bit| value >> bit & 1 == 1) {
                let index = position as u64 * 32 + bit;
                let small = u32::try_from(index).ok().filter(|index| *index <= MAX_INDEX);
                bits.insert(small.ok_or(ParseSetError::TooLarge { index, whole: whole.to_owned() })?);
            }
        }
        Ok(bits)
    }

    fn write_list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = members.next() {
            let mut last = first;
            while members.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }

    fn mask(&self) -> String {
        let halves: Vec<u32> =
            self.0.iter().flat_map(|word| [low_half(*word), low_half(word >> 32)]).collect();
        let top = halves.iter().rposition(|half| *half != 0).unwrap_or(0);
        let groups: Vec<String> =
            halves.iter().take(top + 1).rev().map(|half| format!("{half:08x}")).collect();
        if groups.is_empty() { "00000000".to_owned() } else { groups.join(",") }
    }
}

fn low_half(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("masked to 32 bits")
}

fn parse_index(text: &str, whole: &str) -> Result<u32, ParseSetError> {
    let bad = || ParseSetError::NotANumber { text: text.to_owned(), whole: whole.to_owned() };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let index: u64 = text.parse().map_err(|_| bad())?;
    u32::try_from(index)
        .ok()
        .filter(|index| *index <= MAX_INDEX)
        .ok_or(ParseSetError::TooLarge { index, whole: whole.to_owned() })
}

fn parse_group(group: &str, whole: &str) -> Result<u32, ParseSetError> {
    if group.is_empty() && whole.contains("0x") {
        return Ok(0);
    }
    let digits = group.strip_prefix("0x").unwrap_or(group);
    let well_formed = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parsed = well_formed.then(|| u32::from_str_radix(digits, 16).ok()).flatten();
    parsed.ok_or_else(|| ParseSetError::BadMask { group: group.to_owned(), whole: whole.to_owned() })
}

macro_rules! set {
    ($name:ident, $what:literal) => {
        #[doc = concat!("A set of ", $what, ", printed and read in the kernel's list form (`0-3,8`).")]
        ///
        /// ```
        #[doc = concat!("use cpu_placement::", stringify!($name), ";")]
        #[doc = concat!("let set: ", stringify!($name), " = \"0-3,8\".parse()?;")]
        /// assert_eq!(set.len(), 5);
        /// assert_eq!(set.to_string(), "0-3,8");
        /// assert_eq!(set.to_mask(), "0000010f");
        /// # Ok::<(), cpu_placement::ParseSetError>(())
        /// ```
        #[derive(Clone, PartialEq, Eq, Hash, Default)]
        pub struct $name(Bits);

        impl $name {
            /// The empty set.
            pub fn new() -> Self {
                Self::default()
            }

            /// Reads the kernel's mask form, groups of 32 bits with the highest first (`00000001,0000000f`), or
            /// hwloc's (`0x00000001,0x0000000f`).
            ///
            /// # Errors
            /// A group is not hexadecimal, too long, or the mask is infinite or too large.
            pub fn from_mask(text: &str) -> Result<Self, ParseSetError> {
                Bits::parse_mask(text).map(Self)
            }

            /// The kernel's mask form.
            pub fn to_mask(&self) -> String {
                self.0.mask()
            }

            /// The set as 64-bit words, lowest first, without trailing zero words.
            pub fn words(&self) -> &[u64] {
                &self.0.0
            }

            /// A set from 64-bit words, lowest first.
            pub fn from_words(words: &[u64]) -> Self {
                let mut bits = Bits(words.to_vec());
                bits.trim();
                Self(bits)
            }

            /// Adds one member.
            ///
            /// # Panics
            /// When `index` is above [`MAX_INDEX`].
            pub fn insert(&mut self, index: u32) {
                assert!(index <= MAX_INDEX, "{index} is above MAX_INDEX");
                self.0.insert(index);
            }

            /// Removes one member, if present.
            pub fn remove(&mut self, index: u32) {
                self.0.remove(index);
            }

            /// Whether `index` is a member.
            pub fn contains(&self, index: u32) -> bool {
                self.0.contains(index)
            }

            /// The members, ascending.
            pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
                self.0.iter()
            }

            /// The smallest member.
            pub fn first(&self) -> Option<u32> {
                self.iter().next()
            }

            /// The largest member.
            pub fn last(&self) -> Option<u32> {
                self.iter().next_back()
            }

            /// How many members.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there are no members.
            pub fn is_empty(&self) -> bool {
                self.0.0.is_empty()
            }

            /// Members of either.
            #[must_use]
            pub fn union(&self, other: &Self) -> Self {
                Self(self.0.combine(&other.0, |a, b| a | b))
            }

            /// Members of both.
            #[must_use]
            pub fn intersection(&self, other: &Self) -> Self {
                Self(self.0.combine(&other.0, |a, b| a & b))
            }

            /// Members of `self` that are not in `other`.
            #[must_use]
            pub fn difference(&self, other: &Self) -> Self {
                Self(self.0.combine(&other.0, |a, b| a & !b))
            }

            /// Members of exactly one of the two.
            #[must_use]
            pub fn symmetric_difference(&self, other: &Self) -> Self {
                Self(self.0.combine(&other.0, |a, b| a ^ b))
            }

            /// Whether every member of `self` is in `other`.
            pub fn is_subset(&self, other: &Self) -> bool {
                self.0.is_subset(&other.0)
            }

            /// Whether the two share no member.
            pub fn is_disjoint(&self, other: &Self) -> bool {
                self.0.is_disjoint(&other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write_list(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseSetError;
            fn from_str(text: &str) -> Result<Self, ParseSetError> {
                Bits::parse_list(text).map(Self)
            }
        }

        impl FromIterator<u32> for $name {
            /// Collects members.
            ///
            /// # Panics
            /// When one is above [`MAX_INDEX`].
            fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> Self {
                let mut set = Self::new();
                members.into_iter().for_each(|index| set.insert(index));
                set
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": concat!("A set of ", $what, " as a list of numbers and ranges: `0-3,8`."),
                    "pattern": "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

set!(CpuSet, "CPU numbers");
set!(NodeSet, "NUMA node numbers");
