//! A judgement in words, with what to do next.

use std::path::Path;

use anyhow::Context as _;
use command_line::{Exit, MessageFormat};
use paired_stats::{Judgement, Reason, TestName, Verdict};
use serde_json::json;

use crate::cli::Classified;
use crate::{measure, print, strict};

pub(crate) fn explain(path: &Path, format: MessageFormat) -> anyhow::Result<Exit> {
    let file = if path.is_dir() {
        measure::require_unaltered(path)?;
        path.join(measure::REPORT_FILE)
    } else {
        path.to_owned()
    };
    let read = || -> anyhow::Result<Judgement> {
        Ok(serde_json::from_value(strict::json(&strict::bytes(&file)?)?)?)
    };
    let judgement = read().with_context(|| format!("read the judgement in {}", file.display()));
    let judgement = judgement.map_err(|error| Classified::error(Exit::BadInput, error))?;
    let advice = advice(&judgement);
    match format {
        MessageFormat::Json => print::json(
            &json!({ "schema": "kvrp.paired-gate.explanation/1", "meaning": meaning(&judgement), "advice": advice }),
        )?,
        MessageFormat::Human => {
            let mut page = print::judgement_text(&judgement);
            page.extend(["\n", &meaning(&judgement), "\n"]);
            advice.iter().for_each(|line| page.extend(["- ", line, "\n"]));
            print::text(&page)?;
        }
    }
    Ok(Exit::Ok)
}

fn meaning(judged: &Judgement) -> String {
    let limit = judged.limit_ratio;
    let wrong = 100.0 * (1.0 - judged.deciding().confidence.get());
    match judged.verdict {
        Verdict::Pass => format!(
            "The median ratio is at most {limit}: were it larger, a pass would have had a chance of at most \
             {wrong:.1} %."
        ),
        Verdict::Fail => format!(
            "The median ratio is above {limit}: were it not, a fail would have had a chance of at most \
             {wrong:.1} %."
        ),
        Verdict::Inconclusive { .. } => "These pairs do not say on which side of the limit the median ratio \
                                         lies. That is neither a pass nor a fail."
            .to_owned(),
    }
}

fn advice(judged: &Judgement) -> Vec<String> {
    let Verdict::Inconclusive { reasons } = &judged.verdict else { return Vec::new() };
    let mut lines: Vec<String> = reasons.iter().map(|reason| answer(reason, judged)).collect();
    lines.push(
        "Do not add pairs to this sample. A second measurement is a new run that says which one it follows."
            .to_owned(),
    );
    lines
}

fn answer(reason: &Reason, judged: &Judgement) -> String {
    match reason {
        Reason::BoundsStraddleLimit { .. } => {
            let pairs = judged.for_readers.resolution.and_then(|found| found.pairs_to_decide_this_median);
            pairs.map_or_else(
                || "The median is at the limit: no number of pairs decides that.".to_owned(),
                |pairs| format!("With the same noise, about {pairs} pairs would decide a true ratio like this median; less noise (a quieter machine, pinned CPUs) does the same with fewer."),
            )
        }
        Reason::DiagnosticBreached { test, .. } => disturbance(test).to_owned(),
        Reason::NotCorroborated { .. } => {
            "The verdict would hang on the pairs being independent, and they look a little dependent. More pairs, or pauses between them, settle it.".to_owned()
        }
        Reason::TooFewPairsToExamine { .. } => {
            "Measure more pairs in a new run, or declare fewer lags beforehand: nothing was looked at that could speak for independence.".to_owned()
        }
        Reason::ArmOrderUnknown => {
            "Measure in pairs with `paired-gate run`; times taken one command after the other share no conditions.".to_owned()
        }
        other => format!("This release does not know the reason {other:?}."),
    }
}

fn disturbance(test: &TestName) -> &'static str {
    match test {
        TestName::SerialCorrelation => {
            "Neighbouring ratios resemble each other: look for something that comes and goes over minutes (other jobs, frequency, temperature)."
        }
        TestName::OrderTrend | TestName::ElapsedTrend => {
            "The ratio changed over the run: one arm may use something that grows (a cache, a log, a file system)."
        }
        TestName::ArmOrder => {
            "It matters which arm runs first: the first one leaves something behind (caches, turbo budget, memory)."
        }
        TestName::ChangePoint => {
            "The ratio has two levels: something changed at one moment; see `likeliest_change_at_pair` and what the machine did then."
        }
        TestName::Telemetry(_) => "The ratio follows a reading of the machine: hold that reading still.",
        _ => "This release does not know this diagnostic.",
    }
}
