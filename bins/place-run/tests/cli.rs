//! The real command, on real programs and committed machines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use cpu_placement::{CancelToken, Outcome, Run, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn place_run(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin!("place-run"));
    command.args(arguments);
    command
}

fn machine(name: &str) -> String {
    format!("{}/../../testdata/topologies/{name}.xml", env!("CARGO_MANIFEST_DIR"))
}

/// Arguments, exit code, and what stdout and stderr must hold.
fn check(arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = place_run(arguments).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}\n{err}");
    assert!(out.contains(stdout), "{arguments:?}: {out}");
    assert!(err.contains(stderr), "{arguments:?}: {err}");
}

#[test]
fn plans_for_other_machines() {
    let server = machine("smt-2-socket");
    check(
        &["plan", "--topology", &server, "--set", "master=4", "--set", "replayer=1"],
        0,
        "master: CPUs 28-31, idle 60-63, memory of node 1\nreplayer: CPUs 27, idle 59, memory of node 1\n\
         kept for everything else: CPUs 0,32\n",
        "",
    );
    check(
        &["plan", "--topology", &server, "--cores", "17"],
        5,
        "",
        "failed to place the set \"set-1\" of 17",
    );
    check(&["plan", "--topology", &server, "--set", "x=0"], 2, "", "with no core");
    check(&["plan", "--topology", &server, "--set", "x"], 2, "", "not of the form NAME=CORES");
    check(&["plan", "--topology", &machine("refused-hwloc-1")], 4, "", "only format 2 is understood");
    check(&["plan", "--topology", "/no/such/file"], 4, "", "failed to read /no/such/file: No such file");
    check(&["--message-format", "json", "plan", "--topology", &server], 0, "\"cpus\":\"31\"", "");
}

#[test]
fn the_machine_is_drawn_with_the_plan_on_it() {
    let output = place_run(&["show", "--topology", &machine("hybrid-laptop"), "--cores", "2"])
        .output()
        .expect("it runs");
    let expected = "\
1 packages, 1 NUMA nodes, 14 cores, 20 CPUs online
allowed: 0-19
package 0
  node 0, 32768 MiB
    shared L3 cache, 24576 KiB
      [0h 1h]:IntelCore    [2 3]:IntelCore      [4 5]:IntelCore      [6 7]:IntelCore      [8A 9-]:IntelCore    \
[10A 11-]:IntelCore  [12]:IntelAtom       [13]:IntelAtom
      [14]:IntelAtom       [15]:IntelAtom       [16]:IntelAtom       [17]:IntelAtom       [18]:IntelAtom       \
[19]:IntelAtom
A set-1: CPUs 8,10, idle 9,11, memory of node 0, IntelCore
h kept for everything else: 0-1
- must stay idle, x not allowed
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let crowded = ["show", "--topology", &machine("container-cpuset-quota"), "--sets", "2"];
    check(&crowded, 5, "[4 12]    [5 13]    [6 14x]   [7x 15x]", "");
    check(&crowded, 5, "no plan: failed to keep 2000 thousandths of a CPU busy", "");
}

#[test]
fn the_exit_status_is_the_programs() {
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        check(&["run", "--give-housekeeping", "--", "/bin/sh", "-c", script], code, "", "");
    }
    check(&["run", "--give-housekeeping", "--", "sh", "-c", "echo out; echo err >&2"], 0, "out\n", "err\n");
    check(
        &["run", "--give-housekeeping", "--", "/no/such/program"],
        4,
        "",
        "failed to find the program /no/such/program",
    );
    check(&["run", "--cpus", "60000", "--", "/bin/true"], 5, "", "failed to use CPUs 60000 of the set 60000");
    check(&["run", "--cores", "60000", "--", "/bin/true"], 5, "", "failed to place 60000 physical cores");
    check(
        &["run", "--give-housekeeping", "--time-limit", "0.2", "--", "/bin/sleep", "100"],
        6,
        "",
        "past its time limit",
    );
    check(
        &["run", "--give-housekeeping", "--numa", "900", "--require-memory", "--", "/bin/true"],
        5,
        "",
        "bind memory",
    );
    check(
        &["run", "--give-housekeeping", "--numa", "900", "--strict", "--", "/bin/true"],
        5,
        "",
        "refused memory",
    );
    check(&["run", "--give-housekeeping", "--numa", "900", "--", "/bin/true"], 0, "", "refused memory");
    check(&["run", "--"], 2, "", "required");
}

