//! The examples, as processes of their own.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::{cargo, masters, run};

/// An example beside this test's own binary. Cargo has put it there, unless it was told to build this test alone.
fn example(name: &str, argument: &str) -> Output {
    let own = std::env::current_exe().unwrap();
    let folder: PathBuf = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let program = folder.join(name);
    if !program.exists() {
        cargo(Path::new(env!("CARGO_MANIFEST_DIR")), &["build", "--offline", "--quiet", "--example", name]);
    }
    run(&program, [argument])
}

#[test]
fn the_life_of_an_object_on_each_real_master() {
    for version in masters::VERSIONS {
        let master = masters::start(version, &[]);
        let output = example("lifecycle", &master.address().to_string());
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{version}: {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for expected in [
            version,
            "is NEED_REMOUNT (2)",
            "is OK (1) after it registered",
            "cannot be read before the put ends",
            "can be read after the put ended",
            "is COMPLETE (3) at 0x10000000000 of fake-0:1",
            "it is not removed: OBJECT_HAS_LEASE (-706)",
            "it is removed by force, and cannot be read",
            "is unmounted",
        ] {
            assert!(stdout.contains(expected), "{version}: no {expected:?} in\n{stdout}");
        }
    }
}

#[test]
fn nobody_there_is_said() {
    let output = example("lifecycle", "127.0.0.1:1");
    assert_eq!(output.status.code(), Some(6));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("127.0.0.1:1 does not accept a connection within 5000 ms: "), "{stderr}");
}

#[test]
fn vectors_are_counted() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wire/vectors.jsonl");
    let output = example("vectors", recorded);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("676 of 676 messages agree\n"));
    assert_eq!(example("vectors", "/nowhere").status.code(), Some(4));
}

#[test]
fn the_first_line_that_does_not_agree_is_shown() {
    let folder = std::env::temp_dir().join(format!("master-wire-vectors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("flawed.jsonl");
    let recorded =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wire/vectors.jsonl"));
    let mut lines: Vec<String> = recorded.unwrap().lines().take(20).map(str::to_owned).collect();
    lines[6] = lines[6].replace("\"hex\":\"15", "\"hex\":\"16");
    lines[9] = "{".to_owned();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = example("vectors", file.to_str().unwrap());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stdout.starts_with("18 of 20 messages agree\n"), "{stdout}");
    assert!(stdout.contains("first that does not: line 7: magic 22, expected 21"), "{stdout}");
    std::fs::remove_dir_all(folder).unwrap();
}
