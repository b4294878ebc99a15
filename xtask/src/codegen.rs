//! `cargo xtask codegen [--check]`: files written by the programs themselves, so that they cannot go stale.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{Stop, cargo, root};

/// The seven commands; each one's `--help` is kept in `docs/help/`.
const COMMANDS: [&str; 7] =
    ["canon-digest", "paired-gate", "mooncake-slice", "pin-build", "place-run", "replay-master", "parity"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [one] if one == "--check" => true,
        [other, ..] => return Err(Stop::usage(format!("codegen takes only --check, found {other:?}"))),
    };
    let mut stale = Vec::new();
    for command in COMMANDS {
        let path = root().join("docs/help").join(format!("{command}.txt"));
        settle(&path, &help(command)?, check, &mut stale)?;
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("generated files are stale; run `cargo xtask codegen`: {}", stale.join(", "))
}

fn help(command: &str) -> Result<String> {
    let mut run = cargo();
    run.current_dir(root()).args(["run", "--quiet", "--locked", "--package", command, "--", "--help"]);
    // clap wraps to the terminal; a fixed width keeps the file the same everywhere.
    let output = run.env("COLUMNS", "100").output().with_context(|| format!("run {command} --help"))?;
    if !output.status.success() {
        bail!("{command} --help: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command} --help is not UTF-8"))
}

fn settle(path: &PathBuf, text: &str, check: bool, stale: &mut Vec<String>) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if check {
        let name = path.strip_prefix(root()).unwrap_or(path);
        stale.push(name.display().to_string());
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
