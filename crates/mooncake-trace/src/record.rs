//! One row: what it holds, what is accepted, and the two ways it is read.
//!
//! [`fast`] takes a line it understands without doubt and gives up on anything else; [`strict`] is the authority,
//! reads through the JSON event reader, and knows where everything stands. A line the fast path takes must mean the
//! same to the strict one, which a property test holds.

mod fast;
mod strict;

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::error::RowErrorKind;

/// One validated row, on loan from the [`TraceReader`](crate::TraceReader) until the next one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row<'a> {
    /// Rows before this one. Every line is a row, so the line number is one more.
    pub index: u64,
    /// Arrival, in milliseconds since the start of the trace; never before the row above.
    pub timestamp_ms: u64,
    /// Tokens of the prompt, at least one.
    pub input_length: u64,
    /// Tokens of the answer.
    pub output_length: u64,
    /// The blocks of the prompt, every id exact.
    pub hash_ids: &'a [u64],
    /// Names of further fields, which are here only under [`UnknownFields::Keep`].
    pub other_fields: &'a [String],
    /// The original bytes of the line, with its line ending if it has one.
    pub bytes: &'a [u8],
    /// The number of block ids, which is known even where they are not kept.
    pub(crate) hash_count: usize,
}

impl Row<'_> {
    /// Whether the line ends with a carriage return and a line feed.
    #[must_use]
    pub fn has_crlf(&self) -> bool {
        self.bytes.ends_with(b"\r\n")
    }

    /// Whether the line ends with a line feed; only the last line of a file may lack it.
    #[must_use]
    pub fn has_newline(&self) -> bool {
        self.bytes.ends_with(b"\n")
    }
}

/// The decisions about rows that a caller may take; the README lists the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rules {
    /// Tokens per block of the trace, 512 in every published one.
    pub block_size: NonZeroU32,
    /// How many block ids a row must have.
    pub hash_count: HashCount,
    /// What happens to a field that is not part of a Mooncake row.
    pub unknown_fields: UnknownFields,
    /// The longest line that is read, without its line ending. It bounds the memory a reader can be made to use.
    pub max_line_bytes: usize,
}

impl Rules {
    /// Tokens per block in every published trace.
    pub const DEFAULT_BLOCK_SIZE: NonZeroU32 = NonZeroU32::new(512).expect("512 is not zero");
    /// A row of a million tokens in blocks of 16 is about half a megabyte long.
    pub const DEFAULT_MAX_LINE_BYTES: usize = 8 << 20;
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            block_size: Self::DEFAULT_BLOCK_SIZE,
            hash_count: HashCount::default(),
            unknown_fields: UnknownFields::default(),
            max_line_bytes: Self::DEFAULT_MAX_LINE_BYTES,
        }
    }
}

/// How many block ids a row must have for its prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HashCount {
    /// One for every block that the prompt begins: `input_length / block_size`, rounded up. This also catches a wrong
    /// block size.
    #[default]
    Exact,
    /// At least that many. Dynamo's loader takes such rows and ignores the surplus.
    Cover,
}

/// What happens to a field that is not part of a Mooncake row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UnknownFields {
    /// The row is refused: nobody can say what the field does to a replay.
    #[default]
    Reject,
    /// The field stays where it is and the manifest counts the rows that have it. Multi-turn fields and aliases are
    /// refused all the same.
    Keep,
}

/// The four values of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) timestamp_ms: u64,
    pub(crate) input_length: u64,
    pub(crate) output_length: u64,
}

/// Buffers that are used again for every row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) hash_ids: HashIds,
    pub(crate) other_fields: Vec<String>,
}

/// The block ids of a row, or only their number for a reader that needs no more.
///
/// The slots stay initialised from row to row, so that taking an id is a store and no more.
#[derive(Debug, Default)]
pub(crate) struct HashIds {
    slots: Vec<u64>,
    count: usize,
    only_counted: bool,
}

impl HashIds {
    pub(crate) fn only_counted() -> Self {
        HashIds { only_counted: true, ..HashIds::default() }
    }

    fn is_kept(&self) -> bool {
        !self.only_counted
    }

    /// The ids, if they are kept.
    pub(crate) fn as_slice(&self) -> &[u64] {
        self.slots.get(..self.count).unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn clear(&mut self) {
        self.count = 0;
    }

    fn push(&mut self, id: u64) {
        if self.is_kept() {
            if self.count == self.slots.len() {
                self.grow();
            }
            self.slots[self.count] = id;
        }
        self.count += 1;
    }

    /// More slots, at least one.
    #[cold]
    fn grow(&mut self) -> &mut [u64] {
        let length = self.slots.len().saturating_mul(2).max(64);
        self.slots.resize(length, 0);
        &mut self.slots
    }
}

/// Why a line was refused, and which of its bytes shows it.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) at: usize,
    pub(crate) pointer: String,
    pub(crate) kind: RowErrorKind,
}

/// The largest timestamp: beyond it a reader that uses doubles, as Dynamo does, would move arrivals.
const MAX_TIMESTAMP_MS: u64 = 1 << 53;
/// The largest length of a prompt or an answer.
const MAX_TOKENS: u64 = u32::MAX as u64;

/// Reads one line (without its line feed) into `scratch`.
pub(crate) fn parse(
    line: &[u8],
    rules: &Rules,
    previous_ms: u64,
    scratch: &mut Scratch,
) -> Result<Fields, Refused> {
    scratch.other_fields.clear();
    if let Some(fields) = fast::parse(line, &mut scratch.hash_ids)
        && in_range(&fields)
        && violation(&fields, scratch.hash_ids.count(), rules, previous_ms).is_none()
    {
        return Ok(fields);
    }
    let (fields, places) = strict::parse(line, rules, scratch)?;
    match violation(&fields, scratch.hash_ids.count(), rules, previous_ms) {
        None => Ok(fields),
        Some(kind) => Err(places.refuse(kind)),
    }
}

fn in_range(fields: &Fields) -> bool {
    fields.timestamp_ms <= MAX_TIMESTAMP_MS
        && (1..=MAX_TOKENS).contains(&fields.input_length)
        && fields.output_length <= MAX_TOKENS
}

/// What the values of a row, each fine by itself, get wrong together.
fn violation(fields: &Fields, hash_ids: usize, rules: &Rules, previous_ms: u64) -> Option<RowErrorKind> {
    let Fields { timestamp_ms, input_length, .. } = *fields;
    if timestamp_ms < previous_ms {
        return Some(RowErrorKind::TimestampWentBack { previous_ms, timestamp_ms });
    }
    let expected = input_length.div_ceil(u64::from(rules.block_size.get()));
    let found = hash_ids as u64;
    let at_least = rules.hash_count == HashCount::Cover;
    if found == expected || (at_least && found > expected) {
        return None;
    }
    let block_size = rules.block_size.get();
    Some(RowErrorKind::HashCount { expected, found, input_length, block_size, at_least })
}

#[cfg(test)]
mod tests;
