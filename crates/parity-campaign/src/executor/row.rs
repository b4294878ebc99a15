//! One row from an order to a sealed bundle of its own, in a job on whatever node the scheduler gave (N1, M2, X1).

use std::fs;
use std::path::Path;

use canonical_json::Sha256;
use cpu_placement::{CancelToken, NodeLock};
use evidence::{Bundle, Record};
use paired_run::{Event, PairedRun, RunOutcome, events_of};

use super::attempt::{Attempt, ENDED, RowEnded, RowStarted, STARTED};
use super::order::{self, CANCELLED, Order};
use crate::campaign::{measurable, written_by};
use crate::context::{Context, Earlier, Options, Progress};
use crate::coverage::WorkloadTotals;
use crate::definition::{CampaignFile, Row};
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::exception::Exception;
use crate::executor::slurm::Slurm;
use crate::record::{Both, Measurable, MeasureRecord, PerformanceVerdict, RowRecord};
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::classify::Proofs;
use crate::stage::judge::{CANONICAL_KIND, judge};
use crate::stage::measure::{self, not_measured, staged};
use crate::stage::place;
use crate::stage::run::{self, REPETITION_KIND};
use crate::stage::slice::Sliced;

/// Where a job runs, as the scheduler told it.
#[derive(Clone, Debug)]
struct Allocation {
    job_id: u64,
    restart: u32,
    node: String,
}

impl Allocation {
    fn of_environment() -> Result<Self, CampaignError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str| variable(name).and_then(|value| value.parse::<u64>().ok());
        let missing = |name: &str| {
            let message = format!("{name} is not set: a row is worked off inside a job of Slurm");
            CampaignError::new(Stage::Place, Cause::BadInput, message)
        };
        let restart = number("SLURM_RESTART_COUNT").unwrap_or(0);
        Ok(Allocation {
            job_id: number("SLURM_JOB_ID").ok_or_else(|| missing("SLURM_JOB_ID"))?,
            restart: u32::try_from(restart).at(Stage::Place, Cause::BadInput)?,
            node: variable("SLURMD_NODENAME").ok_or_else(|| missing("SLURMD_NODENAME"))?,
        })
    }
}

/// Works off one row of a campaign inside its job; `jobs` is the folder that the campaign shares with its jobs.
///
/// The bundle of the attempt, its journal and its exit record are below `jobs`. A row that another attempt has finished is
/// left alone.
///
/// # Errors
///
/// The row could not be worked off; the exit record says the same. A harness that fails is not an error: the row's record
/// says so.
pub fn run_row(
    jobs: &Path,
    row: &str,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<(), CampaignError> {
    let allocation = Allocation::of_environment()?;
    let order = Order::read(jobs)?;
    let file = CampaignFile::read(&order::campaign(jobs)).at(Stage::Run, Cause::BadInput)?;
    if file.sha256 != order.campaign_sha256 || !order.rows.iter().any(|known| known == row) {
        let message = format!("the order is not of this campaign file, or has no row {row:?}");
        return Err(CampaignError::new(Stage::Run, Cause::BadInput, message));
    }
    let earlier = Attempt::list(jobs, row)?;
    if earlier.iter().any(Attempt::is_complete) || jobs.join(CANCELLED).exists() {
        progress.note("there is nothing to do");
        return Ok(());
    }
    let dir = Attempt::folder(jobs, row, allocation.job_id, allocation.restart);
    let bundle = Bundle::create(&dir).at(Stage::Run, Cause::HostUnfit)?;
    let job = Job { jobs, order: &order, file: &file, row, earlier: &earlier, allocation: &allocation };
    job.work_off(bundle, cancel, progress)
}

struct Job<'a> {
    jobs: &'a Path,
    order: &'a Order,
    file: &'a CampaignFile,
    row: &'a str,
    earlier: &'a [Attempt],
    allocation: &'a Allocation,
}

