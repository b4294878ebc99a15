//! One trace, several replayers.

use std::num::NonZeroU32;

use crate::contract::{Dialect, Phase, Trace};

/// Which replayer sends each event.
///
/// Events that depend on each other within the workload belong to one replayer, so replayers need to wait for each
/// other only between phases. The groups are handed out in file order, each to the replayer with the fewest events so
/// far, which depends on nothing but the trace and the number of replayers. Setup and teardown belong to the first.
#[derive(Clone, Debug)]
pub struct Shares {
    shards: Vec<u32>,
    counts: Vec<u64>,
}

impl Shares {
    /// Shares a trace among so many replayers.
    #[must_use]
    pub fn of(trace: &Trace, count: NonZeroU32) -> Self {
        let workload = trace.phase_range(Phase::Workload);
        let mut groups = Groups::new(trace.len());
        let mut first_of_client = vec![u32::MAX; trace.clients()];
        for index in workload.clone() {
            if trace.dialect() == Dialect::Unversioned {
                // A client's events run one at a time.
                let first = &mut first_of_client[trace.event(index).client() as usize];
                *first = index.min(*first);
                groups.join(index, *first);
            }
            for dependency in trace.event(index).dependencies().iter().filter(|d| workload.contains(d)) {
                groups.join(index, *dependency);
            }
        }
        let mut sizes = vec![0_u64; trace.len()];
        workload.clone().for_each(|index| sizes[groups.root(index) as usize] += 1);
        let mut shares =
            Shares { shards: vec![u32::MAX; trace.len()], counts: vec![0; count.get() as usize] };
        for index in (0..).take(trace.len()) {
            // A group's root is its first event.
            let root = groups.root(index) as usize;
            if !workload.contains(&index) {
                shares.shards[index as usize] = 0;
            } else if shares.shards[root] == u32::MAX {
                shares.shards[root] = shares.give(sizes[root]);
            }
            shares.shards[index as usize] = shares.shards[root];
        }
        shares
    }

    fn give(&mut self, events: u64) -> u32 {
        let fewest = self.counts.iter().enumerate().min_by_key(|(_, count)| **count);
        let shard = fewest.map_or(0, |(shard, _)| shard);
        self.counts[shard] += events;
        u32::try_from(shard).unwrap_or(0)
    }

    /// Which replayer sends this event.
    #[must_use]
    pub fn shard_of(&self, index: u32) -> u32 {
        self.shards[index as usize]
    }

    /// How many workload events each replayer has.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

/// Disjoint sets whose root is their smallest member.
struct Groups {
    parent: Vec<u32>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Groups { parent: (0..).take(count).collect() }
    }

    fn root(&mut self, mut index: u32) -> u32 {
        while self.parent[index as usize] != index {
            let parent = self.parent[index as usize];
            // Halving the path keeps it short.
            self.parent[index as usize] = self.parent[parent as usize];
            index = parent;
        }
        index
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        self.parent[one.max(other) as usize] = one.min(other);
    }
}
