//! Two commits with fixed authors and times.

use std::path::Path;

use git2::build::{CheckoutBuilder, TreeUpdateBuilder};
use git2::{Commit, FileMode, Oid, Repository, RepositoryInitOptions, Signature, Time, Tree};

use super::source::Sources;
use super::{DemoError, Fault};

/// The second of each commit, in Unix time: midnight of 1 January 2025 UTC, and one hour later.
const BASELINE_TIME_S: i64 = 1_735_689_600;
const CANDIDATE_TIME_S: i64 = BASELINE_TIME_S + 3_600;

/// The ids of the two commits.
pub(super) struct Commits {
    pub(super) baseline: String,
    pub(super) candidate: String,
}

/// Makes the repository, with the candidate in its working tree.
pub(super) fn commit(
    path: &Path,
    baseline: &Sources,
    candidate: &Sources,
    fault: Option<Fault>,
) -> Result<Commits, DemoError> {
    let failed = |action| move |source| DemoError::Git { action, path: path.to_owned(), source };
    let repository = init(path).map_err(failed("initialise"))?;
    let first = add(&repository, baseline, BASELINE_TIME_S, "Replay KV-aware serving", None);
    let first = first.map_err(failed("commit the baseline"))?;
    let message = match fault {
        None => "Choose a worker in one pass".to_owned(),
        Some(fault) => format!("Choose a worker in one pass\n\nPlanted on purpose: {fault}."),
    };
    let second = add(&repository, candidate, CANDIDATE_TIME_S, &message, Some(first));
    let second = second.map_err(failed("commit the candidate"))?;
    let mut whole = CheckoutBuilder::new();
    repository.checkout_head(Some(whole.force())).map_err(failed("check out the candidate"))?;
    Ok(Commits { baseline: first.to_string(), candidate: second.to_string() })
}

/// Without the templates and the default branch name of whoever runs this.
fn init(path: &Path) -> Result<Repository, git2::Error> {
    let mut options = RepositoryInitOptions::new();
    options.external_template(false).initial_head("main").no_reinit(true).mkpath(true);
    Repository::init_opts(path, &options)
}

/// Commits exactly these files. They are added as they are: no filter of the user's configuration sees them.
fn add(
    repository: &Repository,
    sources: &Sources,
    time_s: i64,
    message: &str,
    parent: Option<Oid>,
) -> Result<Oid, git2::Error> {
    let mut update = TreeUpdateBuilder::new();
    for (path, text) in sources {
        update.upsert(path, repository.blob(text.as_bytes())?, FileMode::Blob);
    }
    let tree = repository.find_tree(update.create_updated(repository, &empty(repository)?)?)?;
    let author = Signature::new("Parity Demo", "demo@kv-replay-parity.invalid", &Time::new(time_s, 0))?;
    let parent = parent.map(|id| repository.find_commit(id)).transpose()?;
    let parents: Vec<&Commit<'_>> = parent.iter().collect();
    repository.commit(Some("HEAD"), &author, &author, message, &tree, &parents)
}

fn empty(repository: &Repository) -> Result<Tree<'_>, git2::Error> {
    repository.find_tree(repository.treebuilder(None)?.write()?)
}
