use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::messages::{Message, Origin, origin, package_name};

/// What a build left that another build may start from.
///
/// Only units of registry packages are listed: a package of a registry is the same in every revision that names its
/// version, so a compiled copy can be reused. A package with a path is not, and cargo takes two checkouts made before
/// either was built for the same: it would hand out the first one's binary.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Units {
    /// How many units.
    pub(crate) units: u64,
    /// Files and folders below the target directory.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// The target directories in which the units were compiled. A unit may hold the path of its own.
    pub(crate) origins: BTreeSet<PathBuf>,
}

/// What a build started from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Seeded {
    /// How many compiled units of registry packages were copied.
    pub units: u64,
    /// How many files that were.
    pub files: u64,
    /// How large they are.
    pub bytes: u64,
}

impl Units {
    /// Lists the registry units among the messages of a build. `registry` is where the registry unpacks sources; a
    /// package whose source is elsewhere (vendored into the repository, for one) can differ between revisions.
    pub(crate) fn of(messages: &[Message], target: &Path, registry: &Path) -> io::Result<Self> {
        let mut units = Units::default();
        let mut genuine = BTreeSet::new();
        for message in messages {
            let Message::CompilerArtifact(artifact) = message else { continue };
            if origin(&artifact.package_id) == Origin::Registry
                && artifact.target.src_path.starts_with(registry)
            {
                genuine.insert(artifact.package_id.as_str());
            }
        }
        for message in messages {
            match message {
                Message::CompilerArtifact(artifact) if genuine.contains(artifact.package_id.as_str()) => {
                    let first = artifact.filenames.first();
                    units.add(target, &artifact.package_id, first)?;
                }
                Message::BuildScriptExecuted(script) if genuine.contains(script.package_id.as_str()) => {
                    units.add(target, &script.package_id, Some(&script.out_dir))?;
                }
                _ => {}
            }
        }
        Ok(units)
    }

    /// Adds everything of one unit, if it lies where this crate knows cargo to put it. Otherwise it is left out, and
    /// the next build compiles it again.
    fn add(&mut self, target: &Path, package_id: &str, output: Option<&PathBuf>) -> io::Result<()> {
        let Some(place) = output.and_then(|output| Place::of(target, output, package_id)) else {
            return Ok(());
        };
        let fingerprint = place.profile.join(".fingerprint").join(&place.unit);
        if !target.join(&fingerprint).is_dir() {
            return Ok(());
        }
        let mut paths = match &place.hash {
            None => vec![place.profile.join("build").join(&place.unit)],
            Some(hash) => with_hash(target, &place.profile.join("deps"), hash)?,
        };
        paths.push(fingerprint);
        self.units += 1;
        self.paths.extend(paths);
        Ok(())
    }

    /// Copies the units into a new target directory, with their times: cargo compares those.
    pub(crate) fn copy(&self, from: &Path, to: &Path) -> io::Result<Seeded> {
        let mut seeded = Seeded { units: self.units, ..Seeded::default() };
        for path in &self.paths {
            if path.components().any(|part| !matches!(part, Component::Normal(_))) {
                return Err(io::Error::other(format!(
                    "`{}` is not below a target directory",
                    path.display()
                )));
            }
            if let Some(parent) = to.join(path).parent() {
                fs::create_dir_all(parent)?;
            }
            copy(&from.join(path), &to.join(path), &mut seeded)?;
        }
        Ok(seeded)
    }
}

/// Where a unit lies: `PROFILE/deps/lib…-HASH.rlib` or `PROFILE/build/UNIT/…`.
struct Place {
    profile: PathBuf,
    unit: String,
    hash: Option<String>,
}

impl Place {
    fn of(target: &Path, output: &Path, package_id: &str) -> Option<Self> {
        let below = output.strip_prefix(target).ok()?;
        let parts: Vec<&str> =
            below.components().map(|part| part.as_os_str().to_str()).collect::<Option<_>>()?;
        let at = parts.iter().position(|part| ["deps", "build"].contains(part))?;
        let profile = parts[..at].iter().collect();
        let name = parts.get(at + 1)?;
        if parts[at] == "build" {
            return Some(Place { profile, unit: (*name).to_owned(), hash: None });
        }
        let (_, hash) = name.split('.').next()?.rsplit_once('-')?;
        let unit = format!("{}-{hash}", package_name(package_id)?);
        Some(Place { profile, unit, hash: Some(hash.to_owned()) })
    }
}

/// The files of a folder whose stem ends in a hash, such as `libitoa-HASH.rlib` and `itoa-HASH.d`.
fn with_hash(target: &Path, folder: &Path, hash: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(target.join(folder))? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.split('.').next());
        if stem.and_then(|stem| stem.rsplit_once('-')).is_some_and(|(_, found)| found == hash) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path, seeded: &mut Seeded) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name), seeded)?;
        }
        return Ok(());
    }
    if metadata.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    seeded.files += 1;
    seeded.bytes += fs::copy(from, to)?;
    let times = FileTimes::new().set_modified(metadata.modified()?).set_accessed(metadata.accessed()?);
    // Opened for reading: the owner may set times, and the file may be read-only.
    File::open(to)?.set_times(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(output: &str, id: &str) -> Option<(String, String)> {
        let place = Place::of(Path::new("/t"), Path::new(output), id)?;
        Some((place.profile.to_str().unwrap().to_owned(), place.unit))
    }

    #[test]
    fn units_are_found_by_their_outputs() {
        let id = "registry+https://r#serde-json@1.0.0";
        let expect = |profile: &str, unit: &str| Some((profile.to_owned(), unit.to_owned()));
        assert_eq!(
            place("/t/release/deps/libserde_json-0a1b.rlib", id),
            expect("release", "serde-json-0a1b")
        );
        assert_eq!(place("/t/x86/release/deps/libx-0a.so", id), expect("x86/release", "serde-json-0a"));
        assert_eq!(place("/t/release/build/serde-json-ff/out", id), expect("release", "serde-json-ff"));
        assert_eq!(place("/t/release/libx.so", id), None);
        assert_eq!(place("/elsewhere/release/deps/libx-0a.so", id), None);
    }

    #[test]
    fn a_list_that_leaves_the_target_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/etc/passwd", "a/../../b"] {
            let units = Units { units: 1, paths: BTreeSet::from([PathBuf::from(path)]), ..Units::default() };
            assert!(units.copy(dir.path(), dir.path()).is_err(), "{path}");
        }
    }
}
