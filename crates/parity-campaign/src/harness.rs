//! The replay harness as a command: a row becomes arguments, and what the harness offers is checked before it is used.
//!
//! The options are those of Dynamo's `offline_replay_bench`; the demonstration harness takes the same ones.

use std::ffi::OsString;
use std::path::Path;

use crate::definition::{Definition, Engine, Row, Topology, TransferTiming};
use crate::lifecycle::is_forced_on;
use crate::record::Side;

/// What one process is asked to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outputs<'a> {
    /// A canonical report and a timing record: a correctness repetition.
    Report {
        /// Where the report goes.
        report: &'a Path,
        /// Where the timing record goes.
        timings: &'a Path,
    },
    /// Only a timing record: a measured sample writes no report (M3).
    Timing {
        /// Where the timing record goes.
        timings: &'a Path,
    },
}

/// The arguments of one fresh process for one row.
#[must_use]
pub(crate) fn arguments(
    definition: &Definition,
    row: &Row,
    trace: &Path,
    outputs: Outputs<'_>,
) -> Vec<OsString> {
    let mut args = vec![trace.as_os_str().to_owned()];
    for (flag, value) in row_options(definition, row) {
        args.extend([flag.into(), value.into()]);
    }
    args.extend(["--iterations".into(), "1".into()]);
    match outputs {
        Outputs::Report { report, timings } => {
            push_path(&mut args, "--timings-jsonl", timings);
            push_path(&mut args, "--canonical-reports-jsonl", report);
        }
        Outputs::Timing { timings } => push_path(&mut args, "--timings-jsonl", timings),
    }
    args
}

fn push_path(args: &mut Vec<OsString>, flag: &str, path: &Path) {
    args.extend([flag.into(), path.as_os_str().to_owned()]);
}

/// The frozen options of a row, in a fixed order.
#[must_use]
pub fn row_options(definition: &Definition, row: &Row) -> Vec<(&'static str, String)> {
    let mut options = vec![
        ("--engine-type", engine_name(row.engine).to_owned()),
        ("--serving-mode", serving_mode(row.topology).to_owned()),
        ("--router-mode", "kv-router".to_owned()),
        ("--arrival-speedup-ratio", definition.replay.arrival_speedup_ratio.to_string()),
        ("--trace-block-size", definition.trace.block_size.to_string()),
        ("--block-size", row.block_size.to_string()),
        ("--num-gpu-blocks", row.num_gpu_blocks.to_string()),
        ("--max-num-seqs", row.max_num_seqs.to_string()),
        ("--max-num-batched-tokens", row.max_num_batched_tokens.to_string()),
    ];
    let optional = [
        ("--num-workers", row.workers.map(|n| n.to_string())),
        ("--num-prefill-workers", row.prefill_workers.map(|n| n.to_string())),
        ("--num-decode-workers", row.decode_workers.map(|n| n.to_string())),
        ("--kv-bytes-per-token", row.kv_bytes_per_token.map(|n| n.to_string())),
        ("--kv-transfer-bandwidth", row.kv_transfer_bandwidth_gb_per_s.map(|n| n.to_string())),
        ("--kv-transfer-timing-mode", row.kv_transfer_timing.map(|mode| timing_name(mode).to_owned())),
        ("--router-queue-threshold", row.router_queue_threshold.map(|n| n.to_string())),
    ];
    options.extend(optional.into_iter().filter_map(|(flag, value)| value.map(|value| (flag, value))));
    options
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::Vllm => "vllm",
        Engine::Sglang => "sglang",
        Engine::Trtllm => "trtllm",
    }
}

fn serving_mode(topology: Topology) -> &'static str {
    match topology {
        Topology::Aggregated => "aggregated",
        Topology::Disaggregated => "disagg",
    }
}

fn timing_name(mode: TransferTiming) -> &'static str {
    match mode {
        TransferTiming::FullPrompt => "full-prompt",
        TransferTiming::DestinationMissing => "destination-missing",
    }
}

/// Every option that some row of the campaign, or a lifecycle forced on this revision, needs.
#[must_use]
pub fn needed_flags(definition: &Definition, side: Side) -> Vec<&'static str> {
    let forced = definition.lifecycles.iter().filter(|lifecycle| is_forced_on(lifecycle, side));
    let rows = definition.rows.iter().chain(forced.filter_map(|lifecycle| lifecycle.row.as_ref()));
    let of_rows = rows.flat_map(|row| row_options(definition, row)).map(|(flag, _)| flag);
    let mut flags: Vec<_> =
        of_rows.chain(["--iterations", "--timings-jsonl", "--canonical-reports-jsonl"]).collect();
    flags.sort_unstable();
    flags.dedup();
    flags
}

/// The needed options that a harness's `--help` text does not offer (P6).
#[must_use]
pub fn missing_flags(help: &str, needed: &[&'static str]) -> Vec<&'static str> {
    let offered: Vec<&str> = help
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '=' | '[' | ']' | '<' | '>'))
        .filter(|word| word.starts_with("--"))
        .collect();
    needed.iter().copied().filter(|flag| !offered.contains(flag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::tests::good;

    fn words(outputs: Outputs<'_>) -> String {
        let definition = good();
        let args = arguments(&definition, &definition.rows[0], Path::new("t.jsonl"), outputs);
        args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_measured_sample_writes_no_report() {
        let line = words(Outputs::Timing { timings: Path::new("time") });
        assert_eq!(
            line,
            "t.jsonl --engine-type vllm --serving-mode aggregated --router-mode kv-router --arrival-speedup-ratio 4 \
             --trace-block-size 512 --block-size 64 --num-gpu-blocks 6144 --max-num-seqs 16 \
             --max-num-batched-tokens 8192 --num-workers 4 --iterations 1 --timings-jsonl time"
        );
    }

    #[test]
    fn a_repetition_writes_both() {
        let line = words(Outputs::Report { report: Path::new("r"), timings: Path::new("time") });
        assert!(line.ends_with("--iterations 1 --timings-jsonl time --canonical-reports-jsonl r"), "{line}");
    }

    #[test]
    fn a_missing_option_is_named() {
        let help = "Usage: x [OPTIONS] <T>\n  --iterations <ITERATIONS>\n  --timings-jsonl <F>  see --canonical-reports";
        let missing = missing_flags(help, &["--iterations", "--timings-jsonl", "--canonical-reports-jsonl"]);
        assert_eq!(missing, ["--canonical-reports-jsonl"]);
    }

    #[test]
    fn every_option_of_a_row_is_needed() {
        let needed = needed_flags(&good(), Side::Baseline);
        assert!(needed.contains(&"--num-workers") && needed.contains(&"--router-mode"));
        assert!(!needed.contains(&"--num-prefill-workers"));
    }
}