impl Job<'_> {
    fn settings(&self) -> Slurm {
        self.file.definition.slurm.clone().unwrap_or_default()
    }

    fn options(&self) -> Options {
        let settings = self.settings();
        let mut options = Options::new(self.jobs);
        options.staging = settings.staging;
        options.profile = self.order.profile;
        options.node_lock = settings.node_lock.unwrap_or_else(NodeLock::default_directory);
        options
    }

    fn work_off(
        &self,
        bundle: Bundle,
        cancel: &CancelToken,
        progress: &mut dyn Progress,
    ) -> Result<(), CampaignError> {
        bundle.append(STARTED, &self.started()?).at(Stage::Run, Cause::HostUnfit)?;
        let options = self.options();
        crate::scratch::remove_leftover_scratch(&options.staging).at(Stage::Run, Cause::HostUnfit)?;
        let scratch = tempfile::Builder::new()
            .prefix("kvrp-row-")
            .tempdir_in(&options.staging)
            .at(Stage::Run, Cause::HostUnfit)?;
        let seen = self.seen(&bundle)?;
        let mut context =
            Context::of_row(self.file, &options, bundle, scratch.path(), cancel, progress, seen)?;
        let result = self.refuse_endless_restarts().and_then(|()| self.stages(&mut context));
        let ended = match &result {
            Ok(()) => RowEnded::Complete,
            Err(error) => RowEnded::of(error, context.hide_paths(&with_causes(error))),
        };
        let recorded = context.append(Stage::Report, ENDED, &ended);
        result?;
        recorded?;
        let Context { bundle, .. } = context;
        scratch.close().at(Stage::Cleanup, Cause::HostUnfit)?;
        bundle.seal().map(drop).at(Stage::Report, Cause::HostUnfit)
    }

    fn started(&self) -> Result<RowStarted, CampaignError> {
        let own = std::env::current_exe().and_then(|path| Sha256::of_file(&path));
        Ok(RowStarted {
            campaign_id: self.order.campaign_id.clone(),
            campaign_sha256: self.file.sha256,
            row: self.row.to_owned(),
            job_id: self.allocation.job_id,
            restart: self.allocation.restart,
            node: self.allocation.node.clone(),
            parity_sha256: own.at(Stage::Run, Cause::HostUnfit)?.0,
            written_by: written_by(),
        })
    }

    /// Slurm puts a job back into the queue as often as it likes; the definition says how often that may count.
    fn refuse_endless_restarts(&self) -> Result<(), CampaignError> {
        let allowed = self.settings().restarts_per_row;
        let interrupted = |attempt: &&Attempt| !matches!(attempt.ended(), Some(RowEnded::Failed { .. }));
        let before = self.earlier.iter().filter(interrupted).count();
        if u32::try_from(before).is_ok_and(|before| before <= allowed) {
            return Ok(());
        }
        let message = format!("it was interrupted {before} times and may start again {allowed} times");
        Err(CampaignError::new(Stage::Run, Cause::HostUnfit, message).in_row(self.row))
    }

    /// What attempts before this one saw of the row is not undone by starting again (D4): it goes into this bundle too.
    fn seen(&self, bundle: &Bundle) -> Result<Earlier, CampaignError> {
        let seen = seen_of(self.earlier);
        for record in &seen {
            let payload: serde_json::Value = record.payload().at(Stage::Run, Cause::HostUnfit)?;
            bundle.append(&record.kind, &payload).at(Stage::Run, Cause::HostUnfit)?;
        }
        Ok(Earlier::of(seen))
    }

    /// A measurement of an earlier attempt in which the product failed: that is not undone either.
    fn failed_measurement(&self) -> Result<Option<(Vec<Event>, String)>, CampaignError> {
        let kind = format!("measure.{}", self.row);
        for attempt in self.earlier {
            let events = events_of(&attempt.records, &kind).at(Stage::Measure, Cause::HostUnfit)?;
            let run = PairedRun::resume(self.file.definition.measure.run.clone(), &events)
                .at(Stage::Measure, Cause::HostUnfit)?;
            if let Some(RunOutcome::Failed { attempt, failure }) = run.outcome() {
                return Ok(Some((events, format!("{attempt}: {failure}"))));
            }
        }
        Ok(None)
    }

    fn row(&self) -> Result<&Row, CampaignError> {
        let row = self.file.definition.rows.iter().find(|row| row.name == self.row);
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
        if let Some((events, why)) = self.failed_measurement()? {
            for event in &events {
                context.append(Stage::Measure, &format!("measure.{}", row.name), event)?;
            }
            let blank = not_measured(definition, row, why);
            return Ok(MeasureRecord { verdict: PerformanceVerdict::Blocked, ..blank });
        }
        let node = context.timed(Stage::Measure, |context| measure::Node::prepare(context, built, sliced))?;
        measure::measure(context, &node, row, &decision, cpus)
    }

    /// Artifacts and trace on the node's own storage, each held against its recorded digest (M2).
    fn stage_inputs(&self, context: &Context<'_>) -> Result<(Built, Sliced), CampaignError> {
        let harness = Both::try_make(|side| {
            let folder = context.work.join("artifact").join(side.letter());
            fs::create_dir_all(&folder).at(Stage::Run, Cause::HostUnfit)?;
            let recorded = self.order.build.artifacts.get(side).sha256;
            staged(&order::harness(self.jobs, side), &folder.join("harness"), recorded)
        })?;
        let manifest = self.order.slice.clone();
        let path =
            staged(&order::trace(self.jobs), &context.work.join("trace.jsonl"), manifest.slice.sha256)?;
        let totals = WorkloadTotals {
            requests: manifest.slice.rows.get(),
            input_tokens: manifest.slice.input_tokens,
            output_tokens: manifest.slice.output_tokens,
        };
        let built = Built { harness, record: self.order.build.clone(), stops: Vec::new() };
        Ok((built, Sliced { path, manifest, totals }))
    }

    fn exceptions(&self) -> Result<Vec<Exception>, CampaignError> {
        let frozen = self.file.definition.exceptions.iter().enumerate();
        let read =
            frozen.map(|(index, frozen)| Exception::read(&order::exception(self.jobs, index), frozen.sha256));
        read.collect::<Result<_, _>>().at(Stage::Classify, Cause::BadInput)
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::profile::ProfileWhen;

    /// An order as it stands in the shared folder.
    fn order(profile: &str) -> Order {
        let sha256 = Sha256::of(b"harness");
        let artifact = json!({
            "sha256": sha256, "bytes": 7, "text_bytes": 3, "features": [], "wall_ms": 1, "details": {},
        });
        let slice = json!({
            "schema": mooncake_trace::SLICE_MANIFEST_SCHEMA,
            "schema_version": mooncake_trace::SLICE_MANIFEST_VERSION,
            "written_by": "a test",
            "source": { "sha256": sha256, "bytes": 1, "rows": 1, "known": null },
            "window": { "offset": 0, "count": 1 },
            "slice": {
                "sha256": sha256, "bytes": 1, "rows": 1, "first_timestamp_ms": 0, "last_timestamp_ms": 0,
                "input_tokens": 1, "output_tokens": 1, "hash_ids": 1, "rows_without_output": 0, "crlf_rows": 0,
                "ends_with_newline": true, "other_fields": {}, "known": null,
            },
            "rules": {
                "block_size": 512, "hash_count": "exact", "unknown_fields": "reject", "max_line_bytes": 1024,
            },
        });
        let order = json!({
            "schema": "kvrp.row-order.v1",
            "campaign_id": "0123456789ab",
            "campaign_sha256": sha256,
            "rows": ["vllm-aggregated"],
            "parity_sha256": sha256,
            "profile": profile,
            "build": {
                "artifacts": { "baseline": artifact, "candidate": artifact },
                "growth": { "size_ratio": 0.0, "text_ratio": 0.0 },
                "equal_artifacts": false,
                "differences": [],
            },
            "slice": slice,
        });
        serde_json::from_value(order).expect("an order")
    }

    #[test]
    fn a_job_profiles_when_the_campaign_was_told_to() {
        let campaigns = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/campaigns");
        let file = CampaignFile::read(&campaigns.join("dynamo-1.5.0-1.5.1.toml")).expect("a campaign");
        let allocation = Allocation { job_id: 1, restart: 0, node: "n1".to_owned() };
        for (word, expected) in
            [("on-fail", ProfileWhen::OnFail), ("always", ProfileWhen::Always), ("never", ProfileWhen::Never)]
        {
            let order = order(word);
            let (jobs, row, earlier) = (Path::new("jobs"), "vllm-aggregated", &[]);
            let job = Job { jobs, order: &order, file: &file, row, earlier, allocation: &allocation };
            assert_eq!(job.options().profile, expected);
        }
    }
}
