//! Where the members of objects are, for as long as their order is not known, and the order where it is not that of
//! the document.
//!
//! Memory is what counts here: an input of many small members must not cost more than six tenths of itself. So an open
//! container only keeps where its members start, and a closed one that was in order keeps nothing. One that was not
//! keeps eight bytes in all if it has two or three members and is short, else one byte a member, or two if it is longer
//! than 255 bytes, or four if it is longer than 64 KiB.

use std::cmp::Ordering;
use std::collections::TryReserveError;
use std::fmt::Debug;

use crate::Form;
use crate::simd::{Level, rank};
use crate::structure::Stop;
use crate::text::Text;

/// What begins somewhere in the input.
pub(crate) trait Member: Copy + Default + Debug {
    /// Where it begins.
    fn get(self) -> usize;
}

/// A position in the input: `u32` where that is enough.
pub(crate) trait Position: Member + Ord {
    /// The greatest.
    const MAX: usize;

    fn new(position: usize) -> Self;
}

impl Member for u32 {
    #[inline(always)]
    fn get(self) -> usize {
        self as usize
    }
}

impl Position for u32 {
    const MAX: usize = u32::MAX as usize;

    #[inline(always)]
    fn new(position: usize) -> Self {
        debug_assert!(u32::try_from(position).is_ok());
        #[expect(clippy::cast_possible_truncation, reason = "only inputs below 4 GiB are indexed with u32")]
        let short = position as u32;
        short
    }
}

impl Member for usize {
    #[inline(always)]
    fn get(self) -> usize {
        self
    }
}

impl Position for usize {
    const MAX: usize = usize::MAX;

    #[inline(always)]
    fn new(position: usize) -> Self {
        position
    }
}

/// Why members have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsorted {
    /// Two members of an object have the same key.
    Repeated,
    /// There is no room to sort or to keep them.
    NoRoom,
}

impl From<TryReserveError> for Unsorted {
    fn from(_: TryReserveError) -> Self {
        Unsorted::NoRoom
    }
}

/// The containers whose members must be written in another order than they stand, or not all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index<O> {
    /// Where the members of open objects start, outermost object first.
    open: Vec<O>,
    records: Vec<Record<O>>,
    /// For each record of up to 255 bytes: how many members, then where the container ends and where they start, both
    /// from the start of the container.
    tiny: Vec<u8>,
    /// The same for records of up to 64 KiB.
    short: Vec<u16>,
    long: Vec<Long<O>>,
    scratch: Scratch<O>,
}

/// What sorting needs besides the members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<O> {
    cached: Vec<(u64, O)>,
    prefixes: Vec<u64>,
    moved: Vec<O>,
}

/// One such container.
#[derive(Clone, Copy, Debug)]
struct Record<O> {
    start: O,
    /// Where the order is, or the order itself; the two lowest bits say which.
    place: O,
}

/// The rest of a place is one in `tiny`.
const TINY: usize = 0;
/// The rest of a place is one in `short`.
const SHORT: usize = 1;
/// The rest of a place is one in `long`.
const LONG: usize = 2;
/// The rest of a place is a [`Packed`].
const PACKED: usize = 3;

#[derive(Clone, Debug)]
struct Long<O> {
    end: usize,
    /// The members of containers around it come before its own.
    starts: Vec<O>,
    base: usize,
}

/// Two or three members, and where their container ends, from its start, in thirty bits: the lowest says whether there
/// are three.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed(usize);

impl Packed {
    fn new<O: Position>(members: &[O], start: usize, end: usize) -> Option<Self> {
        let is_three = match members.len() {
            2 => false,
            3 => true,
            _ => return None,
        };
        let empty = Packed(usize::from(is_three));
        if end - start > empty.mask() {
            return None;
        }
        let fields = std::iter::once(end).chain(members.iter().map(|member| member.get()));
        let packed = fields.enumerate().fold(empty.0, |packed, (field, position)| {
            packed | distance(start, position, empty.mask()) << empty.shift(field)
        });
        Some(Packed(packed))
    }

    fn width(self) -> usize {
        if self.0 & 1 == 1 { 7 } else { 9 }
    }

    fn mask(self) -> usize {
        (1 << self.width()) - 1
    }