/// Numbers and files that nobody means, on the command line: each has its own answer, and none is ours to fail at.
#[test]
fn arguments_without_sense_are_refused() {
    let huge = usize::MAX.to_string();
    let server = machine("smt-2-socket");
    let both = format!("a={huge}");
    check(&["plan", "--topology", &server, "--set", &both, "--set", &both], 5, "", "failed to place");
    check(&["plan", "--topology", &server, "--cores", &huge], 5, "", "failed to place");
    check(&["plan", "--topology", &server, "--sets", "4000000000"], 2, "", "4000000000 is not in 1..=65536");
    check(&["plan", "--topology", &server, "--sets", "65536"], 5, "", "failed to place 65536");
    check(&["plan", "--topology", &server, "--sets", "0"], 2, "", "0 is not in 1..=65536");
    check(&["plan", "--topology", "/proc/self/mem"], 4, "", "failed to read");
    check(
        &["plan", "--topology", "/bin/true"],
        4,
        "",
        "failed to read /bin/true: stream did not contain valid UTF-8",
    );
    let run = |flags: &[&str], code, stderr: &str| {
        let fixed = [&["run", "--give-housekeeping"], flags, &["--", "/bin/true"]].concat();
        check(&fixed, code, "", stderr);
    };
    run(&["--grace=1e19"], 0, "");
    run(&["--grace=1e300"], 2, "invalid value '1e300' for '--grace <SECONDS>'");
    run(&["--grace=nan"], 2, "invalid value");
    run(&["--time-limit=-1"], 2, "invalid value");
    run(&["--numa", ""], 2, "a set of no node");
    run(&["--numa", "0-99999"], 2, "above 65535");
    run(&["--record", "/no/such/folder/record"], 4, "failed to write /no/such/folder/record: No such file");
    check(&["run", "--cpus", "", "--", "/bin/true"], 2, "", "a set of no CPU");
    check(&["run", "--cpus", "3-1", "--", "/bin/true"], 2, "", "runs backwards");
    check(
        &["run", "--give-housekeeping", "--", "/etc/passwd"],
        4,
        "",
        "failed to execute /etc/passwd: Permission denied",
    );
    check(&["run", "--give-housekeeping", "--", "/tmp"], 4, "", "failed to execute /tmp: Permission denied");
    check(&["run", "--give-housekeeping", "--", ""], 4, "", "failed to find the program");
    for pid in ["0", "4294967295", "4194305"] {
        check(&["verify", "--pid", pid], 4, "", &format!("failed to look at process {pid}: there is none"));
    }
    check(&["verify", "--pid=-1"], 2, "", "invalid value");
}

/// The grace is longer than any clock, and the program ignores the polite signal until it is asked twice.
#[test]
fn a_grace_beyond_the_clock_does_not_break_the_end() {
    let script = "trap 'exit 0' TERM; sleep 100 & wait";
    check(
        &["run", "--give-housekeeping", "--grace=1e19", "--time-limit=0.3", "--", "/bin/sh", "-c", script],
        6,
        "",
        "past its time limit",
    );
}

#[test]
fn what_was_seen_is_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let (record, out) = (dir.path().join("record"), dir.path().join("out"));
    let (record_text, out_text) = (record.to_string_lossy(), out.to_string_lossy());
    let run = [
        "--message-format",
        "json",
        "run",
        "--give-housekeeping",
        "--record",
        &record_text,
        "--stdout",
        &out_text,
    ];
    let output = place_run(&run).args(["--", "/bin/echo", "hello"]).output().expect("it runs");
    assert_eq!(std::fs::read_to_string(out).expect("written"), "hello\n");
    let printed = String::from_utf8(output.stdout).expect("JSON");
    assert_eq!(std::fs::read_to_string(record).expect("written"), printed);
    let message: serde_json::Value = serde_json::from_str(&printed).expect("one line of JSON");
    assert_eq!(message["schema"], "kvrp.place-run.run/1");
    assert_eq!(message["finished"]["outcome"]["exited"], 0);
    assert!(message["hazards"].is_array());
    assert_eq!(message["finished"]["affinity"]["requested"], message["finished"]["affinity"]["at_end"]);
}

