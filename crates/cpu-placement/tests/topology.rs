//! Machines read from files, from copies of `/sys`, and live.

use std::path::Path;

use cpu_placement::{Plan, PlanRequest, Source, Topology, TopologyError};
use proptest::prelude::*;

fn xml(name: &str) -> String {
    let path = format!("{}/../../testdata/topologies/{name}.xml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("testdata is there")
}

const MACHINES: [&str; 6] =
    ["smt-2-socket", "amd-nps4", "arm-no-smt", "hybrid-laptop", "container-cpuset-quota", "isolcpus"];

/// Packages, nodes, cores, CPUs, kinds, caches, allowed CPUs: by hand from testdata/topologies/README.md.
#[test]
fn committed_machines() {
    let cases = [
        ("smt-2-socket", (2, 2, 32, 64, 1, 2 + 32 + 32, "0-63")),
        ("amd-nps4", (1, 4, 64, 128, 1, 8 + 64 + 64, "0-127")),
        ("arm-no-smt", (1, 1, 64, 64, 1, 1 + 64 + 64, "0-63")),
        ("hybrid-laptop", (1, 1, 14, 20, 2, 1, "0-19")),
        ("container-cpuset-quota", (1, 1, 8, 16, 1, 1 + 8, "4-6,12-13")),
        ("isolcpus", (2, 2, 8, 16, 1, 2 + 8, "0-15")),
    ];
    for (name, expected) in cases {
        let t = Topology::from_hwloc_xml(&xml(name)).expect(name);
        let allowed = t.allowed.to_string();
        let found = (
            t.packages.len(),
            t.nodes.len(),
            t.cores.len(),
            t.online.len(),
            t.kinds.len(),
            t.caches.len(),
            allowed.as_str(),
        );
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn quotas_isolation_and_kinds() {
    let quota = Topology::from_hwloc_xml(&xml("container-cpuset-quota")).expect("valid");
    assert_eq!(quota.quota_millicpus, Some(1500));
    let isolated = Topology::from_hwloc_xml(&xml("isolcpus")).expect("valid");
    assert_eq!(
        (isolated.isolated.to_string(), isolated.nohz_full.to_string()),
        ("2-3,10-11".into(), "2-3,10-11".into())
    );
    let hybrid = Topology::from_hwloc_xml(&xml("hybrid-laptop")).expect("valid");
    let kinds: Vec<_> =
        hybrid.kinds.iter().map(|kind| (kind.rank, kind.name.as_deref(), kind.cpus.to_string())).collect();
    assert_eq!(kinds, [(0, Some("IntelAtom"), "12-19".into()), (1, Some("IntelCore"), "0-11".into())]);
}

#[test]
fn other_major_versions_are_refused() {
    for (name, version) in [("refused-hwloc-1", "1"), ("refused-hwloc-3", "3.0")] {
        let error = Topology::from_hwloc_xml(&xml(name)).expect_err(name);
        assert_eq!(error, TopologyError::Version { found: version.to_owned() }, "{name}");
    }
}

/// Any prefix of a file is refused, and none panics.
#[test]
fn cut_files_are_refused() {
    let text = xml("hybrid-laptop");
    for end in (0..text.trim_end().len()).step_by(7) {
        assert!(Topology::from_hwloc_xml(&text[..end]).is_err(), "{end}");
    }
}

proptest! {
    /// A file with damage anywhere is refused or understood; what is understood can be planned on, twice alike.
    #[test]
    fn damaged_files_never_break_a_plan(
        name in prop::sample::select(&MACHINES[..]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), "[0-9a-fx<>\"/=, ]"), 1..6),
        cores in 1usize..5,
    ) {
        let mut text: Vec<char> = xml(name).chars().collect();
        for (at, with) in damage {
            let at = at.index(text.len());
            text[at] = with.chars().next().unwrap_or(' ');
        }
        let text: String = text.into_iter().collect();
        if let Ok(topology) = Topology::from_hwloc_xml(&text) {
            let request = PlanRequest::uniform(2, cores);
            let plan = Plan::new(&topology, &request);
            prop_assert_eq!(&plan, &Plan::new(&topology, &request));
            if let Ok(plan) = plan {
                let [a, b] = &plan.sets[..] else { panic!("two sets were asked for") };
                prop_assert!(topology.whole_cores(&a.cpus).is_disjoint(&topology.whole_cores(&b.cpus)));
                prop_assert!(plan.cpus().is_subset(&topology.allowed));
                prop_assert!(topology.hazards(&a.cpus).len() < 12);
            }
        }
    }
}

#[test]
fn the_live_machine() {
    let topology = Topology::read().expect("a Linux machine");
    assert!(!topology.cores.is_empty());
    assert!(topology.allowed.is_subset(&topology.online));
    let all = topology.cores.iter().flat_map(|core| core.cpus.iter()).collect();
    assert_eq!(topology.online, all);
    let text = serde_json::to_string(&topology).expect("serializable");
    assert_eq!(serde_json::from_str::<Topology>(&text).expect("the same"), topology);
}

/// Writes `/sys` and `/proc` as the kernel would on this machine.
fn write_sys(topology: &Topology, root: &Path) {
    let write = |path: String, text: String| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("inside root")).expect("writable");
        std::fs::write(path, text + "\n").expect("writable");
    };
    let cpu = "sys/devices/system/cpu";
    write(format!("{cpu}/online"), topology.online.to_string());
    write(format!("{cpu}/present"), topology.online.union(&topology.offline).to_string());
    write(format!("{cpu}/isolated"), topology.isolated.to_string());
    write(format!("{cpu}/nohz_full"), topology.nohz_full.to_string());
    for core in &topology.cores {
        for number in core.cpus.iter() {
            write(format!("{cpu}/cpu{number}/topology/core_cpus_list"), core.cpus.to_string());
            write(format!("{cpu}/cpu{number}/topology/physical_package_id"), core.package.to_string());
            let caches = topology.caches.iter().filter(|cache| cache.cpus.contains(number));
            for (index, cache) in caches.enumerate() {
                let dir = format!("{cpu}/cpu{number}/cache/index{index}");
                write(format!("{dir}/level"), cache.level.to_string());
                write(format!("{dir}/type"), "Unified".into());
                write(format!("{dir}/shared_cpu_list"), cache.cpus.to_string());
                write(format!("{dir}/size"), format!("{}K", cache.size_bytes.unwrap_or(0) / 1024));
            }
        }
    }
    let node = "sys/devices/system/node";
    let nodes: cpu_placement::NodeSet = topology.nodes.iter().map(|node| node.index).collect();
    write(format!("{node}/online"), nodes.to_string());
    for each in &topology.nodes {
        write(format!("{node}/node{}/cpulist", each.index), each.cpus.to_string());
        let kib = each.memory_bytes.unwrap_or(0) / 1024;
        write(
            format!("{node}/node{0}/meminfo", each.index),
            format!("Node {} MemTotal:       {kib} kB", each.index),
        );
    }
    if let [slow, fast] = &topology.kinds[..] {
        write("sys/devices/cpu_atom/cpus".into(), slow.cpus.to_string());
        write("sys/devices/cpu_core/cpus".into(), fast.cpus.to_string());
    }
    let affinity = topology.online.difference(&topology.isolated);
    write("proc/self/status".into(), format!("Name:\tx\nCpus_allowed_list:\t{affinity}"));
    write("proc/self/cgroup".into(), "0::/job".into());
    write("proc/self/mountinfo".into(), "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw".into());
    write("sys/fs/cgroup/cpuset.cpus.effective".into(), topology.allowed.to_string());
    write("sys/fs/cgroup/cpuset.mems.effective".into(), topology.allowed_nodes.to_string());
    if let Some(quota) = topology.quota_millicpus {
        write("sys/fs/cgroup/job/cpu.max".into(), format!("{} 100000", quota * 100));
    }
}

