//! Which cores each process gets.
//!
//! The order of preference, all of it deterministic: every set of one kind of CPU, the fastest that has room; all
//! sets on one NUMA node if one has room, away from the housekeeping core; each set inside one shared cache if one
//! has room, and away from the other sets' caches; cores without a foreign hardware thread; the highest numbers,
//! because the kernel, interrupts and everybody's defaults favour the lowest.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::set::{CpuSet, NodeSet};
use crate::topology::{Core, Topology};

/// What becomes of the other hardware threads of a planned core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Siblings {
    /// One hardware thread of each core is used and the others are kept idle.
    #[default]
    Idle,
    /// All hardware threads of each core are given to the process.
    Together,
}

/// Whether one core is kept for the kernel, the waiting parent and everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Housekeeping {
    /// The first core that the scheduler uses is left out of every set.
    #[default]
    Kept,
    /// No core is left out. What else runs on the machine then runs on a planned core.
    Given,
}

/// One set of cores asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SetRequest {
    /// What it is for, for example `replayer`.
    pub name: String,
    /// How many physical cores.
    pub cores: usize,
}

/// What to plan: disjoint sets of physical cores that may all be busy at once.
///
/// Two arms that are measured one after the other share one set. Two that run at the same time, or a master and its
/// replayer, take one each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PlanRequest {
    /// The sets.
    pub sets: Vec<SetRequest>,
    /// What becomes of the other hardware threads.
    pub siblings: Siblings,
    /// Whether a core is kept for everything else.
    pub housekeeping: Housekeeping,
}

impl PlanRequest {
    /// Asks for nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Says whether a core is kept for everything else.
    #[must_use]
    pub fn housekeeping(mut self, housekeeping: Housekeeping) -> Self {
        self.housekeeping = housekeeping;
        self
    }

    fn cores(&self) -> usize {
        self.sets.iter().fold(0, |all, set| all.saturating_add(set.cores))
    }
}

/// One planned set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PlannedSet {
    /// What it is for.
    pub name: String,
    /// The CPUs of the process.
    pub cpus: CpuSet,
    /// Hardware threads of the same cores that must stay idle.
    pub idle: CpuSet,
    /// The NUMA nodes its memory must come from: those of its cores. None on a machine that does not say.
    pub nodes: NodeSet,
    /// The kind of its CPUs, where the machine has several.
    pub kind: Option<String>,
    /// How many shared caches its cores are spread over; 0 where no cache is shared.
    pub shared_caches: usize,
    /// What is not as good as it could be, for a reader.
    pub notes: Vec<String>,
}

/// Disjoint sets of physical cores, and the core left for everything else.
///
/// ```
/// use cpu_placement::{Plan, PlanRequest, Topology};
///
/// let machine = Topology::from_hwloc_xml(include_str!("../../../testdata/topologies/smt-2-socket.xml"))?;
/// let plan = Plan::new(&machine, &PlanRequest::new().set("master", 4).set("replayer", 1))?;
/// assert_eq!(plan.sets[0].cpus.to_string(), "28-31");
/// assert_eq!(plan.sets[1].cpus.to_string(), "27");
/// assert_eq!(plan.sets[1].idle.to_string(), "59");
/// assert_eq!(plan.housekeeping.to_string(), "0,32");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// The sets, in the order asked for.
    pub sets: Vec<PlannedSet>,
    /// What became of the other hardware threads.
    pub siblings: Siblings,
    /// The core left to everything else; empty when none was.
    pub housekeeping: CpuSet,
}

/// Why the machine cannot hold a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing was asked for.
    #[error("plan no set at all")]
    NoSet,
    /// A set without a core was asked for.
    #[error("plan the set {name:?} with no core")]
    Empty {
        /// The set.
        name: String,
    },
    /// There are too few cores.
    #[error(
        "place {needed} physical cores on this machine: it has {usable} to give besides the {kept} kept for \
         everything else ({allowed} of {online} CPUs are allowed here), so it would take {} more",
        needed - usable
    )]
    TooFewCores {
        /// Cores asked for in all.
        needed: usize,
        /// Cores that could be used.
        usable: usize,
        /// Cores kept for everything else.
        kept: usize,
        /// CPUs this process may use.
        allowed: usize,
        /// CPUs of the machine.
        online: usize,
    },
    /// There are enough cores, but not enough of one kind.
    #[error(
        "place {needed} physical cores of one kind: the machine has {}, and a plan never mixes kinds",
        kinds.join(", ")
    )]
    TooFewOfOneKind {
        /// Cores asked for in all.
        needed: usize,
        /// Usable cores of each kind.
        kinds: Vec<String>,
    },
    /// There are enough cores of one kind, but no node holds the sets.
    #[error(
        "place the set {name:?} of {needed} physical cores on one NUMA node: {}, and a set never spans two",
        nodes.join(", ")
    )]
    NoNodeFits {
        /// The first set that did not fit.
        name: String,
        /// Its cores.
        needed: usize,
        /// What each node has left for it.
        nodes: Vec<String>,
    },
    /// The cgroup gives too little processor time to keep the CPUs of the plan busy.
    #[error(
        "keep {needed_millicpus} thousandths of a CPU busy: the cgroup's quota is {quota_millicpus}, and a process \
         that runs out of it is stopped in mid-flight"
    )]
    Quota {
        /// What the plan would use.
        needed_millicpus: u64,
        /// What the cgroup gives.
        quota_millicpus: u64,
    },
}

