//! One row from an order to a sealed bundle of its own, in a job on whatever node the scheduler gave (N1, M2, X1).

use std::fs;
use std::path::Path;

use cpu_placement::CancelToken;
use evidence::Record;
use paired_run::{Event, PairedRun, RunDefinition, events_of};

use super::attempt::Attempt;
use super::job::{Allocation, Job};
use super::order::{self, Order, Work};
use crate::campaign::measurable;
use crate::context::{Context, Progress};
use crate::coverage::WorkloadTotals;
use crate::definition::{CampaignFile, Row};
use crate::error::{At, CampaignError, Cause};
use crate::exception::Exception;
use crate::record::{Both, Measurable, MeasureRecord, RowRecord};
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::classify::Proofs;
use crate::stage::judge::{CANONICAL_KIND, judge};
use crate::stage::measure::{self, not_measured, staged};
use crate::stage::place;
use crate::stage::run::{self, REPETITION_KIND};
use crate::stage::slice::Sliced;

/// Works off one row of a campaign inside its job; `jobs` is the folder that the campaign shares with its jobs. Which row is
/// said by the task of the array that the job is.
///
/// The bundle of the attempt, its journal and its exit record are below `jobs`. A row that another attempt has finished is
/// left alone.
///
/// # Errors
///
/// The row could not be worked off; the exit record says the same. A harness that fails is not an error: the row's record
/// says so.
pub fn run_row(jobs: &Path, cancel: &CancelToken, progress: &mut dyn Progress) -> Result<(), CampaignError> {
    let allocation = Allocation::of_environment()?;
    let order = Order::read(jobs)?;
    let file = CampaignFile::read(&order::campaign(jobs)).at(Stage::Run, Cause::BadInput)?;
    let task = allocation.job_id.task.and_then(|task| usize::try_from(task).ok());
    let row = task.and_then(|task| order.rows.get(task));
    let Some(row) = row.filter(|_| file.sha256 == order.campaign_sha256) else {
        let message =
            format!("the order is not of this campaign file, or has no row for job {}", allocation.job_id);
        return Err(CampaignError::new(Stage::Run, Cause::BadInput, message));
    };
    let work = Work::Row(row);
    let earlier = Attempt::list(jobs, work)?;
    let job = Job { jobs, order: &order, file: &file, work, earlier: &earlier, allocation: &allocation };
    if job.is_idle() {
        progress.note("there is nothing to do");
        return Ok(());
    }
    let row = RowJob { job: &job, row };
    job.run(&job.options(), cancel, progress, |context| row.stages(context))
}

struct RowJob<'a> {
    job: &'a Job<'a>,
    row: &'a str,
}