/// One line of JSON that names its schema, for every command.
#[test]
fn every_command_speaks_json() {
    let server = machine("smt-2-socket");
    let own = std::process::id().to_string();
    let commands: [(&str, &[&str]); 5] = [
        ("plan", &["--topology", &server]),
        ("show", &["--topology", &server]),
        ("run", &["--give-housekeeping", "--", "/bin/true"]),
        ("verify", &["--pid", &own]),
        ("host", &[]),
    ];
    for (command, rest) in commands {
        let output = place_run(&["--message-format", "json", command]).args(rest).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("JSON");
        assert_eq!(text.lines().count(), 1, "{command}");
        let message: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(message["schema"], format!("kvrp.place-run.{command}/1"));
    }
}

/// A full disk is not the input's fault, and a reader who has gone away is nobody's.
#[test]
fn results_that_cannot_be_written() {
    for command in ["host", "show", "plan"] {
        let server = machine("smt-2-socket");
        let args: &[&str] = if command == "host" { &[command] } else { &[command, "--topology", &server] };
        let run = Run::new(cargo_bin!("place-run")).args(args.iter().map(ToString::to_string));
        let full = run.stdout(cpu_placement::Output::File("/dev/full".into()));
        let finished = full.wait(&CancelToken::new()).expect("it starts");
        assert_eq!(finished.outcome, Outcome::Exited(5), "{command}");
    }
    check(
        &["run", "--give-housekeeping", "--record", "/dev/full", "--", "/bin/true"],
        5,
        "",
        "keep the record",
    );
}

/// What is said on stderr is not the result: without a reader the exit code stays the same.
#[test]
fn a_closed_stderr_changes_nothing() {
    let run = Run::new("/bin/sh")
        .args(["-c", "exec 2>/dev/full; exec \"$0\" plan --topology /no/such/file"])
        .arg(cargo_bin!("place-run"));
    let finished = run.wait(&CancelToken::new()).expect("it starts");
    assert_eq!(finished.outcome, Outcome::Exited(4));
}

#[test]
fn stdin_is_passed_on() {
    let mut command = place_run(&["run", "--give-housekeeping", "--", "/bin/cat"]);
    command.write_stdin("through\n").assert().code(0).stdout("through\n");
}

/// A note that a script writes once it has started everything.
fn wait_for(path: &Path) -> Vec<i32> {
    for _ in 0..1000 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with("end\n") {
            return text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program did not start");
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn start(script: &str, note: &Path) -> (Running, Vec<i32>) {
    let running = Run::new(cargo_bin!("place-run"))
        .args(["run", "--give-housekeeping", "--", "/bin/sh", "-c", script])
        .env("PATH", "/usr/bin:/bin")
        .env("NOTE", note)
        .start()
        .expect("it starts");
    let pids = wait_for(note);
    (running, pids)
}

fn note(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("note")
}

fn signal(running: &Running, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(running.pid()).expect("a pid")), signal).expect("ours");
}

#[test]
fn signals_are_forwarded() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "trap 'exit 42' USR1; echo $$ end > $NOTE; while :; do sleep 0.05; done";
    let (running, _) = start(script, &note(&dir));
    signal(&running, Signal::SIGUSR1);
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    assert_eq!(finished.outcome, Outcome::Exited(42));
    let dir = tempfile::tempdir().expect("a directory");
    let (running, pids) = start("echo $$ end > $NOTE; sleep 100", &note(&dir));
    signal(&running, Signal::SIGTERM);
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    assert_eq!(finished.outcome, Outcome::Exited(143));
    assert!(!is_alive(pids[0]));
}

/// Waits until a process is stopped, or waits in the kernel for a child that was stopped before its exec.
fn wait_until_stopped(pid: u32) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next())
    };
    for _ in 0..1000 {
        if matches!(state(), Some('T' | 'D')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("process {pid} is in state {:?}", state());
}

/// Ctrl-Z and `fg`: both stop, both go on, and the record says for how long.
#[test]
fn stopped_and_continued_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");
    let script = "echo $$ end > $NOTE; while [ ! -s $NOTE.go ]; do sleep 0.02; done; exit 7";
    let running = Run::new(cargo_bin!("place-run"))
        .args(["run", "--give-housekeeping", "--time-limit", "60", "--record"])
        .arg(&record)
        .args(["--", "/bin/sh", "-c", script])
        .env("PATH", "/usr/bin:/bin")
        .env("NOTE", note(&dir))
        .start()
        .expect("it starts");
    let program = u32::try_from(wait_for(&note(&dir))[0]).expect("a pid");
    signal(&running, Signal::SIGTSTP);
    wait_until_stopped(running.pid());
    wait_until_stopped(program);
    std::thread::sleep(Duration::from_millis(300));
    signal(&running, Signal::SIGCONT);
    std::fs::write(dir.path().join("note.go"), "go").expect("writable");
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    assert_eq!(finished.outcome, Outcome::Exited(7));
    let text = std::fs::read_to_string(record).expect("written");
    let message: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(message["finished"]["suspended_ns"].as_u64().is_some_and(|ns| ns >= 300_000_000), "{text}");
    let violations = message["finished"]["violations"].as_array().expect("a list");
    assert!(violations.iter().any(|violation| violation["kind"] == "suspended"), "{text}");
}

