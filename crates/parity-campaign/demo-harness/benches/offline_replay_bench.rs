//! The program: replays a trace and writes its timing records and reports.

use std::process::ExitCode;

use demo_replay::{Failure, command};

fn main() -> ExitCode {
    match command(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}
