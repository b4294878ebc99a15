//! What was not as planned while a process ran, and when it was seen.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load::LoadKind;
use crate::set::{CpuSet, NodeSet};

/// Something that was not as planned: evidence with a time, usable as a predeclared reason to invalidate a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Violation {
    /// When it was first seen, on the monotonic clock, since the process was started.
    pub at_ns: u64,
    /// When it was first seen, on the wall clock, since 1970.
    pub at_unix_ns: u64,
    /// How many times the same was seen.
    pub times: u64,
    /// What was seen.
    #[serde(flatten)]
    pub kind: ViolationKind,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} ms: {}", self.at_ns / 1_000_000, self.kind)
    }
}

/// The kinds of [`Violation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ViolationKind {
    /// A thread's affinity, read back from the kernel, was not the requested one.
    AffinityDiffers {
        /// The thread.
        tid: u32,
        /// What was asked for.
        requested: CpuSet,
        /// What the kernel said.
        found: CpuSet,
    },
    /// A thread was seen on a CPU outside the requested set.
    RanOutside {
        /// The thread.
        tid: u32,
        /// The CPU it was on.
        cpu: u32,
    },
    /// The process was moved although its set is a single CPU.
    Migrated {
        /// How often.
        count: u64,
    },
    /// The kernel refused the memory policy, and the run did not demand it.
    MemoryPolicyRefused {
        /// The nodes asked for.
        requested: NodeSet,
        /// The kernel's error number.
        errno: i32,
    },
    /// Memory of the process was on other nodes than requested.
    MemoryElsewhere {
        /// The nodes asked for.
        requested: NodeSet,
        /// Pages found elsewhere.
        pages: u64,
        /// Pages looked at.
        of: u64,
    },
    /// Automatic NUMA balancing moved pages of the process while it ran.
    MemoryMoved {
        /// How many pages.
        pages: u64,
    },
    /// The cgroup ran out of processor time and the process was held back.
    Throttled {
        /// In how many periods.
        periods: u64,
        /// For how long.
        held_back_ns: u64,
    },
    /// More else ran on the set than the run's limits allow.
    CompetingLoad {
        /// What.
        what: LoadKind,
        /// Its share of the set's time, in millionths.
        ppm: u64,
        /// The limit.
        limit_ppm: u64,
    },
    /// The program was stopped for a while, with this process, and went on (Ctrl-Z).
    Suspended {
        /// For how long.
        for_ns: u64,
    },
    /// A thread was found stopped by a signal or by a debugger.
    Stopped {
        /// The thread.
        tid: u32,
    },
    /// Processes of the run's group were still there when the program ended. They were killed.
    LeftBehind {
        /// Their process ids.
        pids: Vec<u32>,
    },
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AffinityDiffers { tid, requested, found } => {
                write!(f, "thread {tid} may run on CPUs {found}, not {requested}")
            }
            Self::RanOutside { tid, cpu } => write!(f, "thread {tid} was on CPU {cpu}, outside its set"),
            Self::Migrated { count } => write!(f, "moved {count} times although its set is one CPU"),
            Self::MemoryPolicyRefused { requested, errno } => {
                write!(f, "the kernel refused memory on nodes {requested} (error {errno})")
            }
            Self::MemoryElsewhere { requested, pages, of } => {
                write!(f, "{pages} of {of} pages were not on nodes {requested}")
            }
            Self::MemoryMoved { pages } => write!(f, "NUMA balancing moved {pages} pages"),
            Self::Throttled { periods, held_back_ns } => {
                write!(f, "held back for {held_back_ns} ns in {periods} periods by the cgroup's quota")
            }
            Self::CompetingLoad { what, ppm, limit_ppm } => {
                write!(f, "{what:?} took {ppm} ppm of the set, above the limit of {limit_ppm}")
            }
            Self::Suspended { for_ns } => write!(f, "suspended for {} ms", for_ns / 1_000_000),
            Self::Stopped { tid } => write!(f, "thread {tid} was stopped by a signal or a debugger"),
            Self::LeftBehind { pids } => write!(f, "{} processes were left behind: {pids:?}", pids.len()),
        }
    }
}

/// Violations, each distinct one once.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    seen: Vec<Violation>,
}

impl Violations {
    pub(crate) fn record(&mut self, kind: ViolationKind, at_ns: u64, started_unix_ns: u64) {
        match self.seen.iter_mut().find(|violation| violation.kind == kind) {
            Some(violation) => violation.times += 1,
            None => {
                let at_unix_ns = started_unix_ns.saturating_add(at_ns);
                self.seen.push(Violation { at_ns, at_unix_ns, times: 1, kind });
            }
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.seen)
    }
}
