use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::layout::JOURNAL;
use crate::storage::{Storage, StorageError};
use crate::{Entry, JournalHead, Sha256};

pub(crate) const SCHEMA: &str = "evidence-journal";
pub(crate) const VERSION: u32 = 1;

/// One record of a journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// Number of the record, from 0.
    pub seq: u64,
    /// Digest of the record before; none for the first.
    pub previous: Option<Sha256>,
    /// When it was written, milliseconds since 1970.
    pub time_unix_ms: u64,
    /// What the payload is.
    pub kind: String,
    /// Digest of this record's line, without its line feed.
    pub digest: Sha256,
    payload: Box<RawValue>,
}

impl Record {
    /// The payload as it stands in the journal, number text included.
    #[must_use]
    pub fn payload_json(&self) -> &str {
        self.payload.get()
    }

    /// The payload as a value of the type that wrote it.
    ///
    /// # Errors
    ///
    /// The payload is not such a value.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        serde_json::from_str(self.payload.get()).map_err(|source| PayloadError {
            seq: self.seq,
            kind: self.kind.clone(),
            source,
        })
    }
}

/// The payload of a record is not what its reader expects.
#[derive(Debug, thiserror::Error)]
#[error("read the payload of journal record {seq}, a `{kind}`")]
#[non_exhaustive]
pub struct PayloadError {
    /// Number of the record.
    pub seq: u64,
    /// Its kind.
    pub kind: String,
    /// Why it does not fit.
    #[source]
    pub source: serde_json::Error,
}

/// A journal whose chain holds from the first line to the last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Journal {
    /// Every record, in order.
    pub records: Vec<Record>,
    /// Bytes after the last line feed: a writer was killed, or is writing at this moment.
    pub torn: Option<Torn>,
}

/// Bytes after the last line feed of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Torn {
    /// Where they begin.
    pub offset_bytes: u64,
    /// How many they are.
    pub bytes: u64,
}

/// A line of a journal is not what the chain says it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JournalProblem {
    /// The line that broke, from 1.
    pub line: u64,
    /// How.
    pub kind: JournalProblemKind,
}

/// How a line of a journal broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JournalProblemKind {
    /// It is not a record: damaged, cut, or with a key that does not belong.
    Malformed {
        /// What the parser says.
        reason: String,
    },
    /// It was written by another version.
    Unreadable {
        /// The schema it names.
        schema: String,
        /// The version it names.
        version: u32,
    },
    /// Its number is not the one that follows: lines were removed, added or moved before it.
    Sequence {
        /// The number that follows.
        expected: u64,
        /// The number it has.
        found: u64,
    },
    /// Its digest is not the one the next record (or the manifest) names: the line was altered.
    Altered {
        /// The digest that the next record or the manifest names.
        named: Option<Sha256>,
        /// The digest of the line as it is.
        actual: Sha256,
    },
    /// The journal has another number of lines than the manifest says; the line is the first that is missing or added.
    Count {
        /// How many the manifest says.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// It names another predecessor than the one it has: the line itself was altered.
    Predecessor {
        /// The digest it names.
        named: Option<Sha256>,
        /// The digest of the line before.
        actual: Option<Sha256>,
    },
}

impl fmt::Display for JournalProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} ", self.line)?;
        match &self.kind {
            JournalProblemKind::Malformed { reason } => write!(f, "is not a record: {reason}"),
            JournalProblemKind::Unreadable { schema, version } => {
                write!(f, "is {schema} version {version}, and this program reads {SCHEMA} version {VERSION}")
            }
            JournalProblemKind::Sequence { expected, found } => {
                write!(f, "has number {found} where {expected} follows")
            }
            JournalProblemKind::Altered { named, actual } => {
                write!(f, "was altered: its digest is {actual}, recorded as {}", or_none(*named))
            }
            JournalProblemKind::Count { expected, found } => {
                write!(f, "is where {expected} sealed lines and {found} found lines part")
            }
            JournalProblemKind::Predecessor { named, actual } => {
                write!(f, "was altered: it follows {}, and names {}", or_none(*actual), or_none(*named))
            }
        }
    }
}

fn or_none(digest: Option<Sha256>) -> String {
    digest.map_or_else(|| "no line".to_owned(), |digest| digest.to_string())
}

/// A journal could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The directory has no journal.
    #[error("read the journal: the directory is not an evidence bundle")]
    NotABundle,
    /// The chain is broken.
    #[error("read the journal: {problem}")]
    Broken {
        /// The first line that broke.
        problem: JournalProblem,
        /// The records before it.
        intact: Vec<Record>,
    },
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Reads the journal of a bundle, sealed or not, being written or not, and checks its chain.
///
/// # Errors
///
/// There is no journal, it cannot be read, or a line broke; the error says which and carries the records before it.
pub fn read_journal(dir: &Path) -> Result<Journal, JournalError> {
    let scan = scan(&read_bytes(dir)?, None);
    match scan.problems.into_iter().next() {
        None => Ok(Journal { records: scan.records, torn: scan.torn }),
        Some(problem) => {
            let intact =
                scan.records.into_iter().take_while(|record| record.seq + 1 < problem.line).collect();
            Err(JournalError::Broken { problem, intact })
        }
    }
}

