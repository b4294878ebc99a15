//! Requests, their ends and their tokens.

use std::collections::HashSet;

use super::item::{Check, Item, ItemId, Seen};
use super::{Context, in_request, total};
use crate::canonical_report::{Request, TerminalStatus};

pub(super) fn requests(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::Requests);
    let report = context.report;
    let found = report.requests.len() as u64;
    check.count("requests", found);
    let expected = context.expectation.totals.requests;
    check.expect(found == expected, || {
        let seen = Seen::Derived(format!("{found} records"));
        ("/per_request".to_owned(), seen, format!("{expected}, the rows of the trace window"))
    });
    let stated = [
        ("/summary/num_requests", report.summary.num_requests),
        ("/coverage/per_request_records", report.evidence.per_request_records),
    ];
    for (pointer, stated) in stated {
        check.at(stated == found, || (pointer.to_owned(), format!("{found}, the number of request records")));
    }
    let mut seen = HashSet::with_capacity(report.requests.len());
    for (at, request) in context.requests() {
        check.at(seen.insert(request.uuid), || {
            (in_request(at, "uuid"), "a UUID that no earlier request has".to_owned())
        });
    }
    check.finish(context.bytes)
}

pub(super) fn terminal_status(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::TerminalStatus);
    let mut completed = 0_u64;
    for (at, request) in context.requests() {
        let is_completed = request.status == TerminalStatus::Completed;
        completed += u64::from(is_completed);
        check.at(is_completed, || (in_request(at, "terminal_status"), "\"completed\"".to_owned()));
        tokens_were_produced(at, request, &mut check);
    }
    check.count("completed_requests", completed);
    check.at(context.report.summary.completed_requests == completed, || {
        ("/summary/completed_requests".to_owned(), format!("{completed}, the requests whose record says so"))
    });
    check.finish(context.bytes)
}

fn tokens_were_produced(at: usize, request: &Request, check: &mut Check) {
    if request.status != TerminalStatus::Completed || request.output_length == 0 {
        return;
    }
    let times = [("first_token_ms", request.first_token_ms), ("last_token_ms", request.last_token_ms)];
    for (member, time) in times {
        check.at(time.is_some(), || {
            (in_request(at, member), "a time: the request produced tokens".to_owned())
        });
    }
}

pub(super) fn token_totals(context: &Context<'_>) -> Item {
    let mut check = Check::new(ItemId::TokenTotals);
    let report = context.report;
    let sum = |tokens: fn(&Request) -> u64| total(report.requests.iter().map(tokens));
    let totals = context.expectation.totals;
    let sums = [
        ("input_length", sum(|request| request.input_length), totals.input_tokens),
        ("requested_output_length", sum(|request| request.requested_output_length), totals.output_tokens),
    ];
    for (member, found, expected) in sums {
        check.expect(found == expected, || {
            let seen = Seen::Derived(format!("a sum of {found}"));
            (format!("/per_request/*/{member}"), seen, format!("{expected}, the sum over the trace window"))
        });
    }
    for (at, request) in context.requests() {
        check.at(request.output_length == request.requested_output_length, || {
            let requested = request.requested_output_length;
            (in_request(at, "output_length"), format!("{requested}, as the request asked for"))
        });
    }
    let (input, output) = (sums[0].1, sum(|request| request.output_length));
    check.count("input_tokens", input);
    check.count("output_tokens", output);
    let stated = [
        ("/summary/total_input_tokens", report.summary.total_input_tokens, input),
        ("/summary/total_output_tokens", report.summary.total_output_tokens, output),
    ];
    for (pointer, stated, found) in stated {
        check.at(stated == found, || (pointer.to_owned(), format!("{found}, the sum over requests")));
    }
    check.finish(context.bytes)
}
