use super::*;
use crate::{ReadError, Verification, VerifyError, read_journal, read_manifest, verify};
use proptest::prelude::*;
use serde_json::json;

struct Fixture {
    parent: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Fixture { parent: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.parent.path().join("deep/bundle")
    }

    /// A bundle with a few files and records, still open.
    fn bundle(&self) -> Bundle {
        let bundle = Bundle::create(self.dir()).unwrap();
        bundle.write_file("campaign.toml", b"a = 1\n").unwrap();
        bundle.append("started", &json!({ "z": 1, "a": 0.1 })).unwrap();
        bundle.write_file("records/pin.json", b"{}").unwrap();
        bundle
    }

    fn verify(&self) -> Verification {
        verify(self.dir()).unwrap()
    }

    fn kinds(&self) -> Vec<String> {
        read_journal(&self.dir()).unwrap().records.into_iter().map(|record| record.kind).collect()
    }
}

fn paths(files: &[FileRef]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn a_directory_that_exists_is_never_mixed_with() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.dir()).unwrap();
    assert!(matches!(Bundle::create(fixture.dir()), Err(CreateError::Exists)));
    assert!(matches!(Bundle::open(fixture.dir()), Err(OpenError::NotABundle)));
    assert!(matches!(verify(fixture.dir()), Err(VerifyError::NotABundle)));
    assert!(matches!(verify(fixture.dir().join("none")), Err(VerifyError::NotABundle)));
    assert!(matches!(read_journal(&fixture.dir()), Err(JournalError::NotABundle)));
    fs::write(fixture.parent.path().join("file"), "").unwrap();
    assert!(matches!(Bundle::create(fixture.parent.path().join("file")), Err(CreateError::Exists)));
    let error = Bundle::create(fixture.parent.path().join("file/below")).unwrap_err();
    assert!(matches!(error, CreateError::Storage(_)), "{error:?}");
}

#[test]
fn deferred_records_are_records_like_any_other() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let syncer = bundle.syncer().unwrap();
    let waiting = std::thread::spawn(move || syncer.sync());
    bundle.append_deferred("one", &json!(1)).unwrap();
    bundle.append_deferred("two", &json!(2)).unwrap();
    bundle.append("three", &json!(3)).unwrap();
    waiting.join().unwrap().unwrap();
    assert!(matches!(bundle.append_deferred("Bad kind", &json!(0)), Err(AppendError::Kind(_))));
    assert_eq!(fixture.kinds()[4..], ["one", "two", "three"]);
    let _manifest = bundle.seal().unwrap();
    assert!(fixture.verify().is_intact());
}

#[test]
fn after_a_failed_wait_for_the_disk_nothing_is_appended() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let mut syncer = bundle.syncer().unwrap();
    syncer.file = File::open("/dev/null").unwrap();
    let error = syncer.sync().unwrap_err();
    assert_eq!(error.to_string(), "sync `journal.jsonl`");
    for refused in [bundle.append("one", &json!(1)), bundle.append_deferred("two", &json!(2))] {
        assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    }
    drop((bundle, syncer));
    let again = Bundle::open(fixture.dir()).unwrap();
    again.append("three", &json!(3)).unwrap();
}

#[test]
fn there_is_one_writer() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    assert!(matches!(Bundle::open(fixture.dir()), Err(OpenError::Locked)));
    drop(bundle);
    let bundle = Bundle::open(fixture.dir()).unwrap();
    assert!(bundle.recovery().is_clean(), "{:?}", bundle.recovery());
    assert!(matches!(Bundle::open(fixture.dir()), Err(OpenError::Locked)));
}

#[test]
fn threads_may_share_a_bundle() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bundle = &bundle;
            scope.spawn(move || {
                for number in 0..10 {
                    bundle.append("tick", &json!({ "thread": thread })).unwrap();
                    bundle.write_file(&format!("samples/{thread}-{number}"), b"x").unwrap();
                }
            });
        }
    });
    let _ = bundle.seal().unwrap();
    let verification = fixture.verify();
    assert!(verification.is_intact(), "{verification:?}");
    assert_eq!(verification.files, 42);
    assert_eq!(verification.records, 4 + 80 + 1);
}

#[test]
fn kinds_are_plain_and_those_of_the_bundle_are_its_own() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    for kind in ["", "bundle.sealed", "Upper", "with space", "line\nfeed", "ümlaut"] {
        assert!(matches!(bundle.append(kind, &1), Err(AppendError::Kind(_))), "{kind:?}");
    }
    bundle.append("row.attempt-1", &1).unwrap();
}

