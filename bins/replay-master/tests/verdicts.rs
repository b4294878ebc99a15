//! Who is the bottleneck, by runs in which it is known. Each has the machine for itself: `.config/nextest.toml` sees to that, and
//! where all tests of this file share a process, they wait for each other.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assert_cmd::Command;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use common::{Trace, VERSIONS, paced_trace, packages, program, run, start, two_cpus};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sweep of a trace: exit code, what it printed, and `sweep.json`.
fn sweep(trace: &Trace, arguments: &[&str]) -> (Option<i32>, String, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), &trace.text).expect("written");
    let output = Command::new(program())
        .current_dir(folder.path())
        .args(["sweep", "trace.jsonl", "--out", "out", "--python-env"])
        .arg(packages(VERSIONS[1]))
        .args(["--sample-interval", "0.05"])
        .args(arguments)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let report = std::fs::read_to_string(folder.path().join("out/sweep.json")).unwrap_or_default();
    (output.status.code(), text, serde_json::from_str(&report).unwrap_or_default())
}

/// A sweep that must find this knee: kept up until, behind at, limited by. What others do with the machine is another limit, which is
/// said, too, so a sweep is tried three times.
fn sweep_to(knee: (f64, f64, &str), trace: &Trace, arguments: &[&str]) -> (String, Value) {
    let mut tried = Vec::new();
    while tried.len() < 3 {
        let (code, text, report) = sweep(trace, arguments);
        assert_eq!(code, Some(0), "{text}");
        let found = &report["knee"];
        if found["speed"] == knee.0 && found["behind_at"] == knee.1 && found["limited_by"] == knee.2 {
            return (text, report);
        }
        tried.push(text);
    }
    panic!("{knee:?} was not found: {}", tried.join("\n"));
}

/// It could have used its processor, and something else did.
#[test]
fn a_replayer_whose_processor_is_taken_is_the_bottleneck() {
    let _alone = alone();
    let [master, replayer] = two_cpus();
    let done = std::sync::atomic::AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut only = nix::sched::CpuSet::new();
                only.set(replayer.parse().expect("a number")).expect("a CPU");
                nix::sched::sched_setaffinity(Pid::from_raw(0), &only).expect("allowed");
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ran = run(
            &paced_trace(20_000, 100),
            VERSIONS[1],
            &["--master-cpus", &master, "--replay-cpus", &replayer],
        );
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        ran
    });
    ran.succeeded();
    let saturation = &ran.result()["saturation"];
    assert_eq!(saturation["verdict"], "generator", "{saturation}");
    assert!(saturation["reason"].as_str().is_some_and(|text| text.contains("waited for its core")));
}

#[test]
fn a_master_that_stands_still_is_the_bottleneck() {
    let _alone = alone();
    let run = start(&paced_trace(3_000, 1_000), VERSIONS[1], &["--workers", "8"]);
    run.wait_for("replayer.log", "replayed ");
    let master = run.pid("master");
    kill(master, Signal::SIGSTOP).expect("it runs");
    std::thread::sleep(Duration::from_millis(1_500));
    kill(master, Signal::SIGCONT).expect("it is there");
    let (code, result) = run.end();
    assert_eq!(code, Some(0), "{result:#}");
    assert_eq!(result["saturation"]["verdict"], "master", "{}", result["saturation"]);
    assert!(result["replayer"]["silent_us"].as_u64() >= Some(1_000_000), "{}", result["replayer"]);
}

/// One call in flight is answered some thousand times a second, whatever the master could do.
#[test]
fn a_sweep_finds_the_knee_and_says_what_limits() {
    let _alone = alone();
    let (text, report) = sweep_to(
        (1.0, 50.0, "in_flight"),
        &paced_trace(6_000, 1_000),
        &["--speeds", "1,50,51,52", "--workers", "1", "--connections", "1"],
    );
    let behind: Vec<&Value> =
        report["points"].as_array().expect("points").iter().map(|point| &point["behind"]).collect();
    assert_eq!(behind, [false, true, true], "one more than the knee is tried: {text}");
    assert!(
        text.contains("kept up until speed 1, behind at 50: the calls in flight are what limits"),
        "{text}"
    );
    assert!(text.contains("allow more --workers"), "{text}");
}

/// On a processor of its own, with far more to do than one can.
#[test]
fn a_sweep_finds_what_a_master_can_do() {
    let _alone = alone();
    let [master, replayer] = two_cpus();
    let arguments =
        ["--speeds", "1,40", "--workers", "512", "--master-cpus", &master, "--replay-cpus", &replayer];
    let (text, _) = sweep_to((1.0, 40.0, "master"), &paced_trace(60_000, 100), &arguments);
    assert!(text.contains("kept up until speed 1, behind at 40: the master is what limits"), "{text}");
}

