//! The layout of `dynamo.offline-replay.v1`, section by section.

use std::cell::RefCell;
use std::ops::Range;

use canonical_json::{ReadError, escape_token};

use super::decode::{Decoder, Read, Slot};
use super::{
    Admission, Boundary, Counts, Evidence, Found, Handoff, Histories, KNOWN_SCHEMAS, KvIngest, Metadata,
    Outcome, Pool, PoolConfig, Pressure, PressureEvidence, PressureKind, Report, ReportError, Request,
    RequestUuid, Route, SchedulerState, Summary, TerminalStatus,
};

/// Reads the named members of one object, each of which must be there; `rest` gets the name of any other member and must
/// consume its value.
macro_rules! members {
    ($decoder:ident, rest: $rest:expr, $($name:literal => $slot:ident: $read:expr,)*) => {
        $(let mut $slot = Slot::Missing;)*
        let is_object = $decoder.object(|decoder, name| {
            match name {
                $($name => $slot = Slot::from($read(decoder)?),)*
                _ => $rest(decoder, name)?,
            }
            Ok(())
        })?;
        if !is_object {
            return Ok(None);
        }
        $(let $slot = $decoder.require($name, $slot);)*
    };
}

fn skip(decoder: &mut Decoder<'_>, _name: &str) -> Result<(), ReadError> {
    decoder.skip()
}

pub(super) fn report(bytes: &[u8]) -> Result<Report, ReportError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ReportError::Empty { bytes: bytes.len() });
    }
    let mut decoder = Decoder::new(bytes);
    let report = root(&mut decoder).map_err(malformed)?;
    nothing_follows(bytes, &mut decoder)?;
    let gaps = decoder.into_gaps();
    match report {
        Some(report) if gaps.is_empty() => Ok(report),
        _ => Err(ReportError::ProtocolNeedsUpdating { gaps }),
    }
}

fn malformed(source: ReadError) -> ReportError {
    ReportError::Malformed { line: source.line, column: source.column, source }
}

/// A second line is a second record; anything else after the first is not JSON.
fn nothing_follows(bytes: &[u8], decoder: &mut Decoder<'_>) -> Result<(), ReportError> {
    let end = decoder.offset();
    let rest = bytes.get(end..).unwrap_or_default();
    let Some(at) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
    if !rest[..at].contains(&b'\n') {
        return decoder.finish().map_err(malformed);
    }
    let offset = end + at;
    let line = 1 + bytes[..offset].iter().filter(|&&byte| byte == b'\n').count();
    Err(ReportError::ExtraRecord { line, offset })
}

fn root(decoder: &mut Decoder<'_>) -> Read<Report> {
    let histories = RefCell::new(Histories::default());
    let mut planner_members = Vec::new();
    members! { decoder,
        rest: |decoder: &mut Decoder<'_>, name: &str| match name {
            "planner" => read_planner(decoder, &mut planner_members),
            _ => decoder.skip(),
        },
        "coverage" => evidence: read_evidence,
        "metadata" => metadata: read_metadata,
        "per_request" => requests: |decoder| read_requests(decoder, &histories),
        "summary" => summary: read_summary,
    }
    let histories = histories.into_inner();
    Ok((|| {
        Some(Report {
            evidence: evidence?,
            metadata: metadata?,
            summary: summary?,
            requests: requests?,
            planner_members,
            histories,
        })
    })())
}

/// Collects an array; `None` when it is none or when an element could not be read.
fn list<'a, T>(
    decoder: &mut Decoder<'a>,
    mut element: impl FnMut(&mut Decoder<'a>) -> Read<T>,
) -> Read<Vec<T>> {
    let (mut values, mut whole) = (Vec::new(), true);
    whole &= decoder.array(|decoder| {
        match element(decoder)? {
            Some(value) => values.push(value),
            None => whole = false,
        }
        Ok(())
    })?;
    Ok(whole.then_some(values))
}

fn read_planner(decoder: &mut Decoder<'_>, names: &mut Vec<Box<str>>) -> Result<(), ReadError> {
    if decoder.next_is_null()? {
        return decoder.skip();
    }
    decoder.object(|decoder, name| {
        names.push(name.into());
        decoder.skip()
    })?;
    Ok(())
}

