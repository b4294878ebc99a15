//! Sending a trace to a master.
//!
//! One thread does everything that is timed: it asks the scheduler what is due, writes requests to a few pipelined
//! connections, sleeps until the next request is due or a reply arrives, and reads replies. Heartbeats have a thread
//! and connections of their own.

mod call;
mod clients;
mod engine;
mod heartbeat;
mod lane;
mod sleep;

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use master_wire::{CallError, ConnectError, ConnectOptions, Connection};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::contract::{Dialect, Trace};
use crate::outcome::{Distribution, KeyStatus, Outcomes};
use crate::schedule::{ScheduleError, Scheduler, Shares, Speed};

pub use heartbeat::{HeartbeatSummary, Pinged};

/// How a trace is replayed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// The most calls in flight at once, whatever the number of clients.
    pub in_flight: NonZeroU32,
    /// Over how many connections; no more than calls in flight are used.
    pub connections: NonZeroU32,
    /// How much faster than recorded.
    pub speed: Speed,
    /// How long before an event is due the replayer stops sleeping and watches the clock; 0 never does.
    pub spin: Duration,
    /// How long replies may be left unread so that several are read at once. It happens only when as many calls are in
    /// flight as may be and another is overdue, and the delay becomes part of the latencies measured.
    pub max_read_delay: Duration,
    /// The tenant of all calls.
    pub tenant: String,
    /// The segment that each client of a version 1 trace mounts.
    pub segment_bytes: NonZeroU64,
    /// From the end of one sweep of pings to the beginning of the next.
    pub heartbeat_interval: Duration,
    /// Over how many connections pings go.
    pub heartbeat_workers: NonZeroU32,
    /// How long a call may be unanswered.
    pub call_timeout: Duration,
    /// What the ids of clients and segments are made from; several replayers of one trace need the same.
    pub id_seed: Option<u64>,
    /// Which replayer of several this is.
    pub shares: Option<(Arc<Shares>, u32)>,
    /// A version 1 trace that is replayed before a version 1 trace, to fill the master. Its clients are its own, and stay
    /// until the end; every key of it must succeed.
    pub prefill: Option<Arc<Trace>>,
}

impl ReplayOptions {
    /// Whether this replayer registers clients, mounts segments and sends heartbeats: one of several does, but in the
    /// unversioned dialect, where a client's registration is one of its events, each does for the clients it has.
    fn registers(&self, dialect: Dialect) -> bool {
        dialect == Dialect::Unversioned || self.shares.as_ref().is_none_or(|(_, shard)| *shard == 0)
    }
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions {
            in_flight: NonZeroU32::new(16).unwrap_or(NonZeroU32::MIN),
            connections: NonZeroU32::new(4).unwrap_or(NonZeroU32::MIN),
            speed: Speed::ONE,
            spin: Duration::from_micros(100),
            max_read_delay: Duration::from_millis(1),
            tenant: "default".to_owned(),
            segment_bytes: NonZeroU64::new(64 << 20).unwrap_or(NonZeroU64::MIN),
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_workers: NonZeroU32::new(16).unwrap_or(NonZeroU32::MIN),
            call_timeout: Duration::from_secs(30),
            id_seed: None,
            shares: None,
            prefill: None,
        }
    }
}

