//! Getting the archives: cargo downloads them for projects made for the purpose.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use super::archive::Package;
use super::lock::Lock;
use crate::process::cargo;

/// A directory beside the repository to be made, removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

/// Names the process a scratch directory belongs to, so that what a killed one left can be told from one in use.
const OWNER: &str = "owner-pid";

impl Scratch {
    /// Makes the directory, after removing one that a killed process left.
    pub(super) fn beside(out: &Path) -> Result<Self> {
        let mut name = out
            .file_name()
            .with_context(|| format!("{} names no directory to make", out.display()))?
            .to_owned();
        name.push(".assembling");
        let parent =
            std::path::absolute(out)?.parent().context("the directory to make has no parent")?.to_owned();
        std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        let path = parent.join(name);
        remove_abandoned(&path)?;
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let scratch = Self { path };
        let owner = scratch.path.join(OWNER);
        std::fs::write(&owner, std::process::id().to_string())
            .with_context(|| format!("cannot write {}", owner.display()))?;
        Ok(scratch)
    }

    /// Where the directory is, as an absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fetches one version of the crate that names all the others.
    pub(super) fn fetch_root(&self, name: &str, version: &str) -> Result<Package> {
        let manifest = format!(
            "[package]\nname = \"fetch-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
             [dependencies]\n{name} = {{ version = \"={version}\", default-features = false }}\n\n[workspace]\n"
        );
        let project = self.project(
            &format!("one-{version}"),
            &[("Cargo.toml", manifest.as_bytes()), ("src/lib.rs", b"")],
        )?;
        fetch(&project, false)?;
        let lock = project.join("Cargo.lock");
        let lock =
            std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        let lock = Lock::parse(&lock)?;
        let locked = lock.only(name)?;
        ensure!(
            locked.version == version,
            "cargo took {name} {} where {version} was asked for",
            locked.version
        );
        Package::find(name, version, &locked.checksum()?)
    }

    /// Fetches every crate that the lock file of `root` names, at exactly the version and checksum it names.
    pub(super) fn fetch_locked(&self, root: &Package) -> Result<()> {
        let mut files: Vec<(&str, &[u8])> = Vec::new();
        // Nothing above the scratch directory is to take this package for one of its own.
        let manifest = format!("{}\n[workspace]\n", root.text("Cargo.toml")?);
        for (path, file) in &root.files {
            files.push((path, if path == "Cargo.toml" { manifest.as_bytes() } else { &file.bytes }));
        }
        let project = self.project(&format!("all-{}", root.version), &files)?;
        fetch(&project, true)
    }

    fn project(&self, name: &str, files: &[(&str, &[u8])]) -> Result<PathBuf> {
        let project = self.path.join(name);
        for (path, bytes) in files {
            let path = project.join(path);
            let folder = path.parent().expect("a file of the project lies in its folder");
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(project)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn remove_abandoned(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let owner = path.join(OWNER);
    let pid = std::fs::read_to_string(&owner)
        .with_context(|| format!("{} is in the way and was not made by this command", path.display()))?;
    ensure!(!Path::new("/proc").join(&pid).exists(), "{} is in use by process {pid}", path.display());
    eprintln!("removing {}, left by process {pid}", path.display());
    std::fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Runs `cargo fetch`, first without the network, so that what is there already is not asked for again.
fn fetch(project: &Path, locked: bool) -> Result<()> {
    let mut args = vec![OsString::from("fetch")];
    args.extend(locked.then(|| OsString::from("--locked")));
    let offline = [args.as_slice(), &[OsString::from("--offline")]].concat();
    if run(project, &offline, Stdio::null())? || run(project, &args, Stdio::inherit())? {
        return Ok(());
    }
    bail!("`cargo fetch` failed, for the reason it gave above")
}

/// Runs cargo in `project` and says whether it succeeded.
fn run(project: &Path, args: &[OsString], stderr: Stdio) -> Result<bool> {
    let mut command = cargo();
    command.args(args).current_dir(project).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let status = command.status().context("cannot start cargo")?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-scratch-{name}-{}", std::process::id()))
    }

    #[test]
    fn scratch_is_removed_and_what_a_killed_process_left_is_replaced() {
        let parent = directory("killed");
        let left = parent.join("out.assembling");
        std::fs::create_dir_all(left.join("old")).unwrap();
        std::fs::write(left.join(OWNER), "4294967294").unwrap();
        let scratch = Scratch::beside(&parent.join("out")).unwrap();
        assert!(scratch.path().ends_with("out.assembling") && !left.join("old").exists());
        drop(scratch);
        assert!(!left.exists());
        std::fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn scratch_in_use_or_of_someone_else_is_left_alone() {
        let parent = directory("used");
        let out = parent.join("out");
        let scratch = Scratch::beside(&out).unwrap();
        let in_use = format!("{:#}", Scratch::beside(&out).unwrap_err());
        std::fs::remove_file(scratch.path().join(OWNER)).unwrap();
        let foreign = format!("{:#}", Scratch::beside(&out).unwrap_err());
        assert!(scratch.path().exists());
        drop(scratch);
        std::fs::remove_dir_all(&parent).unwrap();
        assert!(in_use.contains("is in use by process"), "{in_use}");
        assert!(foreign.contains("was not made by this command"), "{foreign}");
    }
}