fn read_summary(decoder: &mut Decoder<'_>) -> Read<Summary> {
    let names = RefCell::new(Vec::<Box<str>>::new());
    let named = |name: &str| names.borrow_mut().push(name.into());
    members! { decoder,
        rest: |decoder: &mut Decoder<'_>, name: &str| {
            named(name);
            decoder.skip()
        },
        "num_requests" => num_requests: Decoder::u64,
        "completed_requests" => completed_requests: Decoder::u64,
        "duration_ms" => duration_ms: Decoder::f64,
        "total_input_tokens" => total_input_tokens: Decoder::u64,
        "total_output_tokens" => total_output_tokens: Decoder::u64,
        "prefix_cache_reused_ratio" => reused_ratio: Decoder::f64,
        "first_admission_prefix_cache_reused_ratio" => first_ratio: Decoder::f64,
    }
    Ok((|| {
        Some(Summary {
            num_requests: num_requests?,
            completed_requests: completed_requests?,
            duration_ms: duration_ms?,
            total_input_tokens: total_input_tokens?,
            total_output_tokens: total_output_tokens?,
            prefix_cache_reused_ratio: reused_ratio?,
            first_admission_prefix_cache_reused_ratio: first_ratio?,
            members: names.into_inner(),
        })
    })())
}

fn read_metadata(decoder: &mut Decoder<'_>) -> Read<Metadata> {
    let mut seed = None;
    let mut workload = Workload::default();
    members! { decoder,
        rest: |decoder: &mut Decoder<'_>, name: &str| match name {
            "determinism" => optional_member(decoder, "seed", &mut seed, Decoder::nullable_u64),
            "workload" => read_workload(decoder, &mut workload),
            _ => decoder.skip(),
        },
        "schema_version" => schema_version: read_schema_version,
        "replay_bench" => replay_bench: Decoder::bool,
        "result_exclusions" => result_exclusions: |decoder| list(decoder, Decoder::string),
        "execution" => execution: read_execution,
        "router" => router: read_router,
        "engine_config" => pools: read_engine_config,
    }
    Ok((|| {
        let (topology, [workers, prefill_workers, decode_workers], arrival_speedup_ratio) = execution?;
        let (router_mode, queue_threshold) = router?;
        Some(Metadata {
            schema_version: schema_version?,
            replay_bench: replay_bench?,
            result_exclusions: result_exclusions?,
            topology,
            workers,
            prefill_workers,
            decode_workers,
            arrival_speedup_ratio,
            router_mode,
            queue_threshold,
            pools: pools?,
            seed: seed.flatten(),
            workload_digest: workload.digest,
            workload_block_size: workload.block_size,
        })
    })())
}

/// Reads one member of an object whose presence the protocol does not depend on.
fn optional_member<'a, T>(
    decoder: &mut Decoder<'a>,
    wanted: &str,
    slot: &mut Option<T>,
    mut read: impl FnMut(&mut Decoder<'a>) -> Read<T>,
) -> Result<(), ReadError> {
    decoder.object(|decoder, name| {
        if name != wanted {
            return decoder.skip();
        }
        *slot = read(decoder)?;
        Ok(())
    })?;
    Ok(())
}

#[derive(Default)]
struct Workload {
    digest: Option<Box<str>>,
    block_size: Option<u64>,
}

fn read_workload(decoder: &mut Decoder<'_>, workload: &mut Workload) -> Result<(), ReadError> {
    decoder.object(|decoder, name| {
        match name {
            "digest" => workload.digest = decoder.string()?,
            "block_size" => workload.block_size = decoder.nullable_u64()?.flatten(),
            _ => decoder.skip()?,
        }
        Ok(())
    })?;
    Ok(())
}

fn read_schema_version(decoder: &mut Decoder<'_>) -> Read<Box<str>> {
    let expected = KNOWN_SCHEMAS.map(|name| format!("{name:?}")).join(" or ");
    decoder.word(&expected, |text| KNOWN_SCHEMAS.contains(&text).then(|| text.into()))
}

/// Topology, the three numbers of workers, and the speed-up of arrivals.
type Execution = (Box<str>, [u64; 3], Option<f64>);

