//! Following the job that builds, and taking its artifacts over.

use std::ffi::OsString;
use std::fs;

use super::{Because, Driver, Job, options, unfit};
use crate::context::{ARTIFACTS, Context};
use crate::definition::Row;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::executor::attempt::Attempt;
use crate::executor::job_id::JobId;
use crate::executor::merge::{files, keep_all, merged_before, record};
use crate::executor::order::{self, EXEC_SCRIPT_NAME, Work};
use crate::record::{Both, BuildRecord, Side};
use crate::stage::Stage;
use crate::stage::build::{Built, RECORD, taken_over};
use crate::stage::measure::staged;
use crate::stage::pin::Checkouts;

impl Driver {
    /// Follows the job that builds until it has left its evidence. If it cannot, the rows that wait for it are ended.
    pub(in super::super) fn follow_build(&mut self, context: &mut Context<'_>) -> Result<(), CampaignError> {
        loop {
            self.refuse_cancelled(context)?;
            if let Some(jobs) = self.look(context)? {
                match self.step_build(context, &jobs) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => {
                        if let Err(second) = self.end_rows(context) {
                            let why = with_causes(&second);
                            context.progress.note(&format!("the rows that wait could not be ended: {why}"));
                        }
                        return Err(error);
                    }
                }
            }
            self.sleep(context)?;
        }
    }

    /// One look; whether the artifacts are there.
    fn step_build(&mut self, context: &mut Context<'_>, jobs: &[Job]) -> Result<bool, CampaignError> {
        let attempts = self.attempts(context, Work::Build)?;
        if attempts.iter().any(Attempt::is_complete) {
            return Ok(true);
        }
        match self.find(context, Work::Build, jobs)? {
            Some((job_id, job)) => self.judge(context, Work::Build, &attempts, job_id, job.as_ref())?,
            None => {
                let because = self.next(Work::Build, &attempts)?;
                self.begin_build(context, because)?;
            }
        }
        Ok(false)
    }

    /// A job that builds, and the rows that wait for it instead of for an earlier one.
    fn begin_build(&mut self, context: &mut Context<'_>, because: Because) -> Result<(), CampaignError> {
        self.end_rows(context)?;
        let build = self.submit_build(context, because)?;
        let mut needed: Vec<(&Row, Because)> = Vec::new();
        for row in &context.definition().rows {
            if merged_before(context, row)?.is_none() {
                let work = Work::Row(&row.name);
                needed.push((row, self.next(work, &Attempt::list(&self.jobs, work)?)?));
            }
        }
        self.submit_rows(context, &needed, Some(build)).map(drop)
    }

    /// Without artifacts no row can have begun: this takes nothing from any.
    fn end_rows(&mut self, context: &mut Context<'_>) -> Result<(), CampaignError> {
        let rows = &context.definition().rows;
        if rows.iter().any(|row| self.outstanding(Work::Row(&row.name)).is_some()) {
            super::end_jobs(&self.client, &[self.order.job_name(Work::Row(""))], self.patience())?;
            self.note_ended(context, |one| one.row.is_some(), "its dependency was not met")?;
        }
        Ok(())
    }

    pub(super) fn submit_build(
        &mut self,
        context: &mut Context<'_>,
        because: Because,
    ) -> Result<JobId, CampaignError> {
        let given = options::build(&self.settings, &self.order.job_name(Work::Build), &self.jobs);
        let command: [OsString; 4] = [
            self.jobs.join(EXEC_SCRIPT_NAME).into(),
            order::program(&self.jobs).into(),
            "build".into(),
            self.jobs.clone().into(),
        ];
        let arguments = given.iter().map(OsString::from).chain(command);
        let arguments = arguments.chain(options::build_arguments(context)?).collect();
        let environment = options::compiler_environment();
        let number = self.client.submit(arguments, &environment, context.cancel).map_err(unfit)?;
        let job_id = JobId { number, task: None };
        let shown = given.iter().map(|option| context.hide_paths(option)).collect();
        self.record_submission(context, Work::Build, job_id, because, shown)?;
        self.say(context, Work::Build, &format!("job {job_id} submitted"));
        Ok(job_id)
    }

    /// Takes the artifacts over, each held against its recorded digest.
    pub(in super::super) fn take_build(
        &mut self,
        context: &mut Context<'_>,
        pinned: &Checkouts,
    ) -> Result<Built, CampaignError> {
        let attempts = Attempt::list(&self.jobs, Work::Build)?;
        let found = self.order.built(&self.jobs)?;
        let attempt = attempts.iter().rfind(|attempt| attempt.is_complete());
        let attempt = attempt.ok_or("a build without an attempt").at(Stage::Build, Cause::Bug)?;
        refuse_other_trees(attempt, pinned)?;
        keep_all(context, Work::Build, &attempts, &self.conditions())?;
        files(context, Work::Build, attempt)?;
        let record = settle(context, found)?;
        let harness = Both::try_make(|side| {
            let folder = context.work.join(ARTIFACTS).join(side.letter());
            fs::create_dir_all(&folder).at(Stage::Build, Cause::HostUnfit)?;
            let recorded = record.artifacts.get(side).sha256;
            staged(&order::harness(&self.jobs, side), &folder.join("harness"), recorded)
        })?;
        self.has_build = true;
        self.say(context, Work::Build, "its artifacts are taken over");
        Ok(taken_over(context.definition(), harness, record))
    }
}

/// What was built must be what is checked out here, patches included.
fn refuse_other_trees(attempt: &Attempt, pinned: &Checkouts) -> Result<(), CampaignError> {
    let theirs: serde_json::Value = record(Work::Build, attempt, "records/pin.json")?;
    let ours = serde_json::to_value(&pinned.record).at(Stage::Build, Cause::Bug)?;
    if theirs == ours {
        return Ok(());
    }
    let message = format!("{} built other trees than are pinned here", attempt.name(Work::Build));
    Err(Work::Build.error(Cause::HostUnfit, message))
}

/// The record that the campaign goes on with: artifacts that are made again must be the same bytes.
fn settle(context: &Context<'_>, found: BuildRecord) -> Result<BuildRecord, CampaignError> {
    let Some(began) = context.recorded::<BuildRecord>(Stage::Build, RECORD)? else {
        context.record(Stage::Build, RECORD, &found)?;
        return Ok(found);
    };
    for side in Side::BOTH {
        let digest = |record: &BuildRecord| record.artifacts.get(side).sha256;
        if digest(&began) != digest(&found) {
            let (name, now, then) = (side.name(), digest(&found), digest(&began));
            let message = format!("{name}: the artifact has digest {now}, this campaign began with {then}");
            return Err(Work::Build.error(Cause::HostUnfit, message));
        }
    }
    Ok(began)
}
