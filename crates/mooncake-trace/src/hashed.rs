//! Bytes on their way in and out, hashed as they pass, so that a file of any size is read once.

use std::io::{self, BufRead, Read, Write};

use canonical_json::Sha256;
use sha2::Digest;

/// Bytes read and hashed at a time: within the second-level cache of any current core, and few system calls.
const CHUNK_BYTES: usize = 128 << 10;

fn finished(hasher: sha2::Sha256) -> Sha256 {
    Sha256::from_bytes(hasher.finalize().into())
}

/// A buffered reader that hashes everything it hands out.
#[derive(Debug)]
pub(crate) struct HashedSource<R> {
    inner: R,
    buffer: Box<[u8]>,
    /// `buffer[at..filled]` is still to be consumed, `buffer[..hashed]` has been hashed.
    at: usize,
    filled: usize,
    hashed: usize,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl<R: Read> HashedSource<R> {
    pub(crate) fn new(inner: R) -> Self {
        HashedSource {
            inner,
            buffer: vec![0; CHUNK_BYTES].into_boxed_slice(),
            at: 0,
            filled: 0,
            hashed: 0,
            hasher: sha2::Sha256::new(),
            bytes: 0,
        }
    }

    /// The digest of what has been consumed, which is not more than what has been read.
    pub(crate) fn digest_so_far(&mut self) -> Sha256 {
        self.hash_to(self.at);
        finished(self.hasher.clone())
    }

    /// Bytes consumed.
    pub(crate) fn consumed_bytes(&self) -> u64 {
        self.bytes
    }

    /// Hashes in long runs, because every call costs something: what is consumed line by line is hashed chunk by chunk.
    fn hash_to(&mut self, end: usize) {
        self.hasher.update(&self.buffer[self.hashed..end]);
        self.hashed = end;
    }

    fn refill(&mut self) -> io::Result<()> {
        self.hash_to(self.filled);
        (self.at, self.filled, self.hashed) = (0, 0, 0);
        self.filled = self.inner.read(&mut self.buffer)?;
        Ok(())
    }
}

impl<R: Read> BufRead for HashedSource<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            self.refill()?;
        }
        Ok(&self.buffer[self.at..self.filled])
    }

    fn consume(&mut self, amount: usize) {
        debug_assert!(amount <= self.filled - self.at, "only what was handed out can be consumed");
        self.at += amount;
        self.bytes += amount as u64;
    }
}

impl<R: Read> Read for HashedSource<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

/// A buffered writer that hashes everything it writes.
#[derive(Debug)]
pub(crate) struct HashedSink<W> {
    inner: W,
    pending: Vec<u8>,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl<W: Write> HashedSink<W> {
    pub(crate) fn new(inner: W) -> Self {
        HashedSink { inner, pending: Vec::with_capacity(CHUNK_BYTES), hasher: sha2::Sha256::new(), bytes: 0 }
    }

    /// Takes bytes to be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.pending.len() + bytes.len() > CHUNK_BYTES {
            self.drain()?;
        }
        if bytes.len() >= CHUNK_BYTES {
            return self.pass(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pass(&pending)?;
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes what is pending, and gives the digest and the number of bytes.
    pub(crate) fn finish(mut self) -> io::Result<(Sha256, u64)> {
        self.drain()?;
        self.inner.flush()?;
        Ok((finished(self.hasher), self.bytes))
    }
}

/// Reads to the end, for a caller who only needs the digest.
#[cfg(test)]
pub(crate) fn digest_of(bytes: &[u8]) -> Sha256 {
    let mut source = HashedSource::new(bytes);
    loop {
        match source.fill_buf() {
            Ok([]) => return source.digest_so_far(),
            Ok(chunk) => {
                let length = chunk.len();
                source.consume(length);
            }
            Err(error) => panic!("memory cannot fail: {error}"),
        }
    }
}
