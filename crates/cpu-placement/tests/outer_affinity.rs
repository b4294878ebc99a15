//! Somebody narrowed this process before it started (`taskset`, a scheduler). Alone in its binary: affinity belongs
//! to the whole process.

use cpu_placement::{CancelToken, CpuSet, Hazard, Plan, PlanError, PlanRequest, Run, SpawnError, Topology};
use nix::sched::{CpuSet as Mask, sched_setaffinity};
use nix::unistd::Pid;

#[test]
fn a_narrowed_process_does_not_reach_outside() {
    let before = Topology::read().expect("Linux");
    let (Some(first), Some(last)) = (before.allowed.first(), before.allowed.last()) else { return };
    if first == last {
        eprintln!("skipped: this needs two CPUs");
        return;
    }
    let mut mask = Mask::new();
    mask.set(first as usize).expect("a small number");
    // The test harness runs this in a thread, and the process's affinity is its main thread's.
    let main_thread = Pid::this();
    sched_setaffinity(main_thread, &mask).expect("narrowing is always allowed");
    let topology = Topology::read().expect("Linux");
    assert_eq!(topology.allowed, CpuSet::from_iter([first]));
    let outside = CpuSet::from_iter([last]);
    let error = Run::new("/bin/true").cpus(outside.clone()).wait(&CancelToken::new()).expect_err("outside");
    assert!(matches!(&error, SpawnError::CpusNotAllowed { missing, .. } if *missing == outside), "{error:?}");
    assert!(topology.hazards(&outside).contains(&Hazard::NotAllowed { cpus: outside }));
    let plan = Plan::new(&topology, &PlanRequest::uniform(1, 1));
    assert!(
        matches!(plan, Err(PlanError::TooFewCores { needed: 1, usable: 0, kept: 1, allowed: 1, .. })),
        "{plan:?}"
    );
}
