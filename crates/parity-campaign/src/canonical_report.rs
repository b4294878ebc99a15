//! One harness report as typed records: what the coverage checks read, and nothing else.
//!
//! A report of 5,000 requests is one line of 7 to 10 MB. It is read in one pass without a tree: each request becomes a
//! record of plain numbers, and the histories of all requests share three vectors. Counts stay integers. Times become
//! doubles, which is exact here: the harness writes the shortest text that gives the double back.
//!
//! A layout that is not the known one is not a crash and not a guess: [`ReportError::ProtocolNeedsUpdating`] lists every
//! missing or changed member. Members beyond the known ones are left alone; the canonical digest covers them.

use std::fmt;
use std::ops::Range;

use canonical_json::ReadError;

mod decode;
mod locate;
mod read;

pub use decode::Gap;
#[cfg(test)]
pub(crate) use locate::raw_value;
pub(crate) use locate::{elements, value_text};

/// The layouts this protocol understands, as `/metadata/schema_version` names them.
pub const KNOWN_SCHEMAS: [&str; 1] = ["dynamo.offline-replay.v1"];

/// Why a report could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file holds no JSON at all.
    #[error("report of {bytes} bytes is empty where one JSON record was expected")]
    Empty {
        /// Length of the input, which may be white space.
        bytes: usize,
    },
    /// The file is not JSON; the cause says what is wrong and has the pointer.
    #[error("malformed JSON in the report at line {line}, column {column}")]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// What is wrong.
        #[source]
        source: ReadError,
    },
    /// A second record follows the first.
    #[error("second record on line {line} (byte {offset}) where exactly one report was expected")]
    ExtraRecord {
        /// The line the second record starts on.
        line: usize,
        /// The byte it starts at.
        offset: usize,
    },
    /// The layout is not one this protocol knows, for example that of a 1.4 release.
    #[error("protocol needs updating, or the historical protocol must be used: {}", summarise(gaps))]
    ProtocolNeedsUpdating {
        /// Every missing or changed member, one entry per shape.
        gaps: Vec<Gap>,
    },
}

fn summarise(gaps: &[Gap]) -> String {
    let first = gaps.first().map(ToString::to_string).unwrap_or_default();
    match gaps.len() {
        0 | 1 => first,
        n => format!("{first}, and {} more", n - 1),
    }
}

/// A request's stable identity; the harness numbers requests from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestUuid(u128);

impl RequestUuid {
    /// Reads the hyphenated form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hyphens_fit = text.len() == 36 && [8, 13, 18, 23].iter().all(|&at| text.as_bytes()[at] == b'-');
        let digits = text.bytes().filter(|&byte| byte != b'-');
        if !hyphens_fit || text.bytes().filter(|&byte| byte == b'-').count() != 4 {
            return None;
        }
        let value = digits
            .map(|byte| char::from(byte).to_digit(16))
            .try_fold(0_u128, |sum, digit| Some(sum << 4 | u128::from(digit?)))?;
        Some(RequestUuid(value))
    }
}

impl fmt::Display for RequestUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
    }
}

/// The pool of workers an event happened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Pool {
    /// Workers that do both phases.
    Agg,
    /// Prefill workers of a disaggregated row.
    Prefill,
    /// Decode workers of a disaggregated row.
    Decode,
}

impl Pool {
    /// The word the report uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Pool::Agg => "agg",
            Pool::Prefill => "prefill",
            Pool::Decode => "decode",
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the router placed a request at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Placed when it was routed.
    Immediate,
    /// Held in the router's queue first.
    Queued,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TerminalStatus {
    /// All tokens were produced.
    Completed,
    /// Never accepted.
    Rejected,
    /// Given up by the client.
    Canceled,
    /// Ended by an error.
    Failed,
}

/// Why a running request lost its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PressureKind {
    /// vLLM preempted it.
    VllmPreemption,
    /// SGLang retracted it.
    SglangRetraction,
}

