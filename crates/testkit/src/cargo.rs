//! Builds with the cargo that runs the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `cargo build --offline` with these arguments in a package and returns the one executable it made.
///
/// The environment's cargo settings apply except for the target directory, which is `target`.
#[must_use]
pub fn cargo_build(package: &Path, arguments: &[&str], target: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--offline", "--quiet", "--message-format=json"])
        .args(arguments)
        .arg("--target-dir")
        .arg(target)
        .current_dir(package)
        .stderr(Stdio::piped())
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo build {arguments:?} in {}: {stderr}", package.display());
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
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
