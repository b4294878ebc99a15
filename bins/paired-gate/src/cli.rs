//! Arguments in, an exit code out.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use command_line::{Exit, MessageFormat};
use paired_run::{ConditionKind, Durability};
use paired_stats::{DiagnosticsDefinition, Gate, MAX_PAIRS, OnBreach, Probability, Schedule, Verdict};

use crate::definition::{MAX_WARMUPS, Metric};
use crate::{calibrate, definition, explain, input, measure, print};

/// Decide whether one command is slower than another, with error rates that are known.
#[derive(Parser)]
#[command(name = "paired-gate", version, after_help = Exit::help_table())]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t)]
    message_format: MessageFormat,
}

#[derive(Subcommand)]
enum Command {
    /// Print the order in which pairs would run.
    Schedule(ScheduleArgs),
    /// Print a definition of a gate, to be kept and given to `decide`.
    Define(GateArgs),
    /// Measure two commands in pairs and judge them.
    Run(Box<RunArgs>),
    /// Go on with a run that was stopped.
    Resume {
        /// The directory of the run.
        directory: PathBuf,
        #[command(flatten)]
        lock: LockArgs,
    },
    /// Judge times that were taken before: a JSONL or CSV file, two hyperfine JSON files, or the directory of
    /// a run.
    Decide(DecideArgs),
    /// Say in words what a judgement means and what to do next.
    Explain {
        /// The directory of a run, its report.json, or the output of `decide --message-format json`.
        path: PathBuf,
    },
    /// Simulate campaigns whose truth is known and count how often a gate would be wrong.
    Calibrate(CalibrateArgs),
}

#[derive(Args)]
struct ScheduleArgs {
    /// How many pairs.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAIRS)))]
    pairs: u32,
    /// How many warm-ups each arm gets.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_WARMUPS)))]
    warmups: u32,
    /// The seed of the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a gate is made of. The flags become a definition before anything is measured.
#[derive(Args)]
pub(crate) struct GateArgs {
    /// How many pairs; another number is another experiment.
    #[arg(long, default_value_t = 60)]
    pub(crate) pairs: u32,
    /// The largest ratio (candidate divided by baseline) that passes.
    #[arg(long, default_value_t = 1.05)]
    limit: f64,
    /// The confidence of each bound, one-sided.
    #[arg(long, default_value_t = 0.95, value_parser = probability)]
    confidence: f64,
    /// How many rows share the false-alarm rate of the diagnostics.
    #[arg(long, default_value_t = 1)]
    rows: u32,
    /// What dependence between the pairs leads to.
    #[arg(long, default_value = "inconclusive", value_parser = ["inconclusive", "dependence-aware"])]
    on_breach: String,
    /// A telemetry series that is tested for a trend; may be repeated.
    #[arg(long)]
    telemetry: Vec<String>,
    /// Judge pairs although it is not known which arm ran first.
    #[arg(long)]
    arm_order_unknown: bool,
}

impl GateArgs {
    pub(crate) fn gate(&self) -> anyhow::Result<Gate> {
        let on_breach = match self.on_breach.as_str() {
            "dependence-aware" => OnBreach::DependenceAware,
            _ => OnBreach::Inconclusive,
        };
        let diagnostics = DiagnosticsDefinition {
            rows: self.rows,
            telemetry: self.telemetry.clone(),
            require_arm_order: !self.arm_order_unknown,
            ..DiagnosticsDefinition::default()
        };
        let (pairs, limit_ratio) = (self.pairs, self.limit);
        let confidence = Probability::new(self.confidence)?;
        let gate = Gate { pairs, limit_ratio, confidence, on_breach, diagnostics, ..Gate::default() };
        gate.prepare()?;
        Ok(gate)
    }
}

fn probability(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Probability::new(value).map(Probability::get).map_err(|error| error.to_string())
}

fn noise(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if percent > 0.0 && percent <= 100.0 {
        Ok(percent)
    } else {
        Err("not above 0 and at most 100".to_owned())
    }
}

/// Where measurements and builds of one node keep out of each other's way.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// A directory that only this node sees; one that every user may write to by default.
    #[arg(long, value_name = "DIR")]
    lock_dir: Option<PathBuf>,
}

