use std::borrow::Cow;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

use sha2::Digest;

use crate::emit::{Emit, Sink};
use crate::fault::{Fault, no_room};
use crate::members::Position;
use crate::read::Limits;
use crate::sha256::BlockHash;
use crate::simd::{Level, dispatch, dispatch_bits};
use crate::stream;
use crate::structure::{Blocks, Indexed, Stop, Structure};
use crate::tidy;
use crate::{CanonicalError, Pattern, Rules, Sha256, tree};

/// What was done while a canonical form was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Applied {
    /// The length of the canonical form.
    pub bytes: u64,
    /// The exclusions that matched something, in the order of the rules.
    pub excluded_present: Vec<Pattern>,
}

/// The digest of a canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct Digested {
    /// SHA-256 of the canonical form.
    pub sha256: Sha256,
    /// The length of the canonical form.
    pub bytes: u64,
    /// The exclusions that matched something, in the order of the rules.
    pub excluded_present: Vec<Pattern>,
}

/// Writes the canonical form of a document. No line feed follows it.
///
/// ```
/// let mut out = Vec::new();
/// canonical_json::canonicalize(br#"{"b": 1.0, "a": "\u0041"}"#, &Default::default(), &mut out)?;
/// assert_eq!(out, br#"{"a":"A","b":1.0}"#);
/// # Ok::<(), canonical_json::CanonicalError>(())
/// ```
///
/// # Errors
///
/// The input is not valid JSON or does not fit the rules, in which case nothing was written, or the output cannot be
/// written.
pub fn canonicalize(input: &[u8], rules: &Rules, mut out: impl Write) -> Result<Applied, CanonicalError> {
    check(rules)?;
    let mut sink = Writing { out: &mut out, bytes: 0 };
    let excluded_present = match verify(Level::detect(), input, rules, None) {
        Ok(end) => {
            let excluded_present = none_present(rules)?;
            sink.put(&input[..end]).map_err(CanonicalError::Output)?;
            excluded_present
        }
        Err(Stop) => reorder(input, rules, &mut sink)?,
    };
    Ok(Applied { bytes: sink.bytes, excluded_present })
}

/// The digest of the canonical form of a document.
///
/// Input that already is canonical is only looked at, once. In the lexical form and without rules the same goes for input
/// that would be canonical but for whitespace and the order of members, as long as those objects that are not in order
/// are short; the outermost one need not be. Any other input takes an index of at most about six tenths of its size, and
/// usually much less; the canonical form never is in memory. (Unordered arrays take more, see [`crate::Unordered`].)
///
/// # Errors
///
/// As [`canonicalize`], except that nothing is written.
pub fn digest(input: &[u8], rules: &Rules) -> Result<Digested, CanonicalError> {
    check(rules)?;
    let mut state = BlockHash::new();
    match verify(Level::detect(), input, rules, Some(&mut state.words)) {
        Ok(end) => digested(state.finish(&input[..end]), end as u64, none_present(rules)?),
        Err(Stop) => digest_reordered(input, rules),
    }
}

/// The digest of the canonical form of a file.
///
/// A regular file that already is canonical is read once, in constant memory; any other is read whole.
///
/// # Errors
///
/// As [`digest`]; or the file cannot be read.
pub fn digest_file(path: &Path, rules: &Rules) -> Result<Digested, CanonicalError> {
    check(rules)?;
    let input_error = |source| CanonicalError::Input { offset: 0, source };
    let mut file = File::open(path).map_err(input_error)?;
    let metadata = file.metadata().map_err(input_error)?;
    if metadata.is_file() {
        if let Some((sha256, bytes)) = stream::verify(&mut file, rules)? {
            return digested(sha256, bytes, none_present(rules)?);
        }
        file.rewind().map_err(input_error)?;
    }
    // Files may claim any length, and there may not be room for what they hold.
    let mut input = Vec::new();
    let capacity = usize::try_from(metadata.len()).unwrap_or(usize::MAX).saturating_add(1);
    input.try_reserve_exact(capacity).map_err(|_| input_error(ErrorKind::OutOfMemory.into()))?;
    let input = read_all(file, input)?;
    if metadata.is_file() { digest_reordered(&input, rules) } else { digest(&input, rules) }
}

/// The digest of the canonical form of what a reader gives, which is read whole first.
///
/// # Errors
///
/// As [`digest`]; or the reader failed.
pub fn digest_reader(reader: impl Read, rules: &Rules) -> Result<Digested, CanonicalError> {
    digest(&read_all(reader, Vec::new())?, rules)
}

fn read_all(mut reader: impl Read, mut bytes: Vec<u8>) -> Result<Vec<u8>, CanonicalError> {
    match reader.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(source) => Err(CanonicalError::Input { offset: bytes.len() as u64, source }),
    }
}

/// The canonical form of a document, which may be the document itself, and the exclusions that matched something.
pub(crate) fn canonical_text<'a>(
    input: &'a [u8],
    rules: &Rules,
) -> Result<(Cow<'a, [u8]>, Vec<Pattern>), CanonicalError> {
    check(rules)?;
    if let Ok(end) = verify(Level::detect(), input, rules, None) {
        return Ok((Cow::Borrowed(&input[..end]), none_present(rules)?));
    }
    // Only numbers of the other form can become longer; room that is not used costs nothing.
    let mut out = Vec::new();
    let has_room = out.try_reserve_exact(input.len());
    has_room.map_err(|_| no_room(input))?;
    let excluded_present = reorder(input, rules, &mut Writing { out: &mut out, bytes: 0 })?;
    Ok((Cow::Owned(out), excluded_present))
}

