use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// A journal of `count` records, and what a manifest would say of it.
fn journal(count: u64) -> (Vec<u8>, JournalHead) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(JOURNAL);
    let file = File::options().append(true).create_new(true).open(&path).unwrap();
    let mut writer = JournalWriter::new(file, 0, 0, None);
    for number in 0..count {
        let payload = RawValue::from_string(format!("{{\"number\":{number},\"x\":0.10}}")).unwrap();
        writer.append("test", &payload, Wait::ForTheDisk).unwrap();
    }
    let bytes = fs::read(path).unwrap();
    let head = writer.head(&bytes).unwrap();
    (bytes, head)
}

/// Six records; written once, because every record waits for the disk.
static SIX: LazyLock<(Vec<u8>, JournalHead)> = LazyLock::new(|| journal(6));

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The lines that are blamed after `change`, in an unsealed and in a sealed bundle.
fn blamed(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> (Vec<u64>, Vec<u64>) {
    let (bytes, head) = &*SIX;
    let mut lines = lines(bytes);
    change(&mut lines);
    let bytes = lines.concat();
    let of = |sealed| scan(&bytes, sealed).problems.into_iter().map(|problem| problem.line).collect();
    (of(None), of(Some(head)))
}

fn replace(line: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(line.clone()).unwrap();
    assert!(text.contains(from), "{text}");
    *line = text.replace(from, to).into_bytes();
}

fn check(what: &str, change: impl FnOnce(&mut Vec<Vec<u8>>), unsealed: &[u64], sealed: &[u64]) {
    let (found_unsealed, found_sealed) = blamed(change);
    assert_eq!(found_unsealed, unsealed, "{what}, unsealed");
    assert_eq!(found_sealed, sealed, "{what}, sealed");
}

#[test]
fn an_untouched_journal_has_no_problem() {
    check("nothing", |_| {}, &[], &[]);
    let (bytes, _) = journal(3);
    let records = scan(&bytes, None).records;
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(records[2].payload_json(), r#"{"number":2,"x":0.10}"#, "number text is kept");
}

#[test]
fn the_line_that_was_altered_is_named() {
    let payload = |n: usize| move |lines: &mut Vec<Vec<u8>>| replace(&mut lines[n - 1], "0.10", "0.11");
    check("payload of the first", payload(1), &[1], &[1]);
    check("payload in the middle", payload(4), &[4], &[4]);
    check("payload of the last but one", payload(5), &[5], &[5]);
    check("payload of the last: only the seal can tell", payload(6), &[], &[6]);
    check("the number", |lines| replace(&mut lines[2], "\"seq\":2", "\"seq\":9"), &[3], &[3]);
    check("the kind", |lines| replace(&mut lines[2], "\"test\"", "\"best\""), &[3], &[3]);
    check(
        "two lines apart",
        |lines| {
            payload(2)(lines);
            payload(5)(lines)
        },
        &[2, 5],
        &[2, 5],
    );
    // Line 4 is contradicted by line 5, so nobody can say any more what line 3 was.
    check(
        "two neighbours",
        |lines| {
            payload(3)(lines);
            payload(4)(lines)
        },
        &[4],
        &[4],
    );
}

#[test]
fn a_line_whose_predecessor_was_rewritten_is_named() {
    let other = Sha256::of(b"other").to_string();
    let change = |n: usize| {
        let other = other.clone();
        move |lines: &mut Vec<Vec<u8>>| {
            let before = Sha256::of(lines[n - 2].strip_suffix(b"\n").unwrap()).to_string();
            replace(&mut lines[n - 1], &before, &other);
        }
    };
    check("in the middle", change(3), &[3], &[3]);
    check("the last; unsealed it cannot be told from its predecessor", change(6), &[5], &[6]);
    let first = |lines: &mut Vec<Vec<u8>>| replace(&mut lines[0], "null", &format!("\"{other}\""));
    check("the first", first, &[1], &[1]);
}

#[test]
fn lines_removed_added_or_moved_are_named() {
    check("the first removed", |lines| drop(lines.remove(0)), &[1], &[1, 6]);
    check("the third removed", |lines| drop(lines.remove(2)), &[3], &[3, 6]);
    check("the last removed: only the seal can tell", |lines| drop(lines.pop()), &[], &[6]);
    check("the third twice", |lines| lines.insert(2, lines[2].clone()), &[4], &[4, 7]);
    check("two exchanged", |lines| lines.swap(2, 3), &[3, 4], &[3, 4]);
    check("everything removed", Vec::clear, &[], &[1]);
}

#[test]
fn what_is_not_a_record_is_named() {
    check("an empty line", |lines| lines[2] = b"\n".to_vec(), &[3], &[3]);
    check("no JSON", |lines| lines[2] = b"zero\n".to_vec(), &[3], &[3]);
    check("not UTF-8", |lines| lines[2] = b"\xff\n".to_vec(), &[3], &[3]);
    check("another version", |lines| replace(&mut lines[2], "\"version\":1", "\"version\":2"), &[3], &[3]);
    check("a key more", |lines| replace(&mut lines[2], "{\"schema\"", "{\"a\":1,\"schema\""), &[3], &[3]);
    check("a key less", |lines| replace(&mut lines[0], "\"previous\":null,", ""), &[1], &[1]);
}

#[test]
fn a_line_without_its_end_is_torn_and_not_broken() {
    let (bytes, _) = journal(3);
    let whole = lines(&bytes)[..2].concat().len();
    for cut in whole + 1..bytes.len() {
        let scan = scan(&bytes[..cut], None);
        assert!(scan.problems.is_empty());
        assert_eq!(scan.records.len(), 2);
        assert_eq!(scan.torn, Some(Torn { offset_bytes: whole as u64, bytes: (cut - whole) as u64 }));
    }
    assert_eq!(scan(&bytes[..whole], None).torn, None);
}

#[test]
fn a_problem_says_what_it_is() {
    let (bytes, _) = journal(3);
    let mut lines = lines(&bytes);
    replace(&mut lines[1], "0.10", "0.11");
    let problem = scan(&lines.concat(), None).problems[0].to_string();
    assert!(problem.starts_with("line 2 was altered: its digest is "), "{problem}");
}

proptest! {
    /// Whatever one byte of a sealed journal becomes, exactly its line is named.
    #[test]
    fn one_changed_byte_is_found(line in 0usize..6, at in 0usize..1000, byte in any::<u8>()) {
        let (bytes, head) = &*SIX;
        let mut lines = lines(bytes);
        let length = lines[line].len() - 1;
        let target = &mut lines[line][at % length];
        prop_assume!(*target != byte && byte != b'\n');
        *target = byte;
        let found: Vec<u64> = scan(&lines.concat(), Some(head)).problems.iter().map(|p| p.line).collect();
        prop_assert_eq!(found, vec![line as u64 + 1]);
    }
}
