use super::*;

const GOOD: &str = r#"schema = "kvrp.exception.v1"
name = "tie-break"
rows = ["vllm-aggregated"]
pointers = ["/per_request/*/decode_worker_idx"]
baseline_behavior = "ties go to the last worker"
why_incorrect = "the scheduler specifies the first"
candidate_behavior = "ties go to the first worker"
source_of_truth = "the scheduler's documentation, section 3"
why_not_entropy = "the order of workers is that of the configuration"
downstream_impact = "none"
disposition = "accepted"
reviewer = "maintainers"
date = "2026-01-31"

[regression_test]
proof = "running 1 test"
command = ["cargo", "test", "ties"]
"#;

fn read(text: &str) -> Result<Exception, ExceptionError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    Exception::read(file.path(), Sha256::of(text.as_bytes()))
}

fn check(from: &str, to: &str, says: &str) {
    assert!(GOOD.contains(from), "{from}");
    let error = read(&GOOD.replacen(from, to, 1)).expect_err("a fault");
    let text = crate::error::with_causes(&error);
    assert!(text.contains(says), "{from:?} -> {to:?}: {text}");
}

#[test]
fn a_complete_record_is_read() {
    let exception = read(GOOD).expect("a record");
    assert_eq!(exception.record.regression_test.time_limit_s, 1_800);
    assert!(exception.applies_to("vllm-aggregated") && !exception.applies_to("sglang-aggregated"));
    let of_all = read(&GOOD.replace("rows = [\"vllm-aggregated\"]", "rows = []")).expect("a record");
    assert!(of_all.applies_to("vllm-aggregated") && of_all.applies_to("sglang-aggregated"));
    let file = "file = [{ path = \"tests/ties.rs\", text = \"\" }]\ncommand = ";
    assert!(read(&GOOD.replace("command = ", file)).is_ok(), "a file below the top of the checkout");
}

#[test]
fn one_fault_in_a_record_one_message() {
    for (from, to, says) in [
        ("kvrp.exception.v1", "kvrp.exception.v9", "expected \"kvrp.exception.v1\""),
        ("name = \"tie-break\"", "name = \"../x\"", "name: expected letters"),
        ("name = \"tie-break\"", "name = \".x\"", "name: expected letters"),
        ("name = \"tie-break\"", "name = \"\"", "name: expected letters"),
        ("command = [", "time_limit_s = 0\ncommand = [", "regression_test.time_limit_s: must be above 0"),
        (
            "command = [",
            "prepare = [\"TO BE WRITTEN\"]\ncommand = [",
            "regression_test: is still to be written",
        ),
        ("\"ties\"]", "\"TO BE WRITTEN\"]", "regression_test: is still to be written"),
        ("running 1 test", "test TO BE WRITTEN ...", "regression_test: is still to be written"),
        (
            "command = ",
            "file = [{ path = \"\", text = \"\" }]\ncommand = ",
            "file[0].path: expected a path below",
        ),
        ("pointers = [\"/per_request/*/decode_worker_idx\"]", "pointers = []", "must name what differs"),
        ("\"/per_request/*/decode_worker_idx\"", "\"\"", "at least two steps"),
        ("\"/per_request/*/decode_worker_idx\"", "\"per_request\"", "pointers[0]"),
        ("source_of_truth = \"the", "source_of_truth = \" \" #", "source_of_truth: must not be empty"),
        ("\"none\"", "\"TO BE WRITTEN\"", "downstream_impact: is still to be written"),
        ("2026-01-31", "yesterday", "date: expected YYYY-MM-DD"),
        ("\"/per_request/*/decode_worker_idx\"", "\"/per_request\"", "at least two steps"),
        ("\"/per_request/*/decode_worker_idx\"", "\"/*/*\"", "at least two steps"),
        ("\"running 1 test\"", "\"\"", "regression_test.proof: must not be empty"),
        ("command = [\"cargo\", \"test\", \"ties\"]", "command = []", "must name a program"),
        (
            "command = ",
            "file = [{ path = \"../x\", text = \"\" }]\ncommand = ",
            "file[0].path: expected a path below",
        ),
        (
            "command = ",
            "file = [{ path = \"/x\", text = \"\" }]\ncommand = ",
            "file[0].path: expected a path below",
        ),
        (
            "command = ",
            "file = [{ path = \".git/x\", text = \"\" }]\ncommand = ",
            "file[0].path: expected a path",
        ),
        ("command = ", "file = [{ path = \"x\", txt = \"\" }]\ncommand = ", "did you mean `text`"),
        ("disposition", "dispositoin", "dispositoin"),
        ("reviewer = \"maintainers\"\n", "", "missing field `reviewer`"),
    ] {
        check(from, to, says);
    }
}

