use std::path::Path;

use anyhow::Context;
use command_line::{Exit, MessageFormat, describe_error};
use parity_campaign::demo::create;
use parity_campaign::{Options, ScratchClaim, demo_campaign};

use crate::cli::DemoArgs;
use crate::console::{Failure, exit_of};
use crate::run::campaign;

pub(crate) fn run(args: &DemoArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let scratch =
        tempfile::Builder::new().prefix("kvrp-demo-").tempdir().context("make a temporary folder")?;
    let claim = ScratchClaim::new(&Options::new("").staging, &[scratch.path()])
        .context("claim a temporary folder")?;
    let demo = create(&scratch.path().join("demo"), args.fault()?)
        .map_err(|error| Failure::new(Exit::HostUnfit, describe_error(&error)))?;
    let folder = demo.trace.parent().unwrap_or(Path::new("."));
    let file =
        demo_campaign(&demo, folder).map_err(|error| Failure::new(Exit::Bug, describe_error(&error)))?;
    let out = args.out.clone().unwrap_or_else(|| scratch.path().join("evidence"));
    let report = campaign(&file, &Options::new(&out), format)?;
    scratch.close().context("remove a temporary folder")?;
    drop(claim);
    if let Some(kept) = &args.out {
        eprintln!("parity: the evidence is in {}", kept.display());
    }
    Ok(exit_of(&report))
}
