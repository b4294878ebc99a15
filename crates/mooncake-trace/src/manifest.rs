use std::collections::BTreeMap;
use std::num::NonZeroU64;

use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

use crate::known::Recognised;
use crate::record::Rules;
use crate::window::Window;

/// The value of `schema` in every manifest.
pub const SLICE_MANIFEST_SCHEMA: &str = "mooncake-slice-manifest";
/// The value of `schema_version` in the manifests this version writes.
pub const SLICE_MANIFEST_VERSION: u32 = 1;

/// What was cut from what, and by which rules: `OUT.manifest.json`.
///
/// It names bytes by digest and holds no path, host, or time, so that the same window of the same trace has the same
/// manifest wherever it is cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use = "a slice without its manifest cannot be verified"]
pub struct SliceManifest {
    /// [`SLICE_MANIFEST_SCHEMA`].
    pub schema: String,
    /// [`SLICE_MANIFEST_VERSION`].
    pub schema_version: u32,
    /// Version of this crate.
    pub written_by: String,
    /// The trace that was read, all of it.
    pub source: SourceRecord,
    /// The rows asked for.
    pub window: Window,
    /// The bytes of those rows.
    pub slice: SliceRecord,
    /// The rules that every row of the source was held against.
    pub rules: Rules,
}

/// The trace that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SourceRecord {
    /// Digest of all its bytes.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
    /// Its rows, all of them valid.
    pub rows: u64,
    /// The published trace it is, if any.
    pub known: Option<Recognised>,
}

/// The window that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SliceRecord {
    /// Digest of all its bytes.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
    /// Its rows: the window's count.
    pub rows: NonZeroU64,
    /// Arrival of its first row.
    pub first_timestamp_ms: u64,
    /// Arrival of its last row.
    pub last_timestamp_ms: u64,
    /// Sum of `input_length`.
    pub input_tokens: u64,
    /// Sum of `output_length`.
    pub output_tokens: u64,
    /// Block ids, repeated ones counted each time.
    pub hash_ids: u64,
    /// Rows that ask for no output at all.
    pub rows_without_output: u64,
    /// Rows that end with a carriage return and a line feed.
    pub crlf_rows: u64,
    /// Whether the last row ends with a line feed.
    pub ends_with_newline: bool,
    /// Fields outside the Mooncake row, with the number of rows that have them; empty unless the rules keep them.
    pub other_fields: BTreeMap<String, u64>,
    /// The published window it is, if any.
    pub known: Option<Recognised>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes are not a manifest.
    #[error("cannot read the slice manifest")]
    Json {
        /// Why.
        source: serde_json::Error,
    },
    /// The file is something else.
    #[error("expected schema {SLICE_MANIFEST_SCHEMA}, found {found}")]
    Schema {
        /// What it says it is.
        found: String,
    },
    /// The manifest is older or newer than this crate.
    #[error("expected version {SLICE_MANIFEST_VERSION} of {SLICE_MANIFEST_SCHEMA}, found version {found}")]
    Version {
        /// Its version.
        found: u64,
    },
}

/// What is read before anything else, so that another version is told from a broken file.
#[derive(Deserialize)]
struct Header {
    schema: String,
    schema_version: u64,
}

impl SliceManifest {
    pub(crate) fn new(source: SourceRecord, window: Window, slice: SliceRecord, rules: Rules) -> Self {
        SliceManifest {
            schema: SLICE_MANIFEST_SCHEMA.to_owned(),
            schema_version: SLICE_MANIFEST_VERSION,
            written_by: format!("mooncake-trace {}", env!("CARGO_PKG_VERSION")),
            source,
            window,
            slice,
            rules,
        }
    }

    /// The text of `OUT.manifest.json`.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "it cannot happen, as the expectation says")]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a manifest is text and whole numbers, which JSON can always hold");
        text.push('\n');
        text
    }

    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// The bytes are not JSON, not a slice manifest, or of another version.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ManifestError> {
        let json = |source| ManifestError::Json { source };
        let header: Header = serde_json::from_slice(bytes).map_err(json)?;
        if header.schema != SLICE_MANIFEST_SCHEMA {
            return Err(ManifestError::Schema { found: header.schema });
        }
        if header.schema_version != u64::from(SLICE_MANIFEST_VERSION) {
            return Err(ManifestError::Version { found: header.schema_version });
        }
        serde_json::from_slice(bytes).map_err(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> SliceManifest {
        let row = br#"{"timestamp":7,"input_length":5,"output_length":0,"hash_ids":[1]}"#;
        crate::slice(&row[..], &Window::new(0, 1).unwrap(), std::io::sink()).unwrap()
    }

    fn check(change: (&str, &str), expected: &str) {
        let text = manifest().to_json();
        let changed = text.replacen(change.0, change.1, 1);
        assert_ne!(text, changed);
        let error = SliceManifest::from_json(changed.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let manifest = manifest();
        assert_eq!(SliceManifest::from_json(manifest.to_json().as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn schema_and_version_come_first() {
        let expected = "{\n  \"schema\": \"mooncake-slice-manifest\",\n  \"schema_version\": 1,\n";
        assert!(manifest().to_json().starts_with(expected));
    }

    #[test]
    fn other_files_are_told_apart() {
        check(("mooncake-slice-manifest", "something-else"), "found something-else");
        check(("\"schema_version\": 1", "\"schema_version\": 2"), "found version 2");
        check(("\"written_by\"", "\"written_on\""), "cannot read");
        check(("{", "["), "cannot read");
    }
}
