//! The command line: the flags of Dynamo's offline replay benchmark that apply here, and no others.

use std::path::PathBuf;
use std::str::FromStr;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Replay a recorded trace against simulated KV-aware serving, in virtual time

Usage: offline_replay_bench [OPTIONS] <TRACE_FILE>

Arguments:
  <TRACE_FILE>  Mooncake trace JSONL file

Options:
      --num-workers <NUM_WORKERS>
          Workers of the aggregated topology [default: 4]
      --serving-mode <SERVING_MODE>
          Topology [default: aggregated] [possible values: aggregated, disagg]
      --num-prefill-workers <NUM_PREFILL_WORKERS>
          Prefill workers of the disaggregated topology [default: 1]
      --num-decode-workers <NUM_DECODE_WORKERS>
          Decode workers of the disaggregated topology [default: 1]
      --engine-type <ENGINE_TYPE>
          Scheduler of every worker [default: vllm] [possible values: vllm, sglang]
      --router-mode <ROUTER_MODE>
          How a worker is chosen [default: kv-router] [possible values: kv-router]
      --arrival-speedup-ratio <ARRIVAL_SPEEDUP_RATIO>
          Divide arrival times by this [default: 4]
      --trace-block-size <TRACE_BLOCK_SIZE>
          Tokens that one hash id of the trace stands for [default: 512]
      --block-size <BLOCK_SIZE>
          Tokens in one block of a worker [default: 64]
      --num-gpu-blocks <NUM_GPU_BLOCKS>
          Blocks of one worker [default: 16384]
      --max-num-seqs <MAX_NUM_SEQS>
          Requests one worker runs at once [default: 256]
      --max-num-batched-tokens <MAX_NUM_BATCHED_TOKENS>
          Tokens one worker takes in one pass [default: 8192]
      --speedup-ratio <SPEEDUP_RATIO>
          Divide the duration of every pass by this [default: 1]
      --decode-speedup-ratio <DECODE_SPEEDUP_RATIO>
          Divide the decode part of every pass by this as well [default: 1]
      --kv-bytes-per-token <KV_BYTES_PER_TOKEN>
          Bytes moved for one token between prefill and decode [default: 0]
      --kv-transfer-bandwidth <KV_TRANSFER_BANDWIDTH>
          Bandwidth between prefill and decode in GB/s [default: 100]
      --kv-transfer-timing-mode <KV_TRANSFER_TIMING_MODE>
          Which tokens are moved [default: full-prompt] [possible values: full-prompt, destination-missing]
      --report-json <REPORT_JSON>
          Write the last full report here, as indented JSON
      --iterations <ITERATIONS>
          Replay this many times in one process [default: 1]
      --timings-jsonl <TIMINGS_JSONL>
          Write one timing record per replay here
      --canonical-reports-jsonl <CANONICAL_REPORTS_JSONL>
          Write one canonical report per replay here. Needs the `replay-bench` Cargo feature
  -h, --help
          Print this
";

/// Which scheduler the workers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineType {
    Vllm,
    Sglang,
}

impl EngineType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }

    /// Room that a hand-over leaves for each request of a decode worker to grow into.
    pub(crate) fn growth_tokens(self) -> u32 {
        match self {
            Self::Vllm => 64,
            Self::Sglang => 160,
        }
    }
}

/// Which tokens a hand-off moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferTiming {
    FullPrompt,
    DestinationMissing,
}

impl TransferTiming {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FullPrompt => "full_prompt",
            Self::DestinationMissing => "destination_missing",
        }
    }
}

/// Everything the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) trace_file: PathBuf,
    pub(crate) num_workers: usize,
    pub(crate) disaggregated: bool,
    pub(crate) num_prefill_workers: usize,
    pub(crate) num_decode_workers: usize,
    pub(crate) engine: EngineType,
    pub(crate) arrival_speedup_ratio: f64,
    pub(crate) trace_block_tokens: u32,
    pub(crate) block_tokens: u32,
    pub(crate) num_gpu_blocks: usize,
    pub(crate) max_num_seqs: usize,
    pub(crate) max_num_batched_tokens: u32,
    pub(crate) speedup_ratio: f64,
    pub(crate) decode_speedup_ratio: f64,
    pub(crate) kv_bytes_per_token: u64,
    pub(crate) kv_transfer_gb_per_s: f64,
    pub(crate) kv_transfer_timing: TransferTiming,
    pub(crate) report_json: Option<PathBuf>,
    pub(crate) iterations: u64,
    pub(crate) timings_jsonl: Option<PathBuf>,
    pub(crate) canonical_reports_jsonl: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            trace_file: PathBuf::new(),
            num_workers: 4,
            disaggregated: false,
            num_prefill_workers: 1,
            num_decode_workers: 1,
            engine: EngineType::Vllm,
            arrival_speedup_ratio: 4.0,
            trace_block_tokens: 512,
            block_tokens: 64,
            num_gpu_blocks: 16_384,
            max_num_seqs: 256,
            max_num_batched_tokens: 8_192,
            speedup_ratio: 1.0,
            decode_speedup_ratio: 1.0,
            kv_bytes_per_token: 0,
            kv_transfer_gb_per_s: 100.0,
            kv_transfer_timing: TransferTiming::FullPrompt,
            report_json: None,
            iterations: 1,
            timings_jsonl: None,
            canonical_reports_jsonl: None,
        }
    }
}

