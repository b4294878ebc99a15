//! Semantic exceptions: differences that a reviewer accepts because the candidate is the more faithful one (E1).
//!
//! Each record is a TOML file of its own, named by a campaign file together with its digest. A record says which values differ,
//! what both revisions do and why the candidate is right, and names a test that fails on the baseline and passes on the
//! candidate. The test is run; nothing in a record is believed without it.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::definition::{Canonical, DefinitionError};
use crate::record::{DifferenceRecord, RowRecord};
use crate::report::Report;

/// The schema name of an exception record.
pub const EXCEPTION_SCHEMA: &str = "kvrp.exception.v1";

/// What a draft says where a person must write; a record that still says it is refused.
const TO_BE_WRITTEN: &str = "TO BE WRITTEN";

/// One accepted difference: what differs, why the candidate is right, and the test that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExceptionRecord {
    /// Always [`EXCEPTION_SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = EXCEPTION_SCHEMA)))]
    pub schema: String,
    /// Short name; letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// The rows it speaks of; empty for every row.
    #[serde(default)]
    pub rows: Vec<String>,
    /// The values that differ, as JSON Pointers in which `*` stands for any one step.
    pub pointers: Vec<String>,
    /// What the baseline does.
    pub baseline_behavior: String,
    /// Why that is incorrect or less faithful.
    pub why_incorrect: String,
    /// What the candidate does.
    pub candidate_behavior: String,
    /// Where it is specified that this is right.
    pub source_of_truth: String,
    /// Why the difference comes from the intended change and is no leaked entropy.
    pub why_not_entropy: String,
    /// Effects on readers of the report or on programming interfaces.
    pub downstream_impact: String,
    /// What was decided.
    pub disposition: String,
    /// Who decided.
    pub reviewer: String,
    /// When, as `YYYY-MM-DD`.
    pub date: String,
    /// The test that fails on the baseline and passes on the candidate.
    pub regression_test: RegressionTest,
}

/// A command that is run in both checkouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RegressionTest {
    /// Must succeed in both checkouts first, such as building the tests: a test that cannot be built is not one that fails.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Text that the output of the test must contain in both checkouts, to show that it ran: a test runner that finds no test
    /// of that name succeeds, and one whose target is absent fails, without having tested anything.
    pub proof: String,
    /// Files that the test needs and the revisions do not have. They are put into both checkouts for the test alone, after
    /// the artifacts were built; one that is there already means that nothing was tested.
    #[serde(default, rename = "file")]
    pub files: Vec<TestFile>,
    /// The test: program and arguments, no shell. Status 0 is a pass; 126 and 127 mean that nothing was tested.
    pub command: Vec<String>,
    /// How long each of the two may take.
    #[serde(default = "default_time_limit_s")]
    pub time_limit_s: u64,
}

/// A file of a test, which the record itself carries: the test of a change is mostly part of it, and the baseline lacks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TestFile {
    /// Where it goes, relative to the top of the checkout.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

fn default_time_limit_s() -> u64 {
    1_800
}

/// A record with the bytes it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Exception {
    pub(crate) record: ExceptionRecord,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sha256: Sha256,
}

/// Why an exception record is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExceptionError {
    /// The file cannot be read.
    #[error("read the exception record {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is not the file that the campaign was frozen with.
    #[error("exception record {} has digest {found}, the campaign file says {expected}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: Sha256,
        /// The digest in the campaign file.
        expected: Sha256,
    },
    /// It is not TOML, or has unknown or missing keys.
    #[error("read the exception record {}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: DefinitionError,
    },
    /// A key has a value that no record may have.
    #[error("exception record {}: {key}: {message}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What was expected.
        message: String,
    },
}

impl Exception {
    /// Reads a record and holds it against its frozen digest.
    pub(crate) fn read(path: &Path, expected: Sha256) -> Result<Self, ExceptionError> {
        let bytes = std::fs::read(path)
            .map_err(|source| ExceptionError::Read { path: path.to_path_buf(), source })?;
        let sha256 = Sha256::of(&bytes);
        if sha256 != expected {
            return Err(ExceptionError::Changed { path: path.to_path_buf(), found: sha256, expected });
        }
        let malformed = |source| ExceptionError::Malformed { path: path.to_path_buf(), source };
        let text =
            std::str::from_utf8(&bytes).map_err(|source| malformed(DefinitionError::NotUtf8 { source }))?;
        let record: ExceptionRecord = crate::definition::from_toml(text).map_err(malformed)?;
        record.check().map_err(|(key, message)| ExceptionError::Value {
            path: path.to_path_buf(),
            key,
            message,
        })?;
        Ok(Exception { record, bytes, sha256 })
    }

