use std::io::Write;
use std::path::Path;

use command_line::{Exit, MessageFormat, Output, describe_error};
use evidence::Verification;
use parity_campaign::{Recomputed, recompute};

use crate::cli::VerifyArgs;
use crate::console::Failure;

pub(crate) fn run(args: &VerifyArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let verification =
        evidence::verify(&args.dir).map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    let recomputed = recomputed(&args.dir, &verification)?;
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => {
            let mut event = serde_json::to_value(&verification).map_err(anyhow::Error::from)?;
            event["recomputed"] = serde_json::to_value(&recomputed).map_err(anyhow::Error::from)?;
            writeln!(out, "{event}")?;
        }
        MessageFormat::Human => {
            human(&mut out, &verification)?;
            if let Some(recomputed) = &recomputed {
                verdicts(&mut out, recomputed)?;
            }
        }
    }
    out.flush()?;
    let agrees = recomputed.as_ref().is_none_or(Recomputed::agrees);
    Ok(if verification.is_intact() && agrees { Exit::Ok } else { Exit::Differs })
}

/// The verdicts once more, of a campaign that came to its end and whose evidence is unaltered.
fn recomputed(dir: &Path, verification: &Verification) -> Result<Option<Recomputed>, Failure> {
    let is_campaign = dir.join("report.json").exists();
    if verification.manifest.is_none() || !verification.is_intact() || !is_campaign {
        return Ok(None);
    }
    let recomputed = recompute(dir).map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    Ok(Some(recomputed))
}

fn verdicts(out: &mut impl Write, found: &Recomputed) -> std::io::Result<()> {
    let labels =
        if found.labels.is_empty() { String::new() } else { format!(" ({})", found.labels.join("; ")) };
    let (semantic, performance) = (found.semantic.word(), found.performance.word());
    writeln!(out, "recomputed: semantic {semantic}, performance {performance}{labels}")?;
    for stop in &found.stops {
        writeln!(out, "stop for review: {stop}")?;
    }
    for what in &found.taken_as_recorded {
        writeln!(out, "taken as recorded: {what}")?;
    }
    for what in &found.disagreements {
        writeln!(out, "does not follow from the evidence: {what}")?;
    }
    writeln!(out, "{}", if found.agrees() { "the verdicts follow" } else { "THE VERDICTS DO NOT FOLLOW" })
}

fn human(out: &mut impl Write, found: &Verification) -> std::io::Result<()> {
    writeln!(out, "{} journal records, {} files, {} bytes", found.records, found.files, found.bytes)?;
    match &found.manifest {
        Some(sha256) => writeln!(out, "manifest {sha256}")?,
        None => writeln!(out, "not sealed: the campaign did not come to its end")?,
    }
    for altered in &found.altered {
        writeln!(
            out,
            "altered {}: recorded {}, found {}",
            altered.path, altered.recorded_sha256, altered.found_sha256
        )?;
    }
    for missing in &found.missing {
        writeln!(out, "missing {}", missing.path)?;
    }
    for added in &found.added {
        writeln!(out, "added {added}")?;
    }
    for problem in &found.journal {
        writeln!(out, "journal: {problem}")?;
    }
    for path in &found.manifest_against_journal {
        writeln!(out, "manifest and journal disagree on {path}")?;
    }
    if found.torn.is_some() {
        writeln!(out, "journal: the last line is not whole")?;
    }
    writeln!(out, "{}", if found.is_intact() { "intact" } else { "NOT INTACT" })
}
