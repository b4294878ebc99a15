//! The real command on stand-in harnesses: every way a campaign can end, one table. A stand-in does what a real harness
//! cannot be made to do; everything around it (git, cargo, processes, evidence) is real.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use evidence::read_journal;
use predicates::prelude::PredicateBooleanExt as _;
use tempfile::TempDir;
use testkit::{EXCEPTION_TOML, StandIn, TempRepository, campaign_toml, edit_pointer, reports, traces};

#[path = "scene/schemas.rs"]
mod schemas;

/// A campaign to be run: two harnesses, and a definition that may be edited.
struct Scene {
    baseline: StandIn,
    candidate: StandIn,
    edits: Vec<(&'static str, String)>,
    args: Vec<&'static str>,
}

/// A candidate that is another program and behaves the same.
const HARMLESS: &str = "always stderr 1";

impl Scene {
    /// An honest baseline against a candidate that follows `script`.
    fn candidate(script: &str) -> Self {
        Scene {
            baseline: StandIn::new(""),
            candidate: StandIn::new(script),
            edits: Vec::new(),
            args: Vec::new(),
        }
    }

    fn honest() -> Self {
        Self::candidate(HARMLESS)
    }

    /// One replacement in the campaign file; what is replaced must be there.
    fn edit(mut self, from: &'static str, to: impl Into<String>) -> Self {
        self.edits.push((from, to.into()));
        self
    }

    fn set_up(&self) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let mut repository = TempRepository::new();
        let commits = [
            self.baseline.commit(&mut repository, "baseline"),
            self.candidate.commit(&mut repository, "candidate"),
        ];
        fs::write(folder.path().join("trace.jsonl"), traces::FORTY_REQUESTS).expect("a trace");
        for name in ["staging", "lock"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut text = definition(repository.path(), &commits);
        for (from, to) in &self.edits {
            assert!(text.contains(from), "{from:?} is not in\n{text}");
            text = text.replacen(from, to, 1);
        }
        fs::write(folder.path().join("campaign.toml"), text).expect("a campaign file");
        let state = repository.state();
        Stage { folder, repository, state }
    }
}

/// What a scene is played on.
struct Stage {
    folder: TempDir,
    repository: TempRepository,
    state: String,
}

impl Stage {
    fn out(&self) -> PathBuf {
        self.folder.path().join("evidence")
    }

    /// The lock is this test's own: whatever else runs on the machine must not hold it up.
    fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let options = [
            ("--campaign", "campaign.toml"),
            ("--out", "evidence"),
            ("--staging", "staging"),
            ("--node-lock", "lock"),
        ];
        let words = options.iter().flat_map(|(flag, name)| [(*flag).to_owned(), path(name)]);
        std::iter::once("run".to_owned()).chain(words).collect()
    }

    /// The same campaign, gone on with.
    fn resume_arguments(&self) -> Vec<String> {
        let mut arguments = self.arguments();
        let out = arguments.iter().position(|word| word == "--out").expect("an option");
        arguments.remove(out);
        let directory = arguments.remove(out);
        arguments[0] = "resume".to_owned();
        arguments.push(directory);
        arguments
    }

    /// What must hold however a campaign ended: nothing runs, nothing temporary is left, the user's repository is as it
    /// was, and what was recorded can be read.
    fn check_clean(&self) {
        assert_eq!(self.repository.state(), self.state, "the user's repository was touched");
        let staged: Vec<_> = fs::read_dir(self.folder.path().join("staging")).expect("staging").collect();
        assert!(staged.is_empty(), "staging holds {staged:?}");
        assert!(!self.out().join("work").exists(), "scratch is still there");
        let left = processes_naming(self.folder.path());
        assert!(left.is_empty(), "still running: {left:?}");
        schemas::check_bundle(&self.out());
        if self.out().join("journal.jsonl").exists() {
            let journal = read_journal(&self.out()).expect("a journal");
            assert!(journal.torn.is_none(), "{:?}", journal.torn);
        }
    }
}

fn definition(repository: &Path, commits: &[String; 2]) -> String {
    let trace = canonical_json::Sha256::of(traces::FORTY_REQUESTS.as_bytes());
    campaign_toml(repository, commits, &trace, 20, "")
}

/// Command lines of processes that name this folder, ours aside.
fn processes_naming(folder: &Path) -> Vec<String> {
    let name = folder.to_str().expect("a plain path").as_bytes();
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let ours = lines.filter(|line| line.windows(name.len()).any(|window| window == name));
    ours.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

fn parity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_parity"))
}

