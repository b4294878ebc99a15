//! The known ways in which a pinned process is still not alone, or not where it seems.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::procfs;
use crate::set::{CpuSet, NodeSet};
use crate::topology::Topology;

/// Something about a set of CPUs that makes numbers measured on it less trustworthy than they look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "hazard", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Hazard {
    /// Some of the CPUs do not exist.
    Absent {
        /// Which.
        cpus: CpuSet,
    },
    /// Some of the CPUs are switched off.
    Offline {
        /// Which.
        cpus: CpuSet,
    },
    /// Some of the CPUs are outside the cgroup's set, or outside the affinity this process was started with: an
    /// outer cpuset or `taskset` makes the inner pin fail.
    NotAllowed {
        /// Which.
        cpus: CpuSet,
    },
    /// The set holds CPUs of different kinds, for example performance and efficiency cores.
    MixedKinds {
        /// The kinds and their CPUs.
        kinds: Vec<String>,
    },
    /// The set spans several NUMA nodes.
    SeveralNodes {
        /// Which.
        nodes: NodeSet,
    },
    /// Hardware threads of the set's cores are outside the set: whatever runs there slows the set down.
    OpenSiblings {
        /// Which.
        cpus: CpuSet,
    },
    /// The set holds the first core, which the kernel, interrupts and everybody's defaults favour.
    FirstCore {
        /// The core's CPUs.
        cpus: CpuSet,
    },
    /// The set holds several isolated CPUs. The scheduler never moves a thread between them, so all threads of a
    /// process stay on one.
    IsolatedTogether {
        /// Which.
        cpus: CpuSet,
    },
    /// The cgroup gives less processor time than the set can use.
    Quota {
        /// What the cgroup gives, in thousandths of a CPU.
        quota_millicpus: u64,
    },
    /// Interrupts are bound to CPUs of the set.
    Interrupts {
        /// Their numbers and names.
        interrupts: Vec<String>,
    },
    /// The set holds cores that the firmware lets run faster than others of their kind. The scheduler gives them to
    /// whoever is busy first, and times on them do not compare with times on other cores.
    Favoured {
        /// Which.
        cpus: CpuSet,
    },
    /// The CPUs of the set are of one kind and do not reach the same speed.
    UnequalSpeed {
        /// The slowest of them.
        slowest: CpuSet,
    },
    /// The kernel moves memory between nodes by itself; a process without a memory policy is slowed down by it in
    /// phases that look like a regression.
    NumaBalancing,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { cpus } => write!(f, "CPUs {cpus} do not exist"),
            Self::Offline { cpus } => write!(f, "CPUs {cpus} are offline"),
            Self::NotAllowed { cpus } => write!(f, "CPUs {cpus} are outside what this process may use"),
            Self::MixedKinds { kinds } => write!(f, "the set mixes kinds of CPU: {}", kinds.join(", ")),
            Self::SeveralNodes { nodes } => write!(f, "the set spans the NUMA nodes {nodes}"),
            Self::OpenSiblings { cpus } => {
                write!(f, "CPUs {cpus} share cores with the set and are not in it")
            }
            Self::FirstCore { cpus } => {
                write!(f, "the set holds the first core ({cpus}), the kernel's favourite")
            }
            Self::IsolatedTogether { cpus } => {
                write!(f, "CPUs {cpus} are isolated: the scheduler will not spread threads over them")
            }
            Self::Quota { quota_millicpus } => {
                write!(
                    f,
                    "the cgroup gives {quota_millicpus} thousandths of a CPU, less than the set can use"
                )
            }
            Self::Interrupts { interrupts } => {
                write!(f, "interrupts are bound to the set: {}", interrupts.join(", "))
            }
            Self::Favoured { cpus } => {
                write!(f, "CPUs {cpus} are the fastest of their kind, which the scheduler gives away first")
            }
            Self::UnequalSpeed { slowest } => {
                write!(f, "CPUs {slowest} are slower than the rest of the set, although of one kind")
            }
            Self::NumaBalancing => write!(f, "kernel.numa_balancing is on and may move memory during a run"),
        }
    }
}

