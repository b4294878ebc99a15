//! The process that follows the jobs of a campaign. It may die at any moment: what it knows is in the journal, in Slurm, and
//! in what the jobs leave.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;

use super::client::{Client, SlurmError};
use super::settings::{Condition, Slurm};
use super::text::{Job, JobState};
use super::{
    Because, Detached, ENDED, Ended, FAILED, FailedJob, MERGE, MergeSubmitted, SUBMITTED, Submitted, options,
    unfit,
};
use crate::context::Context;
use crate::definition::Row;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::executor::attempt::{Attempt, RowEnded};
use crate::executor::job_id::JobId;
use crate::executor::merge::{Merged, keep_all, merge, merged_before};
use crate::executor::order::{self, CANCELLED, EXEC_SCRIPT_NAME, Order, SCRIPT_NAME, Work};
use crate::stage::Stage;
use crate::stage::classify::Proofs;
use crate::stage::judge::record_path;

mod build;

pub(crate) struct Driver {
    client: Client,
    jobs: PathBuf,
    order: Order,
    settings: Slurm,
    /// What this process and those before it submitted.
    submitted: Vec<Submitted>,
    /// Jobs that have ended and left no evidence.
    ended: BTreeMap<JobId, Ended>,
    /// Jobs that said why they failed, and with whose words the campaign has ended once.
    forgiven: BTreeSet<JobId>,
    /// Since when a job has been unknown or without evidence.
    since: BTreeMap<JobId, Instant>,
    /// What was last said of each work.
    said: BTreeMap<String, String>,
    /// Since when Slurm has not answered.
    silent_since: Option<Instant>,
    /// Whether this process has taken over what a job built.
    has_build: bool,
}

/// What one look at a row came to.
enum Step {
    Merged(Box<Merged>),
    Waits,
    Needs(Because),
}

