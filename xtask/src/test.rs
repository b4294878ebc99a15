//! `cargo xtask test`: every test, on a machine that may lack everything.

use anyhow::Result;

use crate::process::{cargo, step};
use crate::setup;

pub(crate) fn run(args: &[String]) -> Result<()> {
    setup::for_tests()?;
    step(
        cargo()
            .args(["nextest", "run", "--workspace", "--all-features", "--locked", "--no-fail-fast"])
            .args(args),
    )?;
    step(cargo().args(["test", "--workspace", "--all-features", "--locked", "--doc", "--quiet"]))
}
