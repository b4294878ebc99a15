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
    assert_eq!(code(&exists), 4, "a directory that exists is not written into");
    assert_eq!(code(&gate(&["resume", text(&out)])), 4, "a finished run is not extended");
}

/// A run that was stopped after a few pairs.
fn stopped_run(dir: &Path) -> std::path::PathBuf {
    let out = dir.join("run");
    let slow = |value: u32| script(value).replace("sh -c 'n", "sh -c 'sleep 0.1; n");
    let (baseline, candidate) = (slow(100), slow(101));
    let mut timeout = Command::new("timeout");
    timeout.args(["--signal", "INT", "1.5", text(Path::new(assert_cmd::cargo::cargo_bin!("paired-gate")))]);
    timeout.args(run_args(text(&out), &baseline, &candidate)).output().expect("it can be started");
    out
}

#[test]
fn a_run_is_not_judged_before_its_end_nor_by_other_rules_than_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let out = stopped_run(dir.path());
    let early = gate(&["decide", text(&out)]);
    assert_eq!(code(&early), 4, "{}", stdout(&early));
    assert!(stderr(&early).contains("of 12 pairs; `resume` goes on"), "{}", stderr(&early));
    let resumed = gate(&["resume", text(&out), "--lock-dir", text(dir.path())]);
    assert!([0, 3].contains(&code(&resumed)), "{}{}", stdout(&resumed), stderr(&resumed));
    let lenient = dir.path().join("lenient.toml");
    std::fs::write(&lenient, stdout(&gate(&["define", "--pairs", "12", "--limit", "2"]))).unwrap();
    let other = gate(&["decide", text(&out), "--definition", text(&lenient), "--message-format", "json"]);
    let judged: Value = serde_json::from_str(&stdout(&other)).unwrap();
    assert!([0, 3].contains(&code(&other)) && judged["definition"] == "not_of_run", "{judged}");
    assert!(stderr(&other).contains("no verdict of that run"), "{}", stderr(&other));
    let own: Value =
        serde_json::from_str(&stdout(&gate(&["decide", text(&out), "--message-format", "json"]))).unwrap();
    assert_eq!(own["schema"], "kvrp.paired-gate.judgement/1");
    assert_eq!(own["definition"], "of_run");
}

/// The limit, the order or the evidence changed between two sittings.
#[test]
fn a_definition_that_was_changed_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = stopped_run(dir.path());
    let file = out.join("campaign.toml");
    let definition = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [("limit_ratio = 1.05", "limit_ratio = 2.05"), ("seed = 3", "seed = 4")] {
        assert!(definition.contains(from), "{definition}");
        std::fs::write(&file, definition.replacen(from, to, 1)).unwrap();
        for command in [&["resume", text(&out), "--lock-dir", text(dir.path())][..], &["decide", text(&out)]]
        {
            let refused = gate(command);
            assert_eq!(code(&refused), 4, "{}", stderr(&refused));
            assert!(stderr(&refused).contains("its evidence was altered"), "{}", stderr(&refused));
        }
    }
    std::fs::write(&file, &definition).unwrap();
    let journal = std::fs::read_to_string(out.join("journal.jsonl")).unwrap();
    std::fs::write(out.join("journal.jsonl"), journal.replacen("\"value\":1", "\"value\":2", 1)).unwrap();
    assert_eq!(code(&gate(&["resume", text(&out), "--lock-dir", text(dir.path())])), 4);
}

/// A bare name in the working directory, as the GitHub Action has it.
#[test]
fn a_run_may_stand_in_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("paired-gate"));
        command.args(args).current_dir(dir.path()).output().unwrap()
    };
    let args = ["run", "--pairs", "5", "--warmups", "0", "--baseline", "true", "--candidate", "true"];
    let run = here(&[&args[..], &["--out", "gate", "--lock-dir", "."]].concat());
    assert_eq!(code(&run), 3, "{}", stderr(&run));
    assert!(evidence::verify(dir.path().join("gate")).unwrap().is_intact());
    assert_eq!(stdout(&here(&["decide", "gate"])), stdout(&run));
}