impl LockArgs {
    pub(crate) fn directory(&self) -> PathBuf {
        self.lock_dir.clone().unwrap_or_else(cpu_placement::NodeLock::default_directory)
    }
}

/// Conditions have the names that they have in files.
fn condition(name: &str) -> Result<ConditionKind, String> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|error| error.to_string())
}

/// As in files, too.
fn durability(name: &str) -> Result<Durability, String> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|error| error.to_string())
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The command of the baseline: words, quoted as in a shell, but no shell runs it. `{out}` is a fresh
    /// file.
    #[arg(long, required_unless_present = "definition")]
    pub(crate) baseline: Option<String>,
    /// The command of the candidate.
    #[arg(long, required_unless_present = "definition")]
    pub(crate) candidate: Option<String>,
    /// The directory for definition, evidence and report; it must not exist.
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// What is compared: `wall`, `cpu`, or `json:/pointer` into the file that the command writes to `{out}`.
    #[arg(long, default_value = "wall")]
    pub(crate) metric: Metric,
    /// How many warm-ups each arm gets.
    #[arg(long, default_value_t = 5)]
    pub(crate) warmups: u32,
    /// The seed of the order.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// The CPUs that both arms run on, as in `2` or `2-3,8`.
    #[arg(long)]
    pub(crate) cpus: Option<String>,
    /// A variable of the environment that both arms get (PATH and HOME always); may be repeated.
    #[arg(long)]
    pub(crate) env: Vec<String>,
    /// How long one run may take.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time_limit: Option<u64>,
    /// Other load on the CPUs above this share, in millionths, makes a pair invalid.
    #[arg(long, value_name = "PPM", requires = "cpus")]
    pub(crate) others_ppm: Option<u64>,
    /// Time taken by the hypervisor above this share, in millionths, makes a pair invalid.
    #[arg(long, value_name = "PPM", requires = "cpus")]
    pub(crate) steal_ppm: Option<u64>,
    /// A condition that makes a pair invalid, as in `throttled` or `interrupted`; may be repeated. By default
    /// all that speak of placement, throttling, load above its limit, and interruption.
    #[arg(long, value_name = "CONDITION", value_parser = condition)]
    pub(crate) invalidate_on: Vec<ConditionKind>,
    /// How often one pair may be taken again.
    #[arg(long, default_value_t = 2)]
    pub(crate) reruns_per_pair: u32,
    /// How often pairs may be taken again, all together.
    #[arg(long, default_value_t = 6)]
    pub(crate) reruns_per_row: u32,
    /// The run that this one follows, and why: a second measurement says that it is one.
    #[arg(long)]
    pub(crate) follows: Option<String>,
    /// When the record of an attempt is on the disk: waited for while the next one runs, or at once.
    #[arg(long, default_value = "overlapped", value_parser = durability)]
    pub(crate) durability: Durability,
    /// A definition file instead of all other flags but --out and --lock-dir.
    #[arg(long, conflicts_with_all = [
        "baseline", "candidate", "metric", "warmups", "seed", "pairs", "limit", "confidence", "rows", "on_breach",
        "telemetry", "arm_order_unknown", "cpus", "env", "time_limit", "others_ppm", "steal_ppm", "invalidate_on",
        "reruns_per_pair", "reruns_per_row", "follows", "durability",
    ])]
    pub(crate) definition: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) lock: LockArgs,
}

#[derive(Args)]
struct DecideArgs {
    /// One file or directory, or two hyperfine files: baseline, then candidate.
    #[arg(required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// The definition that was fixed beforehand; without it, the default gate (60 pairs, limit 1.05).
    #[arg(long)]
    definition: Option<PathBuf>,
}