/// Calls in groups of this size, each of which waits for the last one of the group before: none is late by itself.
fn chain(group: usize, calls: usize, every_us: u64) -> Trace {
    let mut trace = Trace::v2(&["a"], 64 << 20);
    let mut ids: Vec<String> = Vec::new();
    for call in 0..calls {
        let before: Vec<&String> =
            (call / group * group).checked_sub(1).map(|last| &ids[last]).into_iter().collect();
        let more = json!({ "keys": ["k"], "depends_on": before });
        ids.push(trace.work("a", "BatchExistKey", call as u64 * every_us, more));
    }
    trace.unmount("a")
}

/// One call at a time keeps nobody busy, and is answered some thousand times a second; 50,000 are due.
#[test]
fn calls_that_wait_for_each_other_have_a_knee_of_their_own() {
    let _alone = alone();
    let [master, replayer] = two_cpus();
    let arguments = ["--speeds", "1,50", "--master-cpus", &master, "--replay-cpus", &replayer];
    let (text, _) = sweep_to((1.0, 50.0, "dependencies"), &chain(1, 6_000, 1_000), &arguments);
    assert!(
        text.contains("kept up until speed 1, behind at 50: the calls' dependencies are what limits"),
        "{text}"
    );
}

/// Hundreds at a time take all that a master has, unless something else takes a part of it: a chain is not what limits, nor nothing.
#[test]
fn a_busy_master_is_no_wait_for_dependencies() {
    let _alone = alone();
    let [master, replayer] = two_cpus();
    let arguments = ["--speed", "40", "--workers", "512", "--sample-interval", "0.05"];
    let cpus = ["--master-cpus", &master, "--replay-cpus", &replayer];
    let ran = run(&chain(400, 60_000, 100), VERSIONS[1], &[&arguments[..], &cpus].concat());
    ran.succeeded();
    let saturation = &ran.result()["saturation"];
    assert!(saturation["reason"].as_str().is_some_and(|text| text.contains("us for others")), "{saturation}");
    let verdict = saturation["verdict"].as_str();
    assert!(matches!(verdict, Some("master" | "unclear" | "generator")), "{saturation}");
}

#[test]
fn a_sweep_that_cannot_go_on_keeps_what_it_found() {
    let _alone = alone();
    // At the first speed the due times are beyond the clock: the second one is never tried.
    let (code, text, report) = sweep(&paced_trace(200, 1_000), &["--speeds", "1e-14,1"]);
    assert_eq!(code, Some(4), "{text}");
    assert_eq!(report["points"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(report["points"][0]["error"].as_str().is_some_and(|text| text.contains("clock")), "{report}");
    for (speeds, pair) in [("1,1", "1 is not above 1"), ("4,2", "2 is not above 4")] {
        let (code, text, report) = sweep(&paced_trace(10, 1_000), &["--speeds", speeds]);
        assert_eq!((code, report), (Some(2), Value::Null), "{text}");
        assert!(text.contains(pair), "{text}");
    }
    // All due within 10 us: nothing is said of it.
    let (code, text, report) = sweep(&paced_trace(10, 1_000), &["--speeds", "1000"]);
    assert_eq!(
        (code, &report["points"][0]["behind"], &report["knee"]),
        (Some(0), &Value::Null, &Value::Null)
    );
    assert!(text.contains("too short to tell"), "{text}");
}

#[test]
fn overload_shows_as_lag_and_keeps_the_schedule() {
    let _alone = alone();
    let mut trace = Trace::v2(&["a"], 64 << 20);
    for call in 0..3_000_u64 {
        trace.work("a", "BatchExistKey", call * 10, json!({ "keys": ["k"] }));
    }
    let ran = run(&trace.unmount("a"), VERSIONS[1], &["--workers", "1", "--connections", "1"]);
    ran.succeeded();
    let samples = ran.samples();
    let origin = samples[2]["phase_origin_us"].as_u64().expect("a number");
    for (call, sample) in samples[2..3_002].iter().enumerate() {
        assert_eq!(sample["scheduled_us"], json!(origin + call as u64 * 10));
    }
    let found = ran.operation("workload", "BatchExistKey");
    assert!(found["dispatch_lag_us"]["p99"].as_u64() > Some(10_000), "{found}");
    let from_due = found["scheduled_to_completion_us"]["p99"].as_u64();
    assert!(from_due > found["client_call_latency_us"]["p99"].as_u64(), "{found}");
    assert!(ran.json("replay.json")["replayer"]["saturated_us"].as_u64() > Some(0));
}
