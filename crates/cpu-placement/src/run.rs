//! Starting a program in its place, waiting for it, and leaving nothing of it behind.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use crate::bind::{self, ChildReport, ChildSetup, Guard, Step};
use crate::cancel::CancelToken;
use crate::elsewhere::Elsewhere;
use crate::error::SpawnError;
use crate::finished::Finished;
use crate::load::LoadLimits;
use crate::plan::PlannedSet;
use crate::procfs;
use crate::running::{Before, Running};
use crate::set::{CpuSet, NodeSet};
use crate::topology::sysfs;
use crate::watch::Observe;

/// How long a group has between SIGTERM and SIGKILL unless the run says otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// Where a stream of the child goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Output {
    /// Nowhere.
    #[default]
    Null,
    /// Where this process's own goes.
    Inherit,
    /// Into this file, created or emptied. Both streams may name the same file.
    File(PathBuf),
}

/// What the child reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// What this process reads.
    Inherit,
    /// This file.
    File(PathBuf),
}

/// The NUMA nodes a child's memory must come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBinding {
    /// The nodes.
    pub nodes: NodeSet,
    /// Whether a kernel that refuses stops the start. Otherwise the refusal is a [`Violation`](crate::Violation)(crate::Violation).
    pub required: bool,
}

impl MemoryBinding {
    /// Memory from `nodes` only; a refusal stops the start.
    pub fn required(nodes: NodeSet) -> Self {
        Self { nodes, required: true }
    }

    /// Memory from `nodes` only; a refusal is reported and the program runs.
    pub fn wanted(nodes: NodeSet) -> Self {
        Self { nodes, required: false }
    }
}

/// Who sets the affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Binding {
    /// The child itself, before exec.
    #[default]
    Set,
    /// Somebody else has set it already, a scheduler for example. It is only verified.
    Expect,
}

/// A program to be started once: what, where, and within which limits.
///
/// The child gets exactly the environment given here and nothing else, its own process group, no inherited
/// descriptor above stderr, and dies with the thread that started it.
///
/// ```
/// use cpu_placement::{CancelToken, Outcome, Run};
///
/// let finished = Run::new("/bin/sh").args(["-c", "exit 3"]).wait(&CancelToken::new())?;
/// assert_eq!(finished.outcome, Outcome::Exited(3));
/// assert!(finished.wall_ns > 0);
/// # Ok::<(), cpu_placement::SpawnError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Run {
    /// The program. A name without `/` is looked up on the `PATH` of [`env`](Self::env).
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Its working directory; nothing means that of this process.
    pub cwd: Option<PathBuf>,
    /// What it reads.
    pub stdin: Input,
    /// Where its stdout goes.
    pub stdout: Output,
    /// Where its stderr goes.
    pub stderr: Output,
    /// The CPUs it may use; nothing leaves the inherited affinity.
    pub cpus: Option<CpuSet>,
    /// Who sets the affinity.
    pub binding: Binding,
    /// Hardware threads that should be idle meanwhile. They are watched, not kept free.
    pub idle: CpuSet,
    /// Where its memory comes from; nothing leaves the inherited policy.
    pub memory: Option<MemoryBinding>,
    /// How long it may run.
    pub time_limit: Option<Duration>,
    /// How long its group has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How closely it is watched.
    pub observe: Observe,
    /// Above which competing load is a violation.
    pub load_limits: LoadLimits,
    /// Signals passed on to its group: when a flag is found set, it is cleared and the signal sent.
    pub forward: Vec<(i32, Arc<AtomicBool>)>,
    /// Whether it stops and goes on together with this process; the flag is set by a handler of SIGTSTP.
    pub job_control: Option<Arc<AtomicBool>>,
}

impl Run {
    /// A run of `program` with no argument, an empty environment and no output.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: Input::Null,
            stdout: Output::Null,
            stderr: Output::Null,
            cpus: None,
            binding: Binding::Set,
            idle: CpuSet::new(),
            memory: None,
            time_limit: None,
            grace: DEFAULT_GRACE,
            observe: Observe::default(),
            load_limits: LoadLimits::default(),
            forward: Vec::new(),
            job_control: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: Into<OsString>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets one variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Copies one variable of this process's environment, if it is set.
    #[must_use]
    pub fn env_from_parent(self, name: impl AsRef<OsStr>) -> Self {
        match std::env::var_os(name.as_ref()) {
            Some(value) => self.env(name.as_ref(), value),
            None => self,
        }
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Sets what it reads.
    #[must_use]
    pub fn stdin(mut self, input: Input) -> Self {
        self.stdin = input;
        self
    }

    /// Sets where stdout goes.
    #[must_use]
    pub fn stdout(mut self, output: Output) -> Self {
        self.stdout = output;
        self
    }

    /// Sets where stderr goes.
    #[must_use]
    pub fn stderr(mut self, output: Output) -> Self {
        self.stderr = output;
        self
    }

    /// Sets the CPUs it may use.
    #[must_use]
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Takes the CPUs, the idle hardware threads and the memory nodes of a planned set. `memory_required` says
    /// whether a kernel that refuses the memory policy stops the start.
    #[must_use]
    pub fn place(mut self, set: &PlannedSet, memory_required: bool) -> Self {
        self.cpus = Some(set.cpus.clone());
        self.idle = set.idle.clone();
        let nodes = Some(set.nodes.clone()).filter(|nodes| !nodes.is_empty());
        self.memory = nodes.map(|nodes| MemoryBinding { nodes, required: memory_required });
        self
    }

    /// Says who sets the affinity.
    #[must_use]
    pub fn binding(mut self, binding: Binding) -> Self {
        self.binding = binding;
        self
    }

    /// Sets where its memory comes from.
    #[must_use]
    pub fn memory(mut self, memory: MemoryBinding) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets how long it may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets how long its group has between SIGTERM and SIGKILL.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Says how closely it is watched.
    #[must_use]
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = observe;
        self
    }

