use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use command_line::Exit;
use tempfile::TempDir;

use crate::failure::Failure;

const LOCK: &str = "lock";

/// A folder beside the result in which everything happens until the result gets its name.
///
/// It is removed however the command ends, short of SIGKILL; what that leaves, the next run for the same result
/// removes. A lock inside tells a folder that is in use from one that was left.
pub(crate) struct Staging {
    folder: TempDir,
    out: PathBuf,
    _lock: File,
}

impl Staging {
    pub(crate) fn new(out: &Path) -> Result<Self, Failure> {
        refuse_existing(out)?;
        let (parent, prefix) = place(out)?;
        fs::create_dir_all(&parent).with_context(|| format!("make the folder {}", parent.display()))?;
        remove_leftovers(&parent, &prefix)?;
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent);
        let folder = folder.with_context(|| format!("make a folder in {}", parent.display()))?;
        let lock = File::create(folder.path().join(LOCK))
            .and_then(|file| file.try_lock().map_err(io::Error::from).map(|()| file));
        let lock = lock.with_context(|| format!("lock the folder {}", folder.path().display()))?;
        fs::create_dir(folder.path().join("out")).context("make the folder of the result")?;
        Ok(Staging { folder, out: out.to_owned(), _lock: lock })
    }

    /// The folder that will be the result.
    pub(crate) fn result(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// A place for the checkout and the build.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes a file of the result, durably.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.result().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("make the folder of {name}"))?;
        }
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.with_context(|| format!("write {name}"))
    }

    /// Gives the result its name.
    pub(crate) fn publish(self) -> Result<(), Failure> {
        refuse_existing(&self.out)?;
        let result = self.result();
        let durable = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
        durable(&result).context("make the result durable")?;
        fs::rename(&result, &self.out)
            .with_context(|| format!("put the result at {}", self.out.display()))?;
        durable(&place(&self.out)?.0).context("make the result durable")?;
        let folder = self.folder.path().to_owned();
        self.folder.close().with_context(|| format!("remove {}", folder.display()))?;
        Ok(())
    }
}

fn refuse_existing(out: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => {
            Err(Failure::new(Exit::BadInput, format!("write the result: {} exists already", out.display())))
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("look at {}", out.display())).into()),
    }
}

/// The folder in which the result will be, and how the names of its staging folders begin.
fn place(out: &Path) -> Result<(PathBuf, String), Failure> {
    let name = out.file_name().ok_or_else(|| {
        Failure::new(Exit::BadInput, format!("write the result: {} does not end in a name", out.display()))
    })?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), format!(".{}.pin-build-", name.to_string_lossy())))
}

fn remove_leftovers(parent: &Path, prefix: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(parent).with_context(|| format!("list {}", parent.display()))? {
        let entry = entry.with_context(|| format!("list {}", parent.display()))?;
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        if ours && is_left(&entry.path()) {
            command_line::say!("pin-build: remove {}, which an earlier run left", entry.path().display());
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether nobody holds the lock inside. A folder without one may be that of a run that is just starting.
fn is_left(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    for part in ["checkout", "build"] {
        revision_pin::remove(&folder.join("work").join(part))?;
    }
    fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))
}
