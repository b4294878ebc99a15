//! The four frozen rows of the demonstration.

use std::collections::BTreeMap;

use crate::definition::{Engine, PressureBand, Row, Topology, TransferTiming};

/// The capacities were found by replaying the trace of the demonstration on the baseline over a range of them: each is inside its
/// band (2, 13, 2 and 14 events), and no request loses its blocks twice.
pub(super) fn rows() -> Vec<Row> {
    let vllm = |name, topology, num_gpu_blocks, max_num_seqs| Row {
        block_size: 64,
        max_num_seqs,
        max_num_batched_tokens: 8_192,
        kv_bytes_per_token: of_handoff(topology, 1),
        ..row(name, Engine::Vllm, topology, num_gpu_blocks)
    };
    let sglang = |name, topology, num_gpu_blocks| Row {
        block_size: 512,
        max_num_seqs: 256,
        max_num_batched_tokens: 32_768,
        kv_bytes_per_token: of_handoff(topology, 262_144),
        ..row(name, Engine::Sglang, topology, num_gpu_blocks)
    };
    vec![
        vllm("vllm-aggregated", Topology::Aggregated, 2_100, 16),
        vllm("vllm-disaggregated", Topology::Disaggregated, 3_200, 32),
        sglang("sglang-aggregated", Topology::Aggregated, 260),
        sglang("sglang-disaggregated", Topology::Disaggregated, 204),
    ]
}

/// What the two engines have in common: four workers, or two and two with the larger pressure band of throttled rows.
fn row(name: &str, engine: Engine, topology: Topology, num_gpu_blocks: u64) -> Row {
    let disaggregated = topology == Topology::Disaggregated;
    Row {
        name: name.to_owned(),
        engine,
        topology,
        workers: (!disaggregated).then_some(4),
        prefill_workers: of_handoff(topology, 2),
        decode_workers: of_handoff(topology, 2),
        block_size: 0,
        num_gpu_blocks,
        max_num_seqs: 0,
        max_num_batched_tokens: 0,
        kv_bytes_per_token: None,
        kv_transfer_bandwidth_gb_per_s: disaggregated.then_some(100.0),
        kv_transfer_timing: disaggregated.then_some(TransferTiming::FullPrompt),
        router_queue_threshold: None,
        expected: BTreeMap::new(),
        pressure: if disaggregated {
            PressureBand { min: 10, max: 20 }
        } else {
            PressureBand { min: 1, max: 3 }
        },
    }
}

fn of_handoff(topology: Topology, value: u64) -> Option<u64> {
    (topology == Topology::Disaggregated).then_some(value)
}
