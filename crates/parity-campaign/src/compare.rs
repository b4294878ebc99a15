//! What differs between two campaigns, from their evidence alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::definition::CampaignFile;
use crate::recompute::{RecomputeError, read_report};

/// Two bundles, held against each other.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct EvidenceComparison {
    /// How many facts both have, with the same value.
    pub same: u64,
    /// Every other fact, by name.
    pub differences: Vec<EvidenceDifference>,
}

/// One fact that is not the same in two bundles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EvidenceDifference {
    /// Where it is: a section such as `definition`, `place` or `rows`, then keys; an element of a list by its name.
    pub fact: String,
    /// Its value in the first bundle.
    pub left: Option<String>,
    /// Its value in the second.
    pub right: Option<String>,
}

impl EvidenceDifference {
    /// The part of the evidence that it is in.
    #[must_use]
    pub fn section(&self) -> &str {
        self.fact.split(['.', '[']).next().unwrap_or_default()
    }
}

/// Names everything that differs between two finished campaigns: definition, commits, build, window, host and placement,
/// digests and counters of every row, and what was measured.
///
/// Left out is what is only a means to something that is compared: times that a stage took, the numbers behind a judgement,
/// single differences between reports, samples of a profile.
///
/// # Errors
///
/// [`RecomputeError`] when one of them has no report or no campaign file.
pub fn compare_evidence(left: &Path, right: &Path) -> Result<EvidenceComparison, RecomputeError> {
    let (left, right) = (facts(left)?, facts(right)?);
    let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
    names.sort_by_key(|name| (rank(name), *name));
    names.dedup();
    let total = names.len();
    let differs = |name: &String| {
        let (left, right) = (left.get(name).cloned(), right.get(name).cloned());
        (left != right).then(|| EvidenceDifference { fact: name.clone(), left, right })
    };
    let differences: Vec<EvidenceDifference> = names.into_iter().filter_map(differs).collect();
    let same = total.saturating_sub(differences.len()) as u64;
    Ok(EvidenceComparison { same, differences })
}

/// Sections in the order of work; what a report says of the whole comes last.
const SECTIONS: [&str; 8] =
    ["definition", "pin", "build", "slice", "place", "rows", "lifecycles", "measurements"];

fn rank(name: &str) -> usize {
    let section = name.split(['.', '[']).next().unwrap_or_default();
    SECTIONS.iter().position(|known| *known == section).unwrap_or(SECTIONS.len())
}

/// What is not compared, wherever it is.
const LEFT_OUT: [&str; 8] =
    ["stages", "judgement", "groups", "uncovered", "profile", "kept", "first_divergence", "finding"];

fn is_left_out(key: &str) -> bool {
    LEFT_OUT.contains(&key) || key.ends_with("wall_ms") || key.ends_with("wall_ns")
}

type Facts = BTreeMap<String, String>;

fn facts(dir: &Path) -> Result<Facts, RecomputeError> {
    let report = read_report(dir)?;
    let file = CampaignFile::read(&dir.join("campaign.toml"))?;
    let mut facts = Facts::new();
    flatten("definition", &json(&file.definition), &mut facts);
    flatten("", &json(&report), &mut facts);
    Ok(facts)
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("records have text for keys, so nothing in them cannot be JSON")
}

/// Every scalar by its path; a list of scalars is one fact.
fn flatten(path: &str, value: &Value, facts: &mut Facts) {
    match value {
        Value::Object(members) => {
            for (key, member) in members.iter().filter(|(key, _)| !is_left_out(key)) {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&below, member, facts);
            }
        }
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            for (index, element) in elements.iter().enumerate() {
                let name = name_of(element).unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}[{name}]"), element, facts);
            }
        }
        // A value that is absent is no fact.
        Value::Null => {}
        Value::String(text) => {
            facts.insert(path.to_owned(), text.clone());
        }
        other => {
            facts.insert(path.to_owned(), other.to_string());
        }
    }
}

/// What an element of a list calls itself.
fn name_of(element: &Value) -> Option<String> {
    let of = |key: &str| element.get(key)?.as_str().map(str::to_owned);
    ["name", "row", "id", "subject"].into_iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_scalar_has_a_name_and_means_are_left_out() {
        let mut facts = Facts::new();
        let value = json!({
            "rows": [{ "row": "a", "equal": true, "wall_ms": 7 }, { "equal": false }],
            "list": [1, 2],
            "none": null,
            "judgement": { "p": 1 },
        });
        flatten("", &value, &mut facts);
        let found: Vec<String> = facts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(found, ["list=[1,2]", "rows[1].equal=false", "rows[a].equal=true", "rows[a].row=a"]);
    }

    #[test]
    fn sections_come_in_the_order_of_work() {
        let mut names = ["semantic", "rows[a].equal", "definition.name", "place.host.kernel"];
        names.sort_by_key(|name| (rank(name), *name));
        assert_eq!(names, ["definition.name", "place.host.kernel", "rows[a].equal", "semantic"]);
    }
}
