//! `place-run run`: one program in its place.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context;
use command_line::{Exit, MessageFormat};
use cpu_placement::{
    Binding, CancelToken, CpuSet, Finished, Hazard, Input, MemoryBinding, NodeSet, Orphans, Outcome, Output,
    Plan, PlanRequest, Preflight, Run, Topology,
};
use serde::Serialize;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use crate::cli::{Ending, Unwritten, print};
use crate::options::{Numa, RunOptions, request};

/// What happened, as JSON.
#[derive(Serialize)]
struct RunMessage<'a> {
    schema: &'static str,
    plan: Option<Plan>,
    hazards: Vec<Hazard>,
    preflight: Option<&'a Preflight>,
    finished: &'a Finished,
    /// Descendants that had left the program's group and were ended.
    escaped: Vec<u32>,
}

pub(crate) fn run(options: &RunOptions, format: MessageFormat) -> anyhow::Result<Ending> {
    let topology = Topology::read()?;
    for note in &topology.notes {
        command_line::say!("place-run: note: {note}");
    }
    // A place that cannot be written is found out before the program runs and not after.
    let mut record = options.record.as_ref().map(|path| create(path).map(|file| (path, file))).transpose()?;
    let plan = plan(options, &topology)?;
    let run = build(options, &topology, plan.as_ref())?;
    let orphans = Orphans::adopt().context("adopt orphans")?;
    let never = CancelToken::new();
    let preflight = options.preflight.then(|| Preflight::of(&run, &never)).transpose()?;
    let finished = match &preflight {
        Some(preflight) => preflight.finished.clone(),
        None => run.wait(&never)?,
    };
    let escaped = orphans.end_all().context("end what the program left behind")?;
    let hazards = run.cpus.as_ref().map(|cpus| topology.live_hazards(cpus)).unwrap_or_default();
    let message = RunMessage {
        schema: "kvrp.place-run.run/1",
        plan,
        hazards,
        preflight: preflight.as_ref(),
        finished: &finished,
        escaped,
    };
    tell(&message);
    if let Some((path, file)) = &mut record {
        let text = serde_json::to_string(&message)? + "\n";
        let written = file.write_all(text.as_bytes()).map_err(Unwritten);
        written.with_context(|| format!("keep the record {}", path.display()))?;
    }
    // The program owns stdout unless its output goes into a file, so this is its last line.
    if matches!(format, MessageFormat::Json) {
        print(format, &message, "")?;
    }
    Ok(ending(options, &finished))
}

/// Planned cores, unless exact CPUs were given.
fn plan(options: &RunOptions, topology: &Topology) -> anyhow::Result<Option<Plan>> {
    if options.cpus.is_some() {
        return Ok(None);
    }
    let base = PlanRequest::new().set("program", options.cores);
    Ok(Some(Plan::new(topology, &request(base, options.siblings, options.give_housekeeping))?))
}

fn build(options: &RunOptions, topology: &Topology, plan: Option<&Plan>) -> anyhow::Result<Run> {
    let (program, arguments) = options.command.split_first().context("find a command")?;
    let planned = plan.and_then(|plan| plan.sets.first());
    let cpus = options.cpus.clone().or_else(|| planned.map(|set| set.cpus.clone())).unwrap_or_default();
    let mut run = Run::new(program)
        .args(arguments.to_vec())
        .stdin(Input::Inherit)
        .stdout(output(options.stdout.as_ref()))
        .stderr(output(options.stderr.as_ref()))
        .grace(options.grace);
    run.env = std::env::vars_os().collect();
    run.idle = planned.map(|set| set.idle.clone()).unwrap_or_default();
    run.memory = memory(options, topology, &cpus);
    run.time_limit = options.time_limit;
    if options.expect {
        run.binding = Binding::Expect;
    }
    let (stop, wake) = (Arc::default(), Arc::default());
    signal_hook::flag::register(SIGTSTP, Arc::clone(&stop)).context("catch a signal")?;
    // Nobody looks at this flag: the signal wakes the wait, so that a program stopped by Ctrl-Z is noticed at once.
    signal_hook::flag::register(SIGCHLD, wake).context("catch a signal")?;
    run = run.job_control(stop);
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        let flag = Arc::default();
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("catch a signal")?;
        run = run.forward(signal, flag);
    }
    Ok(run.cpus(cpus))
}

fn output(path: Option<&std::path::PathBuf>) -> Output {
    path.map_or(Output::Inherit, |path| Output::File(path.clone()))
}

/// A machine that names no nodes has nothing to bind to.
fn memory(options: &RunOptions, topology: &Topology, cpus: &CpuSet) -> Option<MemoryBinding> {
    let nodes: NodeSet = match &options.numa {
        Numa::Any => return None,
        Numa::Local => topology.nodes_of(cpus),
        Numa::Nodes(nodes) => nodes.clone(),
    };
    let local_unknown = nodes.is_empty() && matches!(options.numa, Numa::Local);
    let bind = if options.require_memory { MemoryBinding::required } else { MemoryBinding::wanted };
    (!local_unknown).then(|| bind(nodes))
}

fn create(path: &std::path::Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("write {}", path.display()))
}

/// Says on stderr what is wrong, and what a preflight found.
fn tell(message: &RunMessage<'_>) {
    for violation in &message.finished.violations {
        command_line::say!("place-run: not as planned: {violation}");
    }
    if !message.escaped.is_empty() {
        command_line::say!(
            "place-run: ended processes that had left the program's group: {:?}",
            message.escaped
        );
    }
    if let Some(preflight) = message.preflight {
        let busiest = preflight.busiest_ppm.map_or_else(|| "unknown".to_owned(), |ppm| format!("{ppm} ppm"));
        command_line::say!(
            "place-run: threads: {:?} (busiest thread: {busiest} of the processor time)",
            preflight.threads
        );
    }
}

/// The program's own status, as a shell shows it.
fn ending(options: &RunOptions, finished: &Finished) -> Ending {
    let low_byte = |status: i32| u8::try_from(status & 0xff).unwrap_or(u8::MAX);
    match finished.outcome {
        Outcome::Exited(0) if options.strict && finished.check_placement().is_err() => {
            Ending::Exit(Exit::HostUnfit)
        }
        Outcome::Exited(status) => Ending::Program(low_byte(status)),
        Outcome::Signalled(signal) => Ending::Program(low_byte(128 + signal)),
        Outcome::TimedOut => {
            command_line::say!("place-run: the program ran past its time limit and was ended");
            Ending::Exit(Exit::TargetFailed)
        }
        _ => Ending::Exit(Exit::TargetFailed),
    }
}
