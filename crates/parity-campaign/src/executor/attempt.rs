//! What a process that works a row off, or builds, leaves: one folder per attempt, which is a bundle, sealed only when it is whole.

use std::fs;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use evidence::{JournalError, Record, read_journal};
use serde::{Deserialize, Serialize};

use super::job_id::JobId;
use super::order::Work;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::stage::Stage;

/// The journal's kind of an attempt that begins.
pub(crate) const STARTED: &str = "row.started";
/// The journal's kind of an attempt that ends by itself: its exit record.
pub(crate) const ENDED: &str = "row.ended";

/// `row.started`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct RowStarted {
    pub(crate) campaign_id: String,
    pub(crate) campaign_sha256: Sha256,
    /// The row; none of a job that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<String>,
    pub(crate) job_id: JobId,
    pub(crate) restart: u32,
    /// The scheduler's name of the node.
    pub(crate) node: String,
    /// The program that does the work.
    pub(crate) parity_sha256: Sha256,
    pub(crate) written_by: String,
}

/// `row.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "how")]
pub(crate) enum RowEnded {
    /// Everything there is to know is in the bundle, whatever it says of the product.
    Complete,
    /// A signal came: somebody took the node back.
    Interrupted { why: String },
    /// The work could not be done.
    Failed { cause: String, stage: Stage, why: String },
}

impl RowEnded {
    pub(crate) fn of(error: &CampaignError, shown: String) -> Self {
        match error.cause {
            Cause::Cancelled => RowEnded::Interrupted { why: shown },
            cause => RowEnded::Failed { cause: word(cause).to_owned(), stage: error.stage, why: shown },
        }
    }

    /// The same failure in another process.
    pub(crate) fn error(&self, work: Work<'_>) -> Option<CampaignError> {
        let RowEnded::Failed { cause, stage, why } = self else { return None };
        let all = [
            Cause::BadInput,
            Cause::HostUnfit,
            Cause::TargetFailed,
            Cause::StopForReview,
            Cause::Cancelled,
            Cause::Bug,
        ];
        let cause = all.into_iter().find(|known| word(*known) == cause).unwrap_or(Cause::Bug);
        Some(work.blame(CampaignError::new(*stage, cause, format!("its job failed: {why}"))))
    }
}

fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::BadInput => "bad-input",
        Cause::HostUnfit => "host-unfit",
        Cause::TargetFailed => "target-failed",
        Cause::StopForReview => "stop-for-review",
        Cause::Cancelled => "cancelled",
        Cause::Bug => "bug",
    }
}

/// One attempt at a row or at the build, as far as it can be read now.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) dir: PathBuf,
    pub(crate) job_id: JobId,
    pub(crate) restart: u32,
    /// Whether it is whole: the manifest is the last thing written.
    pub(crate) is_sealed: bool,
    pub(crate) records: Vec<Record>,
}

impl Attempt {
    /// The folder of an attempt.
    pub(crate) fn folder(jobs: &Path, work: Work<'_>, job_id: JobId, restart: u32) -> PathBuf {
        work.attempts(jobs).join(format!("{job_id}-{restart}"))
    }

    /// Every attempt at some work, in the order in which the scheduler gave them a node.
    pub(crate) fn list(jobs: &Path, work: Work<'_>) -> Result<Vec<Attempt>, CampaignError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(work.attempts(jobs)).at(work.stage(), Cause::HostUnfit)? {
            let path = entry.at(work.stage(), Cause::HostUnfit)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let parts = name
                .split_once('-')
                .and_then(|(job, restart)| Some((job.parse().ok()?, restart.parse().ok()?)));
            if let Some((job_id, restart)) = parts {
                found.push(Attempt::read(path, job_id, restart).map_err(|error| work.blame(error))?);
            }
        }
        found.sort_by_key(|attempt| (attempt.job_id, attempt.restart));
        Ok(found)
    }

    fn read(dir: PathBuf, job_id: JobId, restart: u32) -> Result<Attempt, CampaignError> {
        let is_sealed = dir.join("manifest.json").exists();
        let records = match read_journal(&dir) {
            Ok(journal) => journal.records,
            // It has only just begun, or it was ended while it did.
            Err(JournalError::NotABundle) => Vec::new(),
            Err(JournalError::Broken { problem, intact }) if !is_sealed => {
                tracing::warn!(line = problem.line, "the journal of an attempt broke; what is whole is used");
                intact
            }
            Err(error) => return Err(CampaignError::new(Stage::Run, Cause::HostUnfit, error)),
        };
        Ok(Attempt { dir, job_id, restart, is_sealed, records })
    }

    fn payload<T: serde::de::DeserializeOwned>(&self, kind: &str) -> Option<T> {
        let record = self.records.iter().rfind(|record| record.kind == kind)?;
        match record.payload() {
            Ok(payload) => Some(payload),
            Err(error) => {
                tracing::warn!(why = with_causes(&error), "a record of an attempt cannot be read");
                None
            }
        }
    }

    pub(crate) fn started(&self) -> Option<RowStarted> {
        self.payload(STARTED)
    }

    pub(crate) fn ended(&self) -> Option<RowEnded> {
        self.payload(ENDED)
    }

    /// Whether it came to its end and is whole.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_sealed && self.ended() == Some(RowEnded::Complete)
    }

    /// A name for files and readers.
    pub(crate) fn name(&self, work: Work<'_>) -> String {
        format!("{}-{}-{}", work.row().unwrap_or("build"), self.job_id, self.restart)
    }
}
