//! The report of a replay. Every key and every number is a function of the trace and the options alone, except the three
//! figures of [`EXCLUSIONS`], which a canonical report leaves out.

use crate::evidence::{Occupancy, Pressure};
use crate::json::Json;
use crate::options::{EngineType, Options};
use crate::random::SEED;
use crate::replay::Replay;
use crate::request::{Admission, Nanos, Pool, Request, Route};
use crate::summary::{Latencies, ms, reused_in, summarize};

/// The figures that depend on wall time.
pub(crate) const EXCLUSIONS: [&str; 3] =
    ["/summary/wall_time_ms", "/summary/processed_tokens_per_s", "/summary/processed_output_tokens_per_s"];

/// Builds the report of a finished replay over a trace with this digest. `wall_ms` adds the excluded figures.
pub(crate) fn build(replay: &Replay, options: &Options, trace_digest: &str, wall_ms: Option<f64>) -> Json {
    let workers = if options.disaggregated {
        (options.num_prefill_workers, options.num_decode_workers)
    } else {
        (0, options.num_workers)
    };
    let mut summary = summarize(replay, workers);
    if let Some(wall_ms) = wall_ms {
        let count = |key: &str| summary.get(key).and_then(Json::as_u64).unwrap_or(0) as f64;
        let (all, output) = (count("processed_tokens"), count("total_output_tokens"));
        summary.insert("wall_time_ms".to_owned(), wall_ms.into());
        summary.insert("processed_tokens_per_s".to_owned(), (all / wall_ms * 1e3).into());
        summary.insert("processed_output_tokens_per_s".to_owned(), (output / wall_ms * 1e3).into());
    }
    let requests = replay.world.requests.iter().map(|request| per_request(request, options));
    Json::map([
        ("coverage", coverage(replay, options)),
        ("metadata", metadata(options, trace_digest)),
        ("per_request", Json::list(requests)),
        ("planner", Json::Null),
        ("summary", Json::Map(summary)),
    ])
}

fn uuid(request: usize) -> Json {
    format!("00000000-0000-0000-0000-{:012x}", request + 1).into()
}

fn time(at: Option<Nanos>) -> Json {
    at.map(ms).into()
}

fn coverage(replay: &Replay, options: &Options) -> Json {
    let ingest = &replay.ingest;
    let events = ingest.stored + ingest.removed;
    let pool = if options.disaggregated { Pool::Prefill } else { Pool::Aggregated };
    let boundary = Json::map([
        ("batches", ingest.batches.into()),
        ("events", events.into()),
        ("first_at_ms", time(ingest.first_at)),
        ("last_at_ms", time(ingest.last_at)),
    ]);
    let mut pools = vec![(pool.name().to_owned(), Json::from(events))];
    if options.disaggregated {
        pools.push((Pool::Decode.name().to_owned(), Json::Whole(0)));
    }
    let kv_ingest = Json::map([
        ("batches", ingest.batches.into()),
        ("blake3_256", ingest.digest.as_ref().map(|digest| digest.finish()).into()),
        ("blocks", events.into()),
        ("boundaries", Json::map([("pass_end", boundary)])),
        ("encoding", "demo.kv-ingest.v1".into()),
        ("events", events.into()),
        ("kind_counts", Json::map([("removed", ingest.removed.into()), ("stored", ingest.stored.into())])),
        ("pool_counts", Json::Map(pools.into_iter().collect())),
        ("tier_counts", Json::map([("device", events.into())])),
    ]);
    Json::map([
        ("capture_canonical_evidence", ingest.digest.is_some().into()),
        ("capture_per_request", true.into()),
        ("capture_planner_details", false.into()),
        ("kv_ingest", kv_ingest),
        ("per_request_records", replay.world.requests.len().into()),
        ("pressure", pressure(replay, options.engine)),
    ])
}

fn pressure(replay: &Replay, engine: EngineType) -> Json {
    let records = &replay.world.pressure;
    let total = |of: EngineType| Json::from(if of == engine { records.len() } else { 0 });
    let list = records.iter().enumerate().map(|(ordinal, record)| pressure_record(ordinal, record, engine));
    Json::map([
        ("records", Json::list(list)),
        ("sglang_retractions_total", total(EngineType::Sglang)),
        ("vllm_preemptions_total", total(EngineType::Vllm)),
    ])
}

