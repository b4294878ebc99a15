//! What giving rows to Slurm costs: a real cluster of two nodes on this machine, four rows of at least 30 s.
//!
//! ```text
//! cargo bench -p parity --bench slurm -- [--check]
//! ```
//!
//! The stand-in sleeps, so that a row takes its time on any machine. Node and job changes are made by Slurm itself.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use evidence::{Record, read_journal};
use slurm_scene::Scene;

#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../tests/slurm_scene/mod.rs"]
mod slurm_scene;

const NODES: usize = 2;
const ROWS: usize = 4;
const ROW_SECONDS: f64 = 30.0;

/// The row stage may take this many times what equal nodes would need at best.
const STAGE_FACTOR: f64 = 1.1;

/// Of one core, for looking at the jobs.
const POLLING_PERCENT: f64 = 1.0;

fn main() -> ExitCode {
    // cargo passes --bench to every bench target.
    let check = std::env::args().skip(1).any(|argument| argument == "--check");
    if measure() || !check { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn measure() -> bool {
    // Eight repetitions and timings a revision: 2 * (2 + 7) processes of 1.8 s each.
    let script = "always sleep 1800";
    let candidate = format!("{script}\nalways stderr 1");
    let scene = Scene::with(NODES, [script, &candidate], &[("poll_ms = 300", "poll_ms = 3000")]);
    let mut driver = scene.spawn(&scene.run_words());
    let submitted =
        |scene: &Scene| scene.cluster.jobs().iter().filter(|job| job.state == "RUNNING").count() == NODES;
    scene.wait_until(&mut driver, "jobs on every node", submitted);
    let polling = polling_percent(driver.id());
    let code = scene.finish(driver);
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{}", scene.said());
    scene.check_finished();
    let rows = row_seconds(&scene);
    let (shortest, mean) =
        (rows.iter().copied().fold(f64::MAX, f64::min), rows.iter().sum::<f64>() / ROWS as f64);
    let best = ROWS.div_ceil(NODES) as f64 * mean;
    let stage = stage_seconds(&read_journal(&scene.out()).expect("a journal").records);
    let lost = ROWS - scene.payloads("row.attempt").iter().filter(|one| one["valid"] == true).count();
    let results = [
        line("shortest row, s", "at least", ROW_SECONDS, shortest, shortest >= ROW_SECONDS),
        line(
            "row stage / (ceil(R/N) * row)",
            "at most",
            STAGE_FACTOR,
            stage / best,
            stage / best <= STAGE_FACTOR,
        ),
        line("polling, % of a core", "below", POLLING_PERCENT, polling, polling < POLLING_PERCENT),
        line("rows lost", "exactly", 0.0, lost as f64, lost == 0),
    ];
    results.into_iter().all(|met| met)
}

fn line(what: &str, how: &str, target: f64, measured: f64, met: bool) -> bool {
    let word = if met { "met" } else { "MISSED" };
    println!("{what:<32} target {how} {target:<6} measured {measured:<8.3} {word}");
    met
}

/// Processor time of the driver and of the commands it ran, while two jobs run and nothing else is to be done.
fn polling_percent(driver: u32) -> f64 {
    let (start, before) = (Instant::now(), cpu_seconds(driver));
    std::thread::sleep(Duration::from_secs(20));
    100.0 * (cpu_seconds(driver) - before) / start.elapsed().as_secs_f64()
}

/// `utime`, `stime` and those of the children that were waited for, from `/proc/PID/stat` in ticks of 10 ms.
fn cpu_seconds(pid: u32) -> f64 {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).expect("it runs");
    let fields = text.rsplit_once(')').expect("a name").1;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().expect("a number")).sum();
    ticks as f64 / 100.0
}

/// How long each row had its node, from the first to the last record of the attempt that counts.
fn row_seconds(scene: &Scene) -> Vec<f64> {
    let valid = scene.payloads("row.attempt").into_iter().filter(|one| one["valid"] == true);
    valid
        .map(|one| {
            let journal = fs::read_to_string(scene.out().join(one["journal"].as_str().expect("a path")));
            let times: Vec<u64> = journal
                .expect("a journal")
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
                .map(|record| record["time_unix_ms"].as_u64().expect("a time"))
                .collect();
            seconds(times.first().copied(), times.last().copied())
        })
        .collect()
}

/// From the first submission until the last row was taken over.
fn stage_seconds(journal: &[Record]) -> f64 {
    let time = |record: &Record| record.time_unix_ms;
    let first = journal.iter().find(|record| record.kind == "slurm.submitted").map(time);
    seconds(first, journal.iter().rfind(|record| record.kind == "row.attempt").map(time))
}

fn seconds(from: Option<u64>, to: Option<u64>) -> f64 {
    (to.expect("an end") - from.expect("a beginning")) as f64 / 1000.0
}
