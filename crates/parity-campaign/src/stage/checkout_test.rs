//! A test of a revision's own, run in its checkout: what an exception record or a lifecycle rests on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_placement::{LockError, NodeLock, Outcome, Output, Run, SpawnError};

use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::exception::TestFile;
use crate::record::{Side, TestEnd};
use crate::stage::Stage;

/// A command and what must be true before its status says anything.
pub(crate) struct CheckoutTest<'a> {
    /// The stage it belongs to.
    pub(crate) stage: Stage,
    /// What its outputs are named after.
    pub(crate) label: String,
    /// Put into the checkout for as long as it runs.
    pub(crate) files: &'a [TestFile],
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
        let checkout = context.work.join("checkout").join(side.letter());
        let placed = match Placed::put(&checkout, self.files).at(self.stage, Cause::HostUnfit)? {
            Ok(placed) => placed,
            Err(path) => {
                let why = format!("the revision has a file {} of its own", path.display());
                return Ok(TestEnd::NotRun { why });
            }
        };
        let end = self.prepare_and_run(context, side, &folder);
        placed.remove().at(self.stage, Cause::HostUnfit)?;
        end
    }

    fn prepare_and_run(
        &self,
        context: &Context<'_>,
        side: Side,
        folder: &Path,
    ) -> Result<TestEnd, CampaignError> {
        let prepared = match self.prepare.is_empty() {
            true => TestEnd::Passed,
            false => self.start(context, self.prepare, side, folder, "prepare")?,
        };
        match prepared {
            TestEnd::Passed => self.start(context, self.command, side, folder, TEST),
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
            _ if counted(said).is_none() && is_cargo_test(self.command) => {
                "cargo gave no test result: it was not built, or no such test was found".to_owned()
            }
            _ if said.lines().any(was_not_built) => "cargo could not build it".to_owned(),
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

/// Files of a test in a checkout, and the folders that were made for them.
struct Placed {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Placed {
    /// Puts every file at its place; a path that is taken is given back, and nothing is left behind.
    fn put(checkout: &Path, files: &[TestFile]) -> io::Result<Result<Self, PathBuf>> {
        let mut placed = Placed { files: Vec::new(), folders: Vec::new() };
        for file in files {
            let path = checkout.join(&file.path);
            if path.symlink_metadata().is_ok() {
                placed.remove()?;
                return Ok(Err(file.path.clone()));
            }
            placed.make_folders(path.parent().unwrap_or(checkout))?;
            fs::write(&path, &file.text)?;
            placed.files.push(path);
        }
        Ok(Ok(placed))
    }

    fn make_folders(&mut self, folder: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.is_dir()).collect();
        for folder in missing.into_iter().rev() {
            fs::create_dir(folder)?;
            self.folders.push(folder.to_owned());
        }
        Ok(())
    }

    /// Takes the files away again, and the folders with whatever the test left in them.
    fn remove(self) -> io::Result<()> {
        for file in self.files.iter().filter(|file| file.exists()) {
            fs::remove_file(file)?;
        }
        for folder in self.folders.iter().filter(|folder| folder.exists()) {
            fs::remove_dir_all(folder)?;
        }
        Ok(())
    }
}

/// Whether Rust's own runner must have said something.
fn is_cargo_test(command: &[String]) -> bool {
    let mut words = command.iter().map(String::as_str);
    let is_cargo =
        words.next().is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == "cargo"));
    is_cargo && words.find(|word| !word.starts_with(['-', '+'])) == Some("test")
}

/// What cargo says of a program that it could not make, whoever started it.
fn was_not_built(line: &str) -> bool {
    let no_target = |rest: &str| rest.starts_with("no ") && rest.contains(" target named ");
    let what = line.trim_start().strip_prefix("error: ");
    what.is_some_and(|rest| rest.starts_with("could not compile ") || no_target(rest))
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
    fn files_of_a_test_come_and_go_and_nothing_of_the_revision_is_touched() {
        let checkout = tempfile::tempdir().expect("a folder");
        let at = |path: &str| checkout.path().join(path);
        fs::create_dir(at("src")).expect("a folder");
        fs::write(at("src/lib.rs"), "its own").expect("a file");
        let file = |path: &str| TestFile { path: path.into(), text: "text".to_owned() };
        let names = || {
            let entries = fs::read_dir(checkout.path()).expect("entries");
            entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
        };

        let files = [file("tests/of/it.rs"), file("src/more.rs")];
        let placed = Placed::put(checkout.path(), &files).expect("room").expect("no such files");
        assert_eq!(fs::read_to_string(at("tests/of/it.rs")).expect("a file"), "text");
        fs::write(at("tests/left"), "by the test").expect("a file");
        placed.remove().expect("they are ours");
        assert_eq!(names(), ["src"]);
        assert!(!at("src/more.rs").exists());

        let taken = Placed::put(checkout.path(), &[file("new/a.rs"), file("src/lib.rs")]).expect("room");
        assert_eq!(taken.err(), Some(PathBuf::from("src/lib.rs")));
        assert_eq!(names(), ["src"]);
        assert_eq!(fs::read_to_string(at("src/lib.rs")).expect("a file"), "its own");
    }

    /// What is absent on the baseline, as the interface that a test is written for, must not count as a test that fails there.
    #[test]
    fn a_test_that_was_not_built_proves_nothing() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let ended = |end: TestEnd, command: &str, said: &str| {
            let command = words(command);
            let test = CheckoutTest {
                stage: Stage::Classify,
                label: String::new(),
                files: &[],
                prepare: &[],
                command: &command,
                proof: "it_holds",
                time_limit_s: 1,
            };
            test.proved(end, said).to_string()
        };
        let ran = "test it_holds ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        let not_compiled =
            "error[E0599]: no method\n3 | fn it_holds() {\nerror: could not compile `a` (test \"it\")";
        let absent = "error: no test target named `it_holds` in `a` package";
        let unknown = "not run: cargo gave no test result: it was not built, or no such test was found";
        for (command, said, expected) in [
            ("cargo test it_holds", ran, "failed"),
            ("/usr/bin/cargo +stable --locked test", ran, "failed"),
            ("cargo test --test it_holds", absent, unknown),
            ("cargo test --test it", not_compiled, unknown),
            ("sh -c cargo", not_compiled, "not run: cargo could not build it"),
            ("sh -c cargo", absent, "not run: cargo could not build it"),
            ("sh it.sh", "it_holds: no", "failed"),
            ("sh it.sh", "it_holds\nerror: no luck", "failed"),
            ("sh it.sh", "it_holds\nerror: the target named it", "failed"),
            ("cargo run --example it_holds", "it_holds: no", "failed"),
        ] {
            assert_eq!(ended(TestEnd::Failed, command, said), expected, "{command}: {said}");
        }
        let none = "test it_holds\ntest result: ok. 0 passed; 0 failed; 0 ignored";
        assert_eq!(ended(TestEnd::Passed, "sh it.sh", none), "not run: its test runner ran no test");
        let silent = "not run: its output does not contain \"it_holds\"";
        assert_eq!(ended(TestEnd::Failed, "sh it.sh", "another: no"), silent);
        let over = || TestEnd::NotRun { why: "it took too long".to_owned() };
        assert_eq!(ended(over(), "sh it.sh", "another: no"), "not run: it took too long");
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
