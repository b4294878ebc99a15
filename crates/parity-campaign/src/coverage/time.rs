//! Virtual time, and the stream of KV events that moved through it.

use canonical_json::escape_token;

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, MAX_ADMISSIONS_AT_ONE_TIME, in_pressure, in_request, same, total};
use crate::canonical_report::{Admission, Counts, Request, TerminalStatus};

pub(super) fn virtual_time(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::VirtualTime);
    let duration = context.report.summary.duration_ms;
    check.at(duration > 0.0, || (DURATION.to_owned(), "more than 0".to_owned()));
    for (at, request) in context.requests() {
        life(context, at, request, &mut check);
        admissions_at_one_time(context, at, request, &mut check);
    }
    ends_with_the_last_completion(context, &mut check);
    pressure_times(context, &mut check);
    boundaries(context, &mut check);
    distinct_times(context, &mut check);
    span("arrival", context.report.requests.iter().map(|request| request.arrival_ms), &mut check);
    check.count("duration_ms", duration);
    check.finish(context.bytes)
}

const DURATION: &str = "/summary/duration_ms";

/// Arrival, first admission, tokens, end: in this order and within the replay.
fn life(context: &Context<'_>, at: usize, request: &Request, check: &mut Check) {
    let history = context.report.admissions(request);
    let admitted = |admission: Option<&Admission>| admission.map(|admission| admission.at_ms);
    let steps = [
        ("arrival_time_ms", Some(request.arrival_ms)),
        ("first_admit_ms", admitted(history.first())),
        ("first_token_ms", request.first_token_ms),
        ("last_token_ms", request.last_token_ms),
        ("terminal_time_ms", Some(request.terminal_ms)),
    ];
    check.at(request.arrival_ms >= 0.0, || (in_request(at, "arrival_time_ms"), "not before 0".to_owned()));
    let mut previous = ("arrival_time_ms", request.arrival_ms);
    for (member, time) in steps {
        let Some(time) = time else { continue };
        check.expect(previous.1 <= time, || {
            let seen = Seen::Derived(format!("{time:?}"));
            (in_request(at, member), seen, format!("not before {} at {:?}", previous.0, previous.1))
        });
        previous = (member, time);
    }
    let last = admitted(history.last()).unwrap_or(request.arrival_ms);
    check.at(last <= request.terminal_ms, || {
        (in_request(at, "terminal_time_ms"), format!("not before the last admission at {last:?}"))
    });
    within(context, at, request, check);
}

/// Nothing happens after the replay ends, except that a source may be released by a pass that is still running.
fn within(context: &Context<'_>, at: usize, request: &Request, check: &mut Check) {
    let duration = context.report.summary.duration_ms;
    check.at(request.terminal_ms <= duration, || {
        (in_request(at, "terminal_time_ms"), format!("not after the duration of {duration:?}"))
    });
    let last_batch = context.report.evidence.kv_ingest.boundaries.iter().map(|boundary| boundary.last_at_ms);
    let end = last_batch.fold(duration, f64::max);
    if let Some(released) = request.handoff.source_released_ms {
        check.at(released <= end, || {
            (in_request(at, "source_released_ms"), format!("not after the last pass at {end:?}"))
        });
    }
}

/// The scheduler cannot admit one request to one pool again and again while time stands still.
fn admissions_at_one_time(context: &Context<'_>, at: usize, request: &Request, check: &mut Check) {
    let history = context.report.admissions(request);
    for (index, admission) in history.iter().enumerate() {
        let until_now = history[..=index].iter().rev();
        let at_one_time = until_now.take_while(|other| same(other.at_ms, admission.at_ms));
        let count = at_one_time.filter(|other| other.pool == admission.pool).count() as u64;
        check.expect(count <= MAX_ADMISSIONS_AT_ONE_TIME, || {
            let pointer = format!("/per_request/{at}/admission_history/{index}/at_ms");
            let seen = Seen::Derived(format!("admission {count} at {:?}", admission.at_ms));
            (pointer, seen, format!("at most {MAX_ADMISSIONS_AT_ONE_TIME} of one request at one time"))
        });
    }
}

fn ends_with_the_last_completion(context: &Context<'_>, check: &mut Check) {
    let completed =
        context.report.requests.iter().filter(|request| request.status == TerminalStatus::Completed);
    let last = completed.map(|request| request.terminal_ms).fold(0.0, f64::max);
    check.at(same(context.report.summary.duration_ms, last), || {
        (DURATION.to_owned(), format!("{last:?}, the last completion"))
    });
}

fn pressure_times(context: &Context<'_>, check: &mut Check) {
    let mut previous = 0.0_f64;
    let duration = context.report.summary.duration_ms;
    for (at, record) in context.report.evidence.pressure.records.iter().enumerate() {
        check.at(record.at_ms >= previous, || {
            (in_pressure(at, "at_ms"), format!("not before the record at {previous:?}"))
        });
        check.at(record.at_ms <= duration, || {
            (in_pressure(at, "at_ms"), format!("not after the duration of {duration:?}"))
        });
        previous = record.at_ms;
    }
}

