//! A fresh master, a replayer beside it, and what both did.

mod control;
mod drive;
mod manifest;
mod master;
mod metrics;
mod network;
mod result;
mod saturation;
mod sweep;
mod watch;
mod window;

use std::cell::Cell;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpu_placement::{CancelToken, CpuSet, Finished, Outcome, Output, Run, Running, SpawnError, Topology};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::contract::{Phase, TraceError};
use crate::driver::check_prefill;
use crate::outcome::OutputError;
use crate::schedule::{ScheduleError, Speed, SpeedError};

use master::Program;
use watch::{Recorder, is_alive};

pub use drive::{Drive, DriveError, DriveOptions, DrivePart, ReplayReport};
pub use network::enter_private_network;
pub use saturation::{Saturated, Saturation};
pub use sweep::{Knee, Sweep, SweepPoint, SweepReport};
pub use window::WorkloadProcess;

/// Which master is replayed against.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterSource {
    /// A fresh one of this executable.
    Elf(PathBuf),
    /// A fresh one of the package in this Python environment.
    PythonEnv(PathBuf),
    /// One that runs already and is never stopped.
    Running {
        /// Its RPC address.
        address: SocketAddr,
        /// Its metrics, by which it is known whether it is fresh.
        metrics: Option<SocketAddr>,
        /// Whether it may hold objects or clients, or be one of which that is not known.
        may_be_used: bool,
    },
}

/// Settings of a fresh master that experiments change; nothing leaves the master's own default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MasterSettings {
    /// The part of the capacity above which it evicts.
    pub eviction_high_watermark_ratio: Option<f64>,
    /// The part of the objects that it evicts at once.
    pub eviction_ratio: Option<f64>,
    /// After how long an unfinished write may be taken over.
    pub put_start_discard_timeout_sec: Option<u64>,
    /// After how long an unfinished write is dropped.
    pub put_start_release_timeout_sec: Option<u64>,
    /// After how long without a ping a client is given up.
    pub client_ttl_sec: Option<u64>,
    /// How long a read protects an object from removal and eviction.
    pub default_kv_lease_ttl_ms: u64,
}

impl MasterSettings {
    fn check(&self) -> Result<(), LaunchError> {
        let ratios = [
            ("eviction-high-watermark-ratio", self.eviction_high_watermark_ratio),
            ("eviction-ratio", self.eviction_ratio),
        ];
        for (name, ratio) in ratios {
            if let Some(ratio) = ratio.filter(|ratio| !(0.0..=1.0).contains(ratio)) {
                return Err(LaunchError::Option { name, why: format!("{ratio} is not within 0 and 1") });
            }
        }
        let discard = self.put_start_discard_timeout_sec.unwrap_or(30);
        let release = self.put_start_release_timeout_sec.unwrap_or(600);
        if release <= discard {
            let why = format!("{release} s does not exceed the discard timeout, {discard} s");
            return Err(LaunchError::Option { name: "put-start-release-timeout-sec", why });
        }
        Ok(())
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--default_kv_lease_ttl={}", self.default_kv_lease_ttl_ms)];
        let mut add = |name: &str, value: Option<String>| {
            flags.extend(value.map(|value| format!("--{name}={value}")));
        };
        let ratio = |ratio: Option<f64>| ratio.map(|ratio| ratio.to_string());
        let seconds = |seconds: Option<u64>| seconds.map(|seconds| seconds.to_string());
        add("eviction_high_watermark_ratio", ratio(self.eviction_high_watermark_ratio));
        add("eviction_ratio", ratio(self.eviction_ratio));
        add("put_start_discard_timeout_sec", seconds(self.put_start_discard_timeout_sec));
        add("put_start_release_timeout_sec", seconds(self.put_start_release_timeout_sec));
        add("client_ttl", seconds(self.client_ttl_sec));
        flags
    }
}

