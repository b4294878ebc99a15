//! Making two arms of a measurement start alike.
//!
//! The kernel puts the program's path, its arguments and its environment on top of its stack. A byte more in one
//! arm moves everything below it, and a moved stack alone has changed run times by more than many a real
//! regression.

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::run::Run;

/// The variable that [`equalise_environment`] fills.
pub const PADDING_VARIABLE: &str = "KVRP_PADDING";

/// What the kernel will put on the stack of a new process, by length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StartLayout {
    /// Bytes of the program's path.
    pub program_bytes: usize,
    /// Bytes of each argument.
    pub argument_bytes: Vec<usize>,
    /// Names and bytes of each variable, in the order they are passed.
    pub variables: Vec<(String, usize)>,
    /// Bytes of the path of the working directory; not on the stack, and often copied to the heap.
    pub directory_bytes: usize,
    /// Bytes of the paths of the files for stdout and stderr.
    pub output_bytes: [usize; 2],
}

impl StartLayout {
    /// The layout of a run.
    pub fn of(run: &Run) -> Self {
        let variable =
            |(name, value): (&OsString, &OsString)| (name.to_string_lossy().into_owned(), value.len());
        Self {
            program_bytes: run.program.as_os_str().len(),
            argument_bytes: run.args.iter().map(|argument| argument.len()).collect(),
            variables: run.env.iter().map(variable).collect(),
            directory_bytes: run.cwd.as_deref().map_or(0, path_bytes),
            output_bytes: [&run.stdout, &run.stderr].map(|output| output.path().map_or(0, path_bytes)),
        }
    }

    /// Bytes of all variables with their names, `=` and terminators.
    pub fn environment_bytes(&self) -> usize {
        self.variables.iter().map(|(name, value)| name.len() + value + 2).sum()
    }
}

fn path_bytes(path: &Path) -> usize {
    path.as_os_str().len()
}

/// Two arms would not start alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("start both arms alike: {what} has {baseline} in the baseline and {candidate} in the candidate")]
pub struct NotAlike {
    /// What differs.
    pub what: String,
    /// Of the baseline.
    pub baseline: String,
    /// Of the candidate.
    pub candidate: String,
}

/// Checks that two arms start alike: same number and lengths of arguments, same variables with values of the same
/// lengths, paths of the same lengths, same CPUs and memory.
///
/// # Errors
/// The first thing that differs.
pub fn check_alike(baseline: &Run, candidate: &Run) -> Result<(), NotAlike> {
    let (b, c) = (StartLayout::of(baseline), StartLayout::of(candidate));
    same("the path of the program", &b.program_bytes, &c.program_bytes)?;
    same("the number of arguments", &b.argument_bytes.len(), &c.argument_bytes.len())?;
    for (index, (b, c)) in b.argument_bytes.iter().zip(&c.argument_bytes).enumerate() {
        same(&format!("argument {}", index + 1), b, c)?;
    }
    same("the number of variables", &b.variables.len(), &c.variables.len())?;
    for ((name, b), (other, c)) in b.variables.iter().zip(&c.variables) {
        same("the name of a variable", name, other)?;
        same(&format!("the variable {name}"), b, c)?;
    }
    same("the working directory", &b.directory_bytes, &c.directory_bytes)?;
    same("the path for stdout", &b.output_bytes[0], &c.output_bytes[0])?;
    same("the path for stderr", &b.output_bytes[1], &c.output_bytes[1])?;
    same("the set of CPUs", &set(&baseline.cpus), &set(&candidate.cpus))?;
    same("the memory binding", &set(&baseline.memory), &set(&candidate.memory))
}

fn set(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn same<T: PartialEq + ToString>(what: &str, baseline: &T, candidate: &T) -> Result<(), NotAlike> {
    if baseline == candidate {
        return Ok(());
    }
    Err(NotAlike { what: what.to_owned(), baseline: baseline.to_string(), candidate: candidate.to_string() })
}

/// Gives both arms the same bytes of environment by filling [`PADDING_VARIABLE`], which both then have. Variables
/// that only one arm has stay, so [`check_alike`] will still name them.
pub fn equalise_environment(baseline: &mut Run, candidate: &mut Run) {
    for run in [&mut *baseline, &mut *candidate] {
        run.env.insert(PADDING_VARIABLE.into(), OsString::new());
    }
    let bytes = |run: &Run| StartLayout::of(run).environment_bytes();
    let most = bytes(baseline).max(bytes(candidate));
    for run in [baseline, candidate] {
        let missing = most - bytes(run);
        run.env.insert(PADDING_VARIABLE.into(), "x".repeat(missing).into());
    }
}

/// Names of the same length for files and directories of two arms, from labels that may differ in length.
///
/// ```
/// let names = cpu_placement::same_length_names(["base", "candidate"]);
/// assert_eq!(names, ["base_____", "candidate"]);
/// ```
pub fn same_length_names<const N: usize>(labels: [&str; N]) -> [String; N] {
    let longest = labels.iter().map(|label| label.len()).max().unwrap_or(0);
    labels.map(|label| format!("{label}{}", "_".repeat(longest - label.len())))
}

impl crate::run::Output {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Null | Self::Inherit => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::run::Output;

    fn arm(side: &str) -> Run {
        Run::new(format!("/stage/{side}/harness"))
            .args(["--trace", "t.jsonl"])
            .env("SIDE", side)
            .cwd("/stage")
            .stdout(Output::File(format!("/stage/{side}/out").into()))
            .cpus("3".parse().unwrap())
    }

    fn check(candidate: Run, expected: &str) {
        let found =
            check_alike(&arm("a"), &candidate).map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_not_alike_is_named() {
        let differs = |what: &str, b: &str, c: &str| {
            format!("start both arms alike: {what} has {b} in the baseline and {c} in the candidate")
        };
        check(arm("b"), "");
        check(arm("bb"), &differs("the path of the program", "16", "17"));
        check(arm("b").arg("x"), &differs("the number of arguments", "2", "3"));
        check(arm("b").env("SIDE", "bb"), &differs("the variable SIDE", "1", "2"));
        check(arm("b").env("MORE", ""), &differs("the number of variables", "1", "2"));
        check(arm("b").cwd("/stage2"), &differs("the working directory", "6", "7"));
        check(arm("b").stdout(Output::Null), &differs("the path for stdout", "12", "0"));
        check(
            arm("b").cpus("4".parse().unwrap()),
            &differs("the set of CPUs", "Some(CpuSet(3))", "Some(CpuSet(4))"),
        );
        let mut other = arm("b");
        other.args[1] = "longer.jsonl".into();
        check(other, &differs("argument 2", "7", "12"));
    }

    #[test]
    fn environments_of_the_same_size() {
        let (mut baseline, mut candidate) = (arm("a"), arm("bbb").env("SIDE", "bbb"));
        equalise_environment(&mut baseline, &mut candidate);
        let bytes = |run: &Run| StartLayout::of(run).environment_bytes();
        assert_eq!(bytes(&baseline), bytes(&candidate));
        assert_eq!(baseline.env.get(OsStr::new(PADDING_VARIABLE)), Some(&"xx".into()));
        equalise_environment(&mut baseline, &mut candidate);
        assert_eq!(
            candidate.env.get(OsStr::new(PADDING_VARIABLE)),
            Some(&"".into()),
            "doing it twice changes nothing"
        );
    }

    #[test]
    fn names() {
        assert_eq!(same_length_names(["a", "b"]), ["a", "b"]);
        assert_eq!(same_length_names(["baseline", "candidate"]), ["baseline_", "candidate"]);
    }
}
