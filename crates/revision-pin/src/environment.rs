use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::Recipe;
use crate::host_paths::HostPaths;

/// The variables a build may take from; by default those of this process.
///
/// A build never inherits them. It gets the few in [`Environment::PASSED`], those that the recipe names, and constants;
/// see [`Environment::CONSTANTS`]. A `RUSTFLAGS` or `CARGO_BUILD_TARGET` in a user's shell would silently build another
/// program (`RUSTFLAGS` also replaces the flags of the repository's own `.cargo/config.toml`), so whatever begins with
/// `CARGO` or `RUST` and was left behind is recorded by name. A recipe that wants such a variable names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

/// What a build is started with, and what a record says about it.
pub(crate) struct Composed {
    pub(crate) variables: BTreeMap<OsString, OsString>,
    pub(crate) recorded: BTreeMap<String, String>,
    pub(crate) dropped: Vec<String>,
}

impl Environment {
    /// Variables that are handed on if they are set: where programs and caches are, and how to reach a registry.
    pub const PASSED: [&'static str; 20] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "RUSTUP_DIST_SERVER",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
    ];

    /// Families of variables that are handed on too: how cargo uses the network. They do not shape what is built.
    pub const PASSED_FAMILIES: [&'static str; 2] = ["CARGO_HTTP_", "CARGO_NET_"];

    /// Variables with one value in every build. The time is one that every archive format can hold; build scripts and
    /// C compilers that would use the time of day use it instead.
    pub const CONSTANTS: [(&'static str, &'static str); 7] = [
        ("CARGO_INCREMENTAL", "0"),
        ("CARGO_TERM_COLOR", "never"),
        ("CARGO_TERM_PROGRESS_WHEN", "never"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("RUSTUP_AUTO_INSTALL", "0"),
        ("SOURCE_DATE_EPOCH", "315532800"),
    ];

    /// The variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Environment(std::env::vars_os().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Where cargo keeps its registry.
    pub(crate) fn cargo_home(&self) -> Option<PathBuf> {
        let own = self.get("CARGO_HOME").map(PathBuf::from);
        own.or_else(|| self.get("HOME").map(|home| Path::new(home).join(".cargo")))
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }

    /// The environment of one build; `own` are the variables that say where it happens.
    pub(crate) fn compose(&self, recipe: &Recipe, own: &[(&str, &OsStr)], paths: &HostPaths) -> Composed {
        let mut variables = BTreeMap::new();
        let mut recorded = BTreeMap::new();
        for (name, value) in &self.0 {
            let listed =
                name.to_str().is_some_and(|name| recipe.pass_env.iter().any(|passed| passed == name));
            if listed || is_passed(name) {
                variables.insert(name.clone(), value.clone());
            }
        }
        let constants = Self::CONSTANTS.iter().map(|(name, value)| (*name, OsStr::new(*value)));
        let toolchain = recipe.toolchain.iter().map(|name| ("RUSTUP_TOOLCHAIN", OsStr::new(name.as_str())));
        let asked = recipe.env.iter().map(|(name, value)| (name.as_str(), OsStr::new(value.as_str())));
        for (name, value) in constants.chain(toolchain).chain(asked).chain(own.iter().copied()) {
            variables.insert(name.into(), value.to_owned());
        }
        for (name, value) in &variables {
            let Some(name) = name.to_str().filter(|name| is_recorded(name, recipe)) else { continue };
            recorded.insert(name.to_owned(), paths.hide(&value.to_string_lossy()));
        }
        let dropped =
            self.0.keys().filter(|name| !variables.contains_key(*name)).filter_map(|name| name.to_str());
        let dropped = dropped.filter(|name| shapes_builds(name)).map(str::to_owned).collect();
        Composed { variables, recorded, dropped }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Environment::of_process()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

fn is_passed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    Environment::PASSED.contains(&name)
        || Environment::PASSED_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Everything that can shape the result; the rest is where this host keeps its files.
fn is_recorded(name: &str, recipe: &Recipe) -> bool {
    let constant = Environment::CONSTANTS.iter().any(|(constant, _)| *constant == name);
    constant
        || name.starts_with("CARGO")
        || name.starts_with("RUST")
        || recipe.env.contains_key(name)
        || recipe.pass_env.iter().any(|passed| passed == name)
}

/// Variables that would have shaped a build that inherited them.
fn shapes_builds(name: &str) -> bool {
    const COMPILERS: [&str; 10] = [
        "CC",
        "CXX",
        "AR",
        "LD",
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
    ];
    name.starts_with("CARGO") || name.starts_with("RUST") || COMPILERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compose(recipe: &Recipe) -> Composed {
        let shell = [
            ("PATH", "/bin"),
            ("HOME", "/home/someone"),
            ("CARGO_HOME", "/home/someone/.cargo"),
            ("RUSTFLAGS", "-C target-cpu=native"),
            ("CARGO_BUILD_TARGET", "wasm32-unknown-unknown"),
            ("RUSTC_WRAPPER", "sccache"),
            ("CARGO_REGISTRY_TOKEN", "secret"),
            ("CARGO_NET_RETRY", "5"),
            ("CC", "clang"),
            ("EDITOR", "vi"),
        ];
        let paths = HostPaths::new([(PathBuf::from("/home/someone"), "{home}")]);
        Environment::from_iter(shell).compose(recipe, &[("RUSTC_WRAPPER", OsStr::new("/w/wrapper"))], &paths)
    }

    fn names(composed: &Composed) -> Vec<&str> {
        composed.variables.keys().filter_map(|name| name.to_str()).collect()
    }

    #[test]
    fn what_would_shape_the_build_is_left_behind_and_named() {
        let composed = compose(&Recipe::default());
        assert_eq!(composed.dropped, ["CARGO_BUILD_TARGET", "CARGO_REGISTRY_TOKEN", "CC", "RUSTFLAGS"]);
        assert_eq!(composed.variables[OsStr::new("RUSTC_WRAPPER")], "/w/wrapper");
        assert!(names(&composed).contains(&"CARGO_NET_RETRY"));
        assert!(!names(&composed).contains(&"EDITOR"));
        assert_eq!(composed.recorded["CARGO_HOME"], "{home}/.cargo");
        assert!(!composed.recorded.contains_key("PATH"));
        assert!(composed.recorded.values().all(|value| value != "secret"));
    }

    #[test]
    fn what_the_recipe_names_is_handed_on_and_recorded() {
        let mut recipe = Recipe { pass_env: vec!["CC".to_owned()], ..Recipe::default() };
        recipe.toolchain = Some("nightly".to_owned());
        recipe.env.insert("RUSTFLAGS".to_owned(), "-C debuginfo=1".to_owned());
        recipe.env.insert("LANG".to_owned(), "C".to_owned());
        let composed = compose(&recipe);
        assert_eq!(composed.recorded["CC"], "clang");
        assert_eq!(composed.recorded["RUSTFLAGS"], "-C debuginfo=1");
        assert_eq!(composed.recorded["RUSTUP_TOOLCHAIN"], "nightly");
        assert_eq!(composed.recorded["LANG"], "C");
        assert_eq!(composed.dropped, ["CARGO_BUILD_TARGET", "CARGO_REGISTRY_TOKEN"]);
    }
}
