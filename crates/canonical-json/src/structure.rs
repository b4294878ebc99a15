//! The grammar of JSON on bit masks.
//!
//! A document is looked at in blocks of sixty-four bytes. Each kind of byte is a `u64` mask, and almost all of RFC 8259
//! becomes arithmetic on such masks: "a digit follows the point" is a shift, "after all the digits" is an addition,
//! whose carry runs along the digits. Only brackets, which need a stack, and keys, which are compared with the key
//! before, are looked at one by one. So a block of numbers costs about as much as a block of text, and few branches
//! depend on the bytes.
//!
//! The same code verifies that a document already is canonical (`CANONICAL`), notes where members are to be moved in one
//! that otherwise is (`CANONICAL` and `SORTS`), and indexes any other (`SORTS`). It only says whether; why not is said by
//! the [`Reader`](crate::Reader), which is slower and knows where it is.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use crate::fault::Fault;
use crate::members::{Index, MAX_MOVED, Moves, Position, Unsorted, compare_decoded};
use crate::number::is_ecmascript;
use crate::simd::{BitTask, Bits, Block, Lane, Level as Machine, Masks, NoLane, Utf8, scan};
use crate::text::Text;
use crate::tree::ElementKey;
use crate::watch::{Accepted, Watch, Watched};
use crate::write::{is_minimal_escape, is_noncharacter};
use crate::{Form, Rules};

/// How many bytes after a block may be looked at, unless the input ends before.
///
/// An escape, a number that is printed as a double, and the key of an element of an unordered array lie within.
pub(crate) const LOOKAHEAD: usize = 4096;

/// The document is not valid, or not canonical, or does not fit the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop;

/// What a block leaves for the next one: masks of which the highest bit counts, and carries.
#[derive(Clone, Debug, Default)]
struct Carry {
    /// All ones inside a string.
    in_string: u64,
    escaped: u64,
    space: u64,
    scalar: u64,
    digit: u64,
    minus: u64,
    first_minus: u64,
    zero: u64,
    point: u64,
    fraction: u64,
    exponent: u64,
    sign: u64,
    power: u64,
    letters: u64,
    /// The letters of a word that goes on in the next block.
    rest_of_word: u64,
    key_string: u64,
    after_value: Next,
    after_key: Next,
    after_separator: Next,
    after_open: Next,
    key_place: Next,
}

/// "Just after, but for whitespace": the block before, of which the highest bit counts, and whether only whitespace
/// came since.
#[derive(Clone, Debug, Default)]
struct Next {
    seen: u64,
    space: u64,
}

impl Next {
    /// The first position after each of `these` that is no whitespace.
    #[inline(always)]
    fn after<const TIGHT: bool>(&mut self, these: u64, space: u64) -> u64 {
        let next = shift(these, &mut self.seen);
        if TIGHT { next } else { run_end(next, space, &mut self.space) }
    }

    fn is_open(&self) -> bool {
        self.seen >> 63 | self.space != 0
    }
}

/// The position after each of `these`, and that after the last of the block before.
#[inline(always)]
pub(crate) fn shift(these: u64, before: &mut u64) -> u64 {
    let shifted = these << 1 | *before >> 63;
    *before = these;
    shifted
}

/// For each run of `set` that begins at one of `starts`, the position after it. A start outside of `set` stays.
///
/// The addition carries through every run that has a start, and two starts never meet in one run.
#[inline(always)]
pub(crate) fn run_end(starts: u64, set: u64, carry: &mut u64) -> u64 {
    let (sum, over) = set.overflowing_add(starts);
    let (sum, over_again) = sum.overflowing_add(*carry);
    *carry = u64::from(over | over_again);
    sum & !set
}

/// The bits below this one.
#[inline(always)]
fn below(bit: u32) -> u64 {
    (1 << bit) - 1
}

/// The bits above this one.
#[inline(always)]
fn above(bit: u32) -> u64 {
    !1 << bit
}

/// The highest set bit as a position, or else `otherwise`.
#[inline(always)]
fn last_of(bits: u64, at: usize, otherwise: usize) -> usize {
    if bits == 0 { otherwise } else { at + 63 - bits.leading_zeros() as usize }
}

/// The bytes of a block outside of strings, by what they are.
#[derive(Clone, Copy)]
struct Tokens {
    open: u64,
    close: u64,
    brace: u64,
    colon: u64,
    comma: u64,
    space: u64,
    open_quote: u64,
    close_quote: u64,
    in_string: u64,
    outside: u64,
}

/// The last key of an object.
#[derive(Clone, Copy, Debug)]
struct LastKey {
    /// Its first bytes: zero if there is none, the greatest number if they do not say the order.
    prefix: u64,
    /// Where it is in the window, or [`NO_KEY`] or [`SAVED_KEY`].
    place: (usize, usize),
}

const NO_KEY: (usize, usize) = (0, 0);
const SAVED_KEY: (usize, usize) = (usize::MAX, usize::MAX);

impl LastKey {
    const NONE: LastKey = LastKey { prefix: 0, place: NO_KEY };
    /// The document is like an object with the greatest key: no member can follow, and no second value.
    const OF_DOCUMENT: LastKey = LastKey { prefix: u64::MAX, place: NO_KEY };
}

/// The open containers, and what every document needs to know about them.
#[derive(Clone, Debug)]
struct Nest {
    depth: usize,
    /// Whether each is an object, the innermost in the lowest bit.
    kinds: u64,
    /// The same for those that did not fit, in parts of sixty-four.
    outer_kinds: Vec<u64>,
    /// The last key of the innermost object, and of those around it.
    last_key: LastKey,
    outer_keys: Vec<LastKey>,
}

