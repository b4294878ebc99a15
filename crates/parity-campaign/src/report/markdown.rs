//! The report as a pull-request comment. It renders `report.json` and knows nothing more.

use std::fmt::{self, Write};

use crate::coverage::Coverage;
use crate::lifecycle::{LifecycleEvidence, LifecycleOutcome};
use crate::profile::{Profile, ProfileSummary};
use crate::record::{
    Both, BuildDifference, Classification, DifferenceRecord, ExceptionReport, MeasureRecord,
    PerformanceVerdict, PlaceRecord, RowOutcome, RowRecord, Side,
};

use super::Report;

/// The longest comment that the large forges take (R4).
pub const PULL_REQUEST_COMMENT_CHARS: usize = 65_536;

/// Renders a report; never longer than [`PULL_REQUEST_COMMENT_CHARS`].
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    // A `String` accepts every write.
    let _ = render(report, &mut text);
    fit(text)
}

/// Cuts at a line end and says so: details come last, so the verdicts and tables survive.
fn fit(text: String) -> String {
    const NOTE: &str = "\n*Cut to fit a comment; `report.json` has everything.*\n";
    if text.chars().count() <= PULL_REQUEST_COMMENT_CHARS {
        return text;
    }
    let room = PULL_REQUEST_COMMENT_CHARS - NOTE.chars().count();
    let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let line_end = text[..end].rfind('\n').unwrap_or(0);
    format!("{}{NOTE}", &text[..line_end])
}

fn render(report: &Report, out: &mut String) -> fmt::Result {
    verdicts(report, out)?;
    rows_table(report, out)?;
    if !report.measurements.is_empty() {
        performance_table(report, out)?;
        profiles(report, out)?;
    }
    bullet_list(out, "Stop for review", &report.stops)?;
    for row in &report.rows {
        row_details(row, out)?;
    }
    lifecycles(report, out)?;
    exceptions(report, out)?;
    revisions(report, out)?;
    workload(report, out)?;
    diagnostics(report, out)?;
    bullet_list(out, "Not covered", &report.not_covered)?;
    stage_times(report, out)?;
    writeln!(out, "\n<sub>campaign file `{}`, {}</sub>", report.campaign_sha256, report.written_by)
}

fn verdicts(report: &Report, out: &mut String) -> fmt::Result {
    writeln!(out, "## KV replay parity: {}\n", report.campaign)?;
    if report.preflight {
        writeln!(out, "> **Preflight.** A small workload that checks the machinery; it decides nothing.\n")?;
    }
    let labels =
        if report.labels.is_empty() { String::new() } else { format!(" ({})", report.labels.join("; ")) };
    writeln!(out, "- semantic: **{}**", report.semantic.word())?;
    writeln!(out, "- performance: **{}**{labels}", report.performance.word())?;
    writeln!(
        out,
        "- baseline `{}` {}",
        short(&report.pin.revisions.baseline.commit),
        report.pin.revisions.baseline.label
    )?;
    writeln!(
        out,
        "- candidate `{}` {}",
        short(&report.pin.revisions.candidate.commit),
        report.pin.revisions.candidate.label
    )?;
    writeln!(out)
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn rows_table(report: &Report, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "| row | outcome | baseline digest | candidate digest | pressure b / c | requests with reuse b / c |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for row in &report.rows {
        let digest = |side| digests(row, side);
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            row.row,
            outcome_word(&row.outcome),
            digest(Side::Baseline),
            digest(Side::Candidate),
            counters(&row.coverage, "pressure_events"),
            counters(&row.coverage, "requests_with_reuse"),
        )?;
    }
    writeln!(out)
}

/// One digest, or both when they differ.
fn digests(row: &RowRecord, side: Side) -> String {
    let mut shown: Vec<String> = row
        .digests
        .get(side)
        .iter()
        .map(|digest| format!("`{}`", short(&digest.sha256.to_string())))
        .collect();
    shown.dedup();
    if shown.is_empty() { "none".to_owned() } else { shown.join(" ≠ ") }
}

