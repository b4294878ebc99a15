//! Rows as Slurm jobs: submitted once, followed until each has left its evidence, and taken over one by one.
//!
//! What Slurm says of a job decides only whether a row must start again. What happened in it is said by its own exit record.
//! All rows that wait for a job are tasks of one array, so that they are submitted at once or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_placement::CancelToken;
use serde::{Deserialize, Serialize};

use super::job_id::JobId;
use super::merge::Merged;
use super::order::{self, CANCELLED, Order};
use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::classify::Proofs;
use crate::stage::pin::Checkouts;
use crate::stage::slice::Sliced;

pub(crate) mod client;
mod driver;
mod options;
mod settings;
pub(crate) mod text;

use client::{Client, SlurmError};
pub(crate) use driver::Driver;
use driver::end_jobs;
pub use settings::{BuildWhere, Condition, Slurm};

/// The journal's kinds of what is done to jobs.
pub(crate) const SUBMITTED: &str = "slurm.submitted";
pub(crate) const ENDED: &str = "slurm.ended";
pub(crate) const FAILED: &str = "slurm.failed";
pub(crate) const MERGE: &str = "slurm.merge";

/// Why a job was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Because {
    /// The row had none.
    First,
    /// One was found that an earlier process submitted and did not come to record.
    Found,
    /// A predeclared condition ended the one before.
    Restart,
    /// The one before failed, and the campaign was resumed since.
    Resumed,
}

/// `slurm.submitted`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Submitted {
    /// The row; none of a job that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row: Option<String>,
    job_id: JobId,
    because: Because,
    /// The options, without paths of this machine.
    options: Vec<String>,
}

/// `slurm.ended`: what Slurm said of a job that left no evidence.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Ended {
    /// The row; none of a job that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row: Option<String>,
    job_id: JobId,
    state: String,
    /// The predeclared condition, if it is one; otherwise the row may not start again by itself.
    condition: Option<Condition>,
    /// Whether this campaign ended it, or it waited for a job that did not end well: that is no interruption of the row.
    #[serde(default)]
    by_us: bool,
    /// Slurm's name of the node that it had last, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl Ended {
    /// What ended it, in words.
    fn describe(&self, settings: &Slurm) -> String {
        let (job, on) =
            (self.job_id, self.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default());
        let minutes = settings.time_limit_min.filter(|_| self.row.is_some());
        match (self.condition, minutes) {
            (Some(Condition::TimeLimit), Some(minutes)) => {
                format!("job {job}{on} met its time limit of {minutes} min (slurm.time_limit_min)")
            }
            (Some(Condition::TimeLimit), None) => format!("job {job}{on} met its time limit"),
            (Some(condition), _) => format!("job {job}{on} was ended ({})", condition.name()),
            (None, _) => format!("job {job}{on} left no evidence ({})", self.state),
        }
    }
}

/// `slurm.failed`: a job said itself why it could not go on, and the campaign ended with that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct FailedJob {
    /// The row; none of a job that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row: Option<String>,
    job_id: JobId,
}

/// `slurm.merge`: the job that takes the rows over once these have ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct MergeSubmitted {
    job_id: JobId,
    after: Vec<JobId>,
}

/// Slurm's fault, not the definition's.
fn unfit(error: SlurmError) -> CampaignError {
    match error {
        SlurmError::Cancelled { .. } => CampaignError::cancelled(Stage::Run),
        error => CampaignError::new(Stage::Run, Cause::HostUnfit, error),
    }
}

/// Whether both revisions are built in a job.
pub(crate) fn builds_in_job(context: &Context<'_>) -> bool {
    let settings = context.definition().slurm.as_ref();
    context.executor == super::Executor::Slurm && settings.is_some_and(|slurm| slurm.build == BuildWhere::Job)
}