/// What hwloc says of a machine and what its `/sys` would say are read as the same machine.
#[test]
fn sysfs_and_xml_agree() {
    for name in MACHINES {
        let mut expected = Topology::from_hwloc_xml(&xml(name)).expect(name);
        expected.source = Source::Sysfs;
        let root = tempfile::tempdir().expect("a directory");
        write_sys(&expected, root.path());
        assert_eq!(Topology::read_below(root.path()).expect(name), expected, "{name}");
    }
}

#[test]
fn offline_cpus_old_kernels_and_a_narrowed_affinity() {
    let mut machine = Topology::from_hwloc_xml(&xml("isolcpus")).expect("valid");
    machine.offline = "16-17".parse().expect("a set");
    let root = tempfile::tempdir().expect("a directory");
    write_sys(&machine, root.path());
    let status = root.path().join("proc/self/status");
    std::fs::write(status, "Cpus_allowed_list:\t0-1\n").expect("writable");
    std::fs::remove_file(root.path().join("sys/fs/cgroup/cpuset.mems.effective")).expect("was there");
    let found = Topology::read_below(root.path()).expect("valid");
    assert_eq!(found.offline.to_string(), "16-17");
    assert_eq!(
        found.allowed.to_string(),
        "0-1",
        "somebody narrowed the affinity: isolated CPUs are not ours"
    );
    assert_eq!(found.allowed_nodes.to_string(), "0-1");
    let nothing = tempfile::tempdir().expect("a directory");
    assert!(matches!(Topology::read_below(nothing.path()), Err(TopologyError::Online { .. })));
}

#[cfg(feature = "hwloc")]
mod through_hwloc {
    use super::*;

    /// Our reader of the XML and hwloc's agree on every committed machine.
    #[test]
    fn both_readers_agree() {
        for name in MACHINES {
            let ours = Topology::from_hwloc_xml(&xml(name)).expect(name);
            let theirs = Topology::from_hwloc_xml_through_hwloc(&xml(name)).expect(name);
            assert_eq!(theirs, ours, "{name}");
        }
    }

    #[test]
    fn hwloc_and_sysfs_agree_on_the_live_machine() {
        let mut through_hwloc = Topology::read().expect("a Linux machine");
        let from_sys = Topology::read_sysfs().expect("a Linux machine");
        assert_eq!(through_hwloc.source, Source::Hwloc, "{:?}", through_hwloc.notes);
        through_hwloc.source = Source::Sysfs;
        // hwloc subtracts the memory of huge pages.
        for (found, sys) in through_hwloc.nodes.iter_mut().zip(&from_sys.nodes) {
            found.memory_bytes = sys.memory_bytes;
        }
        assert_eq!(through_hwloc, from_sys);
    }
}
