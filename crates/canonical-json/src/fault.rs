//! How a document does not fit the rules, found on the way by where it is in the input, and said by name.

use std::io::ErrorKind;

use crate::read::{Event, Limits, Reader};
use crate::{CanonicalError, Pointer, Rules};

/// What is wrong; values are named by where they start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A value that is called unordered is no array.
    NotArray { value: usize },
    /// An element of an array that this rule sorts has no key that counts.
    NoKey { element: usize, rule: usize },
    /// The key is neither a string nor an integer.
    KeyKind { element: usize, rule: usize },
    /// Two elements share a key.
    KeyRepeated { elements: [usize; 2], rule: usize },
    /// There is no room for what must be known of the document.
    NoRoom,
}

impl Fault {
    /// The same with places; the document is known to be valid.
    pub(crate) fn explain(self, input: &[u8], rules: &Rules) -> CanonicalError {
        let place = |value| pointer_to(input, value);
        let by = |rule: usize| rules.unordered[rule].by.clone();
        match self {
            Fault::NotArray { value } => CanonicalError::UnorderedNotArray { pointer: place(value) },
            Fault::NoKey { element, rule } if has(&input[element..], &by(rule)) => {
                CanonicalError::KeyExcluded { element: place(element), by: by(rule) }
            }
            Fault::NoKey { element, rule } => {
                CanonicalError::KeyAbsent { element: place(element), by: by(rule) }
            }
            Fault::KeyKind { element, rule } => {
                CanonicalError::KeyKind { element: place(element), by: by(rule) }
            }
            Fault::KeyRepeated { elements, rule } => {
                let (first, second) = (elements[0].min(elements[1]), elements[0].max(elements[1]));
                CanonicalError::KeyRepeated { first: place(first), second: place(second), by: by(rule) }
            }
            Fault::NoRoom => no_room(input),
        }
    }
}

/// Nothing can be done with this document, whatever is in it.
pub(crate) fn no_room(input: &[u8]) -> CanonicalError {
    CanonicalError::Input { offset: input.len() as u64, source: ErrorKind::OutOfMemory.into() }
}

/// The pointer to the value that starts here.
fn pointer_to(input: &[u8], start: usize) -> Pointer {
    let mut reader = Reader::with_limits(input, Limits::default());
    while reader.offset() <= start && reader.next_event().is_ok_and(|event| event != Event::End) {}
    reader.value_pointer()
}

/// Whether the value at the front of this text has something at this place, which may be left out.
fn has(text: &[u8], place: &Pointer) -> bool {
    let mut reader = Reader::new(text);
    place.tokens().all(|token| enter(&mut reader, &token).is_some())
        && !matches!(reader.next_event(), Err(_) | Ok(Event::ObjectEnd | Event::ArrayEnd | Event::End))
}

/// Goes to just before the member or element with this name.
fn enter(reader: &mut Reader<'_>, token: &str) -> Option<()> {
    match reader.next_event().ok()? {
        Event::ObjectStart => loop {
            match reader.next_event().ok()? {
                Event::Key(key) if key == *token => return Some(()),
                Event::Key(_) => reader.skip_value().ok()?,
                _ => return None,
            };
        },
        Event::ArrayStart => {
            let index = token.parse::<usize>().ok().filter(|index| index.to_string() == token)?;
            (0..index).try_for_each(|_| reader.skip_value().ok()?.map(|_| ()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named() {
        let text = r#" { "a" : [ 1, {"b/c": [[] , "x"]}, true ], "d": {"e":null} } "#;
        for (value, expected) in [
            ("{ \"a\"", ""),
            ("[ 1", "/a"),
            ("1,", "/a/0"),
            ("{\"b/c", "/a/1"),
            ("[[]", "/a/1/b~1c"),
            ("[] ", "/a/1/b~1c/0"),
            ("\"x\"", "/a/1/b~1c/1"),
            ("true", "/a/2"),
            ("{\"e", "/d"),
            ("null", "/d/e"),
        ] {
            let start = text.find(value).expect("it is there");
            assert_eq!(pointer_to(text.as_bytes(), start).as_str(), expected, "{value}");
        }
    }

    #[test]
    fn members_and_elements_are_seen() {
        let text = br#"{ "a" : [ 1, {"b": [[]]} , {} ] } , rest"#;
        let check = |place: &str| has(text, &place.parse().expect("a pointer"));
        for place in ["", "/a", "/a/0", "/a/1", "/a/1/b", "/a/1/b/0", "/a/2"] {
            assert!(check(place), "{place}");
        }
        for place in
            ["/b", "/a/3", "/a/0/0", "/a/01", "/a/1/c", "/a/1/b/0/0", "/a/2/x", "/a/99999999999999999999"]
        {
            assert!(!check(place), "{place}");
        }
    }
}
