//! The committed JSON schemas refuse what no campaign writes: every key of real evidence is taken away, given another type, or
//! put beside one that nobody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{ROWS_TOML, StandIn};

#[expect(dead_code, reason = "other tests edit bundles")]
mod scene;

use scene::schemas::{documents, faults, files};
use scene::{HARMLESS, Scene};

/// Objects whose keys are names of something.
const MAPS: [&str; 11] = [
    "above",
    "also",
    "attempts",
    "details",
    "energy_preferences",
    "expected",
    "governors",
    "mitigations",
    "other_fields",
    "pages",
    "telemetry",
];

/// Keys that are written only where there is something to say.
const OPTIONAL: [&str; 7] = ["also", "at_ns", "boot_id", "conditions", "finished", "node", "telemetry"];

/// A value that was changed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    AnotherType,
    UnknownKey,
    MissingKey,
}

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

fn last_step(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or_default()
}

/// The document with one change at a place; nothing where it cannot be made.
fn changed(document: &Value, place: &str, change: Change) -> Option<Value> {
    let mut all = document.clone();
    let value = all.pointer_mut(place).expect("a place");
    match change {
        Change::AnotherType if value.is_string() || value.is_null() => *value = json!([[]]),
        Change::AnotherType => *value = json!("text"),
        Change::UnknownKey => drop(value.as_object_mut()?.insert("unheard_of".to_owned(), json!(1))),
        Change::MissingKey => {
            let (parent, name) = place.rsplit_once('/')?;
            let members = all.pointer_mut(parent).and_then(Value::as_object_mut)?;
            members.remove(&name.replace("~1", "/").replace("~0", "~")).expect("a key");
        }
    }
    Some(all)
}

/// What a schema accepts although it was changed.
fn accepted(schema: &str, document: &Value) -> BTreeSet<(Change, String)> {
    let mut all = Vec::new();
    places(document, "", &mut all);
    all.retain(|place| !place.contains("/details/"));
    let changes = [Change::AnotherType, Change::UnknownKey, Change::MissingKey];
    let changes = all.iter().flat_map(|place| changes.map(|change| (change, place)));
    let is_accepted = |(change, place): &(Change, &String)| {
        changed(document, place, *change).is_some_and(|other| faults(schema, &other).is_empty())
    };
    changes.filter(is_accepted).map(|(change, place)| (change, place.clone())).collect()
}

/// Whether a schema is right to accept it.
fn may_be(change: Change, place: &str) -> bool {
    let (parent, name) = place.rsplit_once('/').unwrap_or_default();
    match change {
        Change::AnotherType => false,
        Change::UnknownKey => MAPS.contains(&last_step(place)),
        Change::MissingKey => MAPS.contains(&last_step(parent)) || OPTIONAL.contains(&name),
    }
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
    let mut seen: BTreeMap<String, (&str, Value)> = BTreeMap::new();
    let is_written = |schema: &str| schema != "campaign" && schema != "exception";
    for (path, schema, documents) in files(&scene.out()).into_iter().filter(|file| is_written(file.1)) {
        for document in documents {
            // One line of each kind and event; the rest is as the first.
            let kind = document["kind"].as_str().filter(|_| schema == "journal");
            let event = document["payload"]["event"].as_str().unwrap_or_default();
            let name = kind.map_or(path.clone(), |kind| format!("{path} {kind} {event}"));
            seen.entry(name).or_insert((schema, document));
        }
    }
    assert!(seen.len() > 20, "{:?}", seen.keys());
    for (name, (schema, document)) in &seen {
        let mut wrongly = accepted(schema, document);
        wrongly.retain(|(change, place)| !may_be(*change, place));
        assert!(wrongly.is_empty(), "{schema} accepts of {name}: {wrongly:#?}");
    }
}

/// Keys without which a definition file says nothing.
const NEEDED: [&str; 13] = [
    "baseline",
    "candidate",
    "date",
    "disposition",
    "measure",
    "name",
    "pointers",
    "regression_test",
    "repository",
    "reviewer",
    "row",
    "schema",
    "trace",
];

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
            let mut wrongly = accepted(schema, &document);
            let is_top = |place: &str| place.matches('/').count() == 1;
            let is_needed = |place: &str| is_top(place) && NEEDED.contains(&last_step(place));
            wrongly.retain(|(change, place)| match change {
                Change::MissingKey => is_needed(place),
                change => !may_be(*change, place),
            });
            assert!(wrongly.is_empty(), "{schema} accepts of {name}: {wrongly:#?}");
            *checked.entry(schema).or_insert(0) += 1;
        }
    }
    assert!(checked["campaign"] >= 10 && checked["exception"] >= 1 && checked["seeds"] >= 1, "{checked:?}");
}
