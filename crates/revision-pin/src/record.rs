use std::collections::BTreeMap;

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::{AppliedPatch, Artifact, ConfigFile, PathMapping, Pinned, Recipe, Seeded, Submodule};

/// Name of the schema of a [`BuildRecord`].
pub const BUILD_SCHEMA: &str = "revision-pin-build";
/// Version of the schema of a [`BuildRecord`].
pub const BUILD_VERSION: u32 = 1;

/// The tools that built an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Toolchain {
    /// What `rustc -vV` printed.
    pub rustc: Vec<String>,
    /// What `cargo -V` printed.
    pub cargo: String,
    /// The first line of `cc --version`, the usual linker; nothing if there is none.
    pub cc: Option<String>,
}

/// How cargo's units came to be in a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct UnitCounts {
    /// Units that were compiled.
    pub compiled: u64,
    /// Units of registry packages that were taken from an earlier build. Units with a path are never taken.
    pub reused: u64,
}

/// Everything about one build that its reader may want to know. It holds no host path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BuildRecord {
    /// [`BUILD_SCHEMA`].
    pub schema: String,
    /// [`BUILD_VERSION`].
    pub version: u32,
    /// The revision; its tree is without the patches.
    pub revision: Pinned,
    /// The patches, in the order in which they were applied.
    pub patches: Vec<AppliedPatch>,
    /// Submodules whose folders were empty.
    pub submodules: Vec<Submodule>,
    /// Files that held a Git LFS pointer instead of their content.
    pub lfs_pointers: Vec<String>,
    /// The recipe.
    pub recipe: Recipe,
    /// Version of the package, from its manifest.
    pub package_version: String,
    /// The features that cargo says it enabled for the executable, sorted.
    pub features: Vec<String>,
    /// Digest of the `Cargo.lock` that was used.
    pub lockfile_sha256: Option<Sha256>,
    /// The command line, with names in place of host paths.
    pub command: Vec<String>,
    /// Every variable that could shape the build, with names in place of host paths.
    pub environment: BTreeMap<String, String>,
    /// Variables of the caller that would have shaped the build and were not handed on.
    pub environment_not_used: Vec<String>,
    /// Every configuration file of cargo that applied, in order of precedence.
    pub config_files: Vec<ConfigFile>,
    /// How host paths were mapped; nothing if the recipe says not to.
    pub path_mapping: Option<PathMapping>,
    /// The tools.
    pub toolchain: Toolchain,
    /// Whether the artifact is that of an earlier build: nothing was compiled now, and times and units are of then.
    #[serde(default)]
    pub taken_over: bool,
    /// What was copied from an earlier build; nothing if it started from nothing.
    pub seeded: Option<Seeded>,
    /// How many units were compiled.
    pub units: UnitCounts,
    /// The executable.
    pub artifact: Artifact,
    /// Files of the checkout that the build changed.
    pub changed_sources: Vec<String>,
    /// What a reader should know: settings that were overridden, paths that could not be mapped.
    pub notes: Vec<String>,
    /// How long cargo took.
    pub wall_ns: u64,
    /// Processor time of cargo and everything it ran.
    pub cpu_ns: u64,
    /// Largest resident set of one process of it.
    pub max_rss_bytes: u64,
}

/// What two builds have in common: facts, on which a caller may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "equal artifacts of different trees must not be compared with each other"]
#[non_exhaustive]
pub struct Comparison {
    /// The two trees are equal and so are the patches.
    pub same_source: bool,
    /// The two artifacts are equal, byte for byte.
    pub same_artifact: bool,
    /// The tools are the same.
    pub same_toolchain: bool,
    /// Recipe, environment and configuration files are the same.
    pub same_settings: bool,
    /// Growth of the candidate's size over the baseline's, in parts per million; negative if it is smaller.
    pub size_growth_ppm: i64,
    /// Growth of the candidate's `.text` over the baseline's, in parts per million.
    pub text_growth_ppm: i64,
}

impl Comparison {
    /// Different sources gave one artifact. Either the change does not reach the executable, or one of the two was
    /// never built: comparing an artifact with itself passes whatever changed.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        self.same_artifact && !self.same_source
    }

    /// One source gave two artifacts, with the same tools and settings: the build is not deterministic.
    #[must_use]
    pub fn is_nondeterministic(&self) -> bool {
        self.same_source && !self.same_artifact && self.same_toolchain && self.same_settings
    }
}

impl BuildRecord {
    /// Compares two builds; `self` is the baseline.
    pub fn compare(&self, candidate: &BuildRecord) -> Comparison {
        let patches =
            |record: &BuildRecord| record.patches.iter().map(|patch| patch.sha256).collect::<Vec<_>>();
        Comparison {
            same_source: self.revision.tree == candidate.revision.tree && patches(self) == patches(candidate),
            same_artifact: self.artifact.sha256 == candidate.artifact.sha256,
            same_toolchain: self.toolchain == candidate.toolchain,
            same_settings: self.recipe == candidate.recipe
                && self.environment == candidate.environment
                && self.config_files == candidate.config_files,
            size_growth_ppm: growth_ppm(self.artifact.bytes, candidate.artifact.bytes),
            text_growth_ppm: growth_ppm(self.artifact.text_bytes, candidate.artifact.text_bytes),
        }
    }
}

/// Growth in parts per million, rounded towards zero; the largest value there is when the baseline is nothing.
#[must_use]
pub fn growth_ppm(baseline: u64, candidate: u64) -> i64 {
    if baseline == 0 {
        return if candidate == 0 { 0 } else { i64::MAX };
    }
    let growth = (i128::from(candidate) - i128::from(baseline)) * 1_000_000 / i128::from(baseline);
    i64::try_from(growth).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_exact_and_signed() {
        for (baseline, candidate, ppm) in [
            (100, 105, 50_000),
            (1_000_000, 1_050_001, 50_001),
            (100, 95, -50_000),
            (3, 4, 333_333),
            (0, 0, 0),
            (0, 1, i64::MAX),
            (1, u64::MAX, i64::MAX),
            (u64::MAX, 0, -1_000_000),
        ] {
            assert_eq!(growth_ppm(baseline, candidate), ppm, "{baseline} -> {candidate}");
        }
    }
}