/// A launch: a trace, a master, a replayer, and where the outputs go.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// The trace.
    pub trace: PathBuf,
    /// A trace that is replayed before, to fill the master; both must be of version 1.
    pub prefill: Option<PathBuf>,
    /// The master.
    pub master: MasterSource,
    /// The folder of the outputs; it must not exist.
    pub out: PathBuf,
    /// The program of the replayer: started with `drive` and a [`Drive`] as JSON.
    pub replayer: PathBuf,
    /// How the trace is replayed.
    pub options: DriveOptions,
    /// How many replayers share the trace.
    pub replayers: NonZeroU32,
    /// The CPUs of the master; nothing leaves those of the caller.
    pub master_cpus: Option<CpuSet>,
    /// The CPUs of the replayer; nothing leaves those of the caller.
    pub replay_cpus: Option<CpuSet>,
    /// The RPC threads of a master that is started; nothing leaves four.
    pub rpc_threads: Option<NonZeroU32>,
    /// Other settings of a master that is started.
    pub settings: MasterSettings,
    /// How often processes and metrics are looked at.
    pub sample_interval: Duration,
    /// How long the replay may take.
    pub timeout: Duration,
    /// Whether a run without an eviction in its workload fails.
    pub require_eviction: bool,
    /// The allocator that the master must have loaded.
    pub require_allocator: Option<String>,
    /// Whether a master may serve its metrics to the whole network.
    pub allow_open_metrics: bool,
    /// The network of master and replayer.
    pub network: Network,
}

/// The network in which a master and its replayers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// One of their own where that is possible: the thread that runs the launch moves there.
    #[default]
    TryPrivate,
    /// The one that this process has moved to already, by [`enter_private_network`].
    AlreadyPrivate,
    /// The machine's.
    Shared {
        /// Why, for a reader.
        why: String,
    },
}

impl Launch {
    /// A launch with default options.
    #[must_use]
    pub fn new(
        trace: impl Into<PathBuf>,
        master: MasterSource,
        out: impl Into<PathBuf>,
        replayer: impl Into<PathBuf>,
    ) -> Self {
        Launch {
            trace: trace.into(),
            prefill: None,
            master,
            out: out.into(),
            replayer: replayer.into(),
            options: DriveOptions::default(),
            replayers: NonZeroU32::MIN,
            master_cpus: None,
            replay_cpus: None,
            rpc_threads: None,
            settings: MasterSettings::default(),
            sample_interval: Duration::from_millis(200),
            timeout: Duration::from_secs(600),
            require_eviction: false,
            require_allocator: None,
            allow_open_metrics: false,
            network: Network::TryPrivate,
        }
    }
}

