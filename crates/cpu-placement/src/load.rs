//! What else ran on a set of CPUs while a process did.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::observed::Observed;
use crate::procfs;
use crate::set::CpuSet;

/// How the time of one CPU was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CpuTimes {
    /// In programs, nice ones included.
    pub user_ns: u64,
    /// In the kernel for programs.
    pub system_ns: u64,
    /// Serving interrupts.
    pub interrupt_ns: u64,
    /// In deferred interrupt work (networking, timers).
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
}

impl CpuTimes {
    /// All time that was not idle and not stolen.
    pub fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.interrupt_ns + self.softirq_ns
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            interrupt_ns: self.interrupt_ns.saturating_sub(before.interrupt_ns),
            softirq_ns: self.softirq_ns.saturating_sub(before.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            interrupt_ns: self.interrupt_ns + other.interrupt_ns,
            softirq_ns: self.softirq_ns + other.softirq_ns,
            steal_ns: self.steal_ns + other.steal_ns,
        }
    }
}

/// How often one interrupt came to the set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct InterruptCount {
    /// Its number or abbreviation and what it is for.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// What ran on a set of CPUs while a process did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SetLoad {
    /// The time looked at.
    pub interval_ns: u64,
    /// The kernel counts the time of a CPU in steps of this, so a difference up to a few of them is noise.
    pub step_ns: u64,
    /// How many CPUs the set has.
    pub cpus: u32,
    /// The times of all CPUs of the set together.
    pub times: CpuTimes,
    /// Processor time of the process itself and the descendants it waited for.
    pub own_ns: u64,
    /// Busy time of the set that was not the process's own.
    pub others_ns: u64,
    /// Busy time of hardware threads that should have been idle.
    pub siblings_ns: u64,
    /// Interrupts on the set, the most frequent first. At most [`INTERRUPTS_KEPT`] are named.
    pub interrupts: Observed<Vec<InterruptCount>>,
    /// All interrupts on the set.
    pub interrupts_total: Observed<u64>,
    /// Time during which some task of the whole machine waited for a CPU (pressure stall information).
    pub pressure_ns: Observed<u64>,
}

/// How many interrupts are named.
pub const INTERRUPTS_KEPT: usize = 8;

/// A kind of competing load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoadKind {
    /// Programs and interrupts on the set itself.
    Others,
    /// Anything on a hardware thread that should have been idle.
    Siblings,
    /// The hypervisor.
    Steal,
}

/// Limits above which competing load is a violation, in millionths of the set's time. None unless stated: what is
/// too much is for the one who measures to say beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadLimits {
    /// For programs and interrupts on the set.
    pub others_ppm: Option<u64>,
    /// For hardware threads that should be idle.
    pub siblings_ppm: Option<u64>,
    /// For the hypervisor.
    pub steal_ppm: Option<u64>,
}

impl SetLoad {
    /// A share of the set's time, in millionths.
    pub fn ppm(&self, kind: LoadKind) -> u64 {
        let part = match kind {
            LoadKind::Others => self.others_ns,
            LoadKind::Siblings => self.siblings_ns,
            LoadKind::Steal => self.times.steal_ns,
        };
        let whole = u128::from(self.interval_ns) * u128::from(self.cpus);
        u64::try_from(u128::from(part) * 1_000_000 / whole.max(1)).unwrap_or(u64::MAX)
    }

    /// The kinds of load above their limits: kind, share, limit.
    pub fn above(&self, limits: &LoadLimits) -> Vec<(LoadKind, u64, u64)> {
        let each = [
            (LoadKind::Others, limits.others_ppm),
            (LoadKind::Siblings, limits.siblings_ppm),
            (LoadKind::Steal, limits.steal_ppm),
        ];
        let above = |(kind, limit): (LoadKind, Option<u64>)| {
            let (ppm, limit) = (self.ppm(kind), limit?);
            (ppm > limit).then_some((kind, ppm, limit))
        };
        each.into_iter().filter_map(above).collect()
    }
}

/// The counters before a process is started.
#[derive(Debug)]
pub(crate) struct Meter {
    root: PathBuf,
    cpus: CpuSet,
    idle: CpuSet,
    at: Instant,
    counters: Counters,
}

