//! Rows as Slurm jobs: submitted once, followed until each has left its evidence, and taken over one by one.
//!
//! What Slurm says of a job decides only whether a row must start again. What happened in it is said by its own exit record.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, RowEnded};
use super::merge::{Merged, keep_all, merge, merged_before};
use super::order::{self, CANCELLED, MERGE_SCRIPT_NAME, Order, SCRIPT_NAME};
use crate::context::Context;
use crate::definition::Row;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::classify::Proofs;
use crate::stage::slice::Sliced;

pub(crate) mod client;
mod settings;
pub(crate) mod text;

use client::{Client, SlurmError};
pub use settings::{Condition, Slurm};
use text::{Job, JobState};

/// The journal's kinds of what is done to jobs.
pub(crate) const SUBMITTED: &str = "slurm.submitted";
pub(crate) const ENDED: &str = "slurm.ended";
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
    row: String,
    job_id: u64,
    because: Because,
    /// The options, without paths of this machine.
    options: Vec<String>,
}

/// `slurm.ended`: what Slurm said of a job that left no evidence.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Ended {
    row: String,
    job_id: u64,
    state: String,
    /// The predeclared condition, if it is one; otherwise the row may not start again by itself.
    condition: Option<Condition>,
    /// Whether `parity cancel` ended it: that is no interruption of the row.
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
        match (self.condition, settings.time_limit_min) {
            (Some(Condition::TimeLimit), Some(minutes)) => {
                format!("job {job}{on} met its time limit of {minutes} min (slurm.time_limit_min)")
            }
            (Some(Condition::TimeLimit), None) => {
                format!("job {job}{on} met the time limit of its partition")
            }
            (Some(condition), _) => format!("job {job}{on} was ended ({})", condition.name()),
            (None, _) => format!("job {job}{on} left no evidence ({})", self.state),
        }
    }
}

/// `slurm.merge`: the job that takes the rows over once theirs have ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct MergeSubmitted {
    job_id: u64,
    after: Vec<u64>,
}

/// Slurm's fault, not the definition's.
fn unfit(error: SlurmError) -> CampaignError {
    match error {
        SlurmError::Cancelled { .. } => CampaignError::cancelled(Stage::Run),
        error => CampaignError::new(Stage::Run, Cause::HostUnfit, error),
    }
}

/// Works every row off in jobs and takes the evidence over.
pub(crate) fn rows(
    context: &mut Context<'_>,
    built: &Built,
    sliced: &Sliced,
    proofs: &mut Proofs,
) -> Result<Vec<Merged>, CampaignError> {
    let client = Client::connect(context.cancel).map_err(unfit)?;
    let (jobs, order) = order::write(context, built, sliced)?;
    // From here on there may be jobs: what they work with outlives this process.
    context.jobs_outstanding = true;
    let (year, month) = client.version();
    let id = &order.campaign_id;
    context
        .progress
        .note(&format!("Slurm {year}.{month:02}; the jobs of this campaign are named kvrp-{id}-ROW"));
    let mut driver = Driver::new(context, client, jobs, order)?;
    let merged = driver.follow(context, proofs)?;
    context.jobs_outstanding = false;
    Ok(merged)
}

/// What a campaign that goes on without a driver left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Detached {
    /// The jobs of the rows, in order.
    pub rows: Vec<u64>,
    /// The job that takes the rows over once all of them have ended.
    pub merge: u64,
}

/// Submits every row, and one more job that resumes the campaign once all of them have ended.
pub(crate) fn submit_all(
    context: &mut Context<'_>,
    built: &Built,
    sliced: &Sliced,
    campaign: &Path,
) -> Result<Detached, CampaignError> {
    let client = Client::connect(context.cancel).map_err(unfit)?;
    let (jobs, order) = order::write(context, built, sliced)?;
    context.jobs_outstanding = true;
    let mut driver = Driver::new(context, client, jobs, order)?;
    for row in &context.definition().rows {
        driver.submit(context, row, Because::First)?;
    }
    let rows: Vec<u64> = driver.submitted.iter().map(|one| one.job_id).collect();
    let merge = driver.submit_merge(context, &rows, campaign)?;
    Ok(Detached { rows, merge })
}

