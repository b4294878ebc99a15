use std::path::PathBuf;

use clap::Parser;
use command_line::{Exit, MessageFormat};

use crate::build;

/// Pin one revision of a repository and build one recorded executable from it.
///
/// The revision is checked out in a private clone that only reads from REPO. The result, DIR, holds the executable,
/// record.json (everything that went into it), build.log and the patches; it appears whole or not at all.
#[derive(Debug, Parser)]
#[command(name = "pin-build", version, after_help = Exit::help_table())]
pub(crate) struct Cli {
    /// The repository; it is only read
    #[arg(value_name = "REPO")]
    pub(crate) repo: PathBuf,
    /// The full id of the commit: 40 hexadecimal digits; names are refused with the id they mean now
    #[arg(value_name = "COMMIT")]
    pub(crate) commit: String,
    /// How to build: a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) recipe: PathBuf,
    /// Where the result goes; must not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Apply this patch to the checkout; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Vec<PathBuf>,
    /// Take the id of a tag object for the commit it points at
    #[arg(long)]
    pub(crate) peel_tag: bool,
    /// Accept a revision with submodules; their folders stay empty
    #[arg(long)]
    pub(crate) without_submodules: bool,
    /// Check out and build here, and keep it; must not exist. Without it, both happen beside DIR and are removed
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Start from the compiled registry packages of an earlier build that was kept: WORK/build
    #[arg(long, value_name = "DIR")]
    pub(crate) seed: Option<PathBuf>,
    /// How many jobs cargo runs at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Stop a build that takes longer
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time_limit: Option<u64>,
    /// How much disk must be free before the build starts
    #[arg(long, value_name = "BYTES")]
    pub(crate) free_bytes: Option<u64>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) message_format: MessageFormat,
}

pub(crate) fn run() -> Exit {
    let cli = Cli::parse();
    match build::run(&cli) {
        Ok(()) => Exit::Ok,
        Err(failure) => failure.report(),
    }
}
