//! The machine: its cores, caches and memory, and which of them this process may use.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};

pub(crate) mod cgroup;
#[cfg(feature = "hwloc")]
mod hwloc;
pub(crate) mod sysfs;
mod xml;

/// Why no topology could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Not even the set of online CPUs is readable.
    #[error("read the online CPUs from {}", path.display())]
    Online {
        /// The file.
        path: PathBuf,
    },
    /// The text is not well-formed XML.
    #[error("read the topology: {what} at byte {offset}")]
    Xml {
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// The file is of another major version of hwloc.
    #[error("read the topology: it is of hwloc format {found:?}, and only format 2 is understood")]
    Version {
        /// The version in the file; `1` for the format that does not say.
        found: String,
    },
    /// Two parts of the description cannot both be true.
    #[error("read the topology: {what}")]
    Contradictory {
        /// Which.
        what: String,
    },
    /// An attribute or object that every topology has is absent or cannot be understood.
    #[error("read the topology: {what} is absent or malformed")]
    Incomplete {
        /// Which.
        what: String,
    },
}

/// Where a [`Topology`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// `/sys` and `/proc` of the live machine.
    Sysfs,
    /// hwloc on the live machine; what this process may use is from `/sys` and `/proc`.
    Hwloc,
    /// A file that hwloc exported.
    HwlocXml,
}

/// One physical core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Index into [`Topology::caches`] of the largest cache it shares with other cores.
    pub shared_cache: Option<usize>,
}

/// One processor package (socket).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Package {
    /// The kernel's number.
    pub index: u32,
    /// Its online CPUs.
    pub cpus: CpuSet,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number.
    pub index: u32,
    /// The online CPUs it is closest to; none for a node that only adds memory.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

/// One data or unified cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cache {
    /// 1 is closest to the core.
    pub level: u32,
    /// The CPUs that share it.
    pub cpus: CpuSet,
    /// Its size.
    pub size_bytes: Option<u64>,
}

/// CPUs that are alike in design and speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Topology {
    /// Where this was read from.
    pub source: Source,
    /// What could not be read, and what was used instead.
    pub notes: Vec<String>,
    /// The packages, by number.
    pub packages: Vec<Package>,
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
    /// What this process may use: online, in its cgroup's set, and in its affinity. Isolated CPUs, which no
    /// affinity holds by itself, are left out only when somebody narrowed it.
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
    /// Reads the live machine: through hwloc with the feature `hwloc`, from `/sys` without it or when hwloc is
    /// refused, which [`notes`](Self::notes) then says.
    ///
    /// # Errors
    /// When not even the set of online CPUs can be read.
    pub fn read() -> Result<Self, TopologyError> {
        let from_sys = Self::read_sysfs()?;
        #[cfg(feature = "hwloc")]
        let from_sys = hwloc::refine(from_sys);
        Ok(from_sys)
    }

    /// Reads the live machine from `/sys` and `/proc`.
    ///
    /// # Errors
    /// When not even the set of online CPUs can be read.
    pub fn read_sysfs() -> Result<Self, TopologyError> {
        sysfs::read(Path::new("/"))
    }

    /// Reads the machine from copies of `sys` and `proc` below `root`.
    ///
    /// # Errors
    /// When not even the set of online CPUs can be read.
    pub fn read_below(root: &Path) -> Result<Self, TopologyError> {
        sysfs::read(root)
    }

    /// Reads a file that hwloc 2 exported (`lstopo machine.xml`).
    ///
    /// # Errors
    /// The text is not XML, of another major version, or lacks what every topology has.
    pub fn from_hwloc_xml(text: &str) -> Result<Self, TopologyError> {
        xml::read(text)
    }

    /// The same file, read by hwloc itself.
    ///
    /// # Errors
    /// hwloc refuses the file.
    #[cfg(feature = "hwloc")]
    pub fn from_hwloc_xml_through_hwloc(text: &str) -> Result<Self, TopologyError> {
        hwloc::read_xml(text)
    }

    /// The core a CPU belongs to.
    pub fn core_of(&self, cpu: u32) -> Option<&Core> {
        self.cores.iter().find(|core| core.cpus.contains(cpu))
    }

    /// All hardware threads of the cores these CPUs belong to.
    pub fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let touched = self.cores.iter().filter(|core| !core.cpus.is_disjoint(cpus));
        touched.fold(CpuSet::new(), |all, core| all.union(&core.cpus))
    }

    /// The NUMA nodes closest to these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus)).map(|node| node.index).collect()
    }
}

