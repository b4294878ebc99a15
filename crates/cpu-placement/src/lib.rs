//! Which CPUs and which memory a process gets, set before exec and proved afterwards.
//!
//! [`Topology`] is the machine, [`Plan`] says which cores each process gets, [`Run`] starts a program there and
//! [`Finished`] says how it ended, what it used, and every [`Violation`] of its placement that was seen.
//! [`HostRecord`] is what a reader of a measurement must know of the machine, and [`NodeLock`] keeps builds and
//! measurements of one node apart.
//!
//! ```
//! use cpu_placement::{CancelToken, CpuSet, Outcome, Run, Topology};
//!
//! let topology = Topology::read()?;
//! let last: CpuSet = topology.allowed.last().into_iter().collect();
//! let finished = Run::new("/bin/true").cpus(last.clone()).wait(&CancelToken::new())?;
//! assert_eq!(finished.outcome, Outcome::Exited(0));
//! assert_eq!(finished.affinity.at_end, Some(last));
//! assert!(finished.violations.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

#[allow(unsafe_code, reason = "system calls without a safe wrapper; the only such module")]
mod bind;
mod cancel;
mod elsewhere;
mod error;
mod finished;
mod hazard;
mod host;
mod load;
mod lock;
mod observed;
mod orphans;
mod paired;
mod plan;
mod preflight;
mod procfs;
mod residency;
mod run;
mod running;
mod set;
mod suspend;
mod telemetry;
mod terminal;
mod topology;
mod verify;
mod violation;
mod watch;

pub use crate::{
    cancel::CancelToken,
    elsewhere::keep_off,
    error::SpawnError,
    finished::{Affinity, Finished, MemoryPlacement, Misplaced, Outcome},
    hazard::Hazard,
    host::{Counts, HostRecord},
    load::{CpuTimes, INTERRUPTS_KEPT, InterruptCount, LoadKind, LoadLimits, SetLoad},
    lock::{Holder, LockError, NodeLock},
    observed::Observed,
    orphans::Orphans,
    paired::{NotAlike, PADDING_VARIABLE, StartLayout, check_alike, equalise_environment, same_length_names},
    plan::{Housekeeping, Plan, PlanError, PlanRequest, PlannedSet, SetRequest, Siblings},
    preflight::{BUSIEST_PPM, MIN_SAMPLES, Preflight, SEEN_PPM, Threads},
    residency::{Residency, ResidencyMethod},
    run::{Binding, DEFAULT_GRACE, Input, MemoryBinding, Output, Run},
    running::Running,
    set::{CpuSet, MAX_INDEX, NodeSet, ParseSetError},
    telemetry::{Range, Telemetry},
    topology::{Cache, Core, CpuKind, Node, Package, Source, Topology, TopologyError, cgroup::Throttling},
    verify::{ProcessPlacement, ThreadPlacement, VerifyError},
    violation::{Violation, ViolationKind},
    watch::{DUTY_DIVISOR, Migrations, Observe, SAMPLE_EVERY, Watched},
};