impl Topology {
    /// What is known to be wrong with running on `cpus`, from the topology alone.
    pub fn hazards(&self, cpus: &CpuSet) -> Vec<Hazard> {
        let cores = self.whole_cores(cpus);
        let some = |cpus: CpuSet, hazard: fn(CpuSet) -> Hazard| (!cpus.is_empty()).then(|| hazard(cpus));
        let existing = self.online.union(&self.offline);
        let isolated = cpus.intersection(&self.isolated);
        let first = self.cores.first().map(|core| core.cpus.clone()).unwrap_or_default();
        let usable = self.online.intersection(cpus);
        [
            some(cpus.difference(&existing), |cpus| Hazard::Absent { cpus }),
            some(cpus.intersection(&self.offline), |cpus| Hazard::Offline { cpus }),
            some(usable.difference(&self.allowed), |cpus| Hazard::NotAllowed { cpus }),
            self.mixed_kinds(cpus),
            Some(self.nodes_of(cpus))
                .filter(|nodes| nodes.len() > 1)
                .map(|nodes| Hazard::SeveralNodes { nodes }),
            some(cores.difference(cpus), |cpus| Hazard::OpenSiblings { cpus }),
            some(if first.is_disjoint(cpus) { CpuSet::new() } else { first }, |cpus| Hazard::FirstCore {
                cpus,
            }),
            (isolated.len() > 1).then(|| Hazard::IsolatedTogether { cpus: isolated.clone() }),
            self.short_quota(&usable),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What is known to be wrong with running on `cpus` now, from the live machine too.
    pub fn live_hazards(&self, cpus: &CpuSet) -> Vec<Hazard> {
        self.hazards_below(Path::new("/"), cpus)
    }

    pub(crate) fn hazards_below(&self, root: &Path, cpus: &CpuSet) -> Vec<Hazard> {
        let mut hazards = self.hazards(cpus);
        let interrupts = bound_interrupts(root, cpus);
        if !interrupts.is_empty() {
            hazards.push(Hazard::Interrupts { interrupts });
        }
        hazards.extend(self.unequal_speeds(root, cpus));
        let balancing = procfs::text(root.join("proc/sys/kernel/numa_balancing"));
        if self.nodes.len() > 1 && balancing.is_some_and(|value| value != "0") {
            hazards.push(Hazard::NumaBalancing);
        }
        hazards
    }

    /// Favoured cores, where firmware or driver rank CPUs of one kind differently.
    fn unequal_speeds(&self, root: &Path, cpus: &CpuSet) -> Vec<Hazard> {
        let touched = self.kinds.iter().filter(|kind| !kind.cpus.is_disjoint(cpus));
        let mut hazards = Vec::new();
        for kind in touched {
            let ranks: BTreeMap<u32, u64> =
                kind.cpus.iter().filter_map(|cpu| Some((cpu, speed_rank(root, cpu)?))).collect();
            let of_set = || ranks.iter().filter(|(cpu, _)| cpus.contains(**cpu));
            let with = |rank: Option<u64>| of_set().filter(|r| Some(*r.1) == rank).map(|r| *r.0).collect();
            let (lowest, highest) = (ranks.values().min().copied(), ranks.values().max().copied());
            let favoured: CpuSet = with(highest.filter(|_| lowest < highest));
            if !favoured.is_empty() {
                hazards.push(Hazard::Favoured { cpus: favoured });
            }
            let slowest = of_set().map(|r| *r.1).min();
            if slowest < of_set().map(|r| *r.1).max() {
                hazards.push(Hazard::UnequalSpeed { slowest: with(slowest) });
            }
        }
        hazards
    }

    fn mixed_kinds(&self, cpus: &CpuSet) -> Option<Hazard> {
        let touched = self.kinds.iter().filter(|kind| !kind.cpus.is_disjoint(cpus));
        let kinds: Vec<String> = touched
            .map(|kind| {
                let name = kind.name.clone().unwrap_or_else(|| format!("kind {}", kind.rank));
                format!("{name} ({})", kind.cpus.intersection(cpus))
            })
            .collect();
        (kinds.len() > 1).then_some(Hazard::MixedKinds { kinds })
    }

    fn short_quota(&self, cpus: &CpuSet) -> Option<Hazard> {
        let quota_millicpus = self.quota_millicpus?;
        (quota_millicpus < cpus.len() as u64 * 1000).then_some(Hazard::Quota { quota_millicpus })
    }
}

/// How fast a CPU may become compared with others of its kind: the ranking of the AMD driver, the firmware's highest
/// performance (by which the kernel ranks Intel's favoured cores), or the highest frequency.
fn speed_rank(root: &Path, cpu: u32) -> Option<u64> {
    const FILES: [&str; 4] = [
        "cpufreq/amd_pstate_prefcore_ranking",
        "cpufreq/amd_pstate_highest_perf",
        "acpi_cppc/highest_perf",
        "cpufreq/cpuinfo_max_freq",
    ];
    let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
    FILES.iter().find_map(|name| procfs::text(dir.join(name))?.parse().ok())
}

/// Device interrupts that the kernel delivers to no CPU outside the set. Those that may go elsewhere too are seen
/// by their counts while a process runs.
fn bound_interrupts(root: &Path, cpus: &CpuSet) -> Vec<String> {
    let table = procfs::text(root.join("proc/interrupts")).unwrap_or_default();
    let bound = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number: u32 = number.trim().parse().ok()?;
        let dir = root.join(format!("proc/irq/{number}"));
        let file = |name: &str| procfs::text(dir.join(name)).filter(|text| !text.is_empty());
        let targets: CpuSet =
            file("effective_affinity_list").or_else(|| file("smp_affinity_list"))?.parse().ok()?;
        let used = rest.split_ascii_whitespace().map_while(|f| f.parse::<u64>().ok()).any(|count| count > 0);
        let name = rest.split_ascii_whitespace().last().unwrap_or_default();
        (used && !targets.is_empty() && targets.is_subset(cpus)).then(|| format!("{number} {name}"))
    };
    table.lines().filter_map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Topology {
        let path = format!("{}/../../testdata/topologies/{name}.xml", env!("CARGO_MANIFEST_DIR"));
        Topology::from_hwloc_xml(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn check(name: &str, cpus: &str, expected: &[&str]) {
        let found: Vec<_> =
            machine(name).hazards(&cpus.parse().unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{name} {cpus}");
    }

    #[test]
    fn known_ways_pinning_lies() {
        check("smt-2-socket", "31,63", &[]);
        check("smt-2-socket", "31", &["CPUs 63 share cores with the set and are not in it"]);
        check("smt-2-socket", "15-16,47-48", &["the set spans the NUMA nodes 0-1"]);
        check("arm-no-smt", "0", &["the set holds the first core (0), the kernel's favourite"]);
        check("arm-no-smt", "63-64", &["CPUs 64 do not exist"]);
        check("hybrid-laptop", "10-12", &["the set mixes kinds of CPU: IntelAtom (12), IntelCore (10-11)"]);
        check(
            "container-cpuset-quota",
            "5-7",
            &[
                "CPUs 7 are outside what this process may use",
                "CPUs 13-15 share cores with the set and are not in it",
                "the cgroup gives 1500 thousandths of a CPU, less than the set can use",
            ],
        );
        check(
            "isolcpus",
            "2-3,10-11",
            &["CPUs 2-3,10-11 are isolated: the scheduler will not spread threads over them"],
        );
        let mut offline = machine("isolcpus");
        offline.online = "0-14".parse().unwrap();
        offline.offline = "15".parse().unwrap();
        assert!(
            offline
                .hazards(&"15".parse().unwrap())
                .contains(&Hazard::Offline { cpus: "15".parse().unwrap() })
        );
    }

    /// Cores of one kind, two of which the firmware boosts higher.
    #[test]
    fn favoured_cores() {
        let root = tempfile::tempdir().unwrap();
        let rank = |cpu: u32, file: &str, value: u64| {
            let path = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/{file}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        };
        (0..64).for_each(|cpu| {
            rank(cpu, "acpi_cppc/highest_perf", if cpu == 40 || cpu == 41 { 231 } else { 226 })
        });
        let check = |cpus: &str, expected: &[&str]| {
            let found = machine("arm-no-smt").hazards_below(root.path(), &cpus.parse().unwrap());
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{cpus}");
        };
        check("50-51", &[]);
        let favoured = "CPUs 40-41 are the fastest of their kind, which the scheduler gives away first";
        check("40-41", &[favoured]);
        let slower = "CPUs 42 are slower than the rest of the set, although of one kind";
        check("40-42", &[favoured, slower]);
        (0..64).for_each(|cpu| rank(cpu, "cpufreq/amd_pstate_prefcore_ranking", 166));
        check("40-42", &[]);
    }

    #[test]
    fn interrupts_bound_to_the_set_and_numa_balancing() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/interrupts",
            "      CPU0 CPU1\n 24: 1 9 PCI eth0-rx\n 25: 0 0 PCI unused\n 26: 3 3 PCI disk\nLOC: 9 9 Local timer\n",
        );
        write("proc/irq/24/effective_affinity_list", "31\n");
        write("proc/irq/25/effective_affinity_list", "31\n");
        write("proc/irq/26/smp_affinity_list", "0-63\n");
        write("proc/sys/kernel/numa_balancing", "1\n");
        let hazards = machine("smt-2-socket").hazards_below(root.path(), &"31,63".parse().unwrap());
        let expected = [Hazard::Interrupts { interrupts: vec!["24 eth0-rx".into()] }, Hazard::NumaBalancing];
        assert_eq!(hazards, expected);
    }
}
