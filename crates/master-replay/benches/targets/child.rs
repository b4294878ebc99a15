//! The processes that are measured: this program again, with a role.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use master_replay::{Drive, Trace};
use master_wire::Dialect;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::master::{Script, StandIn};

use crate::bare;

/// Plays a role if the arguments name one.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [_, "role:load", trace] => play_load(trace),
        [_, "role:replay", trace, address, out, options] => play_replay(trace, address, out, options),
        [_, "role:bare", address, cpu, rate, calls] => play_bare(address, cpu, rate, calls),
        [_, "role:sleep", cpu] => play_sleep(cpu),
        [_, "role:serve"] => play_serve(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn play_load(trace: &str) {
    let begun = Instant::now();
    let trace = Trace::open(trace).expect("a valid trace");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(trace.len() > 0);
    println!("{}", json!({ "seconds": seconds, "peak_bytes": peak_bytes() }));
}

fn play_replay(trace: &str, address: &str, out: &str, options: &str) {
    let options: Options = serde_json::from_str(options).expect("options");
    bind(Pid::this(), options.cpu);
    let mut drive = Drive::new(trace, address.parse().expect("an address"), out);
    drive.options.workers = NonZeroU32::new(options.in_flight).expect("some");
    drive.options.spin_us = options.spin_us;
    let begun = Instant::now();
    let report = drive.run(&CancelToken::new(), |_, _| {}).expect("replayed").expect("the only replayer");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(report.is_success(), "{:?}", report.errors);
    // Loading comes before the origin, outputs after the last finish.
    let origin_to_end = (monotonic_us() - report.replay_origin_monotonic_us) as f64 / 1e6;
    let output_seconds = origin_to_end - report.summary.elapsed_us as f64 / 1e6;
    let found = json!({
        "report": report, "peak_bytes": peak_bytes(), "output_seconds": output_seconds, "whole_seconds": seconds,
    });
    println!("{found}");
}

fn play_bare(address: &str, cpu: &str, rate: &str, calls: &str) {
    bind(Pid::this(), cpu.parse().expect("a CPU"));
    let (rate, calls): (u64, u64) = (rate.parse().expect("a rate"), calls.parse().expect("a count"));
    let before = own_cpu_s();
    let lag_p99_us = bare::send(address.parse().expect("an address"), rate, calls);
    let cpu_us = (own_cpu_s() - before) * 1e6 / calls as f64;
    println!("{}", json!({ "lag_p99_us": lag_p99_us, "cpu_us": cpu_us }));
}

/// What no sender that sleeps can do without.
fn play_sleep(cpu: &str) {
    bind(Pid::this(), cpu.parse().expect("a CPU"));
    nix::sys::prctl::set_timerslack(1).expect("set");
    let before = own_cpu_s();
    (0..SLEEPS).for_each(|_| std::thread::sleep(Duration::from_micros(200)));
    println!("{}", json!({ "cpu_us": (own_cpu_s() - before) * 1e6 / f64::from(SLEEPS) }));
}

const SLEEPS: u32 = 5_000;

fn play_serve() {
    let master = StandIn::start(Dialect::D, Script::honest());
    println!("{}", master.address());
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
}

fn monotonic_us() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    u64::try_from(Duration::from(now).as_micros()).expect("fits")
}

fn own_cpu_s() -> f64 {
    let used = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock");
    Duration::from(used).as_secs_f64()
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
}

fn ask(arguments: &[&str]) -> Value {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output().expect("started");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("an answer")
}

pub(crate) struct Loaded {
    pub(crate) seconds: f64,
    pub(crate) peak_bytes: u64,
}

pub(crate) fn load(trace: &Path) -> Loaded {
    let found = ask(&["role:load", &trace.to_string_lossy()]);
    Loaded {
        seconds: found["seconds"].as_f64().expect("seconds"),
        peak_bytes: found["peak_bytes"].as_u64().expect("bytes"),
    }
}

