//! From bytes to lines.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::check::Builder;
use super::error::{Fault, TraceError};
use super::row::{Layout, Row};
use super::trace::Trace;

/// How much is read at once. A longer line makes the buffer grow.
const CHUNK_BYTES: usize = 1 << 20;

/// The longest line that is read: what has no newline, such as a device, must not take all memory.
const MAX_LINE_BYTES: usize = 1 << 30;

/// How many rows are read before the first of them is checked, so that what checking them needs is fetched from memory all
/// at once. What they hold stays in the processor's cache meanwhile.
const BATCH_ROWS: usize = 32;
const BATCH_BYTES: usize = 64 << 10;

impl Trace {
    /// Reads and checks a whole trace.
    ///
    /// Besides the trace itself, memory holds one chunk of the file and the longest line, which may have 1 GiB.
    ///
    /// # Errors
    ///
    /// The input cannot be read, or is not a valid trace: the first broken rule, with line and column.
    pub fn read(input: impl Read) -> Result<Trace, TraceError> {
        Trace::read_lines(input, MAX_LINE_BYTES)
    }

    fn read_lines(mut input: impl Read, max_line_bytes: usize) -> Result<Trace, TraceError> {
        let mut lines = Lines::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                let (line, limit) = (lines.number + 1, buffer.len());
                grow(&mut buffer, max_line_bytes).ok_or(TraceError::LineTooLong { line, limit })?;
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

/// Doubles a buffer that holds a part of one line; nothing when the line is too long, or there is no memory.
fn grow(buffer: &mut Vec<u8>, max_bytes: usize) -> Option<()> {
    let more = buffer.len();
    if more >= max_bytes {
        return None;
    }
    buffer.try_reserve_exact(more).ok()?;
    buffer.resize(2 * more, 0);
    Some(())
}

/// Numbers the lines and gives them to the builder.
#[derive(Debug, Default)]
struct Lines {
    number: u64,
    builder: Builder,
    layout: Layout,
}

impl Lines {
    /// Takes these lines; text after the last newline is a line too.
    fn whole(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut rows: Vec<Row<'_>> = (0..BATCH_ROWS).map(|_| Row::new()).collect();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (read, after) = read_batch(&mut rows, rest, &mut self.layout);
            self.builder.warm(read);
            for row in read {
                self.number += 1;
                self.builder.row(self.number, row)?;
            }
            rest = after;
        }
        Ok(())
    }

    fn last(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() { Ok(()) } else { self.whole(bytes) }
    }
}

/// Reads lines into rows until there are no more of either, or enough; gives these rows and the bytes that are left.
fn read_batch<'r, 'a>(
    rows: &'r mut [Row<'a>],
    bytes: &'a [u8],
    layout: &mut Layout,
) -> (&'r mut [Row<'a>], &'a [u8]) {
    let mut start = 0;
    let mut read = 0;
    while read < rows.len() && start < bytes.len().min(BATCH_BYTES) {
        let rest = &bytes[start..];
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        rows[read].read(&rest[..length], layout);
        read += 1;
        start += length + 1;
    }
    (&mut rows[..read], bytes.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let few = buffer.len().min(self.1);
            self.0.read(&mut buffer[..few])
        }
    }

    fn trace(lines: u64, broken: u64, key: &str) -> String {
        let mut text = String::from("{\"type\":\"master_rpc_trace\",\"version\":1,\"time_unit\":\"us\"}\n");
        for line in 2..=lines {
            let op = if line == broken { "Unheard" } else { "BatchRemove" };
            text += &format!(
                "{{\"id\":\"{line}\",\"timestamp_us\":0,\"client_id\":\"c\",\"op\":\"{op}\",\"keys\":[\"{key}\"]}}\n"
            );
        }
        text
    }

    fn check(text: &str, expected: Option<u64>) {
        let parsed = Trace::parse(text.as_bytes());
        assert_eq!(parsed.as_ref().err().and_then(|fault| fault.line), expected);
        for at_once in [7, 100_000, usize::MAX] {
            match (Trace::read(Slow(text.as_bytes(), at_once)), &parsed) {
                (Ok(trace), Ok(parsed)) => assert_eq!(trace.len(), parsed.len()),
                (Err(TraceError::Invalid(fault)), Err(parsed)) => assert_eq!(&fault, parsed),
                (read, _) => panic!("{read:?}"),
            }
        }
    }

    #[test]
    fn a_line_without_end_does_not_take_all_memory() {
        let header = r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#.to_owned() + "\n";
        let endless = header.as_bytes().chain(std::io::repeat(b' '));
        let error = Trace::read_lines(endless, 4 * CHUNK_BYTES).expect_err("too long");
        assert!(
            matches!(error, TraceError::LineTooLong { line: 2, limit } if limit == 4 * CHUNK_BYTES),
            "{error}"
        );
        // As long as it may be, in a file of several.
        let long = trace(2, 0, &"k".repeat(2 * CHUNK_BYTES));
        assert_eq!(Trace::read_lines(long.as_bytes(), 4 * CHUNK_BYTES).expect("valid").len(), 1);
    }

    #[test]
    fn a_fault_is_found_wherever_it_is_in_a_batch() {
        check(&trace(100, 0, "k"), None);
        for broken in 2..=100 {
            check(&trace(100, broken, "k"), Some(broken));
        }
    }

    /// Reads this far and then fails.
    struct Broken<'a>(&'a [u8]);

    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("broken")),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn what_comes_first_in_the_input_is_reported() {
        let read = |text: &str| Trace::read(Broken(text.as_bytes()));
        assert!(matches!(read(&trace(40_000, 0, "key")), Err(TraceError::Read(_))));
        let fault = read(&trace(40_000, 20_000, "key"));
        assert!(matches!(&fault, Err(TraceError::Invalid(fault)) if fault.line == Some(20_000)), "{fault:?}");
        // Nobody waits for the end of an input that is wrong already.
        let endless = std::io::repeat(b'\n');
        let fault = Trace::read(trace(40_000, 30_000, "key").as_bytes().chain(endless));
        assert!(matches!(&fault, Err(TraceError::Invalid(fault)) if fault.line == Some(30_000)), "{fault:?}");
    }

    #[test]
    fn a_line_may_be_longer_than_a_batch() {
        let key = "k".repeat(BATCH_BYTES + 1);
        check(&trace(5, 0, &key), None);
        check(&trace(5, 4, &key), Some(4));
        check(trace(5, 5, &key).trim_end(), Some(5));
    }

    #[test]
    fn blank_lines_count() {
        let text = trace(40, 33, "k").replace('\n', "\n \r\t\n\n");
        check(&text, Some(32 * 3 + 1));
    }
}
