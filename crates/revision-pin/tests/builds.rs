//! Real builds of tiny packages, without a network.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fixture;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_placement::{CancelToken, NodeLock, Output, Run};
use fixture::{Fixture, builder, environment_with, package, recipe, snapshot};
use revision_pin::{
    BuildError, BuildRecord, Builder, Built, Checkout, FolderError, Missing, Patch, Recipe, RecipeError,
    Target, TargetKind, remove,
};

fn build(builder: &Builder, checkout: &Checkout, fixture: &Fixture, name: &str) -> Result<Built, BuildError> {
    builder.build(checkout, &fixture.work(name), &fixture.work(&format!("artifacts/{name}")), None)
}

fn run(program: &Path) -> String {
    let out = tempfile::tempdir().unwrap();
    let stdout = out.path().join("stdout");
    let finished = Run::new(program).stdout(Output::File(stdout.clone())).wait(&CancelToken::new()).unwrap();
    assert!(finished.outcome.is_success());
    fs::read_to_string(stdout).unwrap()
}

/// Two trees are checked out before either is built, and differ in one constant of a package with a path. With one
/// target directory, cargo would hand out the first one's binary for both.
#[test]
fn two_trees_give_two_artifacts_and_one_tree_gives_one() {
    let fixture = Fixture::new();
    let first = fixture.commit_package(&package("3"));
    let second = fixture.commit(&[("dep/src/lib.rs", &package("4").pop().unwrap().1)]);
    let baseline = fixture.checkout(first, "baseline");
    let candidate = fixture.checkout(second, "candidate");
    let again = fixture.checkout(first, "a/folder/with a much longer name, and spaces");
    let builder = builder(recipe(), &fixture);
    let baseline = build(&builder, &baseline, &fixture, "build-baseline").unwrap();
    let candidate = build(&builder, &candidate, &fixture, "build-candidate").unwrap();
    let again = build(&builder, &again, &fixture, "deep/er/build again").unwrap();

    let compared = baseline.record.compare(&candidate.record);
    assert!(!compared.same_artifact && !compared.same_source && !compared.is_suspicious(), "{compared:?}");
    assert!(compared.same_toolchain && compared.same_settings, "{compared:?}");
    let compared = baseline.record.compare(&again.record);
    assert!(
        compared.same_artifact && compared.same_source && !compared.is_nondeterministic(),
        "{compared:?}"
    );
    assert_eq!((compared.size_growth_ppm, compared.text_growth_ppm), (0, 0));
    assert_eq!(run(&baseline.artifact), "6 true\n", "the flags of the repository's own configuration hold");
    assert_eq!(run(&candidate.artifact), "8 true\n");
    assert_eq!(fs::read(&baseline.artifact).unwrap(), fs::read(&again.artifact).unwrap());

    check_record(&fixture, &baseline.record);
    baseline.record.artifact.check(&baseline.artifact).unwrap();
    assert_eq!(fs::metadata(&baseline.artifact).unwrap().permissions().mode() & 0o777, 0o755);
    remove(&fixture.work("build-baseline")).unwrap();
    assert!(!fixture.work("build-baseline").exists());
}

