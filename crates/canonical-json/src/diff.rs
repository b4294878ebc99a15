use crate::{CanonicalError, Pointer, Rules, Sha256, digest};

/// How much of a difference is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffLimits {
    /// How many shapes of difference are told apart; further ones are counted together.
    pub max_groups: usize,
    /// How many concrete differences of each shape are kept.
    pub max_examples: usize,
    /// How many bytes of each value are kept.
    pub max_value_bytes: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        DiffLimits { max_groups: 100, max_examples: 3, max_value_bytes: 200 }
    }
}

/// How two documents differ under the same rules.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[must_use]
pub struct Diff {
    /// The digest of the left document.
    pub left: Sha256,
    /// The digest of the right document.
    pub right: Sha256,
    /// How many differences there are; zero exactly if the digests are equal.
    pub total: u64,
    /// The differences by shape, in the order in which the shapes first occur.
    pub groups: Vec<DiffGroup>,
    /// Whether there were more shapes than the limit; `total` counts their differences too.
    pub truncated: bool,
}

/// All differences at places of one shape.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DiffGroup {
    /// The places, with `*` for every array index: `/per_request/*/decode_worker_idx`.
    pub shape: String,
    /// How many differences have this shape.
    pub count: u64,
    /// The first few of them.
    pub examples: Vec<Difference>,
}

/// One place at which the documents differ.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Difference {
    /// The place, in the canonical form.
    pub pointer: Pointer,
    /// The innermost key of an unordered array's element that the place is in.
    pub key: Option<String>,
    /// The canonical text of the left value, cut to the limit; nothing if there is none.
    pub left: Option<String>,
    /// The canonical text of the right value, cut to the limit; nothing if there is none.
    pub right: Option<String>,
    /// How many doubles lie between two numbers, where both have one.
    pub ulps: Option<u64>,
}

/// Compares two documents under the same rules.
///
/// # Errors
///
/// One of the documents has no canonical form; see [`crate::canonicalize`].
pub fn diff(left: &[u8], right: &[u8], rules: &Rules, _limits: &DiffLimits) -> Result<Diff, CanonicalError> {
    let (left, right) = (digest(left, rules)?.sha256, digest(right, rules)?.sha256);
    Ok(Diff { left, right, total: u64::from(left != right), groups: Vec::new(), truncated: false })
}
