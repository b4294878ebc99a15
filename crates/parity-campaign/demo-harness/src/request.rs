//! One request: what it asks for, how far it has come, and when things happened to it.

use crate::blocks::BlockId;
use crate::hash::{extend, mix, seal};
use crate::trace::Row;

/// Virtual time in nanoseconds since the first arrival of the trace's clock.
pub(crate) type Nanos = u64;

/// The pools of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Aggregated,
    Prefill,
    Decode,
}

impl Pool {
    /// As reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "agg",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// One decision of a router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) pool: Pool,
    pub(crate) worker: usize,
    pub(crate) overlap_blocks: u64,
    pub(crate) best_overlap_blocks: u64,
}

/// One admission to a worker's batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) pool: Pool,
    pub(crate) at: Nanos,
    pub(crate) again: bool,
    pub(crate) reused_tokens: u32,
}

/// What happened to a request, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) arrival: Nanos,
    pub(crate) routes: Vec<Route>,
    pub(crate) admissions: Vec<Admission>,
    /// Indices into the list of pressure records.
    pub(crate) pressure: Vec<usize>,
    pub(crate) source_held: Option<Nanos>,
    pub(crate) destination_reserved: Option<Nanos>,
    pub(crate) destination_activated: Option<Nanos>,
    pub(crate) source_released: Option<Nanos>,
    pub(crate) first_token: Option<Nanos>,
    pub(crate) second_token: Option<Nanos>,
    pub(crate) last_token: Option<Nanos>,
    pub(crate) terminal: Option<Nanos>,
    /// Every token's time, kept only for a report.
    pub(crate) tokens: Vec<Nanos>,
}

/// The state of one request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ordinal: usize,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    hash_ids: Vec<u64>,
    /// Tokens produced so far.
    pub(crate) generated: u32,
    /// Tokens whose KV the present worker holds.
    pub(crate) computed: u32,
    /// The contents of all full blocks of the prompt and what was generated.
    pub(crate) contents: Vec<u64>,
    /// The rolling hash at the end of the tokens known so far.
    rolling: u64,
    /// Blocks at the present worker, and how many of them are findable.
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) published: usize,
    /// Blocks that a prefill worker holds until the decode worker has taken over.
    pub(crate) source_blocks: Vec<BlockId>,
    /// Blocks that a decode worker has reserved, and how many of them hold their content already.
    pub(crate) destination_blocks: Vec<BlockId>,
    pub(crate) destination_published: usize,
    pub(crate) timeline: Timeline,
}

impl Request {
    pub(crate) fn new(ordinal: usize, row: &Row, arrival: Nanos) -> Self {
        Self {
            ordinal,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            hash_ids: row.hash_ids.clone(),
            generated: 0,
            computed: 0,
            contents: Vec::new(),
            rolling: 0,
            blocks: Vec::new(),
            published: 0,
            source_blocks: Vec::new(),
            destination_blocks: Vec::new(),
            destination_published: 0,
            timeline: Timeline { arrival, ..Timeline::default() },
        }
    }

    /// Tokens known so far: the prompt and what was generated.
    pub(crate) fn known(&self) -> u32 {
        self.input_tokens + self.generated
    }

    /// Known tokens whose KV the present worker does not hold yet.
    pub(crate) fn remaining(&self) -> u32 {
        self.known() - self.computed
    }

    pub(crate) fn finished(&self) -> bool {
        self.generated == self.output_tokens
    }

    /// Blocks of the prompt, the last of which may be partial.
    pub(crate) fn prompt_blocks(&self, block_tokens: u32) -> u64 {
        u64::from(self.input_tokens.div_ceil(block_tokens))
    }

    /// Reads the prompt token by token and hashes it block by block.
    pub(crate) fn hash_prompt(&mut self, trace_block_tokens: u32, block_tokens: u32) {
        let mut known = 0;
        for hash_id in &self.hash_ids {
            let tokens = trace_block_tokens.min(self.input_tokens - known);
            for offset in 0..tokens {
                self.rolling = extend(self.rolling, mix(*hash_id, u64::from(offset)));
                known += 1;
                if known.is_multiple_of(block_tokens) {
                    self.contents.push(seal(self.rolling));
                }
            }
        }
    }

    /// Adds a generated token, which no other request has.
    pub(crate) fn push_token(&mut self, block_tokens: u32) {
        let token = mix(!(self.ordinal as u64), u64::from(self.generated));
        self.generated += 1;
        self.rolling = extend(self.rolling, token);
        if self.known().is_multiple_of(block_tokens) {
            self.contents.push(seal(self.rolling));
        }
    }

    /// Notes the time of the token just added.
    pub(crate) fn stamp_token(&mut self, at: Nanos, keep: bool) {
        let timeline = &mut self.timeline;
        if self.generated == 1 {
            timeline.first_token = Some(at);
        } else if self.generated == 2 {
            timeline.second_token = Some(at);
        }
        timeline.last_token = Some(at);
        if keep {
            timeline.tokens.push(at);
        }
    }

    /// Notes an admission; one that follows pressure in the same pool is a readmission.
    pub(crate) fn stamp_admission(&mut self, pool: Pool, at: Nanos, reused_tokens: u32) -> bool {
        let again = self.timeline.admissions.iter().any(|admission| admission.pool == pool);
        self.timeline.admissions.push(Admission { pool, at, again, reused_tokens });
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ordinal: usize, hash_ids: &[u64], input_tokens: u32) -> Request {
        let row = Row { timestamp_ms: 0, input_tokens, output_tokens: 9, hash_ids: hash_ids.to_vec() };
        let mut request = Request::new(ordinal, &row, 0);
        request.hash_prompt(8, 4);
        request
    }

    #[test]
    fn equal_prefixes_have_equal_contents_and_no_more() {
        let (left, right) = (request(0, &[1, 2, 3], 22), request(1, &[1, 2, 4], 22));
        assert_eq!((left.contents.len(), right.contents.len()), (5, 5));
        assert_eq!(left.contents[..4], right.contents[..4]);
        assert_ne!(left.contents[4], right.contents[4]);
    }

    #[test]
    fn generated_tokens_fill_the_last_block_and_are_the_requests_own() {
        let (mut left, mut right) = (request(0, &[1], 6), request(1, &[1], 6));
        for _ in 0..2 {
            left.push_token(4);
            right.push_token(4);
        }
        assert_eq!((left.contents.len(), left.contents[0]), (2, right.contents[0]));
        assert_ne!(left.contents[1], right.contents[1]);
        assert_eq!(left.remaining(), 8);
    }
}
