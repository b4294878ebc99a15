//! How often the gate and its rivals are wrong, on simulated campaigns whose truth is known.
//!
//! ```text
//! cargo bench -p paired-stats --bench gate_calibration -- [--check] [--campaigns N] [--seeds report|tuning]
//! ```
//!
//! The constants of the gate were chosen on the seed set `tuning`; what is printed comes from `report`, which
//! was not looked at before. `--check` exits with 1 when a target is missed.

mod methods;
mod table;

use std::process::ExitCode;

use methods::{METHODS, Methods};
use paired_stats::World;
use table::{Cell, RATIOS, Results};

/// The standard deviation of the log ratio, where a world has one.
const NOISE: f64 = 0.04;

struct Options {
    campaigns: u32,
    check: bool,
    seeds: String,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("gate_calibration: {message}");
            return ExitCode::from(2);
        }
    };
    let results = simulate(&options);
    println!(
        "{} campaigns per world and ratio, seed set {:?}, 60 pairs, limit 1.05",
        options.campaigns, options.seeds
    );
    let met = table::print(&results, options.campaigns);
    if options.check && !met { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn options() -> Result<Options, String> {
    // Cargo passes --bench when it benchmarks; without it (a test run) a tenth of a tenth shows that all
    // still runs.
    let mut benchmark = false;
    let mut options = Options { campaigns: 40, check: false, seeds: "report".to_owned() };
    let mut campaigns = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--bench" => benchmark = true,
            "--check" => options.check = true,
            "--seeds" => options.seeds = value()?,
            "--campaigns" => {
                campaigns =
                    Some(value()?.parse().map_err(|error| format!("read the number of campaigns: {error}"))?);
            }
            other => return Err(format!("the argument {other:?} is not known")),
        }
    }
    options.campaigns = campaigns.unwrap_or(if benchmark { 4_000 } else { options.campaigns });
    if options.campaigns == 0 { Err("at least one campaign is needed".to_owned()) } else { Ok(options) }
}

/// One thread per core; each takes the next world. The result does not depend on who takes which.
fn simulate(options: &Options) -> Results {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = || {
        let methods = Methods::new();
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(world) = World::all().get(index) else { return done };
            done.push((index, one_world(world, &methods, options)));
        }
    };
    let mut all: Vec<(usize, [[Cell; METHODS.len()]; RATIOS.len()])> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    all.sort_by_key(|&(index, _)| index);
    all.into_iter().map(|(_, cells)| cells).collect()
}

fn one_world(world: &World, methods: &Methods, options: &Options) -> [[Cell; METHODS.len()]; RATIOS.len()] {
    let mut cells = [[Cell::default(); METHODS.len()]; RATIOS.len()];
    for campaign in 0..options.campaigns {
        // The same noise at every ratio, so that the tables differ by the ratio alone.
        let noise = world.noise(&options.seeds, campaign, 60, NOISE);
        for (ratio, row) in RATIOS.into_iter().zip(&mut cells) {
            let said = methods.all(&noise.at(ratio));
            row.iter_mut().zip(said).for_each(|(cell, said)| cell.count(said));
        }
    }
    cells
}
