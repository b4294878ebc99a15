use std::fmt;
use std::path::Path;

use git2::{BranchType, ErrorCode, ObjectType, Repository};
use serde::{Deserialize, Serialize};

use crate::repository::{facts, open};
use crate::{CommitId, RepositoryError, RepositoryFacts};

/// How strictly a revision is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinOptions {
    /// Whether the id of a tag object stands for the commit it points at.
    pub peel_tag: bool,
}

impl PinOptions {
    /// Accepts the id of a tag object.
    #[must_use]
    pub fn peel_tag(mut self, peel: bool) -> Self {
        self.peel_tag = peel;
        self
    }
}

/// A revision that can no longer move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "a revision is pinned to be checked out"]
#[non_exhaustive]
pub struct Pinned {
    /// The commit.
    pub commit: CommitId,
    /// Its tree.
    pub tree: CommitId,
    /// The tag object it was peeled from, if that was asked for.
    pub peeled_from: Option<CommitId>,
    /// When it was committed, seconds since 1970.
    pub committed_unix_s: i64,
    /// The first line of its message.
    pub subject: String,
    /// The kind of repository it was found in.
    pub repository: RepositoryFacts,
}

/// What a name that is not a full commit id turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameKind {
    /// `HEAD`.
    Head,
    /// A branch.
    Branch,
    /// A branch of a remote.
    RemoteBranch,
    /// A tag.
    Tag,
    /// The first digits of an id.
    Abbreviation,
    /// Anything else that git can resolve, such as `main~3`.
    Expression,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameKind::Head => "the current commit, which moves",
            NameKind::Branch => "a branch, which moves",
            NameKind::RemoteBranch => "a remote branch, which moves",
            NameKind::Tag => "a tag, which can be moved",
            NameKind::Abbreviation => "an abbreviation, which can become ambiguous",
            NameKind::Expression => "an expression, whose meaning can change",
        })
    }
}

/// A revision cannot be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The repository cannot be used.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The name is not a full commit id; the id it stands for at this moment can be pinned.
    #[error("pin `{name}`: it is {kind}; it means {resolves_to} now: pin that id")]
    NotAnId {
        /// The name given.
        name: String,
        /// What it is.
        kind: NameKind,
        /// The commit it stands for now.
        resolves_to: CommitId,
    },
    /// The name is not a full commit id, and means nothing in this repository.
    #[error("pin `{name}`: it is not a full commit id, and no branch, tag or commit of this repository")]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The id is that of a tag object, which was not asked to be peeled.
    #[error(
        "pin `{id}`: it is the tag object `{tag}`, which points at {commit}: pin that id, or ask to peel tags"
    )]
    TagObject {
        /// The id given.
        id: CommitId,
        /// The name inside the tag object.
        tag: String,
        /// The commit it points at.
        commit: CommitId,
    },
    /// The id is that of something that has no commit.
    #[error("pin `{id}`: it is a {kind}, not a commit")]
    NotACommit {
        /// The id given.
        id: CommitId,
        /// What it is.
        kind: &'static str,
    },
    /// The repository has no such object.
    #[error("pin `{id}`: the repository has no such object{}", if *shallow { " (its history is cut: it is shallow)" } else { "" })]
    Absent {
        /// The id given.
        id: CommitId,
        /// Whether the history of the repository was cut.
        shallow: bool,
    },
    /// An object cannot be read.
    #[error("pin `{id}`: the object cannot be read")]
    Unreadable {
        /// The id given.
        id: CommitId,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

/// Turns a full commit id into a pinned revision.
///
/// Anything else is refused with the id it stands for now. The repository is only read.
///
/// # Errors
///
/// The name is not a full id, the repository has no such commit, or it cannot be read.
pub fn pin(repo: &Path, name: &str, options: PinOptions) -> Result<Pinned, PinError> {
    let repo = open(repo)?;
    let Ok(id) = name.parse::<CommitId>() else { return Err(refuse_name(&repo, name)) };
    let unreadable = |source| PinError::Unreadable { id, source };
    let object = match repo.find_object(id.oid(), None) {
        Ok(object) => object,
        Err(error) if error.code() == ErrorCode::NotFound => {
            return Err(PinError::Absent { id, shallow: repo.is_shallow() });
        }
        Err(source) => return Err(unreadable(source)),
    };
    let kind = object.kind();
    let peeled = object.peel_to_commit();
    let commit = match (kind, peeled) {
        (Some(ObjectType::Commit), Ok(commit)) => commit,
        (Some(ObjectType::Tag), Ok(commit)) if options.peel_tag => commit,
        (Some(ObjectType::Tag), Ok(commit)) => {
            let tag = object.as_tag().and_then(|tag| tag.name().ok()).unwrap_or_default().to_owned();
            return Err(PinError::TagObject { id, tag, commit: commit.id().into() });
        }
        (Some(ObjectType::Tag), Err(_)) => return Err(PinError::NotACommit { id, kind: "tag of no commit" }),
        (kind, _) => {
            return Err(PinError::NotACommit { id, kind: kind.map_or("broken object", |kind| kind.str()) });
        }
    };
    Ok(Pinned {
        commit: commit.id().into(),
        tree: commit.tree_id().into(),
        peeled_from: (kind == Some(ObjectType::Tag)).then_some(id),
        committed_unix_s: commit.time().seconds(),
        subject: String::from_utf8_lossy(commit.message_bytes())
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        repository: facts(&repo),
    })
}

fn refuse_name(repo: &Repository, name: &str) -> PinError {
    let found = repo.revparse_single(name).and_then(|object| object.peel_to_commit());
    match found {
        Ok(commit) => PinError::NotAnId {
            name: name.to_owned(),
            kind: kind_of(repo, name),
            resolves_to: commit.id().into(),
        },
        Err(_) => PinError::Unknown { name: name.to_owned() },
    }
}

fn kind_of(repo: &Repository, name: &str) -> NameKind {
    let reference = repo.resolve_reference_from_short_name(name).ok();
    let full = reference.as_ref().and_then(|reference| reference.name().ok()).unwrap_or_default();
    match name {
        "HEAD" | "@" => NameKind::Head,
        _ if repo.find_branch(name, BranchType::Local).is_ok() || full.starts_with("refs/heads/") => {
            NameKind::Branch
        }
        _ if full.starts_with("refs/remotes/") => NameKind::RemoteBranch,
        _ if full.starts_with("refs/tags/") => NameKind::Tag,
        _ if name.bytes().all(|byte| byte.is_ascii_hexdigit()) => NameKind::Abbreviation,
        _ => NameKind::Expression,
    }
}

/// How the candidate stands to the baseline in history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Relationship {
    /// They are one commit.
    Same,
    /// The baseline is an ancestor of the candidate.
    Ancestor {
        /// How many commits the candidate has more.
        commits: usize,
    },
    /// The candidate is an ancestor of the baseline: the two may have been exchanged.
    Reversed {
        /// How many commits the baseline has more.
        commits: usize,
    },
    /// They share history, and each has commits of its own.
    Diverged {
        /// The youngest commit that both have.
        merge_base: CommitId,
        /// Commits of the baseline alone.
        baseline_only: usize,
        /// Commits of the candidate alone.
        candidate_only: usize,
    },
    /// They share no history.
    Unrelated,
    /// No common history is visible, and the repository is shallow: there may be some beyond the cut.
    Undetermined,
}

