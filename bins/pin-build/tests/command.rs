//! The command as a user and a script meet it, on real repositories and real builds.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../crates/revision-pin/tests/fixture/mod.rs"]
mod fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use fixture::{Fixture, package, snapshot};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use revision_pin::{BuildRecord, CommitId, Sha256};

const RECIPE: &str = "package = 'tiny'\ntarget = { kind = 'bin', name = 'tiny' }\nfeatures = ['needed']\n\
                      no_default_features = true\noffline = true\n";

/// A repository with one tiny package, a recipe, and a place for results.
struct Scene {
    fixture: Fixture,
    commit: CommitId,
}

impl Scene {
    fn new(files: &[(&'static str, String)]) -> Self {
        let fixture = Fixture::new();
        let commit = fixture.commit_package(files);
        fs::write(fixture.top.path().join("recipe.toml"), RECIPE).unwrap();
        fs::create_dir(fixture.top.path().join("results")).unwrap();
        Scene { fixture, commit }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.top.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// The command as it is meant to be used, with `more` at the end.
    fn command(&self, commit: &str, more: &[&str]) -> std::process::Command {
        let mut command = bare();
        command.arg(self.path("user")).arg(commit).arg("--recipe").arg(self.path("recipe.toml"));
        command.arg("--out").arg(self.path("results/out")).args(["--jobs", "1"]).args(more);
        if !more.contains(&"--free-bytes") {
            command.args(["--free-bytes", "1000000"]);
        }
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(&self.commit.to_string(), more).output().unwrap()
    }

    /// What is in the folder of the results.
    fn results(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path("results"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[expect(clippy::disallowed_methods, reason = "the command under test, which one test kills")]
fn bare() -> std::process::Command {
    std::process::Command::new(cargo_bin("pin-build"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_result_is_an_executable_a_record_and_a_log() {
    let scene = Scene::new(&package("3"));
    let before = snapshot(&scene.path("user"));
    let output = scene.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(scene.results(), ["out"]);
    let out = scene.path("results/out");
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["build.log", "record.json", "tiny"]);
    let record: BuildRecord = serde_json::from_slice(&fs::read(out.join("record.json")).unwrap()).unwrap();
    assert_eq!((record.revision.commit, record.artifact.name.as_str()), (scene.commit, "tiny"));
    assert_eq!(record.artifact.sha256, Sha256::of(&fs::read(out.join("tiny")).unwrap()));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with(&format!("commit    {}\n", scene.commit)), "{stdout}");
    assert!(stdout.contains(&format!("sha256    {}\n", record.artifact.sha256)), "{stdout}");
    let top = scene.fixture.top.path().display().to_string();
    for name in ["record.json", "build.log"] {
        assert!(!fs::read_to_string(out.join(name)).unwrap().contains(&top), "a host path in {name}");
    }
    assert!(text(&output.stderr).contains("pin-build: pinned "));
    assert_eq!(snapshot(&scene.path("user")), before);

    let again = scene.run(&[]);
    assert_eq!(again.status.code(), Some(4));
    assert!(text(&again.stderr).contains("exists already"), "{}", text(&again.stderr));
    assert!(again.stdout.is_empty());
}

#[test]
fn json_is_one_event_per_line_and_patches_tags_and_seeds_work() {
    let scene = Scene::new(&package("3"));
    let repo = scene.fixture.repo();
    let object = repo.find_object(scene.commit.to_string().parse().unwrap(), None).unwrap();
    let tag = repo.tag("v1", &object, &scene.fixture.who(), "a tag", false).unwrap().to_string();
    let patch = scene.write(
        "five.patch",
        "diff --git a/dep/src/lib.rs b/dep/src/lib.rs\n--- a/dep/src/lib.rs\n+++ b/dep/src/lib.rs\n@@ -1,3 +1,3 @@\n \
         pub fn weight(n: usize) -> usize {\n-    n.checked_mul(3).unwrap()\n+    n.checked_mul(5).unwrap()\n }\n",
    );
    let work = scene.path("work").display().to_string();
    let more = ["--message-format", "json", "--peel-tag", "--patch", &patch, "--work", &work];
    let output = scene.command(&tag, &more).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["pinned", "checked-out", "patched", "building", "built"]);
    assert_eq!(events[0]["revision"]["peeled_from"], tag);
    assert_eq!(events[4]["record"]["patches"][0]["name"], "five.patch");
    assert_eq!(fs::read(scene.path("results/out/patches/1-five.patch")).unwrap(), fs::read(&patch).unwrap());
    assert!(scene.path("work/build/target").is_dir() && scene.path("work/checkout/Cargo.toml").is_file());

    let seed = scene.path("work/build").display().to_string();
    let other = scene.path("results/second").display().to_string();
    let seeded = scene
        .command(&scene.commit.to_string(), &["--seed", &seed])
        .arg("--out")
        .arg(&other)
        .output()
        .unwrap();
    assert_eq!(seeded.status.code(), Some(2), "`--out` twice is a usage error");
    fs::remove_dir_all(scene.path("results/out")).unwrap();
    let seeded = scene.run(&["--seed", &seed]);
    assert_eq!(seeded.status.code(), Some(0), "{}", text(&seeded.stderr));
}

/// A run that fails, its exit code, and what its error says. Nothing is left beside the result.
fn check(scene: &Scene, commit: &str, more: &[&str], exit: i32, says: &str) {
    let output = scene.command(commit, more).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{commit} {more:?}: {stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("pin-build: ") && last.contains(says), "{commit} {more:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert_eq!(scene.results(), Vec::<String>::new(), "{commit} {more:?}");
}

#[test]
fn bad_input_is_one_clear_error_with_its_code() {
    let scene = Scene::new(&package("3"));
    let id = scene.commit.to_string();
    let good = scene.commit.to_string();
    for name in ["main", "HEAD", &id[..12]] {
        check(&scene, name, &[], 4, &format!("it means {id} now: pin that id"));
    }
    check(&scene, "no-such-name", &[], 4, "it is not a full commit id");
    check(&scene, &"0".repeat(40), &[], 4, "the repository has no such object");
    check(&scene, &good, &["--patch", "/no/such.patch"], 4, "read the patch /no/such.patch");
    let patch = scene
        .write("bad.patch", "--- a/dep/src/lib.rs\n+++ b/dep/src/lib.rs\n@@ -1 +1 @@\n-no such line\n+x\n");
    check(&scene, &good, &["--patch", &patch], 4, "`dep/src/lib.rs` does not fit at hunk 1");
    check(&scene, &good, &["--free-bytes", "99999999999999999"], 5, "bytes of disk and");
    check(&scene, &good, &["--seed", "/no/such/build"], 5, "earlier build");
    let work = scene.path("user").display().to_string();
    check(&scene, &good, &["--work", &work], 4, "exists already");

    for (recipe, exit, says) in [
        (
            RECIPE.replace("features =", "feature ="),
            4,
            "`feature` is not a key of it (did you mean `features`?)",
        ),
        (RECIPE.replace("'needed'", "'all-features'"), 4, "list the features by name"),
        (RECIPE.replace("'needed'", "'kvbm-offload'"), 4, "KVBM replay was removed"),
        ("not toml".to_owned(), 4, "read the recipe"),
        (RECIPE.replace("'needed'", "'needed', 'neded'"), 8, "no feature `neded` (the nearest is `needed`)"),
        (
            RECIPE.replace("name = 'tiny'", "name = 'tinny'"),
            8,
            "the protocol needs updating: there is no bin target",
        ),
        (RECIPE.replace("'needed'", ""), 8, "`tiny` requires the feature `needed`"),
    ] {
        scene.write("recipe.toml", &recipe);
        check(&scene, &good, &[], exit, says);
    }
    fs::remove_file(scene.path("recipe.toml")).unwrap();
    check(&scene, &good, &[], 4, "read the recipe");
}

#[test]
fn a_command_line_that_cannot_be_understood_is_code_two() {
    for arguments in
        [&[][..], &["repo"], &["repo", "id", "--out", "x", "--recipe", "y", "--jobs", "0"], &["--no-such"]]
    {
        let output = bare().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
    let help = text(&bare().arg("--help").output().unwrap().stdout);
    assert!(help.contains("Exit codes:") && help.contains("--peel-tag"), "{help}");
    let scene = Scene::new(&package("3"));
    let missing = scene.path("none").display().to_string();
    let output = bare()
        .args([&missing, &"0".repeat(40), "--recipe"])
        .arg(scene.path("recipe.toml"))
        .args(["--out", "/x"])
        .output();
    assert_eq!(output.unwrap().status.code(), Some(4));
}

#[test]
fn a_revision_that_does_not_compile_is_the_targets_failure() {
    let mut files = package("3");
    files.push(("src/main.rs", "fn main() { let x: u8 = \"text\"; }\n".to_owned()));
    let scene = Scene::new(&files);
    let id = scene.commit.to_string();
    check(&scene, &id, &[], 6, "`cargo build` exited with 101: error[E0308]: mismatched types");
    let output = scene.run(&[]);
    assert!(text(&output.stderr).contains("expected `u8`, found `&str`"), "what cargo said is shown whole");
}

/// A package whose build script sleeps, after writing its process id.
fn sleeping() -> Scene {
    let mut files = package("3");
    let script = "fn main() {\n    std::fs::write(\"pid\", std::process::id().to_string()).unwrap();\n    \
                  std::thread::sleep(std::time::Duration::from_secs(600));\n}\n";
    files.push(("build.rs", script.to_owned()));
    Scene::new(&files)
}

/// Starts the command, and waits until its build script runs.
fn start(scene: &Scene) -> (Child, i32) {
    let before = scene.results();
    let mut command = scene.command(&scene.commit.to_string(), &["--message-format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let script = loop {
        if let Some(pid) = pid_below(&scene.path("results"), &before) {
            break Some(pid);
        }
        if Instant::now() > deadline {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (child, script.expect("the build script never ran"))
}

/// The build script of a run whose folder is not one of those that were there before.
fn pid_below(results: &Path, before: &[String]) -> Option<i32> {
    let folders = fs::read_dir(results).ok()?.filter_map(Result::ok);
    let mut new = folders.filter(|entry| !before.iter().any(|name| entry.file_name() == name.as_str()));
    new.find_map(|entry| fs::read_to_string(entry.path().join("work/checkout/pid")).ok()?.parse().ok())
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_signal_stops_the_build_and_leaves_nothing() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let scene = sleeping();
        let (child, script) = start(&scene);
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(scene.results(), Vec::<String>::new());
        assert!(!is_running(script));
        let events = text(&output.stdout);
        assert!(
            events.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
            "{events}"
        );
        assert!(events.contains("\"pinned\"") && !events.contains("\"built\""), "{events}");
    }
}

#[test]
fn a_build_that_hangs_is_stopped_at_its_limit() {
    let scene = sleeping();
    check(
        &scene,
        &scene.commit.to_string(),
        &["--time-limit", "5"],
        6,
        "it ran longer than 5 s and was stopped",
    );
}

#[test]
fn what_a_sigkill_leaves_is_removed_by_the_next_run_and_what_is_in_use_is_not() {
    let scene = sleeping();
    let (mut killed, script) = start(&scene);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(scene.results().len(), 1, "SIGKILL cannot clean up");
    // cargo dies with its parent; its build script, whose parent was cargo, may have to be stopped here.
    if is_running(script) {
        kill(Pid::from_raw(script), Signal::SIGKILL).unwrap();
    }
    let left = scene.results();
    let (mut running, script) = start(&scene);
    assert!(scene.results().iter().all(|name| !left.contains(name)), "{:?}", scene.results());
    // A third run for the same result leaves the folder of the second alone.
    let output = scene.command("main", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let output = scene.run(&["--patch", "/dev/null"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(scene.results().len(), 1, "the folder of a running command was removed");
    assert!(is_running(script));
    kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert_eq!(scene.results(), Vec::<String>::new());
}
