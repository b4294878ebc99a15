//! One of the two commands, as something that can be run once and read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cpu_placement::{Finished, Output, Run};
use paired_run::{Attempt, BoxError, Reading, Subject};
use paired_stats::Arm;
use serde_json::Value;

use crate::definition::{Definition, Metric, OUT};
use crate::strict;

/// One arm of a definition.
pub(crate) struct Program<'a> {
    definition: &'a Definition,
    arm: Arm,
    scratch: PathBuf,
    stop: Arc<AtomicBool>,
}

impl<'a> Program<'a> {
    /// `stop` is set when this process is asked to stop for a while (Ctrl-Z).
    pub(crate) fn new(definition: &'a Definition, arm: Arm, scratch: &Path, stop: Arc<AtomicBool>) -> Self {
        Self { definition, arm, scratch: scratch.to_owned(), stop }
    }

    /// The run of one attempt. Its paths have the same length in both arms and in every attempt.
    pub(crate) fn run(&self, number: u32) -> Run {
        let words = match self.arm {
            Arm::Baseline => &self.definition.baseline,
            Arm::Candidate => &self.definition.candidate,
        };
        let out = self.out_file(number);
        let words = words.iter().map(|word| filled(word, &out));
        let mut words = words.collect::<Vec<_>>().into_iter();
        let mut run = Run::new(words.next().unwrap_or_default())
            .args(words)
            .stdout(Output::File(self.scratch.join("stdout")))
            .stderr(Output::File(self.scratch.join("stderr")))
            .load_limits(self.definition.load_limits)
            .job_control(Arc::clone(&self.stop));
        for (name, value) in &self.definition.environment {
            run = run.env(name, value);
        }
        run.cpus = self.definition.cpus.clone();
        run.time_limit = self.definition.time_limit_s.map(Duration::from_secs);
        run
    }

    fn out_file(&self, number: u32) -> PathBuf {
        self.scratch.join(format!("out-{number:06}.json"))
    }
}

impl Subject for Program<'_> {
    fn prepare(&mut self, attempt: &Attempt) -> Result<Run, BoxError> {
        remove_if_there(&self.out_file(attempt.number))?;
        Ok(self.run(attempt.number))
    }

    fn read(&mut self, attempt: &Attempt, finished: &Finished) -> Result<Reading, BoxError> {
        let ms = |ns: u64| Reading::Value { value: ns as f64 / 1e6, also: BTreeMap::new() };
        match &self.definition.metric {
            Metric::Wall => Ok(ms(finished.wall_ns)),
            Metric::Cpu => Ok(ms(finished.user_ns + finished.system_ns)),
            Metric::Json(pointer) => {
                let file = self.out_file(attempt.number);
                let reading = read_json(&file, pointer)?;
                remove_if_there(&file)?;
                Ok(reading)
            }
        }
    }
}

/// A word with the path of the fresh file in its place; paths need not be text.
fn filled(word: &str, out: &Path) -> OsString {
    let mut parts = word.split(OUT);
    let mut filled = OsString::from(parts.next().unwrap_or_default());
    for part in parts {
        filled.push(out);
        filled.push(part);
    }
    filled
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The number at `pointer`, with the other numbers at the top of the document. What is wrong with a file that
/// is there is the program's doing, and so is a file that is not.
fn read_json(path: &Path, pointer: &str) -> Result<Reading, BoxError> {
    let malformed = |message: String| Ok(Reading::Malformed { message });
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return malformed("what the program wrote is not a regular file".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return malformed("the program wrote no file".to_owned());
        }
        Err(error) => return Err(error.into()),
    }
    let bytes = match strict::bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            return malformed(format!("its file cannot be read: {error}"));
        }
        Err(error) => return Err(error.into()),
    };
    let document = match strict::json(&bytes) {
        Ok(document) => document,
        Err(error) => return malformed(format!("its file is not one JSON document: {error}")),
    };
    match document.pointer(pointer).map(Value::as_f64) {
        Some(Some(value)) => Ok(Reading::Value { value, also: top_numbers(&document) }),
        Some(None) => malformed(format!("{pointer} is not a number")),
        None => malformed(format!("its file has no {pointer}")),
    }
}

fn top_numbers(document: &Value) -> BTreeMap<String, f64> {
    let members = document.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_read_or_named_as_malformed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let check = |text: &str, expected: Reading| {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_json(&path, "/a/b").unwrap(), expected, "{text}");
        };
        let malformed = |message: &str| Reading::Malformed { message: message.to_owned() };
        let also = BTreeMap::from([("c".to_owned(), 2.0)]);
        check(r#"{"a":{"b":0.1},"c":2}"#, Reading::Value { value: 0.1, also });
        check(r#"{"a":{"b":"0.1"}}"#, malformed("/a/b is not a number"));
        check(r#"{"a":1}"#, malformed("its file has no /a/b"));
        check(
            "",
            malformed("its file is not one JSON document: EOF while parsing a value at line 1 column 0"),
        );
        check(
            "{}\n{}",
            malformed("its file is not one JSON document: trailing characters at line 2 column 1"),
        );
        check(
            r#"{"a":{"b":1,"b":2}}"#,
            malformed("its file is not one JSON document: the key \"b\" occurs twice at line 1 column 18"),
        );
        check("NaN", malformed("its file is not one JSON document: expected value at line 1 column 1"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_json(&path, "/a/b").unwrap(), malformed("the program wrote no file"));
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let no_file = malformed("what the program wrote is not a regular file");
        assert_eq!(read_json(&path, "/a/b").unwrap(), no_file);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read_json(&path, "/a/b").unwrap(), no_file);
    }

    #[test]
    fn the_fresh_file_may_stand_anywhere_and_be_no_text() {
        use std::os::unix::ffi::OsStrExt as _;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/t/\xff"));
        let check = |word: &str, expected: &[u8]| assert_eq!(filled(word, path).as_bytes(), expected);
        check("plain", b"plain");
        check("{out}", b"/t/\xff");
        check("--json={out},{out}.log", b"--json=/t/\xff,/t/\xff.log");
    }
}
