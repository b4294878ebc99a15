//! Which cores each process gets.

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};
use crate::topology::{Core, Topology};

/// What becomes of the other hardware threads of a planned core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Siblings {
    /// One hardware thread of each core is used and the others are kept idle.
    #[default]
    Idle,
    /// All hardware threads of each core are given to the process.
    Together,
}

/// One set of cores asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SetRequest {
    /// What it is for, for example `replayer`.
    pub name: String,
    /// How many physical cores.
    pub cores: usize,
}

/// What to plan: disjoint sets of physical cores.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanRequest {
    /// The sets.
    pub sets: Vec<SetRequest>,
    /// What becomes of the other hardware threads.
    pub siblings: Siblings,
}

impl PlanRequest {
    /// Asks for `sets` sets of `cores` physical cores each, named `set-1` and so on.
    pub fn uniform(sets: usize, cores: usize) -> Self {
        (1..=sets).fold(Self::default(), |request, number| request.set(format!("set-{number}"), cores))
    }

    /// Adds one set.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, cores: usize) -> Self {
        self.sets.push(SetRequest { name: name.into(), cores });
        self
    }

    /// Says what becomes of the other hardware threads.
    #[must_use]
    pub fn siblings(mut self, siblings: Siblings) -> Self {
        self.siblings = siblings;
        self
    }
}

/// One planned set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedSet {
    /// What it is for.
    pub name: String,
    /// The CPUs of the process.
    pub cpus: CpuSet,
    /// Hardware threads of the same cores that must stay idle.
    pub idle: CpuSet,
    /// The NUMA nodes its memory must come from: those of its cores.
    pub nodes: NodeSet,
}

/// Disjoint sets of physical cores, and the core left for everything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// The sets, in the order asked for.
    pub sets: Vec<PlannedSet>,
    /// What became of the other hardware threads.
    pub siblings: Siblings,
    /// The core left to the kernel, the waiting parent and everything else.
    pub housekeeping: CpuSet,
}

/// Why the machine cannot hold a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing, or a set without a core, was asked for.
    #[error("plan the set {name:?} with no core")]
    Empty {
        /// The set.
        name: String,
    },
    /// There are too few cores.
    #[error("place {needed} physical cores: {usable} are usable besides the housekeeping core")]
    TooSmall {
        /// Cores asked for in all.
        needed: usize,
        /// Cores that could be used.
        usable: usize,
    },
}

impl Plan {
    /// Plans `request` on `topology`. The same input gives the same plan.
    ///
    /// # Errors
    /// When the machine is too small, with what it would take.
    pub fn new(topology: &Topology, request: &PlanRequest) -> Result<Self, PlanError> {
        if let Some(set) = request.sets.iter().find(|set| set.cores == 0) {
            return Err(PlanError::Empty { name: set.name.clone() });
        }
        let mut usable: Vec<&Core> =
            topology.cores.iter().filter(|core| !core.cpus.is_disjoint(&topology.allowed)).collect();
        let housekeeping = if usable.is_empty() { CpuSet::new() } else { usable.remove(0).cpus.clone() };
        let needed = request.sets.iter().map(|set| set.cores).sum();
        if needed > usable.len() {
            return Err(PlanError::TooSmall { needed, usable: usable.len() });
        }
        let mut free = usable.into_iter().rev();
        let sets = request.sets.iter().map(|set| {
            let cores: Vec<&Core> = free.by_ref().take(set.cores).collect();
            planned(topology, set, &cores, request.siblings)
        });
        Ok(Self { sets: sets.collect(), siblings: request.siblings, housekeeping })
    }
}

fn planned(topology: &Topology, set: &SetRequest, cores: &[&Core], siblings: Siblings) -> PlannedSet {
    let all = cores.iter().fold(CpuSet::new(), |all, core| all.union(&core.cpus));
    let usable = |core: &Core| core.cpus.intersection(&topology.allowed);
    let cpus: CpuSet = match siblings {
        Siblings::Idle => cores.iter().filter_map(|core| usable(core).first()).collect(),
        Siblings::Together => cores.iter().fold(CpuSet::new(), |all, core| all.union(&usable(core))),
    };
    PlannedSet { name: set.name.clone(), idle: all.difference(&cpus), nodes: topology.nodes_of(&cpus), cpus }
}