    fn shift(self, field: usize) -> usize {
        1 + self.width() * field
    }

    /// The end of the container, and then its members.
    #[inline(always)]
    fn field(self, field: usize) -> usize {
        self.0 >> self.shift(field) & self.mask()
    }

    #[inline(always)]
    fn member(self, member: usize) -> Option<usize> {
        (member < 2 + (self.0 & 1)).then(|| self.field(member + 1))
    }
}

/// The members of a recorded container, in canonical order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'i, O> {
    Packed { base: usize, packed: Packed },
    Tiny { base: usize, end: u8, starts: &'i [u8] },
    Short { base: usize, end: u16, starts: &'i [u16] },
    Long { end: usize, starts: &'i [O] },
}

impl<O: Position> Order<'_, O> {
    #[inline(always)]
    pub(crate) fn get(&self, member: usize) -> Option<usize> {
        match self {
            Order::Packed { base, packed } => Some(base + packed.member(member)?),
            Order::Tiny { base, starts, .. } => Some(base + usize::from(*starts.get(member)?)),
            Order::Short { base, starts, .. } => Some(base + usize::from(*starts.get(member)?)),
            Order::Long { starts, .. } => Some(starts.get(member)?.get()),
        }
    }

    /// A member that may be far from the one before: that of a long container.
    #[inline(always)]
    pub(crate) fn far(&self, member: usize) -> Option<usize> {
        match self {
            Order::Long { starts, .. } => Some(starts.get(member)?.get()),
            _ => None,
        }
    }

    /// Where the closing bracket is.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        match self {
            Order::Packed { base, packed } => base + packed.field(0),
            Order::Tiny { base, end, .. } => base + usize::from(*end),
            Order::Short { base, end, .. } => base + usize::from(*end),
            Order::Long { end, .. } => *end,
        }
    }
}

