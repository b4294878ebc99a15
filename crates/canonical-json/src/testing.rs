//! Documents and rules made from arbitrary bytes, for property tests.

use crate::{Exclusion, Form, Rules, Unordered};

/// Decisions, taken from bytes; zero once they are used up, so that every document ends.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(*self.0.next().unwrap_or(&0)) % bound
    }

    fn one<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }
}

/// A document that may be written in any way; keys may be repeated, but rarely are.
pub(crate) fn document(seed: &[u8]) -> Vec<u8> {
    let mut writer = Writer { choices: Choices(seed.iter()), out: Vec::new(), is_loose: true };
    writer.space();
    writer.value(0);
    writer.space();
    writer.out
}

/// A document in canonical form, but for the order of keys.
pub(crate) fn tight_document(seed: &[u8]) -> Vec<u8> {
    let mut writer = Writer { choices: Choices(seed.iter()), out: Vec::new(), is_loose: false };
    writer.value(0);
    writer.out
}

/// A document in canonical form.
pub(crate) fn canonical_document(seed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match crate::tree::canonicalize(&tight_document(seed), &Rules::default(), Default::default(), &mut out) {
        Ok(_) => out,
        Err(_) => b"null".to_vec(),
    }
}

struct Writer<'a> {
    choices: Choices<'a>,
    out: Vec<u8>,
    is_loose: bool,
}

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn space(&mut self) {
        if self.is_loose {
            let space = self.choices.one(&["", "", "", " ", "\n", "\r\n\t ", "                  "]);
            self.put(space);
        }
    }

    fn value(&mut self, depth: usize) {
        match self.choices.below(if depth > 6 { 4 } else { 9 }) {
            0 => self.number(),
            1 => self.string(&["", "a", "long text without end", "é", "😀", "\u{ffff}", "\u{7f}"]),
            2 => self.string(&[
                "\\n",
                "\\u001f",
                "\\\"",
                "\\\\",
                "\\\\\\\"",
                "x",
                "0123456789abcdef0123456789abcdef",
            ]),
            3 => {
                let word = self.choices.one(&["true", "false", "null"]);
                self.put(word);
            }
            4 | 5 => self.list(depth, '[', ']', Writer::value),
            _ => self.list(depth, '{', '}', Writer::member),
        }
    }

    fn list(&mut self, depth: usize, open: char, close: char, item: fn(&mut Self, usize)) {
        self.put(&open.to_string());
        let count = self.choices.below(6);
        for i in 0..count {
            if i > 0 {
                self.put(",");
            }
            self.space();
            item(self, depth + 1);
            self.space();
        }
        self.put(&close.to_string());
    }

    fn member(&mut self, depth: usize) {
        self.string(&[
            "a",
            "b",
            "uuid",
            "prefix_of_a_key_",
            "z",
            "é",
            "\u{e000}",
            "\u{10000}",
            "0",
            "1",
            "~/*",
        ]);
        self.space();
        self.put(":");
        self.space();
        self.value(depth);
    }

    fn string(&mut self, parts: &[&str]) {
        self.put("\"");
        for _ in 0..self.choices.below(5) {
            let part = self.choices.one(parts);
            self.put(part);
            if self.is_loose && self.choices.below(8) == 1 {
                let escape =
                    self.choices.one(&["\\/", "\\u0061", "\\u00E9", "\\ud83d\\ude00", "\\u000A", "\\uFFFF"]);
                self.put(escape);
            }
        }
        self.put("\"");
    }

    fn number(&mut self) {
        let sign = self.choices.one(&["", "", "-"]);
        let whole =
            self.choices.one(&["0", "1", "7", "42", "9007199254740993", "123456789012345678901234567890"]);
        let fraction = self.choices.one(&["", "", ".0", ".5", ".1234567890123456789", ".000"]);
        let exponent = self.choices.one(&["", "", "", "e1", "E-7", "e+22", "e400", "e-400"]);
        for part in [sign, whole, fraction, exponent] {
            self.put(part);
        }
    }
}

/// One of many sets of rules.
pub(crate) fn some_rules(choice: u8) -> Rules {
    let exclusion =
        |pattern: &str| Exclusion { pattern: pattern.parse().expect("a pattern"), required: false };
    let unordered = |at: &str, by: &str| Unordered {
        at: at.parse().expect("a pattern"),
        by: by.parse().expect("a pointer"),
    };
    let mut rules = Rules::new(if choice & 1 == 0 { Form::Lexical } else { Form::Jcs });
    match choice >> 1 & 7 {
        1 => rules.exclusions = vec![exclusion("/a")],
        2 => {
            rules.exclusions = vec![exclusion("/*/a"), exclusion("/b"), exclusion("/*/0"), exclusion("/a/b")]
        }
        3 => rules.exclusions = vec![exclusion("/*/*")],
        4 => rules.unordered = vec![unordered("/a", "/uuid"), unordered("", "")],
        5 => rules.unordered = vec![unordered("/*", ""), unordered("/*", "/a")],
        6 => {
            rules.exclusions = vec![exclusion("/1"), exclusion("/*/b")];
            rules.unordered = vec![unordered("", "/a"), unordered("/*/b", ""), unordered("/a", "/0")];
        }
        _ => {}
    }
    rules
}
