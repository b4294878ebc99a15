//! Looking at a process while it runs, from the thread that waits for it anyway.
//!
//! There is no thread of our own for this: the waiting one sleeps until the child ends or the next look is due, and
//! stays off the child's CPUs where it can. What looking costs is measured and bounds how often it is done.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::bind;
use crate::load::SetLoad;
use crate::observed::Observed;
use crate::procfs;
use crate::residency::Residency;
use crate::set::{CpuSet, NodeSet};
use crate::telemetry::Telemetry;
use crate::topology::cgroup::Throttling;
use crate::violation::ViolationKind;

/// How closely a run is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Observe {
    /// Only its affinity, at both ends.
    Ends,
    /// Also every [`SAMPLE_EVERY`], but never for more than 1/[`DUTY_DIVISOR`] of the time.
    #[default]
    Everything,
    /// Also every millisecond, whatever it costs: for a preflight, never for a measurement.
    Closely,
}

/// How often a run is looked at.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Looking may take one part in this many of a CPU's time. When it takes more, it is done less often.
pub const DUTY_DIVISOR: u32 = 4000;

/// The first looks come sooner than [`SAMPLE_EVERY`], so that a short run is looked at too.
const FIRST_SAMPLES_MS: [u64; 4] = [2, 10, 30, 80];

/// Between looks at memory and sensors the time doubles, from this on up to [`SLOWEST`].
const FIRST_SLOW_LOOK: Duration = Duration::from_millis(80);
const SLOWEST: Duration = Duration::from_secs(20);

/// Pages asked for at one look at the memory.
const PAGES_PER_LOOK: usize = 256;

/// Moves between CPUs, as the kernel counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Migrations {
    /// How many.
    pub count: u64,
    /// Whether all threads were counted, or only the first one.
    pub all_threads: bool,
}

/// What was seen of a process while it ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Watched {
    /// How often it was looked at.
    pub samples: u64,
    /// The processor time that took, on CPUs outside the set unless [`waiter_on_set`](Self::waiter_on_set).
    pub sampling_ns: u64,
    /// Whether the waiting thread had no CPU outside the set to wait on.
    pub waiter_on_set: bool,
    /// The most threads seen at once, in all processes of the group.
    pub threads_max: u32,
    /// The most threads seen running or ready to run at once.
    pub runnable_max: u32,
    /// At how many looks more than one thread was running or ready to run.
    pub samples_over_one: u64,
    /// The most processes of the group seen at once.
    pub processes_max: u32,
    /// Processor time of the busiest thread; looked at only when watched [closely](Observe::Closely).
    pub busiest_thread_ns: Option<u64>,
    /// Processor time of all threads as last seen; looked at only when watched [closely](Observe::Closely).
    pub seen_threads_ns: Option<u64>,
    /// The CPUs its threads were seen on.
    pub cpus_seen: CpuSet,
    /// The largest resident size seen; the true peak may lie between two looks.
    pub seen_rss_bytes: Option<u64>,
    /// Time its first thread was ready to run and had no CPU.
    pub run_delay_ns: Observed<u64>,
    /// Moves between CPUs.
    pub migrations: Observed<Migrations>,
    /// How often its cgroup ran out of processor time.
    pub throttling: Observed<Throttling>,
    /// The nodes its memory was on at the last look.
    pub residency: Observed<Residency>,
    /// Pages of its first thread that NUMA balancing moved.
    pub balanced_pages: Observed<u64>,
    /// What else ran on its set.
    pub load: Observed<SetLoad>,
    /// The condition of the processor.
    pub telemetry: Telemetry,
}

/// What a process is held against.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) nodes: Option<NodeSet>,
}

/// Looks at one process and its group.
#[derive(Debug)]
pub(crate) struct Watch {
    pid: u32,
    expected: Expected,
    closely: bool,
    next: Instant,
    next_slow: Instant,
    slow_step: Duration,
    next_search: Instant,
    others: Vec<u32>,
    migrations: Option<OwnedFd>,
    sched_before: Option<String>,
    throttling_before: Option<Throttling>,
    thread_times: BTreeMap<u32, u64>,
    pub(crate) seen: Watched,
}

