use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::host_paths::HostPaths;

/// How host paths were mapped in a build.
///
/// The mapping is done by a `RUSTC_WRAPPER`, a shell script of two lines that adds `--remap-path-prefix` to every call
/// of rustc. The obvious way, `RUSTFLAGS`, would replace the `rustflags` that the repository's own
/// `.cargo/config.toml` sets, and would change what cargo calls every dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PathMapping {
    /// The script, with the names of this record in place of host paths.
    pub script: String,
    /// Digest of the script as it ran.
    pub sha256: Sha256,
    /// What is replaced, by name, and what by.
    pub prefixes: Vec<(String, String)>,
}

/// Writes the script. rustc takes the last prefix that fits, so the longer ones come last.
pub(crate) fn write(
    path: &Path,
    prefixes: &[(PathBuf, String)],
    paths: &HostPaths,
) -> io::Result<PathMapping> {
    let mut ordered: Vec<&(PathBuf, String)> = prefixes.iter().collect();
    ordered.sort_by_key(|(prefix, _)| prefix.as_os_str().len());
    let mut script = b"#!/bin/sh\nexec \"$@\"".to_vec();
    for (prefix, name) in &ordered {
        script.push(b' ');
        let option = [b"--remap-path-prefix=", prefix.as_os_str().as_bytes(), b"=", name.as_bytes()].concat();
        script.extend(quote(&option));
    }
    script.push(b'\n');
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(&script)?;
    Ok(PathMapping {
        script: paths.hide(&String::from_utf8_lossy(&script)),
        sha256: Sha256::of(&script),
        prefixes: ordered
            .iter()
            .map(|(prefix, to)| (paths.hide(&prefix.to_string_lossy()), to.clone()))
            .collect(),
    })
}

/// One word for the shell, whatever is in it.
fn quote(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpu_placement::{CancelToken, Output, Run};
    use proptest::prelude::*;

    #[test]
    fn the_longest_prefix_comes_last_and_host_paths_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let prefixes =
            [(PathBuf::from("/h/checkout"), "/source".to_owned()), (PathBuf::from("/h"), "/home".to_owned())];
        let paths =
            HostPaths::new([(PathBuf::from("/h/checkout"), "{checkout}"), (PathBuf::from("/h"), "{home}")]);
        let mapping = write(&dir.path().join("wrapper"), &prefixes, &paths).unwrap();
        assert_eq!(
            mapping.script,
            "#!/bin/sh\nexec \"$@\" '--remap-path-prefix={home}=/home' '--remap-path-prefix={checkout}=/source'\n"
        );
        assert!(
            write(&dir.path().join("wrapper"), &prefixes, &paths).is_err(),
            "an old script is never taken over"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Whatever a folder is called, rustc gets its name as one argument.
        #[test]
        fn any_path_is_one_argument(path in "/[a-z '\"$`\\\\=;&|(){}*?~!#\u{e9}\u{4e2d}-]{1,24}") {
            let dir = tempfile::tempdir().unwrap();
            let script = dir.path().join("wrapper");
            write(&script, &[(PathBuf::from(&path), "/to".to_owned())], &HostPaths::new([])).unwrap();
            let out = dir.path().join("out");
            let run = Run::new(&script).args(["/usr/bin/printf", "%s\\n", "first"]).stdout(Output::File(out.clone()));
            let finished = run.wait(&CancelToken::new()).unwrap();
            prop_assert!(finished.outcome.is_success());
            let printed = fs::read_to_string(out).unwrap();
            prop_assert_eq!(printed, format!("first\n--remap-path-prefix={path}=/to\n"));
        }
    }
}