/// Why a trace could not be replayed to its end. Calls that fail are no such error: they are in the outcomes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// An event is due at no time a clock can tell.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The master cannot be connected to.
    #[error("connect to the master at {address}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: Box<ConnectError>,
    },
    /// A client could not be registered before the replay.
    #[error("register the client {client}")]
    Register {
        /// Which one.
        client: String,
        /// Why.
        source: Box<CallError>,
    },
    /// The master refused to register a client before the replay.
    #[error("register the client {client}: the master answered {code}")]
    Refused {
        /// Which one.
        client: String,
        /// What the master said.
        code: String,
    },
    /// Only version 1 traces can be filled for and with.
    #[error("prefill the master: both traces must be of version 1, not {dialect}")]
    PrefillDialect {
        /// What one of them is.
        dialect: Dialect,
    },
    /// A key of the trace that fills the master did not succeed.
    #[error("prefill the master: the event {event} ended with {status:?}")]
    Prefill {
        /// The first such event.
        event: String,
        /// What became of its first such key.
        status: KeyStatus,
    },
    /// A connection to the master could not be opened.
    #[error("open a connection to the master at {address}")]
    Open {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The other replayers of the trace are gone.
    #[error("meet the other replayers of the trace")]
    Meeting(#[source] io::Error),
    /// The system refused a thread, a timer or a wait.
    #[error("use threads, timers and sockets")]
    System(#[from] io::Error),
    /// The replay was asked to stop.
    #[error("finish the replay: it was asked to stop after {finished} of {events} events")]
    Cancelled {
        /// Events that had finished.
        finished: u64,
        /// Events of the trace.
        events: u64,
    },
}

impl ReplayError {
    /// Whether this machine refused what a replay needs, such as files, memory or threads, whatever the master did.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        let ReplayError::Open { source, .. } = self else { return matches!(self, ReplayError::System(_)) };
        let errno = source.raw_os_error().map(Errno::from_raw);
        matches!(
            errno,
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS | Errno::EADDRNOTAVAIL)
        )
    }
}

/// Where the replayer's time went in a part of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EngineTimes {
    /// Processor time, all threads of the process.
    pub cpu_ns: u64,
    /// Time spent watching the clock instead of sleeping, by the clock: processor time, but for what others took of it.
    pub spin_ns: u64,
    /// How long the thread that sends and reads could have run and had no processor, because something else had it; nothing where
    /// the kernel does not count it.
    #[serde(default)]
    pub processor_wait_ns: Option<u64>,
    /// Time during which as many calls were in flight as may be and another was overdue.
    pub saturated_us: u64,
    /// Time in which the master had calls to answer and said nothing for 0.1 s or more.
    #[serde(default)]
    pub silent_us: u64,
}

/// What the replayer itself did, which says whether its own times can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EngineReport {
    /// Where its time went, from the origin to the end.
    #[serde(flatten)]
    pub times: EngineTimes,
    /// Where its time went in the workload.
    #[serde(default)]
    pub workload: EngineTimes,
    /// How often it slept.
    pub sleeps: u64,
    /// How often sockets were read.
    pub reads: u64,
    /// How often sockets were written.
    pub writes: u64,
    /// How long replies had been there when they were read, by the kernel's time of their arrival, one value for each
    /// read: a part of the latencies, and not the master's. Of several replayers, the longest of each.
    #[serde(default)]
    pub unread_us: Distribution,
    /// How long the kernel took to take the bytes, one value for each write: a call starts before its write, and its first packet
    /// leaves within it. Of several replayers, the longest of each.
    #[serde(default)]
    pub write_us: Distribution,
    /// How often replies were left unread on purpose.
    pub read_delays: u64,
    /// The longest time for which they were.
    pub read_delay_max_us: u64,
    /// All those times together.
    pub read_delay_total_us: u64,
    /// Connections that broke.
    pub broken_connections: u64,
}

/// A replay that came to its end.
#[derive(Debug)]
#[must_use = "the outcomes say what became of every call"]
#[non_exhaustive]
pub struct Replayed {
    /// What became of every event.
    pub outcomes: Outcomes,
    /// The replay's origin on the monotonic clock.
    pub origin_monotonic_us: u64,
    /// What the heartbeats found.
    pub heartbeats: HeartbeatSummary,
    /// Every ping, for a dialect whose outputs list them.
    pub pings: Vec<Pinged>,
    /// What the replayer itself did.
    pub engine: EngineReport,
    /// Segments that were still mounted at the end and could not be unmounted.
    pub left_mounted: u64,
}

/// What a replay tells while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Events that have finished.
    pub finished: AtomicU64,
}

/// When the replay begins, and when each later phase does: for one replayer alone, at once.
pub trait Barrier {
    /// The replayer is ready: gives the instant of the origin, perhaps a little ahead.
    ///
    /// # Errors
    ///
    /// The others are gone.
    fn origin(&mut self) -> io::Result<Instant>;

    /// The replayer has finished a phase: gives the next one's origin in µs after the replay's, once all have.
    ///
    /// # Errors
    ///
    /// The others are gone.
    fn next_phase(&mut self, now_us: u64) -> io::Result<u64>;

