use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of executable a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TargetKind {
    /// A `[[bin]]`.
    Bin,
    /// A `[[bench]]`.
    Bench,
    /// An `[[example]]`.
    Example,
}

impl TargetKind {
    /// The name cargo uses, in manifests, in options and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TargetKind::Bin => "bin",
            TargetKind::Bench => "bench",
            TargetKind::Example => "example",
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The one executable that is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its name.
    pub name: String,
}

/// How the artifact of a revision is built. The default is the build of Dynamo's offline replay benchmark.
///
/// ```
/// use revision_pin::Recipe;
///
/// let recipe = Recipe::from_toml(
///     r#"
///     package = "replay-harness"
///     target = { kind = "bin", name = "replay" }
///     no_default_features = true
///     features = ["seeded-routing"]
///     offline = true
///     "#,
/// )?;
/// assert_eq!(recipe.profile, "release");
///
/// let error = Recipe::from_toml("feature = []").unwrap_err();
/// assert_eq!(error.to_string(), "read the recipe: `feature` is not a key of it (did you mean `features`?)");
/// # Ok::<(), revision_pin::RecipeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The package, by name.
    pub package: String,
    /// The executable of that package.
    pub target: Target,
    /// Features, each by name. "All features" is not a feature.
    pub features: Vec<String>,
    /// Whether the default features are left out.
    pub no_default_features: bool,
    /// The profile.
    #[serde(default = "release")]
    pub profile: String,
    /// Whether `Cargo.lock` must fit as it is.
    #[serde(default = "yes")]
    pub locked: bool,
    /// Whether cargo must not use the network.
    #[serde(default)]
    pub offline: bool,
    /// Whether host paths are mapped to names, so that the bytes do not depend on where the build ran.
    #[serde(default = "yes")]
    pub remap: bool,
    /// The toolchain, as rustup names it. Without one, `$RUSTUP_TOOLCHAIN` decides if it is set, else the revision's
    /// own toolchain file, else the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
    /// Further variables of the build, with their values.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables taken over from the environment of the caller, and recorded with their values.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Further arguments of `cargo build`.
    #[serde(default)]
    pub cargo_args: Vec<String>,
}

fn release() -> String {
    "release".to_owned()
}

fn yes() -> bool {
    true
}

impl Default for Recipe {
    fn default() -> Self {
        let target = Target { kind: TargetKind::Bench, name: "offline_replay_bench".to_owned() };
        Recipe {
            no_default_features: true,
            features: vec!["replay-bench".to_owned()],
            ..Recipe::new("dynamo-bench", target)
        }
    }
}

/// A recipe cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// It is not TOML, or a value has the wrong type.
    #[error("read the recipe: {0}")]
    Malformed(String),
    /// A key is not one of a recipe.
    #[error("read the recipe: `{key}` is not a key of it{}", nearest.as_ref().map(|key| format!(" (did you mean `{key}`?)")).unwrap_or_default())]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
    },
    /// "All features" is no list of features, and means something else in every revision.
    #[error("use `{0}` in a recipe: list the features by name")]
    AllFeatures(String),
    /// The option belonged to KVBM replay, which current revisions no longer have.
    #[error("use `{0}`: KVBM replay was removed; a historical comparison needs the historical protocol")]
    Removed(String),
    /// A value is not what it must be.
    #[error("use `{value}` as `{key}` of a recipe: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

const KEYS: [&str; 12] = [
    "package",
    "target",
    "features",
    "no_default_features",
    "profile",
    "locked",
    "offline",
    "remap",
    "toolchain",
    "env",
    "pass_env",
    "cargo_args",
];
const TARGET_KEYS: [&str; 2] = ["kind", "name"];

/// Arguments that the recipe has its own key for, or that would change which file is the artifact.
const OWN_ARGUMENTS: [&str; 25] = [
    "-p",
    "--package",
    "--workspace",
    "--all",
    "--exclude",
    "-F",
    "--features",
    "--no-default-features",
    "--bin",
    "--bins",
    "--bench",
    "--benches",
    "--example",
    "--examples",
    "--lib",
    "--test",
    "--tests",
    "--all-targets",
    "-r",
    "--release",
    "--profile",
    "--target-dir",
    "--build-dir",
    "--message-format",
    "--manifest-path",
];

/// Variables that decide where the build runs and how its paths are mapped.
const OWN_VARIABLES: [&str; 6] = [
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_BUILD_DIR",
    "RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "RUSTUP_TOOLCHAIN",
];