impl<O: Position> Index<O> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// A member of the innermost open object starts here.
    #[inline(always)]
    pub(crate) fn push(&mut self, start: usize) {
        self.open.push(O::new(start));
    }

    /// Makes room for the members that can begin in so many bytes.
    #[inline(always)]
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), Unsorted> {
        Ok(self.open.try_reserve(bytes)?)
    }

    /// The members after `base`, in the order of the document.
    #[inline(always)]
    pub(crate) fn members(&self, base: usize) -> &[O] {
        self.open.get(base..).unwrap_or_default()
    }

    /// Positions are now counted from this many bytes on.
    pub(crate) fn shift(&mut self, bytes: usize) {
        self.open.iter_mut().for_each(|start| *start = O::new(start.get().saturating_sub(bytes)));
    }

    /// An object that is in order ends: its members are forgotten.
    #[inline(always)]
    pub(crate) fn forget(&mut self, base: usize) {
        self.open.truncate(base);
    }

    /// An object that is not in order ends: its members, those after `base`, are sorted.
    pub(crate) fn record(
        &mut self,
        machine: Level,
        base: usize,
        (start, end): (usize, usize),
        input: &[u8],
        form: Form,
        excluded: &[usize],
    ) -> Result<(), Unsorted> {
        let members = self.open.get_mut(base..).unwrap_or_default();
        sort(machine, members, &mut self.scratch, input, form)?;
        if !excluded.is_empty() {
            let mut kept = base;
            for member in base..self.open.len() {
                if excluded.binary_search(&self.open[member].get()).is_err() {
                    self.open[kept] = self.open[member];
                    kept += 1;
                }
            }
            self.open.truncate(kept);
        }
        self.keep(base, start, end)?;
        self.open.truncate(base);
        Ok(())
    }

    /// An array ends whose elements are written in this order.
    pub(crate) fn record_elements(
        &mut self,
        (start, end): (usize, usize),
        elements: &[usize],
    ) -> Result<(), Unsorted> {
        let base = self.open.len();
        self.open.try_reserve(elements.len())?;
        self.open.extend(elements.iter().map(|start| O::new(*start)));
        self.keep(base, start, end)?;
        self.open.truncate(base);
        Ok(())
    }

    fn keep(&mut self, base: usize, start: usize, end: usize) -> Result<(), Unsorted> {
        self.records.try_reserve(1)?;
        let members = &self.open[base..];
        let positions = std::iter::once(end).chain(members.iter().map(|member| member.get()));
        let count = members.len();
        // Only many gigabytes of unordered arrays can fill a list so far that places in it do not fit.
        let has_room = |length: usize| length <= O::MAX >> 2;
        let place = if let Some(Packed(packed)) = Packed::new(members, start, end) {
            packed << 2 | PACKED
        } else if end - start <= usize::from(u8::MAX) && has_room(self.tiny.len()) {
            let place = self.tiny.len();
            self.tiny.try_reserve(count + 2)?;
            self.tiny.push(narrow(count));
            self.tiny
                .extend(positions.map(|position| narrow::<u8>(distance(start, position, u8::MAX.into()))));
            place << 2 | TINY
        } else if end - start <= usize::from(u16::MAX) && has_room(self.short.len()) {
            let place = self.short.len();
            self.short.try_reserve(count + 2)?;
            self.short.push(narrow(count));
            self.short
                .extend(positions.map(|position| narrow::<u16>(distance(start, position, u16::MAX.into()))));
            place << 2 | SHORT
        } else {
            self.keep_long(base, end)?;
            (self.long.len() - 1) << 2 | LONG
        };
        self.records.push(Record { start: O::new(start), place: O::new(place) });
        Ok(())
    }

    fn keep_long(&mut self, base: usize, end: usize) -> Result<(), Unsorted> {
        self.long.try_reserve(1)?;
        if base > self.open.len() / 2 {
            self.long.push(Long { end, starts: copied(&self.open[base..])?, base: 0 });
            return Ok(());
        }
        // It takes the list of open members, which mostly are its own, so that there never are two of a long one.
        let around = copied(&self.open[..base])?;
        let starts = std::mem::replace(&mut self.open, around);
        self.long.push(Long { end, starts, base });
        Ok(())
    }

    /// The document is complete.
    pub(crate) fn finish(&mut self) {
        self.scratch = Scratch::default();
        // Records were made where containers end; they are looked up by where they start.
        if !self.records.is_sorted_by_key(|record| record.start) {
            self.records.sort_unstable_by_key(|record| record.start);
        }
    }

    /// Where the container of this record starts.
    #[inline(always)]
    pub(crate) fn start(&self, record: usize) -> Option<usize> {
        Some(self.records.get(record)?.start.get())
    }

    /// The first record from `record` on that starts at `position` or after.
    #[inline(always)]
    pub(crate) fn next(&self, record: usize, position: usize) -> usize {
        let rest = self.records.get(record..).unwrap_or_default();
        let mut step = 1;
        while rest.get(step - 1).is_some_and(|record| record.start.get() < position) {
            step *= 2;
        }
        // What is looked for lies in the last step.
        let from = step / 2;
        let last = &rest[from.min(rest.len())..(step - 1).min(rest.len())];
        record + from + last.partition_point(|record| record.start.get() < position)
    }

    #[inline(always)]
    pub(crate) fn order(&self, record: usize) -> Order<'_, O> {
        let Record { start, place } = self.records[record];
        let (at, base) = (place.get() >> 2, start.get());
        match place.get() & 3 {
            PACKED => Order::Packed { base, packed: Packed(at) },
            TINY => {
                let starts = &self.tiny[at + 2..at + 2 + usize::from(self.tiny[at])];
                Order::Tiny { base, end: self.tiny[at + 1], starts }
            }
            SHORT => {
                let starts = &self.short[at + 2..at + 2 + usize::from(self.short[at])];
                Order::Short { base, end: self.short[at + 1], starts }
            }
            _ => {
                let Long { end, starts, base } = &self.long[at];
                Order::Long { end: *end, starts: &starts[*base..] }
            }
        }
    }
}

fn copied<T: Copy>(items: &[T]) -> Result<Vec<T>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(items.len())?;
    copy.extend_from_slice(items);
    Ok(copy)
}

/// One member in tight text.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    /// Where the comma or the closing brace after it is.
    end: u32,
}

impl Member for Span {
    #[inline(always)]
    fn get(self) -> usize {
        self.start as usize
    }
}

/// Objects of which the members are not in order, and are to be moved where they stand. Text must be tight for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    members: Vec<Span>,
    /// For each object where its members end in the list, inner objects before outer ones.
    objects: Vec<usize>,
    scratch: Scratch<Span>,
    text: Vec<u8>,
}

