//! The complete corpus, file by file, through the command.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};

fn command() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("replay-master"))
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/master-traces")
}

fn expected() -> Vec<Value> {
    let text = std::fs::read_to_string(corpus().join("expect.jsonl")).expect("expect.jsonl");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("a row"));
    // The two long ones are made and checked by the library's own test.
    rows.filter(|row: &Value| corpus().join(row["file"].as_str().expect("a name")).exists()).collect()
}

fn check(file: &str, expected: &Value, found: &Value) {
    for key in ["file", "valid", "dialect", "rule", "line"] {
        assert_eq!(
            found[key],
            if key == "file" { json!(file) } else { expected[key].clone() },
            "{file}: {found}"
        );
    }
    assert!(found.as_object().is_some_and(|row| row.contains_key("column") && row.contains_key("message")));
    if expected["valid"] == true {
        for key in ["events", "clients", "phases"] {
            assert_eq!(found[key], expected[key], "{file}: {found}");
        }
    }
}

#[test]
fn each_file_alone_and_all_together() {
    let expected = expected();
    assert_eq!(expected.len(), 190);
    for row in &expected {
        let file = row["file"].as_str().expect("a name");
        let mut command = command();
        command.current_dir(corpus()).args(["validate", "--message-format", "json", file]);
        let output = command.assert().code(if row["valid"] == true { 0 } else { 4 }).get_output().clone();
        check(file, row, &serde_json::from_slice(&output.stdout).expect("one object"));
        assert!(output.stderr.is_empty(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut command = command();
    command.current_dir(corpus()).args(["validate", "--message-format", "json"]);
    command.args(expected.iter().map(|row| row["file"].as_str().expect("a name")));
    let output = command.assert().code(4).get_output().stdout.clone();
    let lines: Vec<Value> = String::from_utf8(output)
        .expect("UTF-8")
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), expected.len());
    for (row, found) in expected.iter().zip(&lines) {
        check(row["file"].as_str().expect("a name"), row, found);
    }
}

#[test]
fn the_clock_is_checked_when_the_speed_is_known() {
    let file = "valid/v1_ts_2pow63.jsonl";
    for (speed, code, schedulable) in [("1", 4, false), ("4096", 0, true)] {
        let mut command = command();
        command.current_dir(corpus()).args(["validate", "--message-format", "json", "--speed", speed, file]);
        let output = command.assert().code(code).get_output().stdout.clone();
        let found: Value = serde_json::from_slice(&output).expect("one object");
        assert_eq!((&found["valid"], &found["schedulable"]), (&json!(true), &json!(schedulable)));
    }
}

#[test]
fn a_missing_file_is_another_error() {
    let output = command()
        .args(["validate", "--message-format", "json", "/no/such/file"])
        .assert()
        .code(4)
        .get_output()
        .stdout
        .clone();
    let found: Value = serde_json::from_slice(&output).expect("one object");
    assert_eq!((&found["valid"], &found["rule"]), (&json!(false), &Value::Null));
    assert!(found["message"].as_str().is_some_and(|message| message.contains("open the trace")), "{found}");
}

#[test]
fn stats_slice_and_convert() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let two_clients = corpus().join("valid/v1_two_clients_overlap.jsonl");
    command().arg("convert").arg(&two_clients).arg("-o").arg(at("v2.jsonl")).assert().code(0);
    command().arg("convert").arg(&two_clients).arg("-o").arg(at("v2.jsonl")).assert().code(4);
    command().arg("convert").arg(at("v2.jsonl")).arg("-o").arg(at("again.jsonl")).assert().code(4);
    command()
        .arg("slice")
        .arg(at("v2.jsonl"))
        .args(["--events", "0..1", "-o"])
        .arg(at("cut.jsonl"))
        .assert()
        .code(0);
    command().arg("validate").arg(at("v2.jsonl")).arg(at("cut.jsonl")).assert().code(0);
    command()
        .arg("slice")
        .arg(at("v2.jsonl"))
        .args(["--events", "5..5", "-o"])
        .arg(at("no.jsonl"))
        .assert()
        .code(2);
    let output = command()
        .args(["stats", "--message-format", "json"])
        .arg(at("v2.jsonl"))
        .assert()
        .code(0)
        .get_output()
        .stdout
        .clone();
    let stats: Value = serde_json::from_slice(&output).expect("one object");
    assert_eq!((&stats["dialect"], &stats["clients"]), (&json!("v2"), &json!(2)), "{stats}");
    assert!(!at("again.jsonl").exists() && !at("no.jsonl").exists());
}
