//! What was not as planned while a process ran, and when it was seen.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};

/// Something that was not as planned: evidence with a time, usable as a predeclared reason to invalidate a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Violation {
    /// When it was seen, on the monotonic clock, since the process was started.
    pub at_ns: u64,
    /// When it was seen, on the wall clock, since 1970.
    pub at_unix_ns: u64,
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
    /// The kernel refused the memory policy, and the run did not demand it.
    MemoryPolicyRefused {
        /// The nodes asked for.
        requested: NodeSet,
        /// The kernel's error number.
        errno: i32,
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
            Self::MemoryPolicyRefused { requested, errno } => {
                write!(f, "the kernel refused memory on nodes {requested} (error {errno})")
            }
            Self::LeftBehind { pids } => write!(f, "{} processes were left behind: {pids:?}", pids.len()),
        }
    }
}
