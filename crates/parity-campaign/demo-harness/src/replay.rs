//! The event loop: arrivals, ends of passes and ends of transfers, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::blocks::KvEvent;
use crate::evidence::KvIngest;
use crate::options::{EngineType, Options, TransferTiming};
use crate::request::{Nanos, Pool, Request, Route};
use crate::router::Router;
use crate::trace::Row;
use crate::worker::{Limits, Worker, World};

/// What it takes to clear up after one finished request; requests that finish in the same pass are cleared up one by one.
const CLEAN_UP: Nanos = 20_000;
/// The fixed part of a transfer.
const TRANSFER_SET_UP: Nanos = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { request: usize },
    PassEnd { worker: usize },
    TransferEnd { request: usize },
}

/// An event that is due; equal times are in the order of planning.
type Due = Reverse<(Nanos, u64, Event)>;

/// A prepared replay. [`Replay::run`] is what is timed.
#[derive(Clone)]
pub(crate) struct Replay {
    options: Options,
    pub(crate) world: World,
    queue: BinaryHeap<Due>,
    planned: u64,
    /// Events handled so far.
    pub(crate) steps: u64,
    /// Those of the first pool, then those of the second.
    workers: Vec<Worker>,
    /// One for the aggregated or the prefill pool, and one for the decode pool.
    routers: Vec<Router>,
    pub(crate) ingest: KvIngest,
    finished: Vec<usize>,
    events: Vec<KvEvent>,
}

impl Replay {
    /// Sets up workers, routers and arrivals. `capture` keeps what only a report needs.
    pub(crate) fn new(options: &Options, rows: &[Row], capture: bool) -> Result<Self, String> {
        check_capacity(options, rows)?;
        let arrival = |row: &Row| (row.timestamp_ms as f64 * 1e6 / options.arrival_speedup_ratio) as Nanos;
        let requests: Vec<_> =
            rows.iter().enumerate().map(|(ordinal, row)| Request::new(ordinal, row, arrival(row))).collect();
        let pools: &[(Pool, usize)] = if options.disaggregated {
            &[(Pool::Prefill, options.num_prefill_workers), (Pool::Decode, options.num_decode_workers)]
        } else {
            &[(Pool::Aggregated, options.num_workers)]
        };
        let worker = |pool, number| Worker::new(pool, number, options.num_gpu_blocks, Limits::of(options));
        let mut replay = Self {
            options: options.clone(),
            world: World { now: 0, requests, pressure: Vec::new(), keep_tokens: capture },
            queue: BinaryHeap::new(),
            planned: 0,
            steps: 0,
            workers: pools.iter().flat_map(|&(pool, n)| (0..n).map(move |i| worker(pool, i))).collect(),
            routers: pools.iter().map(|&(_, n)| Router::new(n)).collect(),
            ingest: KvIngest::new(capture),
            finished: Vec::new(),
            events: Vec::new(),
        };
        for request in 0..rows.len() {
            let at = replay.world.requests[request].timeline.arrival;
            replay.plan(at, Event::Arrival { request });
        }
        Ok(replay)
    }

