//! `cargo xtask dynamo plant`: known faults as commits on top of a published version.
//!
//! A plant is a patch of our own in `testdata/plants`; `plants.toml` there says what it plants, on what, and the commit it
//! gives. Author and date are fixed, so the ids are the same on every machine and campaign files can name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::repository::{Commit, Repository};
use crate::process::root;

/// The plants by name.
#[derive(Debug)]
pub(super) struct Plants {
    plants: BTreeMap<String, Plant>,
    folder: PathBuf,
}

/// One plant.
#[derive(Debug, PartialEq, Eq)]
struct Plant {
    /// One sentence, which becomes the message of the commit.
    what: String,
    base: Base,
    /// File names without `.patch`, applied in this order.
    patches: Vec<String>,
    /// The commit it gives; nothing while it is being made.
    commit: Option<String>,
}

/// What a plant is planted on.
#[derive(Debug, PartialEq, Eq)]
enum Base {
    Version(String),
    Plant(String),
}

/// A plant in the repository.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Planted {
    pub(crate) name: String,
    pub(crate) commit: String,
}

/// The folder of patches and of `plants.toml`.
fn folder() -> PathBuf {
    root().join("testdata/plants")
}

/// Reads a TOML file of this folder.
pub(super) fn read(name: &str) -> Result<toml::Table> {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("cannot read {}", path.display()))
}

/// The texts of a list; anything else in it is an error.
pub(super) fn texts(table: &toml::Table, key: &str) -> Result<Vec<String>> {
    let Some(value) = table.get(key) else { return Ok(Vec::new()) };
    let entries = value.as_array().with_context(|| format!("`{key}` is not a list"))?;
    let text = |entry: &toml::Value| entry.as_str().map(str::to_owned);
    entries.iter().map(text).collect::<Option<_>>().with_context(|| format!("`{key}` is not a list of texts"))
}

/// A text that must be there.
pub(super) fn text(table: &toml::Table, key: &str) -> Result<String> {
    optional(table, key)?.with_context(|| format!("`{key}` is missing"))
}

fn optional(table: &toml::Table, key: &str) -> Result<Option<String>> {
    let Some(value) = table.get(key) else { return Ok(None) };
    Ok(Some(value.as_str().with_context(|| format!("`{key}` is not a text"))?.to_owned()))
}

/// Refuses a key that means nothing.
pub(super) fn only(table: &toml::Table, known: &[&str]) -> Result<()> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => bail!("`{key}` is not a key, only {}", known.join(", ")),
        None => Ok(()),
    }
}

impl Plant {
    fn read(name: &str, value: &toml::Value) -> Result<Self> {
        let table = value.as_table().context("it is not a table")?;
        only(table, &["what", "version", "on", "patches", "commit"])?;
        let base = match (optional(table, "version")?, optional(table, "on")?) {
            (Some(version), None) => Base::Version(version),
            (None, Some(plant)) => Base::Plant(plant),
            _ => bail!("exactly one of `version` and `on` says what it is planted on"),
        };
        let patches = texts(table, "patches")?;
        let patches = if patches.is_empty() { vec![name.to_owned()] } else { patches };
        Ok(Plant { what: text(table, "what")?, base, patches, commit: optional(table, "commit")? })
    }
}

impl Plants {
    /// Reads `plants.toml`.
    pub(super) fn load() -> Result<Self> {
        let table = read("plants.toml")?;
        only(&table, &["plant"])?;
        let plants = table.get("plant").and_then(toml::Value::as_table).context("`plant` is missing")?;
        let read = |(name, value): (&String, &toml::Value)| {
            let plant = Plant::read(name, value).with_context(|| format!("plant {name}"))?;
            Ok((name.clone(), plant))
        };
        Ok(Plants { plants: plants.iter().map(read).collect::<Result<_>>()?, folder: folder() })
    }

    /// Every name.
    pub(super) fn names(&self) -> Vec<String> {
        self.plants.keys().cloned().collect()
    }