/// What a document that is indexed, or has rules, needs to know about an open container.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    start: usize,
    /// The number of members of the containers around.
    base: usize,
    /// Whether the members are not in order, or not all of them stay.
    is_dirty: bool,
    is_watched: bool,
}

/// One pass over a document.
#[derive(Clone, Debug)]
pub(crate) struct Structure<'r, const CANONICAL: bool, const SORTS: bool, O> {
    machine: Machine,
    form: Form,
    /// The bits of a key's first bytes that bar them from being compared.
    incomparable: u64,
    max_depth: usize,
    carry: Carry,
    utf8: Utf8,
    last_open_quote: usize,
    last_close_quote: usize,
    /// One past the last backslash; zero if there was none.
    last_backslash: usize,
    /// Where the second half of a surrogate pair must be.
    low_surrogate: Option<usize>,
    nest: Nest,
    /// The document and the open containers, unless nothing about them matters.
    levels: Vec<Level>,
    /// For each open object: the last key, where it is no longer in the window.
    saved: Vec<Vec<u8>>,
    /// How many of the open objects are taken to be in order, outermost first: what is written of them is final.
    sealed: usize,
    watch: Watch<'r>,
    index: Index<O>,
    moves: Moves,
    /// Whether some string or number is not written as it must be.
    needs_rewriting: bool,
    /// How the document does not fit the rules.
    fault: Option<Fault>,
}

/// What is known about a document once it was indexed.
pub(crate) struct Indexed<O> {
    pub(crate) index: Index<O>,
    pub(crate) needs_rewriting: bool,
    /// Which exclusions matched something.
    pub(crate) present: Vec<bool>,
}

/// Looks at a part of the input.
pub(crate) struct Blocks<'s, 'r, 'w, const CANONICAL: bool, const SORTS: bool, O> {
    pub(crate) structure: &'s mut Structure<'r, CANONICAL, SORTS, O>,
    pub(crate) window: &'w [u8],
    /// Whole blocks, unless the input ends.
    pub(crate) range: Range<usize>,
    /// Whether the input ends with the range.
    pub(crate) is_last: bool,
    /// The state of SHA-256, into which whole blocks are hashed on the way.
    pub(crate) hash: Option<&'s mut [u32; 8]>,
    /// Where these are: often those that are looked at.
    pub(crate) hashed: Range<usize>,
}

/// How many blocks are looked at before their masks are.
const BATCH: usize = 32;

impl<const CANONICAL: bool, const SORTS: bool, O: Position> BitTask
    for Blocks<'_, '_, '_, CANONICAL, SORTS, O>
{
    type Output = Result<(), Stop>;

    #[inline(always)]
    fn run<B: Bits>(self, bits: B) -> Result<(), Stop> {
        let Blocks { structure, window, range, is_last, hash, hashed } = self;
        let blocks: &[Block] = window[range.clone()].as_chunks().0;
        let hashed: &[Block] = window[hashed].as_chunks().0;
        match hash.map(|hash| (bits.lane(hash), hash)) {
            None => structure.blocks(bits, window, range.start, blocks, &[], &mut NoLane)?,
            Some((None, hash)) => {
                structure.blocks(bits, window, range.start, blocks, &[], &mut NoLane)?;
                sha2::block_api::compress256(hash, hashed);
            }
            Some((Some(mut lane), hash)) => {
                let (beside, alone) = blocks.split_at(blocks.len().min(hashed.len()));
                structure.blocks(bits, window, range.start, beside, hashed, &mut lane)?;
                *hash = lane.state();
                if SORTS {
                    let at = range.start + 64 * beside.len();
                    structure.blocks(bits, window, at, alone, &[], &mut NoLane)?;
                    sha2::block_api::compress256(hash, &hashed[beside.len()..]);
                }
            }
        }
        if is_last { structure.end(bits, window, range.start + 64 * blocks.len()) } else { Ok(()) }
    }
}

impl<'r, const CANONICAL: bool, const SORTS: bool, O: Position> Structure<'r, CANONICAL, SORTS, O> {
    pub(crate) fn new(machine: Machine, rules: &'r Rules, max_depth: usize) -> Self {
        let mut carry = Carry::default();
        // The document must begin with a value, as if after a colon.
        carry.after_separator.seen = 1 << 63;
        Structure {
            machine,
            form: rules.form,
            incomparable: if rules.form == Form::Jcs { 0x8080_8080_8080_8080 } else { 0 },
            max_depth,
            carry,
            utf8: Utf8::default(),
            last_open_quote: 0,
            last_close_quote: 0,
            last_backslash: 0,
            low_surrogate: None,
            nest: Nest {
                depth: 0,
                kinds: 1,
                outer_kinds: Vec::new(),
                last_key: LastKey::OF_DOCUMENT,
                outer_keys: Vec::new(),
            },
            levels: vec![Level::default()],
            saved: Vec::new(),
            sealed: 0,
            watch: Watch::new(rules),
            index: Index::default(),
            moves: Moves::default(),
            needs_rewriting: false,
            fault: None,
        }
    }

    /// Why a document that is valid was refused.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Refuses a document that does not fit the rules.
    fn refuse(&mut self, fault: Fault) -> Stop {
        self.fault = Some(fault);
        Stop
    }

