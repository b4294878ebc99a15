//! The `place-run` command: see `place-run --help`.

use std::process::ExitCode;

mod cli;
mod options;
mod run;
mod show;
mod tree;

fn main() -> ExitCode {
    cli::main()
}