impl Driver {
    pub(super) fn new(
        context: &Context<'_>,
        client: Client,
        jobs: PathBuf,
        order: Order,
    ) -> Result<Self, CampaignError> {
        let settings = context.definition().slurm.clone().unwrap_or_default();
        let (mut submitted, mut ended, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(earlier) = &context.earlier {
            submitted = earlier.payloads::<Submitted>(SUBMITTED)?;
            ended = earlier.payloads::<Ended>(ENDED)?;
            failed = earlier.payloads::<FailedJob>(FAILED)?;
        }
        // Neither memory nor a missing exit record is forgiven: they may be the product's doing.
        let mut driver = Driver {
            client,
            jobs,
            order,
            settings,
            submitted,
            ended: ended.into_iter().map(|ended| (ended.job_id, ended)).collect(),
            forgiven: failed.into_iter().map(|failed| failed.job_id).collect(),
            since: BTreeMap::new(),
            said: BTreeMap::new(),
            silent_since: None,
            has_build: false,
        };
        if driver.jobs.join(CANCELLED).exists() {
            driver.note_ended(context, |_| true, "cancelled")?;
            fs::remove_file(driver.jobs.join(CANCELLED)).at(Stage::Run, Cause::HostUnfit)?;
        }
        Ok(driver)
    }

    /// Jobs that the campaign itself ended are over, and that is not held against their rows.
    fn note_ended(
        &mut self,
        context: &Context<'_>,
        which: impl Fn(&Submitted) -> bool,
        state: &str,
    ) -> Result<(), CampaignError> {
        let over = self.submitted.iter().filter(|one| !self.is_over(one.job_id) && which(one));
        let over: Vec<Submitted> = over.cloned().collect();
        for Submitted { row, job_id, .. } in over {
            let (state, condition) = (state.to_owned(), Some(Condition::Cancelled));
            self.record_end(context, Ended { row, job_id, state, condition, by_us: true, node: None })?;
        }
        Ok(())
    }

    fn record_end(&mut self, context: &Context<'_>, ended: Ended) -> Result<(), CampaignError> {
        context.append(Stage::Run, ENDED, &ended)?;
        self.ended.insert(ended.job_id, ended);
        Ok(())
    }

    /// Follows the rows until each has been taken over.
    pub(super) fn follow(
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
                if let Some(jobs) = self.look(context)? {
                    self.round(context, &jobs, &mut merged, proofs)?;
                }
                if merged.len() < rows.len() {
                    self.sleep(context)?;
                }
            }
            self.end_what_waits(context)
        })?;
        Ok(rows.iter().filter_map(|row| merged.remove(row.name.as_str())).collect())
    }

    /// One look at every row that is not taken over; those without a job get one, together.
    fn round<'a>(
        &mut self,
        context: &mut Context<'a>,
        jobs: &[Job],
        merged: &mut BTreeMap<&'a str, Merged>,
        proofs: &mut Proofs,
    ) -> Result<(), CampaignError> {
        let mut needed = Vec::new();
        for row in &context.definition().rows {
            if merged.contains_key(row.name.as_str()) {
                continue;
            }
            match self.step(context, row, jobs, proofs)? {
                Step::Merged(found) => drop(merged.insert(&row.name, *found)),
                Step::Needs(because) => needed.push((row, because)),
                Step::Waits => {}
            }
        }
        self.submit_rows(context, &needed, None).map(drop)
    }

    /// A node may fail after a row was finished there, and Slurm puts its job back: nothing is left for it to do.
    fn end_what_waits(&self, context: &Context<'_>) -> Result<(), CampaignError> {
        let jobs = self.client.jobs(&self.order.job_names(), context.cancel).map_err(unfit)?;
        let waits = jobs.into_iter().filter(|job| job.state == JobState::Waiting).map(|job| job.id);
        self.client.cancel_jobs(&waits.collect::<Vec<_>>(), context.cancel).map_err(unfit)
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
        end_jobs(&self.client, &self.order.job_names(), self.patience())?;
        self.note_ended(context, |_| true, "cancelled")?;
        self.keep_attempts(context)?;
        context.jobs_outstanding = false;
        let message = "cancelled by `parity cancel`; what was recorded so far is kept";
        Err(CampaignError::new(Stage::Run, Cause::Cancelled, message))
    }

    /// Keeps what the jobs that were not taken over have left.
    fn keep_attempts(&self, context: &Context<'_>) -> Result<(), CampaignError> {
        let cancelled = |_: JobId| Some(Condition::Cancelled);
        let keep = |work| keep_all(context, work, &Attempt::list(&self.jobs, work)?, &cancelled);
        for row in &context.definition().rows {
            if context.bundle.file(&record_path(row)).is_none() {
                keep(Work::Row(&row.name))?;
            }
        }
        if self.has_build { Ok(()) } else { keep(Work::Build) }
    }

    /// One look at one row.
    fn step(
        &mut self,
        context: &mut Context<'_>,
        row: &Row,
        jobs: &[Job],
        proofs: &mut Proofs,
    ) -> Result<Step, CampaignError> {
        let work = Work::Row(&row.name);
        let attempts = self.attempts(context, work)?;
        if attempts.last().is_some_and(Attempt::is_complete) {
            let merged = merge(context, &self.order, row, &attempts, &self.conditions(), proofs)?;
            self.say(context, work, "its evidence is taken over");
            return Ok(Step::Merged(Box::new(merged)));
        }
        match self.find(context, work, jobs)? {
            Some((job_id, job)) => {
                self.judge(context, work, &attempts, job_id, job.as_ref())?;
                Ok(Step::Waits)
            }
            None => self.next(work, &attempts).map(Step::Needs),
        }
    }

    /// What ended each job, by the rule of the definition.
    fn conditions(&self) -> impl Fn(JobId) -> Option<Condition> {
        |job_id| self.ended.get(&job_id).and_then(|ended| ended.condition)
    }

    /// Whether a job is done with, without evidence.
    fn is_over(&self, job_id: JobId) -> bool {
        self.ended.contains_key(&job_id) || self.forgiven.contains(&job_id)
    }

    /// The job of some work that is not over: the one that was submitted last, or one that an earlier process submitted and
    /// did not come to record.
    fn find(
        &mut self,
        context: &Context<'_>,
        work: Work<'_>,
        jobs: &[Job],
    ) -> Result<Option<(JobId, Option<Job>)>, CampaignError> {
        let recorded = self.outstanding(work);
        match self.known(work, recorded, jobs) {
            Some(job) => {
                if recorded != Some(job.id) {
                    self.record_submission(context, work, job.id, Because::Found, Vec::new())?;
                }
                Ok(Some((job.id, Some(job))))
            }
            None => Ok(recorded.map(|job_id| (job_id, None))),
        }
    }

    /// The attempts at some work. The job of one may have been submitted by a process that did not come to record it, and be
    /// over and forgotten by the controller: it is recorded all the same.
    fn attempts(&mut self, context: &Context<'_>, work: Work<'_>) -> Result<Vec<Attempt>, CampaignError> {
        let attempts = Attempt::list(&self.jobs, work)?;
        for attempt in &attempts {
            if !self.submitted.iter().any(|one| one.job_id == attempt.job_id) {
                self.record_submission(context, work, attempt.job_id, Because::Found, Vec::new())?;
            }
        }
        Ok(attempts)
    }

    fn outstanding(&self, work: Work<'_>) -> Option<JobId> {
        let own = |one: &&Submitted| one.row.as_deref() == work.row() && !self.is_over(one.job_id);
        self.submitted.iter().rfind(own).map(|one| one.job_id)
    }

    /// The last job of some work that the controller knows and that is not over.
    fn known(&self, work: Work<'_>, recorded: Option<JobId>, jobs: &[Job]) -> Option<Job> {
        let (name, task) = (self.order.job_name(work), work.row().and_then(|row| self.order.task(row)));
        let own = |job: &Job| {
            // An array that was cancelled before any of it ran is listed as a whole.
            let whole = recorded.filter(|id| job.id == JobId { task: None, ..*id });
            let id = whole.or_else(|| (job.id.task == task).then_some(job.id))?;
            (job.name == name && !self.is_over(id)).then(|| Job { id, ..job.clone() })
        };
        jobs.iter().filter_map(own).next_back()
    }

    /// A job without complete evidence: it waits, runs, failed, or was ended.
    fn judge(
        &mut self,
        context: &mut Context<'_>,
        work: Work<'_>,
        attempts: &[Attempt],
        job_id: JobId,
        job: Option<&Job>,
    ) -> Result<(), CampaignError> {
        let last = attempts.iter().rfind(|attempt| attempt.job_id == job_id);
        if let Some(error) = last.and_then(Attempt::ended).and_then(|ended| ended.error(work)) {
            let row = work.row().map(str::to_owned);
            context.append(work.stage(), FAILED, &FailedJob { row, job_id })?;
            self.forgiven.insert(job_id);
            return Err(error);
        }
        if let Some(job) = job.filter(|job| last.is_none() && job.never_runs()) {
            return self.let_go(context, work, job);
        }
        if let Some(job) = job.filter(|job| job.state.is_alive()) {
            self.since.remove(&job_id);
            self.say(context, work, &describe(job, last));
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
        let interrupted = matches!(last.and_then(Attempt::ended), Some(RowEnded::Interrupted { .. }));
        let condition = condition_of(state.as_ref(), interrupted);
        let shown = state.as_ref().map_or("unknown to Slurm".to_owned(), |state| format!("{state:?}"));
        let row = work.row().map(str::to_owned);
        self.conclude(context, work, Ended { row, job_id, state: shown, condition, by_us: false, node })
    }

    /// A job that waited for one that did not end well never runs; that is no interruption.
    fn let_go(&mut self, context: &mut Context<'_>, work: Work<'_>, job: &Job) -> Result<(), CampaignError> {
        self.client.cancel_jobs(&[job.id], context.cancel).map_err(unfit)?;
        self.say(context, work, &format!("job {} waited for a job that did not end well", job.id));
        let (row, condition) = (work.row().map(str::to_owned), Some(Condition::Cancelled));
        let state = "its dependency was not met".to_owned();
        self.record_end(context, Ended { row, job_id: job.id, state, condition, by_us: true, node: None })
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
        work: Work<'_>,
        ended: Ended,
    ) -> Result<(), CampaignError> {
        self.record_end(context, ended.clone())?;
        let said = ended.describe(&self.settings);
        match ended.condition {
            Some(condition) if self.settings.restart_on.contains(&condition) => {
                self.say(context, work, &format!("{said}; the attempt is kept as invalid"));
                Ok(())
            }
            Some(condition) => {
                let message = format!("{said}: slurm.restart_on does not name {}", condition.name());
                Err(work.error(Cause::HostUnfit, message))
            }
            // What nobody declared beforehand: the work is not started again.
            None => {
                let log = self.jobs.join("log").join(format!("{}.txt", ended.job_id));
                let words = crate::stage::run::last_line(&log).map(|line| format!("; it said: {line}"));
                Err(work.error(cause_of(&ended), said + &words.unwrap_or_default()))
            }
        }
    }

    /// Why some work needs one more job, if the definition allows one.
    fn next(&self, work: Work<'_>, attempts: &[Attempt]) -> Result<Because, CampaignError> {
        let past: Vec<&Ended> =
            self.ended.values().filter(|ended| ended.row.as_deref() == work.row()).collect();
        if let Some(bad) = past.iter().find(|ended| ended.condition.is_none()) {
            let message = format!("{}, which is not undone by starting again", bad.describe(&self.settings));
            return Err(work.error(cause_of(bad), message));
        }
        let distinct: BTreeSet<JobId> = attempts.iter().map(|attempt| attempt.job_id).collect();
        let interrupted = past.iter().filter(|ended| !ended.by_us).count();
        let restarts = interrupted + attempts.len() - distinct.len();
        let allowed = usize::try_from(self.settings.restarts_per_row).unwrap_or(usize::MAX);
        if restarts > allowed {
            let last = past.iter().rfind(|ended| !ended.by_us);
            let last = last.map(|ended| ended.describe(&self.settings) + "; ").unwrap_or_default();
            let message =
                format!("{last}it was interrupted {restarts} times and may start again {allowed} times");
            return Err(work.error(Cause::HostUnfit, message));
        }
        Ok(match (past.is_empty(), attempts.is_empty()) {
            (false, _) => Because::Restart,
            (true, true) => Because::First,
            (true, false) => Because::Resumed,
        })
    }

    /// Submits rows as tasks of one array, and says which number it has.
    fn submit_rows(
        &mut self,
        context: &mut Context<'_>,
        needed: &[(&Row, Because)],
        after: Option<JobId>,
    ) -> Result<Option<u64>, CampaignError> {
        if needed.is_empty() {
            return Ok(None);
        }
        let task = |row: &Row| self.order.task(&row.name).ok_or("a row is not in the order");
        let tasks: Vec<u32> =
            needed.iter().map(|(row, _)| task(row)).collect::<Result<_, _>>().at(Stage::Run, Cause::Bug)?;
        let name = self.order.job_name(Work::Row(""));
        let options = options::rows(&self.settings, &name, &tasks, &self.jobs, after);
        let arguments = options.iter().map(OsString::from);
        let arguments = arguments.chain([self.jobs.join(SCRIPT_NAME).into(), self.jobs.clone().into()]);
        let number = self.client.submit(arguments.collect(), &[], context.cancel).map_err(unfit)?;
        let shown: Vec<String> = options.iter().map(|option| context.hide_paths(option)).collect();
        for ((row, because), task) in needed.iter().zip(tasks) {
            let (work, job_id) = (Work::Row(&row.name), JobId { number, task: Some(task) });
            self.record_submission(context, work, job_id, *because, shown.clone())?;
            self.say(context, work, &format!("job {job_id} submitted"));
        }
        Ok(Some(number))
    }

    fn submit_merge(
        &mut self,
        context: &mut Context<'_>,
        after: Vec<JobId>,
        campaign: &Path,
    ) -> Result<JobId, CampaignError> {
        let log = options::merge_log(context)?;
        let given = options::merge(&self.settings, &self.order.merge_name(), &after, &log);
        // Not the program that the rows use: this job removes the folder that it is in.
        let script = [self.jobs.join(EXEC_SCRIPT_NAME).into(), order::own_program()?.into()];
        let resume = options::resume_arguments(context, campaign)?;
        let arguments = given.into_iter().map(OsString::from).chain(script).chain(resume).collect();
        let environment = options::compiler_environment();
        let number = self.client.submit(arguments, &environment, context.cancel).map_err(unfit)?;
        let job_id = JobId { number, task: None };
        context.append(Stage::Run, MERGE, &MergeSubmitted { job_id, after })?;
        Ok(job_id)
    }

    /// Everything at once, for a campaign that nobody follows.
    pub(super) fn submit_all(
        &mut self,
        context: &mut Context<'_>,
        with_build: bool,
        campaign: &Path,
    ) -> Result<Detached, CampaignError> {
        let build = if with_build { Some(self.submit_build(context, Because::First)?) } else { None };
        let rows = &context.definition().rows;
        let needed: Vec<(&Row, Because)> = rows.iter().map(|row| (row, Because::First)).collect();
        let array = self.submit_rows(context, &needed, build)?.map(|number| JobId { number, task: None });
        let merge = self.submit_merge(context, build.into_iter().chain(array).collect(), campaign)?;
        let rows = rows.iter().filter_map(|row| self.outstanding(Work::Row(&row.name))).collect();
        Ok(Detached { build, rows, merge })
    }

    fn record_submission(
        &mut self,
        context: &Context<'_>,
        work: Work<'_>,
        job_id: JobId,
        because: Because,
        options: Vec<String>,
    ) -> Result<(), CampaignError> {
        let submitted = Submitted { row: work.row().map(str::to_owned), job_id, because, options };
        context.append(work.stage(), SUBMITTED, &submitted)?;
        self.submitted.push(submitted);
        Ok(())
    }

    /// Says something of some work, once.
    fn say(&mut self, context: &mut Context<'_>, work: Work<'_>, text: &str) {
        let last = self.said.entry(work.to_string()).or_default();
        if last != text {
            text.clone_into(last);
            context.progress.note(&format!("{work}: {text}"));
        }
    }
}

fn detached(order: &Order) -> CampaignError {
    let id = &order.campaign_id;
    let message = format!(
        "interrupted; the jobs kvrp-{id} go on: `parity resume` follows them, `parity cancel` ends them"
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

/// Whose doing it may be that a job left no evidence.
fn cause_of(ended: &Ended) -> Cause {
    if ended.state == format!("{:?}", JobState::OutOfMemory) { Cause::TargetFailed } else { Cause::HostUnfit }
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

/// Cancels every job of these names and waits until none is left.
pub(super) fn end_jobs(client: &Client, names: &[String], patience: Duration) -> Result<(), CampaignError> {
    // The campaign's own token may be the one that was cancelled.
    let token = CancelToken::new();
    client.cancel(names, &token).map_err(unfit)?;
    let start = Instant::now();
    loop {
        let jobs = client.jobs(names, &token).map_err(unfit)?;
        let Some(alive) = jobs.iter().find(|job| job.state.is_alive()) else { return Ok(()) };
        if start.elapsed() > 10 * patience {
            let message = format!("job {} does not end", alive.id);
            return Err(CampaignError::new(Stage::Run, Cause::HostUnfit, message));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests;