/// The longest object that is sorted in place: what is in it may be moved once for every object around it.
pub(crate) const MAX_MOVED: usize = 1 << 15;

impl Moves {
    /// An object ends that begins with these members.
    #[inline(always)]
    pub(crate) fn note<O: Position>(&mut self, starts: &[O], end: usize) -> Result<(), Stop> {
        let first = starts.first().map_or(end, |start| start.get());
        if end.saturating_sub(first) > MAX_MOVED {
            return Err(Stop);
        }
        // In a block that turns out to be wrong a member can be anywhere; then nothing is moved.
        let narrow = |position: usize| u32::try_from(position).unwrap_or_default();
        let ends = starts.iter().skip(1).map(|next| next.get().wrapping_sub(1)).chain([end]);
        let span = |(start, end): (&O, usize)| Span { start: narrow(start.get()), end: narrow(end) };
        self.members.extend(starts.iter().zip(ends).map(span));
        self.objects.push(self.members.len());
        Ok(())
    }

    /// Sorts the members of the objects that were noted.
    pub(crate) fn apply(&mut self, machine: Level, text: &mut [u8], form: Form) -> Result<(), Unsorted> {
        let mut first = 0;
        for end in self.objects.drain(..) {
            let members = &mut self.members[first..end];
            first = end;
            let (Some(start), Some(last)) = (members.first(), members.last()) else { continue };
            let span = start.get()..last.end as usize;
            sort(machine, members, &mut self.scratch, text, form)?;
            self.text.clear();
            self.text.extend_from_slice(&text[span.clone()]);
            rearrange(&mut text[span.clone()], &self.text, members, span.start);
        }
        self.members.clear();
        Ok(())
    }
}

/// Writes members in this order, with commas between them; `before` has them as they were, from `base` on.
#[inline(always)]
fn rearrange(text: &mut [u8], before: &[u8], members: &[Span], base: usize) {
    let mut at = 0;
    for member in members {
        if at > 0 {
            text[at] = b',';
            at += 1;
        }
        let (start, length) = (member.get() - base, (member.end - member.start) as usize);
        copy(&mut text[at..], &before[start..], length);
        at += length;
    }
}

/// Copies so many bytes, and perhaps some of those after them: few bytes are not worth a call.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], length: usize) {
    const STEP: usize = 32;
    let mut done = 0;
    while done < length {
        match (to[done..].first_chunk_mut::<STEP>(), from[done..].first_chunk::<STEP>()) {
            (Some(to), Some(from)) if length < 8 * STEP => *to = *from,
            _ => return to[done..length].copy_from_slice(&from[done..length]),
        }
        done += STEP;
    }
}

/// How far a position is behind another. In a block that turns out to be wrong a key can be found where there is none,
/// and be too far away; then nobody will look at the record.
fn distance(from: usize, to: usize, max: usize) -> usize {
    to.checked_sub(from).filter(|distance| *distance <= max).unwrap_or(0)
}

/// A number that is known to fit; see [`distance`] for when it does not.
fn narrow<T: TryFrom<usize> + Default>(number: usize) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Up to this many members are sorted by counting, for each, how many come before it.
const RANKED: usize = 64;

/// Up to this many members are sorted with the first bytes of their keys beside them.
const CACHED: usize = 1 << 15;

/// Up to this many members are copied to be sorted: more would take too much memory.
const MAX_COPIED: usize = 1 << 21;

/// Sorts members by their keys; a member starts at the quote before its key.
pub(crate) fn sort<O: Member>(
    machine: Level,
    members: &mut [O],
    scratch: &mut Scratch<O>,
    input: &[u8],
    form: Form,
) -> Result<(), Unsorted> {
    let keys = Keys { input, form };
    if members.len() <= RANKED && keys.sort_ranked(machine, members, scratch)? {
        return Ok(());
    }
    let mut todo = vec![(0..members.len(), 0)];
    while let Some((range, skip)) = todo.pop() {
        let part = &mut members[range.clone()];
        if part.len() <= CACHED {
            keys.sort_cached(part, &mut scratch.cached, skip)?;
            continue;
        }
        let skip = skip + keys.common_prefix(part, skip);
        if part.len() <= MAX_COPIED {
            scratch.moved.clear();
            scratch.moved.try_reserve(part.len())?;
        }
        match keys.partition(part, &mut scratch.moved, skip) {
            Some(ends) => {
                let starts = std::iter::once(0).chain(ends).map(|end| range.start + end);
                let parts = starts.clone().zip(starts.skip(1));
                // Part zero are the keys that end here: more than one is a repetition.
                for (byte, (start, end)) in parts.enumerate() {
                    match (byte, end - start) {
                        (_, 0 | 1) => {}
                        (0, _) => return Err(Unsorted::Repeated),
                        _ => todo.push((start..end, skip + 1)),
                    }
                }
            }
            None => keys.sort_plainly(part)?,
        }
    }
    Ok(())
}

