//! `cargo xtask fuzz`: builds every fuzz target, runs each for its share of a minute, and tests the fuzz crates, which are
//! workspaces of their own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{Stop, cargo, root, step};
use crate::setup;

/// How long all targets run together.
const SECONDS: u64 = 60;

/// How long one input may take: longer is a hang, and a failure that names the input.
const INPUT_SECONDS: u64 = 10;

/// What targets begin with besides what they found before: crate, target, and a folder of recorded inputs, which is only read.
const SEEDS: [(&str, &str, &str); 4] = [
    ("canonical-json", "diff", "testdata/reports"),
    ("canonical-json", "differential", "testdata/reports"),
    ("canonical-json", "reader", "testdata/master-traces/valid"),
    ("cpu-placement", "topology", "testdata/topologies"),
];

/// One program that was built.
struct Target {
    program: PathBuf,
    seeds: Vec<PathBuf>,
    /// Where it keeps inputs that it finds interesting, and those that make it fail.
    corpus: PathBuf,
    artifacts: PathBuf,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let seconds = seconds(args)?;
    setup::for_fuzzing()?;
    let built = target_folder().join("fuzz");
    let mut targets = Vec::new();
    for folder in fuzz_crates(&root().join("crates"))? {
        // Without sanitizers it builds with a stable toolchain.
        let build = ["fuzz", "build", "--sanitizer", "none", "--fuzz-dir"];
        step(cargo().args(build).arg(&folder).arg("--target-dir").arg(&built))?;
        let manifest = folder.join("Cargo.toml");
        step(
            cargo()
                .args(["test", "--quiet", "--manifest-path"])
                .arg(manifest)
                .arg("--target-dir")
                .arg(&built),
        )?;
        targets.extend(targets_of(&folder, &built)?);
    }
    if targets.is_empty() {
        bail!("there is no fuzz target");
    }
    let share = (seconds / targets.len() as u64).max(1);
    for target in &targets {
        fs::create_dir_all(&target.corpus).with_context(|| format!("create {}", target.corpus.display()))?;
        fs::create_dir_all(&target.artifacts)
            .with_context(|| format!("create {}", target.artifacts.display()))?;
        // One that fails says where it has written the input.
        step(
            Command::new(&target.program)
                .arg(&target.corpus)
                .args(&target.seeds)
                .arg(format!("-timeout={INPUT_SECONDS}"))
                .arg(format!("-artifact_prefix={}/", target.artifacts.display()))
                .arg(format!("-max_total_time={share}"))
                .args(["-print_final_stats=1", "-verbosity=0"]),
        )?;
    }
    Ok(())
}

fn seconds(args: &[String]) -> Result<u64> {
    let usage =
        || Stop::usage("fuzz takes only --seconds N, with N above 0: how long all targets run together");
    match args {
        [] => Ok(SECONDS),
        [option, seconds] if option == "--seconds" => {
            seconds.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(usage)
        }
        _ => Err(usage()),
    }
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The folders `fuzz` of the workspace's crates.
fn fuzz_crates(crates: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).with_context(|| format!("read {}", crates.display()))? {
        let folder = entry?.path().join("fuzz");
        if folder.join("Cargo.toml").is_file() {
            found.push(folder);
        }
    }
    found.sort();
    Ok(found)
}

fn targets_of(folder: &Path, built: &Path) -> Result<Vec<Target>> {
    let output =
        cargo().args(["fuzz", "list", "--fuzz-dir"]).arg(folder).output().context("cargo fuzz list")?;
    if !output.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let package = folder.parent().and_then(Path::file_name).unwrap_or_default();
    let programs = built.join(host()?).join("release");
    let names = String::from_utf8(output.stdout).context("cargo fuzz list")?;
    let target = |name: &str| Target {
        program: programs.join(name),
        seeds: seeds(package, name),
        corpus: built.join("corpus").join(package).join(name),
        artifacts: built.join("artifacts").join(package).join(name),
    };
    Ok(names.lines().map(str::trim).filter(|name| !name.is_empty()).map(target).collect())
}

fn seeds(package: &OsStr, target: &str) -> Vec<PathBuf> {
    let own = SEEDS.iter().filter(|(crate_name, name, _)| package == *crate_name && target == *name);
    own.map(|(.., folder)| root().join(folder)).collect()
}

/// The target that programs for fuzzing are built for: this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |args: &[&str]| seconds(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]).expect("the default"), SECONDS);
        assert_eq!(parse(&["--seconds", "5"]).expect("some"), 5);
        for wrong in [&["--seconds", "0"][..], &["--seconds"], &["--seconds", "x"], &["more"]] {
            assert_eq!(Stop::code_of(&parse(wrong).expect_err("refused")), 2);
        }
    }

    #[test]
    fn every_parser_that_reads_what_others_wrote_has_fuzz_targets() {
        let found = fuzz_crates(&root().join("crates")).expect("folders");
        let names: Vec<_> =
            found.iter().filter_map(|folder| folder.parent()?.file_name()?.to_str()).collect();
        assert_eq!(names, ["canonical-json", "cpu-placement", "master-wire"]);
    }

    #[test]
    fn seeds_are_there_for_targets_that_are_there() {
        for (package, target, folder) in SEEDS {
            let program = root().join("crates").join(package).join("fuzz/fuzz_targets").join(target);
            assert!(program.with_extension("rs").is_file(), "{package} {target}");
            let [seeds] = &seeds(OsStr::new(package), target)[..] else { panic!("{package} {target}") };
            assert!(fs::read_dir(seeds).expect("a folder").count() > 3, "{folder}");
        }
        assert!(seeds(OsStr::new("cpu-placement"), "sets").is_empty());
    }
}
