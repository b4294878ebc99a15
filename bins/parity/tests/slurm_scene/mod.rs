//! A campaign over two stand-in harnesses on a real Slurm, for the tests and the benchmark.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use evidence::read_journal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::slurm::{Cluster, ClusterJob};
use testkit::{StandIn, TempRepository, campaign_toml, traces};

/// Its rows, each a task of an array with its number here.
pub(crate) const ROWS: [&str; 4] =
    ["vllm-aggregated", "vllm-disaggregated", "sglang-aggregated", "sglang-disaggregated"];

/// A campaign, and the cluster it runs on.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    folder: TempDir,
    _repository: TempRepository,
}

/// A candidate that is another program and behaves the same.
pub(crate) const HARMLESS: &str = "always stderr 1";

impl Scene {
    /// An honest baseline against a candidate that follows `script`.
    pub(crate) fn new(nodes: usize, script: &str) -> Self {
        Self::with(nodes, ["", script], &[])
    }

    /// Both scripts, and replacements in the campaign file; what is replaced must be there.
    pub(crate) fn with(nodes: usize, scripts: [&str; 2], edits: &[(&str, &str)]) -> Self {
        let mut repository = TempRepository::new();
        let commits = [
            StandIn::new(scripts[0]).commit(&mut repository, "baseline"),
            StandIn::new(scripts[1]).commit(&mut repository, "candidate"),
        ];
        Self::over(nodes, repository, &commits, edits)
    }

    /// Any two commits.
    pub(crate) fn over(
        nodes: usize,
        repository: TempRepository,
        commits: &[String; 2],
        edits: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("trace.jsonl"), traces::FORTY_REQUESTS).expect("a trace");
        for name in ["staging", "lock", "nodes", "locks"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut text = definition(folder.path(), repository.path(), commits);
        for (from, to) in edits {
            assert!(text.contains(from), "{from:?} is not in\n{text}");
            text = text.replacen(from, to, 1);
        }
        fs::write(folder.path().join("campaign.toml"), text).expect("a campaign file");
        Scene { cluster: Cluster::start(nodes), folder, _repository: repository }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path("evidence")
    }

    pub(crate) fn common(&self) -> Vec<String> {
        let options = [("--campaign", "campaign.toml"), ("--staging", "staging"), ("--node-lock", "lock")];
        options
            .iter()
            .flat_map(|(flag, name)| [(*flag).to_owned(), self.path(name).display().to_string()])
            .collect()
    }

    pub(crate) fn run_words(&self) -> Vec<String> {
        let out = self.out().display().to_string();
        let first = ["run", "--executor", "slurm", "--out", &out].map(str::to_owned);
        first.into_iter().chain(self.common()).collect()
    }

    pub(crate) fn resume_words(&self) -> Vec<String> {
        let out = self.out().display().to_string();
        ["resume".to_owned(), out].into_iter().chain(self.common()).collect()
    }

    /// Runs the command to its end: exit code, and everything it said.
    pub(crate) fn parity(&self, words: &[String]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity"));
        let output =
            command.args(words).env("SLURM_CONF", self.cluster.conf()).output().expect("the command runs");
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    }

    pub(crate) fn spawn(&self, words: &[String]) -> Child {
        self.spawn_with(words, &std::env::var("PATH").expect("a search path"))
    }