    /// Says above which competing load is a violation.
    #[must_use]
    pub fn load_limits(mut self, limits: LoadLimits) -> Self {
        self.load_limits = limits;
        self
    }

    /// Passes a signal on to the program's group whenever `flag` is found set; the flag is cleared.
    #[must_use]
    pub fn forward(mut self, signal: i32, flag: Arc<AtomicBool>) -> Self {
        self.forward.push((signal, flag));
        self
    }

    /// Stops the program's group and then this process when `flag` is found set, which the caller's handler of SIGTSTP
    /// does, or when the program is stopped at the terminal that it was lent; they go on together (`fg`, `bg`). The
    /// time is no part of the time limit, and it is a [`Suspended`](crate::ViolationKind::Suspended) violation.
    ///
    /// Without it, a stopped parent leaves the program running and sees its end too late.
    #[must_use]
    pub fn job_control(mut self, flag: Arc<AtomicBool>) -> Self {
        self.job_control = Some(flag);
        self
    }

    /// Starts the program and waits until it has ended and nothing of its group is left.
    ///
    /// The calling thread sleeps meanwhile, on CPUs outside the run's own set where it has any.
    ///
    /// # Errors
    /// When the program could not be started as asked, or not be waited for. A program that fails is not an error:
    /// see [`Finished::outcome`].
    pub fn wait(&self, cancel: &CancelToken) -> Result<Finished, SpawnError> {
        if cancel.is_cancelled() {
            return Err(SpawnError::Cancelled { program: self.program.clone() });
        }
        self.start()?.wait(cancel)
    }

    /// Starts the program.
    ///
    /// # Errors
    /// When the program could not be started as asked.
    pub fn start(&self) -> Result<Running, SpawnError> {
        let program = self.resolve_program()?;
        self.check_sets()?;
        let mut command = self.command(&program)?;
        let image = self.image(&program)?;
        let guard = Guard::stand().map_err(|source| self.start_error(source))?;
        let pipe = bind::prepare(&mut command, self.child_setup(), image, &guard);
        let pipe = pipe.map_err(|source| self.start_error(source))?;
        // A child that is to keep the affinity this thread has must find it unchanged.
        let set_here = self.cpus.as_ref().filter(|_| self.binding == Binding::Set);
        let _elsewhere = Elsewhere::than(set_here);
        let before = Before::read(self);
        let (started, started_at) = (Instant::now(), SystemTime::now());
        let spawned = command.spawn();
        let report = pipe.read().map_err(|source| self.start_error(source))?;
        let child = spawned.map_err(|source| self.spawn_error(source, report.as_ref()))?;
        Running::adopt(self, child.id(), report.unwrap_or_default(), before.at(started, started_at), guard)
    }

    fn start_error(&self, source: io::Error) -> SpawnError {
        SpawnError::Start { program: self.program.clone(), source }
    }

    /// The error of a spawn that failed, by the step that failed.
    fn spawn_error(&self, source: io::Error, report: Option<&ChildReport>) -> SpawnError {
        let failed = report.and_then(|report| report.failed).map(|(step, _)| step);
        match (failed, &self.cpus, &self.memory) {
            (Some(Step::Affinity), Some(cpus), _) => SpawnError::Affinity { requested: cpus.clone(), source },
            (Some(Step::ReadBack), Some(cpus), _) => SpawnError::AffinityNotKept {
                requested: cpus.clone(),
                found: CpuSet::from_words(report.map_or(&[], |report| &report.cpu_words[..])),
            },
            (Some(Step::Memory), _, Some(memory)) => {
                SpawnError::Memory { requested: memory.nodes.clone(), source }
            }
            (None, _, _) if report.is_some() => {
                SpawnError::NotExecutable { program: self.program.clone(), source }
            }
            _ => self.start_error(source),
        }
    }

