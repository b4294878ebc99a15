//! Where a campaign is, seen from outside: nothing is written, and a driver may be at work meanwhile.

use std::io;
use std::path::Path;

use cpu_placement::CancelToken;
use evidence::{Record, read_journal};
use serde::Serialize;

use super::Executor;
use super::attempt::{Attempt, RowEnded};
use super::job_id::JobId;
use super::order::{FILE as ORDER, JOBS, Order, Work};
use super::slurm::BuildWhere;
use super::slurm::client::Client;
use super::slurm::text::{Job, JobState};
use crate::context::{STARTED, Started};
use crate::definition::CampaignFile;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::stage::Stage;

/// Where a campaign is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CampaignStatus {
    /// Its name.
    pub campaign: String,
    /// Whether it came to its end.
    pub is_finished: bool,
    /// Why it could not go on, if its last process said so.
    pub failed: Option<String>,
    /// The job that builds, where one does.
    pub build: Option<BuildStatus>,
    /// Its rows, in order.
    pub rows: Vec<RowStatus>,
    /// Why Slurm could not be asked, where it would have had to be.
    pub slurm: Option<String>,
}

/// Where the job that builds is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuildStatus {
    /// In a few words.
    pub state: String,
    /// The scheduler's name of its last job.
    pub job_id: Option<JobId>,
    /// The scheduler's name of the node of its last attempt.
    pub node: Option<String>,
    /// Attempts at the build as a whole.
    pub attempts: usize,
}

/// Where a row is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowStatus {
    /// The row.
    pub row: String,
    /// In a few words.
    pub state: String,
    /// The scheduler's name of its last job.
    pub job_id: Option<JobId>,
    /// The scheduler's name of the node of its last attempt.
    pub node: Option<String>,
    /// Attempts at the row as a whole.
    pub attempts: usize,
    /// Repetitions that its last attempt has recorded.
    pub repetitions: usize,
    /// Timed processes that its last attempt has recorded.
    pub samples: usize,
}

/// Looks at the campaign whose evidence is in `out`.
///
/// # Errors
///
/// There is no campaign, or what it left cannot be read.
pub fn status(out: &Path) -> Result<CampaignStatus, CampaignError> {
    let journal = read_journal(out).at(Stage::Report, Cause::BadInput)?.records;
    let file = CampaignFile::read(&out.join("campaign.toml")).at(Stage::Report, Cause::BadInput)?;
    let started = journal.iter().find(|record| record.kind == STARTED);
    let started: Option<Started> = started.and_then(|record| record.payload().ok());
    let jobs = out.join(evidence::SCRATCH).join(JOBS);
    let (known, slurm) = if jobs.is_dir() { ask(&jobs) } else { (Vec::new(), None) };
    let attempts_at = |work| match Attempt::list(&jobs, work) {
        // Nothing was given to jobs, or the campaign is just cleaning up what they shared.
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        found => found,
    };
    let mut rows = Vec::new();
    for row in &file.definition.rows {
        let attempts = attempts_at(Work::Row(&row.name))?;
        rows.push(row_status(&journal, &row.name, &attempts, job_of(&known, Some(&row.name))));
    }
    let executor = started.as_ref().map(|started| started.executor).unwrap_or_default();
    let slurm_settings = file.definition.slurm.as_ref().filter(|_| executor == Executor::Slurm);
    let build = match slurm_settings.map(|settings| settings.build) {
        Some(BuildWhere::Job) => {
            let attempts = attempts_at(Work::Build)?;
            Some(build_status(&journal, &attempts, job_of(&known, None)))
        }
        _ => None,
    };
    Ok(CampaignStatus {
        build,
        campaign: started.map_or(file.definition.name, |started| started.campaign),
        is_finished: out.join("manifest.json").exists(),
        failed: failure(&journal),
        rows,
        slurm,
    })
}

/// Whether something was not there.
fn is_gone(error: &CampaignError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::NotFound) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A job and its row; the job that builds has none.
type Known = (Option<String>, Job);

/// The last job of a row, or of the build.
fn job_of<'a>(known: &'a [Known], row: Option<&str>) -> Option<&'a Job> {
    known.iter().rfind(|(of, _)| of.as_deref() == row).map(|(_, job)| job)
}

