//! What must hold for any input; the fuzz targets only call these.

use std::collections::BTreeSet;

use cpu_placement::{CpuSet, Housekeeping, Plan, PlanRequest, Siblings, Topology};

/// Two texts, separated by a `|`, as sets.
pub fn check_sets(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (left, right) = text.split_once('|').unwrap_or((text, ""));
    for read in [str::parse::<CpuSet>, CpuSet::from_mask] {
        let (Ok(left), Ok(right)) = (read(left), read(right)) else { continue };
        assert_eq!(left.to_string().parse(), Ok(left.clone()));
        assert_eq!(CpuSet::from_mask(&left.to_mask()), Ok(left.clone()));
        check_algebra(&left, &right);
    }
}

fn check_algebra(left: &CpuSet, right: &CpuSet) {
    let (a, b): (BTreeSet<u32>, BTreeSet<u32>) = (left.iter().collect(), right.iter().collect());
    let same = |set: CpuSet, expected: BTreeSet<u32>| assert!(set.iter().eq(expected));
    same(left.union(right), &a | &b);
    same(left.intersection(right), &a & &b);
    same(left.difference(right), &a - &b);
    same(left.symmetric_difference(right), &a ^ &b);
    assert_eq!(left.is_subset(right), a.is_subset(&b));
    assert_eq!(left.is_disjoint(right), a.is_disjoint(&b));
    assert_eq!(left.len(), a.len());
}

/// A text as an exported machine.
pub fn check_topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(topology) = Topology::from_hwloc_xml(text) else { return };
    let in_cores: Vec<u32> = topology.cores.iter().flat_map(|core| core.cpus.iter()).collect();
    assert_eq!(in_cores.len(), topology.online.len());
    assert_eq!(in_cores.into_iter().collect::<CpuSet>(), topology.online);
    assert!(topology.allowed.is_subset(&topology.online));
    let json = serde_json::to_string(&topology).expect("no key of a topology is a number");
    assert_eq!(serde_json::from_str::<Topology>(&json).expect("what was written"), topology);
    for siblings in [Siblings::Idle, Siblings::Together] {
        for housekeeping in [Housekeeping::Kept, Housekeeping::Given] {
            let request = PlanRequest::new().set("a", 1).set("b", 2).siblings(siblings);
            check_plan(&topology, &request.housekeeping(housekeeping));
        }
    }
}

fn check_plan(topology: &Topology, request: &PlanRequest) {
    let Ok(plan) = Plan::new(topology, request) else { return };
    let mut taken = plan.housekeeping.clone();
    for set in &plan.sets {
        let cores = topology.whole_cores(&set.cpus);
        assert!(cores.is_disjoint(&taken) && set.cpus.is_subset(&topology.allowed));
        taken = taken.union(&cores);
        let kinds: BTreeSet<usize> =
            set.cpus.iter().filter_map(|cpu| topology.core_of(cpu)).map(|core| core.kind).collect();
        assert_eq!(kinds.len(), 1);
        let _ = topology.hazards(&set.cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        for text in ["0-3,8|2", "0x1,,0x3|0xf", "7|", "1-", "a|b", "65535|0-65535"] {
            check_sets(text.as_bytes());
        }
    }

    #[test]
    fn committed_machines() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../testdata/topologies");
        let files = std::fs::read_dir(folder).expect("testdata is there").flatten();
        let texts = files.filter_map(|file| std::fs::read(file.path()).ok());
        assert!(texts.map(|text| check_topology(&text)).count() >= 8);
    }
}
