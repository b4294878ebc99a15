use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use git2::{ErrorCode, Oid, Repository, RepositoryOpenFlags};
use serde::{Deserialize, Serialize};

/// A full object id of git: twenty bytes, written as forty lower-case hexadecimal digits.
///
/// ```
/// use revision_pin::CommitId;
///
/// let id: CommitId = "4caec51d2c9a3f0f6c7b8a9d0e1f2a3b4c5d6e7f".parse()?;
/// assert_eq!(id.to_string(), "4caec51d2c9a3f0f6c7b8a9d0e1f2a3b4c5d6e7f");
/// assert!("4caec51".parse::<CommitId>().is_err());
/// # Ok::<(), revision_pin::ParseIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId([u8; 20]);

/// A text is not a full object id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use `{0}` as a commit id: it is not 40 hexadecimal digits")]
pub struct ParseIdError(pub String);

impl CommitId {
    /// The first digits, for a reader; never to be parsed again.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{self:.12}")
    }

    pub(crate) fn oid(self) -> Oid {
        Oid::from_bytes(&self.0).expect("an object id is twenty bytes")
    }
}

impl From<Oid> for CommitId {
    fn from(oid: Oid) -> Self {
        let mut bytes = [0; 20];
        bytes.copy_from_slice(oid.as_bytes());
        CommitId(bytes)
    }
}

impl FromStr for CommitId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let full = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let oid = full.then(|| Oid::from_str(text).ok()).flatten();
        oid.map(CommitId::from).ok_or_else(|| ParseIdError(text.to_owned()))
    }
}

impl TryFrom<String> for CommitId {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<CommitId> for String {
    fn from(id: CommitId) -> String {
        id.to_string()
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.oid().to_string())
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitId({self})")
    }
}

/// What kind of repository the revisions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepositoryFacts {
    /// It has no working tree.
    pub bare: bool,
    /// It is a linked worktree of another repository.
    pub worktree: bool,
    /// Its history was cut; ancestry beyond the cut is unknown.
    pub shallow: bool,
}

/// A repository cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// There is none at exactly this path; its parents are not searched.
    #[error("open the repository {}: there is none at this path", path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// Git does not trust it, because it belongs to another user.
    #[error(
        "open the repository {}: it belongs to another user (`git config --global --add safe.directory` trusts it)",
        path.display()
    )]
    Owner {
        /// The path given.
        path: PathBuf,
    },
    /// It cannot be read: damaged, or of a format that libgit2 does not know, such as SHA-256 objects.
    #[error("open the repository {}", path.display())]
    Unreadable {
        /// The path given.
        path: PathBuf,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

/// Opens a repository for reading. Nothing in this crate ever writes to one it opened this way.
pub(crate) fn open(path: &Path) -> Result<Repository, RepositoryError> {
    let opened = Repository::open_ext(path, RepositoryOpenFlags::NO_SEARCH, &[] as &[&Path]);
    opened.map_err(|source| {
        let path = path.to_owned();
        match source.code() {
            ErrorCode::NotFound => RepositoryError::Missing { path },
            ErrorCode::Owner => RepositoryError::Owner { path },
            _ => RepositoryError::Unreadable { path, source },
        }
    })
}

pub(crate) fn facts(repo: &Repository) -> RepositoryFacts {
    RepositoryFacts { bare: repo.is_bare(), worktree: repo.is_worktree(), shallow: repo.is_shallow() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_ids_are_ids() {
        let id = "4CAEC51D2c9a3f0f6c7b8a9d0e1f2a3b4c5d6e7f";
        assert_eq!(id.parse::<CommitId>().unwrap().to_string(), id.to_lowercase());
        for text in ["", "HEAD", "main", "4caec51", &id[..39], &format!("{id}0"), &format!("{}g", &id[..39])]
        {
            assert_eq!(text.parse::<CommitId>(), Err(ParseIdError(text.to_owned())));
        }
        assert_eq!(id.parse::<CommitId>().unwrap().short(), "4caec51d2c9a");
    }
}
