//! The topology through hwloc, where it can be had.

use hwlocality::Topology as Hwloc;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};

use crate::set::{CpuSet, MAX_INDEX};
use crate::topology::{Cache, CpuKind, Node, Package, Parts, Source, Topology, TopologyError};

/// hwloc may look at CPUs from each of them, which moves the calling thread about; it is told not to.
const FLAGS: BuildFlags = BuildFlags::INCLUDE_DISALLOWED.union(BuildFlags::DONT_CHANGE_BINDING);

/// Replaces what `/sys` says of the machine's parts by what hwloc says. What this process may use stays, because
/// hwloc knows neither quotas nor isolated CPUs. When hwloc is refused, a note says so and `/sys` stands.
pub(super) fn refine(from_sys: Topology) -> Topology {
    let reason = match live() {
        Ok(found) => match found.falls_short_of(&from_sys) {
            None => match with_parts(&from_sys, found) {
                Ok(refined) => return refined,
                Err(error) => error.to_string(),
            },
            Some(reason) => reason,
        },
        Err(reason) => reason,
    };
    with_note(from_sys, format!("hwloc cannot be used ({reason}); /sys is used"))
}

fn with_note(mut topology: Topology, note: String) -> Topology {
    topology.notes.push(note);
    topology
}

fn with_parts(from_sys: &Topology, found: Found) -> Result<Topology, TopologyError> {
    let parts = found.parts.normalise(&from_sys.online);
    parts.check_cores(&from_sys.online)?;
    let mut topology = from_sys.clone();
    topology.source = Source::Hwloc;
    topology.cores = parts.related_cores();
    topology.packages = parts.packages;
    topology.nodes = parts.nodes;
    topology.caches = parts.caches;
    topology.kinds = parts.kinds;
    Ok(topology)
}

struct Found {
    parts: Parts,
    online: CpuSet,
}

impl Found {
    /// Where hwloc may not read the machine, as in some containers, it shows a flat one instead of failing.
    fn falls_short_of(&self, sys: &Topology) -> Option<String> {
        let counts = [
            ("CPUs", self.online.intersection(&sys.online).len(), sys.online.len()),
            ("cores", self.parts.cores.len(), sys.cores.len()),
            ("packages", self.parts.packages.len(), sys.packages.len()),
            ("caches", self.parts.caches.len(), sys.caches.len().min(1)),
        ];
        let short = counts.into_iter().find(|(_, found, expected)| found < expected);
        short.map(|(what, found, expected)| {
            format!("it shows {found} {what} where there are at least {expected}")
        })
    }
}

fn live() -> Result<Found, String> {
    let builder = TopologyBuilder::new().with_flags(FLAGS).map_err(|e| e.to_string())?;
    let topology = builder.build().map_err(|error| error.to_string())?;
    // HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT make hwloc describe another machine.
    if !topology.is_this_system() {
        return Err("an environment variable makes it describe another machine".to_owned());
    }
    Ok(collect(&topology))
}

/// Reads a file through hwloc.
pub(super) fn read_xml(text: &str) -> Result<Topology, TopologyError> {
    let refused =
        |error: &dyn std::fmt::Display| TopologyError::Incomplete { what: format!("(says hwloc: {error})") };
    let builder = TopologyBuilder::new().from_xml(text).map_err(|error| refused(&error))?;
    let builder = builder.with_flags(FLAGS).map_err(|error| refused(&error))?;
    let topology = builder.build().map_err(|error| refused(&error))?;
    let complete = cpu_set(&topology.complete_cpuset());
    let allowed = cpu_set(&topology.allowed_cpuset());
    let allowed_nodes = topology.allowed_nodeset();
    let allowed_nodes = definite(allowed_nodes.last_set().is_some(), allowed_nodes.iter_set()).collect();
    let info =
        |name: &str| topology.root_object().info(name).map(|value| value.to_string_lossy().into_owned());
    let list = |name: &str| info(name).and_then(|value| value.parse().ok()).unwrap_or_default();
    let found = collect(&topology);
    let parts = found.parts.normalise(&found.online);
    parts.check_cores(&found.online)?;
    Ok(Topology {
        source: Source::HwlocXml,
        notes: Vec::new(),
        cores: parts.related_cores(),
        packages: parts.packages,
        nodes: parts.nodes,
        caches: parts.caches,
        kinds: parts.kinds,
        offline: complete.difference(&found.online),
        allowed: allowed.intersection(&found.online),
        allowed_nodes,
        isolated: list("LinuxIsolatedCpus"),
        nohz_full: list("LinuxNohzFullCpus"),
        quota_millicpus: info("LinuxCpuMax").and_then(|value| super::cgroup::parse_cpu_max(&value)),
        online: found.online,
    })
}

