//! The `pin-build` command: see `pin-build --help`.

mod build;
mod cli;
mod failure;
mod report;
mod staging;

fn main() -> command_line::Exit {
    command_line::guard("pin-build", cli::run)
}
