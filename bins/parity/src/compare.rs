use std::io::Write;

use command_line::{Exit, MessageFormat, Output, describe_error};
use parity_campaign::{EvidenceComparison, compare_evidence};

use crate::cli::CompareArgs;
use crate::console::Failure;

/// Status 0 when nothing differs, 1 when something does.
pub(crate) fn run(args: &CompareArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let found = compare_evidence(&args.left, &args.right)
        .map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => {
            writeln!(out, "{}", serde_json::to_string(&found).map_err(anyhow::Error::from)?)?;
        }
        MessageFormat::Human => human(&mut out, &found)?,
    }
    out.flush()?;
    Ok(if found.differences.is_empty() { Exit::Ok } else { Exit::Differs })
}

fn human(out: &mut impl Write, found: &EvidenceComparison) -> std::io::Result<()> {
    let mut section = None;
    for difference in &found.differences {
        if section != Some(difference.section()) {
            section = Some(difference.section());
            writeln!(out, "{}", difference.section())?;
        }
        let shown = |value: &Option<String>| value.as_deref().map_or("absent".to_owned(), cut);
        writeln!(out, "  {}: {} | {}", difference.fact, shown(&difference.left), shown(&difference.right))?;
    }
    writeln!(out, "{} differ, {} are the same", found.differences.len(), found.same)
}

/// A value on one line; JSON has all of it.
fn cut(value: &str) -> String {
    const SHOWN_CHARS: usize = 72;
    let line = value.replace('\n', " ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}
