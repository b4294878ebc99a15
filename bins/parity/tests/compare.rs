//! What differs between two campaigns, and what a campaign left behind.

use std::fs;

use parity_campaign::{CleanupRecord, Fate};
use testkit::{StandIn, edit_pointer, reports};

mod scene;

use scene::{HARMLESS, Scene, parity};

fn compare(left: &Scene, right: &Scene, format: &str) -> (Option<i32>, String) {
    let mut command = parity();
    command.args(["compare-evidence", "--message-format", format]).arg(left.out()).arg(right.out());
    let output = command.output().expect("the command runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), format!("{stdout}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The payload of the last clean-up.
fn cleanup(scene: &Scene) -> CleanupRecord {
    let journal = evidence::read_journal(&scene.out()).expect("a journal");
    let record = journal.records.into_iter().rev().find(|record| record.kind == "cleanup");
    record.expect("a clean-up").payload().expect("its payload")
}

#[test]
fn what_differs_between_two_campaigns_is_named() {
    let changed = edit_pointer(reports::VLLM_AGGREGATED, "/summary/max_itl_ms", "12.5");
    let one = Scene::new(&StandIn::new(HARMLESS), "");
    let other = Scene::new(
        &StandIn::new(HARMLESS).with_report("vllm-aggregated", &changed),
        "[placement]\ncores_per_process = 1\n[relationship]\nstated = \"another campaign\"",
    );
    one.check(one.command(), &[0, 3], &["semantic: **PASS**"]);
    other.check(other.command(), &[1], &["| vllm-aggregated | **DIFFERS** |"]);

    let (code, text) = compare(&one, &other, "human");
    assert_eq!(code, Some(1), "{text}");
    for expected in [
        "definition.candidate.commit: ",
        "definition.relationship.stated: absent | another campaign",
        "rows[vllm-aggregated].equal: true | false",
        "rows[vllm-aggregated].outcome.kind: match | differs",
        "rows[vllm-aggregated].digests.candidate[0].sha256: ",
        "measurements[vllm-aggregated].verdict: ",
        "semantic: PASS | FAIL",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(!text.contains("rows[sglang-aggregated].digests"), "{text}");
    let (code, text) = compare(&one, &other, "json");
    let found: serde_json::Value = serde_json::from_str(&text).expect("one event");
    assert_eq!(code, Some(1));
    let facts = found["differences"].as_array().expect("differences").iter();
    assert!(facts.map(|difference| &difference["fact"]).any(|fact| fact == "semantic"), "{found:#}");

    let (code, text) = compare(&one, &one, "human");
    assert!(code == Some(0) && text.starts_with("0 differ, "), "{code:?} {text}");
    fs::remove_file(one.out().join("report.json")).expect("a report");
    assert_eq!(compare(&one, &other, "human").0, Some(4));

    // The same two campaigns: what was made, what went, and what stayed and why.
    let made = cleanup(&other).made;
    let fate = |path: &str| made.iter().find(|one| one.path.contains(path)).map(|one| &one.fate);
    for removed in ["work/artifact", "work/build", "work/checkout", "work/input", "kvrp-stage-"] {
        assert_eq!(fate(removed), Some(&Fate::Removed), "{removed}: {made:#?}");
    }
    let kept = fate("reports/vllm-aggregated-candidate-1.json");
    assert!(matches!(kept, Some(Fate::Kept { why }) if why.contains("differs")), "{made:#?}");
    assert!(!cleanup(&one).made.iter().any(|one| one.path.starts_with("reports/")));
}

#[test]
fn scratch_that_is_kept_says_why() {
    let scene = Scene::new(&StandIn::new("on-report exit 3"), "");
    let mut command = scene.command();
    command.arg("--keep-work");
    scene.check(command, &[6], &["**TARGET FAILED**"]);
    let made = cleanup(&scene).made;
    let is_kept =
        |one: &parity_campaign::CleanedUp| matches!(&one.fate, Fate::Kept { why } if why.contains("asked"));
    let mut scratch = made.iter().filter(|one| one.path.starts_with("work/"));
    assert!(scratch.clone().count() > 3 && scratch.all(is_kept), "{made:#?}");
    scene.check_edit("report.json", "\"semantic\": \"FAIL\"", "\"semantic\": \"PASS\"", "semantic verdict");
}