/// The keys of members, read where they stand.
#[derive(Clone, Copy)]
struct Keys<'a> {
    input: &'a [u8],
    form: Form,
}

impl<'a> Keys<'a> {
    /// The bytes from the key on, and on to the end of the input.
    #[inline(always)]
    fn rest(&self, member: impl Member, skip: usize) -> &'a [u8] {
        self.input.get(member.get() + 1 + skip..).unwrap_or_default()
    }

    /// Whether the bytes of keys around a difference at this byte are in the order of the keys.
    #[inline(always)]
    fn is_plain(&self, byte: u8) -> bool {
        byte != b'\\' && (byte < 0x80 || self.form == Form::Lexical)
    }

    /// The next eight bytes of the key, those after its end being zero; nothing if bytes do not say the order.
    #[inline(always)]
    fn prefix(&self, member: impl Member, skip: usize) -> Option<u64> {
        let rest = self.rest(member, skip);
        let word = match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut bytes = [b'"'; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(bytes)
            }
        };
        let end = first_equal(word, b'"');
        let kept = word & !u64::MAX.unbounded_shl(end);
        let special = first_equal(kept, b'\\') < 64 || (self.form == Form::Jcs && kept & HIGH_BITS != 0);
        (!special).then_some(kept.swap_bytes())
    }

    /// Sorts a few members; false if bytes do not say the order.
    fn sort_ranked<O: Member>(
        &self,
        machine: Level,
        members: &mut [O],
        Scratch { prefixes, moved, .. }: &mut Scratch<O>,
    ) -> Result<bool, Unsorted> {
        prefixes.clear();
        for member in members.iter() {
            match self.prefix(*member, 0) {
                Some(prefix) => prefixes.push(prefix),
                None => return Ok(false),
            }
        }
        let mut ranks = [0; RANKED];
        let ranks = &mut ranks[..members.len()];
        rank(machine, prefixes, ranks);
        moved.clear();
        moved.extend_from_slice(members);
        let mut sorted = [0; RANKED];
        for ((rank, member), prefix) in ranks.iter().zip(moved.iter()).zip(prefixes.iter()) {
            members[usize::from(*rank)] = *member;
            sorted[usize::from(*rank)] = *prefix;
        }
        self.sort_ties(members, &sorted)?;
        Ok(true)
    }

    /// Sorts members that are in order but for those with the same prefix, which are few.
    fn sort_ties<O: Member>(&self, members: &mut [O], prefixes: &[u64]) -> Result<(), Unsorted> {
        for i in 1..members.len() {
            let mut place = i;
            while place > 0 && prefixes[place - 1] == prefixes[i] {
                match self.compare(members[place - 1], members[place], 0) {
                    Ordering::Less => break,
                    Ordering::Equal => return Err(Unsorted::Repeated),
                    Ordering::Greater => members.swap(place - 1, place),
                }
                place -= 1;
            }
        }
        Ok(())
    }

    fn sort_cached<O: Member>(
        &self,
        members: &mut [O],
        scratch: &mut Vec<(u64, O)>,
        skip: usize,
    ) -> Result<(), Unsorted> {
        let skip = if members.len() > 16 { skip + self.common_prefix(members, skip) } else { skip };
        scratch.clear();
        scratch.try_reserve(members.len())?;
        for member in members.iter() {
            match self.prefix(*member, skip) {
                Some(prefix) => scratch.push((prefix, *member)),
                None => return self.sort_plainly(members),
            }
        }
        let order = |a: &(u64, O), b: &(u64, O)| a.0.cmp(&b.0).then_with(|| self.compare(a.1, b.1, skip));
        scratch.sort_unstable_by(order);
        let repeated = scratch.windows(2).any(|pair| order(&pair[0], &pair[1]).is_eq());
        for (member, (_, sorted)) in members.iter_mut().zip(scratch.iter()) {
            *member = *sorted;
        }
        if repeated { Err(Unsorted::Repeated) } else { Ok(()) }
    }

    fn sort_plainly<O: Member>(&self, members: &mut [O]) -> Result<(), Unsorted> {
        members.sort_unstable_by(|a, b| self.compare(*a, *b, 0));
        let repeated = members.windows(2).any(|pair| self.compare(pair[0], pair[1], 0).is_eq());
        if repeated { Err(Unsorted::Repeated) } else { Ok(()) }
    }

    /// Compares two keys whose first `skip` bytes are the same.
    fn compare<O: Member>(&self, a: O, b: O, skip: usize) -> Ordering {
        compare_keys(self.rest(a, 0), self.rest(b, 0), skip, self.form)
    }

    /// How many more bytes all keys have in common, without cutting an escape in two.
    fn common_prefix<O: Member>(&self, members: &[O], skip: usize) -> usize {
        let Some((first, others)) = members.split_first() else { return 0 };
        let rest = self.rest(*first, skip);
        let is_comparable = |byte: &u8| *byte < 0x80 || self.form == Form::Lexical;
        let length = key_end(rest, 0).0;
        let mut common = rest[..length].iter().take_while(|byte| is_comparable(byte)).count();
        for other in others {
            if common == 0 {
                break;
            }
            common = common_length(&rest[..common], self.rest(*other, skip));
        }
        whole_escapes(&rest[..common])
    }

    /// Sorts by the next byte alone: puts the keys that end first, then by byte, and says where each part ends.
    /// Nothing if bytes do not say the order.
    ///
    /// Unless there are very many members, each part stays in the order of the document, so that reading its keys goes
    /// through memory in one direction.
    fn partition<O: Member>(
        &self,
        members: &mut [O],
        before: &mut Vec<O>,
        skip: usize,
    ) -> Option<[usize; 256]> {
        let byte_of = |member: O| match self.rest(member, skip).first() {
            None | Some(b'"') => 0,
            Some(byte) => usize::from(*byte),
        };
        let mut ends = [0; 256];
        for member in members.iter() {
            ends[byte_of(*member)] += 1;
        }
        let occurs = |byte: &u8| ends[usize::from(*byte)] > 0;
        if (0..=u8::MAX).filter(occurs).any(|byte| !self.is_plain(byte)) {
            return None;
        }
        let mut next = [0; 256];
        let mut sum = 0;
        for (end, next) in ends.iter_mut().zip(&mut next) {
            *next = sum;
            sum += *end;
            *end = sum;
        }
        if members.len() > MAX_COPIED {
            for part in 0..256 {
                while next[part] < ends[part] {
                    let byte = byte_of(members[next[part]]);
                    members.swap(next[part], next[byte]);
                    next[byte] += 1;
                }
            }
            return Some(ends);
        }
        before.clear();
        before.extend_from_slice(members);
        for member in before.iter() {
            let place = &mut next[byte_of(*member)];
            members[*place] = *member;
            *place += 1;
        }
        Some(ends)
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = ONES << 7;

/// The lowest bit of the first byte that is `wanted`, or 64.
#[inline(always)]
pub(crate) const fn first_equal(word: u64, wanted: u8) -> u32 {
    let other = word ^ (ONES * wanted as u64);
    let marks = other.wrapping_sub(ONES) & !other & HIGH_BITS;
    marks.trailing_zeros() & !7
}

fn common_length(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

/// The length of this part of a key without an escape that is not complete at its end.
fn whole_escapes(part: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &part[at..]) {
        let escape = at + found;
        let length = match part.get(escape + 1..) {
            // The first half of a pair is nothing without the second.
            Some([b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..]) => 12,
            Some([b'u', ..]) => 6,
            _ => 2,
        };
        if escape + length > part.len() {
            return escape;
        }
        at = escape + length;
    }
    part.len()
}

/// Compares two keys, given the input from each key on. The first `skip` bytes are known to be the same and whole.
pub(crate) fn compare_keys(a: &[u8], b: &[u8], skip: usize, form: Form) -> Ordering {
    let (a_end, a_escaped) = key_end(a, skip);
    let (b_end, b_escaped) = key_end(b, skip);
    let (a, b) = (&a[..a_end], &b[..b_end]);
    let difference = skip + common_length(&a[skip..], &b[skip..]);
    let (Some(a_byte), Some(b_byte)) = (a.get(difference), b.get(difference)) else {
        return a.len().cmp(&b.len());
    };
    // What differs may be part of an escape, which begins at most five bytes before.
    let is_near_escape = |key: &[u8]| key[difference.saturating_sub(5)..=difference].contains(&b'\\');
    let has_escape = (a_escaped || b_escaped) && (is_near_escape(a) || is_near_escape(b));
    if has_escape || (form == Form::Jcs && !(a_byte.is_ascii() && b_byte.is_ascii())) {
        let same = last_whole(&a[..difference]);
        return compare_decoded(&a[same..], &b[same..], form);
    }
    a_byte.cmp(b_byte)
}

/// The longest an escape can be: two halves of a surrogate pair.
const LONGEST_ESCAPE: usize = 12;

/// A place close to the end of this part of a key that is inside of no escape that goes on, and of no character.
///
/// So keys that are the same for long are not decoded again and again while they are sorted.
fn last_whole(part: &[u8]) -> usize {
    let mut from = part.len().saturating_sub(LONGEST_ESCAPE);
    // The first of a run of backslashes is itself not escaped. It may be in the midst of an earlier escape's digits,
    // but that one is complete.
    while from > 0 && (part[from - 1] == b'\\' || part[from] & 0xC0 == 0x80) {
        from -= 1;
    }
    let whole = from + whole_escapes(&part[from..]);
    // What differs may be the end of a character.
    let cut = part[from..whole].iter().rev().take(3).position(|byte| *byte >= 0xC0);
    cut.map_or(whole, |back| whole - back - 1)
}

/// Where a key ends, and whether it has escapes.
pub(crate) fn key_end(bytes: &[u8], skip: usize) -> (usize, bool) {
    let mut at = skip;
    let mut escaped = false;
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        if bytes[at] == b'"' {
            return (at, escaped);
        }
        escaped = true;
        at += 2;
    }
    (bytes.len(), escaped)
}

