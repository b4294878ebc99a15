//! Pinning, relationships, checkouts and patches on real repositories.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fixture;

use std::fs;
use std::path::Path;

use fixture::{Fixture, snapshot};
use git2::{ObjectType, Repository};
use revision_pin::{
    Change, Checkout, CheckoutError, CheckoutOptions, CommitId, FolderError, NameKind, Patch, PatchError,
    PinError, PinOptions, Relationship, RelationshipError, RepositoryError, pin, relationship,
};

fn refuse(repo: &Path, name: &str) -> PinError {
    pin(repo, name, PinOptions::default()).unwrap_err()
}

#[test]
fn only_full_ids_are_pinned_and_names_say_what_they_mean_now() {
    let fixture = Fixture::new();
    let first = fixture.commit(&[("a", "1\n")]);
    let second = fixture.commit(&[("a", "2\n")]);
    let repo = fixture.repo();
    let commit = repo.find_commit(second.to_string().parse().unwrap()).unwrap();
    repo.branch("feature/x", &commit, false).unwrap();
    repo.reference("refs/remotes/origin/main", commit.id(), false, "").unwrap();
    repo.tag_lightweight("v1", commit.as_object(), false).unwrap();
    repo.tag("v2", commit.as_object(), &fixture.who(), "annotated", false).unwrap();

    let pinned = fixture.pin(second);
    assert_eq!((pinned.commit, pinned.subject.as_str(), pinned.peeled_from), (second, "Do one thing", None));
    assert_eq!(pinned.tree, CommitId::from(commit.tree_id()));
    let upper = second.to_string().to_uppercase();
    assert_eq!(pin(&fixture.user(), &upper, PinOptions::default()).unwrap().commit, second);

    let short = second.short();
    for (name, kind, means) in [
        ("HEAD", NameKind::Head, second),
        ("@", NameKind::Head, second),
        ("main", NameKind::Branch, second),
        ("refs/heads/main", NameKind::Branch, second),
        ("feature/x", NameKind::Branch, second),
        ("origin/main", NameKind::RemoteBranch, second),
        ("v1", NameKind::Tag, second),
        ("v2", NameKind::Tag, second),
        (short.as_str(), NameKind::Abbreviation, second),
        ("main~1", NameKind::Expression, first),
        ("HEAD^", NameKind::Expression, first),
    ] {
        match refuse(&fixture.user(), name) {
            PinError::NotAnId { kind: found, resolves_to, .. } => {
                assert_eq!((found, resolves_to), (kind, means), "{name}")
            }
            other => panic!("{name}: {other}"),
        }
    }
    let text = refuse(&fixture.user(), "main").to_string();
    assert_eq!(text, format!("pin `main`: it is a branch, which moves; it means {second} now: pin that id"));
    for name in ["", "none", "main:a", "0123456", "--help"] {
        assert!(matches!(refuse(&fixture.user(), name), PinError::Unknown { .. }), "{name}");
    }
}

#[test]
fn ids_of_other_objects_are_refused_and_tags_are_peeled_only_when_asked() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("a", "1\n")]);
    let repo = fixture.repo();
    let commit = repo.find_object(id.to_string().parse().unwrap(), Some(ObjectType::Commit)).unwrap();
    let tree = commit.peel_to_tree().unwrap();
    let tag = repo.tag("v2", &commit, &fixture.who(), "annotated", false).unwrap();
    let tree_tag = repo.tag("tree", tree.as_object(), &fixture.who(), "of a tree", false).unwrap();

    match refuse(&fixture.user(), &tag.to_string()) {
        PinError::TagObject { tag, commit, .. } => assert_eq!((tag.as_str(), commit), ("v2", id)),
        other => panic!("{other}"),
    }
    let peeled = pin(&fixture.user(), &tag.to_string(), PinOptions::default().peel_tag(true)).unwrap();
    assert_eq!((peeled.commit, peeled.peeled_from), (id, Some(tag.into())));
    let peel = pin(&fixture.user(), "v2", PinOptions::default().peel_tag(true));
    assert!(
        matches!(peel, Err(PinError::NotAnId { kind: NameKind::Tag, .. })),
        "a name is a name, peeled or not"
    );
    for other in [tree.id(), tree.get(0).unwrap().id(), tree_tag] {
        assert!(matches!(refuse(&fixture.user(), &other.to_string()), PinError::NotACommit { .. }));
    }
    let absent = refuse(&fixture.user(), &"0".repeat(40));
    assert_eq!(absent.to_string(), format!("pin `{}`: the repository has no such object", "0".repeat(40)));
}

