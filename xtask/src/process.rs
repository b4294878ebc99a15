//! Starting other programs and saying what was started.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Error, Result};

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
}

/// An error that has an exit code of its own; any other ends with 1.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) code: u8,
    message: String,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Stop {}

impl Stop {
    fn error(code: u8, message: impl Into<String>) -> Error {
        Error::new(Stop { code, message: message.into() })
    }

    /// The arguments are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Stop::error(2, message)
    }

    /// Something is missing on this machine and cannot be installed.
    pub(crate) fn unfit(message: impl Into<String>) -> Error {
        Stop::error(5, message)
    }

    /// The exit code that an error asks for.
    pub(crate) fn code_of(error: &Error) -> u8 {
        error.chain().find_map(|cause| cause.downcast_ref::<Stop>()).map_or(1, |stop| stop.code)
    }
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command from the root of the tree; anything but success is an error that shows the command.
pub(crate) fn step(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("xtask: {shown}");
    let status = command.current_dir(root()).status().with_context(|| format!("cannot start {shown}"))?;
    if status.success() { Ok(()) } else { Err(Stop::error(code_of(status), format!("{shown}: {status}"))) }
}

/// Whether a program can be started and says it is well.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Hands the terminal to a command and passes its exit code on.
pub(crate) fn hand_over(command: &mut Command) -> Result<ExitCode> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    Ok(ExitCode::from(code_of(status)))
}

/// The exit code of a command, as a shell would pass it on.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(70)
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_exit_code_however_deep() {
        let deep = || Result::<()>::Err(Stop::usage("no such option")).context("read the arguments");
        for (error, code) in [
            (deep().expect_err("an error"), 2),
            (Stop::unfit("no git"), 5),
            (anyhow::anyhow!("a check failed"), 1),
            (step(Command::new("sh").args(["-c", "exit 3"])).expect_err("an error"), 3),
            (step(Command::new("sh").args(["-c", "kill -TERM $$"])).expect_err("an error"), 143),
        ] {
            assert_eq!(Stop::code_of(&error), code, "{error:#}");
        }
    }
}
