//! What a reader of a measurement must know of the machine it was taken on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::procfs;
use crate::topology::{Topology, cgroup};

/// How many of everything the machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Counts {
    /// Processor packages.
    pub packages: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Physical cores.
    pub cores: usize,
    /// Online hardware threads.
    pub cpus: usize,
    /// Hardware threads this process may use.
    pub allowed_cpus: usize,
}

/// The machine, as far as it can move a measurement. A field is absent when the machine does not say.
///
/// Everything but [`host_name`](Self::host_name) and [`boot_id`](Self::boot_id) may be published;
/// [`redacted`](Self::redacted) leaves those out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct HostRecord {
    /// The name of the machine. Reports must leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// The identity of this boot. Reports must leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Name, release and version of the kernel, and the architecture.
    pub kernel: String,
    /// The model of the processor.
    pub cpu_model: Option<String>,
    /// The revision of its microcode.
    pub microcode: Option<String>,
    /// How many of everything there are.
    pub counts: Counts,
    /// Online CPUs, as a list.
    pub cpus_online: Option<String>,
    /// Whether SMT is on: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    pub smt: Option<String>,
    /// The frequency governors in use, and on how many CPUs.
    pub governors: BTreeMap<String, u32>,
    /// The driver that sets the frequency.
    pub frequency_driver: Option<String>,
    /// The lowest and the highest frequency any CPU may be set to.
    pub frequency_limits_khz: Option<(u64, u64)>,
    /// What the firmware is asked to prefer, and on how many CPUs (`performance`, `balance_power`, ...).
    pub energy_preferences: BTreeMap<String, u32>,
    /// Whether the processor may exceed its base frequency.
    pub turbo: Option<bool>,
    /// The driver and the governor that choose sleep states.
    pub idle: Option<String>,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// When the kernel stops a program to make a huge page.
    pub transparent_huge_pages_defrag: Option<String>,
    /// `kernel.randomize_va_space`: 0 is off, 2 is on.
    pub address_randomization: Option<String>,
    /// `kernel.numa_balancing`: 0 is off.
    pub numa_balancing: Option<String>,
    /// `kernel.sched_autogroup_enabled`.
    pub scheduler_autogroup: Option<String>,
    /// Whether a scheduler loaded from a program is in charge (`sched_ext`).
    pub scheduler_ext: Option<String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<String>,
    /// All memory.
    pub memory_bytes: Option<u64>,
    /// Swap space.
    pub swap_bytes: Option<u64>,
    /// The hypervisor, or `none`.
    pub virtualisation: Option<String>,
    /// The kind of container this runs in, or `none`.
    pub container: Option<String>,
    /// Processor time the cgroup may use, in thousandths of a CPU; absent without a limit.
    pub cgroup_quota_millicpus: Option<u64>,
    /// Memory the cgroup may use; absent without a limit.
    pub cgroup_memory_bytes: Option<u64>,
    /// The clock the kernel uses.
    pub clock_source: Option<String>,
    /// What the kernel does against each flaw of the processor.
    pub mitigations: BTreeMap<String, String>,
    /// Boot parameters that move measurements, such as `isolcpus` and `mitigations`.
    pub boot_parameters: Vec<String>,
}

impl HostRecord {
    /// Reads the live machine. What it does not expose is absent.
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// Reads the machine from copies of `sys` and `proc` below `root`.
    pub fn read_below(root: &Path) -> Self {
        let files = Files { root: root.to_owned() };
        let cpuinfo = files.text("proc/cpuinfo").unwrap_or_default();
        let meminfo = files.text("proc/meminfo").unwrap_or_default();
        Self {
            host_name: files.kernel("hostname"),
            boot_id: files.kernel("random/boot_id"),
            kernel: files.kernel_name(),
            cpu_model: files.cpu_model(&cpuinfo),
            microcode: cpuinfo_field(&cpuinfo, &["microcode"]),
            counts: counts(root),
            cpus_online: files.cpu("online"),
            smt: files.cpu("smt/control"),
            governors: files.policies("scaling_governor"),
            frequency_driver: files.cpu("cpu0/cpufreq/scaling_driver"),
            frequency_limits_khz: files.frequency_limits(),
            energy_preferences: files.policies("energy_performance_preference"),
            turbo: files.turbo(),
            idle: files.idle(),
            transparent_huge_pages: files.choice("sys/kernel/mm/transparent_hugepage/enabled"),
            transparent_huge_pages_defrag: files.choice("sys/kernel/mm/transparent_hugepage/defrag"),
            address_randomization: files.kernel("randomize_va_space"),
            numa_balancing: files.kernel("numa_balancing"),
            scheduler_autogroup: files.kernel("sched_autogroup_enabled"),
            scheduler_ext: files.text("sys/kernel/sched_ext/state"),
            perf_event_paranoid: files.kernel("perf_event_paranoid"),
            memory_bytes: procfs::status_bytes(&meminfo, "MemTotal"),
            swap_bytes: procfs::status_bytes(&meminfo, "SwapTotal"),
            virtualisation: files.virtualisation(&cpuinfo),
            container: Some(files.container()),
            cgroup_quota_millicpus: cgroup::quota_under(root),
            cgroup_memory_bytes: cgroup::memory_limit_under(root),
            clock_source: files.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            mitigations: files.mitigations(),
            boot_parameters: boot_parameters(&files.text("proc/cmdline").unwrap_or_default()),
        }
    }

