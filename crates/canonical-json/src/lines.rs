use std::io::{self, BufRead, ErrorKind, Write};

use sha2::Digest;
use thiserror::Error;

use crate::canonical::canonical_text;
use crate::{CanonicalError, Digested, Pattern, Rules, Sha256};

/// One record of a JSONL file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LineDigest {
    /// Its line, counted from one.
    pub line: u64,
    /// The digest of its canonical form, without a line feed.
    pub digest: Digested,
}

/// The digest of a JSONL file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct LinesDigest {
    /// SHA-256 of the canonical forms of all records, each followed by one line feed.
    pub sha256: Sha256,
    /// How many bytes that is.
    pub bytes: u64,
    /// How many records there are.
    pub records: u64,
    /// The exclusions that matched something in some record, in the order of the rules.
    pub excluded_present: Vec<Pattern>,
}

/// What is wrong with a JSONL file, and in which line.
#[derive(Debug, Error)]
#[error("line {line} is not a record")]
#[non_exhaustive]
pub struct LinesError {
    /// The line, counted from one.
    pub line: u64,
    /// How many bytes come before the line.
    pub offset: u64,
    /// Why it has no canonical form; places in it are those in the line.
    pub source: CanonicalError,
}

/// The digests of a JSONL file and of each record in it.
///
/// A line feed, or a carriage return and a line feed, ends each record; it may be missing after the last. Memory is
/// needed for one record at a time. A required exclusion must match in every record.
///
/// ```
/// use canonical_json::{Rules, Sha256, digest_lines};
///
/// let mut lines = Vec::new();
/// let all = digest_lines(&b"{\"b\":1, \"a\":2}\r\n[ ]"[..], &Rules::default(), |line| lines.push(line))?;
/// assert_eq!(all.sha256, Sha256::of(b"{\"a\":2,\"b\":1}\n[]\n"));
/// assert_eq!(lines[1].digest.sha256, Sha256::of(b"[]"));
/// # Ok::<(), canonical_json::LinesError>(())
/// ```
///
/// # Errors
///
/// A line has no canonical form (an empty line has none), or cannot be read.
pub fn digest_lines(
    input: impl BufRead,
    rules: &Rules,
    mut each: impl FnMut(LineDigest),
) -> Result<LinesDigest, LinesError> {
    let mut hasher = sha2::Sha256::new();
    let mut bytes = 0;
    let mut present = vec![false; rules.exclusions.len()];
    let records = for_each_line(input, |line, text| {
        let (canonical, excluded_present) = canonical_text(text, rules)?;
        hasher.update(&canonical);
        hasher.update(b"\n");
        bytes += canonical.len() as u64 + 1;
        note(&mut present, rules, &excluded_present);
        let (sha256, bytes) = (Sha256::of(&canonical), canonical.len() as u64);
        each(LineDigest { line, digest: Digested { sha256, bytes, excluded_present } });
        Ok(())
    })?;
    let excluded = rules.exclusions.iter().zip(present).filter(|(_, present)| *present);
    let excluded_present = excluded.map(|(exclusion, _)| exclusion.pattern.clone()).collect();
    Ok(LinesDigest { sha256: Sha256::from_bytes(hasher.finalize().into()), bytes, records, excluded_present })
}

/// Writes the canonical form of each record of a JSONL file, each followed by one line feed; how many there are.
///
/// # Errors
///
/// As [`digest_lines`]; or the output cannot be written. The lines before are written then.
pub fn canonicalize_lines(
    input: impl BufRead,
    rules: &Rules,
    mut out: impl Write,
) -> Result<u64, LinesError> {
    for_each_line(input, |_, text| {
        let (canonical, _) = canonical_text(text, rules)?;
        out.write_all(&canonical).and_then(|()| out.write_all(b"\n")).map_err(CanonicalError::Output)
    })
}

fn note(present: &mut [bool], rules: &Rules, patterns: &[Pattern]) {
    for (exclusion, present) in rules.exclusions.iter().zip(present) {
        *present |= patterns.contains(&exclusion.pattern);
    }
}