#[test]
fn a_record_that_was_changed_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), GOOD).expect("a file");
    let error = Exception::read(file.path(), Sha256::of(b"another")).expect_err("changed");
    assert!(matches!(error, ExceptionError::Changed { .. }), "{error}");
}

/// Only rows that differ between two stable revisions are drafted, each shape once.
#[test]
fn a_draft_names_each_shape_with_the_rows_that_have_it() {
    let text = include_str!("../../../../testdata/bundles/demo-report.json");
    let mut report: Report = serde_json::from_str(text).expect("a report");
    let difference = |shapes: &[&str], truncated: bool| {
        let group = |shape: &&str| {
            let group = serde_json::json!({ "shape": shape, "count": 2, "examples": [] });
            serde_json::from_value(group).expect("a group")
        };
        let (total, groups) = (4, shapes.iter().map(group).collect());
        let (between, kept) = ("baseline with candidate".into(), Vec::new());
        Some(DifferenceRecord { between, total, groups, truncated, first_divergence: None, kept })
    };
    assert!(report.rows.len() >= 4, "a row for each case");
    report.rows[0].equal = false;
    report.rows[0].difference = difference(&["/a/x", "/a/y"], false);
    report.rows[1].equal = false;
    report.rows[1].difference = difference(&["/a/y"], false);
    report.rows[2].equal = false;
    report.rows[2].stable.baseline = false;
    report.rows[2].difference = difference(&["/unstable/baseline"], false);
    report.rows[3].difference = difference(&["/equal/x"], false);
    let names: Vec<String> = report.rows.iter().map(|row| row.row.clone()).collect();
    let text = draft(&report).expect("a draft");
    let shape = |line: &str| text.lines().filter(|found| found.trim() == line).count();
    assert_eq!(shape(&format!("\"/a/x\", # {}: 2", names[0])), 1, "{text}");
    assert_eq!(shape(&format!("\"/a/y\", # {}: 2, {}: 2", names[0], names[1])), 1, "{text}");
    let cut = "# There are more shapes than the report lists.";
    assert!(!text.contains("/unstable") && !text.contains("/equal") && shape(cut) == 0, "{text}");
    report.rows[1].difference = difference(&["/a/y"], true);
    report.rows[2].stable = crate::record::Both { baseline: true, candidate: false };
    let text = draft(&report).expect("a draft");
    assert!(!text.contains("/unstable") && text.contains(cut), "{text}");
}

#[test]
fn a_draft_is_refused_until_somebody_has_written_it() {
    let text = include_str!("../../../../testdata/bundles/demo-report.json");
    let mut report: Report = serde_json::from_str(text).expect("a report");
    assert_eq!(draft(&report), None);
    let group = serde_json::json!({ "shape": "/per_request/*/a\"b", "count": 3, "examples": [] });
    report.rows[0].equal = false;
    report.rows[0].difference = Some(DifferenceRecord {
        between: "baseline with candidate".into(),
        total: 3,
        groups: vec![serde_json::from_value(group).expect("a group")],
        truncated: false,
        first_divergence: None,
        kept: Vec::new(),
    });
    let text = draft(&report).expect("a draft");
    let error = crate::error::with_causes(&read(&text).expect_err("a draft"));
    assert!(error.contains("baseline_behavior: is still to be written"), "{error}\n{text}");
    let written = text.replace(TO_BE_WRITTEN, "2026-01-31");
    let record =
        read(&written).unwrap_or_else(|error| panic!("{}\n{text}", crate::error::with_causes(&error))).record;
    assert_eq!(record.pointers, ["/per_request/*/a\"b"]);
    assert_eq!(record.rows, [report.rows[0].row.clone()]);
}

#[test]
fn a_pointer_into_a_collection_without_an_order_names_no_place_and_no_key() {
    use Clash::{Key, Place};
    for (pointer, at, by, expected) in [
        ("/r/0/x", "/r", "/id", Some(Place)),
        ("/*/0/x", "/r", "/id", Some(Place)),
        ("/r/*/x", "/r", "/id", None),
        ("/r/*", "/r", "/id", None),
        ("/r", "/r", "/id", None),
        ("/s/0/x", "/r", "/id", None),
        ("/r/*/id", "/r", "/id", Some(Key)),
        ("/r/*/*", "/r", "/id", Some(Key)),
        ("/r/*/id/x", "/r", "/id", None),
        ("/r/*/a", "/r", "/a/b", Some(Key)),
        ("/r/*/a/c", "/r", "/a/b", None),
        ("/r/1/list/2", "/r/*/list", "/id", Some(Place)),
    ] {
        assert_eq!(clash(&steps(pointer), &steps(at), &steps(by)), expected, "{pointer} {at} {by}");
    }
}
