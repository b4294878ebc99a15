//! Lists that allocate nothing: the caller's slice on the way out, a view of the received bytes on the way in.

use std::fmt;

use crate::codec::{Decoder, Encoder, Measure};
use crate::dialect::Dialect;
use crate::error::DecodeError;
use crate::literal;
use crate::visit::Visitor;
use crate::wire::{Decode, Describe, Encode, WireStr};

/// A vector of the protocol.
///
/// To send one, make it of a slice: `List::from(&[1, 2][..])`; a list of keys may be made of a slice of `&str` or
/// `String`. A received one is a view of checked bytes whose elements are read anew by each iteration.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    repr: Repr<'a, T>,
}

#[derive(Clone, Copy)]
enum Repr<'a, T> {
    Items(&'a [T]),
    Strs(&'a [&'a str]),
    Strings(&'a [String]),
    /// Elements that were all passed over once without an error.
    Received {
        first: Decoder<'a>,
        count: usize,
    },
}

impl<'a, T> List<'a, T> {
    /// How many elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.repr {
            Repr::Items(items) => items.len(),
            Repr::Strs(strs) => strs.len(),
            Repr::Strings(strings) => strings.len(),
            Repr::Received { count, .. } => count,
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Decode<'a>> List<'a, T> {
    /// The elements.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter { list: *self, next: 0 }
    }

    /// The first element.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }
}

/// The elements of a [`List`].
#[derive(Clone, Copy)]
pub struct ListIter<'a, T> {
    list: List<'a, T>,
    next: usize,
}

impl<'a, T: Decode<'a>> Iterator for ListIter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let index = self.next;
        let item = match &mut self.list.repr {
            Repr::Items(items) => *items.get(index)?,
            Repr::Strs(strs) => of_key((*strs.get(index)?).into()),
            Repr::Strings(strings) => of_key(strings.get(index)?.into()),
            Repr::Received { count, .. } if index == *count => return None,
            Repr::Received { first, .. } => {
                T::decode(first).expect("every element was passed over when the list was read")
            }
        };
        self.next += 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len() - self.next;
        (left, Some(left))
    }
}

fn of_key<'a, T: Decode<'a>>(key: WireStr<'a>) -> T {
    T::from_key(key).expect("only lists of keys are made of strings")
}

impl<'a, T: Decode<'a>> ExactSizeIterator for ListIter<'a, T> {}

impl<'a, T: Decode<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Decode<'a>> IntoIterator for &List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List { repr: Repr::Items(&[]) }
    }
}

impl<'a, T: Decode<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        List { repr: Repr::Items(items) }
    }
}

impl<'a, T> From<&'a Vec<T>> for List<'a, T> {
    fn from(items: &'a Vec<T>) -> Self {
        List { repr: Repr::Items(items) }
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(items: &'a [T; N]) -> Self {
        List { repr: Repr::Items(items) }
    }
}

/// The types that stand for a key.
macro_rules! list_of_keys {
    ($($type:ty),*) => {$(
        impl<'a> From<&'a [&'a str]> for List<'a, $type> {
            fn from(keys: &'a [&'a str]) -> Self {
                List { repr: Repr::Strs(keys) }
            }
        }

        impl<'a> From<&'a Vec<&'a str>> for List<'a, $type> {
            fn from(keys: &'a Vec<&'a str>) -> Self {
                List { repr: Repr::Strs(keys) }
            }
        }

        impl<'a, const N: usize> From<&'a [&'a str; N]> for List<'a, $type> {
            fn from(keys: &'a [&'a str; N]) -> Self {
                List { repr: Repr::Strs(keys) }
            }
        }

        impl<'a> From<&'a [String]> for List<'a, $type> {
            fn from(keys: &'a [String]) -> Self {
                List { repr: Repr::Strings(keys) }
            }
        }

        impl<'a> From<&'a Vec<String>> for List<'a, $type> {
            fn from(keys: &'a Vec<String>) -> Self {
                List { repr: Repr::Strings(keys) }
            }
        }
    )*};
}

list_of_keys!(WireStr<'a>, crate::types::ObjectMeta<'a>);

impl<T: Describe> Describe for List<'_, T> {
    const MIN_BYTES: usize = 1;

    fn literal(dialect: Dialect, out: &mut Vec<u8>) {
        out.push(literal::VECTOR);
        T::literal(dialect, out);
    }
}

impl<'a, T: Encode + Decode<'a>> Encode for List<'a, T> {
    #[inline]
    fn measure(&self, measure: &mut Measure) {
        measure.size(self.len());
        for item in self {
            item.measure(measure);
        }
    }

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        encoder.size(self.len());
        for item in self {
            item.encode(encoder);
        }
    }

    fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor) {
        visitor.open_list(self.len());
        for item in self {
            item.visit(dialect, visitor);
        }
        visitor.close();
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for List<'a, T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let count = decoder.count(T::MIN_BYTES)?;
        let first = *decoder;
        for _ in 0..count {
            T::skip(decoder)?;
        }
        Ok(List { repr: Repr::Received { first, count } })
    }
}
