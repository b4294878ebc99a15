//! Campaigns whose rows are jobs of a real Slurm: two nodes on this machine, whose states are read from the daemons.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use slurm_scene::{HARMLESS, ROWS, Scene};
use testkit::slurm::{Cluster, ClusterJob};
use testkit::{EXCEPTION_TOML, StandIn, TempRepository, edit_pointer, reports};

mod slurm_scene;

#[test]
fn rows_are_spread_over_nodes_and_taken_over() {
    let scene = Scene::new(2, HARMLESS);
    let (code, text) = scene.parity(&scene.run_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}");
    assert!(text.contains("semantic: **PASS**"), "{text}");
    scene.check_finished();
    let jobs = scene.cluster.jobs();
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, ["1_0", "1_1", "1_2", "1_3"], "one array: {jobs:?}");
    let nodes: BTreeSet<&str> = jobs.iter().map(|job| job.node.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["n1", "n2"]), "{jobs:?}");
}

/// Long enough that something can be done to a row while it is measured.
const SLOW: &str = "always stderr 1\non-timing sleep 700";

/// Where a row is being measured: its name, job and node, once a sample of it is in a journal, and not more than half of all:
/// what is done to its job must come before its end.
fn in_measurement(scene: &Scene) -> Option<(String, String, String)> {
    let running = scene.cluster.jobs().into_iter().filter(|job| job.state == "RUNNING");
    running.into_iter().find_map(|job| {
        let (array, task) = job.id.split_once('_')?;
        let row = ROWS[task.parse::<usize>().expect("a number")].to_owned();
        let begun = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let journal = fs::read_to_string(path.join("journal.jsonl")).unwrap_or_default();
            name.starts_with(&format!("{array}_{task}-")) && journal.matches("\"attempt_ended\"").count() <= 7
        };
        let is_measured = scene.attempts_with(&row, "attempt_ended").iter().any(begun);
        is_measured.then(|| (row, job.id.clone(), job.node.clone()))
    })
}

/// Does something to the job of a row that is being measured; the attempt is kept as invalid, and the row starts again at its
/// first warm-up.
fn check_interrupted(act: impl Fn(&mut Cluster, &str, &str), condition: &str, jobs: usize) {
    check_interrupted_in(Scene::new(2, SLOW), act, condition, jobs);
}

fn check_interrupted_in(
    mut scene: Scene,
    act: impl Fn(&mut Cluster, &str, &str),
    condition: &str,
    jobs: usize,
) {
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    let (row, id, node) = in_measurement(&scene).expect("a measurement");
    act(&mut scene.cluster, &id, &node);
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
    check_interrupted(|cluster, id, _| drop(cluster.run(&["scancel", id])), "cancelled", 5);
}

#[test]
fn a_job_that_is_put_back_starts_again() {
    check_interrupted(|cluster, id, _| drop(cluster.run(&["scontrol", "requeue", id])), "requeued", 4);
}

#[test]
fn a_node_without_power_loses_nothing_but_its_time() {
    let act = |cluster: &mut Cluster, _: &str, node: &str| {
        cluster.shut_down(if node == "n1" { 1 } else { 2 });
    };
    check_interrupted(act, "requeued", 4);
}

/// Takes a node away, as somebody with a more urgent job does.
fn preempt(cluster: &mut Cluster, _: &str, node: &str) {
    let node = format!("--nodelist={node}");
    let options = ["--partition=urgent", "--exclusive", "--job-name=urgent", "--output=/dev/null", &node];
    let words: Vec<&str> = ["sbatch"].into_iter().chain(options).chain(["--wrap=sleep 2"]).collect();
    cluster.run(&words);
}

#[test]
fn a_job_that_is_preempted_and_put_back_starts_again() {
    check_interrupted(preempt, "requeued", 5);
}

#[test]
fn a_job_that_is_preempted_and_ended_is_replaced() {
    let scene = Scene::with(2, ["", SLOW], &[("partition = \"p\"", "partition = \"losing\"")]);
    check_interrupted_in(scene, preempt, "preempted", 6);
}

/// Lets Slurm end a job by its time limit. It looks at limits twice a minute; the shortest that a job can have from the
/// beginning is a minute.
fn exceed(cluster: &Cluster, id: &str) {
    cluster.run(&["scontrol", "update", &format!("JobId={id}"), "TimeLimit=0"]);
}

