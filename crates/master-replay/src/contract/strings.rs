//! Many small strings in one allocation.

use std::cmp::Ordering;
use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

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

    fn last(&self) -> Option<&str> {
        let index = self.ends.len().checked_sub(1)?;
        u32::try_from(index).ok().map(|index| self.get(index))
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

/// Strings that are each kept once. What hashes a string is keyed at random in every process, so that no trace is slow everywhere
/// (against somebody who measures and adapts, half a hash is no protection).
///
/// As long as each string is greater than the one before, as counted names are, a new one is known to be new by that
/// alone, and the table lags behind until something has to be looked up in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    strings: Strings,
    table: Table,
    /// Whether some string was not greater than the one before it.
    is_mixed: bool,
    /// Hashes of what will be looked up next.
    next: Vec<Hash>,
    hasher: DefaultHashBuilder,
}

/// A string that was looked up and is not there: its hash, if that was needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent(Option<Hash>);

impl Interner {
    pub(crate) fn get(&self, index: u32) -> &str {
        self.strings.get(index)
    }

    /// Has the memory that looking these up will need fetched already.
    pub(crate) fn warm<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        if !self.is_mixed || !self.table.is_large() {
            return;
        }
        let mut hashes = std::mem::take(&mut self.next);
        hashes.clear();
        hashes.extend(texts.map(|text| self.hash(text)));
        // A loop so short that many of its accesses are under way at once, none of which waits for another.
        let fetched = hashes.iter().fold(0, |all, hash| all ^ self.table.slots[self.table.home(*hash)].index);
        std::hint::black_box(fetched);
        self.next = hashes;
    }

    pub(crate) fn find(&mut self, text: &str) -> Result<u32, Absent> {
        if !self.is_mixed && self.is_greatest(text) {
            return Err(Absent(None));
        }
        self.catch_up();
        let hash = self.hash(text);
        let found = self.table.find(hash, |index| self.strings.get(index) == text);
        found.ok_or(Absent(Some(hash)))
    }

    /// Keeps a string that is known to be new; nothing when there are 2^32-1 already.
    pub(crate) fn insert(&mut self, absent: Absent, text: &str) -> Option<u32> {
        let index = self.strings.push(text)?;
        if let Absent(Some(hash)) = absent {
            self.is_mixed = true;
            self.table.insert(hash, index);
        }
        Some(index)
    }

    /// The string's index and whether it is new; nothing when there are 2^32-1 already.
    pub(crate) fn intern(&mut self, text: &str) -> Option<(u32, bool)> {
        match self.find(text) {
            Ok(found) => Some((found, false)),
            Err(absent) => self.insert(absent, text).map(|index| (index, true)),
        }
    }

    /// The strings alone; they can no longer be looked up.
    pub(crate) fn into_strings(self) -> Strings {
        let mut strings = self.strings;
        strings.text.shrink_to_fit();
        strings.ends.shrink_to_fit();
        strings
    }

    /// Shorter strings come before longer ones, so that `e9` comes before `e10`.
    fn is_greatest(&self, text: &str) -> bool {
        let order = |last: &str| last.len().cmp(&text.len()).then_with(|| last.cmp(text));
        self.strings.last().is_none_or(|last| order(last) == Ordering::Less)
    }

    /// Puts the strings into the table that are not there yet.
    fn catch_up(&mut self) {
        while self.table.used < self.strings.len() {
            let Ok(index) = u32::try_from(self.table.used) else { return };
            self.table.insert(self.hash(self.strings.get(index)), index);
        }
    }

    fn hash(&self, text: &str) -> Hash {
        #[expect(clippy::cast_possible_truncation, reason = "half of the hash is enough")]
        Hash(self.hasher.hash_one(text) as u32)
    }
}

/// A string's hash, kept beside its number so that neither a search nor growth has to look at other strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash(u32);

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: Hash,
    /// `u32::MAX` if the slot is free.
    index: u32,
}

/// Numbers by their hashes: one array, searched from the place that the hash names onwards. An unknown string costs one
/// access to memory far away, where tables that keep tags apart from entries need two.
#[derive(Clone, Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    used: usize,
}

impl Table {
    const FREE: Slot = Slot { hash: Hash(0), index: u32::MAX };
    const FEWEST: usize = 64;
    /// So many slots are no longer near the processor.
    const LARGE: usize = 1 << 14;

    fn is_large(&self) -> bool {
        self.slots.len() >= Self::LARGE
    }

    fn find(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot.index == Self::FREE.index {
                return None;
            }
            if slot.hash == hash && is_it(slot.index) {
                return Some(slot.index);
            }
            at = self.after(at);
        }
    }

    /// Puts in a number that is not there yet.
    fn insert(&mut self, hash: Hash, index: u32) {
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put(Slot { hash, index });
        self.used += 1;
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.hash);
        while self.slots[at].index != Self::FREE.index {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    /// Homes keep their order, so that growth goes through both arrays from front to back.
    fn grow(&mut self) {
        let length = (self.slots.len() * 2).max(Self::FEWEST);
        let before = std::mem::replace(&mut self.slots, vec![Self::FREE; length]);
        for slot in before {
            if slot.index != Self::FREE.index {
                self.put(slot);
            }
        }
    }

    fn home(&self, hash: Hash) -> usize {
        let scaled = (u128::from(hash.0) * self.slots.len() as u128) >> 32;
        usize::try_from(scaled).expect("less than the number of slots")
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str]) {
        let mut interner = Interner::default();
        let mut known: Vec<&str> = Vec::new();
        for name in names {
            let expected = known.iter().position(|other| other == name);
            assert_eq!(interner.find(name).ok().map(|index| index as usize), expected, "{name} of {names:?}");
            let (index, is_new) = interner.intern(name).expect("room");
            assert_eq!((index as usize, is_new), (expected.unwrap_or(known.len()), expected.is_none()));
            if is_new {
                known.push(name);
            }
        }
        let strings = interner.into_strings();
        assert_eq!(strings.len(), known.len());
        for (index, name) in (0..).zip(known) {
            assert_eq!(strings.get(index), name);
        }
    }

    #[test]
    fn each_string_is_kept_once() {
        check(&["a", "", "é\0", "a", "", "b"]);
        check(&["e8", "e9", "e10", "e11", "e9", "e12", "e10", "e1", "e13", "e12", "e1"]);
        check(&["", "", "a", "a", "b"]);
    }

    #[test]
    fn many_strings_are_found_however_they_are_ordered() {
        let ascending: Vec<String> = (0..1_000).map(|number| format!("event-{number}")).collect();
        let ascending: Vec<&str> = ascending.iter().map(String::as_str).collect();
        let descending: Vec<&str> = ascending.iter().rev().copied().collect();
        check(&ascending);
        check(&descending);
        check(&[&ascending[..500], &descending, &ascending].concat());
    }

    #[test]
    fn strings_of_one_hash_are_told_apart() {
        let names = ["a", "b", "c"];
        for hash in [0, 1 << 31, u32::MAX] {
            let mut table = Table::default();
            for (index, wanted) in (0..).zip(names) {
                assert_eq!(table.find(Hash(hash), |index| names[index as usize] == wanted), None);
                table.insert(Hash(hash), index);
            }
            for (index, wanted) in (0..).zip(names) {
                assert_eq!(table.find(Hash(hash), |index| names[index as usize] == wanted), Some(index));
            }
        }
    }
}
