//! The command against real masters: each scenario with two releases.

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::masters;

use common::{
    Ran, Trace, VERSIONS, paced_trace, packages, processes_of, program, run, run_text, start, two_cpus,
};

#[test]
fn keys_written_by_one_client_are_read_by_another() {
    for version in VERSIONS {
        let mut trace = Trace::v1();
        let end = trace.write("writer", &["k1", "k2"], 1024, 0);
        let more = json!({ "keys": ["k1", "k2", "never"], "depends_on": [end] });
        trace.work("reader", "BatchGetReplicaList", 1_500_000, more);
        let ran = run(&trace, version, &[]);
        ran.succeeded();
        let found = ran.operation("workload", "BatchGetReplicaList");
        assert_eq!((&found["key_status"]["ok"], &found["key_status"]["miss"]), (&json!(2), &json!(1)));
        assert!(ran.result()["heartbeats"]["rpc_calls"].as_u64() >= Some(2));
        let process = ran.result()["workload_process"].clone();
        assert!(process["master"]["samples"].as_u64() > Some(2), "{process}");
        assert!(process["master"]["peak_rss_bytes"].as_u64() > Some(1 << 20), "{process}");
        assert_eq!(ran.json("manifest.json")["private_network"], true);
        assert_ne!(ran.result()["saturation"]["verdict"], "generator");
    }
}

#[test]
fn only_keys_whose_start_succeeded_are_finalised() {
    for version in VERSIONS {
        let mut trace = Trace::v1();
        let before = trace.write("a", &["old"], 64, 0);
        let more = json!({ "keys": ["old", "new"], "value_sizes": [64, 64], "depends_on": [before] });
        let start = trace.work("a", "BatchPutStart", 1000, more);
        trace.work("a", "BatchPutEnd", 1000, json!({ "keys": ["old", "new"], "put_start": start }));
        let more = json!({ "keys": ["old"], "value_sizes": [64], "depends_on": [start] });
        let none = trace.work("a", "BatchPutStart", 2000, more);
        trace.work("a", "BatchPutEnd", 2000, json!({ "keys": ["old"], "put_start": none }));
        let ran = run(&trace, version, &[]);
        ran.succeeded();
        let samples = ran.samples();
        assert_eq!(samples[2]["key_status"]["already_exists"], 1);
        assert_eq!(
            (&samples[3]["key_status"]["ok"], &samples[3]["key_status"]["skipped"]),
            (&json!(1), &json!(1))
        );
        assert_eq!((&samples[5]["rpc_sent"], &samples[5]["error"]), (&json!(false), &json!("")));
        assert_eq!(ran.operation("workload", "BatchPutEnd")["rpc_calls"], 2);
    }
}

#[test]
fn slices_revocations_and_removals() {
    for version in VERSIONS {
        let mut trace = Trace::v2(&["a", "b"], 64 << 20);
        let more = json!({ "keys": ["k", "l"], "value_slices": [[100, 200], [300]] });
        let start = trace.work("a", "BatchPutStart", 0, more);
        let end = trace.work("a", "BatchPutEnd", 0, json!({ "keys": ["k", "l"], "put_start": start }));
        let more = json!({ "keys": ["gone"], "value_sizes": [10], "depends_on": [end] });
        let start = trace.work("a", "BatchPutStart", 0, more);
        let revoke = trace.work("a", "BatchPutRevoke", 0, json!({ "keys": ["gone"], "put_start": start }));
        let remove = trace.work("b", "BatchRemove", 0, json!({ "keys": ["k"], "depends_on": [revoke] }));
        let more = json!({ "keys": ["k", "gone", "l"], "depends_on": [remove] });
        trace.work("b", "BatchExistKey", 0, more);
        let ran = run(&trace.unmount("a"), version, &[]);
        ran.succeeded();
        let samples = ran.samples();
        let last = &samples[samples.len() - 2];
        assert_eq!(
            (&last["key_status"]["ok"], &last["key_status"]["miss"]),
            (&json!(1), &json!(2)),
            "{last}"
        );
        for op in ["MountSegment", "UnmountSegment"] {
            let phase = if op == "MountSegment" { "setup" } else { "teardown" };
            let found = ran.operation(phase, op);
            assert_eq!((&found["rpc_calls"], &found["failed_calls"]), (&json!(1), &json!(0)));
        }
        let unmount = &samples[samples.len() - 1];
        assert!(unmount["start_us"].as_u64() >= last["finish_us"].as_u64(), "{unmount}");
        assert_eq!(ran.result()["store_after_replay"]["master_total_capacity_bytes"], 0.0);
    }
}

