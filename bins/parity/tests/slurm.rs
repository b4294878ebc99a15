//! Campaigns whose rows are jobs of a real Slurm: two nodes on this machine, whose states are read from the daemons.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use evidence::read_journal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::slurm::Cluster;
use testkit::{ROWS_TOML, StandIn, TempRepository, traces};

/// A campaign, and the cluster it runs on.
struct Scene {
    cluster: Cluster,
    folder: TempDir,
    _repository: TempRepository,
}

/// A candidate that is another program and behaves the same.
const HARMLESS: &str = "always stderr 1";

impl Scene {
    fn new(nodes: usize, script: &str) -> Self {
        Self::with(nodes, script, &[])
    }

    fn with(nodes: usize, script: &str, edits: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut repository = TempRepository::new();
        let baseline = StandIn::new("").commit(&mut repository, "baseline");
        let candidate = StandIn::new(script).commit(&mut repository, "candidate");
        fs::write(folder.path().join("trace.jsonl"), traces::FORTY_REQUESTS).expect("a trace");
        for name in ["staging", "lock", "nodes", "locks"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut text = definition(folder.path(), repository.path(), &baseline, &candidate);
        for (from, to) in edits {
            assert!(text.contains(from), "{from:?} is not in\n{text}");
            text = text.replacen(from, to, 1);
        }
        fs::write(folder.path().join("campaign.toml"), text).expect("a campaign file");
        Scene { cluster: Cluster::start(nodes), folder, _repository: repository }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn out(&self) -> PathBuf {
        self.path("evidence")
    }

    fn common(&self) -> Vec<String> {
        let options = [("--campaign", "campaign.toml"), ("--staging", "staging"), ("--node-lock", "lock")];
        options
            .iter()
            .flat_map(|(flag, name)| [(*flag).to_owned(), self.path(name).display().to_string()])
            .collect()
    }

    fn run_words(&self) -> Vec<String> {
        let out = self.out().display().to_string();
        let first = ["run", "--executor", "slurm", "--out", &out].map(str::to_owned);
        first.into_iter().chain(self.common()).collect()
    }

    fn resume_words(&self) -> Vec<String> {
        let out = self.out().display().to_string();
        ["resume".to_owned(), out].into_iter().chain(self.common()).collect()
    }

    /// Runs the command to its end: exit code, and everything it said.
    fn parity(&self, words: &[String]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity"));
        let output =
            command.args(words).env("SLURM_CONF", self.cluster.conf()).output().expect("the command runs");
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    }

    fn spawn(&self, words: &[String]) -> Child {
        let said = fs::File::options().create(true).append(true).open(self.path("said")).expect("a file");
        #[expect(clippy::disallowed_methods, reason = "a test starts the command under test and kills it")]
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_parity"));
        command.args(words).env("SLURM_CONF", self.cluster.conf());
        command.stdout(Stdio::null()).stderr(said).spawn().expect("the command starts")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    /// Waits until something holds; a campaign that ended before is a failure.
    fn wait_until(&self, child: &mut Child, what: &str, ready: impl Fn(&Scene) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended ({ended:?}) before {what}\n{}", self.said());
            assert!(start.elapsed() < Duration::from_secs(300), "never {what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn finish(&self, mut child: Child) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            if start.elapsed() > Duration::from_secs(300) {
                child.kill().expect("a signal");
                panic!("it never ends\n{}\n{:?}", self.said(), self.cluster.jobs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The payloads of one kind in the campaign's journal.
    fn payloads(&self, kind: &str) -> Vec<Value> {
        let journal = read_journal(&self.out()).expect("a journal");
        let records = journal.records.iter().filter(|record| record.kind == kind);
        records.map(|record| record.payload().expect("a payload")).collect()
    }

    /// Folders of attempts at a row whose journal has a text.
    fn attempts_with(&self, row: &str, text: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.out().join("work/jobs/rows").join(row));
        let folders = entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        folders
            .filter(|path| fs::read_to_string(path.join("journal.jsonl")).is_ok_and(|all| all.contains(text)))
            .collect()
    }

    /// What must hold of every campaign that came to its end: whole, its verdicts follow, nothing is left anywhere, every row
    /// has exactly one attempt that counts, and the evidence names its job and node.
    fn check_finished(&self) {
        assert!(evidence::verify(self.out()).expect("a bundle").is_intact());
        let found = parity_campaign::recompute(&self.out()).expect("a bundle");
        assert!(found.agrees(), "{:#?}", found.disagreements);
        for name in ["staging", "nodes"] {
            let left: Vec<_> = fs::read_dir(self.path(name)).expect("a folder").collect();
            assert!(left.is_empty(), "{name} holds {left:?}");
        }
        assert!(!self.out().join("work").exists(), "scratch is still there");
        let attempts = self.payloads("row.attempt");
        for row in ["vllm-aggregated", "vllm-disaggregated", "sglang-aggregated", "sglang-disaggregated"] {
            let valid: Vec<&Value> =
                attempts.iter().filter(|one| one["row"] == row && one["valid"] == true).collect();
            let [valid] = valid[..] else { panic!("{row}: {attempts:#?}") };
            let node =
                fs::read_to_string(self.out().join(format!("records/node-{row}.json"))).expect("a record");
            let node: Value = serde_json::from_str(&node).expect("JSON");
            assert_eq!((&node["job_id"], &node["node"]), (&valid["job_id"], &valid["node"]));
            assert!(node["node"].as_str().is_some_and(|name| ["n1", "n2"].contains(&name)), "{node}");
        }
        let known: BTreeSet<u64> = self.cluster.jobs().iter().map(|job| job.0).collect();
        let submitted: BTreeSet<u64> = self
            .payloads("slurm.submitted")
            .iter()
            .map(|one| one["job_id"].as_u64().expect("a number"))
            .collect();
        assert_eq!(submitted, known, "every job of the cluster was recorded, and no other");
        let report = fs::read_to_string(self.out().join("report.md")).expect("a report");
        assert!(!report.contains("n1") && !report.contains("n2"), "a host name\n{report}");
    }
}

fn definition(folder: &Path, repository: &Path, baseline: &str, candidate: &str) -> String {
    let trace = canonical_json::Sha256::of(traces::FORTY_REQUESTS.as_bytes());
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
sha256 = "{trace}"
file = "trace.jsonl"
count = 40
[replay]
time_limit_s = 60
{ROWS_TOML}
[[review]]
kind = "exclusion"
subject = "/planner/html_report_path"
reason = "stated by the real reports that the stand-in repeats"
reviewer = "tests"
date = "2026-01-01"
[placement]
housekeeping = "given"
[slurm]
partition = "p"
extra = ["--nice=1"]
staging = "{folder}/nodes"
node_lock = "{folder}/locks"
poll_ms = 300
patience_s = 20
[host]
free_disk_bytes = 1
[measure.run]
seed = 7
pairs = 6
warmups_per_arm = 1
[measure.gate]
pairs = 6
[measure.gate.diagnostics]
rows = 4
"#,
        repository = repository.display(),
        folder = folder.display()
    )
}

#[test]
fn rows_are_spread_over_nodes_and_taken_over() {
    let scene = Scene::new(2, HARMLESS);
    let (code, text) = scene.parity(&scene.run_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}");
    assert!(text.contains("semantic: **PASS**"), "{text}");
    scene.check_finished();
    let jobs = scene.cluster.jobs();
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    let nodes: BTreeSet<&str> = jobs.iter().map(|job| job.3.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["n1", "n2"]), "{jobs:?}");
}

/// Long enough that something can be done to a row while it is measured.
const SLOW: &str = "always stderr 1\non-timing sleep 700";

/// Where a row is being measured: its name, job and node, once a sample of it is in a journal.
fn in_measurement(scene: &Scene) -> Option<(String, u64, String)> {
    let running = scene.cluster.jobs().into_iter().filter(|job| job.2 == "RUNNING");
    running.into_iter().find_map(|(id, name, _, node)| {
        let row = name.splitn(3, '-').nth(2)?.to_owned();
        let mine = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{id}-")))
        };
        scene.attempts_with(&row, "attempt_ended").iter().any(mine).then_some((row, id, node))
    })
}

/// Does something to the job of a row that is being measured; the attempt is kept as invalid, and the row starts again at its
/// first warm-up.
fn check_interrupted(act: impl Fn(&mut Cluster, u64, &str), condition: &str, jobs: usize) {
    let mut scene = Scene::new(2, SLOW);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    let (row, id, node) = in_measurement(&scene).expect("a measurement");
    act(&mut scene.cluster, id, &node);
    let code = scene.finish(driver);
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{}", scene.said());
    scene.check_finished();
    assert_eq!(scene.cluster.jobs().len(), jobs, "{:?}", scene.cluster.jobs());
    let attempts = scene.payloads("row.attempt");
    let of_row: Vec<&Value> = attempts.iter().filter(|one| one["row"] == row.as_str()).collect();
    let [invalid, valid] = of_row[..] else { panic!("{attempts:#?}") };
    assert_eq!(
        (&invalid["condition"], &invalid["node"]),
        (&condition.into(), &node.as_str().into()),
        "{invalid:#}"
    );
    assert_eq!((&invalid["valid"], &valid["valid"]), (&false.into(), &true.into()));
    let kept = |attempt: &Value| {
        fs::read_to_string(scene.out().join(attempt["journal"].as_str().expect("a path"))).expect("a journal")
    };
    assert!(kept(invalid).contains("attempt_ended"), "samples of the invalid attempt are gone");
    // Whole, from the first warm-up on: two warm-ups and six pairs.
    assert_eq!(kept(valid).matches("\"attempt_started\"").count(), 14);
    let measured = scene.payloads(&format!("measure.{row}"));
    assert_eq!(measured.iter().filter(|one| one.to_string().contains("\"attempt_started\"")).count(), 14);
}

#[test]
fn a_job_that_is_cancelled_is_replaced() {
    check_interrupted(|cluster, id, _| drop(cluster.run(&["scancel", &id.to_string()])), "cancelled", 5);
}

#[test]
fn a_job_that_is_put_back_starts_again() {
    check_interrupted(
        |cluster, id, _| drop(cluster.run(&["scontrol", "requeue", &id.to_string()])),
        "requeued",
        4,
    );
}

#[test]
fn a_node_without_power_loses_nothing_but_its_time() {
    let act = |cluster: &mut Cluster, _: u64, node: &str| {
        cluster.shut_down(if node == "n1" { 1 } else { 2 });
    };
    check_interrupted(act, "requeued", 4);
}

#[test]
fn a_row_starts_again_only_as_often_as_the_definition_says() {
    let scene = Scene::with(2, SLOW, &[("poll_ms", "restarts_per_row = 0\npoll_ms")]);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    let (_, id, _) = in_measurement(&scene).expect("a measurement");
    scene.cluster.run(&["scancel", &id.to_string()]);
    assert_eq!(scene.finish(driver), Some(5), "{}", scene.said());
    assert!(
        scene.said().contains("it was interrupted 1 times and may start again 0 times"),
        "{}",
        scene.said()
    );
    assert!(!scene.out().join("manifest.json").exists(), "it looks whole");
}

#[test]
fn a_driver_that_is_killed_finds_its_jobs_again() {
    let scene = Scene::new(2, SLOW);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    driver.kill().expect("a signal");
    driver.wait().expect("it ends");
    let status = |says: &str| {
        let words = ["status".to_owned(), scene.out().display().to_string()];
        let (code, text) = scene.parity(&words);
        assert!(code == Some(0) && text.contains(says), "{says}: {code:?}\n{text}");
    };
    status("runs, job ");
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}\n{}", scene.said());
    scene.check_finished();
    assert_eq!(scene.cluster.jobs().len(), 4, "a row was submitted twice: {:?}", scene.cluster.jobs());
    assert_eq!(parity_campaign::read_report(&scene.out()).expect("a report").sessions, 2);
    status("stand-in: finished");
}

#[test]
fn a_campaign_is_cancelled_and_gone_on_with() {
    let scene = Scene::with(2, SLOW, &[("poll_ms", "restarts_per_row = 0\npoll_ms")]);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    let (code, text) = scene.parity(&["cancel".to_owned(), scene.out().display().to_string()]);
    assert!(code == Some(0) && text.contains("cancelled kvrp-"), "{code:?}\n{text}");
    assert_eq!(scene.finish(driver), Some(130), "{}", scene.said());
    assert!(scene.cluster.jobs().iter().all(|job| !["RUNNING", "PENDING"].contains(&job.2.as_str())));
    assert!(!scene.out().join("work").exists(), "scratch is still there");
    let kept = scene.payloads("row.attempt");
    assert!(kept.iter().any(|one| one["valid"] == false && one["condition"] == "cancelled"), "{kept:#?}");
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}");
    scene.check_finished();
}

