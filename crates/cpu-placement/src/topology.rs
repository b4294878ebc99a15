//! The machine: its cores, caches and memory, and which of them this process may use.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};

mod cgroup;
mod sysfs;

pub(crate) use cgroup::cgroup_cpus;
pub use sysfs::TopologyError;

/// Where a [`Topology`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// `/sys` and `/proc` of the live machine.
    Sysfs,
    /// hwloc on the live machine.
    Hwloc,
    /// A file that hwloc exported.
    HwlocXml,
}

/// One physical core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Core {
    /// Its online hardware threads.
    pub cpus: CpuSet,
    /// The number of its package.
    pub package: u32,
    /// The NUMA node closest to it.
    pub node: Option<u32>,
    /// Index into [`Topology::kinds`]; cores of different kinds are different machines to a benchmark.
    pub kind: usize,
    /// Index into [`Topology::caches`] of its last-level cache.
    pub last_level_cache: Option<usize>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number.
    pub index: u32,
    /// Its online CPUs; none for a node that is memory only.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

/// One data or unified cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cache {
    /// 1 is closest to the core.
    pub level: u32,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

/// CPUs that are alike in design and speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CpuKind {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Rank among the kinds of this machine: 0 is the slowest.
    pub rank: u32,
    /// How the machine names it, for example `IntelAtom`.
    pub name: Option<String>,
}

/// The machine, and which of it this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Topology {
    /// Where this was read from.
    pub source: Source,
    /// What could not be read, and what was used instead.
    pub notes: Vec<String>,
    /// The physical cores, by their first CPU.
    pub cores: Vec<Core>,
    /// The NUMA nodes, by number.
    pub nodes: Vec<Node>,
    /// The data and unified caches, by level and first CPU.
    pub caches: Vec<Cache>,
    /// The kinds of CPU, slowest first; one on most machines.
    pub kinds: Vec<CpuKind>,
    /// CPUs that can run something.
    pub online: CpuSet,
    /// CPUs that are present and switched off.
    pub offline: CpuSet,
    /// What this process may use: online, in its cgroup's set, and in the affinity it was started with.
    pub allowed: CpuSet,
    /// NUMA nodes this process may take memory from.
    pub allowed_nodes: NodeSet,
    /// CPUs the scheduler leaves alone (`isolcpus`).
    pub isolated: CpuSet,
    /// CPUs without a periodic tick (`nohz_full`).
    pub nohz_full: CpuSet,
    /// Processor time this cgroup may use, in thousandths of a CPU; nothing means no limit.
    pub quota_millicpus: Option<u64>,
}

impl Topology {
    /// Reads the live machine.
    ///
    /// # Errors
    /// When not even the set of online CPUs can be read.
    pub fn read() -> Result<Self, TopologyError> {
        sysfs::read(Path::new("/"))
    }

    /// The core a CPU belongs to.
    pub fn core_of(&self, cpu: u32) -> Option<&Core> {
        self.cores.iter().find(|core| core.cpus.contains(cpu))
    }

    /// The NUMA nodes closest to these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus)).map(|node| node.index).collect()
    }
}