impl Watch {
    pub(crate) fn start(
        pid: u32,
        expected: Expected,
        observe: Observe,
        throttling: Option<Throttling>,
    ) -> Self {
        let now = Instant::now();
        Self {
            pid,
            expected,
            closely: observe == Observe::Closely,
            next: now + Duration::from_millis(FIRST_SAMPLES_MS[0]),
            next_slow: now + FIRST_SLOW_LOOK,
            slow_step: FIRST_SLOW_LOOK,
            next_search: now + FIRST_SLOW_LOOK,
            others: Vec::new(),
            migrations: None,
            sched_before: procfs::text(format!("/proc/{pid}/sched")),
            throttling_before: throttling,
            thread_times: BTreeMap::new(),
            seen: Watched::default(),
        }
    }

    /// How long until the next look is due.
    pub(crate) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time to. Whether there is time for the slow look too is said in the answer.
    pub(crate) fn look(&mut self, found: &mut Vec<ViolationKind>) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        let before = thread_cpu_ns();
        if self.seen.samples == 0 {
            self.count_migrations();
        }
        self.search_group(now);
        self.look_at_threads(found);
        let slow = now >= self.next_slow;
        if slow {
            self.look_at_memory(found);
            self.slow_step = (self.slow_step * 2).min(SLOWEST);
            self.next_slow = now + self.slow_step;
        }
        let cost = Duration::from_nanos(thread_cpu_ns().saturating_sub(before));
        self.seen.samples += 1;
        self.seen.sampling_ns += u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self.next = now + self.pause(cost);
        slow
    }

    /// The first counter of a machine makes the kernel wait for all its CPUs once, so this is not part of the start.
    /// The first thread's own counter covers the time before.
    fn count_migrations(&mut self) {
        self.migrations = i32::try_from(self.pid).ok().and_then(|pid| bind::count_migrations(pid).ok());
    }

    fn pause(&self, cost: Duration) -> Duration {
        if self.closely {
            return Duration::from_millis(1);
        }
        let first = usize::try_from(self.seen.samples).ok().and_then(|sample| FIRST_SAMPLES_MS.get(sample));
        first.map_or_else(|| SAMPLE_EVERY.max(cost * DUTY_DIVISOR), |ms| Duration::from_millis(*ms))
    }

    /// Finds the other processes of the group. On a machine with thousands of processes this is the dearest part,
    /// so it has its own pause.
    fn search_group(&mut self, now: Instant) {
        if now < self.next_search {
            return;
        }
        let before = thread_cpu_ns();
        self.others = others_in_group(self.pid);
        let cost = Duration::from_nanos(thread_cpu_ns().saturating_sub(before));
        self.next_search = now + (cost * DUTY_DIVISOR).max(Duration::from_millis(500));
    }

    fn look_at_threads(&mut self, found: &mut Vec<ViolationKind>) {
        let (mut threads, mut runnable) = (0, 0);
        let others = self.others.clone();
        for pid in std::iter::once(self.pid).chain(others) {
            for tid in procfs::threads(pid).unwrap_or_default() {
                let Some(stat) = procfs::read_thread_stat(pid, tid).filter(|stat| stat.state != 'Z') else {
                    continue;
                };
                threads += 1;
                runnable += u32::from(stat.state == 'R');
                self.look_at_thread(pid, tid, stat, found);
            }
        }
        let processes = u32::try_from(self.others.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.seen.processes_max = self.seen.processes_max.max(processes);
        self.seen.threads_max = self.seen.threads_max.max(threads);
        self.seen.runnable_max = self.seen.runnable_max.max(runnable);
        self.seen.samples_over_one += u64::from(runnable > 1);
    }

    fn look_at_thread(&mut self, pid: u32, tid: u32, stat: procfs::Stat, found: &mut Vec<ViolationKind>) {
        self.seen.cpus_seen.insert(stat.cpu);
        if matches!(stat.state, 'T' | 't') {
            found.push(ViolationKind::Stopped { tid });
        }
        if self.closely {
            let times = procfs::text(format!("/proc/{pid}/task/{tid}/schedstat"));
            if let Some((on_cpu_ns, _)) = times.as_deref().and_then(procfs::parse_schedstat) {
                self.thread_times.insert(tid, on_cpu_ns);
            }
        }
        let affinity = i32::try_from(tid).ok().and_then(|tid| bind::affinity_words(tid).ok());
        check_thread(tid, stat.cpu, affinity.map(|words| CpuSet::from_words(&words)), &self.expected, found);
    }

    fn look_at_memory(&mut self, found: &mut Vec<ViolationKind>) {
        let status = procfs::read_status(self.pid).unwrap_or_default();
        self.seen.seen_rss_bytes = self.seen.seen_rss_bytes.max(procfs::status_bytes(&status, "VmHWM"));
        match Residency::of_some_pages(self.pid, PAGES_PER_LOOK) {
            Ok(residency) => {
                check_memory(&residency, &self.expected, found);
                self.seen.residency = Observed::Value(residency);
            }
            // A process that has just ended leaves what was seen before.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => self.seen.residency = Observed::Unavailable(error.to_string()),
        }
    }

    /// The last look, when the process has ended and is not reaped.
    pub(crate) fn finish(mut self, found: &mut Vec<ViolationKind>) -> Watched {
        let stat = procfs::read_stat(self.pid);
        if let Some(stat) = stat {
            self.seen.cpus_seen.insert(stat.cpu);
            check_thread(self.pid, stat.cpu, None, &self.expected, found);
        }
        self.finish_counters(found);
        self.finish_throttling(found);
        self.seen.busiest_thread_ns = self.thread_times.values().max().copied();
        self.seen.seen_threads_ns = self.closely.then(|| self.thread_times.values().sum());
        self.seen
    }

    fn finish_counters(&mut self, found: &mut Vec<ViolationKind>) {
        let sched = procfs::text(format!("/proc/{}/sched", self.pid));
        let counted = |name: &str| counted(self.sched_before.as_deref()?, sched.as_deref()?, name);
        let by_perf = self.migrations.take().and_then(|fd| read_counter(fd).ok());
        let of_first = counted("se.nr_migrations");
        let count = by_perf.max(of_first);
        let migrations = count.map(|count| Migrations { count, all_threads: by_perf.is_some() });
        let balanced = counted("numa_pages_migrated");
        let delay = procfs::text(format!("/proc/{}/schedstat", self.pid));
        let times = delay.as_deref().and_then(procfs::parse_schedstat);
        if let Some((on_cpu_ns, _)) = times.filter(|_| self.closely) {
            self.thread_times.insert(self.pid, on_cpu_ns);
        }
        let delay = times.map(|(_, waited)| waited);
        self.seen.run_delay_ns = Observed::from_option(delay, "the kernel keeps no schedstat");
        self.seen.migrations =
            Observed::from_option(migrations, "neither perf_event_open nor /proc/PID/sched");
        self.seen.balanced_pages = Observed::from_option(balanced, "no /proc/PID/sched with NUMA counters");
        check_moves(migrations, balanced, &self.expected, found);
    }

    fn finish_throttling(&mut self, found: &mut Vec<ViolationKind>) {
        let after = crate::topology::cgroup::throttling(Path::new("/"));
        let during = self.throttling_before.zip(after).map(|(before, after)| after.since(before));
        if let Some(during) = during.filter(|during| during.periods > 0) {
            let Throttling { periods, held_back_ns } = during;
            found.push(ViolationKind::Throttled { periods, held_back_ns });
        }
        self.seen.throttling = Observed::from_option(during, "the cgroup has no cpu.stat");
    }
}

