//! `cargo xtask dynamo`: a local git repository of Dynamo, made from the crates it publishes.
//!
//! Dynamo's own repository is some 800 MB. The crates published from it hold all that the replay harness is built
//! from, so this task lays them out again: one commit per version, each crate where its archive says it came from.
//! What is made depends on the archives alone, whose checksums the registry and Dynamo's own lock file state, so the
//! commit ids are the same on every machine; those we know are in [`KNOWN`].
//!
//! The steps, and where each is: find and check an archive ([`archive`]), read which crates go together from the lock
//! file that `dynamo-bench` ships ([`lock`]), let cargo fetch them ([`fetch`]), lay out one tree ([`tree`]), and write
//! it as a commit ([`repository`]).

mod archive;
mod demonstrate;
mod fetch;
mod lock;
mod plant;
mod repository;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::process::Stop;

use archive::Package;
use demonstrate::Demonstrate;
use fetch::Scratch;
use lock::Lock;
use plant::Plants;
use repository::Repository;
use tree::Tree;

/// The crate whose version is a version of Dynamo here, and whose lock file names the others.
const ROOT_CRATE: &str = "dynamo-bench";

/// Versions whose commit id is known: version, commit id.
const KNOWN: &[(&str, &str)] = &[
    ("1.5.0", "d5fbcccacab690240c64cffe696bd157567d3f5b"),
    ("1.5.1", "38a06911d3b2b9b71c8837a66d050d244a4ac2d8"),
    ("1.6.1", "87f17dd8bc9d74413cc155ecb9ce991a2edee849"),
];

const USAGE: &str = "\
usage: cargo xtask dynamo assemble --out DIR VERSION...
       cargo xtask dynamo plant --repo DIR NAME...
       cargo xtask dynamo demonstrate NAME... --repo DIR --out DIR [--trace FILE] [--seed DIR] [--parity FILE]

Make a local git repository of Dynamo from its published crates: for each VERSION (1.5.0, 1.5.1, 1.6.1 are known to
work) one commit without parent, tagged vVERSION. Where DIR is a repository made earlier by this command, the versions
it lacks are added. Prints a line `vVERSION COMMIT` for each version asked for.

Plant known faults (testdata/plants) on top of a version in such a repository: for each NAME, or all of them with `all`, a
commit tagged plant-NAME, with the same id on every machine. Prints a line `plant-NAME COMMIT` for each.

Demonstrate that campaigns catch them: for each NAME in testdata/plants/demonstrations.toml, or `all`, make what is missing
in the repository, run its campaigns, and compare exit codes and reports with what is right. The evidence is kept below
--out, artifacts too, so nothing is built twice; --seed is handed on to `parity run`; --parity is that command where it is built already. Prints one line per campaign; exit code
1 when anything is not as it must be.

Needs cargo, git, and the registry (or a cargo home that already holds the crates).";

/// Runs `cargo xtask dynamo ARGS...`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((first, _)) if first == "--help" || first == "-h" => println!("{USAGE}"),
        Some((first, rest)) if first == "assemble" => match Request::parse(rest).map_err(as_usage)? {
            Some(request) => print_ids(&assemble(&request)?),
            None => println!("{USAGE}"),
        },
        Some((first, rest)) if first == "plant" => plant(rest)?,
        Some((first, rest)) if first == "demonstrate" => match Demonstrate::parse(rest).map_err(as_usage)? {
            Some(asked) => ensure!(asked.run()?, "not everything is as it must be"),
            None => println!("{USAGE}"),
        },
        Some((first, _)) => return Err(Stop::usage(format!("no such task `dynamo {first}`\n\n{USAGE}"))),
        None => return Err(Stop::usage(format!("`dynamo` needs to be told what to do\n\n{USAGE}"))),
    }
    Ok(())
}

/// `plant --repo DIR NAME...`
fn plant(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return Ok(());
    }
    let [option, path, names @ ..] = args else {
        return Err(Stop::usage(format!("`plant` needs --repo DIR and names\n\n{USAGE}")));
    };
    if option != "--repo" || names.is_empty() {
        return Err(Stop::usage(format!("`plant` needs --repo DIR and names\n\n{USAGE}")));
    }
    let repository = Repository::open(Path::new(path))?.with_context(|| format!("there is no {path}"))?;
    let plants = Plants::load()?;
    let names = if names.iter().any(|name| name == "all") { plants.names() } else { names.to_vec() };
    for planted in plants.plant(&repository, &names)? {
        println!("plant-{} {}", planted.name, planted.commit);
    }
    Ok(())
}

/// Whatever is wrong with the arguments is a fault of usage.
fn as_usage(error: anyhow::Error) -> anyhow::Error {
    Stop::usage(format!("{error:#}"))
}

