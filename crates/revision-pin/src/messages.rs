use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A line of what cargo writes with `--message-format json`, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub(crate) enum Message {
    CompilerArtifact(Artifact),
    BuildScriptExecuted(BuildScript),
    #[serde(other)]
    Other,
}

/// A unit that was compiled, or was fresh.
#[derive(Debug, Deserialize)]
pub(crate) struct Artifact {
    pub(crate) package_id: String,
    pub(crate) target: ArtifactTarget,
    pub(crate) features: Vec<String>,
    pub(crate) filenames: Vec<PathBuf>,
    pub(crate) executable: Option<PathBuf>,
    pub(crate) fresh: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ArtifactTarget {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// A build script that was run, now or when its output was kept.
#[derive(Debug, Deserialize)]
pub(crate) struct BuildScript {
    pub(crate) package_id: String,
    pub(crate) out_dir: PathBuf,
}

/// Reads every message; a line that is none is an error with its number.
pub(crate) fn read(path: &Path) -> Result<Vec<Message>, (u64, io::Error)> {
    let file = File::open(path).map_err(|error| (0, error))?;
    let mut messages = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).split(b'\n')) {
        let line = line.map_err(|error| (number, error))?;
        if !line.trim_ascii().is_empty() {
            messages.push(serde_json::from_slice(&line).map_err(|error| (number, error.into()))?);
        }
    }
    Ok(messages)
}

/// Where a package came from, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Registry,
    Other,
}

pub(crate) fn origin(package_id: &str) -> Origin {
    let registry = package_id.starts_with("registry+") || package_id.starts_with("sparse+");
    if registry { Origin::Registry } else { Origin::Other }
}

/// The name in a package id such as `registry+https://…#itoa@1.0.19` or `path+file:///…/itoa#1.0.19`.
pub(crate) fn package_name(package_id: &str) -> Option<&str> {
    let (source, fragment) = package_id.split_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => source.trim_end_matches('/').rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_unknown_ones_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("messages");
        let lines = [
            r#"{"reason":"compiler-artifact","package_id":"a","target":{"name":"t","kind":["bin"],"src_path":"/s","new":1},"features":["f"],"filenames":["/f"],"executable":"/e","fresh":true,"profile":{}}"#,
            r#"{"reason":"build-script-executed","package_id":"a","out_dir":"/o","env":[]}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let messages = read(&path).unwrap();
        assert!(matches!(&messages[0], Message::CompilerArtifact(artifact) if artifact.fresh));
        assert!(matches!(&messages[1], Message::BuildScriptExecuted(_)));
        assert!(matches!(messages[2], Message::Other));
        std::fs::write(&path, "{}\nnot JSON\n").unwrap();
        assert_eq!(read(&path).unwrap_err().0, 1);
        std::fs::write(&path, "{\"reason\":\"x\"}\nnot JSON\n").unwrap();
        assert_eq!(read(&path).unwrap_err().0, 2);
    }

    #[test]
    fn package_ids_say_name_and_origin() {
        for (id, name, from) in [
            ("registry+https://github.com/rust-lang/crates.io-index#itoa@1.0.19", "itoa", Origin::Registry),
            ("sparse+https://index.example/#itoa@1.0.19", "itoa", Origin::Registry),
            ("path+file:///w/dep#tinydep@0.1.0", "tinydep", Origin::Other),
            ("path+file:///w/tiny#0.1.0", "tiny", Origin::Other),
            ("git+https://example/r?rev=1#abc@0.1.0", "abc", Origin::Other),
        ] {
            assert_eq!((package_name(id), origin(id)), (Some(name), from), "{id}");
        }
    }
}
