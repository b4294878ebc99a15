//! Processes that left their group, so that killing the group does not reach them.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid};

use crate::procfs;

/// Makes this process the one that orphaned descendants fall to, so that it can end them.
///
/// A descendant that starts its own session leaves the group of its [`Run`](crate::Run). With this, it becomes a
/// child of this process when its parent ends, instead of one of the init process. It changes the whole process, so
/// it is for commands that run one program, not for libraries.
#[derive(Debug)]
#[must_use]
pub struct Orphans {
    private: (),
}

impl Orphans {
    /// Adopts orphaned descendants from now on.
    ///
    /// # Errors
    /// The kernel does not know this (before Linux 3.4).
    pub fn adopt() -> io::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true)?;
        Ok(Self { private: () })
    }

    /// Kills and reaps every child of this process, and the children they leave, until there is none. Says which.
    ///
    /// Children that were started on purpose and are still wanted are killed too.
    ///
    /// # Errors
    /// A child cannot be killed.
    pub fn end_all(self) -> io::Result<Vec<u32>> {
        let () = self.private;
        let mut ended = Vec::new();
        loop {
            let children = children_of_this_process()?;
            if children.is_empty() {
                return Ok(ended);
            }
            for pid in children {
                end(pid)?;
                ended.push(pid);
            }
        }
    }
}

fn children_of_this_process() -> io::Result<Vec<u32>> {
    let own = getpid().as_raw();
    let mut pids = procfs::all_pids()?;
    pids.retain(|pid| procfs::read_stat(*pid).is_some_and(|stat| stat.parent == own));
    Ok(pids)
}

fn end(pid: u32) -> io::Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    match waitpid(pid, None) {
        Ok(_) | Err(Errno::ECHILD) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