#[test]
fn a_job_that_meets_its_time_limit_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count").display().to_string();
    // Of the first row: two repetitions, and the third timing takes longer than anybody waits.
    let script = format!("counter {count}\nalways stderr 1\nnth 5 sleep 200000");
    let scene = Scene::with(1, ["", &script], &[("time_limit_s = 60", "time_limit_s = 600")]);
    check_interrupted_in(scene, |cluster, id, _| exceed(cluster, id), "time-limit", 5);
}

#[test]
fn a_time_limit_that_is_always_met_ends_with_its_name() {
    let edits = [
        ("time_limit_s = 60", "time_limit_s = 600"),
        ("[measure.run]", "[measure]\nrows = [\"vllm-aggregated\"]\n[measure.run]"),
        ("rows = 4", "rows = 1"),
        ("poll_ms", "restarts_per_row = 1\ntime_limit_min = 30\npoll_ms"),
    ];
    let scene = Scene::with(1, ["", "always stderr 1\non-timing sleep 200000"], &edits);
    let mut driver = scene.spawn(&scene.run_words());
    let mut last = String::new();
    for _ in 0..2 {
        let next = |scene: &Scene| in_measurement(scene).filter(|(_, id, _)| *id != last);
        scene.wait_until(&mut driver, "a measurement", |scene| next(scene).is_some());
        last = next(&scene).expect("a measurement").1;
        exceed(&scene.cluster, &last);
    }
    assert_eq!(scene.finish(driver), Some(5), "{}", scene.said());
    let says = format!(
        "job {last} on n1 met its time limit of 30 min (slurm.time_limit_min); it was interrupted 2 times and may start again 1 times"
    );
    assert!(scene.said().contains(&says), "{says}\n{}", scene.said());
    // Nobody starts it again by asking once more.
    let jobs = scene.cluster.jobs().len();
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(code == Some(5) && text.contains(&says), "{code:?}\n{text}");
    let of_row = |scene: &Scene| {
        let ended = scene.payloads("slurm.ended");
        ended.iter().map(|one| one["condition"].as_str().unwrap_or("none").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of_row(&scene), ["time-limit", "time-limit"]);
    assert_eq!(scene.cluster.jobs().len(), jobs, "{:?}", scene.cluster.jobs());
}

#[test]
fn a_row_starts_again_only_as_often_as_the_definition_says() {
    let scene = Scene::with(2, ["", SLOW], &[("poll_ms", "restarts_per_row = 0\npoll_ms")]);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "a measurement", |scene| in_measurement(scene).is_some());
    let (_, id, _) = in_measurement(&scene).expect("a measurement");
    scene.cluster.run(&["scancel", &id]);
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

/// Cancels a campaign in the middle of a measurement and goes on with it.
fn check_cancelled(edits: &[(&str, &str)], after: &str) {
    let edits: Vec<(&str, &str)> =
        edits.iter().copied().chain([("poll_ms", "restarts_per_row = 0\npoll_ms")]).collect();
    let scene = Scene::with(2, ["", SLOW], &edits);
    let mut driver = scene.spawn(&scene.run_words());
    let is_time = |scene: &Scene| scene.said().contains(after) && in_measurement(scene).is_some();
    scene.wait_until(&mut driver, "a measurement", is_time);
    let (code, text) = scene.parity(&["cancel".to_owned(), scene.out().display().to_string()]);
    assert!(code == Some(0) && text.contains("cancelled kvrp-"), "{code:?}\n{text}");
    assert_eq!(scene.finish(driver), Some(130), "{}", scene.said());
    assert!(scene.cluster.jobs().iter().all(|job| !["RUNNING", "PENDING"].contains(&job.state.as_str())));
    assert!(!scene.out().join("work").exists(), "scratch is still there");
    let kept = scene.payloads("row.attempt");
    assert!(kept.iter().any(|one| one["valid"] == false && one["condition"] == "cancelled"), "{kept:#?}");
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}");
    scene.check_finished();
}

#[test]
fn a_campaign_is_cancelled_and_gone_on_with() {
    check_cancelled(&[], "runs on");
}

