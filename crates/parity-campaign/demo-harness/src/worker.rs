//! One worker: its waiting line, its batch, its blocks, and the two ways of filling a pass.
//!
//! Both schedulers give the blocks of a younger request to an older one when there are none left. A vLLM-like worker mixes prompts
//! and decoding in one pass and preempts the last request it admitted; an SGLang-like worker runs either prompts or decoding,
//! admits by an estimate of what its requests will still need, and retracts those that have produced least.

use std::collections::VecDeque;

use crate::blocks::{BlockId, BlockPool, KvEvent, Prefix};
use crate::evidence::{Occupancy, Pressure};
use crate::options::{EngineType, Options};
use crate::request::{Nanos, Pool, Request};

/// The requests of a replay and the pressure they met; workers refer to both by index.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) requests: Vec<Request>,
    pub(crate) pressure: Vec<Pressure>,
    /// Whether every token's time is kept, for a report.
    pub(crate) keep_tokens: bool,
}

/// What every worker of a replay is allowed, and how fast it is.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    engine: EngineType,
    block_tokens: u32,
    max_num_seqs: usize,
    max_num_batched_tokens: u32,
    speedup_ratio: f64,
    decode_speedup_ratio: f64,
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            engine: options.engine,
            block_tokens: options.block_tokens,
            max_num_seqs: options.max_num_seqs,
            max_num_batched_tokens: options.max_num_batched_tokens,
            speedup_ratio: options.speedup_ratio,
            decode_speedup_ratio: options.decode_speedup_ratio,
        }
    }
}

/// A request in the current pass, and how many of its tokens the pass computes.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    request: usize,
    tokens: u32,
}

/// A simulated worker.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) pool: Pool,
    /// Its number within its pool.
    pub(crate) number: usize,
    limits: Limits,
    blocks: BlockPool,
    /// Requests without blocks, in the order in which they are to be admitted.
    waiting: VecDeque<usize>,
    /// Requests that already have blocks here: handed over by a prefill worker.
    ready: VecDeque<usize>,
    /// Requests that wait for blocks to be handed over into, and how many have them but are not here yet.
    reserving: VecDeque<usize>,
    reserved: usize,
    running: Vec<usize>,
    batch: Vec<Scheduled>,
    /// Handed-over requests admitted since this was last asked.
    taken_over: Vec<usize>,
    busy: bool,
    /// SGLang: how much of the output still to come is expected to need room, in thousandths.
    expected_output: u64,
}

/// What SGLang expects at first, and the least it ever expects.
const EXPECTED_OUTPUT_FIRST: u64 = 700;
const EXPECTED_OUTPUT_LEAST: u64 = 100;
/// Tokens that SGLang allows for each request when it corrects its expectation after a retraction.
const RETRACTION_ALLOWANCE_TOKENS: u64 = 20;

impl Worker {
    pub(crate) fn new(pool: Pool, number: usize, num_gpu_blocks: usize, limits: Limits) -> Self {
        Self {
            pool,
            number,
            limits,
            blocks: BlockPool::new(num_gpu_blocks),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            reserving: VecDeque::new(),
            reserved: 0,
            running: Vec::new(),
            batch: Vec::new(),
            taken_over: Vec::new(),
            busy: false,
            expected_output: EXPECTED_OUTPUT_FIRST,
        }
    }

    /// Puts a request at the end of the line.
    pub(crate) fn enqueue(&mut self, request: usize) {
        self.waiting.push_back(request);
    }

    /// Puts a request at the end of the line for a hand-over.
    pub(crate) fn enqueue_reservation(&mut self, request: usize) {
        self.reserving.push_back(request);
    }

    /// A request has been handed over, KV and all, into the blocks reserved for it.
    pub(crate) fn activate(&mut self, world: &mut World, id: usize) {
        let request = &mut world.requests[id];
        request.blocks = std::mem::take(&mut request.destination_blocks);
        request.published = request.destination_published;
        // The last token of the prompt is computed here, to get the first one of the answer.
        request.computed = request.input_tokens - 1;
        self.reserved -= 1;
        self.ready.push_back(id);
    }

