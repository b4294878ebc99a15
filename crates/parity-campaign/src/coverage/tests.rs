//! One member of a real report is changed at a time, and exactly one item must notice.

use super::*;
use crate::canonical_report::tests::{edit, report};
use crate::canonical_report::value_text;
use crate::definition::{PressureBand, TransferTiming};

mod edges;

const VA: &str = "dynamo-1.5.1-vllm-aggregated";
const VD: &str = "dynamo-1.5.1-vllm-disaggregated";
const SA: &str = "dynamo-1.5.1-sglang-aggregated";
const SD: &str = "dynamo-1.5.1-sglang-disaggregated";
/// One worker with a queue threshold, and so few blocks that one request is preempted four times.
const QUEUED: &str = "dynamo-1.6.1-vllm-queued";

const TOTALS: WorkloadTotals = WorkloadTotals { requests: 40, input_tokens: 86_904, output_tokens: 21_004 };
const REVIEWED: &str = "/planner/html_report_path";

pub(crate) fn row(name: &str) -> Row {
    let (block_size, num_gpu_blocks, max_num_seqs, max_num_batched_tokens, band) = match name {
        VA => (64, 225, 16, 8192, (1, 3)),
        VD => (64, 162, 16, 8192, (10, 20)),
        SA => (512, 18, 64, 32_768, (1, 3)),
        SD => (512, 21, 64, 32_768, (10, 20)),
        _ => (64, 250, 16, 8192, (10, 20)),
    };
    let disaggregated = name.ends_with("-disaggregated");
    let aggregated_workers = if name == QUEUED { 1 } else { 4 };
    Row {
        name: name.to_owned(),
        engine: if name.contains("sglang") { Engine::Sglang } else { Engine::Vllm },
        topology: if disaggregated { Topology::Disaggregated } else { Topology::Aggregated },
        workers: (!disaggregated).then_some(aggregated_workers),
        prefill_workers: disaggregated.then_some(2),
        decode_workers: disaggregated.then_some(2),
        block_size,
        num_gpu_blocks,
        max_num_seqs,
        max_num_batched_tokens,
        kv_bytes_per_token: disaggregated.then_some(if name == VD { 1 } else { 262_144 }),
        kv_transfer_bandwidth_gb_per_s: disaggregated.then_some(100.0),
        kv_transfer_timing: disaggregated.then_some(TransferTiming::FullPrompt),
        router_queue_threshold: (name == QUEUED).then_some(0.5),
        expected: std::collections::BTreeMap::new(),
        pressure: PressureBand { min: band.0, max: band.1 },
    }
}

fn expectation(row: &Row) -> Expectation<'_> {
    let mut expectation = Expectation::new(row, TOTALS)
        .with_reviewed_exclusions(BTreeSet::from([REVIEWED]))
        .with_replay(4.0, 512);
    if row.name == QUEUED {
        expectation.max_pressure_per_request = 4;
    }
    expectation
}

fn coverage(name: &str, bytes: &[u8]) -> Coverage {
    Coverage::check(bytes, &expectation(&row(name))).expect("a report of a known layout")
}

/// Items that do not hold, with what they found.
fn complaints(coverage: &Coverage) -> Vec<(ItemId, &Finding)> {
    coverage.failures().chain(coverage.reviews()).collect()
}

fn ids(coverage: &Coverage) -> Vec<&'static str> {
    complaints(coverage).into_iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn real_reports_qualify() {
    for name in [VA, VD, SA, SD, QUEUED] {
        let coverage = coverage(name, &report(name));
        assert!(coverage.qualifies(), "{name}:\n{coverage}");
        let listed: Vec<ItemId> = coverage.items.iter().map(|item| item.id).collect();
        assert_eq!(listed, ItemId::ALL, "{name}");
    }
}