impl Plan {
    /// Plans `request` on `topology`. The same input gives the same plan.
    ///
    /// # Errors
    /// When the machine is too small, with why and what it would take.
    pub fn new(topology: &Topology, request: &PlanRequest) -> Result<Self, PlanError> {
        if request.sets.is_empty() {
            return Err(PlanError::NoSet);
        }
        if let Some(set) = request.sets.iter().find(|set| set.cores == 0) {
            return Err(PlanError::Empty { name: set.name.clone() });
        }
        let planner = Planner::new(topology, request);
        let sets = planner.place()?;
        let plan = Self {
            sets: request.sets.iter().zip(sets).map(|(set, cores)| planner.planned(set, &cores)).collect(),
            siblings: request.siblings,
            housekeeping: planner.kept.map(|core| core.cpus.clone()).unwrap_or_default(),
        };
        plan.check_quota(topology)?;
        Ok(plan)
    }

    /// All CPUs of all sets.
    pub fn cpus(&self) -> CpuSet {
        self.sets.iter().fold(CpuSet::new(), |all, set| all.union(&set.cpus))
    }

    fn check_quota(&self, topology: &Topology) -> Result<(), PlanError> {
        let needed_millicpus = self.cpus().len() as u64 * 1000;
        match topology.quota_millicpus {
            Some(quota_millicpus) if quota_millicpus < needed_millicpus => {
                Err(PlanError::Quota { needed_millicpus, quota_millicpus })
            }
            _ => Ok(()),
        }
    }
}

/// A core that may be planned.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    core: &'a Core,
    first: u32,
    threads: usize,
    isolated: bool,
    /// Some of its hardware threads are not ours to keep idle.
    foreign_threads: bool,
}

struct Planner<'a> {
    topology: &'a Topology,
    request: &'a PlanRequest,
    kept: Option<&'a Core>,
    candidates: Vec<Candidate<'a>>,
}

impl<'a> Planner<'a> {
    fn new(topology: &'a Topology, request: &'a PlanRequest) -> Self {
        let mut candidates: Vec<_> =
            topology.cores.iter().filter_map(|core| candidate(topology, core)).collect();
        let mut kept = None;
        if request.housekeeping == Housekeeping::Kept && !candidates.is_empty() {
            // An isolated core would not be used by anything that was not put there.
            let position = candidates.iter().position(|core| !core.isolated).unwrap_or(0);
            kept = Some(candidates.remove(position).core);
        }
        Self { topology, request, kept, candidates }
    }