/// What was taken over stays so, and the artifacts are built again: they must be the same.
#[test]
fn a_campaign_is_cancelled_between_its_rows_and_gone_on_with() {
    check_cancelled(&[BUILD_IN_JOB], "its evidence is taken over");
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

/// A row that is ended between its last sample and its seal, here while a profile is taken, has had its measurement: a second
/// draw would be taken by those that failed more often than by others (M7).
#[test]
fn a_measurement_that_came_to_its_end_is_not_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count").display().to_string();
    // Two repetitions, a warm-up and six pairs; what comes tenth is the profile of the first row.
    let scene = Scene::new(1, &format!("counter {count}\nalways stderr 1\nnth 10 sleep 50000"));
    let words: Vec<String> = scene.run_words().into_iter().chain(["--profile=always".to_owned()]).collect();
    let mut driver = scene.spawn(&words);
    let is_profiled =
        |_: &Scene| fs::read_to_string(folder.path().join("count")).is_ok_and(|count| count.len() == 10);
    scene.wait_until(&mut driver, "a profile", is_profiled);
    let row = ROWS[0];
    let [attempt] = &scene.attempts_with(row, "attempt_ended")[..] else { panic!("{}", scene.said()) };
    let journal = fs::read_to_string(attempt.join("journal.jsonl")).expect("a journal");
    assert_eq!(
        journal.matches("\"attempt_ended\"").count(),
        14,
        "every sample is taken, and no verdict is written"
    );
    scene.cluster.run(&["scancel", "1_0"]);
    let code = scene.finish(driver);
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{}", scene.said());
    scene.check_finished();
    let attempts = scene.payloads("row.attempt");
    let of_row: Vec<&Value> = attempts.iter().filter(|one| one["row"] == row).collect();
    let [invalid, valid] = of_row[..] else { panic!("{attempts:#?}") };
    assert_eq!((&invalid["valid"], &valid["valid"]), (&false.into(), &true.into()));
    let kept = |attempt: &Value| scene.out().join(attempt["journal"].as_str().expect("a path"));
    let measured = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a journal");
        let records: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let kind = format!("measure.{row}");
        records
            .into_iter()
            .filter(move |record| record["kind"] == kind.as_str())
            .map(|record| record["payload"].clone())
    };
    let first: Vec<Value> = measured(&kept(invalid)).collect();
    assert_eq!(first, measured(&kept(valid)).collect::<Vec<_>>());
    assert_eq!(first, scene.payloads(&format!("measure.{row}")));
    let report = parity_campaign::read_report(&scene.out()).expect("a report");
    let counted = report.measurements.iter().find(|one| one.row == row).expect("its record");
    assert_eq!(counted.ratio.map(|ratio| ratio.pairs), Some(6));
    let told = "measured by an attempt that was ended before its seal";
    assert!(report.labels.iter().any(|label| label == told), "{:?}", report.labels);
    // Evidence in which another draw is told of is refused.
    let path = kept(invalid);
    let text = fs::read_to_string(&path).expect("a journal");
    let seen = text.rfind("\"wall_ns\":").expect("a time") + "\"wall_ns\":".len();
    let other = if text.as_bytes()[seen] == b'1' { "2" } else { "1" };
    fs::write(&path, format!("{}{other}{}", &text[..seen], &text[seen + 1..])).expect("an edit");
    let found = parity_campaign::recompute(&scene.out()).expect("a bundle").disagreements;
    let said = "it came to the end of the measurement, and another one counts";
    assert!(found.iter().any(|what| what.contains(said)), "{found:#?}");
}

/// A crash that an attempt saw is not undone by taking its node away.
#[test]
fn a_fault_that_was_seen_before_a_job_was_put_back_stays_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count").display().to_string();
    let scene = Scene::new(1, &format!("counter {count}\nnth 1 exit 101\nnth 2 hang"));
    let mut driver = scene.spawn(&scene.run_words());
    // The next process has to hang there, or it would hang in another row.
    let hangs = || fs::read_to_string(folder.path().join("count")).is_ok_and(|count| count.len() == 2);
    let seen = |scene: &Scene| !scene.attempts_with("vllm-aggregated", "status 101").is_empty() && hangs();
    scene.wait_until(&mut driver, "a fault", seen);
    let job = scene.cluster.jobs().into_iter().find(|job| job.state == "RUNNING").expect("a job");
    scene.cluster.run(&["scontrol", "requeue", &job.id]);
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
        assert!(start.elapsed() < Duration::from_secs(900), "{:?}", scene.cluster.jobs());
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

