//! From the command line to an exit code.

use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use anyhow::Error;
use clap::Parser;
use command_line::{Exit, MessageFormat, Output};
use cpu_placement::{LockError, PlanError, SpawnError, TopologyError, VerifyError};
use serde::Serialize;

use crate::options::{Command, Options};
use crate::{run, show};

/// What to exit with: a code of the table, or the status of the program that was run.
pub(crate) enum Ending {
    Exit(Exit),
    Program(u8),
}

pub(crate) fn main() -> ExitCode {
    let mut program = None;
    let exit = command_line::guard(
        "place-run",
        AssertUnwindSafe(|| match dispatch(&Options::parse()) {
            Ending::Exit(exit) => exit,
            Ending::Program(status) => {
                program = Some(status);
                Exit::Ok
            }
        }),
    );
    ExitCode::from(program.unwrap_or(exit.code()))
}

fn dispatch(options: &Options) -> Ending {
    let result = match &options.command {
        Command::Plan(plan) => show::plan(plan, options.message_format).map(Ending::Exit),
        Command::Show(plan) => show::tree(plan, options.message_format).map(Ending::Exit),
        Command::Run(run) => run::run(run, options.message_format),
        Command::Verify(verify) => show::verify(verify, options.message_format).map(Ending::Exit),
        Command::Host(host) => show::host(host, options.message_format).map(Ending::Exit),
    };
    result.unwrap_or_else(|error| {
        command_line::say!("place-run: failed to {}", command_line::describe_error(error.as_ref()));
        Ending::Exit(exit_of(&error))
    })
}

/// A result that could not be written: the machine's fault, not the input's.
#[derive(Debug)]
pub(crate) struct Unwritten(pub(crate) io::Error);

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("write the result")
    }
}

impl std::error::Error for Unwritten {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Whose fault it was: the machine's, the input's, or ours.
fn exit_of(error: &Error) -> Exit {
    if error
        .downcast_ref::<PlanError>()
        .is_some_and(|error| matches!(error, PlanError::NoSet | PlanError::Empty { .. }))
    {
        return Exit::Usage;
    }
    let unfit = match error.downcast_ref::<SpawnError>() {
        Some(spawn) => matches!(
            spawn,
            SpawnError::CpusNotAllowed { .. }
                | SpawnError::Affinity { .. }
                | SpawnError::AffinityNotKept { .. }
                | SpawnError::Memory { .. }
                | SpawnError::Start { .. }
                | SpawnError::Wait { .. }
        ),
        None => {
            error.is::<PlanError>()
                || error.is::<LockError>()
                || error.is::<Unwritten>()
                || matches!(error.downcast_ref(), Some(VerifyError::Refused { .. }))
                || matches!(error.downcast_ref(), Some(TopologyError::Online { .. }))
        }
    };
    if unfit { Exit::HostUnfit } else { Exit::BadInput }
}

/// Prints a result: as one line of JSON, or as text for a reader.
pub(crate) fn print(format: MessageFormat, json: &impl Serialize, human: &str) -> anyhow::Result<()> {
    let text = match format {
        MessageFormat::Json => serde_json::to_string(json)? + "\n",
        MessageFormat::Human => human.to_owned(),
    };
    let mut out = Output::stdout();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Unwritten)?)
}