    /// Refuses what cannot be meant in a collection that has no order: a place in it, which is another element in each report,
    /// and the member that it is sorted by, without which it cannot be compared.
    pub(crate) fn check_unordered(&self, canonical: &Canonical) -> Result<(), String> {
        for pointer in &self.record.pointers {
            for collection in &canonical.unordered {
                let (at, by) = (&collection.at, &collection.by);
                let why = match clash(&steps(pointer), &steps(at), &steps(by)) {
                    Some(Clash::Place) => {
                        format!("{at} has no order, so no place in it has a name: write `*`")
                    }
                    Some(Clash::Key) => format!("{at} is sorted by {by}, which cannot be left out"),
                    None => continue,
                };
                return Err(format!("exception record {:?}: {pointer}: {why}", self.record.name));
            }
        }
        Ok(())
    }

    pub(crate) fn applies_to(&self, row: &str) -> bool {
        self.record.rows.is_empty() || self.record.rows.iter().any(|name| name == row)
    }
}

fn steps(pointer: &str) -> Vec<&str> {
    pointer.split('/').skip(1).collect()
}

/// What is wrong with a pointer into a collection without an order.
#[derive(Debug, PartialEq, Eq)]
enum Clash {
    Place,
    Key,
}

fn clash(pointer: &[&str], at: &[&str], by: &[&str]) -> Option<Clash> {
    let may_meet = |a: &[&str], b: &[&str]| a.iter().zip(b).all(|(a, b)| a == b || *a == "*" || *b == "*");
    let (place, below) = pointer.get(at.len()..).filter(|_| may_meet(pointer, at))?.split_first()?;
    if *place != "*" {
        return Some(Clash::Place);
    }
    let is_key = !below.is_empty() && below.len() <= by.len() && may_meet(below, by);
    is_key.then_some(Clash::Key)
}

type Checked = Result<(), (String, String)>;

fn require(holds: bool, key: &str, message: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err((key.to_owned(), message.into())) }
}

impl ExceptionRecord {
    fn check(&self) -> Checked {
        let expected = format!("expected {EXCEPTION_SCHEMA:?}, found {:?}", self.schema);
        require(self.schema == EXCEPTION_SCHEMA, "schema", expected)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = !self.name.is_empty() && self.name.chars().all(plain) && !self.name.starts_with('.');
        require(is_name, "name", "expected letters, digits, `.`, `-` and `_`")?;
        self.check_texts()?;
        self.check_pointers()?;
        require(crate::definition::is_date(&self.date), "date", "expected YYYY-MM-DD")?;
        let command = &self.regression_test.command;
        require(!command.is_empty(), "regression_test.command", "must name a program")?;
        let proof = &self.regression_test.proof;
        require(!proof.trim().is_empty(), "regression_test.proof", "must not be empty")?;
        require(self.regression_test.time_limit_s > 0, "regression_test.time_limit_s", "must be above 0")?;
        self.check_files()
    }

    fn check_texts(&self) -> Checked {
        for (key, text) in [
            ("baseline_behavior", &self.baseline_behavior),
            ("why_incorrect", &self.why_incorrect),
            ("candidate_behavior", &self.candidate_behavior),
            ("source_of_truth", &self.source_of_truth),
            ("why_not_entropy", &self.why_not_entropy),
            ("downstream_impact", &self.downstream_impact),
            ("disposition", &self.disposition),
            ("reviewer", &self.reviewer),
        ] {
            require(!text.trim().is_empty(), key, "must not be empty")?;
            require(!text.contains(TO_BE_WRITTEN), key, "is still to be written")?;
        }
        let test = &self.regression_test;
        let command = test.command.iter().chain(&test.prepare).chain([&test.proof]);
        let written = command.into_iter().all(|word| !word.contains(TO_BE_WRITTEN));
        require(written, "regression_test", "is still to be written")
    }

