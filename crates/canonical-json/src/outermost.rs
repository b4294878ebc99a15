//! The members of the outermost object, in order.
//!
//! What is written first must be known first, and so the order of the outermost members before anything is hashed. This
//! only follows quotes and brackets, which takes a fraction of the time of all else. Of a text that is wrong it says
//! something wrong, but then it only permutes what stands between commas, and what is wrong remains wrong.

use std::collections::VecDeque;

use crate::Form;
use crate::members::{Member, sort};
use crate::simd::{Level, Task, Vector, dispatch};
use crate::squeeze::{Strings, block_at};
use crate::structure::skip_space;

/// How many members are sorted.
const MAX_MEMBERS: usize = 1000;

/// One member, without the whitespace before it.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: usize,
    /// Where the comma or the closing brace after it is.
    end: usize,
}

impl Member for Part {
    fn get(self) -> usize {
        self.start
    }
}

/// The document in parts, of which the outermost members are in order; nothing if it is no object, or one of many
/// members.
pub(crate) fn sorted(level: Level, input: &[u8]) -> Option<VecDeque<&[u8]>> {
    let open = skip_space(input, 0);
    if input.get(open) != Some(&b'{') {
        return None;
    }
    let ends = dispatch(level, Ends { input, open })?;
    let close = *ends.last()?;
    let mut start = open + 1;
    let mut members = Vec::new();
    for end in ends {
        start = skip_space(input, start);
        if input[start] != b'"' {
            return None;
        }
        members.push(Part { start, end });
        start = end + 1;
    }
    sort(level, &mut members, &mut Default::default(), input, Form::Lexical).ok()?;
    let mut parts = VecDeque::from([&input[..=open]]);
    for (i, member) in members.iter().enumerate() {
        if i > 0 {
            parts.push_back(b",");
        }
        parts.push_back(&input[member.start..member.end]);
    }
    parts.push_back(&input[close..]);
    Some(parts)
}

/// Finds the commas directly in the object that begins here, and where it is closed.
struct Ends<'a> {
    input: &'a [u8],
    open: usize,
}

impl Task for Ends<'_> {
    type Output = Option<Vec<usize>>;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> Self::Output {
        let Ends { input, open } = self;
        let mut strings = Strings::default();
        let (mut depth, mut at, mut ends) = (0_usize, open, Vec::new());
        while at < input.len() {
            let mut padded = [0; 64];
            let outline = vector.outline(block_at(input, at, &mut padded));
            if !strings.is_blank(&outline) {
                let outside = strings.outside(vector, &outline);
                let (opens, closes) = (outline.open & outside, outline.close & outside);
                let closed = closes.count_ones() as usize;
                if depth > closed + 1 {
                    depth = depth + opens.count_ones() as usize - closed;
                } else if step(at, [opens, closes, outline.comma & outside], &mut depth, &mut ends)? {
                    return Some(ends);
                }
            }
            at += 64;
        }
        None
    }
}

/// Follows the brackets of a block one by one; whether the object is closed in it. Nothing if there are too many members.
fn step(
    at: usize,
    [opens, closes, commas]: [u64; 3],
    depth: &mut usize,
    ends: &mut Vec<usize>,
) -> Option<bool> {
    let mut left = opens | closes | commas;
    while left != 0 {
        let bit = left.trailing_zeros();
        left &= left - 1;
        if opens >> bit & 1 != 0 {
            *depth += 1;
            continue;
        }
        if *depth == 1 {
            ends.push(at + bit as usize);
        }
        if closes >> bit & 1 != 0 {
            *depth -= 1;
            if *depth == 0 {
                return Some(true);
            }
        }
    }
    (ends.len() <= MAX_MEMBERS).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        for level in Level::available() {
            let parts = sorted(level, text.as_bytes()).map(|parts| Vec::from(parts).concat());
            let found = parts.map(|text| String::from_utf8(text).expect("it was text"));
            assert_eq!(found.as_deref(), expected, "{level:?} {text}");
        }
    }

    #[test]
    fn outermost_members_are_sorted() {
        check(
            r#" {"b": {"z": 1, "a": [2, 3]}, "a": "},{" } x"#,
            Some(r#" {"a": "},{" ,"b": {"z": 1, "a": [2, 3]}} x"#),
        );
        check(r#"{"a\\": 1, "a\"": 2}"#, Some(r#"{"a\"": 2,"a\\": 1}"#));
        let long = "[1, {\"k\": \"]\"}], ".repeat(20);
        let array = format!("[{long}0]");
        check(&format!("{{\"y\":{array},\"x\":{array}}}"), Some(&format!("{{\"x\":{array},\"y\":{array}}}")));
    }

    #[test]
    fn what_is_no_object_of_a_few_members_is_left() {
        for text in [
            "",
            " ",
            "1",
            "[{}]",
            "{}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{1:2}",
            r#"{1"a":2,"b":3}"#,
            r#"{"a":1,"a":2}"#,
            "}",
        ] {
            check(text, None);
        }
        let members: Vec<String> = (0..2000).map(|i| format!("\"{i}\":{i}")).collect();
        check(&format!("{{{}}}", members.join(",")), None);
    }
}
