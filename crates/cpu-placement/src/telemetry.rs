//! What the processor says of its own condition, where it does.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::observed::Observed;
use crate::procfs;
use crate::set::CpuSet;

/// The smallest and the largest value seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Range {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Range {
    fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        values.map(|value| Self { min: value, max: value }).reduce(Self::cover)
    }

    fn cover(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The condition of some CPUs while a process ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Telemetry {
    /// Frequencies of the set's CPUs, seen when looked at.
    pub frequency_khz: Observed<Range>,
    /// Temperatures of the processor, in thousandths of a degree Celsius, seen when looked at.
    pub temperature_millicelsius: Observed<Range>,
    /// Times a core or package of the set slowed down because it was too hot.
    pub heat_throttles: Observed<u64>,
}

/// Collects [`Telemetry`].
#[derive(Debug)]
pub(crate) struct Gauge {
    root: PathBuf,
    cpus: CpuSet,
    frequency: Option<Range>,
    temperature: Option<Range>,
    throttles_before: Option<u64>,
}

impl Gauge {
    pub(crate) fn start(root: &Path, cpus: &CpuSet) -> Self {
        let mut gauge = Self {
            root: root.to_owned(),
            cpus: cpus.clone(),
            frequency: None,
            temperature: None,
            throttles_before: None,
        };
        gauge.throttles_before = gauge.heat_throttles();
        gauge
    }

    /// Asking for a frequency may interrupt the CPU on older kernels, so this is done seldom.
    pub(crate) fn look(&mut self) {
        let wider = |seen: Option<Range>, now: Option<Range>| match (seen, now) {
            (Some(seen), Some(now)) => Some(seen.cover(now)),
            (seen, now) => seen.or(now),
        };
        self.frequency = wider(self.frequency, Range::of(self.frequencies()));
        self.temperature = wider(self.temperature, Range::of(self.temperatures().into_iter()));
    }

    pub(crate) fn finish(mut self) -> Telemetry {
        self.look();
        let throttles = self.throttles_before.zip(self.heat_throttles());
        Telemetry {
            frequency_khz: Observed::from_option(self.frequency, "no cpufreq for these CPUs"),
            temperature_millicelsius: Observed::from_option(self.temperature, "no processor sensor"),
            heat_throttles: Observed::from_option(
                throttles.map(|(before, after)| after.saturating_sub(before)),
                "no thermal_throttle counters",
            ),
        }
    }

    fn cpu_file(&self, cpu: u32, name: &str) -> Option<u64> {
        procfs::text(self.root.join(format!("sys/devices/system/cpu/cpu{cpu}/{name}")))?.parse().ok()
    }

    fn frequencies(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus.iter().filter_map(|cpu| self.cpu_file(cpu, "cpufreq/scaling_cur_freq"))
    }

    /// Counters of cores are added up; one package has one counter, which each of its CPUs shows.
    fn heat_throttles(&self) -> Option<u64> {
        let of = |name: &'static str| self.cpus.iter().filter_map(move |cpu| self.cpu_file(cpu, name));
        let cores = of("thermal_throttle/core_throttle_count").reduce(|a, b| a + b);
        let package = of("thermal_throttle/package_throttle_count").max();
        cores.zip(package.or(Some(0))).map(|(cores, package)| cores + package)
    }

    /// The sensors of a processor by the names their drivers give them.
    fn temperatures(&self) -> Vec<u64> {
        const DRIVERS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal"];
        let monitors = std::fs::read_dir(self.root.join("sys/class/hwmon")).into_iter().flatten().flatten();
        let of_processor = |dir: &PathBuf| {
            procfs::text(dir.join("name")).is_some_and(|name| DRIVERS.contains(&name.as_str()))
        };
        monitors.map(|entry| entry.path()).filter(of_processor).flat_map(|dir| inputs(&dir)).collect()
    }
}

fn inputs(dir: &Path) -> Vec<u64> {
    let is_input = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("temp") && name.ends_with("_input")
    };
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(is_input).filter_map(|path| procfs::text(path)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_that_says_everything() {
        let root = tempfile::tempdir().unwrap();
        let cpu = "sys/devices/system/cpu";
        let set = |frequency: &str, throttles: &str| {
            write(root.path(), &format!("{cpu}/cpu3/cpufreq/scaling_cur_freq"), frequency);
            write(root.path(), &format!("{cpu}/cpu3/thermal_throttle/core_throttle_count"), throttles);
            write(root.path(), &format!("{cpu}/cpu3/thermal_throttle/package_throttle_count"), "5");
        };
        set("3000000\n", "1\n");
        write(root.path(), "sys/class/hwmon/hwmon0/name", "coretemp");
        write(root.path(), "sys/class/hwmon/hwmon0/temp1_input", "45000");
        write(root.path(), "sys/class/hwmon/hwmon1/name", "nvme");
        write(root.path(), "sys/class/hwmon/hwmon1/temp1_input", "90000");
        let mut gauge = Gauge::start(root.path(), &"3".parse().unwrap());
        gauge.look();
        set("2000000\n", "4\n");
        let found = gauge.finish();
        assert_eq!(found.frequency_khz, Observed::Value(Range { min: 2_000_000, max: 3_000_000 }));
        assert_eq!(found.temperature_millicelsius, Observed::Value(Range { min: 45_000, max: 45_000 }));
        assert_eq!(found.heat_throttles, Observed::Value(3));
    }

    #[test]
    fn a_machine_that_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        let found = Gauge::start(root.path(), &"0".parse().unwrap()).finish();
        assert_eq!(found.frequency_khz.value(), None);
        assert_eq!(found.temperature_millicelsius, Observed::Unavailable("no processor sensor".into()));
    }
}
