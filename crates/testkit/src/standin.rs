//! A program with the command line of a replay harness that does what a script says.
//!
//! It is for what a real harness cannot be made to do: crash, hang, write two records. A campaign starts it with an empty
//! environment and arguments of its own, so the script is compiled in.
//!
//! # The script
//!
//! One line is a condition and an action. Conditions: `always`; `on-report` and `on-timing`, when a report is asked for
//! and when it is not; `nth N`, in the Nth process that was asked to replay, from 1, which needs a line `counter FILE`
//! (an absolute path, counted up by every such process). Actions:
//!
//! | action | what happens |
//! |---|---|
//! | `exit CODE` | says so on stderr and exits before writing anything |
//! | `signal NAME` | sends itself a signal, such as `KILL` or `SEGV` |
//! | `hang` | sleeps until it is killed |
//! | `sleep MS` | sleeps first |
//! | `stderr BYTES`, `stdout BYTES` | writes that much first |
//! | `burn MS` | uses so much CPU time in a function called `hot_function` |
//! | `fill` | writes to a file in its working directory until the disk is full |
//! | `grandchild SECONDS FILE` | starts a process that outlives this one, and writes its id to the file |
//! | `malformed-report`, `malformed-timing` | cuts the record in half |
//! | `two-reports`, `two-timings` | writes the record twice |
//! | `no-report`, `no-timing` | leaves the file empty |
//! | `missing-report`, `missing-timing` | does not make the file |
//! | `metric TEXT` | writes this as `replay_execution_ms`, such as `NaN`, `-1` or `"x"` |
//! | `no-metric` | leaves `replay_execution_ms` out |
//! | `not-replay-bench` | says `replay_bench: false` in both records |
//! | `unstable KEY` | puts another number after the first `"KEY":` of the report in every process |
//! | `hide-flag FLAG` | leaves a flag out of the help and refuses it |
//!
//! The metric is otherwise a fixed number, 10 ms, with a deterministic wobble of a few thousandths from the process id.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::reports;
use crate::{TempRepository, cargo_build};

const PROGRAM: &str = include_str!("standin/program.rs");
const MANIFEST: &str = include_str!("standin/manifest.toml");
const LOCK: &str = include_str!("standin/lock.toml");

/// The four rows whose reports the stand-in has, as tables of a campaign file.
pub const ROWS_TOML: &str = include_str!("standin/rows.toml");

/// A campaign file over two commits of the stand-in and [`crate::traces::FORTY_REQUESTS`] in `trace.jsonl`, whose digest is
/// `trace_sha256`; `extra` tables come before `[host]`. It ends with the table `[measure.gate]`.
pub fn campaign_toml(
    repository: &Path,
    [baseline, candidate]: &[String; 2],
    trace_sha256: &impl std::fmt::Display,
    time_limit_s: u32,
    extra: &str,
) -> String {
    let repository = repository.display();
    format!(
        r#"schema = "kvrp.campaign.v1"
name = "stand-in"
[repository]
path = "{repository}"
[baseline]
commit = "{baseline}"
[candidate]
commit = "{candidate}"
[build]
package = "standin-harness"
[trace]
sha256 = "{trace_sha256}"
file = "trace.jsonl"
count = 40
[replay]
time_limit_s = {time_limit_s}
{ROWS_TOML}
[[review]]
kind = "exclusion"
subject = "/planner/html_report_path"
reason = "stated by the real reports that the stand-in repeats"
reviewer = "tests"
date = "2026-01-01"
{extra}
[host]
free_disk_bytes = 1
[measure.run]
seed = 7
pairs = 6
warmups_per_arm = 1
[measure.gate]
pairs = 6
"#
    )
}

/// An exception record, called `itl`, for a change of `/summary/max_itl_ms` to 12.5625 in any row. Its regression test
/// passes where the sources have that number in them.
pub const EXCEPTION_TOML: &str = r#"schema = "kvrp.exception.v1"
name = "itl"
pointers = ["/summary/max_itl_ms"]
baseline_behavior = "b"
why_incorrect = "w"
candidate_behavior = "c"
source_of_truth = "s"
why_not_entropy = "e"
downstream_impact = "d"
disposition = "accepted"
reviewer = "tests"
date = "2026-01-01"
[regression_test]
proof = "tried"
prepare = ["true"]
command = ["sh", "-c", "echo tried; grep -rq 12.5625 ."]
"#;

/// A stand-in harness: a script, and the reports it writes by row.
#[derive(Clone, Debug)]
pub struct StandIn {
    script: String,
    reports: Vec<(String, String)>,
}

impl StandIn {
    /// A harness that follows a script; an empty one does everything right.
    #[must_use]
    pub fn new(script: &str) -> Self {
        let reports =
            reports::ALL.iter().map(|(row, text)| ((*row).to_owned(), (*text).to_owned())).collect();
        Self { script: script.to_owned(), reports }
    }

    /// Writes another report for a row such as `vllm-aggregated`.
    #[must_use]
    pub fn with_report(mut self, row: &str, report: &str) -> Self {
        let place = self.reports.iter_mut().find(|(name, _)| name == row);
        place.unwrap_or_else(|| panic!("no row {row:?}")).1 = report.to_owned();
        self
    }

    /// The files of its package, which is called `standin-harness`.
    #[must_use]
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![
            ("Cargo.toml".to_owned(), MANIFEST.to_owned()),
            ("Cargo.lock".to_owned(), LOCK.to_owned()),
            (".gitignore".to_owned(), "/target\n".to_owned()),
            ("benches/offline_replay_bench.rs".to_owned(), PROGRAM.to_owned()),
            ("benches/script.txt".to_owned(), self.script.clone()),
        ];
        files.extend(self.reports.iter().map(|(row, text)| (format!("benches/{row}.json"), text.clone())));
        files
    }

    /// Commits it on top of what the repository has, in place of any stand-in there. Returns the id.
    pub fn commit(&self, repository: &mut TempRepository, message: &str) -> String {
        let files = self.files();
        let changes: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
        repository.commit(&changes, message)
    }

    /// Writes its package into a folder.
    pub fn write(&self, folder: &Path) {
        for (path, text) in self.files() {
            let path = folder.join(path);
            let parent = path.parent().expect("a file in the folder");
            std::fs::create_dir_all(parent).expect("a folder");
            std::fs::write(&path, text).expect("a file");
        }
    }

    /// Writes and builds its package in a folder with cargo, by the recipe of a campaign. Returns the program.
    #[must_use]
    pub fn build(&self, folder: &Path) -> PathBuf {
        self.write(folder);
        let recipe =
            ["--no-default-features", "--features", "replay-bench", "--bench", "offline_replay_bench"];
        cargo_build(folder, &recipe, &folder.join("target"))
    }

    /// Writes its package into a folder and compiles the program alone: quicker than [`StandIn::build`].
    #[must_use]
    pub fn compile(&self, folder: &Path) -> PathBuf {
        self.write(folder);
        let (program, source) =
            (folder.join("standin-harness"), folder.join("benches/offline_replay_bench.rs"));
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command.args(["--edition=2024", "--cfg", "feature=\"replay-bench\"", "-o"]).arg(&program).arg(source);
        let output = command.output().expect("rustc runs");
        assert!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr));
        program
    }
}

#[cfg(test)]
mod tests;
