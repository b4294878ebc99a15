//! The commands that only look: plan, show, verify, host.

use std::fmt::Write;

use command_line::{Exit, MessageFormat};
use cpu_placement::{CpuSet, Hazard, HostRecord, Observed, Plan, ProcessPlacement, Topology};
use serde::Serialize;

use crate::cli::print;
use crate::options::{HostOptions, PlanOptions, VerifyOptions};
use crate::tree;

#[derive(Serialize)]
struct PlanMessage<'a> {
    schema: &'static str,
    plan: &'a Plan,
    notes: &'a [String],
    hazards: Vec<Vec<Hazard>>,
}

/// The hazards of each set.
fn hazards(options: &PlanOptions, topology: &Topology, plan: &Plan) -> Vec<Vec<Hazard>> {
    let of =
        |cpus: &CpuSet| if options.is_live() { topology.live_hazards(cpus) } else { topology.hazards(cpus) };
    // Hardware threads that the plan keeps idle are no hazard of the plan.
    let kept = |set: &cpu_placement::PlannedSet| {
        let mut hazards = of(&set.cpus);
        hazards
            .retain(|hazard| !matches!(hazard, Hazard::OpenSiblings { cpus } if cpus.is_subset(&set.idle)));
        hazards
    };
    plan.sets.iter().map(kept).collect()
}

pub(crate) fn plan(options: &PlanOptions, format: MessageFormat) -> anyhow::Result<Exit> {
    let topology = options.topology()?;
    let plan = Plan::new(&topology, &options.request())?;
    let hazards = hazards(options, &topology, &plan);
    let mut human = String::new();
    for (set, hazards) in plan.sets.iter().zip(&hazards) {
        writeln!(human, "{}", tree::describe(set))?;
        for hazard in hazards {
            writeln!(human, "  careful: {hazard}")?;
        }
    }
    if !plan.housekeeping.is_empty() {
        writeln!(human, "kept for everything else: CPUs {}", plan.housekeeping)?;
    }
    for note in &topology.notes {
        writeln!(human, "note: {note}")?;
    }
    let message =
        PlanMessage { schema: "kvrp.place-run.plan/1", plan: &plan, notes: &topology.notes, hazards };
    print(format, &message, &human)?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct ShowMessage<'a> {
    schema: &'static str,
    topology: &'a Topology,
    plan: Option<&'a Plan>,
    plan_error: Option<String>,
}

/// The machine is shown although no plan fits it, with the reason.
pub(crate) fn tree(options: &PlanOptions, format: MessageFormat) -> anyhow::Result<Exit> {
    let topology = options.topology()?;
    let plan = Plan::new(&topology, &options.request());
    let plan_error = plan.as_ref().err().map(|error| format!("failed to {error}"));
    let plan = plan.ok();
    let mut human = tree::draw(&topology, plan.as_ref());
    if let Some(error) = &plan_error {
        writeln!(human, "no plan: {error}")?;
    }
    let fits = plan.is_some();
    let message =
        ShowMessage { schema: "kvrp.place-run.show/1", topology: &topology, plan: plan.as_ref(), plan_error };
    print(format, &message, &human)?;
    Ok(if fits { Exit::Ok } else { Exit::HostUnfit })
}

#[derive(Serialize)]
struct VerifyMessage<'a> {
    schema: &'static str,
    placement: &'a ProcessPlacement,
}

pub(crate) fn verify(options: &VerifyOptions, format: MessageFormat) -> anyhow::Result<Exit> {
    let placement = ProcessPlacement::of(options.pid, options.cpus.as_ref(), options.nodes.as_ref())?;
    let mut human = String::new();
    let name = placement.name.as_deref().unwrap_or("unnamed");
    writeln!(human, "process {} ({name}), {} threads", placement.pid, placement.threads.len())?;
    for thread in &placement.threads {
        writeln!(human, "  thread {} on CPU {} of {}", thread.tid, thread.cpu, thread.affinity)?;
    }
    match &placement.residency {
        Observed::Value(residency) => {
            let pages = residency.pages.iter().map(|(node, pages)| format!("{pages} pages on node {node}"));
            writeln!(human, "  private memory: {}", pages.collect::<Vec<_>>().join(", "))?;
        }
        Observed::Unavailable(why) => writeln!(human, "  private memory: unavailable ({why})")?,
    }
    for violation in &placement.violations {
        writeln!(human, "not as expected: {violation}")?;
    }
    print(format, &VerifyMessage { schema: "kvrp.place-run.verify/1", placement: &placement }, &human)?;
    Ok(if placement.violations.is_empty() { Exit::Ok } else { Exit::Differs })
}

#[derive(Serialize)]
struct HostMessage<'a> {
    schema: &'static str,
    host: &'a HostRecord,
}

pub(crate) fn host(options: &HostOptions, format: MessageFormat) -> anyhow::Result<Exit> {
    let host = HostRecord::read();
    let host = if options.with_name { host } else { host.redacted() };
    let human = serde_json::to_string_pretty(&host)? + "\n";
    print(format, &HostMessage { schema: "kvrp.place-run.host/1", host: &host }, &human)?;
    Ok(Exit::Ok)
}