    /// Refuses a document with an object that cannot be sorted; where a key is repeated, the reader will say.
    #[cold]
    fn refuse_unsorted(&mut self, unsorted: Unsorted) -> Stop {
        match unsorted {
            Unsorted::Repeated => Stop,
            Unsorted::NoRoom => self.refuse(Fault::NoRoom),
        }
    }

    pub(crate) fn into_indexed(mut self) -> Indexed<O> {
        self.index.finish();
        Indexed { index: self.index, needs_rewriting: self.needs_rewriting, present: self.watch.present }
    }

    /// Everything before this position may leave the window, of which everything before `done` was looked at.
    pub(crate) fn needed_from(&self, done: usize) -> usize {
        let key_is_open = self.carry.key_string | self.carry.after_key.seen >> 63 != 0;
        if key_is_open { self.last_open_quote } else { done }
    }

    /// The first bytes leave the window: keys that will be compared are kept.
    pub(crate) fn leave(&mut self, bytes: usize, window: &[u8]) {
        let Nest { outer_keys, last_key, .. } = &mut self.nest;
        self.saved.resize_with(self.saved.len().max(outer_keys.len() + 1), Vec::new);
        for (key, saved) in outer_keys.iter_mut().chain([last_key]).zip(&mut self.saved) {
            match key.place {
                NO_KEY | SAVED_KEY => {}
                (start, end) if start > bytes => key.place = (start - bytes, end - bytes),
                (start, end) => {
                    saved.clear();
                    saved.extend_from_slice(&window[start..end]);
                    key.place = SAVED_KEY;
                }
            }
        }
        if SORTS {
            self.levels.iter_mut().for_each(|level| level.start = level.start.saturating_sub(bytes));
            self.index.shift(bytes);
        }
        self.last_open_quote = self.last_open_quote.saturating_sub(bytes);
        self.last_close_quote = self.last_close_quote.saturating_sub(bytes);
        self.last_backslash = self.last_backslash.saturating_sub(bytes);
        self.low_surrogate = self.low_surrogate.and_then(|at| at.checked_sub(bytes));
    }

    #[inline(always)]
    fn blocks<B: Bits>(
        &mut self,
        bits: B,
        window: &[u8],
        mut at: usize,
        blocks: &[Block],
        mut hashed: &[Block],
        lane: &mut impl Lane,
    ) -> Result<(), Stop> {
        if blocks.is_empty() {
            return Ok(());
        }
        let mut masks = [Masks::default(); BATCH];
        for batch in blocks.chunks(BATCH) {
            if SORTS {
                let room = self.index.make_room(batch.len() * 64);
                room.map_err(|unsorted| self.refuse_unsorted(unsorted))?;
            }
            if !scan(self.machine, batch, &mut masks[..batch.len()], &mut self.utf8) {
                return Err(Stop);
            }
            for masks in &masks[..batch.len()] {
                if let Some((block, rest)) = hashed.split_first() {
                    lane.begin(block);
                    hashed = rest;
                }
                self.block::<B, CANONICAL>(bits, window, at, masks, lane)?;
                at += 64;
            }
        }
        Ok(())
    }

    /// Looks at the last bytes, padded with spaces so that whatever could go on ends.
    #[inline(always)]
    fn end<B: Bits>(&mut self, bits: B, window: &[u8], at: usize) -> Result<(), Stop> {
        let rest = &window[at..];
        let mut block = [b' '; 64];
        block[..rest.len()].copy_from_slice(rest);
        let mut masks = [Masks::default()];
        // The spaces also end a character that is not complete.
        if !scan(self.machine, &[block], &mut masks, &mut self.utf8) {
            return Err(Stop);
        }
        let space = self.block::<B, false>(bits, window, at, &masks[0], &mut NoLane)?;
        if CANONICAL && space != u64::MAX << rest.len() {
            return Err(Stop);
        }
        self.finish(window)
    }

    /// Looks at one block. Canonical text is tight: it has no spaces but those that pad the last block.
    #[inline(always)]
    fn block<B: Bits, const TIGHT: bool>(
        &mut self,
        bits: B,
        window: &[u8],
        at: usize,
        masks: &Masks,
        lane: &mut impl Lane,
    ) -> Result<u64, Stop> {
        // Whitespace after whitespace changes nothing, and in deeply indented text there is a lot of it.
        if !TIGHT && masks.space & !self.carry.in_string == u64::MAX && self.carry.space >> 63 != 0 {
            return Ok(masks.space);
        }
        let tokens = self.tokens::<B, TIGHT>(bits, window, at, masks)?;
        lane.quarter::<0>();
        let (scalars, scalar_ends, mut error) = self.scalars(window, at, masks, &tokens);
        lane.quarter::<1>();
        error |= masks.control & tokens.in_string | masks.backslash & !tokens.in_string;
        let in_object = self.containers(window, at, &tokens)?;
        lane.quarter::<2>();
        error |= self.grammar::<TIGHT>(&tokens, in_object, scalars, scalar_ends);
        lane.quarter::<3>();
        if error != 0 {
            return Err(Stop);
        }
        if self.form == Form::Jcs {
            self.i_json(window, at, masks, scalars & (masks.digit | masks.minus))?;
        }
        if !TIGHT {
            self.carry.space = tokens.space;
        }
        Ok(tokens.space)
    }

