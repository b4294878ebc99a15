//! What is printed. JSON is stable, one object per line; the wording for people may change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use command_line::{MessageFormat, Output};
use paired_stats::{
    Arm, Bound, Estimate, Judgement, Method, PairedSample, Schedule, Series, TestOutcome, TestResult, Verdict,
};
use serde::Serialize;

pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = Output::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    text(&(serde_json::to_string(value)? + "\n"))
}

pub(crate) fn schedule(schedule: &Schedule, format: MessageFormat) -> anyhow::Result<()> {
    match format {
        MessageFormat::Json => json(schedule),
        MessageFormat::Human => text(&schedule_text(schedule)),
    }
}

fn schedule_text(schedule: &Schedule) -> String {
    let mut lines = format!("# {}, seed {}\n", schedule.algorithm, schedule.seed);
    for arm in &schedule.warmups {
        let _infallible = writeln!(lines, "warm-up  {arm}");
    }
    for (index, first) in schedule.first.iter().enumerate() {
        let _infallible = writeln!(lines, "pair {index:>3} {first} {}", first.other());
    }
    lines
}

/// The pairs as a file that `decide` reads.
pub(crate) fn csv(sample: &PairedSample) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let elapsed = sample.elapsed_s().map(|values| ("elapsed_s", values));
    let telemetry = sample.telemetry().iter().map(|series| (series.name.as_str(), series.values.as_slice()));
    let columns: Vec<(&str, &[f64])> = elapsed.into_iter().chain(telemetry).collect();
    let names = ["pair", "first", "baseline", "candidate"].into_iter();
    writer.write_record(names.chain(columns.iter().map(|(name, _)| *name)))?;
    for (index, pair) in sample.pairs().iter().enumerate() {
        let first = pair.first.map_or("", Arm::name).to_owned();
        let row = [pair.pair.to_string(), first, pair.baseline.to_string(), pair.candidate.to_string()];
        writer.write_record(
            row.into_iter().chain(columns.iter().map(|(_, values)| values[index].to_string())),
        )?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Where the definition came from by which a judgement was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Nobody gave one: the default gate.
    Default,
    /// A file that was given. Only who gave it can say that it was fixed beforehand.
    Given,
    /// The run's own, fixed before its first warm-up.
    OfRun,
    /// A file that was given for a run that has its own and another one: this is no verdict of that run.
    NotOfRun,
}

/// A judgement as it is printed and kept.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Judged<'a> {
    /// `kvrp.paired-gate.judgement/1`.
    schema: &'static str,
    /// Where the definition came from.
    definition: Origin,
    #[serde(flatten)]
    judgement: &'a Judgement,
    /// The median of every reading that came with the pairs, such as processor time per wall time, stolen time and
    /// temperature: over both members, and candidate less baseline (`…_difference`). None of them decides.
    reading_medians: BTreeMap<&'a str, f64>,
}

impl<'a> Judged<'a> {
    pub(crate) fn new(judgement: &'a Judgement, sample: &'a PairedSample, definition: Origin) -> Self {
        let reading = |series: &'a Series| Some((series.name.as_str(), median(&series.values)?));
        let reading_medians = sample.telemetry().iter().filter_map(reading).collect();
        Self { schema: "kvrp.paired-gate.judgement/1", definition, judgement, reading_medians }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (below, above) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*below, *above))
}

pub(crate) fn judgement(
    judgement: &Judgement,
    sample: &PairedSample,
    origin: Origin,
    format: MessageFormat,
) -> anyhow::Result<()> {
    if origin == Origin::NotOfRun {
        command_line::say!(
            "paired-gate: warning: another definition than the run's own: this is no verdict of that run"
        );
    }
    let judged = Judged::new(judgement, sample, origin);
    match format {
        MessageFormat::Json => json(&judged),
        MessageFormat::Human => {
            let readings = judged.reading_medians.iter();
            let readings = readings.map(|(name, median)| format!("  {name}: median {median:.4}\n"));
            text(&(judgement_text(judgement) + &readings.collect::<String>()))
        }
    }
}

/// The page about a judgement.
pub(crate) fn judgement_text(judged: &Judgement) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        page.push_str(&text);
        page.push('\n');
    };
    let word = match &judged.verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive { .. } => "INCONCLUSIVE",
    };
    line(format!("{word}: {} (limit {})", judged.metric, judged.limit_ratio));
    if let Verdict::Inconclusive { reasons } = &judged.verdict {
        reasons.iter().for_each(|reason| line(format!("  because {reason}")));
    }
    if judged.method == Method::DependenceAware {
        line("  by the dependence-aware bounds, as predeclared".to_owned());
    }
    line(estimate_text("median ratio", &judged.order_statistics));
    line(estimate_text("allowing for dependence", &judged.dependence_aware));
    judged.diagnostics.tests.iter().for_each(|result| line(test_text(result)));
    let readers = &judged.for_readers;
    line(format!("for readers: Hodges-Lehmann {:.4}", readers.hodges_lehmann_ratio));
    if let Some(bootstrap) = &readers.bootstrap {
        let (point, lower, upper) =
            (bootstrap.geometric_mean_ratio, bootstrap.lower_ratio, bootstrap.upper_ratio);
        line(format!("  geometric mean {point:.4}, bootstrap {lower:.4} to {upper:.4}"));
    }
    if let Some(resolution) = &readers.resolution {
        let (passes, fails) = (resolution.passes_up_to_ratio, resolution.fails_above_ratio);
        line(format!("  with this noise a median up to {passes:.4} passes and one above {fails:.4} fails"));
    }
    let equal = readers.equal_pass_probability * 100.0;
    line(format!("  with this noise equal programs pass in {equal:.0} of 100 runs"));
    line(format!("sample {}", judged.sample_sha256));
    page
}

fn estimate_text(name: &str, estimate: &Estimate) -> String {
    let bound = |bound: Option<Bound>| match bound {
        Some(bound) => format!("{:.4} (rank {}, {:.5})", bound.ratio, bound.rank, bound.coverage),
        None => "none".to_owned(),
    };
    let (lower, upper) = (bound(estimate.lower), bound(estimate.upper));
    format!("{name} {:.4}, bounds {lower} and {upper}, {} pairs", estimate.point_ratio, estimate.count)
}

fn test_text(result: &TestResult) -> String {
    let name = result.test.to_string();
    match result.outcome {
        TestOutcome::Held(value) => format!("  {name}: p = {:.4}, holds", value.p_value),
        TestOutcome::Breached(value) => {
            format!("  {name}: p = {:.5}, BREACHED (threshold {:.5})", value.p_value, result.threshold)
        }
        TestOutcome::NotApplied { why } => {
            let why = serde_json::to_value(why).ok();
            let why = why.as_ref().and_then(serde_json::Value::as_str).unwrap_or("unknown");
            format!("  {name}: not applied ({})", why.replace('_', " "))
        }
        _ => format!("  {name}: an outcome that this release does not know"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let check = |values: &[f64], expected| assert_eq!(median(values), expected, "{values:?}");
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[3.0, 1.0], Some(2.0));
        check(&[3.0, 1.0, 9.0], Some(3.0));
    }
}