/// What is wrong with where a thread may run and where it is.
pub(crate) fn check_thread(
    tid: u32,
    cpu: u32,
    affinity: Option<CpuSet>,
    expected: &Expected,
    found: &mut Vec<ViolationKind>,
) {
    let Some(requested) = &expected.cpus else { return };
    if let Some(affinity) = affinity.filter(|affinity| affinity != requested) {
        found.push(ViolationKind::AffinityDiffers { tid, requested: requested.clone(), found: affinity });
    }
    if !requested.contains(cpu) {
        found.push(ViolationKind::RanOutside { tid, cpu });
    }
}

/// How much a counter of `/proc/PID/sched` grew.
fn counted(before: &str, after: &str, name: &str) -> Option<u64> {
    let before = procfs::sched_counter(before, name)?;
    Some(procfs::sched_counter(after, name)?.saturating_sub(before))
}

/// What is wrong with how often a process and its pages were moved.
fn check_moves(
    migrations: Option<Migrations>,
    balanced_pages: Option<u64>,
    expected: &Expected,
    found: &mut Vec<ViolationKind>,
) {
    let one_cpu = expected.cpus.as_ref().is_some_and(|cpus| cpus.len() == 1);
    if let Some(count) = migrations.map(|migrations| migrations.count).filter(|count| one_cpu && *count > 0) {
        found.push(ViolationKind::Migrated { count });
    }
    if let Some(pages) = balanced_pages.filter(|pages| *pages > 0) {
        found.push(ViolationKind::MemoryMoved { pages });
    }
}