    /// Finds the strings, and so what is outside of them.
    #[inline(always)]
    fn tokens<B: Bits, const TIGHT: bool>(
        &mut self,
        bits: B,
        window: &[u8],
        at: usize,
        masks: &Masks,
    ) -> Result<Tokens, Stop> {
        let mut quote = masks.quote;
        if masks.backslash | self.carry.escaped != 0 {
            let escaped = find_escaped(masks.backslash, &mut self.carry.escaped);
            quote &= !escaped;
            self.last_backslash = last_of(masks.backslash, at + 1, self.last_backslash);
            // Quotes and backslashes may always be escaped.
            let others = escaped & !(masks.quote | masks.backslash);
            if others != 0 {
                self.escapes(window, at, others)?;
            }
        }
        let in_string = bits.prefix_xor(quote) ^ self.carry.in_string;
        self.carry.in_string = 0u64.wrapping_sub(in_string >> 63);
        let outside = !(in_string | quote);
        Ok(Tokens {
            open: masks.open & outside,
            close: masks.close & outside,
            brace: masks.brace,
            colon: masks.colon & outside,
            comma: masks.comma & outside,
            space: if TIGHT { 0 } else { masks.space & outside },
            open_quote: quote & in_string,
            close_quote: quote & !in_string,
            in_string,
            outside,
        })
    }

    /// Checks what comes after each backslash.
    #[inline(never)]
    fn escapes(&mut self, window: &[u8], at: usize, escaped: u64) -> Result<(), Stop> {
        // First all together, without a branch for each: what is escaped is hard to predict.
        let mut found = 0;
        for place in places(at, escaped) {
            found |= window.get(place).map_or(OTHER, |byte| ESCAPES[usize::from(*byte)]);
        }
        if found & OTHER != 0 || (CANONICAL && found & SLASH != 0) {
            return Err(Stop);
        }
        self.needs_rewriting |= found & SLASH != 0;
        if found & UNICODE != 0 {
            for place in places(at, escaped) {
                if window[place] == b'u' {
                    self.unicode_escape(&window[place..], place)?;
                }
            }
        }
        Ok(())
    }

