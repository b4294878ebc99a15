//! hwloc describes another machine, or none: `/sys` stands, and a note says so.
#![cfg(feature = "hwloc")]

use cpu_placement::{CancelToken, Outcome, Output, Run, Source, Topology};

/// Not a test: a process in whose environment hwloc is misled, this very binary.
#[test]
#[ignore = "a helper for the other test"]
fn helper_misled() {
    let topology = Topology::read().expect("Linux");
    assert_eq!(topology.source, Source::Sysfs, "{topology:?}");
    eprintln!("note: {}", topology.notes.join("; "));
}

fn check(variable: &str, value: &str, expected: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let run = Run::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_misled", "--ignored", "--nocapture"])
        .env(variable, value)
        .stdout(Output::File(out.clone()))
        .stderr(Output::File(out.clone()));
    let finished = run.wait(&CancelToken::new()).expect("it starts");
    let text = std::fs::read_to_string(out).expect("written");
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn sys_stands_when_hwloc_is_misled_or_refused() {
    let xml = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/topologies/smt-2-socket.xml");
    check("HWLOC_XMLFILE", xml, "an environment variable makes it describe another machine");
    check(
        "HWLOC_SYNTHETIC",
        "pack:2 core:2 pu:1",
        "an environment variable makes it describe another machine",
    );
    check("HWLOC_FSROOT", "/no/such/root", "it shows 0 packages where there are at least 1");
}
