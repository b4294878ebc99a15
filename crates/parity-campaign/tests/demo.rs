//! The two revisions of the demonstration, built and run: what the honest candidate keeps and what each fault changes.
//!
//! Speed is never asserted. The work of a replay is: the timing record counts the steps of the event loop.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use git2::build::CheckoutBuilder;
use parity_campaign::coverage::{Coverage, Expectation, ItemId, Status, WorkloadTotals};
use parity_campaign::definition::{Engine, Row, Topology};
use parity_campaign::demo::{DemoRepository, Fault, create};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{cargo, cargo_build, run};

/// The recipe of a campaign with the profile that builds fastest: what is looked at here does not depend on it.
const RECIPE: [&str; 8] = [
    "--config",
    "profile.dev.debug=0",
    "-p",
    "demo-replay",
    "--no-default-features",
    "--features=replay-bench",
    "--bench=offline_replay_bench",
    "--locked",
];

/// A demonstration with both its programs, built when they are first asked for.
struct Demo {
    folder: TempDir,
    made: DemoRepository,
    baseline: OnceCell<PathBuf>,
    candidate: OnceCell<PathBuf>,
}

/// What one process wrote.
struct Ran {
    text: String,
    report: Value,
    timing: Value,
}

impl Demo {
    fn new(fault: Option<Fault>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let made = create(folder.path(), fault).expect("a demonstration");
        Self { folder, made, baseline: OnceCell::new(), candidate: OnceCell::new() }
    }

    fn baseline(&self) -> &Path {
        self.baseline.get_or_init(|| {
            let checkout = self.folder.path().join("baseline");
            check_out(&self.made.repository, &self.made.baseline, &checkout);
            cargo_build(&checkout, &RECIPE, &self.folder.path().join("target-1"))
        })
    }

    fn candidate(&self) -> &Path {
        let target = self.folder.path().join("target-2");
        self.candidate.get_or_init(|| cargo_build(&self.made.repository, &RECIPE, &target))
    }

    fn row(&self, name: &str) -> &Row {
        self.made.rows.iter().find(|row| row.name == name).expect("a row of that name")
    }

    fn run(&self, program: &Path, row: &Row) -> Ran {
        let (report, timing) = (self.folder.path().join("report"), self.folder.path().join("timing"));
        let mut arguments = vec![self.made.trace.display().to_string()];
        arguments.extend(options(row));
        arguments.extend(["--timings-jsonl".into(), timing.display().to_string()]);
        arguments.extend(["--canonical-reports-jsonl".into(), report.display().to_string()]);
        let output = run(program, &arguments);
        assert!(output.status.success(), "{}: {}", row.name, String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&report).expect("a report");
        let timing = fs::read_to_string(&timing).expect("a timing record");
        let json = |text: &str| serde_json::from_str(text).expect("JSON");
        Ran { report: json(&text), timing: json(&timing), text }
    }

    /// Runs both programs on a row.
    fn run_both(&self, row: &str) -> (Ran, Ran) {
        let row = self.row(row);
        (self.run(self.baseline(), row), self.run(self.candidate(), row))
    }

    /// The items that do not hold.
    fn failed(&self, row: &str, report: &str) -> BTreeSet<ItemId> {
        let totals = totals(&self.made.trace);
        let coverage =
            Coverage::check(report.as_bytes(), &Expectation::new(self.row(row), totals)).expect("a report");
        let failed = coverage
            .items
            .iter()
            .filter(|item| !matches!(item.status, Status::Held | Status::NotApplicable { .. }));
        failed.map(|item| item.id).collect()
    }
}

fn check_out(repository: &Path, commit: &str, folder: &Path) {
    let repository = git2::Repository::open(repository).expect("a repository");
    let commit = repository.revparse_single(commit).expect("a commit");
    fs::create_dir(folder).expect("a folder");
    let mut checkout = CheckoutBuilder::new();
    checkout.target_dir(folder).update_index(false).force();
    repository.checkout_tree(&commit, Some(&mut checkout)).expect("checks out");
}

