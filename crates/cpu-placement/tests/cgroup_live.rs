//! A real cgroup takes CPUs and processor time away. It changes cgroups and needs root, so it runs only when asked:
//! `cargo test -p cpu-placement --test cgroup_live -- --ignored`. Alone in its binary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_placement::{CancelToken, Outcome, Output, Run, Running, Topology, ViolationKind};

/// A cgroup that is removed again.
struct Group {
    dirs: Vec<PathBuf>,
    /// The file a process writes its number to.
    join: &'static str,
    /// Controllers that were handed down for it: file and what takes them back.
    handed_down: Option<(PathBuf, &'static str)>,
}

const NAME: &str = "placement-test";
const PERIOD_US: &str = "100000";
const QUOTA_US: &str = "30000";

impl Group {
    /// One directory per controller.
    fn version_1(cpu: &str) -> Option<Self> {
        let settings = [
            ("cpuset", "cpuset.mems", "0"),
            ("cpuset", "cpuset.cpus", cpu),
            ("cpu", "cpu.cfs_period_us", PERIOD_US),
            ("cpu", "cpu.cfs_quota_us", QUOTA_US),
        ];
        let mut group = Self { dirs: Vec::new(), join: "tasks", handed_down: None };
        for (controller, file, value) in settings {
            group.dir(PathBuf::from(format!("/sys/fs/cgroup/{controller}/{NAME}-{}", std::process::id())))?;
            std::fs::write(group.dirs.last()?.join(file), value).ok()?;
        }
        Some(group)
    }

    /// One directory below a root that hands both controllers down, where this kernel has them in version 2.
    fn version_2(cpu: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
        let root = PathBuf::from(mount);
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        let has = |name| controllers.split_ascii_whitespace().any(|controller| controller == name);
        if !has("cpu") || !has("cpuset") {
            return None;
        }
        let mut group = Self { dirs: Vec::new(), join: "cgroup.procs", handed_down: None };
        let down = root.join("cgroup.subtree_control");
        let before = std::fs::read_to_string(&down).ok()?;
        if !(before.contains("cpuset") && before.replace("cpuset", "").contains("cpu")) {
            std::fs::write(&down, "+cpu +cpuset").ok()?;
            group.handed_down = Some((down, "-cpu -cpuset"));
        }
        group.dir(root.join(format!("{NAME}-{}", std::process::id())))?;
        let quota = format!("{QUOTA_US} {PERIOD_US}");
        for (file, value) in [("cpuset.cpus", cpu), ("cpu.max", quota.as_str())] {
            std::fs::write(group.dirs[0].join(file), value).ok()?;
        }
        Some(group)
    }

    fn dir(&mut self, dir: PathBuf) -> Option<()> {
        if !dir.is_dir() {
            std::fs::create_dir(&dir).ok()?;
            self.dirs.push(dir);
        }
        Some(())
    }

    fn tasks(&self) -> String {
        let files = self.dirs.iter().map(|dir| dir.join(self.join).display().to_string());
        files.collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in &self.dirs {
            let _ = std::fs::remove_dir(dir);
        }
        if let Some((file, back)) = &self.handed_down {
            let _ = std::fs::write(file, back);
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
    let Some(other) = topology.online.difference(&topology.allowed).first() else { return };
    let outside = Run::new("/bin/true").cpus([other].into_iter().collect()).wait(&CancelToken::new());
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
    for (version, group) in [("1", Group::version_1(&list)), ("2", Group::version_2(&list))] {
        let Some(group) = group else {
            eprintln!("skipped: no cgroup of version {version} with cpu and cpuset can be made here");
            continue;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().join("out");
        let finished = start(&group, cpu, &out).wait(&CancelToken::new()).expect("it ends");
        let text = std::fs::read_to_string(&out).expect("written");
        assert_eq!(finished.outcome, Outcome::Exited(0), "version {version}: {text}");
        eprintln!("version {version}: seen and obeyed");
    }
}