fn outcome_word(outcome: &RowOutcome) -> &'static str {
    match outcome {
        RowOutcome::Match => "match",
        RowOutcome::Differs => "**DIFFERS**",
        RowOutcome::Excepted { .. } => "differs, excepted",
        RowOutcome::Unstable { .. } => "**UNSTABLE**",
        RowOutcome::Unqualified { .. } => "**NOT QUALIFIED**",
        RowOutcome::TargetFailed { .. } => "**TARGET FAILED**",
        RowOutcome::StopForReview { .. } => "**STOP FOR REVIEW**",
    }
}

fn counters(coverage: &Both<Option<Coverage>>, name: &str) -> String {
    let shown = |coverage: &Option<Coverage>| {
        coverage
            .as_ref()
            .and_then(|coverage| coverage.counter(name))
            .map_or("-".to_owned(), ToString::to_string)
    };
    format!("{} / {}", shown(&coverage.baseline), shown(&coverage.candidate))
}

fn performance_table(report: &Report, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "| row | performance | baseline median ms | candidate median ms | ratio | lower | upper | pairs |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for row in &report.measurements {
        performance_row(row, out)?;
    }
    writeln!(out, "\nPass: upper bound at most {}. Fail: lower bound above it.\n", report.limit_ratio)?;
    for row in report.measurements.iter().filter(|row| !row.reasons.is_empty()) {
        writeln!(out, "- {}: {}{}", row.row, row.reasons.join("; "), could_have_passed(row))?;
    }
    writeln!(out)
}

/// Of a row that could not be decided: whether that is because of the noise.
fn could_have_passed(row: &MeasureRecord) -> String {
    let inconclusive = row.verdict == PerformanceVerdict::Inconclusive;
    row.judgement.as_ref().filter(|_| inconclusive).map_or_else(String::new, |judgement| {
        let equal = judgement.for_readers.equal_pass_probability * 100.0;
        format!("; pairs as noisy as these let equal revisions pass in {equal:.0} of 100 measurements")
    })
}

fn performance_row(row: &MeasureRecord, out: &mut String) -> fmt::Result {
    let labels = if row.labels.is_empty() { String::new() } else { format!(" ({})", row.labels.join("; ")) };
    write!(out, "| {} | {}{labels} |", row.row, row.verdict.word())?;
    match &row.median_ms {
        Some(median) => write!(out, " {:.3} | {:.3} |", median.baseline, median.candidate)?,
        None => write!(out, " - | - |")?,
    }
    match &row.ratio {
        Some(ratio) => {
            let bound = |value: Option<f64>, rank: Option<u64>| match (value, rank) {
                (Some(value), Some(rank)) => format!("{value:.5} (rank {rank})"),
                _ => "none".to_owned(),
            };
            writeln!(
                out,
                " {:.5} | {} | {} | {} |",
                ratio.median,
                bound(ratio.lower, ratio.lower_rank),
                bound(ratio.upper, ratio.upper_rank),
                ratio.pairs
            )
        }
        None => writeln!(out, " - | - | - | - |"),
    }
}

fn profiles(report: &Report, out: &mut String) -> fmt::Result {
    for row in &report.measurements {
        match &row.profile {
            None => {}
            Some(Profile::Unavailable { reason }) => {
                writeln!(out, "- {}: profile unavailable: {}", row.row, cell(reason))?;
            }
            Some(Profile::Taken(found)) => profile(&row.row, found, out)?,
        }
    }
    writeln!(out)
}

/// Own time by function; whoever looks for the regression begins at the top.
fn profile(row: &str, found: &ProfileSummary, out: &mut String) -> fmt::Result {
    let work = if found.equal_work { "equal work" } else { "unequal work" };
    writeln!(
        out,
        "\nProfile of {row}, {work}: own time per process by {} ({} at {} Hz; {} and {} samples of {} and {} processes)\n",
        found.tool,
        found.event,
        found.frequency_hz,
        found.samples.baseline,
        found.samples.candidate,
        found.runs.baseline,
        found.runs.candidate
    )?;
    writeln!(out, "| function | baseline ms | share | candidate ms | share |\n|---|---|---|---|---|")?;
    for function in &found.functions {
        let ms = |side| found.self_ms(function, side);
        let share = |side| found.share_ratio(function, side) * 100.0;
        writeln!(
            out,
            "| `{}` | {:.2} | {:.1} % | {:.2} | {:.1} % |",
            cell(&function.function),
            ms(Side::Baseline),
            share(Side::Baseline),
            ms(Side::Candidate),
            share(Side::Candidate)
        )?;
    }
    let unresolved = found.unresolved_samples.baseline.saturating_add(found.unresolved_samples.candidate);
    if unresolved > 0 {
        writeln!(out, "\n{unresolved} samples are in code without a symbol.")?;
    }
    Ok(())
}