/// Calls `each` with every line, without what ends it; how many there are.
fn for_each_line(
    mut input: impl BufRead,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), CanonicalError>,
) -> Result<u64, LinesError> {
    let mut text = Vec::new();
    let mut offset = 0;
    for line in 1.. {
        text.clear();
        let read = read_line(&mut input, &mut text, offset);
        let read = read.map_err(|source| LinesError { line, offset, source })?;
        if read == 0 {
            return Ok(line - 1);
        }
        // A carriage return is whitespace to JSON.
        each(line, text.strip_suffix(b"\n").unwrap_or(&text)).map_err(|source| LinesError {
            line,
            offset,
            source,
        })?;
        offset += read as u64;
    }
    unreachable!("lines are counted with 64 bits")
}

/// As `read_until`, which ends the process where there is no room for the line.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>, offset: u64) -> Result<usize, CanonicalError> {
    let failed = |source: io::Error| CanonicalError::Input { offset, source };
    loop {
        let found = match input.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            found => found.map_err(failed)?,
        };
        let end = memchr::memchr(b'\n', found).map(|newline| newline + 1);
        let part = &found[..end.unwrap_or(found.len())];
        text.try_reserve(part.len()).map_err(|_| failed(ErrorKind::OutOfMemory.into()))?;
        text.extend_from_slice(part);
        let read = part.len();
        input.consume(read);
        if end.is_some() || read == 0 {
            return Ok(text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exclusion, ReadErrorKind};

    fn check(text: &str, expected: &[(u64, &str)]) {
        let mut lines = Vec::new();
        let all = digest_lines(text.as_bytes(), &Rules::default(), |line| lines.push(line)).expect("records");
        let found: Vec<_> = lines.iter().map(|line| (line.line, line.digest.sha256)).collect();
        let wanted: Vec<_> =
            expected.iter().map(|(line, text)| (*line, Sha256::of(text.as_bytes()))).collect();
        assert_eq!(found, wanted, "{text}");
        let together: String = expected.iter().map(|(_, text)| format!("{text}\n")).collect();
        assert_eq!(
            (all.sha256, all.bytes),
            (Sha256::of(together.as_bytes()), together.len() as u64),
            "{text}"
        );
        let mut out = Vec::new();
        let records = canonicalize_lines(text.as_bytes(), &Rules::default(), &mut out).expect("records");
        assert_eq!((records, out.as_slice()), (expected.len() as u64, together.as_bytes()), "{text}");
    }

    #[test]
    fn lines_end_in_several_ways() {
        check("", &[]);
        check("1\n2\n", &[(1, "1"), (2, "2")]);
        check("1\r\n{\"b\":0, \"a\":0}", &[(1, "1"), (2, r#"{"a":0,"b":0}"#)]);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line, offset) in [
            ("1\n\n2\n", 2, 2),
            ("1\r\n2\n{\n}", 3, 5),
            ("1 2", 1, 0),
            ("[1,\n2]", 1, 0),
            ("1\n\r\n", 2, 2),
            ("1\n\u{feff}2\n", 2, 2),
        ] {
            let error = digest_lines(text.as_bytes(), &Rules::default(), |_| {}).expect_err(text);
            assert_eq!((error.line, error.offset), (line, offset), "{text}");
        }
        let error = digest_lines(&b"\n"[..], &Rules::default(), |_| {}).expect_err("an empty line");
        assert!(matches!(error.source, CanonicalError::Read(error) if error.kind == ReadErrorKind::Empty));
    }

    #[test]
    fn exclusions_present_anywhere_are_returned() {
        let exclusion =
            |pattern: &str| Exclusion { pattern: pattern.parse().expect("a pattern"), required: false };
        let rules =
            Rules { exclusions: vec![exclusion("/a"), exclusion("/b"), exclusion("/c")], ..Rules::default() };
        let all = digest_lines(&b"{\"c\":1}\n{\"a\":1,\"x\":2}\n"[..], &rules, |_| {}).expect("records");
        assert_eq!(all.excluded_present.iter().map(Pattern::as_str).collect::<Vec<_>>(), ["/a", "/c"]);
        assert_eq!(all.sha256, Sha256::of(b"{}\n{\"x\":2}\n"));
    }
}