#[test]
fn what_is_no_repository_is_an_error() {
    let fixture = Fixture::new();
    let missing =
        |path: &Path| matches!(refuse(path, "main"), PinError::Repository(RepositoryError::Missing { .. }));
    assert!(missing(&fixture.top.path().join("none")));
    assert!(missing(fixture.top.path()));
    fs::create_dir(fixture.user().join("below")).unwrap();
    assert!(missing(&fixture.user().join("below")), "a repository above is not the one that was named");
    let id = "0".repeat(40).parse().unwrap();
    let result = relationship(&fixture.top.path().join("none"), id, id);
    assert!(matches!(result, Err(RelationshipError::Repository(_))));
}

#[test]
fn relationships_are_told_apart() {
    let fixture = Fixture::new();
    let first = fixture.commit(&[("a", "1\n")]);
    let second = fixture.commit(&[("a", "2\n")]);
    let third = fixture.commit(&[("a", "3\n")]);
    let repo = fixture.repo();
    let side = fixture.commit_on(&repo, "refs/heads/side", &[first.to_string().parse().unwrap()]);
    let orphan = fixture.commit_on(&repo, "refs/heads/orphan", &[]);
    let found = |baseline, candidate| relationship(&fixture.user(), baseline, candidate).unwrap();
    assert_eq!(found(second, second), Relationship::Same);
    assert_eq!(found(first, third), Relationship::Ancestor { commits: 2 });
    assert_eq!(found(third, first), Relationship::Reversed { commits: 2 });
    let diverged = Relationship::Diverged { merge_base: first, baseline_only: 2, candidate_only: 1 };
    assert_eq!(found(third, side), diverged);
    assert_eq!(found(third, orphan), Relationship::Unrelated);
    assert_eq!(found(second, third).to_string(), "the candidate is 1 commit after the baseline");
    assert!(
        found(third, side).to_string().ends_with(": 2 commits of the baseline and 1 commit of the candidate")
    );
    assert!(found(first, third).is_ancestry() && !found(third, first).is_ancestry());
    let absent = relationship(&fixture.user(), first, "0".repeat(40).parse().unwrap());
    assert!(matches!(absent, Err(RelationshipError::History { .. })));

    // A shallow repository does not know what is beyond its cut.
    fs::write(fixture.user().join(".git/shallow"), format!("{third}\n")).unwrap();
    assert_eq!(found(third, orphan), Relationship::Undetermined);
}

#[test]
fn a_checkout_is_the_tree_byte_for_byte_whatever_the_attributes_say() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[
        (".gitattributes", "*.crlf text eol=crlf\n*.lfs filter=lfs\n*.id ident\n"),
        ("unix.crlf", "a\nb\n"),
        ("x.id", "$Id$\n"),
        ("deep/er/file", "text\n"),
    ]);
    let checkout = fixture.checkout(id, "checkout");
    assert_eq!(fs::read(checkout.root().join("unix.crlf")).unwrap(), b"a\nb\n");
    assert_eq!(fs::read(checkout.root().join("x.id")).unwrap(), b"$Id$\n");
    assert_eq!(fs::read(checkout.root().join("deep/er/file")).unwrap(), b"text\n");
    assert_eq!(checkout.changes().unwrap(), Vec::<String>::new());
    let clone = Repository::open(checkout.root()).unwrap();
    assert!(clone.head_detached().unwrap());
    assert_eq!(CommitId::from(clone.head().unwrap().target().unwrap()), id);
    fs::write(checkout.root().join("deep/new"), "made by a build").unwrap();
    fs::write(checkout.root().join("x.id"), "changed").unwrap();
    assert_eq!(checkout.changes().unwrap(), ["deep/new", "x.id"]);
}

