//! The timed part.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};

use super::call::{self, Context, Dispatched, Parts, Settled};
use super::clients::{self, Clients, Mounted, Segments};
use super::heartbeat::{Heartbeats, Signals};
use super::lane::{self, Lane};
use super::sleep::{Alarms, Sockets, wake_precisely};
use super::{Alone, Barrier, EngineReport, EngineTimes, Progress, ReplayError, ReplayOptions, Replayed};
use crate::contract::{Dialect, Event, Op, Phase, Trace};
use crate::outcome::{Distribution, KeyStatus, Outcomes};
use crate::schedule::{Scheduler, Step};

/// How long a cancellation or a call that has had its time may go unseen.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A master that has calls to answer and says nothing for so long stands still.
const SILENCE: Duration = Duration::from_millis(100);

/// A lane with this much to be written is written to at once.
const FLUSH_BYTES: usize = 64 << 10;

/// Replies are left unread only once all calls have been in flight, and another ever more overdue, for so long: a paced
/// replay that catches up after a hiccup reads at once.
const SATURATED_US: u64 = 100_000;

/// Replies are left unread for at most this part of the time that the master needs for the calls in flight, so that
/// it never runs out of calls.
const DELAY_PART: (u64, u64) = (2, 3);

/// A shorter wait costs more than it spares.
const SHORTEST_DELAY: Duration = Duration::from_micros(20);

/// Everything of a replay that is under way.
pub(super) struct Engine<'r, 't> {
    trace: &'t Trace,
    scheduler: Scheduler<'t>,
    outcomes: Outcomes,
    options: &'r ReplayOptions,
    clients: &'r Clients,
    segments: Segments,
    /// Segments whose mount had no answer: no event uses them, but they are unmounted at the end.
    unanswered: Vec<Mounted>,
    lanes: Vec<Lane>,
    next_lane: usize,
    parts: Parts<'t>,
    settled: Settled,
    signals: &'r Signals,
    origin: Instant,
    report: EngineReport,
    finished: u64,
    progress: &'r Progress,
    /// Time per reply, as far as it is known, in ns.
    reply_ns: u64,
    patience: Patience,
    last_read: Option<Instant>,
    /// How long replies had been there when they were read, in us.
    unread_us: Histogram<u64>,
    /// How long the kernel took to take what was written, in us.
    write_us: Histogram<u64>,
    saturation: Option<Saturated>,
    /// Since when calls have been in flight and no reply has come.
    quiet_since: Option<Instant>,
}

/// What a call that was sent came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    /// The master did not do it, or never heard of it.
    Refused,
    /// Whether the master did it is not known.
    None,
}

/// As many calls are in flight as may be, and another is overdue.
struct Saturated {
    since_us: u64,
    /// When the lag was last looked at, and what it was then.
    looked_us: u64,
    lag_us: u64,
    /// Whether it had grown since the look before.
    falls_behind: bool,
}

impl Saturated {
    fn new(now_us: u64, lag_us: u64) -> Self {
        Saturated { since_us: now_us, looked_us: now_us, lag_us, falls_behind: false }
    }

    fn look(&mut self, now_us: u64, lag_us: u64) {
        if now_us.saturating_sub(self.looked_us) >= SATURATED_US {
            let falls_behind = lag_us > self.lag_us;
            *self = Saturated { looked_us: now_us, lag_us, falls_behind, ..*self };
        }
    }
}

/// How much of the time for which replies may be left unread is used, in parts of [`Patience::FULL`].
///
/// That time follows from the time between replies, which a master that has answered everything owes to the wait itself. So a wait that
/// leaves it too few calls makes the next one shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patience(u64);

impl Default for Patience {
    fn default() -> Self {
        Patience(Self::FULL)
    }
}

impl Patience {
    const FULL: u64 = 64;