/// Refuses rules that leave nothing.
fn check(rules: &Rules) -> Result<(), CanonicalError> {
    let is_all = |pattern: &Pattern| pattern.steps().is_empty();
    match rules.exclusions.iter().any(|exclusion| is_all(&exclusion.pattern)) {
        true => Err(CanonicalError::ExclusionOfAll),
        false => Ok(()),
    }
}

/// Looks through a document that perhaps already is canonical, and hashes it on the way; where it ends.
fn verify(level: Level, input: &[u8], rules: &Rules, hash: Option<&mut [u32; 8]>) -> Result<usize, Stop> {
    let text = trim_end(input);
    let mut structure = Structure::<true, false, u32>::new(level, rules, Limits::DEFAULT_MAX_DEPTH);
    let (range, hashed) = (0..text.len(), 0..text.len());
    let blocks = Blocks { structure: &mut structure, window: text, range, is_last: true, hash, hashed };
    dispatch_bits(level, blocks)?;
    Ok(text.len())
}

/// A document without the whitespace after it.
pub(crate) fn trim_end(input: &[u8]) -> &[u8] {
    let length = input.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    &input[..length.map_or(0, |last| last + 1)]
}

fn digest_reordered(input: &[u8], rules: &Rules) -> Result<Digested, CanonicalError> {
    if let Some((sha256, bytes)) = tidy::digest(Level::detect(), input, rules, tidy::Sizes::DEFAULT) {
        return digested(sha256, bytes, none_present(rules)?);
    }
    let mut hashing = Hashing::default();
    let excluded_present = reorder(input, rules, &mut hashing)?;
    let sha256 = Sha256::from_bytes(hashing.hasher.finalize().into());
    digested(sha256, hashing.bytes, excluded_present)
}

fn digested(sha256: Sha256, bytes: u64, excluded_present: Vec<Pattern>) -> Result<Digested, CanonicalError> {
    Ok(Digested { sha256, bytes, excluded_present })
}

/// Writes the canonical form of a document that is not canonical.
fn reorder(input: &[u8], rules: &Rules, sink: &mut impl Sink) -> Result<Vec<Pattern>, CanonicalError> {
    match u32::try_from(input.len()) {
        Ok(_) => reorder_at::<u32>(input, rules, sink),
        Err(_) => reorder_at::<usize>(input, rules, sink),
    }
}

fn reorder_at<O: Position>(
    input: &[u8],
    rules: &Rules,
    sink: &mut impl Sink,
) -> Result<Vec<Pattern>, CanonicalError> {
    let level = Level::detect();
    let indexed = match index::<O>(level, input, rules) {
        Ok(indexed) => indexed,
        Err(fault) => return refuse(input, rules, fault, sink),
    };
    let present = excluded_present(rules, &indexed.present)?;
    let emit = Emit { input, form: rules.form, indexed: &indexed, sink };
    dispatch(level, emit).map_err(CanonicalError::Output)?;
    Ok(present)
}

/// Indexes a document; else says how it does not fit the rules, if that is what is wrong.
fn index<O: Position>(level: Level, input: &[u8], rules: &Rules) -> Result<Indexed<O>, Option<Fault>> {
    let mut structure = Structure::<false, true, O>::new(level, rules, Limits::DEFAULT_MAX_DEPTH);
    let range = 0..input.len();
    let blocks =
        Blocks { structure: &mut structure, window: input, range, is_last: true, hash: None, hashed: 0..0 };
    match dispatch_bits(level, blocks) {
        Ok(()) => Ok(structure.into_indexed()),
        Err(Stop) => Err(structure.fault()),
    }
}

/// Says what is wrong with a document, or, should nothing be wrong with it, canonicalizes it in the plain way.
#[cold]
fn refuse(
    input: &[u8],
    rules: &Rules,
    fault: Option<Fault>,
    sink: &mut impl Sink,
) -> Result<Vec<Pattern>, CanonicalError> {
    if let Some(Fault::NoRoom) = fault {
        return Err(no_room(input));
    }
    let limits = Limits::default();
    tree::check(input, rules.form, limits)?;
    if let Some(fault) = fault {
        return Err(fault.explain(input, rules));
    }
    debug_assert!(false, "the fast way refused what is not wrong");
    let mut out = Vec::new();
    let present = tree::canonicalize(input, rules, limits, &mut out)?;
    let present = excluded_present(rules, &present)?;
    sink.put(&out).map_err(CanonicalError::Output)?;
    Ok(present)
}

fn excluded_present(rules: &Rules, present: &[bool]) -> Result<Vec<Pattern>, CanonicalError> {
    let mut patterns = Vec::new();
    for (exclusion, present) in rules.exclusions.iter().zip(present) {
        match present {
            true => patterns.push(exclusion.pattern.clone()),
            false if exclusion.required => {
                return Err(CanonicalError::ExclusionAbsent { pattern: exclusion.pattern.clone() });
            }
            false => {}
        }
    }
    Ok(patterns)
}

/// What is present of the exclusions in a document that already is canonical.
fn none_present(rules: &Rules) -> Result<Vec<Pattern>, CanonicalError> {
    excluded_present(rules, &vec![false; rules.exclusions.len()])
}

#[derive(Default)]
struct Hashing {
    hasher: sha2::Sha256,
    bytes: u64,
}

impl Sink for Hashing {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

struct Writing<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Sink for Writing<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
