//! BLAKE3 in its plain hashing mode, for the digests in a report.
//!
//! Written from the specification: chunks of 1,024 bytes, each compressed in blocks of 64, are the leaves of a binary tree whose
//! left branches are always complete.

const CHUNK_BYTES: usize = 1_024;
const BLOCK_BYTES: usize = 64;

const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;

const KEY: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
const ROUNDS: usize = 7;
const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
/// Columns first, then diagonals.
const MIXED: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

type Chaining = [u32; 8];

/// One compression that is still to be done, since only the last one of all is marked as the root.
#[derive(Clone)]
struct Node {
    chaining: Chaining,
    words: [u32; 16],
    counter: u64,
    bytes: u32,
    flags: u32,
}

impl Node {
    fn parent(left: Chaining, right: Chaining) -> Self {
        let mut words = [0; 16];
        words[..8].copy_from_slice(&left);
        words[8..].copy_from_slice(&right);
        Self { chaining: KEY, words, counter: 0, bytes: BLOCK_BYTES as u32, flags: PARENT }
    }

    fn compress(&self, more_flags: u32) -> Chaining {
        let mut state = [0; 16];
        state[..8].copy_from_slice(&self.chaining);
        state[8..12].copy_from_slice(&KEY[..4]);
        state[12..].copy_from_slice(&[
            self.counter as u32,
            (self.counter >> 32) as u32,
            self.bytes,
            self.flags | more_flags,
        ]);
        let mut words = self.words;
        for _ in 0..ROUNDS {
            for (places, pair) in MIXED.iter().zip(words.chunks_exact(2)) {
                mix(&mut state, *places, pair[0], pair[1]);
            }
            words = PERMUTATION.map(|place| words[place]);
        }
        std::array::from_fn(|i| state[i] ^ state[i + 8])
    }
}

fn mix(state: &mut [u32; 16], [a, b, c, d]: [usize; 4], first: u32, second: u32) {
    for (word, turns) in [(first, (16, 12)), (second, (8, 7))] {
        state[a] = state[a].wrapping_add(state[b]).wrapping_add(word);
        state[d] = (state[d] ^ state[a]).rotate_right(turns.0);
        state[c] = state[c].wrapping_add(state[d]);
        state[b] = (state[b] ^ state[c]).rotate_right(turns.1);
    }
}

/// A digest in the making.
#[derive(Clone)]
pub(crate) struct Digest {
    chunk: Vec<u8>,
    chunks: u64,
    /// Finished subtrees, the largest first.
    subtrees: Vec<Chaining>,
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self { chunk: Vec::with_capacity(CHUNK_BYTES), chunks: 0, subtrees: Vec::new() }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.chunk.len() == CHUNK_BYTES {
                self.close_chunk();
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
        }
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub(crate) fn finish(&self) -> String {
        let mut node = self.last_chunk();
        for &left in self.subtrees.iter().rev() {
            node = Node::parent(left, node.compress(0));
        }
        node.compress(ROOT)
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Adds a full chunk to the tree, joining as many equal subtrees as the number of chunks has trailing zeros.
    fn close_chunk(&mut self) {
        let mut chaining = self.last_chunk().compress(0);
        self.chunks += 1;
        for _ in 0..self.chunks.trailing_zeros() {
            let left = self.subtrees.pop().expect("a pair of equal subtrees is joined at once");
            chaining = Node::parent(left, chaining).compress(0);
        }
        self.subtrees.push(chaining);
        self.chunk.clear();
    }

    /// The last compression of the chunk in hand, everything before it done.
    fn last_chunk(&self) -> Node {
        let mut node =
            Node { chaining: KEY, words: [0; 16], counter: self.chunks, bytes: 0, flags: CHUNK_START };
        let mut blocks = self.chunk.chunks(BLOCK_BYTES).peekable();
        while let Some(block) = blocks.next() {
            node.words = words(block);
            node.bytes = block.len() as u32;
            if blocks.peek().is_some() {
                node.chaining = node.compress(0);
                node.flags = 0;
            }
        }
        node.flags |= CHUNK_END;
        node
    }
}

/// The words of a block, padded with zeros.
fn words(block: &[u8]) -> [u32; 16] {
    let mut padded = [0; BLOCK_BYTES];
    padded[..block.len()].copy_from_slice(block);
    std::array::from_fn(|i| {
        u32::from_le_bytes([padded[4 * i], padded[4 * i + 1], padded[4 * i + 2], padded[4 * i + 3]])
    })
}

/// The digest of `bytes`, in hexadecimal.
pub(crate) fn of(bytes: &[u8]) -> String {
    let mut digest = Digest::new();
    digest.update(bytes);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 32 bytes of the published test vectors, whose input counts up from 0 to 250 again and again.
    #[test]
    fn published_vectors() {
        let check = |length: usize, expected: &str| {
            let input: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            assert_eq!(of(&input), expected, "{length} bytes");
            let mut digest = Digest::new();
            input.chunks(97).for_each(|part| digest.update(part));
            assert_eq!(digest.finish(), expected, "{length} bytes in parts");
        };
        check(0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        check(1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213");
        check(1_024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7");
        check(1_025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444");
        check(31_744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47");
    }
}