    /// So many of the calls in flight were answered during a wait.
    fn after_wait(&mut self, answered: u64, in_flight: u64) {
        let eighths = answered.saturating_mul(8) / in_flight.max(1);
        self.0 = match eighths {
            0..7 => (self.0 + self.0 / 8 + 1).min(Self::FULL),
            _ => self.0 / 2,
        };
    }

    /// So many were answered without a wait that was long enough to be one.
    fn after_read(&mut self, answered: u64, in_flight: u64) {
        if answered.saturating_mul(8) < in_flight {
            self.0 = (self.0 + 1).min(Self::FULL);
        }
    }
}

/// A master, and how traces are replayed against it.
pub(super) struct Site<'r> {
    pub(super) address: SocketAddr,
    pub(super) wire: master_wire::Dialect,
    pub(super) options: &'r ReplayOptions,
    pub(super) cancel: &'r CancelToken,
}

/// Clients of a trace that the master knows, and the segments that they have mounted.
struct Present {
    clients: Arc<Clients>,
    mounted: Vec<Mounted>,
}

/// Everybody who takes part, from the first registration to the end.
#[derive(Default)]
struct Cast {
    heartbeats: Heartbeats,
    present: Vec<Present>,
}

/// A trace that was replayed to its end.
struct Ran {
    outcomes: Outcomes,
    origin: Instant,
    origin_monotonic_us: u64,
    report: EngineReport,
}

/// Prepares, fills the master, replays, and cleans up.
pub(super) fn run(
    trace: &Trace,
    scheduler: Scheduler<'_>,
    site: &Site<'_>,
    barrier: &mut dyn Barrier,
    progress: &Progress,
) -> Result<Replayed, ReplayError> {
    let mut cast = Cast::default();
    let ran = prefill(site, &mut cast)
        .and_then(|()| replay_one(trace, scheduler, site, &mut cast, barrier, progress, true));
    let origin = ran.as_ref().map_or_else(|_| Instant::now(), |ran| ran.origin);
    let (heartbeats, pings) = cast.heartbeats.stop(site.options, origin, ran.is_ok());
    let left_mounted = cast.present.iter().map(|present| present.leave(site)).sum();
    let Ran { outcomes, origin_monotonic_us, report, .. } = ran?;
    Ok(Replayed { outcomes, origin_monotonic_us, heartbeats, pings, engine: report, left_mounted })
}

/// Replays the trace that fills the master; its clients stay, with their segments and heartbeats.
fn prefill(site: &Site<'_>, cast: &mut Cast) -> Result<(), ReplayError> {
    let Some(trace) = site.options.prefill.as_deref().filter(|trace| site.options.registers(trace.dialect()))
    else {
        return Ok(());
    };
    let scheduler = Scheduler::new(trace, site.options.speed, site.options.in_flight)?;
    let ran = replay_one(trace, scheduler, site, cast, &mut Alone, &Progress::default(), false)?;
    let statuses = |event: &Event<'_>| ran.outcomes.statuses(event.key_range());
    let failed = |event: &Event<'_>| statuses(event).iter().find(|status| **status != KeyStatus::Ok).copied();
    match trace.events().find_map(|event| failed(&event).map(|status| (event, status))) {
        None => Ok(()),
        Some((event, status)) => Err(ReplayError::Prefill { event: event.id().to_owned(), status }),
    }
}

