//! The `[slurm]` table of a campaign file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How the rows of a campaign are submitted to Slurm, and when a row may start again. Used by `--executor slurm` only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// `--account`
    pub account: Option<String>,
    /// `--partition`
    pub partition: Option<String>,
    /// `--qos`
    pub qos: Option<String>,
    /// `--constraint`
    pub constraint: Option<String>,
    /// `--time`, in minutes; without it, the partition's default.
    pub time_limit_min: Option<u64>,
    /// Further options of sbatch, one per entry and each starting with `--`.
    pub extra: Vec<String>,
    /// Where both revisions are built.
    pub build: BuildWhere,
    /// Further options of sbatch for the job that builds; what is given twice counts as given here.
    pub build_extra: Vec<String>,
    /// Node-local folder that a job stages artifacts and trace in, and that a job that builds works in.
    pub staging: PathBuf,
    /// Node-local folder of the lock that keeps builds and measurements apart; without it, the default of the node.
    pub node_lock: Option<PathBuf>,
    /// What may end an attempt at a row without being held against anybody: the row then starts again.
    pub restart_on: Vec<Condition>,
    /// How often a row, or the job that builds, may start again.
    pub restarts_per_row: u32,
    /// Time between two looks at the jobs, in milliseconds.
    pub poll_ms: u64,
    /// How long a job may be unknown to Slurm, or ended without its exit record being seen, before it counts as lost.
    pub patience_s: u64,
}

impl Default for Slurm {
    fn default() -> Self {
        Slurm {
            account: None,
            partition: None,
            qos: None,
            constraint: None,
            time_limit_min: None,
            extra: Vec::new(),
            build: BuildWhere::default(),
            build_extra: Vec::new(),
            staging: "/tmp".into(),
            node_lock: None,
            restart_on: Condition::ALL.to_vec(),
            restarts_per_row: 2,
            poll_ms: 10_000,
            patience_s: 60,
        }
    }
}

/// Where both revisions are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BuildWhere {
    /// Where the campaign is started.
    #[default]
    Here,
    /// In a job of its own that the rows wait for.
    Job,
}

/// What Slurm or a person may do to a job, without the row having anything to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Another job needed the node.
    Preempted,
    /// The job was put back into the queue.
    Requeued,
    /// The node failed.
    NodeFail,
    /// The job met its time limit.
    TimeLimit,
    /// Somebody cancelled the job.
    Cancelled,
    /// Slurm does not know the job any more and it left no exit record.
    Lost,
}

impl Condition {
    /// Every condition.
    pub const ALL: [Condition; 6] = [
        Condition::Preempted,
        Condition::Requeued,
        Condition::NodeFail,
        Condition::TimeLimit,
        Condition::Cancelled,
        Condition::Lost,
    ];

    /// The name in a campaign file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Condition::Preempted => "preempted",
            Condition::Requeued => "requeued",
            Condition::NodeFail => "node-fail",
            Condition::TimeLimit => "time-limit",
            Condition::Cancelled => "cancelled",
            Condition::Lost => "lost",
        }
    }
}

/// Options that a job of a row has already.
const OURS: [&str; 20] = [
    "--array",
    "--chdir",
    "--comment",
    "--dependency",
    "--error",
    "--exclusive",
    "--export",
    "--export-file",
    "--input",
    "--job-name",
    "--kill-on-invalid-dep",
    "--no-requeue",
    "--nodes",
    "--ntasks",
    "--open-mode",
    "--output",
    "--parsable",
    "--requeue",
    "--wait",
    "--wrap",
];

