//! The replayer's process: reads a trace, replays it, and writes what became of it.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, IntoInnerError, Write};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use thiserror::Error;

use crate::contract::{Dialect, Phase, Trace, TraceError};
use crate::driver::{
    Alone, Barrier, EngineReport, HeartbeatSummary, Pinged, Progress, ReplayError, ReplayOptions, Replayed,
    replay,
};
use crate::outcome::{
    Distribution, Outcomes, OutputError, Summary, Traffic, write_histograms, write_samples,
};
use crate::schedule::{Shares, Speed, SpeedError};

use super::control::Remote;
use super::{base_name, thread_cpu_ns};

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
    #[serde(with = "any_path")]
    pub trace: PathBuf,
    /// A trace that is replayed before, to fill the master.
    #[serde(with = "any_path::optional")]
    pub prefill: Option<PathBuf>,
    /// The master.
    pub address: SocketAddr,
    /// The folder of the outputs, which is there.
    #[serde(with = "any_path")]
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

/// Paths as JSON: a string, or a list of bytes where a path is no text.
mod any_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Written {
        fn of(path: &Path) -> Self {
            match path.to_str() {
                Some(text) => Written::Text(text.to_owned()),
                None => Written::Bytes(path.as_os_str().as_bytes().to_owned()),
            }
        }

        fn path(self) -> PathBuf {
            match self {
                Written::Text(text) => text.into(),
                Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Written::of(path).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Written::deserialize(deserializer).map(Written::path)
    }

    pub(super) mod optional {
        use super::*;

        #[expect(clippy::ref_option, reason = "serde calls it so")]
        pub(in super::super) fn serialize<S: Serializer>(
            path: &Option<PathBuf>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            path.as_deref().map(Written::of).serialize(serializer)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<PathBuf>, D::Error> {
            Ok(Option::<Written>::deserialize(deserializer)?.map(Written::path))
        }
    }
}

/// What a part's file begins with, before the outcomes.
#[derive(Debug, Serialize, Deserialize)]
struct PartHead {
    origin_monotonic_us: u64,
    heartbeats: HeartbeatSummary,
    engine: EngineReport,
    left_mounted: u64,
    progress_cpu_ns: u64,
    /// Those of unversioned traces, in which every replayer sends its clients' own.
    pings: Vec<Pinged>,
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
    /// The most calls in flight, of each replayer; of an unversioned trace its clients.
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
    /// Whether every ping succeeded, and heartbeats went on to the end.
    pub healthy_heartbeats: bool,
    /// All about the pings.
    pub heartbeats: HeartbeatSummary,
    /// The workload as traffic.
    pub traffic: Option<Traffic>,
    /// The part of the workload's dispatch lag that is not the wait for a dependency.
    pub own_lag_us: Distribution,
    /// The median of that over the last tenth of the workload's events: how late the replay was at its end.
    #[serde(default)]
    pub closing_lag_us: Option<u64>,
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

    /// What a replayer's process says when it is told how far it is, for the launch that has started it.
    #[must_use]
    pub fn progress_line(finished: u64, events: u64) -> String {
        super::progress_line(finished, events)
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
            barrier = Box::new(Remote::connect(part.meeting, cancel).map_err(ReplayError::Meeting)?);
        }
        let progress = Arc::new(Progress::default());
        let done = AtomicBool::new(false);
        // One of several tells of its own events.
        let events = match &options.shares {
            None => trace.len() as u64,
            Some((shares, index)) => {
                (0..).take(trace.len()).filter(|event| shares.shard_of(*event) == *index).count() as u64
            }
        };
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
            pings: replayed.pings.clone(),
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
        // The first replayer is the one that registered clients and sent heartbeats, if not each did for its own.
        let each_its_own = trace.dialect() == Dialect::Unversioned;
        let (head, outcomes) = read(0)?;
        let PartHead { origin_monotonic_us, heartbeats, engine, left_mounted, mut progress_cpu_ns, pings } =
            head;
        let mut replayed =
            Replayed { outcomes, origin_monotonic_us, heartbeats, pings, engine, left_mounted };
        for index in 1..count.get() {
            let (head, outcomes) = read(index)?;
            replayed.outcomes.merge(&trace, &outcomes, |event| shares.shard_of(event) == index);
            replayed.engine.add(&head.engine);
            if each_its_own {
                replayed.pings.extend(head.pings);
                replayed.heartbeats.add(&head.heartbeats, &replayed.pings);
                replayed.left_mounted += head.left_mounted;
            }
            progress_cpu_ns += head.progress_cpu_ns;
        }
        replayed.pings.sort_by_key(|ping| (ping.client, ping.start_us));
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
        summary.has_errors |= unversioned && !replayed.heartbeats.is_healthy();
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
            healthy_heartbeats: replayed.heartbeats.is_healthy(),
            heartbeats: replayed.heartbeats.clone(),
            traffic: Traffic::of(trace, &replayed.outcomes),
            own_lag_us: own_lag(trace, replayed, 1),
            closing_lag_us: own_lag(trace, replayed, CLOSING_PART).p50,
            replayer: replayed.engine.clone(),
            different_errors: counts.len() as u64,
            errors: counts.into_iter().take(LISTED_ERRORS).map(|(text, n)| (text.to_owned(), n)).collect(),
            left_mounted: replayed.left_mounted,
            progress_cpu_ns,
        }
    }
}

