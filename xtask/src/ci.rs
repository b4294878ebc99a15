//! `cargo xtask ci`: everything that must hold before a change lands.

use anyhow::{Result, bail};

use crate::process::{cargo, step};
use crate::{codegen, setup, test, tidy};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let with_tests = match args {
        [] => true,
        [one] if one == "--without-tests" => false,
        [other, ..] => bail!("ci takes only --without-tests, found {other:?}"),
    };
    setup::for_ci()?;
    step(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::run(&[])?;
    codegen::run(&["--check".to_owned()])?;
    let lint = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--quiet"];
    step(cargo().args(lint).args(["--", "--deny", "warnings"]))?;
    let document = ["doc", "--workspace", "--no-deps", "--all-features", "--locked", "--quiet"];
    step(cargo().args(document).env("RUSTDOCFLAGS", "--deny warnings"))?;
    step(cargo().args(["deny", "--locked", "--all-features", "check", "bans", "licenses", "sources"]))?;
    if with_tests {
        test::run(&[])?;
    }
    Ok(())
}
