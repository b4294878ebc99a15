//! Descendants that left their group. Alone in its binary: adopting them changes the whole process.

use cpu_placement::{CancelToken, Orphans, Outcome, Run};

#[test]
fn a_descendant_in_its_own_session_is_ended() {
    let orphans = Orphans::adopt().expect("Linux");
    let run = Run::new("/bin/sh").args(["-c", "setsid sleep 1000 & exit 0"]).env("PATH", "/usr/bin:/bin");
    let finished = run.wait(&CancelToken::new()).expect("it starts");
    assert_eq!(finished.outcome, Outcome::Exited(0));
    // The new session may not have been there yet when the group was killed.
    let ended = orphans.end_all().expect("our own children");
    let left_in_group = !finished.violations.is_empty();
    assert!(ended.len() == 1 || left_in_group, "{ended:?} {finished:?}");
    let alive = ended.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(alive.count(), 0);
}
