use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use canonical_json::Sha256;

/// A row was refused: where, and why.
///
/// Displayed as `FILE:LINE:COLUMN: POINTER: WHY`, which editors and `grep` users know how to follow.
#[derive(Debug)]
#[non_exhaustive]
pub struct RowError {
    /// The trace, if the reader was given its name.
    pub file: Option<PathBuf>,
    /// Line in the file, counted from 1.
    pub line: u64,
    /// Byte in the line, counted from 1.
    pub column: u64,
    /// The value inside the row, as an RFC 6901 JSON pointer; empty for the row itself.
    pub pointer: String,
    /// What was expected and what was found.
    pub kind: RowErrorKind,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}:{}: ", file.display(), self.line, self.column)?,
            None => write!(f, "line {}, column {}: ", self.line, self.column)?,
        }
        if !self.pointer.is_empty() {
            write!(f, "{}: ", self.pointer)?;
        }
        self.kind.fmt(f)
    }
}

impl Error for RowError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

/// Why a row was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowErrorKind {
    /// The line is not one JSON value.
    #[error("expected one JSON object per line")]
    Json {
        /// What the JSON reader met.
        #[source]
        problem: canonical_json::ReadErrorKind,
    },
    /// The line is JSON, but not an object.
    #[error("expected a JSON object, found {found}")]
    NotAnObject {
        /// The kind of value found.
        found: String,
    },
    /// A field is absent.
    #[error("expected {expected}, found no such field")]
    Missing {
        /// What the field holds.
        expected: Expected,
    },
    /// A field holds something else: a string, `null`, a negative, fractional or too large number.
    #[error("expected {expected}, found {found}")]
    Value {
        /// What the field must hold.
        expected: Expected,
        /// The number as written, or the kind of value.
        found: String,
    },
    /// The row arrived before the row above it.
    #[error("expected at least {previous_ms} ms, the timestamp of the row above, found {timestamp_ms} ms")]
    TimestampWentBack {
        /// The row above.
        previous_ms: u64,
        /// This row.
        timestamp_ms: u64,
    },
    /// The number of block ids does not fit the prompt.
    #[error(
        "expected {}{expected} block ids for {input_length} tokens in blocks of {block_size}, found {found}",
        bound(*.at_least)
    )]
    HashCount {
        /// Blocks that hold the prompt.
        expected: u64,
        /// Ids in the row.
        found: u64,
        /// Tokens of the prompt.
        input_length: u64,
        /// Tokens per block.
        block_size: u32,
        /// Whether more ids would have been accepted.
        at_least: bool,
    },
    /// The row belongs to a session of several turns, which a window of rows would cut in two.
    #[error("expected a single-turn row, found the multi-turn field `{name}`")]
    MultiTurn {
        /// The field.
        name: String,
    },
    /// The field has another name in this file.
    #[error("expected the field name `{field}`, found its alias `{name}`")]
    Alias {
        /// The name found.
        name: String,
        /// The name a Mooncake trace has for it.
        field: &'static str,
    },
    /// A field that no rule speaks of.
    #[error(
        "expected only the fields of a Mooncake row, found `{name}` (the rule for unknown fields is: reject)"
    )]
    UnknownField {
        /// The field.
        name: String,
    },
    /// Unknown fields are kept, but there are too many different names to list them in the manifest.
    #[error("expected at most {limit} different unknown field names in a window, found one more")]
    TooManyFieldNames {
        /// The limit.
        limit: usize,
    },
    /// Nothing stands on the line; a row number would no longer be a line number.
    #[error("expected a JSON object, found an empty line")]
    EmptyLine,
    /// The line is longer than the rules allow.
    #[error("expected a line of at most {limit_bytes} bytes, found a longer one")]
    LineTooLong {
        /// The limit, without the line ending.
        limit_bytes: usize,
    },
    /// The file is compressed. Traces are named by the digest of their text, so it must be decompressed first.
    #[error("expected JSON lines, found {format} data: decompress the trace first")]
    Compressed {
        /// The format its first bytes announce.
        format: Compression,
    },
    /// The file starts with a byte order mark, which JSON forbids.
    #[error("expected a JSON object, found a byte order mark")]
    ByteOrderMark,
    /// A sum over the window does not fit 64 bits.
    #[error("expected sums over the window to fit 64 bits, found more")]
    TotalOverflow,
}

