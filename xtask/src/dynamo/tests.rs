use super::*;

fn arguments(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn arguments_are_read() {
    let request = Request::parse(&arguments("--out there 1.5.0 1.6.1-rc.1")).unwrap().unwrap();
    let versions = ["1.5.0", "1.6.1-rc.1"].map(str::to_owned).to_vec();
    assert_eq!(request, Request { out: PathBuf::from("there"), versions });
    assert_eq!(Request::parse(&arguments("--out there --help")).unwrap(), None);
}

#[test]
fn wrong_arguments_are_named() {
    let cases = [
        ("1.5.1", "--out DIR is missing"),
        ("--out", "--out needs a directory"),
        ("--out there", "no VERSION is given"),
        ("--out there v1.5.1", "\"v1.5.1\" is not a published version"),
        ("--out there 1.5", "\"1.5\" is not a published version"),
        ("--out there 1.5.1\"}", "is not a published version"),
        ("--out there 1.5.1 1.5.1", "version 1.5.1 is given twice"),
        ("--out there --all 1.5.1", "no such option --all"),
    ];
    for (text, expected) in cases {
        let error = format!("{:#}", Request::parse(&arguments(text)).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
    let unknown = run(&arguments("disassemble")).unwrap_err().to_string();
    assert!(unknown.contains("no such task `dynamo disassemble`"), "{unknown}");
}

#[test]
fn the_newest_version_is_newest_by_number() {
    let of = |versions: &[&str]| -> Vec<Assembled> {
        versions.iter().map(|v| Assembled { version: (*v).to_owned(), commit: String::new() }).collect()
    };
    assert_eq!(newest(&of(&["1.5.1", "1.10.0", "1.6.1"])), "1.10.0");
}

/// A directory for one test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xtask-dynamo-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn assemble(&self, out: &str, versions: &[&str]) -> Result<Vec<Assembled>> {
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        super::assemble(&Request { out: self.0.join(out), versions })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_directory_of_someone_else_is_not_touched() {
    let directory = Directory::new("foreign");
    std::fs::create_dir(directory.0.join("mine")).unwrap();
    let error = format!("{:#}", directory.assemble("mine", &["1.5.1"]).unwrap_err());
    assert!(error.contains("is not a repository made by this command"), "{error}");
    assert_eq!(std::fs::read_dir(directory.0.join("mine")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1);
}

/// Real crates; the network is needed where cargo has not fetched them before. The ids themselves are compared with
/// [`KNOWN`] in `assemble`, so every call that succeeds has given the ids every machine gets.
#[test]
fn the_same_ids_whatever_is_asked_for() {
    let directory = Directory::new("ids");
    let known = |version: &str| {
        KNOWN.iter().find(|(known, _)| *known == version).expect("its id is recorded").1.to_owned()
    };
    let ids = |assembled: Vec<Assembled>| -> Vec<_> {
        assembled.into_iter().map(|a| (a.version, a.commit)).collect()
    };
    let expect =
        |versions: &[&str]| -> Vec<_> { versions.iter().map(|v| ((*v).to_owned(), known(v))).collect() };

    assert_eq!(ids(directory.assemble("alone", &["1.5.1"]).unwrap()), expect(&["1.5.1"]));
    assert_eq!(ids(directory.assemble("alone", &["1.5.1"]).unwrap()), expect(&["1.5.1"]));
    assert_eq!(ids(directory.assemble("alone", &["1.6.1"]).unwrap()), expect(&["1.6.1"]));
    assert_eq!(ids(directory.assemble("both", &["1.5.1", "1.5.0"]).unwrap()), expect(&["1.5.1", "1.5.0"]));
    assert!(directory.0.join("both/lib/bench/offline_replay_bench.rs").is_file());
    for (version, patch) in [("1.5.0", "1.5"), ("1.5.1", "1.5"), ("1.6.1", "1.6")] {
        directory.assemble("all", &[version]).unwrap();
        let repository = directory.0.join("all");
        Repository::open(&repository).unwrap().unwrap().check_out(version).unwrap();
        let in_place = !said_of_patch(&repository, &format!("timing-boundary-{patch}")).contains("offset");
        assert!(in_place, "{version}: a hunk of the timing boundary moves");
        said_of_patch(&repository, "seeded-selection");
    }
    let left: Vec<_> =
        std::fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// What git says of a patch that applies to the tree that is checked out.
fn said_of_patch(repository: &Path, name: &str) -> String {
    let patch = crate::process::root().join(format!("testdata/patches/{name}.patch"));
    let mut git = std::process::Command::new("git");
    let output =
        git.args(["apply", "--check", "--verbose"]).arg(patch).current_dir(repository).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {said}");
    said
}

#[test]
fn a_version_that_was_never_published_is_an_error_and_leaves_nothing() {
    let directory = Directory::new("unpublished");
    let error = format!("{:#}", directory.assemble("out", &["1.5.999"]).unwrap_err());
    assert!(error.contains("cannot assemble Dynamo 1.5.999"), "{error}");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
}
