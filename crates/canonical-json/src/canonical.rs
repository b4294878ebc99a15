use std::io::{self, Write};

use sha2::Digest;

use crate::read::Limits;
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
/// The input is not valid JSON, does not fit the rules, or the output cannot be written; some of the output may then
/// have been written already.
pub fn canonicalize(input: &[u8], rules: &Rules, mut out: impl Write) -> Result<Applied, CanonicalError> {
    let mut counted = Counted { out: &mut out, bytes: 0 };
    let present = tree::canonicalize(input, rules, Limits::default(), &mut counted)?;
    Ok(Applied { bytes: counted.bytes, excluded_present: excluded_present(rules, &present)? })
}

/// The digest of the canonical form of a document, without making the canonical form.
///
/// # Errors
///
/// As [`canonicalize`].
pub fn digest(input: &[u8], rules: &Rules) -> Result<Digested, CanonicalError> {
    let mut hasher = Hashing(sha2::Sha256::new());
    let Applied { bytes, excluded_present } = canonicalize(input, rules, &mut hasher)?;
    let sha256 = Sha256::from_bytes(hasher.0.finalize().into());
    Ok(Digested { sha256, bytes, excluded_present })
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

struct Hashing(sha2::Sha256);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counted<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
