//! Where a campaign is, seen from outside: nothing is written, and a driver may be at work meanwhile.

use std::path::Path;

use cpu_placement::CancelToken;
use evidence::{Record, read_journal};
use serde::Serialize;

use super::attempt::{Attempt, RowEnded};
use super::order::{JOBS, Order};
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
    /// Its rows, in order.
    pub rows: Vec<RowStatus>,
    /// Why Slurm could not be asked, where it would have had to be.
    pub slurm: Option<String>,
}

/// Where a row is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowStatus {
    /// The row.
    pub row: String,
    /// In a few words.
    pub state: String,
    /// The scheduler's number of its last job.
    pub job_id: Option<u64>,
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
    let mut rows = Vec::new();
    for row in &file.definition.rows {
        let attempts = if jobs.is_dir() { Attempt::list(&jobs, &row.name)? } else { Vec::new() };
        rows.push(row_status(&journal, &row.name, &attempts, &known));
    }
    Ok(CampaignStatus {
        campaign: started.map_or(file.definition.name, |started| started.campaign),
        is_finished: out.join("manifest.json").exists(),
        failed: failure(&journal),
        rows,
        slurm,
    })
}

/// The jobs of a campaign with the name of their row, or why they cannot be had.
fn ask(jobs: &Path) -> (Vec<(String, Job)>, Option<String>) {
    let found = || -> Result<Vec<(String, Job)>, CampaignError> {
        let order = Order::read(jobs)?;
        let token = CancelToken::new();
        let client = Client::connect(&token).at(Stage::Run, Cause::HostUnfit)?;
        let jobs = client.jobs(&order.job_names(), &token).at(Stage::Run, Cause::HostUnfit)?;
        let named = |job: Job| {
            let row = order.rows.iter().find(|row| order.job_name(row) == job.name)?;
            Some((row.clone(), job))
        };
        Ok(jobs.into_iter().filter_map(named).collect())
    };
    match found() {
        Ok(jobs) => (jobs, None),
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

fn row_status(journal: &[Record], row: &str, attempts: &[Attempt], jobs: &[(String, Job)]) -> RowStatus {
    let last = attempts.last();
    let job = jobs.iter().rfind(|(of, _)| of == row).map(|(_, job)| job);
    let records = last.map_or(journal, |attempt| attempt.records.as_slice());
    let count = |test: &dyn Fn(&Record) -> bool| records.iter().filter(|record| test(record)).count();
    let measure = format!("measure.{row}");
    let is_of_row = |record: &Record| record.payload_json().contains(&format!("\"row\":\"{row}\""));
    let path = format!("\"records/row-{row}.json\"");
    let is_recorded = journal.iter().any(|record| record.payload_json().contains(&path));
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
