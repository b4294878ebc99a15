//! The router's decisions: why, where to, and when.

use std::collections::BTreeMap;

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, in_request, same};
use crate::canonical_report::{Outcome, Pool, Request, Route, TerminalStatus};

fn in_route(at: usize, index: usize, member: &str) -> String {
    format!("/per_request/{at}/routing_history/{index}/{member}")
}

#[derive(Default)]
struct Overlap {
    decisions: u64,
    blocks: u64,
    tokens: u64,
    /// Decisions for the worker that had the most.
    best: u64,
    regretted: u64,
    regret_blocks: u64,
    requests: u64,
}

pub(super) fn overlap_routing(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::OverlapRouting);
    let mut overlap = Overlap::default();
    for (at, request) in context.requests() {
        let before = overlap.decisions;
        for (index, route) in context.report.routes(request).iter().enumerate() {
            consistent_overlap(context, (at, index), route, &mut check);
            repeated_in_request(context, (at, request), route, &mut check);
            add(route, &mut overlap);
        }
        overlap.requests += u64::from(overlap.decisions > before);
    }
    check.expect(overlap.best > 0, || {
        let seen =
            Seen::Derived(format!("{} decisions with overlap, none for the best worker", overlap.decisions));
        let expected = "at least one decision for the worker with the most cached blocks".to_owned();
        ("/per_request/*/routing_history/*/selected_overlap_blocks".to_owned(), seen, expected)
    });
    check.count("requests_routed_with_overlap", overlap.requests);
    check.count("decisions_with_overlap", overlap.decisions);
    check.count("decisions_for_best_overlap", overlap.best);
    check.count("selected_overlap_blocks", overlap.blocks);
    check.count("reported_overlap_tokens", overlap.tokens);
    check.count("decisions_with_regret", overlap.regretted);
    check.count("overlap_regret_blocks", overlap.regret_blocks);
    check.finish(context.bytes)
}

fn add(route: &Route, overlap: &mut Overlap) {
    let (selected, regret) =
        (route.selected_overlap_blocks.unwrap_or(0), route.overlap_regret_blocks.unwrap_or(0));
    overlap.decisions += u64::from(selected > 0);
    overlap.best += u64::from(selected > 0 && regret == 0);
    overlap.blocks = overlap.blocks.saturating_add(selected);
    overlap.tokens = overlap.tokens.saturating_add(route.reported_overlap_tokens.unwrap_or(0));
    overlap.regretted += u64::from(regret > 0);
    overlap.regret_blocks = overlap.regret_blocks.saturating_add(regret);
}

/// The four numbers of a decision say the same thing.
fn consistent_overlap(context: &Context<'_>, (at, index): (usize, usize), route: &Route, check: &mut Check) {
    let blocks =
        (route.selected_overlap_blocks, route.best_available_overlap_blocks, route.overlap_regret_blocks);
    let (Some(selected), Some(best), Some(regret)) = blocks else {
        let expected = "a number of blocks: a KV-aware decision knows them".to_owned();
        return check.at(false, || (in_route(at, index, "selected_overlap_blocks"), expected));
    };
    check.at(best.checked_sub(selected) == Some(regret), || {
        let expected = format!("best minus selected, {best} - {selected}");
        (in_route(at, index, "overlap_regret_blocks"), expected)
    });
    let tokens = selected.saturating_mul(context.row().block_size);
    check.at(route.reported_overlap_tokens == Some(tokens), || {
        let expected = format!("{tokens}, the tokens of {selected} selected blocks");
        (in_route(at, index, "reported_overlap_tokens"), expected)
    });
}

fn repeated_in_request(
    context: &Context<'_>,
    (at, request): (usize, &Request),
    route: &Route,
    check: &mut Check,
) {
    let (member, repeated) = match route.pool {
        // A pool the row does not have is the business of the placements.
        Pool::Prefill | Pool::Decode if !context.is_disaggregated() => return,
        Pool::Prefill => ("prefill_route_overlap_tokens", request.prefill_route_overlap_tokens),
        Pool::Decode => ("decode_route_overlap_tokens", request.decode_route_overlap_tokens),
        Pool::Agg => return,
    };
    check.at(repeated == route.reported_overlap_tokens, || {
        let reported = route.reported_overlap_tokens.map_or("null".to_owned(), |tokens| tokens.to_string());
        (in_request(at, member), format!("{reported}, as the routing history says"))
    });
}

pub(super) fn every_worker(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::EveryWorker);
    let mut chosen: BTreeMap<(Pool, u64), u64> = BTreeMap::new();
    for (at, request) in context.requests() {
        for (index, route) in context.report.routes(request).iter().enumerate() {
            known_worker(context, (at, index), request, route, &mut check);
            if let Some(worker) = route.worker {
                *chosen.entry((route.pool, worker)).or_default() += 1;
            }
        }
    }
    for (pool, workers) in context.pools() {
        let decisions: Vec<u64> =
            (0..workers).map(|id| chosen.get(&(pool, id)).copied().unwrap_or(0)).collect();
        let seen = decisions.iter().filter(|&&count| count > 0).count() as u64;
        check.count(format!("{pool}_workers_seen"), seen);
        check.count(format!("{pool}_decisions_by_worker"), join(&decisions));
        check.expect(seen == workers, || {
            let seen = Seen::Derived(format!("{seen} {pool} workers"));
            ("/per_request/*/routing_history/*/logical_worker_id".to_owned(), seen, format!("all {workers}"))
        });
    }
    check.finish(context.bytes)
}