    /// The replayer has finished its last phase: waits until all have, since the clients of all leave with one of them.
    ///
    /// # Errors
    ///
    /// The others are gone.
    fn end(&mut self, now_us: u64) -> io::Result<()> {
        self.next_phase(now_us).map(drop)
    }
}

/// One replayer alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl EngineTimes {
    /// What was added since then.
    pub(crate) fn since(&self, before: &EngineTimes) -> EngineTimes {
        EngineTimes {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            spin_ns: self.spin_ns.saturating_sub(before.spin_ns),
            processor_wait_ns: self
                .processor_wait_ns
                .zip(before.processor_wait_ns)
                .map(|(after, before)| after.saturating_sub(before)),
            saturated_us: self.saturated_us.saturating_sub(before.saturated_us),
            silent_us: self.silent_us.saturating_sub(before.silent_us),
        }
    }

    /// Processor times of several replayers add up; all of them wait for the same master.
    fn add(&mut self, other: &EngineTimes) {
        self.cpu_ns += other.cpu_ns;
        self.spin_ns += other.spin_ns;
        self.processor_wait_ns =
            self.processor_wait_ns.zip(other.processor_wait_ns).map(|(one, more)| one + more);
        self.saturated_us = self.saturated_us.max(other.saturated_us);
        self.silent_us = self.silent_us.max(other.silent_us);
    }
}

impl EngineReport {
    /// Adds what another replayer of the same trace did.
    pub fn add(&mut self, other: &EngineReport) {
        self.times.add(&other.times);
        self.workload.add(&other.workload);
        self.sleeps += other.sleeps;
        self.reads += other.reads;
        self.writes += other.writes;
        self.unread_us = self.unread_us.max(&other.unread_us);
        self.write_us = self.write_us.max(&other.write_us);
        self.read_delays += other.read_delays;
        self.read_delay_max_us = self.read_delay_max_us.max(other.read_delay_max_us);
        self.read_delay_total_us += other.read_delay_total_us;
        self.broken_connections += other.broken_connections;
    }
}

impl Barrier for Alone {
    fn origin(&mut self) -> io::Result<Instant> {
        Ok(Instant::now())
    }

    fn next_phase(&mut self, now_us: u64) -> io::Result<u64> {
        Ok(now_us)
    }
}

/// Replays a trace against the master at this address and waits until every event has finished.
///
/// # Errors
///
/// The replay could not begin, or was cancelled. What becomes of single calls is in the outcomes.
pub fn replay(
    trace: &Trace,
    address: SocketAddr,
    options: &ReplayOptions,
    barrier: &mut dyn Barrier,
    progress: &Progress,
    cancel: &CancelToken,
) -> Result<Replayed, ReplayError> {
    check_prefill(trace, options.prefill.as_deref())?;
    let mut scheduler = Scheduler::new(trace, options.speed, options.in_flight)?;
    if let Some((shares, shard)) = &options.shares {
        scheduler = scheduler.of_shard(shares, *shard);
    }
    let wire = connect(address, options, None)?.dialect();
    let site = engine::Site { address, wire, options, cancel };
    engine::run(trace, scheduler, &site, barrier, progress)
}

/// Checks that this trace can be replayed after that one.
pub(crate) fn check_prefill(trace: &Trace, prefill: Option<&Trace>) -> Result<(), ReplayError> {
    let Some(prefill) = prefill else { return Ok(()) };
    match [trace, prefill].iter().map(|trace| trace.dialect()).find(|dialect| *dialect != Dialect::V1) {
        None => Ok(()),
        Some(dialect) => Err(ReplayError::PrefillDialect { dialect }),
    }
}

fn connect(
    address: SocketAddr,
    options: &ReplayOptions,
    dialect: Option<master_wire::Dialect>,
) -> Result<Connection, ReplayError> {
    let mut connect = ConnectOptions::default();
    connect.dialect = dialect;
    connect.call_timeout = options.call_timeout;
    Connection::connect(address, &connect)
        .map_err(|source| ReplayError::Connect { address, source: Box::new(source) })
}
