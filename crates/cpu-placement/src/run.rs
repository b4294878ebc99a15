//! Starting a program in its place, waiting for it, and leaving nothing of it behind.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::bind::{self, ChildReport, ChildSetup, Step};
use crate::cancel::CancelToken;
use crate::error::SpawnError;
use crate::finished::{Affinity, Finished, MemoryPlacement, Outcome};
use crate::procfs;
use crate::set::{CpuSet, NodeSet};
use crate::violation::{Violation, ViolationKind};

/// How long a group has between SIGTERM and SIGKILL unless the run says otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// How often a waiting parent looks at its token. It sleeps in between, and wakes at once when the child ends.
const TICK: Duration = Duration::from_millis(50);

/// Where a stream of the child goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Output {
    /// Nowhere.
    #[default]
    Null,
    /// Where this process's own goes.
    Inherit,
    /// Into this file, created or emptied. Both streams may name the same file.
    File(PathBuf),
}

/// What the child reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// What this process reads.
    Inherit,
    /// This file.
    File(PathBuf),
}

/// The NUMA nodes a child's memory must come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBinding {
    /// The nodes.
    pub nodes: NodeSet,
    /// Whether a kernel that refuses stops the start. Otherwise the refusal is a [`Violation`].
    pub required: bool,
}

impl MemoryBinding {
    /// Memory from `nodes` only; a refusal stops the start.
    pub fn required(nodes: NodeSet) -> Self {
        Self { nodes, required: true }
    }

    /// Memory from `nodes` only; a refusal is reported and the program runs.
    pub fn wanted(nodes: NodeSet) -> Self {
        Self { nodes, required: false }
    }
}

