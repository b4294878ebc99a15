//! `cargo xtask dynamo demonstrate`: campaigns against revisions that lie in known ways, and what must be said of each.
//!
//! `testdata/plants/demonstrations.toml` has one table per demonstration: the plants it needs, its campaign files, the exit
//! codes that are right, and lines that must be said. Nothing here decides anything: the command `parity` does, and this
//! compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::plant::{Plants, only, read, text, texts};
use super::repository::Repository;
use super::{Request, assemble};
use crate::process::{Stop, cargo, root};

mod series;

use series::Series;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Demonstrate {
    names: Vec<String>,
    repository: PathBuf,
    trace: Option<PathBuf>,
    out: PathBuf,
    seed: Option<PathBuf>,
    parity: Option<PathBuf>,
}

/// One demonstration.
#[derive(Debug)]
struct Demonstration {
    name: String,
    what: String,
    versions: Vec<String>,
    plants: Vec<String>,
    runs: Vec<Run>,
}

/// One campaign of a demonstration, run once or more often.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// File name without `.toml`, in `testdata/campaigns`.
    campaign: String,
    /// Exit codes that are right.
    exit: Vec<i32>,
    /// What the report, or the message where there is none, must say.
    says: Vec<String>,
    /// What it must not say.
    never: Vec<String>,
    /// How often it is run.
    times: usize,
    /// Of these, how many may end inconclusive.
    inconclusive_at_most: usize,
    /// And in how many a diagnostic may be breached.
    breached_at_most: usize,
}

/// How one run ended.
struct Ended {
    name: String,
    exit: Option<i32>,
    seconds: u64,
    missed: Vec<String>,
    measured: Vec<Measured>,
}

impl Ended {
    /// Whether it was ended from outside, so that nothing else is to be started either. Codes from 128 are those of signals.
    fn by_signal(&self) -> bool {
        self.exit.is_none_or(|code| code >= 128)
    }
}

/// A row that was measured, as its report has it.
#[derive(Debug, PartialEq)]
struct Measured {
    row: String,
    verdict: String,
    /// The median ratio, the lower bound, and the upper bound.
    ratios: [f64; 3],
    /// How often equal revisions would pass with this noise.
    equal_pass_probability: f64,
    /// Whether a diagnostic was breached.
    is_breached: bool,
}