#[derive(Debug)]
struct Counters {
    times: BTreeMap<u32, CpuTimes>,
    interrupts: Option<BTreeMap<String, u64>>,
    pressure_ns: Option<u64>,
}

impl Meter {
    pub(crate) fn start(root: &Path, cpus: &CpuSet, idle: &CpuSet) -> Self {
        let counters = Counters::read(root, cpus);
        Self { root: root.to_owned(), cpus: cpus.clone(), idle: idle.clone(), at: Instant::now(), counters }
    }

    /// The load since the start, beside a process that used `own_ns` of processor time.
    pub(crate) fn finish(&self, own_ns: u64) -> Observed<SetLoad> {
        let interval_ns = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = Counters::read(&self.root, &self.cpus);
        if after.times.is_empty() || self.counters.times.is_empty() {
            return Observed::Unavailable("/proc/stat cannot be read".to_owned());
        }
        let times = self.sum(&after, &self.cpus);
        let interrupts = self.counters.interrupts.as_ref().zip(after.interrupts.as_ref());
        let interrupts = interrupts.map(|(before, after)| differences(before, after));
        let total = interrupts.as_ref().map(|counts| counts.iter().map(|each| each.count).sum());
        let pressure = self.counters.pressure_ns.zip(after.pressure_ns);
        Observed::Value(SetLoad {
            interval_ns,
            step_ns: step_ns(),
            cpus: u32::try_from(self.cpus.len()).unwrap_or(u32::MAX),
            own_ns,
            others_ns: times.busy_ns().saturating_sub(own_ns),
            siblings_ns: self.sum(&after, &self.idle).busy_ns(),
            times,
            interrupts_total: Observed::from_option(total, "/proc/interrupts cannot be read"),
            interrupts: Observed::from_option(interrupts.map(most), "/proc/interrupts cannot be read"),
            pressure_ns: Observed::from_option(
                pressure.map(|(before, after)| after.saturating_sub(before)),
                "the kernel has no /proc/pressure/cpu",
            ),
        })
    }

    fn sum(&self, after: &Counters, cpus: &CpuSet) -> CpuTimes {
        let of = |cpu| Some(after.times.get(&cpu)?.since(self.counters.times.get(&cpu)?));
        cpus.iter().filter_map(of).fold(CpuTimes::default(), CpuTimes::add)
    }
}

impl Counters {
    fn read(root: &Path, cpus: &CpuSet) -> Self {
        let stat = procfs::text(root.join("proc/stat")).unwrap_or_default();
        let interrupts = procfs::text(root.join("proc/interrupts"));
        let pressure = procfs::text(root.join("proc/pressure/cpu"));
        Self {
            times: stat.lines().filter_map(|line| parse_times(line, step_ns())).collect(),
            interrupts: interrupts.map(|text| parse_interrupts(&text, cpus)),
            pressure_ns: pressure.and_then(|text| parse_pressure(&text)),
        }
    }
}

fn step_ns() -> u64 {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0);
    1_000_000_000 / per_second.unwrap_or(100)
}

/// Parses `cpu3 user nice system idle iowait irq softirq steal ...`. The line of all CPUs has no number.
fn parse_times(line: &str, step_ns: u64) -> Option<(u32, CpuTimes)> {
    let mut fields = line.split_ascii_whitespace();
    let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    let steps: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let ns = |index: usize| steps.get(index).copied().unwrap_or(0).saturating_mul(step_ns);
    let times = CpuTimes {
        user_ns: ns(0) + ns(1),
        system_ns: ns(2),
        interrupt_ns: ns(5),
        softirq_ns: ns(6),
        steal_ns: ns(7),
    };
    Some((cpu, times))
}

/// The counts of each interrupt on these CPUs. The header names the columns, which offline CPUs leave out.
fn parse_interrupts(text: &str, cpus: &CpuSet) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let columns: Vec<Option<u32>> =
        header.split_ascii_whitespace().map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    lines.filter_map(|line| parse_interrupt(line, &columns, cpus)).collect()
}