fn read_execution(decoder: &mut Decoder<'_>) -> Read<Execution> {
    let mut speedup = None;
    members! { decoder,
        rest: |decoder: &mut Decoder<'_>, name: &str| {
            if name != "arrival_speedup_ratio" {
                return decoder.skip();
            }
            speedup = decoder.nullable_f64()?.flatten();
            Ok(())
        },
        "topology" => topology: Decoder::string,
        "num_workers" => workers: Decoder::u64,
        "num_prefill_workers" => prefill_workers: Decoder::u64,
        "num_decode_workers" => decode_workers: Decoder::u64,
    }
    Ok((|| Some((topology?, [workers?, prefill_workers?, decode_workers?], speedup)))())
}

type Router = (Box<str>, Option<f64>);

fn read_router(decoder: &mut Decoder<'_>) -> Read<Router> {
    members! { decoder,
        rest: skip,
        "mode" => mode: Decoder::string,
        "config" => config: read_router_config,
    }
    Ok((|| Some((mode?, config?)))())
}

/// The queue threshold; a router without configuration has none.
fn read_router_config(decoder: &mut Decoder<'_>) -> Read<Option<f64>> {
    if decoder.next_is_null()? {
        decoder.skip()?;
        return Ok(Some(None));
    }
    members! { decoder,
        rest: skip,
        "router_queue_threshold" => threshold: Decoder::nullable_f64,
    }
    Ok(threshold)
}

fn read_engine_config(decoder: &mut Decoder<'_>) -> Read<Vec<PoolConfig>> {
    let (mut pools, mut whole) = (Vec::new(), true);
    whole &= decoder.object(|decoder, name| {
        let mut pool = PoolConfig { name: name.into(), ..PoolConfig::default() };
        let at = format!("/metadata/engine_config/{}", escape_token(name));
        whole &= read_pool_config(decoder, &at, &mut pool)?;
        if pool.engine.is_none() {
            decoder.note_member("engine_type", "the engine's name here or at engine/backend", "nothing");
        }
        pools.push(pool);
        Ok(())
    })?;
    Ok(whole.then_some(pools))
}

/// 1.5 has the members in the pool itself, 1.6 in its `engine` member and two of them by another name.
fn read_pool_config(decoder: &mut Decoder<'_>, at: &str, pool: &mut PoolConfig) -> Result<bool, ReadError> {
    decoder.object(|decoder, name| {
        let pointer = format!("{at}/{}", escape_token(name));
        match name {
            "engine" => {
                read_pool_config(decoder, &pointer, pool)?;
            }
            "engine_type" | "backend" => found(&mut pool.engine, decoder.string()?, pointer),
            "block_size" => found(&mut pool.block_size, decoder.nullable_u64()?.flatten(), pointer),
            "num_gpu_blocks" => found(&mut pool.num_gpu_blocks, decoder.nullable_u64()?.flatten(), pointer),
            "max_num_seqs" => found(&mut pool.max_num_seqs, decoder.nullable_u64()?.flatten(), pointer),
            "max_num_batched_tokens" => {
                found(&mut pool.max_num_batched_tokens, decoder.nullable_u64()?.flatten(), pointer);
            }
            "kv_bytes_per_token" | "kv_transfer_bytes_per_token" => {
                found(&mut pool.kv_bytes_per_token, decoder.nullable_u64()?.flatten(), pointer);
            }
            "kv_transfer_bandwidth" => {
                found(&mut pool.kv_transfer_bandwidth_gb_per_s, decoder.nullable_f64()?.flatten(), pointer);
            }
            "kv_transfer_timing_mode" => found(&mut pool.kv_transfer_timing_mode, decoder.string()?, pointer),
            _ => decoder.skip()?,
        }
        Ok(())
    })
}

fn found<T>(slot: &mut Option<Found<T>>, value: Option<T>, pointer: String) {
    if let Some(value) = value {
        *slot = Some(Found { value, pointer });
    }
}

fn read_evidence(decoder: &mut Decoder<'_>) -> Read<Evidence> {
    members! { decoder,
        rest: skip,
        "capture_canonical_evidence" => capture_canonical_evidence: Decoder::bool,
        "capture_per_request" => capture_per_request: Decoder::bool,
        "per_request_records" => per_request_records: Decoder::u64,
        "pressure" => pressure: read_pressure,
        "kv_ingest" => kv_ingest: read_kv_ingest,
    }
    Ok((|| {
        Some(Evidence {
            capture_canonical_evidence: capture_canonical_evidence?,
            capture_per_request: capture_per_request?,
            per_request_records: per_request_records?,
            pressure: pressure?,
            kv_ingest: kv_ingest?,
        })
    })())
}

