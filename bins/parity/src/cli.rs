use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use command_line::{Exit, MessageFormat};
use parity_campaign::ProfileWhen;
use parity_campaign::demo::Fault;

use crate::{compare, demo, exceptions, jobs, qualify, run, verify};

/// Compare two revisions of a KV-cache replay harness: behaviour first, then speed.
#[derive(Debug, Parser)]
#[command(name = "parity", version, after_help = Exit::help_table())]
struct Cli {
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    message_format: MessageFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a campaign from its file and keep the evidence
    Run(RunArgs),
    /// Go on with a campaign that was interrupted or killed: no sample is lost and none is taken twice
    Resume(ResumeArgs),
    /// Say where a campaign is
    Status(StatusArgs),
    /// End the Slurm jobs of a campaign; what they left is kept
    Cancel(CancelArgs),
    /// Work off one row inside its Slurm job; `parity run --executor slurm` submits such jobs
    Row(RowArgs),
    /// Build both revisions inside a Slurm job; submitted where slurm.build is "job"
    Build(BuildArgs),
    /// Search the capacity of one row on the baseline, freeze it, and hold it against the candidate
    Qualify(QualifyArgs),
    /// Try the whole protocol on a small harness that comes with this command
    Demo(DemoArgs),
    /// Write a campaign file with pinned revisions to start from
    Init(InitArgs),
    /// Check that the evidence of a finished campaign is whole and unaltered, and that its verdicts follow from it
    Verify(VerifyArgs),
    /// Say what differs between two finished campaigns: definition, commits, build, host, digests, counters, ratios
    CompareEvidence(CompareArgs),
    /// Work on records of accepted differences
    #[command(subcommand)]
    Exceptions(ExceptionsCommand),
}

/// Run a campaign.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The campaign file
    #[arg(long, value_name = "FILE")]
    pub(crate) campaign: PathBuf,
    /// Where the evidence goes; must not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// What works the rows off: this process, or one exclusive Slurm job each, all tasks of one array (docs/SLURM.md)
    #[arg(long, value_enum, default_value_t, value_name = "EXECUTOR")]
    pub(crate) executor: ExecutorArg,
    /// Submit every row, and one more job that resumes the campaign when all have ended; then leave
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
}

/// What is looked into after a measurement.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// When both arms of a row are profiled after its measurement, with `perf`; a profile decides nothing. Jobs go on with what
    /// `run` said
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) profile: When,
}

/// When both arms are profiled.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum When {
    /// When the row is too slow
    #[default]
    OnFail,
    /// Whenever a row was measured
    Always,
    /// Never
    Never,
}

impl From<When> for ProfileWhen {
    fn from(when: When) -> Self {
        match when {
            When::OnFail => ProfileWhen::OnFail,
            When::Always => ProfileWhen::Always,
            When::Never => ProfileWhen::Never,
        }
    }
}

/// What works the rows off.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum ExecutorArg {
    /// This process
    #[default]
    Local,
    /// Jobs of Slurm
    Slurm,
}

/// Look at a campaign.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The evidence so far
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Look again and again, until the campaign ends, and print what changed
    #[arg(long)]
    pub(crate) watch: bool,
    /// Time between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every_s: u64,
}

/// End the jobs of a campaign.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The evidence so far
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Work off one row: the one with the number of this task of the array.
#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// The folder that the campaign shares with its jobs
    #[arg(value_name = "JOBS")]
    pub(crate) jobs: PathBuf,
}

/// Build both revisions.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The folder that the campaign shares with its jobs
    #[arg(value_name = "JOBS")]
    pub(crate) jobs: PathBuf,
    /// The folder that relative paths of the campaign file start from
    #[arg(long, value_name = "DIR")]
    pub(crate) campaign_folder: PathBuf,
    /// The repository, instead of the one the campaign file names
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// As for `parity run`
    #[arg(long, value_name = "DIR")]
    pub(crate) seed: Option<PathBuf>,
    /// As for `parity run`
    #[arg(long, value_name = "DIR")]
    pub(crate) artifacts: Option<PathBuf>,
}