/// A shell with job control on a terminal: the program that was lent the terminal stops, the shell gets it back, and
/// `fg` gives it to the program again.
#[test]
fn the_terminal_comes_back_at_ctrl_z() {
    let script = Path::new("/usr/bin/script");
    if !script.exists() || !Path::new("/bin/bash").exists() {
        eprintln!("skipped: this needs bash and util-linux's script to make a terminal");
        return;
    }
    let program = "kill -TSTP $$; read x; echo resumed with $x; exit 5";
    let line = format!(
        "{} run --give-housekeeping -- sh -c '{program}'; echo stopped $?; read y; echo shell read $y; fg; echo ended $?",
        cargo_bin!("place-run").display()
    );
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("job.sh");
    std::fs::write(&file, line).expect("writable");
    let output = Command::new(script)
        .args(["-qec", &format!("/bin/bash -m {}", file.display()), "/dev/null"])
        .env("SHELL", "/bin/sh")
        .write_stdin("one\ntwo\n")
        .timeout(Duration::from_secs(60))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    for expected in ["stopped 147", "shell read one", "resumed with two", "ended 5"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "sleep 1000 & a=$!; (trap '' TERM HUP; sleep 1000) & echo $$ $a $! end > $NOTE; wait";
    let (running, pids) = start(script, &note(&dir));
    assert!(pids.len() == 3 && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    signal(&running, Signal::SIGKILL);
    let _finished = running.wait(&CancelToken::new()).expect("it ends");
    for _ in 0..500 {
        if !pids.iter().any(|pid| is_alive(*pid)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{pids:?} are left");
}

#[test]
fn a_descendant_that_left_the_group_is_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "setsid sh -c 'echo $$ end > $NOTE; sleep 1000' & while [ ! -s $NOTE ]; do sleep 0.01; done";
    let (running, pids) = start(script, &note(&dir));
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    assert_eq!(finished.outcome, Outcome::Exited(0));
    assert!(!is_alive(pids[0]));
}

#[test]
fn processes_are_verified() {
    let running = Run::new("/bin/sleep").args(["100"]).start().expect("it starts");
    let pid = running.pid().to_string();
    check(&["verify", "--pid", &pid], 0, "(sleep), 1 threads", "");
    check(&["verify", "--pid", &pid, "--cpus", "900"], 1, "not as expected", "");
    check(&["--message-format", "json", "verify", "--pid", &pid], 0, "\"violations\":[]", "");
    drop(running);
    check(&["verify", "--pid", &pid], 4, "", &format!("failed to look at process {pid}: there is none"));
}

#[test]
fn the_host_record_names_no_host() {
    let output = place_run(&["--message-format", "json", "host"]).output().expect("it runs");
    let message: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert!(message["host"]["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("Linux")));
    assert!(message["host"].get("host_name").is_none() && message["host"].get("boot_id").is_none());
    let output = place_run(&["--message-format", "json", "host", "--with-name"]).output().expect("it runs");
    let message: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert!(message["host"].get("boot_id").is_some());
}

/// On a terminal the program may read, Ctrl-C reaches it, and the terminal comes back.
#[test]
fn the_terminal_is_lent() {
    let script = Path::new("/usr/bin/script");
    if !script.exists() {
        eprintln!("skipped: this needs util-linux's script to make a terminal");
        return;
    }
    let line = format!(
        "{} run --give-housekeeping -- sh -c 'read x; echo got $x'; read y; echo then $y",
        cargo_bin!("place-run").display()
    );
    let output = Command::new(script)
        .args(["-qec", &line, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .write_stdin("hello\nagain\n")
        .timeout(Duration::from_secs(60))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("got hello") && text.contains("then again"), "{text}");
}