/// What the job that takes rows over may know of whoever submitted it.
const MERGE_ENVIRONMENT: &str =
    "PATH,HOME,USER,LOGNAME,SLURM_CONF,CARGO_HOME,RUSTUP_HOME,RUSTUP_TOOLCHAIN,KVRP_TRACES";

struct Driver {
    client: Client,
    jobs: PathBuf,
    order: Order,
    settings: Slurm,
    /// What this process and those before it submitted.
    submitted: Vec<Submitted>,
    /// Jobs that have ended and left no evidence.
    ended: BTreeMap<u64, Ended>,
    /// Jobs whose failure an earlier process of the campaign has reported.
    forgiven: BTreeSet<u64>,
    /// Since when a job has been unknown or without evidence.
    since: BTreeMap<u64, Instant>,
    /// What was last said of each row.
    said: BTreeMap<String, String>,
    /// Since when Slurm has not answered.
    silent_since: Option<Instant>,
}

impl Driver {
    fn new(
        context: &Context<'_>,
        client: Client,
        jobs: PathBuf,
        order: Order,
    ) -> Result<Self, CampaignError> {
        let earlier = context.earlier.as_ref();
        let submitted: Vec<Submitted> =
            earlier.map_or(Ok(Vec::new()), |earlier| earlier.payloads(SUBMITTED))?;
        let ended: Vec<Ended> = earlier.map_or(Ok(Vec::new()), |earlier| earlier.payloads(ENDED))?;
        let settings = context.definition().slurm.clone().unwrap_or_default();
        let mut forgiven = BTreeSet::new();
        for row in &context.definition().rows {
            let attempts = Attempt::list(&jobs, &row.name)?;
            let failed = |attempt: &&Attempt| matches!(attempt.ended(), Some(RowEnded::Failed { .. }));
            forgiven.extend(attempts.iter().filter(failed).map(|attempt| attempt.job_id));
        }
        // Neither memory nor a missing exit record is forgiven: they may be the product's doing.
        let mut driver = Driver {
            client,
            jobs,
            order,
            settings,
            submitted,
            ended: ended.into_iter().map(|ended| (ended.job_id, ended)).collect(),
            forgiven,
            since: BTreeMap::new(),
            said: BTreeMap::new(),
            silent_since: None,
        };
        if driver.jobs.join(CANCELLED).exists() {
            driver.note_cancelled(context)?;
            fs::remove_file(driver.jobs.join(CANCELLED)).at(Stage::Run, Cause::HostUnfit)?;
        }
        Ok(driver)
    }

    /// Jobs that `parity cancel` ended are over, and that is not held against their rows.
    fn note_cancelled(&mut self, context: &Context<'_>) -> Result<(), CampaignError> {
        let over: Vec<Submitted> =
            self.submitted.iter().filter(|one| !self.is_over(one.job_id)).cloned().collect();
        for Submitted { row, job_id, .. } in over {
            let (state, condition) = ("cancelled".to_owned(), Some(Condition::Cancelled));
            self.record_end(context, Ended { row, job_id, state, condition, by_us: true, node: None })?;
        }
        Ok(())
    }

    fn record_end(&mut self, context: &Context<'_>, ended: Ended) -> Result<(), CampaignError> {
        context.append(Stage::Run, ENDED, &ended)?;
        self.ended.insert(ended.job_id, ended);
        Ok(())
    }

    fn follow(
        &mut self,
        context: &mut Context<'_>,
        proofs: &mut Proofs,
    ) -> Result<Vec<Merged>, CampaignError> {
        let rows = &context.definition().rows;
        let mut merged: BTreeMap<&str, Merged> = BTreeMap::new();
        for row in rows {
            if let Some(found) = merged_before(context, row)? {
                merged.insert(&row.name, found);
            }
        }
        context.timed(Stage::Run, |context| {
            while merged.len() < rows.len() {
                self.refuse_cancelled(context)?;
                let jobs = self.look(context)?;
                for row in
                    rows.iter().filter(|row| !merged.contains_key(row.name.as_str())).collect::<Vec<_>>()
                {
                    let Some(jobs) = &jobs else { continue };
                    if let Some(found) = self.step(context, row, jobs, proofs)? {
                        merged.insert(&row.name, found);
                    }
                }
                if merged.len() < rows.len() {
                    self.sleep(context)?;
                }
            }
            self.end_what_waits(context)
        })?;
        Ok(rows.iter().filter_map(|row| merged.remove(row.name.as_str())).collect())
    }