    /// Checks `uXXXX` and, for a high surrogate, what follows.
    fn unicode_escape(&mut self, rest: &[u8], place: usize) -> Result<(), Stop> {
        let digits = rest.get(1..5).ok_or(Stop)?;
        if is_minimal_escape(digits) {
            return Ok(());
        }
        if CANONICAL {
            return Err(Stop);
        }
        self.needs_rewriting = true;
        let unit = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).map_err(|_| Stop)?;
            if digits.starts_with('+') {
                Err(Stop)
            } else {
                u32::from_str_radix(digits, 16).map_err(|_| Stop)
            }
        };
        let code_point = match unit(digits)? {
            high @ 0xD800..0xDC00 if rest.get(5..7) == Some(b"\\u") => {
                let low = unit(rest.get(7..11).ok_or(Stop)?)?;
                self.low_surrogate = Some(place + 6);
                if (0xDC00..0xE000).contains(&low) {
                    0x1_0000 + ((high & 0x3FF) << 10 | low & 0x3FF)
                } else {
                    0xD800
                }
            }
            // The pair was looked at when its first half came.
            0xDC00..0xE000 if self.low_surrogate == Some(place) => return Ok(()),
            other => other,
        };
        let code_point = char::from_u32(code_point).ok_or(Stop)?;
        if self.form == Form::Jcs && is_noncharacter(code_point) {
            return Err(Stop);
        }
        Ok(())
    }

    #[inline(never)]
    fn i_json(&mut self, window: &[u8], at: usize, masks: &Masks, numbers: u64) -> Result<(), Stop> {
        if masks.non_ascii != 0 {
            self.noncharacters(window, at)?;
        }
        self.numbers(window, at, numbers)
    }

    /// Finds what I-JSON forbids: three bytes of which the first is in the block. The bytes before the block may have
    /// left the window, those after it have not.
    #[cold]
    fn noncharacters(&self, window: &[u8], at: usize) -> Result<(), Stop> {
        let bytes = &window[at..window.len().min(at + 66)];
        let is_forbidden = |end: &[u8]| match end {
            [0xEF, 0xB7, 0x90..=0xAF] => true,
            [_, 0xBF, 0xBE..=0xBF] => end[0] == 0xEF || matches!(end[0] & 0xCF, 0x8F),
            _ => false,
        };
        if bytes.windows(3).any(is_forbidden) { Err(Stop) } else { Ok(()) }
    }

    /// Checks numbers, `true`, `false` and `null`: where they begin, the position after each, and what is wrong.
    #[inline(always)]
    fn scalars(&mut self, window: &[u8], at: usize, masks: &Masks, tokens: &Tokens) -> (u64, u64, u64) {
        let carry = &mut self.carry;
        let outside = tokens.outside;
        let scalar = outside & !(tokens.open | tokens.close | tokens.colon | tokens.comma | tokens.space);
        let after_scalar = shift(scalar, &mut carry.scalar);
        let start = scalar & !after_scalar;
        let (digit, minus, point) = (masks.digit & outside, masks.minus & outside, masks.point & outside);

        // A digit follows each sign and is on both sides of each point.
        let after_digit = shift(digit, &mut carry.digit);
        let after_point = shift(point, &mut carry.point);
        let mut error = (shift(minus, &mut carry.minus) | after_point) & !digit | point & !after_digit;
        // A zero that begins a number is its whole integer part.
        let first_minus = minus & start;
        let first_digit = start | shift(first_minus, &mut carry.first_minus);
        error |= shift(masks.zero & first_digit, &mut carry.zero) & digit;
        // After the digits of a fraction there is no other point.
        error |= run_end(after_point, digit, &mut carry.fraction) & point;

        let others = scalar & !(digit | point | first_minus);
        if others | carry.power | (carry.exponent | carry.sign | carry.letters) >> 63 != 0 {
            let digits = Digits { scalar, start, digit, after_digit, point };
            error |= carry.words_and_exponents(window, at, masks, others, &digits);
        }
        (start, after_scalar & !scalar, error)
    }

    /// Follows brackets and compares keys; which positions are directly in an object, or in no container.
    #[inline(always)]
    fn containers(&mut self, window: &[u8], at: usize, tokens: &Tokens) -> Result<u64, Stop> {
        let Nest { mut depth, mut kinds, mut last_key, .. } = self.nest;
        let watches = !self.watch.is_idle();
        let mut in_object = 0u64.wrapping_sub(kinds & 1);
        let marks = tokens.open | tokens.close | tokens.colon;
        let mut left = marks | if watches { self.watched_commas(kinds, tokens) } else { 0 };
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let place = at + bit as usize;
            if tokens.colon >> bit & 1 != 0 {
                if kinds & 1 == 0 {
                    return Err(Stop);
                }
                last_key = self.member(window, last_key, self.key(at, bit, tokens))?;
                if watches {
                    self.watched_member(window, last_key.place, place + 1)?;
                }
                continue;
            }
            if watches && (tokens.open | tokens.close) >> bit & 1 == 0 {
                self.element(window, place)?;
                continue;
            }
            let is_brace = tokens.brace >> bit & 1;
            let was_object = kinds & 1;
            if tokens.open >> bit & 1 != 0 {
                if depth == self.max_depth {
                    return Err(Stop);
                }
                if depth & 63 == 63 {
                    self.nest.outer_kinds.push(kinds);
                }
                depth += 1;
                kinds = kinds << 1 | is_brace;
                if is_brace != 0 {
                    self.nest.outer_keys.push(last_key);
                    last_key = LastKey::NONE;
                }
                if watches || SORTS && (!CANONICAL || is_brace != 0) {
                    self.open(window, place, is_brace != 0)?;
                }
            } else {
                if depth == 0 || was_object != is_brace {
                    return Err(Stop);
                }
                depth -= 1;
                kinds = if depth & 63 == 63 { self.nest.outer_kinds.pop().ok_or(Stop)? } else { kinds >> 1 };
                if is_brace != 0 {
                    last_key = self.nest.outer_keys.pop().ok_or(Stop)?;
                }
                if watches || SORTS && (!CANONICAL || is_brace != 0) {
                    self.close(window, place, is_brace != 0)?;
                }
            }
            // No branch: what kinds of containers follow each other is hard to predict.
            in_object ^= above(bit) & 0u64.wrapping_sub((was_object ^ kinds) & 1);
            if watches {
                left = (marks | self.watched_commas(kinds, tokens)) & above(bit);
            }
        }
        (self.nest.depth, self.nest.kinds, self.nest.last_key) = (depth, kinds, last_key);
        self.last_open_quote = last_of(tokens.open_quote, at, self.last_open_quote);
        if !CANONICAL {
            self.last_close_quote = last_of(tokens.close_quote, at, self.last_close_quote);
        }
        Ok(in_object)
    }

    /// The key before a colon.
    #[inline(always)]
    fn key(&self, at: usize, bit: u32, tokens: &Tokens) -> (usize, usize) {
        let open = last_of(tokens.open_quote & below(bit), at, self.last_open_quote);
        let close = if CANONICAL {
            (at + bit as usize).wrapping_sub(1)
        } else {
            last_of(tokens.close_quote & below(bit), at, self.last_close_quote)
        };
        (open + 1, close)
    }

    /// A container begins whose members must be known, or that may be watched.
    #[inline(always)]
    fn open(&mut self, window: &[u8], at: usize, is_object: bool) -> Result<(), Stop> {
        self.levels.push(Level { start: at, base: self.index.len(), is_dirty: false, is_watched: false });
        if self.watch.is_idle() { Ok(()) } else { self.open_watched(window, at, is_object) }
    }

    #[inline(always)]
    fn close(&mut self, window: &[u8], at: usize, is_object: bool) -> Result<(), Stop> {
        let Some(level) = self.levels.pop() else { return Err(Stop) };
        if level.is_watched {
            return self.close_watched(&level, window, at, is_object);
        }
        if CANONICAL && SORTS {
            if level.is_dirty {
                self.moves.note(self.index.members(level.base), at)?;
            }
            self.sealed = self.sealed.min(self.open_objects());
        } else if level.is_dirty {
            let span = (level.start, at);
            let kept = self.index.record(self.machine, level.base, span, window, self.form, &[]);
            return kept.map_err(|unsorted| self.refuse_unsorted(unsorted));
        }
        self.index.forget(level.base);
        Ok(())
    }

    /// Compares a key with the key before, and becomes it.
    #[inline(always)]
    fn member(&mut self, window: &[u8], before: LastKey, place: (usize, usize)) -> Result<LastKey, Stop> {
        if SORTS && !(CANONICAL && self.is_sealed()) {
            self.index.push(place.0 - 1);
            if self.levels.last().is_none_or(|level| level.is_dirty) {
                return Ok(LastKey { place, ..before });
            }
        }
        let key = LastKey { prefix: self.prefix(window, place), place };
        if key.prefix <= before.prefix || key.prefix == u64::MAX {
            self.compare(window, before, key)?;
        }
        Ok(key)
    }

    /// The first eight bytes of a key, the first one highest; the greatest number if they do not say the order.
    #[inline(always)]
    fn prefix(&self, window: &[u8], (start, end): (usize, usize)) -> u64 {
        let length = end.wrapping_sub(start);
        let bytes = match window.get(start..).and_then(<[u8]>::first_chunk::<8>) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => short_prefix(window.get(start..).unwrap_or_default()),
        };
        let prefix = if length < 8 { bytes & !(u64::MAX >> (8 * length)) } else { bytes };
        let is_special = self.last_backslash > start && has_escape(window, start, end);
        if is_special || prefix & self.incomparable != 0 { u64::MAX } else { prefix }
    }

    /// Compares a key with the one before when their first bytes do not say which is greater.
    #[inline(never)]
    fn compare(&mut self, window: &[u8], before: LastKey, key: LastKey) -> Result<(), Stop> {
        let object = self.nest.outer_keys.len();
        if object == 0 {
            return Err(Stop);
        }
        let text = window.get(key.place.0..key.place.1).ok_or(Stop)?;
        let text_before = match before.place {
            NO_KEY => return Ok(()),
            SAVED_KEY => &self.saved[object],
            (start, end) => window.get(start..end).ok_or(Stop)?,
        };
        let is_plain = before.prefix != u64::MAX
            && key.prefix != u64::MAX
            && (self.form == Form::Lexical || text_before.is_ascii() && text.is_ascii());
        let order =
            if is_plain { text_before.cmp(text) } else { compare_decoded(text_before, text, self.form) };
        match order {
            Ordering::Less => Ok(()),
            Ordering::Greater if SORTS && !(CANONICAL && self.is_sealed()) => {
                self.level().is_dirty = true;
                Ok(())
            }
            _ => Err(Stop),
        }
    }

    /// Checks what may follow what; the bits that must not be there.
    #[inline(always)]
    fn grammar<const TIGHT: bool>(
        &mut self,
        tokens: &Tokens,
        in_object: u64,
        scalars: u64,
        scalar_ends: u64,
    ) -> u64 {
        let Tokens { open, close, brace, colon, comma, space, open_quote, close_quote, in_string, .. } =
            *tokens;
        let carry = &mut self.carry;
        let value = open_quote | open | scalars;

        let opened = carry.after_open.after::<TIGHT>(open, space) & !(value | close);
        let separated = carry.after_separator.after::<TIGHT>(comma | colon, space) & !value;
        let key_place = carry.key_place.after::<TIGHT>(open & brace | comma & in_object, space);
        let no_key = key_place & value & !open_quote;

        let key_end = run_end(key_place & open_quote, in_string, &mut carry.key_string);
        let no_colon = carry.after_key.after::<TIGHT>(key_end, space) ^ colon;

        let value_end = shift(close_quote & !key_end | close, &mut carry.after_value.seen) | scalar_ends;
        let ended = if TIGHT { value_end } else { run_end(value_end, space, &mut carry.after_value.space) };
        opened | separated | no_key | no_colon | ended & !(comma | close)
    }

    fn finish(&mut self, window: &[u8]) -> Result<(), Stop> {
        let Carry { in_string, after_separator, after_key, .. } = &self.carry;
        let is_open =
            *in_string != 0 || self.nest.depth > 0 || after_separator.is_open() || after_key.is_open();
        if !is_open && self.watch.wants_array() {
            return Err(self.refuse(Fault::NotArray { value: skip_space(window, 0) }));
        }
        if is_open { Err(Stop) } else { Ok(()) }
    }

    /// Checks that numbers can be printed as doubles, and whether they are.
    #[cold]
    fn numbers(&mut self, window: &[u8], at: usize, mut starts: u64) -> Result<(), Stop> {
        while starts != 0 {
            let rest = &window[at + starts.trailing_zeros() as usize..];
            starts &= starts - 1;
            let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
            let text = &rest[..rest.iter().take_while(is_part).count()];
            match is_ecmascript(text) {
                Some(true) => {}
                Some(false) if !CANONICAL => self.needs_rewriting = true,
                _ => return Err(Stop),
            }
        }
        Ok(())
    }
}

