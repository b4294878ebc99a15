//! The trace of the demonstration: conversations that share a first part and grow turn by turn.

use std::fmt::Write;
use std::ops::Range;

/// Requests in the trace.
pub(super) const ROWS: u64 = 1_200;

const SEED: u64 = 0x5eed;
const BLOCK_TOKENS: u64 = 512;
/// Blocks of the prompts that conversations start with.
const SHARED_BLOCKS: [u64; 3] = [2, 4, 7];
const LIVE_CONVERSATIONS: usize = 24;
/// A conversation longer than this ends.
const LONGEST_TOKENS: u64 = 18_000;
const FIRST_TURN_TOKENS: Range<u64> = 200..3_000;
const LATER_TURN_TOKENS: Range<u64> = 50..1_200;
const ANSWER_TOKENS: Range<u64> = 100..1_300;
const LONGEST_GAP_MS: u64 = 1_700;
const PERCENT_AT_ONCE: u64 = 20;
const PERCENT_CONTINUED: u64 = 70;

/// An xorshift64* generator: the trace must not depend on a library.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    fn percent(&mut self) -> u64 {
        self.below(100)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }
}

/// One conversation: its tokens so far, and the ids of the blocks that are full.
struct Conversation {
    tokens: u64,
    ids: Vec<u64>,
}

impl Conversation {
    /// The ids of a prompt with all tokens so far; a partial block at the end will have another id when it is full.
    fn prompt(&mut self, next_id: &mut u64) -> Vec<u64> {
        let mut fresh = || {
            *next_id += 1;
            *next_id - 1
        };
        while (self.ids.len() as u64) < self.tokens / BLOCK_TOKENS {
            self.ids.push(fresh());
        }
        let mut ids = self.ids.clone();
        if !self.tokens.is_multiple_of(BLOCK_TOKENS) {
            ids.push(fresh());
        }
        ids
    }
}

/// The whole trace.
pub(super) fn text() -> String {
    let mut numbers = Numbers(SEED);
    let mut next_id = SHARED_BLOCKS.iter().sum();
    let (mut text, mut conversations, mut at_ms) = (String::new(), Vec::new(), 0);
    for _ in 0..ROWS {
        let gap = numbers.percent() >= PERCENT_AT_ONCE;
        at_ms += if gap { numbers.below(LONGEST_GAP_MS) } else { 0 };
        let index = turn(&mut numbers, &mut conversations);
        let input = conversations[index].tokens;
        let ids = conversations[index].prompt(&mut next_id);
        let output = numbers.within(&ANSWER_TOKENS);
        push_row(&mut text, at_ms, (input, output), &ids);
        conversations[index].tokens += output;
        if conversations[index].tokens > LONGEST_TOKENS {
            conversations.remove(index);
        }
    }
    text
}

/// Goes on with a conversation or starts one, and says which.
fn turn(numbers: &mut Numbers, conversations: &mut Vec<Conversation>) -> usize {
    let goes_on = !conversations.is_empty() && numbers.percent() < PERCENT_CONTINUED;
    if goes_on || conversations.len() >= LIVE_CONVERSATIONS {
        let index = numbers.index(conversations.len());
        conversations[index].tokens += numbers.within(&LATER_TURN_TOKENS);
        return index;
    }
    let kind = numbers.index(SHARED_BLOCKS.len());
    let first = SHARED_BLOCKS[..kind].iter().sum();
    let ids: Vec<u64> = (first..first + SHARED_BLOCKS[kind]).collect();
    let tokens = ids.len() as u64 * BLOCK_TOKENS + numbers.within(&FIRST_TURN_TOKENS);
    conversations.push(Conversation { tokens, ids });
    conversations.len() - 1
}

fn push_row(text: &mut String, at_ms: u64, (input, output): (u64, u64), ids: &[u64]) {
    let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let row = format!(
        "{{\"timestamp\": {at_ms}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": [{ids}]}}"
    );
    writeln!(text, "{row}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use canonical_json::Sha256;

    use super::*;

    /// The four rows were found on these bytes.
    #[test]
    fn the_trace_is_the_one_the_rows_were_found_on() {
        let digest = Sha256::of(text().as_bytes()).to_string();
        assert_eq!(digest, "765cc1a001e7e3441073edf4ae9f1600b1b2d764b1806c2477c6eae4495db2f2");
    }

    #[test]
    fn prompts_share_prefixes() {
        let mut seen = HashSet::new();
        let mut shared = 0;
        for line in text().lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let ids: Vec<u64> = serde_json::from_value(row["hash_ids"].clone()).expect("ids");
            let input = row["input_length"].as_u64().expect("tokens");
            assert_eq!(ids.len() as u64, input.div_ceil(BLOCK_TOKENS), "{line}");
            shared += u64::from(ids.len() > 7 && seen.contains(&ids[7]));
            seen.extend(ids);
        }
        assert!(shared > ROWS / 2, "{shared} rows share more than a first prompt");
    }
}