/// Plays a scene and checks its exit code, and that stdout and stderr say what is expected.
fn check(scene: &Scene, codes: &[i32], says: &[&str]) {
    let stage = scene.set_up();
    let output = parity().args(stage.arguments()).args(&scene.args).output().expect("the command runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().expect("no signal");
    assert!(codes.contains(&code), "exit code {code}, expected {codes:?}\n{text}");
    for expected in says {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(
        !String::from_utf8_lossy(&output.stdout)
            .contains(stage.folder.path().to_str().expect("a plain path")),
        "a host path\n{text}"
    );
    stage.check_clean();
}

#[test]
fn an_honest_candidate_passes() {
    check(&Scene::honest(), &[0, 3], &["semantic: **PASS**", "| vllm-aggregated | match |"]);
}

#[test]
fn a_harness_that_fails_is_a_failed_target() {
    for (script, says) in [
        ("on-report exit 101", "exited with status 101"),
        ("on-report signal ABRT", "ended by signal 6"),
        ("on-report malformed-report", "the report is malformed"),
        ("on-report two-reports", "the report is malformed"),
        ("on-report no-report", "the report is malformed"),
        ("on-report missing-report", "the harness wrote no report"),
        ("on-report malformed-timing", "malformed JSON in the timing record"),
        ("on-report two-timings", "timing file has 2 records"),
        ("on-report missing-timing", "the harness wrote no timing record"),
        ("on-report no-timing", "is empty where one record was expected"),
        ("always metric -1", "where a finite number above 0 was expected"),
        ("always not-replay-bench", "replay_bench is false"),
    ] {
        check(
            &Scene::candidate(script),
            &[6],
            &["candidate repetition", says, "**TARGET FAILED**", "semantic: **FAIL**"],
        );
    }
}

#[test]
fn a_harness_that_hangs_meets_its_time_limit() {
    let scene = Scene::candidate("on-report hang").edit("time_limit_s = 20", "time_limit_s = 1");
    check(&scene, &[6], &["ran longer than the limit of 1 s"]);
}

#[test]
fn a_failure_while_measuring_blocks_the_row() {
    for (script, says) in [
        ("on-timing exit 3", "it exited with status 3"),
        ("on-timing two-timings", "timing file has 2 records"),
        ("on-timing missing-timing", "wrote no timing record"),
    ] {
        check(&Scene::candidate(script), &[6], &["semantic: **PASS**", "performance: **BLOCKED**", says]);
    }
}

/// A small disk of its own, in a mount namespace that goes with the process; what was recorded is copied out of it.
const ON_A_SMALL_DISK: &str = r#"
mount -t tmpfs -o size=256m tmpfs "$0/disk" || exit 99
mkdir "$0/disk/staging"
"$@"
code=$?
cp -r "$0/disk/evidence" "$0/evidence"
ls "$0/disk/staging" "$0/disk/evidence" > "$0/left"
exit $code
"#;

#[test]
fn a_full_disk_is_the_hosts_fault_and_what_was_recorded_stays_readable() {
    for (script, stage_name) in [("on-report fill", "stage run"), ("on-timing fill", "stage measure")] {
        let stage = Scene::candidate(script).set_up();
        let folder = stage.folder.path();
        fs::create_dir(folder.join("disk")).unwrap();
        let mut arguments = stage.arguments();
        for (flag, place) in [("--out", "disk/evidence"), ("--staging", "disk/staging")] {
            let value = arguments.iter().position(|word| word == flag).expect("an option") + 1;
            arguments[value] = folder.join(place).display().to_string();
        }
        let output = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", ON_A_SMALL_DISK])
            .arg(folder)
            .arg(env!("CARGO_BIN_EXE_parity"))
            .args(arguments)
            .output()
            .expect("unshare is part of every Linux");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{text}");
        assert!(text.contains(stage_name) && text.contains("No space left on device"), "{text}");
        let left = fs::read_to_string(folder.join("left")).unwrap();
        assert!(!left.contains("work") && !left.contains("kvrp"), "scratch is still there: {left}");
        assert!(!stage.out().join("manifest.json").exists(), "it looks whole");
        stage.check_clean();
        let journal = read_journal(&stage.out()).expect("a journal");
        assert!(journal.records.iter().any(|record| record.kind == "campaign.started"), "{text}");
    }
}

/// Nobody has to listen: a closed stderr must not end a campaign.
#[test]
fn a_reader_of_stderr_that_goes_away_changes_nothing() {
    let stage = Scene::honest().set_up();
    let mut child = testkit_spawn(&stage);
    drop(child.stderr.take());
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    assert!(matches!(status.code(), Some(0 | 3)), "{status}");
    assert!(stage.out().join("manifest.json").exists(), "the campaign did not come to its end");
}

#[test]
fn a_missing_metric_stops_for_review() {
    let says =
        ["metric \"replay_execution_ms\" is absent", "performance: **not measured**", "### Stop for review"];
    check(&Scene::candidate("always no-metric"), &[8], &says);
}

#[test]
fn another_metric_is_labelled_wherever_it_appears() {
    let scene = Scene::honest().edit("[measure.run]", "[measure]\nmetric = \"wall_time_ms\"\n[measure.run]");
    check(&scene, &[0, 3], &["NON-AUTHORITATIVE: wall_time_ms is not replay_execution_ms"]);
}

#[test]
fn an_unstable_revision_is_located() {
    let scene = Scene::candidate("always unstable decode_worker_idx");
    let says = [
        "**UNSTABLE**",
        "candidate with itself",
        "First divergence in virtual time: at ",
        "decode_worker_idx",
        "What stayed equal: ",
        "arrival_time_ms",
    ];
    check(&scene, &[7], &says);
}

#[test]
fn a_difference_is_shown_by_shape() {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let mut scene = Scene::honest();
    scene.candidate = scene.candidate.with_report("vllm-aggregated", &changed);
    check(
        &scene,
        &[1],
        &[
            "| vllm-aggregated | **DIFFERS** |",
            "`/summary/max_itl_ms`",
            "12.5",
            "| sglang-aggregated | match |",
        ],
    );
}

#[test]
fn a_counter_that_is_not_the_golden_seeds_is_named() {
    let seed = "expected = { pressure_events = 1000000, requests_with_reuse = 1000000 }";
    let scene = Scene::honest().edit("engine = ", format!("{seed}\nengine = "));
    check(&scene, &[0, 3], &["drift from the golden seed: pressure_events was 1000000, is "]);
}

#[test]
fn a_differing_row_is_measured_only_when_asked() {
    let changed = edit_pointer(reports::SGLANG_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let scene = || {
        let mut scene = Scene::honest();
        scene.candidate = scene.candidate.with_report("sglang-aggregated", &changed);
        scene
    };
    check(&scene(), &[1], &["| sglang-aggregated | not measured (", "measure_differing_rows is false"]);
    let asked = scene().edit("[measure.run]", "[measure]\nmeasure_differing_rows = true\n[measure.run]");
    check(&asked, &[1], &["unequal semantic work, not a parity verdict", "semantic: **FAIL**"]);
}

#[test]
fn a_relationship_that_is_not_ancestry_must_be_stated() {
    let scene = Scene::honest();
    let stage = scene.set_up();
    let mut repository = TempRepository::new();
    let baseline = scene.baseline.commit(&mut repository, "baseline");
    let files = scene.candidate.files();
    let changes: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
    let candidate = repository.orphan(&changes, "candidate");
    let text = definition(repository.path(), &[baseline, candidate]);
    fs::write(stage.folder.path().join("campaign.toml"), &text).unwrap();
    parity().args(stage.arguments()).assert().code(4).stderr(predicates::str::contains("share no history"));
    fs::remove_dir_all(stage.out()).unwrap();
    let stated = text.replacen("[build]", "[relationship]\nstated = \"two trees of a test\"\n[build]", 1);
    fs::write(stage.folder.path().join("campaign.toml"), stated).unwrap();
    let output = parity().args(stage.arguments()).output().expect("the command runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("stated: two trees of a test"));
}

#[test]
fn a_missing_option_is_named_before_anything_runs() {
    check(
        &Scene::candidate("always hide-flag --max-num-seqs"),
        &[8],
        &["the protocol needs updating", "--max-num-seqs"],
    );
}

#[test]
fn bad_input_is_refused_with_one_clear_error() {
    let at = |from, to: &str| Scene::honest().edit(from, to);
    check(&at("commit = \"", "commit = \"x"), &[4], &["key baseline.commit", "pin it"]);
    check(&at("count = 40", "count = 41"), &[4], &["stage slice", "40 rows"]);
    check(&at("count = 40", "coutn = 40"), &[4], &["did you mean `count`?"]);
    check(
        &at("file = \"trace.jsonl\"", "file = \"absent.jsonl\""),
        &[4],
        &["stage slice", "no trace with SHA-256"],
    );
    check(
        &at("count = 40", &format!("count = 40\nslice_sha256 = \"{}\"", "0".repeat(64))),
        &[4],
        &["stage slice", "0000000000000000"],
    );
    check(
        &at("[trace]", "features = [\"replay-bench\", \"absent-feature\"]\n[trace]"),
        &[8],
        &["stage build", "absent-feature"],
    );
    check(&at("package = \"standin-harness\"", "package = \"absent\""), &[8], &["stage build", "absent"]);
    check(
        &at("free_disk_bytes = 1", "free_disk_bytes = 1000000000000000"),
        &[5],
        &["stage build", "bytes of disk"],
    );
    check(&at("[host]", "[placement]\nmeasured_cpus = \"9999\"\n[host]"), &[5], &["stage place", "9999"]);
}

#[test]
fn a_trace_that_is_not_the_named_one_is_refused() {
    let stage = Scene::honest().set_up();
    fs::write(stage.folder.path().join("trace.jsonl"), traces::FORTY_REQUESTS.replacen("0", "1", 1)).unwrap();
    parity().args(stage.arguments()).assert().code(4).stderr(predicates::str::contains("stage slice"));
    assert!(
        !stage.out().join("records/build.json").exists(),
        "nothing is built for a trace that cannot be used"
    );
    stage.check_clean();
}

#[test]
fn an_unreviewed_exclusion_stops_for_review() {
    let scene =
        Scene::honest().edit("subject = \"/planner/html_report_path\"", "subject = \"/planner/another\"");
    let stale = "**stale review**, nothing asked for it: exclusion /planner/another";
    check(&scene, &[8], &["**STOP FOR REVIEW**", "/planner/html_report_path", stale]);
}

#[test]
fn growth_stops_for_review_until_it_is_explained() {
    let unexplained = Scene::honest().edit("package = ", "max_growth = 0.0\npackage = ");
    let stage = unexplained.set_up();
    let output = parity().args(stage.arguments()).output().expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // Whether the harmless candidate is larger at all is up to the compiler; if so, it must have been a stop.
    let grew = text.contains("growth: size +") && !text.contains("growth: size +0.00 %");
    assert_eq!(text.contains("grew by"), grew, "{text}");
    assert_eq!(output.status.code() == Some(8), grew, "{text}");
}

#[test]
fn equal_artifacts_from_different_trees_stop_the_campaign() {
    let mut scene = Scene::honest();
    scene.candidate = scene.baseline.clone();
    let stage = scene.set_up();
    let mut repository = TempRepository::new();
    let baseline = scene.baseline.commit(&mut repository, "baseline");
    let candidate = repository.commit(&[("NOTES", Some("no code"))], "candidate");
    let text = definition(repository.path(), &[baseline, candidate]);
    fs::write(stage.folder.path().join("campaign.toml"), &text).unwrap();
    parity().args(stage.arguments()).assert().code(8).stderr(predicates::str::contains("same artifact"));
    fs::remove_dir_all(stage.out()).unwrap();
    let allowed = text.replacen("[trace]", "allow_equal_artifacts = true\n[trace]", 1);
    fs::write(stage.folder.path().join("campaign.toml"), allowed).unwrap();
    let code = parity().args(stage.arguments()).output().expect("the command runs").status.code();
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
}

/// A candidate with one file of its own, or a campaign file with one edit: what is wrong is said before anything is built.
#[test]
fn two_revisions_are_built_in_one_way_or_a_review_says_why() {
    let manifest = |text: &str| {
        let files = StandIn::new(HARMLESS).files();
        let own = files.iter().find(|(path, _)| path == "Cargo.toml").expect("a manifest").1.clone();
        format!("{own}\n[profile.release]\n{text}\n")
    };
    let cases = [
        (
            "Cargo.toml",
            manifest("opt-level = 0"),
            4,
            "the profile release of the revision is a debug build: opt-level = 0",
        ),
        (
            "Cargo.toml",
            manifest("opt-level = 1"),
            8,
            "profile is nothing on the baseline and opt-level = 1 on the candidate",
        ),
        (
            ".cargo/config.toml",
            "[build]\n".to_owned(),
            8,
            "toolchain is nothing on the baseline and .cargo/config.toml with",
        ),
    ];
    for (path, text, code, says) in cases {
        let scene = Scene::honest();
        let stage = scene.set_up();
        let mut repository = TempRepository::new();
        let baseline = scene.baseline.commit(&mut repository, "baseline");
        scene.candidate.commit(&mut repository, "candidate");
        let candidate = repository.commit(&[(path, Some(text.as_str()))], "another way");
        let campaign = definition(repository.path(), &[baseline, candidate]);
        let file = stage.folder.path().join("campaign.toml");
        fs::write(&file, &campaign).expect("a campaign file");
        parity().args(stage.arguments()).assert().code(code).stderr(predicates::str::contains(says));
        if code == 8 {
            fs::remove_dir_all(stage.out()).expect("the evidence");
            let subject = says.split(' ').next().expect("a subject");
            let review = format!(
                "[[review]]\nkind = \"build\"\nsubject = {subject:?}\nreason = \"r\"\nreviewer = \"r\"\n\
                 date = \"2026-01-01\"\n[host]"
            );
            fs::write(&file, campaign.replacen("[host]", &review, 1)).expect("a campaign file");
            let explained = format!("built differently, as reviewed: {subject} is nothing and");
            parity().args(stage.arguments()).assert().stdout(predicates::str::contains(explained));
        }
    }
    let features =
        Scene::honest().edit("[candidate]\n", "[candidate]\nfeatures = [\"replay-bench\", \"more\"]\n");
    parity().args(features.set_up().arguments()).assert().code(8).stderr(predicates::str::contains(
        "features is replay-bench on the baseline and more, replay-bench on the",
    ));
}

/// The second campaign is about the same two commits: nothing is compiled, and the report says so.
#[test]
fn an_artifact_of_an_earlier_campaign_is_taken_over_and_the_report_says_so() {
    let stage = Scene::honest().set_up();
    let store = stage.folder.path().join("artifacts");
    let run = || {
        let output =
            parity().args(stage.arguments()).arg("--artifacts").arg(&store).output().expect("it runs");
        assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
        let report = fs::read(stage.out().join("report.json")).expect("a report");
        let report: parity_campaign::Report = serde_json::from_slice(&report).expect("a report");
        fs::remove_dir_all(stage.out()).expect("the evidence");
        (report.build.artifacts, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (first, text) = run();
    assert!(!first.baseline.is_taken_over() && !text.contains("an earlier build"), "{text}");
    let (second, text) = run();
    assert!(second.baseline.is_taken_over() && second.candidate.is_taken_over());
    assert_eq!(
        (second.baseline.sha256, second.candidate.sha256),
        (first.baseline.sha256, first.candidate.sha256)
    );
    assert!(
        text.contains("the artifact of the baseline is that of an earlier build of exactly the same"),
        "{text}"
    );
}

#[test]
fn an_existing_out_is_never_touched() {
    let stage = Scene::honest().set_up();
    fs::create_dir(stage.out()).unwrap();
    fs::write(stage.out().join("precious"), "data").unwrap();
    parity().args(stage.arguments()).assert().code(4);
    assert_eq!(fs::read_to_string(stage.out().join("precious")).unwrap(), "data");
}

/// Waits for a campaign to get somewhere; a campaign that never does is a failure.
fn wait_until(ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(120), "the campaign never got there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a campaign, waits until its journal or scratch shows that it is where we want it, and interrupts it.
fn interrupt(scene: &Scene, ready: impl Fn(&Path) -> bool) {
    let stage = scene.set_up();
    let child = testkit_spawn(&stage);
    wait_until(|| ready(&stage.out()));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    stage.check_clean();
    let journal = read_journal(&stage.out()).expect("a journal");
    assert!(journal.records.iter().any(|record| record.kind == "campaign.failed"), "{text}");
    assert!(!stage.out().join("manifest.json").exists(), "an interrupted campaign looks whole");
}

fn testkit_spawn(stage: &Stage) -> std::process::Child {
    use std::process::Stdio;
    #[expect(clippy::disallowed_methods, reason = "a test starts the command under test and signals it")]
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_parity"));
    command
        .args(stage.arguments())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

fn journal_has(out: &Path, text: &str) -> bool {
    fs::read_to_string(out.join("journal.jsonl")).is_ok_and(|journal| journal.contains(text))
}

#[test]
fn an_interruption_while_building_leaves_nothing_behind() {
    interrupt(&Scene::honest(), |out| out.join("work/build/b").exists());
}

#[test]
fn an_interruption_while_running_leaves_nothing_behind() {
    let scene = Scene::candidate("on-report hang");
    interrupt(&scene, |out| out.join("work/runs/vllm-aggregated/c1").exists());
}

#[test]
fn an_interruption_while_measuring_keeps_the_attempts() {
    let scene = Scene::candidate("on-timing hang");
    interrupt(&scene, |out| journal_has(out, "attempt_started"));
}

/// When a campaign is killed: some time after its journal has so many records of a kind, however fast this machine is.
struct Moment {
    kind: &'static str,
    records: usize,
    later: Duration,
}

impl Moment {
    fn has_come(&self, out: &Path) -> bool {
        self.records == 0
            || journal_kinds(out).filter(|kind| kind.starts_with(self.kind)).count() >= self.records
    }
}

/// The kind of every record that is whole by now.
fn journal_kinds(out: &Path) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(out.join("journal.jsonl")).unwrap_or_default();
    let records: Vec<serde_json::Value> =
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect();
    records.into_iter().map(|record| record["kind"].as_str().expect("a kind").to_owned())
}

/// Kills a campaign at these moments, resuming it each time, until it comes to its end; then nothing may be lost or taken
/// twice.
fn kill_and_resume(stage: &Stage, moments: &[Moment]) {
    let said = stage.folder.path().join("said");
    let mut arguments = stage.arguments();
    let mut moments = moments.iter();
    let (mut killed, mut resumed) = (0, 0_u32);
    let code = loop {
        let mut child = spawn(&arguments, &said);
        let Some(moment) = moments.next() else {
            break child.wait().expect("it ends").code();
        };
        let mut since: Option<Instant> = None;
        let ended = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break Some(status);
            }
            match since {
                Some(since) if since.elapsed() >= moment.later => break None,
                None if moment.has_come(&stage.out()) => since = Some(Instant::now()),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if let Some(status) = ended {
            break status.code();
        }
        child.kill().expect("a signal");
        child.wait().expect("it ends");
        killed += 1;
        if stage.out().join("journal.jsonl").exists() {
            arguments = stage.resume_arguments();
            // A kill between the seal and the exit leaves nothing to go on with.
            resumed += u32::from(!stage.out().join("manifest.json").exists());
        }
    };
    let said = fs::read_to_string(&said).expect("what was said");
    assert!(matches!(code, Some(0 | 3)), "{code:?} after {killed} kills\n{said}");
    stage.check_clean();
    let found = parity_campaign::recompute(&stage.out()).expect("a bundle");
    assert!(found.agrees(), "{:#?}\n{said}", found.disagreements);
    let report = parity_campaign::read_report(&stage.out()).expect("a report");
    assert!(
        report.sessions > 1 || resumed == 0,
        "{} sessions after {resumed} resumes\n{said}",
        report.sessions
    );
    for row in &report.measurements {
        assert_eq!(row.ratio.map(|ratio| ratio.pairs), Some(6), "{}", row.row);
    }
}

/// Starts the command; what it says is added to a file.
fn spawn(arguments: &[String], said: &Path) -> std::process::Child {
    use std::process::Stdio;
    let said = fs::File::options().create(true).append(true).open(said).expect("a file");
    #[expect(clippy::disallowed_methods, reason = "a test starts the command under test and kills it")]
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_parity"));
    command.args(arguments).stdout(Stdio::null()).stderr(said).spawn().expect("the command starts")
}

/// `KVRP_KILLS` kills, 20 by default, five to a campaign: one anywhere in its beginning and its builds, one among the
/// repetitions, three while it measures, at places that a fixed seed gives.
#[test]
fn a_campaign_that_is_killed_at_any_moment_is_resumed() {
    let kills: usize = std::env::var("KVRP_KILLS").map_or(20, |text| text.parse().expect("a number"));
    let mut state = 7_u64;
    // Knuth's multiplier and increment for MMIX; the high bits are the good ones.
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let unharmed = Scene::honest().set_up();
    let start = Instant::now();
    let output = parity().args(unharmed.arguments()).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}\n{said}", output.status);
    let within_ms = usize::try_from(start.elapsed().as_millis()).expect("a short campaign");
    let in_all = |kind: &str| journal_kinds(&unharmed.out()).filter(|other| other.starts_with(kind)).count();
    let (repetitions, measured) = (in_all("repetition"), in_all("measure."));
    let mut went_on = [0; 2];
    for _ in 0..kills.div_ceil(5) {
        let stage = Scene::honest().set_up();
        let mut moments = vec![("", 0, random(within_ms / 2))];
        moments.push(("repetition", 1 + random(repetitions), random(within_ms / 20)));
        let mut attempts = [random(measured), random(measured), random(measured)];
        attempts.sort_unstable();
        moments.extend(attempts.map(|record| ("measure.", 1 + record, random(within_ms / 20))));
        let moments: Vec<_> = moments
            .into_iter()
            .map(|(kind, records, later_ms)| Moment {
                kind,
                records,
                later: Duration::from_millis(later_ms as u64),
            })
            .collect();
        kill_and_resume(&stage, &moments);
        let resumed = |kind: &str| {
            journal_kinds(&stage.out())
                .skip_while(|other| !other.starts_with(kind))
                .any(|other| other == "campaign.resumed")
        };
        for (count, kind) in went_on.iter_mut().zip(["repetition", "measure."]) {
            *count += u32::from(resumed(kind));
        }
    }
    assert!(
        kills < 20 || went_on.iter().all(|count| *count > 0),
        "no kill in run or none in measure: {went_on:?}"
    );
}

/// A crash that was recorded is not undone by a process that starts again.
#[test]
fn a_fault_that_was_seen_before_a_kill_stays_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count").display().to_string();
    let stage = Scene::candidate(&format!("counter {count}\nnth 1 exit 101\nnth 2 hang")).set_up();
    let mut child = testkit_spawn(&stage);
    wait_until(|| journal_has(&stage.out(), "status 101"));
    child.kill().expect("a signal");
    child.wait().expect("it ends");
    parity()
        .args(stage.resume_arguments())
        .assert()
        .code(6)
        .stdout(predicates::str::contains("**TARGET FAILED**").and(predicates::str::contains("status 101")));
    let found = parity_campaign::recompute(&stage.out()).expect("a bundle");
    assert!(found.agrees(), "{:#?}", found.disagreements);
}

#[test]
fn a_changed_campaign_is_not_resumed() {
    let stage = Scene::candidate("on-timing hang").set_up();
    let mut child = testkit_spawn(&stage);
    wait_until(|| journal_has(&stage.out(), "attempt_started"));
    child.kill().expect("a signal");
    child.wait().expect("it ends");
    let campaign = stage.folder.path().join("campaign.toml");
    let text = fs::read_to_string(&campaign).expect("a campaign");
    let resume = |code: i32, says: &str| {
        parity().args(stage.resume_arguments()).assert().code(code).stderr(predicates::str::contains(says));
    };
    fs::write(&campaign, text.replace("time_limit_s = 20", "time_limit_s = 21")).expect("a change");
    resume(4, "this campaign began with");
    fs::write(&campaign, text.replace("\"trace.jsonl\"", "\"other.jsonl\"")).expect("a change");
    resume(4, "this campaign began with");
    fs::write(&campaign, &text).expect("undone");
    let trace = stage.folder.path().join("trace.jsonl");
    fs::write(&trace, traces::FORTY_REQUESTS.replacen('1', "2", 1)).expect("a change");
    resume(4, "stage slice");
    fs::write(&trace, traces::FORTY_REQUESTS).expect("undone");
    let place = stage.out().join("records/place.json");
    let text = fs::read_to_string(&place).expect("a record");
    fs::write(&place, text.replacen("\"kernel\": \"", "\"kernel\": \"other ", 1)).expect("a change");
    resume(4, "records/place.json");
    fs::write(&place, &text).expect("undone");
    parity().arg("resume").arg("--campaign").arg(&campaign).arg(stage.folder.path()).assert().code(4);
}

#[test]
fn a_campaign_that_came_to_its_end_is_resumed_by_saying_so() {
    let stage = Scene::honest().set_up();
    let ran = parity().args(stage.arguments()).output().expect("the command runs");
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&ran.stderr));
    let manifest = fs::read(stage.out().join("manifest.json")).expect("a manifest");
    let again = parity().args(stage.resume_arguments()).output().expect("the command runs");
    assert_eq!((again.status.code(), &again.stdout), (ran.status.code(), &ran.stdout));
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("nothing is left to do"), "{said}");
    assert_eq!(fs::read(stage.out().join("manifest.json")).expect("a manifest"), manifest);

    let resume = |says: &str| {
        parity().args(stage.resume_arguments()).assert().code(4).stderr(predicates::str::contains(says));
    };
    let campaign = stage.folder.path().join("campaign.toml");
    let text = fs::read_to_string(&campaign).expect("a campaign");
    fs::write(&campaign, text.replace("time_limit_s = 20", "time_limit_s = 21")).expect("a change");
    resume("this campaign began with");
    fs::write(&campaign, text).expect("undone");
    let place = stage.out().join("records/place.json");
    let text = fs::read_to_string(&place).expect("a record");
    fs::write(&place, text.replacen("\"kernel\": \"", "\"kernel\": \"other ", 1)).expect("a change");
    resume("was altered since");
    fs::write(&place, text).expect("undone");
    fs::write(stage.out().join("manifest.json"), b"{").expect("a change");
    resume("manifest.json");
}

#[test]
fn the_next_start_removes_what_a_killed_campaign_left() {
    let stage = Scene::candidate("on-timing hang").set_up();
    let mut child = testkit_spawn(&stage);
    wait_until(|| journal_has(&stage.out(), "attempt_started"));
    child.kill().expect("a signal");
    child.wait().expect("it ends");
    wait_until(|| processes_naming(stage.folder.path()).is_empty());

    let staging = stage.folder.path().join("staging");
    assert!(stage.out().join("work").exists() && fs::read_dir(&staging).expect("staging").count() > 1);
    let mut next = stage.arguments();
    let out = next.iter().position(|word| word == "--out").expect("an option") + 1;
    next[out] = stage.folder.path().join("next").display().to_string();
    let absent = stage.folder.path().join("absent").display().to_string();
    parity()
        .args(next)
        .args(["--repo", &absent])
        .assert()
        .code(4)
        .stderr(predicates::str::contains("removed what a killed campaign left in"));
    stage.check_clean();
    assert!(journal_has(&stage.out(), "attempt_started"), "the evidence went with the scratch");
}

#[test]
fn verify_names_what_was_altered() {
    let stage = Scene::honest().set_up();
    let code = parity().args(stage.arguments()).output().expect("the command runs").status.code();
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
    let out = stage.out();
    parity().arg("verify").arg(&out).assert().code(0).stdout(predicates::str::contains("intact"));
    let report = fs::read_to_string(out.join("report.json")).unwrap();
    fs::write(out.join("report.json"), report.replace("PASS", "FAIL")).unwrap();
    parity()
        .arg("verify")
        .arg(&out)
        .assert()
        .code(1)
        .stdout(predicates::str::contains("altered report.json"));
}

/// A C library whose logarithms, exponentials, powers and cosines end in other bits than this machine's: each answer is the next
/// number above the right one. It says how often it was asked.
const ANOTHER_C_LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long asked;

#define NEXT_ABOVE(name)                                                     \
    double name(double x) {                                                  \
        static double (*own)(double);                                        \
        if (!own) own = (double (*)(double))dlsym(RTLD_NEXT, #name);         \
        asked++;                                                             \
        return nextafter(own(x), INFINITY);                                  \
    }

NEXT_ABOVE(log)
NEXT_ABOVE(exp)
NEXT_ABOVE(cos)
NEXT_ABOVE(asin)

double pow(double x, double y) {
    static double (*own)(double, double);
    if (!own) own = (double (*)(double, double))dlsym(RTLD_NEXT, "pow");
    asked++;
    return nextafter(own(x, y), INFINITY);
}

__attribute__((destructor)) static void say(void) {
    FILE *file = fopen(getenv("ASKED"), "w");
    fprintf(file, "%lu", asked);
    fclose(file);
}
"#;

#[test]
fn a_bundle_is_verified_where_the_c_library_is_another() {
    let stage = Scene::honest().set_up();
    parity().args(stage.arguments()).output().expect("the command runs");
    let (source, library) = (stage.folder.path().join("math.c"), stage.folder.path().join("math.so"));
    let asked = stage.folder.path().join("asked");
    fs::write(&source, ANOTHER_C_LIBRARY).expect("a file");
    let compile = ["-shared", "-fPIC", "-fno-builtin", "-O1", "-o"];
    Command::new("cc").args(compile).args([&library, &source]).args(["-lm", "-ldl"]).assert().success();
    parity()
        .arg("verify")
        .arg(stage.out())
        .env("LD_PRELOAD", &library)
        .env("ASKED", &asked)
        .assert()
        .code(0)
        .stdout(predicates::str::contains("the verdicts follow"));
    let asked: u64 = fs::read_to_string(asked).expect("it was loaded").parse().expect("a number");
    assert!(asked > 100, "asked only {asked} times");
}

/// Runs a scene, and gives its bundle's conclusions once more after each edit of one file.
fn check_recomputed(scene: &Scene, edits: &[(&str, &str, &str, &str)]) {
    let stage = scene.set_up();
    parity().args(stage.arguments()).output().expect("the command runs");
    let out = stage.out();
    let honest = parity_campaign::recompute(&out).expect("a bundle");
    assert!(honest.agrees(), "{:#?}", honest.disagreements);
    parity()
        .arg("verify")
        .arg(&out)
        .assert()
        .code(0)
        .stdout(predicates::str::contains("the verdicts follow"));
    for (file, from, to, says) in edits {
        let path = out.join(file);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(&path, text.replacen(from, to, 1)).expect("an edit");
        let found = parity_campaign::recompute(&out).expect("a bundle").disagreements;
        assert!(found.iter().any(|what| what.contains(says)), "{file} {from:?}: {found:#?}");
        fs::write(&path, text).expect("undone");
    }
}

/// A candidate that differs in one value of one row, and what its record is to be.
fn excepted(edits: &[(&str, &str)], codes: &[i32], says: &[&str]) -> Stage {
    excepted_with("", edits, codes, says)
}

/// The campaign of [`excepted`], before it is run.
fn set_up_excepted(more: &str, edits: &[(&str, &str)]) -> Stage {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5625");
    let mut scene =
        Scene::honest().edit("[measure.run]", "[measure]\nmeasure_differing_rows = true\n[measure.run]");
    scene.candidate = scene.candidate.with_report("vllm-aggregated", &changed);
    let stage = scene.set_up();
    let mut record = EXCEPTION_TOML.to_owned();
    for (from, to) in edits {
        assert!(record.contains(from), "{from}");
        record = record.replacen(from, to, 1);
    }
    record.push_str(more);
    let folder = stage.folder.path();
    fs::write(folder.join("itl.toml"), &record).expect("a record");
    let campaign = fs::read_to_string(folder.join("campaign.toml")).expect("a campaign");
    let sha256 = canonical_json::Sha256::of(record.as_bytes());
    let named = format!("[[exception]]\nfile = \"itl.toml\"\nsha256 = \"{sha256}\"\n[host]");
    fs::write(folder.join("campaign.toml"), campaign.replacen("[host]", &named, 1)).expect("a campaign");
    stage
}

/// The same with something after the record.
fn excepted_with(more: &str, edits: &[(&str, &str)], codes: &[i32], says: &[&str]) -> Stage {
    let stage = set_up_excepted(more, edits);
    let output = parity().args(stage.arguments()).output().expect("the command runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().expect("no signal");
    assert!(codes.contains(&code), "exit code {code}, expected {codes:?}\n{text}");
    for expected in says {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    stage.check_clean();
    if stage.out().join("report.json").exists() {
        let found = parity_campaign::recompute(&stage.out()).expect("a bundle");
        assert!(found.agrees(), "{:#?}", found.disagreements);
    }
    stage
}

#[test]
fn a_proved_exception_covers_its_difference_and_nothing_else() {
    let stage = excepted(
        &[],
        &[0, 3],
        &[
            "semantic: **PASS_WITH_SEMANTIC_EXCEPTIONS**",
            "| vllm-aggregated | differs, excepted |",
            "exception itl covers 1 of these differences",
            "baseline failed, candidate passed",
            "unequal semantic work, not a parity verdict",
        ],
    );
    assert!(stage.out().join("inputs/exception-itl.toml").exists());
    let differs = ["semantic: **FAIL**", "| vllm-aggregated | **DIFFERS** |"];
    let says = |more: &[&'static str]| [&differs, more].concat();
    let over = ("grep -rq 12.5625 .", "true");
    excepted(&[over], &[1], &says(&["baseline passed, candidate passed"]));
    let silent = ("echo tried; ", "");
    excepted(&[silent], &[1], &says(&["its output does not contain"]));
    excepted(&[("prepare = [\"true\"]", "prepare = [\"false\"]")], &[1], &says(&["its preparation failed"]));
    let elsewhere = ("/summary/max_itl_ms", "/summary/mean_itl_ms");
    let stale = excepted(
        &[elsewhere],
        &[1],
        &says(&["**stale**", "covered by no record: 1", "`/summary/max_itl_ms`: 1"]),
    );
    let tests_run =
        |stage: &Stage| journal_kinds(&stage.out()).filter(|kind| kind == "exception.test").count();
    assert_eq!((tests_run(&stage), tests_run(&stale)), (2, 0), "what covers nothing needs no proof");
    let carried = "[[regression_test.file]]\npath = \"new/it\"\ntext = \"x\"\n";
    excepted_with(
        carried,
        &[("echo tried; ", "echo tried; test -f new/it && ")],
        &[0, 3],
        &["baseline failed, candidate passed"],
    );
    let own = carried.replace("new/it", "Cargo.toml");
    excepted_with(&own, &[], &[1], &says(&["the revision has a file Cargo.toml of its own"]));
    let place = ("/summary/max_itl_ms", "/per_request/0/output_length");
    excepted(&[place], &[4], &["/per_request has no order, so no place in it has a name: write `*`"]);
    let key = ("/summary/max_itl_ms", "/per_request/*/*");
    excepted(&[key], &[4], &["/per_request is sorted by /uuid, which cannot be left out"]);
    let broad = ("/summary/max_itl_ms", "/summary/*");
    excepted(&[broad], &[0, 3], &["`/summary/*` is wider than what differs"]);
    excepted(&[("pointers =", "rows = [\"absent\"]\npointers =")], &[4], &["row \"absent\""]);
    excepted(&[("\"accepted\"", "\"TO BE WRITTEN\"")], &[4], &["disposition: is still to be written"]);
}

/// Neither before the record of their row is written nor after.
#[test]
fn regression_tests_that_came_to_their_end_are_not_run_again_after_a_kill() {
    let stage = set_up_excepted("", &[]);
    let moment = |kind, records| Moment { kind, records, later: Duration::ZERO };
    kill_and_resume(&stage, &[moment("exception.test", 2), moment("measure.", 3)]);
    let report = parity_campaign::read_report(&stage.out()).expect("a report");
    assert_eq!(report.sessions, 3, "it was to be killed twice");
    assert_eq!(journal_kinds(&stage.out()).filter(|kind| kind == "exception.test").count(), 2);
    let text = fs::read_to_string(stage.out().join("report.md")).expect("a report");
    for said in ["semantic: **PASS_WITH_SEMANTIC_EXCEPTIONS**", "baseline failed, candidate passed"] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
}

/// The demonstration's harness is a real simulation: its response to capacity is real.
#[test]
fn a_capacity_is_searched_on_the_baseline_and_held_against_the_candidate() {
    use parity_campaign::demo::{Fault, create};
    for (fault, code, says) in [
        (None, 0, "Both revisions qualify with"),
        (Some(Fault::Flood), 1, "qualifies on the baseline and not on the candidate"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let demo = create(&folder.path().join("demo"), fault).expect("a demonstration");
        let file = parity_campaign::demo_campaign(&demo, &folder.path().join("demo")).expect("a campaign");
        let campaign = folder.path().join("demo/campaign.toml");
        fs::write(&campaign, &file.bytes).expect("a campaign");
        let row = &file.definition.rows[0];
        let out = folder.path().join("evidence");
        let qualify = |row: &str, out: &Path| {
            let mut command = parity();
            let around = (file.definition.rows[0].num_gpu_blocks + 3).to_string();
            command.args(["qualify", "--row", row, "--around", &around, "--step", "3", "--steps", "1"]);
            command.arg("--campaign").arg(&campaign).arg("--out").arg(out);
            command.arg("--node-lock").arg(folder.path()).arg("--staging").arg(folder.path());
            command
        };
        qualify(&row.name, &out).assert().code(code).stdout(predicates::str::contains(says));
        let record = fs::read(out.join(format!("records/qualify-{}.json", row.name))).expect("a record");
        let found: parity_campaign::Qualification = serde_json::from_slice(&record).expect("a search");
        let blocks: Vec<u64> = found.probes.iter().map(|probe| probe.num_gpu_blocks).collect();
        assert_eq!(blocks, [row.num_gpu_blocks, row.num_gpu_blocks + 3, row.num_gpu_blocks + 6]);
        assert!(found.chosen.is_some() && evidence::verify(&out).expect("a bundle").is_intact());
        parity().arg("verify").arg(&out).assert().code(0);
        parity().arg("resume").arg("--campaign").arg(&campaign).arg(&out).assert().code(4);
        qualify("absent", &folder.path().join("other")).assert().code(4);
    }
}

#[test]
fn a_draft_names_what_differs() {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let mut scene = Scene::honest();
    scene.candidate = scene.candidate.with_report("vllm-aggregated", &changed);
    let stage = scene.set_up();
    parity().args(stage.arguments()).assert().code(1);
    let draft = || {
        let mut command = parity();
        command.args(["exceptions", "draft"]).arg(stage.out());
        command
    };
    draft()
        .assert()
        .code(0)
        .stdout(predicates::str::contains("\"/summary/max_itl_ms\", # vllm-aggregated: 1"));
    let file = stage.folder.path().join("draft.toml");
    draft().arg("-o").arg(&file).assert().code(0);
    draft().arg("-o").arg(&file).assert().code(4);
    parity().args(["exceptions", "draft"]).arg(stage.folder.path()).assert().code(4);
}

#[test]
fn a_verdict_that_does_not_follow_from_the_evidence_is_noticed() {
    check_recomputed(
        &Scene::honest(),
        &[
            ("report.json", "\"semantic\": \"PASS\"", "\"semantic\": \"FAIL\"", "semantic verdict"),
            ("report.json", "\"kind\": \"match\"", "\"kind\": \"differs\"", "outcome"),
            ("report.json", "\"upper_rank\": 6", "\"upper_rank\": 5", "ratio"),
            (
                "report.json",
                "\"hodges_lehmann_ratio\": ",
                "\"hodges_lehmann_ratio\": 1",
                "/for_readers/hodges_lehmann_ratio",
            ),
            ("report.json", "\"campaign\": \"stand-in\"", "\"campaign\": \"another\"", "report.md"),
            ("records/build.json", "\"size_ratio\": ", "\"size_ratio\": 1", "records/build.json"),
            ("campaign.toml", "time_limit_s = 20", "time_limit_s = 21", "campaign_sha256"),
            ("report.md", "PASS", "pass", "report.md"),
        ],
    );
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let mut scene = Scene::honest();
    scene.candidate = scene.candidate.with_report("vllm-aggregated", &changed);
    check_recomputed(
        &scene,
        &[
            ("reports/vllm-aggregated-candidate-1.json", "12.5", "12.6", "digest"),
            ("report.json", "\"kind\": \"differs\"", "\"kind\": \"match\"", "outcome"),
        ],
    );
}

/// What a bundle lacks must not count for what it would have shown, wherever it was taken out.
#[test]
fn a_bundle_that_lacks_its_proofs_is_noticed() {
    use serde_json::{Value, json};
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let mut scene = Scene::honest();
    scene.candidate = scene.candidate.with_report("vllm-aggregated", &changed);
    let stage = scene.set_up();
    parity().args(stage.arguments()).assert().code(1);
    let out = stage.out();
    let read = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(out.join(path)).expect("a file")).expect("JSON")
    };
    let write = |path: &str, value: &Value| fs::write(out.join(path), value.to_string()).expect("written");
    let record = "records/row-vllm-aggregated.json";
    let (report, row) = (read("report.json"), read(record));
    let at = report["rows"].as_array().expect("rows").iter().position(|one| one["row"] == "vllm-aggregated");
    let check = |edit: &dyn Fn(&mut Value), says: &str| {
        let (mut report, mut row) = (report.clone(), row.clone());
        edit(&mut report["rows"][at.expect("the row")]);
        edit(&mut row);
        write("report.json", &report);
        write(record, &row);
        let found = parity_campaign::recompute(&out).expect("a bundle").disagreements;
        assert!(found.iter().any(|what| what.contains(says)), "{says:?} is not in {found:#?}");
    };
    let excepted = json!({ "kind": "excepted", "records": ["none"] });
    check(
        &|row| {
            row["coverage"] = json!({ "baseline": null, "candidate": null });
            row["difference"] = Value::Null;
            row["outcome"] = excepted.clone();
        },
        "without digests and coverage",
    );
    check(
        &|row| {
            row["difference"] = Value::Null;
            row["outcome"] = excepted.clone();
        },
        "it differs, and the two reports are not kept",
    );
    check(
        &|row| row["coverage"]["candidate"]["items"] = json!([]),
        "coverage of the candidate: layout was not checked",
    );
    check(
        &|row| {
            let items = row["coverage"]["baseline"]["items"].as_array_mut().expect("items");
            let band = items.iter_mut().find(|item| item["id"] == "q2.pressure_band").expect("an item");
            assert_eq!(band["status"], "held");
            (band["status"], band["reason"]) = ("not_applicable".into(), "no".into());
        },
        "q2.pressure_band cannot be out of place in this row",
    );
    check(&|row| row["options"] = json!(["--engine-type", "other"]), "row vllm-aggregated: options");
}

#[test]
fn init_writes_a_pinned_campaign_that_parses() {
    let stage = Scene::honest().set_up();
    let repository = stage.repository.path().display().to_string();
    let file = stage.folder.path().join("new.toml");
    let output = file.display().to_string();
    parity()
        .args([
            "init",
            "--baseline",
            "HEAD~1",
            "--candidate",
            "HEAD",
            "--repo",
            &repository,
            "--output",
            &output,
        ])
        .assert()
        .code(0);
    let text = fs::read_to_string(&file).unwrap();
    let parsed = parity_campaign::CampaignFile::read(&file).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(parsed.definition.rows.len(), 4);
    assert!(!text.contains("HEAD~1\"\ncommit") && parsed.definition.baseline.commit.len() == 40);
    parity()
        .args(["init", "--baseline", "absent", "--candidate", "HEAD", "--repo", &repository])
        .assert()
        .code(4)
        .stderr(predicates::str::contains("absent"));

    // What cannot be written whole is not left, and what is there is not replaced.
    let (half, program) = (stage.folder.path().join("half.toml"), env!("CARGO_BIN_EXE_parity"));
    let arguments =
        ["init", "--baseline", "HEAD~1", "--candidate", "HEAD", "--repo", &repository, "--output"];
    Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "limited", program])
        .args(arguments)
        .arg(&half)
        .assert()
        .code(4)
        .stderr(predicates::str::contains("half.toml: File too large"));
    assert!(!half.exists());
    parity()
        .args(arguments)
        .arg(&file)
        .assert()
        .code(4)
        .stderr(predicates::str::contains("new.toml: File exists"));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}
