//! From bytes to lines.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::check::Builder;
use super::error::{Fault, TraceError};
use super::row::Row;
use super::trace::Trace;

/// How much is read at once. A longer line makes the buffer grow.
const CHUNK_BYTES: usize = 1 << 20;

impl Trace {
    /// Reads and checks a whole trace.
    ///
    /// Besides the trace itself, memory holds one chunk of the file and the longest line.
    ///
    /// # Errors
    ///
    /// The input cannot be read, or is not a valid trace: the first broken rule, with line and column.
    pub fn read(mut input: impl Read) -> Result<Trace, TraceError> {
        let mut lines = Lines::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                buffer.resize(buffer.len().saturating_mul(2), 0);
            }
            let read = match input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(TraceError::Read(error)),
            };
            let scanned = filled;
            filled += read;
            if let Some(newline) = memchr::memrchr(b'\n', &buffer[scanned..filled]) {
                let whole = scanned + newline + 1;
                lines.whole(&buffer[..whole])?;
                buffer.copy_within(whole..filled, 0);
                filled -= whole;
            }
        }
        lines.last(&buffer[..filled])?;
        Ok(lines.builder.finish()?)
    }

    /// Reads and checks the trace in this file.
    ///
    /// # Errors
    ///
    /// As [`Trace::read`], or the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Trace::read(file)
    }

    /// Reads and checks the trace in these bytes.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn parse(bytes: &[u8]) -> Result<Trace, Fault> {
        let mut lines = Lines::default();
        lines.whole(bytes)?;
        lines.builder.finish()
    }
}

/// Numbers the lines and gives them to the builder.
#[derive(Debug, Default)]
struct Lines {
    number: u64,
    builder: Builder,
}

impl Lines {
    /// Takes these lines; text after the last newline is a line too.
    fn whole(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut row = Row::new();
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', bytes) {
            self.line(&bytes[start..newline], &mut row)?;
            start = newline + 1;
        }
        if start < bytes.len() { self.line(&bytes[start..], &mut row) } else { Ok(()) }
    }

    fn last(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() { Ok(()) } else { self.line(bytes, &mut Row::new()) }
    }

    fn line<'a>(&mut self, line: &'a [u8], row: &mut Row<'a>) -> Result<(), Fault> {
        self.number += 1;
        self.builder.line(self.number, line, row)
    }
}
