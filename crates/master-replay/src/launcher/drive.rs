//! The replayer's process: reads a trace, replays it, and writes what became of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::contract::{Dialect, Phase, Trace, TraceError};
use crate::driver::{
    Alone, Barrier, EngineReport, HeartbeatSummary, Progress, ReplayError, ReplayOptions, Replayed, replay,
};
use crate::outcome::{
    Distribution, Outcomes, OutputError, Summary, Traffic, write_histograms, write_samples,
};
use crate::schedule::{Shares, Speed, SpeedError};

use super::base_name;
use super::control::Remote;

/// The options of a replay as plain values, for files and for another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DriveOptions {
    /// The most calls in flight.
    pub workers: NonZeroU32,
    /// Over how many connections.
    pub connections: NonZeroU32,
    /// How much faster than recorded.
    pub speed: f64,
    /// How long before an event is due the clock is watched; 0 never does.
    pub spin_us: u64,
    /// How long replies may be left unread when the master is saturated.
    pub max_read_delay_us: u64,
    /// The tenant of all calls.
    pub tenant: String,
    /// The segment of each client of a version 1 trace.
    pub segment_size_bytes: NonZeroU64,
    /// Between two sweeps of pings.
    pub heartbeat_interval_ms: NonZeroU64,
    /// Over how many connections pings go.
    pub heartbeat_workers: NonZeroU32,
    /// How long a call may be unanswered.
    pub call_timeout_ms: NonZeroU64,
}

impl Default for DriveOptions {
    fn default() -> Self {
        let options = ReplayOptions::default();
        let ms = |time: Duration| {
            u64::try_from(time.as_millis()).ok().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN)
        };
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        DriveOptions {
            workers: options.in_flight,
            connections: options.connections,
            speed: options.speed.value(),
            spin_us: us(options.spin),
            max_read_delay_us: us(options.max_read_delay),
            tenant: options.tenant,
            segment_size_bytes: options.segment_bytes,
            heartbeat_interval_ms: ms(options.heartbeat_interval),
            heartbeat_workers: options.heartbeat_workers,
            call_timeout_ms: ms(options.call_timeout),
        }
    }
}

impl DriveOptions {
    fn replay_options(&self) -> Result<ReplayOptions, SpeedError> {
        Ok(ReplayOptions {
            in_flight: self.workers,
            connections: self.connections,
            speed: Speed::new(self.speed)?,
            spin: Duration::from_micros(self.spin_us),
            max_read_delay: Duration::from_micros(self.max_read_delay_us),
            tenant: self.tenant.clone(),
            segment_bytes: self.segment_size_bytes,
            heartbeat_interval: Duration::from_millis(self.heartbeat_interval_ms.get()),
            heartbeat_workers: self.heartbeat_workers,
            call_timeout: Duration::from_millis(self.call_timeout_ms.get()),
            id_seed: None,
            shares: None,
            prefill: None,
        })
    }
}

/// One replay: which trace, which master, where the outputs go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Drive {
    /// The trace.
    pub trace: PathBuf,
    /// A trace that is replayed before, to fill the master.
    pub prefill: Option<PathBuf>,
    /// The master.
    pub address: SocketAddr,
    /// The folder of the outputs, which is there.
    pub out: PathBuf,
    /// How.
    pub options: DriveOptions,
    /// Which replayer of several this is; nothing when it is the only one.
    pub part: Option<DrivePart>,
}

/// One replayer of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DrivePart {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub count: NonZeroU32,
    /// Where they meet.
    pub meeting: SocketAddr,
    /// What the ids of clients and segments are made from.
    pub id_seed: u64,
}

/// What a part's file begins with, before the outcomes.
#[derive(Debug, Serialize, Deserialize)]
struct PartHead {
    origin_monotonic_us: u64,
    heartbeats: HeartbeatSummary,
    engine: EngineReport,
    left_mounted: u64,
    progress_cpu_ns: u64,
}

fn part_file(out: &Path, index: u32) -> PathBuf {
    out.join(format!("part-{index}.bin"))
}

