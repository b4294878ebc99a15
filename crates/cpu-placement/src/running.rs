//! A program that has been started: waiting for it, watching it, and leaving nothing of it behind.

use std::io::{self, IsTerminal};
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::bind::{self, ChildReport, Guard};
use crate::cancel::CancelToken;
use crate::elsewhere::Elsewhere;
use crate::error::SpawnError;
use crate::finished::{Affinity, Finished, MemoryPlacement, Outcome};
use crate::load::{LoadLimits, Meter};
use crate::observed::Observed;
use crate::procfs;
use crate::run::{Input, Run};
use crate::set::CpuSet;
use crate::suspend;
use crate::telemetry::Gauge;
use crate::terminal::Loan;
use crate::topology::cgroup::{self, Throttling};
use crate::violation::{ViolationKind, Violations};
use crate::watch::{Expected, Observe, SAMPLE_EVERY, Watch, Watched, others_in_group};

/// How often a waiting parent looks at its token. It sleeps in between, and wakes at once when the child ends or a
/// signal comes. The same as the pause between looks, so that they share a waking.
const TICK: Duration = SAMPLE_EVERY;

/// What was read before the program was started, and when it was.
pub(crate) struct Before {
    max_rss_floor_bytes: u64,
    meter: Option<Meter>,
    gauge: Option<Gauge>,
    throttling: Option<Throttling>,
    started: Instant,
    started_unix_ns: u64,
}

impl Before {
    pub(crate) fn read(run: &Run) -> Self {
        let root = Path::new("/");
        let watched = run.observe != Observe::Ends;
        let cpus = run.cpus.as_ref().filter(|_| watched);
        Self {
            max_rss_floor_bytes: own_rss_bytes(),
            meter: cpus.map(|cpus| Meter::start(root, cpus, &run.idle)),
            gauge: cpus.map(|cpus| Gauge::start(root, cpus)),
            throttling: watched.then(|| cgroup::throttling(root)).flatten(),
            started: Instant::now(),
            started_unix_ns: 0,
        }
    }

    pub(crate) fn at(self, started: Instant, wall: SystemTime) -> Self {
        let started_unix_ns = nanoseconds(wall.duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { started, started_unix_ns, ..self }
    }
}

fn own_rss_bytes() -> u64 {
    procfs::text("/proc/self/status").and_then(|status| procfs::status_bytes(&status, "VmRSS")).unwrap_or(0)
}

/// A program that has been started. Dropping it kills its whole group.
///
/// It must stay on the thread that started it: the kernel ends the child when that thread ends.
#[derive(Debug)]
#[must_use = "dropping it kills the program"]
pub struct Running {
    pid: u32,
    pidfd: OwnedFd,
    guard: Guard,
    stdin: Input,
    loan: Option<Loan>,
    job_control: Option<Arc<AtomicBool>>,
    suspended: Duration,
    reaped: bool,
    started: Instant,
    started_unix_ns: u64,
    max_rss_floor_bytes: u64,
    time_limit: Option<Duration>,
    grace: Duration,
    forward: Vec<(i32, Arc<AtomicBool>)>,
    affinity: Affinity,
    memory: MemoryPlacement,
    watch: Option<Watch>,
    meter: Option<Meter>,
    gauge: Option<Gauge>,
    load_limits: LoadLimits,
    violations: Violations,
    not_send: PhantomData<*const ()>,
}

impl Running {
    /// Takes charge of a child that has just been started.
    pub(crate) fn adopt(
        run: &Run,
        pid: u32,
        report: ChildReport,
        before: Before,
        guard: Guard,
    ) -> Result<Self, SpawnError> {
        let raw = i32::try_from(pid).expect("the kernel's process ids are positive i32");
        let pidfd = bind::pidfd_open(raw).map_err(|source| {
            kill_and_reap(raw);
            SpawnError::Wait { pid, source }
        })?;
        let expected = Expected {
            cpus: run.cpus.clone(),
            nodes: run.memory.as_ref().filter(|_| report.memory_errno.is_none()).map(|m| m.nodes.clone()),
        };
        let watch = (run.observe != Observe::Ends)
            .then(|| Watch::start(pid, expected, run.observe, before.throttling));
        let mut running = Self {
            pid,
            pidfd,
            guard,
            stdin: run.stdin.clone(),
            loan: None,
            job_control: run.job_control.clone(),
            suspended: Duration::ZERO,
            reaped: false,
            started: before.started,
            started_unix_ns: before.started_unix_ns,
            max_rss_floor_bytes: before.max_rss_floor_bytes,
            time_limit: run.time_limit,
            grace: run.grace,
            forward: run.forward.clone(),
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
            watch,
            meter: before.meter,
            gauge: before.gauge,
            load_limits: run.load_limits,
            violations: Violations::default(),
            not_send: PhantomData,
        };
        running.lend_terminal();
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
        let elsewhere = Elsewhere::than(cpus.as_ref());
        if let Some(watch) = &mut self.watch {
            watch.seen.waiter_on_set = elsewhere.is_on_set();
        }
        let ended_early = self.wait_for_end(cancel).map_err(|source| self.wait_error(source))?;
        let mut killed_after_grace = false;
        if ended_early.is_some() {
            killed_after_grace = self.stop_group().map_err(|source| self.wait_error(source))?;
        }
        let wall_ns = nanoseconds(self.started.elapsed());
        let watched = self.look_at_end();
        self.finish(ended_early, killed_after_grace, wall_ns, watched)
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
        self.violations.record(kind, nanoseconds(self.started.elapsed()), self.started_unix_ns);
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
            self.forward_signals();
            self.follow_suspension();
            let used = self.started.elapsed().saturating_sub(self.suspended);
            let left = self.time_limit.map(|limit| limit.saturating_sub(used));
            let next_look = self.watch.as_ref().map(Watch::due_in);
            let sleep = [left, next_look].into_iter().flatten().fold(TICK, Duration::min);
            if self.ended_within(sleep)? {
                return Ok(None);
            }
            if cancel.is_cancelled() {
                return Ok(Some(Outcome::Cancelled));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Some(Outcome::TimedOut));
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let mut found = Vec::new();
        let slow = self.watch.as_mut().is_some_and(|watch| watch.look(&mut found));
        if let Some(gauge) = self.gauge.as_mut().filter(|_| slow) {
            gauge.look();
        }
        found.into_iter().for_each(|kind| self.violation(kind));
    }

