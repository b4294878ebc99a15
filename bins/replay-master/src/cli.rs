use clap::{Parser, Subcommand};
use command_line::Exit;

use crate::failure::{Failure, report};
use crate::{inspect, rewrite, run, sweep, validate};

/// Check, cut, convert and replay traces of master RPC intents against a real Mooncake master.
///
/// A trace says what calls were made, when, by which client, on which keys, and what each one waited for. A replay makes
/// the same calls again at the same times against a master of its own, without any payload, and reports what became of
/// every call.
#[derive(Debug, Parser)]
#[command(name = "replay-master", version, after_help = Exit::help_table())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check traces against the contract: every broken rule has a name, a line and a column
    Validate(validate::Args),
    /// Say what traces offer: calls, keys, clients, rates
    Stats(inspect::Args),
    /// Cut a part out of a trace, as a valid trace
    Slice(rewrite::SliceArgs),
    /// Write a version 1 or unversioned trace as version 2
    Convert(rewrite::ConvertArgs),
    /// Replay a trace against a fresh master, and write all about it
    Run(Box<run::Args>),
    /// Replay a trace faster and faster, until the master no longer keeps up
    Sweep(Box<sweep::Args>),
    /// The replayer's process of `run`
    #[command(hide = true)]
    Drive(run::DriveArgs),
}

pub(crate) fn run() -> Exit {
    let result = match Cli::parse().command {
        Command::Validate(args) => validate::run(&args),
        Command::Stats(args) => inspect::run(&args),
        Command::Slice(args) => rewrite::slice(&args),
        Command::Convert(args) => rewrite::convert(&args),
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Drive(args) => run::drive(&args),
    };
    result.unwrap_or_else(|failure: Failure| report(&failure))
}
