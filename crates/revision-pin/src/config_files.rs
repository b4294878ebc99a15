use std::fs;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

/// A configuration file of cargo that applied to a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ConfigFile {
    /// Where it is: `{checkout}`, `{checkout-parent-N}` (N folders above it) or `{cargo-home}`, and its path below.
    pub name: String,
    /// Digest of the file.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
}

/// The configuration files, and what in them this build overrides.
#[derive(Debug, Default)]
pub(crate) struct ConfigFiles {
    pub(crate) files: Vec<ConfigFile>,
    pub(crate) notes: Vec<String>,
}

/// How deep `include` may go; cargo itself refuses cycles.
const MAX_INCLUDES: usize = 16;

impl ConfigFiles {
    /// Looks where cargo looks: from the checkout up to the root of the file system, then in cargo's home.
    pub(crate) fn find(checkout: &Path, cargo_home: Option<&Path>) -> std::io::Result<Self> {
        let mut found = ConfigFiles::default();
        for (up, folder) in checkout.ancestors().enumerate() {
            let name = match up {
                0 => "{checkout}".to_owned(),
                up => format!("{{checkout-parent-{up}}}"),
            };
            let folder = folder.join(".cargo");
            if cargo_home.is_none_or(|home| home != folder) {
                found.look_in(&folder, &format!("{name}/.cargo"))?;
            }
        }
        if let Some(home) = cargo_home {
            found.look_in(home, "{cargo-home}")?;
        }
        Ok(found)
    }

    /// Where both names exist, cargo takes the one without an ending.
    fn look_in(&mut self, folder: &Path, name: &str) -> std::io::Result<()> {
        for file in ["config", "config.toml"] {
            let path = folder.join(file);
            if path.is_file() {
                return self.read(&path, format!("{name}/{file}"), 0);
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, name: String, depth: usize) -> std::io::Result<()> {
        let bytes = fs::read(path)?;
        self.files.push(ConfigFile {
            name: name.clone(),
            sha256: Sha256::of(&bytes),
            bytes: bytes.len() as u64,
        });
        // What is not TOML is cargo's to refuse; its message names the file.
        let Ok(table) = String::from_utf8_lossy(&bytes).parse::<toml::Table>() else { return Ok(()) };
        self.notes
            .extend(overridden(&table).into_iter().map(|key| format!("`{key}` of {name} is overridden")));
        for include in includes(&table) {
            let target = path.parent().unwrap_or(Path::new("")).join(&include);
            if target.is_file() && depth < MAX_INCLUDES {
                self.read(&target, format!("{name} -> {}", include.display()), depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Keys whose value this crate replaces by a variable, which has precedence.
fn overridden(table: &toml::Table) -> Vec<&'static str> {
    const KEYS: [(&str, &str); 4] = [
        ("target-dir", "build.target-dir"),
        ("build-dir", "build.build-dir"),
        ("rustc-wrapper", "build.rustc-wrapper"),
        ("incremental", "build.incremental"),
    ];
    let build = table.get("build").and_then(toml::Value::as_table);
    let has = |key: &str| build.is_some_and(|build| build.contains_key(key));
    KEYS.iter().filter(|(key, _)| has(key)).map(|(_, name)| *name).collect()
}

fn includes(table: &toml::Table) -> Vec<PathBuf> {
    let path = |value: &toml::Value| match value {
        toml::Value::String(path) => Some(PathBuf::from(path)),
        toml::Value::Table(entry) => entry.get("path").and_then(toml::Value::as_str).map(PathBuf::from),
        _ => None,
    };
    match table.get("include") {
        Some(toml::Value::Array(entries)) => entries.iter().filter_map(path).collect(),
        Some(value) => path(value).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_cargo_reads_is_named_without_host_paths() {
        let top = tempfile::tempdir().unwrap();
        let checkout = top.path().join("work/checkout");
        let home = top.path().join("home");
        fs::create_dir_all(checkout.join(".cargo")).unwrap();
        fs::create_dir_all(top.path().join("work/.cargo")).unwrap();
        fs::create_dir_all(&home).unwrap();
        fs::write(checkout.join(".cargo/config.toml"), "include = [{ path = 'more.toml' }]\n").unwrap();
        fs::write(checkout.join(".cargo/more.toml"), "[build]\nrustc-wrapper = 'sccache'\n").unwrap();
        fs::write(top.path().join("work/.cargo/config"), "[build]\ntarget-dir = 'x'\nrustflags = ['-v']\n")
            .unwrap();
        fs::write(top.path().join("work/.cargo/config.toml"), "").unwrap();
        fs::write(home.join("config.toml"), "not toml").unwrap();
        let found = ConfigFiles::find(&checkout, Some(&home)).unwrap();
        let names: Vec<&str> = found.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "{checkout}/.cargo/config.toml",
                "{checkout}/.cargo/config.toml -> more.toml",
                "{checkout-parent-1}/.cargo/config",
                "{cargo-home}/config.toml"
            ]
        );
        assert_eq!(
            found.notes,
            [
                "`build.rustc-wrapper` of {checkout}/.cargo/config.toml -> more.toml is overridden",
                "`build.target-dir` of {checkout-parent-1}/.cargo/config is overridden"
            ]
        );
        let names = |home: &Path| ConfigFiles::find(&checkout, Some(home)).unwrap().files.len();
        assert_eq!(names(&top.path().join("work/.cargo")), 3, "cargo's home is not listed twice");
    }
}
