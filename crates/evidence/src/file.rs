use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::Digest;

use crate::layout::{TEMPORARY, sync_dir};
use crate::storage::{Storage, StorageError};
use crate::{Bundle, BundlePath, FileRef, Sha256, WriteError};

/// Sets temporary names of one process apart; the bundle's lock keeps other processes out.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file that is being written into a bundle.
///
/// It gets its name and its record with [`finish`](FileWriter::finish); dropped before that, it never existed.
#[derive(Debug)]
#[must_use = "a file that is not finished is deleted"]
pub struct FileWriter<'bundle> {
    bundle: &'bundle Bundle,
    path: BundlePath,
    replace: bool,
    pending: Pending,
}

impl<'bundle> FileWriter<'bundle> {
    pub(crate) fn new(
        bundle: &'bundle Bundle,
        path: BundlePath,
        replace: bool,
    ) -> Result<Self, StorageError> {
        let pending = Pending::create(bundle.dir(), &path)?;
        Ok(FileWriter { bundle, path, replace, pending })
    }

    /// Makes the file durable, gives it its name and records it.
    ///
    /// # Errors
    ///
    /// The storage failed, or the path was recorded by another writer in the meantime.
    pub fn finish(self) -> Result<FileRef, WriteError> {
        let (file, temporary) = self.pending.complete(&self.path)?;
        self.bundle.place(&self.path, file, temporary, self.replace)
    }
}

impl Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pending.flush()
    }
}

/// A file under a temporary name, with the digest of what was written so far.
#[derive(Debug)]
pub(crate) struct Pending {
    out: BufWriter<File>,
    hash: sha2::Sha256,
    bytes: u64,
    temporary: Temporary,
}

impl Pending {
    pub(crate) fn create(dir: &Path, path: &BundlePath) -> Result<Self, StorageError> {
        let folder = dir.join(TEMPORARY);
        fs::create_dir_all(&folder).storage("make a place for", path.as_str())?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = path.as_str().rsplit('/').next().unwrap_or_default();
        // The number first: a name of 255 bytes is cut, never too long.
        let name: String = format!("{number}-{name}").chars().take(60).collect();
        let temporary = Temporary(Some(folder.join(name)));
        let file = File::create(temporary.path()).storage("create", path.as_str())?;
        Ok(Pending {
            out: BufWriter::with_capacity(1 << 16, file),
            hash: sha2::Sha256::new(),
            bytes: 0,
            temporary,
        })
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Pending {
    /// Everything is on the disk, still under the temporary name.
    pub(crate) fn complete(self, path: &BundlePath) -> Result<(FileRef, Temporary), StorageError> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).storage("write", path.as_str())?;
        let sha256 = Sha256::from_bytes(self.hash.finalize().into());
        Ok((FileRef { path: path.as_str().to_owned(), sha256, bytes: self.bytes }, self.temporary))
    }
}

/// A file that is deleted unless it gets its final name.
#[derive(Debug)]
pub(crate) struct Temporary(Option<PathBuf>);

impl Temporary {
    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Gives the file its name and makes the name durable.
    pub(crate) fn rename(mut self, dir: &Path, path: &str) -> Result<(), StorageError> {
        let target = dir.join(path);
        make_parents(dir, path)?;
        fs::rename(self.path(), &target).storage("put in place", path)?;
        self.0 = None;
        sync_parent(&target).storage("put in place", path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Whatever stays is deleted, and reported, when the bundle is opened the next time.
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the folders above a path, each durable in its parent.
pub(crate) fn make_parents(dir: &Path, path: &str) -> Result<(), StorageError> {
    let mut folder = dir.to_owned();
    let parents = path.rsplit_once('/').map_or("", |(parents, _)| parents);
    for name in parents.split('/').filter(|name| !name.is_empty()) {
        let above = folder.clone();
        folder.push(name);
        match fs::create_dir(&folder) {
            Ok(()) => sync_dir(&above).storage("make the folder of", path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StorageError::new("make the folder of", path, error)),
        }
    }
    Ok(())
}

pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    // The parent of a bare name is the working directory, whose path is not the empty one.
    let parent =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    parent.map_or(Ok(()), sync_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_parent_that_can_be_waited_for() {
        for path in ["bare-name", "./bare-name", "/tmp", "/", "src/file.rs"] {
            assert!(sync_parent(Path::new(path)).is_ok(), "{path}");
        }
    }
}
