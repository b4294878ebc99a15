use std::io;

use thiserror::Error;

use crate::{Pattern, Pointer, ReadError};

/// Why a document has no canonical form under the given rules.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The input is not strict JSON, or not what the form accepts.
    #[error("the input is not valid")]
    Read(#[from] ReadError),
    /// The input could not be read.
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
    #[error("`{pointer}` is called unordered, but is not an array")]
    UnorderedNotArray {
        /// The value.
        pointer: Pointer,
    },
    /// An element of an unordered array has no key to sort by.
    #[error("the element `{element}` has no `{by}` to be sorted by")]
    KeyAbsent {
        /// The element.
        element: Pointer,
        /// Where the key should be, seen from the element.
        by: Pointer,
    },
    /// The key of an element is neither a string nor an integer.
    #[error("`{by}` of the element `{element}` is neither a string nor an integer")]
    KeyKind {
        /// The element.
        element: Pointer,
        /// Where the key is, seen from the element.
        by: Pointer,
    },
    /// Two elements of an unordered array share a key.
    #[error("the elements `{first}` and `{second}` have the same `{by}`")]
    KeyRepeated {
        /// The element that comes first in the input.
        first: Pointer,
        /// The other one.
        second: Pointer,
        /// Where the key is, seen from the element.
        by: Pointer,
    },
}
