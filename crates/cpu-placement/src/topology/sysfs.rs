//! The topology as the kernel shows it under `/sys`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::elsewhere;
use crate::procfs;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Cache, CpuKind, Node, Package, Parts, Source, Topology, TopologyError, cgroup};

/// Reads the machine below `root`, which is `/` except in tests.
pub(super) fn read(root: &Path) -> Result<Topology, TopologyError> {
    let dir = root.join("sys/devices/system/cpu");
    let path = dir.join("online");
    let online: CpuSet = set_file(&path).ok_or(TopologyError::Online { path })?;
    let isolated = set_file(&dir.join("isolated")).unwrap_or_default();
    let present: CpuSet = set_file(&dir.join("present")).unwrap_or_else(|| online.clone());
    let parts = Parts {
        packages: packages(&dir, &online),
        nodes: nodes(root),
        caches: caches(&dir, &online),
        cores: cores(&dir, &online),
        kinds: kinds(root, &online),
    };
    let parts = parts.normalise(&online);
    let all_nodes = || parts.nodes.iter().map(|node| node.index).collect();
    Ok(Topology {
        source: Source::Sysfs,
        notes: Vec::new(),
        offline: present.difference(&online),
        nohz_full: set_file(&dir.join("nohz_full")).unwrap_or_default(),
        allowed_nodes: cgroup::nodes_under(root).unwrap_or_else(all_nodes),
        quota_millicpus: cgroup::quota_under(root),
        allowed: allowed(root, &online, &isolated),
        cores: parts.related_cores(),
        packages: parts.packages,
        nodes: parts.nodes,
        caches: parts.caches,
        kinds: parts.kinds,
        isolated,
        online,
    })
}

fn set_file(path: &Path) -> Option<CpuSet> {
    procfs::text(path)?.parse().ok()
}

fn number_file(path: &Path) -> Option<u32> {
    procfs::text(path)?.parse().ok()
}

/// The CPUs this process may use: those of its cgroup and its affinity that are online.
///
/// CPUs the scheduler keeps away from (`isolcpus`) are not in any inherited affinity, and may be asked for all the
/// same, unless somebody narrowed the affinity of this process on purpose.
fn allowed(root: &Path, online: &CpuSet, isolated: &CpuSet) -> CpuSet {
    let affinity = affinity(root).unwrap_or_else(|| online.clone());
    let cgroup = cgroup::cpus_under(root).unwrap_or_else(|| online.clone());
    let usable = online.intersection(&cgroup);
    let narrowed = affinity.intersection(&usable) != usable.difference(isolated);
    if narrowed { usable.intersection(&affinity) } else { usable }
}

fn affinity(root: &Path) -> Option<CpuSet> {
    if root == Path::new("/") {
        return elsewhere::affinity_of_this_process();
    }
    procfs::allowed_cpus(&procfs::text(root.join("proc/self/status"))?)
}

/// The CPUs the live process may use; nothing when not even the online ones can be read.
pub(crate) fn allowed_now() -> Option<CpuSet> {
    let root = Path::new("/");
    let dir = root.join("sys/devices/system/cpu");
    let isolated = set_file(&dir.join("isolated")).unwrap_or_default();
    Some(allowed(root, &set_file(&dir.join("online"))?, &isolated))
}

fn packages(dir: &Path, online: &CpuSet) -> Vec<Package> {
    let mut found: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in online.iter() {
        let index = number_file(&dir.join(format!("cpu{cpu}/topology/physical_package_id"))).unwrap_or(0);
        found.entry(index).or_default().insert(cpu);
    }
    found.into_iter().map(|(index, cpus)| Package { index, cpus }).collect()
}

fn cores(dir: &Path, online: &CpuSet) -> Vec<CpuSet> {
    let mut left = online.clone();
    let mut cores = Vec::new();
    while let Some(cpu) = left.first() {
        let topology = dir.join(format!("cpu{cpu}/topology"));
        // The first name is of kernels since 5.3.
        let names = ["core_cpus_list", "thread_siblings_list"];
        let mut cpus = names.iter().find_map(|name| set_file(&topology.join(name))).unwrap_or_default();
        // A CPU that two cores name, as no kernel should, belongs to the first.
        cpus = cpus.intersection(&left);
        cpus.insert(cpu);
        left = left.difference(&cpus);
        cores.push(cpus);
    }
    cores
}

fn caches(dir: &Path, online: &CpuSet) -> Vec<Cache> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for cpu in online.iter() {
        let indices = (0..).map(|index| dir.join(format!("cpu{cpu}/cache/index{index}")));
        for cache in indices.map_while(|dir| cache(&dir)).flatten() {
            if seen.insert((cache.level, cache.cpus.to_string())) {
                found.push(cache);
            }
        }
    }
    found
}

/// The cache of one directory; the outer option says whether there is one, the inner whether it holds data.
fn cache(dir: &Path) -> Option<Option<Cache>> {
    let level = number_file(&dir.join("level"))?;
    if procfs::text(dir.join("type")).as_deref() == Some("Instruction") {
        return Some(None);
    }
    let cpus = set_file(&dir.join("shared_cpu_list")).unwrap_or_default();
    let size_bytes = procfs::text(dir.join("size")).and_then(|text| parse_size(&text));
    Some(Some(Cache { level, cpus, size_bytes }))
}

/// A size such as `48K` or `32M`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1024),
        None => (text.strip_suffix('M')?, 1024 * 1024),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn nodes(root: &Path) -> Vec<Node> {
    let dir = root.join("sys/devices/system/node");
    let indices = procfs::text(dir.join("online")).and_then(|text| text.parse::<NodeSet>().ok());
    indices.unwrap_or_default().iter().map(|index| node(&dir, index)).collect()
}

fn node(dir: &Path, index: u32) -> Node {
    let dir = dir.join(format!("node{index}"));
    let meminfo = procfs::text(dir.join("meminfo")).unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = total.and_then(|(_, value)| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Node {
        index,
        cpus: set_file(&dir.join("cpulist")).unwrap_or_default(),
        memory_bytes: kib.and_then(|kib| kib.checked_mul(1024)),
    }
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
