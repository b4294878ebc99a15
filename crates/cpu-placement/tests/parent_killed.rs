//! When the parent is killed, nothing of its children is left.

use std::path::PathBuf;
use std::time::Duration;

use cpu_placement::{CancelToken, Run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Not a test: the parent that is killed, this very binary.
#[test]
#[ignore = "a helper for the other test"]
fn helper_parent() {
    let note = PathBuf::from(std::env::var_os("NOTE").expect("set by the test"));
    let script = "sleep 1000 & (trap '' TERM HUP; sleep 1000) & sleep 1000";
    let running =
        Run::new("/bin/sh").args(["-c", script]).env("PATH", "/usr/bin:/bin").start().expect("it starts");
    std::thread::sleep(Duration::from_millis(200));
    std::fs::write(note.with_extension("part"), running.pid().to_string()).expect("writable");
    std::fs::rename(note.with_extension("part"), note).expect("writable");
    let _finished = running.wait(&CancelToken::new());
}

fn members(group: i32) -> usize {
    let in_group = |text: String| {
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let alive = fields.next()? != "Z";
        (alive && fields.nth(1)?.parse() == Ok(group)).then_some(())
    };
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    entries.filter_map(|entry| in_group(std::fs::read_to_string(entry.path().join("stat")).ok()?)).count()
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> Option<T> {
    (0..500).find_map(|_| {
        let found = what();
        if found.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        found
    })
}

#[test]
fn children_and_grandchildren_die_with_a_killed_parent() {
    let dir = tempfile::tempdir().expect("a directory");
    let note = dir.path().join("pid");
    let parent = Run::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_parent", "--ignored"])
        .env("NOTE", &note)
        .start()
        .expect("it starts");
    let read = || std::fs::read_to_string(&note).ok()?.parse::<i32>().ok();
    let group = wait_for(read).expect("the parent says whom it started");
    assert!(members(group) >= 3, "a shell and its sleeping children");
    kill(Pid::from_raw(i32::try_from(parent.pid()).expect("a pid")), Signal::SIGKILL).expect("it is ours");
    assert!(wait_for(|| (members(group) == 0).then_some(())).is_some(), "{} are left", members(group));
    let _finished = parent.wait(&CancelToken::new());
}
