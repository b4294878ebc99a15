//! The qualification search: one capacity, probed around a seed on the baseline only (Q4).
//!
//! The response to capacity is not monotonic, so every value of the neighbourhood is probed, and the rule that picks one is
//! fixed before anything runs: among those that qualify, the nearest to the seed, and of two the larger. The value is then
//! frozen and held against the candidate, which may fail with it but never chooses.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use cpu_placement::CpuSet;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::coverage::{Coverage, WorkloadTotals};
use crate::definition::Row;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::record::{Both, Side};
use crate::stage::Stage;
use crate::stage::judge::expectation;
use crate::stage::run::{Repetition, Workload, one_repetition};

/// The journal's kind of a [`Probe`].
pub(crate) const PROBE_KIND: &str = "qualify.probe";

/// The values to probe: `steps` on each side of the seed, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbourhood {
    /// The value to start from.
    pub seed: u64,
    /// Distance between two values.
    pub step: u64,
    /// Values on each side.
    pub steps: u64,
}

impl Neighbourhood {
    /// From the smallest to the largest; none below 1.
    #[must_use]
    pub fn values(&self) -> Vec<u64> {
        let below = (1..=self.steps).rev().filter_map(|at| self.seed.checked_sub(at.checked_mul(self.step)?));
        let above = (0..=self.steps).filter_map(|at| self.seed.checked_add(at.checked_mul(self.step)?));
        let mut values: Vec<u64> = below.chain(above).filter(|value| *value > 0).collect();
        values.dedup();
        values
    }

    /// Among values that qualify, the nearest to the seed, and of two the larger.
    fn choose(&self, probes: &[Probe]) -> Option<u64> {
        let qualified = probes.iter().filter(|probe| probe.qualifies()).map(|probe| probe.num_gpu_blocks);
        qualified.min_by_key(|value| (value.abs_diff(self.seed), std::cmp::Reverse(*value)))
    }
}

/// One run of one revision with one capacity: a journal record of kind `qualify.probe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probe {
    /// The revision.
    pub side: Side,
    /// KV blocks per worker.
    pub num_gpu_blocks: u64,
    /// Preemptions or retractions, if the report could be read.
    pub pressure_events: Option<String>,
    /// Requests that reused cached blocks, if the report could be read.
    pub requests_with_reuse: Option<String>,
    /// Why the row does not qualify with this value; empty if it does.
    pub against: Vec<String>,
}

impl Probe {
    /// Whether every item of coverage held.
    #[must_use]
    pub fn qualifies(&self) -> bool {
        self.against.is_empty()
    }
}

/// `records/qualify-ROW.json`: a search and what it froze.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Qualification {
    /// The row.
    pub row: String,
    /// What was probed.
    pub neighbourhood: Neighbourhood,
    /// The response of the baseline, by capacity.
    pub probes: Vec<Probe>,
    /// The capacity that the rule picked on the baseline.
    pub chosen: Option<u64>,
    /// The candidate with the chosen capacity.
    pub candidate: Option<Probe>,
}

impl Qualification {
    /// Whether a value was found and both revisions qualify with it.
    #[must_use]
    pub fn is_qualified(&self) -> bool {
        self.chosen.is_some() && self.candidate.as_ref().is_some_and(Probe::qualifies)
    }
}

/// What every probe needs.
pub(crate) struct Search<'a> {
    pub(crate) row: &'a Row,
    pub(crate) harness: &'a Both<std::path::PathBuf>,
    pub(crate) trace: &'a Path,
    pub(crate) totals: WorkloadTotals,
    pub(crate) sets: &'a [CpuSet],
}

/// Probes the neighbourhood on the baseline, freezes a value, and holds it against the candidate.
pub(crate) fn search(
    context: &mut Context<'_>,
    search: &Search<'_>,
    neighbourhood: Neighbourhood,
) -> Result<Qualification, CampaignError> {
    let values = neighbourhood.values();
    context.progress.note(&format!("row {}: {} capacities on the baseline", search.row.name, values.len()));
    let mut probes = probe_all(context, search, Side::Baseline, values)?;
    probes.sort_by_key(|probe| probe.num_gpu_blocks);
    let chosen = neighbourhood.choose(&probes);
    let candidate = match chosen {
        Some(value) => {
            context.progress.note(&format!("row {}: {value} on the candidate", search.row.name));
            probe_all(context, search, Side::Candidate, vec![value])?.pop()
        }
        None => None,
    };
    let found = Qualification { row: search.row.name.clone(), neighbourhood, probes, chosen, candidate };
    context.record(Stage::Qualify, &format!("records/qualify-{}.json", search.row.name), &found)?;
    Ok(found)
}