impl PressureKind {
    /// The word the report uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PressureKind::VllmPreemption => "vllm_preemption",
            PressureKind::SglangRetraction => "sglang_retraction",
        }
    }
}

/// One decision of the router.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The pool it chose from.
    pub pool: Pool,
    /// At once or through the queue.
    pub outcome: Outcome,
    /// When the request entered the router's queue.
    pub queue_entered_at_ms: Option<f64>,
    /// When it left the queue.
    pub released_at_ms: Option<f64>,
    /// How long it stayed there.
    pub queue_wait_ms: Option<f64>,
    /// The chosen worker.
    pub worker: Option<u64>,
    /// Tokens already cached there, as the router reported them.
    pub reported_overlap_tokens: Option<u64>,
    /// Blocks already cached on the chosen worker.
    pub selected_overlap_blocks: Option<u64>,
    /// Most blocks cached on any candidate.
    pub best_available_overlap_blocks: Option<u64>,
    /// Best minus selected.
    pub overlap_regret_blocks: Option<u64>,
}

/// One admission by an engine's scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Position among all admissions of the request.
    pub ordinal: u64,
    /// Position among those in the same pool.
    pub pool_ordinal: u64,
    /// The pool.
    pub pool: Pool,
    /// When.
    pub at_ms: f64,
    /// Input tokens found in the cache.
    pub reused_input_tokens: u64,
    /// Not the first in its pool. SGLang also admits each further chunk of a prefill this way.
    pub is_readmission: bool,
}

/// One request's life.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identity.
    pub uuid: RequestUuid,
    /// Arrival.
    pub arrival_ms: f64,
    /// First admission in any pool.
    pub first_admit_ms: Option<f64>,
    /// First output token.
    pub first_token_ms: Option<f64>,
    /// Last output token.
    pub last_token_ms: Option<f64>,
    /// End.
    pub terminal_ms: f64,
    /// How it ended.
    pub status: TerminalStatus,
    /// Prompt tokens.
    pub input_length: u64,
    /// Output tokens the trace asked for.
    pub requested_output_length: u64,
    /// Output tokens produced.
    pub output_length: u64,
    /// Most input tokens found cached at one prefill (or aggregated) admission.
    pub reused_input_tokens: u64,
    /// Most input tokens found cached at one decode admission.
    pub decode_reused_input_tokens: Option<u64>,
    /// Prefill worker.
    pub prefill_worker: Option<u64>,
    /// Decode or aggregated worker.
    pub decode_worker: Option<u64>,
    /// Overlap the router reported for the prefill placement.
    pub prefill_route_overlap_tokens: Option<u64>,
    /// Overlap the router reported for the decode placement.
    pub decode_route_overlap_tokens: Option<u64>,
    /// The handoff of a disaggregated row.
    pub handoff: Handoff,
    /// Stated number of admissions.
    pub admission_count: u64,
    /// Stated number of admissions that were not the first in their pool.
    pub readmission_count: u64,
    routes: Range<usize>,
    admissions: Range<usize>,
    pressure_ordinals: Range<usize>,
}

/// The times of one prefill-to-decode handoff; all `None` in an aggregated row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Handoff {
    /// The prefill scheduler admitted the request.
    pub prefill_admit_ms: Option<f64>,
    /// The prefill worker finished and holds the blocks.
    pub source_held_ms: Option<f64>,
    /// The decode worker reserved room.
    pub destination_reserved_ms: Option<f64>,
    /// The transfer is done and the destination owns the blocks.
    pub destination_activated_ms: Option<f64>,
    /// The decode scheduler admitted the request.
    pub decode_admit_ms: Option<f64>,
    /// The prefill worker gave its blocks back.
    pub source_released_ms: Option<f64>,
}

