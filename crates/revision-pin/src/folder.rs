use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that tells a folder of this crate from one that happens to have its name.
pub(crate) const MARKER: &str = ".revision-pin";
const GIT: &str = ".git";

/// A folder cannot be made or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It exists; a build or a checkout never mixes with what is there.
    #[error("make the folder {}: it exists already", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// It was not made by this crate, so it is not removed.
    #[error("remove {}: it was not made by revision-pin", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| FolderError::Io { action, path, source }
    }
}

/// Makes a folder that did not exist, with its parents, and returns its absolute path.
pub(crate) fn make_new(path: &Path) -> Result<PathBuf, FolderError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(FolderError::io("make the folder", parent))?;
    }
    match fs::create_dir(path) {
        Ok(()) => path.canonicalize().map_err(FolderError::io("look up the folder", path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(FolderError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(FolderError::io("make the folder", path)(error)),
    }
}

/// Where a checkout keeps the marker: inside `.git`, so that the working tree is nothing but the revision.
fn markers(path: &Path) -> [PathBuf; 2] {
    [path.join(MARKER), path.join(GIT).join(MARKER)]
}

pub(crate) fn mark(folder: &Path) -> Result<(), FolderError> {
    let marker = folder.join(MARKER);
    fs::write(&marker, "made by revision-pin; may be deleted\n").map_err(FolderError::io("write", &marker))
}

/// Removes a checkout or a build folder, whether it is whole or was left by a process that was killed.
///
/// A folder that is not there is fine; one that this crate did not make is refused.
///
/// # Errors
///
/// The folder was not made by this crate, or the operating system refused.
pub fn remove(folder: &Path) -> Result<(), FolderError> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FolderError::io("look at", folder)(error)),
        Ok(metadata) if !metadata.is_dir() => return Err(FolderError::NotOurs { path: folder.to_owned() }),
        Ok(_) => {}
    }
    if !is_ours(folder) {
        return Err(FolderError::NotOurs { path: folder.to_owned() });
    }
    remove_marked(folder).map_err(FolderError::io("remove", folder))
}

/// A process killed before it wrote the marker, or after it removed it, leaves a folder with nothing in it, or with
/// nothing but an empty `.git`: no marker, and nothing to lose.
fn is_ours(folder: &Path) -> bool {
    let names = |folder: &Path| -> Option<Vec<_>> {
        fs::read_dir(folder).ok()?.map(|entry| entry.ok().map(|entry| entry.file_name())).collect()
    };
    let is_empty = |folder: &Path| names(folder).is_some_and(|names| names.is_empty());
    let git = folder.join(GIT);
    let only_empty_git = || is_empty(&git) && names(folder).is_some_and(|names| names.len() == 1);
    markers(folder).iter().any(|marker| marker.is_file()) || is_empty(folder) || only_empty_git()
}

/// The marker goes last, so that a removal that is interrupted can be repeated.
fn remove_marked(folder: &Path) -> io::Result<()> {
    remove_all_but(folder, &[MARKER, GIT])?;
    let git = folder.join(GIT);
    if git.is_dir() {
        remove_all_but(&git, &[MARKER])?;
        remove_tree(&git)?;
    }
    remove_tree(folder)
}

fn remove_all_but(folder: &Path, keep: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kept = keep.iter().any(|name| entry.file_name() == *name);
        match entry.file_type()?.is_dir() {
            _ if kept => {}
            true => remove_tree(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// How often, and how long apart, a removal is tried.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The compilers of a build whose process was killed live on for a moment, and write into the folder meanwhile.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for _ in 1..TRIES {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(BETWEEN_TRIES)
            }
            done => return done,
        }
    }
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_our_own_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("deep/folder");
        remove(&folder).unwrap();
        let made = make_new(&folder).unwrap();
        assert!(matches!(make_new(&folder), Err(FolderError::Exists { .. })));
        fs::write(made.join("file"), "").unwrap();
        assert!(matches!(remove(&folder), Err(FolderError::NotOurs { .. })));
        mark(&made).unwrap();
        fs::create_dir_all(made.join("a/b")).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists());
        // What a kill leaves before the marker is written.
        for below in ["", ".git"] {
            fs::create_dir_all(folder.join(below)).unwrap();
            remove(&folder).unwrap();
        }
        fs::create_dir_all(folder.join(".git/refs")).unwrap();
        assert!(matches!(remove(&folder), Err(FolderError::NotOurs { .. })), "a repository of somebody else");
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "a file").unwrap();
        assert!(matches!(remove(&folder), Err(FolderError::NotOurs { .. })));
    }

    #[test]
    fn a_link_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let target = make_new(&parent.path().join("target")).unwrap();
        mark(&target).unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(remove(&link), Err(FolderError::NotOurs { .. })));
        assert!(target.join(MARKER).exists());
    }
}
