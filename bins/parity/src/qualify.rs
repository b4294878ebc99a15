use std::io::Write;

use command_line::{Exit, MessageFormat, Output};
use parity_campaign::{Neighbourhood, Probe, Qualification, qualify_row};

use crate::cli::QualifyArgs;
use crate::console::Failure;
use crate::run::{options, read_campaign, under_signals};

pub(crate) fn run(args: &QualifyArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let file = read_campaign(&args.campaign)?;
    let own = file.definition.rows.iter().find(|row| row.name == args.row).map(|row| row.num_gpu_blocks);
    let seed = args.around.or(own).unwrap_or_default();
    let neighbourhood = Neighbourhood { seed, step: args.step, steps: args.steps };
    let options = options(&args.out, &args.place);
    let found = under_signals(format, |cancel, console| {
        qualify_row(&file, &options, &args.row, neighbourhood, cancel, console)
    })?;
    let mut out = Output::stdout();
    match format {
        MessageFormat::Json => {
            writeln!(out, "{}", serde_json::to_string(&found).map_err(anyhow::Error::from)?)?;
        }
        MessageFormat::Human => human(&mut out, &found)?,
    }
    out.flush()?;
    Ok(if found.is_qualified() { Exit::Ok } else { Exit::Differs })
}

fn human(out: &mut impl Write, found: &Qualification) -> std::io::Result<()> {
    writeln!(out, "## Capacity of row {}\n", found.row)?;
    writeln!(out, "| num_gpu_blocks | revision | pressure | requests with reuse | qualifies |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    found.probes.iter().chain(&found.candidate).try_for_each(|probe| line(out, probe))?;
    match (found.chosen, found.is_qualified()) {
        (None, _) => writeln!(out, "\nNo capacity around {} qualifies.", found.neighbourhood.seed),
        (Some(value), true) => writeln!(out, "\nBoth revisions qualify with `num_gpu_blocks = {value}`."),
        (Some(value), false) => {
            writeln!(out, "\n`num_gpu_blocks = {value}` qualifies on the baseline and not on the candidate.")
        }
    }
}

fn line(out: &mut impl Write, probe: &Probe) -> std::io::Result<()> {
    let shown = |counter: &Option<String>| counter.clone().unwrap_or_else(|| "-".to_owned());
    let verdict =
        if probe.qualifies() { "yes".to_owned() } else { probe.against.join("; ").replace('|', "\\|") };
    writeln!(
        out,
        "| {} | {} | {} | {} | {verdict} |",
        probe.num_gpu_blocks,
        probe.side.name(),
        shown(&probe.pressure_events),
        shown(&probe.requests_with_reuse)
    )
}