fn read_pressure(decoder: &mut Decoder<'_>) -> Read<PressureEvidence> {
    members! { decoder,
        rest: skip,
        "records" => records: |decoder| list(decoder, read_pressure_record),
        "vllm_preemptions_total" => vllm_preemptions_total: Decoder::u64,
        "sglang_retractions_total" => sglang_retractions_total: Decoder::u64,
    }
    Ok((|| {
        Some(PressureEvidence {
            records: records?,
            vllm_preemptions_total: vllm_preemptions_total?,
            sglang_retractions_total: sglang_retractions_total?,
        })
    })())
}

fn read_pressure_record(decoder: &mut Decoder<'_>) -> Read<Pressure> {
    members! { decoder,
        rest: skip,
        "pressure_ordinal" => ordinal: Decoder::u64,
        "at_ms" => at_ms: Decoder::f64,
        "readmitted_at_ms" => readmitted_at_ms: Decoder::nullable_f64,
        "pool" => pool: read_pool,
        "worker_id" => worker: Decoder::u64,
        "kind" => kind: read_pressure_kind,
        "request_uuid" => uuid: read_uuid,
        "state_before" => before: read_scheduler_state,
        "state_after" => after: read_scheduler_state,
        "logical_available_blocks_before" => available: Decoder::nullable_u64,
        "required_blocks_before" => required: Decoder::nullable_u64,
    }
    Ok((|| {
        Some(Pressure {
            ordinal: ordinal?,
            at_ms: at_ms?,
            readmitted_at_ms: readmitted_at_ms?,
            pool: pool?,
            worker: worker?,
            kind: kind?,
            uuid: uuid?,
            before: before?,
            after: after?,
            available_blocks_before: available?,
            required_blocks_before: required?,
        })
    })())
}

fn read_scheduler_state(decoder: &mut Decoder<'_>) -> Read<SchedulerState> {
    members! { decoder,
        rest: skip,
        "active_blocks" => active_blocks: Decoder::u64,
        "running_requests" => running_requests: Decoder::u64,
        "waiting_requests" => waiting_requests: Decoder::nullable_u64,
    }
    Ok((|| {
        Some(SchedulerState {
            active_blocks: active_blocks?,
            running_requests: running_requests?,
            waiting_requests: waiting_requests?,
        })
    })())
}

fn read_kv_ingest(decoder: &mut Decoder<'_>) -> Read<KvIngest> {
    members! { decoder,
        rest: skip,
        "batches" => batches: Decoder::u64,
        "events" => events: Decoder::u64,
        "blocks" => blocks: Decoder::u64,
        "blake3_256" => blake3_256: Decoder::string,
        "kind_counts" => kinds: read_counts,
        "pool_counts" => pools: read_counts,
        "tier_counts" => tiers: read_counts,
        "boundaries" => boundaries: read_boundaries,
    }
    Ok((|| {
        Some(KvIngest {
            batches: batches?,
            events: events?,
            blocks: blocks?,
            blake3_256: blake3_256?,
            kinds: kinds?,
            pools: pools?,
            tiers: tiers?,
            boundaries: boundaries?,
        })
    })())
}

fn read_counts(decoder: &mut Decoder<'_>) -> Read<Counts> {
    let (mut counts, mut whole) = (Vec::new(), true);
    whole &= decoder.object(|decoder, name| {
        match decoder.u64()? {
            Some(count) => counts.push((name.into(), count)),
            None => whole = false,
        }
        Ok(())
    })?;
    Ok(whole.then_some(counts))
}

fn read_boundaries(decoder: &mut Decoder<'_>) -> Read<Vec<Boundary>> {
    let (mut boundaries, mut whole) = (Vec::new(), true);
    whole &= decoder.object(|decoder, name| {
        match read_boundary(decoder, name)? {
            Some(boundary) => boundaries.push(boundary),
            None => whole = false,
        }
        Ok(())
    })?;
    Ok(whole.then_some(boundaries))
}

