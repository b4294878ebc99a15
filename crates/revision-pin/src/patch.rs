mod place;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use git2::{
    ApplyLocation, ApplyOptions, Delta, Diff, DiffDelta, DiffHunk, Repository, RepositoryInitOptions,
};
use serde::{Deserialize, Serialize};

use self::place::Placed;

/// A patch, as it was read from its file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patch {
    /// The name of the file, without its folder.
    pub name: String,
    /// Digest of the file.
    pub sha256: Sha256,
    bytes: Vec<u8>,
}

/// A patch that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AppliedPatch {
    /// The name of its file.
    pub name: String,
    /// Digest of its file.
    pub sha256: Sha256,
    /// Size of its file.
    pub bytes: u64,
    /// The files it changed.
    pub files: Vec<PatchedFile>,
}

/// A file that a patch changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PatchedFile {
    /// Its path, in the tree that results.
    pub path: String,
    /// What happened to it.
    pub change: Change,
    /// Its path before, if the patch renamed it.
    pub renamed_from: Option<String>,
    /// For each hunk, how many lines further down it was applied than it says; negative is further up.
    pub offset_lines: Vec<i64>,
}

/// What a patch does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Change {
    /// It is new.
    Added,
    /// It is deleted.
    Deleted,
    /// It has other content, or another mode.
    Modified,
    /// It has another name.
    Renamed,
}

