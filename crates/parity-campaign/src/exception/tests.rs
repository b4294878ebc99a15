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
}

#[test]
fn one_fault_in_a_record_one_message() {
    for (from, to, says) in [
        ("kvrp.exception.v1", "kvrp.exception.v9", "expected \"kvrp.exception.v1\""),
        ("name = \"tie-break\"", "name = \"../x\"", "name: expected letters"),
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
