use std::io::Write;

use command_line::{Exit, MessageFormat, Output, describe_error};
use evidence::Verification;

use crate::cli::VerifyArgs;
use crate::console::Failure;

pub(crate) fn run(args: &VerifyArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let verification =
        evidence::verify(&args.dir).map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => {
            let line = serde_json::to_string(&verification).map_err(anyhow::Error::from)?;
            writeln!(out, "{line}")?;
        }
        MessageFormat::Human => human(&mut out, &verification)?,
    }
    out.flush()?;
    Ok(if verification.is_intact() { Exit::Ok } else { Exit::Differs })
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
