//! One lock per node, which keeps builds and measurements apart.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::procfs;

/// How often a waiting call tries again. It sleeps in between.
const RETRY: Duration = Duration::from_millis(50);

/// A process that holds the lock, as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name, if it can be seen from here.
    pub name: Option<String>,
    /// Whether it holds the lock exclusively.
    pub exclusive: bool,
    /// What it said it holds the lock for, if it holds it exclusively.
    pub purpose: Option<String>,
}

/// Why the lock of this node could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds it.
    #[error("lock the node through {}: held by {}", path.display(), describe(holders))]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Who holds it; empty when the kernel does not say.
        holders: Vec<Holder>,
    },
    /// The token was cancelled while waiting.
    #[error("lock the node through {}: cancelled while held by {}", path.display(), describe(holders))]
    Cancelled {
        /// The lock file.
        path: PathBuf,
        /// Who held it last; empty when the kernel does not say.
        holders: Vec<Holder>,
    },
    /// The directory is on a file system that other nodes share, so a lock there would say nothing of this node.
    #[error("lock the node in {}: it is on a network file system", path.display())]
    NotNodeLocal {
        /// The directory.
        path: PathBuf,
    },
    /// The lock file cannot be opened, created or locked.
    #[error("open the lock file {}", path.display())]
    Open {
        /// The lock file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

fn describe(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "a process the kernel does not name".to_owned();
    }
    let one = |holder: &Holder| {
        let name = holder.name.as_deref().unwrap_or("unseen from here");
        match &holder.purpose {
            Some(purpose) => format!("process {} ({name}: {purpose})", holder.pid),
            None => format!("process {} ({name})", holder.pid),
        }
    };
    holders.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The lock of this node, held until it is dropped or the process ends, however it ends.
///
/// A measurement takes it exclusively, builds share it. It is advisory: it keeps apart only those who ask. A
/// waiting measurement keeps new builds from starting.
#[derive(Debug)]
#[must_use = "dropping it gives the lock back"]
pub struct NodeLock {
    _file: Flock<File>,
    path: PathBuf,
}

impl NodeLock {
    /// The directory of the lock on this node: the first of `/run/lock`, `/dev/shm` and `/tmp` that every user may
    /// write to. `$TMPDIR` is not asked: a scheduler may give each job its own, and two jobs must meet here.
    pub fn default_directory() -> PathBuf {
        let candidates = ["/run/lock", "/dev/shm"].map(PathBuf::from);
        let open_to_all = |dir: &PathBuf| {
            std::fs::metadata(dir)
                .is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o1002 == 0o1002)
        };
        candidates.into_iter().find(open_to_all).unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Takes the lock for a measurement, waiting until nobody else holds it.
    ///
    /// # Errors
    /// The token was cancelled, the directory is not local to this node, or the file cannot be locked.
    pub fn exclusive(directory: &Path, purpose: &str, cancel: &CancelToken) -> Result<Self, LockError> {
        let files = Files::open(directory)?;
        let gate = files.wait(&files.gate, FlockArg::LockExclusiveNonblock, cancel)?;
        let lock = files.wait(&files.path, FlockArg::LockExclusiveNonblock, cancel)?;
        drop(gate);
        files.say(&lock, purpose)?;
        Ok(Self { _file: lock, path: files.path })
    }

    /// Takes the lock for a measurement if nobody holds it.
    ///
    /// # Errors
    /// Somebody holds it, the directory is not local to this node, or the file cannot be locked.
    pub fn try_exclusive(directory: &Path, purpose: &str) -> Result<Self, LockError> {
        let files = Files::open(directory)?;
        let gate = files.take(&files.gate, FlockArg::LockExclusiveNonblock)?;
        let lock = files.take(&files.path, FlockArg::LockExclusiveNonblock)?;
        drop(gate);
        files.say(&lock, purpose)?;
        Ok(Self { _file: lock, path: files.path })
    }

    /// Takes the lock for a build, waiting until no measurement holds it or waits for it.
    ///
    /// # Errors
    /// The token was cancelled, the directory is not local to this node, or the file cannot be locked.
    pub fn shared(directory: &Path, cancel: &CancelToken) -> Result<Self, LockError> {
        let files = Files::open(directory)?;
        let gate = files.wait(&files.gate, FlockArg::LockSharedNonblock, cancel)?;
        let lock = files.wait(&files.path, FlockArg::LockSharedNonblock, cancel)?;
        drop(gate);
        Ok(Self { _file: lock, path: files.path })
    }

    /// Takes the lock for a build if no measurement holds it or waits for it.
    ///
    /// # Errors
    /// Somebody holds it, the directory is not local to this node, or the file cannot be locked.
    pub fn try_shared(directory: &Path) -> Result<Self, LockError> {
        let files = Files::open(directory)?;
        let gate = files.take(&files.gate, FlockArg::LockSharedNonblock)?;
        let lock = files.take(&files.path, FlockArg::LockSharedNonblock)?;
        drop(gate);
        Ok(Self { _file: lock, path: files.path })
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who holds the lock of `directory` now.
    ///
    /// # Errors
    /// The directory is not local to this node, or the file cannot be opened.
    pub fn holders(directory: &Path) -> Result<Vec<Holder>, LockError> {
        let files = Files::open(directory)?;
        Ok(holders_of(&files.path))
    }
}

/// What names this node: the scheduler's name for it, else the boot, which no two machines share.
fn node_key() -> String {
    let name = std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
    let key = name.or_else(|| procfs::text("/proc/sys/kernel/random/boot_id"));
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    key.unwrap_or_else(|| "node".to_owned()).chars().map(safe).collect()
}

/// The two files: the lock itself, and the gate through which everybody passes on the way to it.
struct Files {
    path: PathBuf,
    gate: PathBuf,
}

impl Files {
    fn open(directory: &Path) -> Result<Self, LockError> {
        if is_network(directory) {
            return Err(LockError::NotNodeLocal { path: directory.to_owned() });
        }
        let key = node_key();
        let file = |suffix: &str| directory.join(format!("kv-replay-parity-{key}.{suffix}"));
        Ok(Self { path: file("lock"), gate: file("gate") })
    }

    fn take(&self, path: &Path, how: FlockArg) -> Result<Flock<File>, LockError> {
        let file = open(path).map_err(|source| LockError::Open { path: path.to_owned(), source })?;
        match Flock::lock(file, how) {
            Ok(lock) => Ok(lock),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holders = holders_of(&self.path);
                holders.extend(holders_of(&self.gate));
                Err(LockError::Busy { path: self.path.clone(), holders })
            }
            Err((_, errno)) => Err(LockError::Open { path: path.to_owned(), source: errno.into() }),
        }
    }

    fn wait(&self, path: &Path, how: FlockArg, cancel: &CancelToken) -> Result<Flock<File>, LockError> {
        loop {
            match self.take(path, how) {
                Err(LockError::Busy { path, holders }) if cancel.is_cancelled() => {
                    return Err(LockError::Cancelled { path, holders });
                }
                Err(LockError::Busy { .. }) => std::thread::sleep(RETRY),
                done => return done,
            }
        }
    }

    /// Writes the purpose into the lock file, for those who find it held.
    fn say(&self, mut lock: &File, purpose: &str) -> Result<(), LockError> {
        let line = purpose.lines().next().unwrap_or_default();
        let said = lock.set_len(0).and_then(|()| io::Write::write_all(&mut lock, line.as_bytes()));
        said.map_err(|source| LockError::Open { path: self.path.clone(), source })
    }
}

/// Opens the file, creating it for all users when it is not there. The two steps are separate because
/// `fs.protected_regular` refuses `O_CREAT` on another user's file in a sticky directory.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => return done,
    }
    match options.clone().create_new(true).mode(0o666).open(path) {
        Ok(file) => {
            file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(error) => Err(error),
    }
}

