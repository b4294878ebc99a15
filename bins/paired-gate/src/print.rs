//! What is printed. JSON is stable, one object per line; the wording for people may change.

use std::fmt::Write as _;
use std::io::Write as _;

use command_line::{MessageFormat, Output};
use paired_stats::{
    Arm, Bound, Estimate, Judgement, Method, PairedSample, Reason, Schedule, TestOutcome, TestResult, Verdict,
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

pub(crate) fn judgement(judgement: &Judgement, format: MessageFormat) -> anyhow::Result<()> {
    match format {
        MessageFormat::Json => json(judgement),
        MessageFormat::Human => text(&judgement_text(judgement)),
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
        reasons.iter().for_each(|reason| line(format!("  because {}", reason_text(reason))));
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

/// One reason as the rest of a sentence.
pub(crate) fn reason_text(reason: &Reason) -> String {
    let ratio = |ratio: &Option<f64>| ratio.map_or("no bound".to_owned(), |ratio| format!("{ratio:.4}"));
    match reason {
        Reason::BoundsStraddleLimit { lower_ratio, upper_ratio } => {
            format!("the limit lies between the bounds {} and {}", ratio(lower_ratio), ratio(upper_ratio))
        }
        Reason::DiagnosticBreached { test, p_value, threshold } => {
            format!("the diagnostic {test} was breached (p = {p_value:.5}, threshold {threshold:.5})")
        }
        Reason::NotCorroborated { bound_ratio, rank_distance_factor } => format!(
            "the bound that allows for dependence ({}, {rank_distance_factor:.2} times as far out) does not agree",
            ratio(bound_ratio)
        ),
        Reason::ArmOrderUnknown => "it is not known which arm ran first in each pair".to_owned(),
        other => format!("{other:?}"),
    }
}