fn check_record(fixture: &Fixture, record: &BuildRecord) {
    let json = serde_json::to_string(record).unwrap();
    assert_eq!(&serde_json::from_str::<BuildRecord>(&json).unwrap(), record);
    assert!(!json.contains(&*fixture.top.path().to_string_lossy()), "a host path in {json}");
    assert!(!json.contains(&std::env::var("HOME").unwrap()), "a host path in {json}");
    assert_eq!(
        record.command.join(" "),
        "cargo build --release -p tiny --no-default-features --features needed --bin tiny --message-format \
         json-render-diagnostics --locked --offline --jobs 1"
    );
    assert_eq!((record.features.join(","), record.package_version.as_str()), ("needed".to_owned(), "0.1.0"));
    assert!(record.toolchain.rustc[0].starts_with("rustc 1."), "{:?}", record.toolchain);
    assert!(record.toolchain.rustc.iter().any(|line| line.starts_with("host: ")));
    assert!(record.toolchain.cargo.starts_with("cargo 1."));
    assert_eq!(record.config_files[0].name, "{checkout}/.cargo/config.toml");
    assert_eq!(record.environment["CARGO_TARGET_DIR"], "{target}");
    assert_eq!(record.environment["CARGO_BUILD_BUILD_DIR"], "{target}");
    assert_eq!(record.environment["RUSTC_WRAPPER"], "{folder}/rustc-wrapper");
    let mapping = record.path_mapping.as_ref().unwrap();
    assert!(mapping.prefixes.contains(&("{checkout}".to_owned(), "/source".to_owned())), "{mapping:?}");
    assert!(record.artifact.host_paths.is_empty() && record.changed_sources.is_empty(), "{record:?}");
    assert!(record.artifact.text_bytes > 0 && record.artifact.text_bytes < record.artifact.bytes);
    assert_eq!((record.seeded, record.units.compiled, record.units.reused), (None, 3, 0));
    assert!(record.lockfile_sha256.is_some() && record.wall_ns > 0 && record.cpu_ns > 0);
}

#[test]
fn without_the_mapping_the_bytes_depend_on_the_folder_and_the_record_says_so() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let builder = builder(Recipe { remap: false, ..recipe() }, &fixture);
    let one = build(&builder, &fixture.checkout(id, "one"), &fixture, "build-one").unwrap();
    let two = build(&builder, &fixture.checkout(id, "number-two"), &fixture, "build-two").unwrap();
    assert_ne!(one.record.artifact.sha256, two.record.artifact.sha256);
    assert!(one.record.compare(&two.record).is_nondeterministic());
    assert!(one.record.artifact.host_paths.contains_key("{checkout}"), "{:?}", one.record.artifact);
    assert_eq!(one.record.path_mapping, None);
    assert!(one.record.notes.iter().any(|note| note.contains("host paths")), "{:?}", one.record.notes);
}

#[test]
fn equal_artifacts_of_different_trees_are_a_fact_to_stop_on() {
    let fixture = Fixture::new();
    let first = fixture.commit_package(&package("3"));
    let second = fixture.commit(&[("README", "only this\n")]);
    let builder = builder(recipe(), &fixture);
    let one = build(&builder, &fixture.checkout(first, "one"), &fixture, "build-one").unwrap();
    let two = build(&builder, &fixture.checkout(second, "two"), &fixture, "build-two").unwrap();
    let compared = one.record.compare(&two.record);
    assert!(compared.same_artifact && !compared.same_source && compared.is_suspicious(), "{compared:?}");
}

/// The version of a package in this workspace's own lock, so that it is in the registry's cache already.
fn locked(name: &str) -> (String, String) {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock: toml::Table = fs::read_to_string(lock).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let found = packages.iter().find(|package| package["name"].as_str() == Some(name)).unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("version"), text("checksum"))
}

/// The tiny package with two dependencies of the real registry, one of which has a build script.
fn package_with_registry(constant: &str) -> Vec<(&'static str, String)> {
    let mut files: BTreeMap<&'static str, String> = package(constant).into_iter().collect();
    let (itoa, itoa_sum) = locked("itoa");
    let (anyhow, anyhow_sum) = locked("anyhow");
    let manifest = files["Cargo.toml"].replace(
        "[dependencies]\n",
        &format!("[dependencies]\nitoa = \"={itoa}\"\nanyhow = \"={anyhow}\"\n"),
    );
    files.insert("Cargo.toml", manifest);
    let source = "registry+https://github.com/rust-lang/crates.io-index";
    let entry = |name: &str, version: &str, sum: &str| {
        format!(
            "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\"\nchecksum = \"{sum}\"\n\n"
        )
    };
    let lock = files["Cargo.lock"].replace(
        "version = 4\n\n",
        &format!(
            "version = 4\n\n{}{}",
            entry("anyhow", &anyhow, &anyhow_sum),
            entry("itoa", &itoa, &itoa_sum)
        ),
    );
    files.insert("Cargo.lock", lock.replace(" \"tinydep\",", " \"anyhow\",\n \"itoa\",\n \"tinydep\","));
    let main = files["src/main.rs"]
        .replace(
            "fn main() {",
            "fn main() -> anyhow::Result<()> {\n    anyhow::ensure!(std::env::args().count() < 9, \"many\");",
        )
        .replace(
            "tinydep::weight(made::made(n))",
            "itoa::Buffer::new().format(tinydep::weight(made::made(n)))",
        );
    files.insert("src/main.rs", main.trim_end().trim_end_matches('}').to_owned() + "    Ok(())\n}\n");
    files.into_iter().collect()
}

