//! `replay-master run`, and the replayer's process that it starts.

use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use command_line::{Exit, Interrupt, MessageFormat, Output};
use cpu_placement::{CancelToken, CpuSet};
use master_replay::{
    Drive, DriveError, DriveOptions, Launch, LaunchError, Launched, MasterSettings, MasterSource, Network,
    ReplayError, Speed, enter_private_network,
};

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) how: How,
    /// The folder of the outputs; it must not exist
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How the result is printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) message_format: MessageFormat,
}

/// Everything but the trace, the speed and the outputs: a sweep has this too.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    #[command(flatten)]
    source: Source,
    /// A trace that is replayed before, to fill the master: every key of it must succeed. Both must be of version 1
    #[arg(long, value_name = "TRACE")]
    prefill: Option<PathBuf>,
    /// How much faster than recorded
    #[arg(long, value_name = "FACTOR", default_value = "1")]
    pub(crate) speed: Speed,
    /// The most calls in flight at once, whatever the number of clients
    #[arg(long, value_name = "N", default_value = "16")]
    workers: NonZeroU32,
    /// Replayers that share the trace, each with so many calls in flight
    #[arg(long, value_name = "N", default_value = "1")]
    replayers: NonZeroU32,
    /// Connections of the replayer
    #[arg(long, value_name = "N", default_value = "4")]
    connections: NonZeroU32,
    /// Watch the clock for so long before an event is due, instead of sleeping; 0 only sleeps
    #[arg(long, value_name = "US", default_value_t = DriveOptions::default().spin_us)]
    spin_us: u64,
    /// Leave replies unread for up to so long when the master is saturated, so that several are read at once
    #[arg(long, value_name = "US", default_value_t = DriveOptions::default().max_read_delay_us)]
    max_read_delay_us: u64,
    /// The tenant of all calls
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    /// The segment that each client of a version 1 trace mounts
    #[arg(long, value_name = "BYTES", default_value = "67108864")]
    segment_size: NonZeroU64,
    /// Between two sweeps of heartbeats
    #[arg(long, value_name = "MS", default_value = "1000")]
    heartbeat_interval_ms: NonZeroU64,
    /// Connections of the heartbeats
    #[arg(long, value_name = "N", default_value = "16")]
    heartbeat_workers: NonZeroU32,
    /// How long a call may be unanswered
    #[arg(long, value_name = "MS", default_value = "30000")]
    call_timeout_ms: NonZeroU64,
    /// CPUs of the master, such as 0-3,8
    #[arg(long, value_name = "CPUS", conflicts_with = "connect")]
    master_cpus: Option<CpuSet>,
    /// CPUs of the replayer; none may be the master's
    #[arg(long, value_name = "CPUS")]
    replay_cpus: Option<CpuSet>,
    /// RPC threads of the master
    #[arg(long, value_name = "N", default_value = "4", conflicts_with = "connect")]
    rpc_threads: NonZeroU32,
    /// How often processes and metrics are looked at
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    sample_interval: Duration,
    /// How long the replay may take
    #[arg(long, value_name = "S", default_value = "600", value_parser = seconds)]
    timeout: Duration,
    /// The part of its capacity above which the master evicts
    #[arg(long, value_name = "RATIO", conflicts_with = "connect")]
    eviction_high_watermark_ratio: Option<f64>,
    /// The part of the objects that the master evicts at once
    #[arg(long, value_name = "RATIO", conflicts_with = "connect")]
    eviction_ratio: Option<f64>,
    /// After how long an unfinished write may be taken over
    #[arg(long, value_name = "S", conflicts_with = "connect")]
    put_start_discard_timeout_sec: Option<u64>,
    /// After how long an unfinished write is dropped; must exceed the discard timeout
    #[arg(long, value_name = "S", conflicts_with = "connect")]
    put_start_release_timeout_sec: Option<u64>,
    /// After how long without a heartbeat the master gives a client up
    #[arg(long, value_name = "S", conflicts_with = "connect")]
    client_ttl_sec: Option<u64>,
    /// How long a read protects an object from removal and eviction
    #[arg(long, value_name = "MS", default_value = "0", conflicts_with = "connect")]
    lease_ttl_ms: u64,
    /// Fail unless the master evicts during the workload
    #[arg(long)]
    require_eviction: bool,
    /// Fail unless the master has this memory allocator loaded, for example jemalloc
    #[arg(long, value_name = "NAME", conflicts_with = "connect")]
    require_allocator: Option<String>,
    /// Allow a master that serves its metrics to the whole network
    #[arg(long, conflicts_with = "connect")]
    allow_open_metrics: bool,
    /// Do not try to give master and replayer a network of their own
    #[arg(long, conflicts_with = "connect")]
    shared_network: bool,
    /// The metrics of the master that is connected to
    #[arg(long, value_name = "HOST:PORT", requires = "connect")]
    metrics: Option<String>,
    /// Allow the master that is connected to, to hold objects and clients
    #[arg(long, requires = "connect")]
    allow_used_master: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Start a master of this executable
    #[arg(long, value_name = "ELF")]
    master: Option<PathBuf>,
    /// Start the master of the package in this Python environment
    #[arg(long, value_name = "DIR")]
    python_env: Option<PathBuf>,
    /// Use a master that runs already; it is not stopped
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let time = Duration::try_from_secs_f64(value).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("not above 0".to_owned()) } else { Ok(time) }
}

fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let mut addresses =
        text.to_socket_addrs().map_err(|error| Failure::new(error, Exit::Usage).about(text))?;
    addresses.next().ok_or_else(|| Failure::usage(format!("{text} means no address")))
}

impl How {
    fn source(&self) -> Result<MasterSource, Failure> {
        match (&self.source.master, &self.source.python_env, &self.source.connect) {
            (Some(path), _, _) => Ok(MasterSource::Elf(path.clone())),
            (_, Some(folder), _) => Ok(MasterSource::PythonEnv(folder.clone())),
            (_, _, Some(address)) => Ok(MasterSource::Running {
                address: resolve(address)?,
                metrics: self.metrics.as_deref().map(resolve).transpose()?,
                may_be_used: self.allow_used_master,
            }),
            _ => Err(Failure::usage("no master is given")),
        }
    }

    fn settings(&self) -> MasterSettings {
        let mut settings = MasterSettings::default();
        settings.eviction_high_watermark_ratio = self.eviction_high_watermark_ratio;
        settings.eviction_ratio = self.eviction_ratio;
        settings.put_start_discard_timeout_sec = self.put_start_discard_timeout_sec;
        settings.put_start_release_timeout_sec = self.put_start_release_timeout_sec;
        settings.client_ttl_sec = self.client_ttl_sec;
        settings.default_kv_lease_ttl_ms = self.lease_ttl_ms;
        settings
    }

    fn drive_options(&self) -> DriveOptions {
        let mut options = DriveOptions::default();
        options.workers = self.workers;
        options.connections = self.connections;
        options.speed = self.speed.value();
        options.spin_us = self.spin_us;
        options.max_read_delay_us = self.max_read_delay_us;
        options.tenant.clone_from(&self.tenant);
        options.segment_size_bytes = self.segment_size;
        options.heartbeat_interval_ms = self.heartbeat_interval_ms;
        options.heartbeat_workers = self.heartbeat_workers;
        options.call_timeout_ms = self.call_timeout_ms;
        options
    }

    /// Moves this process, which has one thread yet, into a network of its own if a master is to be started. Later it
    /// would be possible for root only.
    fn network(&self) -> Network {
        if self.source.connect.is_some() || self.shared_network {
            return Network::Shared { why: "it was not wanted".to_owned() };
        }
        match enter_private_network() {
            Ok(()) => Network::AlreadyPrivate,
            Err(error) => Network::Shared { why: error.to_string() },
        }
    }

    /// The launch that is described.
    pub(crate) fn launch(&self, trace: &Path, out: &Path) -> Result<Launch, Failure> {
        let replayer = std::env::current_exe()?;
        let mut launch = Launch::new(trace, self.source()?, out, replayer);
        launch.prefill.clone_from(&self.prefill);
        launch.options = self.drive_options();
        launch.replayers = self.replayers;
        launch.master_cpus.clone_from(&self.master_cpus);
        launch.replay_cpus.clone_from(&self.replay_cpus);
        launch.rpc_threads = self.source.connect.is_none().then_some(self.rpc_threads);
        launch.settings = self.settings();
        launch.sample_interval = self.sample_interval;
        launch.timeout = self.timeout;
        launch.require_eviction = self.require_eviction;
        launch.require_allocator.clone_from(&self.require_allocator);
        launch.allow_open_metrics = self.allow_open_metrics;
        launch.network = self.network();
        Ok(launch)
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    let launch = args.how.launch(&args.trace, &args.out)?;
    match with_progress(&launch, &cancel) {
        Ok(launched) => {
            print(args.message_format, &launched)?;
            Ok(if launched.success { Exit::Ok } else { Exit::Differs })
        }
        Err(error) => {
            if args.message_format == MessageFormat::Json {
                let mut out = Output::stdout();
                let error = command_line::describe_error(&error);
                writeln!(out, "{}", serde_json::json!({ "success": false, "error": error }))?;
                out.flush()?;
            }
            Err(failure(error, &interrupt))
        }
    }
}

/// Runs a launch in a thread of its own, which may move into a private network and to a CPU of its own, and shows how far
/// the replay is.
pub(crate) fn with_progress(launch: &Launch, cancel: &CancelToken) -> Result<Launched, LaunchError> {
    let on_terminal = std::io::stderr().is_terminal();
    let show = |finished, events| command_line::show!("\r{}\x1b[K", Drive::progress_line(finished, events));
    let launched = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let show: &dyn Fn(u64, u64) = &show;
            launch.run_telling(cancel, on_terminal.then_some(show))
        });
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if on_terminal {
        command_line::show!("\r\x1b[K");
    }
    launched
}

