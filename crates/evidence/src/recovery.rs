use serde::{Deserialize, Serialize};

use crate::Sha256;

/// What [`Bundle::open`](crate::Bundle::open) found that the previous writer had not finished.
///
/// It is the payload of the `bundle.opened` record, so nothing it names is lost from sight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recovery {
    /// The last line of the journal, if it was torn; its bytes are kept as a file.
    pub torn: Option<TornLine>,
    /// Files that were being written, and were deleted because nothing names them.
    pub discarded_temporaries: Vec<String>,
    /// Files whose removal was recorded but not carried out, and is now.
    pub finished_removals: Vec<String>,
    /// Whole files that no record names, because the writer died between the file and its record, or while a child
    /// process was writing a log. They are kept under `recovered/`, and their old paths are free again.
    pub set_aside: Vec<SetAside>,
    /// Links, folders outside the layout and other things that no bundle has; they are left where they are, and
    /// [`verify`](crate::verify) lists them as added.
    pub foreign: Vec<String>,
    /// Files that a record names and that are not there.
    pub missing: Vec<String>,
}

impl Recovery {
    /// Whether the previous writer left nothing unfinished.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Recovery::default()
    }
}

/// A file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SetAside {
    /// Where it was.
    pub path: String,
    /// Where it is.
    pub kept_as: String,
}

impl SetAside {
    /// `seq` is the number of the record that will say so; it keeps the files of two openings apart.
    pub(crate) fn new(seq: u64, path: String) -> Self {
        let kept_as = format!("{}/{seq}/{path}", crate::layout::RECOVERED);
        SetAside { path, kept_as }
    }
}

/// A torn line that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TornLine {
    /// Where in the journal it began.
    pub offset_bytes: u64,
    /// How long it was.
    pub bytes: u64,
    /// Digest of the torn bytes.
    pub sha256: Sha256,
    /// The file that keeps them.
    pub kept_as: String,
}

impl TornLine {
    pub(crate) fn new(seq: u64, offset_bytes: u64, torn: &[u8]) -> Self {
        // A writer may die in the very record that says so; the digest keeps the two lines apart.
        let sha256 = Sha256::of(torn);
        let kept_as = format!("{}/{seq}/journal-{sha256:.12}.torn", crate::layout::RECOVERED);
        TornLine { offset_bytes, bytes: torn.len() as u64, sha256, kept_as }
    }
}