#[test]
fn a_build_starts_from_compiled_registry_packages_and_from_nothing_else() {
    let fixture = Fixture::new();
    let first = fixture.commit_package(&package_with_registry("3"));
    let second = fixture.commit(&[("dep/src/lib.rs", &package("4").pop().unwrap().1)]);
    let (one, two) = (fixture.checkout(first, "one"), fixture.checkout(second, "two"));
    let builder = builder(recipe(), &fixture);
    let unseeded = build(&builder, &one, &fixture, "build-one").unwrap();
    let seed = fixture.work("build-one");
    let from = |checkout: &Checkout, name: &str| {
        let artifact = fixture.work(&format!("artifacts/{name}"));
        builder.build(checkout, &fixture.work(name), &artifact, Some(&seed)).unwrap()
    };
    let seeded = from(&two, "build-two");
    let units = seeded.record.units;
    // itoa; anyhow, its build script, and the script's run is no unit. The package, its script and its path dependency.
    assert_eq!((units.reused, units.compiled), (3, 3), "{units:?}");
    let copied = seeded.record.seeded.unwrap();
    assert!(copied.units == 4 && copied.files > 8 && copied.bytes > 10_000, "{copied:?}");
    assert_eq!(
        (run(&unseeded.artifact), run(&seeded.artifact)),
        ("6 true\n".to_owned(), "8 true\n".to_owned())
    );

    // Seeding changes no byte, and a seeded build can be a seed.
    let again = from(&one, "build-again");
    assert_eq!(again.record.artifact.sha256, unseeded.record.artifact.sha256);
    let chained = fixture.checkout(second, "three");
    let artifact = fixture.work("artifacts/build-three");
    let chained = builder
        .build(&chained, &fixture.work("build-three"), &artifact, Some(&fixture.work("build-two")))
        .unwrap();
    assert_eq!(chained.record.units.reused, 3);
    assert_eq!(chained.record.artifact.sha256, seeded.record.artifact.sha256);
    let missing = builder.build(&one, &fixture.work("build-x"), &artifact, Some(&fixture.work("none")));
    assert!(matches!(missing, Err(BuildError::Io { .. })), "{missing:?}");
}

#[test]
fn a_package_vendored_into_the_repository_is_never_reused() {
    let fixture = Fixture::new();
    let mut files = package("3");
    files.push((
        "vendor/tinyreg/Cargo.toml",
        "[package]\nname = \"tinyreg\"\nversion = \"0.1.0\"\nedition = \"2024\"\n".to_owned(),
    ));
    files.push(("vendor/tinyreg/src/lib.rs", "pub fn one() -> usize { 1 }\n".to_owned()));
    let sum = "0".repeat(64);
    files.push(("vendor/tinyreg/.cargo-checksum.json", format!("{{\"files\":{{}},\"package\":\"{sum}\"}}")));
    let edit = |files: &mut Vec<(&'static str, String)>, path: &str, change: &dyn Fn(&str) -> String| {
        let file = files.iter_mut().find(|(name, _)| *name == path).unwrap();
        file.1 = change(&file.1);
    };
    edit(&mut files, "Cargo.toml", &|text| {
        text.replace("[dependencies]\n", "[dependencies]\ntinyreg = \"=0.1.0\"\n")
    });
    edit(&mut files, ".cargo/config.toml", &|text| {
        format!(
            "{text}\n[source.crates-io]\nreplace-with = \"vendored\"\n\n[source.vendored]\ndirectory = \"vendor\"\n"
        )
    });
    edit(&mut files, "Cargo.lock", &|text| {
        text.replace(" \"tinydep\",\n", " \"tinydep\",\n \"tinyreg\",\n")
            + &format!(
                "\n[[package]]\nname = \"tinyreg\"\nversion = \"0.1.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{sum}\"\n"
            )
    });
    let id = fixture.commit_package(&files);
    let builder = builder(recipe(), &fixture);
    let one = build(&builder, &fixture.checkout(id, "one"), &fixture, "build-one").unwrap();
    assert_eq!(one.record.seeded, None);
    let artifact = fixture.work("artifacts/two");
    let two = builder.build(
        &fixture.checkout(id, "two"),
        &fixture.work("build-two"),
        &artifact,
        Some(&fixture.work("build-one")),
    );
    let record = two.unwrap().record;
    assert_eq!(record.seeded.unwrap().units, 0);
    assert_eq!(record.units.reused, 0);
}

