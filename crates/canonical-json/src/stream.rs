//! Looking through a file that perhaps already is canonical, in constant memory.

use std::io::{self, ErrorKind, Read};

use crate::canonical::trim_end;
use crate::read::Limits;
use crate::sha256::BlockHash;
use crate::simd::{Level, dispatch_bits};
use crate::structure::{Blocks, LOOKAHEAD, Stop, Structure};
use crate::{CanonicalError, Rules, Sha256};

/// How much is read at once.
const READ: usize = 1 << 17;

/// The most that is kept in memory of a key that has not ended; an input with a longer key is read whole.
const MAX_WINDOW: usize = 1 << 20;

/// The part of the input that is in memory.
struct Window {
    bytes: Vec<u8>,
    /// How many bytes of the input came before.
    before: u64,
    is_last: bool,
}

impl Window {
    /// Reads more, until there is enough to look at.
    fn fill(&mut self, input: &mut impl Read, wanted: usize) -> io::Result<()> {
        let start = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut filled = start;
        while filled < wanted && !self.is_last {
            match input.read(&mut self.bytes[filled..]) {
                Ok(0) => self.is_last = true,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.bytes.truncate(filled);
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}

/// The digest of the input and its length if it is canonical, in little memory; else nothing, and an unknown part of it
/// was read.
pub(crate) fn verify(input: &mut impl Read, rules: &Rules) -> Result<Option<(Sha256, u64)>, CanonicalError> {
    verify_by(READ, input, rules)
}

fn verify_by(
    read: usize,
    input: &mut impl Read,
    rules: &Rules,
) -> Result<Option<(Sha256, u64)>, CanonicalError> {
    let level = Level::detect();
    let mut structure = Structure::<true, false, u32>::new(level, rules, Limits::DEFAULT_MAX_DEPTH);
    let mut hash = BlockHash::new();
    let mut window = Window { bytes: Vec::with_capacity(read + LOOKAHEAD), before: 0, is_last: false };
    let mut done = 0;
    loop {
        let filled = window.fill(input, done + read + LOOKAHEAD);
        let offset = window.before + window.bytes.len() as u64;
        filled.map_err(|source| CanonicalError::Input { offset, source })?;
        let is_last = window.is_last;
        if is_last {
            let length = trim_end(&window.bytes).len();
            window.bytes.truncate(length.max(done));
        }
        let length = window.bytes.len();
        let end = if is_last { length } else { done + (length - LOOKAHEAD - done) / 64 * 64 };
        let (range, hashed) = (done..end, done..end);
        let (window_bytes, words) = (&window.bytes, Some(&mut hash.words));
        let blocks =
            Blocks { structure: &mut structure, window: window_bytes, range, is_last, hash: words, hashed };
        if dispatch_bits(level, blocks) == Err(Stop) {
            return Ok(None);
        }
        if is_last {
            let rest = window.bytes[done..end].as_chunks::<64>().1;
            let bytes = window.before + length as u64;
            return Ok(Some((hash.finish_rest(rest, bytes), bytes)));
        }
        let kept_from = structure.needed_from(end);
        if end - kept_from > MAX_WINDOW {
            return Ok(None);
        }
        structure.leave(kept_from, &window.bytes);
        window.bytes.drain(..kept_from);
        window.before += kept_from as u64;
        done = end - kept_from;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{canonical_document, document, records, some_rules};
    use crate::{Form, canonicalize, digest};

    fn check(text: &[u8], rules: &Rules, read: usize) {
        let streamed = verify_by(read, &mut &text[..], rules).expect("memory can be read");
        let streamed = streamed.map(|(sha256, _)| sha256);
        let trimmed = text.trim_ascii_end();
        let is_canonical = digest(text, rules).is_ok_and(|digested| digested.sha256 == Sha256::of(trimmed));
        assert_eq!(streamed, is_canonical.then(|| Sha256::of(trimmed)), "{}", String::from_utf8_lossy(text));
    }

    /// What I-JSON forbids is found wherever the window ends.
    #[test]
    fn noncharacters_at_the_end_of_the_window() {
        for forbidden in ["\u{ffff}", "\u{fdd0}", "\u{1fffe}", "\u{10ffff}"] {
            for before in 0..72 {
                let text = |end: &str| format!("[\"{}{end}{}\"]", "x".repeat(before), "y".repeat(5000));
                check(text(forbidden).as_bytes(), &Rules::new(Form::Jcs), 64);
                check(text(forbidden).as_bytes(), &Rules::default(), 64);
                check(text("\u{fffd}\u{1fffd}").as_bytes(), &Rules::new(Form::Jcs), 64);
            }
        }
    }

    /// The keys of elements are longer than what is looked ahead: the stream may be given up then, but must not be
    /// taken for canonical where it is not.
    #[test]
    fn long_element_keys() {
        let rules = some_rules(4 << 1);
        let check = |text: String| {
            let streamed = verify_by(64, &mut text.as_bytes(), &rules).expect("memory can be read");
            let is_canonical = digest(text.as_bytes(), &rules)
                .is_ok_and(|digested| digested.sha256 == Sha256::of(text.as_bytes()));
            assert!(is_canonical || streamed.is_none(), "{}", text.len());
        };
        for length in [4000, 4090, 4096, 4100, 5000, 9000] {
            let digits = "1".repeat(length);
            for (first, second) in [("1", "2"), ("2", "1"), ("1", "1"), ("1", "10"), ("10", "1")] {
                for before in ["", "1,2,3,4,5,6,7,8,9,", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,"] {
                    check(format!("[{before}{digits}{first},{digits}{second}]"));
                    check(format!("[{before}\"{digits}{first}\",\"{digits}{second}\"]"));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_stream_is_judged_like_a_slice(seed: Vec<u8>, rules: u8, read in 64..256_usize, before in 4000..4200_usize) {
            let rules = some_rules(rules);
            check(&document(&seed), &rules, read);
            check(&records(&seed), &rules, read);
            let mut canonical = Vec::new();
            if canonicalize(&records(&seed), &rules, &mut canonical).is_ok() {
                check(&canonical, &rules, read);
            }
            // Long enough that keys leave the window and are compared later.
            let mut text = format!("{{\"A\":\"{}\",\"B\":", "x".repeat(before)).into_bytes();
            text.extend(canonical_document(&seed));
            text.extend_from_slice(format!(",\"{}\":[\"{}\"],\"D\":1}}\n", "C".repeat(before % 97), "é".repeat(before)).as_bytes());
            check(&text, &rules, read);
            let last = text.len() - 5;
            text[last] = b'B';
            check(&text, &rules, read);
        }
    }
}
