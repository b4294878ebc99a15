//! The `parity` command: see `parity --help`.

mod cli;
mod compare;
mod console;
mod demo;
mod exceptions;
mod jobs;
mod qualify;
mod run;
mod verify;

fn main() -> command_line::Exit {
    command_line::guard("parity", cli::run)
}
