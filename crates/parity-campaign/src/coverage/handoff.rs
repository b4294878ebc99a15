//! The prefill-to-decode handoff of disaggregated rows; `super` says what is invariant for which engine.

use super::admission::first_in;
use super::item::{Check, Item, ItemId, Seen};
use super::{Context, in_request};
use crate::canonical_report::{Handoff, Pool, Request, TerminalStatus};
use crate::definition::Engine;

const AGGREGATED: &str = "an aggregated row has no handoff";

pub(super) fn complete(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::HandoffComplete);
    let mut whole = 0_u64;
    for (at, request) in context.requests() {
        let steps = request.handoff.named();
        whole += u64::from(steps.iter().all(|(_, time)| time.is_some()));
        let wanted = context.is_disaggregated();
        if wanted && request.status != TerminalStatus::Completed {
            continue;
        }
        for (member, time) in steps {
            check.at(time.is_some() == wanted, || {
                let expected =
                    if wanted { "a time: the request completed" } else { "null: the row is aggregated" };
                (in_request(at, member), expected.to_owned())
            });
        }
    }
    if !context.is_disaggregated() {
        return check.finish_not_applicable(context.bytes, AGGREGATED);
    }
    check.expect(whole > 0, || {
        (
            "/per_request".to_owned(),
            Seen::Derived("no handoff".to_owned()),
            "at least one whole handoff".to_owned(),
        )
    });
    check.count("handoffs", whole);
    check.finish(context.bytes)
}

/// One step of a handoff: its name in words, the member to point at, and its time.
type Step = (&'static str, &'static str, Option<f64>);

/// The steps in the engine's order. Admissions come from the history; the members that repeat them belong to
/// [`ItemId::Admissions`].
fn steps(context: &Context<'_>, request: &Request) -> [Step; 5] {
    let history = context.report.admissions(request);
    let admitted = |pool| first_in(history, pool).map(|admission| admission.at_ms);
    let Handoff { source_held_ms, destination_reserved_ms, destination_activated_ms, .. } = request.handoff;
    let prefill = ("prefill admission", "prefill_admit_ms", admitted(Pool::Prefill));
    let held = ("source hold", "source_held_ms", source_held_ms);
    let reserved = ("destination reservation", "destination_reserved_ms", destination_reserved_ms);
    let activated = ("destination activation", "destination_activated_ms", destination_activated_ms);
    let decode = ("decode admission", "decode_admit_ms", admitted(Pool::Decode));
    match context.row().engine {
        Engine::Vllm | Engine::Trtllm => [prefill, held, reserved, activated, decode],
        Engine::Sglang => [reserved, prefill, held, activated, decode],
    }
}

pub(super) fn order(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::HandoffOrder);
    if !context.is_disaggregated() {
        return check.finish_not_applicable(context.bytes, AGGREGATED);
    }
    let mut at_once = 0_u64;
    for (at, request) in context.requests() {
        let steps = steps(context, request);
        for pair in steps.windows(2) {
            let [(earlier, _, Some(first)), (later, member, Some(second))] = pair else { continue };
            check.expect(first <= second, || {
                let seen = Seen::Derived(format!("{later} at {second:?}"));
                (in_request(at, member), seen, format!("not before the {earlier} at {first:?}"))
            });
        }
        at_once += u64::from(steps[3].2.is_some() && steps[3].2 == steps[4].2);
    }
    check.count("handoff_order", order_name(context.row().engine));
    check.count("activated_at_decode_admission", at_once);
    check.finish(context.bytes)
}

fn order_name(engine: Engine) -> String {
    match engine {
        Engine::Vllm | Engine::Trtllm => "source first".to_owned(),
        Engine::Sglang => "destination first".to_owned(),
    }
}

#[derive(Default)]
struct Released {
    before_decode_admission: u64,
    after_first_token: u64,
    after_terminal: u64,
}

pub(super) fn source_released_last(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::SourceReleasedLast);
    if !context.is_disaggregated() {
        return check.finish_not_applicable(context.bytes, AGGREGATED);
    }
    let mut counted = Released::default();
    for (at, request) in context.requests() {
        let Some(released) = request.handoff.source_released_ms else { continue };
        for (step, member, time) in steps(context, request) {
            let Some(time) = time else { continue };
            if member == "decode_admit_ms" {
                counted.before_decode_admission += u64::from(released < time);
            }
            check.at(time <= released || !must_precede_release(context.row().engine, member), || {
                (in_request(at, "source_released_ms"), format!("not before the {step} at {time:?}"))
            });
        }
        counted.after_first_token += u64::from(request.first_token_ms.is_some_and(|token| token < released));
        counted.after_terminal += u64::from(request.terminal_ms < released);
    }
    check.count("released_before_decode_admission", counted.before_decode_admission);
    check.count("released_after_first_token", counted.after_first_token);
    check.count("released_after_terminal", counted.after_terminal);
    check.finish(context.bytes)
}

/// Only in SGLang is the decode admission a step of the handoff itself.
fn must_precede_release(engine: Engine, member: &str) -> bool {
    member != "decode_admit_ms" || engine == Engine::Sglang
}