    /// A node may fail after a row was finished there, and Slurm puts its job back: nothing is left for it to do.
    fn end_what_waits(&self, context: &Context<'_>) -> Result<(), CampaignError> {
        let jobs = self.client.jobs(&self.order.job_names(), context.cancel).map_err(unfit)?;
        let waits = jobs.into_iter().filter(|job| job.state == JobState::Waiting).map(|job| job.name);
        self.client.cancel(&waits.collect::<Vec<_>>(), context.cancel).map_err(unfit)
    }

    /// The jobs of this campaign; nothing when Slurm does not answer, which may pass.
    fn look(&mut self, context: &mut Context<'_>) -> Result<Option<Vec<Job>>, CampaignError> {
        match self.client.jobs(&self.order.job_names(), context.cancel) {
            Ok(jobs) => {
                self.silent_since = None;
                Ok(Some(jobs))
            }
            Err(error @ SlurmError::Cancelled { .. }) => Err(unfit(error)),
            Err(error) => {
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                // A controller may be restarted; the jobs do not mind.
                if since.elapsed() > 10 * self.patience() {
                    return Err(unfit(error));
                }
                context.progress.note(&format!("Slurm does not answer: {}", with_causes(&error)));
                Ok(None)
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.settings.patience_s)
    }

    /// Waits until the next look, or until somebody asks to stop.
    fn sleep(&self, context: &Context<'_>) -> Result<(), CampaignError> {
        const SLICE: Duration = Duration::from_millis(200);
        let start = Instant::now();
        let whole = Duration::from_millis(self.settings.poll_ms);
        while start.elapsed() < whole {
            if context.cancel.is_cancelled() {
                return Err(detached(&self.order));
            }
            std::thread::sleep(SLICE.min(whole.saturating_sub(start.elapsed())));
        }
        Ok(())
    }

    fn refuse_cancelled(&mut self, context: &mut Context<'_>) -> Result<(), CampaignError> {
        if context.cancel.is_cancelled() {
            return Err(detached(&self.order));
        }
        if !self.jobs.join(CANCELLED).exists() {
            return Ok(());
        }
        context.progress.note("cancelled: waiting for the jobs to end");
        end_jobs(&self.client, &self.order, self.patience())?;
        self.note_cancelled(context)?;
        keep_attempts(context, &self.jobs)?;
        context.jobs_outstanding = false;
        let message = "cancelled by `parity cancel`; what was recorded so far is kept";
        Err(CampaignError::new(Stage::Run, Cause::Cancelled, message))
    }

    /// One look at one row.
    fn step(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        jobs: &[Job],
        proofs: &mut Proofs,
    ) -> Result<Option<Merged>, CampaignError> {
        let attempts = Attempt::list(&self.jobs, &row.name)?;
        if attempts.last().is_some_and(Attempt::is_complete) {
            let conditions = |job_id| self.ended.get(&job_id).and_then(|ended| ended.condition);
            let merged = merge(context, &self.order, row, &attempts, &conditions, proofs)?;
            self.say(context, row, "its evidence is taken over");
            return Ok(Some(merged));
        }
        let name = self.order.job_name(&row.name);
        let known = jobs.iter().rfind(|job| job.name == name && !self.is_over(job.id));
        let recorded = self.submitted.iter().rfind(|one| one.row == row.name && !self.is_over(one.job_id));
        match (known.cloned(), recorded.map(|one| one.job_id)) {
            (Some(job), recorded) => {
                if recorded != Some(job.id) {
                    self.record_submission(context, row, job.id, Because::Found, Vec::new())?;
                }
                self.judge(context, row, &attempts, job.id, Some(&job))?;
            }
            (None, Some(job_id)) => self.judge(context, row, &attempts, job_id, None)?,
            (None, None) => self.submit_next(context, row, &attempts)?,
        }
        Ok(None)
    }

    /// Whether a job is done with, without evidence.
    fn is_over(&self, job_id: u64) -> bool {
        self.ended.contains_key(&job_id) || self.forgiven.contains(&job_id)
    }

    /// A job without complete evidence: it waits, runs, failed, or was ended.
    fn judge(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        attempts: &[Attempt],
        job_id: u64,
        job: Option<&Job>,
    ) -> Result<(), CampaignError> {
        let last = attempts.iter().rfind(|attempt| attempt.job_id == job_id);
        if let Some(error) = last.and_then(Attempt::ended).and_then(|ended| ended.error(&row.name)) {
            return Err(error);
        }
        if let Some(job) = job.filter(|job| job.state.is_alive()) {
            self.since.remove(&job_id);
            self.say(context, row, &describe(job, last));
            return Ok(());
        }
        // Evidence may be slower to be seen here than the end of the job.
        let since = *self.since.entry(job_id).or_insert_with(Instant::now);
        if since.elapsed() < self.grace(job) {
            return Ok(());
        }
        let state = job.map(|job| job.state.clone()).or_else(|| self.client.past(job_id, context.cancel));
        let had = job.map(|job| job.nodes.clone()).filter(|nodes| !nodes.is_empty());
        let node = last.and_then(Attempt::started).map(|started| started.node).or(had);
        self.conclude(context, row, last, (job_id, node), state)
    }

    /// How long the evidence of a job may take to be seen, once Slurm says that it has ended.
    fn grace(&self, job: Option<&Job>) -> Duration {
        match job.map(|job| &job.state) {
            Some(JobState::Ended | JobState::Failed) | None => self.patience(),
            Some(_) => self.patience().min(Duration::from_secs(5)),
        }
    }

    /// Decides what the end of a job without evidence means, by the rule of the definition.
    fn conclude(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        last: Option<&Attempt>,
        (job_id, node): (u64, Option<String>),
        state: Option<JobState>,
    ) -> Result<(), CampaignError> {
        let interrupted = matches!(last.and_then(Attempt::ended), Some(RowEnded::Interrupted { .. }));
        let condition = condition_of(state.as_ref(), interrupted);
        let shown = state.as_ref().map_or("unknown to Slurm".to_owned(), |state| format!("{state:?}"));
        let row_name = row.name.clone();
        let ended = Ended { row: row_name, job_id, state: shown.clone(), condition, by_us: false, node };
        let said = ended.describe(&self.settings);
        self.record_end(context, ended)?;
        match condition {
            Some(condition) if self.settings.restart_on.contains(&condition) => {
                self.say(context, row, &format!("{said}; the attempt is kept as invalid"));
                Ok(())
            }
            Some(condition) => {
                let message = format!("{said}: slurm.restart_on does not name {}", condition.name());
                Err(CampaignError::new(Stage::Run, Cause::HostUnfit, message).in_row(&row.name))
            }
            None => Err(self.failure(row, job_id, state.as_ref(), &shown)),
        }
    }

    /// What nobody declared beforehand: the row is not started again.
    fn failure(&self, row: &Row, job_id: u64, state: Option<&JobState>, shown: &str) -> CampaignError {
        let log = self.jobs.join("log").join(format!("{}-{job_id}.txt", row.name));
        let said = crate::stage::run::last_line(&log).map(|line| format!("; it said: {line}"));
        let message = format!("job {job_id} left no evidence ({shown}){}", said.unwrap_or_default());
        let cause = match state {
            Some(JobState::OutOfMemory) => Cause::TargetFailed,
            _ => Cause::HostUnfit,
        };
        CampaignError::new(Stage::Run, cause, message).in_row(&row.name)
    }

    /// Submits the next job of a row, if the definition allows one more.
    fn submit_next(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        attempts: &[Attempt],
    ) -> Result<(), CampaignError> {
        let past: Vec<&Ended> = self.ended.values().filter(|ended| ended.row == row.name).collect();
        if let Some(bad) = past.iter().find(|ended| ended.condition.is_none()) {
            let message = format!(
                "job {} left no evidence ({}), which is not undone by starting again",
                bad.job_id, bad.state
            );
            let cause = if bad.state == format!("{:?}", JobState::OutOfMemory) {
                Cause::TargetFailed
            } else {
                Cause::HostUnfit
            };
            return Err(CampaignError::new(Stage::Run, cause, message).in_row(&row.name));
        }
        let distinct: BTreeSet<u64> = attempts.iter().map(|attempt| attempt.job_id).collect();
        let interrupted = past.iter().filter(|ended| !ended.by_us).count();
        let restarts = interrupted + attempts.len() - distinct.len();
        let allowed = usize::try_from(self.settings.restarts_per_row).unwrap_or(usize::MAX);
        if restarts > allowed {
            let last = past.iter().rfind(|ended| !ended.by_us);
            let last = last.map(|ended| ended.describe(&self.settings) + "; ").unwrap_or_default();
            let message =
                format!("{last}it was interrupted {restarts} times and may start again {allowed} times");
            return Err(CampaignError::new(Stage::Run, Cause::HostUnfit, message).in_row(&row.name));
        }
        let because = if !past.is_empty() {
            Because::Restart
        } else if attempts.is_empty() {
            Because::First
        } else {
            Because::Resumed
        };
        self.submit(context, row, because)
    }

    fn submit(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        because: Because,
    ) -> Result<(), CampaignError> {
        let options = options(&self.settings, &self.order.job_name(&row.name), &row.name, &self.jobs);
        let arguments = options.iter().map(OsString::from).chain([
            self.jobs.join(SCRIPT_NAME).into(),
            self.jobs.clone().into(),
            row.name.clone().into(),
        ]);
        let job_id = self
            .client
            .submit(arguments.collect(), context.cancel)
            .map_err(|error| unfit(error).in_row(&row.name))?;
        let shown = options.iter().map(|option| context.hide_paths(option)).collect();
        self.record_submission(context, row, job_id, because, shown)?;
        self.say(context, row, &format!("job {job_id} submitted"));
        Ok(())
    }

    fn submit_merge(
        &mut self,
        context: &mut Context<'_>,
        rows: &[u64],
        campaign: &Path,
    ) -> Result<u64, CampaignError> {
        let ids: Vec<String> = rows.iter().map(u64::to_string).collect();
        let mut options = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.order.merge_name()),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            format!("--dependency=afterany:{}", ids.join(":")),
            format!("--export={MERGE_ENVIRONMENT}"),
            format!("--output={}", merge_log(context)?),
        ];
        options.extend(place_options(&self.settings));
        options.extend(self.settings.extra.iter().cloned());
        let arguments = options.into_iter().map(OsString::from);
        // Not the program that the rows use: this job removes the folder that it is in.
        let script = [self.jobs.join(MERGE_SCRIPT_NAME).into(), order::own_program()?.into()];
        let arguments = arguments.chain(script).chain(resume_arguments(context, campaign)?).collect();
        let job_id = self.client.submit(arguments, context.cancel).map_err(unfit)?;
        context.append(Stage::Run, MERGE, &MergeSubmitted { job_id, after: rows.to_vec() })?;
        Ok(job_id)
    }

    fn record_submission(
        &mut self,
        context: &Context<'_>,
        row: &Row,
        job_id: u64,
        because: Because,
        options: Vec<String>,
    ) -> Result<(), CampaignError> {
        let submitted = Submitted { row: row.name.clone(), job_id, because, options };
        context.append(Stage::Run, SUBMITTED, &submitted)?;
        self.submitted.push(submitted);
        Ok(())
    }

    /// Says something of a row, once.
    fn say(&mut self, context: &mut Context<'_>, row: &Row, text: &str) {
        let last = self.said.entry(row.name.clone()).or_default();
        if last != text {
            text.clone_into(last);
            context.progress.note(&format!("row {}: {text}", row.name));
        }
    }
}

