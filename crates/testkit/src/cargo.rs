//! Other programs: the cargo that runs the tests, and what it built.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a program to its end and returns what it wrote, whether it did well or not.
#[must_use]
pub fn run(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()))
}

/// Runs cargo in a package and returns its stdout. It must succeed.
pub fn cargo(package: &Path, arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(arguments).current_dir(package).output().expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?} in {}: {stderr}", package.display());
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// Runs `cargo build --offline` with these arguments in a package and returns the one executable it made.
///
/// The environment's cargo settings apply except for the target directory, which is `target`.
#[must_use]
pub fn cargo_build(package: &Path, arguments: &[&str], target: &Path) -> PathBuf {
    let target = target.to_str().expect("a path in UTF-8");
    let common = ["build", "--offline", "--quiet", "--message-format=json", "--target-dir", target];
    let messages = cargo(package, &[&common, arguments].concat());
    let made: Vec<PathBuf> = messages.lines().filter_map(executable).collect();
    match &made[..] {
        [one] => one.clone(),
        other => panic!("cargo build {arguments:?} made {other:?}, expected one executable"),
    }
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).expect("cargo writes JSON");
    message.get("executable")?.as_str().map(PathBuf::from)
}