    /// No file of a test may reach out of the checkout, or into its repository.
    fn check_files(&self) -> Checked {
        for (index, file) in self.regression_test.files.iter().enumerate() {
            let mut steps = file.path.components();
            let is_inside = |step: Component<'_>| matches!(step, Component::Normal(name) if name != ".git");
            let key = format!("regression_test.file[{index}].path");
            let holds = file.path.file_name().is_some() && steps.all(is_inside);
            require(holds, &key, "expected a path below the top of the checkout")?;
        }
        Ok(())
    }

    fn check_pointers(&self) -> Checked {
        require(!self.pointers.is_empty(), "pointers", "must name what differs")?;
        for (index, pointer) in self.pointers.iter().enumerate() {
            let key = format!("pointers[{index}]");
            let parsed = pointer.parse::<canonical_json::Pattern>();
            let message = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
            require(parsed.is_ok(), &key, message)?;
            let steps: Vec<&str> = pointer.split('/').skip(1).collect();
            let is_narrow = steps.len() > 1 && steps.iter().any(|step| *step != "*");
            require(
                is_narrow,
                &key,
                "must name at least two steps, one of them by name: not whole parts of a report",
            )?;
        }
        Ok(())
    }
}

/// A record to be completed, for every row of a report that differs and has no record yet.
///
/// The pointers are the shapes of the differences found; every sentence is left to a person. `None` when nothing differs.
#[must_use]
pub fn draft(report: &Report) -> Option<String> {
    let rows: Vec<(&RowRecord, &DifferenceRecord)> = report
        .rows
        .iter()
        .filter(|row| !row.equal && row.stable.baseline && row.stable.candidate)
        .filter_map(|row| Some((row, row.difference.as_ref()?)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_draft(&mut text, report, &rows);
    Some(text)
}

fn write_draft(
    out: &mut String,
    report: &Report,
    rows: &[(&RowRecord, &DifferenceRecord)],
) -> std::fmt::Result {
    writeln!(
        out,
        "# Drafted from campaign {}. Every {TO_BE_WRITTEN:?} must be replaced, and every",
        report.campaign
    )?;
    writeln!(out, "# pointer kept only if this one change explains it; the rest needs records of its own.")?;
    writeln!(out, "schema = {EXCEPTION_SCHEMA:?}")?;
    writeln!(out, "name = {:?}", format!("{}-exception", report.campaign))?;
    let names: Vec<String> = rows.iter().map(|(row, _)| format!("{:?}", row.row)).collect();
    writeln!(out, "rows = [{}]", names.join(", "))?;
    writeln!(out, "pointers = [")?;
    for (shape, note) in shapes(rows) {
        writeln!(out, "  {}, # {note}", toml::Value::String(shape))?;
    }
    writeln!(out, "]")?;
    if rows.iter().any(|(_, difference)| difference.truncated) {
        writeln!(out, "# There are more shapes than the report lists.")?;
    }
    for key in [
        "baseline_behavior",
        "why_incorrect",
        "candidate_behavior",
        "source_of_truth",
        "why_not_entropy",
        "downstream_impact",
        "disposition",
        "reviewer",
    ] {
        writeln!(out, "{key} = {TO_BE_WRITTEN:?}")?;
    }
    writeln!(out, "date = {TO_BE_WRITTEN:?}")?;
    writeln!(out, "\n[regression_test]")?;
    writeln!(
        out,
        "# Must succeed in both checkouts; then the command must fail on the baseline and pass on the candidate."
    )?;
    writeln!(out, "proof = {:?}", format!("test {TO_BE_WRITTEN} ..."))?;
    writeln!(out, "prepare = [\"cargo\", \"test\", \"--no-run\", \"-p\", {TO_BE_WRITTEN:?}]")?;
    writeln!(
        out,
        "command = [\"cargo\", \"test\", \"-p\", {TO_BE_WRITTEN:?}, \"--\", \"--exact\", {TO_BE_WRITTEN:?}]"
    )
}

/// Each shape once, with the rows it occurs in and its first example.
fn shapes(rows: &[(&RowRecord, &DifferenceRecord)]) -> Vec<(String, String)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (row, difference) in rows {
        for group in &difference.groups {
            let note = format!("{}: {}", row.row, group.count);
            match found.iter_mut().find(|(shape, _)| *shape == group.shape) {
                Some((_, notes)) => notes.push(note),
                None => found.push((group.shape.clone(), vec![note])),
            }
        }
    }
    found.into_iter().map(|(shape, notes)| (shape, notes.join(", "))).collect()
}

#[cfg(test)]
mod tests;