#[test]
fn a_product_that_fails_is_not_started_again() {
    for (script, says) in [
        ("on-report exit 101", "exited with status 101"),
        ("on-timing signal KILL", "performance: **BLOCKED**"),
    ] {
        let scene = Scene::new(2, script);
        let (code, text) = scene.parity(&scene.run_words());
        assert!(code == Some(6) && text.contains(says), "{code:?}\n{text}");
        scene.check_finished();
        assert_eq!(scene.cluster.jobs().len(), 4, "{:?}", scene.cluster.jobs());
        assert_eq!(scene.payloads("row.attempt").len(), 4);
    }
}

/// A crash that an attempt saw is not undone by taking its node away.
#[test]
fn a_fault_that_was_seen_before_a_job_was_put_back_stays_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count").display().to_string();
    let scene = Scene::new(1, &format!("counter {count}\nnth 1 exit 101\nnth 2 hang"));
    let mut driver = scene.spawn(&scene.run_words());
    let seen = |scene: &Scene| !scene.attempts_with("vllm-aggregated", "status 101").is_empty();
    scene.wait_until(&mut driver, "a fault", seen);
    let (id, ..) = scene.cluster.jobs().into_iter().find(|job| job.2 == "RUNNING").expect("a job");
    scene.cluster.run(&["scontrol", "requeue", &id.to_string()]);
    assert_eq!(scene.finish(driver), Some(6), "{}", scene.said());
    scene.check_finished();
    let report = parity_campaign::read_report(&scene.out()).expect("a report");
    let failed: Vec<&str> = report
        .rows
        .iter()
        .filter(|row| matches!(row.outcome, parity_campaign::RowOutcome::TargetFailed { .. }))
        .map(|row| row.row.as_str())
        .collect();
    assert_eq!(failed, ["vllm-aggregated"]);
}