fn detached(order: &Order) -> CampaignError {
    let id = &order.campaign_id;
    let message = format!(
        "interrupted; the jobs kvrp-{id}-* go on: `parity resume` follows them, `parity cancel` ends them"
    );
    CampaignError::new(Stage::Run, Cause::Cancelled, message)
}

/// What a person wants to know of a job that waits or runs.
fn describe(job: &Job, last: Option<&Attempt>) -> String {
    match job.state {
        JobState::Running => match last.and_then(Attempt::started) {
            Some(started) => format!("job {} runs on {}", job.id, started.node),
            None => format!("job {} starts on {}", job.id, job.nodes),
        },
        _ if job.reason.is_empty() => format!("job {} waits", job.id),
        _ => format!("job {} waits ({})", job.id, job.reason),
    }
}

/// The predeclared condition that ended a job, if it was one. A job that ended by itself, well or badly, was not ended by
/// one, unless its exit record says that a signal came.
fn condition_of(state: Option<&JobState>, interrupted: bool) -> Option<Condition> {
    match state {
        Some(JobState::Preempted) => Some(Condition::Preempted),
        Some(JobState::TimeLimit) => Some(Condition::TimeLimit),
        Some(JobState::Cancelled) => Some(Condition::Cancelled),
        Some(JobState::NodeFail) => Some(Condition::NodeFail),
        Some(JobState::OutOfMemory) => None,
        _ if interrupted => Some(Condition::Cancelled),
        None => Some(Condition::Lost),
        Some(_) => None,
    }
}

