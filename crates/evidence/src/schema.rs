//! JSON schemas of what every bundle has, derived from the types that are written.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::Recovery;
use crate::bundle::{
    CREATED, Created, OPENED, REMOVED, REOPENED, Removed, Reopened, SEALED, Sealed, WRITTEN, Written,
};
use crate::journal::LineOut;
use crate::manifest::Stored;

/// What the payload of some records is.
#[derive(Clone, Debug)]
pub struct PayloadSchema {
    kind: Value,
    payload: Schema,
}

impl PayloadSchema {
    /// Of the records of this kind.
    #[must_use]
    pub fn of_kind(kind: &str, payload: Schema) -> Self {
        PayloadSchema { kind: json!({ "const": kind }), payload }
    }

    /// Of the records whose kind begins with these characters: lower-case letters, digits, `-` and `.`.
    #[must_use]
    pub fn of_kinds_from(prefix: &str, payload: Schema) -> Self {
        PayloadSchema { kind: json!({ "pattern": format!("^{}", prefix.replace('.', "\\.")) }), payload }
    }
}

/// The schema of `manifest.json`.
#[must_use]
pub fn manifest_schema(generator: SchemaGenerator) -> Schema {
    generator.into_root_schema_for::<Stored>()
}

/// The schema of one line of `journal.jsonl`: the records of this crate and those that `payloads` describes, and no others.
/// The generator is the one that made the payloads' schemas.
#[must_use]
pub fn journal_schema(mut generator: SchemaGenerator, payloads: Vec<PayloadSchema>) -> Schema {
    let mut all = vec![
        PayloadSchema::of_kind(CREATED, generator.subschema_for::<Created>()),
        PayloadSchema::of_kind(OPENED, generator.subschema_for::<Recovery>()),
        PayloadSchema::of_kind(REOPENED, generator.subschema_for::<Reopened>()),
        PayloadSchema::of_kind(WRITTEN, generator.subschema_for::<Written>()),
        PayloadSchema::of_kind(REMOVED, generator.subschema_for::<Removed>()),
        PayloadSchema::of_kind(SEALED, generator.subschema_for::<Sealed>()),
    ];
    all.extend(payloads);
    let mut line = generator.into_root_schema_for::<LineOut<'static>>();
    let kinds: Vec<&Value> = all.iter().map(|one| &one.kind).collect();
    let kinds = json!(kinds);
    if let Some(kind) = line.pointer_mut("/properties/kind").and_then(Value::as_object_mut) {
        kind.insert("anyOf".to_owned(), kinds);
    }
    let rules = all.iter().map(|PayloadSchema { kind, payload }| {
        json!({ "if": { "properties": { "kind": kind } }, "then": { "properties": { "payload": payload } } })
    });
    line.insert("allOf".to_owned(), rules.collect());
    line
}