/// What a pass needs that moves members as it goes. Its levels are those of objects alone.
impl<O: Position> Structure<'_, true, true, O> {
    /// From here on the text may still change, of which everything before `done` was looked at. Refuses an open object
    /// that is too long to be sorted in place.
    pub(crate) fn settled(&self, done: usize) -> Result<usize, Stop> {
        match self.levels.get(self.sealed + 1) {
            None => Ok(done),
            Some(level) if level.is_dirty && done - level.start > MAX_MOVED => Err(Stop),
            Some(level) => Ok(level.start),
        }
    }

    /// Takes the outermost object to be in order.
    pub(crate) fn seal_outermost(&mut self) {
        self.sealed = 1;
    }

    /// Takes all open objects to be in order from here on, so that what is written of them is final.
    pub(crate) fn seal(&mut self) -> Result<(), Stop> {
        self.sealed = self.open_objects();
        if self.levels.iter().any(|level| level.is_dirty) { Err(Stop) } else { Ok(()) }
    }

    /// Moves the members that were found not to be in order.
    pub(crate) fn move_members(&mut self, window: &mut [u8]) -> Result<(), Stop> {
        self.moves.apply(self.machine, window, self.form).map_err(|_| Stop)
    }
}

/// What the rules ask for, where they ask for something.
impl<const CANONICAL: bool, const SORTS: bool, O: Position> Structure<'_, CANONICAL, SORTS, O> {
    fn open_objects(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    fn is_sealed(&self) -> bool {
        self.open_objects() <= self.sealed
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the document is never closed")
    }

    /// The commas of the innermost container, if that is an array that is watched.
    fn watched_commas(&mut self, kinds: u64, tokens: &Tokens) -> u64 {
        if self.level().is_watched && kinds & 1 == 0 { tokens.comma } else { 0 }
    }

    #[cold]
    fn open_watched(&mut self, window: &[u8], at: usize, is_object: bool) -> Result<(), Stop> {
        if is_object && self.watch.wants_array() {
            return Err(self.refuse(Fault::NotArray { value: at }));
        }
        let is_watched = self.watch.open();
        self.level().is_watched = is_watched;
        let is_empty = window.get(skip_space(window, at + 1)) == Some(&b']');
        if is_watched && !is_object && !is_empty { self.begin_element(window, at) } else { Ok(()) }
    }

    /// A comma in a watched array.
    #[cold]
    fn element(&mut self, window: &[u8], at: usize) -> Result<(), Stop> {
        self.end_element()?;
        self.begin_element(window, at)
    }

    fn end_element(&mut self) -> Result<(), Stop> {
        let Some(watched) = self.watch.innermost() else { return Ok(()) };
        if CANONICAL {
            // One key was seen for the element, and is forgotten.
            let has_key =
                watched.unordered.is_none() || watched.starts.is_empty() || watched.keys.pop().is_some();
            return if has_key && watched.keys.is_empty() { Ok(()) } else { Err(Stop) };
        }
        match (watched.unordered, watched.starts.last().copied()) {
            (Some(rule), Some(element)) if watched.keys.len() < watched.starts.len() => {
                Err(self.refuse(Fault::NoKey { element, rule }))
            }
            _ => Ok(()),
        }
    }

    fn begin_element(&mut self, window: &[u8], at: usize) -> Result<(), Stop> {
        let start = skip_space(window, at + 1);
        let accepted = self.watch.element();
        self.level().is_dirty |= accepted.is_excluded;
        if let Some(watched) = self.watch.innermost()
            && !accepted.is_excluded
            && (!CANONICAL || watched.starts.is_empty())
        {
            let kept = keep(&mut watched.starts, start);
            kept.map_err(|unsorted| self.refuse_unsorted(unsorted))?;
        }
        self.accept(accepted, window, start)
    }

    #[cold]
    fn watched_member(&mut self, window: &[u8], key: (usize, usize), at: usize) -> Result<(), Stop> {
        if !self.level().is_watched {
            return Ok(());
        }
        let text = window.get(key.0..key.1).and_then(|key| std::str::from_utf8(key).ok()).ok_or(Stop)?;
        let key_text: Cow<'_, str> = Text::new(text, text.contains('\\')).decode();
        let accepted = self.watch.member(&key_text);
        if accepted.is_excluded {
            self.level().is_dirty = true;
            if let Some(watched) = self.watch.innermost() {
                let kept = keep(&mut watched.starts, key.0 - 1);
                kept.map_err(|unsorted| self.refuse_unsorted(unsorted))?;
            }
        }
        self.accept(accepted, window, skip_space(window, at))
    }

    /// Does what the rules say about the value at `at`.
    fn accept(&mut self, accepted: Accepted, window: &[u8], at: usize) -> Result<(), Stop> {
        if CANONICAL && accepted.is_excluded {
            return Err(Stop);
        }
        if accepted.is_unordered && window.get(at) != Some(&b'[') {
            return Err(self.refuse(Fault::NotArray { value: at }));
        }
        if accepted.is_element_key {
            let form = self.form;
            let text = window.get(at..).unwrap_or_default();
            let mut kept = Ok(());
            for watched in self.watch.keyed() {
                if CANONICAL && !is_ascending(watched, text, form) {
                    return Err(Stop);
                }
                kept = kept.and(keep(&mut watched.keys, at));
            }
            kept.map_err(|unsorted| self.refuse_unsorted(unsorted))?;
        }
        Ok(())
    }

    #[cold]
    fn close_watched(
        &mut self,
        level: &Level,
        window: &[u8],
        at: usize,
        is_object: bool,
    ) -> Result<(), Stop> {
        if !is_object {
            self.end_element()?;
        }
        let Some(mut watched) = self.watch.close() else { return Err(Stop) };
        if CANONICAL {
            return Ok(());
        }
        let span = (level.start, at);
        if is_object {
            if level.is_dirty {
                let excluded = &watched.starts;
                let kept = self.index.record(self.machine, level.base, span, window, self.form, excluded);
                return kept.map_err(|unsorted| self.refuse_unsorted(unsorted));
            }
            self.index.forget(level.base);
            return Ok(());
        }
        let is_moved = sort_elements(&mut watched, window, self.form).map_err(|fault| self.refuse(fault))?;
        if is_moved || level.is_dirty {
            let kept = self.index.record_elements(span, &watched.starts);
            kept.map_err(|unsorted| self.refuse_unsorted(unsorted))?;
        }
        Ok(())
    }
}

