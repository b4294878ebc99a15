use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

use crate::recipe::nearest;
use crate::{CommitId, Recipe, TargetKind};

/// Something that a recipe names and a revision no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The package.
    Package {
        /// Its name.
        name: String,
        /// The package of the revision whose name looks most like it.
        nearest: Option<String>,
    },
    /// The executable.
    Target {
        /// Its kind.
        kind: TargetKind,
        /// Its name.
        name: String,
        /// The target of the same kind whose name looks most like it.
        nearest: Option<String>,
    },
    /// A feature.
    Feature {
        /// Its name.
        name: String,
        /// The feature of the package whose name looks most like it.
        nearest: Option<String>,
    },
    /// A feature that the executable requires now and the recipe does not enable.
    RequiredFeature {
        /// The executable.
        target: String,
        /// The feature.
        feature: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = match self {
            Missing::Package { name, nearest } => {
                write!(f, "there is no package `{name}`")?;
                nearest
            }
            Missing::Target { kind, name, nearest } => {
                write!(f, "there is no {kind} target `{name}`")?;
                nearest
            }
            Missing::Feature { name, nearest } => {
                write!(f, "there is no feature `{name}`")?;
                nearest
            }
            Missing::RequiredFeature { target, feature } => {
                return write!(
                    f,
                    "`{target}` requires the feature `{feature}`, which the recipe does not enable"
                );
            }
        };
        nearest.as_ref().map_or(Ok(()), |nearest| write!(f, " (the nearest is `{nearest}`)"))
    }
}

/// The revision no longer has what the recipe names. Nothing is guessed: the protocol needs updating, or a historical
/// protocol must be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("build `{package}` at {commit}: the protocol needs updating: {}", list(missing))]
#[non_exhaustive]
pub struct ProtocolNeedsUpdating {
    /// The package of the recipe.
    pub package: String,
    /// The revision.
    pub commit: CommitId,
    /// What is missing; at least one.
    pub missing: Vec<Missing>,
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(Missing::to_string).collect::<Vec<_>>().join("; ")
}

/// What `cargo metadata --no-deps` says, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    features: BTreeMap<String, Vec<String>>,
    targets: Vec<PackageTarget>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct PackageTarget {
    name: String,
    kind: Vec<String>,
    #[serde(rename = "required-features", default)]
    required_features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
}

impl Metadata {
    /// The package of a recipe, if the revision has everything that the recipe names.
    pub(crate) fn check(&self, recipe: &Recipe, commit: CommitId) -> Result<&Package, ProtocolNeedsUpdating> {
        let refuse = |missing| ProtocolNeedsUpdating { package: recipe.package.clone(), commit, missing };
        let Some(package) = self.package(&recipe.package) else {
            let names = self.packages.iter().map(|package| package.name.as_str());
            let nearest = nearest(&recipe.package, names).map(str::to_owned);
            return Err(refuse(vec![Missing::Package { name: recipe.package.clone(), nearest }]));
        };
        let mut missing: Vec<Missing> =
            recipe.features.iter().filter_map(|feature| self.missing_feature(package, feature)).collect();
        missing.extend(package.missing_target(recipe));
        match missing.is_empty() {
            true => Ok(package),
            false => Err(refuse(missing)),
        }
    }

    fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    fn missing_feature(&self, package: &Package, feature: &str) -> Option<Missing> {
        let absent = |nearest: Option<&str>| {
            Some(Missing::Feature { name: feature.to_owned(), nearest: nearest.map(str::to_owned) })
        };
        let (owner, name) = match feature.split_once('/') {
            None => (Some(package), feature),
            Some((owner, name)) => (self.package(owner), name),
        };
        match owner {
            Some(owner) if owner.has_feature(name) => None,
            Some(owner) => absent(nearest(name, owner.features.keys().map(String::as_str))),
            // A feature of a registry dependency: cargo, which has its manifest, checks the rest.
            None if package.depends_on(feature.split('/').next().unwrap_or_default()) => None,
            None => absent(None),
        }
    }
}

impl Package {
    fn has_feature(&self, name: &str) -> bool {
        self.features.contains_key(name) || name == "default"
    }

    fn depends_on(&self, name: &str) -> bool {
        let name = name.trim_end_matches('?');
        self.dependencies
            .iter()
            .any(|dependency| dependency.rename.as_deref().unwrap_or(&dependency.name) == name)
    }

