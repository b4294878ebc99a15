//! `cargo xtask tidy`: the rules no compiler checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{Stop, root};

/// The crates in the order of the one direction: each may depend only on crates of an earlier layer, or of its own
/// layer when listed before it.
const LAYERS: [&[&str]; 5] = [
    &["canonical-json", "command-line", "cpu-placement", "paired-stats", "master-wire"],
    &["mooncake-trace", "evidence", "revision-pin", "master-replay"],
    &["paired-run"],
    &["parity-campaign"],
    &["testkit"],
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(unknown) = args.first() {
        return Err(Stop::usage(format!("tidy takes no argument, found {unknown:?}")));
    }
    let mut faults = Vec::new();
    for folder in packages()? {
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        check_manifest(&folder, &manifest, &mut faults);
        check_direction(&folder, &manifest, &mut faults);
    }
    check_protocol(&mut faults)?;
    if faults.is_empty() {
        eprintln!("xtask: tidy found nothing");
        return Ok(());
    }
    bail!("tidy:\n  {}", faults.join("\n  "))
}

fn packages() -> Result<Vec<PathBuf>> {
    let mut found = vec![root().join("xtask")];
    for group in ["crates", "bins"] {
        let folder = root().join(group);
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            found.push(entry?.path());
        }
    }
    found.retain(|path| path.join("Cargo.toml").is_file());
    found.sort();
    Ok(found)
}

fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn check_manifest(folder: &Path, manifest: &str, faults: &mut Vec<String>) {
    let name = name(folder);
    for (line, why) in [
        (format!("name = \"{name}\""), "a folder and its package share one name"),
        ("[lints]\nworkspace = true".to_owned(), "every package inherits the workspace lints"),
        ("license.workspace = true".to_owned(), "every package inherits the licence"),
    ] {
        if !manifest.contains(&line) {
            faults.push(format!("{name}/Cargo.toml lacks {line:?}: {why}"));
        }
    }
    if folder.parent().is_some_and(|parent| parent.ends_with("crates")) && !folder.join("README.md").is_file()
    {
        faults.push(format!("crates/{name} has no README.md"));
    }
}

/// The workspace packages named under `[dependencies]`; tests may look anywhere.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let known: BTreeSet<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let is_dependencies = |part: &&str| {
        let header = part.lines().next().unwrap_or_default();
        header.ends_with("dependencies]") && !header.ends_with("dev-dependencies]")
    };
    let sections = manifest.split("\n[").filter(is_dependencies);
    let names =
        sections.flat_map(|section| section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()));
    names.filter(|name| known.contains(name)).collect()
}

fn check_direction(folder: &Path, manifest: &str, faults: &mut Vec<String>) {
    let name = name(folder);
    let order: Vec<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let is_library = folder.parent().is_some_and(|parent| parent.ends_with("crates"));
    let Some(own) = order.iter().position(|known| *known == name) else {
        if is_library {
            faults.push(format!("crates/{name} has no place in the one direction: add it to LAYERS"));
        }
        return;
    };
    for dependency in dependencies(manifest) {
        if order.iter().position(|known| *known == dependency).is_some_and(|other| other >= own) {
            faults.push(format!("{name} depends on {dependency}, against the one direction"));
        }
    }
}

/// Every test that docs/protocol.md names must exist.
fn check_protocol(faults: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(root().join("docs/protocol.md"))?;
    let mut sources = String::new();
    for folder in packages()? {
        gather(&folder, &mut sources)?;
    }
    let tests = tests_of(&sources);
    let missing = named_tests(&text).into_iter().filter(|name| !tests.contains(name));
    faults
        .extend(missing.map(|name| format!("docs/protocol.md names the test {name}, which does not exist")));
    Ok(())
}

/// The functions that are tests.
fn tests_of(sources: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in sources.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            tests.extend(rest.split('(').next().filter(|_| is_test));
            is_test = false;
        }
    }
    tests
}

/// What stands in backquotes in the last column and looks like a function.
fn named_tests(protocol: &str) -> BTreeSet<&str> {
    let rows = protocol.lines().filter(|line| line.starts_with("| "));
    let last_cells = rows.filter_map(|line| line.trim_end_matches('|').rsplit('|').next());
    let quoted = last_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let is_name = |word: &&str| {
        word.len() > 2
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    quoted.filter(is_name).collect()
}

fn gather(folder: &Path, sources: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            gather(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, manifest: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_direction(Path::new(name), manifest, &mut faults);
        faults
    }

    #[test]
    fn a_leaf_never_learns_that_campaigns_exist() {
        let manifest = "[package]\n\n[dependencies]\nparity-campaign.workspace = true\n\n[lints]\n";
        assert_eq!(faults("crates/canonical-json", manifest).len(), 1);
        assert!(faults("bins/parity", manifest).is_empty());
        let elsewhere = manifest.replace("[dependencies]", "[target.'cfg(unix)'.dependencies]");
        assert_eq!(faults("crates/canonical-json", &elsewhere).len(), 1);
        assert_eq!(faults("crates/unheard-of", manifest).len(), 1);
    }

    #[test]
    fn tests_may_look_anywhere() {
        let manifest =
            "[package]\n\n[dependencies]\n\n[dev-dependencies]\nparity-campaign.workspace = true\n";
        assert!(faults("crates/canonical-json", manifest).is_empty());
    }

    #[test]
    fn tests_are_read_from_the_last_column() {
        let protocol =
            "| D1 | a | `not_here.rs` | `a_test`, `other/path_x`; later: not yet |\nprose `not_this`\n";
        assert_eq!(named_tests(protocol), BTreeSet::from(["a_test"]));
    }

    #[test]
    fn only_a_function_with_the_attribute_is_a_test() {
        let sources = "#[test]\n#[ignore]\nfn one() {}\nfn helper() {}\n    #[test]\n    fn two() {}\n";
        assert_eq!(tests_of(sources), BTreeSet::from(["one", "two"]));
    }

    #[test]
    fn lints_and_licence_are_inherited() {
        let mut found = Vec::new();
        check_manifest(Path::new("bins/x"), "[package]\nname = \"y\"\n", &mut found);
        assert_eq!(found.len(), 3);
    }
}
