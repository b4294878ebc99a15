//! Looking at a process that somebody else started.

use std::io;

use serde::{Deserialize, Serialize};

use crate::bind;
use crate::observed::Observed;
use crate::procfs;
use crate::residency::Residency;
use crate::set::{CpuSet, NodeSet};
use crate::violation::ViolationKind;
use crate::watch::{Expected, check_memory, check_thread};

/// Why a process cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// There is no such process, or it ended while it was looked at.
    #[error("look at process {pid}: there is none")]
    Vanished {
        /// The process.
        pid: u32,
    },
    /// The kernel does not let us look.
    #[error("look at process {pid}")]
    Refused {
        /// The process.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Where one thread is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ThreadPlacement {
    /// The thread.
    pub tid: u32,
    /// Its state, as `ps` shows it.
    pub state: char,
    /// The CPU it is on or was last on.
    pub cpu: u32,
    /// The CPUs it may use.
    pub affinity: CpuSet,
}

/// Where a process is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
#[non_exhaustive]
pub struct ProcessPlacement {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: Option<String>,
    /// Its threads.
    pub threads: Vec<ThreadPlacement>,
    /// The nodes its private memory is on, every page counted.
    pub residency: Observed<Residency>,
    /// What is not as expected.
    pub violations: Vec<ViolationKind>,
}

impl ProcessPlacement {
    /// Looks at every thread and page of a process once, and holds them against what is expected.
    ///
    /// Counting every page holds the process up for a moment: this is not for a process under measurement.
    ///
    /// # Errors
    /// There is no such process, or the kernel does not let us look.
    pub fn of(pid: u32, cpus: Option<&CpuSet>, nodes: Option<&NodeSet>) -> Result<Self, VerifyError> {
        let tids = procfs::threads(pid).map_err(|source| refused(pid, source))?;
        let threads: Vec<_> = tids.into_iter().filter_map(|tid| thread(pid, tid)).collect();
        if threads.is_empty() {
            return Err(VerifyError::Vanished { pid });
        }
        let residency = Residency::of_all_pages(pid).or_else(|_| Residency::of_some_pages(pid, 4096));
        let expected = Expected { cpus: cpus.cloned(), nodes: nodes.cloned() };
        let mut violations = Vec::new();
        for thread in &threads {
            check_thread(thread.tid, thread.cpu, Some(thread.affinity.clone()), &expected, &mut violations);
        }
        let residency = match residency {
            Ok(residency) => {
                check_memory(&residency, &expected, &mut violations);
                Observed::Value(residency)
            }
            Err(error) => Observed::Unavailable(error.to_string()),
        };
        Ok(Self { pid, name: procfs::text(format!("/proc/{pid}/comm")), threads, residency, violations })
    }
}

fn refused(pid: u32, source: io::Error) -> VerifyError {
    match source.kind() {
        io::ErrorKind::NotFound => VerifyError::Vanished { pid },
        _ if source.raw_os_error() == Some(libc::ESRCH) => VerifyError::Vanished { pid },
        _ => VerifyError::Refused { pid, source },
    }
}

/// A thread may end between being listed and being looked at.
fn thread(pid: u32, tid: u32) -> Option<ThreadPlacement> {
    let stat = procfs::read_thread_stat(pid, tid).filter(|stat| stat.state != 'Z')?;
    let affinity = bind::affinity_words(i32::try_from(tid).ok()?).ok()?;
    Some(ThreadPlacement { tid, state: stat.state, cpu: stat.cpu, affinity: CpuSet::from_words(&affinity) })
}
