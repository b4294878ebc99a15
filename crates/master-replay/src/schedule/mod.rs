//! Which event is sent when, without any clock or socket of its own.

mod shard;
mod speed;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::ops::Range;

use thiserror::Error;

use crate::contract::{Dialect, Phase, Trace};

pub use shard::Shares;
pub use speed::{CLOCK_LIMIT_US, Speed, SpeedError};

/// How many events [`Scheduler::upcoming_us`] looks at.
const UPCOMING: usize = 32;

/// Why a trace cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A due time that no clock can tell.
    #[error(
        "schedule the event {id}: its timestamp {timestamp_us} is due after the last µs a clock can tell"
    )]
    BeyondClock {
        /// The event.
        id: String,
        /// Its timestamp.
        timestamp_us: u64,
    },
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Send this event.
    Dispatch(u32),
    /// Nothing is due before this time; ask again then, or after the next event has finished.
    SleepUntil(u64),
    /// Only the end of an event in flight can change anything.
    WaitForFinish,
    /// Every event of this phase has finished. [`Scheduler::begin_phase`] goes on.
    PhaseEnded(Phase),
    /// Every event has finished.
    Done,
}

/// Decides which event is sent when. It has no clock: every time is given to it, in µs after the replay's origin.
///
/// An event is ready when its phase is running and all its dependencies have finished, however they ended. Ready
/// events are sent in the order of the file, each not before it is due, and no more than `in_flight` at once. A due
/// time never moves: what comes late is sent late. In the unversioned dialect every client has one worker instead: its
/// events run one at a time in the order of the file, and as many are in flight as there are clients.
///
/// ```
/// use std::num::NonZeroU32;
/// use master_replay::{Phase, Scheduler, Speed, Step, Trace};
///
/// let trace = Trace::parse(
///     br#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}
/// {"id":"a","timestamp_us":0,"client_id":"c","op":"BatchExistKey","keys":["k"]}
/// {"id":"b","timestamp_us":100,"client_id":"c","op":"BatchExistKey","keys":["k"],"depends_on":["a"]}"#,
/// )?;
/// let mut scheduler = Scheduler::new(&trace, Speed::ONE, NonZeroU32::MIN)?;
/// assert_eq!(scheduler.next(0), Step::Dispatch(0));
/// assert_eq!(scheduler.next(200), Step::WaitForFinish);
/// scheduler.finish(0);
/// assert_eq!(scheduler.next(300), Step::Dispatch(1));
/// assert_eq!(scheduler.scheduled_us(1), 100);
/// scheduler.finish(1);
/// assert_eq!(scheduler.next(400), Step::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scheduler<'t> {
    trace: &'t Trace,
    speed: Speed,
    in_flight: NonZeroU32,
    shares: Option<(&'t Shares, u32)>,
    running: u32,
    /// The events of the phase that is running.
    phase: Phase,
    range: Range<u32>,
    origins_us: [Option<u64>; 3],
    /// Events of the phase that have not finished.
    left: u32,
    /// Events before this one were sent, or wait in `released` or for a dependency.
    cursor: u32,
    /// How many dependencies of each event have not finished; empty when there are no dependencies at all.
    waiting: Vec<u32>,
    /// The events that wait for each event.
    dependents: Vec<u32>,
    dependents_end: Vec<u32>,
    /// Events before the cursor that have become ready since.
    released: BinaryHeap<Reverse<u32>>,
    /// The event before of the same client, while dependencies are counted.
    previous: Vec<u32>,
}

impl<'t> Scheduler<'t> {
    /// Begins with the first phase, whose origin is 0.
    ///
    /// # Errors
    ///
    /// An event is due after the last µs that a clock can tell.
    pub fn new(trace: &'t Trace, speed: Speed, in_flight: NonZeroU32) -> Result<Self, ScheduleError> {
        check_range(trace, speed)?;
        let mut scheduler = Scheduler {
            trace,
            speed,
            in_flight,
            shares: None,
            running: 0,
            phase: Phase::Setup,
            range: 0..0,
            origins_us: [None; 3],
            left: 0,
            cursor: 0,
            waiting: Vec::new(),
            dependents: Vec::new(),
            dependents_end: Vec::new(),
            released: BinaryHeap::new(),
            previous: Vec::new(),
        };
        scheduler.count_dependencies();
        scheduler.previous = Vec::new();
        let first = trace.event(0).phase();
        scheduler.enter(first, 0);
        Ok(scheduler)
    }