fn replay_one(
    trace: &Trace,
    scheduler: Scheduler<'_>,
    site: &Site<'_>,
    cast: &mut Cast,
    barrier: &mut dyn Barrier,
    progress: &Progress,
    is_measured: bool,
) -> Result<Ran, ReplayError> {
    let Site { address, wire, options, cancel } = *site;
    let known = Arc::new(Clients::new(trace, options, is_measured));
    let mounted = clients::register_all(trace, &known, address, wire, options)?;
    cast.present.push(Present { clients: Arc::clone(&known), mounted });
    cast.heartbeats.start(Arc::clone(&known), address, wire, options, trace.dialect())?;
    let streams = open_lanes(trace, address, options)?;
    let outcomes = Outcomes::new(trace, options.speed);
    wake_precisely();
    let origin = barrier.origin().map_err(ReplayError::Meeting)?;
    std::thread::sleep(origin.saturating_duration_since(Instant::now()));
    let before = usage(EngineTimes::default());
    let origin_monotonic_us = monotonic_us(origin);
    let signals = Arc::clone(&cast.heartbeats.signals);
    signals.replaying.store(is_measured, Ordering::Release);
    let in_flight = lane_limit(trace, options);
    let mut engine = Engine {
        trace,
        outcomes,
        scheduler,
        options,
        clients: &known,
        segments: Segments::new(),
        unanswered: Vec::new(),
        lanes: streams.iter().map(|_| Lane::new(wire, in_flight)).collect(),
        next_lane: 0,
        parts: Parts::default(),
        settled: Settled::default(),
        signals: &signals,
        origin,
        report: EngineReport::default(),
        finished: 0,
        progress,
        reply_ns: 0,
        patience: Patience::default(),
        last_read: None,
        unread_us: Histogram::new(3).map_err(std::io::Error::other)?,
        write_us: Histogram::new(3).map_err(std::io::Error::other)?,
        saturation: None,
        quiet_since: None,
    };
    let ended = engine.replay(&streams, barrier, cancel);
    signals.replaying.store(false, Ordering::Release);
    let Engine { outcomes, segments, unanswered, mut report, unread_us, write_us, .. } = engine;
    report.unread_us = Distribution::of_histogram(&unread_us);
    report.write_us = Distribution::of_histogram(&write_us);
    report.times = usage(report.times).since(&before);
    if let Some(present) = cast.present.last_mut() {
        present.mounted.extend(segments.into_values().chain(unanswered));
    }
    ended.map(|()| Ran { outcomes, origin, origin_monotonic_us, report })
}

impl Present {
    /// Unmounts what is still mounted; says how many segments that failed for.
    fn leave(&self, site: &Site<'_>) -> u64 {
        clients::unmount_all(self.mounted.iter(), &self.clients, site.address, site.wire, site.options)
    }
}

impl Engine<'_, '_> {
    fn now_us(&self) -> u64 {
        microseconds(self.origin.elapsed())
    }

    fn replay(
        &mut self,
        streams: &[TcpStream],
        barrier: &mut dyn Barrier,
        cancel: &CancelToken,
    ) -> Result<(), ReplayError> {
        let alarms = Alarms::new()?;
        let mut sockets = Sockets::new(streams);
        let first = self.trace.event(0).phase();
        self.outcomes.begin_phase(first, 0);
        let (mut phase, mut begun) = (first, usage(self.report.times));
        let mut next_look = self.origin;
        loop {
            let now_us = self.now_us();
            let wake_us = match self.scheduler.next(now_us) {
                Step::Dispatch(event) => {
                    self.dispatch(event, now_us, streams);
                    continue;
                }
                Step::Done => {
                    self.end_phase(phase, &begun);
                    return barrier.end(self.now_us()).map_err(ReplayError::Meeting);
                }
                Step::PhaseEnded(_) => {
                    self.flush(streams, 0);
                    self.end_phase(phase, &begun);
                    let origin_us = barrier.next_phase(self.now_us()).map_err(ReplayError::Meeting)?;
                    phase = self.scheduler.begin_phase(origin_us);
                    self.outcomes.begin_phase(phase, origin_us);
                    begun = usage(self.report.times);
                    continue;
                }
                Step::SleepUntil(due_us) => Some(due_us),
                Step::WaitForFinish => None,
            };
            self.flush(streams, 0);
            self.note_saturation(now_us, wake_us.is_none());
            let now = Instant::now();
            let looks = now >= next_look;
            if looks {
                next_look = now + LOOK_EVERY;
            }
            self.watch(&mut sockets, looks);
            self.wait(&mut sockets, streams, &alarms, wake_us, next_look)?;
            if looks {
                self.look(cancel, Instant::now())?;
            }
        }
    }

