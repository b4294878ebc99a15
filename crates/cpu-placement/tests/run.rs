//! Starting real programs: how they end, what is known of them, and what is left of them.

use std::path::Path;
use std::time::{Duration, Instant};

use cpu_placement::{CancelToken, Finished, Outcome, Output, Run, SpawnError};

fn sh(script: &str) -> Run {
    Run::new("/bin/sh").args(["-c", script]).env("PATH", "/usr/bin:/bin")
}

fn wait(run: &Run) -> Finished {
    run.wait(&CancelToken::new()).unwrap()
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
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let run = Run::new("/usr/bin/env").env("ONLY", "this").stdout(Output::File(out.clone()));
    assert_eq!(wait(&run).outcome, Outcome::Exited(0));
    assert_eq!(std::fs::read_to_string(out).unwrap(), "ONLY=this\n");
}

#[test]
fn both_streams_may_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let run = sh("echo a; echo b >&2; echo c")
        .stdout(Output::File(out.clone()))
        .stderr(Output::File(out.clone()))
        .cwd(dir.path());
    assert_eq!(wait(&run).outcome, Outcome::Exited(0));
    assert_eq!(std::fs::read_to_string(out).unwrap(), "a\nb\nc\n");
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
    let finished = sh("sleep 100 & sleep 100").wait(&cancel).unwrap();
    canceller.join().unwrap();
    assert_eq!(finished.outcome, Outcome::Cancelled);
    assert_group_is_gone(finished.pid);
}

#[test]
fn what_could_not_be_started_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let not_executable = dir.path().join("plain");
    std::fs::write(&not_executable, "text").unwrap();
    let nowhere = dir.path().join("no/such/file");
    let cases = [
        (Run::new("/no/such/program"), "find the program /no/such/program"),
        (Run::new("sh"), "find the program sh"),
        (Run::new(&not_executable), "execute "),
        (Run::new("/bin/true").stdout(Output::File(nowhere)), "for the output of the program"),
        (Run::new("/bin/true").cwd("/no/such/dir"), "enter the working directory /no/such/dir"),
        (Run::new("/bin/true").cpus("60000".parse().unwrap()), "use CPUs 60000 of the set 60000: only "),
        (Run::new("/bin/true").cpus("".parse().unwrap()), "use an empty set of CPUs"),
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

#[test]
fn grandchildren_left_behind_are_killed_and_reported() {
    let finished = wait(&sh("sleep 100 & exit 0"));
    assert_eq!(finished.outcome, Outcome::Exited(0));
    assert_eq!(finished.violations.len(), 1, "{:?}", finished.violations);
    assert_group_is_gone(finished.pid);
}

#[test]
fn dropping_a_running_program_kills_it() {
    let running = sh("sleep 100 & sleep 100").start().unwrap();
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
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
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