impl Relationship {
    /// Whether a campaign may go on without a relationship stated in its file.
    #[must_use]
    pub fn is_ancestry(&self) -> bool {
        matches!(self, Relationship::Ancestor { .. })
    }
}

impl fmt::Display for Relationship {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Relationship::Same => write!(f, "baseline and candidate are the same commit"),
            Relationship::Ancestor { commits } => {
                write!(f, "the candidate is {} after the baseline", counted(*commits))
            }
            Relationship::Reversed { commits } => {
                write!(f, "the baseline is {} after the candidate: they may be exchanged", counted(*commits))
            }
            Relationship::Diverged { merge_base, baseline_only, candidate_only } => write!(
                f,
                "the revisions part at {}: {} of the baseline and {} of the candidate",
                merge_base.short(),
                counted(*baseline_only),
                counted(*candidate_only)
            ),
            Relationship::Unrelated => write!(f, "the revisions share no history"),
            Relationship::Undetermined => {
                write!(f, "the revisions share no history above the cut of a shallow repository")
            }
        }
    }
}

fn counted(commits: usize) -> String {
    format!("{commits} commit{}", if commits == 1 { "" } else { "s" })
}

/// The relationship of two revisions cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelationshipError {
    /// The repository cannot be used.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The history cannot be walked.
    #[error("walk the history between {baseline} and {candidate}")]
    History {
        /// The baseline.
        baseline: CommitId,
        /// The candidate.
        candidate: CommitId,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

/// Looks up how the candidate stands to the baseline.
///
/// # Errors
///
/// The repository or its history cannot be read.
pub fn relationship(
    repo: &Path,
    baseline: CommitId,
    candidate: CommitId,
) -> Result<Relationship, RelationshipError> {
    let repo = open(repo)?;
    let history = |source| RelationshipError::History { baseline, candidate, source };
    if baseline == candidate {
        return Ok(Relationship::Same);
    }
    let merge_base = match repo.merge_base(baseline.oid(), candidate.oid()) {
        Ok(base) => CommitId::from(base),
        Err(error) if error.code() == ErrorCode::NotFound => {
            let cut = repo.is_shallow();
            return Ok(if cut { Relationship::Undetermined } else { Relationship::Unrelated });
        }
        Err(source) => return Err(history(source)),
    };
    let (baseline_only, candidate_only) =
        repo.graph_ahead_behind(baseline.oid(), candidate.oid()).map_err(history)?;
    Ok(match (baseline_only, candidate_only) {
        (0, commits) => Relationship::Ancestor { commits },
        (commits, 0) => Relationship::Reversed { commits },
        _ => Relationship::Diverged { merge_base, baseline_only, candidate_only },
    })
}