    /// The record without what names the machine.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.host_name = None;
        self.boot_id = None;
        self
    }
}

fn counts(root: &Path) -> Counts {
    let Ok(topology) = Topology::read_below(root) else { return Counts::default() };
    Counts {
        packages: topology.packages.len(),
        numa_nodes: topology.nodes.len(),
        cores: topology.cores.len(),
        cpus: topology.online.len(),
        allowed_cpus: topology.allowed.len(),
    }
}

/// The files of one machine.
struct Files {
    root: PathBuf,
}

impl Files {
    fn text(&self, path: &str) -> Option<String> {
        procfs::text(self.root.join(path)).filter(|text| !text.is_empty())
    }

    fn kernel(&self, name: &str) -> Option<String> {
        self.text(&format!("proc/sys/kernel/{name}"))
    }

    fn cpu(&self, name: &str) -> Option<String> {
        self.text(&format!("sys/devices/system/cpu/{name}"))
    }

    fn kernel_name(&self) -> String {
        let parts = ["ostype", "osrelease", "version"].map(|name| self.kernel(name).unwrap_or_default());
        format!("{} {}", parts.join(" ").trim(), std::env::consts::ARCH)
    }

    /// Arm names its processors by number only.
    fn cpu_model(&self, cpuinfo: &str) -> Option<String> {
        let named = cpuinfo_field(cpuinfo, &["model name", "cpu model", "Processor", "cpu"]);
        named.or_else(|| {
            let implementer = cpuinfo_field(cpuinfo, &["CPU implementer"])?;
            let part = cpuinfo_field(cpuinfo, &["CPU part"])?;
            Some(format!("Arm implementer {implementer} part {part}"))
        })
    }

    /// One directory for each group of CPUs that change frequency together.
    fn policy_dirs(&self) -> Vec<PathBuf> {
        let dir = self.root.join("sys/devices/system/cpu/cpufreq");
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_policy = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("policy"))
        };
        entries.filter(is_policy).collect()
    }

    fn policies(&self, name: &str) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for policy in self.policy_dirs() {
            let cpus = procfs::text(policy.join("affected_cpus")).map_or(1, |cpus| cpus.split(' ').count());
            if let Some(value) = procfs::text(policy.join(name)) {
                *counts.entry(value).or_insert(0) += u32::try_from(cpus).unwrap_or(u32::MAX);
            }
        }
        counts
    }

    fn frequency_limits(&self) -> Option<(u64, u64)> {
        let policies = self.policy_dirs();
        let of = |name: &'static str| {
            policies.iter().filter_map(move |policy| procfs::text(policy.join(name))?.parse::<u64>().ok())
        };
        of("scaling_min_freq").min().zip(of("scaling_max_freq").max())
    }

    fn turbo(&self) -> Option<bool> {
        let intel = self.cpu("intel_pstate/no_turbo").map(|off| off == "0");
        intel.or_else(|| self.cpu("cpufreq/boost").map(|on| on == "1"))
    }

    fn idle(&self) -> Option<String> {
        let governor =
            || self.cpu("cpuidle/current_governor").or_else(|| self.cpu("cpuidle/current_governor_ro"));
        let driver = self.cpu("cpuidle/current_driver")?;
        Some(governor().map_or_else(|| driver.clone(), |governor| format!("{driver} {governor}")))
    }

    /// The bracketed word of a setting such as `always [madvise] never`.
    fn choice(&self, path: &str) -> Option<String> {
        let setting = self.text(path)?;
        let (_, rest) = setting.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// x86 has a flag; elsewhere only the firmware's names tell.
    fn virtualisation(&self, cpuinfo: &str) -> Option<String> {
        const HYPERVISORS: [&str; 8] =
            ["QEMU", "KVM", "Amazon EC2", "Google", "VMware", "Xen", "Microsoft Corporation", "OpenStack"];
        let vendor = self.text("sys/hypervisor/type").or_else(|| self.text("sys/class/dmi/id/sys_vendor"));
        let by_name = vendor.clone().filter(|name| HYPERVISORS.iter().any(|known| name.contains(known)));
        let Some(flags) = cpuinfo_field(cpuinfo, &["flags"]) else { return by_name };
        if flags.split(' ').any(|flag| flag == "hypervisor") {
            return Some(vendor.unwrap_or_else(|| "unnamed hypervisor".to_owned()));
        }
        // A bare-metal instance of a cloud has the vendor's name and no hypervisor.
        Some("none".to_owned())
    }

    fn container(&self) -> String {
        let membership = self.text("proc/1/cgroup").unwrap_or_default();
        let by_path =
            ["kubepods", "docker", "lxc", "podman"].into_iter().find(|name| membership.contains(name));
        let by_file = [("run/.containerenv", "podman"), (".dockerenv", "docker")];
        let by_file =
            by_file.into_iter().find(|(path, _)| self.root.join(path).exists()).map(|(_, name)| name);
        by_file.or(by_path).unwrap_or("none").to_owned()
    }

    fn mitigations(&self) -> BTreeMap<String, String> {
        let dir = self.root.join("sys/devices/system/cpu/vulnerabilities");
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let read = |entry: std::fs::DirEntry| {
            Some((entry.file_name().into_string().ok()?, procfs::text(entry.path())?))
        };
        entries.filter_map(read).filter(|(_, state)| state != "Not affected").collect()
    }
}

