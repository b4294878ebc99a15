//! The git repository, written through the git command line.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Assembled;
use super::tree::Tree;

/// The key in a repository's own configuration by which it is known to be made here.
const MARK: &str = "dynamoassembly.format";

/// The value of that key. It changes when the same version would get another commit.
const FORMAT: &str = "1";

/// Author and committer of every commit.
const IDENTITY: &str = "kv-replay-parity <dynamo-assembly@kv-replay-parity.invalid>";

/// A repository with a working tree.
#[derive(Debug)]
pub(super) struct Repository {
    path: PathBuf,
}

impl Repository {
    /// Makes an empty repository in a directory that does not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        std::fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
        let repository = Self { path: path.to_owned() };
        repository.git(["init", "--quiet", "--template=", "--object-format=sha1"])?;
        repository.git(["config", "--local", MARK, FORMAT])?;
        Ok(repository)
    }

    /// Opens what is at `path`, which must be nothing or a repository made here.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let repository = Self { path: std::path::absolute(path)? };
        let format = repository.mark().with_context(|| {
            format!("{} exists and is not a repository made by this command", path.display())
        })?;
        ensure!(
            format == FORMAT,
            "{} was made by another version of this command (format {format}, where this one makes {FORMAT})",
            path.display()
        );
        Ok(Some(repository))
    }

    /// The format it is marked with; an error where it is no repository or has no mark.
    fn mark(&self) -> Result<String> {
        let config = self.path.join(".git/config");
        ensure!(config.is_file(), "it has no {}", config.display());
        Ok(self.git(["config", "--local", "--get", MARK])?.trim().to_owned())
    }

    /// Writes a tree as a commit without parent, tags it, and gives its id.
    pub(super) fn commit(&self, version: &str, tree: &Tree) -> Result<String> {
        let mut command = self.command(["fast-import", "--quiet", "--date-format=raw", "--done"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start git fast-import")?;
        let mut input = child.stdin.take().expect("its input was asked to be a pipe");
        let written = input.write_all(&import_stream(version, tree));
        drop(input);
        let output = child.wait_with_output().context("cannot wait for git fast-import")?;
        ensure!(
            output.status.success(),
            "git fast-import failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        written.context("cannot write to git fast-import")?;
        self.commit_of(version)
    }

    /// The commit a version's tag names.
    pub(super) fn commit_of(&self, version: &str) -> Result<String> {
        Ok(self
            .git(["rev-parse", "--verify", "--end-of-options", &format!("refs/tags/v{version}")])?
            .trim()
            .to_owned())
    }

    /// Writes a commit whose tree is its parent's with patches applied, an hour after it. Nothing names it yet.
    pub(super) fn commit_patched(&self, commit: &Commit<'_>) -> Result<String> {
        let index = self.path.join(format!(".git/index-of-plant-{}", std::process::id()));
        let made = self.commit_through(&index, commit);
        match std::fs::remove_file(&index) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", index.display()))
            }
            _ => made,
        }
    }

    fn commit_through(&self, index: &Path, commit: &Commit<'_>) -> Result<String> {
        let parent = commit.parent;
        let time_s: u64 = self.git(["show", "-s", "--format=%ct", parent])?.trim().parse()?;
        let date = format!("{} +0000", time_s + 3_600);
        let (name, email) = IDENTITY.trim_end_matches('>').split_once(" <").unwrap_or((IDENTITY, ""));
        let run = |args: &[&OsStr]| {
            let mut command = self.command(args);
            command.env("GIT_INDEX_FILE", index);
            for role in ["AUTHOR", "COMMITTER"] {
                command.env(format!("GIT_{role}_NAME"), name).env(format!("GIT_{role}_EMAIL"), email);
                command.env(format!("GIT_{role}_DATE"), &date);
            }
            finish(command)
        };
        run(&["read-tree", parent].map(OsStr::new))?;
        for patch in commit.patches {
            run(&[
                OsStr::new("apply"),
                OsStr::new("--cached"),
                OsStr::new("--unidiff-zero"),
                patch.as_os_str(),
            ])?;
        }
        let tree = run(&["write-tree"].map(OsStr::new))?;
        let args = ["commit-tree", tree.trim(), "-p", parent, "-m", commit.message.trim_end()];
        Ok(run(&args.map(OsStr::new))?.trim().to_owned())
    }

    /// Tags a commit; a tag of that name that is elsewhere is left as it is.
    pub(super) fn tag(&self, name: &str, commit: &str) -> Result<()> {
        let full = format!("refs/tags/{name}");
        let has = self.git(["for-each-ref", "--format=%(objectname)", &full])?;
        ensure!(
            has.is_empty() || has.trim() == commit,
            "tag {name} is {}, and not {commit}: it is left as it is",
            has.trim()
        );
        self.git(["update-ref", &full, commit]).map(drop)
    }

    /// Shows a version in the working tree.
    pub(super) fn check_out(&self, version: &str) -> Result<()> {
        self.git(["checkout", "--quiet", "--detach", &format!("refs/tags/v{version}")]).map(drop)
    }

    /// Gives the repository its final place.
    pub(super) fn move_to(self, path: &Path) -> Result<()> {
        std::fs::rename(&self.path, path)
            .with_context(|| format!("cannot move the finished repository to {}", path.display()))
    }

    /// Takes over the versions it lacks. Those it has must be the same.
    pub(super) fn take_from(&self, fresh: &Self, assembled: &[Assembled]) -> Result<()> {
        for Assembled { version, commit } in assembled {
            let has =
                self.git(["for-each-ref", "--format=%(objectname)", &format!("refs/tags/v{version}")])?;
            ensure!(
                has.is_empty() || has.trim() == commit,
                "tag v{version} in {} is {}, and not {commit}: it was moved, and is left as it is",
                self.path.display(),
                has.trim()
            );
        }
        let source = fresh.path.as_os_str();
        let args = ["fetch", "--quiet", "--no-tags", "--no-auto-gc", "--no-write-fetch-head"].map(OsStr::new);
        self.git(args.into_iter().chain([source, OsStr::new("refs/tags/v*:refs/tags/v*")])).map(drop)
    }

    /// Runs git and gives what it printed.
    fn git<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        finish(self.command(args))
    }

    /// A git that knows only this repository and nobody's configuration.
    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
        command.env("GIT_DIR", self.path.join(".git")).env("GIT_WORK_TREE", &self.path);
        command.args(args).current_dir(&self.path).stderr(Stdio::piped());
        command
    }
}

/// A commit to be written.
pub(super) struct Commit<'a> {
    pub(super) parent: &'a str,
    pub(super) patches: &'a [&'a Path],
    pub(super) message: &'a str,
}

fn finish(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().context("cannot start git, which is needed")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("git printed something that is not text")
}

/// What `git fast-import` reads: the files of the tree, and the commit that holds them.
fn import_stream(version: &str, tree: &Tree) -> Vec<u8> {
    let mut stream = Vec::new();
    let header = format!("commit refs/tags/v{version}\ncommitter {IDENTITY} {} +0000\n", tree.date_s);
    let message = format!("data {}\n{}\n", tree.message.len(), tree.message);
    stream.extend_from_slice((header + &message).as_bytes());
    for (path, file) in &tree.files {
        let mode = if file.executable { "100755" } else { "100644" };
        stream.extend_from_slice(format!("M {mode} inline {path}\ndata {}\n", file.bytes.len()).as_bytes());
        stream.extend_from_slice(&file.bytes);
        stream.push(b'\n');
    }
    stream.extend_from_slice(b"done\n");
    stream
}
