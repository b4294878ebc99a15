//! place: the machine is read and every process gets its CPUs.

use cpu_placement::{CpuSet, HostRecord, Housekeeping, Plan, PlanRequest, Siblings, Topology};

use crate::context::Context;
use crate::definition;
use crate::error::{At, CampaignError, Cause};
use crate::executor::Executor;
use crate::record::PlaceRecord;
use crate::stage::Stage;
use crate::stage::run::PROCESSES_PER_ROW;

/// Which CPUs the processes of this campaign get.
pub(crate) struct Placed {
    /// One set per concurrent correctness process; disjoint.
    pub(crate) correctness: Vec<CpuSet>,
    /// The set of every measured process, whichever arm.
    pub(crate) measured: CpuSet,
    pub(crate) record: PlaceRecord,
}

pub(crate) fn place(context: &Context<'_>) -> Result<Placed, CampaignError> {
    let placed = plan(context)?;
    let Some(began) = context.recorded::<PlaceRecord>(Stage::Place, RECORD)? else {
        context.record(Stage::Place, RECORD, &placed.record)?;
        return Ok(placed);
    };
    // Nothing is timed here when rows are worked off elsewhere.
    if context.executor == Executor::Local {
        refuse_another_host(&began, &placed.record)?;
    }
    Ok(Placed { record: began, ..placed })
}

const RECORD: &str = "records/place.json";

/// Samples of two machines, or of two kernels, are not one experiment. A restart of the same machine is none of these.
fn refuse_another_host(began: &PlaceRecord, found: &PlaceRecord) -> Result<(), CampaignError> {
    let host = |record: &PlaceRecord| {
        let mut host = record.host.clone();
        if let Some(keys) = host.as_object_mut() {
            keys.remove("boot_id");
        }
        host
    };
    let (began_host, found_host) = (host(began), host(found));
    let keys = began_host.as_object().into_iter().flatten().map(|(key, _)| key);
    let changed: Vec<&str> =
        keys.filter(|key| began_host.get(*key) != found_host.get(*key)).map(String::as_str).collect();
    if began_host != found_host {
        let message = format!("the host is another than when this campaign began: {}", changed.join(", "));
        return Err(CampaignError::new(Stage::Place, Cause::HostUnfit, message));
    }
    if began.measured_cpus != found.measured_cpus || began.plan != found.plan {
        let message = format!(
            "processes would run on CPUs {}, this campaign began on {}",
            found.measured_cpus, began.measured_cpus
        );
        return Err(CampaignError::new(Stage::Place, Cause::HostUnfit, message));
    }
    Ok(())
}

fn plan(context: &Context<'_>) -> Result<Placed, CampaignError> {
    let topology = Topology::read().at(Stage::Place, Cause::HostUnfit)?;
    let cores = context.definition().placement.cores_per_process;
    let housekeeping = match (context.definition().placement.housekeeping, context.executor) {
        // Nothing is timed here; a place to submit from may be a single core.
        (_, Executor::Slurm) | (definition::Housekeeping::Given, _) => Housekeeping::Given,
        (definition::Housekeeping::Kept, _) => Housekeeping::Kept,
    };
    let most = PROCESSES_PER_ROW * context.definition().rows.len().max(1);
    let plan = widest_plan(&topology, cores, housekeeping, most).at(Stage::Place, Cause::HostUnfit)?;
    let measured = measured_set(context, &topology, &plan)?;
    let mut correctness: Vec<CpuSet> = plan.sets.iter().map(|set| set.cpus.clone()).collect();
    let mut notes = topology.notes.clone();
    // Nothing is timed while repetitions run, so the housekeeping core may help.
    let spare = plan.housekeeping.intersection(&topology.allowed);
    if correctness.len() < most && cores == 1 && !spare.is_empty() {
        correctness.push(spare);
        notes.push("repetitions also use the housekeeping core; measured processes never do".to_owned());
    }
    let record = PlaceRecord {
        host: host()?,
        plan: serde_json::to_value(&plan).at(Stage::Place, Cause::Bug)?,
        correctness_cpus: correctness.iter().map(CpuSet::to_string).collect(),
        measured_cpus: measured.to_string(),
        notes,
    };
    Ok(Placed { correctness, measured, record })
}

/// As many sets as can run at once, and at least the one that is measured on.
fn widest_plan(
    topology: &Topology,
    cores: usize,
    housekeeping: Housekeeping,
    most: usize,
) -> Result<Plan, cpu_placement::PlanError> {
    let request =
        |sets| PlanRequest::uniform(sets, cores).siblings(Siblings::Idle).housekeeping(housekeeping);
    let narrower = (2..=most).rev().find_map(|sets| Plan::new(topology, &request(sets)).ok());
    narrower.map_or_else(|| Plan::new(topology, &request(1)), Ok)
}

fn measured_set(context: &Context<'_>, topology: &Topology, plan: &Plan) -> Result<CpuSet, CampaignError> {
    let Some(text) = &context.definition().placement.measured_cpus else {
        let first = plan.sets.first().map(|set| set.cpus.clone());
        return first.ok_or("the plan has no set").at(Stage::Place, Cause::Bug);
    };
    let wanted: CpuSet = text.parse().at(Stage::Place, Cause::BadInput)?;
    let outside = wanted.difference(&topology.allowed);
    if wanted.is_empty() || !outside.is_empty() {
        let message =
            format!("placement.measured_cpus {text}: this process may only use {}", topology.allowed);
        return Err(CampaignError::new(Stage::Place, Cause::HostUnfit, message));
    }
    Ok(wanted)
}

/// The host as a reader may see it: without its name.
fn host() -> Result<serde_json::Value, CampaignError> {
    let mut host = HostRecord::read();
    host.host_name = None;
    serde_json::to_value(&host).at(Stage::Place, Cause::Bug)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(host: serde_json::Value, measured: &str) -> PlaceRecord {
        PlaceRecord {
            host,
            plan: serde_json::json!({ "sets": [] }),
            correctness_cpus: Vec::new(),
            measured_cpus: measured.into(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_campaign_stays_on_its_host_and_cpus() {
        let host = |kernel: &str, boot: &str| serde_json::json!({ "kernel": kernel, "boot_id": boot });
        let began = record(host("6.1", "a"), "1");
        assert!(
            refuse_another_host(&began, &record(host("6.1", "b"), "1")).is_ok(),
            "a restart is no other host"
        );
        for (found, says) in [
            (record(host("6.2", "a"), "1"), "the host is another than when this campaign began: kernel"),
            (record(host("6.1", "a"), "2"), "processes would run on CPUs 2, this campaign began on 1"),
        ] {
            let error = refuse_another_host(&began, &found).expect_err(says);
            assert_eq!(error.cause, Cause::HostUnfit);
            assert!(
                crate::error::with_causes(&error).contains(says),
                "{}",
                crate::error::with_causes(&error)
            );
        }
    }
}