/// What a user's shell has set must not shape the artifact; what it was is named.
#[test]
fn the_callers_environment_does_not_reach_the_build() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let plain =
        build(&builder(recipe(), &fixture), &fixture.checkout(id, "plain"), &fixture, "build-plain").unwrap();
    let shell = [
        ("RUSTFLAGS", "--cfg from_the_shell -C opt-level=0"),
        ("CARGO_ENCODED_RUSTFLAGS", "-Copt-level=0"),
        ("CARGO_BUILD_TARGET", "wasm32-unknown-unknown"),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
        ("CARGO_TARGET_DIR", "/nowhere"),
        ("RUSTC_WRAPPER", "/nowhere/sccache"),
        ("RUSTC_WORKSPACE_WRAPPER", "/nowhere/clippy"),
        ("RUSTC", "/nowhere/rustc"),
    ];
    let noisy = builder(recipe(), &fixture).environment(environment_with(&shell));
    let noisy = build(&noisy, &fixture.checkout(id, "noisy"), &fixture, "build-noisy").unwrap();
    assert_eq!(noisy.record.artifact.sha256, plain.record.artifact.sha256);
    for (name, _) in shell.iter().filter(|(name, _)| !["CARGO_TARGET_DIR", "RUSTC_WRAPPER"].contains(name)) {
        assert!(noisy.record.environment_not_used.iter().any(|found| found == name), "{name}");
    }
    assert!(noisy.record.compare(&plain.record).same_settings);

    // A recipe may ask for the very thing, and then the record warns.
    let mut asked = recipe();
    asked.env.insert("RUSTFLAGS".to_owned(), "-C debug-assertions=on".to_owned());
    let asked =
        build(&builder(asked, &fixture), &fixture.checkout(id, "asked"), &fixture, "build-asked").unwrap();
    assert_eq!(run(&asked.artifact), "6 false\n", "cargo let RUSTFLAGS replace the repository's own flags");
    assert!(asked.record.notes.iter().any(|note| note.starts_with("RUSTFLAGS")), "{:?}", asked.record.notes);
}

/// A build directory set by a configuration file would be shared by all revisions, whatever their target directories.
#[test]
fn directories_and_wrappers_of_configuration_files_are_overridden() {
    let fixture = Fixture::new();
    let shared = fixture.top.path().join("shared");
    let mut files = package("3");
    let config = format!(
        "[build]\nbuild-dir = \"{0}/build\"\ntarget-dir = \"{0}/target\"\nrustc-wrapper = \"/nowhere/sccache\"\n",
        shared.display()
    );
    files.retain(|(path, _)| *path != ".cargo/config.toml");
    files.push((".cargo/config.toml", config));
    let first = fixture.commit_package(&files);
    let second = fixture.commit(&[("dep/src/lib.rs", &package("4").pop().unwrap().1)]);
    let (one, two) = (fixture.checkout(first, "one"), fixture.checkout(second, "two"));
    let builder = builder(recipe(), &fixture);
    let one = build(&builder, &one, &fixture, "build-one").unwrap();
    let two = build(&builder, &two, &fixture, "build-two").unwrap();
    assert_eq!((run(&one.artifact), run(&two.artifact)), ("6 false\n".to_owned(), "8 false\n".to_owned()));
    assert!(!shared.exists());
    assert_eq!(one.record.notes.len(), 3, "{:?}", one.record.notes);
}

