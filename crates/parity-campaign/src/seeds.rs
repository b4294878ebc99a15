//! The qualified seeds of PARITY Q5: starting points and drift detectors, not constants.

use std::collections::BTreeMap;

use crate::definition::{Engine, PressureBand, Row, Topology, TransferTiming};

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
