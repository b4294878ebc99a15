//! `replay-master validate`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use command_line::{Exit, MessageFormat, Output, describe_error};
use master_replay::{Dialect, Fault, PhaseCounts, Rule, Speed, Trace, TraceError};
use serde::Serialize;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also check that every event is due at a time a clock can tell, at this speed
    #[arg(long, value_name = "FACTOR")]
    speed: Option<Speed>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    message_format: MessageFormat,
}

/// What is said of one file. Stable: printed as one JSON object.
#[derive(Debug, Serialize)]
struct Verdict {
    file: String,
    valid: bool,
    dialect: Option<Dialect>,
    rule: Option<Rule>,
    line: Option<u64>,
    column: Option<u64>,
    message: Option<String>,
    #[serde(flatten)]
    counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedulable: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Counts {
    events: usize,
    clients: usize,
    phases: Option<PhaseCounts>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut out = Output::stdout();
    let mut all_good = true;
    for file in &args.files {
        let verdict = judge(file, args.speed);
        all_good &= verdict.valid && verdict.schedulable != Some(false);
        print(&mut out, args.message_format, &verdict)?;
    }
    Ok(if all_good { Exit::Ok } else { Exit::BadInput })
}

fn judge(file: &Path, speed: Option<Speed>) -> Verdict {
    let mut verdict = Verdict {
        file: file.to_string_lossy().into_owned(),
        valid: false,
        dialect: None,
        rule: None,
        line: None,
        column: None,
        message: None,
        counts: None,
        schedulable: None,
    };
    match Trace::open(file) {
        Ok(trace) => {
            verdict.valid = true;
            verdict.dialect = Some(trace.dialect());
            verdict.counts =
                Some(Counts { events: trace.len(), clients: trace.clients(), phases: trace.phases() });
            if let Some(speed) = speed {
                let schedulable = trace.check_schedulable(speed);
                verdict.schedulable = Some(schedulable.is_ok());
                verdict.message = schedulable.err().map(|error| error.to_string());
            }
        }
        Err(TraceError::Invalid(Fault { rule, dialect, line, column, message, .. })) => {
            (verdict.rule, verdict.dialect) = (Some(rule), Some(dialect));
            (verdict.line, verdict.column) = (line, column);
            verdict.message = Some(message);
        }
        Err(error) => verdict.message = Some(describe_error(&error)),
    }
    verdict
}

fn print(out: &mut impl Write, format: MessageFormat, verdict: &Verdict) -> io::Result<()> {
    match format {
        MessageFormat::Json => {
            serde_json::to_writer(&mut *out, verdict)?;
            writeln!(out)?;
        }
        MessageFormat::Human => human(out, verdict)?,
    }
    out.flush()
}

fn human(out: &mut impl Write, verdict: &Verdict) -> io::Result<()> {
    write!(out, "{}", verdict.file)?;
    if let (Some(line), Some(column)) = (verdict.line, verdict.column) {
        write!(out, ":{line}:{column}")?;
    }
    match (&verdict.counts, verdict.dialect) {
        (Some(counts), Some(dialect)) => {
            write!(out, ": valid {dialect}, {} events, {} clients", counts.events, counts.clients)?;
        }
        _ => write!(out, ": {}", verdict.rule.map_or("unreadable", Rule::id))?,
    }
    match &verdict.message {
        Some(message) => writeln!(out, ": {message}"),
        None => writeln!(out),
    }
}