/// The parts of a machine as any source gives them, not yet related to each other.
#[derive(Debug, Default)]
struct Parts {
    packages: Vec<Package>,
    nodes: Vec<Node>,
    caches: Vec<Cache>,
    /// The CPUs of each core.
    cores: Vec<CpuSet>,
    kinds: Vec<CpuKind>,
}

impl Parts {
    /// Puts the parts in order, restricts them to CPUs that are online, and makes each CPU belong to one node.
    fn normalise(mut self, online: &CpuSet) -> Self {
        self.cores.iter_mut().for_each(|cpus| *cpus = cpus.intersection(online));
        self.packages.iter_mut().for_each(|package| package.cpus = package.cpus.intersection(online));
        self.caches.iter_mut().for_each(|cache| cache.cpus = cache.cpus.intersection(online));
        self.kinds.iter_mut().for_each(|kind| kind.cpus = kind.cpus.intersection(online));
        self.cores.retain(|cpus| !cpus.is_empty());
        self.packages.retain(|package| !package.cpus.is_empty());
        self.caches.retain(|cache| !cache.cpus.is_empty());
        self.kinds.retain(|kind| !kind.cpus.is_empty());
        self.cores.sort_by_key(CpuSet::first);
        self.packages.sort_by_key(|package| package.index);
        self.caches.sort_by_key(|cache| (cache.level, cache.cpus.first()));
        self.nodes.sort_by_key(|node| node.index);
        self.kinds.sort_by_key(|kind| kind.rank);
        self.own_cpus_once(online);
        self
    }

    /// Checks that every online CPU belongs to exactly one core. Plans rest on it.
    fn check_cores(&self, online: &CpuSet) -> Result<(), TopologyError> {
        let mut free = online.clone();
        for cpus in &self.cores {
            let twice = cpus.difference(&free);
            if !twice.is_empty() {
                return Err(TopologyError::Contradictory { what: format!("CPUs {twice} are in two cores") });
            }
            free = free.difference(cpus);
        }
        let whole = free.is_empty();
        whole
            .then_some(())
            .ok_or(TopologyError::Contradictory { what: format!("CPUs {free} are in no core") })
    }

    /// A node that adds memory to another (high-bandwidth or CXL memory) names the other's CPUs too.
    fn own_cpus_once(&mut self, online: &CpuSet) {
        let mut free = online.clone();
        for node in &mut self.nodes {
            node.cpus = node.cpus.intersection(&free);
            free = free.difference(&node.cpus);
        }
        let covered = self.kinds.iter().fold(CpuSet::new(), |all, kind| all.union(&kind.cpus));
        if self.kinds.len() < 2 || covered != *online {
            self.kinds = vec![CpuKind { cpus: online.clone(), rank: 0, name: None }];
        }
    }

    fn related_cores(&self) -> Vec<Core> {
        self.cores.iter().filter_map(|cpus| Some(self.related(cpus, cpus.first()?))).collect()
    }

    fn related(&self, cpus: &CpuSet, first: u32) -> Core {
        let package = self.packages.iter().find(|package| package.cpus.contains(first));
        let node = self.nodes.iter().find(|node| node.cpus.contains(first));
        let shared = |cache: &Cache| cpus.is_subset(&cache.cpus) && cache.cpus != *cpus;
        Core {
            package: package.map_or(0, |package| package.index),
            node: node.map(|node| node.index),
            kind: self.kinds.iter().position(|kind| kind.cpus.contains(first)).unwrap_or(0),
            shared_cache: self.caches.iter().rposition(shared),
            cpus: cpus.clone(),
        }
    }
}
