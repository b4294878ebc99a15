//! The `mooncake-slice` command: see `mooncake-slice --help`.

mod cli;
mod report;

fn main() -> command_line::Exit {
    command_line::guard("mooncake-slice", cli::run)
}