/// Why a replay has no outputs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The speed is none.
    #[error(transparent)]
    Speed(#[from] SpeedError),
    /// The trace cannot be read, or is not valid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The replay did not come to its end.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// An output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// `replay.json`
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Counts, rates and times.
    #[serde(flatten)]
    pub summary: Summary,
    /// The replay's origin on the monotonic clock.
    pub replay_origin_monotonic_us: u64,
    /// The master's address.
    pub master_server: String,
    /// The tenant of all calls.
    pub tenant: String,
    /// The most calls in flight.
    pub workers: u64,
    /// Over how many connections, of each replayer.
    pub connections: u32,
    /// How many replayers shared the trace.
    pub replayers: u32,
    /// From the end of one sweep of pings to the beginning of the next.
    pub heartbeat_interval_ms: u64,
    /// Over how many connections pings go.
    pub heartbeat_workers: u32,
    /// Clients of the trace.
    pub logical_clients: u64,
    /// The segment of each client; version 1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_size_bytes: Option<u64>,
    /// How much faster than recorded.
    pub speed: f64,
    /// The name of the trace that was replayed before, to fill the master; empty if none was.
    pub prefill_trace: String,
    /// How a client's events are ordered; unversioned traces only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_policy: Option<String>,
    /// Pings between the beginning and the end of the replay.
    pub heartbeat_calls_during_replay: u64,
    /// Whether every ping succeeded.
    pub healthy_heartbeats: bool,
    /// All about the pings.
    pub heartbeats: HeartbeatSummary,
    /// The workload as traffic.
    pub traffic: Option<Traffic>,
    /// The part of the workload's dispatch lag that is not the wait for a dependency.
    pub own_lag_us: Distribution,
    /// What the replayer itself did.
    pub replayer: EngineReport,
    /// The errors of events by how many have them; at most twenty.
    pub errors: Vec<(String, u64)>,
    /// Different errors of events.
    pub different_errors: u64,
    /// Segments that could not be unmounted at the end.
    pub left_mounted: u64,
    /// Processor time that showing the progress took.
    pub progress_cpu_ns: u64,
}

impl ReplayReport {
    /// Whether every event and every ping succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.healthy_heartbeats && !self.summary.has_errors
    }
}

/// How many different errors the report lists.
const LISTED_ERRORS: usize = 20;

impl Drive {
    /// A replay with the default options.
    #[must_use]
    pub fn new(trace: impl Into<PathBuf>, address: SocketAddr, out: impl Into<PathBuf>) -> Self {
        let options = DriveOptions::default();
        Drive { trace: trace.into(), prefill: None, address, out: out.into(), options, part: None }
    }

    /// Replays and writes `samples.jsonl`, `histograms.hlog` and at last `replay.json`; one replayer of several writes
    /// its part for [`merge`](Self::merge) instead, and gives nothing. `report` is given the events
    /// that have finished and how many there are, at most once a second.
    ///
    /// # Errors
    ///
    /// The replay did not come to its end, or an output cannot be written.
    pub fn run(
        &self,
        cancel: &CancelToken,
        report: impl Fn(u64, u64) + Send + Sync,
    ) -> Result<Option<ReplayReport>, DriveError> {
        let mut options = self.options.replay_options()?;
        let trace = open_trace(&self.trace, cancel)?;
        if let Some(prefill) = &self.prefill {
            options.prefill = Some(Arc::new(open_trace(prefill, cancel)?));
        }
        let mut barrier: Box<dyn Barrier> = Box::new(Alone);
        if let Some(part) = &self.part {
            options.id_seed = Some(part.id_seed);
            options.shares = Some((Arc::new(Shares::of(&trace, part.count)), part.index));
            barrier = Box::new(Remote::connect(part.meeting, cancel).map_err(ReplayError::System)?);
        }
        let progress = Arc::new(Progress::default());
        let done = AtomicBool::new(false);
        let events = trace.len() as u64;
        let (replayed, progress_cpu_ns) = std::thread::scope(|scope| {
            let shown = scope.spawn(|| show(&progress, events, &done, &report));
            let replayed = replay(&trace, self.address, &options, &mut *barrier, &progress, cancel);
            done.store(true, Ordering::Release);
            shown.thread().unpark();
            (replayed, shown.join().unwrap_or(0))
        });
        let replayed = replayed?;
        match &self.part {
            None => self.write(&trace, &replayed, progress_cpu_ns).map(Some),
            Some(part) => self.write_part(part, &replayed, progress_cpu_ns).map(|()| None),
        }
    }

