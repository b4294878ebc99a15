//! What placement costs, and whether it sees what it must.
//!
//! `cargo bench -p cpu-placement --bench targets -- [--check]`
//!
//! Prints `what  target  measured  met|missed` per line; with `--check`, a miss exits 1. A start with placement and a
//! plain one take turns in batches; of the batches' median differences the smallest counts, because other programs on
//! the set's CPU hold up only the start that is bound to it. Of the runs that are waited for the cheapest counts.

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cpu_placement::{
    Binding, CancelToken, CpuSet, Housekeeping, Plan, PlanRequest, Run, Siblings, Topology, ViolationKind,
};
use nix::sched::{CpuSet as Mask, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

const BATCHES: usize = 12;
const STARTS_PER_BATCH: usize = 25;
const MAX_ADDED_MS: f64 = 2.0;
const SAMPLED_FOR: &str = "5";
const SAMPLED_RUNS: u32 = 3;
const MAX_SAMPLING_PERCENT: f64 = 0.1;
const MOVES: u64 = 20;
const STARTS: usize = 1000;
const MAX_GROWTH_KIB: u64 = 512;

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    let mut report = Report::default();
    let allowed = Topology::read().expect("a Linux machine").allowed;
    let (Some(first), Some(last)) = (allowed.first(), allowed.last()) else { return ExitCode::FAILURE };
    let set: CpuSet = [last].into_iter().collect();
    starts(&mut report, &set);
    sampling(&mut report, &set);
    plans(&mut report);
    if first == last {
        report.note("a child moved by hand", "not measured: this machine has one CPU");
    } else {
        moves(&mut report, &set, first);
        never_applied(&mut report, &set);
    }
    thousand_starts(&mut report, &set);
    if check && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Default)]
struct Report {
    missed: u32,
}

impl Report {
    fn line(&mut self, what: &str, target: &str, measured: &str, met: bool) {
        self.missed += u32::from(!met);
        println!("{what:<52} {target:<22} {measured:<30} {}", if met { "met" } else { "missed" });
    }

    /// A figure without a target.
    fn note(&self, what: &str, measured: &str) {
        println!("{what:<52} {:<22} {measured}", "-");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// One start, in milliseconds: until the program ran, until it had ended, and the processor time of this thread.
struct Start {
    until_started_ms: f64,
    until_ended_ms: f64,
    own_cpu_ms: f64,
}

type Pick = fn(&Start) -> f64;

fn timed<R>(start: impl FnOnce() -> R, end: impl FnOnce(R)) -> Start {
    let (cpu, started) = (thread_cpu(), Instant::now());
    let running = start();
    let until_started_ms = ms(started);
    end(running);
    Start {
        until_started_ms,
        until_ended_ms: ms(started),
        own_cpu_ms: (thread_cpu() - cpu).as_secs_f64() * 1e3,
    }
}

#[expect(clippy::disallowed_methods, reason = "the plain start that placement is compared with")]
fn plain() -> Start {
    let start = || std::process::Command::new("/bin/true").env_clear().spawn().expect("/bin/true starts");
    timed(start, |mut child| {
        child.wait().expect("it ends");
    })
}

fn placed(set: &CpuSet) -> Start {
    let start = || Run::new("/bin/true").cpus(set.clone()).start().expect("/bin/true starts");
    timed(start, |running| {
        let finished = running.wait(&CancelToken::new()).expect("it ends");
        finished.check_placement().expect("it was placed");
    })
}

fn starts(report: &mut Report, set: &CpuSet) {
    let pairs = || (0..STARTS_PER_BATCH).map(|_| [plain(), placed(set)]).collect::<Vec<_>>();
    let batches: Vec<_> = (0..BATCHES).map(|_| pairs()).collect();
    let least = |of_pair: &dyn Fn(&[Start; 2]) -> f64| {
        let medians = batches.iter().map(|pairs| median(pairs.iter().map(of_pair).collect()));
        medians.fold(f64::INFINITY, f64::min)
    };
    let added = |pick: Pick| least(&|[a, b]| pick(b) - pick(a));
    let plain = |pick: Pick| least(&|[a, _]| pick(a));
    let started: Pick = |start| start.until_started_ms;
    let measured = format!("{:.2} ms (plain {:.2} ms)", added(started), plain(started));
    report.line(
        "placement adds to a start",
        &format!("< {MAX_ADDED_MS} ms"),
        &measured,
        added(started) < MAX_ADDED_MS,
    );
    let more: [(&str, Pick); 2] = [
        ("... and to its end", |start| start.until_ended_ms),
        ("... in processor time", |start| start.own_cpu_ms),
    ];
    for (what, pick) in more {
        report.note(what, &format!("{:.2} ms (plain {:.2} ms)", added(pick), plain(pick)));
    }
}

fn thread_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("always allowed");
    let time = |value: nix::sys::time::TimeVal| {
        Duration::from_micros(
            u64::try_from(value.tv_sec() * 1_000_000 + value.tv_usec()).expect("not negative"),
        )
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Threads of this process, and the CPUs the waiting one may use, while it waits.
fn look_at_waiter(tid: Pid) -> (usize, CpuSet) {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("always there");
    (threads, line.trim().parse().expect("a set"))
}

/// One busy run: the share of a CPU that waiting for it took, in percent, and how often it was looked at.
fn waited(set: &CpuSet) -> (f64, u64) {
    let script = "end=$(($(date +%s) + $0)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; done";
    let run =
        Run::new("/bin/sh").args(["-c", script, SAMPLED_FOR]).env("PATH", "/usr/bin:/bin").cpus(set.clone());
    let (before, started) = (thread_cpu(), Instant::now());
    let finished = run.wait(&CancelToken::new()).expect("it ends");
    let percent = (thread_cpu() - before).as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    (percent, finished.watched.map_or(0, |watched| watched.samples))
}

fn sampling(report: &mut Report, set: &CpuSet) {
    let (send, receive) = mpsc::channel();
    let tid = nix::unistd::gettid();
    let observer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        send.send(look_at_waiter(tid)).expect("somebody listens");
    });
    let runs = (0..SAMPLED_RUNS).map(|_| waited(set));
    let (percent, samples) = runs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are runs");
    observer.join().expect("it only looks");
    let (threads, waiter) = receive.recv().expect("it was sent");
    let measured = format!("{percent:.4} % ({samples} looks in {SAMPLED_FOR} s)");
    let target = format!("< {MAX_SAMPLING_PERCENT} % of a core");
    report.line(
        "the waiting thread, everything included",
        &target,
        &measured,
        percent < MAX_SAMPLING_PERCENT,
    );
    let own = threads - 2;
    report.line("threads of its own", "0", &own.to_string(), own == 0);
    let on_set = waiter.intersection(set);
    let measured = format!("waits on {waiter}, set {set}");
    report.line("the waiting thread stays off the set", "no CPU of it", &measured, on_set.is_empty());
}

fn plans(report: &mut Report) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/topologies");
    let table = std::fs::read_to_string(format!("{root}/plans.tsv")).expect("testdata is there");
    let lines: Vec<Vec<&str>> =
        table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    let equal = lines.iter().filter(|line| {
        let xml = std::fs::read_to_string(format!("{root}/{}.xml", line[0])).expect("testdata is there");
        let topology = Topology::from_hwloc_xml(&xml).expect("a machine");
        sketch(&topology, line[1], line[2]) == line[3]
    });
    let equal = equal.count();
    let measured = format!("{equal} of {}", lines.len());
    report.line("plans equal to those written by hand", "all", &measured, equal == lines.len());
}

