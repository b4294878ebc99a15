//! The topology as the kernel shows it under `/sys`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::procfs;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Cache, Core, CpuKind, Node, Source, Topology, cgroup};

/// Why no topology could be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Not even the set of online CPUs is readable.
    #[error("read the online CPUs from {}", path.display())]
    Online {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the machine below `root`, which is `/` except in tests.
pub(super) fn read(root: &Path) -> Result<Topology, TopologyError> {
    let cpu_dir = root.join("sys/devices/system/cpu");
    let path = cpu_dir.join("online");
    let online: CpuSet = set_file(&path).ok_or(TopologyError::Online { path })?;
    let caches = caches(&cpu_dir, &online);
    let nodes = nodes(root, &online);
    let kinds = kinds(root, &online);
    let cores = cores(&cpu_dir, &online, &nodes, &caches, &kinds);
    let isolated = set_file(&cpu_dir.join("isolated")).unwrap_or_default();
    let allowed = allowed(root, &online, &isolated);
    let present: CpuSet = set_file(&cpu_dir.join("present")).unwrap_or_else(|| online.clone());
    Ok(Topology {
        source: Source::Sysfs,
        notes: Vec::new(),
        offline: present.difference(&online),
        nohz_full: set_file(&cpu_dir.join("nohz_full")).unwrap_or_default(),
        allowed_nodes: cgroup::nodes_under(root)
            .unwrap_or_else(|| nodes.iter().map(|node| node.index).collect()),
        quota_millicpus: cgroup::quota_under(root),
        cores,
        nodes,
        caches,
        kinds,
        online,
        allowed,
        isolated,
    })
}

fn set_file(path: &Path) -> Option<CpuSet> {
    procfs::text(path)?.parse().ok()
}

fn number_file(path: &Path) -> Option<u32> {
    procfs::text(path)?.parse().ok()
}

/// CPUs the scheduler keeps away from (`isolcpus`) are not in any inherited affinity, and may be asked for all the
/// same, unless somebody narrowed the affinity of this process on purpose.
fn allowed(root: &Path, online: &CpuSet, isolated: &CpuSet) -> CpuSet {
    let status = procfs::text(root.join("proc/self/status")).unwrap_or_default();
    let affinity = procfs::allowed_cpus(&status).unwrap_or_else(|| online.clone());
    let cgroup = cgroup::cpus_under(root).unwrap_or_else(|| online.clone());
    let usable = online.intersection(&cgroup);
    let narrowed = affinity.intersection(&usable) != usable.difference(isolated);
    if narrowed { usable.intersection(&affinity) } else { usable }
}

fn cores(dir: &Path, online: &CpuSet, nodes: &[Node], caches: &[Cache], kinds: &[CpuKind]) -> Vec<Core> {
    let mut seen = CpuSet::new();
    let mut cores = Vec::new();
    for cpu in online.iter() {
        if seen.contains(cpu) {
            continue;
        }
        let topology = dir.join(format!("cpu{cpu}/topology"));
        let siblings =
            ["core_cpus_list", "thread_siblings_list"].iter().find_map(|name| set_file(&topology.join(name)));
        let mut cpus = siblings.unwrap_or_default().intersection(online);
        cpus.insert(cpu);
        seen = seen.union(&cpus);
        cores.push(Core {
            package: number_file(&topology.join("physical_package_id")).unwrap_or(0),
            node: nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.index),
            kind: kinds.iter().position(|kind| kind.cpus.contains(cpu)).unwrap_or(0),
            last_level_cache: last_level(caches, cpu),
            cpus,
        });
    }
    cores
}

/// The outermost cache of a CPU, if it is beyond the core's own (level 3 and up, or a level 2 that is shared).
pub(super) fn last_level(caches: &[Cache], cpu: u32) -> Option<usize> {
    let of_cpu = caches.iter().enumerate().filter(|(_, cache)| cache.cpus.contains(cpu));
    of_cpu.max_by_key(|(_, cache)| cache.level).map(|(index, _)| index)
}

fn caches(dir: &Path, online: &CpuSet) -> Vec<Cache> {
    let mut found: BTreeMap<(u32, Option<u32>, String), Cache> = BTreeMap::new();
    for cpu in online.iter() {
        for index in 0.. {
            let dir = dir.join(format!("cpu{cpu}/cache/index{index}"));
            let Some(level) = number_file(&dir.join("level")) else { break };
            if procfs::text(dir.join("type")).as_deref() == Some("Instruction") {
                continue;
            }
            let cpus = set_file(&dir.join("shared_cpu_list")).unwrap_or_default().intersection(online);
            let size_bytes = procfs::text(dir.join("size")).and_then(|text| parse_size(&text));
            found.entry((level, cpus.first(), cpus.to_string())).or_insert(Cache { level, size_bytes, cpus });
        }
    }
    found.into_values().collect()
}

/// A size such as `48K` or `32M`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1024),
        None => (text.strip_suffix('M')?, 1024 * 1024),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn nodes(root: &Path, online: &CpuSet) -> Vec<Node> {
    let dir = root.join("sys/devices/system/node");
    let indices: NodeSet =
        procfs::text(dir.join("online")).and_then(|text| text.parse().ok()).unwrap_or_default();
    indices.iter().map(|index| node(&dir, index, online)).collect()
}

fn node(dir: &Path, index: u32, online: &CpuSet) -> Node {
    let dir = dir.join(format!("node{index}"));
    let cpus = set_file(&dir.join("cpulist")).unwrap_or_default().intersection(online);
    let meminfo = procfs::text(dir.join("meminfo")).unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = total.and_then(|(_, value)| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Node { index, cpus, memory_bytes: kib.and_then(|kib| kib.checked_mul(1024)) }
}

/// The kernel names the two kinds of Intel hybrids, and gives each Arm CPU a capacity.
fn kinds(root: &Path, online: &CpuSet) -> Vec<CpuKind> {
    let devices = root.join("sys/devices");
    let named =
        |name: &str| set_file(&devices.join(name).join("cpus")).unwrap_or_default().intersection(online);
    let (atom, core) = (named("cpu_atom"), named("cpu_core"));
    if !atom.is_empty() && !core.is_empty() {
        let kind = |cpus, rank, name: &str| CpuKind { cpus, rank, name: Some(name.to_owned()) };
        return vec![kind(atom, 0, "IntelAtom"), kind(core, 1, "IntelCore")];
    }
    let mut by_capacity: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in online.iter() {
        let path = devices.join(format!("system/cpu/cpu{cpu}/cpu_capacity"));
        by_capacity.entry(number_file(&path).unwrap_or(0)).or_default().insert(cpu);
    }
    (0..).zip(by_capacity.into_values()).map(|(rank, cpus)| CpuKind { cpus, rank, name: None }).collect()
}