#[test]
fn a_checkout_never_mixes_and_a_refused_one_leaves_nothing() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("a", "1\n")]);
    let pinned = fixture.pin(id);
    let folder = fixture.work("there");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("precious"), "keep").unwrap();
    let result = Checkout::create(&fixture.user(), &pinned, &folder, CheckoutOptions::default());
    assert!(matches!(result, Err(CheckoutError::Folder(FolderError::Exists { .. }))));
    assert!(folder.join("precious").exists());

    let repo = fixture.repo();
    let module = git2::IndexEntry {
        ctime: git2::IndexTime::new(0, 0),
        mtime: git2::IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode: 0o160_000,
        uid: 0,
        gid: 0,
        file_size: 0,
        id: id.to_string().parse().unwrap(),
        flags: 0,
        flags_extended: 0,
        path: b"module".to_vec(),
    };
    let mut index = repo.index().unwrap();
    index.add(&module).unwrap();
    let tree = repo.find_tree(index.write_tree().unwrap()).unwrap();
    let commit = repo.commit(None, &fixture.who(), &fixture.who(), "module", &tree, &[]).unwrap();
    let pinned = fixture.pin(commit.into());
    let folder = fixture.work("modules");
    let error = Checkout::create(&fixture.user(), &pinned, &folder, CheckoutOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("check out {commit}: it has submodules, the first is `module`"));
    assert!(!folder.exists());
    let options = CheckoutOptions::default().without_submodules(true);
    let checkout = Checkout::create(&fixture.user(), &pinned, &folder, options).unwrap();
    assert_eq!((checkout.submodules()[0].path.as_str(), checkout.submodules()[0].commit), ("module", id));
    checkout.remove().unwrap();
    assert!(!folder.exists());
}

#[test]
fn lfs_pointers_are_listed_or_refused() {
    let fixture = Fixture::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    let id = fixture.commit(&[("data/big.bin", pointer), ("a", "1\n")]);
    let checkout = fixture.checkout(id, "listed");
    assert_eq!(checkout.lfs_pointers(), ["data/big.bin"]);
    let options = CheckoutOptions::default().refuse_lfs_pointers(true);
    let error =
        Checkout::create(&fixture.user(), &fixture.pin(id), &fixture.work("refused"), options).unwrap_err();
    assert!(matches!(&error, CheckoutError::LfsPointers { paths, .. } if paths == &["data/big.bin"]));
}

#[test]
fn a_missing_object_is_named_as_such() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("a", "lost\n")]);
    let blob = fixture.repo().revparse_single("HEAD:a").unwrap().id().to_string();
    let pinned = fixture.pin(id);
    fs::remove_file(fixture.user().join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let create =
        || Checkout::create(&fixture.user(), &pinned, &fixture.work("lost"), CheckoutOptions::default());
    assert!(matches!(create(), Err(CheckoutError::ObjectMissing { partial: false, .. })));
    assert!(!fixture.work("lost").exists());
    fixture.repo().config().unwrap().set_str("extensions.partialclone", "origin").unwrap();
    assert!(matches!(create(), Err(CheckoutError::ObjectMissing { partial: true, .. })));
}