    fn missing_target(&self, recipe: &Recipe) -> Vec<Missing> {
        let kind = recipe.target.kind;
        let of_kind =
            || self.targets.iter().filter(|target| target.kind.iter().any(|found| found == kind.name()));
        let Some(target) = of_kind().find(|target| target.name == recipe.target.name) else {
            let names = of_kind().map(|target| target.name.as_str());
            let nearest = nearest(&recipe.target.name, names).map(str::to_owned);
            return vec![Missing::Target { kind, name: recipe.target.name.clone(), nearest }];
        };
        let enabled = self.enabled(recipe);
        let required = target.required_features.iter().filter(|feature| !enabled.contains(feature.as_str()));
        let missing = |feature: &String| Missing::RequiredFeature {
            target: target.name.clone(),
            feature: feature.clone(),
        };
        required.map(missing).collect()
    }

    /// Every feature that the recipe enables, directly or through another.
    fn enabled<'a>(&'a self, recipe: &'a Recipe) -> BTreeSet<&'a str> {
        let mut enabled = BTreeSet::new();
        let mut next: Vec<&str> = recipe.features.iter().map(String::as_str).collect();
        next.extend((!recipe.no_default_features).then_some("default"));
        while let Some(feature) = next.pop() {
            if enabled.insert(feature) {
                next.extend(self.features.get(feature).into_iter().flatten().map(String::as_str));
            }
        }
        enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn metadata() -> Metadata {
        serde_json::from_value(serde_json::json!({
            "workspace_root": "/w",
            "packages": [
                {
                    "id": "path+file:///w/bench#dynamo-bench@1.0.0", "name": "dynamo-bench", "version": "1.0.0",
                    "features": {
                        "default": ["extra"], "extra": [], "offline-replay": ["dep:blake3"],
                        "replay-bench": ["offline-replay", "dynamo-mocker/replay-bench"]
                    },
                    "targets": [
                        { "name": "dynamo_bench", "kind": ["lib"] },
                        { "name": "offline_replay_bench", "kind": ["bench"], "required-features": ["offline-replay"] },
                        { "name": "converter", "kind": ["bin"], "required-features": ["extra", "satf"] }
                    ],
                    "dependencies": [
                        { "name": "dynamo-mocker", "rename": null }, { "name": "serde", "rename": "serde1" }
                    ]
                },
                {
                    "id": "path+file:///w/mocker#dynamo-mocker@1.0.0", "name": "dynamo-mocker", "version": "1.0.0",
                    "features": { "replay-bench": [] }, "targets": [], "dependencies": []
                }
            ]
        }))
        .unwrap()
    }

    fn commit() -> CommitId {
        "0123456789012345678901234567890123456789".parse().unwrap()
    }

    fn check(change: impl FnOnce(&mut Recipe), missing: &[&str]) {
        let mut recipe = Recipe::default();
        change(&mut recipe);
        let found = match metadata().check(&recipe, commit()) {
            Ok(_) => Vec::new(),
            Err(error) => error.missing.iter().map(Missing::to_string).collect(),
        };
        assert_eq!(found, missing);
    }

    fn features(list: &[&str]) -> Vec<String> {
        list.iter().map(|feature| (*feature).to_owned()).collect()
    }

    #[test]
    fn what_is_there_is_accepted() {
        check(|_| {}, &[]);
        check(|recipe| recipe.features = features(&["replay-bench", "dynamo-mocker/replay-bench"]), &[]);
        check(|recipe| recipe.features = features(&["replay-bench", "serde1/derive", "default"]), &[]);
    }

    #[test]
    fn what_is_gone_is_named_with_the_nearest() {
        check(
            |recipe| recipe.package = "dynamo-benches".to_owned(),
            &["there is no package `dynamo-benches` (the nearest is `dynamo-bench`)"],
        );
        check(
            |recipe| recipe.target.name = "offline_replay".to_owned(),
            &["there is no bench target `offline_replay` (the nearest is `offline_replay_bench`)"],
        );
        check(
            |recipe| recipe.target.kind = TargetKind::Bin,
            &["there is no bin target `offline_replay_bench`"],
        );
        check(
            |recipe| recipe.features = features(&["replay-bench", "replay-benches", "serde/derive"]),
            &[
                "there is no feature `replay-benches` (the nearest is `replay-bench`)",
                "there is no feature `serde/derive`",
            ],
        );
        check(
            |recipe| recipe.features = features(&["replay-bench", "dynamo-mocker/seeded"]),
            &["there is no feature `dynamo-mocker/seeded`"],
        );
        check(
            |recipe| {
                recipe.target = Target { kind: TargetKind::Bin, name: "converter".to_owned() };
                recipe.no_default_features = false;
            },
            &["`converter` requires the feature `satf`, which the recipe does not enable"],
        );
    }

    #[test]
    fn the_error_names_everything_at_once() {
        let recipe = Recipe { features: features(&["gone"]), ..Recipe::default() };
        let error = metadata().check(&recipe, commit()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "build `dynamo-bench` at 0123456789012345678901234567890123456789: the protocol needs updating: there is no \
             feature `gone`; `offline_replay_bench` requires the feature `offline-replay`, which the recipe does not enable"
        );
    }
}