/// A program to be started once: what, where, and within which limits.
///
/// The child gets exactly the environment given here and nothing else, its own process group, no inherited
/// descriptor above stderr, and dies with the thread that started it.
///
/// ```
/// use cpu_placement::{CancelToken, Outcome, Run};
///
/// let finished = Run::new("/bin/sh").args(["-c", "exit 3"]).wait(&CancelToken::new())?;
/// assert_eq!(finished.outcome, Outcome::Exited(3));
/// assert!(finished.wall_ns > 0);
/// # Ok::<(), cpu_placement::SpawnError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Run {
    /// The program. A name without `/` is looked up on the `PATH` of [`env`](Self::env).
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Its working directory; nothing means that of this process.
    pub cwd: Option<PathBuf>,
    /// What it reads.
    pub stdin: Input,
    /// Where its stdout goes.
    pub stdout: Output,
    /// Where its stderr goes.
    pub stderr: Output,
    /// The CPUs it may use; nothing leaves the inherited affinity.
    pub cpus: Option<CpuSet>,
    /// Where its memory comes from; nothing leaves the inherited policy.
    pub memory: Option<MemoryBinding>,
    /// How long it may run.
    pub time_limit: Option<Duration>,
    /// How long its group has between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Run {
    /// A run of `program` with no argument, an empty environment and no output.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: Input::Null,
            stdout: Output::Null,
            stderr: Output::Null,
            cpus: None,
            memory: None,
            time_limit: None,
            grace: DEFAULT_GRACE,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: Into<OsString>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets one variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Copies one variable of this process's environment, if it is set.
    #[must_use]
    pub fn env_from_parent(self, name: impl AsRef<OsStr>) -> Self {
        match std::env::var_os(name.as_ref()) {
            Some(value) => self.env(name.as_ref(), value),
            None => self,
        }
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Sets what it reads.
    #[must_use]
    pub fn stdin(mut self, input: Input) -> Self {
        self.stdin = input;
        self
    }

    /// Sets where stdout goes.
    #[must_use]
    pub fn stdout(mut self, output: Output) -> Self {
        self.stdout = output;
        self
    }

    /// Sets where stderr goes.
    #[must_use]
    pub fn stderr(mut self, output: Output) -> Self {
        self.stderr = output;
        self
    }

    /// Sets the CPUs it may use.
    #[must_use]
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Sets where its memory comes from.
    #[must_use]
    pub fn memory(mut self, memory: MemoryBinding) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets how long it may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets how long its group has between SIGTERM and SIGKILL.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts the program and waits until it has ended and nothing of its group is left.
    ///
    /// The calling thread sleeps meanwhile, on CPUs outside the run's own set where it has any.
    ///
    /// # Errors
    /// When the program could not be started as asked, or not be waited for. A program that fails is not an error:
    /// see [`Finished::outcome`].
    pub fn wait(&self, cancel: &CancelToken) -> Result<Finished, SpawnError> {
        if cancel.is_cancelled() {
            return Err(SpawnError::Cancelled { program: self.program.clone() });
        }
        self.start()?.wait(cancel)
    }

    /// Starts the program.
    ///
    /// # Errors
    /// When the program could not be started as asked.
    pub fn start(&self) -> Result<Running, SpawnError> {
        let program = self.resolve_program()?;
        self.check_sets()?;
        let mut command = self.command(&program)?;
        let pipe =
            bind::prepare(&mut command, self.child_setup()).map_err(|source| self.start_error(source))?;
        let _elsewhere = Elsewhere::than(self.cpus.as_ref());
        let max_rss_floor_bytes = own_rss_bytes();
        let started_at = SystemTime::now();
        let started = Instant::now();
        let spawned = command.spawn();
        let report = pipe.read().map_err(|source| self.start_error(source))?;
        let child = spawned.map_err(|source| self.spawn_error(source, report.as_ref()))?;
        Running::adopt(self, child, report.unwrap_or_default(), started, started_at, max_rss_floor_bytes)
    }

    fn start_error(&self, source: io::Error) -> SpawnError {
        SpawnError::Start { program: self.program.clone(), source }
    }

    /// The error of a spawn that failed, by the step that failed.
    fn spawn_error(&self, source: io::Error, report: Option<&ChildReport>) -> SpawnError {
        let failed = report.and_then(|report| report.failed).map(|(step, _)| step);
        match (failed, &self.cpus, &self.memory) {
            (Some(Step::Affinity | Step::ReadBack), Some(cpus), _) => {
                SpawnError::Affinity { requested: cpus.clone(), source }
            }
            (Some(Step::Memory), _, Some(memory)) => {
                SpawnError::Memory { requested: memory.nodes.clone(), source }
            }
            (None, _, _) if report.is_some() => {
                SpawnError::NotExecutable { program: self.program.clone(), source }
            }
            _ => self.start_error(source),
        }
    }

    /// The file to execute. A bare name is looked up on the run's own `PATH`, so that the answer does not depend
    /// on this process's environment.
    fn resolve_program(&self) -> Result<PathBuf, SpawnError> {
        let missing = || SpawnError::ProgramMissing { program: self.program.clone() };
        if self.program.as_os_str().as_encoded_bytes().contains(&b'/') {
            let base = self.cwd.as_deref().unwrap_or(Path::new(""));
            let exists = base.join(&self.program).exists();
            return if exists { Ok(self.program.clone()) } else { Err(missing()) };
        }
        let path = self.env.get(OsStr::new("PATH")).ok_or_else(missing)?;
        std::env::split_paths(path)
            .map(|dir| dir.join(&self.program))
            .find(|p| p.is_file())
            .ok_or_else(missing)
    }

    fn check_sets(&self) -> Result<(), SpawnError> {
        if self.memory.as_ref().is_some_and(|memory| memory.nodes.is_empty()) {
            return Err(SpawnError::EmptySet { what: "NUMA nodes" });
        }
        let Some(requested) = &self.cpus else { return Ok(()) };
        if requested.is_empty() {
            return Err(SpawnError::EmptySet { what: "CPUs" });
        }
        let allowed = cpus_this_process_may_use().map_err(|source| self.start_error(source))?;
        let missing = requested.difference(&allowed);
        if missing.is_empty() {
            return Ok(());
        }
        Err(SpawnError::CpusNotAllowed { requested: requested.clone(), missing, allowed })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes for all others")]
    fn command(&self, program: &Path) -> Result<Command, SpawnError> {
        let mut command = Command::new(program);
        command.arg0(&self.program).args(&self.args).env_clear().envs(&self.env).process_group(0);
        if let Some(path) = &self.cwd {
            let entered = std::fs::read_dir(path).map(drop);
            entered.map_err(|source| SpawnError::WorkingDirectory { path: path.clone(), source })?;
            command.current_dir(path);
        }
        let stdout = open_output(&self.stdout)?;
        let shared = self.stderr == self.stdout && matches!(self.stdout, Output::File(_));
        let stderr = match (&stdout, shared) {
            (Some(file), true) => Some(file.try_clone().map_err(|source| self.start_error(source))?),
            _ => open_output(&self.stderr)?,
        };
        command.stdin(open_input(&self.stdin)?);
        command.stdout(stdio(stdout, &self.stdout)).stderr(stdio(stderr, &self.stderr));
        Ok(command)
    }

    fn child_setup(&self) -> ChildSetup {
        ChildSetup {
            cpu_words: self.cpus.as_ref().map(|cpus| cpus.words().to_vec()).unwrap_or_default(),
            node_words: self.memory.as_ref().map(|m| m.nodes.words().to_vec()).unwrap_or_default(),
            memory_required: self.memory.as_ref().is_some_and(|memory| memory.required),
        }
    }
}

fn open_output(output: &Output) -> Result<Option<File>, SpawnError> {
    let Output::File(path) = output else { return Ok(None) };
    File::create(path).map(Some).map_err(|source| SpawnError::Output { path: path.clone(), source })
}

fn open_input(input: &Input) -> Result<Stdio, SpawnError> {
    match input {
        Input::Null => Ok(Stdio::null()),
        Input::Inherit => Ok(Stdio::inherit()),
        Input::File(path) => File::open(path)
            .map(Stdio::from)
            .map_err(|source| SpawnError::Output { path: path.clone(), source }),
    }
}

fn stdio(file: Option<File>, output: &Output) -> Stdio {
    match (file, output) {
        (Some(file), _) => file.into(),
        (None, Output::Inherit) => Stdio::inherit(),
        (None, _) => Stdio::null(),
    }
}

/// The CPUs this process could give to a child: online, and inside its cgroup. Its own affinity is not a limit
/// (the kernel lets a process widen it up to the cgroup's set), so the main thread's mask is not asked.
fn cpus_this_process_may_use() -> io::Result<CpuSet> {
    let online = procfs::text("/sys/devices/system/cpu/online").and_then(|text| text.parse().ok());
    let cpuset = crate::topology::cgroup::cpus_under(Path::new("/"));
    match (online, cpuset) {
        (Some(online), Some(cpuset)) => Ok(CpuSet::intersection(&online, &cpuset)),
        (Some(set), None) | (None, Some(set)) => Ok(set),
        (None, None) => Ok(CpuSet::from_words(&bind::affinity_words(0)?)),
    }
}

fn own_rss_bytes() -> u64 {
    procfs::text("/proc/self/status").and_then(|status| procfs::status_bytes(&status, "VmRSS")).unwrap_or(0)
}

/// Keeps the calling thread off a set of CPUs while it lives, where the thread has others to go to.
#[derive(Debug)]
struct Elsewhere {
    original: Option<Vec<u64>>,
}

impl Elsewhere {
    fn than(cpus: Option<&CpuSet>) -> Self {
        Self { original: cpus.and_then(Self::leave) }
    }

    fn leave(cpus: &CpuSet) -> Option<Vec<u64>> {
        let original = bind::affinity_words(0).ok()?;
        let others = CpuSet::from_words(&original).difference(cpus);
        if others.is_empty() || bind::set_affinity(0, others.words()).is_err() {
            return None;
        }
        Some(original)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(original) = &self.original {
            // The mask was this thread's own a moment ago; if a cgroup shrank meanwhile, the narrower one stays.
            let _ = bind::set_affinity(0, original);
        }
    }
}

/// A program that has been started. Dropping it kills its whole group.
///
/// It must stay on the thread that started it: the kernel ends the child when that thread ends.
#[derive(Debug)]
#[must_use = "dropping it kills the program"]
pub struct Running {
    pid: u32,
    pidfd: OwnedFd,
    reaped: bool,
    started: Instant,
    started_unix_ns: u64,
    max_rss_floor_bytes: u64,
    time_limit: Option<Duration>,
    grace: Duration,
    affinity: Affinity,
    memory: MemoryPlacement,
    violations: Vec<Violation>,
    not_send: PhantomData<*const ()>,
}

impl Running {
    fn adopt(
        run: &Run,
        child: Child,
        report: ChildReport,
        started: Instant,
        started_at: SystemTime,
        max_rss_floor_bytes: u64,
    ) -> Result<Self, SpawnError> {
        let pid = child.id();
        let raw = i32::try_from(pid).expect("the kernel's process ids are positive i32");
        let pidfd = bind::pidfd_open(raw).map_err(|source| {
            kill_and_reap(raw);
            SpawnError::Wait { pid, source }
        })?;
        let mut running = Self {
            pid,
            pidfd,
            reaped: false,
            started,
            started_unix_ns: unix_ns(started_at),
            max_rss_floor_bytes,
            time_limit: run.time_limit,
            grace: run.grace,
            affinity: Affinity {
                requested: run.cpus.clone(),
                before_exec: CpuSet::from_words(&report.cpu_words),
                after_exec: procfs::read_status(pid).ok().and_then(|status| procfs::allowed_cpus(&status)),
                at_end: None,
            },
            memory: MemoryPlacement {
                requested: run.memory.as_ref().map(|memory| memory.nodes.clone()),
                refused_errno: report.memory_errno,
            },
            violations: Vec::new(),
            not_send: PhantomData,
        };
        running.check_start();
        Ok(running)
    }

    /// Its process id, which is also its process group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to its whole group.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the number is not a signal.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let signal = Signal::try_from(signal)?;
        Ok(killpg(self.group(), signal)?)
    }

    /// Waits until the program has ended and nothing of its group is left.
    ///
    /// # Errors
    /// When the kernel would not let this process wait for it.
    pub fn wait(mut self, cancel: &CancelToken) -> Result<Finished, SpawnError> {
        let cpus = self.affinity.requested.clone();
        let _elsewhere = Elsewhere::than(cpus.as_ref());
        let ended_early = self.wait_for_end(cancel).map_err(|source| self.wait_error(source))?;
        let mut killed_after_grace = false;
        if ended_early.is_some() {
            killed_after_grace = self.stop_group().map_err(|source| self.wait_error(source))?;
        }
        let wall_ns = nanoseconds(self.started.elapsed());
        self.look_at_end();
        self.finish(ended_early, killed_after_grace, wall_ns)
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.raw_pid())
    }

    fn raw_pid(&self) -> i32 {
        i32::try_from(self.pid).expect("the kernel's process ids are positive i32")
    }

    fn wait_error(&self, source: io::Error) -> SpawnError {
        SpawnError::Wait { pid: self.pid, source }
    }

    fn violation(&mut self, kind: ViolationKind) {
        let at_ns = nanoseconds(self.started.elapsed());
        self.violations.push(Violation {
            at_ns,
            at_unix_ns: self.started_unix_ns.saturating_add(at_ns),
            kind,
        });
    }

    fn check_start(&mut self) {
        if let (Some(requested), Some(errno)) = (self.memory.requested.clone(), self.memory.refused_errno) {
            self.violation(ViolationKind::MemoryPolicyRefused { requested, errno });
        }
        let before = Some(self.affinity.before_exec.clone());
        self.check_affinity(before);
        self.check_affinity(self.affinity.after_exec.clone());
    }

    fn check_affinity(&mut self, found: Option<CpuSet>) {
        let (Some(requested), Some(found)) = (self.affinity.requested.clone(), found) else { return };
        if found != requested {
            self.violation(ViolationKind::AffinityDiffers { tid: self.pid, requested, found });
        }
    }

    /// Sleeps until the child ends, the limit is reached or the token is cancelled; says which of the latter.
    fn wait_for_end(&mut self, cancel: &CancelToken) -> io::Result<Option<Outcome>> {
        loop {
            let left = self.time_limit.map(|limit| limit.saturating_sub(self.started.elapsed()));
            if self.ended_within(left.unwrap_or(TICK).min(TICK))? {
                return Ok(None);
            }
            if cancel.is_cancelled() {
                return Ok(Some(Outcome::Cancelled));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Some(Outcome::TimedOut));
            }
        }
    }

    /// Sleeps for at most `time`, waking when the child ends; says whether it has.
    fn ended_within(&self, time: Duration) -> io::Result<bool> {
        // Rounded up, lest a rest of less than a millisecond becomes a busy loop.
        let ms = time.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// SIGTERM to the group, and SIGKILL when the child outlives the grace; says whether that was needed.
    fn stop_group(&mut self) -> io::Result<bool> {
        ignore_gone(killpg(self.group(), Signal::SIGTERM))?;
        // A stopped process would not see SIGTERM before the grace is over.
        ignore_gone(killpg(self.group(), Signal::SIGCONT))?;
        let deadline = Instant::now() + self.grace;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.ended_within(left)? {
                return Ok(false);
            }
            if left.is_zero() {
                break;
            }
        }
        ignore_gone(killpg(self.group(), Signal::SIGKILL))?;
        while !self.ended_within(TICK)? {}
        Ok(true)
    }

    /// The child has ended and is not reaped: its record in `/proc` is still there.
    fn look_at_end(&mut self) {
        let status = procfs::read_status(self.pid).ok();
        self.affinity.at_end = status.as_deref().and_then(procfs::allowed_cpus);
        self.check_affinity(self.affinity.at_end.clone());
        let pids = self.others_in_group();
        if !pids.is_empty() {
            self.violation(ViolationKind::LeftBehind { pids });
        }
    }

    /// Live members of the group other than the child itself, which has ended.
    fn others_in_group(&self) -> Vec<u32> {
        let group = self.raw_pid();
        let member = |pid: &u32| {
            *pid != self.pid
                && procfs::read_stat(*pid).is_some_and(|stat| stat.group == group && stat.state != 'Z')
        };
        procfs::all_pids().unwrap_or_default().into_iter().filter(member).collect()
    }

    fn finish(
        mut self,
        ended_early: Option<Outcome>,
        killed_after_grace: bool,
        wall_ns: u64,
    ) -> Result<Finished, SpawnError> {
        // Before reaping: as long as the child is there, nobody else can have its group's number.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let reaped = bind::wait4(self.raw_pid()).map_err(|source| self.wait_error(source))?;
        self.reaped = true;
        let usage = &reaped.usage;
        Ok(Finished {
            pid: self.pid,
            outcome: ended_early.unwrap_or_else(|| outcome_of(reaped.status)),
            killed_after_grace,
            started_unix_ns: self.started_unix_ns,
            wall_ns,
            user_ns: timeval_ns(usage.ru_utime),
            system_ns: timeval_ns(usage.ru_stime),
            max_rss_bytes: count(usage.ru_maxrss).saturating_mul(1024),
            max_rss_floor_bytes: self.max_rss_floor_bytes,
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            affinity: std::mem::take(&mut self.affinity),
            memory: std::mem::take(&mut self.memory),
            violations: std::mem::take(&mut self.violations),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            kill_and_reap(self.raw_pid());
        }
    }
}

/// For a child nobody will wait for any more. Errors have nowhere to go: the child is ours, so the only one
/// possible is that it is gone already.
fn kill_and_reap(pid: i32) {
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    let _ = bind::wait4(pid);
}

fn ignore_gone(result: nix::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn outcome_of(status: i32) -> Outcome {
    if libc::WIFSIGNALED(status) {
        Outcome::Signalled(libc::WTERMSIG(status))
    } else {
        Outcome::Exited(libc::WEXITSTATUS(status))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_ns(time: SystemTime) -> u64 {
    nanoseconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn timeval_ns(time: libc::timeval) -> u64 {
    count(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(count(time.tv_usec).saturating_mul(1_000))
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
