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
mod error;
mod finished;
mod host;
mod lock;
mod plan;
mod procfs;
mod run;
mod set;
mod topology;
mod violation;

pub use crate::{
    cancel::CancelToken,
    error::SpawnError,
    finished::{Affinity, Finished, MemoryPlacement, Outcome},
    host::HostRecord,
    lock::{Holder, LockError, NodeLock},
    plan::{Housekeeping, Plan, PlanError, PlanRequest, PlannedSet, SetRequest, Siblings},
    run::{DEFAULT_GRACE, Input, MemoryBinding, Output, Run, Running},
    set::{CpuSet, MAX_INDEX, NodeSet, ParseSetError},
    topology::{Cache, Core, CpuKind, Node, Package, Source, Topology, TopologyError},
    violation::{Violation, ViolationKind},
};