fn join(counts: &[u64]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

/// A decision of a pool the row has names a configured worker, the one the request's record repeats.
fn known_worker(
    context: &Context<'_>,
    (at, index): (usize, usize),
    request: &Request,
    route: &Route,
    check: &mut Check,
) {
    let Some((pool, workers)) = context.pools().into_iter().find(|(pool, _)| *pool == route.pool) else {
        return;
    };
    check.at(route.worker.is_some_and(|worker| worker < workers), || {
        let expected = format!("one of the {workers} {pool} workers, numbered from 0");
        (in_route(at, index, "logical_worker_id"), expected)
    });
    let (member, repeated) = match pool {
        Pool::Prefill => ("prefill_worker_idx", request.prefill_worker),
        Pool::Agg | Pool::Decode => ("decode_worker_idx", request.decode_worker),
    };
    check.at(repeated == route.worker, || {
        let routed = route.worker.map_or("null".to_owned(), |worker| worker.to_string());
        (in_request(at, member), format!("{routed}, as the routing history says"))
    });
}

pub(super) fn placements(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Placements);
    let (mut immediate, mut queued) = (0_u64, 0_u64);
    for (at, request) in context.requests() {
        one_decision_per_pool(context, (at, request), &mut check);
        for (index, route) in context.report.routes(request).iter().enumerate() {
            match route.outcome {
                Outcome::Immediate => {
                    immediate += 1;
                    immediate_has_no_queue((at, index), route, &mut check);
                }
                Outcome::Queued => {
                    queued += 1;
                    queued_is_allowed(context, (at, index), &mut check);
                    queue_times(context, (at, index), request, route, &mut check);
                }
            }
        }
    }
    check.count("route_decisions", immediate + queued);
    check.count("immediate_placements", immediate);
    check.count("queued_placements", queued);
    check.expect(queued > 0 || context.row().router_queue_threshold.is_none(), || {
        let seen = Seen::Derived("no queued placement".to_owned());
        let expected = "at least one: the row declares a queue threshold".to_owned();
        ("/per_request/*/routing_history/*/outcome".to_owned(), seen, expected)
    });
    check.finish(context.bytes)
}

fn one_decision_per_pool(context: &Context<'_>, (at, request): (usize, &Request), check: &mut Check) {
    if request.status != TerminalStatus::Completed {
        return;
    }
    let routes = context.report.routes(request);
    let pools = context.pools();
    let once = |pool: Pool| routes.iter().filter(|route| route.pool == pool).count() == 1;
    check.expect(routes.len() == pools.len() && pools.iter().all(|(pool, _)| once(*pool)), || {
        let list =
            |pools: &mut dyn Iterator<Item = Pool>| pools.map(Pool::as_str).collect::<Vec<_>>().join(", ");
        let seen = list(&mut routes.iter().map(|route| route.pool));
        let expected = list(&mut pools.iter().map(|(pool, _)| *pool));
        let expected = format!("one decision for each of: {expected}");
        (in_request(at, "routing_history"), Seen::Derived(format!("decisions for: {seen}")), expected)
    });
}

fn immediate_has_no_queue((at, index): (usize, usize), route: &Route, check: &mut Check) {
    let times =
        [("queue_entered_at_ms", route.queue_entered_at_ms), ("released_at_ms", route.released_at_ms)];
    for (member, time) in times {
        check.at(time.is_none(), || {
            (in_route(at, index, member), "null: the placement was immediate".to_owned())
        });
    }
    check.at(route.queue_wait_ms.is_some_and(|wait| same(wait, 0.0)), || {
        (in_route(at, index, "queue_wait_ms"), "0.0: the placement was immediate".to_owned())
    });
}

fn queued_is_allowed(context: &Context<'_>, (at, index): (usize, usize), check: &mut Check) {
    check.at(context.row().router_queue_threshold.is_some(), || {
        let expected = "\"immediate\": without a queue threshold no placement is queued".to_owned();
        (in_route(at, index, "outcome"), expected)
    });
}

/// Arrival, into the queue, out of it after the stated wait, first admission: in this order.
fn queue_times(
    context: &Context<'_>,
    (at, index): (usize, usize),
    request: &Request,
    route: &Route,
    check: &mut Check,
) {
    let times = (route.queue_entered_at_ms, route.released_at_ms, route.queue_wait_ms);
    let (Some(entered), Some(released), Some(wait)) = times else {
        let expected = "a time: the placement was queued and made".to_owned();
        return check.at(false, || (in_route(at, index, "released_at_ms"), expected));
    };
    check.at(request.arrival_ms <= entered, || {
        (
            in_route(at, index, "queue_entered_at_ms"),
            format!("not before the arrival at {:?}", request.arrival_ms),
        )
    });
    check.at(entered <= released, || {
        (in_route(at, index, "released_at_ms"), format!("not before it was queued at {entered:?}"))
    });
    check.at(same(released - entered, wait), || {
        (in_route(at, index, "queue_wait_ms"), format!("{:?}, released minus entered", released - entered))
    });
    let admission = context.report.admissions(request).iter().find(|admission| admission.pool == route.pool);
    if let Some(admission) = admission {
        check.at(released <= admission.at_ms, || {
            (
                in_route(at, index, "released_at_ms"),
                format!("not after the admission at {:?}", admission.at_ms),
            )
        });
    }
}