/// Connects to Slurm, and makes or finds the folder that the campaign shares with its jobs.
fn begin(context: &mut Context<'_>, built: Option<&Built>, sliced: &Sliced) -> Result<Driver, CampaignError> {
    let client = Client::connect(context.cancel).map_err(unfit)?;
    let (jobs, order) = order::write(context, built, sliced)?;
    // From here on there may be jobs: what they work with outlives this process.
    context.jobs_outstanding = true;
    let (year, month) = client.version();
    let id = &order.campaign_id;
    context
        .progress
        .note(&format!("Slurm {year}.{month:02}; the rows of this campaign are jobs named kvrp-{id}"));
    Driver::new(context, client, jobs, order)
}

/// Lets a job build both revisions, and takes the artifacts over. The rows are submitted too: they wait for it.
pub(crate) fn build(
    context: &mut Context<'_>,
    pinned: &Checkouts,
    sliced: &Sliced,
) -> Result<(Built, Driver), CampaignError> {
    let mut driver = begin(context, None, sliced)?;
    driver.follow_build(context)?;
    let built = driver.take_build(context, pinned)?;
    Ok((built, driver))
}

/// Works every row off in jobs and takes the evidence over; a driver that followed a build goes on.
pub(crate) fn rows(
    context: &mut Context<'_>,
    driver: Option<Driver>,
    built: &Built,
    sliced: &Sliced,
    proofs: &mut Proofs,
) -> Result<Vec<Merged>, CampaignError> {
    let mut driver = match driver {
        Some(driver) => driver,
        None => begin(context, Some(built), sliced)?,
    };
    let merged = driver.follow(context, proofs)?;
    context.jobs_outstanding = false;
    Ok(merged)
}

/// What a campaign that goes on without a driver left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Detached {
    /// The job that builds, if one does.
    pub build: Option<JobId>,
    /// The jobs of the rows, in order.
    pub rows: Vec<JobId>,
    /// The job that takes the rows over once all of them have ended.
    pub merge: JobId,
}

/// Submits every row, and one more job that resumes the campaign once all of them have ended. Without artifacts, a job that
/// builds comes first.
pub(crate) fn submit_all(
    context: &mut Context<'_>,
    built: Option<&Built>,
    sliced: &Sliced,
    campaign: &Path,
) -> Result<Detached, CampaignError> {
    begin(context, built, sliced)?.submit_all(context, built.is_none(), campaign)
}

/// Ends every job of a campaign whose evidence is in `out`.
///
/// A driver that is following them ends with the campaign; without one, nothing else changes, and the campaign can be resumed.
/// Returns the names of the jobs.
///
/// # Errors
///
/// The folder is not of a campaign whose rows were given to Slurm, or Slurm did not do it.
pub fn cancel_campaign(out: &Path) -> Result<Vec<String>, CampaignError> {
    let jobs = jobs_of(out)?;
    let order = Order::read(&jobs)?;
    let client = Client::connect(&CancelToken::new()).map_err(unfit)?;
    fs::write(jobs.join(CANCELLED), b"").at(Stage::Run, Cause::HostUnfit)?;
    let settings =
        crate::definition::CampaignFile::read(&order::campaign(&jobs)).at(Stage::Run, Cause::BadInput)?;
    let settings = settings.definition.slurm.unwrap_or_default();
    // The job that would take the rows over first: it must not start because they end.
    client.cancel(&[order.merge_name()], &CancelToken::new()).map_err(unfit)?;
    end_jobs(&client, &order.job_names(), Duration::from_secs(settings.patience_s))?;
    let builds = settings.build == BuildWhere::Job;
    let named =
        order.job_names().into_iter().filter(|name| builds || *name != order.job_name(order::Work::Build));
    Ok(named.collect())
}

/// The folder that a campaign shares with its jobs.
pub(crate) fn jobs_of(out: &Path) -> Result<PathBuf, CampaignError> {
    let out = fs::canonicalize(out)
        .map_err(|error| format!("{}: {error}", out.display()))
        .at(Stage::Run, Cause::BadInput)?;
    let jobs = out.join(evidence::SCRATCH).join(order::JOBS);
    if jobs.is_dir() {
        return Ok(jobs);
    }
    let message = "no job of this campaign is outstanding";
    Err(CampaignError::new(Stage::Run, Cause::BadInput, message))
}
