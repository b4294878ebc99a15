//! Git repositories for tests.

use std::path::Path;

use git2::build::TreeUpdateBuilder;
use git2::{
    BranchType, Commit, FileMode, ObjectType, Oid, Repository, RepositoryInitOptions, Signature, Time,
};
use tempfile::TempDir;

/// A repository in a temporary folder. Authors and times are fixed, so that the same commits have the same ids.
pub struct TempRepository {
    folder: TempDir,
    repository: Repository,
    commits: i64,
}

impl TempRepository {
    /// An empty repository whose branch is `main`.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut options = RepositoryInitOptions::new();
        options.external_template(false).initial_head("main");
        let repository = Repository::init_opts(folder.path(), &options).expect("an empty repository");
        Self { folder, repository, commits: 0 }
    }

    /// The working tree.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The repository itself, for what has no helper here.
    #[must_use]
    pub fn git(&self) -> &Repository {
        &self.repository
    }

    /// Commits changes on top of `HEAD` and checks them out: `Some` text writes a file, `None` removes it. Returns the id.
    pub fn commit(&mut self, changes: &[(&str, Option<&str>)], message: &str) -> String {
        let head = self.repository.head().ok().and_then(|head| head.target());
        let id = self.commit_on(head.as_slice(), changes, message);
        let mut checkout = git2::build::CheckoutBuilder::new();
        self.repository.checkout_head(Some(checkout.force())).expect("checks out");
        id
    }

    /// Commits changes on an empty tree, without parents, and leaves `HEAD` alone. Returns the id.
    pub fn orphan(&mut self, changes: &[(&str, Option<&str>)], message: &str) -> String {
        let tree = self.tree(None, changes);
        let author = self.author();
        let tree = self.repository.find_tree(tree).expect("the tree just written");
        self.repository.commit(None, &author, &author, message, &tree, &[]).expect("commits").to_string()
    }

    /// Makes or moves a branch.
    pub fn branch(&self, name: &str, id: &str) {
        let commit = self.repository.find_commit(id.parse().expect("an id")).expect("a commit");
        self.repository.branch(name, &commit, true).expect("a branch");
    }

    /// Makes a tag; with a message it is an object of its own, whose id is returned.
    pub fn tag(&self, name: &str, id: &str, message: Option<&str>) -> String {
        let target = self.repository.find_object(id.parse().expect("an id"), None).expect("an object");
        let made = match message {
            Some(message) => self.repository.tag(name, &target, &self.author(), message, false),
            None => self.repository.tag_lightweight(name, &target, false),
        };
        made.expect("a tag").to_string()
    }

    /// Everything a stranger must not change: `HEAD`, branches, tags and the index, as text to compare.
    #[must_use]
    pub fn state(&self) -> String {
        let mut lines =
            vec![format!("HEAD {:?}", self.repository.head().ok().and_then(|head| head.target()))];
        for reference in self.repository.references().expect("references").flatten() {
            lines.push(format!("{:?} {:?}", reference.name().ok(), reference.target()));
        }
        for branch in self.repository.branches(Some(BranchType::Local)).expect("branches").flatten() {
            lines.push(format!("branch {:?}", branch.0.name().ok().flatten()));
        }
        for entry in self.repository.index().expect("an index").iter() {
            lines.push(format!("index {} {}", String::from_utf8_lossy(&entry.path), entry.id));
        }
        lines.sort();
        lines.join("\n")
    }

    fn commit_on(&mut self, parent: &[Oid], changes: &[(&str, Option<&str>)], message: &str) -> String {
        let parents: Vec<Commit<'_>> =
            parent.iter().map(|id| self.repository.find_commit(*id).expect("a parent")).collect();
        let tree = self.tree(parents.first(), changes);
        let tree = self.repository.find_tree(tree).expect("the tree just written");
        let author = self.author();
        let id = self.repository.commit(
            Some("HEAD"),
            &author,
            &author,
            message,
            &tree,
            &parents.iter().collect::<Vec<_>>(),
        );
        drop((tree, parents));
        self.commits += 1;
        id.expect("commits").to_string()
    }

    fn tree(&self, parent: Option<&Commit<'_>>, changes: &[(&str, Option<&str>)]) -> Oid {
        let empty = || {
            let id = self.repository.treebuilder(None).expect("a builder").write().expect("an empty tree");
            self.repository.find_tree(id).expect("the tree just written")
        };
        let base = parent.map_or_else(empty, |parent| parent.tree().expect("a tree"));
        let mut update = TreeUpdateBuilder::new();
        for (path, text) in changes {
            match text {
                Some(text) => {
                    let blob = self.repository.blob(text.as_bytes()).expect("a blob");
                    update.upsert(*path, blob, FileMode::Blob);
                }
                None => {
                    update.remove(*path);
                }
            }
        }
        let id = update.create_updated(&self.repository, &base).expect("a tree");
        assert_eq!(self.repository.find_object(id, None).expect("it").kind(), Some(ObjectType::Tree));
        id
    }

    /// One minute later for each commit.
    fn author(&self) -> Signature<'static> {
        let time = Time::new(1_735_689_600 + 60 * self.commits, 0);
        Signature::new("A Test", "test@kv-replay-parity.invalid", &time).expect("a signature")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_build_on_each_other_and_have_fixed_ids() {
        let make = || {
            let mut repository = TempRepository::new();
            let first = repository.commit(&[("a/b.txt", Some("1")), ("c.txt", Some("2"))], "first");
            let second = repository.commit(&[("c.txt", None), ("a/b.txt", Some("3"))], "second");
            (repository, first, second)
        };
        let ((one, first, second), (_two, ..)) = (make(), make());
        assert_eq!((first.as_str(), second.as_str()), (make().1.as_str(), make().2.as_str()));
        assert_eq!(std::fs::read_to_string(one.path().join("a/b.txt")).expect("there"), "3");
        assert!(!one.path().join("c.txt").exists());
        let child = one.git().find_commit(second.parse().expect("id")).expect("commit");
        assert_eq!(child.parent_id(0).expect("parent").to_string(), first);
    }

    #[test]
    fn the_state_shows_a_new_branch_and_nothing_else() {
        let mut repository = TempRepository::new();
        let id = repository.commit(&[("a", Some("1"))], "first");
        let before = repository.state();
        let orphan = repository.orphan(&[("b", Some("2"))], "apart");
        assert_eq!(repository.state(), before);
        repository.branch("other", &orphan);
        assert_ne!(repository.state(), before);
        let tag = repository.tag("v1", &id, Some("a release"));
        assert_ne!(tag, id);
        assert_eq!(repository.tag("v1-light", &id, None), id);
    }
}
