//! A published crate: its archive, found and checked, and the files in it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Cargo's note on where a package was published from.
const ORIGIN: &str = ".cargo_vcs_info.json";

/// One file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) executable: bool,
    pub(super) bytes: Vec<u8>,
}

/// A published crate, unpacked in memory.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// SHA-256 of the archive, as the registry states it and as it was found to be.
    pub(super) checksum: String,
    pub(super) origin: Origin,
    /// The files by their path in the package, with `/` between folders. Without the origin note.
    pub(super) files: BTreeMap<String, File>,
    /// The latest date the archive gives to a file, in seconds since 1970.
    pub(super) latest_date_s: u64,
}

/// Where a package was published from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// The commit in the publisher's repository.
    pub(super) commit: String,
    /// The package's folder in that repository.
    pub(super) path: String,
}

impl Package {
    /// Finds the archive that cargo downloaded and unpacks it.
    pub(super) fn find(name: &str, version: &str, checksum: &str) -> Result<Self> {
        let archive = find_archive(&super::cargo_home()?, &format!("{name}-{version}.crate"), checksum)?;
        Self::unpack(name, version, &archive)
    }

    /// Unpacks the bytes of an archive.
    fn unpack(name: &str, version: &str, archive: &[u8]) -> Result<Self> {
        let (mut files, latest_date_s) = unpack(archive, &format!("{name}-{version}"))
            .with_context(|| format!("cannot unpack {name} {version}"))?;
        let origin = files
            .remove(ORIGIN)
            .with_context(|| format!("{name} {version} holds no {ORIGIN}, so its place is unknown"))?;
        let origin = Origin::parse(&String::from_utf8_lossy(&origin.bytes))
            .with_context(|| format!("cannot read {ORIGIN} of {name} {version}"))?;
        let checksum = sha256(archive);
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            checksum,
            origin,
            files,
            latest_date_s,
        })
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Result<&str> {
        let file = self
            .files
            .get(path)
            .with_context(|| format!("{} {} holds no {path}", self.name, self.version))?;
        std::str::from_utf8(&file.bytes)
            .with_context(|| format!("{path} of {} {} is not text", self.name, self.version))
    }
}

/// Looks through every registry folder of the cargo home. A name is not trusted, only the checksum is.
fn find_archive(cargo_home: &Path, file_name: &str, checksum: &str) -> Result<Vec<u8>> {
    let cache = cargo_home.join("registry/cache");
    let mut differing = Vec::new();
    for registry in list(&cache)? {
        let path = registry.join(file_name);
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = sha256(&bytes);
        if found == checksum {
            return Ok(bytes);
        }
        differing.push(format!("{} has SHA-256 {found}", path.display()));
    }
    ensure!(
        differing.is_empty(),
        "{file_name} should have SHA-256 {checksum}, but {}",
        differing.join(" and ")
    );
    bail!(
        "{file_name} is not in {}, although cargo fetched it: the archives themselves are needed, and a vendored or \
         directory source keeps none",
        cache.display()
    )
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(|| format!("cannot list {}", directory.display()))?;
    paths.sort();
    Ok(paths)
}

/// Unpacks a `.crate`: the files below its one folder, and the latest date among them.
fn unpack(archive: &[u8], folder: &str) -> Result<(BTreeMap<String, File>, u64)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    let mut latest_date_s = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = String::from_utf8(entry.path_bytes().into_owned()).context("a path is not text")?;
        ensure!(entry.header().entry_type().is_file(), "{path} is not a plain file");
        let inside = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        let inside = inside.with_context(|| format!("{path} lies outside {folder}/"))?.to_owned();
        check_path(&inside)?;
        let executable = entry.header().mode()? & 0o111 != 0;
        latest_date_s = latest_date_s.max(entry.header().mtime()?);
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).with_context(|| format!("cannot unpack {path}"))?;
        ensure!(files.insert(inside, File { executable, bytes }).is_none(), "{path} is there twice");
    }
    Ok((files, latest_date_s))
}

/// Refuses paths that would lead out of their folder, or that git's import could not take as they are.
fn check_path(path: &str) -> Result<()> {
    let plain = |part: &str| !matches!(part, "" | "." | ".." | ".git");
    let clean = !path.contains(['"', '\\']) && !path.chars().any(char::is_control);
    ensure!(clean && path.split('/').all(plain), "the path {path:?} is not taken");
    Ok(())
}

impl Origin {
    /// Reads cargo's note. It is a small file that cargo writes in one fixed form, so two strings are picked out of it
    /// rather than making every start of `cargo xtask` wait for a JSON library to compile.
    fn parse(note: &str) -> Result<Self> {
        let commit = json_text(note, "sha1")?;
        ensure!(
            commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()),
            "{commit:?} is not a commit id"
        );
        let path = json_text(note, "path_in_vcs")?;
        check_path(path)?;
        Ok(Self { commit: commit.to_owned(), path: path.to_owned() })
    }
}