impl RowJob<'_> {
    fn row(&self) -> Result<&Row, CampaignError> {
        let row = self.job.file.definition.rows.iter().find(|row| row.name == self.row);
        row.ok_or("the order has a row that the campaign file has not").at(Stage::Run, Cause::Bug)
    }

    fn stages(&self, context: &mut Context<'_>) -> Result<(), CampaignError> {
        let (built, sliced) = context.timed(Stage::Run, |context| self.stage_inputs(context))?;
        context.exceptions = self.exceptions()?;
        let placed = context.timed(Stage::Place, |context| place::place(context))?;
        let row = self.row()?;
        let repetitions = context.timed(Stage::Run, |context| {
            run::run(context, &[row], &built.harness, &sliced.path, &placed.correctness)
        })?;
        let repetitions: Vec<_> = repetitions.into_iter().flatten().collect();
        let missing = repetitions.iter().find_map(|repetition| repetition.metric_missing.clone());
        let record = judge(context, row, &repetitions, sliced.totals, &mut Proofs::new())?;
        let measured =
            self.measure(context, &record, missing.as_deref(), &built, &sliced, &placed.measured)?;
        context.record(Stage::Gate, &measure::record_path(row), &measured)
    }

    fn measure(
        &self,
        context: &mut Context<'_>,
        record: &RowRecord,
        missing: Option<&str>,
        built: &Built,
        sliced: &Sliced,
        cpus: &cpu_placement::CpuSet,
    ) -> Result<MeasureRecord, CampaignError> {
        let (definition, row) = (context.definition(), self.row()?);
        let decision = measurable(definition, record, missing);
        if let Measurable::No { reason } = decision {
            return Ok(not_measured(definition, row, reason));
        }
        if let Some((events, run)) = decided(self.job.earlier, row, &definition.measure.run)? {
            context.progress.note("an earlier attempt has brought the measurement to its end");
            for event in &events {
                context.append(Stage::Measure, &format!("measure.{}", row.name), event)?;
            }
            return measure::carried_over(definition, row, &decision, &run, &events);
        }
        let node = context.timed(Stage::Measure, |context| measure::Node::prepare(context, built, sliced))?;
        measure::measure(context, &node, row, &decision, cpus)
    }

    /// Artifacts and trace on the node's own storage, each held against its recorded digest (M2).
    fn stage_inputs(&self, context: &Context<'_>) -> Result<(Built, Sliced), CampaignError> {
        let record = self.job.order.built(self.job.jobs)?;
        let harness = Both::try_make(|side| {
            let folder = context.work.join("artifact").join(side.letter());
            fs::create_dir_all(&folder).at(Stage::Run, Cause::HostUnfit)?;
            let recorded = record.artifacts.get(side).sha256;
            staged(&order::harness(self.job.jobs, side), &folder.join("harness"), recorded)
        })?;
        let manifest = self.job.order.slice.clone();
        let path =
            staged(&order::trace(self.job.jobs), &context.work.join("trace.jsonl"), manifest.slice.sha256)?;
        let totals = WorkloadTotals {
            requests: manifest.slice.rows.get(),
            input_tokens: manifest.slice.input_tokens,
            output_tokens: manifest.slice.output_tokens,
        };
        let built = Built { harness, record, stops: Vec::new() };
        Ok((built, Sliced { path, manifest, totals }))
    }

    fn exceptions(&self) -> Result<Vec<Exception>, CampaignError> {
        let frozen = self.job.file.definition.exceptions.iter().enumerate();
        let read = frozen
            .map(|(index, frozen)| Exception::read(&order::exception(self.job.jobs, index), frozen.sha256));
        read.collect::<Result<_, _>>().at(Stage::Classify, Cause::BadInput)
    }
}

/// A measurement that one of these attempts brought to its end, well or badly. It is not made again: a row that was ended
/// between its last sample and its seal, as by a time limit that ran out over the profile of a slow candidate, would have
/// another draw (M7).
pub(crate) fn decided(
    attempts: &[Attempt],
    row: &Row,
    definition: &RunDefinition,
) -> Result<Option<(Vec<Event>, PairedRun)>, CampaignError> {
    let kind = format!("measure.{}", row.name);
    for attempt in attempts {
        let events = events_of(&attempt.records, &kind).at(Stage::Measure, Cause::HostUnfit)?;
        let run = PairedRun::resume(definition.clone(), &events).at(Stage::Measure, Cause::HostUnfit)?;
        if run.outcome().is_some() {
            return Ok(Some((events, run)));
        }
    }
    Ok(None)
}

/// The repetitions and digests that a series of attempts saw, in order. Each attempt repeats those before it, as far as it
/// came; one whose node only seemed to be gone may have added to them meanwhile.
pub(crate) fn seen_of(attempts: &[Attempt]) -> Vec<Record> {
    let mut seen: Vec<Record> = Vec::new();
    for attempt in attempts {
        let is_seen = |record: &&Record| record.kind == REPETITION_KIND || record.kind == CANONICAL_KIND;
        let own: Vec<Record> = attempt.records.iter().filter(is_seen).cloned().collect();
        let same = |two: (&Record, &Record)| {
            two.0.kind == two.1.kind && two.0.payload_json() == two.1.payload_json()
        };
        let common = seen.iter().zip(&own).take_while(|two| same(*two)).count();
        seen.extend(own.into_iter().skip(common));
    }
    seen
}