/// The end of a workload is this part of its events.
const CLOSING_PART: usize = 10;

/// The own lag of the last part of the workload: all of it, a half, a third...
fn own_lag(trace: &Trace, replayed: &Replayed, part: usize) -> Distribution {
    let events = trace.phase_range(Phase::Workload).len();
    let lags = replayed.outcomes.own_lags_us(trace, Phase::Workload);
    Distribution::of(&mut lags.skip(events - events.div_ceil(part)).collect::<Vec<u64>>())
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
    thread_cpu_ns()
}

/// Writes a file beside where it belongs, which gets its name once it is whole and on the disk.
pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<Settling>) -> io::Result<()>,
) -> Result<(), OutputError> {
    let write = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut out = BufWriter::with_capacity(1 << 20, Settling::create_in(folder)?);
        write(&mut out)?;
        let file = out.into_inner().map_err(IntoInnerError::into_error)?.file;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|source| OutputError { path: path.to_owned(), source })
}

/// A file without a name that goes to the disk as it grows and leaves the page cache again, so that gigabytes of samples take no
/// more of it than megabytes do. (Finding ever new pages for them takes a virtual machine several times as long as the disk does.)
#[derive(Debug)]
pub(super) struct Settling {
    file: NamedTempFile,
    written: u64,
    settled: u64,
}

impl Settling {
    const STEP_BYTES: u64 = 32 << 20;

    fn create_in(folder: &Path) -> io::Result<Self> {
        // Like any other new file, not readable by its owner only.
        let mode = Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
        Ok(Settling { file, written: 0, settled: 0 })
    }

    fn settle(&mut self) -> io::Result<()> {
        self.file.as_file().sync_data()?;
        let [from, length] = [self.settled, self.written - self.settled].map(i64::try_from);
        if let (Ok(from), Ok(length)) = (from, length) {
            // Advice: a file system that does not take it keeps the pages, and loses nothing.
            let _ = posix_fadvise(&self.file, from, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        self.settled = self.written;
        Ok(())
    }
}

impl Write for Settling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        if self.written - self.settled >= Self::STEP_BYTES {
            self.settle()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("readable");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// More than is settled at once, so that it is found whole although most of it has left the page cache.
    #[test]
    fn a_file_has_its_name_once_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples.jsonl");
        let chunk: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
        let chunks = usize::try_from(2 * Settling::STEP_BYTES).expect("some megabytes") / chunk.len() + 1;
        write_file(&path, |out| {
            (0..chunks).try_for_each(|_| {
                assert!(!path.exists());
                out.write_all(&chunk)
            })
        })
        .expect("written");
        assert_eq!(names(folder.path()), ["samples.jsonl"]);
        let found = std::fs::read(&path).expect("readable");
        assert!(found.len() == chunks * chunk.len() && found.chunks(chunk.len()).all(|part| part == chunk));
        // Another file of another user may be read as these may be.
        let ordinary = File::create(folder.path().join("ordinary")).expect("a file");
        let mode = |metadata: io::Result<std::fs::Metadata>| metadata.expect("a file").permissions().mode();
        assert_eq!(mode(std::fs::metadata(&path)), mode(ordinary.metadata()));
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_or_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("replay.json");
        let fails = |out: &mut BufWriter<Settling>| {
            out.write_all(b"{\"half\":")?;
            out.flush()?;
            Err(io::Error::other("the disk is full"))
        };
        let error = write_file(&path, fails).expect_err("it failed");
        assert_eq!((error.path.as_path(), error.source.to_string().as_str()), (&*path, "the disk is full"));
        assert_eq!(names(folder.path()), [""; 0]);
        write_file(&path, |out| out.write_all(b"{}")).expect("written");
        write_file(&path, fails).expect_err("it failed");
        assert_eq!(std::fs::read(&path).expect("readable"), b"{}");
        write_file(&path, |out| out.write_all(b"[]")).expect("written again");
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).expect("readable")),
            (vec!["replay.json".to_owned()], b"[]".to_vec())
        );
    }
}
