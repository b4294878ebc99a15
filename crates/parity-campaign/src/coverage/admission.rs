//! Admissions by the engines' schedulers, and the cached prefixes they found.

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, in_request, same, to_f64, total};
use crate::canonical_report::{Admission, Pool, Request, TerminalStatus};

fn in_admission(at: usize, index: usize, member: &str) -> String {
    format!("/per_request/{at}/admission_history/{index}/{member}")
}

pub(super) fn admissions(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Admissions);
    let (mut total, mut readmissions) = (0_u64, 0_u64);
    for (at, request) in context.requests() {
        let history = context.report.admissions(request);
        total += history.len() as u64;
        readmissions += later_admissions(history);
        ordinals(context, at, history, &mut check);
        stated_counts((at, request), history, &mut check);
        stated_times((at, request), history, &mut check);
        reached_every_pool(context, (at, request), history, &mut check);
    }
    check.count("admissions", total);
    check.count("readmissions", readmissions);
    check.count("readmissions_without_pressure", readmissions.saturating_sub(readmitted_records(context)));
    check.finish(context.bytes)
}

fn readmitted_records(context: &Context<'_>) -> u64 {
    let records = &context.report.evidence.pressure.records;
    records.iter().filter(|record| record.readmitted_at_ms.is_some()).count() as u64
}

/// Admissions that were not the first in their pool, by position.
fn later_admissions(history: &[Admission]) -> u64 {
    let later = |(index, admission): (usize, &Admission)| before(history, index, admission.pool) > 0;
    history.iter().enumerate().filter(|&pair| later(pair)).count() as u64
}

fn before(history: &[Admission], index: usize, pool: Pool) -> u64 {
    history[..index].iter().filter(|admission| admission.pool == pool).count() as u64
}

/// Ordinals count up, pools are those of the row, times do not go back.
fn ordinals(context: &Context<'_>, at: usize, history: &[Admission], check: &mut Check) {
    let pools = context.pools();
    for (index, admission) in history.iter().enumerate() {
        let (ordinal, pool_ordinal) = (index as u64, before(history, index, admission.pool));
        let place = |member: &str, expected: String| (in_admission(at, index, member), expected);
        check.at(pools.iter().any(|(pool, _)| *pool == admission.pool), || {
            place("pool", "a pool of the row's topology".to_owned())
        });
        check.at(admission.ordinal == ordinal, || place("admission_ordinal", ordinal.to_string()));
        check.at(admission.pool_ordinal == pool_ordinal, || {
            place("pool_admission_ordinal", format!("{pool_ordinal}, counted in the history"))
        });
        check.at(admission.is_readmission == (pool_ordinal > 0), || {
            place("is_readmission", format!("{}, by its position in the history", pool_ordinal > 0))
        });
        if let Some(previous) = index.checked_sub(1).map(|previous| &history[previous]) {
            check.at(previous.at_ms <= admission.at_ms, || {
                place("at_ms", format!("not before the admission at {:?}", previous.at_ms))
            });
        }
    }
}

fn stated_counts((at, request): (usize, &Request), history: &[Admission], check: &mut Check) {
    let found = history.len() as u64;
    check.at(request.admission_count == found, || {
        (in_request(at, "admission_count"), format!("{found}, the length of the history"))
    });
    let later = later_admissions(history);
    check.at(request.readmission_count == later, || {
        (in_request(at, "readmission_count"), format!("{later}, counted in the history"))
    });
}

/// The times a request's record repeats are those of its history. A handoff time that is absent is left to
/// [`ItemId::HandoffComplete`].
fn stated_times((at, request): (usize, &Request), history: &[Admission], check: &mut Check) {
    let first = history.first().map(|admission| admission.at_ms);
    agree((at, "first_admit_ms"), request.first_admit_ms, first, check);
    let handoff = &request.handoff;
    let repeated = [
        ("prefill_admit_ms", handoff.prefill_admit_ms, Pool::Prefill),
        ("decode_admit_ms", handoff.decode_admit_ms, Pool::Decode),
    ];
    for (member, stated, pool) in repeated {
        if stated.is_some() {
            agree((at, member), stated, first_in(history, pool).map(|admission| admission.at_ms), check);
        }
    }
}

