//! The `replay-master` command: not built yet, and it says so.

use clap::Parser;
use command_line::Exit;

/// Replay a timestamped trace of master RPC intents against a Mooncake master: not built yet.
#[derive(Debug, Parser)]
#[command(name = "replay-master", version, after_help = Exit::help_table())]
struct Cli {}

fn main() -> Exit {
    let Cli {} = Cli::parse();
    eprintln!("replay-master: not built yet");
    Exit::Usage
}