/// The options of sbatch for one row.
fn options(settings: &Slurm, job_name: &str, row: &str, jobs: &Path) -> Vec<String> {
    let log = jobs.join("log").join(format!("{row}-%j.txt"));
    // Slurm itself puts a job back when its node fails or another job takes the node; only if all of that may be.
    let back = [Condition::Requeued, Condition::Preempted, Condition::NodeFail];
    let requeue = back.iter().all(|condition| settings.restart_on.contains(condition));
    let mut options = vec![
        "--parsable".to_owned(),
        format!("--job-name={job_name}"),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        "--exclusive".to_owned(),
        if requeue { "--requeue" } else { "--no-requeue" }.to_owned(),
        "--export=ALL".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--output={}", log.display()),
    ];
    options.extend(place_options(settings));
    options.extend(settings.time_limit_min.map(|minutes| format!("--time={minutes}")));
    options.extend(settings.extra.iter().cloned());
    options
}

/// Where jobs of a campaign run and on whose account.
fn place_options(settings: &Slurm) -> Vec<String> {
    let named = [
        ("account", &settings.account),
        ("partition", &settings.partition),
        ("qos", &settings.qos),
        ("constraint", &settings.constraint),
    ];
    named.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))).collect()
}

/// Beside the bundle: the job removes the folder that it shares with the others.
fn merge_log(context: &Context<'_>) -> Result<String, CampaignError> {
    let out = std::path::absolute(&context.options.out).at(Stage::Run, Cause::HostUnfit)?;
    Ok(format!("{}.merge-%j.txt", out.display()))
}