impl Options {
    /// Reads a command line; `None` means that help was asked for.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        let mut trace_file = None;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "-h" || argument == "--help" {
                return Ok(None);
            }
            // Cargo passes this to every benchmark it runs itself.
            if argument == "--bench" {
                continue;
            }
            if !argument.starts_with('-') {
                if trace_file.replace(argument).is_some() {
                    return Err("more than one trace file is given".to_owned());
                }
                continue;
            }
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), value.to_owned()),
                None => {
                    let value =
                        arguments.next().ok_or_else(|| format!("a value is required for '{argument}'"))?;
                    (argument, value)
                }
            };
            options.set(&flag, &value)?;
        }
        options.trace_file = trace_file.ok_or("the argument <TRACE_FILE> was not provided")?.into();
        options.check()?;
        Ok(Some(options))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--num-workers" => self.num_workers = positive(flag, value)?,
            "--serving-mode" => {
                self.disaggregated = choice(flag, value, &[("aggregated", false), ("disagg", true)])?;
            }
            "--num-prefill-workers" => self.num_prefill_workers = positive(flag, value)?,
            "--num-decode-workers" => self.num_decode_workers = positive(flag, value)?,
            "--engine-type" => {
                self.engine =
                    choice(flag, value, &[("vllm", EngineType::Vllm), ("sglang", EngineType::Sglang)])?;
            }
            "--router-mode" => choice(flag, value, &[("kv-router", ())])?,
            "--arrival-speedup-ratio" => self.arrival_speedup_ratio = ratio(flag, value)?,
            "--trace-block-size" => self.trace_block_tokens = positive(flag, value)?,
            "--block-size" => self.block_tokens = positive(flag, value)?,
            "--num-gpu-blocks" => self.num_gpu_blocks = positive(flag, value)?,
            "--max-num-seqs" => self.max_num_seqs = positive(flag, value)?,
            "--max-num-batched-tokens" => self.max_num_batched_tokens = positive(flag, value)?,
            "--speedup-ratio" => self.speedup_ratio = ratio(flag, value)?,
            "--decode-speedup-ratio" => self.decode_speedup_ratio = ratio(flag, value)?,
            "--kv-bytes-per-token" => self.kv_bytes_per_token = number(flag, value)?,
            "--kv-transfer-bandwidth" => self.kv_transfer_gb_per_s = ratio(flag, value)?,
            "--kv-transfer-timing-mode" => {
                self.kv_transfer_timing = choice(
                    flag,
                    value,
                    &[
                        ("full-prompt", TransferTiming::FullPrompt),
                        ("destination-missing", TransferTiming::DestinationMissing),
                    ],
                )?;
            }
            "--report-json" => self.report_json = Some(value.into()),
            "--iterations" => self.iterations = positive(flag, value)?,
            "--timings-jsonl" => self.timings_jsonl = Some(value.into()),
            "--canonical-reports-jsonl" => self.canonical_reports_jsonl = Some(value.into()),
            _ => return Err(format!("unexpected argument '{flag}' found")),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.canonical_reports_jsonl.is_some() && !cfg!(feature = "replay-bench") {
            return Err("--canonical-reports-jsonl requires building with the `replay-bench` Cargo feature"
                .to_owned());
        }
        // The router keeps one bit per worker.
        match [self.num_workers, self.num_prefill_workers, self.num_decode_workers].into_iter().max() {
            Some(most) if most > 64 => Err(format!("{most} workers in one pool are more than 64")),
            _ => Ok(()),
        }
    }
}

fn number<T: FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("invalid value '{value}' for '{flag}'"))
}

fn positive<T: FromStr + Default + PartialEq>(flag: &str, value: &str) -> Result<T, String> {
    let parsed: T = number(flag, value)?;
    if parsed == T::default() { Err(format!("invalid value '{value}' for '{flag}'")) } else { Ok(parsed) }
}

fn ratio(flag: &str, value: &str) -> Result<f64, String> {
    let parsed: f64 = number(flag, value)?;
    let sensible = parsed.is_finite() && parsed > 0.0;
    if sensible { Ok(parsed) } else { Err(format!("invalid value '{value}' for '{flag}'")) }
}

fn choice<T: Copy>(flag: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        format!("invalid value '{value}' for '{flag}' [possible values: {}]", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<usize, &str>) {
        let outcome = Options::parse(line.split_whitespace().map(str::to_owned));
        let outcome = outcome.map(|options| options.expect("no help was asked for").num_workers);
        assert_eq!(
            outcome.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|text| *text),
            "{line}"
        );
    }

    #[test]
    fn flags() {
        check("trace.jsonl", Ok(4));
        check("--num-workers 3 trace.jsonl", Ok(3));
        check("--num-workers=5 trace.jsonl", Ok(5));
        check("", Err("the argument <TRACE_FILE> was not provided"));
        check("a b", Err("more than one trace file is given"));
        check("a --num-workers", Err("a value is required for '--num-workers'"));
        check("a --num-workers 0", Err("invalid value '0' for '--num-workers'"));
        check("a --num-workers 65", Err("65 workers in one pool are more than 64"));
        check("a --speedup-ratio -1", Err("invalid value '-1' for '--speedup-ratio'"));
        check("a --kvbm-blocks 1", Err("unexpected argument '--kvbm-blocks' found"));
        check(
            "a --engine-type trtllm",
            Err("invalid value 'trtllm' for '--engine-type' [possible values: vllm, sglang]"),
        );
        check(
            "a --router-mode round-robin",
            Err("invalid value 'round-robin' for '--router-mode' [possible values: kv-router]"),
        );
    }

    #[test]
    fn every_flag_is_in_the_help() {
        let source = include_str!("options.rs");
        let flags = source.lines().filter_map(|line| line.trim().strip_prefix("\"--")?.split_once('"'));
        let flags: Vec<_> = flags.map(|(flag, _)| format!("--{flag} <")).collect();
        assert!(flags.len() >= 20, "{flags:?}");
        assert!(flags.iter().all(|flag| HELP.contains(flag.as_str())), "{flags:?}");
    }
}
