//! A thousand starts leave no descriptor, child or memory behind. Alone in its binary: it counts what the whole
//! process holds.

use std::os::unix::fs::PermissionsExt;

use cpu_placement::{CancelToken, CpuSet, Outcome, Run, Topology};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

fn children() -> usize {
    let own = std::process::id().to_string();
    let ours = |text: String| {
        let parent = text[text.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.to_owned();
        (parent == own).then_some(())
    };
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    entries.filter_map(|entry| ours(std::fs::read_to_string(entry.path().join("stat")).ok()?)).count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("always there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn nothing_is_left_behind() {
    let last: CpuSet = Topology::read().expect("Linux").allowed.last().into_iter().collect();
    let run = Run::new("/bin/true").cpus(last);
    let start = |count| {
        for _ in 0..count {
            let finished = run.wait(&CancelToken::new()).expect("it starts");
            assert_eq!(finished.outcome, Outcome::Exited(0));
        }
    };
    start(50);
    let before = (descriptors(), children());
    let memory_before = resident_kib();
    start(1000);
    assert_eq!((descriptors(), children()), before);
    let grown = resident_kib().saturating_sub(memory_before);
    assert!(grown < 512, "{grown} KiB more after 1,000 starts");
    let missing = Run::new("/no/such/program");
    let dir = tempfile::tempdir().expect("a directory");
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "\x7fELF").expect("writable");
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let no_format = Run::new(&broken);
    let before = (descriptors(), children());
    for _ in 0..200 {
        missing.wait(&CancelToken::new()).expect_err("it is missing");
        no_format.wait(&CancelToken::new()).expect_err("it is no program");
    }
    assert_eq!((descriptors(), children()), before, "failed starts leave nothing either");
}