#[test]
fn payloads_are_sorted_and_come_back() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let entry = bundle.append("numbers", &json!({ "b": [1, { "d": 2, "c": u64::MAX }], "a": 0.1 })).unwrap();
    let record = read_journal(&fixture.dir()).unwrap().records.pop().unwrap();
    assert_eq!((record.seq, record.digest), (entry.seq, entry.digest));
    assert_eq!(record.payload_json(), r#"{"a":0.1,"b":[1,{"c":18446744073709551615,"d":2}]}"#);
    let error = record.payload::<Vec<u8>>().unwrap_err();
    assert_eq!(error.to_string(), "read the payload of journal record 4, a `numbers`");
}

#[test]
fn a_payload_that_is_no_json_leaves_no_trace() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let bad: std::collections::HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert!(matches!(bundle.append("bad", &bad), Err(AppendError::Payload { .. })));
    bundle.append("good", &1).unwrap();
    assert_eq!(fixture.kinds().last().unwrap(), "good");
}

#[test]
fn evidence_is_not_overwritten_unless_asked() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    assert!(matches!(bundle.write_file("campaign.toml", b""), Err(WriteError::Exists(_))));
    assert!(matches!(bundle.replace_file("report.md", b""), Err(WriteError::Missing(_))));
    bundle.replace_file("campaign.toml", b"a = 2\n").unwrap();
    let record = read_journal(&fixture.dir()).unwrap().records.pop().unwrap();
    let written: Written = record.payload().unwrap();
    assert_eq!(written.replaces, Some(Sha256::of(b"a = 1\n")));
    assert_eq!(fs::read(fixture.dir().join("campaign.toml")).unwrap(), b"a = 2\n");
}

#[test]
fn a_file_is_read_only_if_it_is_the_recorded_one() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let file = bundle.file("campaign.toml").unwrap();
    assert_eq!(file.read(bundle.dir()).unwrap(), b"a = 1\n");
    fs::write(fixture.dir().join("campaign.toml"), "a = 2\n").unwrap();
    assert!(matches!(file.read(bundle.dir()), Err(ReadError::Altered { .. })));
    fs::remove_file(fixture.dir().join("campaign.toml")).unwrap();
    assert!(matches!(file.read(bundle.dir()), Err(ReadError::Storage(_))));
}

#[test]
fn a_stream_is_there_whole_or_not_at_all() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let mut dropped = bundle.stream("logs/dropped").unwrap();
    dropped.write_all(b"half").unwrap();
    drop(dropped);
    let mut kept = bundle.stream("logs/kept").unwrap();
    let mut rival = bundle.stream("logs/kept").unwrap();
    kept.write_all(b"one ").unwrap();
    kept.write_all(b"two").unwrap();
    rival.write_all(b"other").unwrap();
    assert_eq!(kept.finish().unwrap().sha256, Sha256::of(b"one two"));
    assert!(matches!(rival.finish(), Err(WriteError::Exists(_))));
    assert!(!fixture.dir().join("logs/dropped").exists());
    assert_eq!(fs::read_dir(fixture.dir().join(TEMPORARY)).unwrap().count(), 0);
    assert_eq!(fs::read(fixture.dir().join("logs/kept")).unwrap(), b"one two");
}

#[test]
fn files_from_elsewhere_are_adopted_and_those_in_place_recorded() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    let source = fixture.parent.path().join("source");
    fs::write(&source, "text").unwrap();
    let file = bundle.adopt_file("logs/adopted", &source).unwrap();
    assert_eq!((file.sha256, file.bytes), (Sha256::of(b"text"), 4));
    assert!(!source.exists());
    fs::write(fixture.dir().join("logs/placed"), "placed").unwrap();
    assert_eq!(bundle.record_file("logs/placed").unwrap().bytes, 6);
    assert!(matches!(bundle.record_file("logs/placed"), Err(WriteError::Exists(_))));
    assert!(matches!(bundle.record_file("logs/none"), Err(WriteError::Missing(_))));
    assert!(matches!(bundle.adopt_file("logs/none", &source), Err(WriteError::Missing(_))));
    std::os::unix::fs::symlink("/etc/hostname", fixture.dir().join("logs/link")).unwrap();
    assert!(matches!(bundle.record_file("logs/link"), Err(WriteError::NotAFile(_))));
    assert!(matches!(bundle.adopt_file("logs/x", &fixture.dir()), Err(WriteError::NotAFile(_))));
    fs::write(fixture.dir().join("logs/child"), "unrecorded").unwrap();
    assert!(matches!(bundle.write_file("logs/child", b""), Err(WriteError::Exists(_))));
    assert!(matches!(bundle.write_file("../escape", b""), Err(WriteError::Path(_))));
    assert!(matches!(bundle.stream("/etc/passwd"), Err(WriteError::Path(_))));
    assert!(matches!(bundle.remove_file("..", "no"), Err(RemoveError::Path(_))));
}