impl Handoff {
    /// The six members by their name in the report, in the order the protocol lists them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Option<f64>); 6] {
        [
            ("prefill_admit_ms", self.prefill_admit_ms),
            ("source_held_ms", self.source_held_ms),
            ("destination_reserved_ms", self.destination_reserved_ms),
            ("destination_activated_ms", self.destination_activated_ms),
            ("decode_admit_ms", self.decode_admit_ms),
            ("source_released_ms", self.source_released_ms),
        ]
    }
}

/// What a scheduler looked like around a pressure event.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerState {
    /// Blocks in use.
    pub active_blocks: u64,
    /// Running requests.
    pub running_requests: u64,
    /// Waiting requests, where the engine says.
    pub waiting_requests: Option<u64>,
}

/// One preemption or retraction.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Position among all records.
    pub ordinal: u64,
    /// When the request lost its blocks.
    pub at_ms: f64,
    /// When it was admitted again.
    pub readmitted_at_ms: Option<f64>,
    /// Pool.
    pub pool: Pool,
    /// Worker in the pool.
    pub worker: u64,
    /// Kind.
    pub kind: PressureKind,
    /// The request.
    pub uuid: RequestUuid,
    /// Before.
    pub before: SchedulerState,
    /// After.
    pub after: SchedulerState,
    /// Blocks free before, where the engine says.
    pub available_blocks_before: Option<u64>,
    /// Blocks needed, where the engine says.
    pub required_blocks_before: Option<u64>,
}

/// `/coverage/pressure`.
#[derive(Clone, Debug, Default)]
pub struct PressureEvidence {
    /// The events in the order they happened.
    pub records: Vec<Pressure>,
    /// Stated total.
    pub vllm_preemptions_total: u64,
    /// Stated total.
    pub sglang_retractions_total: u64,
}

/// One boundary of the replay at which KV events reached the router.
#[derive(Clone, Debug)]
pub struct Boundary {
    /// Its name, such as `pass_end`.
    pub name: Box<str>,
    /// Batches.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// First batch.
    pub first_at_ms: f64,
    /// Last batch.
    pub last_at_ms: f64,
}

/// A count by name.
pub type Counts = Vec<(Box<str>, u64)>;

/// `/coverage/kv_ingest`: the KV events the router saw.
#[derive(Clone, Debug)]
pub struct KvIngest {
    /// Batches.
    pub batches: u64,
    /// Events.
    pub events: u64,
    /// Blocks named by the events.
    pub blocks: u64,
    /// Digest of the event stream, as the harness computed it.
    pub blake3_256: Box<str>,
    /// Events by kind.
    pub kinds: Counts,
    /// Events by pool.
    pub pools: Counts,
    /// Events by storage tier.
    pub tiers: Counts,
    /// By boundary.
    pub boundaries: Vec<Boundary>,
}

/// `/coverage`.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Whether pressure and KV evidence was captured.
    pub capture_canonical_evidence: bool,
    /// Whether requests were captured.
    pub capture_per_request: bool,
    /// Stated number of request records.
    pub per_request_records: u64,
    /// Pressure.
    pub pressure: PressureEvidence,
    /// KV events.
    pub kv_ingest: KvIngest,
}

/// The configuration of one engine pool; the layout differs between versions, so members are looked for where either
/// has them.
#[derive(Clone, Debug, Default)]
pub struct PoolConfig {
    /// `aggregated`, `prefill` or `decode`.
    pub name: Box<str>,
    /// Engine name and the pointer it was found at.
    pub engine: Option<Found<Box<str>>>,
    /// Tokens per block.
    pub block_size: Option<Found<u64>>,
    /// Blocks per worker.
    pub num_gpu_blocks: Option<Found<u64>>,
    /// Running requests per worker.
    pub max_num_seqs: Option<Found<u64>>,
    /// Token budget of one pass.
    pub max_num_batched_tokens: Option<Found<u64>>,
    /// KV bytes per token, for transfer timing.
    pub kv_bytes_per_token: Option<Found<u64>>,
    /// Transfer bandwidth.
    pub kv_transfer_bandwidth_gb_per_s: Option<Found<f64>>,
    /// Transfer timing model.
    pub kv_transfer_timing_mode: Option<Found<Box<str>>>,
}

