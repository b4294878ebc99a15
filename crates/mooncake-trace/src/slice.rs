use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::path::Path;

use canonical_json::Sha256;

use crate::error::{RowError, RowErrorKind, SliceError, TraceError};
use crate::hashed::{HashedSink, HashedSource};
use crate::known::recognise;
use crate::manifest::{SliceManifest, SliceRecord, SourceRecord};
use crate::publish::Output;
use crate::reader::TraceReader;
use crate::record::{Row, Rules};
use crate::window::Window;

/// Different unknown field names a manifest may list.
const MAX_FIELD_NAMES: usize = 64;
/// Rows between two looks at the caller's wish to stop.
const ROWS_PER_POLL: u64 = 1 << 10;

/// Cuts `window` out of a trace that is read once to its end, with the default [`Rules`].
///
/// Every row of the source is checked, those after the window too: its digest has to be computed anyway, and a trace
/// that is broken further on is not the trace it claims to be. The original bytes of the window go to `out`. When this
/// fails, `out` may hold part of the window; [`slice_file`] leaves nothing behind.
///
/// # Errors
///
/// The trace cannot be read, a row is refused, the trace ends before the window does, or `out` fails.
pub fn slice<R: Read, W: Write>(source: R, window: &Window, out: W) -> Result<SliceManifest, SliceError> {
    Slicer::new(*window).slice(source, out)
}

/// Cuts `window` out of the trace at `trace`, with the default [`Rules`], into the file `out`, and writes
/// `OUT.manifest.json` beside it.
///
/// Both files appear whole or not at all, the manifest last: a slice with a manifest is finished.
///
/// # Errors
///
/// As [`slice()`]; also if either file exists already.
pub fn slice_file(trace: &Path, window: &Window, out: &Path) -> Result<SliceManifest, SliceError> {
    Slicer::new(*window).slice_file(trace, out)
}

