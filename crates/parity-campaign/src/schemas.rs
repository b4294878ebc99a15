//! The JSON schemas of what a campaign reads and writes, derived from the types and committed in `docs/schema`.
//!
//! What is read is described as it is read, so that keys with a default may be left out; what is written as it is written,
//! where every key is there. Neither may have a key that this version does not know.

use std::collections::BTreeMap;

use evidence::{PayloadSchema, journal_schema, manifest_schema};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::campaign::{FAILED, RESUMED};
use crate::context::{STARTED, Started};
use crate::definition::Definition;
use crate::exception::ExceptionRecord;
use crate::executor::attempt::{self, RowEnded, RowStarted};
use crate::executor::merge::{ATTEMPT, AttemptRecord, BUILD_ATTEMPT};
use crate::executor::slurm::{self, Ended, FailedJob, MergeSubmitted, Submitted};
use crate::lifecycle::{LifecycleCoverage, LifecycleRecord};
use crate::record::{
    BuildRecord, CanonicalRecord, CleanupRecord, ExceptionReport, FailureRecord, MeasureRecord, PinRecord,
    PlaceRecord, RepetitionRecord, RowNode, RowRecord, TestRun,
};
use crate::report::Report;
use crate::seeds::GoldenSeeds;
use crate::stage::search::{PROBE_KIND, Probe, Qualification};
use crate::stage::{classify, cleanup, judge, lifecycle, run};

/// Every schema by its name.
#[must_use]
pub fn schemas() -> BTreeMap<&'static str, Value> {
    let all = [
        ("campaign", read::<Definition>()),
        ("exception", read::<ExceptionRecord>()),
        ("seeds", read::<GoldenSeeds>()),
        ("report", written::<Report>()),
        ("record-pin", written::<PinRecord>()),
        ("record-build", written::<BuildRecord>()),
        ("record-slice", written::<mooncake_trace::SliceManifest>()),
        ("record-place", written::<PlaceRecord>()),
        ("record-node", written::<RowNode>()),
        ("record-row", written::<RowRecord>()),
        ("record-lifecycle", written::<LifecycleRecord>()),
        ("record-exceptions", written::<Vec<ExceptionReport>>()),
        ("record-qualify", written::<Qualification>()),
        ("record-measure", written::<MeasureRecord>()),
        ("manifest", manifest_schema(writing())),
        ("journal", journal()),
    ];
    all.into_iter().map(|(name, schema)| (name, closed(schema))).collect()
}

fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

fn writing() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn written<T: JsonSchema>() -> Schema {
    writing().into_root_schema_for::<T>()
}

/// One line of a journal, of a campaign or of a row's job.
fn journal() -> Schema {
    let mut writing = writing();
    let writing_to = &mut writing;
    let mut payloads =
        vec![PayloadSchema::of_kinds_from("measure.", writing_to.subschema_for::<paired_run::Event>())];
    let mut add = |kind: &str, schema: Schema| payloads.push(PayloadSchema::of_kind(kind, schema));
    add(STARTED, writing_to.subschema_for::<Started>());
    add(RESUMED, writing_to.subschema_for::<Started>());
    add(FAILED, writing_to.subschema_for::<FailureRecord>());
    add(run::REPETITION_KIND, writing_to.subschema_for::<RepetitionRecord>());
    add(judge::CANONICAL_KIND, writing_to.subschema_for::<CanonicalRecord>());
    add(PROBE_KIND, writing_to.subschema_for::<Probe>());
    add(classify::TEST_KIND, writing_to.subschema_for::<TestRun>());
    add(lifecycle::RUN_KIND, writing_to.subschema_for::<RepetitionRecord>());
    add(lifecycle::TEST_KIND, writing_to.subschema_for::<TestRun>());
    add(lifecycle::LIFECYCLE_KIND, writing_to.subschema_for::<LifecycleCoverage>());
    add(slurm::SUBMITTED, writing_to.subschema_for::<Submitted>());
    add(slurm::ENDED, writing_to.subschema_for::<Ended>());
    add(slurm::FAILED, writing_to.subschema_for::<FailedJob>());
    add(slurm::MERGE, writing_to.subschema_for::<MergeSubmitted>());
    add(ATTEMPT, writing_to.subschema_for::<AttemptRecord>());
    add(BUILD_ATTEMPT, writing_to.subschema_for::<AttemptRecord>());
    add(attempt::STARTED, writing_to.subschema_for::<RowStarted>());
    add(attempt::ENDED, writing_to.subschema_for::<RowEnded>());
    add(cleanup::CLEANUP_KIND, writing_to.subschema_for::<CleanupRecord>());
    journal_schema(writing, payloads)
}