/// Compares what keys mean, given what stands between their quotes.
pub(crate) fn compare_decoded(a: &[u8], b: &[u8], form: Form) -> Ordering {
    // If a key is not even text, the document is refused whatever is said here.
    let text = |bytes| Text::new(std::str::from_utf8(bytes).unwrap_or_default(), true);
    match form {
        Form::Lexical => text(a).cmp(&text(b)),
        Form::Jcs => text(a).cmp_utf16(&text(b)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(parts: &[usize], ends: [&[usize]; 2]) {
        const PARTS: [&str; 14] = [
            "a",
            "\\\\",
            "\\n",
            "\\\"",
            "\\u0041",
            "\\u00e9",
            "é",
            "\\ud83d\\ude00",
            "\\uD83D\\uDE01",
            "😀",
            "ê",
            "\u{e000}",
            "\u{10000}",
            "u12",
        ];
        let text = |end: &[usize]| parts.iter().chain(end).map(|part| PARTS[*part]).collect::<String>();
        let keys = ends.map(text);
        for form in [Form::Lexical, Form::Jcs] {
            let expected = compare_decoded(keys[0].as_bytes(), keys[1].as_bytes(), form);
            let [a, b] = keys.each_ref().map(|key| format!("{key}\": 1, \"other\""));
            assert_eq!(compare_keys(a.as_bytes(), b.as_bytes(), 0, form), expected, "{keys:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn keys_are_compared_by_what_they_mean(
            same in prop::collection::vec(0..14_usize, 0..20),
            run in 0..40_usize,
            a in prop::collection::vec(0..14_usize, 0..4),
            b in prop::collection::vec(0..14_usize, 0..4),
        ) {
            check(&same, [&a, &b]);
            // A long run of backslashes.
            check(&[same, vec![1; run]].concat(), [&a, &b]);
        }
    }
}
