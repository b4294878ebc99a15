//! Scratch that a killed process left behind: who made it says so in a claim, and whoever starts next removes it (C1).
//!
//! No signal handler runs on SIGKILL, a full memory or a power cut. A claim is a small file that names the scratch folders of
//! a living process and is locked as long as it lives; a claim that can be locked has no owner any more.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PREFIX: &str = "kvrp-claim-";
const SUFFIX: &str = ".json";
const SCHEMA: &str = "kvrp.scratch-claim.v1";

/// A folder, and what tells it from another one that somebody makes later in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claimed {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Claimed {
    fn of(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let meta = fs::symlink_metadata(&path)?;
        Ok(Claimed { path, device: meta.dev(), inode: meta.ino() })
    }

    /// Whether the folder is still the one that was claimed.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| meta.is_dir() && meta.dev() == self.device && meta.ino() == self.inode)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    schema: String,
    folders: Vec<Claimed>,
}

/// Scratch folders of this process, named so that the next start removes them if this process cannot.
///
/// Dropping it withdraws the claim; the folders are removed by whoever made them.
#[derive(Debug)]
#[must_use = "dropping it withdraws the claim"]
pub struct ScratchClaim {
    _lock: File,
    path: PathBuf,
}

impl ScratchClaim {
    /// Claims existing folders. `directory` is local to the node, and the same at every start.
    ///
    /// # Errors
    ///
    /// A folder is absent, or the claim cannot be written.
    pub fn new(directory: &Path, folders: &[&Path]) -> io::Result<Self> {
        let folders = folders.iter().map(|folder| Claimed::of(folder)).collect::<io::Result<Vec<_>>>()?;
        // It gets its name only once it is locked and whole: nobody takes it for one without an owner.
        let mut file = tempfile::Builder::new().prefix(".kvrp-claiming-").tempfile_in(directory)?;
        file.as_file().lock()?;
        let content = Content { schema: SCHEMA.to_owned(), folders };
        file.write_all(&serde_json::to_vec(&content).map_err(io::Error::other)?)?;
        let unique = file.path().file_name().unwrap_or_default().to_string_lossy();
        let unique = unique.trim_start_matches(".kvrp-claiming-");
        let path = directory.join(format!("{PREFIX}{unique}{SUFFIX}"));
        let lock = file.persist_noclobber(&path).map_err(|error| error.error)?;
        Ok(ScratchClaim { _lock: lock, path })
    }
}

impl Drop for ScratchClaim {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a claim could not be withdrawn");
        }
    }
}

/// Removes the scratch of processes that ended without removing it; what was removed.
///
/// Only claims of this user are looked at, and only folders that are still the ones that were claimed are removed.
///
/// # Errors
///
/// The directory cannot be read, or a folder cannot be removed.
pub fn remove_leftover_scratch(directory: &Path) -> io::Result<Vec<PathBuf>> {
    remove_leftovers(directory, None)
}

/// The same, but `keep` stays where it is: its new owner goes on with it, and claims it again.
pub(crate) fn remove_leftovers(directory: &Path, keep: Option<&Path>) -> io::Result<Vec<PathBuf>> {
    let user = tempfile::tempfile_in(directory)?.metadata()?.uid();
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
            continue;
        }
        match remove_claimed(&entry.path(), user, keep) {
            Ok(folders) => removed.extend(folders),
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    removed.sort();
    Ok(removed)
}