pub(crate) fn read_bytes(dir: &Path) -> Result<Vec<u8>, JournalError> {
    match fs::read(dir.join(JOURNAL)) {
        Ok(bytes) => Ok(bytes),
        Err(error) if is_absent(&error) => Err(JournalError::NotABundle),
        Err(error) => Err(StorageError::new("read", JOURNAL, error).into()),
    }
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A record as it stands on a line; the field order is the key order.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "JournalLine"))]
pub(crate) struct LineOut<'a> {
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'a str,
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    seq: u64,
    previous: Option<Sha256>,
    time_unix_ms: u64,
    kind: &'a str,
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineIn {
    #[serde(rename = "schema")]
    _schema: String,
    #[serde(rename = "version")]
    _version: u32,
    seq: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    previous: Option<Sha256>,
    time_unix_ms: u64,
    kind: String,
    payload: Box<RawValue>,
}

#[derive(Deserialize)]
struct Header {
    schema: String,
    version: u32,
}

pub(crate) struct Scan {
    pub(crate) records: Vec<Record>,
    pub(crate) problems: Vec<JournalProblem>,
    pub(crate) torn: Option<Torn>,
}

/// Reads every line; `sealed` is what a manifest says about the journal.
pub(crate) fn scan(bytes: &[u8], sealed: Option<&JournalHead>) -> Scan {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let rest = bytes.len() - whole;
    let torn = (rest > 0).then_some(Torn { offset_bytes: whole as u64, bytes: rest as u64 });
    let lines: Vec<Parsed> = bytes[..whole].split_inclusive(|&byte| byte == b'\n').map(Parsed::new).collect();
    let mut problems: Vec<JournalProblem> =
        (1..).zip(&lines).filter_map(|(line, parsed)| parsed.problem(line)).collect();
    problems.extend(Chain { lines: &lines, sealed }.problems());
    problems.sort_by_key(|problem| problem.line);
    problems.dedup_by_key(|problem| problem.line);
    let records = lines.into_iter().filter_map(|parsed| parsed.record.ok()).collect();
    Scan { records, problems, torn }
}

struct Parsed {
    digest: Sha256,
    record: Result<Record, JournalProblemKind>,
}

impl Parsed {
    fn new(line: &[u8]) -> Self {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let digest = Sha256::of(line);
        Parsed { digest, record: parse_line(line, digest) }
    }

    fn problem(&self, line: u64) -> Option<JournalProblem> {
        self.record.as_ref().err().map(|kind| JournalProblem { line, kind: kind.clone() })
    }
}

fn parse_line(line: &[u8], digest: Sha256) -> Result<Record, JournalProblemKind> {
    let malformed = |error: serde_json::Error| JournalProblemKind::Malformed { reason: error.to_string() };
    let header: Header = serde_json::from_slice(line).map_err(malformed)?;
    if header.schema != SCHEMA || header.version != VERSION {
        return Err(JournalProblemKind::Unreadable { schema: header.schema, version: header.version });
    }
    let LineIn { seq, previous, time_unix_ms, kind, payload, .. } =
        serde_json::from_slice(line).map_err(malformed)?;
    Ok(Record { seq, previous, time_unix_ms, kind, digest, payload })
}

/// Compares every line with its neighbours and blames the one that its other neighbour contradicts too.
///
/// When line 5 does not name line 4's digest, either may have been altered. Line 6 decides: if it still names line
/// 5's digest, line 5 is genuine and line 4 is not. For the last line the manifest decides; without one, the earlier
/// line is named, because altering the last line alone leaves no trace in an unsealed journal.
struct Chain<'a> {
    lines: &'a [Parsed],
    sealed: Option<&'a JournalHead>,
}