/// Why a launch has no result, or a bad one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An option makes no sense.
    #[error("use the option {name}: {why}")]
    Option {
        /// The option.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The speed is none.
    #[error(transparent)]
    Speed(#[from] SpeedError),
    /// The trace cannot be read, or is not valid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace is a pipe or something else that cannot be read several times.
    #[error("read {} several times: it is not a regular file", path.display())]
    NotAFile {
        /// The trace.
        path: PathBuf,
    },
    /// The trace cannot be scheduled.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The trace has nothing to measure.
    #[error("measure a trace without workload events")]
    NoWorkload,
    /// The CPUs cannot be used.
    #[error("place master and replayer: {why}")]
    Placement {
        /// Why not.
        why: String,
    },
    /// There is no master to start.
    #[error("find a master at {}", path.display())]
    MasterMissing {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The program has none of a master's flags.
    #[error("ask the program for its flags: it has none of a master's ({outcome}: {last})")]
    NotAMaster {
        /// How it ended.
        outcome: String,
        /// The last line it wrote.
        last: String,
    },
    /// The master cannot keep its metrics on loopback, and there is no private network.
    #[error(
        "keep the master's metrics on this machine: it has no flag metrics_host, and a private network is not possible here ({why})"
    )]
    OpenMetrics {
        /// Why there is no private network.
        why: String,
    },
    /// A process could not be started.
    #[error("start the {what}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why not.
        source: SpawnError,
    },
    /// The folder of the outputs cannot be made.
    #[error("create the folder {}", path.display())]
    OutFolder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused something.
    #[error("{what}")]
    System {
        /// What was done.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// An output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The master did not become ready.
    #[error("wait for the master: {why}")]
    NotReady {
        /// Why not.
        why: String,
    },
    /// The running master is not fresh.
    #[error("use the master at {address}: {why}")]
    NotFresh {
        /// Where it is.
        address: SocketAddr,
        /// What it holds, or why that is not known.
        why: String,
    },
    /// The master has another allocator than it must have.
    #[error("accept the master's allocator: {found} is loaded, {wanted} is required")]
    Allocator {
        /// What was found.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// The master ended while it was needed.
    #[error("keep the master running: it ended during the replay")]
    MasterEnded,
    /// The replay took too long.
    #[error("finish the replay within {limit_s} s")]
    TimedOut {
        /// How long it might have taken.
        limit_s: f64,
    },
    /// The replayer has no report.
    #[error("read the replayer's report: it ended with {outcome}; {last}")]
    NoReport {
        /// How it ended.
        outcome: String,
        /// The highest status with which one of them exited by itself.
        exit_code: Option<i32>,
        /// The last line it wrote.
        last: String,
    },
    /// The master could not be filled.
    #[error("fill the master before the replay: {last}")]
    Prefill {
        /// The last line the replayer wrote.
        last: String,
    },
    /// Somebody asked to stop.
    #[error("finish the run: it was asked to stop")]
    Cancelled,
}

/// What a launch came to; all of it is in `result.json`.
#[derive(Debug)]
#[must_use = "a launch may have failed"]
#[non_exhaustive]
pub struct Launched {
    /// Whether replay, heartbeats and assertions all succeeded.
    pub success: bool,
    /// The contents of `result.json`.
    pub result: Value,
    /// The replayer's report.
    pub report: Box<ReplayReport>,
    /// Who was the bottleneck.
    pub saturation: Saturation,
}

/// A master that is started has so many RPC threads if nobody says otherwise.
const DEFAULT_RPC_THREADS: u32 = 4;

/// A master gives a client up after so long without a ping if nobody says otherwise.
const DEFAULT_CLIENT_TTL_SEC: u64 = 10;

/// How long a master may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Between two looks at a master that is not ready.
const READY_LOOK: Duration = Duration::from_millis(50);

/// How long a process has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// How often a lost race for a port is repeated.
const PORT_ATTEMPTS: u32 = 5;

/// How often a cancellation is looked for.
const LOOK: Duration = Duration::from_millis(50);

impl Launch {
    /// Starts a master, replays the trace against it, stops it, and writes all about it.
    ///
    /// With [`Network::TryPrivate`] the calling thread, and with it everything it starts from then on, is moved into a
    /// private network where that is possible: give the launch a thread of its own.
    ///
    /// # Errors
    ///
    /// There is no report. Where the folder of the outputs was made, its `result.json` says why.
    pub fn run(&self, cancel: &CancelToken) -> Result<Launched, LaunchError> {
        self.run_telling(cancel, None)
    }

    /// As [`run`](Self::run), and tells once a second how many events of how many have finished. What that costs is in the result
    /// (`progress_cpu_ns`).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_telling(
        &self,
        cancel: &CancelToken,
        tell: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Launched, LaunchError> {
        self.settings.check()?;
        self.check_running()?;
        self.check_heartbeats()?;
        self.check_placement()?;
        self.check_trace(cancel)?;
        let program = self.program()?;
        create_folder(&self.out)?;
        let out = fs::canonicalize(&self.out)
            .map_err(|source| LaunchError::OutFolder { path: self.out.clone(), source })?;
        let session = Session { launch: self, out: &out, cancel, tell, told_cpu_ns: Cell::new(0) };
        let launched = session.run(program.as_ref());
        if let Err(error) = &launched {
            let result = json!({ "success": false, "error": describe(error) });
            write_json(&out.join("result.json"), &result)?;
        }
        launched
    }

    /// A master that runs already is as it is: what would be a setting of one that is started must not look as if it were
    /// in force.
    fn check_running(&self) -> Result<(), LaunchError> {
        if !matches!(self.master, MasterSource::Running { .. }) {
            return Ok(());
        }
        let given = [
            ("rpc-threads", self.rpc_threads.is_some()),
            ("master-cpus", self.master_cpus.is_some()),
            ("require-allocator", self.require_allocator.is_some()),
            ("allow-open-metrics", self.allow_open_metrics),
        ];
        let settings = (self.settings != MasterSettings::default()).then_some("settings of the master");
        match given.iter().find(|(_, given)| *given).map(|(name, _)| *name).or(settings) {
            Some(name) => {
                let why = "the master runs already, and is only connected to".to_owned();
                Err(LaunchError::Option { name, why })
            }
            None => Ok(()),
        }
    }

    /// A client that is pinged less often than a master waits for a ping is given up and registered again by nobody.
    fn check_heartbeats(&self) -> Result<(), LaunchError> {
        let started = !matches!(self.master, MasterSource::Running { .. });
        let ttl_sec = self.settings.client_ttl_sec.unwrap_or(DEFAULT_CLIENT_TTL_SEC);
        let interval_ms = self.options.heartbeat_interval_ms.get();
        if started && interval_ms >= ttl_sec.saturating_mul(1_000) {
            let why = format!(
                "{interval_ms} ms between two pings, and the master gives a client up after {ttl_sec} s"
            );
            return Err(LaunchError::Option { name: "heartbeat-interval-ms", why });
        }
        Ok(())
    }

    fn rpc_threads(&self) -> u32 {
        self.rpc_threads.map_or(DEFAULT_RPC_THREADS, NonZeroU32::get)
    }

    fn check_placement(&self) -> Result<(), LaunchError> {
        let error = |why: String| Err(LaunchError::Placement { why });
        let sets = [("master", &self.master_cpus), ("replayer", &self.replay_cpus)];
        if let (Some(master), Some(replayer)) = (&self.master_cpus, &self.replay_cpus)
            && !master.is_disjoint(replayer)
        {
            return error(format!("CPUs {} are given to both", master.intersection(replayer)));
        }
        if sets.iter().all(|(_, set)| set.is_none()) {
            return Ok(());
        }
        let topology = Topology::read().map_err(|error| LaunchError::Placement { why: error.to_string() })?;
        for (name, set) in sets {
            let Some(set) = set else { continue };
            let missing = set.difference(&topology.allowed);
            if set.is_empty() || !missing.is_empty() {
                return error(format!("CPUs {missing} of the {name} may not be used here"));
            }
        }
        Ok(())
    }

    fn check_trace(&self, cancel: &CancelToken) -> Result<(), LaunchError> {
        let speed = Speed::new(self.options.speed)?;
        let open = |path: &Path| {
            // It is read here, by each replayer, and for its digest.
            if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(LaunchError::NotAFile { path: path.to_owned() });
            }
            match drive::open_trace(path, cancel) {
                Err(TraceError::Read(_)) if cancel.is_cancelled() => Err(LaunchError::Cancelled),
                trace => Ok(trace?),
            }
        };
        let trace = open(&self.trace)?;
        trace.check_schedulable(speed)?;
        if let Some(path) = &self.prefill {
            let prefill = open(path)?;
            prefill.check_schedulable(speed)?;
            check_prefill(&trace, Some(&prefill))
                .map_err(|error| LaunchError::Option { name: "prefill", why: error.to_string() })?;
        }
        if trace.phase_range(Phase::Workload).is_empty() { Err(LaunchError::NoWorkload) } else { Ok(()) }
    }

    fn program(&self) -> Result<Option<Program>, LaunchError> {
        match &self.master {
            MasterSource::Elf(path) => Program::elf(path).map(Some),
            MasterSource::PythonEnv(folder) => Program::in_python_env(folder).map(Some),
            MasterSource::Running { .. } => Ok(None),
        }
    }
}

