//! `replay-master stats`

use std::io::Write;
use std::path::PathBuf;

use command_line::{Exit, MessageFormat, Output};
use master_replay::{Trace, TraceStats};

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    message_format: MessageFormat,
}

#[derive(Debug, serde::Serialize)]
struct Line<'a> {
    file: &'a str,
    #[serde(flatten)]
    stats: &'a TraceStats,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut out = Output::stdout();
    for file in &args.files {
        let trace = Trace::open(file).map_err(|error| Failure::from(error).about(file))?;
        let stats = TraceStats::of(&trace);
        let name = file.to_string_lossy();
        match args.message_format {
            MessageFormat::Json => {
                let line = serde_json::to_string(&Line { file: &name, stats: &stats });
                writeln!(out, "{}", line.map_err(std::io::Error::from)?)?;
            }
            MessageFormat::Human => human(&mut out, &name, &stats)?,
        }
        out.flush()?;
    }
    Ok(Exit::Ok)
}

fn human(out: &mut impl Write, name: &str, stats: &TraceStats) -> std::io::Result<()> {
    writeln!(out, "{name}: {}, {} events of {} clients", stats.dialect, stats.events, stats.clients)?;
    if let Some(phases) = stats.phases {
        writeln!(
            out,
            "  phases      setup {}, workload {}, teardown {}",
            phases.setup, phases.workload, phases.teardown
        )?;
    }
    for (op, found) in &stats.operations {
        writeln!(out, "  {op:<20} {:>10} calls {:>12} keys", found.calls, found.keys)?;
    }
    writeln!(out, "  keys        {} different, {} in all calls", stats.distinct_keys, stats.planned_keys)?;
    writeln!(out, "  segments    {} of {} bytes together", stats.segments, stats.capacity_bytes)?;
    writeln!(out, "  written     {} bytes", stats.written_bytes)?;
    let rate =
        stats.offered_calls_per_second.map_or("all at once".to_owned(), |rate| format!("{rate:.1} calls/s"));
    writeln!(
        out,
        "  workload    {} us, {rate}, busiest second {} calls",
        stats.workload_span_us, stats.busiest_second_calls
    )
}