fn keep(places: &mut Vec<usize>, place: usize) -> Result<(), Unsorted> {
    places.try_reserve(1)?;
    places.push(place);
    Ok(())
}

/// Whether the key of an element comes after that of the element before, which it replaces.
fn is_ascending(watched: &mut Watched, text: &[u8], form: Form) -> bool {
    let Some(key) = ElementKey::read(text, form) else { return false };
    let is_first = watched.last_key.is_empty();
    let last = std::str::from_utf8(&watched.last_key).ok().and_then(|last| ElementKey::whole(last, form));
    let ascending = is_first || last.is_some_and(|last| last < key);
    let length = key.length();
    watched.last_key.clear();
    watched.last_key.extend_from_slice(&text[..length]);
    ascending
}

/// Puts the elements of an unordered array in order; whether that moved one.
fn sort_elements(watched: &mut Watched, window: &[u8], form: Form) -> Result<bool, Fault> {
    let Some(rule) = watched.unordered else { return Ok(false) };
    let mut keyed = Vec::new();
    keyed.try_reserve_exact(watched.starts.len()).map_err(|_| Fault::NoRoom)?;
    for (key, element) in watched.keys.iter().zip(&watched.starts) {
        let key = window.get(*key..).and_then(|text| ElementKey::read(text, form));
        keyed.push((key.ok_or(Fault::KeyKind { element: *element, rule })?, *element));
    }
    let is_moved = !keyed.is_sorted_by(|a, b| a.0 < b.0);
    if is_moved {
        // As a stable sort, which takes half as much room again: places tell elements of one key apart.
        keyed.sort_unstable_by_key(|item| (item.0, item.1));
        if let Some(pair) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Fault::KeyRepeated { elements: [pair[0].1, pair[1].1], rule });
        }
        watched.starts.clear();
        watched.starts.extend(keyed.iter().map(|item| item.1));
    }
    Ok(is_moved)
}