impl Recipe {
    /// The release build of one executable, without features of its own.
    #[must_use]
    pub fn new(package: impl Into<String>, target: Target) -> Self {
        Recipe {
            package: package.into(),
            target,
            features: Vec::new(),
            no_default_features: false,
            profile: release(),
            locked: true,
            offline: false,
            remap: true,
            toolchain: None,
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            cargo_args: Vec::new(),
        }
    }

    /// Reads and validates a recipe.
    ///
    /// # Errors
    ///
    /// It is not TOML, has an unknown key, or a value that cannot be used.
    pub fn from_toml(text: &str) -> Result<Self, RecipeError> {
        let malformed = |error: toml::de::Error| RecipeError::Malformed(one_line(&error));
        let table: toml::Table = toml::from_str(text).map_err(malformed)?;
        refuse_unknown(&table, "", &KEYS)?;
        if let Some(toml::Value::Table(target)) = table.get("target") {
            refuse_unknown(target, "target.", &TARGET_KEYS)?;
        }
        let recipe: Recipe = toml::from_str(text).map_err(malformed)?;
        recipe.validate()?;
        Ok(recipe)
    }

    /// Checks what can be checked without a revision.
    ///
    /// # Errors
    ///
    /// A value cannot be used.
    pub fn validate(&self) -> Result<(), RecipeError> {
        name("package", &self.package)?;
        name("target.name", &self.target.name)?;
        name("profile", &self.profile)?;
        self.toolchain.iter().try_for_each(|toolchain| name("toolchain", toolchain))?;
        self.features.iter().try_for_each(|feature| check_feature(feature))?;
        refuse_twice("features", &self.features)?;
        self.cargo_args.iter().try_for_each(|argument| check_argument(argument))?;
        self.env.keys().try_for_each(|variable| check_variable("env", variable))?;
        self.pass_env.iter().try_for_each(|variable| check_variable("pass_env", variable))?;
        refuse_twice("pass_env", &self.pass_env)
    }

    /// The arguments of `cargo`, in the order in which they are given.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["build".to_owned()];
        match self.profile.as_str() {
            "release" => arguments.push("--release".to_owned()),
            profile => arguments.extend(["--profile".to_owned(), profile.to_owned()]),
        }
        arguments.extend(["-p".to_owned(), self.package.clone()]);
        if self.no_default_features {
            arguments.push("--no-default-features".to_owned());
        }
        if !self.features.is_empty() {
            arguments.extend(["--features".to_owned(), self.features.join(",")]);
        }
        arguments.extend([format!("--{}", self.target.kind), self.target.name.clone()]);
        arguments.extend(["--message-format".to_owned(), "json-render-diagnostics".to_owned()]);
        arguments.extend(self.locked.then(|| "--locked".to_owned()));
        arguments.extend(self.offline.then(|| "--offline".to_owned()));
        arguments.extend(self.cargo_args.iter().cloned());
        arguments
    }
}

fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn refuse_unknown(table: &toml::Table, prefix: &str, known: &[&str]) -> Result<(), RecipeError> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(RecipeError::UnknownKey {
            key: format!("{prefix}{key}"),
            nearest: nearest(key, known.iter().copied()).map(|known| format!("{prefix}{known}")),
        }),
    }
}

/// The candidate that looks most like a text, if any does.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.into_iter().map(|candidate| (strsim::jaro_winkler(text, candidate), candidate));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0));
    // Below this, the suggestion is more often noise than help.
    best.filter(|(score, _)| *score > 0.75).map(|(_, candidate)| candidate)
}

/// Whether an option of a build or of the replay harness belonged to KVBM replay, which was removed: the features
/// `kvbm`, `kvbm-offload`, `mocker-kvbm` and the like, and the harness arguments for tiers beyond native G1.
///
/// ```
/// assert!(revision_pin::is_removed_option("mocker-kvbm-offload"));
/// assert!(revision_pin::is_removed_option("--num-g2-blocks=512"));
/// assert!(!revision_pin::is_removed_option("--num-gpu-blocks"));
/// ```
#[must_use]
pub fn is_removed_option(option: &str) -> bool {
    let option = option.to_ascii_lowercase().replace('_', "-");
    let name = option.split('=').next().unwrap_or_default().trim_start_matches('-');
    let tier = |text: &str| matches!(text, "g1" | "g2" | "g3" | "g4");
    let words: Vec<&str> = name.split('-').collect();
    words.contains(&"kvbm")
        || matches!(words[..], ["num", "g2" | "g3" | "g4", "blocks"])
        || matches!(words[..], ["enable", "g2" | "g3" | "g4", "storage"])
        || matches!(words[..], ["offload", "batch", "size"])
        || matches!(words[..], ["bandwidth", from, "to", to, "gbps"] if tier(from) && tier(to))
}