fn sketch(topology: &Topology, sets: &str, options: &str) -> String {
    let numbered = sets.split(' ').zip(1..);
    let mut request = numbered.fold(PlanRequest::new(), |request, (cores, number)| {
        request.set(format!("set-{number}"), cores.parse().expect("a number"))
    });
    if options == "together" {
        request = request.siblings(Siblings::Together);
    } else if options == "given" {
        request = request.housekeeping(Housekeeping::Given);
    }
    match Plan::new(topology, &request) {
        Ok(plan) => {
            let sets = plan.sets.iter().map(|set| format!("{}/{}@{}", set.cpus, set.idle, set.nodes));
            sets.collect::<Vec<_>>().join(" ")
        }
        Err(error) => format!("failed to {error}"),
    }
}

fn busy(set: &CpuSet) -> Run {
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    Run::new("/bin/sh").args(["-c", script]).cpus(set.clone())
}

fn moves(report: &mut Report, set: &CpuSet, other: u32) {
    let detected = (0..MOVES).filter(|attempt| {
        let running = busy(set).start().expect("it starts");
        let pid = Pid::from_raw(i32::try_from(running.pid()).expect("a pid"));
        let pause = Duration::from_millis(5 + attempt * 7);
        let mover = std::thread::spawn(move || {
            std::thread::sleep(pause);
            let mut mask = Mask::new();
            mask.set(other as usize).expect("a small number");
            sched_setaffinity(pid, &mask).is_ok()
        });
        let finished = running.wait(&CancelToken::new()).expect("it ends");
        let moved = mover.join().expect("it only moves");
        let differs = |kind: &ViolationKind| matches!(kind, ViolationKind::AffinityDiffers { .. });
        !moved || finished.violations.iter().any(|violation| differs(&violation.kind))
    });
    let detected = detected.count() as u64;
    let measured = format!("{detected} of {MOVES}");
    report.line("a child moved by hand is detected", "every time", &measured, detected == MOVES);
}

fn never_applied(report: &mut Report, set: &CpuSet) {
    let finished = busy(set).binding(Binding::Expect).wait(&CancelToken::new()).expect("it ends");
    let failed = finished.check_placement().is_err();
    let measured = if failed { "fails" } else { "passes" };
    report.line("a run whose binding was never applied", "fails", measured, failed);
}

/// Descriptors, children and resident KiB of this process.
fn held() -> (usize, usize, u64) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let own = std::process::id().to_string();
    let is_child = |stat: String| {
        let parent = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.to_owned();
        (parent == own).then_some(())
    };
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let children = processes
        .filter_map(|entry| is_child(std::fs::read_to_string(entry.path().join("stat")).ok()?))
        .count();
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("always there");
    (descriptors, children, resident.trim().trim_end_matches(" kB").parse().expect("a number"))
}

fn thousand_starts(report: &mut Report, set: &CpuSet) {
    let before = held();
    for _ in 0..STARTS {
        placed(set);
    }
    let after = held();
    let grown = after.2.saturating_sub(before.2);
    let same = (after.0, after.1) == (before.0, before.1);
    let (descriptors, children) = (after.0.abs_diff(before.0), after.1.abs_diff(before.1));
    let measured = format!("{descriptors} descriptors, {children} children, {grown} KiB");
    let target = format!("0, 0, < {MAX_GROWTH_KIB} KiB");
    report.line("1,000 starts leave behind", &target, &measured, same && grown < MAX_GROWTH_KIB);
}