fn read_boundary(decoder: &mut Decoder<'_>, name: &str) -> Read<Boundary> {
    members! { decoder,
        rest: skip,
        "batches" => batches: Decoder::u64,
        "events" => events: Decoder::u64,
        "first_at_ms" => first_at_ms: Decoder::f64,
        "last_at_ms" => last_at_ms: Decoder::f64,
    }
    Ok((|| {
        Some(Boundary {
            name: name.into(),
            batches: batches?,
            events: events?,
            first_at_ms: first_at_ms?,
            last_at_ms: last_at_ms?,
        })
    })())
}

fn read_requests(decoder: &mut Decoder<'_>, histories: &RefCell<Histories>) -> Read<Vec<Request>> {
    list(decoder, |decoder| read_request(decoder, &mut histories.borrow_mut()))
}

fn read_request(decoder: &mut Decoder<'_>, histories: &mut Histories) -> Read<Request> {
    let Histories { routes: all_routes, admissions: all_admissions, pressure_ordinals: all_ordinals } =
        histories;
    members! { decoder,
        rest: skip,
        "uuid" => uuid: read_uuid,
        "arrival_time_ms" => arrival_ms: Decoder::f64,
        "first_admit_ms" => first_admit_ms: Decoder::nullable_f64,
        "first_token_ms" => first_token_ms: Decoder::nullable_f64,
        "last_token_ms" => last_token_ms: Decoder::nullable_f64,
        "terminal_time_ms" => terminal_ms: Decoder::f64,
        "terminal_status" => status: read_terminal_status,
        "input_length" => input_length: Decoder::u64,
        "requested_output_length" => requested_output_length: Decoder::u64,
        "output_length" => output_length: Decoder::u64,
        "reused_input_tokens" => reused_input_tokens: Decoder::u64,
        "decode_reused_input_tokens" => decode_reused_input_tokens: Decoder::nullable_u64,
        "prefill_worker_idx" => prefill_worker: Decoder::nullable_u64,
        "decode_worker_idx" => decode_worker: Decoder::nullable_u64,
        "prefill_route_overlap_tokens" => prefill_overlap: Decoder::nullable_u64,
        "decode_route_overlap_tokens" => decode_overlap: Decoder::nullable_u64,
        "prefill_admit_ms" => prefill_admit_ms: Decoder::nullable_f64,
        "source_held_ms" => source_held_ms: Decoder::nullable_f64,
        "destination_reserved_ms" => destination_reserved_ms: Decoder::nullable_f64,
        "destination_activated_ms" => destination_activated_ms: Decoder::nullable_f64,
        "decode_admit_ms" => decode_admit_ms: Decoder::nullable_f64,
        "source_released_ms" => source_released_ms: Decoder::nullable_f64,
        "admission_count" => admission_count: Decoder::u64,
        "readmission_count" => readmission_count: Decoder::u64,
        "routing_history" => routes: |decoder| append(decoder, all_routes, read_route),
        "admission_history" => admissions: |decoder| append(decoder, all_admissions, read_admission),
        "pressure_record_ordinals" => pressure_ordinals:
            |decoder| append(decoder, all_ordinals, Decoder::u64),
    }
    Ok((|| {
        Some(Request {
            uuid: uuid?,
            arrival_ms: arrival_ms?,
            first_admit_ms: first_admit_ms?,
            first_token_ms: first_token_ms?,
            last_token_ms: last_token_ms?,
            terminal_ms: terminal_ms?,
            status: status?,
            input_length: input_length?,
            requested_output_length: requested_output_length?,
            output_length: output_length?,
            reused_input_tokens: reused_input_tokens?,
            decode_reused_input_tokens: decode_reused_input_tokens?,
            prefill_worker: prefill_worker?,
            decode_worker: decode_worker?,
            prefill_route_overlap_tokens: prefill_overlap?,
            decode_route_overlap_tokens: decode_overlap?,
            handoff: Handoff {
                prefill_admit_ms: prefill_admit_ms?,
                source_held_ms: source_held_ms?,
                destination_reserved_ms: destination_reserved_ms?,
                destination_activated_ms: destination_activated_ms?,
                decode_admit_ms: decode_admit_ms?,
                source_released_ms: source_released_ms?,
            },
            admission_count: admission_count?,
            readmission_count: readmission_count?,
            routes: routes?,
            admissions: admissions?,
            pressure_ordinals: pressure_ordinals?,
        })
    })())
}

