//! What a campaign costs beyond the samples it takes: the measuring stage, a resume, and verifying its evidence. Two full
//! campaigns, four rows of sixty pairs each; the second one is killed in its last row and resumed.
//!
//! ```text
//! cargo xtask bench campaign [--check] [--evidence DIR]
//! ```
//!
//! The harness is a stand-in that sleeps, so that a sample takes as long on any machine. `--evidence` also verifies a sealed
//! bundle from elsewhere.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use parity_campaign::{Stage, recompute};
use serde_json::Value;
use testkit::{StandIn, edit_pointer, reports};

#[path = "../tests/scene/mod.rs"]
#[expect(dead_code, reason = "shared with the tests, which use the rest")]
mod scene;

use scene::{HARMLESS, Scene, parity};

/// Most that the measuring stage may take, as a multiple of the samples in it.
const MEASURING_RATIO: f64 = 1.03;

/// Most that verifying the evidence of a full campaign may take.
const VERIFY_S: f64 = 5.0;

/// Most that a resume may take beyond the samples it still has to take.
const RESUME_S: f64 = 2.0;

/// A sample takes 0.3 s here. A replay of 5,000 requests takes several seconds.
const SAMPLE: &str = "on-timing sleep 300";

const ROWS: usize = 4;
const PAIRS: usize = 60;
const WARMUPS_PER_ARM: usize = 5;

/// In the middle of the last row.
const ATTEMPTS_BEFORE_THE_KILL: usize = (ROWS - 1) * 2 * (PAIRS + WARMUPS_PER_ARM) + PAIRS;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // cargo passes --bench to every bench target.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match run(&arguments) {
        Ok(met) if met || !arguments.iter().any(|argument| argument == "--check") => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("campaign: {error}");
            ExitCode::from(70)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool> {
    let scene = full_campaign()?;
    play(&scene)?;
    let mut met = measuring(&scene)?;
    met &= verify("verify a full campaign, s", &scene.out())?;
    met &= resuming()?;
    if let Some(at) = arguments.iter().position(|argument| argument == "--evidence") {
        let dir = arguments.get(at + 1).ok_or("--evidence takes a folder")?;
        met &= verify("verify the given evidence, s", Path::new(dir))?;
    }
    Ok(met)
}

fn line(what: &str, target: f64, measured: f64) -> bool {
    let met = measured <= target;
    let word = if met { "met" } else { "MISSED" };
    println!("{what:<40} target at most {target:<6} measured {measured:<8.3} {word}");
    met
}

/// Two harnesses that take their time over a sample. One row differs, so that its full reports are evidence too.
fn full_campaign() -> Result<Scene> {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let candidate = StandIn::new(&format!("{HARMLESS}\n{SAMPLE}")).with_report("vllm-aggregated", &changed);
    let scene = Scene::of(&StandIn::new(SAMPLE), &candidate, "[measure]\nmeasure_differing_rows = true");
    let path = scene.folder.path().join("campaign.toml");
    let text = fs::read_to_string(&path)?.replace("pairs = 6", &format!("pairs = {PAIRS}"));
    let text = text.replace("warmups_per_arm = 1", &format!("warmups_per_arm = {WARMUPS_PER_ARM}"));
    fs::write(path, text)?;
    Ok(scene)
}

/// Plays a campaign to its end.
fn play(scene: &Scene) -> Result<()> {
    ended(&scene.command().args(["--profile", "never"]).output()?)
}

/// The differing row makes it a fail, whatever the gate says.
fn ended(output: &std::process::Output) -> Result<()> {
    match output.status.code() {
        Some(1) => Ok(()),
        _ => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Wall time in seconds of every attempt in a bundle, in order.
fn samples_s(scene: &Scene) -> Result<Vec<f64>> {
    let journal = evidence::read_journal(&scene.out())?;
    let measured = journal.records.iter().filter(|record| record.kind.starts_with("measure."));
    let events =
        measured.map(evidence::Record::payload::<Value>).collect::<std::result::Result<Vec<_>, _>>()?;
    let ended = events.iter().filter(|event| event["event"] == "attempt_ended");
    let wall =
        |event: &Value| event["execution"]["usage"]["wall_ns"].as_f64().ok_or("a sample without a time");
    Ok(ended
        .map(wall)
        .map(|wall_ns| wall_ns.map(|wall_ns| wall_ns / 1e9))
        .collect::<std::result::Result<_, _>>()?)
}

fn measuring(scene: &Scene) -> Result<bool> {
    let samples = samples_s(scene)?;
    let expected = ROWS * 2 * (PAIRS + WARMUPS_PER_ARM);
    if samples.len() < expected {
        return Err(format!("{} samples of {expected}", samples.len()).into());
    }
    let report = parity_campaign::read_report(&scene.out())?;
    let stage =
        report.stages.iter().find(|time| time.stage == Stage::Measure).ok_or("nothing was measured")?;
    let ratio = Duration::from_millis(stage.wall_ms).as_secs_f64() / samples.iter().sum::<f64>();
    Ok(line("measuring stage / sum of its samples", MEASURING_RATIO, ratio))
}

/// Kills a campaign while it measures, and sees what the resume takes beyond the samples that are still to be taken.
fn resuming() -> Result<bool> {
    let scene = full_campaign()?;
    let mut child = start(&scene)?;
    let begun = Instant::now();
    while attempts(&scene) < ATTEMPTS_BEFORE_THE_KILL {
        if child.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(3_600) {
            return Err("the campaign did not come to its last row".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    let before = samples_s(&scene)?.len();
    let start = Instant::now();
    let mut resume = parity();
    let output =
        resume.args(["resume", "--profile", "never"]).args(scene.places()).arg(scene.out()).output()?;
    let wall_s = start.elapsed().as_secs_f64();
    ended(&output)?;
    let samples: f64 = samples_s(&scene)?.iter().skip(before).sum();
    Ok(line("resume beyond its samples, s", RESUME_S, wall_s - samples))
}

/// Attempts that ended, by the journal.
fn attempts(scene: &Scene) -> usize {
    let text = fs::read_to_string(scene.out().join("journal.jsonl")).unwrap_or_default();
    text.matches("\"event\":\"attempt_ended\"").count()
}

fn start(scene: &Scene) -> Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "the bench starts the command and kills it")]
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_parity"));
    command.arg("run").arg("--out").arg(scene.out()).args(scene.places());
    Ok(command.args(["--profile", "never"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn verify(what: &str, dir: &Path) -> Result<bool> {
    let start = Instant::now();
    let verification = evidence::verify(dir)?;
    let found = recompute(dir)?;
    let wall_s = start.elapsed().as_secs_f64();
    if !verification.is_intact() || !found.agrees() {
        return Err(format!("the evidence does not hold: {:?}", found.disagreements).into());
    }
    Ok(line(what, VERIFY_S, wall_s))
}
