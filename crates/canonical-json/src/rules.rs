use crate::{Pattern, Pointer};

/// Which of the two canonical forms is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Form {
    /// Keys sorted by code point, no whitespace, strings escaped minimally, numbers exactly as written.
    #[default]
    Lexical,
    /// RFC 8785, the JSON Canonicalization Scheme: keys sorted by UTF-16 code unit, numbers as ECMAScript prints
    /// them, and only what I-JSON (RFC 7493) allows.
    Jcs,
}

impl Form {
    /// The name used on command lines and in rule files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Form::Lexical => "lexical",
            Form::Jcs => "jcs",
        }
    }
}

/// What the canonical form of a document is: the form itself, what is left out, and which arrays have no order.
///
/// The empty rules, [`Rules::default`], are the lexical form of the whole document.
///
/// Patterns name places of the document as it is given, an index in a pattern being that in the input. What is left
/// out is left out first: nothing in it is looked at again, so that it can never influence the canonical form. An
/// unordered array whose key is left out is therefore an error, [`crate::CanonicalError::KeyExcluded`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Rules {
    /// How keys are sorted and numbers are written.
    pub form: Form,
    /// Members that are left out: a closed list.
    pub exclusions: Vec<Exclusion>,
    /// Arrays whose order means nothing.
    pub unordered: Vec<Unordered>,
}

impl Rules {
    /// The whole document in this form.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Rules { form, ..Rules::default() }
    }
}

/// Members (or elements) that are left out of the canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Exclusion {
    /// Which ones; never the whole document.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "part"))]
    pub pattern: Pattern,
    /// Whether it is an error if the document has none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub required: bool,
}

/// Arrays that are sorted by a key inside each element.
///
/// The key is a string or an integer that the form writes as it stands in the input, is present in every element that
/// is not left out, and no two elements of one array share it. Integers come first, by value, then strings, by code
/// point. Where several rules match one array, the first of them counts. Sorting needs some sixty bytes of memory for
/// each element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Unordered {
    /// Which arrays.
    pub at: Pattern,
    /// Where the key is, seen from the element.
    pub by: Pointer,
}

/// A pattern of parts of a document: what says otherwise is to blame, not the document that nothing would be left of.
#[cfg(feature = "serde")]
fn part<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
    let pattern: Pattern = serde::Deserialize::deserialize(deserializer)?;
    if pattern.steps().is_empty() {
        return Err(serde::de::Error::custom("expected a pattern that does not match the whole document"));
    }
    Ok(pattern)
}
