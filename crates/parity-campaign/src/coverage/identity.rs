//! What the report says about itself: layout, seeded routing, exclusions, and the configuration of the row.

use std::collections::BTreeSet;
use std::fmt;

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, ExclusionAudit, engine_name, same};
use crate::canonical_report::{Found, PoolConfig, value_text};
use crate::definition::{CLOSED_EXCLUSIONS, Topology, TransferTiming};

pub(super) fn layout(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Layout);
    let evidence = &context.report.evidence;
    check.count("schema_version", context.report.metadata.schema_version.to_string());
    let captures = [
        ("capture_per_request", evidence.capture_per_request),
        ("capture_canonical_evidence", evidence.capture_canonical_evidence),
    ];
    for (member, captured) in captures {
        check.at(captured, || (format!("/coverage/{member}"), "true".to_owned()));
    }
    check.finish(context.bytes)
}

pub(super) fn replay_bench(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::ReplayBench);
    let metadata = &context.report.metadata;
    check.at(metadata.replay_bench, || ("/metadata/replay_bench".to_owned(), "true".to_owned()));
    if let Some(seed) = metadata.seed {
        check.count("routing_seed", seed);
    }
    check.finish(context.bytes)
}

pub(super) fn exclusions(context: &Context<'_>) -> (ExclusionAudit, Item) {
    let audit = audit(context);
    let mut check = Check::new(ItemId::Exclusions);
    check.count("excluded_fields_present", list_or_none(&audit.present));
    check.count("excluded_fields_absent", list_or_none(&audit.absent));
    check.count("exclusions_added", list_or_none(&audit.additions));
    let reviewed = &context.expectation.reviewed_exclusions;
    let added: BTreeSet<&str> = audit.additions.iter().map(String::as_str).collect();
    let place = |seen: String, expected: String| {
        ("/metadata/result_exclusions".to_owned(), Seen::Derived(seen), expected)
    };
    for pointer in added.difference(reviewed) {
        check.expect(false, || {
            place(
                format!("{pointer:?} beyond the closed list"),
                "the closed list, or a review record".to_owned(),
            )
        });
    }
    for pointer in &audit.removals {
        check.expect(false, || {
            place(format!("no {pointer:?}"), "every pointer of the closed list".to_owned())
        });
    }
    (audit, check.finish_for_review(context.bytes))
}

fn audit(context: &Context<'_>) -> ExclusionAudit {
    let stated: Vec<String> =
        context.report.metadata.result_exclusions.iter().map(ToString::to_string).collect();
    let is_stated = |pointer: &str| stated.iter().any(|other| other == pointer);
    let closed = |pointer: &str| CLOSED_EXCLUSIONS.contains(&pointer);
    let additions: Vec<String> = stated.iter().filter(|pointer| !closed(pointer)).cloned().collect();
    let removals =
        CLOSED_EXCLUSIONS.into_iter().filter(|pointer| !is_stated(pointer)).map(str::to_owned).collect();
    let either = CLOSED_EXCLUSIONS.into_iter().map(str::to_owned).chain(additions.iter().cloned());
    let (present, absent) = either.partition(|pointer| is_present(context, pointer));
    let reviewed = context.expectation.reviewed_exclusions.iter();
    let unused = reviewed.filter(|pointer| !additions.iter().any(|added| added == *pointer));
    let unused_reviews = unused.map(|pointer| (*pointer).to_owned()).collect();
    ExclusionAudit { stated, additions, removals, present, absent, unused_reviews }
}

/// Members of the two sections that exclusions are known to name were listed while reading; others are looked up.
fn is_present(context: &Context<'_>, pointer: &str) -> bool {
    let mut tokens = pointer.split('/').skip(1);
    match (tokens.next(), tokens.next(), tokens.next()) {
        (Some(section @ ("summary" | "planner")), Some(name), None) => {
            context.report.has_member(section, name)
        }
        _ => value_text(context.bytes, pointer).is_some(),
    }
}

fn list_or_none(pointers: &[String]) -> String {
    if pointers.is_empty() { "none".to_owned() } else { pointers.join(" ") }
}

pub(super) fn declaration(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Declaration);
    topology_and_workers(context, &mut check);
    router(context, &mut check);
    replay(context, &mut check);
    for pool in &context.report.metadata.pools {
        pool_config(context, &mut check, pool);
    }
    pool_names(context, &mut check);
    if let Some(digest) = &context.report.metadata.workload_digest {
        check.count("workload_digest", digest.to_string());
    }
    check.finish(context.bytes)
}

