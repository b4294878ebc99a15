//! Forced lifecycles, with the real command on stand-in harnesses.

use std::fs;

use testkit::{ROWS_TOML, StandIn};

mod scene;

use scene::{HARMLESS, Scene, parity};

/// A lifecycle forced by the row of the matrix of that name, which the stand-in has a report of.
fn by_row(kind: &str, row: &str, edits: &[(&str, &str)]) -> String {
    let rows = ROWS_TOML.split("[[row]]");
    let found = rows.filter(|text| text.contains(&format!("name = \"{row}\""))).collect::<String>();
    let name = format!("name = \"{kind}-{row}\"");
    let mut text = found.replacen(&format!("name = \"{row}\""), &name, 1);
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    format!("[[lifecycle]]\nkind = \"{kind}\"\n[lifecycle.row]{text}\n")
}

fn by_test(name: &str, command: &str) -> String {
    format!(
        "[[lifecycle]]\nkind = \"scaling\"\n[lifecycle.test]\nname = \"{name}\"\nproof = \"it scaled\"\n\
         prepare = [\"true\"]\ncommand = [\"sh\", \"-c\", \"{command}\"]\n"
    )
}

/// Plays it with an honest candidate.
fn play(extra: &str, codes: &[i32], says: &[&str]) -> Scene {
    let scene = Scene::new(&StandIn::new(HARMLESS), extra);
    scene.check(scene.command(), codes, says);
    scene
}

#[test]
fn lifecycles_are_forced_and_what_nothing_shows_is_named() {
    let extra = [
        by_row("preemption-edge", "vllm-aggregated", &[]),
        by_row("sglang-handoff", "sglang-disaggregated", &[]),
        by_test("scales", "echo it scaled"),
    ];
    let scene = play(
        &extra.concat(),
        &[0, 3],
        &[
            "semantic: **PASS**",
            "| preemption-edge-vllm-aggregated | preemption-edge | forced |",
            "| sglang-handoff-sglang-disaggregated | sglang-handoff | forced |",
            "| scales | scaling | forced | test passed | test passed |",
            "- router queueing with an explicit threshold",
        ],
    );
    let report = fs::read_to_string(scene.out().join("report.md")).expect("a report");
    for covered in ["a forced preemption edge", "scale to zero", "the handoff order"] {
        assert!(!report.contains(covered), "{covered} is called not covered\n{report}");
    }
    assert!(scene.out().join("logs/lifecycle-scales-b.test.stdout").exists());
    parity().arg("verify").arg(scene.out()).assert().code(0);
    scene.check_edit(
        "report.json",
        "\"kind\": \"forced\"",
        "\"kind\": \"failed\", \"against\": []",
        "outcome",
    );
    scene.check_edit("report.json", "\"kind\": \"scaling\"", "\"kind\": \"preemption-edge\"", "kind");
    scene.check_edit("report.json", "echo it scaled", "echo it did", "arguments");
    scene.check_edit("report.json", "\"name\": \"scales\"", "\"name\": \"other\"", "lifecycles");
}

#[test]
fn a_lifecycle_that_was_not_forced_fails_the_campaign() {
    let band = ("pressure = { min = 1, max = 3 }", "pressure = { min = 3, max = 3 }");
    let scene = play(
        &by_row("preemption-edge", "vllm-aggregated", &[band]),
        &[1],
        &[
            "semantic: **FAIL**",
            "| preemption-edge | **FAILED** |",
            "baseline: q2.pressure_band",
            "| vllm-aggregated | match |",
        ],
    );
    let kept = "reports/lifecycle-preemption-edge-vllm-aggregated-baseline.json";
    assert!(scene.out().join(kept).exists(), "the report that does not show it is not kept");
    scene.check_edit(kept, "\"completed\"", "\"failed\"", "its kept report shows something else");
    scene.check_edit("report.json", "\"semantic\": \"FAIL\"", "\"semantic\": \"PASS\"", "semantic verdict");
}

#[test]
fn a_test_must_pass_in_both_checkouts_and_must_have_run() {
    let cases = [
        ("fails", "echo it scaled; false", "its test: failed"),
        ("is-silent", "true", "its test: not run: its output does not contain"),
        (
            "runs-nothing",
            "echo it scaled; echo test result: ok. 0 passed",
            "its test: not run: its test runner ran no test",
        ),
        // In the tree of the candidate only.
        ("fails-once", "echo it scaled; grep -q stderr benches/script.txt", "its test: failed"),
    ];
    let extra: String = cases.iter().map(|(name, command, _)| by_test(name, command)).collect();
    let against = cases.map(|(name, _, says)| format!("{name}: baseline: {says}"));
    let says: Vec<&str> = against.iter().map(String::as_str).chain(["semantic: **FAIL**"]).collect();
    let scene = play(&extra, &[1], &says);
    let report = fs::read_to_string(scene.out().join("report.md")).expect("a report");
    assert!(!report.contains("fails-once: candidate"), "{report}");
}

#[test]
fn a_lifecycle_of_one_revision_says_so() {
    let one = ("[lifecycle.row]", "revision = \"candidate\"\nreason = \"the other cannot\"\n[lifecycle.row]");
    let text = by_row("preemption-edge", "vllm-aggregated", &[]);
    play(
        &text.replacen(one.0, one.1, 1),
        &[0, 3],
        &[
            "not forced here",
            "a forced preemption edge apart from the rows on the baseline: the other cannot",
        ],
    );
}

#[test]
fn a_harness_that_fails_in_a_lifecycle_only_fails_it() {
    // Eight correctness processes a revision come first: two of each row.
    let folder = tempfile::tempdir().expect("a folder");
    let counter = folder.path().join("count");
    let script = format!("counter {}\nnth 9 exit 3", counter.display());
    let scene = Scene::new(&StandIn::new(&script), &by_row("preemption-edge", "vllm-aggregated", &[]));
    scene.check(
        scene.command(),
        &[1],
        &["semantic: **FAIL**", "candidate: the harness exited with status 3"],
    );
}