#[test]
fn bare_linked_shallow_and_borrowing_repositories_work() {
    let fixture = Fixture::new();
    let first = fixture.commit(&[("a", "1\n")]);
    let id = fixture.commit(&[("a", "2\n")]);
    let repo = fixture.repo();
    let create = |from: &Path, name: &str| {
        let pinned = pin(from, &id.to_string(), PinOptions::default()).unwrap();
        let checkout =
            Checkout::create(from, &pinned, &fixture.work(name), CheckoutOptions::default()).unwrap();
        assert_eq!(fs::read(checkout.root().join("a")).unwrap(), b"2\n", "{name}");
        pinned.repository
    };

    let worktree = fixture.top.path().join("linked");
    repo.worktree("linked", &worktree, None).unwrap();
    assert!(create(&worktree, "from-linked").worktree);

    // A bare repository that itself borrows every object.
    let bare = fixture.top.path().join("bare.git");
    let bare_repo = Repository::init_bare(&bare).unwrap();
    fs::create_dir_all(bare.join("objects/info")).unwrap();
    fs::write(
        bare.join("objects/info/alternates"),
        format!("{}\n", fixture.user().join(".git/objects").display()),
    )
    .unwrap();
    drop(bare_repo);
    assert!(create(&bare, "from-bare").bare);

    // A shallow repository: the parent of the commit is not there.
    let shallow = fixture.user().join(".git/shallow");
    fs::write(shallow, format!("{id}\n")).unwrap();
    let parent = first.to_string();
    fs::remove_file(fixture.user().join(".git/objects").join(&parent[..2]).join(&parent[2..])).unwrap();
    assert!(create(&fixture.user(), "from-shallow").shallow);
    assert!(Repository::open(fixture.work("from-shallow")).unwrap().is_shallow());
    assert!(matches!(
        pin(&fixture.user(), &parent, PinOptions::default()),
        Err(PinError::Absent { shallow: true, .. })
    ));
}

/// Lines 1 to 20 of a file, some replaced.
fn lines(replace: &[(usize, &str)]) -> String {
    let line = |n: usize| {
        replace.iter().find(|(at, _)| *at == n).map_or(format!("line {n}"), |(_, text)| (*text).into())
    };
    (1..=20).map(|n| line(n) + "\n").collect()
}

const TWO_HUNKS: &str = "\
diff --git a/src/a b/src/a
--- a/src/a
+++ b/src/a
@@ -2,3 +2,3 @@
 line 2
-line 3
+LINE 3
 line 4
@@ -16,3 +16,4 @@
 line 16
 line 17
+line 17.5
 line 18
";

#[test]
fn a_patch_is_applied_whole_and_recorded() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("src/a", &lines(&[])), ("gone", "x\n"), ("old", "name\n")]);
    let mut checkout = fixture.checkout(id, "checkout");
    let text = format!(
        "From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nSubject: [PATCH] x\n\n---\n src/a | 3 +-\n\n{TWO_HUNKS}\
         diff --git a/new b/new\nnew file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+fresh\n\
         diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
         diff --git a/old b/newer\nsimilarity index 100%\nrename from old\nrename to newer\n-- \n2.47.3\n"
    );
    let file = fixture.top.path().join("timing.patch");
    fs::write(&file, &text).unwrap();
    let patch = Patch::read(&file).unwrap();
    let applied = checkout.apply(&patch).unwrap();
    assert_eq!(
        (applied.name.as_str(), applied.sha256, applied.bytes),
        ("timing.patch", patch.sha256, text.len() as u64)
    );
    let files: Vec<_> =
        applied.files.iter().map(|file| (file.path.as_str(), file.change, file.offset_lines.len())).collect();
    assert_eq!(
        files,
        [
            ("src/a", Change::Modified, 2),
            ("new", Change::Added, 1),
            ("gone", Change::Deleted, 1),
            ("newer", Change::Renamed, 0)
        ]
    );
    let expected = lines(&[(3, "LINE 3"), (17, "line 17\nline 17.5")]);
    assert_eq!(fs::read_to_string(checkout.root().join("src/a")).unwrap(), expected);
    assert_eq!(fs::read_to_string(checkout.root().join("new")).unwrap(), "fresh\n");
    assert!(!checkout.root().join("gone").exists() && !checkout.root().join("old").exists());
    assert_eq!(checkout.changes().unwrap(), Vec::<String>::new(), "the patch is not a change of the build");
    assert_eq!(checkout.pinned().commit, id, "the patch is no part of the revision");
    assert_eq!(checkout.patches(), [applied]);
    fs::write(checkout.root().join("new"), "changed again\n").unwrap();
    assert_eq!(checkout.changes().unwrap(), ["new"]);
    let left = fs::read_dir(checkout.root().join(".git")).unwrap();
    assert!(
        left.into_iter().all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with("patch-"))
    );
}

