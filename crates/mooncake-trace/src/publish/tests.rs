use super::*;
use crate::{Slicer, Window, slice_file};

const ROW: &str = r#"{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}"#;

/// A directory with a trace of two rows.
struct Bench {
    directory: tempfile::TempDir,
    trace: PathBuf,
    out: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace.jsonl");
        fs::write(&trace, format!("{ROW}\n{ROW}\n")).unwrap();
        let out = directory.path().join("window.jsonl");
        Bench { directory, trace, out }
    }

    fn slice(&self, offset: u64, count: u64, replace: bool) -> Result<SliceManifest, String> {
        let slicer = Slicer::new(Window::new(offset, count).unwrap()).replace(replace);
        slicer.slice_file(&self.trace, &self.out).map_err(|error| error.to_string())
    }

    /// Every file that is there, by name.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn manifest(&self) -> SliceManifest {
        SliceManifest::from_json(&fs::read(manifest_path(&self.out)).unwrap()).unwrap()
    }
}

#[test]
fn both_files_are_there_at_the_end_and_nothing_else() {
    let bench = Bench::new();
    let manifest = slice_file(&bench.trace, &Window::new(1, 1).unwrap(), &bench.out).unwrap();
    assert_eq!(fs::read_to_string(&bench.out).unwrap(), format!("{ROW}\n"));
    assert_eq!(bench.manifest(), manifest);
    assert_eq!(bench.files(), ["trace.jsonl", "window.jsonl", "window.jsonl.manifest.json"]);
}

#[test]
fn new_files_have_ordinary_permissions() {
    let bench = Bench::new();
    let _ = bench.slice(0, 1, false).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    // Whatever the mask of this process is, the trace was created under it too.
    assert_eq!(mode(&bench.out), mode(&bench.trace));
    assert_eq!(mode(&manifest_path(&bench.out)), mode(&bench.trace));
}

#[test]
fn nothing_is_left_after_an_error() {
    let bench = Bench::new();
    assert_eq!(
        bench.slice(0, 3, false).unwrap_err(),
        "the trace has 2 rows, and the window ends after row 3"
    );
    assert_eq!(bench.files(), ["trace.jsonl"]);
    fs::write(&bench.trace, format!("{ROW}\n{{}}\n")).unwrap();
    let error = bench.slice(0, 1, false).unwrap_err();
    assert!(error.starts_with(&format!("{}:2:2: /timestamp: ", bench.trace.display())), "{error}");
    assert_eq!(bench.files(), ["trace.jsonl"]);
}

#[test]
fn existing_files_are_kept_unless_asked() {
    for existing in ["window.jsonl", "window.jsonl.manifest.json"] {
        let bench = Bench::new();
        let path = bench.directory.path().join(existing);
        fs::write(&path, "mine").unwrap();
        assert_eq!(bench.slice(0, 1, false).unwrap_err(), format!("{} exists already", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(bench.files().len(), 2);
        let _ = bench.slice(0, 1, true).unwrap();
        assert_eq!(fs::read_to_string(&bench.out).unwrap(), format!("{ROW}\n"));
    }
}

#[test]
fn a_failed_replacement_keeps_the_old_pair() {
    let bench = Bench::new();
    let old = bench.slice(0, 1, false).unwrap();
    bench.slice(0, 3, true).unwrap_err();
    assert_eq!(bench.manifest(), old);
    let new = bench.slice(0, 2, true).unwrap();
    assert_eq!(bench.manifest(), new);
}

#[test]
fn the_trace_is_never_replaced() {
    let bench = Bench::new();
    let before = fs::read(&bench.trace).unwrap();
    let slicer = Slicer::new(Window::new(0, 1).unwrap()).replace(true);
    let hard_link = bench.directory.path().join("link.jsonl");
    fs::hard_link(&bench.trace, &hard_link).unwrap();
    for out in [&bench.trace, &hard_link] {
        let error = slicer.slice_file(&bench.trace, out).unwrap_err();
        assert!(matches!(error, SliceError::OutputIsTrace { .. }), "{error}");
    }
    assert_eq!(fs::read(&bench.trace).unwrap(), before);
}

#[test]
fn only_regular_files_are_replaced() {
    let bench = Bench::new();
    let link = bench.directory.path().join("link");
    std::os::unix::fs::symlink(&bench.out, &link).unwrap();
    let slicer = Slicer::new(Window::new(0, 1).unwrap()).replace(true);
    for out in [Path::new("/dev/full"), bench.directory.path(), &link] {
        let error = slicer.slice_file(&bench.trace, out).unwrap_err();
        assert!(matches!(error, SliceError::OutputNotRegular { .. }), "{error}");
    }
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let bench = Bench::new();
    let window = Window::new(0, 1).unwrap();
    let missing = bench.directory.path().join("missing");
    let error = slice_file(&missing, &window, &bench.out).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot open the trace {}", missing.display()));
    let error = slice_file(&bench.trace, &window, &missing.join("out")).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot create {}", missing.join("out").display()));
    let error = slice_file(bench.directory.path(), &window, &bench.out).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the trace after line 0");
    assert_eq!(bench.files(), ["trace.jsonl"]);
}

#[test]
fn a_trace_that_changes_under_the_reader_is_noticed() {
    let bench = Bench::new();
    fs::write(&bench.trace, format!("{ROW}\n").repeat(5_000)).unwrap();
    let grow = || {
        let mut trace = fs::OpenOptions::new().append(true).open(&bench.trace).unwrap();
        trace.write_all(format!("{ROW}\n").as_bytes()).unwrap();
        false
    };
    let slicer = Slicer::new(Window::new(0, 1).unwrap()).stop_when(&grow);
    let error = slicer.slice_file(&bench.trace, &bench.out).unwrap_err();
    assert!(matches!(error, SliceError::SourceChanged { .. }), "{error}");
    assert_eq!(bench.files(), ["trace.jsonl"]);
}

#[test]
fn a_directory_that_appears_late_loses_nothing() {
    let bench = Bench::new();
    let appear = || {
        fs::create_dir_all(manifest_path(&bench.out)).unwrap();
        false
    };
    let slicer = Slicer::new(Window::new(0, 1).unwrap()).stop_when(&appear);
    slicer.slice_file(&bench.trace, &bench.out).unwrap_err();
    assert_eq!(bench.files(), ["trace.jsonl", "window.jsonl.manifest.json"], "no slice without its manifest");
}
