//! The qualified seeds of PARITY Q5: starting points and drift detectors, not constants.

use std::collections::BTreeMap;

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::definition::{DefinitionError, Engine, PressureBand, Row, Topology, TransferTiming, from_toml};

/// The schema name of a file of golden seeds.
pub const SEEDS_SCHEMA: &str = "kvrp.seeds.v1";

/// A file of golden seeds: what qualified rows showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GoldenSeeds {
    /// Always [`SEEDS_SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SEEDS_SCHEMA)))]
    pub schema: String,
    /// Versions of the serving system that showed it.
    pub versions: Vec<String>,
    /// Digest of the whole trace file.
    pub trace_sha256: Sha256,
    /// Digest of the window's bytes.
    pub slice_sha256: Sha256,
    /// Rows in the window, from the first of the trace.
    pub count: u64,
    /// Tokens per hash id.
    pub block_size: u64,
    /// How much faster than recorded the requests arrived.
    pub arrival_speedup_ratio: f64,
    /// The rows.
    #[serde(rename = "row")]
    pub rows: Vec<GoldenSeed>,
}

/// One qualified row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GoldenSeed {
    /// The row.
    pub name: String,
    /// KV blocks per worker.
    pub num_gpu_blocks: u64,
    /// Digest of the canonical report.
    pub canonical_sha256: Sha256,
    /// Counters of the coverage, by name.
    pub expected: BTreeMap<String, u64>,
}

impl GoldenSeeds {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// It is not TOML, or has an unknown key, a missing one or a value of another type.
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        from_toml(text)
    }
}

/// The authoritative matrix (B1) with the seed configurations.
#[must_use]
pub(crate) fn rows() -> Vec<Row> {
    let one_to_three = PressureBand { min: 1, max: 3 };
    let ten_to_twenty = PressureBand { min: 10, max: 20 };
    vec![
        aggregated(vllm("vllm-aggregated", 6_144, one_to_three)),
        disaggregated(vllm("vllm-disaggregated", 5_500, ten_to_twenty), 1),
        aggregated(sglang("sglang-aggregated", 1_536, one_to_three)),
        disaggregated(sglang("sglang-disaggregated", 11_264, ten_to_twenty), 262_144),
    ]
}

fn vllm(name: &str, num_gpu_blocks: u64, pressure: PressureBand) -> Row {
    Row {
        block_size: 64,
        max_num_seqs: 16,
        max_num_batched_tokens: 8_192,
        ..row(name, Engine::Vllm, num_gpu_blocks, pressure)
    }
}

fn sglang(name: &str, num_gpu_blocks: u64, pressure: PressureBand) -> Row {
    Row {
        block_size: 512,
        max_num_seqs: 256,
        max_num_batched_tokens: 32_768,
        ..row(name, Engine::Sglang, num_gpu_blocks, pressure)
    }
}

fn row(name: &str, engine: Engine, num_gpu_blocks: u64, pressure: PressureBand) -> Row {
    Row {
        name: name.to_owned(),
        engine,
        topology: Topology::Aggregated,
        workers: None,
        prefill_workers: None,
        decode_workers: None,
        block_size: 0,
        num_gpu_blocks,
        max_num_seqs: 0,
        max_num_batched_tokens: 0,
        kv_bytes_per_token: None,
        kv_transfer_bandwidth_gb_per_s: None,
        kv_transfer_timing: None,
        router_queue_threshold: None,
        pressure,
        expected: BTreeMap::new(),
    }
}

fn aggregated(row: Row) -> Row {
    Row { workers: Some(4), ..row }
}

fn disaggregated(row: Row, kv_bytes_per_token: u64) -> Row {
    Row {
        topology: Topology::Disaggregated,
        prefill_workers: Some(2),
        decode_workers: Some(2),
        kv_bytes_per_token: Some(kv_bytes_per_token),
        kv_transfer_bandwidth_gb_per_s: Some(100.0),
        kv_transfer_timing: Some(TransferTiming::FullPrompt),
        ..row
    }
}