#[test]
fn removing_leaves_a_record() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    bundle.remove_file("records/pin.json", "matching report").unwrap();
    assert!(matches!(bundle.remove_file("records/pin.json", "again"), Err(RemoveError::Unrecorded(_))));
    let record = read_journal(&fixture.dir()).unwrap().records.pop().unwrap();
    let removed: Removed = record.payload().unwrap();
    assert_eq!((removed.path.as_str(), removed.sha256), ("records/pin.json", Sha256::of(b"{}")));
    bundle.write_file("records/pin.json", b"again").unwrap();
    let _ = bundle.seal().unwrap();
    assert!(fixture.verify().is_intact());
}

#[test]
fn a_sealed_bundle_is_closed_and_intact() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    fs::write(bundle.scratch().unwrap().join("leftover"), "not evidence").unwrap();
    let manifest = bundle.seal().unwrap();
    assert_eq!(manifest, read_manifest(&fixture.dir()).unwrap());
    assert_eq!(paths(&manifest.files), ["campaign.toml", "records/pin.json"]);
    let verification = fixture.verify();
    assert!(verification.is_intact() && verification.scratch, "{verification:?}");
    assert_eq!(verification.head, Some(manifest.journal.head));
    assert!(matches!(Bundle::open(fixture.dir()), Err(OpenError::Sealed)));
    assert!(!fixture.dir().join(TEMPORARY).exists());
}

#[test]
fn the_seal_can_be_taken_off_with_a_record() {
    let fixture = Fixture::new();
    let _ = fixture.bundle().seal().unwrap();
    let before = Sha256::of(&fs::read(fixture.dir().join(MANIFEST)).unwrap());
    let bundle = Bundle::reopen(fixture.dir()).unwrap();
    bundle.write_file("report.md", b"later").unwrap();
    let _ = bundle.seal().unwrap();
    assert!(fixture.verify().is_intact());
    let records = read_journal(&fixture.dir()).unwrap().records;
    let reopened = records.iter().find(|record| record.kind == REOPENED).unwrap();
    assert!(reopened.payload_json().contains(&before.to_string()));
    fs::remove_file(fixture.dir().join(MANIFEST)).unwrap();
    assert!(matches!(Bundle::reopen(fixture.dir()), Err(OpenError::NotSealed)));
}

#[test]
fn a_bundle_that_differs_from_its_records_is_not_sealed() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    fs::write(fixture.dir().join("campaign.toml"), "other").unwrap();
    fs::remove_file(fixture.dir().join("records/pin.json")).unwrap();
    fs::write(fixture.dir().join("stray"), "stray").unwrap();
    let error = bundle.seal().unwrap_err();
    assert_eq!(
        error.to_string(),
        "seal the evidence bundle: 1 altered, 1 missing and 1 unrecorded files, the first is `campaign.toml`"
    );
    assert!(!fixture.dir().join(MANIFEST).exists());
}

/// One change to a sealed bundle, and what verification must say of it.
fn check_change(change: impl FnOnce(&Path), expect: impl FnOnce(&Verification) -> bool) {
    let fixture = Fixture::new();
    let _ = fixture.bundle().seal().unwrap();
    change(&fixture.dir());
    let verification = fixture.verify();
    assert!(!verification.is_intact());
    assert!(expect(&verification), "{verification:#?}");
}