/// A value that moved between versions, with the pointer it was found at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// Where.
    pub pointer: String,
}

/// `/metadata`.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Layout name.
    pub schema_version: Box<str>,
    /// Seeded routing was compiled in (D3).
    pub replay_bench: bool,
    /// Pointers the harness itself leaves out (D2).
    pub result_exclusions: Vec<Box<str>>,
    /// `aggregated` or `disaggregated`.
    pub topology: Box<str>,
    /// Workers of an aggregated row.
    pub workers: u64,
    /// Prefill workers of a disaggregated row.
    pub prefill_workers: u64,
    /// Decode workers of a disaggregated row.
    pub decode_workers: u64,
    /// How much faster than recorded the requests arrived.
    pub arrival_speedup_ratio: Option<f64>,
    /// `kv_router` in every row of the matrix.
    pub router_mode: Box<str>,
    /// The router's queue threshold.
    pub queue_threshold: Option<f64>,
    /// Engine pools.
    pub pools: Vec<PoolConfig>,
    /// Seed of the replay's random choices.
    pub seed: Option<u64>,
    /// Digest of the workload, as the harness computed it.
    pub workload_digest: Option<Box<str>>,
    /// Tokens per hash id of the workload.
    pub workload_block_size: Option<u64>,
}

/// `/summary`, as far as it is cross-checked.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Requests.
    pub num_requests: u64,
    /// Requests that completed.
    pub completed_requests: u64,
    /// Virtual time of the last completion.
    pub duration_ms: f64,
    /// Prompt tokens.
    pub total_input_tokens: u64,
    /// Output tokens.
    pub total_output_tokens: u64,
    /// Share of prompt tokens found in a cache, best admission of each request.
    pub prefix_cache_reused_ratio: f64,
    /// The same for first admissions.
    pub first_admission_prefix_cache_reused_ratio: f64,
    /// Names of all members, known or not.
    pub members: Vec<Box<str>>,
}

/// One report.
#[derive(Clone, Debug)]
pub struct Report {
    /// `/coverage`
    pub evidence: Evidence,
    /// `/metadata`
    pub metadata: Metadata,
    /// `/summary`
    pub summary: Summary,
    /// `/per_request`
    pub requests: Vec<Request>,
    /// Names of the members of `/planner`, if it is an object.
    pub planner_members: Vec<Box<str>>,
    histories: Histories,
}

#[derive(Clone, Debug, Default)]
struct Histories {
    routes: Vec<Route>,
    admissions: Vec<Admission>,
    pressure_ordinals: Vec<u64>,
}

impl Report {
    /// Reads one report line.
    ///
    /// # Errors
    ///
    /// [`ReportError`]: no record, not JSON, more than one record, or a layout this protocol does not know.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReportError> {
        read::report(bytes)
    }

    /// The router's decisions for one request.
    #[must_use]
    pub fn routes(&self, request: &Request) -> &[Route] {
        &self.histories.routes[request.routes.clone()]
    }

    /// The admissions of one request.
    #[must_use]
    pub fn admissions(&self, request: &Request) -> &[Admission] {
        &self.histories.admissions[request.admissions.clone()]
    }

    /// The pressure records one request says it has.
    #[must_use]
    pub fn pressure_ordinals(&self, request: &Request) -> &[u64] {
        &self.histories.pressure_ordinals[request.pressure_ordinals.clone()]
    }

    /// Whether a member of `/summary` or `/planner` is present.
    #[must_use]
    pub(crate) fn has_member(&self, section: &str, name: &str) -> bool {
        let members = match section {
            "summary" => &self.summary.members,
            "planner" => &self.planner_members,
            _ => return false,
        };
        members.iter().any(|member| &**member == name)
    }
}

#[cfg(test)]
pub(crate) mod tests;
