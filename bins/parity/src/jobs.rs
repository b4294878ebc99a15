//! Campaigns whose rows are jobs of Slurm: one row, the build, cancelling, looking.

use std::io::Write;
use std::time::Duration;

use command_line::{Exit, Interrupt, MessageFormat, Output, describe_error};
use parity_campaign::{BuildInputs, CampaignStatus, JobId, cancel_campaign, run_build, run_row, status};
use serde_json::json;

use crate::cli::{BuildArgs, CancelArgs, RowArgs, StatusArgs};
use crate::console::Failure;
use crate::run::under_signals;

pub(crate) fn row(args: &RowArgs, format: MessageFormat) -> Result<Exit, Failure> {
    under_signals(format, |cancel, console| run_row(&args.jobs, cancel, console))?;
    Ok(Exit::Ok)
}

pub(crate) fn build(args: &BuildArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let inputs = BuildInputs {
        campaign_folder: args.campaign_folder.clone(),
        repository: args.repo.clone(),
        seed: args.seed.clone(),
        artifacts: args.artifacts.clone(),
    };
    under_signals(format, |cancel, console| run_build(&args.jobs, &inputs, cancel, console))?;
    Ok(Exit::Ok)
}

pub(crate) fn cancel(args: &CancelArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let names = cancel_campaign(&args.dir)?;
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => writeln!(out, "{}", json!({ "event": "cancelled", "jobs": names }))?,
        MessageFormat::Human => {
            for name in names {
                writeln!(out, "cancelled {name}")?;
            }
        }
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
    if let Some(build) = &status.build {
        writeln!(
            out,
            "  build: {}{}",
            build.state,
            place(build.job_id, build.node.as_ref(), build.attempts)
        )?;
    }
    for row in &status.rows {
        let place = place(row.job_id, row.node.as_ref(), row.attempts);
        let (row, state, repetitions, samples) = (&row.row, &row.state, row.repetitions, row.samples);
        writeln!(out, "  {row}: {state}{place}; {repetitions} repetitions, {samples} samples")?;
    }
    if let Some(why) = &status.slurm {
        writeln!(out, "  Slurm could not be asked: {why}")?;
    }
    Ok(())
}

/// The last job, its node, and which attempt it is.
fn place(job_id: Option<JobId>, node: Option<&String>, attempts: usize) -> String {
    let job = job_id.map(|job| format!(", job {job}")).unwrap_or_default();
    let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let restarts = if attempts > 1 { format!(", attempt {attempts}") } else { String::new() };
    format!("{job}{node}{restarts}")
}
