//! What Slurm's commands print, read. Nothing here starts a program.

use serde_json::Value;

use crate::executor::job_id::JobId;

/// A job as Slurm knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its name among jobs. A whole array that was cancelled before any of it ran has no tasks.
    pub(crate) id: JobId,
    /// Its name.
    pub(crate) name: String,
    /// What it does.
    pub(crate) state: JobState,
    /// Where it runs or ran; empty before it started.
    pub(crate) nodes: String,
    /// Why it waits or ended, as Slurm words it.
    pub(crate) reason: String,
}

impl Job {
    /// Whether it waited for a job that did not end well, so that it never runs.
    pub(crate) fn never_runs(&self) -> bool {
        matches!(self.state, JobState::Waiting | JobState::Cancelled) && self.reason == NEVER
    }
}

/// The reason of a job that waited for one that did not end well.
const NEVER: &str = "DependencyNeverSatisfied";

/// What a job does, as far as a campaign must tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// It waits for a node, perhaps once more.
    Waiting,
    /// It has a node.
    Running,
    /// It ended by itself.
    Ended,
    /// It did not end well; whether by its own doing, its exit record says.
    Failed,
    /// The kernel or Slurm ended it for the memory it took.
    OutOfMemory,
    /// Another job needed the node.
    Preempted,
    /// It met its time limit or deadline.
    TimeLimit,
    /// Somebody cancelled it.
    Cancelled,
    /// The node failed.
    NodeFail,
    /// A state that this version does not know.
    Other(String),
}

impl JobState {
    /// From Slurm's own word, such as `RUNNING` or `CANCELLED by 0`.
    pub(crate) fn parse(word: &str) -> Self {
        let first = word.split_whitespace().next().unwrap_or_default().trim_end_matches('+');
        match first {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
                JobState::Waiting
            }
            "RUNNING" | "CONFIGURING" | "COMPLETING" | "STAGE_OUT" | "SIGNALING" | "SUSPENDED"
            | "STOPPED" | "RESIZING" | "POWER_UP_NODE" | "EXPEDITING" => JobState::Running,
            "COMPLETED" => JobState::Ended,
            "FAILED" => JobState::Failed,
            "OUT_OF_MEMORY" => JobState::OutOfMemory,
            "PREEMPTED" => JobState::Preempted,
            "TIMEOUT" | "DEADLINE" => JobState::TimeLimit,
            "CANCELLED" | "REVOKED" => JobState::Cancelled,
            "NODE_FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => JobState::NodeFail,
            other => JobState::Other(other.to_owned()),
        }
    }

    /// Whether it may still do something.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self, JobState::Waiting | JobState::Running | JobState::Other(_))
    }
}

/// Why a text is not what a command prints.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextError {
    /// It is no JSON.
    #[error("read the output of squeue --json")]
    Json(#[from] serde_json::Error),
    /// It is JSON of another shape.
    #[error("read the output of squeue --json: no {what}")]
    Shape {
        /// What is missing.
        what: &'static str,
    },
    /// A line has another shape.
    #[error("read the output of squeue: unexpected line {line:?}")]
    Line {
        /// The line.
        line: String,
    },
    /// Not what sbatch prints.
    #[error("read the output of sbatch: no job id in {text:?}")]
    JobId {
        /// What it printed.
        text: String,
    },
    /// Not a version.
    #[error("read the version of Slurm from {text:?}")]
    Version {
        /// What was printed.
        text: String,
    },
}

/// The columns that [`queue`] reads, for `squeue --array -o`. A name never holds a `|`, a reason may.
pub(crate) const COLUMNS: &str = "%F|%K|%j|%T|%N|%r";

/// The lines of `squeue --array --noheader -o COLUMNS`.
pub(crate) fn queue(text: &str) -> Result<Vec<Job>, TextError> {
    text.lines().filter(|line| !line.trim().is_empty()).map(queue_line).collect()
}

fn queue_line(line: &str) -> Result<Job, TextError> {
    let wrong = || TextError::Line { line: line.to_owned() };
    let parts: Vec<&str> = line.trim().splitn(6, '|').collect();
    let [number, task, name, state, nodes, reason] = parts[..] else { return Err(wrong()) };
    let task = match no_null(task).as_str() {
        "" => None,
        task => Some(task.parse().map_err(|_| wrong())?),
    };
    Ok(Job {
        id: JobId { number: number.parse().map_err(|_| wrong())?, task },
        name: name.to_owned(),
        state: JobState::parse(state),
        nodes: no_null(nodes),
        reason: no_null(reason),
    })
}