fn row_details(row: &RowRecord, out: &mut String) -> fmt::Result {
    let lines: Vec<String> = match &row.outcome {
        RowOutcome::Match | RowOutcome::Differs => Vec::new(),
        RowOutcome::Excepted { records } => vec![format!("covered by {}", records.join(", "))],
        RowOutcome::Unstable { sides } => {
            let names: Vec<&str> = sides.iter().map(|side| side.name()).collect();
            vec![format!("{} does not agree with itself", names.join(" and "))]
        }
        RowOutcome::Unqualified { items } => items.clone(),
        RowOutcome::TargetFailed { fault } => vec![fault.clone()],
        RowOutcome::StopForReview { reason } => vec![reason.clone()],
    };
    let drift = row.drift.iter().map(|drift| {
        let found = drift.found.as_ref().map_or("not counted".to_owned(), ToString::to_string);
        format!("drift from the golden seed: {} was {}, is {found}", drift.name, drift.expected)
    });
    let lines: Vec<String> = lines.into_iter().chain(drift).collect();
    if lines.is_empty() && row.difference.is_none() {
        return Ok(());
    }
    writeln!(out, "### Row {}\n", row.row)?;
    for line in lines {
        writeln!(out, "- {line}")?;
    }
    match &row.difference {
        Some(difference) => difference_details(difference, out)?,
        None => writeln!(out)?,
    }
    row.classification.as_ref().map_or(Ok(()), |found| classification(found, out))
}

fn classification(found: &Classification, out: &mut String) -> fmt::Result {
    for used in &found.records {
        writeln!(out, "- exception {} covers {} of these differences", used.name, used.covers)?;
        for pattern in &used.over_broad {
            writeln!(out, "- exception {}: `{}` is wider than what differs", used.name, cell(pattern))?;
        }
    }
    writeln!(out, "- covered by no record: {}", found.uncovered_total)?;
    for group in found.uncovered.iter().take(SHOWN_SHAPES) {
        writeln!(out, "  - `{}`: {}", cell(&group.shape), group.count)?;
    }
    writeln!(out)
}

fn lifecycles(report: &Report, out: &mut String) -> fmt::Result {
    if report.lifecycles.is_empty() {
        return Ok(());
    }
    writeln!(out, "### Forced lifecycles\n")?;
    writeln!(out, "| lifecycle | kind | outcome | baseline | candidate |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for record in &report.lifecycles {
        let outcome = if record.is_forced() { "forced" } else { "**FAILED**" };
        let shown = |side| record.sides.get(side).as_ref().map_or("not forced here".to_owned(), evidence);
        let (name, kind) = (&record.name, record.kind.as_str());
        let (baseline, candidate) = (shown(Side::Baseline), shown(Side::Candidate));
        writeln!(out, "| {name} | {kind} | {outcome} | {baseline} | {candidate} |")?;
    }
    writeln!(out)?;
    for record in &report.lifecycles {
        let LifecycleOutcome::Failed { against } = &record.outcome else { continue };
        against.iter().try_for_each(|what| writeln!(out, "- {}: {what}", record.name))?;
    }
    writeln!(out)
}

/// What one revision showed, in a table cell.
fn evidence(evidence: &LifecycleEvidence) -> String {
    match evidence {
        LifecycleEvidence::Row { coverage, .. } => {
            let counted = LIFECYCLE_COUNTERS.into_iter().filter_map(|(counter, word)| {
                coverage.counter(counter).map(|value| format!("{value} {word}"))
            });
            counted.collect::<Vec<_>>().join(", ")
        }
        LifecycleEvidence::Fault { fault } => cell(fault),
        LifecycleEvidence::Test { end } => format!("test {}", cell(&end.to_string())),
    }
}

