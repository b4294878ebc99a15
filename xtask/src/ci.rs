//! `cargo xtask ci`: everything that must hold before a change lands.

use std::process::Command;

use anyhow::Result;

use crate::process::{Stop, cargo, step};
use crate::{codegen, fuzz, setup, test, tidy};

/// The demonstration's harness is no member of the workspace; rustfmt follows its modules from here.
const DEMO_ROOTS: [&str; 2] = [
    "crates/parity-campaign/demo-harness/src/lib.rs",
    "crates/parity-campaign/demo-harness/benches/offline_replay_bench.rs",
];

const WITHOUT_TESTS: &str = "--without-tests";
const WITHOUT_FUZZ: &str = "--without-fuzz";

/// What can be left out.
const PARTS: [&str; 2] = [WITHOUT_TESTS, WITHOUT_FUZZ];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let is_left_out = |part: &str| args.iter().any(|arg| arg == part);
    if let Some(other) = args.iter().find(|arg| !PARTS.contains(&arg.as_str())) {
        return Err(Stop::usage(format!("ci takes only {}, found {other:?}", PARTS.join(" and "))));
    }
    setup::for_ci()?;
    step(cargo().args(["fmt", "--all", "--check"]))?;
    step(Command::new("rustfmt").args(["--check", "--edition", "2024"]).args(DEMO_ROOTS))?;
    tidy::run(&[])?;
    codegen::run(&["--check".to_owned()])?;
    let lint = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--quiet"];
    step(cargo().args(lint).args(["--", "--deny", "warnings"]))?;
    let document = ["doc", "--workspace", "--no-deps", "--all-features", "--locked", "--quiet"];
    step(cargo().args(document).env("RUSTDOCFLAGS", "--deny warnings"))?;
    step(cargo().args(["deny", "--locked", "--all-features", "check", "bans", "licenses", "sources"]))?;
    if !is_left_out(WITHOUT_FUZZ) {
        fuzz::run(&[])?;
    }
    if !is_left_out(WITHOUT_TESTS) {
        test::run(&[])?;
    }
    Ok(())
}