    /// Only the events of one replayer of several.
    #[must_use]
    pub fn of_shard(mut self, shares: &'t Shares, shard: u32) -> Self {
        self.shares = Some((shares, shard));
        let (phase, origin) = (self.phase, self.origins_us[self.phase as usize].unwrap_or(0));
        self.enter(phase, origin);
        self
    }

    fn is_mine(&self, index: u32) -> bool {
        self.shares.is_none_or(|(shares, shard)| shares.shard_of(index) == shard)
    }

    fn count_dependencies(&mut self) {
        self.find_previous();
        let count = self.trace.len();
        if self.previous.is_empty() && self.trace.events().all(|event| event.dependencies().is_empty()) {
            return;
        }
        self.waiting = vec![0; count];
        self.dependents_end = vec![0; count];
        for event in self.trace.events() {
            for dependency in self.relevant(event.index()) {
                self.waiting[event.index() as usize] += 1;
                self.dependents_end[dependency as usize] += 1;
            }
        }
        let mut total = 0;
        for end in &mut self.dependents_end {
            total += *end;
            *end = total - *end;
        }
        self.dependents = vec![0; total as usize];
        for event in self.trace.events() {
            for dependency in self.relevant(event.index()) {
                let place = &mut self.dependents_end[dependency as usize];
                self.dependents[*place as usize] = event.index();
                *place += 1;
            }
        }
    }

