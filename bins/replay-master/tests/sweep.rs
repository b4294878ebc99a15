//! Sweeps with real masters whose outcome does not depend on what else the machine does; the others are in `verdicts.rs`.

mod common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use common::{Trace, VERSIONS, paced_trace, packages, processes_of, program};

#[expect(clippy::disallowed_methods, reason = "the command is disturbed while it runs")]
fn start(folder: &Path, trace: &Trace, arguments: &[&str], stdout: Stdio) -> Child {
    std::fs::write(folder.join("trace.jsonl"), &trace.text).expect("written");
    std::process::Command::new(program())
        .current_dir(folder)
        .args(["sweep", "trace.jsonl", "--out", "out", "--python-env"])
        .arg(packages(VERSIONS[1]))
        .args(arguments)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Exit code, stdout, and `sweep.json`.
fn end(folder: &Path, sweep: Child) -> (Option<i32>, String, Value) {
    let output = sweep.wait_with_output().expect("it ends");
    let left = processes_of(&folder.join("out"));
    assert!(left.is_empty(), "{left:?} are left");
    let report = std::fs::read_to_string(folder.join("out/sweep.json")).expect("a sweep.json");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text, serde_json::from_str(&report).expect("JSON"))
}

/// In the second of three speeds: the first one is kept, the second is a record with its error, the third is not begun.
#[test]
fn an_interrupted_sweep_keeps_what_it_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--speeds", "2,2.5,3", "--message-format", "json"];
    let sweep = start(folder.path(), &paced_trace(6_000, 1_000), &arguments, Stdio::piped());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.path().join("out/speed-2.5/pids.json").exists() {
        assert!(Instant::now() < deadline, "the second speed never begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(i32::try_from(sweep.id()).expect("a process id")), Signal::SIGINT).expect("it runs");
    let (code, text, report) = end(folder.path(), sweep);
    assert_eq!(code, Some(130), "{text}");
    let [first, second] = report["points"].as_array().expect("points").as_slice() else {
        panic!("{report:#}");
    };
    assert_eq!((&first["speed"], &first["error"]), (&json!(2.0), &Value::Null));
    assert!(first["completed_calls_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{first}");
    assert_eq!((&second["speed"], &second["success"]), (&json!(2.5), &json!(false)));
    assert!(second["error"].as_str().is_some_and(|text| text.contains("asked to stop")), "{second}");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(json!(lines), report["points"], "each point is printed as it is known");
}

/// The point that failed cannot be printed either; what went wrong first decides.
#[test]
fn the_exit_code_is_that_of_the_run_that_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let sweep = start(folder.path(), &paced_trace(200, 1_000), &["--speeds", "1e-14"], full.into());
    let (code, _, report) = end(folder.path(), sweep);
    assert_eq!(code, Some(4));
    assert!(report["points"][0]["error"].as_str().is_some_and(|text| text.contains("clock")), "{report}");
}
