//! Placement is verified while a process runs.

use std::time::Duration;

use cpu_placement::{
    CancelToken, CpuSet, MemoryBinding, Observed, Outcome, Preflight, Run, Threads, Topology, ViolationKind,
};
use nix::sched::{CpuSet as Mask, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

fn two_cpus() -> Option<(u32, u32)> {
    let allowed = Topology::read().expect("a Linux machine").allowed;
    let pair = allowed.last().zip(allowed.first()).filter(|(last, first)| last != first);
    if pair.is_none() {
        eprintln!("skipped: this needs two CPUs");
    }
    pair
}

fn busy(ms: u32) -> Run {
    let script = format!(
        "end=$(($(date +%s%N)/1000000+{ms})); while [ $(($(date +%s%N)/1000000)) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done"
    );
    Run::new("/bin/sh").args(["-c", &script]).env("PATH", "/usr/bin:/bin")
}

fn set(cpu: u32) -> CpuSet {
    [cpu].into_iter().collect()
}

fn move_to(pid: u32, cpu: u32) {
    let mut mask = Mask::new();
    mask.set(cpu as usize).expect("a small number");
    sched_setaffinity(Pid::from_raw(i32::try_from(pid).expect("a pid")), &mask).expect("our own child");
}

#[test]
fn a_child_that_stays_has_no_violation() {
    let Some((cpu, _)) = two_cpus() else { return };
    let finished = busy(400).cpus(set(cpu)).wait(&CancelToken::new()).expect("it starts");
    assert_eq!(finished.violations, []);
    let watched = finished.watched.expect("watched by default");
    assert_eq!(watched.cpus_seen, set(cpu));
    assert!(watched.samples >= 4, "{watched:?}");
    assert!(!watched.waiter_on_set);
    let load = watched.load.value().expect("/proc/stat is there");
    assert_eq!(load.cpus, 1);
    assert!(load.own_ns > 0 && load.times.busy_ns() > 0, "{load:?}");
}

#[test]
fn a_child_moved_by_hand_is_detected_every_time() {
    let Some((cpu, other)) = two_cpus() else { return };
    for attempt in 0..8 {
        let running = busy(400).cpus(set(cpu)).start().expect("it starts");
        let pid = running.pid();
        let mover = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30 + 37 * attempt));
            move_to(pid, other);
        });
        let finished = running.wait(&CancelToken::new()).expect("it ends");
        mover.join().expect("it moved");
        let differs = ViolationKind::AffinityDiffers { tid: pid, requested: set(cpu), found: set(other) };
        assert!(
            finished.violations.iter().any(|violation| violation.kind == differs),
            "{:?}",
            finished.violations
        );
        assert_eq!(finished.affinity.at_end, Some(set(other)));
        assert!(finished.violations[0].at_ns > 20_000_000, "{:?}", finished.violations);
    }
}

/// Between two looks, and back before the end: only the kernel's own counter shows it.
#[test]
fn a_child_moved_there_and_back_is_detected() {
    let Some((cpu, other)) = two_cpus() else { return };
    let running = busy(600).cpus(set(cpu)).start().expect("it starts");
    let pid = running.pid();
    let mover = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(250));
        move_to(pid, other);
        // Long enough for a child of the shell, which the move does not reach, to be waited for.
        std::thread::sleep(Duration::from_millis(40));
        move_to(pid, cpu);
    });
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    mover.join().expect("it moved");
    let watched = finished.watched.clone().expect("watched by default");
    if watched.migrations.value().is_none() {
        eprintln!("skipped: this kernel counts no migrations");
        return;
    }
    let migrated = |kind: &ViolationKind| matches!(kind, ViolationKind::Migrated { .. });
    assert!(finished.violations.iter().any(|violation| migrated(&violation.kind)), "{finished:?}");
}

#[test]
fn memory_is_bound_and_found_there() {
    let topology = Topology::read().expect("a Linux machine");
    let Some(node) = topology.nodes.first().map(|node| node.index) else { return };
    let nodes = [node].into_iter().collect();
    let finished =
        busy(300).memory(MemoryBinding::wanted(nodes)).wait(&CancelToken::new()).expect("it starts");
    assert_eq!(finished.outcome, Outcome::Exited(0));
    let watched = finished.watched.expect("watched by default");
    match (finished.memory.refused_errno, watched.residency) {
        (None, Observed::Value(residency)) => assert!(residency.total() > 0, "{residency:?}"),
        (refused, residency) => eprintln!("not available here: {refused:?} {residency:?}"),
    }
}

#[test]
fn memory_on_a_node_that_does_not_exist() {
    let nodes: cpu_placement::NodeSet = "900".parse().expect("a set");
    let run = busy(10).memory(MemoryBinding::required(nodes.clone()));
    let error = run.wait(&CancelToken::new()).expect_err("there is no such node");
    assert_eq!(error.to_string(), "bind memory to the NUMA nodes 900");
    let run = busy(10).memory(MemoryBinding::wanted(nodes));
    let finished = run.wait(&CancelToken::new()).expect("the refusal does not stop it");
    assert!(matches!(finished.violations[0].kind, ViolationKind::MemoryPolicyRefused { .. }), "{finished:?}");
}

/// Not a test: the program that the preflight tests run, this very binary.
#[test]
#[ignore = "a helper for the other tests"]
fn helper_threads() {
    let threads: u32 = std::env::var("THREADS").expect("set by the test").parse().expect("a number");
    // So much processor time that starting up does not count, however busy the machine is.
    let work = || {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("always there"));
        while used() < Duration::from_millis(250) {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
    };
    let others: Vec<_> = (1..threads).map(|_| std::thread::spawn(work)).collect();
    work();
    others.into_iter().for_each(|thread| thread.join().expect("it only counts"));
}

fn with_threads(threads: u32) -> Preflight {
    let run = Run::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_threads", "--ignored"])
        .env("THREADS", threads.to_string());
    let run = match two_cpus() {
        Some((cpu, _)) => run.cpus(set(cpu)),
        None => run,
    };
    let preflight = Preflight::of(&run, &CancelToken::new()).expect("it starts");
    assert_eq!(preflight.finished.outcome, Outcome::Exited(0));
    let watched = preflight.finished.watched.as_ref().expect("closely");
    assert_eq!(watched.processes_max, 1, "threads are not processes: {watched:?}");
    preflight
}

/// On one CPU, where only one of them can run at a time. On a machine so busy that the watching thread gets no time
/// the answer is that nobody can tell, which is no wrong one.
fn check_threads(threads: u32, expected: Threads) {
    for _ in 0..5 {
        let preflight = with_threads(threads);
        if preflight.threads != Threads::CannotTell {
            assert_eq!(preflight.threads, expected, "{preflight:?}");
            return;
        }
    }
    eprintln!("skipped: this machine is too busy");
}

#[test]
fn the_preflight_counts_threads() {
    check_threads(1, Threads::One);
    check_threads(3, Threads::Several);
}