    /// The version that a plant rests on in the end.
    pub(super) fn version(&self, name: &str) -> Result<&str> {
        match &self.get(name)?.base {
            Base::Version(version) => Ok(version),
            Base::Plant(other) => self.version(other),
        }
    }

    fn get(&self, name: &str) -> Result<&Plant> {
        let known = || self.names().join(", ");
        self.plants.get(name).with_context(|| format!("there is no plant {name:?}, only {}", known()))
    }

    /// Plants by name, each after what it is planted on.
    pub(super) fn plant(&self, repository: &Repository, names: &[String]) -> Result<Vec<Planted>> {
        let mut planted: Vec<Planted> = Vec::new();
        for name in names {
            self.plant_one(repository, name, &mut planted)?;
        }
        Ok(planted)
    }

    fn plant_one(&self, repository: &Repository, name: &str, planted: &mut Vec<Planted>) -> Result<String> {
        if let Some(done) = planted.iter().find(|done| done.name == name) {
            return Ok(done.commit.clone());
        }
        let plant = self.get(name)?;
        let parent = match &plant.base {
            Base::Version(version) => repository
                .commit_of(version)
                .with_context(|| format!("the repository has no version {version}: assemble it first"))?,
            Base::Plant(other) => self.plant_one(repository, other, planted)?,
        };
        let commit =
            self.commit(repository, name, plant, &parent).with_context(|| format!("plant {name}"))?;
        planted.push(Planted { name: name.to_owned(), commit: commit.clone() });
        Ok(commit)
    }

    fn commit(&self, repository: &Repository, name: &str, plant: &Plant, parent: &str) -> Result<String> {
        let patches: Vec<PathBuf> =
            plant.patches.iter().map(|patch| self.folder.join(format!("{patch}.patch"))).collect();
        let patches: Vec<&Path> = patches.iter().map(PathBuf::as_path).collect();
        let message = format!("Planted on purpose: {}\n", plant.what);
        let commit = repository.commit_patched(&Commit { parent, patches: &patches, message: &message })?;
        match &plant.commit {
            Some(expected) => ensure!(
                commit == *expected,
                "its commit is {commit}, where every other machine gets {expected}: a patch was changed, or git is not doing \
                 what it should"
            ),
            None => eprintln!("plant {name}: no commit id is recorded, so {commit} is not compared"),
        }
        repository.tag(&format!("plant-{name}"), &commit)?;
        Ok(commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(text: &str) -> Result<Plant> {
        Plant::read("it", &toml::Value::Table(text.parse().unwrap()))
    }

    #[test]
    fn a_plant_says_what_it_plants_and_on_what() {
        let good = plant("what = \"w\"\nversion = \"1.6.1\"").unwrap();
        assert_eq!((good.patches, good.base), (vec!["it".to_owned()], Base::Version("1.6.1".to_owned())));
        for (text, says) in [
            ("version = \"1.6.1\"", "`what` is missing"),
            ("what = \"w\"", "exactly one of `version` and `on`"),
            ("what = \"w\"\nversion = \"1\"\non = \"x\"", "exactly one of `version` and `on`"),
            ("what = \"w\"\nversion = \"1\"\npatch = []", "`patch` is not a key"),
            ("what = \"w\"\nversion = \"1\"\npatches = [1]", "`patches` is not a list of texts"),
            ("what = 1\nversion = \"1\"", "`what` is not a text"),
        ] {
            let error = format!("{:#}", plant(text).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn every_plant_of_the_tree_has_its_patches_and_a_recorded_commit() {
        let plants = Plants::load().unwrap();
        for (name, plant) in &plants.plants {
            assert!(plant.commit.as_ref().is_some_and(|id| id.len() == 40), "{name}");
            assert_eq!(plants.version(name).unwrap(), "1.6.1", "{name}");
            for patch in &plant.patches {
                assert!(folder().join(format!("{patch}.patch")).is_file(), "{name}: {patch}");
            }
        }
        let error = plants.version("absent").unwrap_err().to_string();
        assert!(error.contains("there is no plant \"absent\", only "), "{error}");
    }
}
