//! A writer killed at a random moment leaves a bundle that can be read, continued, sealed and verified, and loses
//! nothing that it had been told is on the disk.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use evidence::{Bundle, OpenError, read_journal, verify};

const DIR: &str = "EVIDENCE_KILLED_DIR";

/// The process that gets killed: this same test binary, asked for this one test.
#[test]
#[ignore = "started by the test below, which kills it"]
fn writer() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let bundle = if dir.exists() { Bundle::open(&dir) } else { Ok(Bundle::create(&dir).unwrap()) };
    let bundle = match bundle {
        Ok(bundle) => bundle,
        // Killed between making the directory and its journal: nothing was recorded, and nothing promised.
        Err(OpenError::NotABundle) => {
            std::fs::remove_dir_all(&dir).unwrap();
            Bundle::create(&dir).unwrap()
        }
        Err(error) => panic!("{error}"),
    };
    let large = "x".repeat(20_000);
    for round in 0.. {
        let name = format!("samples/{}-{round}", std::process::id());
        let entry = bundle.append("round", &serde_json::json!({ "round": round, "large": large })).unwrap();
        promise(&format!("record {} {}", entry.seq, entry.digest));
        let entry = bundle.append_deferred("deferred", &serde_json::json!({ "round": round })).unwrap();
        promise(&format!("record {} {}", entry.seq, entry.digest));
        let file = bundle.write_file(&name, &large.as_bytes()[..round % 1000]).unwrap();
        promise(&format!("file {} {}", file.path, file.sha256));
        if round % 3 == 0 {
            bundle.remove_file(&name, "every third").unwrap();
            promise(&format!("gone {name} -"));
        }
    }
}

fn promise(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "promise {line}").and_then(|()| out.flush()).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a bare child that this test kills itself")]
fn start_writer(dir: &Path) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["writer", "--exact", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Everything the killed writers were told is on the disk.
#[derive(Default)]
struct Promised {
    records: BTreeMap<u64, String>,
    files: BTreeMap<String, String>,
}

impl Promised {
    fn hear(&mut self, line: &str) {
        // The harness prints its own words before the first promise, on the same line.
        let Some((_, promise)) = line.split_once("promise ") else { return };
        let words: Vec<&str> = promise.split(' ').collect();
        let [what, name, digest] = words[..] else { return };
        match what {
            "record" => drop(self.records.insert(name.parse().unwrap(), digest.to_owned())),
            "file" => drop(self.files.insert(name.to_owned(), digest.to_owned())),
            "gone" => drop(self.files.remove(name)),
            other => panic!("{other}"),
        }
    }

    fn check(&self, dir: &Path) {
        let journal = read_journal(dir).unwrap();
        for (seq, digest) in &self.records {
            let record = &journal.records[usize::try_from(*seq).unwrap()];
            assert_eq!(&record.digest.to_string(), digest, "record {seq}");
        }
        let verification = verify(dir).unwrap();
        assert!(verification.altered.is_empty() && verification.journal.is_empty(), "{verification:?}");
        assert!(verification.added.len() <= 1, "{verification:?}");
        // A file may be gone whose removal was recorded and not yet promised; then it is not recorded either.
        assert!(verification.missing.is_empty(), "{verification:?}");
        for (path, digest) in &self.files {
            let Ok((found, _)) = evidence::Sha256::of_file(&dir.join(path)) else {
                let mut removals =
                    journal.records.iter().filter(|record| record.kind == "bundle.file-removed");
                assert!(removals.any(|record| record.payload_json().contains(path.as_str())), "{path}");
                continue;
            };
            assert_eq!(&found.to_string(), digest, "{path}");
        }
    }
}

#[test]
fn a_writer_killed_at_any_moment_loses_nothing_it_promised() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("bundle");
    let mut promised = Promised::default();
    let mut seed: u64 = std::process::id().into();
    for _ in 0..40 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Some die while they start or open the bundle, some after a few promises.
        let mut child = start_writer(&dir);
        let mut promises = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard = promises.by_ref().take(usize::try_from((seed >> 60) % 8).unwrap());
        heard.for_each(|line| promised.hear(&line.unwrap()));
        std::thread::sleep(Duration::from_micros((seed >> 33) % 25_000));
        child.kill().unwrap();
        child.wait().unwrap();
        promises.map_while(Result::ok).for_each(|line| promised.hear(&line));
        if dir.join("journal.jsonl").exists() {
            promised.check(&dir);
        }
    }
    assert!(promised.records.len() > 20, "the writers hardly ran: {}", promised.records.len());
    let bundle = Bundle::open(&dir).unwrap();
    let manifest = bundle.seal().unwrap();
    let verification = verify(&dir).unwrap();
    assert!(verification.is_intact(), "{verification:?}");
    assert_eq!(verification.manifest, Some(manifest.sha256));
}
