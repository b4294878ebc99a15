use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};

use memchr::memchr;

use crate::error::{Compression, RowError, RowErrorKind, TraceError};
use crate::record::{HashIds, Refused, Row, Rules, Scratch, parse};

/// Reads a trace row by row, each checked, in bounded memory.
///
/// A row borrows from the reader, so this is not an `Iterator`; call [`next_row`](TraceReader::next_row) in a loop. A
/// line that lies within the buffer of `R` is not copied.
///
/// ```
/// use mooncake_trace::TraceReader;
///
/// let trace = br#"{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [18446744073709551615]}"#;
/// let mut reader = TraceReader::new(&trace[..]);
/// while let Some(row) = reader.next_row()? {
///     assert_eq!(row.hash_ids, [u64::MAX]);
/// }
/// assert_eq!(reader.rows(), 1);
///
/// let mut reader = TraceReader::new(&br#"{"timestamp": 0, "input_length": 5, "output_length":2748 610}"#[..]);
/// let error = reader.next_row().unwrap_err();
/// assert!(error.to_string().starts_with("line 1, column 58: /output_length: "), "{error}");
/// # Ok::<(), mooncake_trace::TraceError>(())
/// ```
#[derive(Debug)]
pub struct TraceReader<R> {
    source: R,
    rules: Rules,
    file: Option<PathBuf>,
    /// A line that did not lie within one buffer of the source.
    carried: Vec<u8>,
    /// Bytes of the source's buffer that the last row still borrows.
    lent: usize,
    scratch: Scratch,
    rows: u64,
    previous_ms: u64,
    failed: bool,
}

/// Where the bytes of a line are.
enum Line {
    /// At the start of the source's buffer.
    Lent(usize),
    /// In `carried`.
    Carried,
    /// There is none: the trace has ended.
    End,
}

impl<R: BufRead> TraceReader<R> {
    /// A reader with the default rules.
    pub fn new(source: R) -> Self {
        Self::with_rules(source, Rules::default())
    }

    /// A reader with other rules.
    pub fn with_rules(source: R, rules: Rules) -> Self {
        TraceReader {
            source,
            rules,
            file: None,
            carried: Vec::new(),
            lent: 0,
            scratch: Scratch::default(),
            rows: 0,
            previous_ms: 0,
            failed: false,
        }
    }

    /// Checks block ids without keeping them: rows come without [`Row::hash_ids`], which saves a quarter of the work.
    pub(crate) fn only_counting_ids(mut self) -> Self {
        self.scratch.hash_ids = HashIds::only_counted();
        self
    }

    /// Gives errors the name of the trace.
    #[must_use]
    pub fn named(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next row, or `None` after the last. After an error there are no more rows.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or the next row is not acceptable.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        if self.failed {
            return Ok(None);
        }
        // Set first: an early return leaves it set.
        self.failed = true;
        let bytes = match self.next_line()? {
            Line::End => return Ok(None),
            Line::Lent(length) => lent_bytes(&mut self.source, length, self.rows)?,
            Line::Carried => &self.carried,
        };
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let fields = match parse(line, &self.rules, self.previous_ms, &mut self.scratch) {
            Ok(fields) => fields,
            Err(refused) => {
                let refused = explain_start(line, self.rows == 0, refused);
                return Err(locate(self.file.as_deref(), self.rows, refused));
            }
        };
        self.failed = false;
        self.previous_ms = fields.timestamp_ms;
        self.rows += 1;
        Ok(Some(Row {
            index: self.rows - 1,
            timestamp_ms: fields.timestamp_ms,
            input_length: fields.input_length,
            output_length: fields.output_length,
            hash_ids: self.scratch.hash_ids.as_slice(),
            other_fields: &self.scratch.other_fields,
            bytes,
            hash_count: self.scratch.hash_ids.count(),
        }))
    }

    /// The source, standing right after the last row.
    pub fn into_source(mut self) -> R {
        self.settle();
        self.source
    }

    /// Takes back the bytes of the last row.
    fn settle(&mut self) {
        self.source.consume(std::mem::take(&mut self.lent));
    }

    fn next_line(&mut self) -> Result<Line, TraceError> {
        self.settle();
        self.carried.clear();
        loop {
            let buffer = fill(&mut self.source, self.rows)?;
            if buffer.is_empty() {
                return Ok(if self.carried.is_empty() { Line::End } else { Line::Carried });
            }
            let (length, ended) = match memchr(b'\n', buffer) {
                Some(end) => (end + 1, true),
                None => (buffer.len(), false),
            };
            let content = self.carried.len() + length - usize::from(ended);
            if content > self.rules.max_line_bytes {
                return Err(self.too_long());
            }
            if ended && self.carried.is_empty() {
                self.lent = length;
                return Ok(Line::Lent(length));
            }
            self.carried.extend_from_slice(&buffer[..length]);
            self.source.consume(length);
            if ended {
                return Ok(Line::Carried);
            }
        }
    }

    /// A line beyond the limit; a compressed file may well look like one.
    fn too_long(&mut self) -> TraceError {
        let limit_bytes = self.rules.max_line_bytes;
        let kind = RowErrorKind::LineTooLong { limit_bytes };
        let refused = Refused { at: limit_bytes, pointer: String::new(), kind };
        if self.carried.is_empty()
            && let Ok(buffer) = self.source.fill_buf()
        {
            self.carried.extend_from_slice(&buffer[..buffer.len().min(8)]);
        }
        let refused = explain_start(&self.carried, self.rows == 0, refused);
        locate(self.file.as_deref(), self.rows, refused)
    }
}

/// The source's buffer, filled if it was empty.
fn fill<R: BufRead>(source: &mut R, line: u64) -> Result<&[u8], TraceError> {
    // Twice, because a borrow that is returned from a loop would last for the whole loop.
    while let Err(error) = source.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(TraceError::Read { line, source: error });
        }
    }
    source.fill_buf().map_err(|source| TraceError::Read { line, source })
}

/// Bytes that `fill` has already shown.
fn lent_bytes<R: BufRead>(source: &mut R, length: usize, line: u64) -> Result<&[u8], TraceError> {
    let lost = || TraceError::Read { line, source: io::Error::other("the reader lost buffered bytes") };
    fill(source, line)?.get(..length).ok_or_else(lost)
}

/// Says what the first bytes of a file are, where they explain a refusal better than JSON does.
fn explain_start(line: &[u8], first: bool, refused: Refused) -> Refused {
    let start = |kind| Refused { at: 0, pointer: String::new(), kind };
    if !first {
        refused
    } else if let Some(format) = Compression::of(line) {
        start(RowErrorKind::Compressed { format })
    } else if line.starts_with(b"\xef\xbb\xbf") {
        start(RowErrorKind::ByteOrderMark)
    } else {
        refused
    }
}

fn locate(file: Option<&Path>, rows: u64, refused: Refused) -> TraceError {
    let Refused { at, pointer, kind } = refused;
    let file = file.map(Path::to_owned);
    RowError { file, line: rows + 1, column: at as u64 + 1, pointer, kind }.into()
}

#[cfg(test)]
mod tests;