/// A patch cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The file cannot be read.
    #[error("read the patch {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// It is not a patch that git understands.
    #[error("apply the patch `{name}`: it is not a patch in git's format")]
    Malformed {
        /// The name of the patch.
        name: String,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
    /// It changes nothing.
    #[error("apply the patch `{name}`: it changes no file")]
    Empty {
        /// The name of the patch.
        name: String,
    },
    /// A part of it does not fit the revision; nothing of it was applied.
    #[error("apply the patch `{name}`: `{file}` {}", hunk.as_ref().map_or("does not fit".to_owned(), |hunk| format!("does not fit at hunk {hunk}")))]
    DoesNotApply {
        /// The name of the patch.
        name: String,
        /// The file it does not fit.
        file: String,
        /// Which hunk of that file, with its own header; nothing when the file as a whole does not fit.
        hunk: Option<String>,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
    /// A step around it failed.
    #[error("apply the patch `{name}`: {action}")]
    Git {
        /// The name of the patch.
        name: String,
        /// The step.
        action: &'static str,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
    /// A folder for it could not be made.
    #[error("apply the patch `{name}`: make a folder for it")]
    Io {
        /// The name of the patch.
        name: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(path: &Path) -> Result<Patch, PatchError> {
        let bytes = fs::read(path).map_err(|source| PatchError::Read { path: path.to_owned(), source })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Patch::new(name, bytes))
    }

    /// A patch from memory.
    #[must_use]
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> Patch {
        Patch { name: name.into(), sha256: Sha256::of(&bytes), bytes }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A repository for one patch, around the tree it is for.
///
/// libgit2 stores the resulting files as objects first, and marks an object that exists already as recently used, also
/// in a repository that is merely borrowed from: that would touch the user's. So the patch is applied through a
/// repository of its own, which has no objects and no alternates, and which is gone afterwards.
struct Scratch {
    repo: Repository,
    _folder: tempfile::TempDir,
}

impl Scratch {
    fn new(root: &Path, patch: &Patch) -> Result<Self, PatchError> {
        let name = || patch.name.clone();
        let git = |action| move |source| PatchError::Git { name: name(), action, source };
        let io = |source| PatchError::Io { name: name(), source };
        let folder = tempfile::Builder::new().prefix("patch-").tempdir_in(root.join(".git")).map_err(io)?;
        let mut init = RepositoryInitOptions::new();
        init.bare(true).external_template(false);
        let repo = Repository::init_opts(folder.path(), &init).map_err(git("make a repository for it"))?;
        let info = folder.path().join("info");
        fs::create_dir_all(&info)
            .and_then(|()| fs::write(info.join("attributes"), crate::checkout::NO_CONVERSION))
            .map_err(io)?;
        repo.set_workdir(root, false).map_err(git("enter the tree"))?;
        Ok(Scratch { repo, _folder: folder })
    }
}

/// Applies a patch to a working tree.
pub(crate) fn apply(root: &Path, patch: &Patch) -> Result<AppliedPatch, PatchError> {
    let name = || patch.name.clone();
    let placed = Placed::on(root, &patch.bytes);
    if let Some(file) = placed.wrong_deletion {
        let source = git2::Error::from_str("the file to be deleted has other content");
        return Err(PatchError::DoesNotApply { name: name(), file, hunk: None, source });
    }
    let diff =
        Diff::from_buffer(&placed.bytes).map_err(|source| PatchError::Malformed { name: name(), source })?;
    if let Some(file) = behind_a_link(root, &diff) {
        let source = git2::Error::from_str("the path leads through a symbolic link");
        return Err(PatchError::DoesNotApply { name: name(), file, hunk: None, source });
    }
    let scratch = Scratch::new(root, patch)?;
    let progress = RefCell::new(Progress::default());
    let mut options = ApplyOptions::new();
    options.delta_callback(|delta| progress.borrow_mut().delta(delta.as_ref()));
    options.hunk_callback(|hunk| progress.borrow_mut().hunk(hunk.as_ref()));
    let applied = scratch.repo.apply(&diff, ApplyLocation::WorkDir, Some(&mut options));
    drop(options);
    let progress = progress.into_inner();
    match applied {
        Ok(()) if progress.files.is_empty() => Err(PatchError::Empty { name: name() }),
        Ok(()) => Ok(AppliedPatch {
            name: name(),
            sha256: patch.sha256,
            bytes: patch.bytes.len() as u64,
            files: progress.files.into_iter().map(|file| placed.offsets_of(file)).collect(),
        }),
        Err(source) => Err(progress.failure(name(), source)),
    }
}

/// The first file of a patch that is a link or lies behind one. libgit2 follows it, wherever it leads.
fn behind_a_link(root: &Path, diff: &Diff<'_>) -> Option<String> {
    let paths = diff.deltas().flat_map(|delta| {
        let path = |file: git2::DiffFile<'_>| file.path().map(Path::to_owned);
        [path(delta.old_file()), path(delta.new_file())]
    });
    let is_link = |path: &Path| root.join(path).is_symlink();
    let found =
        paths.flatten().find(|path| path.ancestors().any(|part| part != Path::new("") && is_link(part)));
    found.map(|path| path.to_string_lossy().into_owned())
}

/// What libgit2 was working at last; its own error names neither file nor hunk.
#[derive(Default)]
struct Progress {
    files: Vec<PatchedFile>,
    hunks: usize,
    last_hunk: Option<String>,
}

impl Progress {
    fn delta(&mut self, delta: Option<&DiffDelta<'_>>) -> bool {
        let Some(delta) = delta else { return true };
        let path = |file: git2::DiffFile<'_>| {
            file.path_bytes().map(|path| String::from_utf8_lossy(path).into_owned())
        };
        let (old, new) = (path(delta.old_file()), path(delta.new_file()));
        let change = match delta.status() {
            Delta::Added | Delta::Copied | Delta::Untracked => Change::Added,
            Delta::Deleted => Change::Deleted,
            Delta::Renamed => Change::Renamed,
            _ => Change::Modified,
        };
        let renamed_from = (change == Change::Renamed).then(|| old.clone()).flatten();
        let path = if change == Change::Deleted { old.or(new) } else { new.or(old) };
        self.files.push(PatchedFile {
            path: path.unwrap_or_default(),
            change,
            renamed_from,
            offset_lines: Vec::new(),
        });
        (self.hunks, self.last_hunk) = (0, None);
        true
    }

    fn hunk(&mut self, hunk: Option<&DiffHunk<'_>>) -> bool {
        let header = hunk.map(|hunk| String::from_utf8_lossy(hunk.header()).trim_end().to_owned());
        self.hunks += 1;
        self.last_hunk = header.map(|header| format!("{} ({header})", self.hunks));
        true
    }

    fn failure(self, name: String, source: git2::Error) -> PatchError {
        match self.files.last() {
            Some(file) => {
                let file = file.renamed_from.as_ref().unwrap_or(&file.path).clone();
                PatchError::DoesNotApply { name, file, hunk: self.last_hunk, source }
            }
            None => PatchError::Git { name, action: "start", source },
        }
    }
}