pub(crate) fn skip_space(window: &[u8], at: usize) -> usize {
    let rest = window.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// What [`Carry::words_and_exponents`] needs to know about the numbers of a block.
struct Digits {
    scalar: u64,
    start: u64,
    digit: u64,
    after_digit: u64,
    point: u64,
}

impl Carry {
    /// Checks what of scalars is neither digit nor point nor a minus at the front; what is wrong.
    #[inline(always)]
    fn words_and_exponents(
        &mut self,
        window: &[u8],
        at: usize,
        masks: &Masks,
        others: u64,
        digits: &Digits,
    ) -> u64 {
        let Digits { scalar, start, digit, after_digit, point } = digits;
        let mut letters = std::mem::take(&mut self.rest_of_word);
        let mut starts = others & start;
        while starts != 0 {
            let bit = starts.trailing_zeros();
            starts &= starts - 1;
            let word = (1 << word_length(window, at + bit as usize)) - 1;
            letters |= word << bit;
            self.rest_of_word = word >> 1 >> (63 - bit);
        }
        // After a word there is something else.
        let mut error = shift(letters, &mut self.letters) & scalar & !letters;

        let mut unknown = others & !letters;
        if unknown | self.power | (self.exponent | self.sign) >> 63 != 0 {
            let exponent = masks.exponent & unknown & after_digit;
            let after_exponent = shift(exponent, &mut self.exponent);
            let sign = (masks.plus | masks.minus) & unknown & after_exponent;
            let power_start = after_exponent & !sign | shift(sign, &mut self.sign);
            error |= power_start & !digit;
            error |= run_end(power_start, *digit, &mut self.power) & (point | exponent);
            unknown &= !(exponent | sign);
        }
        error | unknown
    }
}

/// The length of the word that begins here, or zero.
#[inline(always)]
fn word_length(window: &[u8], at: usize) -> u32 {
    match window.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        Some(b"null" | b"true") => 4,
        Some(b"fals") if window.get(at + 4) == Some(&b'e') => 5,
        _ => 0,
    }
}

/// The places of these bits of the block at `at`.
#[inline(always)]
fn places(at: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (bit < 64).then_some(at + bit as usize)
    })
}

/// What each byte is after a backslash.
static ESCAPES: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut i = 0;
    while i < SHORT_ESCAPES.len() {
        kinds[SHORT_ESCAPES[i] as usize] = 0;
        i += 1;
    }
    kinds[b'/' as usize] = SLASH;
    kinds[b'u' as usize] = UNICODE;
    kinds
};
const SHORT_ESCAPES: &[u8] = b"\"\\bfnrt";
const OTHER: u8 = 1;
/// Allowed, but never written.
const SLASH: u8 = 2;
const UNICODE: u8 = 4;

/// The positions after a backslash that is not itself escaped.
///
/// In a run of backslashes every other one escapes. Subtracting the run's start from a pattern of alternating bits
/// makes it alternate from there on.
#[inline(always)]
pub(crate) fn find_escaped(backslash: u64, carry: &mut u64) -> u64 {
    const ODD: u64 = 0xAAAA_AAAA_AAAA_AAAA;
    let escaping = backslash & !*carry;
    let maybe_escaped = escaping << 1 | ODD;
    let alternating = maybe_escaped.wrapping_sub(escaping) ^ ODD;
    let escaped = alternating ^ (backslash | *carry);
    *carry = (alternating & backslash) >> 63;
    escaped
}

#[inline(never)]
fn has_escape(window: &[u8], start: usize, end: usize) -> bool {
    window.get(start..end).is_some_and(|key| memchr::memchr(b'\\', key).is_some())
}

fn short_prefix(bytes: &[u8]) -> u64 {
    bytes.iter().chain(std::iter::repeat(&0)).take(8).fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
}
