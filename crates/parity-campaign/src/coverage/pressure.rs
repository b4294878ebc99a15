//! Preemption and retraction: how much, where, and how it ended.

use std::collections::HashMap;

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, engine_name, in_pressure, in_request};
use crate::canonical_report::{Admission, Pool, Pressure, PressureKind, RequestUuid};
use crate::definition::Engine;

const RECORDS: &str = "/coverage/pressure/records";

fn records<'a>(context: &Context<'a>) -> impl Iterator<Item = (usize, &'a Pressure)> + use<'a> {
    context.report.evidence.pressure.records.iter().enumerate()
}

/// The only kind of pressure an engine has; TensorRT-LLM's default scheduler never evicts.
fn kind_of(engine: Engine) -> Option<PressureKind> {
    match engine {
        Engine::Vllm => Some(PressureKind::VllmPreemption),
        Engine::Sglang => Some(PressureKind::SglangRetraction),
        Engine::Trtllm => None,
    }
}

pub(super) fn band(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::PressureBand);
    let evidence = &context.report.evidence.pressure;
    let of_kind = |kind| evidence.records.iter().filter(|record| record.kind == kind).count() as u64;
    let totals = [
        ("vllm_preemptions", evidence.vllm_preemptions_total, of_kind(PressureKind::VllmPreemption)),
        ("sglang_retractions", evidence.sglang_retractions_total, of_kind(PressureKind::SglangRetraction)),
    ];
    let found = evidence.records.len() as u64;
    check.count("pressure_events", found);
    for (name, stated, counted) in totals {
        check.count(name, counted);
        check.at(stated == counted, || {
            (format!("/coverage/pressure/{name}_total"), format!("{counted}, the records of that kind"))
        });
    }
    for (at, record) in records(context) {
        check.at(Some(record.kind) == kind_of(context.row().engine), || {
            let expected = format!("the kind of pressure that {} has", engine_name(context.row().engine));
            (in_pressure(at, "kind"), expected)
        });
    }
    let band = context.row().pressure;
    if band.max == 0 && found == 0 {
        return check.finish_not_applicable(context.bytes, "the row declares no pressure");
    }
    inside(found, band.min, band.max, &mut check);
    check.finish(context.bytes)
}

/// Zero is never inside: the edge was not exercised.
fn inside(found: u64, min: u64, max: u64, check: &mut Check) {
    check.expect(found > 0 && (min..=max).contains(&found), || {
        let why = match found {
            0 => "the edge was not exercised",
            n if n < min => "too few for the row",
            _ => "a flood, not an edge",
        };
        let seen = Seen::Derived(format!("{found} pressure events: {why}"));
        (RECORDS.to_owned(), seen, format!("{min} to {max}"))
    });
}

pub(super) fn links(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::PressureLinks);
    for (at, record) in records(context) {
        check.at(record.ordinal == at as u64, || (in_pressure(at, "pressure_ordinal"), at.to_string()));
        match context.request(record.uuid) {
            None => {
                let expected = "a request of this report".to_owned();
                check.at(false, || (in_pressure(at, "request_uuid"), expected));
            }
            Some(_) => record_of_request(context, at, record, &mut check),
        }
    }
    let mut under_pressure = 0_u64;
    for (at, request) in context.requests() {
        let listed = context.report.pressure_ordinals(request);
        under_pressure += u64::from(!listed.is_empty());
        listed_records(context, (at, request.uuid), listed, &mut check);
    }
    check.count("requests_under_pressure", under_pressure);
    check.finish(context.bytes)
}

