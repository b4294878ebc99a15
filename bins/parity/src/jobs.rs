//! Campaigns whose rows are jobs of Slurm: one row, cancelling, looking.

use std::io::Write;
use std::time::Duration;

use command_line::{Exit, Interrupt, MessageFormat, Output, describe_error};
use parity_campaign::{CampaignStatus, cancel_campaign, run_row, status};

use crate::cli::{CancelArgs, RowArgs, StatusArgs};
use crate::console::Failure;
use crate::run::under_signals;

pub(crate) fn row(args: &RowArgs, format: MessageFormat) -> Result<Exit, Failure> {
    under_signals(format, |cancel, console| run_row(&args.jobs, &args.row, cancel, console))?;
    Ok(Exit::Ok)
}

pub(crate) fn cancel(args: &CancelArgs) -> Result<Exit, Failure> {
    let names = cancel_campaign(&args.dir)?;
    let mut out = Output::stdout();
    for name in names {
        writeln!(out, "cancelled {name}")?;
    }
    out.flush()?;
    Ok(Exit::Ok)
}

pub(crate) fn look(args: &StatusArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install().map_err(|error| {
        Failure::new(Exit::HostUnfit, format!("install signal handlers: {}", describe_error(&error)))
    })?;
    let mut last = None;
    loop {
        let now = status(&args.dir)?;
        let is_over = now.is_finished || now.failed.is_some();
        if last.as_ref() != Some(&now) {
            print(&now, format)?;
            last = Some(now);
        }
        if !args.watch || is_over {
            return Ok(Exit::Ok);
        }
        if let Some(exit) = sleep(Duration::from_secs(args.every_s), &interrupt) {
            return Ok(exit);
        }
    }
}

/// Waits, unless a signal comes.
fn sleep(whole: Duration, interrupt: &Interrupt) -> Option<Exit> {
    let start = std::time::Instant::now();
    while start.elapsed() < whole {
        if let Some(exit) = interrupt.exit() {
            return Some(exit);
        }
        std::thread::sleep(Duration::from_millis(100).min(whole.saturating_sub(start.elapsed())));
    }
    None
}

fn print(status: &CampaignStatus, format: MessageFormat) -> Result<(), Failure> {
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => {
            writeln!(out, "{}", serde_json::to_string(status).map_err(anyhow::Error::from)?)?;
        }
        MessageFormat::Human => human(&mut out, status)?,
    }
    Ok(out.flush()?)
}

fn human(out: &mut impl Write, status: &CampaignStatus) -> std::io::Result<()> {
    let end = match (&status.failed, status.is_finished) {
        (_, true) => "finished".to_owned(),
        (Some(why), _) => format!("could not go on: {why}"),
        (None, false) => "under way".to_owned(),
    };
    writeln!(out, "{}: {end}", status.campaign)?;
    for row in &status.rows {
        let job = row.job_id.map(|job| format!(", job {job}")).unwrap_or_default();
        let node = row.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let restarts = match row.attempts {
            0 | 1 => String::new(),
            attempts => format!(", attempt {attempts}"),
        };
        let (row, state, repetitions, samples) = (&row.row, &row.state, row.repetitions, row.samples);
        writeln!(out, "  {row}: {state}{job}{node}{restarts}; {repetitions} repetitions, {samples} samples")?;
    }
    if let Some(why) = &status.slurm {
        writeln!(out, "  Slurm could not be asked: {why}")?;
    }
    Ok(())
}