/// Probes run at once, one per CPU set: nothing is timed.
fn probe_all(
    context: &Context<'_>,
    search: &Search<'_>,
    side: Side,
    values: Vec<u64>,
) -> Result<Vec<Probe>, CampaignError> {
    let queue = Mutex::new(VecDeque::from(values));
    let (sender, receiver) = mpsc::channel();
    let cancel = context.cancel;
    let (definition, work) = (context.definition(), context.work.clone());
    let mut probes = Vec::new();
    thread::scope(|scope| {
        for set in search.sets {
            let (sender, queue, work) = (sender.clone(), &queue, &work);
            scope.spawn(move || {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(value) = next.filter(|_| !cancel.is_cancelled()) else { return };
                    let row = Row { num_gpu_blocks: value, ..search.row.clone() };
                    let folder = work.join("probes").join(format!("{}-{value}", side.letter()));
                    let workload = Workload {
                        definition,
                        row: &row,
                        harness: search.harness,
                        trace: search.trace,
                        folder: &folder,
                        cancel,
                    };
                    let probed = one_repetition(&workload, side, 1, set)
                        .and_then(|repetition| judge(&workload, &repetition, search.totals));
                    if sender.send(probed).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for probe in receiver {
            let probe = probe.map_err(|error| error.in_row(&search.row.name))?;
            context.append(Stage::Qualify, PROBE_KIND, &probe)?;
            probes.push(probe);
        }
        Ok::<(), CampaignError>(())
    })?;
    if cancel.is_cancelled() {
        return Err(CampaignError::cancelled(Stage::Qualify).in_row(&search.row.name));
    }
    Ok(probes)
}

/// What one run proves; its report is not kept.
fn judge(
    workload: &Workload<'_>,
    repetition: &Repetition,
    totals: WorkloadTotals,
) -> Result<Probe, CampaignError> {
    let blank = |against: Vec<String>| Probe {
        side: repetition.side,
        num_gpu_blocks: workload.row.num_gpu_blocks,
        pressure_events: None,
        requests_with_reuse: None,
        against,
    };
    if let Some(fault) = &repetition.record.fault {
        return Ok(blank(vec![fault.clone()]));
    }
    let report = fs::read(&repetition.report).at(Stage::Qualify, Cause::HostUnfit)?;
    fs::remove_dir_all(workload.folder).at(Stage::Qualify, Cause::HostUnfit)?;
    let line = report.strip_suffix(b"\n").unwrap_or(&report);
    let coverage = match Coverage::check(line, &expectation(workload.definition, workload.row, totals)) {
        Ok(coverage) => coverage,
        Err(error) => return Ok(blank(vec![with_causes(&error)])),
    };
    let failures = coverage.failures().chain(coverage.reviews());
    let counter = |name| coverage.counter(name).map(ToString::to_string);
    Ok(Probe {
        pressure_events: counter("pressure_events"),
        requests_with_reuse: counter("requests_with_reuse"),
        ..blank(failures.map(|(id, finding)| format!("{id}: {finding}")).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(num_gpu_blocks: u64, qualifies: bool) -> Probe {
        Probe {
            side: Side::Baseline,
            num_gpu_blocks,
            pressure_events: None,
            requests_with_reuse: None,
            against: if qualifies { Vec::new() } else { vec!["flood".into()] },
        }
    }

    #[test]
    fn a_neighbourhood_has_its_seed_in_the_middle_and_nothing_below_one() {
        let values = |seed, step, steps| Neighbourhood { seed, step, steps }.values();
        assert_eq!(values(100, 10, 2), [80, 90, 100, 110, 120]);
        assert_eq!(values(15, 10, 3), [5, 15, 25, 35, 45]);
        assert_eq!(values(7, 1, 0), [7]);
        assert_eq!(values(u64::MAX, 1, 1), [u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn the_rule_picks_the_nearest_and_of_two_the_larger() {
        let at = Neighbourhood { seed: 100, step: 10, steps: 2 };
        for (probes, chosen) in [
            (vec![probe(80, true), probe(90, true), probe(110, true)], Some(110)),
            (vec![probe(80, true), probe(100, false), probe(120, false)], Some(80)),
            (vec![probe(100, true), probe(110, true)], Some(100)),
            (vec![probe(90, false), probe(100, false)], None),
        ] {
            assert_eq!(at.choose(&probes), chosen, "{probes:?}");
        }
    }
}
