//! Times that were taken before, from files of several forms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use paired_stats::{Arm, Pair, PairedSample, Series};
use serde::Deserialize;
use serde_json::Value;

use crate::strict;

/// Reads one JSONL or CSV file, or two hyperfine files.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<PairedSample> {
    match files {
        [one] => {
            let text = strict::text(one)?;
            let rows = if text.trim_start().starts_with('{') { from_jsonl(&text) } else { from_csv(&text) };
            rows.and_then(sample).with_context(|| format!("read the pairs of {}", one.display()))
        }
        [baseline, candidate] => from_hyperfine(baseline, candidate),
        _ => bail!("read {} files, not one or two", files.len()),
    }
}

/// One pair as it stands in a file.
#[derive(Debug, Deserialize)]
struct Row {
    pair: u32,
    #[serde(default)]
    first: Option<Arm>,
    baseline: f64,
    candidate: f64,
    #[serde(default)]
    elapsed_s: Option<f64>,
    /// Every other column: telemetry.
    #[serde(flatten)]
    telemetry: BTreeMap<String, f64>,
}

fn from_jsonl(text: &str) -> anyhow::Result<Vec<Row>> {
    // An export of hyperfine is one document over many lines.
    if strict::json(text.as_bytes()).is_ok_and(|whole| whole.get("results").is_some()) {
        bail!("use one hyperfine file: two are needed, the baseline's and then the candidate's");
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(index, line): (usize, &str)| {
        let row = strict::json(line.as_bytes()).and_then(|value| Ok(serde_json::from_value(value)?));
        row.with_context(|| format!("understand line {}", index + 1))
    };
    lines.map(row).collect()
}

fn from_csv(text: &str) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers = reader.headers().context("understand the header")?.clone();
    for name in ["pair", "baseline", "candidate"] {
        if !headers.iter().any(|header| header == name) {
            bail!("find the column {name:?} in the header {:?}", headers.iter().collect::<Vec<_>>());
        }
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = headers.iter().find(|name| !names.insert(*name)) {
        bail!("tell apart two columns named {twice:?}");
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.context("understand a line")?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push(csv_row(&headers, &record).with_context(|| format!("understand line {line}"))?);
    }
    Ok(rows)
}

fn csv_row(headers: &csv::StringRecord, record: &csv::StringRecord) -> anyhow::Result<Row> {
    let mut fields: BTreeMap<&str, &str> = headers.iter().zip(record).collect();
    let mut number = |name: &str| {
        let text = fields.remove(name).unwrap_or_default();
        text.parse::<f64>().with_context(|| format!("read {text:?} as the number {name}"))
    };
    let (baseline, candidate) = (number("baseline")?, number("candidate")?);
    let elapsed_s =
        if headers.iter().any(|name| name == "elapsed_s") { Some(number("elapsed_s")?) } else { None };
    let pair = fields.remove("pair").unwrap_or_default();
    let pair = pair.parse().with_context(|| format!("read {pair:?} as the number of a pair"))?;
    let first = match fields.remove("first") {
        None | Some("") => None,
        Some("baseline") => Some(Arm::Baseline),
        Some("candidate") => Some(Arm::Candidate),
        Some(other) => bail!("read {other:?} as baseline or candidate"),
    };
    let reading = |(name, text): (&str, &str)| {
        let value = text.parse().with_context(|| format!("read {text:?} as the number {name}"))?;
        Ok((name.to_owned(), value))
    };
    let telemetry = fields.into_iter().map(reading).collect::<anyhow::Result<_>>()?;
    Ok(Row { pair, first, baseline, candidate, elapsed_s, telemetry })
}

fn sample(mut rows: Vec<Row>) -> anyhow::Result<PairedSample> {
    if rows.is_empty() {
        bail!("judge a file without pairs");
    }
    rows.sort_by_key(|row| row.pair);
    // Whoever leaves out the pairs that look bad leaves a gap.
    if let Some(gap) = rows.windows(2).find(|two| two[1].pair > two[0].pair.saturating_add(1)) {
        bail!("find pair {}: no pair may be left out", gap[0].pair.saturating_add(1));
    }
    let pair = |row: &Row| Pair {
        pair: row.pair,
        first: row.first,
        baseline: row.baseline,
        candidate: row.candidate,
    };
    let mut sample = PairedSample::new("value", rows.iter().map(pair).collect())?;
    if rows.iter().any(|row| row.elapsed_s.is_some()) {
        let elapsed =
            |row: &Row| row.elapsed_s.with_context(|| format!("find elapsed_s of pair {}", row.pair));
        sample = sample.with_elapsed_s(rows.iter().map(elapsed).collect::<anyhow::Result<_>>()?)?;
    }
    let names: Vec<String> = rows[0].telemetry.keys().cloned().collect();
    for name in names {
        let value = |row: &Row| {
            let found = row.telemetry.get(&name).copied();
            found.with_context(|| format!("find {name} of pair {}", row.pair))
        };
        let values = rows.iter().map(value).collect::<anyhow::Result<_>>()?;
        sample = sample.with_telemetry(Series { name: name.clone(), values })?;
    }
    let extra = |row: &Row| row.telemetry.keys().find(|name| sample.series(name).is_none()).cloned();
    if let Some(name) = rows.iter().find_map(extra) {
        bail!("find {name} of pair {}", rows[0].pair);
    }
    Ok(sample)
}

/// What is needed of a hyperfine export.
#[derive(Deserialize)]
struct Hyperfine {
    results: Vec<HyperfineResult>,
}

#[derive(Deserialize)]
struct HyperfineResult {
    times: Vec<f64>,
    /// The status of each run; null for one that a signal ended. Older versions do not write it.
    #[serde(default)]
    exit_codes: Vec<Option<i32>>,
}

impl HyperfineResult {
    /// hyperfine goes on after a failure when it is told to, and the time of a failed run is not a time.
    fn check(&self) -> anyhow::Result<()> {
        if !self.exit_codes.is_empty() && self.exit_codes.len() != self.times.len() {
            bail!("match {} exit codes with {} times", self.exit_codes.len(), self.times.len());
        }
        match self.exit_codes.iter().enumerate().find(|(_, code)| **code != Some(0)) {
            None => Ok(()),
            Some((run, Some(code))) => bail!("use run {run}, which exited with status {code}"),
            Some((run, None)) => bail!("use run {run}, which a signal ended"),
        }
    }
}

/// hyperfine runs all of one command before the other, so the pairs are pairs by number only and the order of
/// the arms in them is not known.
fn from_hyperfine(baseline: &Path, candidate: &Path) -> anyhow::Result<PairedSample> {
    let (b, c) = (hyperfine_times(baseline)?, hyperfine_times(candidate)?);
    if b.len() != c.len() {
        bail!("pair {} times of the baseline with {} of the candidate", b.len(), c.len());
    }
    let pair = |(index, (&baseline, &candidate)): (usize, (&f64, &f64))| -> anyhow::Result<Pair> {
        Ok(Pair { pair: u32::try_from(index)?, first: None, baseline, candidate })
    };
    let pairs = b.iter().zip(&c).enumerate().map(pair).collect::<anyhow::Result<_>>()?;
    Ok(PairedSample::new("time_s", pairs)?)
}

fn hyperfine_times(path: &Path) -> anyhow::Result<Vec<f64>> {
    let read = || -> anyhow::Result<Vec<f64>> {
        let document: Value = strict::json(strict::text(path)?.as_bytes())?;
        let export: Hyperfine = serde_json::from_value(document)?;
        match <[HyperfineResult; 1]>::try_from(export.results) {
            Ok([result]) => result.check().map(|()| result.times),
            Err(results) => bail!("use {} results, not one", results.len()),
        }
    };
    read().with_context(|| format!("read the hyperfine file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(rows: anyhow::Result<Vec<Row>>) -> String {
        rows.and_then(sample)
            .map_or_else(|error| format!("{error:#}"), |sample| format!("{} pairs", sample.count()))
    }

    #[test]
    fn csv_and_jsonl_say_the_same() {
        let csv =
            "pair,first,baseline,candidate,elapsed_s,t_c\n1,candidate,2,3,0.5,40\n0,baseline,1,1.5,0,41\n";
        let jsonl = concat!(
            r#"{"pair":0,"first":"baseline","baseline":1,"candidate":1.5,"elapsed_s":0,"t_c":41}"#,
            "\n\n",
            r#"{"pair":1,"first":"candidate","baseline":2,"candidate":3,"elapsed_s":0.5,"t_c":40}"#,
        );
        let (csv, jsonl) =
            (from_csv(csv).and_then(sample).unwrap(), from_jsonl(jsonl).and_then(sample).unwrap());
        assert_eq!(csv, jsonl);
        assert_eq!(csv.series("t_c").unwrap().values, [41.0, 40.0]);
    }

    #[test]
    fn exports_of_hyperfine_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export.json");
        let check = |text: &str, expected: &str| {
            std::fs::write(&path, text).unwrap();
            let read = hyperfine_times(&path);
            let said = read.map_or_else(|error| format!("{error:#}"), |times| format!("{times:?}"));
            assert_eq!(said.rsplit("export.json: ").next().unwrap(), expected, "{text}");
        };
        check(r#"{"results":[{"command":"a","times":[1.5,2]}]}"#, "[1.5, 2.0]");
        check(r#"{"results":[{"times":[1,2],"exit_codes":[0,0],"memory_usage_byte":[1,2]}]}"#, "[1.0, 2.0]");
        check(r#"{"results":[{"times":[1,2],"exit_codes":[0,3]}]}"#, "use run 1, which exited with status 3");
        check(r#"{"results":[{"times":[1,2],"exit_codes":[null,0]}]}"#, "use run 0, which a signal ended");
        check(r#"{"results":[{"times":[1,2],"exit_codes":[0]}]}"#, "match 1 exit codes with 2 times");
        check(r#"{"results":[]}"#, "use 0 results, not one");
        check(r#"{"results":[{"times":[1]},{"times":[2]}]}"#, "use 2 results, not one");
        check(r#"{"results":[{"times":["1"]}]}"#, "invalid type: string \"1\", expected f64");
        check("{}", "missing field `results`");
        check("", "EOF while parsing a value at line 1 column 0");
    }

    #[test]
    fn a_mark_before_the_text_is_no_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let check = |text: &str| {
            let path = dir.path().join("pairs");
            std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
            assert_eq!(read(&[path]).unwrap().count(), 1);
        };
        check("pair,baseline,candidate\r\n0,1,1\r\n");
        check(r#"{"pair":0,"baseline":1,"candidate":1}"#);
    }

    #[test]
    fn malformed_files_say_where() {
        let csv = |text: &str, expected: &str| assert_eq!(message(from_csv(text)), expected, "{text}");
        csv("pair,baseline\n", r#"find the column "candidate" in the header ["pair", "baseline"]"#);
        csv("pair,baseline,candidate\n", "judge a file without pairs");
        csv(
            "pair,baseline,candidate\n0,1,x\n",
            r#"understand line 2: read "x" as the number candidate: invalid float literal"#,
        );
        csv("pair,baseline,candidate\n0,1,1\n0,1,1\n", "join pair 0, which occurs more than once");
        csv(
            "pair,baseline,candidate\n0,1,0\n",
            "divide in pair 0: the candidate is 0, not a positive finite number",
        );
        csv(
            "pair,baseline,candidate\n0,1,NaN\n",
            "divide in pair 0: the candidate is NaN, not a positive finite number",
        );
        csv(
            "pair,first,baseline,candidate\n0,both,1,1\n",
            r#"understand line 2: read "both" as baseline or candidate"#,
        );
        let jsonl = |text: &str, expected: &str| assert_eq!(message(from_jsonl(text)), expected, "{text}");
        jsonl(r#"{"pair":0,"baseline":1}"#, "understand line 1: missing field `candidate`");
        jsonl(
            r#"{"pair":0,"baseline":1,"candidate":1,"candidate":2}"#,
            "understand line 1: the key \"candidate\" occurs twice at line 1 column 51",
        );
        jsonl(
            "{\n \"results\": []\n}",
            "use one hyperfine file: two are needed, the baseline's and then the candidate's",
        );
        csv("pair,baseline,candidate,candidate\n0,1,1,2\n", r#"tell apart two columns named "candidate""#);
        csv("pair,baseline,candidate\n0,1,1\n2,1,1\n", "find pair 1: no pair may be left out");
        csv(
            "pair,baseline,candidate\n-1,1,1\n",
            "understand line 2: read \"-1\" as the number of a pair: invalid digit found in string",
        );
        csv(
            "pair,baseline,candidate\n0,1,1e999\n",
            "divide in pair 0: the candidate is inf, not a positive finite number",
        );
        csv(
            "pair,baseline,candidate,t_c\n0,1,1,\n",
            "understand line 2: read \"\" as the number t_c: cannot parse float from empty string",
        );
        csv(
            "pair,baseline,candidate,t_c\n0,1,1,nan\n",
            "attach the series \"t_c\": its reading for pair 0 is NaN",
        );
        csv("pair,first,first,baseline,candidate\n", r#"tell apart two columns named "first""#);
        let one = r#"{"pair":0,"baseline":1,"candidate":1}"#;
        let warm = r#"{"pair":1,"baseline":1,"candidate":1,"t_c":4}"#;
        jsonl(&format!("{one}\n{warm}"), "find t_c of pair 0");
        jsonl(
            &format!("{}\n{one}", warm.replace("\"t_c\":4", "\"elapsed_s\":4")),
            "find elapsed_s of pair 0",
        );
    }
}