/// Cuts a window, with options.
///
/// ```
/// use mooncake_trace::{Rules, Slicer, Window};
///
/// let mut rules = Rules::default();
/// rules.block_size = 16.try_into()?;
/// let trace = br#"{"timestamp":0,"input_length":17,"output_length":1,"hash_ids":[5,6]}"#;
/// let manifest = Slicer::new(Window::new(0, 1)?).rules(rules).slice(&trace[..], std::io::sink())?;
/// assert_eq!(manifest.rules.block_size.get(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Slicer<'a> {
    window: Window,
    rules: Rules,
    replace: bool,
    expected_source: Option<Sha256>,
    expected_slice: Option<Sha256>,
    stop: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Slicer<'a> {
    /// A slicer with the default rules that replaces no file.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Slicer {
            window,
            rules: Rules::default(),
            replace: false,
            expected_source: None,
            expected_slice: None,
            stop: None,
        }
    }

    /// The rules rows are held against.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Whether an existing slice and manifest may be replaced. Only regular files ever are, and never the trace.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Refuses any other trace than this one.
    #[must_use]
    pub fn expect_source(mut self, sha256: Sha256) -> Self {
        self.expected_source = Some(sha256);
        self
    }

    /// Refuses any other slice than this one.
    #[must_use]
    pub fn expect_slice(mut self, sha256: Sha256) -> Self {
        self.expected_slice = Some(sha256);
        self
    }

    /// A question asked every thousand rows or so: once it answers yes, slicing ends with [`SliceError::Cancelled`].
    #[must_use]
    pub fn stop_when(mut self, stop: &'a dyn Fn() -> bool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// As [`slice()`].
    ///
    /// # Errors
    ///
    /// As [`slice()`]; also if a digest is not the expected one.
    pub fn slice<R: Read, W: Write>(&self, source: R, out: W) -> Result<SliceManifest, SliceError> {
        self.cut(source, out, None)
    }

    /// As [`slice_file`].
    ///
    /// # Errors
    ///
    /// As [`slice_file`]; also if a digest is not the expected one.
    pub fn slice_file(&self, trace: &Path, out: &Path) -> Result<SliceManifest, SliceError> {
        let open = |source| SliceError::Open { path: trace.to_owned(), source };
        let file = File::open(trace).map_err(open)?;
        let before = file.metadata().map_err(open)?;
        let mut output = Output::create(out, &before, self.replace)?;
        let manifest = self.cut(&file, output.slice_file(), Some(trace))?;
        let after = file.metadata().map_err(open)?;
        if changed(&before, &after, manifest.source.bytes) {
            return Err(SliceError::SourceChanged { path: trace.to_owned() });
        }
        output.publish(&manifest)?;
        Ok(manifest)
    }

    fn cut<R: Read, W: Write>(
        &self,
        source: R,
        out: W,
        name: Option<&Path>,
    ) -> Result<SliceManifest, SliceError> {
        let mut reader =
            TraceReader::with_rules(HashedSource::new(source), self.rules.clone()).only_counting_ids();
        if let Some(name) = name {
            reader = reader.named(name);
        }
        let mut cut = Cut::new(out);
        while let Some(row) = reader.next_row()? {
            if self.window.contains(row.index) {
                cut.take(&row).map_err(|problem| problem.at(&row, name))?;
            }
            if row.index % ROWS_PER_POLL == 0 {
                self.poll(row.index)?;
            }
        }
        let rows = reader.rows();
        if rows < self.window.end() {
            return Err(SliceError::TraceTooShort { rows, end: self.window.end() });
        }
        let source = source_record(reader.into_source(), rows);
        let slice = cut.finish(self.window)?;
        self.hold_against_expectations(&source, &slice)?;
        Ok(SliceManifest::new(source, self.window, slice, self.rules.clone()))
    }

    fn poll(&self, row: u64) -> Result<(), SliceError> {
        match self.stop {
            Some(stop) if stop() => Err(SliceError::Cancelled { row }),
            _ => Ok(()),
        }
    }

    fn hold_against_expectations(
        &self,
        source: &SourceRecord,
        slice: &SliceRecord,
    ) -> Result<(), SliceError> {
        if let Some(expected) = self.expected_source.filter(|expected| *expected != source.sha256) {
            return Err(SliceError::UnexpectedSource { expected, found: source.sha256 });
        }
        if let Some(expected) = self.expected_slice.filter(|expected| *expected != slice.sha256) {
            return Err(SliceError::UnexpectedSlice { expected, found: slice.sha256 });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Slicer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slicer")
            .field("window", &self.window)
            .field("rules", &self.rules)
            .field("replace", &self.replace)
            .field("expected_source", &self.expected_source)
            .field("expected_slice", &self.expected_slice)
            .finish_non_exhaustive()
    }
}

fn source_record<R: Read>(source: HashedSource<R>, rows: u64) -> SourceRecord {
    let (sha256, bytes) = source.finish();
    SourceRecord { sha256, bytes, rows, known: recognise(&sha256) }
}

/// Whether a file that was read from its start to its end is not what it was before. Pipes have no size to compare.
fn changed(before: &Metadata, after: &Metadata, bytes_read: u64) -> bool {
    before.is_file()
        && (after.len() != bytes_read
            || before.len() != bytes_read
            || before.modified().ok() != after.modified().ok())
}

/// The window while it is being copied.
struct Cut<W> {
    sink: HashedSink<W>,
    first_timestamp_ms: Option<u64>,
    last_timestamp_ms: u64,
    input_tokens: u64,
    output_tokens: u64,
    hash_ids: u64,
    rows_without_output: u64,
    crlf_rows: u64,
    ends_with_newline: bool,
    other_fields: BTreeMap<String, u64>,
}

/// Why a row could not be taken.
enum Problem {
    Row(RowErrorKind),
    Write(io::Error),
}

impl Problem {
    fn at(self, row: &Row<'_>, name: Option<&Path>) -> SliceError {
        match self {
            Problem::Write(source) => SliceError::Write { source },
            Problem::Row(kind) => {
                let file = name.map(Path::to_owned);
                let error = RowError { file, line: row.index + 1, column: 1, pointer: String::new(), kind };
                SliceError::Trace(TraceError::from(error))
            }
        }
    }
}

impl<W: Write> Cut<W> {
    fn new(out: W) -> Self {
        Cut {
            sink: HashedSink::new(out),
            first_timestamp_ms: None,
            last_timestamp_ms: 0,
            input_tokens: 0,
            output_tokens: 0,
            hash_ids: 0,
            rows_without_output: 0,
            crlf_rows: 0,
            ends_with_newline: false,
            other_fields: BTreeMap::new(),
        }
    }

    fn take(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        self.sink.write(row.bytes).map_err(Problem::Write)?;
        self.first_timestamp_ms.get_or_insert(row.timestamp_ms);
        self.last_timestamp_ms = row.timestamp_ms;
        add(&mut self.input_tokens, row.input_length)?;
        add(&mut self.output_tokens, row.output_length)?;
        add(&mut self.hash_ids, row.hash_count as u64)?;
        self.rows_without_output += u64::from(row.output_length == 0);
        self.crlf_rows += u64::from(row.has_crlf());
        self.ends_with_newline = row.has_newline();
        row.other_fields.iter().try_for_each(|name| self.count_field(name))
    }

    fn count_field(&mut self, name: &str) -> Result<(), Problem> {
        if let Some(count) = self.other_fields.get_mut(name) {
            *count += 1;
            return Ok(());
        }
        if self.other_fields.len() == MAX_FIELD_NAMES {
            return Err(Problem::Row(RowErrorKind::TooManyFieldNames { limit: MAX_FIELD_NAMES }));
        }
        self.other_fields.insert(name.to_owned(), 1);
        Ok(())
    }

    fn finish(self, window: Window) -> Result<SliceRecord, SliceError> {
        let (sha256, bytes) = self.sink.finish().map_err(|source| SliceError::Write { source })?;
        Ok(SliceRecord {
            sha256,
            bytes,
            rows: NonZeroU64::new(window.count()).expect("a window is never empty"),
            first_timestamp_ms: self.first_timestamp_ms.expect("a window that was reached has a first row"),
            last_timestamp_ms: self.last_timestamp_ms,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            hash_ids: self.hash_ids,
            rows_without_output: self.rows_without_output,
            crlf_rows: self.crlf_rows,
            ends_with_newline: self.ends_with_newline,
            other_fields: self.other_fields,
            known: recognise(&sha256),
        })
    }
}

fn add(sum: &mut u64, value: u64) -> Result<(), Problem> {
    *sum = sum.checked_add(value).ok_or(Problem::Row(RowErrorKind::TotalOverflow))?;
    Ok(())
}

#[cfg(test)]
mod tests;
