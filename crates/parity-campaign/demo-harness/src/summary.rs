//! The figures over all requests.

use std::collections::BTreeMap;

use crate::json::Json;
use crate::replay::Replay;
use crate::request::{Nanos, Pool, Request};

/// Nanoseconds as the milliseconds of a report.
pub(crate) fn ms(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}

fn between(start: Nanos, end: Option<Nanos>) -> Option<f64> {
    end.map(|end| ms(end - start))
}

/// The times of one request that summaries are made of.
pub(crate) struct Latencies {
    pub(crate) first_token_ms: Option<f64>,
    pub(crate) second_token_ms: Option<f64>,
    pub(crate) end_to_end_ms: Option<f64>,
    /// The mean time between tokens.
    pub(crate) per_token_ms: Option<f64>,
}

impl Latencies {
    pub(crate) fn of(request: &Request) -> Self {
        let timeline = &request.timeline;
        let tokens = timeline.first_token.zip(timeline.last_token).filter(|_| request.output_tokens > 1);
        Self {
            first_token_ms: between(timeline.arrival, timeline.first_token),
            second_token_ms: timeline.first_token.and_then(|first| between(first, timeline.second_token)),
            end_to_end_ms: between(timeline.arrival, timeline.last_token),
            per_token_ms: tokens.map(|(first, last)| ms(last - first) / f64::from(request.output_tokens - 1)),
        }
    }
}

/// Tokens that the first admission of each request did not have to compute, and those that any admission did not.
fn reused_tokens(request: &Request) -> (u64, u64) {
    let reused = || request.timeline.admissions.iter().map(|admission| u64::from(admission.reused_tokens));
    (reused().next().unwrap_or(0), reused().max().unwrap_or(0))
}

/// Everything in a summary but the three figures that depend on wall time.
pub(crate) fn summarize(replay: &Replay, workers: (usize, usize)) -> BTreeMap<String, Json> {
    let requests = &replay.world.requests;
    let total = |of: fn(&Request) -> u64| requests.iter().map(of).sum::<u64>();
    let (input, output) = (total(|r| u64::from(r.input_tokens)), total(|r| u64::from(r.generated)));
    let duration = requests.iter().filter_map(|request| request.timeline.terminal).max().unwrap_or(0);
    let seconds = duration as f64 / 1e9;
    let rate = |count: u64| if duration == 0 { 0.0 } else { count as f64 / seconds };
    let completed = requests.iter().filter(|request| request.finished()).count() as u64;
    let mut summary = BTreeMap::new();
    let mut put = |key: &str, value: Json| {
        summary.insert(key.to_owned(), value);
    };
    put("completed_requests", completed.into());
    put("num_requests", requests.len().into());
    put("duration_ms", ms(duration).into());
    put("total_input_tokens", input.into());
    put("total_output_tokens", output.into());
    put("processed_tokens", (input + output).into());
    put("request_throughput_rps", rate(completed).into());
    put("input_throughput_tok_s", rate(input).into());
    put("output_throughput_tok_s", rate(output).into());
    put("total_throughput_tok_s", rate(input + output).into());
    put("prefill_worker_seconds", (seconds * workers.0 as f64).into());
    put("decode_worker_seconds", (seconds * workers.1 as f64).into());
    put(
        "first_admission_prefix_cache_reused_ratio",
        (total(|r| reused_tokens(r).0) as f64 / input as f64).into(),
    );
    put("prefix_cache_reused_ratio", (total(|r| reused_tokens(r).1) as f64 / input as f64).into());
    put_distributions(&mut summary, requests);
    summary
}

fn put_distributions(summary: &mut BTreeMap<String, Json>, requests: &[Request]) {
    let latencies: Vec<_> = requests.iter().map(Latencies::of).collect();
    let all = |of: fn(&Latencies) -> Option<f64>| latencies.iter().filter_map(of).collect::<Vec<_>>();
    let gaps = |request: &Request| {
        request.timeline.tokens.windows(2).map(|pair| ms(pair[1] - pair[0])).collect::<Vec<_>>()
    };
    let distributions = [
        ("ttft_ms", all(|l| l.first_token_ms)),
        ("ttst_ms", all(|l| l.second_token_ms)),
        ("e2e_latency_ms", all(|l| l.end_to_end_ms)),
        ("tpot_ms", all(|l| l.per_token_ms)),
        ("itl_ms", requests.iter().flat_map(gaps).collect()),
        (
            "output_token_throughput_per_user",
            all(|l| l.per_token_ms.filter(|&ms| ms > 0.0).map(|ms| 1_000.0 / ms)),
        ),
    ];
    for (name, values) in distributions {
        if matches!(name, "ttft_ms" | "e2e_latency_ms" | "tpot_ms") {
            let key = format!("num_{}_samples", name.trim_end_matches("_ms"));
            summary.insert(key, values.len().into());
        }
        for (statistic, value) in describe(values) {
            summary.insert(format!("{statistic}_{name}"), value.into());
        }
    }
}

fn describe(mut values: Vec<f64>) -> Vec<(&'static str, Option<f64>)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    // The nearest rank at or above the fraction.
    let rank = |fraction: f64| {
        let place = (count * fraction).ceil().max(1.0) as usize - 1;
        values.get(place).copied()
    };
    let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / count);
    let deviation =
        mean.map(|mean| (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt());
    vec![
        ("mean", mean),
        ("std", deviation),
        ("min", values.first().copied()),
        ("max", values.last().copied()),
        ("median", rank(0.5)),
        ("p75", rank(0.75)),
        ("p90", rank(0.9)),
        ("p95", rank(0.95)),
        ("p99", rank(0.99)),
    ]
}

/// Tokens of a prompt that the first admissions to a pool found there.
pub(crate) fn reused_in(request: &Request, pool: Pool) -> Option<u32> {
    let admissions = request.timeline.admissions.iter().filter(|admission| admission.pool == pool);
    admissions.map(|admission| admission.reused_tokens).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        let described = describe(vec![3.0, 1.0, 2.0, 4.0]);
        let get =
            |name| described.iter().find(|(statistic, _)| *statistic == name).and_then(|(_, value)| *value);
        assert_eq!(
            (get("mean"), get("median"), get("p75"), get("max")),
            (Some(2.5), Some(2.0), Some(3.0), Some(4.0))
        );
        assert!(describe(Vec::new()).iter().all(|(_, value)| value.is_none()));
    }
}