fn options(row: &Row) -> Vec<String> {
    let disaggregated = row.topology == Topology::Disaggregated;
    let engine = if row.engine == Engine::Sglang { "sglang" } else { "vllm" };
    let mut options = format!(
        "--engine-type {engine} --router-mode kv-router --block-size {} --num-gpu-blocks {} --max-num-seqs {} \
         --max-num-batched-tokens {}",
        row.block_size, row.num_gpu_blocks, row.max_num_seqs, row.max_num_batched_tokens
    );
    if disaggregated {
        let bytes = row.kv_bytes_per_token.expect("a disaggregated row says so");
        options += &format!(
            " --serving-mode disagg --num-prefill-workers 2 --num-decode-workers 2 --kv-bytes-per-token {bytes} \
             --kv-transfer-bandwidth 100 --kv-transfer-timing-mode full-prompt"
        );
    }
    options.split_whitespace().map(str::to_owned).collect()
}

fn totals(trace: &Path) -> WorkloadTotals {
    let text = fs::read_to_string(trace).expect("a trace");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().expect("a number")).sum();
    WorkloadTotals {
        requests: rows.len() as u64,
        input_tokens: sum("input_length"),
        output_tokens: sum("output_length"),
    }
}

fn pressure(ran: &Ran) -> usize {
    ran.report["coverage"]["pressure"]["records"].as_array().expect("records").len()
}

fn steps(ran: &Ran) -> f64 {
    ran.timing["replay_steps"].as_f64().expect("a count")
}

/// Everything that is a total, and the number of pressure events.
fn sums(ran: &Ran) -> (Vec<&Value>, usize) {
    let keys =
        ["completed_requests", "num_requests", "total_input_tokens", "total_output_tokens", "duration_ms"];
    (keys.map(|key| &ran.report["summary"][key]).to_vec(), pressure(ran))
}

#[test]
fn the_honest_candidate_is_another_program_with_the_same_reports() {
    let demo = Demo::new(None);
    assert_ne!(fs::read(demo.baseline()).expect("a program"), fs::read(demo.candidate()).expect("a program"));
    for row in &demo.made.rows {
        let (baseline, candidate) = demo.run_both(&row.name);
        assert_eq!(baseline.text, candidate.text, "{}", row.name);
        assert_eq!(baseline.text, demo.run(demo.baseline(), row).text, "{} is unstable", row.name);
        assert_eq!(demo.failed(&row.name, &baseline.text), BTreeSet::new(), "{}", row.name);
        assert!((steps(&baseline) - steps(&candidate)).abs() < 0.5, "{}", row.name);
        let events = pressure(&baseline) as u64;
        assert!((row.pressure.min..=row.pressure.max).contains(&events), "{}: {events} events", row.name);
    }
}

#[test]
fn slower_repeats_a_quarter_of_the_work() {
    let demo = Demo::new(Some(Fault::Slower));
    for row in ["vllm-aggregated", "sglang-disaggregated"] {
        let (baseline, candidate) = demo.run_both(row);
        assert_eq!(baseline.text, candidate.text, "{row}");
        let ratio = steps(&candidate) / steps(&baseline);
        assert!((1.1..1.6).contains(&ratio), "{row}: {ratio} times the steps");
    }
}

#[test]
fn different_changes_which_worker_and_no_total() {
    let demo = Demo::new(Some(Fault::Different));
    for row in ["vllm-aggregated", "sglang-disaggregated"] {
        let (baseline, candidate) = demo.run_both(row);
        assert_ne!(baseline.text, candidate.text, "{row}");
        assert_eq!(candidate.text, demo.run(demo.candidate(), demo.row(row)).text, "{row} is unstable");
        let worker = |ran: &Ran| ran.report["per_request"][0]["decode_worker_idx"].clone();
        assert_ne!(worker(&baseline), worker(&candidate), "{row}");
        assert_eq!(sums(&baseline), sums(&candidate), "{row}");
        assert_eq!(demo.failed(row, &candidate.text), BTreeSet::new(), "{row}");
    }
}