impl Slurm {
    /// What is wrong, as key and message.
    pub(crate) fn fault(&self) -> Option<(String, String)> {
        let texts = [
            ("account", &self.account),
            ("partition", &self.partition),
            ("qos", &self.qos),
            ("constraint", &self.constraint),
        ];
        for (key, value) in texts {
            let bad = value.as_deref().is_some_and(|text| text.is_empty() || text.contains(char::is_control));
            if bad {
                return Some((key.to_owned(), "must not be empty and must be one line".to_owned()));
            }
        }
        let faults = [("extra", &self.extra, true), ("build_extra", &self.build_extra, false)];
        for (key, options, has_keys) in faults {
            let fault =
                |option: &String| option_fault(option).or_else(|| key_fault(option).filter(|_| has_keys));
            let found = options.iter().enumerate().find_map(|(at, option)| Some((at, fault(option)?)));
            if let Some((index, message)) = found {
                return Some((format!("{key}[{index}]"), message));
            }
        }
        let positive = [("poll_ms", Some(self.poll_ms)), ("time_limit_min", self.time_limit_min)];
        for (key, value) in positive {
            if value == Some(0) {
                return Some((key.to_owned(), "must be at least 1".to_owned()));
            }
        }
        let folders = [("staging", Some(&self.staging)), ("node_lock", self.node_lock.as_ref())];
        for (key, folder) in folders {
            if folder.is_some_and(|folder| !folder.is_absolute()) {
                return Some((
                    key.to_owned(),
                    "must be an absolute path: it is a folder of the nodes".to_owned(),
                ));
            }
        }
        None
    }
}

fn name_of(option: &str) -> &str {
    option.split('=').next().unwrap_or(option)
}

fn option_fault(option: &str) -> Option<String> {
    let name = name_of(option);
    if !option.starts_with("--") || option.contains(char::is_control) {
        return Some(format!(
            "expected a long option of sbatch such as \"--reservation=x\", found {option:?}"
        ));
    }
    if name == "--exclusive" || OURS.contains(&name) {
        return Some(format!("{name} is set for every job and cannot be changed"));
    }
    None
}

/// What has a key of its own for every job.
fn key_fault(option: &str) -> Option<String> {
    let name = name_of(option);
    let keys = ["account", "partition", "qos", "constraint"];
    let key = keys.into_iter().find(|key| name.strip_prefix("--") == Some(key));
    key.map(|key| format!("use slurm.{key}"))
        .or_else(|| (name == "--time").then(|| "use slurm.time_limit_min".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_for_every_job_cannot_be_set_again() {
        let extra = |option: &str| Slurm { extra: vec![option.to_owned()], ..Slurm::default() };
        let build_extra = |option: &str| Slurm { build_extra: vec![option.to_owned()], ..Slurm::default() };
        for (slurm, says) in [
            (extra("--reservation=night"), None),
            (extra("--mem=0"), None),
            (extra("-p x"), Some("expected a long option")),
            (extra("--nodes=2"), Some("--nodes is set for every job")),
            (extra("--exclusive=user"), Some("--exclusive is set for every job")),
            (extra("--kill-on-invalid-dep=no"), Some("--kill-on-invalid-dep is set for every job")),
            (extra("--partition=x"), Some("use slurm.partition")),
            (build_extra("--partition=x"), None),
            (build_extra("--time=90"), None),
            (build_extra("--array=1"), Some("--array is set for every job")),
            (build_extra("-p"), Some("expected a long option")),
            (extra("--time=1"), Some("use slurm.time_limit_min")),
            (Slurm { poll_ms: 0, ..Slurm::default() }, Some("must be at least 1")),
            (Slurm { account: Some(String::new()), ..Slurm::default() }, Some("must not be empty")),
            (Slurm { staging: "tmp".into(), ..Slurm::default() }, Some("must be an absolute path")),
        ] {
            let found = slurm.fault().map(|(_, message)| message);
            match says {
                None => assert_eq!(found, None),
                Some(says) => assert!(found.as_deref().is_some_and(|text| text.contains(says)), "{found:?}"),
            }
        }
    }

    #[test]
    fn keys_are_known_or_errors() {
        let all = r#"account = "a"
            restart_on = ["preempted", "requeued", "node-fail", "time-limit", "cancelled", "lost"]"#;
        let read: Slurm = crate::definition::from_toml(all).expect("a table");
        assert_eq!(read, Slurm { account: Some("a".into()), ..Slurm::default() });
        let read: Slurm = crate::definition::from_toml("build = \"job\"").expect("a table");
        assert_eq!(read, Slurm { build: BuildWhere::Job, ..Slurm::default() });
        for (text, says) in [
            ("build = \"jobs\"", "did you mean `job`?"),
            ("acount = \"a\"", "did you mean `account`?"),
            ("restart_on = [\"lots\"]", "did you mean `lost`?"),
        ] {
            let error = crate::definition::from_toml::<Slurm>(text).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