/// The first admission of a request in one pool.
pub(super) fn first_in(history: &[Admission], pool: Pool) -> Option<&Admission> {
    history.iter().find(|admission| admission.pool == pool)
}

fn agree((at, member): (usize, &str), stated: Option<f64>, found: Option<f64>, check: &mut Check) {
    let holds = match (stated, found) {
        (Some(stated), Some(found)) => same(stated, found),
        (stated, found) => stated.is_none() && found.is_none(),
    };
    check.at(holds, || {
        let expected = found
            .map_or("null: no such admission".to_owned(), |at_ms| format!("{at_ms:?}, as the history says"));
        (in_request(at, member), expected)
    });
}

fn reached_every_pool(
    context: &Context<'_>,
    (at, request): (usize, &Request),
    history: &[Admission],
    check: &mut Check,
) {
    if request.status != TerminalStatus::Completed {
        return;
    }
    for (pool, _) in context.pools() {
        check.expect(first_in(history, pool).is_some(), || {
            let seen = Seen::Derived(format!("no {pool} admission"));
            (in_request(at, "admission_history"), seen, "an admission in every pool of the row".to_owned())
        });
    }
}

pub(super) fn prefix_reuse(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::PrefixReuse);
    let (mut with_reuse, mut best, mut first) = (0_u64, 0_u64, 0_u64);
    for (at, request) in context.requests() {
        let history = context.report.admissions(request);
        stated_reuse((at, request), history, &mut check);
        with_reuse += u64::from(request.reused_input_tokens > 0);
        let reused = || history.iter().map(|admission| admission.reused_input_tokens);
        best = total([best, reused().max().unwrap_or(0)].into_iter());
        first = total([first, reused().next().unwrap_or(0)].into_iter());
    }
    check.expect(with_reuse > 0, || {
        let seen = Seen::Derived("no request with reuse".to_owned());
        ("/per_request/*/reused_input_tokens".to_owned(), seen, "at least one".to_owned())
    });
    check.count("requests_with_reuse", with_reuse);
    check.count("reused_input_tokens", best);
    ratios(context, best, first, &mut check);
    check.finish(context.bytes)
}

/// A request's reuse is the most that one of its prefill (or aggregated) admissions found.
fn stated_reuse((at, request): (usize, &Request), history: &[Admission], check: &mut Check) {
    let most = |decode: bool| {
        let of_phase = history.iter().filter(|admission| (admission.pool == Pool::Decode) == decode);
        of_phase.map(|admission| admission.reused_input_tokens).max()
    };
    let prefill = most(false).unwrap_or(0);
    check.at(request.reused_input_tokens == prefill, || {
        (in_request(at, "reused_input_tokens"), format!("{prefill}, the most in the history"))
    });
    let decode = most(true);
    check.at(request.decode_reused_input_tokens == decode, || {
        let expected = decode.map_or("null: no decode admission".to_owned(), |most| {
            format!("{most}, the most in the history")
        });
        (in_request(at, "decode_reused_input_tokens"), expected)
    });
}

fn ratios(context: &Context<'_>, best: u64, first: u64, check: &mut Check) {
    let summary = &context.report.summary;
    let input = total(context.report.requests.iter().map(|request| request.input_length));
    let stated = [
        ("prefix_cache_reused_ratio", summary.prefix_cache_reused_ratio, best),
        (
            "first_admission_prefix_cache_reused_ratio",
            summary.first_admission_prefix_cache_reused_ratio,
            first,
        ),
    ];
    for (member, stated, reused) in stated {
        check.count(member, stated);
        let ratio = to_f64(reused) / to_f64(input);
        // An input of other length is the business of the token totals, which will not agree either.
        if input == summary.total_input_tokens && input > 0 {
            check.at(same(stated, ratio), || {
                (
                    format!("/summary/{member}"),
                    format!("{ratio:?}, {reused} of {input} tokens in the histories"),
                )
            });
        }
    }
}
