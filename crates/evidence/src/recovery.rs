use serde::{Deserialize, Serialize};

use crate::Sha256;

/// What [`Bundle::open`](crate::Bundle::open) found that the previous writer had not finished.
///
/// It is the payload of the `bundle.opened` record, so nothing it names is lost from sight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recovery {
    /// The last line of the journal, if it was torn; its bytes are kept as a file.
    pub torn: Option<TornLine>,
    /// Files that were being written, and were deleted because nothing names them.
    pub discarded_temporaries: Vec<String>,
    /// Files whose removal was recorded but not carried out, and is now.
    pub finished_removals: Vec<String>,
    /// Whole files that no record names: the writer died between the file and its record. The next
    /// [`write_file`](crate::Bundle::write_file) of the path replaces it; until then [`verify`](crate::verify) lists it as added.
    pub unrecorded: Vec<String>,
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

/// A torn line that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub(crate) fn new(offset_bytes: u64, torn: &[u8]) -> Self {
        // Two writers may die at the same place one after the other; the digest keeps their lines apart.
        let sha256 = Sha256::of(torn);
        let kept_as = format!("{}/journal-at-{offset_bytes}-{:.12}.torn", crate::layout::RECOVERED, sha256);
        TornLine { offset_bytes, bytes: torn.len() as u64, sha256, kept_as }
    }
}
