//! Decides whether one command is slower than another, with error rates that are known.

mod calibrate;
mod cli;
mod definition;
mod explain;
mod input;
mod measure;
mod print;
mod program;
#[cfg(test)]
mod schemas;
mod strict;
mod words;

fn main() -> command_line::Exit {
    command_line::guard("paired-gate", cli::run)
}