/// Arguments that nobody means: each is answered at once, and none by a bug of ours.
#[test]
fn arguments_without_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |args: &[&str], expected: i32, message: &str| {
        let output = gate(args);
        assert_eq!(code(&output), expected, "{args:?}: {}{}", stdout(&output), stderr(&output));
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    };
    check(&["schedule", "--pairs", "4294967295"], 2, "is not in 1..=2000");
    check(&["schedule", "--warmups", "4294967295"], 2, "is not in 0..=1000");
    check(&["define", "--pairs", "4294967295"], 2, "judge 4294967295 pairs, more than 2000");
    check(&["define", "--limit", "nan"], 2, "use NaN as the limit");
    check(&["define", "--limit=-1"], 2, "use -1 as the limit");
    check(&["define", "--confidence", "1"], 2, "must lie strictly between 0 and 1");
    check(&["define", "--rows", "0"], 2, "over 0 rows");
    check(&["define", "--telemetry", "a", "--telemetry", "a"], 2, "test the telemetry \"a\" twice");
    check(&["calibrate", "--noise-percent", "nan"], 2, "not above 0 and at most 100");
    check(&["calibrate", "--campaigns", "0"], 2, "0 is not in 1..");
    check(&["decide", "/dev/zero"], 4, "it is larger than");
    check(&["decide", "/dev/null"], 4, "find the column");
    check(&["decide", "/proc/self/mem"], 4, "read /proc/self/mem");
    check(&["explain", "/dev/null"], 4, "EOF while parsing");
    check(&["explain", text(dir.path())], 4, "the directory is not one");
    let out = dir.path().join("run");
    let run = |more: &[&str], expected: i32, message: &str| {
        let fixed = ["run", "--out", text(&out), "--lock-dir", text(dir.path())];
        check(&[&fixed[..], more].concat(), expected, message);
    };
    run(&["--baseline", "true", "--candidate", "true", "--cpus", "3-1"], 2, "runs backwards");
    run(&["--baseline", "true", "--candidate", "true", "--cpus", ""], 2, "a set of no CPU");
    run(&["--baseline", "true", "--candidate", "true", "--env", "A=B"], 2, "copy the variable A=B");
    run(&["--baseline", "true", "--candidate", "true", "--metric", "json:/t"], 2, "does not name {out}");
    run(&["--baseline", "true", "--candidate", "true", "--durability", "lazy"], 2, "unknown variant `lazy`");
    run(&["--definition", "/dev/null", "--limit", "2"], 2, "cannot be used with");
    run(&["--definition", "/dev/null"], 4, "missing field");
    assert!(!out.exists(), "nothing was begun");
    let cpu_list = "0-65535";
    run(&["--baseline", "true", "--candidate", "true", "--cpus", cpu_list], 5, "only");
    let missing = dir.path().join("missing");
    let args = ["--baseline", "/no/such/program", "--candidate", "true", "--out", text(&missing)];
    check(
        &[&["run", "--lock-dir", text(dir.path())], &args[..]].concat(),
        4,
        "find the program /no/such/program",
    );
}

/// Ctrl-Z during a sample: it stops with us, is invalid, and the pair is taken again.
#[test]
fn a_sample_that_was_suspended_is_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let slow = "sleep 0.4";
    let args = ["run", "--pairs", "5", "--warmups", "0", "--baseline", slow, "--candidate", slow];
    let running = cpu_placement::Run::new(assert_cmd::cargo::cargo_bin!("paired-gate"))
        .args(args)
        .args(["--out", text(&out), "--lock-dir", text(dir.path())])
        .env("PATH", "/usr/bin:/bin")
        .start()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_300));
    running.signal(20).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    running.signal(18).unwrap();
    let finished = running.wait(&cpu_placement::CancelToken::new()).unwrap();
    assert_eq!(finished.outcome, cpu_placement::Outcome::Exited(3), "{finished:?}");
    let records = evidence::read_journal(&out).unwrap().records;
    let events = paired_run::events_of(&records, "paired-run").unwrap();
    let invalidated = events.iter().find_map(|event| match event {
        paired_run::Event::PairInvalidated { reasons, .. } => Some(reasons),
        _ => None,
    });
    let reasons = serde_json::to_string(&invalidated).unwrap();
    assert!(reasons.contains("\"suspended\""), "{reasons}");
    let rows = std::fs::read_to_string(out.join("samples/pairs.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 5);
}

#[test]
fn a_program_that_fails_fails_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let check = |candidate: &str, message: &str| {
        let out = dir
            .path()
            .join(message.replace(|c: char| !c.is_ascii_alphanumeric(), "-") + &candidate.len().to_string());
        let output = gate(&run_args(text(&out), &script(100), candidate));
        assert_eq!(code(&output), 6, "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(evidence::verify(&out).unwrap().is_intact());
        let again = gate(&["decide", text(&out)]);
        assert_eq!(code(&again), 6, "the evidence says the same again: {}", stderr(&again));
        assert!(stderr(&again).contains(message), "{}", stderr(&again));
    };
    check("sh -c 'echo words >&2; exit 7' {out}", "exited with status 7");
    check("sh -c 'kill -9 $$' {out}", "signal 9");
    check("sh -c 'echo {} > $0' {out}", "its file has no /t_ms");
    check("true {out}", "the program wrote no file");
    check("mkfifo {out}", "what the program wrote is not a regular file");
    check("ln -s /dev/zero {out}", "what the program wrote is not a regular file");
    check(r#"sh -c 'echo "{\"t_ms\":1,\"t_ms\":9}" > $0' {out}"#, "the key \"t_ms\" occurs twice");
}

#[test]
fn a_killed_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let slow = |value: u32| script(value).replace("sh -c 'n", "sh -c 'sleep 0.1; n");
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