fn record_of_request(context: &Context<'_>, at: usize, record: &Pressure, check: &mut Check) {
    let Some((position, request)) = context.request(record.uuid) else { return };
    let listed = context.report.pressure_ordinals(request);
    check.at(listed.contains(&(at as u64)), || {
        let pointer = in_request(position, "pressure_record_ordinals");
        (pointer, format!("a list with {at}: the record names this request"))
    });
    let routed = context.report.routes(request).iter().find(|route| route.pool == record.pool);
    check.at(routed.is_some(), || (in_pressure(at, "pool"), "a pool the request was routed to".to_owned()));
    let worker = routed.and_then(|route| route.worker);
    check.at(routed.is_none() || worker == Some(record.worker), || {
        let expected = worker.map_or("a worker".to_owned(), |worker| worker.to_string());
        (in_pressure(at, "worker_id"), format!("{expected}, where the request was routed"))
    });
}

/// Every listed ordinal is a record of this request, in order and once.
fn listed_records(
    context: &Context<'_>,
    (at, uuid): (usize, RequestUuid),
    listed: &[u64],
    check: &mut Check,
) {
    let all = &context.report.evidence.pressure.records;
    let mut previous = None;
    for (index, &ordinal) in listed.iter().enumerate() {
        let record = usize::try_from(ordinal).ok().and_then(|ordinal| all.get(ordinal));
        let holds =
            record.is_some_and(|record| record.uuid == uuid) && previous.is_none_or(|last| last < ordinal);
        check.at(holds, || {
            let pointer = in_request(at, &format!("pressure_record_ordinals/{index}"));
            (pointer, "the ordinal of a record of this request, each once and in order".to_owned())
        });
        previous = Some(ordinal);
    }
}

pub(super) fn capacity_edge(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::CapacityEdge);
    let mut most_free = 0;
    for (at, record) in records(context) {
        let free = context.row().num_gpu_blocks.saturating_sub(record.before.active_blocks);
        most_free = free.max(most_free);
        blocks_ran_out(context, (at, record), free, &mut check);
        one_request_left(at, record, &mut check);
    }
    if context.report.evidence.pressure.records.is_empty() {
        return check.finish_not_applicable(context.bytes, "no pressure events");
    }
    check.count("most_free_blocks_at_pressure", most_free);
    check.finish(context.bytes)
}

/// Where the engine says what was free and what was needed, that decides; vLLM does not say, so there must have been less
/// free than one pass can ask for.
fn blocks_ran_out(context: &Context<'_>, (at, record): (usize, &Pressure), free: u64, check: &mut Check) {
    let row = context.row();
    check.at(record.before.active_blocks <= row.num_gpu_blocks, || {
        let expected = format!("at most {}, the blocks of a worker", row.num_gpu_blocks);
        (in_pressure(at, "state_before/active_blocks"), expected)
    });
    match (record.available_blocks_before, record.required_blocks_before) {
        (Some(available), Some(required)) => check.at(available < required, || {
            let expected = format!("fewer than the {required} blocks that were needed");
            (in_pressure(at, "logical_available_blocks_before"), expected)
        }),
        _ => {
            let one_pass = row.max_num_batched_tokens.div_ceil(row.block_size);
            check.at(free < one_pass, || {
                let expected =
                    format!("more than {} blocks in use", row.num_gpu_blocks.saturating_sub(one_pass));
                (in_pressure(at, "state_before/active_blocks"), expected)
            });
        }
    }
}

/// Exactly one request stopped running, and no block was taken.
fn one_request_left(at: usize, record: &Pressure, check: &mut Check) {
    let (before, after) = (&record.before, &record.after);
    check.at(after.running_requests.checked_add(1) == Some(before.running_requests), || {
        let expected = format!("one fewer than the {} before", before.running_requests);
        (in_pressure(at, "state_after/running_requests"), expected)
    });
    check.at(after.active_blocks <= before.active_blocks, || {
        let expected = format!("at most the {} before", before.active_blocks);
        (in_pressure(at, "state_after/active_blocks"), expected)
    });
    if let (Some(waited), Some(waiting)) = (before.waiting_requests, after.waiting_requests) {
        check.at(waited.checked_add(1) == Some(waiting), || {
            (in_pressure(at, "state_after/waiting_requests"), format!("one more than the {waited} before"))
        });
    }
}