    /// The handed-over requests admitted since this was last asked: their sources can go.
    pub(crate) fn take_admitted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.taken_over)
    }

    /// What the pool stored and gave up since this was last asked.
    pub(crate) fn drain_events(&mut self, into: &mut Vec<KvEvent>) {
        self.blocks.drain_events(into);
    }

    /// Gives back blocks that a request held here while another worker took over.
    pub(crate) fn release_source(&mut self, request: &mut Request) {
        self.blocks.release(&mut request.source_blocks);
    }

    /// Reserves room for the next request that waits for a hand-over, sharing what is here, and returns it.
    ///
    /// Requests that lost their blocks come first, and every request here keeps some room to grow into.
    pub(crate) fn reserve_next(&mut self, world: &mut World) -> Option<usize> {
        let &id = self.reserving.front()?;
        if !self.waiting.is_empty() {
            return None;
        }
        let residents = (self.running.len() + self.ready.len() + self.reserved + 1) as u32;
        let headroom = (residents * self.limits.engine.growth_tokens() / self.limits.block_tokens) as usize;
        let request = &mut world.requests[id];
        let prefix = self.prefix(request);
        let mut blocks = Vec::new();
        if !self.find_blocks(request, prefix, request.input_tokens, headroom, &mut blocks) {
            return None;
        }
        request.destination_blocks = blocks;
        request.destination_published = prefix.blocks;
        self.reserved += 1;
        self.reserving.pop_front();
        Some(id)
    }

    /// Starts a pass if there is anything to do, and says how long it takes.
    pub(crate) fn start_pass(&mut self, world: &mut World) -> Option<Nanos> {
        if self.busy {
            return None;
        }
        let pressure = world.pressure.len();
        self.admit_ready(world);
        match self.limits.engine {
            EngineType::Vllm => self.plan_mixed(world),
            EngineType::Sglang => self.plan_alternating(world),
        }
        // A pass in which all that ran had to go computes nothing and still takes its time.
        if self.batch.is_empty() && world.pressure.len() == pressure {
            return None;
        }
        self.busy = true;
        Some(self.pass_duration(world))
    }

    /// Ends the pass: tokens appear, full blocks become findable, finished requests leave.
    pub(crate) fn finish_pass(&mut self, world: &mut World, finished: &mut Vec<usize>) {
        finished.clear();
        for Scheduled { request: id, tokens } in self.batch.drain(..) {
            let request = &mut world.requests[id];
            request.computed += tokens;
            let full = (request.computed / self.limits.block_tokens) as usize;
            while request.published < full {
                let place = request.published;
                self.blocks.publish(request.blocks[place], request.contents[place]);
                request.published += 1;
            }
            if request.remaining() > 0 {
                continue;
            }
            if self.pool != Pool::Prefill {
                request.push_token(self.limits.block_tokens);
                request.stamp_token(world.now, world.keep_tokens);
            }
            if self.pool == Pool::Prefill || request.finished() {
                finished.push(id);
            }
        }
        if !finished.is_empty() {
            self.running.retain(|id| !finished.contains(id));
        }
        for &id in finished.iter() {
            self.let_go(&mut world.requests[id]);
        }
        self.busy = false;
    }

    /// A finished request leaves its blocks, or holds on to them until it has been handed over.
    fn let_go(&mut self, request: &mut Request) {
        if self.pool == Pool::Prefill {
            request.source_blocks = std::mem::take(&mut request.blocks);
        } else {
            self.blocks.release(&mut request.blocks);
        }
        request.computed = 0;
        request.published = 0;
    }

    /// Gives blocks for its first `tokens` tokens to a request that has none, `prefix` of which are here. False if there is no
    /// room.
    fn allocate(&mut self, request: &mut Request, prefix: Prefix, tokens: u32, headroom: usize) -> bool {
        let mut blocks = Vec::new();
        if !self.find_blocks(request, prefix, tokens, headroom, &mut blocks) {
            return false;
        }
        request.blocks = blocks;
        request.published = prefix.blocks;
        request.computed = self.tokens_in(prefix);
        true
    }

    /// Finds blocks for the first `tokens` tokens of a request, sharing its prefix and leaving `headroom` blocks alone.
    fn find_blocks(
        &mut self,
        request: &Request,
        prefix: Prefix,
        tokens: u32,
        headroom: usize,
        into: &mut Vec<BlockId>,
    ) -> bool {
        let wanted = tokens.div_ceil(self.limits.block_tokens) as usize - prefix.blocks;
        if wanted + prefix.idle + headroom > self.blocks.available() {
            return false;
        }
        self.blocks.share(&request.contents[..prefix.blocks], into);
        self.blocks.take(wanted, into);
        true
    }

    /// Leading blocks of a request that are here. At least one token is left, since something must be computed.
    fn prefix(&self, request: &Request) -> Prefix {
        let most = ((request.known() - 1) / self.limits.block_tokens) as usize;
        self.blocks.find_prefix(&request.contents[..most.min(request.contents.len())])
    }

    fn tokens_in(&self, prefix: Prefix) -> u32 {
        prefix.blocks as u32 * self.limits.block_tokens
    }

    /// Blocks that a running request lacks for its next `tokens` tokens.
    fn missing_blocks(&self, request: &Request, tokens: u32) -> usize {
        let wanted = (request.computed + tokens).div_ceil(self.limits.block_tokens) as usize;
        wanted.saturating_sub(request.blocks.len())
    }

    /// Blocks that must be available before running requests take this many.
    fn wanted_for(&self, blocks: usize) -> usize {
        blocks
    }

    /// Admits requests that were handed over; they bring their blocks.
    fn admit_ready(&mut self, world: &mut World) {
        while self.running.len() < self.limits.max_num_seqs {
            let Some(id) = self.ready.pop_front() else { return };
            world.requests[id].stamp_admission(self.pool, world.now, 0);
            self.running.push(id);
            self.taken_over.push(id);
        }
    }

    /// Notes that a request from the waiting line runs now.
    fn admitted(&mut self, world: &mut World, id: usize, reused_tokens: u32) {
        self.waiting.pop_front();
        self.running.push(id);
        let again = world.requests[id].stamp_admission(self.pool, world.now, reused_tokens);
        if again && let Some(&last) = world.requests[id].timeline.pressure.last() {
            world.pressure[last].readmitted = Some(world.now);
        }
    }

    /// Takes its blocks from the running request at `place`, for others that want `wanted` blocks.
    fn evict(&mut self, world: &mut World, place: usize, wanted: usize) {
        let id = self.running[place];
        let before = self.occupancy();
        let available_blocks = self.blocks.available();
        self.running.remove(place);
        let request = &mut world.requests[id];
        let lost_blocks = request.blocks.len();
        self.blocks.release(&mut request.blocks);
        request.computed = 0;
        request.published = 0;
        self.waiting.push_front(id);
        request.timeline.pressure.push(world.pressure.len());
        world.pressure.push(Pressure {
            request: id,
            pool: self.pool,
            worker: self.number,
            at: world.now,
            readmitted: None,
            lost_blocks,
            available_blocks,
            wanted_blocks: wanted,
            before,
            after: self.occupancy(),
        });
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            active_blocks: self.blocks.active(),
            running_requests: self.running.len(),
            waiting_requests: self.waiting.len() + self.ready.len(),
        }
    }

    /// vLLM: everything that runs gets its next tokens, then the line is admitted into what is left of the pass.
    fn plan_mixed(&mut self, world: &mut World) {
        let mut budget = self.limits.max_num_batched_tokens;
        let pressure = world.pressure.len();
        let mut place = 0;
        while place < self.running.len() && budget > 0 {
            let id = self.running[place];
            let tokens = world.requests[id].remaining().min(budget);
            if !self.grow_or_preempt(world, place, tokens) {
                break;
            }
            self.batch.push(Scheduled { request: id, tokens });
            budget -= tokens;
            place += 1;
        }
        if world.pressure.len() == pressure {
            self.admit_mixed(world, budget);
        }
    }

    /// Finds room for the request at `place`, at the cost of those admitted after it. False if it had to go itself.
    fn grow_or_preempt(&mut self, world: &mut World, place: usize, tokens: u32) -> bool {
        let id = self.running[place];
        let missing = self.missing_blocks(&world.requests[id], tokens);
        if missing == 0 {
            return true;
        }
        while self.wanted_for(missing) > self.blocks.available() {
            let last = self.running.len() - 1;
            self.evict(world, last, self.wanted_for(missing));
            if last == place {
                return false;
            }
        }
        self.blocks.take(missing, &mut world.requests[id].blocks);
        true
    }

    fn admit_mixed(&mut self, world: &mut World, mut budget: u32) {
        while budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(&id) = self.waiting.front() else { return };
            let request = &mut world.requests[id];
            let prefix = self.prefix(request);
            let reused = self.tokens_in(prefix);
            let tokens = (request.known() - reused).min(budget);
            // A prefill worker is full of prompts that wait to be handed over: one it starts, it must be able to finish.
            let room_for = if self.pool == Pool::Prefill { request.known() } else { reused + tokens };
            if !self.allocate(request, prefix, room_for, 0) {
                return;
            }
            self.admitted(world, id, reused);
            self.batch.push(Scheduled { request: id, tokens });
            budget -= tokens;
        }
    }

    /// SGLang: a pass of prompts if any can start or go on, otherwise a pass of decoding.
    fn plan_alternating(&mut self, world: &mut World) {
        self.plan_prompts(world);
        if self.batch.is_empty() {
            self.retract_for_decode(world);
            self.plan_decode(world);
        }
    }

    fn plan_prompts(&mut self, world: &mut World) {
        let mut budget = self.limits.max_num_batched_tokens;
        for &id in &self.running {
            let tokens = world.requests[id].remaining().min(budget);
            if tokens > 1 {
                self.batch.push(Scheduled { request: id, tokens });
                budget -= tokens;
            }
        }
        while budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(&id) = self.waiting.front() else { return };
            let headroom = self.expected_growth_blocks(world, id);
            let request = &mut world.requests[id];
            let prefix = self.prefix(request);
            if !self.allocate(request, prefix, request.known(), headroom) {
                return;
            }
            let (reused, tokens) = (request.computed, request.remaining().min(budget));
            self.admitted(world, id, reused);
            self.batch.push(Scheduled { request: id, tokens });
            budget -= tokens;
        }
    }

    /// Blocks that the running requests and one more are expected to need until they finish.
    fn expected_growth_blocks(&self, world: &World, candidate: usize) -> usize {
        if self.pool == Pool::Prefill || self.running.is_empty() {
            return 0;
        }
        let still = |id: usize| {
            let request = &world.requests[id];
            u64::from(request.output_tokens - request.generated) * self.expected_output / 1_000
        };
        let tokens: u64 = self.running.iter().map(|&id| still(id)).sum::<u64>() + still(candidate);
        (tokens / u64::from(self.limits.block_tokens)) as usize
    }

    /// Retracts requests until the rest can decode one more token each.
    fn retract_for_decode(&mut self, world: &mut World) {
        let pressure = world.pressure.len();
        loop {
            let missing = self.running.iter().map(|&id| self.missing_blocks(&world.requests[id], 1)).sum();
            let wanted = self.wanted_for(missing);
            if wanted <= self.blocks.available() {
                break;
            }
            let place = self.least_progress(world);
            self.evict(world, place, wanted);
        }
        if world.pressure.len() > pressure {
            self.expect_more(world);
        } else {
            self.expected_output = (self.expected_output - 1).max(EXPECTED_OUTPUT_LEAST);
        }
    }

    /// The running request that has produced least; of several, that with the longest prompt, then the one admitted last.
    fn least_progress(&self, world: &World) -> usize {
        let rank = |&place: &usize| {
            let request = &world.requests[self.running[place]];
            (request.generated, std::cmp::Reverse(request.input_tokens), std::cmp::Reverse(place))
        };
        (0..self.running.len()).min_by_key(rank).expect("only running requests can want blocks")
    }

    /// Corrects the expectation by what the remaining requests have produced so far.
    fn expect_more(&mut self, world: &World) {
        let (mut produced, mut asked) = (0, 1);
        for &id in &self.running {
            produced += u64::from(world.requests[id].generated) + RETRACTION_ALLOWANCE_TOKENS;
            asked += u64::from(world.requests[id].output_tokens);
        }
        self.expected_output = (produced * 1_000 / asked).clamp(EXPECTED_OUTPUT_LEAST, 1_000);
    }

    fn plan_decode(&mut self, world: &mut World) {
        for place in 0..self.running.len() {
            let id = self.running[place];
            let missing = self.missing_blocks(&world.requests[id], 1);
            self.blocks.take(missing, &mut world.requests[id].blocks);
            self.batch.push(Scheduled { request: id, tokens: 1 });
        }
    }

    /// How long the pass takes: prompts cost by token and context, decoding by request and context.
    fn pass_duration(&self, world: &World) -> Nanos {
        let (mut prompt_ns, mut decode_ns) = (0_u64, 0_u64);
        for scheduled in &self.batch {
            let context = u64::from(world.requests[scheduled.request].computed);
            let tokens = u64::from(scheduled.tokens);
            if tokens > 1 {
                prompt_ns += 20_000 * tokens + tokens * context / 64;
            } else {
                decode_ns += 25_000 + 40 * context;
            }
        }
        let decode_ns = (decode_ns as f64 / self.limits.decode_speedup_ratio) as u64;
        let total = 4_000_000 + prompt_ns + decode_ns;
        ((total as f64 / self.limits.speedup_ratio) as u64).max(1)
    }
}
