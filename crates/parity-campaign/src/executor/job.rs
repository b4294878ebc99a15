//! What every job does around its work: it says who it is, works in a folder of the node, and leaves its exit record.

use std::path::Path;

use canonical_json::Sha256;
use cpu_placement::{CancelToken, NodeLock};
use evidence::Bundle;

use super::attempt::{Attempt, ENDED, RowEnded, RowStarted, STARTED};
use super::job_id::JobId;
use super::order::{self, CANCELLED, Order, Work};
use super::row::seen_of;
use crate::campaign::written_by;
use crate::context::{Context, Earlier, Options, Progress};
use crate::definition::CampaignFile;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::executor::slurm::Slurm;
use crate::stage::Stage;

/// Where a job runs, as the scheduler told it.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) job_id: JobId,
    restart: u32,
    node: String,
}

impl Allocation {
    pub(crate) fn of_environment() -> Result<Self, CampaignError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str| variable(name).and_then(|value| value.parse::<u64>().ok());
        let missing = |name: &str| {
            let message = format!("{name} is not set: this is done inside a job of Slurm");
            CampaignError::new(Stage::Place, Cause::BadInput, message)
        };
        let small = |number: u64| u32::try_from(number).at(Stage::Place, Cause::BadInput);
        let task = number("SLURM_ARRAY_TASK_ID").map(small).transpose()?;
        // A task of an array has a number of its own besides, which nobody knows before it runs.
        let named = if task.is_some() { "SLURM_ARRAY_JOB_ID" } else { "SLURM_JOB_ID" };
        Ok(Allocation {
            job_id: JobId { number: number(named).ok_or_else(|| missing(named))?, task },
            restart: small(number("SLURM_RESTART_COUNT").unwrap_or(0))?,
            node: variable("SLURMD_NODENAME").ok_or_else(|| missing("SLURMD_NODENAME"))?,
        })
    }
}

/// One attempt at some work in this job.
pub(crate) struct Job<'a> {
    pub(crate) jobs: &'a Path,
    pub(crate) order: &'a Order,
    pub(crate) file: &'a CampaignFile,
    pub(crate) work: Work<'a>,
    pub(crate) earlier: &'a [Attempt],
    pub(crate) allocation: &'a Allocation,
}

impl Job<'_> {
    fn settings(&self) -> Slurm {
        self.file.definition.slurm.clone().unwrap_or_default()
    }

    /// Where a job works: on the storage of its node.
    pub(crate) fn options(&self) -> Options {
        let settings = self.settings();
        let mut options = Options::new(self.jobs);
        options.staging = settings.staging;
        options.profile = self.order.profile;
        options.node_lock = settings.node_lock.unwrap_or_else(NodeLock::default_directory);
        options
    }

    /// Whether there is nothing left to do: another attempt is complete, or somebody has cancelled the campaign.
    pub(crate) fn is_idle(&self) -> bool {
        self.earlier.iter().any(Attempt::is_complete) || self.jobs.join(CANCELLED).exists()
    }

    /// Does the work in a bundle of its own and seals it; whatever happens is in its exit record.
    pub(crate) fn run(
        &self,
        options: &Options,
        cancel: &CancelToken,
        progress: &mut dyn Progress,
        body: impl FnOnce(&mut Context<'_>) -> Result<(), CampaignError>,
    ) -> Result<(), CampaignError> {
        let allocation = self.allocation;
        let dir = Attempt::folder(self.jobs, self.work, allocation.job_id, allocation.restart);
        let bundle = Bundle::create(&dir).at(Stage::Run, Cause::HostUnfit)?;
        bundle.append(STARTED, &self.started()?).at(Stage::Run, Cause::HostUnfit)?;
        crate::scratch::remove_leftover_scratch(&options.staging).at(Stage::Run, Cause::HostUnfit)?;
        let scratch = tempfile::Builder::new()
            .prefix("kvrp-job-")
            .tempdir_in(&options.staging)
            .at(Stage::Run, Cause::HostUnfit)?;
        let seen = self.seen(&bundle)?;
        let mut context =
            Context::of_job(self.file, options, bundle, scratch.path(), cancel, progress, seen)?;
        let result = self.refuse_endless_restarts().and_then(|()| body(&mut context));
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
        let own = order::own_program()?;
        Ok(RowStarted {
            campaign_id: self.order.campaign_id.clone(),
            campaign_sha256: self.file.sha256,
            row: self.work.row().map(str::to_owned),
            job_id: self.allocation.job_id,
            restart: self.allocation.restart,
            node: self.allocation.node.clone(),
            parity_sha256: Sha256::of_file(&own).at(Stage::Run, Cause::HostUnfit)?.0,
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
        let (job, node) = (self.allocation.job_id, &self.allocation.node);
        let message = format!(
            "job {job} on {node} does not begin: it was interrupted {before} times and may start again {allowed} times"
        );
        Err(self.work.error(Cause::HostUnfit, message))
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
            "schema": "kvrp.row-order.v2",
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
        let job_id = JobId { number: 1, task: Some(0) };
        let allocation = Allocation { job_id, restart: 0, node: "n1".to_owned() };
        for (word, expected) in
            [("on-fail", ProfileWhen::OnFail), ("always", ProfileWhen::Always), ("never", ProfileWhen::Never)]
        {
            let order = order(word);
            let (jobs, work, earlier) = (Path::new("jobs"), Work::Row("vllm-aggregated"), &[]);
            let job = Job { jobs, order: &order, file: &file, work, earlier, allocation: &allocation };
            assert_eq!(job.options().profile, expected);
        }
    }
}
