//! The choice of a worker: what is cached there already, less what it has to do.

use crate::blocks::KvEvent;
use crate::hash::HashKeyed;
use crate::random::{Random, SEED};

/// Knows, for one pool of workers, which blocks each has reported and how much each has been given.
#[derive(Clone)]
pub(crate) struct Router {
    /// One bit per worker that has the content.
    holders: HashKeyed<u64>,
    /// Blocks of the requests that each worker still has.
    load_blocks: Vec<u64>,
    overlap_blocks: Vec<u64>,
    random: Random,
}

/// Where a request goes, and what the router saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) worker: usize,
    pub(crate) overlap_blocks: u64,
    pub(crate) best_overlap_blocks: u64,
}

/// A worker and how good a choice it is: higher is better.
#[derive(Clone, Copy)]
struct Candidate {
    worker: usize,
    score: i64,
}

impl Router {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            holders: HashKeyed::default(),
            load_blocks: vec![0; workers],
            overlap_blocks: vec![0; workers],
            random: Random::new(SEED),
        }
    }

    /// Chooses a worker for a prompt of `blocks` blocks, the full ones of which have these contents.
    pub(crate) fn choose(&mut self, contents: &[u64], blocks: u64) -> Choice {
        self.find_overlap(contents);
        let worker = self.best_worker();
        self.load_blocks[worker] += blocks;
        Choice {
            worker,
            overlap_blocks: self.overlap_blocks[worker],
            best_overlap_blocks: self.overlap_blocks.iter().copied().max().unwrap_or(0),
        }
    }

    /// The best score wins; equal ones are in the order of the worker's number, and chance decides between them.
    fn best_worker(&mut self) -> usize {
        let mut candidates: Vec<Candidate> =
            (0..self.load_blocks.len()).map(|worker| self.rate(worker)).collect();
        candidates.sort_by_key(|candidate| (std::cmp::Reverse(candidate.score), candidate.worker));
        let best = candidates[0].score;
        let ties = candidates.iter().take_while(|candidate| candidate.score == best).count();
        candidates[self.random.below(ties)].worker
    }

    fn rate(&self, worker: usize) -> Candidate {
        let score = self.overlap_blocks[worker] as i64 - self.load_blocks[worker] as i64;
        Candidate { worker, score }
    }

    /// Counts, for each worker, how many leading blocks of the prompt it holds.
    fn find_overlap(&mut self, contents: &[u64]) {
        self.overlap_blocks.fill(0);
        let mut following = u64::MAX;
        for content in contents {
            following &= self.holders.get(content).copied().unwrap_or(0);
            if following == 0 {
                break;
            }
            for (worker, overlap) in self.overlap_blocks.iter_mut().enumerate() {
                *overlap += following >> worker & 1;
            }
        }
    }

    /// Learns what a worker stored or gave up.
    pub(crate) fn learn(&mut self, worker: usize, event: KvEvent) {
        match event {
            KvEvent::Stored(content) => *self.holders.entry(content).or_insert(0) |= 1 << worker,
            KvEvent::Removed(content) => {
                if let Some(holders) = self.holders.get_mut(&content) {
                    *holders &= !(1 << worker);
                    if *holders == 0 {
                        self.holders.remove(&content);
                    }
                }
            }
        }
    }

    /// A request of `blocks` blocks has left the worker.
    pub(crate) fn relieve(&mut self, worker: usize, blocks: u64) {
        self.load_blocks[worker] -= blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_attracts_and_load_repels() {
        let mut router = Router::new(2);
        for content in [1, 2, 3] {
            router.learn(1, KvEvent::Stored(content));
        }
        router.learn(0, KvEvent::Stored(1));
        let choice = router.choose(&[1, 2, 3, 4], 4);
        assert_eq!(choice, Choice { worker: 1, overlap_blocks: 3, best_overlap_blocks: 3 });
        // Now worker 1 carries four blocks, more than its two blocks of lead.
        let choice = router.choose(&[1, 2, 3, 4], 4);
        assert_eq!(choice, Choice { worker: 0, overlap_blocks: 1, best_overlap_blocks: 3 });
        router.learn(1, KvEvent::Removed(1));
        router.relieve(1, 4);
        router.relieve(0, 4);
        assert_eq!(router.choose(&[1, 2, 3, 4], 4).worker, 0);
    }

    #[test]
    fn chance_decides_between_equals() {
        let mut seen = [0; 3];
        let mut router = Router::new(3);
        for _ in 0..300 {
            let worker = router.choose(&[], 0).worker;
            seen[worker] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }
}
