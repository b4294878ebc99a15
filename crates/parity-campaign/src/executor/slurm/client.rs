//! Slurm's commands, started.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use cpu_placement::{CancelToken, Outcome, Output, Run, SpawnError};

use super::text::{self, Job, JobState, TextError};
use crate::executor::job_id::JobId;

/// Why Slurm did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlurmError {
    /// A command could not be started: Slurm is not installed here.
    #[error("start {command}")]
    Start {
        /// The command.
        command: &'static str,
        /// Why not.
        source: SpawnError,
    },
    /// A command said no.
    #[error("{command} {how}: {said}")]
    Refused {
        /// The command.
        command: &'static str,
        /// How it ended.
        how: String,
        /// What it said.
        said: String,
    },
    /// What a command printed cannot be read.
    #[error("use what {command} printed")]
    Text {
        /// The command.
        command: &'static str,
        /// Why not.
        source: TextError,
    },
    /// The output of a command could not be kept.
    #[error("keep the output of {command}")]
    Output {
        /// The command.
        command: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The campaign was interrupted.
    #[error("{command} was not waited for: the campaign was interrupted")]
    Cancelled {
        /// The command.
        command: &'static str,
    },
}

/// What the commands may know of us: where they are, who we are, which cluster.
const ENVIRONMENT: [&str; 7] =
    ["PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "SLURM_CLUSTERS", "KRB5CCNAME"];

/// How long a command may take. A controller that is busy or just failing over answers late.
const PATIENCE: Duration = Duration::from_secs(120);

/// The first release whose JSON can be had for some jobs only.
const JSON_SINCE: (u32, u32) = (23, 2);

/// The commands of one cluster.
#[derive(Debug)]
pub(crate) struct Client {
    version: (u32, u32),
}

impl Client {
    /// Asks the installed Slurm who it is.
    pub(crate) fn connect(cancel: &CancelToken) -> Result<Self, SlurmError> {
        let printed = run("sbatch", ["--version".into()], cancel)?;
        let version =
            text::version(&printed).map_err(|source| SlurmError::Text { command: "sbatch", source })?;
        Ok(Client { version })
    }

    /// Year and month of the release.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Submits a job, or an array of them, and returns its number. The job gets what sbatch is given of our environment: the
    /// few variables that all commands get, and `more`.
    pub(crate) fn submit(
        &self,
        args: Vec<OsString>,
        more: &[String],
        cancel: &CancelToken,
    ) -> Result<u64, SlurmError> {
        let printed = run_with("sbatch", args, more, cancel)?;
        text::submitted(&printed).map_err(|source| SlurmError::Text { command: "sbatch", source })
    }

    /// The jobs with these names that the controller still knows, in the order of their numbers.
    pub(crate) fn jobs(&self, names: &[String], cancel: &CancelToken) -> Result<Vec<Job>, SlurmError> {
        let json = if self.version >= JSON_SINCE { queue(names, true, cancel).ok() } else { None };
        // An installation without the plugin for JSON has the text all the same.
        let mut jobs = json.map_or_else(|| queue(names, false, cancel), Ok)?;
        jobs.retain(|job| names.contains(&job.name));
        jobs.sort_by_key(|job| job.id);
        Ok(jobs)
    }

    /// How a job ended that the queue does not list any more, where the controller or accounting still knows.
    pub(crate) fn past(&self, id: JobId, cancel: &CancelToken) -> Option<JobState> {
        let id = id.to_string();
        let shown = run("scontrol", ["show", "job", "-o", &id].map(Into::into), cancel).ok();
        shown.and_then(|text| text::state_in_scontrol(&text)).or_else(|| {
            let fields = ["-X", "-n", "-P", "-D", "-o", "State", "-j", &id];
            // Accounting is often switched off, and then says so with an error: there is nothing to be known.
            text::state_in_accounting(&run("sacct", fields.map(Into::into), cancel).ok()?)
        })
    }

    /// Cancels some jobs.
    pub(crate) fn cancel_jobs(&self, jobs: &[JobId], cancel: &CancelToken) -> Result<(), SlurmError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let ids = jobs.iter().map(|id| id.to_string().into());
        run("scancel", ["--quiet".into()].into_iter().chain(ids), cancel).map(drop)
    }

    /// Cancels jobs by name.
    pub(crate) fn cancel(&self, names: &[String], cancel: &CancelToken) -> Result<(), SlurmError> {
        names.iter().try_for_each(|name| {
            run("scancel", ["--quiet".into(), format!("--name={name}").into()], cancel).map(drop)
        })
    }
}

fn queue(names: &[String], json: bool, cancel: &CancelToken) -> Result<Vec<Job>, SlurmError> {
    let named = OsString::from(format!("--name={}", names.join(",")));
    let all = ["--all".into(), "--states=all".into(), named];
    let shape: &[&str] = if json { &["--json"] } else { &["--array", "--noheader", "-o", text::COLUMNS] };
    let printed = run("squeue", all.into_iter().chain(shape.iter().map(Into::into)), cancel)?;
    let jobs = if json { text::queue_json(&printed) } else { text::queue(&printed) };
    jobs.map_err(|source| SlurmError::Text { command: "squeue", source })
}

fn run(
    command: &'static str,
    args: impl IntoIterator<Item = OsString>,
    cancel: &CancelToken,
) -> Result<String, SlurmError> {
    run_with(command, args, &[], cancel)
}

fn run_with(
    command: &'static str,
    args: impl IntoIterator<Item = OsString>,
    more: &[String],
    cancel: &CancelToken,
) -> Result<String, SlurmError> {
    let kept = |source| SlurmError::Output { command, source };
    let folder = tempfile::tempdir().map_err(kept)?;
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let mut run = Run::new(command)
        .args(args)
        .env("LC_ALL", "C")
        .stdout(Output::File(stdout.clone()))
        .stderr(Output::File(stderr.clone()))
        .observe(cpu_placement::Observe::Ends)
        .time_limit(PATIENCE);
    for name in ENVIRONMENT.into_iter().chain(more.iter().map(String::as_str)) {
        run = run.env_from_parent(name);
    }
    let finished = run.wait(cancel).map_err(|source| match source {
        SpawnError::Cancelled { .. } => SlurmError::Cancelled { command },
        source => SlurmError::Start { command, source },
    })?;
    let how = match finished.outcome {
        Outcome::Exited(0) => return fs::read_to_string(&stdout).map_err(kept),
        Outcome::Cancelled => return Err(SlurmError::Cancelled { command }),
        Outcome::Exited(code) => format!("exited with status {code}"),
        Outcome::TimedOut => format!("did not end within {} s", PATIENCE.as_secs()),
        other => format!("ended unexpectedly ({other:?})"),
    };
    Err(SlurmError::Refused { command, how, said: said(&stderr).map_err(kept)? })
}

fn said(stderr: &Path) -> std::io::Result<String> {
    let bytes = fs::read(stderr)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(if lines.is_empty() { "it said nothing".to_owned() } else { lines.join("; ") })
}