fn print_ids(assembled: &[Assembled]) {
    for Assembled { version, commit } in assembled {
        println!("v{version} {commit}");
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Where the repository is made, or already is.
    pub(crate) out: PathBuf,
    /// The versions wanted, without `v`.
    pub(crate) versions: Vec<String>,
}

impl Request {
    /// Reads the arguments after `assemble`; `None` when help was asked for.
    fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut out = None;
        let mut versions: Vec<String> = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--help" | "-h" => return Ok(None),
                "--out" => out = Some(PathBuf::from(args.next().context("--out needs a directory")?)),
                option if option.starts_with('-') => bail!("no such option {option}\n\n{USAGE}"),
                version => {
                    check_version(version)?;
                    ensure!(!versions.iter().any(|v| v == version), "version {version} is given twice");
                    versions.push(version.to_owned());
                }
            }
        }
        let out = out.with_context(|| format!("--out DIR is missing\n\n{USAGE}"))?;
        ensure!(!versions.is_empty(), "no VERSION is given, such as 1.5.1\n\n{USAGE}");
        Ok(Some(Self { out, versions }))
    }
}

/// A version becomes part of a manifest, a tag and a file name, so only what a version can hold is let in.
fn check_version(version: &str) -> Result<()> {
    let (core, _) = version.split_once(['-', '+']).unwrap_or((version, ""));
    let numbers: Vec<_> = core.split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-+.".contains(&b);
    ensure!(
        numbers.len() == 3 && numbers.iter().all(number) && version.bytes().all(allowed),
        "{version:?} is not a published version, which looks like 1.5.1"
    );
    Ok(())
}

/// One version in the repository.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    /// The version, without `v`.
    pub(crate) version: String,
    /// The id of its commit.
    pub(crate) commit: String,
}

/// Makes, or completes, the repository at `request.out`.
///
/// Everything is prepared in a directory beside it, which then takes its place or gives its commits to it, so a
/// repository is either whole or not there.
pub(crate) fn assemble(request: &Request) -> Result<Vec<Assembled>> {
    let existing = Repository::open(&request.out)?;
    let scratch = Scratch::beside(&request.out)?;
    let fresh = Repository::create(&scratch.path().join("repository"))?;
    let mut assembled = Vec::new();
    for version in &request.versions {
        let commit = assemble_one(version, &fresh, &scratch)
            .with_context(|| format!("cannot assemble Dynamo {version}"))?;
        assembled.push(Assembled { version: version.clone(), commit });
    }
    match existing {
        Some(existing) => existing.take_from(&fresh, &assembled)?,
        None => {
            fresh.check_out(newest(&assembled))?;
            fresh.move_to(&request.out)?;
        }
    }
    Ok(assembled)
}

fn assemble_one(version: &str, repository: &Repository, scratch: &Scratch) -> Result<String> {
    eprintln!("dynamo {version}: fetching its crates");
    let tree = collect(version, scratch)?;
    let commit = repository.commit(version, &tree)?;
    match KNOWN.iter().find(|(known, _)| *known == version) {
        Some((_, expected)) => ensure!(
            commit == *expected,
            "its commit is {commit}, where every other machine gets {expected}: this program was changed, or git is not \
             doing what it should"
        ),
        None => eprintln!(
            "dynamo {version}: no commit id is recorded for this version, so {commit} is not compared"
        ),
    }
    Ok(commit)
}

/// Fetches the crates of one version and lays them out.
fn collect(version: &str, scratch: &Scratch) -> Result<Tree> {
    let root = scratch.fetch_root(ROOT_CRATE, version)?;
    let lock = Lock::parse(root.text("Cargo.lock")?).context("cannot read the lock file in dynamo-bench")?;
    scratch.fetch_locked(&root)?;
    let mut packages = vec![root];
    for member in lock.packages().filter(|package| is_member(package)) {
        packages.push(Package::find(&member.name, &member.version, &member.checksum()?)?);
    }
    Tree::lay_out(version, packages, &lock)
}

/// Whether a package of the lock file belongs in the repository. The rest stay in the registry.
///
/// Taken are the crates of Dynamo's own repository, by the names they share, and the simulation core that Dynamo 1.5
/// moved to a repository of its own: a revision under test must be able to differ in them.
fn is_member(package: &lock::Locked) -> bool {
    const FAMILIES: [&str; 3] = ["dynamo-", "kvbm-", "aisimulate-"];
    package.is_from_registry() && FAMILIES.iter().any(|family| package.name.starts_with(family))
}

/// The version whose files are shown in the working tree.
fn newest(assembled: &[Assembled]) -> &str {
    let key = |assembled: &&Assembled| -> Vec<u64> {
        assembled.version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
    };
    &assembled.iter().max_by_key(key).expect("at least one version was asked for").version
}

/// Where cargo keeps what it downloads.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = std::env::var_os("HOME")
        .context("neither CARGO_HOME nor HOME is set, so cargo's archives cannot be found")?;
    Ok(Path::new(&home).join(".cargo"))
}

#[cfg(test)]
mod tests;
