//! The committed JSON schemas refuse what no campaign writes: every key of real evidence is taken away, given another type, or
//! put beside one that nobody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{ROWS_TOML, StandIn};

mod scene;

use scene::schemas::{documents, faults, files};
use scene::{HARMLESS, Scene};

/// Objects whose keys are names of something, and values that are another crate's own format.
const OPEN: [&str; 1] = ["/artifacts/baseline/details"];

/// Every value of a document by its place, of the elements of an array only the first.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(elements) => {
            elements.first().into_iter().for_each(|element| places(element, &format!("{at}/0"), found));
        }
        _ => {}
    }
}

/// What a schema accepts although it was changed, as `change place`.
fn accepted(schema: &str, document: &Value) -> BTreeSet<String> {
    let mut all = Vec::new();
    places(document, "", &mut all);
    let mut found = BTreeSet::new();
    for place in all.iter().filter(|place| !OPEN.iter().any(|open| place.starts_with(open))) {
        let mut check = |change: &str, edit: &dyn Fn(&mut Value)| {
            let mut changed = document.clone();
            edit(&mut changed);
            if faults(schema, &changed).is_empty() {
                found.insert(format!("{change} {place}"));
            }
        };
        let value = document.pointer(place).expect("a place");
        let other = if value.is_string() || value.is_null() { json!([[]]) } else { json!("text") };
        check("another type", &|changed| *changed.pointer_mut(place).expect("a place") = other.clone());
        if value.is_object() {
            check("unknown key", &|changed| {
                changed.pointer_mut(place).expect("a place")["unheard_of"] = json!(1)
            });
        }
        let (parent, name) = place.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(_)) = document.pointer(parent).filter(|_| !name.is_empty()) {
            check("missing key", &|changed| {
                let members = changed.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
                members.remove(&name.replace("~1", "/").replace("~0", "~"));
            });
        }
    }
    found
}

/// Real evidence: a lifecycle, a row that differs and keeps its reports, and an exception record nobody needs.
fn evidence() -> Scene {
    let row = ROWS_TOML.split("[[row]]").find(|text| text.contains("\"vllm-aggregated\"")).expect("a row");
    let lifecycle = row.replacen("vllm-aggregated", "edge", 1);
    let extra = format!("[[lifecycle]]\nkind = \"preemption-edge\"\n[lifecycle.row]{lifecycle}\n");
    let changed = testkit::edit_pointer(testkit::reports::SGLANG_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let scene = Scene::new(&StandIn::new(HARMLESS).with_report("sglang-aggregated", &changed), &extra);
    scene.check(scene.command(), &[1], &["**DIFFERS**", "forced"]);
    scene
}

#[test]
fn schemas_refuse_what_no_campaign_writes() {
    let scene = evidence();
    let mut seen: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (path, schema, documents) in files(&scene.out()) {
        for document in documents {
            // One line of each kind; the rest is as the first.
            let kind = document["kind"].as_str().filter(|_| schema == "journal");
            let name = kind.map_or(path.clone(), |kind| format!("{path} {kind}"));
            seen.entry(name).or_insert_with(|| vec![json!(schema), document]);
        }
    }
    assert!(seen.len() > 20, "{:?}", seen.keys());
    for (name, pair) in &seen {
        let schema = pair[0].as_str().expect("a name");
        for what in accepted(schema, &pair[1]) {
            println!("ACCEPTED {schema} {name}: {what}");
        }
    }
}

/// Definition files have keys that may be left out, and none that nobody knows.
#[test]
fn definition_files_are_as_their_schemas_say() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut checked = BTreeMap::new();
    for (folder, kind, schema) in [
        ("campaigns", "kvrp.campaign.v1", "campaign"),
        ("campaigns/plants", "kvrp.campaign.v1", "campaign"),
        ("campaigns/plants/exceptions", "kvrp.exception.v1", "exception"),
        ("seeds", "kvrp.seeds.v1", "seeds"),
    ] {
        for entry in fs::read_dir(testdata.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.display().to_string();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let document = documents(&name, &fs::read_to_string(&path).expect("a file")).remove(0);
            if document["schema"] != kind {
                continue;
            }
            assert_eq!(faults(schema, &document), Vec::<String>::new(), "{name}");
            let kept: Vec<String> = accepted(schema, &document)
                .into_iter()
                .filter(|what| !what.starts_with("missing key"))
                .collect();
            println!("ACCEPTED {schema} {name}: {kept:?}");
            *checked.entry(schema).or_insert(0) += 1;
        }
    }
    assert!(checked["campaign"] >= 10 && checked["exception"] >= 1 && checked["seeds"] >= 1, "{checked:?}");
}
