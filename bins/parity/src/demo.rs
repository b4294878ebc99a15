use std::path::Path;

use command_line::{Exit, MessageFormat, describe_error};
use parity_campaign::demo::create;
use parity_campaign::{Options, ScratchClaim, demo_campaign};

use crate::cli::DemoArgs;
use crate::console::{Failure, exit_of};
use crate::run::campaign;

pub(crate) fn run(args: &DemoArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let scratch = tempfile::Builder::new()
        .prefix("kvrp-demo-")
        .tempdir()
        .map_err(|error| unfit("make a temporary folder", &error))?;
    let claim = ScratchClaim::new(&Options::new("").staging, &[scratch.path()])
        .map_err(|error| unfit("claim a temporary folder", &error))?;
    let demo = create(&scratch.path().join("demo"), args.fault()?)
        .map_err(|error| Failure::new(Exit::HostUnfit, describe_error(&error)))?;
    let folder = demo.trace.parent().unwrap_or(Path::new("."));
    let file =
        demo_campaign(&demo, folder).map_err(|error| Failure::new(Exit::Bug, describe_error(&error)))?;
    let out = args.out.clone().unwrap_or_else(|| scratch.path().join("evidence"));
    let report = campaign(&file, &Options::new(&out), format)?;
    scratch.close().map_err(|error| unfit("remove a temporary folder", &error))?;
    drop(claim);
    if let Some(kept) = &args.out {
        command_line::say!("parity: the evidence is in {}", kept.display());
    }
    Ok(exit_of(&report))
}

/// The machine's fault, not ours.
fn unfit(action: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::HostUnfit, format!("{action}: {error}"))
}
