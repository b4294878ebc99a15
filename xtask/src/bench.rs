//! `cargo xtask bench NAME [--check]`: each benchmark task prints target, measured, met or missed.

use std::process::ExitCode;

use anyhow::Result;

use crate::process::{cargo, hand_over, root};

/// A task, the package that owns it and its bench target.
const TASKS: [(&str, &str, &str); 9] = [
    ("campaign", "parity", "campaign"),
    ("canonical-json", "canonical-json", "targets"),
    ("master-replay", "master-replay", "targets"),
    ("master-wire", "master-wire", "targets"),
    ("mooncake-trace", "mooncake-trace", "targets"),
    ("placement", "cpu-placement", "targets"),
    ("gate-calibration", "paired-stats", "gate_calibration"),
    ("paired-overhead", "paired-run", "overhead"),
    ("slurm", "parity", "slurm"),
];

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let task =
        args.split_first().and_then(|(name, rest)| Some((TASKS.iter().find(|task| task.0 == name)?, rest)));
    let Some(((_, package, target), rest)) = task else {
        let names: Vec<&str> = TASKS.iter().map(|task| task.0).collect();
        eprintln!("xtask: bench takes one of: {}", names.join(", "));
        return Ok(ExitCode::from(2));
    };
    let mut bench = cargo();
    bench.current_dir(root()).args([
        "bench",
        "--quiet",
        "--locked",
        "--package",
        package,
        "--bench",
        target,
        "--",
    ]);
    hand_over(bench.args(rest))
}
