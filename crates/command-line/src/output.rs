use std::io::{self, BufWriter, ErrorKind, Stdout, Write};

/// Standard output for results. When the reader has gone away (`| head`), the rest is dropped quietly, as every
/// well-behaved filter does; any other failure, a full disk for one, stays an error.
#[derive(Debug)]
pub struct Output<W: Write = BufWriter<Stdout>> {
    inner: W,
    closed: bool,
}

impl Output {
    /// Buffered standard output; call `flush` before the process ends.
    #[must_use]
    pub fn stdout() -> Self {
        Output::new(BufWriter::new(io::stdout()))
    }
}

impl<W: Write> Output<W> {
    /// Wraps any writer.
    pub fn new(inner: W) -> Self {
        Output { inner, closed: false }
    }

    /// Whether the reader has gone away.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn forgive<T>(&mut self, result: io::Result<T>, dropped: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(dropped)
            }
            other => other,
        }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.forgive(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let result = self.inner.flush();
        self.forgive(result, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    fn check(kind: ErrorKind, forgiven: bool) {
        let mut out = Output::new(Failing(kind));
        assert_eq!(out.write_all(b"x").is_ok(), forgiven);
        assert_eq!(out.flush().is_ok(), forgiven);
        assert_eq!(out.is_closed(), forgiven);
    }

    #[test]
    fn only_a_closed_pipe_is_forgiven() {
        check(ErrorKind::BrokenPipe, true);
        check(ErrorKind::StorageFull, false);
        check(ErrorKind::Other, false);
    }
}
