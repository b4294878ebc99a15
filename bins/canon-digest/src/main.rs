//! The `canon-digest` command: see `canon-digest --help`.

mod cli;
mod failure;
mod inputs;
mod print;
mod rules;

fn main() -> command_line::Exit {
    command_line::guard("canon-digest", cli::run)
}
