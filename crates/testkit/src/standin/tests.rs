use std::path::Path;
use std::process::{Command, Output};

use super::*;

struct Ran {
    output: Output,
    timing: Option<String>,
    report: Option<String>,
}

/// Compiles a stand-in with this script and runs it once per entry, with a report or without.
fn run(script: &str, with_report: &[bool]) -> Vec<Ran> {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script.replace("@", &folder.path().display().to_string());
    let program = StandIn::new(&script).compile(folder.path());
    with_report.iter().map(|&report| start(&program, folder.path(), report)).collect()
}

fn start(program: &Path, folder: &Path, with_report: bool) -> Ran {
    let (timing, report) = (folder.join("timing"), folder.join("report"));
    for file in [&timing, &report] {
        drop(std::fs::remove_file(file));
    }
    let mut command = Command::new(program);
    command
        .args(["trace", "--engine-type", "sglang", "--serving-mode", "disagg", "--timings-jsonl"])
        .arg(&timing);
    if with_report {
        command.arg("--canonical-reports-jsonl").arg(&report);
    }
    let output = command.output().expect("it runs");
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    Ran { output, timing: read(&timing), report: read(&report) }
}

fn run_once(script: &str) -> Ran {
    run(script, &[true]).remove(0)
}

#[test]
fn an_empty_script_does_everything_right() {
    let ran = run_once("");
    assert!(ran.output.status.success());
    let timing: serde_json::Value = serde_json::from_str(&ran.timing.expect("timing")).expect("JSON");
    assert_eq!(timing["replay_bench"], true);
    assert!(timing["replay_execution_ms"].as_f64().is_some_and(|ms| (10.0..10.1).contains(&ms)));
    assert_eq!(ran.report.as_deref(), Some(reports::SGLANG_DISAGGREGATED));
}

#[test]
fn exit_codes_and_signals() {
    use std::os::unix::process::ExitStatusExt;
    let ran = run_once("always exit 101");
    assert_eq!((ran.output.status.code(), ran.timing, ran.report), (Some(101), None, None));
    assert_eq!(run_once("always signal KILL").output.status.signal(), Some(9));
}

#[test]
fn records_in_every_wrong_shape() {
    let lines = |text: Option<String>| text.expect("a file").lines().count();
    assert_eq!(lines(run_once("always two-timings").timing), 2);
    assert_eq!(lines(run_once("always two-reports").report), 2);
    let ran = run_once("always no-timing\nalways missing-report\nalways stderr 100000");
    assert_eq!((ran.timing.as_deref(), ran.report.as_deref()), (Some(""), None));
    assert_eq!(ran.output.stderr.len(), 100_000);
    let ran = run_once("always malformed-report\nalways metric NaN\nalways not-replay-bench");
    assert!(serde_json::from_str::<serde_json::Value>(&ran.report.expect("report")).is_err());
    let timing = ran.timing.expect("timing");
    assert!(
        timing.contains("\"replay_execution_ms\":NaN,") && timing.contains("\"replay_bench\":false"),
        "{timing}"
    );
    assert!(!run_once("always no-metric").timing.expect("timing").contains("replay_execution_ms"));
}

#[test]
fn conditions() {
    let codes = |script: &str, runs: &[bool]| -> Vec<_> {
        run(script, runs).iter().map(|ran| ran.output.status.code().expect("no signal")).collect()
    };
    assert_eq!(codes("on-report exit 3\non-timing exit 4", &[true, false]), [3, 4]);
    assert_eq!(codes("counter @/count\nnth 2 exit 9", &[false, false, false]), [0, 9, 0]);
}

#[test]
fn unstable_reports_differ_in_one_number() {
    let reports: Vec<_> =
        run("always unstable terminal_time_ms", &[true, true]).into_iter().map(|ran| ran.report).collect();
    assert_ne!(reports[0], reports[1]);
    let restored = |report: &Option<String>| {
        let report = report.as_deref().expect("report");
        let original =
            crate::value_at(reports::SGLANG_DISAGGREGATED, "/per_request/0/terminal_time_ms").expect("there");
        crate::edit_pointer(report, "/per_request/0/terminal_time_ms", original)
    };
    assert_eq!(restored(&reports[0]), reports::SGLANG_DISAGGREGATED);
}

#[test]
fn a_grandchild_outlives_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid_file = folder.path().join("pid");
    // Its output goes where the program's goes, so that waiting for the end of the pipe would take as long as it lives.
    let script = format!("always grandchild 30 {}", pid_file.display());
    let program = StandIn::new(&script).compile(folder.path());
    let status = Command::new(program).arg("trace").status().expect("it runs");
    assert!(status.success());
    let pid = std::fs::read_to_string(&pid_file).expect("its id");
    assert!(Path::new("/proc").join(&pid).exists(), "{pid} is gone");
    let killed = Command::new("/bin/sh").args(["-c", &format!("kill {pid}")]).status().expect("a shell");
    assert!(killed.success());
}

#[test]
fn a_hidden_flag_is_neither_offered_nor_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = StandIn::new("always hide-flag --timings-jsonl").compile(folder.path());
    let help = Command::new(&program).arg("--help").output().expect("it runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    assert!(help.contains("--iterations") && !help.contains("--timings-jsonl"), "{help}");
    assert_eq!(start(&program, folder.path(), false).output.status.code(), Some(2));
}

#[test]
fn its_package_builds_by_the_recipe_of_a_campaign() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = StandIn::new("").build(folder.path());
    assert!(start(&program, folder.path(), true).report.is_some());
}

#[test]
fn two_stand_ins_become_two_commits() {
    let mut repository = TempRepository::new();
    let first = StandIn::new("").commit(&mut repository, "right");
    let wrong = StandIn::new("always hang").with_report("vllm-aggregated", "{}");
    let second = wrong.commit(&mut repository, "wrong");
    assert_ne!(first, second);
    let script = std::fs::read_to_string(repository.path().join("benches/script.txt")).expect("there");
    assert_eq!(script, "always hang");
}
