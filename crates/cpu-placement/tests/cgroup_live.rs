//! A real cgroup takes CPUs and processor time away. It changes cgroups and needs root, so it runs only when asked:
//! `cargo test -p cpu-placement --test cgroup_live -- --ignored`. Alone in its binary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_placement::{CancelToken, Outcome, Output, Run, Running, Topology, ViolationKind};

/// A cgroup of version 1 that is removed again.
struct Group {
    dirs: Vec<PathBuf>,
}

impl Group {
    fn new(settings: &[(&str, &str, &str)]) -> Option<Self> {
        let mut group = Self { dirs: Vec::new() };
        for (controller, file, value) in settings {
            let dir =
                PathBuf::from(format!("/sys/fs/cgroup/{controller}/placement-test-{}", std::process::id()));
            if !dir.is_dir() {
                std::fs::create_dir(&dir).ok()?;
                group.dirs.push(dir.clone());
            }
            std::fs::write(dir.join(file), value).ok()?;
        }
        Some(group)
    }

    fn tasks(&self) -> String {
        self.dirs.iter().map(|dir| dir.join("tasks").display().to_string()).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in &self.dirs {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Not a test: what runs inside the cgroup, this very binary.
#[test]
#[ignore = "a helper for the other test"]
fn helper_inside() {
    let Some(expected) = std::env::var_os("INSIDE") else { return };
    let topology = Topology::read().expect("Linux");
    assert_eq!(topology.allowed.to_string(), expected.to_string_lossy());
    assert_eq!(topology.quota_millicpus, Some(300));
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let run = Run::new("/bin/sh").args(["-c", busy]).cpus(topology.allowed.clone());
    let finished = run.wait(&CancelToken::new()).expect("it starts");
    let throttled = |kind: &ViolationKind| matches!(kind, ViolationKind::Throttled { .. });
    assert!(finished.violations.iter().any(|violation| throttled(&violation.kind)), "{finished:?}");
    let outside = Run::new("/bin/true").cpus("0".parse().expect("a set")).wait(&CancelToken::new());
    assert!(outside.is_err(), "{outside:?}");
}

fn start(group: &Group, cpu: u32, out: &Path) -> Running {
    let script = "for tasks in $TASKS; do echo $$ > $tasks || exit 9; done; exec \"$0\" \"$@\"";
    Run::new("/bin/sh")
        .args(["-c", script])
        .arg(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_inside", "--ignored", "--nocapture"])
        .env("TASKS", group.tasks())
        .env("INSIDE", cpu.to_string())
        .stdout(Output::File(out.into()))
        .stderr(Output::File(out.into()))
        .time_limit(Duration::from_secs(120))
        .start()
        .expect("it starts")
}

#[test]
#[ignore = "changes cgroups and needs root"]
fn a_cgroup_limits_cpus_and_time() {
    let cpu = Topology::read().expect("Linux").allowed.last().expect("there is one");
    let list = cpu.to_string();
    let settings = [
        ("cpuset", "cpuset.mems", "0"),
        ("cpuset", "cpuset.cpus", list.as_str()),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "30000"),
    ];
    let Some(group) = Group::new(&settings) else {
        eprintln!("skipped: no cgroup of version 1 can be made here");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let finished = start(&group, cpu, &out).wait(&CancelToken::new()).expect("it ends");
    let text = std::fs::read_to_string(&out).expect("written");
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}");
}
