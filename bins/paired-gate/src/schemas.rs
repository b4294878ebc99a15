//! The JSON schemas of what this command reads and writes, derived from the types and committed in `schemas/`.

use std::path::Path;

use paired_run::Event;
use paired_stats::{Gate, Schedule};
use schemars::{Schema, generate::SchemaSettings};

use crate::calibrate::Row;
use crate::definition::Definition;
use crate::print::Judged;

/// Every file with its schema. What is read is described as it is read, what is written as it is written.
fn schemas() -> [(&'static str, Schema); 6] {
    let read = || SchemaSettings::draft2020_12().into_generator();
    let written = || SchemaSettings::draft2020_12().for_serialize().into_generator();
    [
        ("definition", read().into_root_schema_for::<Definition>()),
        ("gate", read().into_root_schema_for::<Gate>()),
        ("schedule", written().into_root_schema_for::<Schedule>()),
        ("event", written().into_root_schema_for::<Event>()),
        ("judgement", written().into_root_schema_for::<Judged<'static>>()),
        ("calibration", written().into_root_schema_for::<Row>()),
    ]
}

/// `UPDATE_SCHEMAS=1 cargo test -p paired-gate schemas` writes them anew.
#[test]
fn committed_schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    for (name, schema) in schemas() {
        let path = folder.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "schemas/{name}.schema.json is stale: set UPDATE_SCHEMAS=1 and test again"
        );
    }
}

/// Keys that a reader of the outputs relies on.
#[test]
fn schemas_name_what_is_written() {
    let required = |name: &str| {
        let (_, schema) = schemas().into_iter().find(|(other, _)| *other == name).unwrap();
        serde_json::to_value(schema).unwrap()["required"].to_string()
    };
    for key in ["schema", "definition", "order_statistics", "diagnostics", "sample_sha256", "limit_ratio"] {
        assert!(required("judgement").contains(&format!("{key:?}")), "{key}: {}", required("judgement"));
    }
    for key in ["schema", "version", "metric", "baseline", "candidate", "run", "gate"] {
        assert!(required("definition").contains(&format!("{key:?}")), "{key}: {}", required("definition"));
    }
}
