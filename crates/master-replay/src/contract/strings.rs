//! Many small strings in one allocation.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A list of strings: all bytes in one arena, eight more bytes each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    text: String,
    ends: Vec<u64>,
}

impl Strings {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn get(&self, index: u32) -> &str {
        let index = index as usize;
        let start = if index == 0 { 0 } else { offset(self.ends[index - 1]) };
        &self.text[start..offset(self.ends[index])]
    }

    fn push(&mut self, text: &str) -> Option<u32> {
        let index = u32::try_from(self.ends.len()).ok().filter(|index| *index < u32::MAX)?;
        self.text.push_str(text);
        self.ends.push(self.text.len() as u64);
        Some(index)
    }
}

fn offset(end: u64) -> usize {
    usize::try_from(end).expect("an end is the length of a string in memory")
}

/// A string's hash, kept beside its number so that neither a search nor growth has to look at other strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u32);

impl Hash {
    /// The table takes the place from the lower bits and a tag from the highest.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// Strings that are each kept once. What hashes a string is keyed at random, so no input can make them collide.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    strings: Strings,
    table: HashTable<(u32, Hash)>,
    hasher: DefaultHashBuilder,
}

impl Interner {
    pub(crate) fn get(&self, index: u32) -> &str {
        self.strings.get(index)
    }

    /// The string's hash, for the two functions below.
    pub(crate) fn hash(&self, text: &str) -> Hash {
        #[expect(clippy::cast_possible_truncation, reason = "half of the hash is enough")]
        Hash(self.hasher.hash_one(text) as u32)
    }

    pub(crate) fn find_hashed(&self, hash: Hash, text: &str) -> Option<u32> {
        let found = self
            .table
            .find(hash.spread(), |(index, other)| *other == hash && self.strings.get(*index) == text);
        found.map(|(index, _)| *index)
    }

    /// Keeps a string that is known to be new; nothing when there are 2^32-1 already.
    pub(crate) fn insert_new(&mut self, hash: Hash, text: &str) -> Option<u32> {
        let index = self.strings.push(text)?;
        self.table.insert_unique(hash.spread(), (index, hash), |(_, hash)| hash.spread());
        Some(index)
    }

    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.find_hashed(self.hash(text), text)
    }

    /// The string's index and whether it is new; nothing when there are 2^32-1 already.
    pub(crate) fn intern(&mut self, text: &str) -> Option<(u32, bool)> {
        let hash = self.hash(text);
        match self.find_hashed(hash, text) {
            Some(found) => Some((found, false)),
            None => self.insert_new(hash, text).map(|index| (index, true)),
        }
    }

    /// The strings alone; they can no longer be looked up.
    pub(crate) fn into_strings(self) -> Strings {
        let mut strings = self.strings;
        strings.text.shrink_to_fit();
        strings.ends.shrink_to_fit();
        strings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_string_is_kept_once() {
        let mut interner = Interner::default();
        assert_eq!(interner.intern("a"), Some((0, true)));
        assert_eq!(interner.intern(""), Some((1, true)));
        assert_eq!(interner.intern("é\0"), Some((2, true)));
        assert_eq!(interner.intern("a"), Some((0, false)));
        assert_eq!(interner.find(""), Some(1));
        assert_eq!(interner.find("b"), None);
        let strings = interner.into_strings();
        assert_eq!([strings.get(0), strings.get(1), strings.get(2)], ["a", "", "é\0"]);
    }
}