/// Where a campaign reads and works.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The repository, instead of the one the campaign file names
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// The trace, instead of the one the campaign file names; it must have the same SHA-256
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Node-local folder for artifacts and inputs while measuring
    #[arg(long, value_name = "DIR")]
    pub(crate) staging: Option<PathBuf>,
    /// Folder of the lock that keeps builds and measurements of this node apart; everybody on a node must use the same
    #[arg(long, value_name = "DIR")]
    pub(crate) node_lock: Option<PathBuf>,
    /// Take compiled registry packages over from this earlier build, such as build/b in the scratch folder of a campaign that
    /// was run with --keep-work; nothing else is ever taken over
    #[arg(long, value_name = "DIR")]
    pub(crate) seed: Option<PathBuf>,
    /// Keep artifacts in this folder, and take one over that an earlier campaign built of the same commit, patches, recipe,
    /// lock file, environment, configuration files and tools
    #[arg(long, value_name = "DIR")]
    pub(crate) artifacts: Option<PathBuf>,
    /// Keep checkouts, build trees and outputs below OUT/work
    #[arg(long)]
    pub(crate) keep_work: bool,
}

/// Go on with a campaign.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The evidence so far
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The campaign file it began with; a changed file is refused
    #[arg(long, value_name = "FILE")]
    pub(crate) campaign: PathBuf,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
}

/// Search a capacity.
#[derive(Debug, Args)]
pub(crate) struct QualifyArgs {
    /// The campaign file
    #[arg(long, value_name = "FILE")]
    pub(crate) campaign: PathBuf,
    /// The row; only its num_gpu_blocks varies
    #[arg(long, value_name = "NAME")]
    pub(crate) row: String,
    /// The capacity to start from, instead of the row's own
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) around: Option<u64>,
    /// Distance between two capacities, in blocks
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) step: u64,
    /// Capacities on each side of the first
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) steps: u64,
    /// Where the evidence goes; must not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Run the demonstration.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Plant this fault in the candidate
    #[arg(long, value_name = "FAULT", value_parser = clap::builder::PossibleValuesParser::new(FAULTS))]
    pub(crate) show: Option<String>,
    /// Keep the evidence here; must not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The faults by name.
pub(crate) const FAULTS: [&str; 6] =
    ["slower", "different", "unstable", "flood", "no-pressure", "missing-metric"];

impl DemoArgs {
    /// The fault asked for.
    pub(crate) fn fault(&self) -> anyhow::Result<Option<Fault>> {
        Ok(self.show.as_deref().map(str::parse).transpose()?)
    }
}

/// Write a campaign file.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Revision compared against: any name git understands; the file gets its full id
    #[arg(long, value_name = "REF")]
    pub(crate) baseline: String,
    /// Revision that must prove itself
    #[arg(long, value_name = "REF")]
    pub(crate) candidate: String,
    /// The repository that has both
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: PathBuf,
    /// The trace to cut the window from; without it, the published arXiv trace that the seeds were qualified on
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Where the file goes; stdout without it
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Work on exception records.
#[derive(Debug, Subcommand)]
pub(crate) enum ExceptionsCommand {
    /// Write the skeleton of a record from the differences that a campaign found
    Draft(DraftArgs),
}

/// Draft an exception record.
#[derive(Debug, Args)]
pub(crate) struct DraftArgs {
    /// The evidence of a campaign whose revisions differ
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Where the record goes; must not exist; stdout without it
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Compare evidence.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The evidence of one campaign
    #[arg(value_name = "A")]
    pub(crate) left: PathBuf,
    /// The evidence of another
    #[arg(value_name = "B")]
    pub(crate) right: PathBuf,
}

/// Check evidence.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The evidence
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

pub(crate) fn run() -> Exit {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => run::run(args, cli.message_format),
        Command::Resume(args) => run::resume(args, cli.message_format),
        Command::Status(args) => jobs::look(args, cli.message_format),
        Command::Cancel(args) => jobs::cancel(args, cli.message_format),
        Command::Row(args) => jobs::row(args, cli.message_format),
        Command::Build(args) => jobs::build(args, cli.message_format),
        Command::Qualify(args) => qualify::run(args, cli.message_format),
        Command::Demo(args) => demo::run(args, cli.message_format),
        Command::Init(args) => run::init(args),
        Command::Verify(args) => verify::run(args, cli.message_format),
        Command::CompareEvidence(args) => compare::run(args, cli.message_format),
        Command::Exceptions(ExceptionsCommand::Draft(args)) => exceptions::draft(args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