#[test]
fn verification_names_what_changed() {
    check_change(
        |dir| fs::write(dir.join("campaign.toml"), "a = 2\n").unwrap(),
        |found| {
            found.altered.len() == 1
                && found.altered[0].path == "campaign.toml"
                && found.altered[0].found_bytes == 6
        },
    );
    check_change(
        |dir| fs::remove_file(dir.join("records/pin.json")).unwrap(),
        |found| paths(&found.missing) == ["records/pin.json"],
    );
    check_change(
        |dir| fs::write(dir.join("records/more.json"), "").unwrap(),
        |found| found.added == ["records/more.json"],
    );
    check_change(|dir| fs::create_dir(dir.join("elsewhere")).unwrap(), |found| found.added == ["elsewhere"]);
    check_change(|dir| fs::write(dir.join(".hidden"), "").unwrap(), |found| found.added == [".hidden"]);
    check_change(
        |dir| {
            fs::rename(dir.join("campaign.toml"), dir.join("real")).unwrap();
            std::os::unix::fs::symlink("real", dir.join("campaign.toml")).unwrap();
        },
        |found| paths(&found.missing) == ["campaign.toml"] && found.added == ["campaign.toml", "real"],
    );
    check_change(|dir| edit(&dir.join(JOURNAL), "0.1", "0.2"), |found| found.journal[0].line == 3);
    check_change(
        |dir| append(&dir.join(JOURNAL), b"{"),
        |found| found.torn.is_some() && found.journal.is_empty(),
    );
    check_change(|dir| append(&dir.join(JOURNAL), b"{}\n"), |found| found.journal[0].line == 6);
    check_change(|dir| fs::remove_file(dir.join(MANIFEST)).unwrap(), Verification::is_consistent);
    check_change(
        |dir| {
            let bytes = fs::read(dir.join("campaign.toml")).unwrap();
            fs::write(dir.join("campaign.toml"), b"b = 1\n").unwrap();
            edit(&dir.join(MANIFEST), &Sha256::of(&bytes).to_string(), &Sha256::of(b"b = 1\n").to_string());
        },
        |found| found.manifest_against_journal == ["campaign.toml"] && found.altered.is_empty(),
    );
}

