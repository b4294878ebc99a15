//! The digest of a document that is canonical but for whitespace and the order of members, in one pass and little memory.
//!
//! The text without its whitespace is written to a window. There it is looked at as if it were canonical, except that
//! members may come in any order: where they do, they are moved inside of the window as soon as their object has ended.
//! What no open object can change any more is hashed, beside the look at what comes next, and leaves the window. Only
//! the members of the outermost object are put in order before.
//!
//! A document that does not fit - one with an escape that would be written otherwise, with a large object that is not in
//! order, or with an error - is left to the general way, which starts from the beginning.

use crate::read::Limits;
use crate::sha256::BlockHash;
use crate::simd::{Level, dispatch, dispatch_bits};
use crate::squeeze::{Fill, Squeeze};
use crate::structure::{Blocks, Stop, Structure};
use crate::{Form, Rules, Sha256, outermost};

/// How much is looked at at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How much text is added to the window at once.
    pub(crate) step: usize,
    pub(crate) window: usize,
}

impl Sizes {
    /// A step stays in the nearest cache, and a window in the one after it.
    pub(crate) const DEFAULT: Sizes = Sizes { step: 1 << 13, window: 1 << 17 };
}

/// How much there is after what is looked at, unless the input ends: an escape and the first bytes of a key lie within.
const LOOKAHEAD: usize = 64;

/// The digest and the length of the canonical form; nothing if the document is one for the general way.
pub(crate) fn digest(level: Level, input: &[u8], rules: &Rules, sizes: Sizes) -> Option<(Sha256, u64)> {
    let is_plain = rules.form == Form::Lexical && rules.exclusions.is_empty() && rules.unordered.is_empty();
    if !is_plain {
        return None;
    }
    Tidy::new(level, input, rules, sizes).run().ok()
}

struct Tidy<'a> {
    level: Level,
    sizes: Sizes,
    squeeze: Squeeze<'a>,
    structure: Structure<'a, true, true, u32>,
    hash: BlockHash,
    window: Box<[u8]>,
    /// How many bytes there are in the window.
    length: usize,
    /// How many of them were hashed, looked at, and which are final.
    hashed: usize,
    done: usize,
    settled: usize,
    /// How many bytes were hashed and left the window.
    before: u64,
}

impl<'a> Tidy<'a> {
    fn new(level: Level, input: &'a [u8], rules: &'a Rules, sizes: Sizes) -> Self {
        let mut structure = Structure::new(level, rules, Limits::DEFAULT_MAX_DEPTH);
        // A short object can be sorted when it has ended.
        let sorted = if input.len() > sizes.window { outermost::sorted(level, input) } else { None };
        if sorted.is_some() {
            structure.seal_outermost();
        }
        Tidy {
            level,
            sizes,
            squeeze: Squeeze::new(sorted.unwrap_or_else(|| [input].into())),
            structure,
            hash: BlockHash::new(),
            // A block may be written of which not all bytes count.
            window: vec![0; input.len().min(sizes.window + sizes.step) + 3 * LOOKAHEAD].into(),
            length: 0,
            hashed: 0,
            done: 0,
            settled: 0,
            before: 0,
        }
    }

    fn run(mut self) -> Result<(Sha256, u64), Stop> {
        loop {
            let is_last = self.fill()?;
            let ready = if is_last { self.length } else { self.length - LOOKAHEAD };
            let end = if is_last { ready } else { self.done + (ready - self.done) / 64 * 64 };
            self.look(end, is_last)?;
            if is_last {
                break;
            }
            if self.length > self.sizes.window {
                self.make_room()?;
            }
        }
        let text = &self.window[self.hashed..self.length];
        sha2::block_api::compress256(&mut self.hash.words, text.as_chunks().0);
        let bytes = self.before + self.length as u64;
        Ok((self.hash.finish_rest(text.as_chunks::<64>().1, bytes), bytes))
    }

    /// Adds text to the window; whether it is the last.
    fn fill(&mut self) -> Result<bool, Stop> {
        let wanted = self.done + self.sizes.step + LOOKAHEAD;
        let fill = Fill { squeeze: &mut self.squeeze, out: &mut self.window, length: self.length, wanted };
        self.length = dispatch(self.level, fill);
        if self.squeeze.is_wrong() { Err(Stop) } else { Ok(self.length < wanted) }
    }

    /// Looks at the text up to `end`, while what is final is hashed.
    fn look(&mut self, end: usize, is_last: bool) -> Result<(), Stop> {
        // No more than what can be done beside the look.
        let hashed = self.hashed..self.settled.min(self.hashed + (end - self.done)).max(self.hashed);
        let blocks = Blocks {
            structure: &mut self.structure,
            window: &self.window[..self.length],
            range: self.done..end,
            is_last,
            hash: Some(&mut self.hash.words),
            hashed: hashed.clone(),
        };
        dispatch_bits(self.level, blocks)?;
        self.hashed += hashed.len() / 64 * 64;
        self.done = end;
        self.structure.move_members(&mut self.window[..self.length])?;
        self.settled = self.structure.settled(end)?;
        Ok(())
    }

    /// What is final leaves the window. If that is not enough, all is taken to be final.
    fn make_room(&mut self) -> Result<(), Stop> {
        let enough = self.sizes.window / 2;
        if self.hashed < enough {
            self.hash_settled();
        }
        if self.hashed < enough {
            self.structure.seal()?;
            self.settled = self.done;
            self.hash_settled();
        }
        let leaving = self.hashed.min(self.structure.needed_from(self.done));
        if leaving < enough {
            return Err(Stop);
        }
        self.structure.leave(leaving, &self.window);
        self.window.copy_within(leaving..self.length, 0);
        for place in [&mut self.length, &mut self.hashed, &mut self.done, &mut self.settled] {
            *place -= leaving;
        }
        self.before += leaving as u64;
        Ok(())
    }

    fn hash_settled(&mut self) {
        let blocks = self.window[self.hashed..self.settled.max(self.hashed)].as_chunks().0;
        sha2::block_api::compress256(&mut self.hash.words, blocks);
        self.hashed += 64 * blocks.len();
    }
}