#[test]
fn only_what_a_row_lacks_is_not_applicable() {
    let lacks = |name| {
        let coverage = coverage(name, &report(name));
        let items = coverage.items.iter().filter(|item| matches!(item.status, Status::NotApplicable { .. }));
        items.map(|item| item.id.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(lacks(VA), ["q2.handoff_complete", "q2.handoff_order", "q2.source_released_last"]);
    assert_eq!(lacks(SD), [""; 0]);
    let aggregated = coverage(VA, &report(VA));
    assert!(aggregated.holds(ItemId::NoCycling) && !aggregated.holds(ItemId::HandoffOrder));
}

/// A recorded coverage that was cut short, or whose failures were called out of place, is no proof.
#[test]
fn a_coverage_that_lacks_an_item_is_noticed() {
    for name in [VA, VD, SA, SD] {
        let whole = coverage(name, &report(name));
        assert_eq!(whole.lack(&row(name)), None, "{name}");
        for at in 0..whole.items.len() {
            let mut cut = whole.clone();
            let id = cut.items.remove(at).id;
            assert_eq!(cut.lack(&row(name)), Some(format!("{id} was not checked")), "{name}");
            let mut excused = whole.clone();
            excused.items[at].status = Status::NotApplicable { reason: "no".to_owned() };
            let stated = matches!(whole.items[at].status, Status::NotApplicable { .. });
            assert_eq!(excused.lack(&row(name)).is_none(), stated, "{name} {id}");
        }
        let mut turned = whole.clone();
        turned.items.swap(0, 1);
        assert!(turned.lack(&row(name)).is_some());
    }
}

/// Report, member, new value, the only item that must notice.
const ONE_FIELD: &[(&str, &str, &str, &str)] = &[
    (VA, "/coverage/capture_per_request", "false", "layout"),
    (SD, "/coverage/capture_canonical_evidence", "false", "layout"),
    (VA, "/metadata/replay_bench", "false", "d3.replay_bench"),
    (VA, "/metadata/result_exclusions/3", r#""/summary/gpu_hours""#, "d2.exclusions"),
    (VA, "/metadata/result_exclusions/0", r#""/summary/max_itl_ms""#, "d2.exclusions"),
    (VA, "/metadata/result_exclusions", "[]", "d2.exclusions"),
    (
        VA,
        "/metadata/result_exclusions",
        r#"["/summary/wall_time_ms","/summary/processed_tokens_per_s","/planner/html_report_path"]"#,
        "d2.exclusions",
    ),
    (VA, "/metadata/execution/topology", r#""disaggregated""#, "row.declaration"),
    (VA, "/metadata/execution/num_workers", "5", "row.declaration"),
    (VD, "/metadata/execution/num_prefill_workers", "1", "row.declaration"),
    (VD, "/metadata/execution/num_decode_workers", "3", "row.declaration"),
    (VA, "/metadata/execution/arrival_speedup_ratio", "1.0", "row.declaration"),
    (VA, "/metadata/workload/block_size", "16", "row.declaration"),
    (VD, "/metadata/engine_config/prefill/kv_bytes_per_token", "2", "row.declaration"),
    (SD, "/metadata/engine_config/decode/kv_transfer_bandwidth", "99.5", "row.declaration"),
    (
        SD,
        "/metadata/engine_config/decode/kv_transfer_timing_mode",
        r#""destination_missing""#,
        "row.declaration",
    ),
    (VA, "/metadata/router/mode", r#""round_robin""#, "row.declaration"),
    (VA, "/metadata/router/config/router_queue_threshold", "0.5", "row.declaration"),
    (QUEUED, "/metadata/router/config/router_queue_threshold", "0.25", "row.declaration"),
    (QUEUED, "/metadata/router/config/router_queue_threshold", "null", "row.declaration"),
    (VA, "/metadata/engine_config/aggregated/engine_type", r#""sglang""#, "row.declaration"),
    (SD, "/metadata/engine_config/decode/block_size", "64", "row.declaration"),
    (SD, "/metadata/engine_config/prefill/num_gpu_blocks", "22", "row.declaration"),
    (QUEUED, "/metadata/engine_config/aggregated/engine/backend", r#""trtllm""#, "row.declaration"),
    (QUEUED, "/metadata/engine_config/aggregated/engine/max_num_seqs", "8", "row.declaration"),
    (VA, "/coverage/per_request_records", "39", "q2.requests"),
    (VA, "/summary/num_requests", "41", "q2.requests"),
    (VA, "/per_request/3/uuid", r#""00000000-0000-0000-0000-000000000005""#, "q2.requests"),
    (VA, "/per_request/5/terminal_status", r#""failed""#, "q2.terminal_status"),
    (SD, "/per_request/5/terminal_status", r#""canceled""#, "q2.terminal_status"),
    (VA, "/per_request/5/first_token_ms", "null", "q2.terminal_status"),
    (VA, "/per_request/5/last_token_ms", "null", "q2.terminal_status"),
    (VA, "/summary/completed_requests", "39", "q2.terminal_status"),
    (VA, "/per_request/7/input_length", "1", "q2.token_totals"),
    (SD, "/per_request/7/output_length", "1", "q2.token_totals"),
    (SD, "/per_request/7/requested_output_length", "18446744073709551615", "q2.token_totals"),
    (VA, "/summary/total_input_tokens", "86905", "q2.token_totals"),
    (VA, "/summary/total_output_tokens", "21003", "q2.token_totals"),
    (VA, "/per_request/12/routing_history/0/selected_overlap_blocks", "36", "q2.overlap_routing"),
    (VA, "/per_request/12/routing_history/0/selected_overlap_blocks", "null", "q2.overlap_routing"),
    (VA, "/per_request/3/routing_history/0/best_available_overlap_blocks", "7", "q2.overlap_routing"),
    (VA, "/per_request/3/routing_history/0/overlap_regret_blocks", "0", "q2.overlap_routing"),
    (VA, "/per_request/12/routing_history/0/reported_overlap_tokens", "2304", "q2.overlap_routing"),
    (VD, "/per_request/12/prefill_route_overlap_tokens", "0", "q2.overlap_routing"),
    (SD, "/per_request/12/decode_route_overlap_tokens", "512", "q2.overlap_routing"),
    (VA, "/per_request/12/reused_input_tokens", "0", "q2.prefix_reuse"),
    (VA, "/per_request/12/admission_history/0/reused_input_tokens", "0", "q2.prefix_reuse"),
    (VD, "/per_request/12/decode_reused_input_tokens", "0", "q2.prefix_reuse"),
    (SA, "/summary/prefix_cache_reused_ratio", "0.5", "q2.prefix_reuse"),
    (SA, "/summary/first_admission_prefix_cache_reused_ratio", "0.34171039307741877", "q2.prefix_reuse"),
    (VA, "/per_request/3/routing_history/0/logical_worker_id", "4", "q2.every_worker"),
    (VA, "/per_request/3/routing_history/0/logical_worker_id", "null", "q2.every_worker"),
    (VA, "/per_request/3/decode_worker_idx", "1", "q2.every_worker"),
    (VD, "/per_request/3/prefill_worker_idx", "null", "q2.every_worker"),
    (VA, "/per_request/3/routing_history/0/outcome", r#""queued""#, "q2.placements"),
    (VA, "/per_request/3/routing_history/0/queue_wait_ms", "1.5", "q2.placements"),
    (VA, "/per_request/3/routing_history/0/queue_entered_at_ms", "115.0", "q2.placements"),
    (VA, "/per_request/3/routing_history/0/pool", r#""decode""#, "q2.placements"),
    (SD, "/per_request/3/routing_history", "[]", "q2.placements"),
    (QUEUED, "/per_request/20/routing_history/0/queue_wait_ms", "20388.34", "q2.placements"),
    (QUEUED, "/per_request/20/routing_history/0/queue_wait_ms", "null", "q2.placements"),
    (QUEUED, "/per_request/20/routing_history/0/queue_entered_at_ms", "683.5", "q2.placements"),
    (QUEUED, "/per_request/20/routing_history/0/released_at_ms", "28926.8", "q2.placements"),
    (QUEUED, "/per_request/20/routing_history/0/outcome", r#""immediate""#, "q2.placements"),
    (VA, "/per_request/3/admission_count", "2", "q2.admissions"),
    (VA, "/per_request/37/readmission_count", "0", "q2.admissions"),
    (VA, "/per_request/37/admission_history/1/is_readmission", "false", "q2.admissions"),
    (VA, "/per_request/37/admission_history/1/admission_ordinal", "0", "q2.admissions"),
    (VD, "/per_request/12/admission_history/2/pool_admission_ordinal", "2", "q2.admissions"),
    (VA, "/per_request/3/first_admit_ms", "116.0", "q2.admissions"),
    (VA, "/per_request/3/first_admit_ms", "null", "q2.admissions"),
    (VA, "/per_request/3/admission_history/0/at_ms", "116.0", "q2.admissions"),
    (VD, "/per_request/3/prefill_admit_ms", "156.0", "q2.admissions"),
    (SD, "/per_request/3/decode_admit_ms", "170.0", "q2.admissions"),
    (VA, "/coverage/kv_ingest/events", "497", "q2.kv_events"),
    (VA, "/coverage/kv_ingest/batches", "1", "q2.kv_events"),
    (VA, "/coverage/kv_ingest/kind_counts/stored", "0", "q2.kv_events"),
    (VD, "/coverage/kv_ingest/pool_counts/decode", "1", "q2.kv_events"),
    (VA, "/coverage/kv_ingest/tier_counts", r#"{"device":495,"host":1}"#, "q2.kv_events"),
    (VA, "/coverage/kv_ingest/boundaries/pass_start/events", "1", "q2.kv_events"),
    (VA, "/coverage/pressure/vllm_preemptions_total", "2", "q2.pressure_band"),
    (SD, "/coverage/pressure/vllm_preemptions_total", "1", "q2.pressure_band"),
    (SD, "/coverage/pressure/sglang_retractions_total", "9", "q2.pressure_band"),
    (SD, "/coverage/pressure/records/4/kind", r#""vllm_preemption""#, "q2.pressure_band"),
    (VD, "/coverage/pressure/records/3/pressure_ordinal", "4", "q2.pressure_links"),
    (VD, "/coverage/pressure/records/3/worker_id", "0", "q2.pressure_links"),
    (VD, "/per_request/12/pressure_record_ordinals", "[]", "q2.pressure_links"),
    (VD, "/per_request/12/pressure_record_ordinals", "[2,2]", "q2.pressure_links"),
    (VD, "/per_request/3/pressure_record_ordinals", "[11]", "q2.pressure_links"),
    (
        VD,
        "/coverage/pressure/records/3/request_uuid",
        r#""00000000-0000-0000-0000-000000000fff""#,
        "q2.pressure_links",
    ),
    (VD, "/coverage/pressure/records/3/state_before/active_blocks", "163", "q2.capacity_edge"),
    (QUEUED, "/coverage/pressure/records/3/state_before/active_blocks", "12", "q2.capacity_edge"),
    (VD, "/coverage/pressure/records/3/state_after/active_blocks", "163", "q2.capacity_edge"),
    (VD, "/coverage/pressure/records/3/state_after/running_requests", "6", "q2.capacity_edge"),
    (VD, "/coverage/pressure/records/3/state_after/waiting_requests", "2", "q2.capacity_edge"),
    (SD, "/coverage/pressure/records/3/logical_available_blocks_before", "1", "q2.capacity_edge"),
    (VD, "/coverage/pressure/records/3/readmitted_at_ms", "null", "q2.readmitted"),
    (VD, "/coverage/pressure/records/3/readmitted_at_ms", "13496.0", "q2.readmitted"),
    (VD, "/coverage/pressure/records/3/readmitted_at_ms", "62354.6", "q2.readmitted"),
    (VA, "/coverage/pressure/records/0/at_ms", "20731.788318999887", "q2.readmitted"),
    (VA, "/coverage/pressure/records/0/at_ms", "0.5", "q2.readmitted"),
    (VD, "/per_request/3/source_held_ms", "null", "q2.handoff_complete"),
    (SD, "/per_request/3/source_released_ms", "null", "q2.handoff_complete"),
    (VD, "/per_request/3/prefill_admit_ms", "null", "q2.handoff_complete"),
    (VA, "/per_request/3/destination_reserved_ms", "150.0", "q2.handoff_complete"),
    (VD, "/per_request/3/destination_reserved_ms", "155.2", "q2.handoff_order"),
    (VD, "/per_request/3/source_held_ms", "114.0", "q2.handoff_order"),
    (VD, "/per_request/3/destination_activated_ms", "175.0", "q2.handoff_order"),
    (SD, "/per_request/3/destination_reserved_ms", "118.3", "q2.handoff_order"),
    (SD, "/per_request/3/source_held_ms", "178.0", "q2.handoff_order"),
    (SD, "/per_request/3/destination_activated_ms", "162.0", "q2.handoff_order"),
    (VD, "/per_request/3/source_released_ms", "174.5", "q2.source_released_last"),
    (SD, "/per_request/3/source_released_ms", "177.6", "q2.source_released_last"),
    (VA, "/summary/duration_ms", "0.0", "q2.virtual_time"),
    (VD, "/summary/duration_ms", "86076.26180381985", "q2.virtual_time"),
    (VA, "/per_request/3/terminal_time_ms", "21143.3", "q2.virtual_time"),
    (VA, "/per_request/3/terminal_time_ms", "30357.8", "q2.virtual_time"),
    (VA, "/per_request/3/arrival_time_ms", "115.5", "q2.virtual_time"),
    (VA, "/per_request/3/arrival_time_ms", "-1.0", "q2.virtual_time"),
    (VA, "/per_request/3/first_token_ms", "114.0", "q2.virtual_time"),
    (VA, "/per_request/3/last_token_ms", "166.0", "q2.virtual_time"),
    (SD, "/per_request/3/source_released_ms", "108919.4", "q2.virtual_time"),
    (VD, "/coverage/pressure/records/2/at_ms", "7000.0", "q2.virtual_time"),
    (VA, "/coverage/kv_ingest/boundaries/pass_end/last_at_ms", "50.0", "q2.virtual_time"),
];

#[test]
fn one_changed_field_fails_exactly_one_item() {
    let wrong = ONE_FIELD.iter().filter_map(|(name, pointer, value, expected)| {
        let coverage = coverage(name, &edit(&report(name), pointer, value));
        let found = ids(&coverage);
        let is_right = found == [*expected] && !coverage.qualifies();
        (!is_right).then(|| format!("{name} {pointer} = {value}: {found:?} instead of {expected}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whoever reads a finding looks there: at a place of the report, or at a pattern where many places together are wrong.
#[test]
fn a_finding_points_into_the_report() {
    for (name, pointer, value, _) in ONE_FIELD {
        let edited = edit(&report(name), pointer, value);
        for (id, finding) in complaints(&coverage(name, &edited)) {
            let is_pattern = finding.pointer.contains("/*/");
            let is_there = value_text(&edited, &finding.pointer).is_some();
            assert!(
                finding.pointer.len() > 1 && (is_pattern || is_there),
                "{pointer} = {value}: {id} {finding}"
            );
        }
    }
}

#[test]
fn every_item_has_a_changed_field() {
    let covered: BTreeSet<&str> = ONE_FIELD.iter().map(|(.., id)| *id).collect();
    let missing: Vec<&str> =
        ItemId::ALL.iter().map(|id| id.as_str()).filter(|id| !covered.contains(id)).collect();
    // Pressure events are listed with their requests, so one field cannot add an event to a request; the bound itself
    // is moved instead, in `cycling_is_bounded`.
    assert_eq!(missing, ["q2.no_cycling"]);
}

/// A time that is both a handoff's admission and a record of the history cannot move without contradicting its copy, and
/// moved far enough it leaves the order as well: two items, both right.
#[test]
fn a_history_that_leaves_the_handoff_order_is_also_not_the_stated_admission() {
    let edited = edit(&report(VD), "/per_request/3/admission_history/0/at_ms", "160.0");
    assert_eq!(ids(&coverage(VD, &edited)), ["q2.admissions", "q2.handoff_order"]);
}

#[test]
fn a_pressure_record_cannot_vanish() {
    let edited = edit(&report(VA), "/coverage/pressure/records", "[]");
    assert_eq!(ids(&coverage(VA, &edited)), ["q2.pressure_band", "q2.pressure_links"]);
}

/// The report of a harness that records its first pressure event twice and does everything else right: the request lists
/// both records, both are readmitted at the next admission, and the totals agree.
fn first_event_twice(name: &str) -> Vec<u8> {
    let mut value: serde_json::Value = serde_json::from_slice(&report(name)).expect("JSON");
    let pressure = &mut value["coverage"]["pressure"];
    for total in ["vllm_preemptions_total", "sglang_retractions_total"] {
        let count = pressure[total].as_u64().expect("a count");
        pressure[total] = (count + u64::from(count > 0)).into();
    }
    let records = pressure["records"].as_array_mut().expect("records");
    records.insert(0, records[0].clone());
    for (at, record) in records.iter_mut().enumerate() {
        record["pressure_ordinal"] = at.into();
    }
    let uuid = records[0]["request_uuid"].clone();
    for request in value["per_request"].as_array_mut().expect("requests") {
        let is_first = request["uuid"] == uuid;
        let listed = request["pressure_record_ordinals"].as_array_mut().expect("a list");
        for ordinal in listed.iter_mut() {
            *ordinal = (ordinal.as_u64().expect("an ordinal") + 1).into();
        }
        if is_first {
            listed.insert(0, 0.into());
        }
    }
    serde_json::to_vec(&value).expect("JSON")
}

#[test]
fn an_event_that_is_recorded_twice_is_noticed_whatever_agrees() {
    for name in [VA, VD, SA, SD] {
        let coverage = coverage(name, &first_event_twice(name));
        let [(ItemId::Readmitted, finding)] = complaints(&coverage)[..] else { panic!("{name}: {coverage}") };
        assert_eq!(finding.pointer, "/coverage/pressure/records/1/at_ms");
        assert!(finding.expected.starts_with("not before the request was admitted again at "), "{finding}");
    }
}

#[test]
fn cycling_is_bounded() {
    let row = row(QUEUED);
    let check = |bound| {
        let mut expectation = expectation(&row);
        expectation.max_pressure_per_request = bound;
        Coverage::check(&report(QUEUED), &expectation).expect("a known layout")
    };
    assert_eq!(ids(&check(4)), [""; 0]);
    let coverage = check(MAX_PRESSURE_PER_REQUEST);
    let [(ItemId::NoCycling, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    assert_eq!(finding.pointer, "/coverage/pressure/records/4");
    assert_eq!(finding.found, "event 3 of request 00000000-0000-0000-0000-000000000010");
    assert_eq!(finding.occurrences, 2);
}

#[test]
fn the_band_decides_between_edge_and_flood() {
    let pressure = |min, max| {
        let mut row = row(SD);
        row.pressure = PressureBand { min, max };
        let coverage = Coverage::check(&report(SD), &expectation(&row)).expect("a known layout");
        complaints(&coverage)
            .into_iter()
            .map(|(id, finding)| format!("{id}: {}", finding.found))
            .collect::<Vec<_>>()
    };
    assert_eq!(pressure(10, 10), [""; 0]);
    assert_eq!(pressure(1, 3), ["q2.pressure_band: 10 pressure events: a flood, not an edge"]);
    assert_eq!(pressure(11, 20), ["q2.pressure_band: 10 pressure events: too few for the row"]);
}

#[test]
fn a_threshold_demands_queued_placements() {
    let mut row = row(VA);
    row.router_queue_threshold = Some(0.5);
    let edited = edit(&report(VA), "/metadata/router/config/router_queue_threshold", "0.5");
    let coverage = Coverage::check(&edited, &expectation(&row)).expect("a known layout");
    let [(ItemId::Placements, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    assert_eq!(finding.found, "no queued placement");
}

#[test]
fn the_window_must_be_the_one_of_the_manifest() {
    let row = row(VA);
    let ids_with = |totals| {
        let mut expectation = expectation(&row);
        expectation.totals = totals;
        ids(&Coverage::check(&report(VA), &expectation).expect("a known layout"))
    };
    assert_eq!(ids_with(WorkloadTotals { requests: 41, ..TOTALS }), ["q2.requests"]);
    assert_eq!(ids_with(WorkloadTotals { input_tokens: 1, ..TOTALS }), ["q2.token_totals"]);
    assert_eq!(ids_with(WorkloadTotals { output_tokens: 1, ..TOTALS }), ["q2.token_totals"]);
}

#[test]
fn a_report_of_another_row_is_noticed() {
    let coverage = Coverage::check(&report(SD), &expectation(&row(VD))).expect("a known layout");
    let failed = ids(&coverage);
    assert!(failed.contains(&"row.declaration") && failed.contains(&"q2.handoff_order"), "{coverage}");
}

#[test]
fn a_finding_names_place_value_and_expectation() {
    let edited = edit(&report(VD), "/per_request/12/prefill_route_overlap_tokens", "0");
    let coverage = coverage(VD, &edited);
    let [(_, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    assert_eq!(
        finding.to_string(),
        "/per_request/12/prefill_route_overlap_tokens: found 0, expected 2368, as the routing history says"
    );
}

#[test]
fn numbers_are_shown_as_written() {
    let edited = edit(&report(VA), "/summary/prefix_cache_reused_ratio", "4.8899935561078894e-01");
    assert!(coverage(VA, &edited).qualifies(), "another text of the same ratio");
    let edited = edit(&report(VA), "/summary/prefix_cache_reused_ratio", "4.90e-01");
    let coverage = coverage(VA, &edited);
    assert_eq!(complaints(&coverage)[0].1.found, "4.90e-01");
}

#[test]
fn an_unreviewed_exclusion_stops_for_review() {
    let row = row(VA);
    let check = |reviewed: &[&'static str]| {
        let expectation = Expectation::new(&row, TOTALS);
        let expectation = expectation.with_reviewed_exclusions(reviewed.iter().copied().collect());
        Coverage::check(&report(VA), &expectation).expect("a known layout")
    };
    let coverage = check(&[]);
    assert_eq!(coverage.failures().count(), 0);
    let (id, finding) = coverage.reviews().next().expect("a stop");
    assert_eq!(id, ItemId::Exclusions);
    assert_eq!(finding.found, "\"/planner/html_report_path\" beyond the closed list");
    assert!(!coverage.qualifies());
    assert!(check(&[REVIEWED]).qualifies());
    // The other revision may state what this one does not, so a review too many stops nothing and is recorded.
    let unused = check(&[REVIEWED, "/summary/gpu_hours"]);
    assert!(unused.qualifies());
    assert_eq!(unused.exclusions.unused_reviews, ["/summary/gpu_hours"]);
    assert!(!check(&["/summary/gpu_hours"]).qualifies());
}

#[test]
fn exclusions_that_are_there_are_recorded() {
    let bytes = report(VA);
    let audit = coverage(VA, &bytes).exclusions;
    assert_eq!(audit.additions, [REVIEWED]);
    assert_eq!((audit.present.len(), audit.absent.len()), (0, 4));
    let edited = edit(&bytes, "/summary/duration_ms", "30357.767682999714,\"wall_time_ms\":5.25");
    assert_eq!(coverage(VA, &edited).exclusions.present, ["/summary/wall_time_ms"]);
    let edited = edit(&bytes, "/planner", "{\"html_report_path\":null}");
    assert_eq!(coverage(VA, &edited).exclusions.present, [REVIEWED]);
}

#[test]
fn time_that_stands_still_is_noticed() {
    let at = |ordinal: u64| {
        format!(
            "{{\"admission_ordinal\":{ordinal},\"at_ms\":115.0,\"is_readmission\":{},\"pool\":\"agg\",\
             \"pool_admission_ordinal\":{ordinal},\"reused_input_tokens\":0}}",
            ordinal > 0
        )
    };
    let with = |admissions: u64| {
        let history = (0..admissions).map(at).collect::<Vec<_>>().join(",");
        let edited = edit(&report(VA), "/per_request/3/admission_history", &format!("[{history}]"));
        let edited = edit(&edited, "/per_request/3/admission_count", &admissions.to_string());
        let edited = edit(&edited, "/per_request/3/readmission_count", &(admissions - 1).to_string());
        ids(&coverage(VA, &edited))
    };
    assert_eq!(with(4), [""; 0]);
    assert_eq!(with(5), ["q2.virtual_time"]);
}

#[test]
fn drift_compares_counters_with_a_seed() {
    let coverage = coverage(VD, &report(VD));
    let seed = [("pressure_events", 11), ("requests_with_reuse", 37), ("no_such", 1)];
    let seed = seed.map(|(name, count): (&str, u64)| (name, CounterValue::from(count)));
    let drift = coverage.drift(seed);
    let shown: Vec<_> = drift.iter().map(|drift| (drift.name.as_str(), drift.found.clone())).collect();
    assert_eq!(shown, [("requests_with_reuse", Some(CounterValue::Count(38))), ("no_such", None)]);
}

#[test]
fn counter_names_are_unique() {
    for name in [VA, SD, QUEUED] {
        let coverage = coverage(name, &report(name));
        let mut seen = BTreeSet::new();
        assert!(coverage.counters().all(|counter| seen.insert(&counter.name)), "{coverage}");
    }
}

#[test]
fn coverage_survives_its_own_file() {
    let edited = edit(&report(SD), "/per_request/3/source_released_ms", "177.6");
    let coverage = coverage(SD, &edited);
    let text = serde_json::to_string(&coverage).expect("serializable");
    assert!(
        text.contains(r#"{"id":"q2.source_released_last","status":"failed","finding":{"pointer":"#),
        "{text}"
    );
    let back: Coverage = serde_json::from_str(&text).expect("readable");
    assert_eq!(back, coverage);
}