    fn write_part(
        &self,
        part: &DrivePart,
        replayed: &Replayed,
        progress_cpu_ns: u64,
    ) -> Result<(), DriveError> {
        let head = PartHead {
            origin_monotonic_us: replayed.origin_monotonic_us,
            heartbeats: replayed.heartbeats.clone(),
            engine: replayed.engine.clone(),
            left_mounted: replayed.left_mounted,
            progress_cpu_ns,
        };
        write_file(&part_file(&self.out, part.index), |out| {
            serde_json::to_writer(&mut *out, &head)?;
            out.write_all(b"\n")?;
            replayed.outcomes.write_to(out)
        })?;
        Ok(())
    }

    /// Puts the parts of several replayers together, writes the outputs and removes the parts.
    ///
    /// # Errors
    ///
    /// A part is missing or is not one of this trace, or an output cannot be written.
    pub fn merge(&self, count: NonZeroU32, cancel: &CancelToken) -> Result<ReplayReport, DriveError> {
        let trace = open_trace(&self.trace, cancel)?;
        let speed = Speed::new(self.options.speed)?;
        let shares = Shares::of(&trace, count);
        let read = |index| {
            let path = part_file(&self.out, index);
            read_part(&path, &trace, speed).map_err(|source| OutputError { path, source })
        };
        // The first replayer is the one that registered clients and sent heartbeats.
        let (head, outcomes) = read(0)?;
        let PartHead { origin_monotonic_us, heartbeats, engine, left_mounted, mut progress_cpu_ns } = head;
        let pings = Vec::new();
        let mut replayed =
            Replayed { outcomes, origin_monotonic_us, heartbeats, pings, engine, left_mounted };
        for index in 1..count.get() {
            let (head, outcomes) = read(index)?;
            replayed.outcomes.merge(&trace, &outcomes, |event| shares.shard_of(event) == index);
            replayed.engine.add(&head.engine);
            progress_cpu_ns += head.progress_cpu_ns;
        }
        let report = self.write(&trace, &replayed, progress_cpu_ns)?;
        for index in 0..count.get() {
            let path = part_file(&self.out, index);
            std::fs::remove_file(&path).map_err(|source| OutputError { path, source })?;
        }
        Ok(report)
    }

    fn write(
        &self,
        trace: &Trace,
        replayed: &Replayed,
        progress_cpu_ns: u64,
    ) -> Result<ReplayReport, DriveError> {
        let outcomes = &replayed.outcomes;
        write_file(&self.out.join("samples.jsonl"), |out| write_samples(trace, outcomes, out))?;
        write_file(&self.out.join("histograms.hlog"), |out| write_histograms(trace, outcomes, out))?;
        if trace.dialect() == Dialect::Unversioned {
            write_file(&self.out.join("heartbeats.jsonl"), |out| write_pings(trace, replayed, out))?;
        }
        let report = self.report(trace, replayed, progress_cpu_ns);
        write_file(&self.out.join("replay.json"), |out| {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            out.write_all(b"\n")
        })?;
        Ok(report)
    }