/// The keywords whose value is a list of schemas for the same value.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schema with every object closed: a key that it does not name is refused.
fn closed(schema: Schema) -> Value {
    let mut root = schema.to_value();
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    close(&mut root, &definitions, false);
    root
}

/// `is_part`: another schema speaks of the same object, and is the one to be closed.
fn close(schema: &mut Value, definitions: &Map<String, Value>, is_part: bool) {
    let Some(members) = schema.as_object_mut() else { return };
    let is_object = members.contains_key("properties");
    if is_object {
        merge_reference(members, definitions);
    }
    let is_combined = is_object && COMBINED.iter().any(|keyword| members.contains_key(*keyword));
    if is_object && !is_part {
        let keyword = if is_combined { "unevaluatedProperties" } else { "additionalProperties" };
        members.entry(keyword).or_insert(Value::Bool(false));
    }
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(|schema| close(schema, definitions, false));
            }
            ("items" | "additionalProperties", schema) => close(schema, definitions, false),
            ("if" | "then", schema) => close(schema, definitions, true),
            (keyword, Value::Array(all)) if COMBINED.contains(&keyword) => {
                all.iter_mut().for_each(|schema| close(schema, definitions, is_combined || is_part));
            }
            _ => {}
        }
    }
}

/// Puts the members of a referenced object beside those that are named here: closed, each would refuse the other's.
fn merge_reference(members: &mut Map<String, Value>, definitions: &Map<String, Value>) {
    let Some(Value::String(reference)) = members.remove("$ref") else { return };
    let target = reference.rsplit('/').next().and_then(|name| definitions.get(name));
    let Some(target) = target else { return };
    for (name, schema) in target["properties"].as_object().into_iter().flatten() {
        members["properties"][name] = schema.clone();
    }
    let required = target["required"].as_array().into_iter().flatten().cloned();
    if let Some(Value::Array(own)) = members.get_mut("required") {
        own.extend(required);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, expected: &Value) {
        assert_eq!(&closed(Schema::try_from(schema).expect("a schema")), expected);
    }

    #[test]
    fn every_object_is_closed_once() {
        let text = || json!({ "type": "string" });
        // Inside arrays, choices and definitions.
        check(
            json!({ "anyOf": [{ "type": "array", "items": { "properties": { "a": text() } } }, { "type": "null" }] }),
            &json!({ "anyOf": [
                { "type": "array", "items": { "properties": { "a": text() }, "additionalProperties": false } },
                { "type": "null" },
            ] }),
        );
        // An object that a choice adds members to is closed as a whole.
        check(
            json!({ "properties": { "a": text() }, "oneOf": [{ "properties": { "b": { "properties": {} } } }] }),
            &json!({
                "properties": { "a": text() },
                "oneOf": [{ "properties": { "b": { "properties": {}, "additionalProperties": false } } }],
                "unevaluatedProperties": false,
            }),
        );
        // A tag beside a referenced object.
        let defined = json!({ "properties": { "b": text() }, "required": ["b"] });
        let mut defined_closed = defined.clone();
        defined_closed["additionalProperties"] = false.into();
        check(
            json!({
                "properties": { "kind": { "const": "x" } },
                "required": ["kind"],
                "$ref": "#/$defs/B",
                "$defs": { "B": defined },
            }),
            &json!({
                "properties": { "kind": { "const": "x" }, "b": text() },
                "required": ["kind", "b"],
                "additionalProperties": false,
                "$defs": { "B": defined_closed },
            }),
        );
        // A map stays open for every name.
        check(
            json!({ "type": "object", "additionalProperties": text() }),
            &json!({ "type": "object", "additionalProperties": text() }),
        );
    }

    /// A key that is added to a type is added to a committed file too, so that a change of the format is seen.
    #[test]
    fn every_file_that_is_read_by_others_has_a_schema() {
        let names: Vec<&str> = schemas().into_keys().collect();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        let entries = std::fs::read_dir(folder).expect("docs/schema");
        let mut committed: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .filter_map(|name| name.strip_suffix(".schema.json").map(str::to_owned))
            .collect();
        committed.sort_unstable();
        assert_eq!(committed, names);
    }
}
