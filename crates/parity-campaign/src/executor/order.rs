//! What a row needs to be worked off elsewhere: a folder that every node can read, written once and whole.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use mooncake_trace::SliceManifest;
use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::merge;
use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::profile::ProfileWhen;
use crate::record::{BuildRecord, Side};
use crate::stage::Stage;
use crate::stage::build::Built;
use crate::stage::slice::Sliced;

/// The folder below the scratch folder that the jobs share; it survives a resume.
pub(crate) const JOBS: &str = "jobs";

/// While this file is there, no row may start.
pub(crate) const CANCELLED: &str = "cancelled";

const SCHEMA: &str = "kvrp.row-order.v2";
pub(crate) const FILE: &str = "order.json";

/// What a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// Both artifacts.
    Build,
    /// One row.
    Row(&'a str),
}

impl<'a> Work<'a> {
    /// The row, if it is one.
    pub(crate) fn row(self) -> Option<&'a str> {
        match self {
            Work::Build => None,
            Work::Row(row) => Some(row),
        }
    }

    /// The stage that an error belongs to.
    pub(crate) fn stage(self) -> Stage {
        match self {
            Work::Build => Stage::Build,
            Work::Row(_) => Stage::Run,
        }
    }

    /// An error of this work.
    pub(crate) fn error(
        self,
        cause: Cause,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> CampaignError {
        self.blame(CampaignError::new(self.stage(), cause, source))
    }

    /// The same error, and which row it is of.
    pub(crate) fn blame(self, error: CampaignError) -> CampaignError {
        match self {
            Work::Build => error,
            Work::Row(row) => error.in_row(row),
        }
    }

    /// The folder of the attempts at it.
    pub(crate) fn attempts(self, jobs: &Path) -> PathBuf {
        match self {
            Work::Build => jobs.join("builds"),
            Work::Row(row) => jobs.join("rows").join(row),
        }
    }
}

impl fmt::Display for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Build => f.write_str("build"),
            Work::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// `order.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) schema: String,
    /// Names this run of this campaign; part of the name of every job.
    pub(crate) campaign_id: String,
    pub(crate) campaign_sha256: Sha256,
    pub(crate) rows: Vec<String>,
    /// The program that works rows off, the one that wrote this.
    pub(crate) parity_sha256: Sha256,
    pub(crate) profile: ProfileWhen,
    /// `None` where a job builds: then its evidence has it.
    pub(crate) build: Option<BuildRecord>,
    pub(crate) slice: SliceManifest,
}

impl Order {
    /// Reads the order of a folder.
    pub(crate) fn read(jobs: &Path) -> Result<Self, CampaignError> {
        let path = jobs.join(FILE);
        let bytes = fs::read(&path)
            .map_err(|error| format!("read {}: {error}", path.display()))
            .at(Stage::Run, Cause::BadInput)?;
        let order: Order = serde_json::from_slice(&bytes).at(Stage::Run, Cause::BadInput)?;
        if order.schema != SCHEMA {
            let message = format!("{FILE} has schema {:?}, expected {SCHEMA:?}", order.schema);
            return Err(CampaignError::new(Stage::Run, Cause::BadInput, message));
        }
        Ok(order)
    }

    /// The name of the jobs for some work. Rows share one: each is a task of an array, numbered as in `rows`.
    pub(crate) fn job_name(&self, work: Work<'_>) -> String {
        match work {
            Work::Build => format!("kvrpbuild-{}", self.campaign_id),
            Work::Row(_) => format!("kvrp-{}", self.campaign_id),
        }
    }

    /// The task of an array that works a row off.
    pub(crate) fn task(&self, row: &str) -> Option<u32> {
        self.rows.iter().position(|known| known == row).and_then(|at| u32::try_from(at).ok())
    }

    /// The name of the job that takes the rows over.
    pub(crate) fn merge_name(&self) -> String {
        format!("kvrpmerge-{}", self.campaign_id)
    }

    /// The names of all jobs but the one that takes the rows over.
    pub(crate) fn job_names(&self) -> Vec<String> {
        [Work::Build, Work::Row("")].map(|work| self.job_name(work)).to_vec()
    }

    /// The record of the artifacts, of this process or of the job that built them.
    pub(crate) fn built(&self, jobs: &Path) -> Result<BuildRecord, CampaignError> {
        if let Some(record) = &self.build {
            return Ok(record.clone());
        }
        let attempts = Attempt::list(jobs, Work::Build)?;
        let Some(attempt) = attempts.iter().rfind(|attempt| attempt.is_complete()) else {
            return Err(Work::Build.error(Cause::HostUnfit, "no job has left its evidence"));
        };
        merge::check(self, Work::Build, attempt)?;
        merge::record(Work::Build, attempt, crate::stage::build::RECORD)
    }
}

/// Where things are in the shared folder.
pub(crate) fn harness(jobs: &Path, side: Side) -> PathBuf {
    jobs.join(side.letter()).join("harness")
}

