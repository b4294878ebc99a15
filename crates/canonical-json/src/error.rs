use std::fmt::{self, Write};
use std::io;

use thiserror::Error;

use crate::{Pattern, Pointer, ReadError, ReadErrorKind};

/// Why a document has no canonical form under the given rules.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The input is not strict JSON, or not what the form accepts.
    #[error("the input is not valid")]
    Read(#[source] ReadError),
    /// The input could not be read, or there is no room for it or for what must be known of it.
    #[error("the input cannot be read after {offset} bytes")]
    Input {
        /// How many bytes were read before.
        offset: u64,
        /// What the reader said.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("the canonical form cannot be written")]
    Output(#[source] io::Error),
    /// A member that the rules say must be there is not.
    #[error("nothing matches the required exclusion `{pattern}`")]
    ExclusionAbsent {
        /// The exclusion.
        pattern: Pattern,
    },
    /// The whole document would be left out.
    #[error("an exclusion matches the whole document")]
    ExclusionOfAll,
    /// The rules call something unordered that is no array.
    #[error("`{}` is called unordered, but is not an array", Shown(.pointer))]
    UnorderedNotArray {
        /// The value.
        pointer: Pointer,
    },
    /// An element of an unordered array has no key to sort by.
    #[error("the element `{}` has no `{}` to be sorted by", Shown(.element), Shown(.by))]
    KeyAbsent {
        /// The element.
        element: Pointer,
        /// Where the key should be, seen from the element.
        by: Pointer,
    },
    /// The key of an element of an unordered array is itself left out, or in something that is.
    #[error("the element `{}` cannot be sorted by `{}`, which is left out", Shown(.element), Shown(.by))]
    KeyExcluded {
        /// The element.
        element: Pointer,
        /// Where the key is, seen from the element.
        by: Pointer,
    },
    /// The key of an element is neither a string nor an integer.
    #[error("`{}` of the element `{}` is neither a string nor an integer", Shown(.by), Shown(.element))]
    KeyKind {
        /// The element.
        element: Pointer,
        /// Where the key is, seen from the element.
        by: Pointer,
    },
    /// Two elements of an unordered array share a key.
    #[error("the elements `{}` and `{}` have the same `{}`", Shown(.first), Shown(.second), Shown(.by))]
    KeyRepeated {
        /// The element that comes first in the input.
        first: Pointer,
        /// The other one.
        second: Pointer,
        /// Where the key is, seen from the element.
        by: Pointer,
    },
}

impl From<ReadError> for CanonicalError {
    fn from(error: ReadError) -> Self {
        match error.kind {
            // Nothing is wrong with the input.
            ReadErrorKind::NoRoom => {
                let source = io::ErrorKind::OutOfMemory.into();
                CanonicalError::Input { offset: error.offset as u64, source }
            }
            _ => CanonicalError::Read(error),
        }
    }
}

/// Text from a document inside of a message: on one line, of a bounded length, and without anything that a terminal
/// would obey.
pub(crate) struct Shown<T>(pub(crate) T);

/// How many characters of it are shown.
const MAX_SHOWN: usize = 200;

impl<T: AsRef<str>> fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.as_ref().chars();
        for c in chars.by_ref().take(MAX_SHOWN) {
            if c.is_control() { write!(f, "\\u{:04x}", u32::from(c))? } else { f.write_char(c)? }
        }
        if chars.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_plain() {
        assert_eq!(Shown("a\u{1b}[2J\n\u{85}é").to_string(), r"a\u001b[2J\u000a\u0085é");
        let long = "é".repeat(1000);
        assert_eq!(Shown(&long).to_string(), format!("{}…", "é".repeat(200)));
        assert_eq!(Shown(&long[..400]).to_string(), long[..400]);
    }
}
