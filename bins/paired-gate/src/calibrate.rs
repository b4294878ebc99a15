//! How often a gate would be wrong, counted on simulated campaigns.

use command_line::{Exit, MessageFormat};
use paired_stats::{Gate, PreparedGate, ReaderDefinition, Verdict, World};
use serde::Serialize;

use crate::print;

/// What a gate said in one world.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    world: &'static str,
    usual: bool,
    campaigns: u32,
    noise_sd: f64,
    /// Passes at a true ratio just at the limit, in per cent.
    false_pass_percent: f64,
    /// Fails there.
    false_fail_percent: f64,
    /// Passes at a true ratio of 1.
    pass_at_1_percent: f64,
    /// Fails at a true ratio 3 % above the limit.
    fail_above_limit_percent: f64,
}

pub(crate) fn calibrate(
    gate: &Gate,
    campaigns: u32,
    noise_sd: f64,
    seeds: &str,
    format: MessageFormat,
) -> anyhow::Result<Exit> {
    let mut gate = gate.clone();
    // Numbers for readers decide nothing and take most of the time.
    gate.readers = ReaderDefinition { bootstrap_resamples: 0, ..gate.readers };
    let prepared = gate.prepare()?;
    if format == MessageFormat::Human {
        print::text(&header(&gate, campaigns, noise_sd))?;
    }
    for world in World::all() {
        let row = one_world(&prepared, world, campaigns, noise_sd, seeds)?;
        match format {
            MessageFormat::Json => print::json(&row)?,
            MessageFormat::Human => print::text(&line(&row))?,
        };
    }
    Ok(Exit::Ok)
}

fn one_world(
    gate: &PreparedGate,
    world: &World,
    campaigns: u32,
    noise_sd: f64,
    seeds: &str,
) -> anyhow::Result<Row> {
    let (limit, pairs) = (gate.definition().limit_ratio, gate.definition().pairs);
    let mut counts = [0_u32; 4];
    for campaign in 0..campaigns {
        let noise = world.noise(seeds, campaign, pairs, noise_sd);
        let verdict = |ratio| anyhow::Ok(gate.judge(&noise.at(ratio))?.verdict);
        let at_limit = verdict(limit)?;
        counts[0] += u32::from(at_limit == Verdict::Pass);
        counts[1] += u32::from(at_limit == Verdict::Fail);
        counts[2] += u32::from(verdict(1.0)? == Verdict::Pass);
        counts[3] += u32::from(verdict(limit * 1.03)? == Verdict::Fail);
    }
    let [pass, fail, pass_at_1, fail_above] =
        counts.map(|count| 100.0 * f64::from(count) / f64::from(campaigns));
    Ok(Row {
        world: world.name(),
        usual: world.is_usual(),
        campaigns,
        noise_sd,
        false_pass_percent: pass,
        false_fail_percent: fail,
        pass_at_1_percent: pass_at_1,
        fail_above_limit_percent: fail_above,
    })
}

fn header(gate: &Gate, campaigns: u32, noise_sd: f64) -> String {
    let (pairs, limit) = (gate.pairs, gate.limit_ratio);
    format!(
        "{campaigns} campaigns of {pairs} pairs per world, noise {:.1} %, limit {limit}; * is harder than a gate can stand\n\
         {:<20} {:>11} {:>11} {:>12} {:>12}\n",
        noise_sd * 100.0,
        "world",
        "false pass",
        "false fail",
        "pass at 1",
        "fail at +3 %"
    )
}

fn line(row: &Row) -> String {
    let name = format!("{}{}", row.world, if row.usual { "" } else { " *" });
    format!(
        "{name:<20} {:>9.2} % {:>9.2} % {:>10.2} % {:>10.2} %\n",
        row.false_pass_percent, row.false_fail_percent, row.pass_at_1_percent, row.fail_above_limit_percent
    )
}