    fn end_phase(&mut self, phase: Phase, begun: &EngineTimes) {
        self.note_saturation(self.now_us(), false);
        if phase == Phase::Workload {
            self.report.workload = usage(self.report.times).since(begun);
        }
    }

    /// Cancellation, calls that have had their time, progress.
    fn look(&mut self, cancel: &CancelToken, now: Instant) -> Result<(), ReplayError> {
        self.progress.finished.store(self.finished, Ordering::Relaxed);
        if cancel.is_cancelled() {
            let events = self.trace.len() as u64;
            return Err(ReplayError::Cancelled { finished: self.finished, events });
        }
        for index in 0..self.lanes.len() {
            while let Some(ticket) = self.lanes[index].session.expire(now) {
                let event = self.lanes[index].event_of(ticket);
                self.fail(event, "the master did not answer in time", true);
            }
        }
        Ok(())
    }

    fn note_saturation(&mut self, now_us: u64, waits: bool) {
        let lag_us = if waits { self.scheduler.saturated_lag_us(now_us) } else { None };
        match (&mut self.saturation, lag_us) {
            (None, Some(lag_us)) => self.saturation = Some(Saturated::new(now_us, lag_us)),
            (Some(saturated), Some(lag_us)) => saturated.look(now_us, lag_us),
            (Some(saturated), None) => {
                self.report.times.saturated_us += now_us.saturating_sub(saturated.since_us);
                self.saturation = None;
            }
            (None, None) => {}
        }
    }

    fn dispatch(&mut self, event: u32, now_us: u64, streams: &[TcpStream]) {
        let found = self.trace.event(event);
        self.outcomes.start(event, now_us);
        let sticky = self.trace.dialect() != Dialect::Unversioned;
        if sticky && self.signals.failed.load(Ordering::Acquire) {
            let error = self.signals.first_error().unwrap_or_default();
            return self.fail(event, &format!("a heartbeat failed: {error}"), false);
        }
        let Some(lane) = self.pick_lane(found.op(), found.client()) else {
            let error = self.lanes.iter().find_map(|lane| lane.broken.clone()).unwrap_or_default();
            return self.fail(event, &format!("no connection is left: {error}"), false);
        };
        let mut context = Context {
            clients: self.clients,
            segments: &mut self.segments,
            outcomes: &self.outcomes,
            tenant: &self.options.tenant,
            deadline: Instant::now() + self.options.call_timeout,
        };
        match call::dispatch(&found, self.trace, &mut self.lanes[lane], &mut self.parts, &mut context) {
            Dispatched::Queued => {
                self.quiet_since.get_or_insert_with(Instant::now);
                self.lanes[lane].unsent.push(event);
                self.flush(streams, FLUSH_BYTES);
            }
            Dispatched::NothingToSend => self.end(event),
            Dispatched::Failed(error) => self.fail(event, &error, false),
        }
    }

    /// The connection for a call: lifecycle calls of one client go one after the other over the same one, other calls
    /// over the one with the fewest in flight.
    fn pick_lane(&mut self, op: Op, client: u32) -> Option<usize> {
        let count = self.lanes.len();
        let from = if op.is_lifecycle() { client as usize } else { self.next_lane + 1 } % count;
        let lanes = &self.lanes;
        let mut usable =
            (0..count).map(|step| (from + step) % count).filter(|lane| lanes[*lane].broken.is_none());
        if op.is_lifecycle() {
            return usable.next();
        }
        self.next_lane = from;
        usable.min_by_key(|lane| lanes[*lane].session.in_flight())
    }

    /// Writes to every lane that has at least so much to be written. Calls start now: before, they were only prepared.
    fn flush(&mut self, streams: &[TcpStream], at_least: usize) {
        for (index, stream) in streams.iter().enumerate() {
            let lane = &mut self.lanes[index];
            if lane.wants_to_write() && lane.session.outgoing().len() >= at_least {
                let now_us = microseconds(self.origin.elapsed());
                lane.unsent.drain(..).for_each(|event| self.outcomes.start(event, now_us));
                if lane.write(stream) {
                    self.report.writes += 1;
                    let taken_us = microseconds(self.origin.elapsed()).saturating_sub(now_us);
                    self.write_us.saturating_record(taken_us);
                }
                self.check_broken(index);
            }
        }
    }