#[derive(Args)]
struct CalibrateArgs {
    /// The definition to calibrate; without it, the default gate.
    #[arg(long)]
    definition: Option<PathBuf>,
    /// Campaigns per world and ratio.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    campaigns: u32,
    /// The standard deviation of the log ratio, in per cent.
    #[arg(long, default_value_t = 4.0, value_parser = noise)]
    noise_percent: f64,
    /// Any text: the same text gives the same campaigns.
    #[arg(long, default_value = "calibrate")]
    seeds: String,
}

/// Parses, dispatches, and turns an error into an exit code.
pub(crate) fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A closed pipe is not an error, and there is nowhere left to say anything else.
            let _ = error.print();
            return exit;
        }
    };
    dispatch(cli).unwrap_or_else(|error| {
        command_line::say!("paired-gate: failed to {error:#}");
        exit_of(&error)
    })
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let format = cli.message_format;
    match cli.command {
        Command::Schedule(args) => {
            print::schedule(&Schedule::generate(args.seed, args.pairs, args.warmups), format)?;
            Ok(Exit::Ok)
        }
        Command::Define(args) => {
            let gate = args.gate().map_err(|error| Classified::error(Exit::Usage, error))?;
            print::text(&definition::gate_to_toml(&gate)?)?;
            Ok(Exit::Ok)
        }
        Command::Run(args) => measure::run(&args, format),
        Command::Resume { directory, lock } => measure::resume(&directory, &lock, format),
        Command::Decide(args) => decide(&args, format),
        Command::Explain { path } => explain::explain(&path, format),
        Command::Calibrate(args) => {
            let gate = gate(args.definition.as_deref())?;
            calibrate::calibrate(&gate, args.campaigns, args.noise_percent / 100.0, &args.seeds, format)
        }
    }
}

fn decide(args: &DecideArgs, format: MessageFormat) -> anyhow::Result<Exit> {
    if let [directory] = &args.files[..]
        && directory.is_dir()
    {
        return measure::judge_again(directory, args.definition.as_deref(), format);
    }
    let sample = input::read(&args.files).map_err(|error| Classified::error(Exit::BadInput, error))?;
    let origin = if args.definition.is_some() { print::Origin::Given } else { print::Origin::Default };
    let gate = gate(args.definition.as_deref())?;
    let judgement = gate.judge(&sample).context("judge these pairs").map_err(|error| {
        let hint = "`paired-gate define --pairs N` writes a definition for another number of pairs";
        Classified::error(Exit::BadInput, error.context(hint))
    })?;
    print::judgement(&judgement, &sample, origin, format)?;
    Ok(exit_for(&judgement.verdict))
}

fn gate(path: Option<&std::path::Path>) -> anyhow::Result<Gate> {
    path.map_or_else(|| Ok(default_gate()), definition::read_gate)
}

/// What `define` prints without flags: the gate of a single row.
fn default_gate() -> Gate {
    let diagnostics = DiagnosticsDefinition { rows: 1, ..DiagnosticsDefinition::default() };
    Gate { diagnostics, ..Gate::default() }
}

/// The exit code of a verdict.
pub(crate) fn exit_for(verdict: &Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::Differs,
        Verdict::Inconclusive { .. } => Exit::Inconclusive,
    }
}

/// An error that knows its exit code.
#[derive(Debug)]
pub(crate) struct Classified {
    exit: Exit,
    message: String,
}

impl Classified {
    pub(crate) fn error(exit: Exit, error: impl Into<anyhow::Error>) -> anyhow::Error {
        anyhow::Error::new(Self { exit, message: format!("{:#}", error.into()) })
    }
}

impl std::fmt::Display for Classified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Classified {}

/// What is not classified is a machine that cannot do what was asked: no space, no permission.
fn exit_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Classified>().map_or(Exit::HostUnfit, |classified| classified.exit)
}
