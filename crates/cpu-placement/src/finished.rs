//! What is known of a process that has ended.

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};
use crate::violation::Violation;
use crate::watch::Watched;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It exited by itself, with this status.
    Exited(i32),
    /// A signal ended it that a limit or a cancellation did not cause.
    Signalled(i32),
    /// It ran past its time limit and was ended, with its whole group.
    TimedOut,
    /// The token was cancelled and it was ended, with its whole group.
    Cancelled,
}

impl Outcome {
    /// Whether it exited with status 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// The affinity asked for, and what the kernel said of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Affinity {
    /// What the run asked for; nothing when it left the inherited affinity.
    pub requested: Option<CpuSet>,
    /// Read by the child itself, between fork and exec.
    pub before_exec: CpuSet,
    /// Read by the parent from `/proc` just after exec; nothing when the process was gone already.
    pub after_exec: Option<CpuSet>,
    /// Read by the parent from `/proc` after the program ended and before it was reaped.
    pub at_end: Option<CpuSet>,
}

/// The memory nodes asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MemoryPlacement {
    /// The nodes the run asked for; nothing when it left the inherited policy.
    pub requested: Option<NodeSet>,
    /// The kernel's error number when it refused.
    pub refused_errno: Option<i32>,
}

/// A process was not where it should have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "keep process {pid} in its place: {}",
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
)]
pub struct Misplaced {
    /// The process.
    pub pid: u32,
    /// What was not as planned.
    pub violations: Vec<Violation>,
}

/// A process that has ended: how, what it used, and whether it was where it should have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use = "a process that was started may have failed or run in the wrong place"]
#[non_exhaustive]
pub struct Finished {
    /// Its process id, which was also its process group.
    pub pid: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the group had to be killed because it outlived the grace after SIGTERM.
    pub killed_after_grace: bool,
    /// When it was started, on the wall clock, since 1970.
    pub started_unix_ns: u64,
    /// From just before the fork until its end was seen, on the monotonic clock.
    pub wall_ns: u64,
    /// How long of that it was stopped together with this process (Ctrl-Z).
    #[serde(default)]
    pub suspended_ns: u64,
    /// Processor time in user mode, of it and of the descendants it waited for.
    pub user_ns: u64,
    /// Processor time in the kernel, of it and of the descendants it waited for.
    pub system_ns: u64,
    /// The largest resident size of any one of those processes, as `wait4` reports it.
    pub max_rss_bytes: u64,
    /// The resident size of the starting process at the fork. The kernel counts the copy made by the fork towards
    /// the child, so a [`max_rss_bytes`](Self::max_rss_bytes) up to this says nothing about the program.
    pub max_rss_floor_bytes: u64,
    /// Page faults served without reading from a device.
    pub minor_faults: u64,
    /// Page faults that had to read from a device.
    pub major_faults: u64,
    /// Times it gave up the CPU by waiting.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
    /// The CPUs it was allowed to use.
    pub affinity: Affinity,
    /// The memory it was allowed to use.
    pub memory: MemoryPlacement,
    /// What was seen while it ran; nothing when only its ends were looked at.
    pub watched: Option<Watched>,
    /// What was not as planned, in the order it was seen.
    pub violations: Vec<Violation>,
}

impl Finished {
    /// A process that used nothing, for executors that run none (tests, replays of evidence). Fields are set
    /// afterwards.
    pub fn with_outcome(outcome: Outcome) -> Self {
        Self {
            pid: 0,
            outcome,
            killed_after_grace: false,
            started_unix_ns: 0,
            wall_ns: 0,
            suspended_ns: 0,
            user_ns: 0,
            system_ns: 0,
            max_rss_bytes: 0,
            max_rss_floor_bytes: 0,
            minor_faults: 0,
            major_faults: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            affinity: Affinity::default(),
            memory: MemoryPlacement::default(),
            watched: None,
            violations: Vec::new(),
        }
    }

    /// Whether the process was where it should have been, all the time, as far as could be seen.
    ///
    /// # Errors
    /// Something was not as planned.
    pub fn check_placement(&self) -> Result<(), Misplaced> {
        if self.violations.is_empty() {
            return Ok(());
        }
        Err(Misplaced { pid: self.pid, violations: self.violations.clone() })
    }
}