/// Appends the elements of an array to a shared vector and returns where they are.
fn append<'a, T>(
    decoder: &mut Decoder<'a>,
    shared: &mut Vec<T>,
    mut element: impl FnMut(&mut Decoder<'a>) -> Read<T>,
) -> Read<Range<usize>> {
    let (start, mut whole) = (shared.len(), true);
    whole &= decoder.array(|decoder| {
        match element(decoder)? {
            Some(value) => shared.push(value),
            None => whole = false,
        }
        Ok(())
    })?;
    Ok(whole.then_some(start..shared.len()))
}

fn read_route(decoder: &mut Decoder<'_>) -> Read<Route> {
    members! { decoder,
        rest: skip,
        "pool" => pool: read_pool,
        "outcome" => outcome: read_outcome,
        "queue_entered_at_ms" => queue_entered_at_ms: Decoder::nullable_f64,
        "released_at_ms" => released_at_ms: Decoder::nullable_f64,
        "queue_wait_ms" => queue_wait_ms: Decoder::nullable_f64,
        "logical_worker_id" => worker: Decoder::nullable_u64,
        "reported_overlap_tokens" => reported: Decoder::nullable_u64,
        "selected_overlap_blocks" => selected: Decoder::nullable_u64,
        "best_available_overlap_blocks" => best: Decoder::nullable_u64,
        "overlap_regret_blocks" => regret: Decoder::nullable_u64,
    }
    Ok((|| {
        Some(Route {
            pool: pool?,
            outcome: outcome?,
            queue_entered_at_ms: queue_entered_at_ms?,
            released_at_ms: released_at_ms?,
            queue_wait_ms: queue_wait_ms?,
            worker: worker?,
            reported_overlap_tokens: reported?,
            selected_overlap_blocks: selected?,
            best_available_overlap_blocks: best?,
            overlap_regret_blocks: regret?,
        })
    })())
}

fn read_admission(decoder: &mut Decoder<'_>) -> Read<Admission> {
    members! { decoder,
        rest: skip,
        "admission_ordinal" => ordinal: Decoder::u64,
        "pool_admission_ordinal" => pool_ordinal: Decoder::u64,
        "pool" => pool: read_pool,
        "at_ms" => at_ms: Decoder::f64,
        "reused_input_tokens" => reused_input_tokens: Decoder::u64,
        "is_readmission" => is_readmission: Decoder::bool,
    }
    Ok((|| {
        Some(Admission {
            ordinal: ordinal?,
            pool_ordinal: pool_ordinal?,
            pool: pool?,
            at_ms: at_ms?,
            reused_input_tokens: reused_input_tokens?,
            is_readmission: is_readmission?,
        })
    })())
}

fn read_uuid(decoder: &mut Decoder<'_>) -> Read<RequestUuid> {
    decoder.word("a request UUID", RequestUuid::parse)
}

fn read_pool(decoder: &mut Decoder<'_>) -> Read<Pool> {
    decoder.word("one of \"agg\", \"prefill\", \"decode\"", |text| {
        [Pool::Agg, Pool::Prefill, Pool::Decode].into_iter().find(|pool| pool.as_str() == text)
    })
}

fn read_pressure_kind(decoder: &mut Decoder<'_>) -> Read<PressureKind> {
    decoder.word("one of \"vllm_preemption\", \"sglang_retraction\"", |text| {
        [PressureKind::VllmPreemption, PressureKind::SglangRetraction]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    })
}

fn read_outcome(decoder: &mut Decoder<'_>) -> Read<Outcome> {
    decoder.word("\"immediate\" or \"queued\"", |text| match text {
        "immediate" => Some(Outcome::Immediate),
        "queued" => Some(Outcome::Queued),
        _ => None,
    })
}

fn read_terminal_status(decoder: &mut Decoder<'_>) -> Read<TerminalStatus> {
    decoder.word("one of \"completed\", \"rejected\", \"canceled\", \"failed\"", |text| match text {
        "completed" => Some(TerminalStatus::Completed),
        "rejected" => Some(TerminalStatus::Rejected),
        "canceled" => Some(TerminalStatus::Canceled),
        "failed" => Some(TerminalStatus::Failed),
        _ => None,
    })
}
