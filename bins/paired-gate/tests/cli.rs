//! The real command on small programs and small files.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn gate(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("paired-gate"));
    command
        .args(args)
        .timeout(std::time::Duration::from_secs(120))
        .output()
        .expect("the command can be started")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no status: {output:?}"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// A number between 0 and 1 that looks random.
fn noise(index: u32, salt: u32) -> f64 {
    let mix = |x: u32| (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    f64::from(mix(mix(index * 97 + salt + 1) ^ 0x9e37) >> 16) / 65_536.0
}

fn csv(pairs: u32, ratio: f64) -> String {
    let row = |pair: u32| {
        let first = if noise(pair, 7) < 0.5 { "baseline" } else { "candidate" };
        let (b, c) = (100.0 + noise(pair, 1), ratio * (100.0 + noise(pair, 2)));
        format!("{pair},{first},{b},{c}\n")
    };
    format!("pair,first,baseline,candidate\n{}", (0..pairs).map(row).collect::<String>())
}

/// A shell script that writes `value` as its metric, a little changed by the number in its file's name.
fn script(value: u32) -> String {
    format!(
        "sh -c 'n=1$(basename $0 | tr -dc 0-9); echo \"{{\\\"t_ms\\\": {value}.$(( (n * 7919) % 97 ))}}\" > $0' {{out}}"
    )
}

fn run_args<'a>(out: &'a str, baseline: &'a str, candidate: &'a str) -> Vec<&'a str> {
    let fixed = ["run", "--metric", "json:/t_ms", "--pairs", "12", "--warmups", "1", "--seed", "3"];
    let mut args = fixed.to_vec();
    args.extend([
        "--baseline",
        baseline,
        "--candidate",
        candidate,
        "--out",
        out,
        "--lock-dir",
        lock_dir(out),
    ]);
    args
}

/// The directory around `out`: tests do not wait for measurements of others.
fn lock_dir(out: &str) -> &str {
    text(Path::new(out).parent().expect("runs are in a temporary directory"))
}

#[test]
fn decide_says_pass_fail_and_inconclusive() {
    let dir = tempfile::tempdir().unwrap();
    let check = |ratio: f64, expected_code: i32, word: &str| {
        let file = dir.path().join("pairs.csv");
        std::fs::write(&file, csv(60, ratio)).unwrap();
        let human = gate(&["decide", text(&file)]);
        assert_eq!(code(&human), expected_code, "{}", stderr(&human));
        assert!(stdout(&human).starts_with(&word.to_uppercase()), "{}", stdout(&human));
        let json = gate(&["decide", text(&file), "--message-format", "json"]);
        let judged: Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert_eq!(judged["verdict"], word);
        assert_eq!(judged["order_statistics"]["lower"]["rank"], 24);
        assert_eq!(judged["order_statistics"]["upper"]["rank"], 37);
        assert!(judged["diagnostics"]["tests"].as_array().unwrap().len() == 5);
    };
    check(1.0, 0, "pass");
    check(1.05, 3, "inconclusive");
    check(1.1, 1, "fail");
}

#[test]
fn another_number_of_pairs_needs_its_own_definition() {
    let dir = tempfile::tempdir().unwrap();
    let (file, definition) = (dir.path().join("pairs.csv"), dir.path().join("gate.toml"));
    std::fs::write(&file, csv(40, 1.0)).unwrap();
    let refused = gate(&["decide", text(&file)]);
    assert_eq!(code(&refused), 4);
    assert!(stderr(&refused).contains("judge 40 pairs by a gate that declares 60"), "{}", stderr(&refused));
    std::fs::write(&definition, stdout(&gate(&["define", "--pairs", "40"]))).unwrap();
    let judged = gate(&["decide", text(&file), "--definition", text(&definition)]);
    assert_eq!(code(&judged), 0, "{}", stderr(&judged));
}

#[test]
fn hyperfine_files_are_pairs_only_when_the_definition_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, salt: u32| {
        let times: Vec<f64> = (0..60).map(|index| 1.0 + 0.01 * noise(index, salt)).collect();
        let path = dir.path().join(name);
        std::fs::write(&path, serde_json::json!({ "results": [{ "times": times }] }).to_string()).unwrap();
        path
    };
    let (baseline, candidate) = (write("a.json", 1), write("b.json", 2));
    let refused = gate(&["decide", text(&baseline), text(&candidate)]);
    assert_eq!(code(&refused), 3, "{}", stderr(&refused));
    assert!(stdout(&refused).contains("not known which arm ran first"), "{}", stdout(&refused));
    let definition = dir.path().join("gate.toml");
    std::fs::write(&definition, stdout(&gate(&["define", "--arm-order-unknown"]))).unwrap();
    let judged = gate(&["decide", text(&baseline), text(&candidate), "--definition", text(&definition)]);
    assert_eq!(code(&judged), 0, "{}", stdout(&judged));
}