#[test]
fn capacity_pressure_evicts() {
    for version in VERSIONS {
        let mut trace = Trace::v2(&["a"], 64 << 20);
        for object in 0..200_u64 {
            trace.write("a", &[&format!("k{object}")], 1 << 20, object * 8_000);
        }
        let trace = trace.unmount("a");
        let pressure =
            ["--require-eviction", "--eviction-high-watermark-ratio", "0.8", "--eviction-ratio", "0.2"];
        let ran = run(&trace, version, &pressure);
        ran.succeeded();
        let evictions = &ran.result()["workload_evictions"];
        assert_eq!(evictions["observed"], true, "{evictions}");
        assert!(
            evictions["counter_deltas"]["master_evicted_size_bytes"].as_f64() > Some(50e6),
            "{evictions}"
        );
    }
    let mut calm = Trace::v2(&["a"], 64 << 20);
    calm.write("a", &["k"], 1024, 600_000);
    let ran = run(&calm.unmount("a"), VERSIONS[1], &["--require-eviction"]);
    assert_eq!((ran.code, &ran.result()["eviction_requirement_met"]), (Some(1), &json!(false)));
}

#[test]
fn incomplete_writes_are_discarded_and_released() {
    for version in VERSIONS {
        let mut trace = Trace::v2(&["a", "b"], 64 << 20);
        let first = trace.work("a", "BatchPutStart", 0, json!({ "keys": ["k"], "value_sizes": [1024] }));
        // Another client takes the unfinished write over once it is old enough.
        let second = trace.work(
            "b",
            "BatchPutStart",
            2_500_000,
            json!({ "keys": ["k"], "value_sizes": [1024], "depends_on": [first] }),
        );
        trace.work("b", "BatchPutEnd", 2_500_000, json!({ "keys": ["k"], "put_start": second }));
        trace.work("b", "BatchExistKey", 4_500_000, json!({ "keys": ["k"] }));
        trace.work("a", "BatchPutEnd", 4_600_000, json!({ "keys": ["k"], "put_start": first }));
        let trace = trace.unmount("a");
        let timeouts = ["--put-start-discard-timeout-sec", "1", "--put-start-release-timeout-sec", "2"];
        let ran = run(&trace, version, &timeouts);
        let samples = ran.samples();
        assert_eq!(samples[4]["key_status"]["ok"], 1, "the write was taken over: {}", samples[4]);
        assert_eq!(samples[6]["key_status"]["ok"], 1, "{}", samples[6]);
        // The first owner may no longer end it, which is an error of the run.
        assert_eq!((ran.code, &samples[7]["key_status"]["error"]), (Some(1), &json!(1)), "{}", samples[7]);
        assert!(samples[7]["error"].as_str().is_some_and(|error| error.contains("ILLEGAL_CLIENT")));
        let deltas = ran.result()["workload_evictions"]["counter_deltas"].clone();
        let discarded = deltas["master_put_start_discard_cnt"].as_f64();
        assert!(discarded.is_none_or(|count| count >= 1.0), "{deltas}");
        assert_eq!(ran.result()["workload_evictions"]["observed"], false);
    }
    let mut trace = Trace::v1();
    trace.write("a", &["k"], 1, 0);
    let ran = run(&trace, VERSIONS[1], &["--put-start-release-timeout-sec", "20"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn a_client_that_the_master_gives_up_invalidates_the_run() {
    for version in VERSIONS {
        let mut trace = Trace::v2(&["a"], 64 << 20);
        trace.work("a", "BatchExistKey", 0, json!({ "keys": ["k"] }));
        trace.work("a", "BatchExistKey", 9_000_000, json!({ "keys": ["k"] }));
        // The replayer stands still for so long that the client's time to live runs out.
        let mut run = start(&trace.unmount("a"), version, &["--client-ttl-sec", "2"]);
        run.wait_for("replayer.log", "replayed ");
        let replayer = run.pid("replayer");
        kill(replayer, Signal::SIGSTOP).expect("it runs");
        std::thread::sleep(Duration::from_secs(5));
        kill(replayer, Signal::SIGCONT).expect("it is there");
        let code = run.child.wait().expect("it ends").code();
        let ran = Ran { folder: run.folder, code, stderr: String::new() };
        assert_eq!(ran.code, Some(1), "{:#}", ran.result());
        let report = ran.json("replay.json");
        assert_eq!((&report["healthy_heartbeats"], &report["has_errors"]), (&json!(false), &json!(true)));
        let samples = ran.samples();
        assert_eq!(samples[2]["error"], "");
        let error = samples[3]["error"].as_str().unwrap_or_default();
        assert!(error.contains("heartbeat failed") && error.contains("NEED_REMOUNT"), "{error}");
        assert_eq!(samples[3]["rpc_sent"], false);
    }
}

fn long_trace() -> Trace {
    let mut trace = Trace::v2(&["a"], 64 << 20);
    for second in 0..60_u64 {
        trace.work("a", "BatchExistKey", second * 1_000_000, json!({ "keys": ["k"] }));
    }
    trace.unmount("a")
}

#[test]
fn a_master_killed_in_mid_run_fails_the_run() {
    for version in VERSIONS {
        let run = start(&long_trace(), version, &[]);
        run.wait_for("process.jsonl", "");
        run.wait_for("pids.json", "master");
        std::thread::sleep(Duration::from_millis(500));
        kill(run.pid("master"), Signal::SIGKILL).expect("it runs");
        let (code, result) = run.end();
        assert_eq!((code, &result["success"]), (Some(6), &json!(false)));
        assert!(result["error"].as_str().is_some_and(|error| error.contains("master")), "{result}");
    }
}

/// The launcher stands still meanwhile, so that it finds both ended at once: every call was answered, and yet the master failed.
#[test]
fn a_master_that_ends_with_the_last_replayer_fails_the_run() {
    let run = start(&paced_trace(200, 2_000), VERSIONS[1], &[]);
    run.wait_for("pids.json", "master");
    run.signal(Signal::SIGSTOP);
    run.wait_for("replay.json", "operations");
    let has_ended = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody has waited for it");
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    };
    let replayer = run.pid("replayer");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_ended(replayer) {
        assert!(Instant::now() < deadline, "the replayer never ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(run.pid("master"), Signal::SIGKILL).expect("it runs");
    run.signal(Signal::SIGCONT);
    let (code, result) = run.end();
    assert_eq!((code, &result["success"]), (Some(6), &json!(false)));
    assert!(result["error"].as_str().is_some_and(|error| error.contains("master")), "{result}");
}

#[test]
fn an_interrupt_in_each_phase_leaves_nothing_behind() {
    use Signal::{SIGINT, SIGTERM};
    let filling = tempfile::tempdir().expect("a folder");
    let filling = filling.path().join("prefill.jsonl");
    let filling = filling.to_str().expect("UTF-8");
    let mut slow = Trace::v1();
    slow.write("a", &["k"], 64, 0);
    slow.write("a", &["l"], 64, 60_000_000);
    std::fs::write(filling, &slow.text).expect("written");
    let mut v1 = Trace::v1();
    v1.work("a", "BatchExistKey", 0, json!({ "keys": ["k"] }));
    // In setup and in teardown: the row that comes next is due in an hour.
    let mut setup = Trace::v2(&["a"], 64 << 20);
    setup.row("b", "ReMountSegment", 3_600_000_000, &json!({ "phase": "setup", "segments": [] }));
    setup.work("a", "BatchExistKey", 0, json!({ "keys": ["k"] }));
    let mut teardown = Trace::v2(&["a"], 64 << 20);
    teardown.work("a", "BatchExistKey", 0, json!({ "keys": ["k"] }));
    let more = json!({ "phase": "teardown", "segment_id": "s" });
    teardown.row("a", "UnmountSegment", 3_600_000_000, &more);
    // At once, while the master starts, while the master is filled, and in each phase; by one replayer and by several.
    let (long, told) = (long_trace(), "replayed ");
    for (trace, arguments, file, text, signal, code) in [
        (&long, vec![], "", "", SIGINT, 130),
        (&long, vec![], "master.log", "", SIGTERM, 143),
        (&v1, vec!["--prefill", filling], "replayer.log", told, SIGINT, 130),
        (&setup.unmount("a"), vec![], "replayer.log", told, SIGTERM, 143),
        (&long, vec![], "replayer.log", told, SIGINT, 130),
        (&teardown, vec![], "replayer.log", told, SIGINT, 130),
        (&long, vec!["--replayers", "3"], "replayer-2.log", told, SIGTERM, 143),
    ] {
        let run = start(trace, VERSIONS[1], &arguments);
        match file {
            "" => std::thread::sleep(Duration::from_millis(150)),
            file => run.wait_for(file, text),
        }
        run.signal(signal);
        let (found, result) = run.end();
        assert_eq!(found, Some(code), "{file:?}: {result}");
    }
}

/// Whoever kills the command without a warning leaves it no time to clean up: what it started ends with it.
#[test]
fn a_killed_command_leaves_nothing_behind() {
    let run = start(&long_trace(), VERSIONS[1], &["--replayers", "2"]);
    run.wait_for("replayer-1.log", "replayed ");
    let out = run.out();
    assert!(processes_of(&out).len() >= 3, "a master and two replayers");
    run.signal(Signal::SIGKILL);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !processes_of(&out).is_empty() {
        assert!(Instant::now() < deadline, "{:?} are left", processes_of(&out));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!out.join("result.json").exists() && !out.join("replay.json").exists());
    let mut child = run.child;
    child.wait().expect("it has ended");
}

/// Each on its own CPUs, with every thread; the result says that they stayed there.
#[test]
fn master_and_replayer_are_kept_apart() {
    let [one, other] = two_cpus();
    let mut trace = Trace::v2(&["a"], 64 << 20);
    for call in 0..30_u64 {
        trace.work("a", "BatchExistKey", call * 100_000, json!({ "keys": ["k"] }));
    }
    let run = start(&trace.unmount("a"), VERSIONS[1], &["--master-cpus", &one, "--replay-cpus", &other]);
    run.wait_for("replayer.log", "replayed ");
    let pids = std::fs::read_to_string(run.out().join("pids.json")).expect("pids");
    let pids: Value = serde_json::from_str(&pids).expect("JSON");
    for (name, cpu) in [("master", &one), ("replayer", &other)] {
        let threads = std::fs::read_dir(format!("/proc/{}/task", pids[name])).expect("it runs").flatten();
        let found: Vec<String> = threads
            .map(|thread| std::fs::read_to_string(thread.path().join("status")).expect("readable"))
            .filter_map(|text| {
                let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
                line.map(|list| list.trim().to_owned())
            })
            .collect();
        assert!(!found.is_empty() && found.iter().all(|list| list == cpu), "{name}: {found:?}");
    }
    let (code, result) = run.end();
    assert_eq!(code, Some(0), "{result:#}");
    for ended in [&result["master_stopped"], &result["replayers_ended"][0]] {
        assert_eq!(ended["placement_violations"], json!([]));
    }
    assert_eq!(result["master_stopped"]["ended"], "stopped");
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let ran = run(&long_trace(), VERSIONS[1], &["--timeout", "0.5"]);
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.stderr.contains("finish the replay within 0.5 s"), "{}", ran.stderr);
    assert_eq!(ran.result()["success"], false);
    assert!(processes_of(&ran.out()).is_empty());
}

#[test]
fn two_runs_side_by_side() {
    let trace = long_trace();
    let (one, other) =
        (start(&trace, VERSIONS[0], &["--speed", "30"]), start(&trace, VERSIONS[1], &["--speed", "30"]));
    for run in [one, other] {
        let (code, result) = run.end();
        assert_eq!((code, &result["success"]), (Some(0), &json!(true)), "{result}");
    }
}

#[test]
fn ten_thousand_logical_clients() {
    let mut trace = Trace::v2(&["storage"], 64 << 20);
    let names: Vec<String> = (0..10_000).map(|client| format!("c{client}")).collect();
    let mut text = trace.text.clone();
    for name in &names {
        let id = format!("r-{name}");
        let row = json!({ "id": id, "timestamp_us": 0, "client_id": name, "op": "ReMountSegment", "phase": "setup", "segments": [] });
        writeln!(text, "{row}").expect("a string takes every write");
    }
    trace.text = text;
    for (at, name) in (0_u64..).zip(&names) {
        trace.work(name, "BatchExistKey", at * 200, json!({ "keys": [name] }));
    }
    let ran = run(&trace.unmount("storage"), VERSIONS[1], &[]);
    ran.succeeded();
    let report = ran.json("replay.json");
    assert_eq!(report["logical_clients"], 10_001);
    assert!(report["heartbeats"]["rpc_calls"].as_u64() >= Some(10_000), "{}", report["heartbeats"]);
}

#[test]
fn several_replayers_share_a_trace() {
    for version in VERSIONS {
        let mut trace = Trace::v2(&["a", "b"], 64 << 20);
        for call in 0..300_u64 {
            trace.write("a", &[&format!("k{call}")], 1024, call * 1_000);
            trace.work("b", "BatchExistKey", call * 1_000, json!({ "keys": ["nothing"] }));
        }
        let ran = run(&trace.unmount("a"), version, &["--replayers", "3"]);
        ran.succeeded();
        let report = ran.json("replay.json");
        assert_eq!((&report["replayers"], &report["events"]), (&json!(3), &json!(904)));
        let ends = ran.operation("workload", "BatchPutEnd");
        assert_eq!((&ends["rpc_calls"], &ends["key_status"]["ok"]), (&json!(300), &json!(300)));
        assert!(!ran.out().join("part-0.bin").exists());
        let origins =
            ran.samples().iter().map(|sample| sample["phase_origin_us"].as_u64()).collect::<Vec<_>>();
        assert!(origins.is_sorted());
    }
}

/// Their processor time, memory and threads are added, and each tells of its own events.
#[test]
fn figures_of_several_replayers_are_of_all_of_them() {
    let mut trace = Trace::v2(&["a"], 64 << 20);
    for call in 0..1_500_u64 {
        trace.work("a", "BatchExistKey", call * 1_000, json!({ "keys": ["k"] }));
    }
    // Half of a second of watching the clock in each second, by each.
    let ran = run(&trace.unmount("a"), VERSIONS[1], &["--replayers", "2", "--spin-us", "500"]);
    ran.succeeded();
    let found = &ran.result()["workload_process"]["replayer"];
    let own = std::fs::read_to_string(ran.out().join("process.jsonl")).expect("samples");
    let rows = own.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let cpu: Vec<f64> = rows.filter_map(|row| row["replayer"]["cpu_seconds"].as_f64()).collect();
    assert!(cpu.is_sorted() && cpu.len() > 2, "{cpu:?}");
    assert!(found["peak_threads"].as_u64() >= Some(4), "each has at least two: {found}");
    assert_eq!(ran.result()["replayers_ended"][1]["ended"], "exited");
    for log in ["replayer.log", "replayer-1.log"] {
        let said = std::fs::read_to_string(ran.out().join(log)).expect("a log");
        assert!(said.contains(" of 753 events") || said.contains(" of 750 events"), "{said}");
    }
}

/// In the unversioned dialect a client's registration is one of its events: whichever replayer has the client keeps it alive.
#[test]
fn replayers_of_an_unversioned_trace_keep_their_own_clients() {
    for version in VERSIONS {
        let mut rows = vec![r#"{"type":"master_rpc_trace","time_unit":"us"}"#.to_owned()];
        for client in ["a", "b", "c"] {
            let mut row = |id: &str, time: u64, op: &str, more: &str| {
                rows.push(format!(
                    r#"{{"id":"{id}{client}","timestamp_us":{time},"client_id":"{client}","op":"{op}",{more}}}"#
                ));
            };
            row("r", 0, "ReMountSegment", r#""segments":[]"#);
            row("m", 0, "MountSegment", &format!(r#""segment_id":"{client}","size_bytes":67108864"#));
            row("p", 0, "BatchPutStart", &format!(r#""keys":["k{client}"],"value_sizes":[9]"#));
            row("e", 0, "BatchPutEnd", &format!(r#""keys":["k{client}"],"put_start":"p{client}""#));
        }
        // By now a client that nobody pings has been given up, and what it held is gone.
        for client in ["a", "b", "c"] {
            rows.push(format!(
                r#"{{"id":"x{client}","timestamp_us":7000000,"client_id":"{client}","op":"BatchExistKey","keys":["k{client}"]}}"#
            ));
        }
        let ran = run_text(&rows.join("\n"), version, &["--replayers", "2", "--client-ttl-sec", "3"]);
        ran.succeeded();
        let samples = ran.samples();
        assert!(samples[12..].iter().all(|sample| sample["key_status"]["ok"] == 1), "{samples:?}");
        let peak = &ran.result()["store_workload_sampled_peak"]["master_total_capacity_bytes"];
        assert_eq!(peak.as_f64(), Some(3.0 * 67_108_864.0), "every segment has an id of its own");
        let beats = std::fs::read_to_string(ran.out().join("heartbeats.jsonl")).expect("heartbeats");
        let beats: Vec<Value> = beats.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let report = &ran.json("replay.json")["heartbeats"];
        assert_eq!(report["rpc_calls"], json!(beats.len()));
        assert_eq!(report["interval_after_response_ms"], 1_000);
        for client in ["a", "b", "c"] {
            let own = beats.iter().filter(|ping| ping["client_id"] == client && ping["error"] == "").count();
            assert!((5..=9).contains(&own), "{client}: {own}");
        }
    }
}

/// Runs a trace after another one that fills the master.
fn run_after(prefill: &Trace, trace: &Trace, version: &str, arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prefill.jsonl");
    std::fs::write(&path, &prefill.text).expect("written");
    let path = path.to_str().expect("UTF-8");
    run(trace, version, &[&["--prefill", path], arguments].concat())
}

#[test]
fn what_was_there_before_is_found_as_long_as_the_run_lasts() {
    for (version, replayers) in VERSIONS.into_iter().zip(["1", "2"]) {
        let mut prefill = Trace::v1();
        prefill.write("a", &["k1", "k2"], 64, 0);
        let mut trace = Trace::v1();
        let more = json!({ "keys": ["k1", "new"], "value_sizes": [64, 64] });
        let start = trace.work("a", "BatchPutStart", 0, more);
        trace.work("a", "BatchPutEnd", 0, json!({ "keys": ["k1", "new"], "put_start": start }));
        // By now the master would have given up clients without heartbeats, and with them what they hold.
        trace.work("b", "BatchGetReplicaList", 8_000_000, json!({ "keys": ["k1", "k2", "never"] }));
        let ran = run_after(&prefill, &trace, version, &["--client-ttl-sec", "5", "--replayers", replayers]);
        ran.succeeded();
        let samples = ran.samples();
        assert_eq!(samples.len(), 3, "what comes before is not measured");
        let counts = |event: usize, name: &str| samples[event]["key_status"][name].clone();
        assert_eq!((counts(0, "already_exists"), counts(0, "ok")), (json!(1), json!(1)));
        assert_eq!((counts(1, "skipped"), counts(1, "ok")), (json!(1), json!(1)));
        assert_eq!((counts(2, "ok"), counts(2, "miss")), (json!(2), json!(1)));
        assert_eq!(ran.json("replay.json")["prefill_trace"], "prefill.jsonl");
        assert_eq!(ran.json("manifest.json")["prefill_trace"], "prefill.jsonl");
    }
}

#[test]
fn a_master_that_cannot_be_filled_fails_the_run() {
    let mut trace = Trace::v1();
    trace.work("a", "BatchExistKey", 0, json!({ "keys": ["k"] }));
    for replayers in ["1", "2"] {
        let ran = run_after(&trace, &trace, VERSIONS[1], &["--replayers", replayers]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("the event e0 ended with Miss"), "{}", ran.stderr);
        assert_eq!(ran.result()["success"], false);
    }
    let later = Trace::v2(&["a"], 64 << 20).unmount("a");
    let ran = run_after(&later, &trace, VERSIONS[1], &[]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn an_unversioned_trace_is_replayed_with_one_worker_per_client() {
    for version in VERSIONS {
        let text = [
            r#"{"type":"master_rpc_trace","time_unit":"us"}"#,
            r#"{"id":"r","timestamp_us":0,"client_id":"a","op":"ReMountSegment","segments":[]}"#,
            r#"{"id":"m","timestamp_us":0,"client_id":"a","op":"MountSegment","segment_id":"s","size_bytes":67108864}"#,
            r#"{"id":"p","timestamp_us":0,"client_id":"a","op":"BatchPutStart","keys":["k"],"value_sizes":[9]}"#,
            r#"{"id":"e","timestamp_us":0,"client_id":"a","op":"BatchPutEnd","keys":["k"],"put_start":"p"}"#,
            r#"{"id":"x","timestamp_us":1200000,"client_id":"a","op":"BatchExistKey","keys":["k"]}"#,
        ];
        let ran = run_text(&text.join("\n"), version, &[]);
        ran.succeeded();
        let report = ran.json("replay.json");
        assert_eq!(
            (&report["replay_policy"], &report["workers"]),
            (&json!("one_worker_per_client"), &json!(1))
        );
        let samples = ran.samples();
        assert_eq!(samples[4]["key_status"]["ok"], 1);
        assert!(samples.iter().all(|sample| sample.get("phase").is_none()));
        let beats = std::fs::read_to_string(ran.out().join("heartbeats.jsonl")).expect("heartbeats");
        assert!(beats.lines().count() >= 2, "{beats}");
    }
}

#[test]
fn a_running_master_is_used_only_when_it_is_fresh() {
    let master = masters::start(VERSIONS[1], &["--default_kv_lease_ttl=0"]);
    let mut trace = Trace::v1();
    trace.write("a", &["k"], 64, 0);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), &trace.text).expect("written");
    let connect = |out: &str, more: &[&str]| {
        let mut command = Command::new(program());
        command.current_dir(folder.path()).args(["run", "trace.jsonl", "--out", out, "--connect"]);
        command.arg(master.address().to_string()).args(more).output().expect("it runs").status.code()
    };
    let metrics = master.metrics_address().to_string();
    assert_eq!(connect("unknown", &[]), Some(4), "without metrics it is not known to be fresh");
    let other = other_server();
    assert_eq!(connect("other", &["--metrics", &other]), Some(4), "that is no master's metrics");
    // It is as it is: settings of a master that is started cannot be asked of it.
    for setting in [
        &["--require-allocator", "jemalloc"][..],
        &["--client-ttl-sec", "99"],
        &["--rpc-threads", "7"],
        &["--master-cpus", "0"],
        &["--lease-ttl-ms", "5"],
        &["--eviction-ratio", "0.5"],
        &["--eviction-high-watermark-ratio", "0.5"],
        &["--put-start-discard-timeout-sec", "5"],
        &["--put-start-release-timeout-sec", "5"],
        &["--allow-open-metrics"],
        &["--shared-network"],
    ] {
        let arguments = [&["--metrics", &metrics], setting].concat();
        assert_eq!(connect("settings", &arguments), Some(2), "{setting:?}");
    }
    assert!(!folder.path().join("settings").exists());
    assert_eq!(connect("fresh", &["--metrics", &metrics]), Some(0));
    assert_eq!(connect("used", &["--metrics", &metrics]), Some(4), "it has clients now");
    assert_eq!(connect("allowed", &["--metrics", &metrics, "--allow-used-master"]), Some(0));
    assert!(Path::new(&format!("/proc/{}", master.pid())).exists(), "it is never stopped");
    let manifest = std::fs::read_to_string(folder.path().join("fresh/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    let parameters = &manifest["parameters"];
    assert_eq!((&parameters["rpc_threads"], &parameters["master"]), (&Value::Null, &Value::Null));
    assert_eq!(parameters["connect"]["address"], json!(master.address()));
}

/// What the calls found is not lost because the master, which is not ours, has ended.
#[test]
fn a_running_master_that_ends_leaves_a_result() {
    let master = masters::start(VERSIONS[1], &["--default_kv_lease_ttl=0"]);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), paced_trace(200, 20_000).text).expect("written");
    let pid = Pid::from_raw(i32::try_from(master.pid()).expect("a pid"));
    let code = std::thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(60);
            // Says how far it is, once some calls have been answered.
            let log = folder.path().join("out/replayer.log");
            while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("replayed ")) {
                assert!(Instant::now() < deadline, "the replay never begins");
                std::thread::sleep(Duration::from_millis(10));
            }
            kill(pid, Signal::SIGKILL).expect("it runs");
        });
        let mut command = Command::new(program());
        command.current_dir(folder.path()).args(["run", "trace.jsonl", "--out", "out", "--connect"]);
        command.arg(master.address().to_string()).arg("--metrics").arg(master.metrics_address().to_string());
        command.output().expect("it runs").status.code()
    });
    assert_eq!(code, Some(1));
    let result = std::fs::read_to_string(folder.path().join("out/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&result).expect("JSON");
    assert_eq!(result["success"], false);
    assert!(result["store_after_replay"]["error"].is_string(), "{}", result["store_after_replay"]);
    assert!(result["phases"]["workload"]["operations"]["BatchExistKey"]["failed_calls"].as_u64() > Some(0));
}

/// Clients that a master gave up between two pings, far apart, are found at the end.
#[test]
fn a_client_given_up_between_two_pings_invalidates_the_run() {
    let rare = ["--heartbeat-interval-ms", "60000"];
    // Of a master that is started it is known before.
    let refused = run(&paced_trace(1, 0), VERSIONS[1], &rare);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("gives a client up after 10 s"), "{}", refused.stderr);
    let master = masters::start(VERSIONS[1], &["--default_kv_lease_ttl=0", "--client_ttl=1"]);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), paced_trace(10, 500_000).text).expect("written");
    let mut command = Command::new(program());
    command.current_dir(folder.path()).args(["run", "trace.jsonl", "--out", "out", "--connect"]);
    command.arg(master.address().to_string()).arg("--metrics").arg(master.metrics_address().to_string());
    let output = command.args(rare).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = std::fs::read_to_string(folder.path().join("out/replay.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["healthy_heartbeats"], false);
}

/// One clear error each, with the code that says whose fault it is, and nothing is started that need not be.
#[test]
fn what_is_out_of_bounds_is_refused_or_bounded() {
    let trace = paced_trace(300, 100);
    // More than there are calls is as many as there are; more time between samples than there is, one sample.
    for bound in
        [["--workers", "4294967295"], ["--sample-interval", "1e19"], ["--spin-us", "18446744073709551615"]]
    {
        run(&trace, VERSIONS[1], &bound).succeeded();
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), &trace.text).expect("written");
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a pipe");
    let packages = packages(VERSIONS[1]);
    let command = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new(program());
        command.current_dir(folder.path()).arg("run").args(arguments).timeout(Duration::from_secs(60));
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let os = std::ffi::OsStr::new;
    let env = [os("--python-env"), packages.as_os_str()];
    let (code, text) = command(&[&[os("fifo"), os("--out"), os("piped")], &env[..]].concat());
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("not a regular file") && !folder.path().join("piped").exists(), "{text}");
    for program in ["/tmp", "/etc/passwd", "/bin/true", "/nowhere"] {
        let out = format!("not-a-master{}", program.replace('/', "-"));
        let (code, text) = command(&[os("trace.jsonl"), os("--out"), os(&out), os("--master"), os(program)]);
        assert_eq!(code, Some(4), "{program}: {text}");
    }
    // A name need not be text.
    use std::os::unix::ffi::OsStrExt;
    let name = os_name(b"out-\xff");
    std::fs::copy(folder.path().join("trace.jsonl"), folder.path().join(os_name(b"t\xfe.jsonl")))
        .expect("copied");
    let (code, text) = command(&[&[&*os_name(b"t\xfe.jsonl"), os("--out"), &*name], &env[..]].concat());
    assert_eq!(code, Some(0), "{text}");
    assert!(folder.path().join(std::ffi::OsStr::from_bytes(b"out-\xff")).join("result.json").exists());
}

fn os_name(bytes: &[u8]) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).to_owned()
}

/// No fault of the master: this machine has no more files to give.
#[test]
fn a_machine_without_room_is_said_to_be_unfit() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), paced_trace(300, 100).text).expect("written");
    let output = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", "ulimit -n 100; exec \"$@\"", "sh"])
        .arg(program())
        .args([
            "run",
            "trace.jsonl",
            "--out",
            "out",
            "--workers",
            "200",
            "--connections",
            "200",
            "--python-env",
        ])
        .arg(packages(VERSIONS[1]))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("open a connection") && text.contains("Too many open files"), "{text}");
}

