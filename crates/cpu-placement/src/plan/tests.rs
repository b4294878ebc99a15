use super::*;

use proptest::prelude::*;

fn machine(name: &str) -> Topology {
    let path = format!("{}/../../testdata/topologies/{name}.xml", env!("CARGO_MANIFEST_DIR"));
    Topology::from_hwloc_xml(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// `CPUs/idle CPUs@nodes` of each set.
fn sketch(plan: &Plan) -> String {
    let one = |set: &PlannedSet| format!("{}/{}@{}", set.cpus, set.idle, set.nodes);
    plan.sets.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn check(name: &str, request: PlanRequest, expected: &str) {
    let found = match Plan::new(&machine(name), &request) {
        Ok(plan) => sketch(&plan),
        Err(error) => format!("failed to {error}"),
    };
    assert_eq!(found, expected, "{name} {request:?}");
}

/// Written by hand from the descriptions in testdata/topologies/README.md.
#[test]
fn committed_machines() {
    use Siblings::Together;
    let uniform = PlanRequest::uniform;
    let given = |sets, cores| uniform(sets, cores).housekeeping(Housekeeping::Given);

    // Node 1 has CPUs 16-31 and their siblings 48-63; the housekeeping core is on node 0.
    check("smt-2-socket", uniform(1, 1), "31/63@1");
    check("smt-2-socket", uniform(2, 1), "31/63@1 30/62@1");
    check("smt-2-socket", uniform(2, 1).siblings(Together), "31,63/@1 30,62/@1");
    check("smt-2-socket", uniform(1, 16), "16-31/48-63@1");
    check("smt-2-socket", PlanRequest::new().set("a", 1).set("b", 15), "16/48@1 17-31/49-63@1");
    // 30 cores in two sets fit on no single node, and one each fits.
    check("smt-2-socket", uniform(2, 15), "17-31/49-63@1 1-15/33-47@0");
    check(
        "smt-2-socket",
        uniform(2, 16),
        "failed to place 32 physical cores on this machine: it has 31 to give besides the 1 kept for everything \
         else (64 of 64 CPUs are allowed here), so it would take 1 more",
    );
    check("smt-2-socket", given(2, 16), "0-15/32-47@0 16-31/48-63@1");
    check(
        "smt-2-socket",
        uniform(1, 17),
        "failed to place the set \"set-1\" of 17 physical cores on one NUMA node: node 1 has 16 for all sets, \
         node 0 has 15 for all sets, and a set never spans two",
    );

    // Node 1 is cores 16-31, its shared caches 16-23 and 24-31.
    check("amd-nps4", uniform(1, 1), "31/95@1");
    check("amd-nps4", uniform(2, 1), "31/95@1 23/87@1");
    check("amd-nps4", uniform(2, 8), "24-31/88-95@1 16-23/80-87@1");
    check("amd-nps4", uniform(1, 12), "20-31/84-95@1");
    check("amd-nps4", uniform(3, 8), "24-31/88-95@1 16-23/80-87@1 40-47/104-111@2");

    check("arm-no-smt", uniform(2, 1), "63/@0 62/@0");
    check("arm-no-smt", uniform(2, 2).siblings(Together), "62-63/@0 60-61/@0");

    // Performance cores have the even CPUs 0-10 and their siblings, efficiency cores are 12-19.
    check("hybrid-laptop", uniform(1, 1), "10/11@0");
    check("hybrid-laptop", uniform(1, 5), "2,4,6,8,10/3,5,7,9,11@0");
    check("hybrid-laptop", uniform(1, 6), "14-19/@0");
    check("hybrid-laptop", uniform(2, 4), "16-19/@0 12-15/@0");
    check(
        "hybrid-laptop",
        uniform(1, 9),
        "failed to place 9 physical cores of one kind: the machine has 5 of IntelCore with 2 hardware threads, 8 \
         of IntelAtom with 1 hardware threads, and a plan never mixes kinds",
    );

    // CPUs 4-6 and 12-13: core 5 is whole, core 6 shares with somebody else's CPU 14.
    check("container-cpuset-quota", uniform(1, 1), "5/13@0");
    check(
        "container-cpuset-quota",
        uniform(2, 1),
        "failed to keep 2000 thousandths of a CPU busy: the cgroup's quota is 1500, and a process that runs out of \
         it is stopped in mid-flight",
    );
    check(
        "container-cpuset-quota",
        uniform(1, 3),
        "failed to place 3 physical cores on this machine: it has 2 to give besides the 1 kept for everything else \
         (5 of 16 CPUs are allowed here), so it would take 1 more",
    );

    // Isolated CPUs 2-3 and their siblings serve sets of one CPU only.
    check("isolcpus", uniform(1, 1), "3/11@0");
    check("isolcpus", uniform(2, 1), "3/11@0 2/10@0");
    check("isolcpus", uniform(1, 2), "6-7/14-15@1");
    check("isolcpus", uniform(1, 1).siblings(Together), "7,15/@1");
}

#[test]
fn what_is_not_ideal_is_said() {
    let notes = |name: &str, request| {
        let plan = Plan::new(&machine(name), &request).unwrap();
        plan.sets.iter().flat_map(|set| set.notes.clone()).collect::<Vec<_>>()
    };
    assert_eq!(notes("amd-nps4", PlanRequest::uniform(1, 12)), ["its cores are spread over 2 shared caches"]);
    assert_eq!(notes("amd-nps4", PlanRequest::uniform(1, 8)), Vec::<String>::new());
    let mut quota_free = machine("container-cpuset-quota");
    quota_free.quota_millicpus = None;
    let plan = Plan::new(&quota_free, &PlanRequest::uniform(2, 1)).unwrap();
    assert_eq!(plan.sets[1].notes, ["CPUs 14 of the same cores belong to others, who may use them"]);
}

#[test]
fn nothing_is_refused() {
    check("isolcpus", PlanRequest::new(), "failed to plan no set at all");
    check("isolcpus", PlanRequest::new().set("x", 0), "failed to plan the set \"x\" with no core");
}

#[test]
fn nodes_whose_memory_is_not_allowed_are_not_used() {
    let mut topology = machine("smt-2-socket");
    topology.allowed_nodes = "0".parse().unwrap();
    let plan = Plan::new(&topology, &PlanRequest::uniform(1, 1)).unwrap();
    assert_eq!(sketch(&plan), "15/47@0");
}

const MACHINES: [&str; 6] =
    ["smt-2-socket", "amd-nps4", "arm-no-smt", "hybrid-laptop", "container-cpuset-quota", "isolcpus"];

proptest! {
    /// Whatever is asked of whatever part of a machine: a plan that exists keeps its promises, and is the same
    /// again.
    #[test]
    fn plans_keep_their_promises(
        name in prop::sample::select(&MACHINES[..]),
        sizes in prop::collection::vec(1usize..6, 1..5),
        together in any::<bool>(),
        given in any::<bool>(),
        forbidden in prop::collection::vec(0u32..256, 0..100),
    ) {
        let mut topology = machine(name);
        topology.allowed = topology.allowed.difference(&forbidden.into_iter().collect());
        let mut request = sizes.iter().fold(PlanRequest::new(), |request, cores| request.set("s", *cores));
        request.siblings = if together { Siblings::Together } else { Siblings::Idle };
        request.housekeeping = if given { Housekeeping::Given } else { Housekeeping::Kept };
        if let Ok(plan) = Plan::new(&topology, &request) {
            prop_assert_eq!(&plan, &Plan::new(&topology, &request).unwrap());
            check_promises(&topology, &plan, &sizes)?;
        }
    }
}

fn check_promises(topology: &Topology, plan: &Plan, sizes: &[usize]) -> Result<(), TestCaseError> {
    let mut taken = plan.housekeeping.clone();
    let mut kinds = BTreeSet::new();
    for (set, size) in plan.sets.iter().zip(sizes) {
        let cores = topology.whole_cores(&set.cpus);
        prop_assert!(cores.is_disjoint(&taken));
        taken = taken.union(&cores);
        prop_assert_eq!(set.cpus.union(&set.idle), cores);
        prop_assert!(set.cpus.is_subset(&topology.allowed));
        let members: Vec<_> = set.cpus.iter().filter_map(|cpu| topology.core_of(cpu)).collect();
        kinds.extend(members.iter().map(|core| core.kind));
        let distinct: BTreeSet<_> = members.iter().map(|core| core.cpus.first()).collect();
        prop_assert_eq!(distinct.len(), *size);
        prop_assert_eq!(set.nodes.len(), 1);
        prop_assert!(set.cpus.len() == 1 || set.cpus.is_disjoint(&topology.isolated));
        prop_assert!(plan.siblings == Siblings::Together || set.cpus.len() == *size);
    }
    prop_assert_eq!(kinds.len(), 1);
    Ok(())
}