    fn forward_signals(&self) {
        for (signal, flag) in &self.forward {
            if flag.swap(false, Ordering::SeqCst) {
                // Only a group that has just ended, or a number that is no signal, refuses one.
                let _ = self.signal(*signal);
            }
        }
    }

    fn lend_terminal(&mut self) {
        self.loan = (self.stdin == Input::Inherit).then(|| Loan::to(self.group())).flatten();
        if self.loan.is_some() && self.job_control.is_none() {
            // It may have tried to read already and been stopped for it. If it has ended there is nobody to wake.
            let _ = killpg(self.group(), Signal::SIGCONT);
        }
    }

    /// Ctrl-Z: the program's group and this process stop together, as one job, and go on together.
    ///
    /// It reaches this process when it is in the foreground, and the program when the terminal is lent to it; a program
    /// in the background is stopped for reading from the terminal.
    fn follow_suspension(&mut self) {
        let Some(flag) = &self.job_control else { return };
        let asked = flag.swap(false, Ordering::SeqCst);
        let on_terminal = self.stdin == Input::Inherit && io::stdin().is_terminal();
        let stopped = if on_terminal { suspend::stopped_by(self.group()) } else { None };
        match stopped {
            // It read before the terminal was lent to it.
            Some(Signal::SIGTTIN | Signal::SIGTTOU) if self.loan.is_some() && !asked => {
                let _ = killpg(self.group(), Signal::SIGCONT);
            }
            None if !asked => {}
            _ => self.suspend_together(on_terminal),
        }
    }

    fn suspend_together(&mut self, on_terminal: bool) {
        let since = Instant::now();
        // The group may have ended meanwhile; then there is nobody to stop or to wake.
        let _ = killpg(self.group(), Signal::SIGSTOP);
        // The terminal comes back to us first.
        drop(self.loan.take());
        suspend::this_job(on_terminal);
        self.lend_terminal();
        let _ = killpg(self.group(), Signal::SIGCONT);
        let suspended = since.elapsed();
        self.suspended += suspended;
        self.violation(ViolationKind::Suspended { for_ns: nanoseconds(suspended) });
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
        let since = Instant::now();
        loop {
            let left = self.grace.saturating_sub(since.elapsed());
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
    fn look_at_end(&mut self) -> Option<Watched> {
        let status = procfs::read_status(self.pid).ok();
        self.affinity.at_end = status.as_deref().and_then(procfs::allowed_cpus);
        self.check_affinity(self.affinity.at_end.clone());
        let mut found = Vec::new();
        let mut watched = self.watch.take().map(|watch| watch.finish(&mut found));
        if let Some((watched, gauge)) = watched.as_mut().zip(self.gauge.take()) {
            watched.telemetry = gauge.finish();
        }
        let pids = others_in_group(self.pid);
        if !pids.is_empty() {
            found.push(ViolationKind::LeftBehind { pids });
        }
        found.into_iter().for_each(|kind| self.violation(kind));
        watched
    }

    fn finish(
        mut self,
        ended_early: Option<Outcome>,
        killed_after_grace: bool,
        wall_ns: u64,
        mut watched: Option<Watched>,
    ) -> Result<Finished, SpawnError> {
        // Before reaping: as long as the child is there, nobody else can have its group's number.
        let _ = killpg(self.group(), Signal::SIGKILL);
        self.guard.dismiss();
        let reaped = bind::wait4(self.raw_pid()).map_err(|source| self.wait_error(source))?;
        self.reaped = true;
        let usage = &reaped.usage;
        let (user_ns, system_ns) = (timeval_ns(usage.ru_utime), timeval_ns(usage.ru_stime));
        if let Some(watched) = &mut watched {
            watched.load = match self.meter.take() {
                Some(meter) => self.competing_load(&meter, user_ns + system_ns),
                None => Observed::Unavailable("the run has no set of its own".to_owned()),
            };
        }
        Ok(Finished {
            pid: self.pid,
            outcome: ended_early.unwrap_or_else(|| outcome_of(reaped.status)),
            killed_after_grace,
            started_unix_ns: self.started_unix_ns,
            wall_ns,
            suspended_ns: nanoseconds(self.suspended),
            user_ns,
            system_ns,
            max_rss_bytes: count(usage.ru_maxrss).saturating_mul(1024),
            max_rss_floor_bytes: self.max_rss_floor_bytes,
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            affinity: std::mem::take(&mut self.affinity),
            memory: std::mem::take(&mut self.memory),
            watched,
            violations: self.violations.take(),
        })
    }

    fn competing_load(&mut self, meter: &Meter, own_ns: u64) -> Observed<crate::load::SetLoad> {
        let load = meter.finish(own_ns);
        let above = load.value().map(|load| load.above(&self.load_limits)).unwrap_or_default();
        for (what, ppm, limit_ppm) in above {
            self.violation(ViolationKind::CompetingLoad { what, ppm, limit_ppm });
        }
        load
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

fn timeval_ns(time: libc::timeval) -> u64 {
    count(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(count(time.tv_usec).saturating_mul(1_000))
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