fn check_feature(feature: &str) -> Result<(), RecipeError> {
    let all = ["*", "all", "all-features", "all_features", "--all-features"];
    if all.contains(&feature.to_ascii_lowercase().as_str()) {
        return Err(RecipeError::AllFeatures(feature.to_owned()));
    }
    if feature.split('/').any(is_removed_option) {
        return Err(RecipeError::Removed(feature.to_owned()));
    }
    if feature.starts_with("dep:") {
        return Err(value("features", feature, "cargo takes `dep:` only inside a manifest"));
    }
    match feature.contains([',', ' ', '\t', '\n']) {
        true => Err(value("features", feature, "give each feature as an entry of its own")),
        false => name("features", feature),
    }
}

fn check_argument(argument: &str) -> Result<(), RecipeError> {
    let option = argument.split('=').next().unwrap_or_default();
    if option == "--all-features" {
        return Err(RecipeError::AllFeatures(argument.to_owned()));
    }
    if is_removed_option(argument) {
        return Err(RecipeError::Removed(argument.to_owned()));
    }
    let glued = ["-p", "-F"].iter().any(|short| option.starts_with(short));
    if OWN_ARGUMENTS.contains(&option) || glued {
        return Err(value("cargo_args", argument, "the recipe or the build itself decides that"));
    }
    match option {
        "--locked" | "--offline" | "--frozen" => {
            Err(value("cargo_args", argument, "use the key of that name"))
        }
        "" | "--" => Err(value("cargo_args", argument, "it is empty")),
        _ => Ok(()),
    }
}

fn check_variable(key: &'static str, variable: &str) -> Result<(), RecipeError> {
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err(value(key, variable, "it cannot be the name of a variable"));
    }
    match OWN_VARIABLES.contains(&variable) {
        true => Err(value(key, variable, "the recipe or the build itself decides that")),
        false => Ok(()),
    }
}

fn refuse_twice(key: &'static str, values: &[String]) -> Result<(), RecipeError> {
    let twice = values.iter().enumerate().find(|(at, entry)| values[..*at].contains(entry));
    twice.map_or(Ok(()), |(_, entry)| Err(value(key, entry, "it is listed twice")))
}

fn name(key: &'static str, text: &str) -> Result<(), RecipeError> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    match text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
        true => Err(value(key, text, "it is empty, begins with `-`, or has spaces")),
        false => Ok(()),
    }
}