fn create_folder(path: &Path) -> Result<(), LaunchError> {
    let error = |source| LaunchError::OutFolder { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(error)?;
    }
    fs::create_dir(path).map_err(error)
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
    move |source| LaunchError::System { what, source }
}

fn write_json(path: &Path, value: &Value) -> Result<(), OutputError> {
    drive::write_file(path, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// A master that answers.
struct Ready {
    running: Option<Running>,
    rpc: SocketAddr,
    metrics: Option<SocketAddr>,
    allocator: Option<Value>,
}

impl Ready {
    fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }
}

/// A launch whose folder is there.
struct Session<'s> {
    launch: &'s Launch,
    out: &'s Path,
    cancel: &'s CancelToken,
    tell: Option<&'s dyn Fn(u64, u64)>,
    /// Processor time that telling took.
    told_cpu_ns: Cell<u64>,
}

impl Session<'_> {
    fn run(&self, program: Option<&Program>) -> Result<Launched, LaunchError> {
        self.stay_elsewhere();
        let mut ready = match program {
            Some(program) => self.start_master(program)?,
            None => self.connect()?,
        };
        let outcome = self.replay(&ready);
        let stopped = ready.running.take().map(stop);
        let (recorder, finished, after) = outcome?;
        self.conclude(&ready, &recorder, &finished, after, stopped.as_ref())
    }

    /// Keeps this thread, which looks at both processes now and then, off their CPUs where there are others.
    fn stay_elsewhere(&self) {
        let (Some(master), Some(replayer)) = (&self.launch.master_cpus, &self.launch.replay_cpus) else {
            return;
        };
        let Ok(topology) = Topology::read() else { return };
        let mut others = nix::sched::CpuSet::new();
        let free = topology.allowed.difference(master).difference(replayer);
        let fits = free.iter().all(|cpu| others.set(cpu as usize).is_ok());
        if fits && !free.is_empty() {
            // Where the kernel refuses, looking disturbs a little more.
            let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &others);
        }
    }

    fn start_master(&self, program: &Program) -> Result<Ready, LaunchError> {
        let private = match &self.launch.network {
            Network::TryPrivate => network::enter_private_network().map_err(|error| error.to_string()),
            Network::AlreadyPrivate => Ok(()),
            Network::Shared { why } => Err(why.clone()),
        };
        let keeps_metrics = program.has_flag("metrics_host", self.out, self.cancel)?;
        if let Err(why) = &private
            && !keeps_metrics
            && !self.launch.allow_open_metrics
        {
            return Err(LaunchError::OpenMetrics { why: why.clone() });
        }
        let mut attempt = 1;
        loop {
            let [rpc, metrics] = network::free_ports().map_err(system("find free ports"))?;
            let arguments = self.master_arguments(rpc, metrics, keeps_metrics);
            self.write_manifest(program, &arguments, &private)?;
            match self.try_master(program, &arguments, rpc, metrics) {
                Err(LaunchError::NotReady { why })
                    if private.is_err() && attempt < PORT_ATTEMPTS && lost(&why) =>
                {
                    attempt += 1;
                }
                ready => return ready,
            }
        }
    }

    fn master_arguments(&self, rpc: u16, metrics: u16, keeps_metrics: bool) -> Vec<String> {
        let mut arguments = vec![
            format!("--rpc_port={rpc}"),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_thread_num={}", self.launch.rpc_threads()),
            format!("--metrics_port={metrics}"),
            "--enable_metric_reporting=true".to_owned(),
            "--logtostderr=1".to_owned(),
        ];
        if keeps_metrics {
            arguments.push("--metrics_host=127.0.0.1".to_owned());
        }
        arguments.extend(self.launch.settings.flags());
        arguments
    }

    fn try_master(
        &self,
        program: &Program,
        arguments: &[String],
        rpc: u16,
        metrics: u16,
    ) -> Result<Ready, LaunchError> {
        let log = Output::File(self.out.join("master.log"));
        let mut run = Run::new(&program.path).args(arguments).cwd(self.out).stdout(log.clone()).stderr(log);
        run = run.grace(GRACE);
        run.env = program.environment();
        run.cpus.clone_from(&self.launch.master_cpus);
        let running = run.start().map_err(|source| LaunchError::Start { what: "master", source })?;
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut ready =
            Ready { running: None, rpc: address(rpc), metrics: Some(address(metrics)), allocator: None };
        // On an error the master is dropped, which kills it.
        self.wait_until_ready(running.pid(), &ready)?;
        ready.allocator = Some(self.check_allocator(running.pid())?);
        ready.running = Some(running);
        Ok(ready)
    }

    fn wait_until_ready(&self, pid: u32, ready: &Ready) -> Result<(), LaunchError> {
        let deadline = Instant::now() + READY_WITHIN;
        let not_ready = |why: &str| Err(LaunchError::NotReady { why: why.to_owned() });
        loop {
            if self.cancel.is_cancelled() {
                return Err(LaunchError::Cancelled);
            }
            if !is_alive(pid) {
                let last = last_line(&self.out.join("master.log"));
                return Err(LaunchError::NotReady { why: format!("{ENDED}: {last}") });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return not_ready("it did not answer in time");
            }
            if self.answers(ready, left.min(Duration::from_secs(1))) {
                break;
            }
            std::thread::sleep(READY_LOOK);
        }
        for address in [Some(ready.rpc), ready.metrics].into_iter().flatten() {
            let ours =
                network::listens(pid, address.port()).map_err(system("look at the master's sockets"))?;
            if !ours {
                return not_ready(&format!("{ANOTHER} {address}"));
            }
        }
        Ok(())
    }

    fn answers(&self, ready: &Ready, timeout: Duration) -> bool {
        let metrics = ready.metrics.is_none_or(|address| metrics::fetch(address, timeout).is_ok());
        metrics && TcpStream::connect_timeout(&ready.rpc, timeout).is_ok()
    }

    fn check_allocator(&self, pid: u32) -> Result<Value, LaunchError> {
        let (name, file) = master::allocator(pid).map_err(system("read the master's memory map"))?;
        match &self.launch.require_allocator {
            Some(wanted) if *wanted != name => {
                Err(LaunchError::Allocator { found: name, wanted: wanted.clone() })
            }
            _ => Ok(json!({ "name": name, "library": file })),
        }
    }

    /// A master that runs already: only looked at.
    fn connect(&self) -> Result<Ready, LaunchError> {
        let MasterSource::Running { address, metrics, may_be_used } = self.launch.master else {
            return Err(LaunchError::NotReady { why: "there is no master".to_owned() });
        };
        let not_fresh = |why: String| LaunchError::NotFresh { address, why };
        match metrics {
            _ if may_be_used => {}
            None => {
                let why = "without its metrics it is not known whether it holds objects or clients";
                return Err(not_fresh(why.to_owned()));
            }
            Some(metrics) => {
                let text = metrics::fetch(metrics, Duration::from_secs(5));
                let values =
                    metrics::values(&text.map_err(|error| not_fresh(format!("its metrics: {error}")))?);
                for gauge in ["master_key_count", "master_active_clients", "master_total_capacity_bytes"] {
                    match values.get(gauge) {
                        Some(0.0) => {}
                        Some(value) => return Err(not_fresh(format!("its {gauge} is {value}"))),
                        None => return Err(not_fresh(format!("its metrics do not say {gauge}"))),
                    }
                }
            }
        }
        self.write_connect_manifest()?;
        Ok(Ready { running: None, rpc: address, metrics, allocator: None })
    }

    /// Runs the replayer and looks at everything meanwhile.
    fn replay(&self, ready: &Ready) -> Result<(Recorder, Vec<Finished>, Value), LaunchError> {
        self.scrape(ready, "metrics-before.prom")?;
        let mut recorder = Recorder::create(self.out).map_err(system("create the files of samples"))?;
        let finished = self.replayers(ready, &mut recorder);
        recorder.flush().map_err(system("write the samples"))?;
        let finished = finished?;
        // It may have ended after the last look at it, which every call that was left then tells.
        let check_master = || match ready.pid() {
            Some(pid) if !is_alive(pid) => Err(LaunchError::MasterEnded),
            _ => Ok(()),
        };
        check_master()?;
        // Of a master that is not ours the calls say whether it has ended; what they found is not lost for its metrics.
        let after = match self.scrape(ready, "metrics-after.prom") {
            Err(error) => {
                check_master()?;
                json!({ "error": describe(&error) })
            }
            Ok(after) => after,
        };
        Ok((recorder, finished, after))
    }

    /// Runs the replayers, who meet in this process where there are several.
    fn replayers(&self, ready: &Ready, recorder: &mut Recorder) -> Result<Vec<Finished>, LaunchError> {
        let count = self.launch.replayers;
        if count.get() == 1 {
            return self.run_replayers(ready, recorder, &[self.drive(ready, None)?]);
        }
        let meeting = control::Meeting::open().map_err(system("open a port for the replayers to meet"))?;
        let address = meeting.address().map_err(system("open a port for the replayers to meet"))?;
        let id_seed = RandomState::new().hash_one(0);
        let part = |index| DrivePart { index, count, meeting: address, id_seed };
        let drives: Result<Vec<Drive>, LaunchError> =
            (0..count.get()).map(|index| self.drive(ready, Some(part(index)))).collect();
        let drives = drives?;
        let done = AtomicBool::new(false);
        let finished = std::thread::scope(|scope| {
            let held = scope.spawn(|| meeting.hold(drives.len(), &done));
            let finished = self.run_replayers(ready, recorder, &drives);
            done.store(true, Ordering::Release);
            match held.join() {
                Ok(Ok(())) => finished,
                // Without the meeting replayers could only fail, and did not know why.
                Ok(Err(error)) => finished.and(Err(system("let the replayers meet")(error))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        if finished.iter().all(|finished| matches!(finished.outcome, Outcome::Exited(0 | 1))) {
            let merged = drives[0].merge(count, self.cancel);
            merged.map_err(|error| LaunchError::NoReport {
                outcome: "its parts not fitting together".to_owned(),
                exit_code: None,
                last: describe(&error),
            })?;
        }
        Ok(finished)
    }

    fn drive(&self, ready: &Ready, part: Option<DrivePart>) -> Result<Drive, LaunchError> {
        Ok(Drive {
            trace: fs::canonicalize(&self.launch.trace).map_err(system("find the trace"))?,
            prefill: self
                .launch
                .prefill
                .as_ref()
                .map(fs::canonicalize)
                .transpose()
                .map_err(system("find the trace"))?,
            address: ready.rpc,
            out: self.out.to_owned(),
            options: self.launch.options.clone(),
            part,
        })
    }

    fn run_replayers(
        &self,
        ready: &Ready,
        recorder: &mut Recorder,
        drives: &[Drive],
    ) -> Result<Vec<Finished>, LaunchError> {
        let running: Result<Vec<Running>, LaunchError> =
            drives.iter().map(|drive| self.start_replayer(drive)).collect();
        let running = running?;
        let replayers: Vec<u32> = running.iter().map(Running::pid).collect();
        let pids = json!({ "master": ready.pid(), "replayer": replayers[0], "replayers": replayers });
        write_json(&self.out.join("pids.json"), &pids)?;
        let watched = self.watch(ready, &replayers, recorder);
        // Those that have ended by themselves only wait to be collected.
        let token = if watched.is_ok() { CancelToken::new() } else { cancelled() };
        let finished: Result<Vec<Finished>, SpawnError> =
            running.into_iter().map(|running| running.wait(&token)).collect();
        watched?;
        finished.map_err(|source| LaunchError::Start { what: "replayer", source })
    }

    fn start_replayer(&self, drive: &Drive) -> Result<Running, LaunchError> {
        let index = drive.part.as_ref().map_or(0, |part| part.index);
        let log = Output::File(self.out.join(log_name(index as usize)));
        let drive =
            serde_json::to_string(drive).map_err(|error| system("describe the replay")(error.into()))?;
        let mut run = Run::new(&self.launch.replayer).arg("drive").arg(drive);
        run = run.stdout(log.clone()).stderr(log).grace(GRACE);
        run.env = std::env::vars_os().collect();
        run.cpus.clone_from(&self.launch.replay_cpus);
        run.start().map_err(|source| LaunchError::Start { what: "replayer", source })
    }

    fn watch(&self, ready: &Ready, replayers: &[u32], recorder: &mut Recorder) -> Result<(), LaunchError> {
        let begun = Instant::now();
        let mut pids: Vec<(&'static str, u32)> = replayers.iter().map(|pid| ("replayer", *pid)).collect();
        pids.extend(ready.pid().map(|pid| ("master", pid)));
        let scrape_within = self.launch.sample_interval.min(Duration::from_secs(1));
        let mut next = begun;
        let mut next_tale = begun + TELL_EVERY;
        let mut gone = None;
        while replayers.iter().any(|pid| is_alive(*pid)) {
            // One that fails leaves the others waiting for it.
            if replayers.len() > 1
                && replayers.iter().any(|pid| !is_alive(*pid))
                && stalled(&mut gone, LEFT_ALONE)
            {
                return Err(LaunchError::NoReport {
                    outcome: "others still running".to_owned(),
                    exit_code: None,
                    last: last_line(&self.out.join("replayer.log")),
                });
            }
            if self.cancel.is_cancelled() {
                return Err(LaunchError::Cancelled);
            }
            if begun.elapsed() > self.launch.timeout {
                return Err(LaunchError::TimedOut { limit_s: self.launch.timeout.as_secs_f64() });
            }
            if ready.pid().is_some_and(|pid| !is_alive(pid)) {
                return Err(LaunchError::MasterEnded);
            }
            if Instant::now() >= next {
                let now = Instant::now();
                // Beyond all instants is never again.
                next = now.checked_add(self.launch.sample_interval).unwrap_or(now + FAR);
                recorder.sample(&pids, ready.metrics, scrape_within).map_err(system("write the samples"))?;
            }
            if Instant::now() >= next_tale {
                next_tale = Instant::now() + TELL_EVERY;
                self.tell_progress(replayers.len());
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(LOOK));
        }
        Ok(())
    }

    /// Adds up what the replayers have last said of themselves.
    fn tell_progress(&self, replayers: usize) {
        let Some(tell) = self.tell else { return };
        let before_ns = thread_cpu_ns();
        let said =
            (0..replayers).filter_map(|index| progress_of(&last_line(&self.out.join(log_name(index)))));
        let (finished, events) = said.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        if events > 0 {
            tell(finished, events);
        }
        let took_ns = thread_cpu_ns().saturating_sub(before_ns);
        self.told_cpu_ns.set(self.told_cpu_ns.get() + took_ns);
    }

    fn scrape(&self, ready: &Ready, file: &str) -> Result<Value, LaunchError> {
        let Some(address) = ready.metrics else { return Ok(Value::Null) };
        let text =
            metrics::fetch(address, Duration::from_secs(5)).map_err(system("fetch the master's metrics"))?;
        drive::write_file(&self.out.join(file), |out| out.write_all(text.as_bytes()))?;
        Ok(json!(metrics::values(&text)))
    }
}

const ENDED: &str = "it ended before it was ready";
const ANOTHER: &str = "another process listens on";

/// Longer than any replay.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

fn log_name(replayer: usize) -> String {
    if replayer == 0 { "replayer.log".to_owned() } else { format!("replayer-{replayer}.log") }
}

/// What a replayer says once a second: how many events of how many have finished.
fn progress_line(finished: u64, events: u64) -> String {
    format!("replayed {finished} of {events} events")
}

fn progress_of(line: &str) -> Option<(u64, u64)> {
    let (finished, events) = line.strip_prefix("replayed ")?.strip_suffix(" events")?.split_once(" of ")?;
    Some((finished.parse().ok()?, events.parse().ok()?))
}

fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    u64::try_from(used.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a master was not ready because somebody else had its port.
fn lost(why: &str) -> bool {
    why.starts_with(ANOTHER) || why.starts_with(ENDED) && why.contains("ddress already in use")
}

/// How long replayers may outlive the first of them that has ended.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// Whether something has lasted for so long since it was first asked about.
fn stalled(since: &mut Option<Instant>, limit: Duration) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() > limit
}

fn cancelled() -> CancelToken {
    let token = CancelToken::new();
    token.cancel();
    token
}

/// SIGTERM, and SIGKILL when that does not help.
fn stop(running: Running) -> Result<Finished, SpawnError> {
    running.wait(&cancelled())
}

fn base_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn last_line(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing").to_owned()
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_race_for_a_port_is_run_again() {
        assert!(lost(&format!("{ANOTHER} 127.0.0.1:50051")));
        assert!(lost(&format!("{ENDED}: E1 bind port 50051 error: Address already in use")));
        assert!(!lost(&format!("{ENDED}: Segmentation fault")));
        assert!(!lost("it did not answer in time"));
        assert!(!lost("Address already in use, says somebody else"));
    }

    #[test]
    fn what_a_replayer_says_of_itself_is_understood() {
        assert_eq!(progress_of(&progress_line(7, 12)), Some((7, 12)));
        assert_eq!(progress_of("it wrote nothing"), None);
    }

    #[test]
    fn settings_of_a_master_that_is_started_do_not_fit_one_that_runs() {
        let running = || MasterSource::Running {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            metrics: None,
            may_be_used: true,
        };
        let launch = || Launch::new("trace", running(), "out", "replayer");
        assert!(launch().check_running().is_ok());
        let changes: [fn(&mut Launch); 5] = [
            |launch| launch.rpc_threads = Some(NonZeroU32::MIN),
            |launch| launch.master_cpus = Some(CpuSet::from_iter([0])),
            |launch| launch.require_allocator = Some("jemalloc".to_owned()),
            |launch| launch.allow_open_metrics = true,
            |launch| launch.settings.client_ttl_sec = Some(9),
        ];
        for change in changes {
            let mut launch = launch();
            change(&mut launch);
            assert!(matches!(launch.check_running(), Err(LaunchError::Option { .. })), "{launch:?}");
            launch.master = MasterSource::Elf("master".into());
            assert!(launch.check_running().is_ok());
        }
    }
}
