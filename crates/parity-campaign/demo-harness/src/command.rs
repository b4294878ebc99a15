//! The program: reads a trace, replays it as often as asked, and writes what was asked for.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::blake3;
use crate::json::Json;
use crate::options::{HELP, Options};
use crate::replay::Replay;
use crate::report;
use crate::request::Pool;
use crate::summary::{ms, reused_in};
use crate::trace::{self, Row};

/// Why the program could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The trace or a file is, or the replay failed.
    Run(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Run(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

/// A trace that has been read.
struct Workload {
    rows: Vec<Row>,
    digest: String,
}

/// Runs the program with these arguments.
///
/// # Errors
///
/// Says what is wrong with the command line, the trace or the replay.
pub fn command(arguments: impl Iterator<Item = String>) -> Result<(), Failure> {
    let Some(options) = Options::parse(arguments).map_err(Failure::Usage)? else {
        print!("{HELP}");
        return Ok(());
    };
    run(&options).map_err(Failure::Run)
}

fn run(options: &Options) -> Result<(), String> {
    let workload = load(options)?;
    let (mut timings, mut reports) = (String::new(), String::new());
    for iteration in 0..options.iterations {
        let started = Instant::now();
        let (replay, replay_ms) = replay_once(options, &workload)?;
        let wall_ms = elapsed_ms(started);
        timings += &format!("{}\n", timing(options, iteration, wall_ms, replay_ms, replay.steps));
        if options.canonical_reports_jsonl.is_some() {
            reports += &format!("{}\n", report::build(&replay, options, &workload.digest, None));
        }
        if iteration + 1 == options.iterations {
            if let Some(path) = &options.report_json {
                let full = report::build(&replay, options, &workload.digest, Some(wall_ms));
                write(path, &format!("{}\n", full.pretty()))?;
            }
            print_summary(&replay, wall_ms);
        }
    }
    for (path, text) in [(&options.timings_jsonl, timings), (&options.canonical_reports_jsonl, reports)] {
        if let Some(path) = path {
            write(path, &text)?;
        }
    }
    Ok(())
}

fn load(options: &Options) -> Result<Workload, String> {
    let path = &options.trace_file;
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(Workload {
        rows: trace::read(&text, options.trace_block_tokens)?,
        digest: blake3::of(text.as_bytes()),
    })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Prepares one replay and runs it; the time is that of the event loop alone.
fn replay_once(options: &Options, workload: &Workload) -> Result<(Replay, f64), String> {
    let capture = options.canonical_reports_jsonl.is_some() || options.report_json.is_some();
    let mut replay = Replay::new(options, &workload.rows, capture)?;
    let started = Instant::now();
    replay.run()?;
    let replay_ms = elapsed_ms(started);
    Ok((replay, replay_ms))
}

fn elapsed_ms(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64 / 1e6
}

fn timing(options: &Options, iteration: u64, wall_ms: f64, replay_ms: f64, steps: u64) -> Json {
    Json::map([
        ("engine_type", options.engine.name().into()),
        ("iteration", iteration.into()),
        ("native_router_event_visibility", "pass-end".into()),
        ("replay_bench", cfg!(feature = "replay-bench").into()),
        ("replay_execution_ms", replay_ms.into()),
        ("replay_steps", steps.into()),
        ("router_mode", "kv-router".into()),
        ("serving_mode", if options.disaggregated { "disagg" } else { "aggregated" }.into()),
        ("wall_time_ms", wall_ms.into()),
    ])
}

fn print_summary(replay: &Replay, wall_ms: f64) {
    let requests = &replay.world.requests;
    let pool = if requests.iter().any(|request| request.timeline.source_held.is_some()) {
        Pool::Prefill
    } else {
        Pool::Aggregated
    };
    let reused = requests.iter().filter(|request| reused_in(request, pool) > Some(0)).count();
    println!("Offline replay report");
    println!("  completed_requests: {}", requests.iter().filter(|request| request.finished()).count());
    println!("  requests_with_reuse: {reused}");
    println!("  pressure_records: {}", replay.world.pressure.len());
    println!("  duration_ms: {:.6}", ms(replay.world.now));
    println!("  wall_time_ms: {wall_ms:.6}");
}