    fn report(&self, trace: &Trace, replayed: &Replayed, progress_cpu_ns: u64) -> ReplayReport {
        let unversioned = trace.dialect() == Dialect::Unversioned;
        let counts = replayed.outcomes.error_counts();
        let mut summary = Summary::of(trace, &replayed.outcomes);
        summary.has_errors |= unversioned && replayed.heartbeats.failed_calls > 0;
        let options = &self.options;
        let clients = trace.clients() as u64;
        ReplayReport {
            summary,
            replay_origin_monotonic_us: replayed.origin_monotonic_us,
            master_server: self.address.to_string(),
            tenant: options.tenant.clone(),
            workers: if unversioned { clients } else { u64::from(options.workers.get()) },
            connections: options.connections.get(),
            replayers: self.part.as_ref().map_or(1, |part| part.count.get()),
            heartbeat_interval_ms: options.heartbeat_interval_ms.get(),
            heartbeat_workers: options.heartbeat_workers.get(),
            logical_clients: clients,
            segment_size_bytes: (trace.dialect() == Dialect::V1).then(|| options.segment_size_bytes.get()),
            speed: options.speed,
            prefill_trace: self.prefill.as_deref().map(base_name).unwrap_or_default(),
            replay_policy: unversioned.then(|| "one_worker_per_client".to_owned()),
            heartbeat_calls_during_replay: replayed.heartbeats.calls_during_replay,
            healthy_heartbeats: replayed.heartbeats.failed_calls == 0,
            heartbeats: replayed.heartbeats.clone(),
            traffic: Traffic::of(trace, &replayed.outcomes),
            own_lag_us: own_lag(trace, replayed),
            replayer: replayed.engine.clone(),
            different_errors: counts.len() as u64,
            errors: counts.into_iter().take(LISTED_ERRORS).map(|(text, n)| (text.to_owned(), n)).collect(),
            left_mounted: replayed.left_mounted,
            progress_cpu_ns,
        }
    }
}

fn own_lag(trace: &Trace, replayed: &Replayed) -> Distribution {
    let workload = trace.phase_range(Phase::Workload);
    Distribution::of(
        &mut workload.map(|event| replayed.outcomes.own_lag_us(trace, event)).collect::<Vec<u64>>(),
    )
}

fn read_part(path: &Path, trace: &Trace, speed: Speed) -> io::Result<(PartHead, Outcomes)> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut head = String::new();
    file.read_line(&mut head)?;
    Ok((serde_json::from_str(&head)?, Outcomes::read_from(trace, speed, file)?))
}

impl ReplayReport {
    /// Where the workload began and when its last event finished, after the replay's origin.
    #[must_use]
    pub fn workload_us(&self) -> Option<(u64, u64)> {
        let workload = self.summary.phases.get(Phase::Workload.name())?;
        let origin_us = workload.phase_origin_us?;
        Some((origin_us, origin_us + workload.elapsed_us))
    }
}

/// Reads a trace, and stops reading when asked to.
pub(super) fn open_trace(path: &Path, cancel: &CancelToken) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    Trace::read(Cancellable { inner: file, cancel })
}

struct Cancellable<'c, R> {
    inner: R,
    cancel: &'c CancelToken,
}

impl<R: io::Read> io::Read for Cancellable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("asked to stop"));
        }
        self.inner.read(buffer)
    }
}

/// Tells how far the replay is once a second until it is done; gives the processor time that took.
fn show(progress: &Progress, events: u64, done: &AtomicBool, report: &impl Fn(u64, u64)) -> u64 {
    let mut next = Instant::now() + Duration::from_secs(1);
    while !done.load(Ordering::Acquire) {
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            report(progress.finished.load(Ordering::Relaxed), events);
        }
    }
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    u64::try_from(used.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), OutputError> {
    let write = || {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        write(&mut out)?;
        out.flush()
    };
    write().map_err(|source| OutputError { path: path.to_owned(), source })
}

fn write_pings(trace: &Trace, replayed: &Replayed, out: &mut impl Write) -> io::Result<()> {
    for ping in &replayed.pings {
        let row = serde_json::json!({
            "client_id": trace.client_name(ping.client),
            "op": "Ping",
            "start_us": ping.start_us,
            "finish_us": ping.finish_us,
            "error": ping.error,
        });
        writeln!(out, "{row}")?;
    }
    Ok(())
}
