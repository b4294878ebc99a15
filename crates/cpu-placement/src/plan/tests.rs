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

fn request(sets: &str, options: &str) -> PlanRequest {
    let numbered = sets.split(' ').zip(1..);
    let request = numbered.fold(PlanRequest::new(), |request, (cores, number)| {
        request.set(format!("set-{number}"), cores.parse().unwrap())
    });
    match options {
        "" => request,
        "together" => request.siblings(Siblings::Together),
        "given" => request.housekeeping(Housekeeping::Given),
        other => panic!("unknown option {other}"),
    }
}

#[test]
fn committed_machines() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/topologies/plans.tsv");
    let table = std::fs::read_to_string(path).unwrap();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [name, sets, options, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        check(name, request(sets, options), expected);
    }
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
fn sizes_beyond_counting_are_too_many() {
    let request = PlanRequest::new().set("a", usize::MAX).set("b", usize::MAX);
    let error = Plan::new(&machine("arm-no-smt"), &request).unwrap_err();
    assert!(matches!(error, PlanError::TooFewCores { needed: usize::MAX, usable: 63, .. }), "{error}");
}

#[test]
fn kinds_of_one_rank_are_not_mixed() {
    let mut hybrid = machine("hybrid-laptop");
    hybrid.kinds.iter_mut().for_each(|kind| kind.rank = 0);
    let plan = Plan::new(&hybrid, &PlanRequest::uniform(1, 6)).unwrap();
    assert_eq!(plan.sets[0].kind.as_deref(), Some("IntelAtom"));
    let error = Plan::new(&hybrid, &PlanRequest::uniform(1, 9)).unwrap_err();
    assert!(matches!(error, PlanError::TooFewOfOneKind { needed: 9, .. }), "{error}");
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