fn topology_and_workers(context: &Context<'_>, check: &mut Check) {
    let metadata = &context.report.metadata;
    let expected = topology_name(context.row().topology);
    check.at(&*metadata.topology == expected, || in_execution("topology", format!("{expected:?}")));
    for (pool, workers) in context.pools() {
        let (member, stated) = match pool.as_str() {
            "prefill" => ("num_prefill_workers", metadata.prefill_workers),
            "decode" => ("num_decode_workers", metadata.decode_workers),
            _ => ("num_workers", metadata.workers),
        };
        check.at(stated == workers, || in_execution(member, format!("{workers}, as the row declares")));
    }
}

fn in_execution(member: &str, expected: String) -> (String, String) {
    (format!("/metadata/execution/{member}"), expected)
}

fn topology_name(topology: Topology) -> &'static str {
    match topology {
        Topology::Aggregated => "aggregated",
        Topology::Disaggregated => "disaggregated",
    }
}

fn router(context: &Context<'_>, check: &mut Check) {
    let metadata = &context.report.metadata;
    check.at(&*metadata.router_mode == "kv_router", || {
        ("/metadata/router/mode".to_owned(), "\"kv_router\": every row routes by KV overlap".to_owned())
    });
    let agree = match (metadata.queue_threshold, context.row().router_queue_threshold) {
        (Some(stated), Some(declared)) => same(stated, declared),
        (stated, declared) => stated.is_none() && declared.is_none(),
    };
    check.at(agree, || {
        let declared = context.row().router_queue_threshold;
        let expected =
            declared.map_or("null: the row declares no queue threshold".to_owned(), |v| format!("{v:?}"));
        ("/metadata/router/config/router_queue_threshold".to_owned(), expected)
    });
}

fn pool_config(context: &Context<'_>, check: &mut Check, pool: &PoolConfig) {
    let row = context.row();
    declared(check, &pool.engine, Some(engine_name(row.engine)), |stated, name| &**stated == name);
    let counts = [
        (&pool.block_size, Some(row.block_size)),
        (&pool.num_gpu_blocks, Some(row.num_gpu_blocks)),
        (&pool.max_num_seqs, Some(row.max_num_seqs)),
        (&pool.max_num_batched_tokens, Some(row.max_num_batched_tokens)),
        (&pool.kv_bytes_per_token, row.kv_bytes_per_token),
    ];
    for (stated, value) in counts {
        declared(check, stated, value, |stated, value| *stated == value);
    }
    let bandwidth = row.kv_transfer_bandwidth_gb_per_s;
    declared(check, &pool.kv_transfer_bandwidth_gb_per_s, bandwidth, |stated, value| same(*stated, value));
    let timing = row.kv_transfer_timing.map(timing_name);
    declared(check, &pool.kv_transfer_timing_mode, timing, |stated, name| &**stated == name);
}

/// What the row declares and the report states is the same; what either leaves open is not compared.
fn declared<T, D: fmt::Debug + Copy>(
    check: &mut Check,
    stated: &Option<Found<T>>,
    declared: Option<D>,
    agree: impl FnOnce(&T, D) -> bool,
) {
    if let (Some(Found { value, pointer }), Some(declared)) = (stated, declared) {
        check.at(agree(value, declared), || (pointer.clone(), format!("{declared:?}, as the row declares")));
    }
}

fn timing_name(timing: TransferTiming) -> &'static str {
    match timing {
        TransferTiming::FullPrompt => "full_prompt",
        TransferTiming::DestinationMissing => "destination_missing",
    }
}

/// The settings all rows share.
fn replay(context: &Context<'_>, check: &mut Check) {
    let (metadata, expectation) = (&context.report.metadata, context.expectation);
    if let (Some(stated), Some(declared)) =
        (metadata.arrival_speedup_ratio, expectation.arrival_speedup_ratio)
    {
        let place =
            || in_execution("arrival_speedup_ratio", format!("{declared:?}, as the campaign declares"));
        check.at(same(stated, declared), place);
    }
    if let (Some(stated), Some(declared)) = (metadata.workload_block_size, expectation.trace_block_size) {
        check.at(stated == declared, || {
            ("/metadata/workload/block_size".to_owned(), format!("{declared}, as the campaign declares"))
        });
    }
}

/// An aggregated row has one pool configuration, a disaggregated one two.
fn pool_names(context: &Context<'_>, check: &mut Check) {
    let names: BTreeSet<&str> = context.report.metadata.pools.iter().map(|pool| &*pool.name).collect();
    let expected = match context.row().topology {
        Topology::Aggregated => BTreeSet::from(["aggregated"]),
        Topology::Disaggregated => BTreeSet::from(["prefill", "decode"]),
    };
    check.expect(names == expected, || {
        let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
        ("/metadata/engine_config".to_owned(), Seen::Derived(list(&names)), list(&expected))
    });
}
