//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use command_line::{Exit, MessageFormat};
use cpu_placement::{
    CpuSet, Housekeeping, MAX_INDEX, NodeSet, ParseSetError, PlanRequest, Siblings, Topology,
};

/// Plans, shows, runs and verifies where a program runs: which cores, which memory.
#[derive(Debug, Parser)]
#[command(name = "place-run", version, after_help = Exit::help_table())]
pub(crate) struct Options {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) message_format: MessageFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan disjoint sets of physical cores.
    Plan(PlanOptions),
    /// Draw the machine as a tree, with the plan on it.
    Show(PlanOptions),
    /// Run a program on planned cores; forwards signals and the exit status.
    Run(Box<RunOptions>),
    /// Look at a process: where its threads and its memory are, and whether that is as expected.
    Verify(VerifyOptions),
    /// Print what a reader of a measurement must know of this machine.
    Host(HostOptions),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SiblingChoice {
    /// One hardware thread of each core is used, the others stay idle.
    Idle,
    /// All hardware threads of each core are used.
    Together,
}

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    /// How many sets of the same size.
    #[arg(long, default_value_t = 1, conflicts_with = "set", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INDEX) + 1))]
    sets: u32,
    /// How many physical cores each set has.
    #[arg(long, default_value_t = 1, conflicts_with = "set")]
    cores: usize,
    /// A set by name and number of cores, for example `master=4`; may be given several times.
    #[arg(long, value_name = "NAME=CORES", value_parser = parse_set)]
    set: Vec<(String, usize)>,
    #[command(flatten)]
    machine: MachineOptions,
}

#[derive(Debug, Args)]
pub(crate) struct MachineOptions {
    /// What becomes of the other hardware threads of a planned core.
    #[arg(long, value_enum, default_value = "idle")]
    siblings: SiblingChoice,
    /// Keep no core for everything else.
    #[arg(long)]
    give_housekeeping: bool,
    /// Plan for another machine: a file that hwloc 2 exported.
    #[arg(long, value_name = "XML")]
    topology: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// How many physical cores, planned on this machine.
    #[arg(long, default_value_t = 1, conflicts_with = "cpus")]
    pub(crate) cores: usize,
    /// These CPUs exactly, instead of planned ones.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub(crate) cpus: Option<CpuSet>,
    /// What becomes of the other hardware threads of a planned core.
    #[arg(long, value_enum, default_value = "idle", conflicts_with = "cpus")]
    pub(crate) siblings: SiblingChoice,
    /// Keep no core for everything else.
    #[arg(long, conflicts_with = "cpus")]
    pub(crate) give_housekeeping: bool,
    /// Where memory comes from: `local` (the nodes of the CPUs), `any`, or a list of nodes.
    #[arg(long, default_value = "local", value_name = "local|any|LIST")]
    pub(crate) numa: Numa,
    /// Do not run when the kernel refuses the memory policy.
    #[arg(long)]
    pub(crate) require_memory: bool,
    /// Bind nothing: somebody else has, and it is only verified.
    #[arg(long)]
    pub(crate) expect: bool,
    /// End the program after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit: Option<Duration>,
    /// Seconds between SIGTERM and SIGKILL when it is ended.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) grace: Duration,
    /// Exit as for an unfit host when the program succeeded and something was not as planned.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Look at the threads every millisecond and say whether one core is enough; not for measuring.
    #[arg(long)]
    pub(crate) preflight: bool,
    /// Write what was seen into this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Write the program's stdout into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) stdout: Option<PathBuf>,
    /// Write the program's stderr into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) stderr: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The process.
    #[arg(long)]
    pub(crate) pid: u32,
    /// The CPUs every thread of it must be bound to.
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// The NUMA nodes all its private memory must be on.
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<NodeSet>,
}

#[derive(Debug, Args)]
pub(crate) struct HostOptions {
    /// Keep the name of the machine and the identity of its boot.
    #[arg(long)]
    pub(crate) with_name: bool,
}

/// Where memory comes from.
#[derive(Debug, Clone)]
pub(crate) enum Numa {
    Local,
    Any,
    Nodes(NodeSet),
}

impl std::str::FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "local" => Ok(Self::Local),
            "any" => Ok(Self::Any),
            list => match list.parse::<NodeSet>() {
                Ok(nodes) if nodes.is_empty() => Err("a set of no node".to_owned()),
                Ok(nodes) => Ok(Self::Nodes(nodes)),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn cpus(text: &str) -> Result<CpuSet, String> {
    let cpus: CpuSet = text.parse().map_err(|error: ParseSetError| error.to_string())?;
    if cpus.is_empty() { Err("a set of no CPU".to_owned()) } else { Ok(cpus) }
}

fn parse_set(text: &str) -> Result<(String, usize), String> {
    let (name, cores) = text.split_once('=').ok_or("not of the form NAME=CORES")?;
    let cores = cores.parse().map_err(|_| format!("{cores:?} is not a number of cores"))?;
    Ok((name.to_owned(), cores))
}

/// A request for sets, with the choices that all commands share.
pub(crate) fn request(base: PlanRequest, siblings: SiblingChoice, give_housekeeping: bool) -> PlanRequest {
    let siblings = match siblings {
        SiblingChoice::Idle => Siblings::Idle,
        SiblingChoice::Together => Siblings::Together,
    };
    let housekeeping = if give_housekeeping { Housekeeping::Given } else { Housekeeping::Kept };
    base.siblings(siblings).housekeeping(housekeeping)
}

impl PlanOptions {
    pub(crate) fn request(&self) -> PlanRequest {
        let sets = usize::try_from(self.sets).unwrap_or(usize::MAX);
        let uniform = PlanRequest::uniform(sets, self.cores);
        let named = self.set.iter().fold(PlanRequest::new(), |all, (name, cores)| all.set(name, *cores));
        let base = if self.set.is_empty() { uniform } else { named };
        request(base, self.machine.siblings, self.machine.give_housekeeping)
    }

    pub(crate) fn topology(&self) -> anyhow::Result<Topology> {
        let Some(path) = &self.machine.topology else { return Ok(Topology::read()?) };
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Topology::from_hwloc_xml(&text).with_context(|| format!("understand {}", path.display()))
    }

    /// Whether the plan is for this machine.
    pub(crate) fn is_live(&self) -> bool {
        self.machine.topology.is_none()
    }
}