fn pressure_record(ordinal: usize, record: &Pressure, engine: EngineType) -> Json {
    let sglang = engine == EngineType::Sglang;
    let state = |occupancy: &Occupancy| {
        Json::map([
            ("active_blocks", occupancy.active_blocks.into()),
            ("running_requests", occupancy.running_requests.into()),
            ("waiting_requests", (!sglang).then_some(occupancy.waiting_requests).into()),
        ])
    };
    Json::map([
        ("at_ms", ms(record.at).into()),
        ("dp_rank", Json::Whole(0)),
        ("kind", if sglang { "sglang_retraction" } else { "vllm_preemption" }.into()),
        ("logical_available_blocks_before", sglang.then_some(record.available_blocks).into()),
        ("pool", record.pool.name().into()),
        ("pressure_ordinal", ordinal.into()),
        ("readmitted_at_ms", time(record.readmitted)),
        ("request_active_blocks_before", record.lost_blocks.into()),
        ("request_uuid", uuid(record.request)),
        ("required_blocks_before", sglang.then_some(record.wanted_blocks).into()),
        ("state_after", state(&record.after)),
        ("state_before", state(&record.before)),
        ("worker_id", record.worker.into()),
    ])
}

fn metadata(options: &Options, trace_digest: &str) -> Json {
    let engine_config = if options.disaggregated {
        Json::map([
            ("decode", engine_config(options, "decode")),
            ("prefill", engine_config(options, "prefill")),
        ])
    } else {
        Json::map([("aggregated", engine_config(options, "aggregated"))])
    };
    let determinism = Json::map([
        ("candidate_order", Json::list(["worker_id"])),
        ("request_ids", "ordinal_u128_v1".into()),
        ("seed", SEED.into()),
        ("selection", "overlap_minus_load_seeded_v1".into()),
    ]);
    let execution = Json::map([
        ("arrival_speedup_ratio", options.arrival_speedup_ratio.into()),
        ("max_sim_time_ms", Json::Null),
        ("num_decode_workers", options.num_decode_workers.into()),
        ("num_prefill_workers", options.num_prefill_workers.into()),
        ("num_workers", options.num_workers.into()),
        ("replay_concurrency", Json::Null),
        ("topology", if options.disaggregated { "disaggregated" } else { "aggregated" }.into()),
    ]);
    let router = Json::map([
        ("overlap_score_credit", 1.0.into()),
        ("router_queue_policy", "fcfs".into()),
        ("router_queue_threshold", Json::Null),
        ("router_temperature", 0.0.into()),
        ("use_kv_events", true.into()),
    ]);
    let workload = Json::map([
        ("block_size", options.trace_block_tokens.into()),
        ("digest", trace_digest.into()),
        ("format", "mooncake".into()),
        ("kind", "trace".into()),
    ]);
    Json::map([
        ("byte_identity_scope", "same_target_toolchain_semantic_features".into()),
        ("determinism", determinism),
        ("engine_config", engine_config),
        ("execution", execution),
        ("replay_bench", cfg!(feature = "replay-bench").into()),
        ("result_exclusions", Json::list(EXCLUSIONS)),
        ("router", Json::map([("config", router), ("mode", "kv_router".into())])),
        ("schema_version", "dynamo.offline-replay.v1".into()),
        ("semantic_features", Json::map([("canonical_replay", cfg!(feature = "replay-bench").into())])),
        ("workload", workload),
    ])
}

fn engine_config(options: &Options, worker_type: &str) -> Json {
    Json::map([
        ("block_size", options.block_tokens.into()),
        ("decode_speedup_ratio", options.decode_speedup_ratio.into()),
        ("dp_size", Json::Whole(1)),
        ("enable_chunked_prefill", true.into()),
        ("enable_prefix_caching", true.into()),
        ("engine_type", options.engine.name().into()),
        ("kv_bytes_per_token", options.kv_bytes_per_token.into()),
        ("kv_transfer_bandwidth", options.kv_transfer_gb_per_s.into()),
        ("kv_transfer_timing_mode", options.kv_transfer_timing.name().into()),
        ("max_num_batched_tokens", options.max_num_batched_tokens.into()),
        ("max_num_seqs", options.max_num_seqs.into()),
        ("num_gpu_blocks", options.num_gpu_blocks.into()),
        ("performance_model", Json::map([("kind", "demo_linear".into())])),
        ("preemption_mode", "lifo".into()),
        ("speedup_ratio", options.speedup_ratio.into()),
        ("worker_type", worker_type.into()),
    ])
}

