//! One version of Dynamo as a tree of files and a message for its commit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::archive::{File, Package};
use super::lock::Lock;

/// What a build depends on and no published crate carries: Dynamo's root manifest says this of the release profile
/// (read in its public repository, where it has been the same since before 1.0).
const RELEASE_PROFILE: &str = "[profile.release]\ncodegen-units = 1\nlto = \"thin\"\n";

/// The licence every crate states. None of the archives carries the text, so the tree does.
const LICENSE: (&str, &str) = ("Apache-2.0", include_str!("../../../LICENSE"));

/// A tree ready to be committed.
#[derive(Debug)]
pub(super) struct Tree {
    /// Files by path, in the order of the paths.
    pub(super) files: BTreeMap<String, File>,
    /// The message of the commit.
    pub(super) message: String,
    /// The date of the commit, in seconds since 1970.
    pub(super) date_s: u64,
}

impl Tree {
    /// Puts each package where it was published from. The first package is the one that is built; `lock` is its own.
    pub(super) fn lay_out(version: &str, packages: Vec<Package>, lock: &Lock) -> Result<Self> {
        let root = packages.first().context("no package is there to lay out")?;
        check_places(&packages)?;
        check_licences(&packages)?;
        let local = |locked: &super::lock::Locked| is_among(&packages, &locked.name, &locked.version);
        let mut files = BTreeMap::from([
            ("Cargo.toml".to_owned(), plain(manifest(&packages))),
            ("Cargo.lock".to_owned(), plain(lock.with_local(local))),
            ("LICENSE".to_owned(), plain(LICENSE.1.to_owned())),
        ]);
        let message = message(version, &packages);
        let date_s = root.latest_date_s;
        // The lock file of the package that is built moves to the root.
        let moved = format!("{}/Cargo.lock", root.origin.path);
        for package in packages {
            let folder = package.origin.path;
            files.extend(package.files.into_iter().map(|(path, file)| (format!("{folder}/{path}"), file)));
        }
        files.remove(&moved);
        Ok(Self { files, message, date_s })
    }
}

fn plain(text: String) -> File {
    File { executable: false, bytes: text.into_bytes() }
}

fn is_among(packages: &[Package], name: &str, version: &str) -> bool {
    packages.iter().any(|package| package.name == name && package.version == version)
}

/// No package may lie inside another, or hide the files of the root.
fn check_places(packages: &[Package]) -> Result<()> {
    for (n, package) in packages.iter().enumerate() {
        let place = format!("{}/", package.origin.path);
        for other in &packages[..n] {
            let other_place = format!("{}/", other.origin.path);
            ensure!(
                !place.starts_with(&other_place) && !other_place.starts_with(&place),
                "{} {} is from {place} and {} {} from {other_place}: one lies inside the other",
                package.name,
                package.version,
                other.name,
                other.version
            );
            ensure!(
                package.name != other.name,
                "{} is there as {} and as {}",
                package.name,
                package.version,
                other.version
            );
        }
    }
    Ok(())
}

/// The licence text put at the root must be that of every package.
fn check_licences(packages: &[Package]) -> Result<()> {
    let stated = format!("license = \"{}\"", LICENSE.0);
    for package in packages {
        let has = package.text("Cargo.toml")?.lines().any(|line| line == stated);
        ensure!(has, "{} {} is not licensed under {}", package.name, package.version, LICENSE.0);
    }
    Ok(())
}

/// The root manifest: a workspace of the package that is built, which takes the others from their folders.
///
/// The others are not made members. Cargo would then want their tests' dependencies and every optional one in the lock
/// file, which no published lock file holds; taken as dependencies only, they build exactly as published, and the lock
/// file stays the published one. So the manifests are the published ones too: the original manifests inherit from a
/// root manifest that is not published.
fn manifest(packages: &[Package]) -> String {
    let (root, others) = packages.split_first().expect("the caller has checked that there is one");
    let mut folders: Vec<_> =
        others.iter().map(|other| format!("    \"{}\",\n", other.origin.path)).collect();
    let mut patches: Vec<_> = others
        .iter()
        .map(|other| format!("{} = {{ path = \"{}\" }}\n", other.name, other.origin.path))
        .collect();
    folders.sort();
    patches.sort();
    let (folders, patches) = (folders.concat(), patches.concat());
    format!(
        "# Made from published crates by kv-replay-parity; Dynamo's own root manifest is not among them.\n\n\
         [workspace]\nresolver = \"3\"\nmembers = [\"{}\"]\nexclude = [\n{folders}]\n\n\
         [patch.crates-io]\n{patches}\n{RELEASE_PROFILE}",
        root.origin.path
    )
}

