//! Starting real programs: how they end, what is known of them, and what is left of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cpu_placement::{Binding, CancelToken, Finished, Outcome, Output, Run, SpawnError, ViolationKind};

fn sh(script: &str) -> Run {
    Run::new("/bin/sh").args(["-c", script]).env("PATH", "/usr/bin:/bin")
}

fn wait(run: &Run) -> Finished {
    run.wait(&CancelToken::new()).expect("works here")
}

#[test]
fn outcomes() {
    let cases = [
        ("exit 0", Outcome::Exited(0)),
        ("exit 7", Outcome::Exited(7)),
        ("kill -9 $$", Outcome::Signalled(9)),
        ("kill -TERM $$", Outcome::Signalled(15)),
    ];
    for (script, expected) in cases {
        assert_eq!(wait(&sh(script)).outcome, expected, "{script}");
    }
}

#[test]
fn the_environment_is_exactly_what_was_given() {
    let dir = tempfile::tempdir().expect("works here");
    let out = dir.path().join("out");
    let run = Run::new("/usr/bin/env").env("ONLY", "this").stdout(Output::File(out.clone()));
    assert_eq!(wait(&run).outcome, Outcome::Exited(0));
    assert_eq!(std::fs::read_to_string(out).expect("works here"), "ONLY=this\n");
}

#[test]
fn both_streams_may_share_a_file() {
    let dir = tempfile::tempdir().expect("works here");
    let out = dir.path().join("out");
    let run = sh("echo a; echo b >&2; echo c")
        .stdout(Output::File(out.clone()))
        .stderr(Output::File(out.clone()))
        .cwd(dir.path());
    assert_eq!(wait(&run).outcome, Outcome::Exited(0));
    assert_eq!(std::fs::read_to_string(out).expect("works here"), "a\nb\nc\n");
}

#[test]
fn a_time_limit_ends_the_whole_group() {
    let started = Instant::now();
    let run = sh("sleep 100 & sleep 100").time_limit(Duration::from_millis(200));
    let finished = wait(&run);
    assert_eq!(finished.outcome, Outcome::TimedOut);
    assert!(!finished.killed_after_grace);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_group_is_gone(finished.pid);
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_after_the_grace() {
    let run = sh("trap '' TERM; while :; do sleep 1; done")
        .time_limit(Duration::from_millis(200))
        .grace(Duration::from_millis(300));
    let finished = wait(&run);
    assert_eq!(finished.outcome, Outcome::TimedOut);
    assert!(finished.killed_after_grace);
    assert_group_is_gone(finished.pid);
}

#[test]
fn cancelling_ends_the_whole_group() {
    let cancel = CancelToken::new();
    let remote = cancel.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        remote.cancel();
    });
    let finished = sh("sleep 100 & sleep 100").wait(&cancel).expect("works here");
    canceller.join().expect("works here");
    assert_eq!(finished.outcome, Outcome::Cancelled);
    assert_group_is_gone(finished.pid);
}

#[test]
fn what_could_not_be_started_says_why() {
    let dir = tempfile::tempdir().expect("works here");
    let not_executable = dir.path().join("plain");
    std::fs::write(&not_executable, "text").expect("works here");
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "exit 0").expect("works here");
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).expect("works here");
    let nowhere = dir.path().join("no/such/file");
    let cases = [
        (Run::new("/no/such/program"), "find the program /no/such/program"),
        (Run::new("sh"), "find the program sh"),
        (Run::new(&not_executable), "execute "),
        (Run::new(&broken), "execute "),
        (Run::new("/bin/true").arg("a\0b"), "pass a zero byte to /bin/true"),
        (Run::new("/bin/true").stdout(Output::File(nowhere)), "for the output of the program"),
        (Run::new("/bin/true").cwd("/no/such/dir"), "enter the working directory /no/such/dir"),
        (
            Run::new("/bin/true").cpus("60000".parse().expect("works here")),
            "use CPUs 60000 of the set 60000: only ",
        ),
        (Run::new("/bin/true").cpus("".parse().expect("works here")), "use an empty set of CPUs"),
    ];
    for (run, expected) in cases {
        let error = run.wait(&CancelToken::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_cancelled_token_starts_nothing() {
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(matches!(sh("exit 0").wait(&cancel), Err(SpawnError::Cancelled { .. })));
}

/// The plan was right, and nothing ever applied it.
#[test]
fn a_binding_that_was_never_applied_fails() {
    let inherited = wait(&sh("exit 0")).affinity.before_exec;
    if inherited.len() < 2 {
        eprintln!("skipped: this needs two CPUs");
        return;
    }
    let last = inherited.last().into_iter().collect();
    let finished =
        wait(&sh("i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done").cpus(last).binding(Binding::Expect));
    assert_eq!(finished.outcome, Outcome::Exited(0));
    let error = finished.check_placement().expect_err("it was never bound");
    assert!(error.to_string().contains(&format!("may run on CPUs {inherited}, not")), "{error}");
}

#[test]
fn flags_are_forwarded_as_signals() {
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let started = Instant::now();
    let finished = wait(&sh("sleep 100").forward(15, flag.clone()).time_limit(Duration::from_secs(60)));
    assert_eq!(finished.outcome, Outcome::Signalled(15));
    assert!(!flag.load(std::sync::atomic::Ordering::SeqCst) && started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_finished_process_survives_its_json() {
    let finished = wait(&sh("exit 0"));
    let text = serde_json::to_string(&finished).expect("serializable");
    assert_eq!(serde_json::from_str::<Finished>(&text).expect("the same"), finished);
}

#[test]
fn grandchildren_left_behind_are_killed_and_reported() {
    let finished = wait(&sh("sleep 100 & exit 0"));
    assert_eq!(finished.outcome, Outcome::Exited(0));
    assert_eq!(finished.violations.len(), 1, "{:?}", finished.violations);
    assert_group_is_gone(finished.pid);
}

#[test]
fn dropping_a_running_program_kills_it() {
    let running = sh("sleep 100 & sleep 100").start().expect("works here");
    let pid = running.pid();
    drop(running);
    assert_group_is_gone(pid);
}

#[test]
fn usage_is_measured() {
    let finished = wait(&sh("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"));
    assert!(finished.user_ns > 1_000_000, "{finished:?}");
    assert!(finished.wall_ns >= finished.user_ns / 2, "{finished:?}");
    assert!(finished.minor_faults > 0 && finished.max_rss_bytes > 100_000, "{finished:?}");
}

/// No live process of the group is left. A killed process needs a moment to go.
fn assert_group_is_gone(group: u32) {
    let member = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
        (fields[2] == group.to_string() && fields[0] != "Z").then_some(())
    };
    let alive = || {
        let entries = std::fs::read_dir("/proc").expect("works here").flatten();
        entries.filter(|entry| member(&entry.path()).is_some()).count()
    };
    for _ in 0..100 {
        if alive() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} processes of group {group} are left", alive());
}

#[test]
fn a_program_found_stopped_is_a_violation() {
    let finished = wait(&sh("(sleep 0.6; kill -CONT $$) & kill -STOP $$; wait; exit 0"));
    assert_eq!(finished.outcome, Outcome::Exited(0));
    let stopped = ViolationKind::Stopped { tid: finished.pid };
    assert!(finished.violations.iter().any(|violation| violation.kind == stopped), "{finished:?}");
}