impl Chain<'_> {
    fn problems(&self) -> Vec<JournalProblem> {
        let mut found: Vec<(usize, JournalProblemKind)> = Vec::new();
        for at in 0..self.lines.len() {
            let explained = found.last().is_some_and(|&(blamed, _)| blamed + 1 == at)
                || (at > 0 && self.lines[at - 1].record.is_err());
            found.extend(self.link(at, explained));
        }
        found.extend(self.end());
        found.into_iter().map(|(at, kind)| JournalProblem { line: at as u64 + 1, kind }).collect()
    }

    /// What is wrong between line `at` and the one before, and which of the two is to blame.
    fn link(&self, at: usize, explained: bool) -> Option<(usize, JournalProblemKind)> {
        let record = self.lines[at].record.as_ref().ok()?;
        let before = at.checked_sub(1);
        let actual = before.map(|before| self.lines[before].digest);
        let confirmed = self.successor(at).is_none_or(|named| named == Some(self.lines[at].digest));
        let in_order = self.in_order(at);
        let sequence = JournalProblemKind::Sequence { expected: self.expected(at), found: record.seq };
        if record.previous == actual {
            return (!in_order && confirmed).then_some((at, sequence));
        }
        match (before, actual) {
            _ if explained => None,
            _ if !in_order && before.is_none_or(|before| self.in_order(before)) => Some((at, sequence)),
            (Some(before), Some(actual)) if confirmed => {
                Some((before, JournalProblemKind::Altered { named: record.previous, actual }))
            }
            _ => Some((at, JournalProblemKind::Predecessor { named: record.previous, actual })),
        }
    }

    /// The number that follows the line before; where that line cannot be read, the line's own place.
    fn expected(&self, at: usize) -> u64 {
        let before = at.checked_sub(1).and_then(|before| self.lines[before].record.as_ref().ok());
        before.map_or(at as u64, |record| record.seq.saturating_add(1))
    }

    fn in_order(&self, at: usize) -> bool {
        let unreadable_before = at > 0 && self.lines[at - 1].record.is_err();
        self.lines[at]
            .record
            .as_ref()
            .is_ok_and(|record| record.seq == self.expected(at) || unreadable_before)
    }

    /// What follows line `at` says its digest is: the next record, or the manifest; nothing if neither can tell.
    fn successor(&self, at: usize) -> Option<Option<Sha256>> {
        match self.lines.get(at + 1) {
            Some(next) => next.record.as_ref().ok().map(|record| record.previous),
            None => {
                self.sealed.filter(|sealed| sealed.records == at as u64 + 1).map(|sealed| Some(sealed.head))
            }
        }
    }

    fn end(&self) -> Option<(usize, JournalProblemKind)> {
        let (sealed, found) = (self.sealed?, self.lines.len());
        if sealed.records != found as u64 {
            let at = usize::try_from(sealed.records).map_or(found, |expected| expected.min(found));
            return Some((at, JournalProblemKind::Count { expected: sealed.records, found: found as u64 }));
        }
        let last = self.lines.last()?;
        let kind = JournalProblemKind::Altered { named: Some(sealed.head), actual: last.digest };
        (last.record.is_ok() && last.digest != sealed.head).then_some((found - 1, kind))
    }
}

/// The end of a journal that is being written.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    file: File,
    len: u64,
    records: u64,
    head: Option<Sha256>,
    failed: Arc<AtomicBool>,
}

/// Whether a record waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForTheDisk,
    ForNothing,
}

/// Waits for the disk on behalf of a [`Bundle`](crate::Bundle), on any thread: see
/// [`Bundle::append_deferred`](crate::Bundle::append_deferred).
///
/// The bundle stays locked against other processes until its syncers are gone too.
#[derive(Debug)]
pub struct Syncer {
    pub(crate) file: File,
    failed: Arc<AtomicBool>,
}

impl Syncer {
    /// Waits until every record that was appended before this call is on the disk. Records may be appended meanwhile.
    ///
    /// # Errors
    ///
    /// The storage failed. Nobody knows then what is on the disk, and the bundle refuses every further record.
    pub fn sync(&self) -> Result<(), StorageError> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        synced.storage("sync", JOURNAL)
    }
}

impl JournalWriter {
    pub(crate) fn new(file: File, len: u64, records: u64, head: Option<Sha256>) -> Self {
        JournalWriter { file, len, records, head, failed: Arc::default() }
    }

    /// How many records there are, which is the number of the next one.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Whether an earlier write left the file in an unknown state.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn syncer(&self) -> io::Result<Syncer> {
        Ok(Syncer { file: self.file.try_clone()?, failed: Arc::clone(&self.failed) })
    }

    /// Writes one record.
    pub(crate) fn append(&mut self, kind: &str, payload: &RawValue, wait: Wait) -> io::Result<Entry> {
        let line = LineOut {
            schema: SCHEMA,
            version: VERSION,
            seq: self.records,
            previous: self.head,
            time_unix_ms: unix_ms(),
            kind,
            payload,
        };
        let mut bytes = serde_json::to_vec(&line)?;
        let digest = Sha256::of(&bytes);
        bytes.push(b'\n');
        self.write_line(&bytes, wait)?;
        let entry = Entry { seq: self.records, digest };
        self.records += 1;
        self.head = Some(digest);
        Ok(entry)
    }

    /// A line that could not be written whole is taken back, so that the next one does not follow half a line.
    /// After a failed sync nobody knows what is on the disk, and the writer refuses to go on.
    fn write_line(&mut self, bytes: &[u8], wait: Wait) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            if self.file.set_len(self.len).is_err() {
                self.failed.store(true, Ordering::SeqCst);
            }
            return Err(error);
        }
        if wait == Wait::ForTheDisk
            && let Err(error) = self.file.sync_data()
        {
            self.failed.store(true, Ordering::SeqCst);
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Cuts the journal, at most once and before anything was appended.
    pub(crate) fn truncate(&mut self, len: u64) -> Result<(), StorageError> {
        self.file.set_len(len).and_then(|()| self.file.sync_all()).storage("cut", JOURNAL)?;
        self.len = len;
        Ok(())
    }

    pub(crate) fn head(&self, bytes: &[u8]) -> Option<JournalHead> {
        let head = self.head?;
        Some(JournalHead { records: self.records, bytes: self.len, sha256: Sha256::of(bytes), head })
    }
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "journal/tests.rs"]
mod tests;