/// `resume` with everything that this process was given; the job starts in another folder.
fn resume_arguments(context: &Context<'_>, campaign: &Path) -> Result<Vec<OsString>, CampaignError> {
    let absolute = |path: &Path| std::path::absolute(path).at(Stage::Run, Cause::HostUnfit);
    let options = context.options;
    let given = [
        ("--campaign", Some(campaign)),
        ("--repo", options.repository.as_deref()),
        ("--trace", options.trace.as_deref()),
        ("--staging", Some(options.staging.as_path())),
        ("--node-lock", Some(options.node_lock.as_path())),
    ];
    let mut arguments: Vec<OsString> = vec!["resume".into()];
    for (flag, path) in given {
        if let Some(path) = path {
            arguments.extend([flag.into(), absolute(path)?.into()]);
        }
    }
    arguments.push(absolute(&options.out)?.into());
    Ok(arguments)
}

/// Cancels every job of a campaign and waits until none is left.
fn end_jobs(client: &Client, order: &Order, patience: Duration) -> Result<(), CampaignError> {
    let names = order.job_names();
    // The campaign's own token may be the one that was cancelled.
    let token = CancelToken::new();
    client.cancel(&names, &token).map_err(unfit)?;
    let start = Instant::now();
    loop {
        let jobs = client.jobs(&names, &token).map_err(unfit)?;
        let Some(alive) = jobs.iter().find(|job| job.state.is_alive()) else { return Ok(()) };
        if start.elapsed() > 10 * patience {
            let message = format!("job {} does not end", alive.id);
            return Err(CampaignError::new(Stage::Run, Cause::HostUnfit, message));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Keeps what the jobs of rows that were not taken over have left.
fn keep_attempts(context: &Context<'_>, jobs: &Path) -> Result<(), CampaignError> {
    for row in &context.definition().rows {
        if merged_before(context, row)?.is_none() {
            let attempts = Attempt::list(jobs, &row.name)?;
            keep_all(context, row, &attempts, &|_| Some(Condition::Cancelled))?;
        }
    }
    Ok(())
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
    end_jobs(&client, &order, Duration::from_secs(settings.patience_s))?;
    Ok(order.job_names())
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

#[cfg(test)]
mod tests;
