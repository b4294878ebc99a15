//! One lock per node: measurements alone, builds together.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_placement::{CancelToken, LockError, NodeLock, Outcome, Run};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn builds_share_and_measurements_do_not() {
    let dir = directory();
    let never = CancelToken::new();
    let first = NodeLock::shared(dir.path(), &never).expect("free");
    let second = NodeLock::try_shared(dir.path()).expect("shared");
    let busy = NodeLock::try_exclusive(dir.path(), "measure").expect_err("builds hold it");
    let own = std::process::id();
    let LockError::Busy { holders, .. } = &busy else { panic!("{busy:?}") };
    assert!(holders.iter().any(|holder| holder.pid == own && !holder.exclusive), "{holders:?}");
    drop((first, second));
    let alone = NodeLock::try_exclusive(dir.path(), "measure the rows").expect("free again");
    let busy = NodeLock::try_shared(dir.path()).expect_err("a measurement holds it").to_string();
    assert!(busy.contains(&format!("process {own} (")) && busy.contains("measure the rows"), "{busy}");
    assert_eq!(NodeLock::holders(dir.path()).expect("readable").len(), 1);
    assert!(alone.path().starts_with(dir.path()));
    drop(alone);
    assert_eq!(NodeLock::holders(dir.path()).expect("readable"), []);
}

#[test]
fn a_waiting_measurement_keeps_new_builds_out() {
    let dir = directory();
    let build = NodeLock::try_shared(dir.path()).expect("free");
    let cancel = CancelToken::new();
    let (path, token): (PathBuf, _) = (dir.path().into(), cancel.clone());
    let waiter = std::thread::spawn(move || NodeLock::exclusive(&path, "measure", &token).map(drop));
    let refused = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        NodeLock::try_shared(dir.path()).is_err()
    });
    assert!(refused, "a new build must wait behind the measurement");
    cancel.cancel();
    let error = waiter.join().expect("no panic").expect_err("it was cancelled");
    assert!(matches!(&error, LockError::Cancelled { .. }), "{error}");
    drop(build);
    drop(NodeLock::try_shared(dir.path()).expect("nobody waits any more"));
}

#[test]
fn waiting_ends_when_the_holder_is_done() {
    let dir = directory();
    let build = NodeLock::try_shared(dir.path()).expect("free");
    let path = dir.path().to_owned();
    let waiter =
        std::thread::spawn(move || NodeLock::exclusive(&path, "measure", &CancelToken::new()).map(drop));
    std::thread::sleep(Duration::from_millis(120));
    drop(build);
    waiter.join().expect("no panic").expect("it was freed");
}

/// Not a test: a process that holds the lock until it is killed, this very binary.
#[test]
#[ignore = "a helper for the other tests"]
fn helper_holder() {
    let dir = PathBuf::from(std::env::var_os("DIR").expect("set by the test"));
    let _lock = NodeLock::exclusive(&dir, "hold", &CancelToken::new()).expect("free");
    std::thread::sleep(Duration::from_secs(100));
}

fn holder(dir: &Path, node: &str) -> Run {
    Run::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_holder", "--ignored"])
        .env("DIR", dir)
        .env("SLURMD_NODENAME", node)
}

/// A crash cannot leave the lock held, and a scheduler's node name is its key.
#[test]
fn a_killed_holder_holds_nothing() {
    let dir = directory();
    let running = holder(dir.path(), "node 7/x").start().expect("it starts");
    let file = dir.path().join("kv-replay-parity-node_7_x.lock");
    let started = Instant::now();
    while !file.exists() && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(file.exists());
    std::thread::sleep(Duration::from_millis(100));
    drop(NodeLock::try_exclusive(dir.path(), "measure").expect("another node's name"));
    running.signal(9).expect("it is ours");
    let finished = running.wait(&CancelToken::new()).expect("it ends");
    assert_eq!(finished.outcome, Outcome::Signalled(9));
    let again = holder(dir.path(), "node 7/x").time_limit(Duration::from_millis(300));
    assert_eq!(
        again.wait(&CancelToken::new()).expect("it starts").outcome,
        Outcome::TimedOut,
        "it got the lock"
    );
}

#[test]
fn a_directory_that_is_not_there() {
    let error = NodeLock::try_shared(Path::new("/no/such/directory")).expect_err("not there");
    assert!(error.to_string().starts_with("open the lock file /no/such/directory/"), "{error}");
    assert!(NodeLock::default_directory().is_dir());
}