#[test]
fn a_manifest_that_is_none_is_an_error() {
    let fixture = Fixture::new();
    let _ = fixture.bundle().seal().unwrap();
    fs::write(fixture.dir().join(MANIFEST), "{}").unwrap();
    assert!(matches!(verify(fixture.dir()), Err(VerifyError::Manifest(_))));
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn a_torn_line_is_set_aside_byte_for_byte() {
    let fixture = Fixture::new();
    drop(fixture.bundle());
    let journal = fixture.dir().join(JOURNAL);
    let whole = fs::read(&journal).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    for cut in (last + 1..whole.len()).step_by(7) {
        let _ = fs::remove_dir_all(fixture.dir().join(RECOVERED));
        fs::write(&journal, &whole[..cut]).unwrap();
        let bundle = Bundle::open(fixture.dir()).unwrap();
        let torn = bundle.recovery().torn.clone().unwrap();
        assert_eq!((torn.offset_bytes, torn.bytes), (last as u64, (cut - last) as u64));
        assert_eq!(fs::read(fixture.dir().join(&torn.kept_as)).unwrap(), &whole[last..cut]);
        assert_eq!(bundle.file(&torn.kept_as).unwrap().sha256, torn.sha256);
        // The record of pin.json was the torn one.
        let aside = bundle.recovery().set_aside.clone();
        assert_eq!(aside.iter().map(|aside| aside.path.as_str()).collect::<Vec<_>>(), ["records/pin.json"]);
        assert_eq!(fs::read(fixture.dir().join(&aside[0].kept_as)).unwrap(), b"{}");
        bundle.write_file("records/pin.json", b"{}").unwrap();
        let _ = bundle.seal().unwrap();
        assert!(fixture.verify().is_intact());
        fs::remove_file(fixture.dir().join(MANIFEST)).unwrap();
    }
}

#[test]
fn a_journal_without_one_whole_line_can_be_continued() {
    let fixture = Fixture::new();
    drop(Bundle::create(fixture.dir()).unwrap());
    for torn in ["", "{\"schema\":\"evid"] {
        fs::write(fixture.dir().join(JOURNAL), torn).unwrap();
        assert_eq!(read_journal(&fixture.dir()).unwrap().records.len(), 0);
        drop(Bundle::open(fixture.dir()).unwrap());
        assert_eq!(fixture.kinds()[..2], [CREATED, OPENED]);
    }
}

#[test]
fn a_broken_journal_is_not_continued() {
    let fixture = Fixture::new();
    drop(fixture.bundle());
    edit(&fixture.dir().join(JOURNAL), "0.1", "0.2");
    let error = Bundle::open(fixture.dir()).unwrap_err();
    assert!(error.to_string().starts_with("open the evidence bundle: line 3 was altered"), "{error}");
    let Err(JournalError::Broken { problem, intact }) = read_journal(&fixture.dir()) else {
        panic!("broken")
    };
    assert_eq!((problem.line, intact.len()), (3, 2));
}

/// Every state that a kill can leave between two steps, made by hand.
#[test]
fn what_a_kill_leaves_between_two_steps_is_put_right() {
    let fixture = Fixture::new();
    let bundle = fixture.bundle();
    bundle.write_file("records/gone.json", b"gone").unwrap();
    bundle.remove_file("records/gone.json", "matching").unwrap();
    drop(bundle);
    // Recorded as removed and not yet removed; written and not yet recorded; being written; set aside and not recorded.
    fs::write(fixture.dir().join("records/gone.json"), "gone").unwrap();
    fs::write(fixture.dir().join("records/row.json"), "row").unwrap();
    fs::write(fixture.dir().join(TEMPORARY).join("7-half"), "half").unwrap();
    fs::create_dir(fixture.dir().join(RECOVERED)).unwrap();
    fs::write(fixture.dir().join(RECOVERED).join("journal.torn"), "torn").unwrap();
    fs::remove_file(fixture.dir().join("campaign.toml")).unwrap();

    let bundle = Bundle::open(fixture.dir()).unwrap();
    let recovery = bundle.recovery().clone();
    assert_eq!(recovery.finished_removals, ["records/gone.json"]);
    let aside = SetAside::new(6, "records/row.json".to_owned());
    assert_eq!(recovery.set_aside, std::slice::from_ref(&aside));
    assert_eq!(bundle.file(&aside.kept_as).unwrap().sha256, Sha256::of(b"row"));
    assert_eq!(recovery.discarded_temporaries, ["7-half"]);
    assert_eq!(recovery.missing, ["campaign.toml"]);
    assert!(bundle.file("recovered/journal.torn").is_some());
    let records = read_journal(&fixture.dir()).unwrap().records;
    let opened = records.iter().rfind(|record| record.kind == OPENED).unwrap();
    assert_eq!(opened.payload::<Recovery>().unwrap(), recovery);
    assert!(matches!(bundle.write_file("records/row.json", b"row again"), Ok(file) if file.bytes == 9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any sequence of operations gives a bundle that seals and verifies, and lists exactly what was kept.
    #[test]
    fn any_sequence_of_operations_verifies(steps in proptest::collection::vec((0u8..5, 0u8..4), 0..24)) {
        let fixture = Fixture::new();
        let mut bundle = Bundle::create(fixture.dir()).unwrap();
        let mut expected = BTreeMap::new();
        for (step, (operation, name)) in steps.into_iter().enumerate() {
            let path = format!("samples/{name}");
            let content = format!("{step}").into_bytes();
            let known = expected.contains_key(&path);
            match operation {
                0 => { let _ = bundle.append("step", &step).unwrap(); }
                1 => prop_assert_eq!(bundle.write_file(&path, &content).is_ok(), !known),
                2 => prop_assert_eq!(bundle.replace_file(&path, &content).is_ok(), known),
                3 => prop_assert_eq!(bundle.remove_file(&path, "step").is_ok(), known),
                _ => { drop(bundle); bundle = Bundle::open(fixture.dir()).unwrap(); }
            }
            match operation {
                1 if !known => drop(expected.insert(path, content)),
                2 if known => drop(expected.insert(path, content)),
                3 => drop(expected.remove(&path)),
                _ => {}
            }
        }
        let manifest = bundle.seal().unwrap();
        let listed: BTreeMap<_, _> = manifest.files.into_iter().map(|file| (file.path, file.sha256)).collect();
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(path, content)| (path, Sha256::of(&content))).collect();
        prop_assert_eq!(listed, expected);
        prop_assert!(fixture.verify().is_intact());
    }
}

#[test]
fn a_writer_that_is_about_to_end_is_waited_for() {
    let fixture = Fixture::new();
    let bundle = Bundle::create(fixture.dir()).unwrap();
    let patience = Duration::from_millis(50);
    assert!(matches!(Bundle::open_within(fixture.dir(), patience), Err(OpenError::Locked)));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(bundle);
    });
    assert!(Bundle::open_within(fixture.dir(), Duration::from_secs(60)).is_ok());
    writer.join().unwrap();
}