    /// What an event waits for within its phase. Dependencies in earlier phases have finished when it begins.
    fn relevant(&self, index: u32) -> impl Iterator<Item = u32> + use<'t> {
        let event = self.trace.event(index);
        let first = self.trace.phase_start(event.phase());
        let before = self.previous.get(index as usize).copied().filter(|before| *before != u32::MAX);
        let stated = event.dependencies().iter().copied().filter(move |dependency| *dependency >= first);
        stated.chain(before)
    }

    /// In the unversioned dialect each client's events run one at a time, in the order of the file.
    fn find_previous(&mut self) {
        if self.trace.dialect() != Dialect::Unversioned {
            return;
        }
        let mut last = vec![u32::MAX; self.trace.clients()];
        self.previous = self
            .trace
            .events()
            .map(|event| std::mem::replace(&mut last[event.client() as usize], event.index()))
            .collect();
        let clients = u32::try_from(self.trace.clients()).unwrap_or(u32::MAX);
        self.in_flight = NonZeroU32::new(clients).unwrap_or(NonZeroU32::MIN);
    }

    fn enter(&mut self, phase: Phase, origin_us: u64) {
        self.phase = phase;
        self.origins_us[phase as usize] = Some(origin_us);
        self.range = self.trace.phase_range(phase);
        self.cursor = self.range.start;
        let mine = match self.shares {
            None => self.range.len(),
            Some(_) => self.range.clone().filter(|index| self.is_mine(*index)).count(),
        };
        self.left = u32::try_from(mine).unwrap_or(u32::MAX);
    }

    /// Where a phase began, once it has.
    #[must_use]
    pub fn phase_origin_us(&self, phase: Phase) -> Option<u64> {
        self.origins_us[phase as usize]
    }

    /// How many events are in flight.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How overdue the next event is at this time, if as many are in flight as may be.
    #[must_use]
    pub fn saturated_lag_us(&mut self, now_us: u64) -> Option<u64> {
        if self.left == 0 || self.running < self.in_flight.get() {
            return None;
        }
        self.lowest_ready().and_then(|index| now_us.checked_sub(self.scheduled_us(index)))
    }

    /// When an event is due; it must be of a phase that has begun.
    #[must_use]
    pub fn scheduled_us(&self, index: u32) -> u64 {
        let event = self.trace.event(index);
        let origin = self.origins_us[event.phase() as usize].unwrap_or(0);
        // Due times were checked against the clock; their sum with an origin cannot wrap, and is waited for as long
        // as it takes.
        origin.saturating_add(self.speed.due_us(event.timestamp_us()).unwrap_or(CLOCK_LIMIT_US))
    }

    /// When the next few events of the file are due that have not been reached yet, whatever they depend on: what
    /// [`Step::SleepUntil`] will most likely say next.
    pub fn upcoming_us(&self) -> impl Iterator<Item = u64> + '_ {
        let next = (self.cursor..self.range.end).take(UPCOMING);
        next.filter(|index| self.is_mine(*index)).map(|index| self.scheduled_us(index))
    }

    /// What to do at this time. Ask again after each event sent or finished, and when a sleep is over.
    pub fn next(&mut self, now_us: u64) -> Step {
        if self.left == 0 {
            return if self.range.end as usize == self.trace.len() {
                Step::Done
            } else {
                Step::PhaseEnded(self.phase)
            };
        }
        if self.running >= self.in_flight.get() {
            return Step::WaitForFinish;
        }
        let Some(index) = self.lowest_ready() else { return Step::WaitForFinish };
        let due_us = self.scheduled_us(index);
        if due_us > now_us {
            return Step::SleepUntil(due_us);
        }
        self.take(index);
        Step::Dispatch(index)
    }

    /// The ready event that comes first in the file.
    fn lowest_ready(&mut self) -> Option<u32> {
        while self.cursor < self.range.end && !self.is_ready_at_cursor() {
            self.cursor += 1;
        }
        let at_cursor = (self.cursor < self.range.end).then_some(self.cursor);
        let released = self.released.peek().map(|Reverse(index)| *index);
        match (at_cursor, released) {
            (Some(cursor), Some(released)) => Some(cursor.min(released)),
            (one, other) => one.or(other),
        }
    }

    fn is_ready_at_cursor(&self) -> bool {
        self.waiting.get(self.cursor as usize).is_none_or(|left| *left == 0) && self.is_mine(self.cursor)
    }

    fn take(&mut self, index: u32) {
        if index == self.cursor {
            self.cursor += 1;
        } else {
            self.released.pop();
        }
        self.running += 1;
    }

    /// An event has finished, however it ended: what depends on it may go on.
    pub fn finish(&mut self, index: u32) {
        self.running -= 1;
        self.left -= 1;
        if self.waiting.is_empty() {
            return;
        }
        for at in self.dependents_of(index) {
            let dependent = self.dependents[at];
            let left = &mut self.waiting[dependent as usize];
            *left -= 1;
            // One that the cursor has not reached yet is found by it.
            if *left == 0 && dependent < self.cursor {
                self.released.push(Reverse(dependent));
            }
        }
    }

    fn dependents_of(&self, index: u32) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.dependents_end[before as usize]);
        start as usize..self.dependents_end[index as usize] as usize
    }

    /// Begins the phase after the one that ended, at this time; gives its name.
    ///
    /// # Panics
    ///
    /// The running phase has not ended, or was the last one: [`next`](Self::next) did not say so.
    pub fn begin_phase(&mut self, origin_us: u64) -> Phase {
        assert!(self.left == 0, "events of the running phase have not finished");
        let next = self.trace.event(self.range.end).phase();
        self.enter(next, origin_us);
        next
    }
}

fn check_range(trace: &Trace, speed: Speed) -> Result<(), ScheduleError> {
    // Times are sorted within a phase: its last event is its latest.
    for last in Phase::ALL.iter().filter_map(|phase| trace.phase_range(*phase).last()) {
        let event = trace.event(last);
        if speed.due_us(event.timestamp_us()).is_none() {
            return Err(ScheduleError::BeyondClock {
                id: event.id().to_owned(),
                timestamp_us: event.timestamp_us(),
            });
        }
    }
    Ok(())
}

impl Trace {
    /// Checks that every event is due at a time that a clock can tell.
    ///
    /// # Errors
    ///
    /// One is not.
    pub fn check_schedulable(&self, speed: Speed) -> Result<(), ScheduleError> {
        check_range(self, speed)
    }

    fn phase_start(&self, phase: Phase) -> u32 {
        self.phase_range(phase).start
    }
}