impl RowErrorKind {
    /// A stable name for programs; the message is for people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            RowErrorKind::Json { .. } => "json",
            RowErrorKind::NotAnObject { .. } => "not-an-object",
            RowErrorKind::Missing { .. } => "missing-field",
            RowErrorKind::Value { .. } => "value",
            RowErrorKind::TimestampWentBack { .. } => "timestamp-went-back",
            RowErrorKind::HashCount { .. } => "hash-count",
            RowErrorKind::MultiTurn { .. } => "multi-turn",
            RowErrorKind::Alias { .. } => "alias",
            RowErrorKind::UnknownField { .. } => "unknown-field",
            RowErrorKind::TooManyFieldNames { .. } => "too-many-field-names",
            RowErrorKind::EmptyLine => "empty-line",
            RowErrorKind::LineTooLong { .. } => "line-too-long",
            RowErrorKind::Compressed { .. } => "compressed",
            RowErrorKind::ByteOrderMark => "byte-order-mark",
            RowErrorKind::TotalOverflow => "total-overflow",
        }
    }
}

fn bound(at_least: bool) -> &'static str {
    if at_least { "at least " } else { "" }
}

/// What a field of a row must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// The arrival time.
    TimestampMs,
    /// The prompt, in tokens.
    InputLength,
    /// The answer, in tokens.
    OutputLength,
    /// The block ids.
    HashIds,
    /// One block id.
    HashId,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Expected::TimestampMs => "a whole number of milliseconds from 0 to 9007199254740992",
            Expected::InputLength => "a whole number of tokens from 1 to 4294967295",
            Expected::OutputLength => "a whole number of tokens from 0 to 4294967295",
            Expected::HashIds => "an array of block ids",
            Expected::HashId => "a whole number from 0 to 18446744073709551615",
        })
    }
}

/// A compression format, recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// `.gz`
    Gzip,
    /// `.zst`
    Zstd,
    /// `.xz`
    Xz,
    /// `.bz2`
    Bzip2,
    /// `.lz4`
    Lz4,
    /// `.zip`
    Zip,
}

impl Compression {
    const MAGIC: [(&'static [u8], Compression); 6] = [
        (b"\x1f\x8b", Compression::Gzip),
        (b"\x28\xb5\x2f\xfd", Compression::Zstd),
        (b"\xfd7zXZ\x00", Compression::Xz),
        (b"BZh", Compression::Bzip2),
        (b"\x04\x22\x4d\x18", Compression::Lz4),
        (b"PK\x03\x04", Compression::Zip),
    ];

    /// The format a file that starts with these bytes is in.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        Self::MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, format)| *format)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
            Compression::Bzip2 => "bzip2",
            Compression::Lz4 => "lz4",
            Compression::Zip => "zip",
        })
    }
}

/// Why a trace could not be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system failed to deliver bytes.
    #[error("cannot read the trace after line {line}")]
    Read {
        /// Lines read before.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A row was refused.
    #[error(transparent)]
    Row(Box<RowError>),
}

/// Why no slice was made. Unless the error says so, nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// The trace cannot be opened.
    #[error("cannot open the trace {}", path.display())]
    Open {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The trace cannot be read, or a row of it was refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The window is longer than what is left of the trace. It is never padded, and never made shorter.
    #[error("the trace has {rows} rows, and the window ends after row {end}")]
    TraceTooShort {
        /// Rows in the trace.
        rows: u64,
        /// Rows needed.
        end: u64,
    },
    /// The trace is not the one that was asked for.
    #[error("the trace has SHA-256 {found}, and {expected} was asked for")]
    UnexpectedSource {
        /// Asked for.
        expected: Sha256,
        /// Read.
        found: Sha256,
    },
    /// The window is not the one that was asked for.
    #[error("the slice has SHA-256 {found}, and {expected} was asked for")]
    UnexpectedSlice {
        /// Asked for.
        expected: Sha256,
        /// Cut.
        found: Sha256,
    },
    /// Somebody wrote to the trace while it was read.
    #[error("the trace {} changed while it was read", path.display())]
    SourceChanged {
        /// The trace.
        path: PathBuf,
    },
    /// A file stands where the slice or its manifest would go.
    #[error("{} exists already", path.display())]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// What stands there is not a regular file, so it is not replaced even when asked to.
    #[error("{} is not a regular file and will not be replaced", path.display())]
    OutputNotRegular {
        /// The directory, device or link.
        path: PathBuf,
    },
    /// The output would replace the trace it is cut from.
    #[error("{} is the trace itself and will not be replaced", path.display())]
    OutputIsTrace {
        /// The file.
        path: PathBuf,
    },
    /// The slice cannot be written.
    #[error("cannot write the slice")]
    Write {
        /// Why: a full disk, for one.
        source: io::Error,
    },
    /// A file cannot be put in place.
    #[error("cannot create {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped while reading row {row}")]
    Cancelled {
        /// Rows read before.
        row: u64,
    },
}

impl From<RowError> for TraceError {
    fn from(error: RowError) -> Self {
        TraceError::Row(Box::new(error))
    }
}
