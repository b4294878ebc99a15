use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use git2::build::CheckoutBuilder;
use git2::{
    ErrorCode, ObjectType, Repository, RepositoryInitOptions, StatusOptions, TreeWalkMode, TreeWalkResult,
};
use serde::{Deserialize, Serialize};

use crate::folder::{self, FolderError, make_new, remove};
use crate::patch::{self, AppliedPatch, Patch, PatchError};
use crate::repository::open;
use crate::{CommitId, Pinned, RepositoryError};

/// What to do with a revision whose commit does not hold everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckoutOptions {
    /// Check out a revision with submodules, whose folders stay empty. Otherwise it is refused.
    pub without_submodules: bool,
    /// Refuse a revision with Git LFS pointers. Otherwise they are checked out as pointers, and listed.
    pub refuse_lfs_pointers: bool,
}

impl CheckoutOptions {
    /// Accepts submodules, and leaves their folders empty.
    #[must_use]
    pub fn without_submodules(mut self, accept: bool) -> Self {
        self.without_submodules = accept;
        self
    }

    /// Refuses Git LFS pointers.
    #[must_use]
    pub fn refuse_lfs_pointers(mut self, refuse: bool) -> Self {
        self.refuse_lfs_pointers = refuse;
        self
    }
}

/// A submodule that a revision names; nothing of it is checked out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Submodule {
    /// Where it belongs.
    pub path: String,
    /// The commit it should have.
    pub commit: CommitId,
}