fn per_request(request: &Request, options: &Options) -> Json {
    let timeline = &request.timeline;
    let route = |pool| timeline.routes.iter().find(|route| route.pool == pool);
    let first_admission = |pool| timeline.admissions.iter().find(|admission| admission.pool == pool);
    let overlap = |pool| route(pool).map(|route| route.overlap_blocks * u64::from(options.block_tokens));
    let at = |admission: Option<&Admission>| time(admission.map(|admission| admission.at));
    let latencies = Latencies::of(request);
    let admissions = timeline.admissions.len();
    let again = timeline.admissions.iter().filter(|admission| admission.again).count();
    let answering = if options.disaggregated { Pool::Decode } else { Pool::Aggregated };
    let prompting = if options.disaggregated { Pool::Prefill } else { Pool::Aggregated };
    let status = if timeline.terminal.is_some() { "completed" } else { "unfinished" };
    let routes = timeline.routes.iter().map(|route| routing(route, options.block_tokens));
    Json::map([
        ("admission_count", admissions.into()),
        ("admission_history", admission_history(&timeline.admissions)),
        ("arrival_time_ms", ms(timeline.arrival).into()),
        ("decode_admit_ms", at(first_admission(Pool::Decode))),
        ("decode_reused_input_tokens", reused_in(request, Pool::Decode).into()),
        ("decode_route_overlap_tokens", overlap(Pool::Decode).into()),
        ("decode_worker_idx", route(answering).map(|route| route.worker).into()),
        ("destination_activated_ms", time(timeline.destination_activated)),
        ("destination_reserved_ms", time(timeline.destination_reserved)),
        ("dispatched_at_ms", Json::Null),
        ("e2e_latency_ms", latencies.end_to_end_ms.into()),
        ("first_admit_ms", at(timeline.admissions.first())),
        ("first_token_ms", time(timeline.first_token)),
        ("input_length", request.input_tokens.into()),
        ("itl_ms", latencies.per_token_ms.into()),
        ("last_token_ms", time(timeline.last_token)),
        ("output_length", request.generated.into()),
        ("prefill_admit_ms", at(first_admission(Pool::Prefill))),
        ("prefill_route_overlap_tokens", overlap(Pool::Prefill).into()),
        ("prefill_worker_idx", route(Pool::Prefill).map(|route| route.worker).into()),
        ("pressure_record_ordinals", Json::list(timeline.pressure.iter().copied())),
        ("readmission_count", again.into()),
        ("requested_output_length", request.output_tokens.into()),
        ("reused_input_tokens", reused_in(request, prompting).into()),
        ("routing_history", Json::list(routes)),
        ("session_id", Json::Null),
        ("source_held_ms", time(timeline.source_held)),
        ("source_released_ms", time(timeline.source_released)),
        ("terminal_status", status.into()),
        ("terminal_time_ms", time(timeline.terminal)),
        ("ttft_ms", latencies.first_token_ms.into()),
        ("ttst_ms", latencies.second_token_ms.into()),
        ("turn_index", Json::Null),
        ("uuid", uuid(request.ordinal)),
    ])
}

/// Admissions in order, numbered overall and within their pool.
fn admission_history(admissions: &[Admission]) -> Json {
    let in_pool = |end: usize, pool| admissions[..end].iter().filter(|before| before.pool == pool).count();
    Json::list(admissions.iter().enumerate().map(|(ordinal, admission)| {
        Json::map([
            ("admission_ordinal", ordinal.into()),
            ("at_ms", ms(admission.at).into()),
            ("is_readmission", admission.again.into()),
            ("pool", admission.pool.name().into()),
            ("pool_admission_ordinal", in_pool(ordinal, admission.pool).into()),
            ("reused_input_tokens", admission.reused_tokens.into()),
        ])
    }))
}

/// There is no queue in front of the router, so every placement is immediate.
fn routing(route: &Route, block_tokens: u32) -> Json {
    Json::map([
        ("best_available_overlap_blocks", route.best_overlap_blocks.into()),
        ("dp_rank", Json::Whole(0)),
        ("logical_worker_id", route.worker.into()),
        ("outcome", "immediate".into()),
        ("overlap_regret_blocks", (route.best_overlap_blocks - route.overlap_blocks).into()),
        ("placement_replica_id", Json::Null),
        ("pool", route.pool.name().into()),
        ("queue_entered_at_ms", Json::Null),
        ("queue_wait_ms", 0.0.into()),
        ("released_at_ms", Json::Null),
        ("reported_overlap_tokens", (route.overlap_blocks * u64::from(block_tokens)).into()),
        ("scheduler_id", route.worker.into()),
        ("selected_overlap_blocks", route.overlap_blocks.into()),
    ])
}