pub(crate) fn trace(jobs: &Path) -> PathBuf {
    jobs.join("trace.jsonl")
}

pub(crate) fn campaign(jobs: &Path) -> PathBuf {
    jobs.join("campaign.toml")
}

pub(crate) fn program(jobs: &Path) -> PathBuf {
    jobs.join("parity")
}

pub(crate) fn exception(jobs: &Path, index: usize) -> PathBuf {
    jobs.join(format!("exception-{index}.toml"))
}

/// Makes the shared folder, or finds the one that an earlier process of this campaign made.
/// Without artifacts, a job makes them.
pub(crate) fn write(
    context: &Context<'_>,
    built: Option<&Built>,
    sliced: &Sliced,
) -> Result<(PathBuf, Order), CampaignError> {
    let jobs = context.work.join(JOBS);
    if jobs.join(FILE).exists() {
        let order = Order::read(&jobs)?;
        refuse_another(&order, context, built, sliced)?;
        return Ok((jobs, order));
    }
    let order = make(context, built, sliced)?;
    let new = context.work.join("jobs.new");
    if new.exists() {
        fs::remove_dir_all(&new).at(Stage::Run, Cause::HostUnfit)?;
    }
    fill(context, &new, &order, built, sliced).at(Stage::Run, Cause::HostUnfit)?;
    fs::rename(&new, &jobs).at(Stage::Run, Cause::HostUnfit)?;
    Ok((jobs, order))
}

fn refuse_another(
    order: &Order,
    context: &Context<'_>,
    built: Option<&Built>,
    sliced: &Sliced,
) -> Result<(), CampaignError> {
    let digests = |record: &BuildRecord| Side::BOTH.map(|side| record.artifacts.get(side).sha256);
    let same = order.campaign_sha256 == context.file.sha256
        && order.build.as_ref().map(digests) == built.map(|built| digests(&built.record))
        && order.slice.slice.sha256 == sliced.manifest.slice.sha256;
    if same {
        return Ok(());
    }
    let message = "what was given to the jobs is not what this campaign has now";
    Err(CampaignError::new(Stage::Run, Cause::BadInput, message))
}

fn make(context: &Context<'_>, built: Option<&Built>, sliced: &Sliced) -> Result<Order, CampaignError> {
    let journal = evidence::read_journal(context.bundle.dir()).at(Stage::Run, Cause::HostUnfit)?;
    let first = journal.records.first().map(|record| record.digest.to_string()).unwrap_or_default();
    let own = own_program()?;
    Ok(Order {
        schema: SCHEMA.to_owned(),
        // The first record has the time in it: two runs of one campaign file are two campaigns.
        campaign_id: Sha256::of(format!("{} {first}", context.file.sha256).as_bytes()).to_string()[..12]
            .to_owned(),
        campaign_sha256: context.file.sha256,
        rows: context.definition().rows.iter().map(|row| row.name.clone()).collect(),
        parity_sha256: Sha256::of_file(&own).at(Stage::Run, Cause::HostUnfit)?.0,
        profile: context.options.profile,
        build: built.map(|built| built.record.clone()),
        slice: sliced.manifest.clone(),
    })
}

pub(crate) fn own_program() -> Result<PathBuf, CampaignError> {
    std::env::current_exe().at(Stage::Run, Cause::HostUnfit)
}

/// What the job of a row starts with; its argument is the shared folder.
const SCRIPT: &str = "#!/bin/sh\nexec \"$1/parity\" row \"$1\"\n";

pub(crate) const SCRIPT_NAME: &str = "row.sh";

/// What every other job starts with: a program and all its arguments.
const EXEC_SCRIPT: &str = "#!/bin/sh\nexec \"$@\"\n";

pub(crate) const EXEC_SCRIPT_NAME: &str = "exec.sh";

fn fill(
    context: &Context<'_>,
    folder: &Path,
    order: &Order,
    built: Option<&Built>,
    sliced: &Sliced,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    fs::create_dir_all(folder.join("log"))?;
    for work in order.rows.iter().map(|row| Work::Row(row)).chain([Work::Build]) {
        fs::create_dir_all(work.attempts(folder))?;
    }
    for side in Side::BOTH {
        fs::create_dir_all(folder.join(side.letter()))?;
        if let Some(built) = built {
            fs::copy(built.harness.get(side), harness(folder, side))?;
        }
    }
    fs::copy(&sliced.path, trace(folder))?;
    fs::copy(own_program()?, program(folder))?;
    fs::write(campaign(folder), &context.file.bytes)?;
    for (index, record) in context.exceptions.iter().enumerate() {
        fs::write(exception(folder, index), &record.bytes)?;
    }
    for (name, text) in [(SCRIPT_NAME, SCRIPT), (EXEC_SCRIPT_NAME, EXEC_SCRIPT)] {
        let script = folder.join(name);
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    let mut bytes = serde_json::to_vec_pretty(order)?;
    bytes.push(b'\n');
    fs::write(folder.join(FILE), bytes)?;
    Ok(())
}