impl Demonstrate {
    /// Reads the arguments after `demonstrate`; `None` when help was asked for.
    pub(super) fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut names = Vec::new();
        let [mut repository, mut trace, mut out, mut seed, mut parity] = [None, None, None, None, None];
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let place = match arg.as_str() {
                "--help" | "-h" => return Ok(None),
                "--repo" => &mut repository,
                "--trace" => &mut trace,
                "--out" => &mut out,
                "--seed" => &mut seed,
                "--parity" => &mut parity,
                option if option.starts_with('-') => bail!("no such option {option}"),
                name => {
                    names.push(name.to_owned());
                    continue;
                }
            };
            *place = Some(PathBuf::from(args.next().with_context(|| format!("{arg} needs a path"))?));
        }
        ensure!(!names.is_empty(), "no demonstration is named; `all` is every one");
        let repository = repository.context("--repo DIR is missing")?;
        let out = out.context("--out DIR is missing")?;
        Ok(Some(Demonstrate { names, repository, trace, out, seed, parity }))
    }

    /// Runs what was asked for; gives whether everything was as it must be.
    pub(super) fn run(&self) -> Result<bool> {
        let chosen = choose(load()?, &self.names)?;
        let plants = Plants::load()?;
        self.prepare(&chosen, &plants)?;
        let parity = self.parity.clone().map_or_else(build_parity, Ok)?;
        fs::create_dir_all(&self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        let (mut ended, mut series) = (Vec::new(), Vec::new());
        'all: for demonstration in &chosen {
            for run in &demonstration.runs {
                let mut all = self.run_all(&parity, demonstration, run)?;
                if run.times > 1 {
                    let of_run = Series::of(&all);
                    let missed = of_run.missed(run.inconclusive_at_most, run.breached_at_most);
                    all.last_mut().into_iter().for_each(|last| last.missed.extend(missed.clone()));
                    series.push(format!("{}: {of_run}", run.campaign));
                }
                ended.extend(all);
                if ended.last().is_some_and(Ended::by_signal) {
                    break 'all;
                }
            }
        }
        print!("{}{}", table(&ended), measured_table(&ended));
        series.iter().for_each(|series| println!("\n{series}"));
        Ok(ended.iter().all(|end| end.missed.is_empty()))
    }

    /// Assembles the versions and plants the plants that the repository lacks.
    fn prepare(&self, chosen: &[Demonstration], plants: &Plants) -> Result<()> {
        let mut versions: Vec<String> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for demonstration in chosen {
            versions.extend(demonstration.versions.iter().cloned());
            for plant in &demonstration.plants {
                versions.push(plants.version(plant)?.to_owned());
            }
            names.extend(demonstration.plants.iter().cloned());
        }
        versions.sort();
        versions.dedup();
        let lacks =
            |repository: &Repository| versions.iter().any(|version| repository.commit_of(version).is_err());
        if Repository::open(&self.repository)?.as_ref().is_none_or(lacks) {
            assemble(&Request { out: self.repository.clone(), versions })?;
        }
        let repository = Repository::open(&self.repository)?.context("the repository was not made")?;
        plants.plant(&repository, &names).map(drop)
    }

    fn run_all(&self, parity: &Path, demonstration: &Demonstration, run: &Run) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for number in 1..=run.times {
            let file = run.campaign.rsplit('/').next().unwrap_or(&run.campaign);
            let name = if run.times == 1 { file.to_owned() } else { format!("{file}-{number}") };
            eprintln!("demonstration {}: {name}: {}", demonstration.name, demonstration.what);
            let end = self.run_one(parity, run, name)?;
            let stops = end.by_signal();
            ended.push(end);
            if stops {
                break;
            }
        }
        Ok(ended)
    }

    fn run_one(&self, parity: &Path, run: &Run, name: String) -> Result<Ended> {
        let evidence = self.out.join(&name);
        let mut command = self.command(parity, &run.campaign, &evidence)?;
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output().context("cannot start parity")?;
        let seconds = start.elapsed().as_secs();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let said = said.join("\n");
        let file = self.out.join(format!("{name}.txt"));
        fs::write(&file, &said).with_context(|| format!("cannot write {}", file.display()))?;
        let exit = output.status.code();
        let measured = measured(&evidence.join("report.json"))?;
        Ok(Ended { name, exit, seconds, missed: run.missed(exit, &said), measured })
    }

    fn command(&self, parity: &Path, campaign: &str, evidence: &Path) -> Result<Command> {
        let mut command = Command::new(parity);
        let file = root().join(format!("testdata/campaigns/{campaign}.toml"));
        let takes_a_trace = takes_a_trace(&file)?;
        command.arg("run").arg("--campaign").arg(file).arg("--repo").arg(&self.repository);
        command.arg("--out").arg(evidence).arg("--artifacts").arg(self.out.join("artifacts"));
        if let Some(trace) = self.trace.as_ref().filter(|_| takes_a_trace) {
            command.arg("--trace").arg(trace);
        }
        if let Some(seed) = &self.seed {
            command.arg("--seed").arg(seed);
        }
        Ok(command)
    }
}

/// Whether a campaign's trace comes from outside; that of a preflight lies in the repository.
fn takes_a_trace(campaign: &Path) -> Result<bool> {
    let name = || campaign.display().to_string();
    let text = fs::read_to_string(campaign).with_context(name)?;
    let file: toml::Table = text.parse().with_context(name)?;
    let trace = file.get("trace").and_then(toml::Value::as_table).with_context(name)?;
    Ok(!trace.contains_key("repository_file"))
}

/// The measured rows of a report; none where there is no report.
fn measured(report: &Path) -> Result<Vec<Measured>> {
    if !report.exists() {
        return Ok(Vec::new());
    }
    let name = || report.display().to_string();
    let bytes = fs::read(report).with_context(name)?;
    rows_of(&serde_json::from_slice(&bytes).with_context(name)?).with_context(name)
}

fn rows_of(report: &serde_json::Value) -> Result<Vec<Measured>> {
    let rows = report["measurements"].as_array().context("`measurements` is missing")?;
    let tests = |row: &serde_json::Value| {
        let tests = row.pointer("/judgement/diagnostics/tests").and_then(serde_json::Value::as_array);
        tests.cloned().context("`/judgement/diagnostics/tests`")
    };
    let read = |row: &serde_json::Value| {
        let text = |key: &str| row[key].as_str().map(str::to_owned).with_context(|| format!("`{key}`"));
        let number = |pointer: &str| {
            row.pointer(pointer).and_then(serde_json::Value::as_f64).with_context(|| format!("`{pointer}`"))
        };
        Ok(Measured {
            row: text("row")?,
            verdict: text("verdict")?,
            ratios: [number("/ratio/median")?, number("/ratio/lower")?, number("/ratio/upper")?],
            equal_pass_probability: number("/judgement/for_readers/equal_pass_probability")?,
            is_breached: tests(row)?.iter().any(|test| test["outcome"] == "breached"),
        })
    };
    rows.iter().filter(|row| !row["judgement"].is_null()).map(read).collect()
}

/// The exit code of an inconclusive campaign.
const INCONCLUSIVE: i32 = 3;

