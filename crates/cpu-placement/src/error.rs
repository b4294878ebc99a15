//! Why a process could not be started or waited for.

use std::io;
use std::path::PathBuf;

use crate::set::{CpuSet, NodeSet};

/// Why a [`Run`](crate::Run) could not be started or waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such program, or a bare name is not on the run's own `PATH`.
    #[error("find the program {}", program.display())]
    ProgramMissing {
        /// The program asked for.
        program: PathBuf,
    },
    /// The program is there and cannot be executed (no permission, not an executable format, its interpreter is
    /// missing).
    #[error("execute {}", program.display())]
    NotExecutable {
        /// The program asked for.
        program: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The program's path, an argument or a variable holds a zero byte, which no program can be given.
    #[error("pass a zero byte to {}", program.display())]
    NulByte {
        /// The program asked for.
        program: PathBuf,
        /// Where the byte is.
        source: std::ffi::NulError,
    },
    /// The working directory cannot be entered.
    #[error("enter the working directory {}", path.display())]
    WorkingDirectory {
        /// The directory asked for.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file for stdin cannot be read.
    #[error("open {} for the input of the program", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A file for stdout or stderr cannot be written.
    #[error("open {} for the output of the program", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// CPUs were asked for that this process may not use (offline, absent, or outside its own affinity mask or
    /// cgroup).
    #[error(
        "use CPUs {missing} of the set {requested}: only {allowed} are allowed here{}",
        offline_part(offline)
    )]
    CpusNotAllowed {
        /// The set asked for.
        requested: CpuSet,
        /// The part of it that may not be used.
        missing: CpuSet,
        /// What this process may use.
        allowed: CpuSet,
        /// The part that exists and is switched off.
        offline: CpuSet,
    },
    /// An empty set of CPUs or nodes was asked for.
    #[error("use an empty set of {what}")]
    EmptySet {
        /// `CPUs` or `NUMA nodes`.
        what: &'static str,
    },
    /// The kernel refused the affinity.
    #[error("set the CPU affinity {requested}")]
    Affinity {
        /// The set asked for.
        requested: CpuSet,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel took the affinity and gave back another one: a cgroup has taken CPUs away. Nothing was started.
    #[error("keep the CPU affinity {requested}: the kernel made it {found}")]
    AffinityNotKept {
        /// The set asked for.
        requested: CpuSet,
        /// What it became.
        found: CpuSet,
    },
    /// The kernel refused the memory policy, and the run demanded it.
    #[error("bind memory to the NUMA nodes {requested}")]
    Memory {
        /// The nodes asked for.
        requested: NodeSet,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The token was cancelled before the program was started.
    #[error("start {}: cancelled before it was started", program.display())]
    Cancelled {
        /// The program asked for.
        program: PathBuf,
    },
    /// The kernel gave no new process, pipe or descriptor.
    #[error("start a process for {}", program.display())]
    Start {
        /// The program asked for.
        program: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The process was started and could not be waited for; its whole group has been killed.
    #[error("wait for process {pid}")]
    Wait {
        /// The process.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

fn offline_part(offline: &CpuSet) -> String {
    if offline.is_empty() { String::new() } else { format!(" ({offline} are offline)") }
}