    /// Which connections to wait for: those that calls are in flight on, and now and then all of them, to see that one was
    /// closed.
    fn watch(&self, sockets: &mut Sockets<'_>, all: bool) {
        sockets.clear();
        for (index, lane) in self.lanes.iter().enumerate() {
            if lane.broken.is_none() && (all || lane.session.in_flight() > 0) {
                sockets.add(index, lane.wants_to_write());
            }
        }
    }

    /// Sleeps until something can be done, or it is time for a look, and reads what has come.
    fn wait<'s>(
        &mut self,
        sockets: &mut Sockets<'s>,
        streams: &[TcpStream],
        alarms: &'s Alarms,
        wake_us: Option<u64>,
        next_look: Instant,
    ) -> Result<(), ReplayError> {
        let falls_behind = self.saturation.as_ref().is_some_and(|saturated| saturated.falls_behind);
        let in_flight = u64::from(self.scheduler.running());
        // What has come by then need not be asked for.
        if let Some(overslept) = falls_behind.then(|| self.delay_reading()).flatten() {
            let answered = self.read(sockets.all(), streams);
            // What a busy machine added says nothing of the master.
            if !overslept {
                self.patience.after_wait(answered, in_flight);
            }
            if answered > 0 {
                return Ok(());
            }
        }
        let spin = self.options.spin;
        // What is due beyond all instants is not due before the next look.
        let due = wake_us.and_then(|wake_us| self.origin.checked_add(Duration::from_micros(wake_us)));
        let spins_from = due.and_then(|due| due.checked_sub(spin));
        let until = spins_from.map_or(next_look, |from| from.min(next_look));
        if due.is_none() || until > Instant::now() {
            self.report.sleeps += 1;
            let (origin, scheduler) = (self.origin, &self.scheduler);
            let instant = |due_us| origin.checked_add(Duration::from_micros(due_us))?.checked_sub(spin);
            let ahead = scheduler.upcoming_us().filter_map(instant);
            if sockets.wait_until(alarms, until, ahead)? {
                let answered = self.read(sockets.readable(), streams);
                if falls_behind {
                    self.patience.after_read(answered, in_flight);
                }
                return Ok(());
            }
        }
        let Some(due) = due else { return Ok(()) };
        let spun = Instant::now();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() || left > spin {
                break;
            }
            if sockets.wait(Duration::ZERO)? {
                self.read(sockets.readable(), streams);
                break;
            }
        }
        self.report.times.spin_ns += nanoseconds(spun.elapsed());
        Ok(())
    }

    /// Leaves replies unread for a while, so that several are read at once: the master has calls enough meanwhile. If it did,
    /// says whether that took far longer than meant.
    fn delay_reading(&mut self) -> Option<bool> {
        let busy_ns = self.reply_ns.saturating_mul(u64::from(self.scheduler.running()));
        let most_ns = (busy_ns / DELAY_PART.1 * DELAY_PART.0).min(nanoseconds(self.options.max_read_delay));
        let delay = Duration::from_nanos(most_ns / Patience::FULL * self.patience.0);
        if delay < SHORTEST_DELAY {
            return None;
        }
        let begun = Instant::now();
        std::thread::sleep(delay);
        let delayed = begun.elapsed();
        let delayed_us = microseconds(delayed);
        self.report.read_delays += 1;
        self.report.read_delay_total_us += delayed_us;
        self.report.read_delay_max_us = self.report.read_delay_max_us.max(delayed_us);
        Some(delayed > 2 * delay + 2 * SHORTEST_DELAY)
    }

    /// Reads from these connections; says how many events have finished by that.
    fn read(&mut self, connections: impl Iterator<Item = usize>, streams: &[TcpStream]) -> u64 {
        let before = self.finished;
        for index in connections {
            self.report.reads += 1;
            if self.lanes[index].read(&streams[index]) {
                self.note_arrival(index);
                self.take_replies(index);
            }
            self.check_broken(index);
        }
        let replies = self.finished - before;
        self.note_replies(replies);
        replies
    }

    fn note_arrival(&mut self, index: usize) {
        let now = Duration::from_nanos(clock_ns(ClockId::CLOCK_REALTIME));
        if let Some(unread) = self.lanes[index].arrived.and_then(|arrived| now.checked_sub(arrived)) {
            self.unread_us.saturating_record(microseconds(unread));
        }
    }

    fn note_replies(&mut self, replies: u64) {
        let now = Instant::now();
        if replies > 0 {
            self.end_silence(now);
            self.quiet_since = (self.scheduler.running() > 0).then_some(now);
        }
        if let Some(last) = self.last_read.replace(now).filter(|_| replies > 0) {
            let each = nanoseconds(now.duration_since(last)) / replies;
            // A moving average over some tens of reads: it follows the master and forgives a hiccup.
            self.reply_ns = if self.reply_ns == 0 { each } else { (self.reply_ns * 15 + each) / 16 };
        }
    }

    fn end_silence(&mut self, now: Instant) {
        let quiet = self.quiet_since.take().map_or(Duration::ZERO, |since| now.duration_since(since));
        if quiet >= SILENCE {
            self.report.times.silent_us += microseconds(quiet);
        }
    }

    fn take_replies(&mut self, index: usize) {
        let now_us = self.now_us();
        let mut settled = std::mem::take(&mut self.settled);
        while let Some((event, arrived)) = self.lanes[index].next_reply() {
            call::settle(self.trace.event(event).op(), &arrived, &mut settled);
            self.settle(event, &settled, now_us);
        }
        self.settled = settled;
    }

    /// Keeps what a reply says of an event's keys.
    fn settle(&mut self, event: u32, settled: &Settled, now_us: u64) {
        let found = self.trace.event(event);
        let range = found.key_range();
        let started = found.put_start().map(|start| self.trace.event(start).key_range());
        let is_sent = |outcomes: &Outcomes, at: usize| match &started {
            None => true,
            Some(started) => outcomes.statuses(started.clone())[at] == KeyStatus::Ok,
        };
        let sent = (0..range.len()).filter(|at| is_sent(&self.outcomes, *at)).count();
        let fits = settled.statuses.len() == sent;
        let mut statuses = settled.statuses.iter();
        for at in 0..range.len() {
            if is_sent(&self.outcomes, at) {
                let status = statuses.next().copied().filter(|_| fits).unwrap_or(KeyStatus::Error);
                self.outcomes.statuses_mut(range.clone())[at] = status;
            }
        }
        if let Some(error) = &settled.error {
            self.outcomes.set_error(event, error);
        } else if !fits && !found.op().is_lifecycle() {
            let error = format!("the reply has {} results for {sent} keys", settled.statuses.len());
            self.outcomes.set_error(event, &error);
        }
        let refused = settled.error.is_some();
        self.note_lifecycle(event, if refused { Answer::Refused } else { Answer::Done });
        self.outcomes.finish(event, now_us, true);
        self.release(event);
    }

    fn note_lifecycle(&mut self, event: u32, answer: Answer) {
        let found = self.trace.event(event);
        match (found.op(), found.segment()) {
            (Op::ReMountSegment, _) if answer == Answer::Done => self.clients.set_registered(found.client()),
            (Op::MountSegment, Some(segment)) if answer != Answer::Done => {
                let mounted = self.segments.remove(&segment).filter(|_| answer == Answer::None);
                self.unanswered.extend(mounted.map(Mounted::unsure));
            }
            (Op::UnmountSegment, Some(segment)) if answer == Answer::Done => {
                self.segments.remove(&segment);
            }
            _ => {}
        }
    }

    /// An event ends without a reply: every key has an error. Whether the call was sent is not known then, and the contract
    /// counts it as one that was not.
    fn fail(&mut self, event: u32, error: &str, sent: bool) {
        let keys = self.trace.event(event).key_range();
        self.outcomes.statuses_mut(keys).fill(KeyStatus::Error);
        self.outcomes.set_error(event, error);
        self.note_lifecycle(event, if sent { Answer::None } else { Answer::Refused });
        self.end(event);
    }

    /// An event ends without a reply.
    fn end(&mut self, event: u32) {
        let now_us = self.now_us();
        self.outcomes.finish(event, now_us, false);
        self.release(event);
    }

    fn release(&mut self, event: u32) {
        self.finished += 1;
        self.scheduler.finish(event);
        // Nothing is waited for any more, also where no reply came.
        if self.scheduler.running() == 0 {
            self.end_silence(Instant::now());
        }
    }

    /// Every call in flight on a connection that broke has failed.
    fn check_broken(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let Some(error) = lane.broken.clone().filter(|_| !lane.given_up) else { return };
        lane.given_up = true;
        self.report.broken_connections += 1;
        let after_all = Instant::now() + self.options.call_timeout;
        while let Some(ticket) = self.lanes[index].session.expire(after_all) {
            let event = self.lanes[index].event_of(ticket);
            self.fail(event, &error, true);
        }
    }
}