#[test]
fn evidence_that_was_altered_is_not_taken_over() {
    let scene = Scene::new(2, HARMLESS);
    let mut driver = scene.spawn(&scene.run_words());
    let submitted = |scene: &Scene| scene.cluster.jobs().len() == 4;
    scene.wait_until(&mut driver, "four jobs", submitted);
    driver.kill().expect("a signal");
    driver.wait().expect("it ends");
    let start = Instant::now();
    let sealed = || {
        let found = scene.attempts_with("sglang-disaggregated", "bundle.sealed");
        found.into_iter().find(|path| path.join("manifest.json").exists())
    };
    while sealed().is_none() {
        assert!(start.elapsed() < Duration::from_secs(300), "{:?}", scene.cluster.jobs());
        std::thread::sleep(Duration::from_millis(100));
    }
    let record = sealed().expect("a bundle").join("records/row-sglang-disaggregated.json");
    let text = fs::read_to_string(&record).expect("a record");
    assert!(text.contains("\"match\""), "{text}");
    fs::write(&record, text.replace("\"match\"", "\"differs\"")).expect("an edit");
    let (code, said) = scene.parity(&scene.resume_words());
    assert!(code == Some(5) && said.contains("was altered after it ended"), "{code:?}\n{said}");
    fs::write(&record, text).expect("undone");
    let (code, said) = scene.parity(&scene.resume_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{said}");
    scene.check_finished();
}