/// The message of the commit, whose trailers say what it was made from.
fn message(version: &str, packages: &[Package]) -> String {
    let root = &packages[0];
    let mut text = format!(
        "Dynamo {version}, from its published crates\n\n\
         Each crate lies where it was published from. The root manifest, lock file and licence\n\
         text were added; everything else is as published.\n\n\
         Upstream-Commit: {}\n",
        root.origin.commit
    );
    let mut packages: Vec<_> = packages.iter().collect();
    packages.sort_by(|a, b| a.origin.path.cmp(&b.origin.path));
    for Package { name, version, checksum, origin, .. } in packages {
        let _ = writeln!(
            text,
            "Crate: {name} {version} in {} from {} sha256 {checksum}",
            origin.path, origin.commit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::archive::Origin;
    use super::*;

    fn package(name: &str, path: &str) -> Package {
        let manifest = format!("[package]\nname = \"{name}\"\nlicense = \"Apache-2.0\"\n");
        let files = [("Cargo.toml", manifest.as_str()), ("Cargo.lock", "own"), ("src/lib.rs", "")];
        Package {
            name: name.to_owned(),
            version: "1.5.1".to_owned(),
            checksum: "cc".repeat(32),
            origin: Origin { commit: "0123456789".repeat(4), path: path.to_owned() },
            files: files.map(|(path, text)| (path.to_owned(), plain(text.to_owned()))).into(),
            latest_date_s: 9,
        }
    }

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.5.1\"\nsource = \"registry+x\"\nchecksum = \"cc\"\n";

    fn lay_out(packages: Vec<Package>) -> Result<Tree> {
        Tree::lay_out("1.5.1", packages, &Lock::parse(LOCK).unwrap())
    }

    #[test]
    fn packages_lie_where_they_are_from() {
        let tree = lay_out(vec![package("bench", "lib/bench"), package("a", "crates/a")]).unwrap();
        let paths: Vec<_> = tree.files.keys().map(String::as_str).collect();
        let expected = [
            "Cargo.lock",
            "Cargo.toml",
            "LICENSE",
            "crates/a/Cargo.lock",
            "crates/a/Cargo.toml",
            "crates/a/src/lib.rs",
            "lib/bench/Cargo.toml",
            "lib/bench/src/lib.rs",
        ];
        assert_eq!(paths, expected);
        assert_eq!(
            tree.files["Cargo.lock"].bytes,
            b"version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.5.1\"\n"
        );
        assert_eq!(tree.date_s, 9);
    }

    #[test]
    fn manifest_and_message_say_where_everything_is() {
        let packages = [package("bench", "lib/bench"), package("b", "lib/b"), package("a", "crates/a")];
        let expected = "[workspace]\nresolver = \"3\"\nmembers = [\"lib/bench\"]\nexclude = [\n    \"crates/a\",\n    \"lib/b\",\n]\n\n\
             [patch.crates-io]\na = { path = \"crates/a\" }\nb = { path = \"lib/b\" }\n\n\
             [profile.release]\ncodegen-units = 1\nlto = \"thin\"\n";
        assert!(manifest(&packages).ends_with(expected), "{}", manifest(&packages));
        let commit = "0123456789".repeat(4);
        let trailer = format!("Crate: a 1.5.1 in crates/a from {commit} sha256 {}\n", "cc".repeat(32));
        assert!(message("1.5.1", &packages).contains(&format!("Upstream-Commit: {commit}\n{trailer}")));
    }

    #[test]
    fn packages_that_cannot_be_laid_out_are_named() {
        let mut unlicensed = package("b", "lib/b");
        unlicensed.files.insert("Cargo.toml".to_owned(), plain("license = \"MIT\"\n".to_owned()));
        let cases = [
            (vec![], "no package"),
            (vec![package("bench", "lib/bench"), package("b", "lib/bench/b")], "inside the other"),
            (vec![package("bench", "lib/bench"), package("bench", "lib/b")], "as 1.5.1 and as 1.5.1"),
            (vec![package("bench", "lib/bench"), unlicensed], "b 1.5.1 is not licensed under Apache-2.0"),
        ];
        for (packages, expected) in cases {
            let error = format!("{:#}", lay_out(packages).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