    /// The file to execute. A bare name is looked up on the run's own `PATH`, so that the answer does not depend
    /// on this process's environment.
    fn resolve_program(&self) -> Result<PathBuf, SpawnError> {
        let missing = || SpawnError::ProgramMissing { program: self.program.clone() };
        if self.program.as_os_str().as_encoded_bytes().contains(&b'/') {
            let base = self.cwd.as_deref().unwrap_or(Path::new(""));
            let exists = base.join(&self.program).exists();
            return if exists { Ok(self.program.clone()) } else { Err(missing()) };
        }
        let path = self.env.get(OsStr::new("PATH")).ok_or_else(missing)?;
        std::env::split_paths(path)
            .map(|dir| dir.join(&self.program))
            .find(|p| p.is_file())
            .ok_or_else(missing)
    }

    fn check_sets(&self) -> Result<(), SpawnError> {
        if self.memory.as_ref().is_some_and(|memory| memory.nodes.is_empty()) {
            return Err(SpawnError::EmptySet { what: "NUMA nodes" });
        }
        let Some(requested) = &self.cpus else { return Ok(()) };
        if requested.is_empty() {
            return Err(SpawnError::EmptySet { what: "CPUs" });
        }
        if self.binding == Binding::Expect {
            return Ok(());
        }
        let allowed = sysfs::allowed_now().unwrap_or_else(|| requested.clone());
        let offline =
            procfs::text("/sys/devices/system/cpu/offline").and_then(|text| text.parse::<CpuSet>().ok());
        refuse_missing(requested, allowed, &offline.unwrap_or_default())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes for all others")]
    fn command(&self, program: &Path) -> Result<Command, SpawnError> {
        let mut command = Command::new(program);
        command.process_group(0);
        if let Some(path) = &self.cwd {
            let entered = std::fs::read_dir(path).map(drop);
            entered.map_err(|source| SpawnError::WorkingDirectory { path: path.clone(), source })?;
            command.current_dir(path);
        }
        let stdout = open_output(&self.stdout)?;
        let shared = self.stderr == self.stdout && matches!(self.stdout, Output::File(_));
        let stderr = match (&stdout, shared) {
            (Some(file), true) => Some(file.try_clone().map_err(|source| self.start_error(source))?),
            _ => open_output(&self.stderr)?,
        };
        command.stdin(open_input(&self.stdin)?);
        command.stdout(stdio(stdout, &self.stdout)).stderr(stdio(stderr, &self.stderr));
        Ok(command)
    }

    fn image(&self, program: &Path) -> Result<bind::Image, SpawnError> {
        let arguments =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let variables =
            self.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        bind::Image::new(program.as_os_str(), arguments, variables)
            .map_err(|source| SpawnError::NulByte { program: self.program.clone(), source })
    }

    fn child_setup(&self) -> ChildSetup {
        let cpus = self.cpus.as_ref().filter(|_| self.binding == Binding::Set);
        ChildSetup {
            cpu_words: cpus.map(|cpus| cpus.words().to_vec()).unwrap_or_default(),
            node_words: self.memory.as_ref().map(|m| m.nodes.words().to_vec()).unwrap_or_default(),
            memory_required: self.memory.as_ref().is_some_and(|memory| memory.required),
        }
    }
}

fn refuse_missing(requested: &CpuSet, allowed: CpuSet, offline: &CpuSet) -> Result<(), SpawnError> {
    let missing = requested.difference(&allowed);
    if missing.is_empty() {
        return Ok(());
    }
    let offline = offline.intersection(&missing);
    Err(SpawnError::CpusNotAllowed { requested: requested.clone(), missing, allowed, offline })
}

fn open_output(output: &Output) -> Result<Option<File>, SpawnError> {
    let Output::File(path) = output else { return Ok(None) };
    File::create(path).map(Some).map_err(|source| SpawnError::Output { path: path.clone(), source })
}

fn open_input(input: &Input) -> Result<Stdio, SpawnError> {
    match input {
        Input::Null => Ok(Stdio::null()),
        Input::Inherit => Ok(Stdio::inherit()),
        Input::File(path) => File::open(path)
            .map(Stdio::from)
            .map_err(|source| SpawnError::Input { path: path.clone(), source }),
    }
}

fn stdio(file: Option<File>, output: &Output) -> Stdio {
    match (file, output) {
        (Some(file), _) => file.into(),
        (None, Output::Inherit) => Stdio::inherit(),
        (None, _) => Stdio::null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_cannot_be_had_are_named() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let check = |requested: &str, allowed: &str, expected: &str| {
            let refused = refuse_missing(&set(requested), set(allowed), &set("6-7"));
            assert_eq!(refused.map_or_else(|error| error.to_string(), |()| String::new()), expected);
        };
        check("2-3", "0-5", "");
        check("4-5", "0-4", "use CPUs 5 of the set 4-5: only 0-4 are allowed here");
        check("5-6", "0-5", "use CPUs 6 of the set 5-6: only 0-5 are allowed here (6 are offline)");
        check("5-9", "0-5", "use CPUs 6-9 of the set 5-9: only 0-5 are allowed here (6-7 are offline)");
    }
}