/// The jobs of a campaign with the name of their row, or why they cannot be had.
fn ask(jobs: &Path) -> (Vec<Known>, Option<String>) {
    let found = || -> Result<Vec<Known>, CampaignError> {
        let order = Order::read(jobs)?;
        let token = CancelToken::new();
        let client = Client::connect(&token).at(Stage::Run, Cause::HostUnfit)?;
        let jobs = client.jobs(&order.job_names(), &token).at(Stage::Run, Cause::HostUnfit)?;
        let named = |job: Job| {
            if job.name == order.job_name(Work::Build) {
                return vec![(None, job)];
            }
            // An array that was cancelled before any of it ran is listed as a whole.
            let is_its = |row: &&String| job.id.task.is_none() || order.task(row) == job.id.task;
            let rows = order.rows.iter().filter(is_its);
            rows.map(|row| {
                (Some(row.clone()), Job { id: JobId { task: order.task(row), ..job.id }, ..job.clone() })
            })
            .collect()
        };
        Ok(jobs.into_iter().flat_map(named).collect())
    };
    match found() {
        Ok(jobs) => (jobs, None),
        // The campaign is just cleaning up what it shared with its jobs.
        Err(_) if !jobs.join(ORDER).exists() => (Vec::new(), None),
        Err(error) => (Vec::new(), Some(with_causes(&error))),
    }
}

/// Why the last process could not go on.
fn failure(journal: &[Record]) -> Option<String> {
    let last = journal.iter().rfind(|record| record.kind.starts_with("campaign."))?;
    if last.kind != "campaign.failed" {
        return None;
    }
    let payload: serde_json::Value = last.payload().ok()?;
    payload["why"].as_str().map(str::to_owned)
}

fn is_file(journal: &[Record], path: &str) -> bool {
    let path = format!("\"{path}\"");
    journal.iter().any(|record| record.payload_json().contains(&path))
}

fn build_status(journal: &[Record], attempts: &[Attempt], job: Option<&Job>) -> BuildStatus {
    let last = attempts.last();
    BuildStatus {
        state: state(is_file(journal, crate::stage::build::RECORD), false, last, job),
        job_id: job.map(|job| job.id).or(last.map(|attempt| attempt.job_id)),
        node: last.and_then(Attempt::started).map(|started| started.node),
        attempts: attempts.len(),
    }
}

fn row_status(journal: &[Record], row: &str, attempts: &[Attempt], job: Option<&Job>) -> RowStatus {
    let last = attempts.last();
    let records = last.map_or(journal, |attempt| attempt.records.as_slice());
    let count = |test: &dyn Fn(&Record) -> bool| records.iter().filter(|record| test(record)).count();
    let measure = format!("measure.{row}");
    let is_of_row = |record: &Record| record.payload_json().contains(&format!("\"row\":\"{row}\""));
    let is_recorded = is_file(journal, &format!("records/row-{row}.json"));
    let repetitions = count(&|record| record.kind == "repetition" && is_of_row(record));
    RowStatus {
        row: row.to_owned(),
        state: state(is_recorded, repetitions > 0, last, job),
        job_id: job.map(|job| job.id).or(last.map(|attempt| attempt.job_id)),
        node: last.and_then(Attempt::started).map(|started| started.node),
        attempts: attempts.len(),
        repetitions,
        samples: count(&|record| {
            record.kind == measure && record.payload_json().contains("\"attempt_ended\"")
        }),
    }
}

fn state(is_recorded: bool, is_begun: bool, last: Option<&Attempt>, job: Option<&Job>) -> String {
    if is_recorded {
        return "done".to_owned();
    }
    if last.is_some_and(Attempt::is_complete) {
        return "complete, not taken over yet".to_owned();
    }
    match (last.and_then(Attempt::ended), job.map(|job| &job.state)) {
        (Some(RowEnded::Failed { why, .. }), _) => format!("failed: {why}"),
        (_, Some(JobState::Waiting)) => match job.map(|job| job.reason.as_str()) {
            Some("") | None => "waits".to_owned(),
            Some(reason) => format!("waits ({reason})"),
        },
        (_, Some(JobState::Running)) => "runs".to_owned(),
        (Some(RowEnded::Interrupted { .. }), _) => "interrupted".to_owned(),
        (_, Some(state)) => format!("ended without evidence ({state:?})"),
        (_, None) if last.is_none() && is_begun => "under way".to_owned(),
        (_, None) if last.is_some() => "its job is unknown to Slurm".to_owned(),
        (_, None) => "not begun".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vanishes_while_it_is_looked_at_is_no_error() {
        for (kind, gone) in [(io::ErrorKind::NotFound, true), (io::ErrorKind::PermissionDenied, false)] {
            let error = CampaignError::new(Stage::Run, Cause::HostUnfit, io::Error::from(kind));
            assert_eq!(is_gone(&error), gone, "{kind}");
        }
        let error = CampaignError::new(Stage::Run, Cause::HostUnfit, "another");
        assert!(!is_gone(&error));
    }
}