#[test]
fn a_patch_applies_where_the_lines_have_moved() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("src/a", &format!("new top\n{}", lines(&[])))]);
    let mut checkout = fixture.checkout(id, "checkout");
    let applied = checkout.apply(&Patch::new("moved.patch", TWO_HUNKS.into())).unwrap();
    assert_eq!(applied.files[0].offset_lines, [1, 1]);
    let expected = format!("new top\n{}", lines(&[(3, "LINE 3"), (17, "line 17\nline 17.5")]));
    assert_eq!(fs::read_to_string(checkout.root().join("src/a")).unwrap(), expected);
}

fn check_refused(files: &[(&str, &str)], patch: &str, expect: impl FnOnce(&PatchError) -> bool) {
    let fixture = Fixture::new();
    let id = fixture.commit(files);
    let mut checkout = fixture.checkout(id, "checkout");
    let before = snapshot(&fixture.work("checkout"));
    let error = checkout.apply(&Patch::new("bad.patch", patch.into())).unwrap_err();
    assert!(expect(&error), "{error:?}");
    assert_eq!(checkout.changes().unwrap(), Vec::<String>::new(), "nothing of it was applied");
    let after = snapshot(&fixture.work("checkout"));
    let content = |snapshot: &fixture::Snapshot| -> Vec<_> {
        snapshot
            .iter()
            .filter(|(path, _)| !path.starts_with(".git"))
            .map(|(path, file)| (path.clone(), file.3.clone()))
            .collect()
    };
    assert_eq!(content(&before), content(&after));
}

#[test]
fn a_patch_that_does_not_apply_names_file_and_hunk() {
    let text = lines(&[(17, "another line 17")]);
    check_refused(&[("src/a", &text)], TWO_HUNKS, |error| {
        error.to_string() == "apply the patch `bad.patch`: `src/a` does not fit at hunk 2 (@@ -16,3 +16,4 @@)"
    });
    let text = lines(&[(3, "another line 3")]);
    check_refused(
        &[("src/a", &text)],
        TWO_HUNKS,
        |error| matches!(error, PatchError::DoesNotApply { hunk: Some(hunk), .. } if hunk.starts_with("1 (")),
    );
    // The first file fits, the second does not: neither is changed.
    let both = format!("{TWO_HUNKS}{}", TWO_HUNKS.replace("src/a", "src/b"));
    check_refused(
        &[("src/a", &lines(&[])), ("src/b", "short\n")],
        &both,
        |error| matches!(error, PatchError::DoesNotApply { file, .. } if file == "src/b"),
    );
    check_refused(&[("other", "x\n")], TWO_HUNKS, |error| {
        error.to_string() == "apply the patch `bad.patch`: `src/a` does not fit"
    });
}

#[test]
fn a_diff_without_the_head_of_git_is_applied() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("src/a", &lines(&[])), ("gone", "x\n")]);
    let mut checkout = fixture.checkout(id, "checkout");
    let text = TWO_HUNKS.split_once('\n').unwrap().1.to_owned()
        + "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+fresh\n";
    let applied = checkout.apply(&Patch::new("plain.diff", text.into())).unwrap();
    let changes: Vec<_> = applied.files.iter().map(|file| file.change).collect();
    assert_eq!(changes, [Change::Modified, Change::Deleted, Change::Added]);
    assert!(fs::read_to_string(checkout.root().join("src/a")).unwrap().contains("LINE 3\n"));
    assert!(checkout.root().join("new").exists() && !checkout.root().join("gone").exists());
}

#[test]
fn a_file_is_deleted_only_if_it_is_the_one_that_was_meant() {
    let patch =
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    check_refused(&[("gone", "x\nand more\n")], patch, |error| {
        error.to_string() == "apply the patch `bad.patch`: `gone` does not fit"
    });
}