/// A driver that is killed between the submission and its record; its jobs come to their end while nobody looks.
#[test]
fn jobs_that_were_not_recorded_are_recorded_when_their_evidence_is_taken_over() {
    let scene = Scene::new(2, HARMLESS);
    let search = std::env::var("PATH").expect("a search path");
    let sbatch = std::env::split_paths(&search).map(|folder| folder.join("sbatch"));
    let sbatch = sbatch.into_iter().find(|path| path.exists()).expect("Slurm is installed");
    fs::create_dir(scene.path("slow")).expect("a folder");
    let slow = scene.path("slow/sbatch");
    fs::write(&slow, format!("#!/bin/sh\n{} \"$@\"\nexec sleep 30\n", sbatch.display())).expect("a script");
    fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let search = format!("{}:{search}", scene.path("slow").display());
    let mut driver = scene.spawn_with(&scene.run_words(), &search);
    scene.wait_until(&mut driver, "four jobs", |scene| scene.cluster.jobs().len() == 4);
    driver.kill().expect("a signal");
    driver.wait().expect("it ends");
    assert!(scene.payloads("slurm.submitted").is_empty(), "it was to be killed before");
    let start = Instant::now();
    while scene.cluster.jobs().iter().any(|job| job.state != "COMPLETED") {
        assert!(start.elapsed() < Duration::from_secs(900), "{:?}", scene.cluster.jobs());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (code, said) = scene.parity(&scene.resume_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{said}");
    scene.check_finished();
    let found = scene.payloads("slurm.submitted");
    assert!(found.len() == 4 && found.iter().all(|one| one["because"] == "found"), "{found:#?}");
}

#[test]
fn a_campaign_without_a_driver_is_taken_over_by_a_job() {
    let scene = Scene::new(2, HARMLESS);
    let mut words = scene.run_words();
    words.push("--detach".to_owned());
    let (code, text) = scene.parity(&words);
    assert!(code == Some(0) && text.contains("rows: jobs 1_0, 1_1, 1_2, 1_3; then job "), "{code:?}\n{text}");
    let merge = ended_merge(&scene);
    assert!(scene.out().join("manifest.json").exists(), "{merge:?}\n{}", merge_log(&scene, &merge));
    scene.check_finished();
    let merges = scene.payloads("slurm.merge");
    assert_eq!(merges, [serde_json::json!({ "job_id": merge.id, "after": ["1"] })]);
}

/// What the job that takes rows over said.
fn merge_log(scene: &Scene, merge: &ClusterJob) -> String {
    let path = scene.out().with_extension(format!("merge-{}.txt", merge.id));
    fs::read_to_string(path).unwrap_or_default()
}

/// The job that takes rows over, once it has ended.
fn ended_merge(scene: &Scene) -> ClusterJob {
    let start = Instant::now();
    loop {
        let jobs = scene.cluster.jobs();
        let merge = jobs.iter().find(|job| job.name.starts_with("kvrpmerge-")).expect("a job");
        if !["PENDING", "RUNNING", "COMPLETING"].contains(&merge.state.as_str()) {
            return merge.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(900), "{jobs:?}\n{}", merge_log(scene, merge));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// In the campaign file.
const BUILD_IN_JOB: (&str, &str) = ("poll_ms", "build = \"job\"\npoll_ms");

/// What must hold of a campaign whose artifacts were built in a job.
fn check_built_in_job(scene: &Scene, attempts: usize) {
    scene.check_finished();
    let built = scene.payloads("build.attempt");
    assert_eq!(built.len(), attempts, "{built:#?}");
    let valid: Vec<&Value> = built.iter().filter(|one| one["valid"] == true).collect();
    let [valid] = valid[..] else { panic!("{built:#?}") };
    let jobs = scene.cluster.jobs();
    let job = jobs.iter().find(|job| job.id == slurm_scene::text(&valid["job_id"])).expect("a job");
    assert!(job.name.starts_with("kvrpbuild-") && valid["node"] == job.node.as_str(), "{job:?} {valid:#}");
    // Its own journal says the same, and cargo's words are there.
    let journal =
        fs::read_to_string(scene.out().join(slurm_scene::text(&valid["journal"]))).expect("a journal");
    assert!(journal.contains(&format!("\"node\":\"{}\"", job.node)), "{journal}");
    assert!(scene.out().join("logs/build-candidate.txt").exists());
    let report = parity_campaign::read_report(&scene.out()).expect("a report");
    assert!(report.build.artifacts.baseline.wall_ms > 0);
}

/// Neither compiler nor linker is used where the campaign is started: the build is a job, and the rows wait for it.
#[test]
fn a_build_is_a_job_that_rows_wait_for() {
    let scene = Scene::with(2, ["", HARMLESS], &[BUILD_IN_JOB]);
    let driver = scene.spawn(&scene.run_words());
    assert!(matches!(scene.finish(driver), Some(0 | 3)), "{}", scene.said());
    assert!(!scene.said().contains("build baseline"), "it was built here\n{}", scene.said());
    check_built_in_job(&scene, 1);
    let ids: Vec<String> = scene.cluster.jobs().into_iter().map(|job| job.id).collect();
    assert_eq!(ids, ["1", "2_0", "2_1", "2_2", "2_3"]);
    let waited = scene.payloads("slurm.submitted");
    let options: Vec<String> = waited.iter().map(|one| one["options"].to_string()).collect();
    assert!(options[1..].iter().all(|text| text.contains("--dependency=afterok:1")), "{options:#?}");
}

#[test]
fn a_build_that_is_put_back_starts_again() {
    let scene = Scene::with(2, ["", HARMLESS], &[BUILD_IN_JOB]);
    let mut driver = scene.spawn(&scene.run_words());
    let begun = |scene: &Scene| fs::read_dir(scene.out().join("work/jobs/builds/1-0")).is_ok();
    scene.wait_until(&mut driver, "a build", begun);
    scene.cluster.run(&["scontrol", "requeue", "1"]);
    assert!(matches!(scene.finish(driver), Some(0 | 3)), "{}", scene.said());
    check_built_in_job(&scene, 2);
    assert_eq!(scene.payloads("build.attempt")[0]["condition"], "requeued");
    assert_eq!(scene.cluster.jobs().len(), 5, "{:?}", scene.cluster.jobs());
}

/// The rows that waited for it are replaced by others that wait for the next one, and that is not held against them.
#[test]
fn a_build_that_is_cancelled_is_replaced_with_the_rows_that_waited() {
    let edits = [("poll_ms", "restarts_per_row = 1\npoll_ms"), BUILD_IN_JOB];
    let scene = Scene::with(2, ["", HARMLESS], &edits);
    let mut driver = scene.spawn(&scene.run_words());
    let begun = |scene: &Scene| fs::read_dir(scene.out().join("work/jobs/builds/1-0")).is_ok();
    scene.wait_until(&mut driver, "a build", begun);
    scene.cluster.run(&["scancel", "1"]);
    assert!(matches!(scene.finish(driver), Some(0 | 3)), "{}", scene.said());
    check_built_in_job(&scene, 2);
    assert_eq!(scene.payloads("build.attempt")[0]["condition"], "cancelled");
    let ended = scene.payloads("slurm.ended");
    let rows: Vec<&Value> = ended.iter().filter(|one| one.get("row").is_some()).collect();
    assert!(rows.len() == 4 && rows.iter().all(|one| one["by_us"] == true), "{ended:#?}");
}

/// A candidate that does not compile.
fn broken_build() -> Scene {
    let mut repository = TempRepository::new();
    let baseline = StandIn::new("").commit(&mut repository, "baseline");
    let broken = ("benches/offline_replay_bench.rs", Some("fn main() { a_word_that_nobody_knows }"));
    let candidate = repository.commit(&[broken], "candidate");
    Scene::over(2, repository, &[baseline, candidate], &[BUILD_IN_JOB])
}

/// The job that built says why it failed before it is over.
fn check_nothing_waits(scene: &Scene) {
    let is_alive = |job: &ClusterJob| ["PENDING", "RUNNING"].contains(&job.state.as_str());
    let start = Instant::now();
    let jobs = loop {
        let jobs = scene.cluster.jobs();
        let Some(left) = jobs.iter().find(|job| is_alive(job)) else { break jobs };
        assert!(left.state == "RUNNING" && start.elapsed() < Duration::from_secs(60), "{jobs:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let ran: Vec<&ClusterJob> =
        jobs.iter().filter(|job| job.name.starts_with("kvrp-") && !job.node.is_empty()).collect();
    assert!(ran.is_empty(), "a row ran without artifacts: {ran:?}");
}

#[test]
fn a_build_that_fails_ends_the_campaign_and_the_rows_that_wait() {
    let scene = broken_build();
    let (code, text) = scene.parity(&scene.run_words());
    assert!(code == Some(6) && text.contains("stage build: its job failed: "), "{code:?}\n{text}");
    assert!(text.contains("candidate"), "{text}");
    check_nothing_waits(&scene);
    let status = ["status".to_owned(), scene.out().display().to_string()];
    let (code, text) = scene.parity(&status);
    assert!(code == Some(0) && text.contains("  build: failed: "), "{code:?}\n{text}");
    // Asked for again, it is tried again: a tool may have been installed meanwhile.
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(code == Some(6) && text.contains("its job failed"), "{code:?}\n{text}");
    check_nothing_waits(&scene);
    let builds = scene.payloads("slurm.submitted").iter().filter(|one| one.get("row").is_none()).count();
    assert_eq!(builds, 2);
}

#[test]
fn a_build_without_a_driver_is_taken_over_or_reported_by_a_job() {
    let scene = Scene::with(2, ["", HARMLESS], &[BUILD_IN_JOB]);
    let mut words = scene.run_words();
    words.push("--detach".to_owned());
    let (code, text) = scene.parity(&words);
    assert!(
        code == Some(0) && text.contains("build: job 1; rows: jobs 2_0, 2_1, 2_2, 2_3; then job 3"),
        "{code:?}\n{text}"
    );
    let merge = ended_merge(&scene);
    assert!(scene.out().join("manifest.json").exists(), "{merge:?}\n{}", merge_log(&scene, &merge));
    check_built_in_job(&scene, 1);

    let scene = broken_build();
    let mut words = scene.run_words();
    words.push("--detach".to_owned());
    assert_eq!(scene.parity(&words).0, Some(0));
    let merge = ended_merge(&scene);
    let log = merge_log(&scene, &merge);
    assert!(merge.state == "FAILED" && log.contains("stage build: its job failed: "), "{merge:?}\n{log}");
    check_nothing_waits(&scene);
    let builds = scene.payloads("slurm.submitted").iter().filter(|one| one.get("row").is_none()).count();
    assert_eq!(builds, 1, "a build that failed was started again by nobody's order");
}

/// What the rows are given is what was recorded, whatever happens to the folder meanwhile.
#[test]
fn artifacts_that_were_altered_are_not_used() {
    let scene = Scene::with(1, ["", HARMLESS], &[BUILD_IN_JOB]);
    let mut driver = scene.spawn(&scene.run_words());
    scene.wait_until(&mut driver, "five jobs", |scene| scene.cluster.jobs().len() == 5);
    driver.kill().expect("a signal");
    driver.wait().expect("it ends");
    let start = Instant::now();
    while !scene.out().join("work/jobs/builds/1-0/manifest.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(900), "{:?}", scene.cluster.jobs());
        std::thread::sleep(Duration::from_millis(100));
    }
    let harness = scene.out().join("work/jobs/c/harness");
    let mut bytes = fs::read(&harness).expect("an artifact");
    bytes.push(0);
    fs::write(&harness, bytes).expect("an edit");
    let (code, text) = scene.parity(&scene.resume_words());
    assert!(code == Some(5) && text.contains("it changed after it was recorded"), "{code:?}\n{text}");
}

/// A job has no checkouts: the tests of a record are run where the driver is, and settle what the job had to leave open.
#[test]
fn a_row_of_a_job_is_excepted_by_a_record_whose_test_proves_it() {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5625");
    let mut repository = TempRepository::new();
    let commits = [
        StandIn::new("").commit(&mut repository, "baseline"),
        StandIn::new("").with_report("vllm-aggregated", &changed).commit(&mut repository, "candidate"),
    ];
    let sha256 = canonical_json::Sha256::of(EXCEPTION_TOML.as_bytes());
    let named = format!("[[exception]]\nfile = \"itl.toml\"\nsha256 = \"{sha256}\"\n[host]");
    let scene = Scene::over(2, repository, &commits, &[("[host]", &named)]);
    fs::write(scene.path("itl.toml"), EXCEPTION_TOML).expect("a record");
    let (code, text) = scene.parity(&scene.run_words());
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{text}");
    for said in [
        "semantic: **PASS_WITH_SEMANTIC_EXCEPTIONS**",
        "| vllm-aggregated | differs, excepted |",
        "baseline failed, candidate passed",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    scene.check_finished();
    let sides: Vec<Value> = scene.payloads("exception.test").iter().map(|run| run["side"].clone()).collect();
    assert_eq!(sides, ["baseline", "candidate"], "once per campaign");
}