#[test]
fn bad_input_and_bad_usage_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let check = |content: &str, message: &str| {
        let file = dir.path().join("bad");
        std::fs::write(&file, content).unwrap();
        let output = gate(&["decide", text(&file)]);
        assert_eq!(code(&output), 4, "{content:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    };
    check("", "find the column \"pair\"");
    check("pair,baseline,candidate\n0,1\n", "understand a line");
    check("{\"pair\":0}\n", "understand line 1");
    check("pair,baseline,candidate\n0,1,-1\n", "the candidate is -1");
    assert_eq!(code(&gate(&["decide", "/nonexistent"])), 4);
    assert_eq!(code(&gate(&["decide"])), 2);
    assert_eq!(code(&gate(&["run", "--baseline", "a", "--candidate", "'b", "--out", text(dir.path())])), 2);
    assert_eq!(code(&gate(&["define", "--pairs", "3"])), 2);
    assert_eq!(code(&gate(&["resume", text(dir.path())])), 4);
}

#[test]
fn a_run_keeps_definition_evidence_and_pairs_and_can_be_judged_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let (baseline, candidate) = (script(100), script(150));
    let output = gate(&run_args(text(&out), &baseline, &candidate));
    assert!([1, 3].contains(&code(&output)), "{}{}", stdout(&output), stderr(&output));
    assert!(evidence::verify(&out).unwrap().is_intact());
    let again = gate(&["decide", text(&out)]);
    assert_eq!((code(&again), stdout(&again)), (code(&output), stdout(&output)));
    let pairs = out.join("samples/pairs.csv");
    let definition = out.join("campaign.toml");
    let from_rows = gate(&["decide", text(&pairs), "--definition", text(&definition)]);
    assert_eq!(code(&from_rows), code(&output), "{}", stderr(&from_rows));
    let explained = gate(&["explain", text(&out)]);
    assert_eq!(code(&explained), 0);
    let kinds: Vec<String> =
        evidence::read_journal(&out).unwrap().records.into_iter().map(|record| record.kind).collect();
    let at = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
    assert!(at("paired-gate.definition") < at("paired-run"), "hashed before the first warm-up");
    let exists = gate(&run_args(text(&out), &baseline, &candidate));
    assert_eq!(code(&exists), 2, "a directory that exists is not written into");
    assert_eq!(code(&gate(&["resume", text(&out)])), 4, "a finished run is not extended");
}

#[test]
fn a_program_that_fails_fails_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let check = |candidate: &str, message: &str| {
        let out = dir.path().join(message.replace(' ', "-"));
        let output = gate(&run_args(text(&out), &script(100), candidate));
        assert_eq!(code(&output), 6, "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(evidence::verify(&out).unwrap().is_intact());
    };
    check("sh -c 'echo words >&2; exit 7' {out}", "exited with status 7");
    check("sh -c 'kill -9 $$' {out}", "signal 9");
    check("sh -c 'echo {} > $0' {out}", "its file has no /t_ms");
    check("true {out}", "the program wrote no file");
}

#[test]
fn a_killed_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let slow = |value: u32| script(value).replace("sh -c 'n", "sh -c 'sleep 0.05; n");
    let (baseline, candidate) = (slow(100), slow(101));
    let args = run_args(text(&out), &baseline, &candidate);
    for (signal, seconds) in [("KILL", "1.1"), ("INT", "0.9")] {
        let mut timeout = Command::new("timeout");
        timeout.args([
            "--signal",
            signal,
            seconds,
            text(Path::new(assert_cmd::cargo::cargo_bin!("paired-gate"))),
        ]);
        let resume = ["resume", text(&out), "--lock-dir", text(dir.path())];
        timeout.args(if out.exists() { &resume[..] } else { &args[..] });
        timeout.output().unwrap();
    }
    let output = gate(&["resume", text(&out), "--lock-dir", text(dir.path())]);
    assert!([0, 3].contains(&code(&output)), "{}{}", stdout(&output), stderr(&output));
    let rows = std::fs::read_to_string(out.join("samples/pairs.csv")).unwrap();
    let pairs: Vec<&str> = rows.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(pairs, (0..12).map(|pair| pair.to_string()).collect::<Vec<_>>());
    assert!(evidence::verify(&out).unwrap().is_intact());
}

#[test]
fn json_messages_are_one_event_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let (baseline, candidate) = (script(100), script(100));
    let mut args = run_args(text(&out), &baseline, &candidate);
    args.extend(["--message-format", "json"]);
    let output = gate(&args);
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "began");
    assert!(lines.last().unwrap()["verdict"].is_string(), "{}", stderr(&output));
    assert_eq!(lines.iter().filter(|line| line["event"] == "attempt_ended").count(), 26);
}

#[test]
fn schedules_and_calibrations_repeat() {
    let twice = |args: &[&str]| {
        let (one, other) = (gate(args), gate(args));
        assert_eq!((code(&one), stdout(&one)), (0, stdout(&other)));
        stdout(&one)
    };
    let schedule = twice(&["schedule", "--pairs", "4", "--warmups", "1", "--seed", "9"]);
    assert_eq!(schedule.lines().count(), 1 + 2 + 4);
    let table = twice(&["calibrate", "--campaigns", "2", "--message-format", "json"]);
    assert_eq!(table.lines().count(), paired_stats::World::all().len());
}