/// Nobody reads what is said, which changes neither the result nor the exit code.
#[test]
fn a_stderr_that_takes_nothing_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), paced_trace(10, 100).text).expect("written");
    for (arguments, code) in [
        ("slice trace.jsonl --events 0..5 --out sliced.jsonl", 0),
        ("slice trace.jsonl --events 0..5 --out sliced.jsonl", 4),
        ("slice trace.jsonl --time-us 9000000..9000001 --out nothing.jsonl", 4),
        ("stats nowhere.jsonl", 4),
        ("run nowhere.jsonl --out out --master /bin/true", 4),
    ] {
        let output = Command::new("sh")
            .current_dir(folder.path())
            .args(["-c", &format!("\"$0\" {arguments} 2>/dev/full")])
            .arg(program())
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments}");
    }
    assert!(folder.path().join("sliced.jsonl").exists() && !folder.path().join("nothing.jsonl").exists());
}

/// A server of something else, for as long as the tests run.
fn other_server() -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n");
        }
    });
    address
}

/// The report holds the metadata, one level deeper than the trace does.
#[test]
fn metadata_may_be_as_deep_as_a_row() {
    let depth = 127;
    let metadata = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let header =
        format!(r#"{{"type":"master_rpc_trace","version":1,"time_unit":"us","metadata":{metadata}}}"#);
    let row = r#"{"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}"#;
    let ran = run_text(&format!("{header}\n{row}\n"), VERSIONS[1], &[]);
    ran.succeeded();
}

#[test]
fn what_cannot_be_run_is_said() {
    let mut trace = Trace::v1();
    trace.write("a", &["k"], 64, 0);
    let jemalloc = run(&trace, VERSIONS[1], &["--require-allocator", "jemalloc"]);
    assert_eq!(jemalloc.code, Some(4), "{}", jemalloc.stderr);
    assert!(jemalloc.stderr.contains("glibc is loaded, jemalloc is required"), "{}", jemalloc.stderr);
    // The older release cannot keep its metrics on loopback by itself.
    let open = run(&trace, VERSIONS[0], &["--shared-network"]);
    assert_eq!(open.code, Some(5), "{}", open.stderr);
    run(&trace, VERSIONS[0], &["--shared-network", "--allow-open-metrics"]).succeeded();
    run(&trace, VERSIONS[1], &["--shared-network"]).succeeded();
    let both = run(&trace, VERSIONS[1], &["--master-cpus", "0", "--replay-cpus", "0"]);
    assert_eq!(both.code, Some(5), "{}", both.stderr);
    assert_eq!(run_text("{}", VERSIONS[1], &[]).code, Some(4));
    let no_workload = Trace::v2(&["a"], 64).unmount("a");
    assert_eq!(run(&no_workload, VERSIONS[1], &[]).code, Some(4));
}