/// In the unversioned dialect every client has a call in flight.
fn lane_limit(trace: &Trace, options: &ReplayOptions) -> u32 {
    match trace.dialect() {
        Dialect::Unversioned => u32::try_from(trace.clients()).unwrap_or(u32::MAX),
        // No more than there are, or memory would be kept ready for calls that nobody makes.
        _ => options.in_flight.get().min(u32::try_from(trace.len()).unwrap_or(u32::MAX)),
    }
}

fn open_lanes(
    trace: &Trace,
    address: SocketAddr,
    options: &ReplayOptions,
) -> Result<Vec<TcpStream>, ReplayError> {
    let count = options.connections.get().min(lane_limit(trace, options)).max(1);
    let open = |_| {
        let opened = lane::open(address, options.call_timeout);
        opened.map_err(|source| ReplayError::Open { address, source })
    };
    (0..count).map(open).collect()
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| nanoseconds(time.into()))
}

/// These times, with what the kernel counts as it is now.
fn usage(times: EngineTimes) -> EngineTimes {
    EngineTimes { cpu_ns: process_cpu_ns(), processor_wait_ns: processor_wait_ns(), ..times }
}

fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// How long this thread could have run and had no processor, as the kernel counts it; nothing where it does not.
fn processor_wait_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// The instant on the clock that other processes can read too.
fn monotonic_us(instant: Instant) -> u64 {
    let (clock_us, now) = (clock_ns(ClockId::CLOCK_MONOTONIC) / 1_000, Instant::now());
    match now.checked_duration_since(instant) {
        Some(ago) => clock_us.saturating_sub(microseconds(ago)),
        None => clock_us.saturating_add(microseconds(instant.duration_since(now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait is as long as it may be while most calls are still unanswered after it, vanishes where the master has answered all,
    /// and comes back once replies come in small numbers.
    #[test]
    fn waits_leave_the_master_calls_to_answer() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            patience.after_wait(160, 256);
            patience.after_wait(200, 256);
        }
        assert_eq!(patience, Patience(Patience::FULL));
        for _ in 0..7 {
            patience.after_wait(230, 256);
        }
        assert_eq!(patience, Patience(0));
        patience.after_read(32, 256);
        assert_eq!(patience, Patience(0));
        for _ in 0..100 {
            patience.after_read(31, 256);
        }
        assert_eq!(patience, Patience(Patience::FULL));
        let mut low = Patience(1);
        (0..40).for_each(|_| low.after_wait(1, 256));
        assert_eq!(low, Patience(Patience::FULL));
    }
}