#[test]
fn unstable_differs_between_processes_while_all_sums_agree() {
    let demo = Demo::new(Some(Fault::Unstable));
    for row in ["vllm-disaggregated", "sglang-aggregated"] {
        let (baseline, first) = demo.run_both(row);
        // Two processes agree by chance about once in a thousand times: nine in a row never do.
        let second = (0..9)
            .map(|_| demo.run(demo.candidate(), demo.row(row)))
            .find(|ran| ran.text != first.text)
            .unwrap_or_else(|| panic!("{row}: ten processes, one report"));
        assert_eq!((sums(&baseline), sums(&first)), (sums(&first), sums(&second)), "{row}");
        assert_eq!(demo.failed(row, &first.text), BTreeSet::new(), "{row}");
        // Where one finished request is cleared up before another is all that chance decides.
        let without_terminal_times = |ran: &Ran| {
            let mut report = ran.report.clone();
            for request in report["per_request"].as_array_mut().expect("requests") {
                request["terminal_time_ms"].take();
            }
            report
        };
        assert_eq!(without_terminal_times(&first), without_terminal_times(&second), "{row}");
    }
}

#[test]
fn a_flood_is_above_every_band() {
    let demo = Demo::new(Some(Fault::Flood));
    for row in &demo.made.rows {
        let candidate = demo.run(demo.candidate(), row);
        assert!(
            pressure(&candidate) as u64 > 2 * row.pressure.max,
            "{}: {} events",
            row.name,
            pressure(&candidate)
        );
        let failed = demo.failed(&row.name, &candidate.text);
        let expected = BTreeSet::from([ItemId::PressureBand, ItemId::NoCycling]);
        assert!(
            failed.contains(&ItemId::PressureBand) && failed.is_subset(&expected),
            "{}: {failed:?}",
            row.name
        );
    }
}

#[test]
fn without_pressure_only_the_band_is_missed() {
    let demo = Demo::new(Some(Fault::NoPressure));
    for row in &demo.made.rows {
        let candidate = demo.run(demo.candidate(), row);
        assert_eq!(pressure(&candidate), 0, "{}", row.name);
        assert_eq!(
            demo.failed(&row.name, &candidate.text),
            BTreeSet::from([ItemId::PressureBand]),
            "{}",
            row.name
        );
    }
}

#[test]
fn a_missing_metric_leaves_the_report_alone() {
    let demo = Demo::new(Some(Fault::MissingMetric));
    let (baseline, candidate) = demo.run_both("vllm-aggregated");
    assert_eq!(baseline.text, candidate.text);
    assert!(baseline.timing["replay_execution_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(candidate.timing["replay_execution_ms"].is_null());
    assert!(candidate.timing["wall_time_ms"].as_f64().is_some_and(|ms| ms > 0.0));
}

/// The program's own tests, without a warning, with and without its feature; and what it does without it.
#[test]
fn the_harness_passes_its_own_tests() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = create(folder.path(), None).expect("a demonstration");
    let strict = ["--config", "build.rustflags=[\"-Dwarnings\"]"];
    for features in ["", "replay-bench"] {
        cargo(
            &made.repository,
            &[&strict, &["test", "--offline", "--quiet", "--features", features][..]].concat(),
        );
    }
    let program =
        cargo_build(&made.repository, &["--bench=offline_replay_bench"], &folder.path().join("target"));
    let refused = run(&program, ["trace", "--canonical-reports-jsonl", "report"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`replay-bench` Cargo feature"));
    let help = String::from_utf8(run(&program, ["--help"]).stdout).expect("UTF-8");
    assert!(help.contains("--canonical-reports-jsonl") && help.contains("--kv-transfer-timing-mode"));
}
