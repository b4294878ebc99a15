//! Bytes on their way in and out, hashed as they pass, so that a file of any size is read once.

use std::io::{self, BufRead, Read, Write};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use canonical_json::Sha256;
use sha2::Digest;

/// Bytes read, written and hashed at a time: within the second-level cache of any current core, and few system calls.
const CHUNK_BYTES: usize = 128 << 10;
/// Chunks that may wait for their turn to be hashed.
const QUEUED_CHUNKS: usize = 2;

/// A digest that is computed beside the work that produces the bytes.
///
/// Checking rows and hashing them cost about the same, so a second thread nearly halves the time. It starts with the
/// first full chunk; a short trace, and a process that may start no thread, is hashed in place.
#[derive(Debug)]
enum Digester {
    Here(sha2::Sha256),
    Beside(Beside),
}

#[derive(Debug)]
struct Beside {
    chunks: SyncSender<Vec<u8>>,
    used: Receiver<Vec<u8>>,
    thread: JoinHandle<sha2::Sha256>,
}

impl Digester {
    fn new() -> Self {
        Digester::Here(sha2::Sha256::new())
    }

    /// Hashes a chunk, and gives one of [`CHUNK_BYTES`] to overwrite. A few exist, however far apart the threads are.
    fn exchange(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        let hasher = match self {
            Digester::Beside(beside) => return beside.exchange(chunk),
            Digester::Here(hasher) => hasher,
        };
        let Ok(beside) = Beside::start(hasher.clone()) else {
            hasher.update(&chunk);
            return chunk;
        };
        let next = beside.exchange(chunk);
        *self = Digester::Beside(beside);
        next
    }

    /// Hashes what is left, and gives the digest.
    fn finish(self, rest: &[u8]) -> Sha256 {
        let mut hasher = match self {
            Digester::Here(hasher) => hasher,
            Digester::Beside(beside) => beside.finish(),
        };
        hasher.update(rest);
        Sha256::from_bytes(hasher.finalize().into())
    }
}

fn new_chunk() -> Vec<u8> {
    vec![0; CHUNK_BYTES]
}

impl Beside {
    fn start(hasher: sha2::Sha256) -> io::Result<Self> {
        let (chunks, to_hash) = sync_channel(QUEUED_CHUNKS);
        let (hashed, used) = channel();
        let thread = thread::Builder::new().name("sha256".to_owned());
        let thread = thread.spawn(move || hash_all(hasher, &to_hash, &hashed))?;
        Ok(Beside { chunks, used, thread })
    }

    fn exchange(&self, chunk: Vec<u8>) -> Vec<u8> {
        // It fails only if the thread has panicked, and `finish` then passes that on.
        let _ = self.chunks.send(chunk);
        // The queue is bounded, so chunks come back about as often as they go, and few are ever allocated.
        self.used.try_recv().unwrap_or_else(|_| new_chunk())
    }

    fn finish(self) -> sha2::Sha256 {
        drop(self.chunks);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn hash_all(mut hasher: sha2::Sha256, chunks: &Receiver<Vec<u8>>, hashed: &Sender<Vec<u8>>) -> sha2::Sha256 {
    for chunk in chunks {
        hasher.update(&chunk);
        // Nobody takes it back once the last chunk is on its way.
        let _ = hashed.send(chunk);
    }
    hasher
}

/// A buffered reader that hashes everything it has handed out.
#[derive(Debug)]
pub(crate) struct HashedSource<R> {
    inner: R,
    chunk: Vec<u8>,
    /// `chunk[at..filled]` is still to be consumed.
    at: usize,
    filled: usize,
    bytes: u64,
    digester: Digester,
}

impl<R: Read> HashedSource<R> {
    pub(crate) fn new(inner: R) -> Self {
        HashedSource { inner, chunk: new_chunk(), at: 0, filled: 0, bytes: 0, digester: Digester::new() }
    }

    /// The digest and the number of bytes consumed.
    pub(crate) fn finish(self) -> (Sha256, u64) {
        (self.digester.finish(&self.chunk[..self.at]), self.bytes)
    }

    fn refill(&mut self) -> io::Result<()> {
        if self.filled == CHUNK_BYTES {
            self.chunk = self.digester.exchange(std::mem::take(&mut self.chunk));
            (self.at, self.filled) = (0, 0);
        }
        // A chunk is hashed once it is full, and a pipe gives little at a time.
        self.filled += self.inner.read(&mut self.chunk[self.filled..])?;
        Ok(())
    }
}

impl<R: Read> BufRead for HashedSource<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            self.refill()?;
        }
        Ok(&self.chunk[self.at..self.filled])
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
    chunk: Vec<u8>,
    bytes: u64,
    digester: Digester,
}

impl<W: Write> HashedSink<W> {
    pub(crate) fn new(inner: W) -> Self {
        HashedSink { inner, chunk: Vec::with_capacity(CHUNK_BYTES), bytes: 0, digester: Digester::new() }
    }

    /// Takes bytes to be written.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        while self.chunk.len() + bytes.len() >= CHUNK_BYTES {
            let (fits, rest) = bytes.split_at(CHUNK_BYTES - self.chunk.len());
            self.chunk.extend_from_slice(fits);
            self.inner.write_all(&self.chunk)?;
            self.chunk = self.digester.exchange(std::mem::take(&mut self.chunk));
            self.chunk.clear();
            bytes = rest;
        }
        self.chunk.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is pending, and gives the digest and the number of bytes.
    pub(crate) fn finish(mut self) -> io::Result<(Sha256, u64)> {
        self.inner.write_all(&self.chunk)?;
        self.inner.flush()?;
        Ok((self.digester.finish(&self.chunk), self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of uneven sizes, as from a pipe.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let most = (self.0.len() % 70_001 + 1).min(out.len());
            self.0.read(&mut out[..most])
        }
    }

    fn check(length: usize, step: usize) {
        let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
        let mut source = HashedSource::new(Dribble(&bytes));
        let mut out = Vec::new();
        let mut sink = HashedSink::new(&mut out);
        loop {
            let chunk = source.fill_buf().unwrap();
            let taken = chunk.len().min(step);
            if taken == 0 {
                break;
            }
            sink.write(&chunk[..taken]).unwrap();
            source.consume(taken);
        }
        let expected = (Sha256::of(&bytes), length as u64);
        assert_eq!(source.finish(), expected);
        assert_eq!(sink.finish().unwrap(), expected);
        assert_eq!(out, bytes);
    }

    #[test]
    fn hashing_in_pieces_is_hashing() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES + 7] {
            for step in [usize::MAX, 60_000, 997] {
                check(length, step);
            }
        }
    }

    #[test]
    fn bytes_handed_out_but_not_consumed_are_not_hashed() {
        let mut source = HashedSource::new(&b"abcdef"[..]);
        assert_eq!(source.fill_buf().unwrap(), b"abcdef");
        source.consume(3);
        assert_eq!(source.finish(), (Sha256::of(b"abc"), 3));
    }

    #[test]
    fn bytes_larger_than_a_chunk_are_written_whole() {
        let bytes = vec![7; 3 * CHUNK_BYTES + 5];
        let mut out = Vec::new();
        let mut sink = HashedSink::new(&mut out);
        sink.write(b"x").unwrap();
        sink.write(&bytes).unwrap();
        let (sha256, length) = sink.finish().unwrap();
        assert_eq!(length, bytes.len() as u64 + 1);
        assert_eq!(sha256, Sha256::of(&out));
        assert_eq!(out[1..], bytes);
    }
}