fn boundaries(context: &Context<'_>, check: &mut Check) {
    let boundaries = &context.report.evidence.kv_ingest.boundaries;
    for boundary in boundaries {
        check.at(boundary.first_at_ms <= boundary.last_at_ms, || {
            let pointer = in_ingest(&format!("boundaries/{}/last_at_ms", escape_token(&boundary.name)));
            (pointer, format!("not before the first batch at {:?}", boundary.first_at_ms))
        });
    }
    check.expect(boundaries.iter().any(|boundary| boundary.first_at_ms < boundary.last_at_ms), || {
        let seen = Seen::Derived("no boundary whose last batch is after its first".to_owned());
        ("/coverage/kv_ingest/boundaries".to_owned(), seen, "passes at more than one time".to_owned())
    });
}

fn distinct_times(context: &Context<'_>, check: &mut Check) {
    let admissions = context.report.requests.iter().flat_map(|request| context.report.admissions(request));
    let mut times: Vec<f64> = admissions.map(|admission| admission.at_ms).collect();
    times.sort_unstable_by(f64::total_cmp);
    let groups: Vec<usize> = times.chunk_by(|left, right| same(*left, *right)).map(<[f64]>::len).collect();
    span("admission", times.iter().copied(), check);
    check.count("distinct_admission_times", groups.len() as u64);
    check.count("most_admissions_at_one_time", groups.iter().copied().max().unwrap_or(0) as u64);
    check.expect(groups.len() > 1, || {
        let seen = Seen::Derived(format!("{} distinct times", groups.len()));
        (
            "/per_request/*/admission_history/*/at_ms".to_owned(),
            seen,
            "admissions at more than one time".to_owned(),
        )
    });
}

fn span(what: &str, times: impl Iterator<Item = f64>, check: &mut Check) {
    let bounds = times.fold(None, |bounds: Option<(f64, f64)>, time| {
        let (first, last) = bounds.unwrap_or((time, time));
        Some((first.min(time), last.max(time)))
    });
    if let Some((first, last)) = bounds {
        check.count(format!("first_{what}_ms"), first);
        check.count(format!("last_{what}_ms"), last);
    }
}

pub(super) fn kv_events(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::KvEvents);
    let ingest = &context.report.evidence.kv_ingest;
    let sum = |counts: &Counts| total(counts.iter().map(|(_, count)| *count));
    let by_boundary = total(ingest.boundaries.iter().map(|boundary| boundary.events));
    let sums = [
        ("kind_counts", sum(&ingest.kinds)),
        ("pool_counts", sum(&ingest.pools)),
        ("tier_counts", sum(&ingest.tiers)),
        ("boundaries", by_boundary),
    ];
    for (member, sum) in sums {
        check.at(ingest.events == sum, || {
            (in_ingest("events"), format!("{sum}, the sum of /coverage/kv_ingest/{member}"))
        });
    }
    let batches = total(ingest.boundaries.iter().map(|boundary| boundary.batches));
    check.at(ingest.batches == batches, || {
        (in_ingest("batches"), format!("{batches}, the sum over boundaries"))
    });
    let stored = ingest.kinds.iter().find(|(kind, _)| &**kind == "stored").map_or(0, |(_, count)| *count);
    check.at(stored > 0, || (in_ingest("kind_counts/stored"), "at least one block stored".to_owned()));
    device_only_at_pass_end(context, &mut check);
    for (kind, count) in &ingest.kinds {
        check.count(format!("kv_events_{kind}"), *count);
    }
    check.count("kv_events", ingest.events);
    check.count("kv_blocks", ingest.blocks);
    check.count("kv_batches", ingest.batches);
    check.count("kv_event_stream_blake3", ingest.blake3_256.to_string());
    check.finish(context.bytes)
}

fn in_ingest(member: &str) -> String {
    format!("/coverage/kv_ingest/{member}")
}

/// The matrix is native device memory with events that become visible when a pass ends (B1).
fn device_only_at_pass_end(context: &Context<'_>, check: &mut Check) {
    let ingest = &context.report.evidence.kv_ingest;
    for (tier, count) in &ingest.tiers {
        check.at(&**tier == "device" || *count == 0, || {
            (
                in_ingest(&format!("tier_counts/{}", escape_token(tier))),
                "0: the row uses device memory only".to_owned(),
            )
        });
    }
    for boundary in ingest.boundaries.iter().filter(|boundary| &*boundary.name == "pass_start") {
        check.at(boundary.events == 0, || {
            let expected = "0: events become visible when a pass ends".to_owned();
            (in_ingest("boundaries/pass_start/events"), expected)
        });
    }
}