fn collect(topology: &Hwloc) -> Found {
    let of = |kind| topology.objects_with_type(kind);
    let mut parts = Parts {
        packages: of(ObjectType::Package).map(package).collect(),
        nodes: of(ObjectType::NUMANode).filter_map(node).collect(),
        caches: topology.objects().filter_map(cache).collect(),
        cores: of(ObjectType::Core).map(cpus).collect(),
        kinds: kinds(topology),
    };
    let online = of(ObjectType::PU).fold(CpuSet::new(), |all, pu| all.union(&cpus(pu)));
    if parts.cores.is_empty() {
        parts.cores = online.iter().map(|cpu| CpuSet::from_iter([cpu])).collect();
    }
    Found { parts, online }
}

fn cpus(object: &TopologyObject) -> CpuSet {
    object.cpuset().map(|set| cpu_set(&set)).unwrap_or_default()
}

fn index(object: &TopologyObject) -> Option<u32> {
    u32::try_from(object.os_index()?).ok()
}

fn package(object: &TopologyObject) -> Package {
    Package { index: index(object).unwrap_or(0), cpus: cpus(object) }
}

fn node(object: &TopologyObject) -> Option<Node> {
    let memory_bytes = match object.attributes() {
        Some(ObjectAttributes::NUMANode(node)) => node.local_memory().map(std::num::NonZeroU64::get),
        _ => None,
    };
    Some(Node { index: index(object)?, cpus: cpus(object), memory_bytes })
}

fn cache(object: &TopologyObject) -> Option<Cache> {
    if !object.object_type().is_cpu_data_cache() {
        return None;
    }
    let Some(ObjectAttributes::Cache(cache)) = object.attributes() else { return None };
    Some(Cache {
        level: u32::try_from(cache.depth()).ok()?,
        cpus: cpus(object),
        size_bytes: cache.size().map(std::num::NonZeroU64::get),
    })
}

fn kinds(topology: &Hwloc) -> Vec<CpuKind> {
    let Ok(kinds) = topology.cpu_kinds() else { return Vec::new() };
    let kinds = kinds.zip(0u32..).map(|(kind, position)| CpuKind {
        cpus: cpu_set(&kind.cpuset),
        rank: kind.efficiency.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(position),
        name: kind
            .infos
            .iter()
            .find(|info| info.name().to_bytes() == b"CoreType")
            .map(|info| info.value().to_string_lossy().into_owned()),
    });
    kinds.collect()
}

fn cpu_set(set: &hwlocality::cpu::cpuset::CpuSet) -> CpuSet {
    definite(set.last_set().is_some(), set.iter_set()).collect()
}

/// Members of a set. hwloc's sets may be infinite, which those of a machine never are; such a one counts as empty.
fn definite(finite: bool, members: impl Iterator<Item = BitmapIndex>) -> impl Iterator<Item = u32> {
    let members = members.filter_map(|index| u32::try_from(usize::from(index)).ok());
    members.take_while(move |index| finite && *index <= MAX_INDEX)
}
