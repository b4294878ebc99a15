//! `cargo xtask parity ARGS...`: the same command as `parity ARGS...`, from the source tree.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::process::{cargo, hand_over, root, step};
use crate::setup;

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    setup::for_parity()?;
    step(cargo().args(["build", "--quiet", "--release", "--locked", "--package", "parity"]))?;
    hand_over(Command::new(program()).args(args))
}

/// The command that [`run`] builds.
pub(crate) fn program() -> std::path::PathBuf {
    target().join("release/parity")
}

/// Where cargo puts what it builds.
fn target() -> std::path::PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}
