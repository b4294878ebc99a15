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
    for (name, schema) in schemas()? {
        let path = root().join("docs/schema").join(format!("{name}.schema.json"));
        settle(&path, &schema, check, &mut stale)?;
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

/// The JSON schemas of what a campaign reads and writes, by name.
fn schemas() -> Result<Vec<(String, String)>> {
    let mut run = cargo();
    run.current_dir(root()).args(["run", "--quiet", "--locked", "--package", "parity-campaign"]);
    run.args(["--features", "schema", "--example", "schemas"]);
    let output = run.output().context("run the example schemas")?;
    if !output.status.success() {
        bail!("the example schemas: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("the schemas are not UTF-8")?;
    Ok(by_name(&text))
}

/// What follows each line `== NAME`; within JSON no line begins so.
fn by_name(text: &str) -> Vec<(String, String)> {
    let parts = text.strip_prefix("== ").into_iter().flat_map(|text| text.split("\n== "));
    let named = parts.filter_map(|part| part.split_once('\n'));
    named.map(|(name, text)| (name.to_owned(), format!("{}\n", text.trim_end()))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_by_their_heading() {
        let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(by_name("== a\n{\n}\n== b\n[]\n"), [named("a", "{\n}\n"), named("b", "[]\n")]);
        assert!(by_name("").is_empty());
    }
}