pub(super) fn readmitted(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Readmitted);
    let (mut total, mut longest) = (0_u64, 0.0_f64);
    let mut before: HashMap<(RequestUuid, Pool), &Pressure> = HashMap::new();
    for (at, record) in records(context) {
        if let Some(earlier) = before.insert((record.uuid, record.pool), record) {
            admitted_in_between((at, record), earlier, &mut check);
        }
        let Some(readmitted) = record.readmitted_at_ms else {
            check.at(false, || {
                (in_pressure(at, "readmitted_at_ms"), "a time: every record is readmitted".to_owned())
            });
            continue;
        };
        total += 1;
        longest = longest.max(readmitted - record.at_ms);
        check.at(readmitted > record.at_ms, || {
            (in_pressure(at, "readmitted_at_ms"), format!("after the event at {:?}", record.at_ms))
        });
        next_admission_is(context, (at, record), readmitted, &mut check);
    }
    if context.report.evidence.pressure.records.is_empty() {
        return check.finish_not_applicable(context.bytes, "no pressure events");
    }
    check.count("readmitted_pressure_events", total);
    check.count("longest_eviction_ms", longest);
    check.finish(context.bytes)
}

/// A request that has lost its blocks has none to lose until it is admitted again: otherwise one event is counted twice.
fn admitted_in_between((at, record): (usize, &Pressure), earlier: &Pressure, check: &mut Check) {
    check.at(earlier.readmitted_at_ms.is_none_or(|readmitted| readmitted <= record.at_ms), || {
        let expected = format!(
            "not before the request was admitted again at {:?}, after its event at {:?}",
            earlier.readmitted_at_ms.unwrap_or_default(),
            earlier.at_ms
        );
        (in_pressure(at, "at_ms"), expected)
    });
}

/// The request had been admitted before the event, and its next admission in the same pool is the stated one.
fn next_admission_is(
    context: &Context<'_>,
    (at, record): (usize, &Pressure),
    readmitted: f64,
    check: &mut Check,
) {
    let Some((position, request)) = context.request(record.uuid) else { return };
    let in_pool: Vec<&Admission> =
        context.report.admissions(request).iter().filter(|admission| admission.pool == record.pool).collect();
    check.at(in_pool.first().is_some_and(|first| first.at_ms <= record.at_ms), || {
        let expected = format!("not before the {} admission of request {position}", record.pool);
        (in_pressure(at, "at_ms"), expected)
    });
    let next =
        in_pool.iter().find(|admission| admission.at_ms > record.at_ms).map(|admission| admission.at_ms);
    check.at(next.is_some_and(|next| super::same(next, readmitted)), || {
        let history = format!("the next {} admission of request {position}", record.pool);
        let expected =
            next.map_or(format!("{history}: there is none"), |next| format!("{next:?}, {history}"));
        (in_pressure(at, "readmitted_at_ms"), expected)
    });
}

pub(super) fn no_cycling(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::NoCycling);
    let mut events: HashMap<RequestUuid, u64> = HashMap::new();
    let bound = context.expectation.max_pressure_per_request;
    for (at, record) in records(context) {
        let count = events.entry(record.uuid).or_default();
        *count += 1;
        check.expect(*count <= bound, || {
            let seen = Seen::Derived(format!("event {count} of request {}", record.uuid));
            (format!("{RECORDS}/{at}"), seen, format!("at most {bound} pressure events of one request"))
        });
    }
    if events.is_empty() {
        return check.finish_not_applicable(context.bytes, "no pressure events");
    }
    check.count("most_pressure_events_of_one_request", events.values().copied().max().unwrap_or(0));
    check.count("requests_under_pressure_again", events.values().filter(|&&count| count > 1).count() as u64);
    check.finish(context.bytes)
}