#[test]
fn a_patch_is_built_and_recorded_and_no_part_of_the_revision() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let patch = "diff --git a/dep/src/lib.rs b/dep/src/lib.rs\n--- a/dep/src/lib.rs\n+++ b/dep/src/lib.rs\n@@ -2 +2 @@\n\
                 -    n.checked_mul(3).unwrap()\n+    n.checked_mul(5).unwrap()\n";
    let mut checkout = fixture.checkout(id, "patched");
    let applied = checkout.apply(&Patch::new("five.patch", patch.into())).unwrap();
    let builder = builder(recipe(), &fixture);
    let patched = build(&builder, &checkout, &fixture, "build-patched").unwrap();
    assert_eq!(run(&patched.artifact), "10 true\n");
    assert_eq!(patched.record.patches, [applied]);
    assert_eq!(patched.record.changed_sources, Vec::<String>::new());
    assert_eq!(patched.record.revision.commit, id);
    let plain = build(&builder, &fixture.checkout(id, "plain"), &fixture, "build-plain").unwrap();
    assert!(!plain.record.compare(&patched.record).same_source);
}

#[test]
fn what_the_revision_no_longer_has_is_named_and_nothing_is_built() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let checkout = fixture.checkout(id, "checkout");
    let with = |change: &dyn Fn(&mut Recipe)| {
        let mut recipe = recipe();
        change(&mut recipe);
        let builder = builder(recipe, &fixture);
        let checked = builder.check(&checkout, &fixture.work("check")).unwrap_err();
        assert!(!fixture.work("check").exists());
        let built = build(&builder, &checkout, &fixture, "build").unwrap_err();
        assert_eq!(built.to_string(), checked.to_string());
        assert!(!fixture.work("build/target").exists() && !fixture.work("artifacts/build").exists());
        remove(&fixture.work("build")).unwrap();
        match built {
            BuildError::ProtocolNeedsUpdating(error) => error.missing,
            other => panic!("{other}"),
        }
    };
    let missing = with(&|recipe| recipe.features.push("neded".to_owned()));
    assert_eq!(missing, [Missing::Feature { name: "neded".to_owned(), nearest: Some("needed".to_owned()) }]);
    let missing = with(&|recipe| recipe.features = vec!["loud".to_owned()]);
    assert_eq!(
        missing,
        [Missing::RequiredFeature { target: "tiny".to_owned(), feature: "needed".to_owned() }]
    );
    let missing = with(&|recipe| recipe.target = Target { kind: TargetKind::Bench, name: "tiny".to_owned() });
    assert!(matches!(missing[..], [Missing::Target { kind: TargetKind::Bench, .. }]));
    let missing = with(&|recipe| recipe.package = "tinny".to_owned());
    assert!(matches!(missing[..], [Missing::Package { .. }]));
    builder(recipe(), &fixture).check(&checkout, &fixture.work("check")).unwrap();
    let all = Recipe { features: vec!["all-features".to_owned()], ..recipe() };
    assert!(matches!(Builder::new(all), Err(RecipeError::AllFeatures(_))));
}

#[test]
fn a_build_that_cannot_start_says_why() {
    let fixture = Fixture::new();
    let mut files = package("3");
    files.retain(|(path, _)| *path != "Cargo.lock");
    let id = fixture.commit_package(&files);
    let checkout = fixture.checkout(id, "checkout");
    let error = |builder: &Builder, name: &str| build(builder, &checkout, &fixture, name).unwrap_err();

    assert!(matches!(error(&builder(recipe(), &fixture), "unlocked"), BuildError::NoLockfile { .. }));
    let greedy = builder(recipe(), &fixture).free_bytes(u64::MAX);
    match error(&greedy, "greedy") {
        BuildError::DiskSpace { need_bytes, have_bytes, .. } => {
            assert!(need_bytes == u64::MAX && have_bytes > 0)
        }
        other => panic!("{other}"),
    }
    let no_cargo = builder(recipe(), &fixture).cargo("/nowhere/cargo");
    assert!(matches!(error(&no_cargo, "no-cargo"), BuildError::Spawn { .. }));
    let no_path = builder(recipe(), &fixture).environment([("HOME", "/nowhere")].into_iter().collect());
    assert!(matches!(error(&no_path, "no-path"), BuildError::Spawn { .. }));
    assert!(
        matches!(error(&greedy, "greedy"), BuildError::Folder(FolderError::Exists { .. })),
        "a folder is used once"
    );
    let token = CancelToken::new();
    token.cancel();
    let cancelled = builder(recipe(), &fixture).cancel(token);
    assert!(matches!(error(&cancelled, "cancelled"), BuildError::Cancelled { .. }));
    for name in ["unlocked", "greedy", "no-cargo", "no-path", "cancelled"] {
        remove(&fixture.work(name)).unwrap();
    }
}

