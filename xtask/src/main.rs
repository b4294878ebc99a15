//! Tasks of the source tree, one file each. This binary needs no system library and few crates, so that it builds in
//! seconds on a bare machine; heavy tools are binaries of their own that it builds and runs. Please keep it so.
#![expect(
    clippy::disallowed_methods,
    reason = "xtask starts cargo, git and apt-get; nothing here is measured"
)]

mod bench;
mod ci;
mod codegen;
mod dynamo;
mod fuzz;
mod parity;
mod process;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
Tasks of the source tree

Usage: cargo xtask TASK [ARGS...]

Tasks:
  parity ARGS...    set up what is missing, build the parity command and run it (`cargo xtask parity demo`)
  test [ARGS...]    set up what is missing and run every test; ARGS go to the test runner
  ci                format, lints, tidy, generated files, documentation, dependency rules, a minute of fuzzing and every
                    test; --without-tests and --without-fuzz leave these out
  fuzz [--seconds N] build every fuzz target and run each for its share of a minute
  setup             say what is missing on this machine and install it
  dynamo ARGS...    make a local repository of Dynamo out of its published crates
  bench NAME [--check]  run one benchmark task; --check exits 1 on a missed target
  tidy              check the rules no compiler checks
  codegen [--check] write the generated files; --check only compares

Exit codes: that of the command run; 1 a check failed; 2 usage; 5 something is missing and cannot be installed";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(process::Stop::code_of(&error))
        }
    }
}

fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let Some((task, rest)) = args.split_first() else {
        println!("{HELP}");
        return Ok(ExitCode::from(2));
    };
    match task.as_str() {
        "parity" => return parity::run(rest),
        "test" => test::run(rest)?,
        "ci" => ci::run(rest)?,
        "setup" => setup::run(rest)?,
        "dynamo" => dynamo::run(rest)?,
        "fuzz" => fuzz::run(rest)?,
        "bench" => return bench::run(rest),
        "tidy" => tidy::run(rest)?,
        "codegen" => codegen::run(rest)?,
        "help" | "--help" | "-h" => println!("{HELP}"),
        other => {
            eprintln!("xtask: there is no task {other:?}\n\n{HELP}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