fn value(key: &'static str, value: &str, reason: &'static str) -> RecipeError {
    RecipeError::Value { key, value: value.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINIMAL: &str =
        "package = 'p'\ntarget = { kind = 'bin', name = 't' }\nfeatures = []\nno_default_features = true\n";

    fn check(addition: &str, error: &str) {
        let found = Recipe::from_toml(&format!("{addition}\n{MINIMAL}")).unwrap_err().to_string();
        assert!(found.contains(error), "{addition}: {found}");
    }

    #[test]
    fn the_default_is_the_build_of_the_protocol() {
        let command = Recipe::default().arguments().join(" ");
        assert_eq!(
            command,
            "build --release -p dynamo-bench --no-default-features --features replay-bench --bench \
             offline_replay_bench --message-format json-render-diagnostics --locked"
        );
        Recipe::default().validate().unwrap();
    }

    #[test]
    fn a_recipe_round_trips_through_toml() {
        let mut recipe = Recipe::default();
        recipe.env.insert("A".to_owned(), "b".to_owned());
        recipe.toolchain = Some("1.95.0".to_owned());
        recipe.cargo_args = vec!["--timings".to_owned()];
        let text = toml::to_string(&recipe).unwrap();
        assert_eq!(Recipe::from_toml(&text).unwrap(), recipe);
        assert_eq!(Recipe::from_toml(MINIMAL).unwrap().arguments()[4], "--no-default-features");
    }

    #[test]
    fn what_must_be_said_is_not_guessed() {
        for key in ["package", "target", "features", "no_default_features"] {
            let without: Vec<&str> = MINIMAL.lines().filter(|line| !line.starts_with(key)).collect();
            let error = Recipe::from_toml(&without.join("\n")).unwrap_err().to_string();
            assert!(error.contains(&format!("missing field `{key}`")), "{error}");
        }
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        check("profil = 'x'", "`profil` is not a key of it (did you mean `profile`?)");
        check("zzz = 1", "`zzz` is not a key of it");
        let error = Recipe::from_toml("target = { kind = 'bin', nam = 't' }").unwrap_err().to_string();
        assert!(error.contains("`target.nam` is not a key of it (did you mean `target.name`?)"), "{error}");
        check("offline = 'yes'", "invalid type");
    }

    #[test]
    fn values_that_cannot_be_used_are_refused() {
        check("cargo_args = ['--all-features']", "list the features by name");
        for argument in
            ["-p", "-pother", "--features=x", "-Fx", "--target-dir", "--message-format=short", "--bin"]
        {
            check(&format!("cargo_args = ['{argument}']"), "the build itself decides that");
        }
        check("cargo_args = ['--locked']", "use the key of that name");
        check("cargo_args = ['--num-g2-blocks']", "KVBM replay was removed");
        for variable in OWN_VARIABLES {
            check(&format!("pass_env = ['{variable}']"), "the build itself decides that");
            check(&format!("env = {{ {variable} = 'x' }}"), "the build itself decides that");
        }
        check("pass_env = ['A', 'A']", "listed twice");
        check("pass_env = ['A=B']", "cannot be the name");
        check("profile = '-x'", "begins with `-`");
        check("toolchain = ''", "it is empty");
    }

    #[test]
    fn features_are_listed_one_by_one() {
        let with =
            |feature: &str| Recipe { features: vec![feature.to_owned()], ..Recipe::default() }.validate();
        for feature in ["*", "all", "all-features", "ALL_FEATURES", "--all-features"] {
            assert_eq!(with(feature), Err(RecipeError::AllFeatures(feature.to_owned())));
        }
        for feature in
            ["kvbm", "kvbm-offload", "mocker-kvbm-offload", "dynamo-mocker/kvbm-offload", "mocker_kvbm"]
        {
            assert_eq!(with(feature), Err(RecipeError::Removed(feature.to_owned())));
        }
        for feature in ["a,b", "a b", "", "-x", "dep:x"] {
            assert!(matches!(with(feature), Err(RecipeError::Value { key: "features", .. })), "{feature:?}");
        }
        for feature in ["default", "replay-bench", "dynamo-mocker/replay-bench"] {
            assert_eq!(with(feature), Ok(()));
        }
        let twice = Recipe { features: vec!["a".to_owned(), "a".to_owned()], ..Recipe::default() };
        assert!(matches!(twice.validate(), Err(RecipeError::Value { reason: "it is listed twice", .. })));
    }

    #[test]
    fn options_of_the_removed_tiers_are_known() {
        let removed = [
            "--num-g2-blocks",
            "--num-g3-blocks=4",
            "num_g4_blocks",
            "--enable-g4-storage",
            "--offload-batch-size",
            "--bandwidth-g1-to-g2-gbps",
            "--bandwidth-g2-to-g4-gbps=3.5",
            "--kvbm-anything",
            "mocker-kvbm",
        ];
        for option in removed {
            assert!(is_removed_option(option), "{option}");
        }
        let current = [
            "--num-gpu-blocks",
            "--num-g1-blocks",
            "--block-size",
            "--kv-transfer-bandwidth",
            "--max-num-seqs",
            "replay-bench",
            "--router-mode",
            "--bandwidth-gbps",
            "",
        ];
        for option in current {
            assert!(!is_removed_option(option), "{option}");
        }
    }

    proptest! {
        /// Whatever the text, reading it never panics, and what was accepted is valid and survives a round trip.
        #[test]
        fn any_text_is_read_or_refused(addition in "[a-z_]{0,12} ?=? ?['a-z\\[\\]{}0-9,-]{0,16}") {
            if let Ok(recipe) = Recipe::from_toml(&format!("{addition}\n{MINIMAL}")) {
                prop_assert_eq!(Recipe::from_toml(&toml::to_string(&recipe).unwrap()), Ok(recipe));
            }
        }
    }
}
