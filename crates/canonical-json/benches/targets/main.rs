//! Whether the targets for speed, memory and cost are met.
//!
//! `cargo bench -p canonical-json --bench targets -- [--check] [--quick]`
//!
//! Prints `what  target  measured  met|missed` per line; with `--check`, a miss exits 1. `--quick` does a tenth of the
//! work, to see that everything runs.
//!
//! Everything that is compared takes turns on the same input in the same run, on one thread. Times are processor times
//! of that thread, and the shortest are compared: what else the machine does only ever adds time. The other
//! implementations do the same work: they read the text, write its canonical form, and hash that.

mod clock;
mod cost;
mod inputs;
mod memory;
mod report;
mod speed;

use std::process::ExitCode;

use report::Report;

/// How much work is done.
struct Scale {
    divisor: usize,
}

fn main() -> ExitCode {
    let mut check = false;
    let mut scale = Scale { divisor: 1 };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            "--quick" => scale.divisor = 10,
            // Cargo says so to every bench target.
            "--bench" => {}
            other => {
                eprintln!("unknown argument {other}: expected --check or --quick");
                return ExitCode::from(2);
            }
        }
    }
    let mut report = Report::default();
    memory::measure(&mut report, &scale);
    speed::measure(&mut report, &scale);
    cost::measure(&mut report, &scale);
    report.finish();
    if check && report.missed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