/// What is wrong with where the memory of a process is.
pub(crate) fn check_memory(residency: &Residency, expected: &Expected, found: &mut Vec<ViolationKind>) {
    let Some(requested) = &expected.nodes else { return };
    let pages = residency.outside(requested);
    if pages > 0 {
        found.push(ViolationKind::MemoryElsewhere {
            requested: requested.clone(),
            pages,
            of: residency.total(),
        });
    }
}

/// Live members of a group other than its leader.
///
/// Members are descendants of the leader, so their numbers were given out after its own. Only those are looked at:
/// a busy machine has thousands of older processes.
pub(crate) fn others_in_group(leader: u32) -> Vec<u32> {
    let in_group = |stat: procfs::Stat| u32::try_from(stat.group) == Ok(leader) && stat.state != 'Z';
    let member = |pid: &u32| procfs::read_stat(*pid).is_some_and(in_group);
    // Threads answer to their numbers too, although `/proc` does not list them.
    younger_than(leader).into_iter().filter(member).filter(|pid| procfs::is_process(*pid)).collect()
}

/// Processes that may be descendants of this one.
fn younger_than(leader: u32) -> Vec<u32> {
    /// Listing `/proc` costs about as much as asking for this many processes by number.
    const FEW: u32 = 32;
    let all = || procfs::all_pids().unwrap_or_default().into_iter();
    match procfs::last_pid() {
        Some(last) if (leader..=leader.saturating_add(FEW)).contains(&last) => (leader + 1..=last).collect(),
        Some(last) if last > leader => all().filter(|pid| *pid > leader && *pid <= last).collect(),
        // The numbers have started again from the bottom.
        Some(last) => all().filter(|pid| *pid > leader || *pid <= last).collect(),
        None => all().filter(|pid| *pid != leader).collect(),
    }
}

fn read_counter(fd: OwnedFd) -> io::Result<u64> {
    let mut value = [0u8; 8];
    std::fs::File::from(fd).read_exact(&mut value)?;
    Ok(u64::from_ne_bytes(value))
}

/// Processor time of the calling thread. The clock exists on every Linux.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::residency::ResidencyMethod;

    fn expected(cpus: &str, nodes: &str) -> Expected {
        Expected { cpus: Some(cpus.parse().unwrap()), nodes: Some(nodes.parse().unwrap()) }
    }

    #[test]
    fn threads_are_held_against_the_set() {
        let check = |cpu: u32, affinity: &str| {
            let mut found = Vec::new();
            check_thread(7, cpu, Some(affinity.parse().unwrap()), &expected("2-3", "0"), &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check(2, "2-3"), Vec::<String>::new());
        assert_eq!(check(4, "2-3"), ["thread 7 was on CPU 4, outside its set"]);
        assert_eq!(check(2, "0-3"), ["thread 7 may run on CPUs 0-3, not 2-3"]);
        assert_eq!(check(2, "2"), ["thread 7 may run on CPUs 2, not 2-3"]);
    }

    /// Automatic NUMA balancing moves pages in the middle of a run, and a process moved between two looks is back.
    #[test]
    fn moves_between_looks_are_seen() {
        let before = "x (1, #threads: 1)\nse.nr_migrations : 4\nnuma_pages_migrated : 10\n";
        let check = |migrations: &str, pages: &str, cpus: &str| {
            let after = format!("x (1, #threads: 1)\nse.nr_migrations : {migrations}\n{pages}");
            let count = counted(before, &after, "se.nr_migrations");
            let migrations = count.map(|count| Migrations { count, all_threads: false });
            let mut found = Vec::new();
            let balanced = counted(before, &after, "numa_pages_migrated");
            check_moves(migrations, balanced, &expected(cpus, "0"), &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("4", "numa_pages_migrated : 10", "2"), Vec::<String>::new());
        assert_eq!(check("4", "numa_pages_migrated : 522", "2"), ["NUMA balancing moved 512 pages"]);
        assert_eq!(check("6", "", "2"), ["moved 2 times although its set is one CPU"]);
        assert_eq!(check("6", "", "2-3"), Vec::<String>::new());
    }

    /// CPUs are pinned, and the memory is on the other node all the same.
    #[test]
    fn remote_memory_is_seen() {
        let residency =
            Residency { method: ResidencyMethod::MovePages, pages: BTreeMap::from([(0, 6), (1, 250)]) };
        let check = |nodes: &str| {
            let mut found = Vec::new();
            check_memory(&residency, &expected("0", nodes), &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("0"), ["250 of 256 pages were not on nodes 0"]);
        assert_eq!(check("0-1"), Vec::<String>::new());
    }
}
