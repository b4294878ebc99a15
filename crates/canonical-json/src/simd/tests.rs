use proptest::prelude::*;
use sha2::block_api::compress256;

use super::*;

/// Everything a backend says about a block.
struct Describe<'a>(&'a Block, u64);

impl Task for Describe<'_> {
    type Output = (Masks, Outline, Vec<u8>, u64);

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> Self::Output {
        let mut masks = vector.masks(self.0);
        // Only of brackets it matters whether they are braces.
        masks.brace &= masks.open | masks.close;
        let mut out = [0; 64];
        vector.compress(self.0, self.1, &mut out);
        let kept = out[..self.1.count_ones() as usize].to_vec();
        (masks, vector.outline(self.0), kept, vector.prefix_xor(self.1))
    }
}

struct PrefixXor(u64);

impl BitTask for PrefixXor {
    type Output = u64;

    #[inline(always)]
    fn run<B: Bits>(self, bits: B) -> u64 {
        bits.prefix_xor(self.0)
    }
}

struct Hash<'a>([u32; 8], &'a [Block]);

impl BitTask for Hash<'_> {
    type Output = Option<[u32; 8]>;

    #[inline(always)]
    fn run<B: Bits>(self, bits: B) -> Self::Output {
        let mut lane = bits.lane(&self.0)?;
        for block in self.1 {
            lane.begin(block);
            lane.quarter::<0>();
            lane.quarter::<1>();
            lane.quarter::<2>();
            lane.quarter::<3>();
        }
        Some(lane.state())
    }
}

fn check_utf8(bytes: &[u8]) {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(64), b' ');
    let blocks = padded.as_chunks().0;
    let expected = std::str::from_utf8(bytes).is_ok();
    for level in Level::available() {
        let mut masks = vec![Masks::default(); blocks.len()];
        let (mut whole, mut parts) = (Utf8::default(), Utf8::default());
        let is_right = scan(level, blocks, &mut masks, &mut whole) && !whole.is_incomplete;
        assert_eq!(is_right, expected, "{level:?} {bytes:x?}");
        let one = |(block, masks)| {
            scan(level, std::slice::from_ref(block), std::slice::from_mut(masks), &mut parts)
        };
        let is_right = blocks.iter().zip(&mut masks).map(one).fold(true, |all, one| all & one);
        assert_eq!(is_right && !parts.is_incomplete, expected, "{level:?} {bytes:x?}");
    }
}

proptest! {
    #[test]
    fn backends_agree(block: [u8; 64], keep: u64) {
        let expected = dispatch(PORTABLE, Describe(&block, keep));
        for level in Level::available() {
            prop_assert_eq!(&dispatch(level, Describe(&block, keep)), &expected, "{:?}", level);
            prop_assert_eq!(dispatch_bits(level, PrefixXor(keep)), expected.3, "{:?}", level);
        }
    }

    #[test]
    fn lanes_hash(state: [u32; 8], blocks: Vec<[[u8; 32]; 2]>) {
        let blocks: Vec<Block> = blocks.iter().map(|halves| *halves.as_flattened().first_chunk().expect("64 bytes")).collect();
        let mut expected = state;
        compress256(&mut expected, &blocks);
        for level in Level::available() {
            let state = dispatch_bits(level, Hash(state, &blocks));
            prop_assert_eq!(state.unwrap_or(expected), expected, "{:?}", level);
        }
    }

    #[test]
    fn ranks_are_places(numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0..9_u64], 0..100)) {
        let mut sorted: Vec<usize> = (0..numbers.len()).collect();
        sorted.sort_by_key(|i| numbers[*i]);
        for level in Level::available() {
            let mut ranks = vec![0; numbers.len()];
            rank(level, &numbers, &mut ranks);
            for (place, i) in sorted.iter().enumerate() {
                prop_assert_eq!(usize::from(ranks[*i]), place, "{:?}", level);
            }
        }
    }

    #[test]
    fn utf8_is_what_the_standard_library_says(text in "\\PC{0,80}", at: prop::sample::Index, byte: u8) {
        check_utf8(text.as_bytes());
        let mut bytes = text.into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_utf8(&bytes);
    }
}

#[test]
fn utf8_at_the_borders_of_blocks() {
    for character in ["é", "\u{800}", "\u{ffff}", "\u{10000}", "\u{10ffff}"] {
        for before in 56..66 {
            let mut text = "x".repeat(before);
            text.push_str(character);
            for end in before..=text.len() {
                check_utf8(&text.as_bytes()[..end]);
            }
            text.push_str(&"y".repeat(70));
            check_utf8(text.as_bytes());
        }
    }
    let wrong: [&[u8]; 6] =
        [b"\xED\xA0\x80", b"\xC0\x80", b"\xE0\x80\x80", b"\xF4\x90\x80\x80", b"\xF0\x80\x80\x80", b"\x80"];
    for bytes in wrong {
        for before in 60..65 {
            let mut text = vec![b'x'; before];
            text.extend_from_slice(bytes);
            check_utf8(&text);
        }
    }
}
