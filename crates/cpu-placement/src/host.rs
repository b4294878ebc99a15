//! What a reader of a measurement must know of the machine it was taken on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::procfs::text;

/// The machine, as far as it can move a measurement. A field is absent when the machine does not say.
///
/// Everything but [`host_name`](Self::host_name) and [`boot_id`](Self::boot_id) may be published.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostRecord {
    /// The name of the machine. Reports must leave it out.
    pub host_name: Option<String>,
    /// The identity of this boot. Reports must leave it out.
    pub boot_id: Option<String>,
    /// `sysname release version machine` of the kernel.
    pub kernel: String,
    /// The model of the processor.
    pub cpu_model: Option<String>,
    /// The revision of its microcode.
    pub microcode: Option<String>,
    /// Online CPUs, as a list.
    pub cpus_online: Option<String>,
    /// Whether SMT is on: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    pub smt: Option<String>,
    /// The frequency governors in use, by the number of CPUs.
    pub governors: BTreeMap<String, u32>,
    /// The driver that sets the frequency.
    pub frequency_driver: Option<String>,
    /// Whether the processor may exceed its base frequency.
    pub turbo: Option<bool>,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// `kernel.randomize_va_space`.
    pub address_randomization: Option<String>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: Option<String>,
    /// All memory.
    pub memory_bytes: Option<u64>,
    /// Swap space.
    pub swap_bytes: Option<u64>,
    /// The hypervisor, or `none`.
    pub virtualisation: Option<String>,
    /// The clock the kernel uses.
    pub clock_source: Option<String>,
    /// Boot parameters that move measurements, such as `isolcpus` and `mitigations`.
    pub boot_parameters: Vec<String>,
}

impl HostRecord {
    /// Reads the live machine. What it does not expose is absent.
    pub fn read() -> Self {
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| crate::procfs::status_bytes(&meminfo, name);
        Self {
            host_name: text("/proc/sys/kernel/hostname"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: kernel(),
            cpu_model: cpuinfo_field(&cpuinfo, &["model name", "cpu model", "Processor"]),
            microcode: cpuinfo_field(&cpuinfo, &["microcode"]),
            cpus_online: text("/sys/devices/system/cpu/online"),
            smt: text("/sys/devices/system/cpu/smt/control"),
            governors: governors(),
            frequency_driver: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
            turbo: turbo(),
            transparent_huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").and_then(selected),
            address_randomization: text("/proc/sys/kernel/randomize_va_space"),
            numa_balancing: text("/proc/sys/kernel/numa_balancing"),
            memory_bytes: kib("MemTotal"),
            swap_bytes: kib("SwapTotal"),
            virtualisation: virtualisation(&cpuinfo),
            clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            boot_parameters: boot_parameters(&text("/proc/cmdline").unwrap_or_default()),
        }
    }
}

fn kernel() -> String {
    let part = |name: &str| text(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {} {}", part("ostype"), part("osrelease"), part("version"), std::env::consts::ARCH)
}

fn cpuinfo_field(cpuinfo: &str, names: &[&str]) -> Option<String> {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    names
        .iter()
        .find_map(|name| fields().find(|(key, _)| key.trim() == *name))
        .map(|(_, v)| v.trim().to_owned())
}

fn governors() -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    let policies = std::fs::read_dir("/sys/devices/system/cpu/cpufreq").into_iter().flatten().flatten();
    for policy in policies {
        let cpus = text(policy.path().join("affected_cpus")).map_or(1, |cpus| cpus.split(' ').count());
        if let Some(governor) = text(policy.path().join("scaling_governor")) {
            *counts.entry(governor).or_insert(0) += u32::try_from(cpus).unwrap_or(u32::MAX);
        }
    }
    counts
}

fn turbo() -> Option<bool> {
    let intel = text("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| off == "0");
    intel.or_else(|| text("/sys/devices/system/cpu/cpufreq/boost").map(|on| on == "1"))
}

/// The bracketed word of a setting such as `always [madvise] never`.
fn selected(setting: String) -> Option<String> {
    let (_, rest) = setting.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn virtualisation(cpuinfo: &str) -> Option<String> {
    let flags = cpuinfo_field(cpuinfo, &["flags"])?;
    if !flags.split(' ').any(|flag| flag == "hypervisor") {
        return Some("none".to_owned());
    }
    let named = text("/sys/hypervisor/type").or_else(|| text("/sys/class/dmi/id/sys_vendor"));
    Some(named.unwrap_or_else(|| "unnamed hypervisor".to_owned()))
}

fn boot_parameters(cmdline: &str) -> Vec<String> {
    const MOVING: [&str; 16] = [
        "isolcpus",
        "nohz_full",
        "rcu_nocbs",
        "irqaffinity",
        "mitigations",
        "nosmt",
        "maxcpus",
        "nr_cpus",
        "idle",
        "intel_idle.max_cstate",
        "processor.max_cstate",
        "intel_pstate",
        "amd_pstate",
        "numa_balancing",
        "transparent_hugepage",
        "preempt",
    ];
    let moving = |word: &&str| MOVING.contains(&word.split('=').next().unwrap_or(word));
    cmdline.split_ascii_whitespace().filter(moving).map(str::to_owned).collect()
}
