//! Takes the whitespace out of a document, sixty-four bytes at a time.

use std::collections::VecDeque;

use crate::simd::{Block, FETCHED_AHEAD, Outline, Task, Vector};
use crate::structure::{find_escaped, run_end, shift};

/// Which bytes are in strings.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    /// All ones inside a string.
    inside: u64,
    escaped: u64,
}

impl Strings {
    /// The bytes of the next block that are outside of strings, and no quotes.
    #[inline(always)]
    pub(crate) fn outside<V: Vector>(&mut self, vector: V, outline: &Outline) -> u64 {
        let mut quote = outline.quote;
        if outline.backslash | self.escaped != 0 {
            quote &= !find_escaped(outline.backslash, &mut self.escaped);
        }
        let inside = vector.prefix_xor(quote) ^ self.inside;
        self.inside = 0u64.wrapping_sub(inside >> 63);
        !(inside | quote)
    }

    /// Whether a block is whitespace, which changes nothing: in deeply indented text there are many.
    #[inline(always)]
    pub(crate) fn is_blank(&self, outline: &Outline) -> bool {
        outline.space & !self.inside == u64::MAX
    }
}

/// A block of a text that may end in it, then padded with spaces.
#[inline(always)]
pub(crate) fn block_at<'b>(text: &'b [u8], at: usize, padded: &'b mut Block) -> &'b Block {
    if let Some(block) = text[at..].first_chunk() {
        return block;
    }
    let rest = &text[at..];
    *padded = [b' '; 64];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// The parts of a document from which the whitespace is still to be taken. No part begins or ends inside of a string, a
/// number or a word.
#[derive(Debug)]
pub(crate) struct Squeeze<'a> {
    parts: VecDeque<&'a [u8]>,
    strings: Strings,
    scalar: u64,
    gap: u64,
    is_wrong: bool,
}

impl<'a> Squeeze<'a> {
    pub(crate) fn new(parts: VecDeque<&'a [u8]>) -> Self {
        Squeeze { parts, strings: Strings::default(), scalar: 0, gap: 0, is_wrong: false }
    }

    /// Whether there was whitespace inside of a number or a word.
    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// The whitespace of a block outside of strings.
    #[inline(always)]
    fn space<V: Vector>(&mut self, vector: V, outline: &Outline) -> u64 {
        let outside = self.strings.outside(vector, outline);
        let space = outline.space & outside;
        let scalar = outside & !(space | outline.structural);
        let gap = shift(scalar, &mut self.scalar) & space;
        self.is_wrong |= run_end(gap, space, &mut self.gap) & scalar != 0;
        space
    }

    /// Writes what of a block is no whitespace; how much that is.
    #[inline(always)]
    fn write<V: Vector>(&mut self, vector: V, block: &Block, out: &mut Block) -> usize {
        let outline = vector.outline(block);
        if self.strings.is_blank(&outline) {
            self.gap |= std::mem::take(&mut self.scalar) >> 63;
            return 0;
        }
        match self.space(vector, &outline) {
            0 => *out = *block,
            space => {
                vector.compress(block, !space, out);
                return space.count_zeros() as usize;
            }
        }
        64
    }
}

/// Fills `out` until there are as many bytes as wanted, or the document ends. There must be room for a block more.
pub(crate) struct Fill<'s, 'a> {
    pub(crate) squeeze: &'s mut Squeeze<'a>,
    pub(crate) out: &'s mut [u8],
    pub(crate) length: usize,
    pub(crate) wanted: usize,
}

impl Task for Fill<'_, '_> {
    /// How many bytes there are then.
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Fill { squeeze, out, mut length, wanted } = self;
        while length < wanted
            && let Some(part) = squeeze.parts.front().copied()
        {
            let mut at = 0;
            while length < wanted && at < part.len() {
                let mut padded = [0; 64];
                let block = block_at(part, at, &mut padded);
                vector.prefetch(part, at + FETCHED_AHEAD);
                let room = out[length..].first_chunk_mut().expect("there is always room for a block");
                length += squeeze.write(vector, block, room);
                at += 64;
            }
            match part.get(at..) {
                Some(rest) if !rest.is_empty() => squeeze.parts[0] = rest,
                _ => _ = squeeze.parts.pop_front(),
            }
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, dispatch};

    fn check(text: &str, expected: Option<&str>) {
        for level in Level::available() {
            for before in 0..70 {
                let padded = format!("{}{text}", " ".repeat(before));
                let mut squeeze = Squeeze::new([padded.as_bytes()].into());
                let mut out = vec![0; padded.len() + 128];
                let fill = Fill { squeeze: &mut squeeze, out: &mut out, length: 0, wanted: padded.len() + 1 };
                let length = dispatch(level, fill);
                let found = std::str::from_utf8(&out[..length]).ok().filter(|_| !squeeze.is_wrong());
                assert_eq!(found, expected, "{level:?} {padded:?}");
            }
        }
    }

    #[test]
    fn whitespace_goes_and_tokens_stay_apart() {
        let spaces = " ".repeat(130);
        check("[1 ,\r\n\t2 ]\n", Some("[1,2]"));
        check(r#"{ "a b\" c" : "\\" , "\t" : " " }"#, Some(r#"{"a b\" c":"\\","\t":" "}"#));
        check(&format!("[{spaces}\"{spaces}\"{spaces}]"), Some(&format!("[\"{spaces}\"]")));
        check(&format!("true{spaces}"), Some("true"));
        for (left, right) in
            [("1", "2"), ("-", "1"), ("1.", "5"), ("tr", "ue"), ("1", "null"), ("\u{b}", "x")]
        {
            for space in [" ", "\n", "\r\n  ", &spaces] {
                check(&format!("[{left}{space}{right}]"), None);
            }
        }
        // What follows on a string or a bracket is found to be wrong later.
        check("[1 \"a\" 2] 3", Some("[1\"a\"2]3"));
    }
}