#[test]
fn a_build_that_fails_gives_the_first_error_and_the_log() {
    let fixture = Fixture::new();
    let mut files = package("3");
    files.push(("src/main.rs", "fn main() { let x: u8 = \"text\"; }\n".to_owned()));
    let id = fixture.commit_package(&files);
    let checkout = fixture.checkout(id, "checkout");
    let error = build(&builder(recipe(), &fixture), &checkout, &fixture, "build").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("build {id}: `cargo build` exited with 101: error[E0308]: mismatched types")
    );
    let BuildError::Failed { log, .. } = error else { panic!("{error}") };
    assert!(fs::read_to_string(log).unwrap().contains("mismatched types"));
    assert!(!fixture.work("artifacts/build").exists());

    let broken = fixture.commit(&[("Cargo.toml", "not a manifest\n")]);
    let checkout = fixture.checkout(broken, "broken");
    let error = build(&builder(recipe(), &fixture), &checkout, &fixture, "build-broken").unwrap_err();
    assert!(error.to_string().contains("`cargo metadata` exited with 101: error"), "{error}");
}

/// A package whose build script sleeps, after writing its process id where the test finds it.
fn sleeping(fixture: &Fixture) -> (Checkout, PathBuf) {
    let pid = fixture.top.path().join("pid");
    let script = format!(
        "fn main() {{\n    std::fs::write({:?}, std::process::id().to_string()).unwrap();\n    \
         std::thread::sleep(std::time::Duration::from_secs(600));\n}}\n",
        pid.display()
    );
    let mut files = package("3");
    files.push(("build.rs", script));
    let id = fixture.commit_package(&files);
    (fixture.checkout(id, "checkout"), pid)
}

fn assert_gone(pid: &Path) {
    let pid = fs::read_to_string(pid).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "process {pid} is still there: {stat}");
}

#[test]
fn a_build_that_hangs_is_stopped_with_everything_it_started() {
    let fixture = Fixture::new();
    let (checkout, pid) = sleeping(&fixture);
    let limited = builder(recipe(), &fixture).time_limit(Duration::from_secs(8));
    let error = build(&limited, &checkout, &fixture, "build").unwrap_err();
    assert!(matches!(error, BuildError::TimedOut { .. }), "{error}");
    // On a slow machine the limit may come before the build script; the second half does not depend on that.
    if pid.exists() {
        assert_gone(&pid);
        fs::remove_file(&pid).unwrap();
    }
    let token = CancelToken::new();
    let cancelled = builder(recipe(), &fixture).cancel(token.clone());
    let watched = pid.clone();
    let canceller = std::thread::spawn(move || {
        while !watched.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        token.cancel();
    });
    let error = build(&cancelled, &checkout, &fixture, "build-cancelled").unwrap_err();
    canceller.join().unwrap();
    assert!(matches!(error, BuildError::Cancelled { .. }), "{error}");
    assert_gone(&pid);
}