fn is_network(directory: &Path) -> bool {
    use nix::sys::statfs::{NFS_SUPER_MAGIC, statfs};
    const OTHERS: [i64; 6] = [
        0xff53_4d42, // cifs
        0xfe53_4d42, // smb2
        0x0bd0_0bd0, // lustre
        0x4750_4653, // gpfs
        0x00c3_6400, // ceph
        0x1983_0326, // beegfs
    ];
    statfs(directory).is_ok_and(|stat| {
        let kind = stat.filesystem_type();
        kind == NFS_SUPER_MAGIC || OTHERS.contains(&kind.0)
    })
}

/// Who holds a lock on this file, from `/proc/locks`: the kernel's truth, which a crash cannot make stale.
fn holders_of(path: &Path) -> Vec<Holder> {
    let Ok(meta) = std::fs::metadata(path) else { return Vec::new() };
    let dev = meta.dev();
    let id = format!("{:02x}:{:02x}:{}", nix::sys::stat::major(dev), nix::sys::stat::minor(dev), meta.ino());
    let purpose = procfs::text(path).filter(|text| !text.is_empty());
    let locks = procfs::text("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(|line| holder(line, &id, purpose.as_deref())).collect()
}

/// Parses `1: FLOCK  ADVISORY  WRITE 708 08:01:261 0 EOF`. Lines of those who wait have `->` and are left out.
fn holder(line: &str, id: &str, purpose: Option<&str>) -> Option<Holder> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, mode, pid, file, ..] = fields[..] else { return None };
    if file != id {
        return None;
    }
    let pid: u32 = pid.parse().ok()?;
    let exclusive = mode == "WRITE";
    let purpose = purpose.filter(|_| exclusive).map(str::to_owned);
    Some(Holder { pid, name: procfs::text(format!("/proc/{pid}/comm")), exclusive, purpose })
}
