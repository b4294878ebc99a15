//! Traces, and runs of the command with real masters.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::masters;

pub(crate) const VERSIONS: [&str; 2] = ["0.3.12.post1", "0.3.13.post1"];

/// The packages that a release of the master is installed in. The first to ask installs it.
pub(crate) fn packages(version: &str) -> PathBuf {
    static FOUND: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let index = VERSIONS.iter().position(|known| *known == version).expect("a known version");
    let find = || {
        let master = masters::start(version, &[]);
        let program = std::fs::read_link(format!("/proc/{}/exe", master.pid())).expect("a running master");
        program.ancestors().nth(2).expect("packages/mooncake/mooncake_master").to_owned()
    };
    FOUND[index].get_or_init(find).clone()
}

pub(crate) fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("replay-master").to_owned()
}

/// A trace that is built row by row.
pub(crate) struct Trace {
    pub(crate) text: String,
    pub(crate) rows: usize,
}

impl Trace {
    pub(crate) fn v1() -> Self {
        Trace {
            text: r#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}"#.to_owned() + "\n",
            rows: 0,
        }
    }

    pub(crate) fn v2(clients: &[&str], segment_bytes: u64) -> Self {
        let header = r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}"#;
        let mut trace = Trace { text: header.to_owned() + "\n", rows: 0 };
        for client in clients {
            trace.row(client, "ReMountSegment", 0, &json!({ "phase": "setup", "segments": [] }));
        }
        let mount = json!({ "phase": "setup", "segment_id": "s", "size_bytes": segment_bytes });
        trace.row(clients[0], "MountSegment", 0, &mount);
        trace
    }

    /// Adds a row and gives its id.
    pub(crate) fn row(&mut self, client: &str, op: &str, timestamp_us: u64, more: &Value) -> String {
        let id = format!("e{}", self.rows);
        let mut row = json!({ "id": id, "timestamp_us": timestamp_us, "client_id": client, "op": op });
        let fields = row.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        writeln!(self.text, "{row}").expect("a string takes every write");
        self.rows += 1;
        id
    }

    pub(crate) fn work(&mut self, client: &str, op: &str, timestamp_us: u64, mut more: Value) -> String {
        if self.text.contains("\"version\":2") {
            more["phase"] = json!("workload");
        }
        self.row(client, op, timestamp_us, &more)
    }

    pub(crate) fn write(&mut self, client: &str, keys: &[&str], bytes: u64, timestamp_us: u64) -> String {
        let sizes = vec![bytes; keys.len()];
        let start =
            self.work(client, "BatchPutStart", timestamp_us, json!({ "keys": keys, "value_sizes": sizes }));
        self.work(client, "BatchPutEnd", timestamp_us, json!({ "keys": keys, "put_start": start }))
    }

    pub(crate) fn unmount(mut self, client: &str) -> Self {
        self.row(client, "UnmountSegment", 0, &json!({ "phase": "teardown", "segment_id": "s" }));
        self
    }
}

/// One run of the command.
pub(crate) struct Ran {
    pub(crate) folder: TempDir,
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn json(&self, file: &str) -> Value {
        let text = std::fs::read_to_string(self.out().join(file)).expect("an output");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub(crate) fn result(&self) -> Value {
        self.json("result.json")
    }

    pub(crate) fn operation(&self, phase: &str, op: &str) -> Value {
        self.json("replay.json")["phases"][phase]["operations"][op].clone()
    }

    pub(crate) fn samples(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.out().join("samples.jsonl")).expect("samples");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{}\n{:#}", self.stderr, self.result());
        assert_eq!(self.result()["success"], true);
        let left: Vec<_> = processes_of(&self.out());
        assert!(left.is_empty(), "{left:?} are left");
    }
}

/// Processes that were started in this folder, as masters are, or were told of it, as replayers are.
pub(crate) fn processes_of(out: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let at_home =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(out));
    let name = out.to_str().expect("UTF-8");
    let is_told = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(name))
    };
    pids.filter(|pid| at_home(pid) || is_told(pid)).collect()
}

pub(crate) fn run(trace: &Trace, version: &str, arguments: &[&str]) -> Ran {
    run_text(&trace.text, version, arguments)
}

pub(crate) fn run_text(trace: &str, version: &str, arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), trace).expect("written");
    let output = Command::new(program())
        .current_dir(folder.path())
        .args(["run", "trace.jsonl", "--out", "out", "--python-env"])
        .arg(packages(version))
        .args(arguments)
        .output()
        .expect("the command runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { folder, code: output.status.code(), stderr }
}

/// A run that is under way: what it needs to be disturbed.
pub(crate) struct Underway {
    pub(crate) child: Child,
    pub(crate) folder: TempDir,
}

#[expect(clippy::disallowed_methods, reason = "the command is disturbed while it runs")]
pub(crate) fn start(trace: &Trace, version: &str, arguments: &[&str]) -> Underway {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("trace.jsonl"), &trace.text).expect("written");
    let child = std::process::Command::new(program())
        .current_dir(folder.path())
        .args(["run", "trace.jsonl", "--out", "out", "--python-env"])
        .arg(packages(version))
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command starts");
    Underway { child, folder }
}

impl Underway {
    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Waits until a file of the outputs says this.
    pub(crate) fn wait_for(&self, file: &str, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let says = || std::fs::read_to_string(self.out().join(file)).is_ok_and(|found| found.contains(text));
        while !says() {
            assert!(Instant::now() < deadline, "{file} never says {text:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it runs");
    }

    /// What `pids.json` says of a process.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        let pids = std::fs::read_to_string(self.out().join("pids.json")).expect("pids");
        let pids: Value = serde_json::from_str(&pids).expect("JSON");
        Pid::from_raw(i32::try_from(pids[name].as_i64().expect("a pid")).expect("a pid"))
    }

    pub(crate) fn end(mut self) -> (Option<i32>, Value) {
        let code = self.child.wait().expect("it ends").code();
        let left = processes_of(&self.out());
        assert!(left.is_empty(), "{left:?} are left");
        let result = std::fs::read_to_string(self.out().join("result.json")).unwrap_or_default();
        (code, serde_json::from_str(&result).unwrap_or_default())
    }
}

/// Two CPUs that may be used here.
pub(crate) fn two_cpus() -> [String; 2] {
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("an affinity");
    let mut cpus = (0..nix::sched::CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    [(); 2].map(|()| cpus.next().expect("two CPUs are needed to keep two processes apart").to_string())
}

/// A trace of one client that asks for the same key so often.
pub(crate) fn paced_trace(calls: u64, every_us: u64) -> Trace {
    let mut trace = Trace::v2(&["a"], 64 << 20);
    for call in 0..calls {
        trace.work("a", "BatchExistKey", call * every_us, json!({ "keys": ["k"] }));
    }
    trace.unmount("a")
}
