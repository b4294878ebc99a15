//! What lies just inside and just outside of a bound, reports that lack a kind of evidence altogether, and every counter.

use serde_json::{Value, json};

use super::*;

fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut value = serde_json::from_slice(&report(name)).expect("JSON");
    change(&mut value);
    serde_json::to_vec(&value).expect("JSON")
}

fn requests(report: &mut Value) -> impl Iterator<Item = &mut Value> {
    report["per_request"].as_array_mut().expect("requests").iter_mut()
}

fn set(report: &mut Value, pointer: &str, value: impl Into<Value>) {
    *report.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is missing")) = value.into();
}

fn check(bytes: &[u8], row: &Row, totals: WorkloadTotals) -> Coverage {
    let mut expectation = expectation(row);
    expectation.totals = totals;
    Coverage::check(bytes, &expectation).expect("a report of a known layout")
}

/// The only complaint: its item, and what was found.
fn complaint(coverage: &Coverage) -> (&'static str, String) {
    let [(id, finding)] = complaints(coverage)[..] else { panic!("{coverage}") };
    (id.as_str(), finding.found.clone())
}

/// Drift from a seed means something only if counters do. `counters.txt` is what this prints.
#[test]
fn counters_are_what_the_reports_hold() {
    let mut found = String::new();
    for name in [VA, VD, SA, SD, QUEUED] {
        found += &format!("# {name}\n");
        for counter in coverage(name, &report(name)).counters() {
            found += &format!("{} {}\n", counter.name, counter.value);
        }
    }
    assert!(found == include_str!("counters.txt"), "counters.txt is not what was found:\n{found}");
}

#[test]
fn a_counter_of_times_does_not_count_equal_times() {
    let counted = |pointer: &str| {
        let edited = changed(VD, |report| {
            let time = report.pointer(pointer).expect("a time").clone();
            set(report, "/per_request/3/source_released_ms", time);
        });
        let coverage = coverage(VD, &edited);
        let count = |name: &str| match coverage.counter(name) {
            Some(CounterValue::Count(count)) => *count,
            other => panic!("{name}: {other:?}"),
        };
        [
            count("released_before_decode_admission"),
            count("released_after_first_token"),
            count("released_after_terminal"),
        ]
    };
    let [at_decode, at_token, at_end] = ["decode_admit_ms", "first_token_ms", "terminal_time_ms"]
        .map(|member| counted(&format!("/per_request/3/{member}")));
    // Only the moment of the end is after the first token, and only there nothing is after the end.
    assert_eq!((at_token[1] + 1, at_decode[1]), (at_end[1], at_token[1]));
    assert_eq!((at_decode[0], at_decode[2]), (at_token[0], at_token[2]));
    assert_eq!(at_token[2], at_end[2]);
    assert_eq!(counted("/summary/duration_ms")[2], at_end[2] + 1);
}

#[test]
fn what_lies_on_a_bound_is_allowed() {
    let holds = |name: &str, change: &dyn Fn(&mut Value)| {
        let coverage = coverage(name, &changed(name, change));
        assert!(coverage.qualifies(), "{coverage}");
    };
    holds(VA, &|report| {
        let first = report["per_request"][3]["first_token_ms"].clone();
        set(report, "/per_request/3/last_token_ms", first);
    });
    // Out of the queue when it came into it.
    holds(QUEUED, &|report| {
        let route = "/per_request/20/routing_history/0";
        let entered = report.pointer(&format!("{route}/queue_entered_at_ms")).expect("a time").clone();
        set(report, &format!("{route}/released_at_ms"), entered);
        set(report, &format!("{route}/queue_wait_ms"), 0.0);
    });
    // One block less free than a pass of 8,192 tokens can ask for.
    holds(QUEUED, &|report| {
        set(report, "/coverage/pressure/records/3/state_before/active_blocks", 123);
        set(report, "/coverage/pressure/records/3/state_after/active_blocks", 123);
    });
    // A request may lose its blocks at the very time it got them.
    holds(VA, &|report| {
        let admitted = report["per_request"][37]["admission_history"][0]["at_ms"].clone();
        set(report, "/coverage/pressure/records/0/at_ms", admitted);
    });
    // A source may be released by the last pass of all, when the replay has ended.
    holds(VD, &|report| {
        let last = report["coverage"]["kv_ingest"]["boundaries"]["pass_end"]["last_at_ms"].clone();
        set(report, "/per_request/3/source_released_ms", last);
    });
}