impl Run {
    fn read(table: &toml::Table) -> Result<Self> {
        only(
            table,
            &["campaign", "exit", "says", "never", "times", "inconclusive_at_most", "breached_at_most"],
        )?;
        let number = |key: &str, default: usize| match table.get(key) {
            None => Ok(default),
            Some(value) => usize::try_from(value.as_integer().unwrap_or(-1))
                .with_context(|| format!("`{key}` is not a count")),
        };
        let exit = table.get("exit").and_then(toml::Value::as_array).context("`exit` is not a list")?;
        let code = |value: &toml::Value| value.as_integer().and_then(|code| i32::try_from(code).ok());
        Ok(Run {
            campaign: text(table, "campaign")?,
            exit: exit.iter().map(code).collect::<Option<_>>().context("`exit` is not a list of codes")?,
            says: texts(table, "says")?,
            never: texts(table, "never")?,
            times: number("times", 1)?,
            inconclusive_at_most: number("inconclusive_at_most", 0)?,
            breached_at_most: number("breached_at_most", 0)?,
        })
    }

    /// What is not as it must be.
    fn missed(&self, exit: Option<i32>, said: &str) -> Vec<String> {
        let is_right = exit.is_some_and(|exit| self.exit.contains(&exit));
        let wrong_exit = (!is_right).then(|| format!("exit code, expected one of {:?}", self.exit));
        let unsaid =
            self.says.iter().filter(|line| !said.contains(*line)).map(|line| format!("unsaid: {line}"));
        let never = self.never.iter().filter(|line| said.contains(*line)).map(|line| format!("said: {line}"));
        wrong_exit.into_iter().chain(unsaid).chain(never).collect()
    }
}

fn load() -> Result<Vec<Demonstration>> {
    let file = read("demonstrations.toml")?;
    only(&file, &["demonstration"])?;
    let tables =
        file.get("demonstration").and_then(toml::Value::as_array).context("`demonstration` is missing")?;
    let read = |value: &toml::Value| {
        let table = value.as_table().context("a demonstration is not a table")?;
        only(table, &["name", "what", "versions", "plants", "run"])?;
        let name = text(table, "name")?;
        let runs = table.get("run").and_then(toml::Value::as_array).context("`run` is missing")?;
        let run = |value: &toml::Value| Run::read(value.as_table().context("a run is not a table")?);
        let runs =
            runs.iter().map(run).collect::<Result<_>>().with_context(|| format!("demonstration {name}"))?;
        let (what, versions) = (text(table, "what")?, texts(table, "versions")?);
        Ok(Demonstration { name, what, versions, plants: texts(table, "plants")?, runs })
    };
    tables.iter().map(read).collect()
}

fn choose(all: Vec<Demonstration>, names: &[String]) -> Result<Vec<Demonstration>> {
    if names.iter().any(|name| name == "all") {
        return Ok(all);
    }
    let known: Vec<&str> = all.iter().map(|demonstration| demonstration.name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let message = format!("there is no demonstration {name:?}, only {} and all", known.join(", "));
        return Err(Stop::usage(message));
    }
    Ok(all.into_iter().filter(|demonstration| names.contains(&demonstration.name)).collect())
}

/// The command, built from this tree.
fn build_parity() -> Result<PathBuf> {
    crate::process::step(cargo().args(["build", "--quiet", "--release", "--locked", "--package", "parity"]))?;
    Ok(crate::parity::program())
}

/// One line per run.
fn table(ended: &[Ended]) -> String {
    let mut out = String::from("| campaign | exit | wall s | |\n|---|---|---|---|\n");
    for Ended { name, exit, seconds, missed, .. } in ended {
        let exit = exit.map_or_else(|| "signal".to_owned(), |exit| exit.to_string());
        let verdict = if missed.is_empty() {
            "as expected".to_owned()
        } else {
            format!("MISSED {}", missed.join("; "))
        };
        out += &format!("| {name} | {exit} | {seconds} | {verdict} |\n");
    }
    out
}