/// What a reader wants to know of a forced row, and how it is called.
const LIFECYCLE_COUNTERS: [(&str, &str); 4] = [
    ("queued_placements", "queued"),
    ("pressure_events", "pressure"),
    ("readmitted_pressure_events", "readmitted"),
    ("handoffs", "handoffs"),
];

fn exceptions(report: &Report, out: &mut String) -> fmt::Result {
    if report.exceptions.is_empty() {
        return Ok(());
    }
    writeln!(out, "### Semantic exceptions\n")?;
    for ExceptionReport { record, sha256, rows, tests } in &report.exceptions {
        writeln!(
            out,
            "**{}** (`{sha256}`), {} by {} on {}\n",
            record.name, record.disposition, record.reviewer, record.date
        )?;
        writeln!(out, "- baseline: {}", record.baseline_behavior)?;
        writeln!(out, "- why that is wrong: {}", record.why_incorrect)?;
        writeln!(out, "- candidate: {}", record.candidate_behavior)?;
        writeln!(out, "- source of truth: {}", record.source_of_truth)?;
        writeln!(out, "- no leaked entropy: {}", record.why_not_entropy)?;
        writeln!(out, "- downstream: {}", record.downstream_impact)?;
        match tests {
            Some(Both { baseline, candidate }) => writeln!(
                out,
                "- regression test `{}`: baseline {baseline}, candidate {candidate}",
                cell(&record.regression_test.command.join(" "))
            )?,
            None => writeln!(out, "- **stale**: it covers no difference of this campaign")?,
        }
        if !rows.is_empty() {
            writeln!(out, "- covers differences of {}", rows.join(", "))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Shapes shown per row; the record in the bundle has the rest.
const SHOWN_SHAPES: usize = 12;

fn difference_details(difference: &DifferenceRecord, out: &mut String) -> fmt::Result {
    writeln!(out, "\n{} values differ, {}:\n", difference.total, difference.between)?;
    writeln!(out, "| shape | count | first at | left | right |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for group in difference.groups.iter().take(SHOWN_SHAPES) {
        let Some(first) = group.examples.first() else { continue };
        let value = |text: &Option<String>| {
            text.as_deref().map_or("absent".to_owned(), |text| format!("`{}`", cell(text)))
        };
        writeln!(
            out,
            "| `{}` | {} | `{}` | {} | {} |",
            cell(&group.shape),
            group.count,
            cell(first.pointer.as_str()),
            value(&first.left),
            value(&first.right)
        )?;
    }
    let more = difference.groups.len().saturating_sub(SHOWN_SHAPES);
    if more > 0 || difference.truncated {
        writeln!(out, "\nand {more} more shapes{}", if difference.truncated { ", list cut" } else { "" })?;
    }
    if let Some(divergence) = &difference.first_divergence {
        writeln!(out, "\nFirst divergence in virtual time: {divergence}")?;
        writeln!(out, "\nWhat stayed equal: {}", divergence.equal)?;
    }
    writeln!(out, "\nFull reports kept: {}\n", difference.kept.join(", "))
}

/// Text inside a table cell.
fn cell(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    cut.replace('|', "\\|").replace(['\n', '`'], " ")
}

fn revisions(report: &Report, out: &mut String) -> fmt::Result {
    writeln!(out, "<details><summary>Revisions, artifacts, placement</summary>\n")?;
    writeln!(out, "| | baseline | candidate |\n|---|---|---|")?;
    let (pin, artifacts) = (&report.pin.revisions, &report.build.artifacts);
    writeln!(out, "| commit | `{}` | `{}` |", pin.baseline.commit, pin.candidate.commit)?;
    writeln!(out, "| artifact | `{}` | `{}` |", artifacts.baseline.sha256, artifacts.candidate.sha256)?;
    writeln!(out, "| bytes | {} | {} |", artifacts.baseline.bytes, artifacts.candidate.bytes)?;
    writeln!(
        out,
        "| .text bytes | {} | {} |",
        artifacts.baseline.text_bytes, artifacts.candidate.text_bytes
    )?;
    writeln!(
        out,
        "| features | {} | {} |",
        artifacts.baseline.features.join(" "),
        artifacts.candidate.features.join(" ")
    )?;
    let growth = report.build.growth;
    writeln!(
        out,
        "\n- growth: size {:+.2} %, .text {:+.2} %",
        growth.size_ratio * 100.0,
        growth.text_ratio * 100.0
    )?;
    for difference in &report.build.differences {
        let BuildDifference { subject, baseline, candidate } = difference;
        writeln!(out, "- built differently, as reviewed: {subject} is {baseline} and {candidate}")?;
    }
    for side in Side::BOTH {
        if artifacts.get(side).is_taken_over() {
            writeln!(
                out,
                "- the artifact of the {} is that of an earlier build of exactly the same",
                side.name()
            )?;
        }
    }
    writeln!(out, "- relationship: {}{}", report.pin.ancestry, stated(report))?;
    for patch in &report.pin.patches {
        writeln!(out, "- patch {} ({:?}, {:?}) `{}`", patch.file, patch.kind, patch.revision, patch.sha256)?;
    }
    if report.nodes.is_empty() {
        places(&report.place, "", out)?;
    }
    for node in &report.nodes {
        places(&node.place, &format!("{} (job {}): ", node.row, node.job_id), out)?;
    }
    writeln!(out, "\n</details>\n")
}

fn places(place: &PlaceRecord, prefix: &str, out: &mut String) -> fmt::Result {
    let repetitions = place.correctness_cpus.join(" and ");
    writeln!(out, "- {prefix}measured on CPUs {}; repetitions on {repetitions}", place.measured_cpus)?;
    place.notes.iter().try_for_each(|note| writeln!(out, "- {prefix}{note}"))
}

fn stated(report: &Report) -> String {
    report.pin.stated.as_ref().map(|stated| format!("; stated: {stated}")).unwrap_or_default()
}

fn workload(report: &Report, out: &mut String) -> fmt::Result {
    let (source, slice) = (&report.slice.source, &report.slice.slice);
    writeln!(out, "<details><summary>Workload and exclusions</summary>\n")?;
    writeln!(out, "- trace `{}`, {} rows", source.sha256, source.rows)?;
    writeln!(out, "- window: {} rows from row {}, `{}`", slice.rows, report.window_offset, slice.sha256)?;
    writeln!(out, "- {} input tokens, {} output tokens", slice.input_tokens, slice.output_tokens)?;
    writeln!(out, "- excluded from the canonical form: {}", report.exclusions.join(", "))?;
    for review in &report.reviews {
        writeln!(
            out,
            "- reviewed: {} {} by {} on {}: {}",
            review.kind.as_str(),
            review.subject,
            review.reviewer,
            review.date,
            review.reason
        )?;
    }
    for stale in &report.stale_reviews {
        writeln!(out, "- **stale review**, nothing asked for it: {stale}")?;
    }
    for row in &report.rows {
        writeln!(out, "- {}: `{}`", row.row, row.options.join(" "))?;
    }
    writeln!(out, "\n</details>\n")
}

fn diagnostics(report: &Report, out: &mut String) -> fmt::Result {
    if report.measurements.iter().all(|row| row.judgement.is_none()) {
        return Ok(());
    }
    writeln!(out, "<details><summary>Dependence diagnostics</summary>\n")?;
    for row in &report.measurements {
        let Some(judgement) = &row.judgement else { continue };
        let attempts = row.attempts.iter().map(|(kind, count)| format!("{kind}: {count}"));
        writeln!(out, "**{}** (attempts: {})\n", row.row, attempts.collect::<Vec<_>>().join(", "))?;
        writeln!(out, "```json\n{}\n```\n", compact(&judgement.diagnostics))?;
    }
    writeln!(out, "</details>\n")
}

fn compact(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

fn bullet_list(out: &mut String, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "### {title}\n")?;
    for line in lines {
        writeln!(out, "- {line}")?;
    }
    writeln!(out)
}

fn stage_times(report: &Report, out: &mut String) -> fmt::Result {
    let times = report.stages.iter().map(|time| format!("{} {:.1} s", time.stage, seconds(time.wall_ms)));
    let last = if report.sessions > 1 { " of the last session" } else { "" };
    writeln!(out, "Wall time{last}: {}", times.collect::<Vec<_>>().join(", "))?;
    if report.sessions > 1 {
        writeln!(
            out,
            "\nResumed: {} processes worked on this campaign, one after the other.",
            report.sessions
        )?;
    }
    Ok(())
}

fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}
