//! The tables, and the targets held against them.

use super::methods::{METHODS, Said};
use paired_stats::World;

/// The true median ratios.
pub(crate) const RATIOS: [f64; 4] = [1.00, 1.02, 1.05, 1.08];

/// How often a procedure said what.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cell {
    passed: u32,
    failed: u32,
}

impl Cell {
    pub(crate) fn count(&mut self, said: Said) {
        match said {
            Said::Pass => self.passed += 1,
            Said::Fail => self.failed += 1,
            Said::Nothing => {}
        }
    }

    fn percent(self, campaigns: u32) -> (f64, f64) {
        let percent = |count: u32| 100.0 * f64::from(count) / f64::from(campaigns);
        (percent(self.passed), percent(self.failed))
    }
}

/// Per world, per ratio, per procedure.
pub(crate) type Results = Vec<[[Cell; METHODS.len()]; RATIOS.len()]>;

/// The largest wanted rate of false passes and of false fails at the limit.
const WANTED_AT_MOST_PERCENT: f64 = 5.0;
/// The smallest wanted rate of right decisions on independent noise away from the limit.
const WANTED_AT_LEAST_PERCENT: f64 = 93.0;
/// The column of the gate in its default definition.
const THIS_GATE: usize = 0;

/// Prints everything and says whether every target was met.
pub(crate) fn print(results: &Results, campaigns: u32) -> bool {
    for (index, ratio) in RATIOS.into_iter().enumerate() {
        println!("\ntrue median ratio {ratio:.2}: pass % / fail %");
        print_row("", METHODS.map(str::to_owned));
        for (world, cells) in World::all().iter().zip(results) {
            let star = if world.is_usual() { "" } else { " *" };
            print_row(&format!("{}{star}", world.name()), cells[index].map(|cell| text(cell, campaigns)));
        }
    }
    println!("\n* harder than the target asks for");
    print_targets(results, campaigns)
}

fn print_row(name: &str, cells: [String; METHODS.len()]) {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>15}")).collect();
    println!("{name:<20}{}", cells.concat());
}

fn text(cell: Cell, campaigns: u32) -> String {
    let (passed, failed) = cell.percent(campaigns);
    format!("{passed:.2} / {failed:.2}")
}

fn print_targets(results: &Results, campaigns: u32) -> bool {
    let at = |ratio: f64| {
        RATIOS.iter().position(|&other| (other - ratio).abs() < 1e-9).expect("a simulated ratio")
    };
    // Three standard errors of a rate of 5 %: one target in about 700 is missed by accident.
    let error = 3.0 * (0.05 * 0.95 / f64::from(campaigns)).sqrt() * 100.0;
    let most = WANTED_AT_MOST_PERCENT + error;
    println!("\n{:<52} {:>10} {:>10}", "target", "measured", "");
    let mut met = true;
    for in_target in [true, false] {
        let worlds = World::all().iter().zip(results).filter(|(world, _)| world.is_usual() == in_target);
        let rates = worlds.flat_map(|(world, cells)| {
            let (passed, failed) = cells[at(1.05)][THIS_GATE].percent(campaigns);
            [(passed, world.name(), "false passes"), (failed, world.name(), "false fails")]
        });
        let Some((rate, name, what)) = rates.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        let scope = if in_target { "every world" } else { "(not a target) harder worlds" };
        let held = line(&format!("{scope}: at most 5 % wrong (+{error:.2})"), rate, rate <= most);
        println!("    worst: {what} in {name:?}");
        met &= held || !in_target;
    }
    let (passed, _) = results[0][at(1.00)][THIS_GATE].percent(campaigns);
    met &= line("independent, 1.00: at least 93 % pass", passed, passed >= WANTED_AT_LEAST_PERCENT);
    let (_, failed) = results[0][at(1.08)][THIS_GATE].percent(campaigns);
    met &= line("independent, 1.08: at least 93 % fail", failed, failed >= WANTED_AT_LEAST_PERCENT);
    met
}

fn line(target: &str, measured: f64, met: bool) -> bool {
    println!("{target:<52} {measured:>9.2}% {:>10}", if met { "met" } else { "missed" });
    met
}
