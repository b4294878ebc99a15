//! Every file of a bundle, held against the committed JSON schemas.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::Value;

static VALIDATORS: LazyLock<Mutex<HashMap<String, &'static Validator>>> = LazyLock::new(Mutex::default);

/// The validator of a committed schema.
fn validator(name: &str) -> &'static Validator {
    let mut known = VALIDATORS.lock().expect("no test panics in here");
    known.entry(name.to_owned()).or_insert_with(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        let text = fs::read_to_string(folder.join(format!("{name}.schema.json"))).expect("a schema");
        let schema = serde_json::from_str(&text).expect("JSON");
        Box::leak(Box::new(jsonschema::validator_for(&schema).expect("a schema")))
    })
}

/// Whatever is wrong with a document; nothing if it is as the schema says.
pub(crate) fn faults(name: &str, document: &Value) -> Vec<String> {
    let errors = validator(name).iter_errors(document);
    errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The schema of a file of a bundle; none for what is no JSON or TOML of ours.
pub(crate) fn schema_of(path: &str) -> Option<&'static str> {
    let records = [
        ("records/pin.", "record-pin"),
        ("records/build.", "record-build"),
        ("records/slice.", "record-slice"),
        ("records/place.", "record-place"),
        ("records/exceptions.", "record-exceptions"),
        ("records/node-", "record-node"),
        ("records/row-", "record-row"),
        ("records/lifecycle-", "record-lifecycle"),
        ("records/qualify-", "record-qualify"),
        ("records/measure-", "record-measure"),
        ("inputs/exception-", "exception"),
        ("samples/", "journal"),
        ("journal.", "journal"),
        ("manifest.", "manifest"),
        ("report.json", "report"),
        ("campaign.toml", "campaign"),
    ];
    let found = records.into_iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, name)| name);
    assert!(found.is_some() || !path.starts_with("records/"), "{path} has no schema");
    found
}

/// The documents in a file: one, or one a line.
pub(crate) fn documents(path: &str, text: &str) -> Vec<Value> {
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    match path.rsplit('.').next() {
        Some("jsonl") => text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(json).collect(),
        Some("toml") => vec![toml::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"))],
        _ => vec![json(text)],
    }
}

/// The files of a bundle that have a schema: path, schema, documents.
pub(crate) fn files(dir: &Path) -> Vec<(String, &'static str, Vec<Value>)> {
    let mut found = Vec::new();
    for folder in ["", "records", "inputs", "samples"] {
        for entry in fs::read_dir(dir.join(folder)).into_iter().flatten() {
            let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let Some(schema) = schema_of(&path).filter(|_| dir.join(&path).is_file()) else { continue };
            let text = fs::read_to_string(dir.join(&path)).expect("a file");
            let documents = documents(&path, &text);
            found.push((path, schema, documents));
        }
    }
    found
}

/// Holds every file of a bundle against its schema.
pub(crate) fn check_bundle(dir: &Path) {
    for (path, schema, documents) in files(dir) {
        for document in documents {
            let found = faults(schema, &document);
            assert!(found.is_empty(), "{path} against {schema}: {found:#?}\n{document:#}");
        }
    }
}
