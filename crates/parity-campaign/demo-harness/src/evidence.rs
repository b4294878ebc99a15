//! What a replay records about itself beside the requests: pressure, and what the router was told.

use crate::blake3::Digest;
use crate::blocks::KvEvent;
use crate::request::{Nanos, Pool};

/// How busy a worker is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    pub(crate) active_blocks: usize,
    pub(crate) running_requests: usize,
    pub(crate) waiting_requests: usize,
}

/// One request that lost its blocks because its worker had none left.
#[derive(Clone, Debug)]
pub(crate) struct Pressure {
    pub(crate) request: usize,
    pub(crate) pool: Pool,
    pub(crate) worker: usize,
    pub(crate) at: Nanos,
    pub(crate) readmitted: Option<Nanos>,
    pub(crate) lost_blocks: usize,
    /// Blocks there were, and blocks that were wanted.
    pub(crate) available_blocks: usize,
    pub(crate) wanted_blocks: usize,
    pub(crate) before: Occupancy,
    pub(crate) after: Occupancy,
}

/// Counts of what the router learnt, and a digest over it when there is a report to put it in.
#[derive(Clone)]
pub(crate) struct KvIngest {
    pub(crate) batches: u64,
    pub(crate) stored: u64,
    pub(crate) removed: u64,
    pub(crate) first_at: Option<Nanos>,
    pub(crate) last_at: Option<Nanos>,
    pub(crate) digest: Option<Digest>,
}

impl KvIngest {
    pub(crate) fn new(digest: bool) -> Self {
        let digest = digest.then(Digest::new);
        Self { batches: 0, stored: 0, removed: 0, first_at: None, last_at: None, digest }
    }

    /// Notes one batch, which is what one worker reports at the end of one pass.
    pub(crate) fn note(&mut self, at: Nanos, worker: usize, events: &[KvEvent]) {
        self.batches += 1;
        self.first_at.get_or_insert(at);
        self.last_at = Some(at);
        for event in events {
            match event {
                KvEvent::Stored(_) => self.stored += 1,
                KvEvent::Removed(_) => self.removed += 1,
            }
        }
        let Some(digest) = &mut self.digest else { return };
        digest.update(&at.to_be_bytes());
        digest.update(&(worker as u64).to_be_bytes());
        for event in events {
            let (kind, content) = match event {
                KvEvent::Stored(content) => (b'+', content),
                KvEvent::Removed(content) => (b'-', content),
            };
            digest.update(&[kind]);
            digest.update(&content.to_be_bytes());
        }
    }
}