fn cpuinfo_field(cpuinfo: &str, names: &[&str]) -> Option<String> {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let find = |name: &&str| fields().find(|(key, _)| key.trim() == *name);
    names.iter().find_map(find).map(|(_, value)| value.trim().to_owned())
}

fn boot_parameters(cmdline: &str) -> Vec<String> {
    const MOVING: [&str; 28] = [
        "amd_pstate",
        "clocksource",
        "hugepages",
        "hugepagesz",
        "idle",
        "init_on_alloc",
        "init_on_free",
        "intel_idle.max_cstate",
        "intel_pstate",
        "irqaffinity",
        "isolcpus",
        "maxcpus",
        "mem",
        "mitigations",
        "nohz",
        "nohz_full",
        "nosmt",
        "nosoftlockup",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "page_poison",
        "preempt",
        "processor.max_cstate",
        "psi",
        "rcu_nocbs",
        "skew_tick",
        "transparent_hugepage",
    ];
    let moving = |word: &&str| MOVING.contains(&word.split('=').next().unwrap_or(word));
    cmdline.split_ascii_whitespace().filter(moving).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> HostRecord {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        HostRecord::read_below(root.path())
    }

    #[test]
    fn a_bare_metal_server() {
        let cpu = "sys/devices/system/cpu";
        let host = machine(&[
            (
                "proc/cpuinfo",
                "processor : 0\nmodel name\t: Big Server CPU\nmicrocode\t: 0xd0\nflags\t: fpu sse\n",
            ),
            ("proc/meminfo", "MemTotal:       1024 kB\nSwapTotal:      0 kB\n"),
            ("proc/sys/kernel/hostname", "secret\n"),
            ("proc/sys/kernel/ostype", "Linux\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/cmdline", "root=/dev/sda1 isolcpus=2-3 quiet mitigations=off\n"),
            (&format!("{cpu}/cpufreq/policy0/scaling_governor"), "performance\n"),
            (&format!("{cpu}/cpufreq/policy0/affected_cpus"), "0 1\n"),
            (&format!("{cpu}/cpufreq/policy0/scaling_min_freq"), "800000\n"),
            (&format!("{cpu}/cpufreq/policy0/scaling_max_freq"), "3500000\n"),
            (&format!("{cpu}/cpufreq/policy2/scaling_governor"), "powersave\n"),
            (&format!("{cpu}/intel_pstate/no_turbo"), "1\n"),
            (&format!("{cpu}/vulnerabilities/meltdown"), "Mitigation: PTI\n"),
            (&format!("{cpu}/vulnerabilities/l1tf"), "Not affected\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        ]);
        assert_eq!(host.cpu_model.as_deref(), Some("Big Server CPU"));
        assert_eq!(host.microcode.as_deref(), Some("0xd0"));
        assert_eq!((host.memory_bytes, host.swap_bytes), (Some(1 << 20), Some(0)));
        assert_eq!(host.governors, BTreeMap::from([("performance".into(), 2), ("powersave".into(), 1)]));
        assert_eq!(host.frequency_limits_khz, Some((800_000, 3_500_000)));
        assert_eq!(host.turbo, Some(false));
        assert_eq!(host.transparent_huge_pages.as_deref(), Some("always"));
        assert_eq!(host.virtualisation.as_deref(), Some("none"));
        assert_eq!(host.mitigations, BTreeMap::from([("meltdown".into(), "Mitigation: PTI".into())]));
        assert_eq!(host.boot_parameters, ["isolcpus=2-3", "mitigations=off"]);
        let text = serde_json::to_string(&host.clone().redacted()).unwrap();
        assert!(!text.contains("secret") && !text.contains("host_name"), "{text}");
        assert_eq!(serde_json::from_str::<HostRecord>(&text).unwrap(), host.redacted());
    }

    #[test]
    fn machines_that_say_little() {
        let arm =
            machine(&[("proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"), (".dockerenv", "")]);
        assert_eq!(arm.cpu_model.as_deref(), Some("Arm implementer 0x41 part 0xd0c"));
        assert_eq!((arm.virtualisation, arm.container.as_deref()), (None, Some("docker")));
        let guest = machine(&[
            ("proc/cpuinfo", "flags : fpu hypervisor\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ]);
        assert_eq!(guest.virtualisation.as_deref(), Some("QEMU"));
        assert_eq!(machine(&[]).turbo, None);
    }
}
