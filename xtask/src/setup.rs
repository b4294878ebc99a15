//! What a bare machine lacks: each part is looked for, named, and installed.

use std::process::Command;

use anyhow::Result;

use crate::process::{Stop, cargo, step, works};

/// One thing the tree needs from the machine.
struct Part {
    name: &'static str,
    why: &'static str,
    present: fn() -> bool,
    debian: &'static [&'static str],
}

const COMPILER: Part = Part {
    name: "C compiler",
    why: "libgit2 is compiled from its crate",
    present: || works("cc", &["--version"]),
    debian: &["build-essential"],
};
const GIT: Part = Part {
    name: "git",
    why: "repositories for the demonstration and the tests",
    present: || works("git", &["--version"]),
    debian: &["git"],
};
const HWLOC: Part = Part {
    name: "hwloc",
    why: "cpu-placement's `hwloc` feature is built by the tests",
    present: || {
        works("pkg-config", &["--atleast-version=2.5", "hwloc"])
            && works("pkg-config", &["--exists", "libudev"])
    },
    debian: &["pkg-config", "libhwloc-dev", "libudev-dev"],
};

const PYTHON: Part = Part {
    name: "python3 with venv",
    why: "real masters are installed into virtual environments by the tests of master-wire",
    present: || works("python3", &["-c", "import ensurepip, venv"]),
    debian: &["python3", "python3-venv"],
};
const IBVERBS: Part = Part {
    name: "libibverbs",
    why: "real masters load it when they start",
    present: || works("sh", &["-c", "PATH=$PATH:/sbin:/usr/sbin; ldconfig -p | grep -q libibverbs.so.1"]),
    debian: &["libibverbs1"],
};
const SLURM: Part = Part {
    name: "Slurm with munge",
    why: "campaigns on a real cluster are tested",
    present: || {
        let all = "PATH=$PATH:/usr/sbin:/sbin; for name in munged slurmctld slurmd sbatch squeue; do command -v $name || exit 1; done";
        works("sh", &["-c", all])
    },
    debian: &["slurmctld", "slurmd", "slurm-client", "munge"],
};
const PERF: Part = Part {
    name: "perf",
    why: "a row that is too slow is profiled",
    present: || works("perf", &["--version"]),
    debian: &["linux-perf"],
};

/// What `cargo xtask parity` needs.
pub(crate) fn for_parity() -> Result<()> {
    ensure(&[COMPILER, GIT])
}

/// What the tests need.
pub(crate) fn for_tests() -> Result<()> {
    ensure(&[COMPILER, GIT, HWLOC, PYTHON, IBVERBS, SLURM, PERF])?;
    ensure_cargo_tool("nextest", "cargo-nextest")
}

/// What the whole of `cargo xtask ci` needs.
pub(crate) fn for_ci() -> Result<()> {
    for_tests()?;
    ensure_cargo_tool("deny", "cargo-deny")
}

/// What `cargo xtask fuzz` needs.
pub(crate) fn for_fuzzing() -> Result<()> {
    ensure_cargo_tool("fuzz", "cargo-fuzz")
}

/// The task: everything.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(unknown) = args.first() {
        return Err(Stop::usage(format!("setup takes no argument, found {unknown:?}")));
    }
    for_ci()?;
    for_fuzzing()
}

fn ensure(parts: &[Part]) -> Result<()> {
    let missing: Vec<&Part> = parts.iter().filter(|part| !(part.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for part in &missing {
        eprintln!("xtask: {} is missing ({}); installing {}", part.name, part.why, part.debian.join(" "));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|part| part.debian.iter().copied()).collect();
    install_debian(&packages)?;
    match missing.iter().find(|part| !(part.present)()) {
        Some(part) => {
            let message =
                format!("{} is still missing after installing {}", part.name, part.debian.join(" "));
            Err(Stop::unfit(message))
        }
        None => Ok(()),
    }
}

fn install_debian(packages: &[&str]) -> Result<()> {
    if !works("apt-get", &["--version"]) {
        let names = packages.join(" ");
        return Err(Stop::unfit(format!("this machine has no apt-get; install the equivalent of: {names}")));
    }
    let root = works("sh", &["-c", "test \"$(id -u)\" = 0"]);
    let prefix: &[&str] = if root { &[] } else { &["sudo", "-n"] };
    if !root && !works("sudo", &["-n", "true"]) {
        let names = packages.join(" ");
        return Err(Stop::unfit(format!("run as root first: apt-get update && apt-get install -y {names}")));
    }
    step(prefixed(prefix, &["apt-get", "update", "-q"]).env("DEBIAN_FRONTEND", "noninteractive"))?;
    let mut install = prefixed(prefix, &["apt-get", "install", "-y", "-q", "--no-install-recommends"]);
    step(install.args(packages).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn prefixed(prefix: &[&str], words: &[&str]) -> Command {
    let mut all = prefix.iter().chain(words);
    let mut command = Command::new(all.next().copied().unwrap_or("true"));
    command.args(all);
    command
}

fn ensure_cargo_tool(subcommand: &str, package: &str) -> Result<()> {
    if works("cargo", &[subcommand, "--version"]) {
        return Ok(());
    }
    eprintln!("xtask: {package} is missing; building it from its crate");
    step(cargo().args(["install", "--locked", package]))
}