    /// Starts the command with another search path.
    pub(crate) fn spawn_with(&self, words: &[String], search: &str) -> Child {
        let said = fs::File::options().create(true).append(true).open(self.path("said")).expect("a file");
        #[expect(clippy::disallowed_methods, reason = "a test starts the command under test and kills it")]
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_parity"));
        command.args(words).env("SLURM_CONF", self.cluster.conf()).env("PATH", search);
        command.stdout(Stdio::null()).stderr(said).spawn().expect("the command starts")
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    /// Waits until something holds; a campaign that ended before is a failure.
    pub(crate) fn wait_until(&self, child: &mut Child, what: &str, ready: impl Fn(&Scene) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended ({ended:?}) before {what}\n{}", self.said());
            assert!(start.elapsed() < Duration::from_secs(900), "never {what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn finish(&self, mut child: Child) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            if start.elapsed() > Duration::from_secs(900) {
                child.kill().expect("a signal");
                panic!("it never ends\n{}\n{:?}", self.said(), self.cluster.jobs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The payloads of one kind in the campaign's journal.
    pub(crate) fn payloads(&self, kind: &str) -> Vec<Value> {
        let journal = read_journal(&self.out()).expect("a journal");
        let records = journal.records.iter().filter(|record| record.kind == kind);
        records.map(|record| record.payload().expect("a payload")).collect()
    }

    /// Folders of attempts at a row whose journal has a text.
    pub(crate) fn attempts_with(&self, row: &str, text: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.out().join("work/jobs/rows").join(row));
        let folders = entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        folders
            .filter(|path| fs::read_to_string(path.join("journal.jsonl")).is_ok_and(|all| all.contains(text)))
            .collect()
    }

    /// What must hold of every campaign that came to its end: whole, its verdicts follow, nothing is left anywhere, every row
    /// has exactly one attempt that counts, and the evidence names its job and node.
    pub(crate) fn check_finished(&self) {
        assert!(evidence::verify(self.out()).expect("a bundle").is_intact());
        let found = parity_campaign::recompute(&self.out()).expect("a bundle");
        assert!(found.agrees(), "{:#?}", found.disagreements);
        for name in ["staging", "nodes"] {
            let left: Vec<_> = fs::read_dir(self.path(name)).expect("a folder").collect();
            assert!(left.is_empty(), "{name} holds {left:?}");
        }
        assert!(!self.out().join("work").exists(), "scratch is still there");
        let attempts = self.payloads("row.attempt");
        for row in ROWS {
            let valid: Vec<&Value> =
                attempts.iter().filter(|one| one["row"] == row && one["valid"] == true).collect();
            let [valid] = valid[..] else { panic!("{row}: {attempts:#?}") };
            let node =
                fs::read_to_string(self.out().join(format!("records/node-{row}.json"))).expect("a record");
            let node: Value = serde_json::from_str(&node).expect("JSON");
            assert_eq!((&node["job_id"], &node["node"]), (&valid["job_id"], &valid["node"]));
            assert!(node["node"].as_str().is_some_and(|name| ["n1", "n2"].contains(&name)), "{node}");
        }
        let jobs = self.cluster.jobs();
        let submitted = self.payloads("slurm.submitted").into_iter().map(|one| text(&one["job_id"]));
        let submitted: BTreeSet<String> = submitted.collect();
        let ours =
            jobs.iter().filter(|job| ["kvrp-", "kvrpbuild-"].iter().any(|name| job.name.starts_with(name)));
        // An array that was cancelled before any of it ran is listed as a whole.
        let tasks = |job: &ClusterJob| {
            let own = format!("{}_", job.id);
            let tasks: Vec<String> = submitted.iter().filter(|id| id.starts_with(&own)).cloned().collect();
            if tasks.is_empty() { vec![job.id.clone()] } else { tasks }
        };
        let known: BTreeSet<String> = ours.flat_map(tasks).collect();
        assert_eq!(submitted, known, "every job of the cluster was recorded, and no other");
        let report = fs::read_to_string(self.out().join("report.md")).expect("a report");
        assert!(!report.contains("n1") && !report.contains("n2"), "a host name\n{report}");
    }
}

/// A text of a record.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn definition(folder: &Path, repository: &Path, commits: &[String; 2]) -> String {
    let trace = canonical_json::Sha256::of(traces::FORTY_REQUESTS.as_bytes());
    let folder = folder.display();
    let extra = format!(
        r#"[placement]
housekeeping = "given"
[slurm]
partition = "p"
extra = ["--nice=1"]
staging = "{folder}/nodes"
node_lock = "{folder}/locks"
poll_ms = 300
patience_s = 20"#
    );
    campaign_toml(repository, commits, &trace, 60, &extra) + "[measure.gate.diagnostics]\nrows = 4\n"
}