    /// The cores of each set, in the order of the request.
    fn place(&self) -> Result<Vec<Vec<Candidate<'a>>>, PlanError> {
        let pools = self.pools();
        let on_one_node = pools.iter().find_map(|pool| self.place_on_one_node(pool));
        let placed =
            on_one_node.or_else(|| pools.iter().find_map(|pool| self.place_on_several_nodes(pool).ok()));
        placed.ok_or_else(|| self.explain(&pools))
    }

    /// Cores that may stand in one plan: of one kind and, when whole cores are given, of as many threads. The
    /// fastest kind and the most threads come first.
    fn pools(&self) -> Vec<Vec<Candidate<'a>>> {
        let class = |candidate: &Candidate<'_>| {
            let threads = if self.request.siblings == Siblings::Together { candidate.threads } else { 0 };
            let kind = candidate.core.kind;
            // Kinds that the machine ranks alike are different kinds all the same.
            (Reverse(self.topology.kinds[kind].rank), kind, Reverse(threads))
        };
        let classes: BTreeSet<_> = self.candidates.iter().map(class).collect();
        let of = |wanted| self.candidates.iter().filter(move |c| class(c) == wanted).copied().collect();
        classes.into_iter().map(of).collect()
    }

    fn place_on_one_node(&self, pool: &[Candidate<'a>]) -> Option<Vec<Vec<Candidate<'a>>>> {
        self.nodes(pool).into_iter().find_map(|node| {
            let mut free = on_node(pool, node);
            self.place_each(|set, used| self.take(set, &mut free, used))
        })
    }

    fn place_on_several_nodes(&self, pool: &[Candidate<'a>]) -> Result<Vec<Vec<Candidate<'a>>>, usize> {
        let mut by_node: Vec<_> = self.nodes(pool).into_iter().map(|node| on_node(pool, node)).collect();
        let mut failed = 0;
        let placed = self.place_each(|set, used| {
            failed = set;
            by_node.iter_mut().find_map(|free| self.take(set, free, used))
        });
        placed.ok_or(failed)
    }

    /// Places the largest sets first, so that small ones do not break up what a large one needs.
    fn place_each(
        &self,
        mut take: impl FnMut(usize, &CpuSet) -> Option<Vec<Candidate<'a>>>,
    ) -> Option<Vec<Vec<Candidate<'a>>>> {
        let mut order: Vec<usize> = (0..self.request.sets.len()).collect();
        order.sort_by_key(|set| Reverse(self.request.sets[*set].cores));
        let mut placed = vec![Vec::new(); order.len()];
        let mut used = CpuSet::new();
        for set in order {
            placed[set] = take(set, &used)?;
            used = placed[set].iter().fold(used, |used, candidate| used.union(&candidate.core.cpus));
        }
        Some(placed)
    }

    /// The nodes of a pool: first those whose isolated cores hold every set that may use them, then those without
    /// the housekeeping core, then by number.
    fn nodes(&self, pool: &[Candidate<'_>]) -> Vec<Option<u32>> {
        let nodes: BTreeSet<Option<u32>> = pool.iter().map(|candidate| candidate.core.node).collect();
        let single = (0..self.request.sets.len()).filter(|set| self.is_single(*set)).count();
        let rank = |node: &Option<u32>| {
            let isolated = pool.iter().filter(|c| c.core.node == *node && c.isolated).count();
            let keeps_house = self.kept.is_some_and(|core| core.node == *node);
            (!(single > 0 && isolated >= single), keeps_house, *node)
        };
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_by_key(rank);
        nodes
    }

    /// Whether a set is one CPU. The scheduler never moves a thread between isolated CPUs, so a set of several would
    /// run on one of them.
    fn is_single(&self, set: usize) -> bool {
        let one_thread = self.request.siblings == Siblings::Idle
            || self.candidates.iter().all(|candidate| candidate.threads == 1);
        self.request.sets[set].cores == 1 && one_thread
    }

    /// Takes the cores of one set out of `free`; nothing when there are not enough.
    fn take(&self, set: usize, free: &mut Vec<Candidate<'a>>, used: &CpuSet) -> Option<Vec<Candidate<'a>>> {
        let needed = self.request.sets[set].cores;
        let single = self.is_single(set);
        let mut usable: Vec<_> = free.iter().copied().filter(|c| single || !c.isolated).collect();
        if usable.len() < needed {
            return None;
        }
        let caches = self.cache_ranks(&usable, needed, used);
        let cache_rank = |c: &Candidate<'_>| caches.iter().position(|cache| *cache == c.core.shared_cache);
        usable.sort_by_key(|c| (!c.isolated, cache_rank(c), c.foreign_threads, Reverse(c.first)));
        usable.truncate(needed);
        free.retain(|c| !usable.iter().any(|taken| taken.first == c.first));
        Some(usable)
    }

    /// The shared caches of these cores: first those with room for the whole set, then those least used by other
    /// sets, then those without the housekeeping core, then those with the most room, then the highest.
    fn cache_ranks(&self, usable: &[Candidate<'_>], needed: usize, used: &CpuSet) -> Vec<Option<usize>> {
        let caches: BTreeSet<Option<usize>> = usable.iter().map(|c| c.core.shared_cache).collect();
        let cpus = |cache: Option<usize>| cache.map(|index| &self.topology.caches[index].cpus);
        let rank = |cache: &Option<usize>| {
            let room = usable.iter().filter(|c| c.core.shared_cache == *cache).count();
            let others = cpus(*cache).map_or(0, |cpus| cpus.intersection(used).len());
            let keeps_house = self.kept.is_some_and(|core| core.shared_cache == *cache);
            (room < needed, others, keeps_house, Reverse(room), Reverse(cpus(*cache).and_then(CpuSet::last)))
        };
        let mut caches: Vec<_> = caches.into_iter().collect();
        caches.sort_by_key(rank);
        caches
    }

    fn planned(&self, set: &SetRequest, cores: &[Candidate<'a>]) -> PlannedSet {
        let all = cores.iter().fold(CpuSet::new(), |all, c| all.union(&c.core.cpus));
        let allowed = all.intersection(&self.topology.allowed);
        let cpus = match self.request.siblings {
            Siblings::Idle => cores.iter().map(|c| c.first).collect(),
            Siblings::Together => allowed.clone(),
        };
        let caches: BTreeSet<usize> = cores.iter().filter_map(|c| c.core.shared_cache).collect();
        let foreign = all.difference(&self.topology.allowed);
        let mut notes = Vec::new();
        if caches.len() > 1 {
            notes.push(format!("its cores are spread over {} shared caches", caches.len()));
        }
        if !foreign.is_empty() {
            notes.push(format!("CPUs {foreign} of the same cores belong to others, who may use them"));
        }
        let several_kinds = self.topology.kinds.len() > 1;
        let kind = cores.first().map(|c| &self.topology.kinds[c.core.kind]).filter(|_| several_kinds);
        PlannedSet {
            name: set.name.clone(),
            idle: all.difference(&cpus),
            nodes: self.topology.nodes_of(&cpus),
            kind: kind.map(|kind| kind.name.clone().unwrap_or_else(|| format!("rank {}", kind.rank))),
            shared_caches: caches.len(),
            notes,
            cpus,
        }
    }

    fn explain(&self, pools: &[Vec<Candidate<'a>>]) -> PlanError {
        let needed = self.request.cores();
        let usable = self.candidates.len();
        if needed > usable {
            return PlanError::TooFewCores {
                needed,
                usable,
                kept: usize::from(self.kept.is_some()),
                allowed: self.topology.allowed.len(),
                online: self.topology.online.len(),
            };
        }
        match pools.iter().find(|pool| pool.len() >= needed) {
            None => {
                PlanError::TooFewOfOneKind { needed, kinds: pools.iter().map(|p| self.describe(p)).collect() }
            }
            Some(pool) => self.explain_nodes(pool),
        }
    }

    fn describe(&self, pool: &[Candidate<'_>]) -> String {
        let Some(first) = pool.first() else { return "none".to_owned() };
        let kind = &self.topology.kinds[first.core.kind];
        let name = kind.name.clone().unwrap_or_else(|| format!("kind {}", kind.rank));
        format!("{} of {name} with {} hardware threads", pool.len(), first.threads)
    }

    fn explain_nodes(&self, pool: &[Candidate<'a>]) -> PlanError {
        let failed = self.place_on_several_nodes(pool).err().unwrap_or(0);
        let set = &self.request.sets[failed];
        let single = self.is_single(failed);
        let describe = |node: Option<u32>| {
            let cores = on_node(pool, node);
            let usable = cores.iter().filter(|c| single || !c.isolated).count();
            let name = node.map_or_else(|| "the machine".to_owned(), |node| format!("node {node}"));
            match cores.len() - usable {
                0 => format!("{name} has {usable} for all sets"),
                isolated => format!("{name} has {usable} for all sets and {isolated} isolated ones"),
            }
        };
        PlanError::NoNodeFits {
            name: set.name.clone(),
            needed: set.cores,
            nodes: self.nodes(pool).into_iter().map(describe).collect(),
        }
    }
}

fn on_node<'a>(pool: &[Candidate<'a>], node: Option<u32>) -> Vec<Candidate<'a>> {
    pool.iter().filter(|candidate| candidate.core.node == node).copied().collect()
}

/// A core of which this process may use something, with memory it may use beside it.
fn candidate<'a>(topology: &Topology, core: &'a Core) -> Option<Candidate<'a>> {
    let usable = core.cpus.intersection(&topology.allowed);
    let first = usable.first()?;
    let memory_allowed = core.node.is_none_or(|node| topology.allowed_nodes.contains(node));
    memory_allowed.then_some(Candidate {
        core,
        first,
        threads: usable.len(),
        isolated: topology.isolated.contains(first),
        foreign_threads: usable != core.cpus,
    })
}

#[cfg(test)]
mod tests;