/// Every decision for one worker is one for another, and the requests say so too.
fn moved(name: &str, from: u64, to: u64) -> Vec<u8> {
    changed(name, |report| {
        requests(report).for_each(|request| {
            for route in request["routing_history"].as_array_mut().expect("routes") {
                if route["logical_worker_id"] == from {
                    route["logical_worker_id"] = to.into();
                }
            }
            if request["decode_worker_idx"] == from {
                request["decode_worker_idx"] = to.into();
            }
        });
        for record in report["coverage"]["pressure"]["records"].as_array_mut().expect("records") {
            if record["worker_id"] == from {
                record["worker_id"] = to.into();
            }
        }
    })
}

#[test]
fn a_worker_that_was_never_chosen_is_noticed() {
    let found = complaint(&coverage(VA, &moved(VA, 3, 2)));
    assert_eq!(found, ("q2.every_worker", "3 agg workers".to_owned()));
}

#[test]
fn a_worker_beyond_the_configured_ones_is_noticed() {
    let coverage = coverage(VA, &moved(VA, 3, 4));
    let [(ItemId::EveryWorker, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    // Ten decisions, and the worker that they were taken from.
    assert_eq!((&*finding.found, finding.occurrences), ("4", 11));
}

#[test]
fn without_a_threshold_no_placement_may_be_queued() {
    let mut row = row(QUEUED);
    row.router_queue_threshold = None;
    let edited =
        changed(QUEUED, |report| set(report, "/metadata/router/config/router_queue_threshold", Value::Null));
    let mut expectation = expectation(&row);
    expectation.max_pressure_per_request = 4;
    let coverage = Coverage::check(&edited, &expectation).expect("a report of a known layout");
    let [(ItemId::Placements, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    assert_eq!((&*finding.found, finding.occurrences), ("\"queued\"", 25));
}

#[test]
fn nothing_is_admitted_before_it_leaves_the_queue() {
    let route = "/per_request/20/routing_history/0";
    let edited = changed(QUEUED, |report| {
        let entered = report.pointer(&format!("{route}/queue_entered_at_ms")).and_then(Value::as_f64);
        // The admission is at 28,926.7.
        set(report, &format!("{route}/released_at_ms"), 28_927.0);
        set(report, &format!("{route}/queue_wait_ms"), 28_927.0 - entered.expect("a time"));
    });
    assert_eq!(complaint(&coverage(QUEUED, &edited)), ("q2.placements", "28927.0".to_owned()));
}

#[test]
fn a_completed_request_that_was_never_admitted_is_noticed() {
    let edited = changed(VA, |report| {
        set(report, "/per_request/3/admission_history", json!([]));
        set(report, "/per_request/3/admission_count", 0);
        set(report, "/per_request/3/first_admit_ms", Value::Null);
    });
    assert_eq!(complaint(&coverage(VA, &edited)), ("q2.admissions", "no agg admission".to_owned()));
}

#[test]
fn a_pool_that_the_row_does_not_have_is_noticed() {
    let renamed = changed(VA, |report| {
        let config = report["metadata"]["engine_config"]["aggregated"].take();
        set(report, "/metadata/engine_config", json!({ "decode": config }));
    });
    assert_eq!(complaint(&coverage(VA, &renamed)), ("row.declaration", "decode".to_owned()));
    let only_one = changed(VD, |report| {
        let config = report["metadata"]["engine_config"]["prefill"].take();
        set(report, "/metadata/engine_config", json!({ "prefill": config }));
    });
    assert_eq!(complaint(&coverage(VD, &only_one)), ("row.declaration", "prefill".to_owned()));
}

#[test]
fn as_many_free_blocks_as_one_pass_can_ask_for_are_no_edge() {
    let edited = changed(QUEUED, |report| {
        set(report, "/coverage/pressure/records/3/state_before/active_blocks", 122);
        set(report, "/coverage/pressure/records/3/state_after/active_blocks", 122);
    });
    assert_eq!(complaint(&coverage(QUEUED, &edited)), ("q2.capacity_edge", "122".to_owned()));
}

#[test]
fn as_many_available_blocks_as_were_required_are_no_edge() {
    let record = "/coverage/pressure/records/4";
    let edited = changed(SD, |report| {
        let required = report.pointer(&format!("{record}/required_blocks_before")).expect("a count").clone();
        set(report, &format!("{record}/logical_available_blocks_before"), required);
    });
    assert_eq!(ids(&coverage(SD, &edited)), ["q2.capacity_edge"]);
}

/// A report of which every pressure record, and all that refers to one, is taken out.
fn without_pressure(name: &str) -> Vec<u8> {
    changed(name, |report| {
        set(report, "/coverage/pressure/records", json!([]));
        set(report, "/coverage/pressure/vllm_preemptions_total", 0);
        set(report, "/coverage/pressure/sglang_retractions_total", 0);
        requests(report).for_each(|request| request["pressure_record_ordinals"] = json!([]));
    })
}

#[test]
fn no_pressure_is_never_inside_a_band() {
    for name in [VA, VD, SA, SD] {
        let with_band = |min, max| {
            let mut row = row(name);
            row.pressure = PressureBand { min, max };
            check(&without_pressure(name), &row, TOTALS)
        };
        let not_exercised = ("q2.pressure_band", "0 pressure events: the edge was not exercised".to_owned());
        assert_eq!(complaint(&with_band(1, 3)), not_exercised);
        assert_eq!(complaint(&with_band(0, 3)), not_exercised);
        // A row that declares none has nothing of the kind, which is no proof either.
        let none = with_band(0, 0);
        assert_eq!(ids(&none), [""; 0], "{none}");
        for id in [ItemId::PressureBand, ItemId::CapacityEdge, ItemId::Readmitted, ItemId::NoCycling] {
            let status = &none.item(id).expect("every item").status;
            assert!(matches!(status, Status::NotApplicable { .. }), "{name} {id}: {status:?}");
        }
    }
    let mut row = row(VA);
    row.pressure = PressureBand { min: 0, max: 0 };
    let flood = ("q2.pressure_band", "1 pressure events: a flood, not an edge".to_owned());
    assert_eq!(complaint(&check(&report(VA), &row, TOTALS)), flood);
}

#[test]
fn a_router_that_never_finds_anything_cached_proves_nothing() {
    let without = |name: &str, best: bool| {
        changed(name, |report| {
            requests(report).for_each(|request| {
                for route in request["routing_history"].as_array_mut().expect("routes") {
                    let known = if best { route["best_available_overlap_blocks"].clone() } else { json!(0) };
                    route["selected_overlap_blocks"] = json!(0);
                    route["reported_overlap_tokens"] = json!(0);
                    route["overlap_regret_blocks"] = known.clone();
                    route["best_available_overlap_blocks"] = known;
                }
                for member in ["prefill_route_overlap_tokens", "decode_route_overlap_tokens"] {
                    if !request[member].is_null() {
                        request[member] = json!(0);
                    }
                }
            });
        })
    };
    for name in [VA, VD, SA, SD] {
        for best in [false, true] {
            let found = complaint(&coverage(name, &without(name, best)));
            let expected = "0 decisions with overlap, none for the best worker".to_owned();
            assert_eq!(found, ("q2.overlap_routing", expected), "{name}");
        }
    }
}

#[test]
fn engines_that_never_reuse_anything_prove_nothing() {
    for name in [VA, VD, SA, SD] {
        let edited = changed(name, |report| {
            requests(report).for_each(|request| {
                request["reused_input_tokens"] = json!(0);
                if !request["decode_reused_input_tokens"].is_null() {
                    request["decode_reused_input_tokens"] = json!(0);
                }
                for admission in request["admission_history"].as_array_mut().expect("admissions") {
                    admission["reused_input_tokens"] = json!(0);
                }
            });
            set(report, "/summary/prefix_cache_reused_ratio", 0.0);
            set(report, "/summary/first_admission_prefix_cache_reused_ratio", 0.0);
        });
        let found = complaint(&coverage(name, &edited));
        assert_eq!(found, ("q2.prefix_reuse", "no request with reuse".to_owned()), "{name}");
    }
}

#[test]
fn a_router_that_hears_of_no_stored_block_is_noticed() {
    let edited = changed(VA, |report| {
        let events = report["coverage"]["kv_ingest"]["events"].clone();
        set(report, "/coverage/kv_ingest/kind_counts", json!({ "stored": 0, "removed": events }));
    });
    assert_eq!(complaint(&coverage(VA, &edited)), ("q2.kv_events", "0".to_owned()));
}

#[test]
fn a_tier_that_was_never_used_is_no_other_tier() {
    let tiers = |tiers: Value| changed(VA, |report| set(report, "/coverage/kv_ingest/tier_counts", tiers));
    assert!(coverage(VA, &tiers(json!({ "device": 496, "host": 0 }))).qualifies());
    let other = coverage(VA, &tiers(json!({ "device": 495, "host": 1 })));
    assert_eq!(complaint(&other), ("q2.kv_events", "1".to_owned()));
}

/// A report of one request has one admission: whether time went on in between is not shown.
#[test]
fn one_time_is_not_the_course_of_time() {
    let totals = WorkloadTotals { requests: 1, input_tokens: 1501, output_tokens: 617 };
    let time_of = |bytes: &[u8]| {
        let coverage = check(bytes, &row(VA), totals);
        let time = coverage.item(ItemId::VirtualTime).expect("every item");
        let Status::Failed { finding } = &time.status else { panic!("{coverage}") };
        (finding.pointer.clone(), finding.found.clone(), finding.occurrences)
    };
    let only_one = |report: &mut Value| {
        let request = report["per_request"][3].clone();
        let (input, output) = (request["input_length"].clone(), request["output_length"].clone());
        let end = request["terminal_time_ms"].clone();
        set(report, "/per_request", json!([request]));
        for member in
            ["/summary/num_requests", "/summary/completed_requests", "/coverage/per_request_records"]
        {
            set(report, member, 1);
        }
        set(report, "/summary/total_input_tokens", input);
        set(report, "/summary/total_output_tokens", output);
        set(report, "/summary/duration_ms", end);
        set(report, "/summary/prefix_cache_reused_ratio", 0.0);
        set(report, "/summary/first_admission_prefix_cache_reused_ratio", 0.0);
        set(report, "/coverage/pressure/records", json!([]));
        set(report, "/coverage/pressure/vllm_preemptions_total", 0);
    };
    let times = "/per_request/*/admission_history/*/at_ms".to_owned();
    assert_eq!(time_of(&changed(VA, only_one)), (times, "1 distinct times".to_owned(), 1));
    // All at once, and consistently so.
    let all_at_once = changed(VA, |report| {
        only_one(report);
        set(report, "/summary/duration_ms", 0.0);
        let request = "/per_request/0";
        set(report, &format!("{request}/admission_history/0/at_ms"), 0.0);
        for member in
            ["arrival_time_ms", "first_admit_ms", "first_token_ms", "last_token_ms", "terminal_time_ms"]
        {
            set(report, &format!("{request}/{member}"), 0.0);
        }
    });
    assert_eq!(time_of(&all_at_once), ("/summary/duration_ms".to_owned(), "0.0".to_owned(), 2));
}

#[test]
fn a_row_in_which_nothing_was_handed_over_is_noticed() {
    let edited = changed(VD, |report| {
        set(report, "/summary/completed_requests", 0);
        requests(report).for_each(|request| {
            request["terminal_status"] = json!("failed");
            request["source_held_ms"] = Value::Null;
        });
    });
    let coverage = coverage(VD, &edited);
    let Status::Failed { finding } = &coverage.item(ItemId::HandoffComplete).expect("every item").status
    else {
        panic!("{coverage}")
    };
    assert_eq!((&*finding.found, finding.occurrences), ("no handoff", 1));
}

#[test]
fn passes_at_one_time_are_noticed() {
    let edited = changed(VA, |report| {
        for boundary in ["pass_start", "pass_end"] {
            let last = format!("/coverage/kv_ingest/boundaries/{boundary}/last_at_ms");
            let last = report.pointer(&last).expect("a time").clone();
            set(report, &format!("/coverage/kv_ingest/boundaries/{boundary}/first_at_ms"), last);
        }
    });
    let expected = "no boundary whose last batch is after its first".to_owned();
    assert_eq!(complaint(&coverage(VA, &edited)), ("q2.virtual_time", expected));
}

/// A request that did not complete owes no tokens, no handoff and no admission beyond what it says.
#[test]
fn only_what_completed_owes_anything() {
    let edited = changed(VD, |report| {
        set(report, "/per_request/3/terminal_status", "failed");
        set(report, "/summary/completed_requests", 39);
        for member in ["first_token_ms", "last_token_ms", "source_held_ms", "source_released_ms"] {
            set(report, &format!("/per_request/3/{member}"), Value::Null);
        }
        set(report, "/per_request/3/routing_history", json!([]));
        set(report, "/per_request/3/prefill_worker_idx", Value::Null);
        set(report, "/per_request/3/decode_worker_idx", Value::Null);
    });
    assert_eq!(complaint(&coverage(VD, &edited)), ("q2.terminal_status", "\"failed\"".to_owned()));
}

#[test]
fn a_request_without_output_owes_no_tokens() {
    let edited = changed(VA, |report| {
        let output = report["per_request"][3]["output_length"].as_u64().expect("a count");
        let all = report["summary"]["total_output_tokens"].as_u64().expect("a count");
        set(report, "/summary/total_output_tokens", all - output);
        for member in ["output_length", "requested_output_length"] {
            set(report, &format!("/per_request/3/{member}"), 0);
        }
        for member in ["first_token_ms", "last_token_ms"] {
            set(report, &format!("/per_request/3/{member}"), Value::Null);
        }
    });
    let totals = WorkloadTotals { output_tokens: TOTALS.output_tokens - 617, ..TOTALS };
    let coverage = check(&edited, &row(VA), totals);
    assert!(coverage.qualifies(), "{coverage}");
}

#[test]
fn a_finding_counts_its_contradictions() {
    let edited = changed(VA, |report| {
        requests(report).take(2).for_each(|request| request["terminal_status"] = json!("failed"));
        set(report, "/summary/completed_requests", 38);
    });
    let coverage = coverage(VA, &edited);
    let [(_, finding)] = complaints(&coverage)[..] else { panic!("{coverage}") };
    assert_eq!(
        finding.to_string(),
        "/per_request/0/terminal_status: found \"failed\", expected \"completed\" (2 contradictions in all)"
    );
    let shown = coverage.to_string();
    let line = shown.lines().find(|line| line.contains("q2.terminal_status")).expect("every item");
    assert_eq!(
        line,
        "FAILED q2.terminal_status      /per_request/0/terminal_status: found \"failed\", expected \"completed\" \
         (2 contradictions in all); completed_requests=38"
    );
    let held = shown.lines().find(|line| line.contains("q2.requests")).expect("every item");
    assert_eq!(held, "held   q2.requests             requests=40");
}

#[test]
fn every_item_says_what_it_proves() {
    let mut said = BTreeSet::new();
    for id in ItemId::ALL {
        assert!(id.proves().ends_with('.') && said.insert(id.proves()), "{id}");
        assert_eq!(serde_json::to_value(id).expect("a name"), json!(id.as_str()));
    }
}