    /// Replays everything. The error names a request that could not be finished.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.step() {}
        self.check_finished()
    }

    /// Handles the next event; false if there is none.
    fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.queue.pop() else { return false };
        self.world.now = at;
        self.steps += 1;
        match event {
            Event::Arrival { request } => self.arrive(request),
            Event::PassEnd { worker } => self.end_pass(worker),
            Event::TransferEnd { request } => self.end_transfer(request),
        }
        true
    }

    fn check_finished(&self) -> Result<(), String> {
        match self.world.requests.iter().find(|request| request.timeline.terminal.is_none()) {
            Some(request) => Err(format!("request {} never finished: the replay stalled", request.ordinal)),
            None => Ok(()),
        }
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.queue.push(Reverse((at, self.planned, event)));
        self.planned += 1;
    }

    fn arrive(&mut self, id: usize) {
        self.world.requests[id].hash_prompt(self.options.trace_block_tokens, self.options.block_tokens);
        if !self.options.disaggregated {
            self.submit(id, Pool::Aggregated);
        } else if self.destination_first() {
            self.seek_destination(id);
        } else {
            self.submit(id, Pool::Prefill);
        }
    }

    /// SGLang reserves the destination before it computes the prompt, vLLM when the prompt is computed.
    fn destination_first(&self) -> bool {
        self.options.engine == EngineType::Sglang
    }

    /// Sends a request to a worker of the pool.
    fn submit(&mut self, id: usize, pool: Pool) {
        let worker = self.route(id, pool);
        self.workers[worker].enqueue(id);
        self.kick(worker);
    }

    /// Chooses a decode worker and puts the request in its line for a hand-over.
    fn seek_destination(&mut self, id: usize) {
        let worker = self.route(id, Pool::Decode);
        self.workers[worker].enqueue_reservation(id);
        self.grant_reservations(worker);
    }

    /// Chooses a worker of the pool, records the choice, and returns the worker's place in the list.
    fn route(&mut self, id: usize, pool: Pool) -> usize {
        let request = &mut self.world.requests[id];
        let router = &mut self.routers[usize::from(pool == Pool::Decode)];
        // The router of the decode pool is not told what its workers hold, so only load counts there.
        let contents = &request.contents;
        let choice = router.choose(contents, request.prompt_blocks(self.options.block_tokens));
        request.timeline.routes.push(Route {
            pool,
            worker: choice.worker,
            overlap_blocks: choice.overlap_blocks,
            best_overlap_blocks: choice.best_overlap_blocks,
        });
        self.place(pool, choice.worker)
    }

    fn place(&self, pool: Pool, number: usize) -> usize {
        if pool == Pool::Decode { self.options.num_prefill_workers + number } else { number }
    }

    /// The worker a request was sent to in a pool.
    fn routed(&self, id: usize, pool: Pool) -> usize {
        let mut routes = self.world.requests[id].timeline.routes.iter();
        let route = routes.find(|route| route.pool == pool).expect("a hand-over has both its ends routed");
        self.place(pool, route.worker)
    }

    /// Starts a pass where one can start, and releases the sources of what it admits.
    fn kick(&mut self, worker: usize) {
        let Some(duration) = self.workers[worker].start_pass(&mut self.world) else { return };
        self.plan(self.world.now + duration, Event::PassEnd { worker });
        if self.workers[worker].pool == Pool::Decode {
            self.release_sources(worker);
        }
    }

    fn end_pass(&mut self, worker: usize) {
        let mut finished = std::mem::take(&mut self.finished);
        self.workers[worker].finish_pass(&mut self.world, &mut finished);
        self.tell_router(worker);
        match self.workers[worker].pool {
            Pool::Prefill => finished.iter().for_each(|&id| self.hand_over(id)),
            Pool::Aggregated | Pool::Decode => self.terminate(worker, &finished),
        }
        self.finished = finished;
        self.grant_reservations(worker);
        self.kick(worker);
    }

    /// What changed in a worker's blocks becomes visible to the router at the end of the pass.
    fn tell_router(&mut self, place: usize) {
        let mut events = std::mem::take(&mut self.events);
        let worker = &mut self.workers[place];
        worker.drain_events(&mut events);
        if worker.pool != Pool::Decode {
            self.ingest.note(self.world.now, worker.number, &events);
            for &event in &events {
                self.routers[0].learn(worker.number, event);
            }
        }
        self.events = events;
    }

    /// Clears up after requests that finished in one pass, one by one.
    fn terminate(&mut self, worker: usize, finished: &[usize]) {
        let Worker { pool, number, .. } = self.workers[worker];
        let mut at = self.world.now;
        for &id in finished {
            let request = &mut self.world.requests[id];
            request.timeline.terminal = Some(at);
            let blocks = request.prompt_blocks(self.options.block_tokens);
            self.routers[usize::from(pool == Pool::Decode)].relieve(number, blocks);
            at += CLEAN_UP;
        }
    }

    /// A prompt is computed: it is held where it is until a decode worker has taken over.
    fn hand_over(&mut self, id: usize) {
        self.world.requests[id].timeline.source_held = Some(self.world.now);
        if self.destination_first() {
            self.transfer(id);
        } else {
            self.seek_destination(id);
        }
    }

    /// Reserves room for as many hand-overs as fit.
    fn grant_reservations(&mut self, worker: usize) {
        while let Some(id) = self.workers[worker].reserve_next(&mut self.world) {
            self.world.requests[id].timeline.destination_reserved = Some(self.world.now);
            if self.destination_first() {
                self.submit(id, Pool::Prefill);
            } else {
                self.transfer(id);
            }
        }
    }

    /// Starts to move a prompt from where it was computed to where room is reserved for it.
    fn transfer(&mut self, id: usize) {
        let request = &self.world.requests[id];
        let there = request.destination_published as u32 * self.options.block_tokens;
        let tokens = match self.options.kv_transfer_timing {
            TransferTiming::FullPrompt => request.input_tokens,
            TransferTiming::DestinationMissing => request.input_tokens - there,
        };
        let bytes = u64::from(tokens) * self.options.kv_bytes_per_token;
        // One GB/s is one byte in a nanosecond.
        let moving = (bytes as f64 / self.options.kv_transfer_gb_per_s) as Nanos;
        self.plan(self.world.now + TRANSFER_SET_UP + moving, Event::TransferEnd { request: id });
    }

    fn end_transfer(&mut self, id: usize) {
        let worker = self.routed(id, Pool::Decode);
        self.world.requests[id].timeline.destination_activated = Some(self.world.now);
        self.workers[worker].activate(&mut self.world, id);
        self.kick(worker);
    }

    /// The prefill workers let go of what this decode worker has admitted.
    fn release_sources(&mut self, worker: usize) {
        for id in self.workers[worker].take_admitted() {
            let request = &mut self.world.requests[id];
            request.timeline.source_released = Some(self.world.now);
            let blocks = request.prompt_blocks(self.options.block_tokens);
            let source = self.routed(id, Pool::Prefill);
            self.routers[0].relieve(source, blocks);
            self.workers[source].release_source(&mut self.world.requests[id]);
            self.kick(source);
        }
    }
}

/// Every request must fit into a worker by itself, or it could never finish.
fn check_capacity(options: &Options, rows: &[Row]) -> Result<(), String> {
    for (ordinal, row) in rows.iter().enumerate() {
        let tokens = row.input_tokens + row.output_tokens.max(options.engine.growth_tokens());
        let blocks = tokens.div_ceil(options.block_tokens) as usize + 1;
        if blocks > options.num_gpu_blocks {
            let capacity = options.num_gpu_blocks;
            return Err(format!("request {ordinal} needs {blocks} blocks and a worker has {capacity}"));
        }
    }
    Ok(())
}
