//! The real command on real files.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use canonical_json::Sha256;

#[derive(Debug)]
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run_on(stdin: &[u8], folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("canon-digest"));
    let output = command.current_dir(folder).args(arguments).write_stdin(stdin).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    let code = output.status.code().expect("it is not ended by a signal");
    Outcome { code, stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    run_on(b"", folder, arguments)
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

fn reports() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reports");
    let entries = fs::read_dir(folder).expect("the folder of reports");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

/// The digest of one text given as a file.
fn check_digest(text: &[u8], canonical: &str, arguments: &[&str]) {
    let folder = folder(&[("a.json", text)]);
    let found = run(folder.path(), &[arguments, &["a.json"]].concat());
    let expected = format!("{}  a.json\n", Sha256::of(canonical.as_bytes()));
    assert_eq!(
        (found.code, found.stdout),
        (0, expected),
        "{} {}",
        String::from_utf8_lossy(text),
        found.stderr
    );
    let emitted = run_on(text, folder.path(), &[arguments, &["--emit"]].concat());
    assert_eq!((emitted.code, emitted.stdout.as_str()), (0, canonical));
}

#[test]
fn texts_of_all_kinds() {
    check_digest(b"7", "7", &[]);
    check_digest(b" [ 7 ]\r\n", "[7]", &[]);
    check_digest(br#"{"b":1,"a":9007199254740993}"#, r#"{"a":9007199254740993,"b":1}"#, &[]);
    check_digest(
        b"{\n  \"x\": 175.19058700000002,\n  \"\\u0000\": -0.0\n}\n",
        r#"{"\u0000":-0.0,"x":175.19058700000002}"#,
        &[],
    );
    // Two spellings that only normalisation makes one: an e with an accent, and an e and an accent.
    check_digest("{\"\u{e9}\":1,\"e\u{301}\":2}".as_bytes(), "{\"e\u{301}\":2,\"\u{e9}\":1}", &[]);
    check_digest(b"{\"\xe2\x82\xac\":1,\"\\u20ab\":1e2}", "{\"\u{20ab}\":1e2,\"\u{20ac}\":1}", &[]);
    check_digest(b"[1e2,4.50,-0,1E30]", "[100,4.5,0,1e+30]", &["--form", "jcs"]);
    check_digest(
        br#"{"a":1,"b":{"c":[{"d":1,"e":2}]}}"#,
        r#"{"b":{"c":[{"e":2}]}}"#,
        &["--exclude", "/a", "--exclude", "/b/*/*/d"],
    );
    check_digest(
        br#"{"r":[{"id":"b"},{"id":"a","x=/y":0}]}"#,
        r#"{"r":[{"id":"a","x=/y":0},{"id":"b"}]}"#,
        &["--unordered", "/r=/id"],
    );
    check_digest(b"[3,1,2]", "[1,2,3]", &["--unordered", "="]);
    check_digest(b"1\r\n\"b\"\r\n[ ]", "1\n\"b\"\n[]\n", &["--jsonl"]);
    check_digest(b"", "", &["--jsonl"]);
}

#[test]
fn what_is_no_document_is_refused() {
    let cases: [(&[u8], &str); 12] = [
        (b"", "empty input at line 1, column 1 (byte 0"),
        (b" \n ", "empty input at line 2, column 2 (byte 3"),
        (b"\xef\xbb\xbf{}", "byte order mark at line 1, column 1 (byte 0"),
        (b"{} {}", "text after the end of the document at line 1, column 4 (byte 3"),
        (b"{\"a\":1,\n \"\\u0061\":2}", "repeated key `a` at line 2, column 2 (byte 9, in `/a`"),
        (b"[1,[\"\xff\"]]", "invalid UTF-8 at line 1, column 6 (byte 5, in `/1/0`"),
        (b"{\"k\":\"\\ud800\"}", "lone surrogate at line 1, column 7 (byte 6, in `/k`"),
        (b"[NaN]", "found `N` where a value was expected at line 1, column 2 (byte 1, in `/0`"),
        (b"[01]", "malformed number at line 1, column 3"),
        (b"[1,2", "input ends where `,` or `]` was expected at line 1, column 5"),
        (b"[\"\x01\"]", "unescaped control character 0x01 at line 1, column 3"),
        (b"nul", "input ends where null was expected"),
    ];
    for (text, expected) in cases {
        let folder = folder(&[("a.json", text)]);
        let found = run(folder.path(), &["a.json"]);
        assert_eq!((found.code, found.stdout.as_str()), (4, ""), "{expected}");
        assert!(found.stderr.contains(expected), "{expected}: {}", found.stderr);
    }
    let deep = "[".repeat(1025) + &"]".repeat(1025);
    let found = run_on(deep.as_bytes(), Path::new("."), &[]);
    assert!(found.code == 4 && found.stderr.contains("more than 1024 levels of nesting"), "{}", found.stderr);
}

#[test]
fn a_canonical_file_has_the_digest_of_its_bytes() {
    let paths = reports();
    assert!(!paths.is_empty());
    for path in paths {
        let bytes = fs::read(&path).expect("a report");
        // The harness writes canonical reports, and a line feed after each.
        let found = run(Path::new("."), &[path.to_str().expect("a path that is text")]);
        let expected = Sha256::of(bytes.trim_ascii_end()).to_string();
        assert_eq!(found.stdout.split(' ').next(), Some(expected.as_str()), "{}", path.display());
    }
}

#[test]
fn many_files_come_out_in_order() {
    let names: Vec<String> = (0..40).map(|i| format!("{i}.json")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"[ ]" as &[u8])).collect();
    let folder = folder(&files);
    fs::write(folder.path().join("7.json"), "[").expect("a file");
    fs::remove_file(folder.path().join("9.json")).expect("a file");
    for jobs in ["1", "4"] {
        let arguments: Vec<&str> =
            ["--jobs", jobs].into_iter().chain(names.iter().map(String::as_str)).collect();
        let found = run(folder.path(), &arguments);
        let good = names.iter().filter(|name| !["7.json", "9.json"].contains(&name.as_str()));
        let expected: String = good.map(|name| format!("{}  {name}\n", Sha256::of(b"[]"))).collect();
        assert_eq!((found.code, found.stdout), (4, expected));
        assert_eq!(found.stderr.lines().count(), 2, "{}", found.stderr);
    }
}

#[test]
fn check_compares() {
    let folder = folder(&[("a.json", b"[ ]")]);
    let digest = Sha256::of(b"[]").to_string();
    assert_eq!(run(folder.path(), &["--check", &digest, "a.json"]).code, 0);
    let found = run(folder.path(), &["--check", &Sha256::of(b"{}").to_string(), "a.json"]);
    assert_eq!((found.code, found.stdout), (1, format!("{digest}  a.json\n")));
    assert!(found.stderr.contains("has the digest"), "{}", found.stderr);
    assert_eq!(run(folder.path(), &["--check", "abc", "a.json"]).code, 2);
    assert_eq!(run(folder.path(), &["--check", &digest, "a.json", "a.json"]).code, 2);
}

#[test]
fn diff_names_places() {
    let folder = folder(&[
        ("a.json", br#"{"r":[{"id":1,"w":3},{"id":2,"w":0.1}]}"#),
        ("b.json", br#"{"r":[{"id":2,"w":0.2},{"id":1,"w":3}],"s":true}"#),
    ]);
    let arguments = ["--diff", "a.json", "b.json", "--unordered", "/r=/id"];
    let found = run(folder.path(), &arguments);
    assert_eq!(found.code, 1, "{}", found.stderr);
    let (_, differences) = found.stdout.split_once("b.json\n").expect("two digests first");
    let expected = "2 differences:\n/r/*/w  1 time\n    /r/1/w (2): 0.1 and 0.2, 4503599627370496 doubles apart\n\
                    /s  1 time\n    /s: nothing and true\n";
    assert_eq!(differences, expected);

    let found = run(folder.path(), &[&arguments[..], &["--message-format", "json"]].concat());
    let lines: Vec<&str> = found.stdout.lines().collect();
    assert!(lines[0].starts_with(r#"{"event":"diff","is_same":false,"left":""#), "{}", lines[0]);
    assert_eq!(
        lines[2],
        r#"{"count":1,"event":"difference","examples":[{"key":null,"left":null,"pointer":"/s","right":"true","truncated":false,"ulps":null}],"shape":"/s"}"#
    );
    assert_eq!(run(folder.path(), &["--diff", "a.json", "a.json"]).code, 0);
    let found = run(folder.path(), &["--diff", "a.json", "c.json"]);
    assert!(found.code == 4 && found.stderr.contains("`c.json` cannot be read"), "{}", found.stderr);
}

#[test]
fn rules_come_from_a_file() {
    let rules = b"form = \"jcs\"\n[[exclusions]]\npattern = \"/t\"\nrequired = true\n[[unordered]]\nat = \"/r\"\nby = \"\"\n";
    let folder =
        folder(&[("rules.toml", rules), ("a.json", br#"{"t":1,"r":["b","a"],"n":1.0}"#), ("b.json", b"{}")]);
    let found = run(folder.path(), &["--rules", "rules.toml", "a.json", "--emit"]);
    assert_eq!((found.code, found.stdout.as_str()), (0, r#"{"n":1,"r":["a","b"]}"#), "{}", found.stderr);
    let found = run(folder.path(), &["--rules", "rules.toml", "b.json"]);
    assert!(found.code == 4 && found.stderr.contains("nothing matches the required exclusion `/t`"));
}

/// What is wrong with the rules is said of them, and where, not of the document that would not fit them.
#[test]
fn a_rules_file_is_to_blame_for_itself() {
    let folder = folder(&[("b.json", b"{}")]);
    for (rules, place, expected) in [
        ("exclude = []", "line 1, column 1", "unknown field `exclude`"),
        ("form = \"JCS\"", "line 1, column 8", "`lexical` or `jcs`"),
        ("exclusions = [{ pattern = \"\" }]", "line 1, column 27", "does not match the whole document"),
        ("\nexclusions = [{ pattern = \"a\" }]", "line 2, column 27", "does not begin with `/`"),
        ("exclusions = [{ required = true }]", "line 1, column 15", "missing field `pattern`"),
        ("exclusions = [{ pattern = \"/a\", at = 1 }]", "line 1, column 33", "unknown field `at`"),
        ("unordered = [{ at = \"/a\", by = \"/*~2\" }]", "line 1, column 32", "`~` that is not an escape"),
        ("unordered = [{ at = \"/a\" }]", "line 1, column 14", "missing field `by`"),
        ("form = \"jcs\"\nform = \"jcs\"", "line 2, column 1", "duplicate key"),
    ] {
        fs::write(folder.path().join("rules.toml"), rules).expect("a file");
        let found = run(folder.path(), &["--rules", "rules.toml", "b.json"]);
        assert_eq!((found.code, found.stdout.as_str()), (4, ""), "{rules}");
        let is_said = |part: &str| found.stderr.contains(part);
        assert!(
            is_said("`rules.toml` is not a rules file")
                && is_said(place)
                && is_said(expected)
                && !is_said("b.json"),
            "{rules}: {}",
            found.stderr
        );
    }
}

#[test]
fn json_messages_are_events() {
    let folder = folder(&[("a.jsonl", b"{\"b\":1, \"a\":2}\n[]\n"), ("bad.json", b"{\"a\":\n[1,]}")]);
    let found = run(
        folder.path(),
        &["--jsonl", "--records", "--message-format", "json", "--exclude", "/b", "a.jsonl"],
    );
    let digest = |text: &str| Sha256::of(text.as_bytes());
    let expected = format!(
        "{{\"bytes\":7,\"event\":\"record\",\"excluded_present\":[\"/b\"],\"line\":1,\"path\":\"a.jsonl\",\"sha256\":\"{}\"}}\n\
         {{\"bytes\":2,\"event\":\"record\",\"excluded_present\":[],\"line\":2,\"path\":\"a.jsonl\",\"sha256\":\"{}\"}}\n\
         {{\"bytes\":11,\"event\":\"digest\",\"excluded_present\":[\"/b\"],\"form\":\"lexical\",\"path\":\"a.jsonl\",\"records\":2,\"sha256\":\"{}\"}}\n",
        digest("{\"a\":2}"),
        digest("[]"),
        digest("{\"a\":2}\n[]\n"),
    );
    assert_eq!((found.code, found.stdout), (0, expected), "{}", found.stderr);
    let found = run(folder.path(), &["--message-format", "json", "bad.json"]);
    assert_eq!(found.code, 4);
    assert!(
        found.stdout.contains(r#""column":4,"event":"error","exit_code":4,"line":2,"#),
        "{}",
        found.stdout
    );
    assert!(found.stdout.contains(r#""path":"bad.json","pointer":"/a/1"}"#), "{}", found.stdout);
}

#[test]
fn files_that_cannot_be_read() {
    let folder = folder(&[("a.json", b"1")]);
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    for (name, arguments) in [
        ("missing", &["missing"][..]),
        ("folder", &["folder"]),
        ("folder", &["--jsonl", "folder"]),
        ("missing", &["--jsonl", "--records", "missing"]),
        ("folder", &["--emit", "folder"]),
        ("folder", &["--emit", "--jsonl", "folder"]),
        ("missing", &["--diff", "a.json", "missing"]),
        ("missing", &["--diff", "missing", "a.json"]),
        ("missing", &["--rules", "missing", "a.json"]),
        ("folder", &["--rules", "folder", "a.json"]),
    ] {
        let found = run(folder.path(), arguments);
        assert_eq!((found.code, found.stdout.as_str()), (4, ""), "{arguments:?}");
        let expected = format!("canon-digest: `{name}` cannot be read: ");
        assert!(found.stderr.starts_with(&expected), "{arguments:?}: {}", found.stderr);
        assert_eq!(found.stderr.lines().count(), 1, "{arguments:?}: {}", found.stderr);
    }
}

/// A file that claims to be longer than any memory is an error, not an abort.
#[test]
fn a_file_of_any_length() {
    let folder = folder(&[]);
    let file = fs::File::create(folder.path().join("sparse")).expect("a file");
    // Some file systems have no files of such a length.
    if file.set_len(1 << 43).is_ok() {
        let found = run(folder.path(), &["sparse"]);
        assert_eq!((found.code, found.stdout.as_str()), (4, ""), "{}", found.stderr);
        assert!(found.stderr.starts_with("canon-digest: `sparse` cannot be read: "), "{}", found.stderr);
    }
}

#[test]
fn standard_input_is_read_once() {
    let folder = folder(&[("a.json", b"[1]")]);
    let digest = Sha256::of(b"[1]");
    for arguments in [&[][..], &["-"], &["--jsonl"]] {
        let found = run_on(b"[ 1 ]", folder.path(), arguments);
        let of = if arguments == ["--jsonl"] { Sha256::of(b"[1]\n") } else { digest };
        assert_eq!((found.code, found.stdout), (0, format!("{of}  -\n")), "{arguments:?}");
    }
    assert_eq!(run_on(b"[ 1 ]", folder.path(), &["--diff", "-", "a.json"]).code, 0);
    assert_eq!(run_on(b"[ 1 ]", folder.path(), &["--check", &digest.to_string()]).code, 0);
    let found = run_on(b"[ 1 ]", folder.path(), &["a.json", "-", "a.json"]);
    assert_eq!((found.code, found.stdout.lines().count()), (0, 3), "{}", found.stderr);
    for arguments in [&["-", "-"][..], &["--diff", "-", "-"], &["-", "a.json", "-"]] {
        let found = run_on(b"[ 1 ]", folder.path(), arguments);
        assert!(
            found.code == 2 && found.stderr.contains("standard input can be read once"),
            "{}",
            found.stderr
        );
    }
}

#[test]
fn arguments_that_mean_nothing() {
    let digest = Sha256::of(b"").to_string();
    for arguments in [
        &["--exclude", ""][..],
        &["--exclude", "a"],
        &["--exclude-required", "/~"],
        &["--unordered", "/a"],
        &["--unordered", "/a=b"],
        &["--form", "pretty"],
        &["--jobs", "0"],
        &["--records"],
        &["--max-groups", "3"],
        &["--max-groups", "3", "a.json"],
        &["--max-examples", "3", "--emit", "a.json"],
        &["--max-examples", "3", "--jsonl", "a.json"],
        &["--jobs", "2", "--emit", "a.json"],
        &["--jobs", "2", "--diff", "a.json", "b.json"],
        &["--jobs", "2", "--jsonl", "--records", "a.json"],
        &["--diff", "a.json", "b.json", "--jsonl"],
        &["--diff", "a.json", "b.json", "--emit"],
        &["--diff", "a.json", "b.json", "c.json"],
        &["--diff", "a.json", "b.json", "--diff", "c.json", "d.json"],
        &["--jobs", "2", "--check", &digest, "a.json"],
        &["--diff", "a.json"],
        &["--diff", "a.json", "b.json", "--check", "00"],
        &["--emit", "--message-format", "json"],
        &["--emit", "a.json", "b.json"],
    ] {
        let found = run(Path::new("."), arguments);
        assert_eq!((found.code, found.stdout.as_str()), (2, ""), "{arguments:?} {}", found.stderr);
    }
}

/// Whatever there is no room for - a record, the order of members or elements, a canonical form, the keys that were there - the
/// process says so and ends by itself.
#[test]
fn no_room_is_said_in_every_mode() {
    let members: Vec<String> = (0..200_000).rev().map(|member| format!("\"{member:06}\": 1")).collect();
    let elements: Vec<String> = (0..200_000).rev().map(|id| format!(r#"{{"id": {id}}}"#)).collect();
    let object = format!("{{{}}}", members.join(","));
    let folder = folder(&[
        ("object", object.as_bytes()),
        ("wrong", format!("{object}]").as_bytes()),
        ("array", format!("[{}]", elements.join(",")).as_bytes()),
        ("other", b"[]"),
    ]);
    for (file, arguments) in [
        ("object", &[][..]),
        ("object", &["--form", "jcs"]),
        ("object", &["--exclude", "/000000"]),
        ("object", &["--emit"]),
        ("object", &["--jsonl"]),
        ("object", &["--jsonl", "--records"]),
        ("object", &["--diff", "other"]),
        ("wrong", &[]),
        ("wrong", &["--diff", "other"]),
        ("array", &["--unordered", "=/id"]),
        ("array", &["--exclude", "/*/id", "--emit"]),
    ] {
        let mut refused = 0;
        // Under less the process does not even begin.
        for limit_mib in (10..40).step_by(2) {
            let output = Command::new("sh")
                .args(["-c", "ulimit -v $(($1 * 1024)); shift; exec \"$@\"", "sh", &limit_mib.to_string()])
                .arg(assert_cmd::cargo::cargo_bin!("canon-digest"))
                .args(arguments)
                .arg(file)
                .current_dir(folder.path())
                .output()
                .expect("it runs");
            let (code, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
            if !stderr.contains("out of memory") {
                let expected = if file == "wrong" { 4 } else { i32::from(arguments.contains(&"--diff")) };
                assert_eq!(code, Some(expected), "{limit_mib} {file} {arguments:?} {stderr}");
                break;
            }
            let expected = format!("canon-digest: `{file}` cannot be read: out of memory\n");
            assert_eq!((code, &*stderr), (Some(4), &*expected), "{limit_mib} {file} {arguments:?}");
            refused += 1;
        }
        assert!((1..15).contains(&refused), "{file} {arguments:?}: {refused}");
    }
}

/// Names are printed as sha256sum prints them, whatever is in them.
#[test]
fn names_of_files() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let names: [&[u8]; 5] = [b"a b", b"new\nline", b"back\\slash", b"\xff\xfe", "né".as_bytes()];
    for name in names {
        let name = OsStr::from_bytes(name);
        fs::write(folder.path().join(name), "[1]").expect("a file");
        let output = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            let output = command.current_dir(folder.path()).args(arguments).arg(name).output();
            output.expect("it starts").stdout
        };
        let own = assert_cmd::cargo::cargo_bin!("canon-digest");
        assert_eq!(output(own, &[]), output(Path::new("sha256sum"), &[]), "{name:?}");
        let event = String::from_utf8(output(own, &["--message-format", "json"])).expect("JSON is text");
        assert!(event.starts_with(r#"{"bytes":3,"event":"digest""#), "{event}");
    }
}

/// What a document says must not reach the terminal as a command to it.
#[test]
fn control_characters_are_escaped() {
    let text = |value: &str| format!("{{\"\\u001b[2J\":\"{value}\u{9b}\"}}").into_bytes();
    let folder = folder(&[
        ("a.json", &text("1")),
        ("b.json", &text("2")),
        ("c.json", br#"{"\u001b[2J":1,"\u001b[2J":2}"#),
        ("d.json", b"{\"\\u001b[2J\":[1,]}"),
    ]);
    for arguments in [&["--diff", "a.json", "b.json"][..], &["c.json"], &["d.json"]] {
        let found = run(folder.path(), arguments);
        assert_ne!(found.code, 0);
        let is_command = |c: char| c.is_control() && c != '\n';
        assert!(!found.stdout.contains(is_command) && !found.stderr.contains(is_command), "{found:?}");
        assert!(format!("{}{}", found.stdout, found.stderr).contains(r"\u001b[2J"), "{found:?}");
    }
}

/// Keys and values of any length make no endless message.
#[test]
fn messages_are_bounded() {
    let long = "k".repeat(1_000_000);
    let folder = folder(&[
        ("a.json", format!("{{\"{long}\":\"{long}\"}}").as_bytes()),
        ("b.json", format!("{{\"{long}\":[\"{long}\"]}}").as_bytes()),
        ("c.json", format!("{{\"{long}\":1,\"{long}\":1}}").as_bytes()),
        ("d.json", format!("{{\"{long}\":{{\"a\":nil}}}}").as_bytes()),
    ]);
    for arguments in [&["--diff", "a.json", "b.json"][..], &["c.json"], &["d.json"]] {
        let found = run(folder.path(), arguments);
        assert_ne!(found.code, 0);
        assert!(found.stdout.len() + found.stderr.len() < 2_000, "{arguments:?}");
    }
}

/// Nobody listens to stderr, or stdout is full.
#[test]
fn outputs_that_do_not_work() {
    let folder = folder(&[("a.json", b"[ ]")]);
    let script = |script: &str| {
        let command = assert_cmd::cargo::cargo_bin!("canon-digest");
        let script = script.replace("COMMAND", &format!("'{}'", command.display()));
        let mut bash = Command::new("bash");
        let output = bash.current_dir(folder.path()).args(["-c", &script]).output().expect("bash starts");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(script("COMMAND a.json > /dev/full 2> /dev/null; echo $?"), "5\n");
    assert_eq!(script("COMMAND --emit a.json > /dev/full 2> /dev/null; echo $?"), "5\n");
    assert_eq!(script("COMMAND missing 2> /dev/full; echo $?"), "4\n");
    let closed = "exec 3>&1; { sleep 0.3; COMMAND missing 2>&1 >/dev/null; echo $? >&3; } | true";
    assert_eq!(script(closed), "4\n");
    assert_eq!(script("COMMAND a.json a.json >&-; echo $?"), "0\n");
}

#[test]
fn a_pipe_that_closes_early_is_no_error() {
    let lines = "[ ]\n".repeat(40_000);
    let folder = folder(&[("a.jsonl", lines.as_bytes())]);
    let command = assert_cmd::cargo::cargo_bin!("canon-digest");
    let script = format!("'{}' --jsonl --emit a.jsonl | head -1; echo ${{PIPESTATUS[0]}}", command.display());
    let mut bash = Command::new("bash");
    let output = bash.current_dir(folder.path()).args(["-c", &script]).output().expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n0\n");
}

/// An endless input ends with whoever reads what comes of it, or with the disk.
#[test]
fn an_endless_input_does_not_outlive_its_reader() {
    for (arguments, reader, code) in [
        ("--jsonl --emit", "| head -1 > /dev/null", "0"),
        ("--jsonl --records", "| head -1 > /dev/null", "0"),
        ("--jsonl --records", "> /dev/full", "5"),
        ("--jsonl --emit", "> /dev/full", "5"),
    ] {
        let command = assert_cmd::cargo::cargo_bin!("canon-digest");
        let script = format!(
            "yes 1 | '{}' {arguments} 2> /dev/null {reader}; echo ${{PIPESTATUS[1]}}",
            command.display()
        );
        let mut bash = Command::new("bash");
        let output = bash.timeout(std::time::Duration::from_secs(60)).args(["-c", &script]).output();
        let output = output.expect("bash starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), code, "{arguments} {reader}");
    }
}