pub(crate) fn failure(error: LaunchError, interrupt: &Interrupt) -> Failure {
    let exit = match &error {
        LaunchError::Option { .. } | LaunchError::Speed(_) => Exit::Usage,
        LaunchError::Trace(_)
        | LaunchError::Schedule(_)
        | LaunchError::NoWorkload
        | LaunchError::NotAFile { .. }
        | LaunchError::OutFolder { .. }
        | LaunchError::MasterMissing { .. }
        | LaunchError::NotAMaster { .. }
        | LaunchError::NotFresh { .. }
        | LaunchError::Allocator { .. } => Exit::BadInput,
        LaunchError::Placement { .. }
        | LaunchError::OpenMetrics { .. }
        | LaunchError::System { .. }
        | LaunchError::Output(_) => Exit::HostUnfit,
        LaunchError::Start { what: "master", .. } => Exit::BadInput,
        LaunchError::NoReport { exit_code: Some(code), .. } if *code == i32::from(Exit::HostUnfit.code()) => {
            Exit::HostUnfit
        }
        LaunchError::Prefill { .. } => Exit::Differs,
        LaunchError::Cancelled => interrupt.exit().unwrap_or(Exit::Bug),
        _ => Exit::TargetFailed,
    };
    Failure::new(error, exit)
}

fn print(format: MessageFormat, launched: &Launched) -> Result<(), Failure> {
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => writeln!(out, "{}", brief(launched))?,
        MessageFormat::Human => human(&mut out, launched)?,
    }
    out.flush()?;
    Ok(())
}

/// The result without its longest parts.
fn brief(launched: &Launched) -> serde_json::Value {
    let mut result = launched.result.clone();
    if let Some(traffic) = result.get_mut("traffic").and_then(|traffic| traffic.as_object_mut()) {
        traffic.remove("buckets");
    }
    if let Some(evictions) = result.get_mut("workload_evictions").and_then(|found| found.as_object_mut()) {
        evictions.remove("intervals");
    }
    result
}

fn human(out: &mut impl Write, launched: &Launched) -> std::io::Result<()> {
    let report = &launched.report;
    writeln!(out, "{}", if launched.success { "success" } else { "FAILED" })?;
    let workload = report.summary.phases.get("workload").and_then(|phase| phase.operations.as_ref());
    for (op, found) in workload.into_iter().flatten() {
        let latency = found.client_call_latency_us;
        let due = found.scheduled_to_completion_us;
        let text = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        writeln!(
            out,
            "{op:<20} {:>9} calls, {} failed, {:.0}/s; us from sent p50 {} p99 {}, from due p50 {} p99 {}",
            found.planned_calls,
            found.failed_calls,
            found.rpc_per_second.unwrap_or(0.0),
            text(latency.p50),
            text(latency.p99),
            text(due.p50),
            text(due.p99),
        )?;
        let keys = found.key_status;
        writeln!(
            out,
            "{:<20} keys: {} ok, {} miss, {} not ready, {} already there, {} error, {} skipped",
            "", keys.ok, keys.miss, keys.not_ready, keys.already_exists, keys.error, keys.skipped
        )?;
    }
    let beats = &report.heartbeats;
    writeln!(out, "heartbeats: {} sent, {} failed", beats.rpc_calls, beats.failed_calls)?;
    let evicted = &launched.result["workload_evictions"]["observed"];
    writeln!(out, "evictions during the workload: {evicted}")?;
    for (error, count) in &report.errors {
        writeln!(out, "{count} times: {error}")?;
    }
    let verdict = serde_json::to_value(launched.saturation.verdict).unwrap_or_default();
    writeln!(out, "saturated: {} ({})", verdict.as_str().unwrap_or_default(), launched.saturation.reason)
}

#[derive(Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// What to replay, as JSON
    drive: String,
}

/// The replayer's process.
pub(crate) fn drive(args: &DriveArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    let drive: Drive = serde_json::from_str(&args.drive).map_err(|error| Failure::new(error, Exit::Usage))?;
    let report = drive
        .run(&cancel, |finished, events| command_line::say!("{}", Drive::progress_line(finished, events)));
    match report {
        Ok(report) if report.as_ref().is_none_or(master_replay::ReplayReport::is_success) => Ok(Exit::Ok),
        Ok(_) => Ok(Exit::Differs),
        Err(error) => {
            let exit = match &error {
                DriveError::Speed(_) => Exit::Usage,
                DriveError::Trace(_) => Exit::BadInput,
                DriveError::Replay(ReplayError::Cancelled { .. }) => interrupt.exit().unwrap_or(Exit::Bug),
                DriveError::Replay(ReplayError::Prefill { .. }) => Exit::Differs,
                DriveError::Replay(error) if error.is_of_this_machine() => Exit::HostUnfit,
                DriveError::Replay(_) => Exit::TargetFailed,
                _ => Exit::HostUnfit,
            };
            Err(Failure::new(error, exit))
        }
    }
}