/// Removes what one claim names, unless its owner lives or it is not ours.
fn remove_claimed(claim: &Path, user: u32, keep: Option<&Path>) -> io::Result<Vec<PathBuf>> {
    let meta = fs::symlink_metadata(claim)?;
    if !meta.is_file() || meta.uid() != user {
        return Ok(Vec::new());
    }
    let file = File::open(claim)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Vec::new()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let content: Content = match serde_json::from_slice(&fs::read(claim)?) {
        Ok(content) => content,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a claim cannot be read and is left alone"
            );
            return Ok(Vec::new());
        }
    };
    if content.schema != SCHEMA {
        return Ok(Vec::new());
    }
    let left = content.folders.into_iter().filter(Claimed::is_there).map(|folder| folder.path);
    let there: Vec<PathBuf> = left.filter(|folder| Some(folder.as_path()) != keep).collect();
    for folder in &there {
        fs::remove_dir_all(folder)?;
    }
    fs::remove_file(claim)?;
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(directory: &Path) -> usize {
        let names =
            fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().starts_with(PREFIX)).count()
    }

    /// The same as a kill: the lock goes, the claim stays.
    fn abandon(claim: ScratchClaim) {
        let kept = fs::read(&claim.path).expect("a claim");
        let path = claim.path.clone();
        drop(claim);
        fs::write(path, kept).expect("a claim");
    }

    #[test]
    fn scratch_of_the_living_stays_and_of_the_dead_goes() {
        let directory = tempfile::tempdir().expect("a folder");
        let scratch = tempfile::tempdir().expect("a folder");
        let work = scratch.path().join("work");
        fs::create_dir_all(work.join("deep/er")).expect("folders");
        let claim = ScratchClaim::new(directory.path(), &[&work]).expect("claimed");
        assert_eq!(remove_leftover_scratch(directory.path()).expect("swept"), Vec::<PathBuf>::new());
        assert!(work.exists());
        abandon(claim);
        let work = fs::canonicalize(&work).expect("there");
        assert_eq!(remove_leftover_scratch(directory.path()).expect("swept"), vec![work.clone()]);
        assert!(!work.exists() && scratch.path().exists());
        assert_eq!(claims(directory.path()), 0);
    }

    #[test]
    fn what_somebody_goes_on_with_stays() {
        let directory = tempfile::tempdir().expect("a folder");
        let scratch = tempfile::tempdir().expect("a folder");
        abandon(ScratchClaim::new(directory.path(), &[scratch.path()]).expect("claimed"));
        let keep = fs::canonicalize(scratch.path()).expect("there");
        let removed = remove_leftovers(directory.path(), Some(&keep)).expect("swept");
        assert_eq!(removed, Vec::<PathBuf>::new());
        assert!(keep.exists());
        assert_eq!(claims(directory.path()), 0);
    }

    #[test]
    fn a_claim_that_is_withdrawn_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a folder");
        let claim = ScratchClaim::new(directory.path(), &[directory.path()]).expect("claimed");
        assert_eq!(claims(directory.path()), 1);
        drop(claim);
        assert_eq!(fs::read_dir(directory.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn another_folder_in_its_place_is_not_ours_to_remove() {
        let directory = tempfile::tempdir().expect("a folder");
        let scratch = tempfile::tempdir().expect("a folder");
        let (work, aside) = (scratch.path().join("work"), scratch.path().join("aside"));
        fs::create_dir(&work).expect("a folder");
        abandon(ScratchClaim::new(directory.path(), &[&work]).expect("claimed"));
        fs::rename(&work, &aside).expect("moved");
        fs::create_dir(&work).expect("a folder");
        assert_eq!(remove_leftover_scratch(directory.path()).expect("swept"), Vec::<PathBuf>::new());
        assert!(work.exists() && aside.exists());
        assert_eq!(claims(directory.path()), 0);
    }

    #[test]
    fn what_is_no_claim_is_left_alone() {
        let directory = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            ("kvrp-claim-a.json", "{"),
            ("kvrp-claim-b.json", r#"{"schema":"another","folders":[]}"#),
            ("kvrp-claim-c", "{}"),
        ] {
            fs::write(directory.path().join(name), text).expect("a file");
        }
        fs::create_dir(directory.path().join("kvrp-claim-d.json")).expect("a folder");
        assert_eq!(remove_leftover_scratch(directory.path()).expect("swept"), Vec::<PathBuf>::new());
        assert_eq!(fs::read_dir(directory.path()).expect("a folder").count(), 4);
    }
}