#[test]
fn a_build_waits_while_a_measurement_holds_the_node() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let checkout = fixture.checkout(id, "checkout");
    let token = CancelToken::new();
    let builder = builder(recipe(), &fixture).cancel(token.clone());
    let held =
        NodeLock::exclusive(&fixture.top.path().join("locks"), "a measurement", &CancelToken::new()).unwrap();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        token.cancel();
    });
    let started = Instant::now();
    let error = build(&builder, &checkout, &fixture, "build").unwrap_err();
    assert!(matches!(error, BuildError::Cancelled { .. }), "{error}");
    assert!(started.elapsed() > Duration::from_secs(2));
    assert!(!fixture.work("build/target").exists(), "cargo was started while the node was held");
    canceller.join().unwrap();
    drop(held);
}

#[test]
fn a_build_that_changes_its_sources_is_recorded() {
    let fixture = Fixture::new();
    let mut files = package("3");
    let script = files.iter_mut().find(|(path, _)| *path == "build.rs").unwrap();
    script.1 = script
        .1
        .replace("fn main() {", "fn main() {\n    std::fs::write(\"generated.txt\", \"x\").unwrap();");
    let id = fixture.commit_package(&files);
    let built =
        build(&builder(recipe(), &fixture), &fixture.checkout(id, "checkout"), &fixture, "build").unwrap();
    assert_eq!(built.record.changed_sources, ["generated.txt"]);
}

/// `env!("CARGO_MANIFEST_DIR")` is text to rustc, not a path, so no mapping reaches it.
#[test]
fn a_path_that_cannot_be_mapped_is_counted() {
    let fixture = Fixture::new();
    let mut files = package("3");
    files.push(("src/main.rs", "fn main() { println!(env!(\"CARGO_MANIFEST_DIR\")); }\n".to_owned()));
    let id = fixture.commit_package(&files);
    let built =
        build(&builder(recipe(), &fixture), &fixture.checkout(id, "checkout"), &fixture, "build").unwrap();
    assert_eq!(built.record.artifact.host_paths.keys().collect::<Vec<_>>(), ["{checkout}"]);
}

#[test]
fn the_users_repository_is_not_touched_by_a_build() {
    let fixture = Fixture::new();
    let id = fixture.commit_package(&package("3"));
    let before = snapshot(&fixture.user());
    let built = build(&builder(recipe(), &fixture), &fixture.checkout(id, "checkout"), &fixture, "build");
    assert!(built.is_ok());
    assert_eq!(snapshot(&fixture.user()), before);
}

#[test]
fn an_artifact_is_taken_over_only_where_everything_that_shapes_it_is_the_same() {
    let fixture = Fixture::new();
    let first = fixture.commit_package(&package("3"));
    let second = fixture.commit(&[("dep/src/lib.rs", &package("4").pop().unwrap().1)]);
    let store = fixture.work("store");
    let stored = |recipe| builder(recipe, &fixture).store(Some(store.clone()));
    let one = build(&stored(recipe()), &fixture.checkout(first, "one"), &fixture, "build-one").unwrap();
    assert!(!one.record.taken_over);

    let again = build(&stored(recipe()), &fixture.checkout(first, "two"), &fixture, "build-two").unwrap();
    assert!(again.record.taken_over && !fixture.work("build-two/target").exists());
    assert_eq!(
        (&again.record.artifact.sha256, run(&again.artifact)),
        (&one.record.artifact.sha256, run(&one.artifact))
    );
    let said = |name: &str| fs::read(fixture.work(name).join(revision_pin::BUILD_LOG)).unwrap();
    assert_eq!(said("build-two"), said("build-one"));

    let other =
        build(&stored(recipe()), &fixture.checkout(second, "three"), &fixture, "build-three").unwrap();
    let mut flags = recipe();
    flags.env.insert("RUSTFLAGS".to_owned(), "-C opt-level=1".to_owned());
    let flagged = build(&stored(flags), &fixture.checkout(first, "four"), &fixture, "build-four").unwrap();
    assert!(!other.record.taken_over && !flagged.record.taken_over);

    for entry in fs::read_dir(&store).unwrap() {
        fs::write(entry.unwrap().path().join("artifact"), "something else").unwrap();
    }
    let changed = build(&stored(recipe()), &fixture.checkout(first, "five"), &fixture, "build-five");
    assert!(matches!(changed, Err(BuildError::Artifact(_))), "{changed:?}");
}