/// How a replay is run.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Options {
    pub(crate) cpu: usize,
    pub(crate) in_flight: u32,
    pub(crate) spin_us: u64,
}

/// A replay that was run.
pub(crate) struct Ran {
    report: Value,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) output_seconds: f64,
    /// From before the trace is read until the outputs are there.
    pub(crate) whole_seconds: f64,
}

impl Ran {
    pub(crate) fn engine(&self, name: &str) -> u64 {
        self.report["replayer"][name].as_u64().expect("a count")
    }

    pub(crate) fn lag_p99_us(&self) -> f64 {
        self.report["own_lag_us"]["p99"].as_f64().expect("a time")
    }

    /// The parts of a latency that are the replayer's own, as it states them: until the packet had left, at most, and how long a
    /// reply had been there when it was read.
    pub(crate) fn own_p50_us(&self) -> [f64; 2] {
        ["write_us", "unread_us"].map(|part| self.report["replayer"][part]["p50"].as_f64().expect("a time"))
    }

    pub(crate) fn latency_p50_us(&self) -> f64 {
        self.report["operations"]["BatchExistKey"]["client_call_latency_us"]["p50"].as_f64().expect("a time")
    }
}

pub(crate) fn replay(trace: &Path, address: SocketAddr, options: Options) -> Ran {
    let out: PathBuf = trace.with_extension("out");
    std::fs::create_dir_all(&out).expect("a folder");
    let options = serde_json::to_string(&options).expect("options");
    let found = ask(&[
        "role:replay",
        &trace.to_string_lossy(),
        &address.to_string(),
        &out.to_string_lossy(),
        &options,
    ]);
    std::fs::remove_dir_all(&out).expect("a folder of our own");
    let report = found["report"].clone();
    Ran {
        seconds: report["elapsed_us"].as_f64().expect("a time") / 1e6,
        cpu_seconds: report["replayer"]["cpu_ns"].as_f64().expect("a time") / 1e9,
        peak_bytes: found["peak_bytes"].as_u64().expect("bytes"),
        output_seconds: found["output_seconds"].as_f64().expect("seconds"),
        whole_seconds: found["whole_seconds"].as_f64().expect("seconds"),
        report,
    }
}

pub(crate) struct Bare {
    pub(crate) lag_p99_us: f64,
    pub(crate) cpu_us: f64,
}

pub(crate) fn bare(address: SocketAddr, cpu: usize, rate: u64, calls: u64) -> Bare {
    let found =
        ask(&["role:bare", &address.to_string(), &cpu.to_string(), &rate.to_string(), &calls.to_string()]);
    Bare {
        lag_p99_us: found["lag_p99_us"].as_f64().expect("a time"),
        cpu_us: found["cpu_us"].as_f64().expect("a time"),
    }
}

/// What a sleep of 200 µs takes of the processor, in µs.
pub(crate) fn sleep_us(cpu: usize) -> f64 {
    ask(&["role:sleep", &cpu.to_string()])["cpu_us"].as_f64().expect("a time")
}

/// A stand-in in a process of its own.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Served {
    pub(crate) fn start(cpu: usize) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("role:serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
        bind_all(child.id(), cpu);
        Served { child, address: line.trim().parse().expect("an address") }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its input ends, and with that the process; a second end would be no news.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub(crate) fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::this()).expect("a process may ask where it runs");
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

fn bind(thread: Pid, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a CPU of this machine");
    sched_setaffinity(thread, &set).expect("a process may bind itself and its children");
}

pub(crate) fn bind_all(process: u32, cpu: usize) {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    for task in tasks.flatten() {
        let id: i32 = task.file_name().to_string_lossy().parse().expect("a thread id");
        bind(Pid::from_raw(id), cpu);
    }
}

/// Processor time of a process, in seconds.
pub(crate) fn cpu_of(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name in brackets").1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a count of ticks");
    // In hundredths of a second, whatever the kernel's own tick is.
    (ticks(11) + ticks(12)) / 100.0
}
