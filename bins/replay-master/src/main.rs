//! The `replay-master` command: see `replay-master --help`.

mod cli;
mod failure;
mod inspect;
mod rewrite;
mod run;
mod sweep;
mod validate;

fn main() -> command_line::Exit {
    command_line::guard("replay-master", cli::run)
}