fn parse_interrupt(line: &str, columns: &[Option<u32>], cpus: &CpuSet) -> Option<(String, u64)> {
    let (number, rest) = line.split_once(':')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let counts =
        columns.iter().zip(&fields).map_while(|(cpu, field)| Some((*cpu, field.parse::<u64>().ok()?)));
    let counts: Vec<(Option<u32>, u64)> = counts.collect();
    let on_set = counts.iter().filter(|(cpu, _)| cpu.is_some_and(|cpu| cpus.contains(cpu)));
    let count = on_set.map(|(_, count)| count).sum();
    let what = fields[counts.len()..].join(" ");
    Some((format!("{} {what}", number.trim()).trim_end().to_owned(), count))
}

fn differences(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<InterruptCount> {
    let new = |(name, count): (&String, &u64)| {
        let count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        (count > 0).then(|| InterruptCount { name: name.clone(), count })
    };
    let mut counts: Vec<_> = after.iter().filter_map(new).collect();
    counts.sort_by_key(|each| std::cmp::Reverse(each.count));
    counts
}

fn most(mut counts: Vec<InterruptCount>) -> Vec<InterruptCount> {
    counts.truncate(INTERRUPTS_KEPT);
    counts
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, in microseconds.
fn parse_pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total: u64 = line.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()?;
    total.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, stat: &str, interrupts: &str, pressure: &str) {
        std::fs::create_dir_all(root.join("proc/pressure")).unwrap();
        std::fs::write(root.join("proc/stat"), stat).unwrap();
        std::fs::write(root.join("proc/interrupts"), interrupts).unwrap();
        std::fs::write(root.join("proc/pressure/cpu"), pressure).unwrap();
    }

    /// A busy sibling, a foreign program, steal and an interrupt bound to the measured CPU are all told apart.
    #[test]
    fn everything_that_competes() {
        let root = tempfile::tempdir().unwrap();
        let header = "           CPU0       CPU2       CPU3\n";
        write(
            root.path(),
            "cpu  9 9 9 9\ncpu0 5 0 0 9 0 0 0 0\ncpu2 100 0 50 0 0 1 2 3 0 0\ncpu3 0 0 0 7 0 0 0 0\n",
            &format!(
                "{header} 24:  1  10  0  PCI-MSIX  eth0-rx\nLOC: 5 5 5 Local timer interrupts\nERR: 0\n"
            ),
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=10\nfull avg10=0 total=9\n",
        );
        let meter = Meter::start(root.path(), &"2".parse().unwrap(), &"3".parse().unwrap());
        write(
            root.path(),
            "cpu  9 9 9 9\ncpu0 9 0 0 9 0 0 0 0\ncpu2 190 10 60 0 0 2 4 10 0 0\ncpu3 30 0 0 7 0 0 0 0\n",
            &format!(
                "{header} 24:  1  90  0  PCI-MSIX  eth0-rx\nLOC: 9 7 9 Local timer interrupts\nERR: 0\n"
            ),
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=25\nfull avg10=0 total=9\n",
        );
        let step = step_ns();
        let Observed::Value(mut load) = meter.finish(90 * step) else { panic!("readable") };
        load.interval_ns = 1000 * step;
        assert_eq!(load.times.busy_ns(), (90 + 10 + 10 + 1 + 2) * step);
        assert_eq!((load.others_ns, load.siblings_ns), (23 * step, 30 * step));
        assert_eq!(load.times.steal_ns, 7 * step);
        assert_eq!(load.pressure_ns, Observed::Value(15_000));
        assert_eq!(load.interrupts_total, Observed::Value(82));
        let named = load.interrupts.value().unwrap();
        assert_eq!((named[0].name.as_str(), named[0].count), ("24 PCI-MSIX eth0-rx", 80));
        assert_eq!(named[1].name, "LOC Local timer interrupts");
        let limits = LoadLimits { others_ppm: Some(23_000), siblings_ppm: Some(10_000), steal_ppm: None };
        assert_eq!(load.above(&limits), [(LoadKind::Siblings, 30_000, 10_000)]);
    }

    #[test]
    fn a_machine_without_counters() {
        let root = tempfile::tempdir().unwrap();
        let meter = Meter::start(root.path(), &"0".parse().unwrap(), &CpuSet::new());
        assert_eq!(meter.finish(0), Observed::Unavailable("/proc/stat cannot be read".into()));
    }
}