/// A revision cannot be checked out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutError {
    /// The repository cannot be used.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The revision has submodules, which are not in the repository.
    #[error("check out {commit}: it has submodules, the first is `{}`", submodules[0].path)]
    Submodules {
        /// The commit.
        commit: CommitId,
        /// Its submodules; at least one.
        submodules: Vec<Submodule>,
    },
    /// The revision has files that live in Git LFS.
    #[error("check out {commit}: {} files are Git LFS pointers, the first is `{}`", paths.len(), paths[0])]
    LfsPointers {
        /// The commit.
        commit: CommitId,
        /// The files; at least one.
        paths: Vec<String>,
    },
    /// An object is not there: the repository is a partial clone, or damaged.
    #[error("check out {commit}: an object is missing{}", if *partial { " (the repository is a partial clone: fetch the commit whole)" } else { "" })]
    ObjectMissing {
        /// The commit.
        commit: CommitId,
        /// Whether the repository is a partial clone.
        partial: bool,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
    /// A step of the checkout failed.
    #[error("check out {commit}: {action}")]
    Git {
        /// The commit.
        commit: CommitId,
        /// The step.
        action: &'static str,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

/// The working tree of one revision, in a private clone.
///
/// The clone borrows its objects from the user's repository through alternates, which is reading. It has a repository,
/// an index and a `HEAD` of its own; the user's working tree, index, branches, stash and objects are never written to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkout {
    root: PathBuf,
    pinned: Pinned,
    patches: Vec<AppliedPatch>,
    patched: BTreeMap<String, Option<Sha256>>,
    submodules: Vec<Submodule>,
    lfs_pointers: Vec<String>,
}

/// Attributes that switch every conversion off: a file in the working tree is the blob, byte for byte.
pub(crate) const NO_CONVERSION: &str = "* -text -eol -crlf -ident -filter -working-tree-encoding\n";

impl Checkout {
    /// Checks a pinned revision out into a folder that does not exist yet.
    ///
    /// # Errors
    ///
    /// The folder exists, the revision is not whole, or git or the operating system refused. The folder is removed.
    pub fn create(
        repo: &Path,
        pinned: &Pinned,
        folder: &Path,
        options: CheckoutOptions,
    ) -> Result<Checkout, CheckoutError> {
        let source = open(repo)?;
        let root = make_new(folder)?;
        let created = Checkout::fill(&source, pinned, &root, options);
        if created.is_err() {
            // The error that is returned is the one worth reading; what stays is removed by the next `remove`.
            let _ = remove(&root);
        }
        created
    }

    fn fill(
        source: &Repository,
        pinned: &Pinned,
        root: &Path,
        options: CheckoutOptions,
    ) -> Result<Checkout, CheckoutError> {
        let git = |action| move |source| CheckoutError::Git { commit: pinned.commit, action, source };
        let clone = private_clone(source, pinned, root)?;
        let contents = Contents::of(&clone, pinned, source)?;
        contents.check(pinned, options)?;
        let commit = clone
            .find_object(pinned.commit.oid(), Some(ObjectType::Commit))
            .map_err(git("find the commit"))?;
        clone.set_head_detached(commit.id()).map_err(git("detach the head"))?;
        let mut checkout = CheckoutBuilder::new();
        checkout.force().disable_filters(true);
        clone.checkout_tree(&commit, Some(&mut checkout)).map_err(|error| missing(pinned, source, error))?;
        Ok(Checkout {
            root: root.to_owned(),
            pinned: pinned.clone(),
            patches: Vec::new(),
            patched: BTreeMap::new(),
            submodules: contents.submodules,
            lfs_pointers: contents.lfs_pointers,
        })
    }

    /// The top of the working tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The revision that is checked out.
    pub fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// The patches applied so far, in order.
    #[must_use]
    pub fn patches(&self) -> &[AppliedPatch] {
        &self.patches
    }

    /// Submodules whose folders are empty.
    #[must_use]
    pub fn submodules(&self) -> &[Submodule] {
        &self.submodules
    }

    /// Files that hold a Git LFS pointer instead of their content.
    #[must_use]
    pub fn lfs_pointers(&self) -> &[String] {
        &self.lfs_pointers
    }

    /// Applies a patch to the working tree, whole or not at all. It is recorded and is no part of the revision:
    /// the commit and the tree that are reported stay those of the revision.
    ///
    /// # Errors
    ///
    /// The patch does not apply; the error names the file and the hunk.
    pub fn apply(&mut self, patch: &Patch) -> Result<AppliedPatch, PatchError> {
        let applied = patch::apply(&self.root, patch)?;
        for file in &applied.files {
            for path in [Some(&file.path), file.renamed_from.as_ref()].into_iter().flatten() {
                self.patched.insert(
                    path.clone(),
                    Sha256::of_file(&self.root.join(path)).ok().map(|(sha256, _)| sha256),
                );
            }
        }
        self.patches.push(applied.clone());
        Ok(applied)
    }

    /// Files that differ from the revision and its patches, ignored ones left out. A build that changes its own
    /// sources is worth knowing of.
    ///
    /// # Errors
    ///
    /// The private clone cannot be read.
    pub fn changes(&self) -> Result<Vec<String>, CheckoutError> {
        let git =
            |source| CheckoutError::Git { commit: self.pinned.commit, action: "compare the tree", source };
        let clone = Repository::open(&self.root).map_err(git)?;
        let mut options = StatusOptions::new();
        options.include_untracked(true).recurse_untracked_dirs(true).exclude_submodules(true);
        let statuses = clone.statuses(Some(&mut options)).map_err(git)?;
        let paths = statuses.iter().map(|status| String::from_utf8_lossy(status.path_bytes()).into_owned());
        Ok(paths.filter(|path| !self.is_as_patched(path)).collect())
    }

    fn is_as_patched(&self, path: &str) -> bool {
        let now = Sha256::of_file(&self.root.join(path)).ok().map(|(sha256, _)| sha256);
        self.patched.get(path).is_some_and(|patched| *patched == now)
    }

    /// Deletes the checkout.
    ///
    /// # Errors
    ///
    /// The operating system refused.
    pub fn remove(self) -> Result<(), FolderError> {
        remove(&self.root)
    }
}

fn private_clone(source: &Repository, pinned: &Pinned, root: &Path) -> Result<Repository, CheckoutError> {
    let git = |action| move |source| CheckoutError::Git { commit: pinned.commit, action, source };
    // The marker comes first: whatever a kill leaves from here on can be told to be ours.
    let git_dir = root.join(".git");
    fs::create_dir(&git_dir).map_err(FolderError::io("make the folder", &git_dir))?;
    folder::mark(&git_dir)?;
    let mut init = RepositoryInitOptions::new();
    init.external_template(false).no_reinit(true).initial_head("pinned");
    drop(Repository::init_opts(root, &init).map_err(git("make the private clone"))?);
    borrow_objects(source, root)?;
    let clone = Repository::open(root).map_err(git("open the private clone"))?;
    // A user's own configuration (line endings, an excludes file) must not shape the tree.
    let mut config = clone.config().map_err(git("configure the private clone"))?;
    for (key, value) in
        [("core.autocrlf", "false"), ("core.attributesFile", "/dev/null"), ("core.excludesFile", "/dev/null")]
    {
        config.set_str(key, value).map_err(git("configure the private clone"))?;
    }
    Ok(clone)
}

/// Lets the clone read the objects of the source, and know where its history was cut.
fn borrow_objects(source: &Repository, root: &Path) -> Result<(), FolderError> {
    let git_dir = root.join(".git");
    let common = source.commondir();
    let objects = common.join("objects").canonicalize().map_err(FolderError::io("look up", common))?;
    let info = git_dir.join("objects/info");
    fs::create_dir_all(&info).map_err(FolderError::io("make the folder", &info))?;
    let alternates = info.join("alternates");
    let line = [objects.as_os_str().as_bytes(), b"\n"].concat();
    fs::write(&alternates, line).map_err(FolderError::io("write", &alternates))?;
    let attributes = git_dir.join("info/attributes");
    fs::create_dir_all(git_dir.join("info")).map_err(FolderError::io("make the folder", &git_dir))?;
    fs::write(&attributes, NO_CONVERSION).map_err(FolderError::io("write", &attributes))?;
    let shallow = common.join("shallow");
    if shallow.is_file() {
        let copy = git_dir.join("shallow");
        fs::copy(&shallow, &copy).map_err(FolderError::io("copy the cut of the history to", &copy))?;
    }
    Ok(())
}

fn missing(pinned: &Pinned, source: &Repository, error: git2::Error) -> CheckoutError {
    match error.code() {
        ErrorCode::NotFound => {
            let promised = |name: &str| source.config().is_ok_and(|config| config.get_string(name).is_ok());
            let partial = promised("extensions.partialclone") || promised("remote.origin.promisor");
            CheckoutError::ObjectMissing { commit: pinned.commit, partial, source: error }
        }
        _ => CheckoutError::Git { commit: pinned.commit, action: "write the tree", source: error },
    }
}

/// What a commit names and does not hold.
#[derive(Default)]
struct Contents {
    submodules: Vec<Submodule>,
    lfs_pointers: Vec<String>,
}

/// The longest file that may be a Git LFS pointer, and how one begins.
const LFS_POINTER_BYTES: usize = 1024;
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1";

impl Contents {
    fn of(clone: &Repository, pinned: &Pinned, source: &Repository) -> Result<Self, CheckoutError> {
        let mut contents = Contents::default();
        let mut failed = None;
        let walked = clone.find_tree(pinned.tree.oid()).and_then(|tree| {
            tree.walk(TreeWalkMode::PreOrder, |folder, entry| match contents.look_at(clone, folder, entry) {
                Ok(()) => TreeWalkResult::Ok,
                Err(error) => {
                    failed = Some(error);
                    TreeWalkResult::Abort
                }
            })
        });
        match failed.map_or(walked, Err) {
            Ok(()) => Ok(contents),
            Err(error) => Err(missing(pinned, source, error)),
        }
    }

    fn look_at(
        &mut self,
        clone: &Repository,
        folder: &str,
        entry: &git2::TreeEntry<'_>,
    ) -> Result<(), git2::Error> {
        let path = || format!("{folder}{}", String::from_utf8_lossy(entry.name_bytes()));
        match entry.kind() {
            Some(ObjectType::Commit) => {
                self.submodules.push(Submodule { path: path(), commit: entry.id().into() });
            }
            Some(ObjectType::Blob) => {
                let (size, _) = clone.odb()?.read_header(entry.id())?;
                if size <= LFS_POINTER_BYTES
                    && clone.find_blob(entry.id())?.content().starts_with(LFS_POINTER)
                {
                    self.lfs_pointers.push(path());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, pinned: &Pinned, options: CheckoutOptions) -> Result<(), CheckoutError> {
        let commit = pinned.commit;
        if !self.submodules.is_empty() && !options.without_submodules {
            return Err(CheckoutError::Submodules { commit, submodules: self.submodules.clone() });
        }
        if !self.lfs_pointers.is_empty() && options.refuse_lfs_pointers {
            return Err(CheckoutError::LfsPointers { commit, paths: self.lfs_pointers.clone() });
        }
        Ok(())
    }
}
