//! A campaign over two stand-in harnesses, for tests of one part of the protocol.

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;
use tempfile::TempDir;
use testkit::{StandIn, TempRepository, campaign_toml, traces};

pub(crate) mod schemas;

/// A candidate that is another program and behaves the same.
pub(crate) const HARMLESS: &str = "always stderr 1";

/// A folder with a repository, a trace and a campaign file.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    _repository: TempRepository,
}

impl Scene {
    /// An honest baseline against `candidate`, with `extra` tables before `[host]` in the campaign file.
    pub(crate) fn new(candidate: &StandIn, extra: &str) -> Self {
        Self::of(&StandIn::new(""), candidate, extra)
    }

    /// The same with another baseline.
    pub(crate) fn of(baseline: &StandIn, candidate: &StandIn, extra: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut repository = TempRepository::new();
        let commits =
            [baseline.commit(&mut repository, "baseline"), candidate.commit(&mut repository, "candidate")];
        fs::write(folder.path().join("trace.jsonl"), traces::FORTY_REQUESTS).expect("a trace");
        for name in ["staging", "lock"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let trace = canonical_json::Sha256::of(traces::FORTY_REQUESTS.as_bytes());
        let text = campaign_toml(repository.path(), &commits, &trace, 20, extra);
        fs::write(folder.path().join("campaign.toml"), text).expect("a campaign file");
        Scene { folder, _repository: repository }
    }

    /// The bundle.
    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("evidence")
    }

    /// The command on this campaign. The lock is this test's own: whatever else runs on the machine must not hold it up.
    pub(crate) fn command(&self) -> Command {
        let mut command = parity();
        command.arg("run").arg("--out").arg(self.out()).args(self.places());
        command
    }

    /// The campaign file, and the folders that a run and a resume need.
    pub(crate) fn places(&self) -> Vec<String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let places = [("--campaign", "campaign.toml"), ("--staging", "staging"), ("--node-lock", "lock")];
        places.iter().flat_map(|(flag, name)| [(*flag).to_owned(), path(name)]).collect()
    }

    /// Runs a command on it, and checks its exit code and what it says; what its evidence says must follow from it.
    pub(crate) fn check(&self, mut command: Command, codes: &[i32], says: &[&str]) -> String {
        let output = command.output().expect("the command runs");
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let text = format!("{stdout}{stderr}");
        let code = output.status.code().expect("no signal");
        assert!(codes.contains(&code), "exit code {code}, expected {codes:?}\n{text}");
        says.iter().for_each(|expected| assert!(text.contains(expected), "{expected:?} is not in\n{text}"));
        let folder = self.folder.path().to_str().expect("a plain path");
        assert!(!stdout.contains(folder), "a host path\n{stdout}");
        schemas::check_bundle(&self.out());
        if self.out().join("report.json").exists() {
            let found = parity_campaign::recompute(&self.out()).expect("a bundle");
            assert!(found.agrees(), "{:#?}", found.disagreements);
        }
        text
    }

    /// Edits one file of the bundle; the conclusions that no longer follow must be named.
    pub(crate) fn check_edit(&self, file: &str, from: &str, to: &str, says: &str) {
        let path = self.out().join(file);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(&path, text.replacen(from, to, 1)).expect("an edit");
        let found = parity_campaign::recompute(&self.out()).expect("a bundle").disagreements;
        assert!(found.iter().any(|what| what.contains(says)), "{file} {from:?}: {found:#?}");
        fs::write(&path, text).expect("undone");
    }
}

pub(crate) fn parity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_parity"))
}