fn no_null(text: &str) -> String {
    if matches!(text, "(null)" | "None" | "n/a" | "N/A") { String::new() } else { text.to_owned() }
}

/// The document of `squeue --json`, whose state is a word in some versions and a list of words in others.
pub(crate) fn queue_json(text: &str) -> Result<Vec<Job>, TextError> {
    let document: Value = serde_json::from_str(text)?;
    let jobs = document.get("jobs").and_then(Value::as_array).ok_or(TextError::Shape { what: "jobs" })?;
    let all: Vec<Vec<Job>> = jobs.iter().map(jobs_json).collect::<Result<_, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// A job, or every task of an array that is still one entry because none of them has run.
fn jobs_json(job: &Value) -> Result<Vec<Job>, TextError> {
    let word = |key: &str| job.get(key).and_then(Value::as_str).map(no_null).unwrap_or_default();
    let state = match job.get("job_state") {
        Some(Value::String(word)) => JobState::parse(word),
        Some(Value::Array(words)) => state_of_words(words),
        _ => return Err(TextError::Shape { what: "job_state" }),
    };
    let own = job.get("job_id").and_then(Value::as_u64).ok_or(TextError::Shape { what: "job_id" })?;
    let array = number_json(job.get("array_job_id")).filter(|number| *number > 0);
    let of = |task: Option<u32>| Job {
        id: JobId { number: array.unwrap_or(own), task },
        name: word("name"),
        state: state.clone(),
        nodes: word("nodes"),
        reason: word("state_reason"),
    };
    let task = number_json(job.get("array_task_id")).filter(|_| array.is_some());
    let tasks = match task {
        Some(task) => vec![u32::try_from(task).map_err(|_| TextError::Shape { what: "array_task_id" })?],
        None => tasks(&word("array_task_string")).ok_or(TextError::Shape { what: "array_task_string" })?,
    };
    Ok(if tasks.is_empty() { vec![of(None)] } else { tasks.into_iter().map(|task| of(Some(task))).collect() })
}

/// A number, which some releases wrap in an object that says whether it is set.
fn number_json(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Object(wrapped) if wrapped.get("set") == Some(&Value::Bool(true)) => {
            wrapped.get("number").and_then(Value::as_u64)
        }
        plain => plain.as_u64(),
    }
}

/// The tasks of `0-3`, `1,4-6` or `0-9%2`; none of an empty text.
fn tasks(text: &str) -> Option<Vec<u32>> {
    let text = text.split('%').next().unwrap_or_default();
    let mut found = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(found)
}

/// A base state with flags: a job that is completing still runs, whatever it will have been.
fn state_of_words(words: &[Value]) -> JobState {
    let states: Vec<JobState> = words.iter().filter_map(Value::as_str).map(JobState::parse).collect();
    let alive = states.iter().find(|state| state.is_alive() && !matches!(state, JobState::Other(_)));
    alive.or(states.first()).cloned().unwrap_or(JobState::Other("none".to_owned()))
}

/// The state of a job in `scontrol show job -o` or in `sacct -X -n -P -o State`.
pub(crate) fn state_in_scontrol(text: &str) -> Option<JobState> {
    let words = text.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    words.map(JobState::parse)
}

/// The last state that accounting has of a job.
pub(crate) fn state_in_accounting(text: &str) -> Option<JobState> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(JobState::parse)
}

/// The job that `sbatch --parsable` made: `ID` or `ID;CLUSTER`.
pub(crate) fn submitted(text: &str) -> Result<u64, TextError> {
    let wrong = || TextError::JobId { text: text.trim().to_owned() };
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).ok_or_else(wrong)?;
    line.split(';').next().unwrap_or(line).parse().map_err(|_| wrong())
}

/// Year and month of a Slurm release, from `slurm-wlm 22.05.8` and its like.
pub(crate) fn version(text: &str) -> Result<(u32, u32), TextError> {
    let wrong = || TextError::Version { text: text.trim().to_owned() };
    let word = text.split_whitespace().last().ok_or_else(wrong)?;
    let mut parts = word.split(['.', '-']);
    let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong);
    Ok((number()?, number()?))
}

#[cfg(test)]
mod tests;