#[test]
fn what_is_no_patch_is_refused() {
    let files = [("src/a", lines(&[]))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    check_refused(&files, "", |error| {
        matches!(error, PatchError::Empty { .. } | PatchError::Malformed { .. })
    });
    check_refused(&files, "just some text\n", |error| {
        matches!(error, PatchError::Empty { .. } | PatchError::Malformed { .. })
    });
    let cut = &TWO_HUNKS[..TWO_HUNKS.len() - 30];
    check_refused(&files, cut, |error| matches!(error, PatchError::Malformed { .. }));
    for escape in ["../outside", ".git/config", "x/../../outside"] {
        let patch = format!(
            "diff --git a/{escape} b/{escape}\nnew file mode 100644\n--- /dev/null\n+++ b/{escape}\n@@ -0,0 +1 @@\n+x\n"
        );
        check_refused(&files, &patch, |error| {
            matches!(
                error,
                PatchError::DoesNotApply { .. } | PatchError::Malformed { .. } | PatchError::Git { .. }
            )
        });
    }
    assert!(matches!(Patch::read(Path::new("/none.patch")), Err(PatchError::Read { .. })));
}

#[test]
fn a_patch_does_not_write_through_a_link() {
    let fixture = Fixture::new();
    let outside = fixture.top.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "theirs\n").unwrap();
    std::os::unix::fs::symlink(&outside, fixture.user().join("link")).unwrap();
    let id = fixture.commit(&[("a", "1\n")]);
    let mut checkout = fixture.checkout(id, "checkout");
    assert!(checkout.root().join("link").is_symlink());
    let added = "diff --git a/link/new b/link/new\nnew file mode 100644\n--- /dev/null\n+++ b/link/new\n@@ -0,0 +1 @@\n+x\n";
    let changed =
        "diff --git a/link/file b/link/file\n--- a/link/file\n+++ b/link/file\n@@ -1 +1 @@\n-theirs\n+ours\n";
    for patch in [added, changed] {
        let _ = checkout.apply(&Patch::new("through.patch", patch.into()));
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "theirs\n");
        assert!(!outside.join("new").exists());
    }
}

/// The result of this patch is a file that the user's repository has already; libgit2 would mark it as used.
#[test]
fn nothing_of_the_users_repository_changes() {
    let fixture = Fixture::new();
    let id = fixture.commit(&[("src/a", &lines(&[]))]);
    fixture.commit(&[("src/a", &lines(&[(3, "LINE 3"), (17, "line 17\nline 17.5")]))]);
    fixture.commit(&[("b", "b\n")]);
    pack(&fixture.user());
    let mut repo = fixture.repo();
    fs::write(fixture.user().join("b"), "stashed\n").unwrap();
    repo.stash_save(&fixture.who(), "a stash", None).unwrap();
    fs::write(fixture.user().join("b"), "dirty\n").unwrap();
    fs::write(fixture.user().join("untracked"), "untracked\n").unwrap();
    drop(repo);

    let before = snapshot(&fixture.user());
    std::thread::sleep(std::time::Duration::from_millis(20));
    let pinned = fixture.pin(id);
    relationship(&fixture.user(), id, id).unwrap();
    let mut checkout =
        Checkout::create(&fixture.user(), &pinned, &fixture.work("checkout"), CheckoutOptions::default())
            .unwrap();
    checkout.apply(&Patch::new("backport.patch", TWO_HUNKS.into())).unwrap();
    checkout.changes().unwrap();
    checkout.remove().unwrap();
    assert_eq!(snapshot(&fixture.user()), before);
}

/// Moves every object into a pack, as `git gc` does.
fn pack(path: &Path) {
    let repo = Repository::open(path).unwrap();
    let mut builder = repo.packbuilder().unwrap();
    let mut walk = repo.revwalk().unwrap();
    walk.push_head().unwrap();
    builder.insert_walk(&mut walk).unwrap();
    let folder = path.join(".git/objects/pack");
    fs::create_dir_all(&folder).unwrap();
    builder.write(&folder, 0).unwrap();
    drop(builder);
    drop(walk);
    for entry in fs::read_dir(path.join(".git/objects")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().len() == 2 {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}