/// One line per measured row.
fn measured_table(ended: &[Ended]) -> String {
    if ended.iter().all(|end| end.measured.is_empty()) {
        return String::new();
    }
    let mut out = String::from(
        "\n| campaign | row | | ratio | lower | upper | equal revisions pass |\n|---|---|---|---|---|---|---|\n",
    );
    for end in ended {
        for Measured { row, verdict, ratios: [median, lower, upper], equal_pass_probability, .. } in
            &end.measured
        {
            let equal = equal_pass_probability * 100.0;
            let name = &end.name;
            out += &format!(
                "| {name} | {row} | {verdict} | {median:.5} | {lower:.5} | {upper:.5} | {equal:.0} % |\n"
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demonstration_of_the_tree_names_plants_and_campaigns_that_are_there() {
        let (plants, all) = (Plants::load().unwrap(), load().unwrap());
        for demonstration in &all {
            for plant in &demonstration.plants {
                plants.version(plant).unwrap();
            }
            for run in &demonstration.runs {
                let file = root().join(format!("testdata/campaigns/{}.toml", run.campaign));
                assert!(file.is_file(), "{}", file.display());
                // A preflight brings its own, inside of the repository.
                let is_whole = !run.campaign.ends_with("-preflight");
                assert_eq!(takes_a_trace(&file).unwrap(), is_whole, "{}", run.campaign);
                assert!(
                    !run.exit.is_empty() && !run.says.is_empty(),
                    "{}: it asks for nothing",
                    run.campaign
                );
            }
        }
        let fixture = root().join("testdata/campaigns/dynamo-1.5.0-1.5.1-preflight.toml");
        assert!(!takes_a_trace(&fixture).unwrap());
        let unknown = choose(all, &["absent".to_owned()]).unwrap_err();
        assert_eq!(Stop::code_of(&unknown), 2);
    }

    #[test]
    fn what_is_not_as_it_must_be_is_named() {
        let text = "campaign = \"c\"\nexit = [1, 7]\nsays = [\"FAIL\", \"pointer\"]\nnever = [\"PASS\"]";
        let run = Run::read(&text.parse().unwrap()).unwrap();
        assert_eq!(run.missed(Some(7), "FAIL at a pointer"), [""; 0]);
        assert_eq!(
            run.missed(Some(0), "PASS"),
            ["exit code, expected one of [1, 7]", "unsaid: FAIL", "unsaid: pointer", "said: PASS"]
        );
        assert_eq!(run.missed(None, "FAIL pointer"), ["exit code, expected one of [1, 7]"]);
        for (text, says) in [
            ("exit = [0]", "`campaign` is missing"),
            ("campaign = \"c\"\nexit = 0", "`exit` is not a list"),
            ("campaign = \"c\"\nexit = [0]\ntimes = -2", "`times` is not a count"),
            ("campaign = \"c\"\nexit = [0]\nsay = []", "`say` is not a key"),
        ] {
            let error = format!("{:#}", Run::read(&text.parse().unwrap()).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn measured_rows_are_read_from_a_report() {
        let report = serde_json::json!({ "measurements": [
            { "row": "none", "verdict": "not-measured", "ratio": null, "judgement": null },
            { "row": "one", "verdict": "inconclusive", "ratio": { "median": 1.0, "lower": 0.9, "upper": 1.1 },
              "judgement": {
                  "for_readers": { "equal_pass_probability": 0.25 },
                  "diagnostics": { "tests": [{ "outcome": "held" }, { "outcome": "breached" }] },
              } },
        ] });
        let rows = rows_of(&report).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((&*rows[0].row, rows[0].ratios, rows[0].is_breached), ("one", [1.0, 0.9, 1.1], true));
        for (judgement, says) in [
            (serde_json::json!({}), "`/ratio/median`"),
            (serde_json::json!({ "for_readers": { "equal_pass_probability": 0.2 } }), "tests`"),
        ] {
            let mut report = report.clone();
            report["measurements"][1]["judgement"] = judgement;
            if says.contains("ratio") {
                report["measurements"][1]["ratio"] = serde_json::Value::Null;
            }
            assert!(format!("{:#}", rows_of(&report).unwrap_err()).contains(says));
        }
        let end =
            Ended { name: "c-1".to_owned(), exit: Some(3), seconds: 1, missed: Vec::new(), measured: rows };
        let by_signal = |exit| {
            Ended { exit, measured: Vec::new(), missed: Vec::new(), name: String::new(), seconds: 0 }
                .by_signal()
        };
        assert!([None, Some(130), Some(143)].into_iter().all(by_signal));
        assert!(![Some(0), Some(3), Some(70)].into_iter().any(by_signal));
        let table = measured_table(&[end]);
        let row = "| c-1 | one | inconclusive | 1.00000 | 0.90000 | 1.10000 | 25 % |";
        assert_eq!(table.lines().nth(3), Some(row));
        assert_eq!(measured_table(&[]), "");
    }

    #[test]
    fn arguments_are_read_or_named() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let asked = Demonstrate::parse(&words("one two --repo r --out o --trace t")).unwrap().unwrap();
        assert_eq!((asked.names, asked.trace), (words("one two"), Some(PathBuf::from("t"))));
        for (text, says) in [
            ("--repo r --out o", "no demonstration is named"),
            ("all --out o", "--repo DIR is missing"),
            ("all --repo r", "--out DIR is missing"),
            ("all --repo", "--repo needs a path"),
            ("all --keep", "no such option --keep"),
        ] {
            let error = format!("{:#}", Demonstrate::parse(&words(text)).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