fn json_text<'a>(note: &'a str, key: &str) -> Result<&'a str> {
    let value =
        note.split_once(&format!("\"{key}\"")).and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
    let value =
        value.and_then(|rest| rest.trim_start().strip_prefix('"')).and_then(|rest| rest.split_once('"'));
    let (value, _) = value.with_context(|| format!("{key} is missing"))?;
    ensure!(!value.contains('\\'), "{key} is written with escapes, which cargo does not do: {value:?}");
    Ok(value)
}

/// SHA-256 in lower-case hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_read_from_cargos_note() {
        let note = "{\n  \"git\": {\n    \"sha1\": \"2093662a4d4e5fd318732935213dde08dc7be818\"\n  },\n  \"path_in_vcs\": \"lib/bench\"\n}";
        let origin = Origin::parse(note).unwrap();
        assert_eq!(origin.path, "lib/bench");
        assert_eq!(origin.commit, "2093662a4d4e5fd318732935213dde08dc7be818");
    }

    #[test]
    fn origin_without_place_or_with_a_wild_one_is_refused() {
        let cases = [
            (r#"{"git":{"sha1":"2093662a4d4e5fd318732935213dde08dc7be818"}}"#, "path_in_vcs is missing"),
            (r#"{"git":{"sha1":"209366"},"path_in_vcs":"lib/bench"}"#, "not a commit id"),
            (
                r#"{"git":{"sha1":"2093662a4d4e5fd318732935213dde08dc7be818"},"path_in_vcs":"../x"}"#,
                "not taken",
            ),
            (r#"{"git":{"sha1":"2093662a4d4e5fd318732935213dde08dc7be818"},"path_in_vcs":""}"#, "not taken"),
        ];
        for (note, expected) in cases {
            let error = format!("{:#}", Origin::parse(note).unwrap_err());
            assert!(error.contains(expected), "{note}: {error}");
        }
    }

    /// Path, mode and text of a file in an archive.
    type Entry<'a> = (&'a str, u32, &'a str);

    fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut builder = tar::Builder::new(gzip);
        for (path, mode, text) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(*mode);
            header.set_mtime(7);
            builder.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    const NOTE: &str = r#"{"git":{"sha1":"2093662a4d4e5fd318732935213dde08dc7be818"},"path_in_vcs":"lib/a"}"#;

    #[test]
    fn a_package_is_its_files_without_the_note() {
        let long = format!("a-1.0.0/{}/x.rs", "deep/".repeat(40).trim_end_matches('/'));
        let bytes = archive(&[("a-1.0.0/.cargo_vcs_info.json", 0o644, NOTE), (&long, 0o755, "x")]);
        let package = Package::unpack("a", "1.0.0", &bytes).unwrap();
        let (path, file) = package.files.first_key_value().unwrap();
        assert_eq!(package.files.len(), 1);
        assert_eq!(format!("a-1.0.0/{path}"), long);
        assert!(file.executable && file.bytes == b"x");
        assert_eq!((package.latest_date_s, package.checksum), (7, sha256(&bytes)));
    }

    #[test]
    fn what_is_wrong_with_an_archive_is_said() {
        let cases: [(&[Entry<'_>], &str); 3] = [
            (&[("a-1.0.0/x", 0o644, "x")], "holds no .cargo_vcs_info.json"),
            (&[("b-1.0.0/x", 0o644, "x")], "lies outside a-1.0.0/"),
            (&[("a-1.0.0/x", 0o644, "x"), ("a-1.0.0/x", 0o644, "y")], "is there twice"),
        ];
        for (entries, expected) in cases {
            let error = format!("{:#}", Package::unpack("a", "1.0.0", &archive(entries)).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_archive_is_found_by_its_checksum_only() {
        let home = std::env::temp_dir().join(format!("xtask-archive-{}", std::process::id()));
        let registry = home.join("registry/cache/some-registry");
        std::fs::create_dir_all(&registry).unwrap();
        std::fs::write(registry.join("a-1.0.0.crate"), b"bytes").unwrap();
        let right = find_archive(&home, "a-1.0.0.crate", &sha256(b"bytes"));
        let wrong = find_archive(&home, "a-1.0.0.crate", &sha256(b"other"));
        let missing = find_archive(&home, "b-1.0.0.crate", &sha256(b"other"));
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(right.unwrap(), b"bytes");
        assert!(format!("{:#}", wrong.unwrap_err()).contains("should have SHA-256"));
        assert!(format!("{:#}", missing.unwrap_err()).contains("is not in"));
    }
}
