//! A test of a revision's own, run in its checkout: what an exception record or a lifecycle rests on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cpu_placement::{LockError, NodeLock, Outcome, Output, Run, SpawnError};

use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::record::{Side, TestEnd};
use crate::stage::Stage;

/// A command and what must be true before its status says anything.
pub(crate) struct CheckoutTest<'a> {
    /// The stage it belongs to.
    pub(crate) stage: Stage,
    /// What its outputs are named after.
    pub(crate) label: String,
    /// Must succeed first.
    pub(crate) prepare: &'a [String],
    /// The test.
    pub(crate) command: &'a [String],
    /// Text of its output that shows that it ran.
    pub(crate) proof: &'a str,
    /// For each of the two.
    pub(crate) time_limit_s: u64,
}

/// The name of the outputs of the test itself.
const TEST: &str = "test";

/// What a test may know of us: where the tools are.
const ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "LANG"];

impl CheckoutTest<'_> {
    /// Prepares and runs it in one checkout; what it says goes into the bundle.
    pub(crate) fn run(&self, context: &Context<'_>, side: Side) -> Result<TestEnd, CampaignError> {
        let folder = context.work.join("tests").join(format!("{}-{}", self.label, side.letter()));
        fs::create_dir_all(&folder).at(self.stage, Cause::HostUnfit)?;
        // It may build: not while somebody measures here (P7).
        let _lock =
            NodeLock::shared(&context.options.node_lock, context.cancel).map_err(|error| match error {
                LockError::Cancelled { .. } => CampaignError::cancelled(self.stage),
                other => CampaignError::new(self.stage, Cause::HostUnfit, other),
            })?;
        let prepared = match self.prepare.is_empty() {
            true => TestEnd::Passed,
            false => self.start(context, self.prepare, side, &folder, "prepare")?,
        };
        match prepared {
            TestEnd::Passed => self.start(context, self.command, side, &folder, TEST),
            TestEnd::Failed => Ok(TestEnd::NotRun { why: "its preparation failed".to_owned() }),
            not_run @ TestEnd::NotRun { .. } => Ok(not_run),
        }
    }

    fn start(
        &self,
        context: &Context<'_>,
        command: &[String],
        side: Side,
        folder: &Path,
        what: &str,
    ) -> Result<TestEnd, CampaignError> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(TestEnd::NotRun { why: "it names no program".to_owned() });
        };
        let output = |stream: &str| folder.join(format!("{what}.{stream}"));
        let mut run = Run::new(program)
            .args(arguments)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .cwd(context.work.join("checkout").join(side.letter()))
            .stdout(Output::File(output("stdout")))
            .stderr(Output::File(output("stderr")))
            .time_limit(Duration::from_secs(self.time_limit_s));
        for name in ENVIRONMENT {
            run = run.env_from_parent(name);
        }
        let finished = match run.wait(context.cancel) {
            Ok(finished) => finished,
            Err(SpawnError::Cancelled { .. }) => return Err(CampaignError::cancelled(self.stage)),
            Err(error) => return Ok(TestEnd::NotRun { why: crate::error::with_causes(&error) }),
        };
        let said = self.keep(context, [&output("stdout"), &output("stderr")])?;
        match finished.outcome {
            Outcome::Cancelled => Err(CampaignError::cancelled(self.stage)),
            outcome if what == TEST => Ok(self.proved(end(outcome, self.time_limit_s), &said)),
            outcome => Ok(end(outcome, self.time_limit_s)),
        }
    }

    /// A status says nothing of a test that did not run.
    fn proved(&self, end: TestEnd, said: &str) -> TestEnd {
        let why = match end {
            TestEnd::NotRun { .. } => return end,
            _ if !said.contains(self.proof) => format!("its output does not contain {:?}", self.proof),
            _ if counted(said) == Some(0) => "its test runner ran no test".to_owned(),
            _ => return end,
        };
        TestEnd::NotRun { why }
    }

    /// What a test said goes into the bundle.
    fn keep(&self, context: &Context<'_>, files: [&Path; 2]) -> Result<String, CampaignError> {
        let mut said = String::new();
        for path in files {
            let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = fs::read(path).at(self.stage, Cause::HostUnfit)?;
            let text = String::from_utf8_lossy(&bytes);
            let hidden = context.hide_paths(&text).into_bytes();
            context.write_file(self.stage, &format!("logs/{folder}.{name}"), &hidden)?;
            said.push_str(&text);
        }
        Ok(said)
    }
}

/// How many tests Rust's own runner says it ran, over all its summaries; `None` when there is no summary.
fn counted(said: &str) -> Option<u64> {
    let summaries = said.lines().filter_map(|line| line.trim().strip_prefix("test result: "));
    let of = |summary: &str| {
        let words: Vec<&str> = summary.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        let numbers = words.windows(2).filter(|two| matches!(two[1], "passed" | "failed"));
        numbers.filter_map(|two| two[0].parse::<u64>().ok()).fold(0, u64::saturating_add)
    };
    summaries.map(of).reduce(u64::saturating_add)
}

fn end(outcome: Outcome, time_limit_s: u64) -> TestEnd {
    match outcome {
        Outcome::Exited(0) => TestEnd::Passed,
        Outcome::Exited(status @ (126 | 127)) => {
            TestEnd::NotRun { why: format!("status {status}: its program could not be started") }
        }
        Outcome::Exited(_) => TestEnd::Failed,
        Outcome::TimedOut => TestEnd::NotRun { why: format!("it ran longer than {time_limit_s} s") },
        other => TestEnd::NotRun { why: format!("it ended unexpectedly: {other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_ran_can_fail() {
        for (outcome, expected) in [
            (Outcome::Exited(0), "passed"),
            (Outcome::Exited(101), "failed"),
            (Outcome::Exited(126), "not run: status 126: its program could not be started"),
            (Outcome::Exited(127), "not run: status 127: its program could not be started"),
            (Outcome::TimedOut, "not run: it ran longer than 7 s"),
            (Outcome::Signalled(9), "not run: it ended unexpectedly: Signalled(9)"),
        ] {
            assert_eq!(end(outcome, 7).to_string(), expected);
        }
    }

    #[test]
    fn a_runner_that_ran_nothing_proves_nothing() {
        let summary = |passed: u64, failed: u64| {
            format!(
                "test result: ok. {passed} passed; {failed} failed; 3 ignored; 0 measured; 9 filtered out"
            )
        };
        for (said, expected) in [
            (String::new(), None),
            (summary(0, 0), Some(0)),
            (summary(1, 0), Some(1)),
            (summary(0, 2), Some(2)),
            (format!("{}\n{}", summary(0, 0), summary(2, 1)), Some(3)),
        ] {
            assert_eq!(counted(&said), expected, "{said}");
        }
    }
}
