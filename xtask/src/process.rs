//! Starting other programs and saying what was started.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
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
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
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
    let code = status.code().or_else(|| signal(status).map(|number| 128 + number)).unwrap_or(70);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(70)))
}

fn signal(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
