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

/// Arrays of records that have keys, as unordered arrays must: often all of them, with nothing twice.
pub(crate) fn records(seed: &[u8]) -> Vec<u8> {
    let mut writer = Writer { choices: Choices(seed.iter()), out: Vec::new(), is_loose: true };
    match writer.choices.below(4) {
        0 => writer.record_list(0),
        1 => writer.list(0, '[', ']', Writer::record_list),
        _ => {
            writer.put("{\"a\":");
            writer.record_list(0);
            writer.put(", \"0\" : ");
            writer.record_list(0);
            writer.put("}");
        }
    }
    writer.out
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

    /// Some of these keys, in some order.
    fn record_list(&mut self, depth: usize) {
        let first = self.choices.below(8);
        let step = [1, 3, 5, 7][self.choices.below(4)];
        self.put("[");
        for i in 0..self.choices.below(6) {
            self.put(if i > 0 { ", " } else { "" });
            self.record(depth, (first + i * step) % 8);
        }
        self.put("]");
    }

    fn record(&mut self, depth: usize, key: usize) {
        const KEYS: [&str; 8] =
            ["0", "7", "-7", "10", "\"\"", "\"k\"", "\"\\u006b1\"", "123456789012345678901"];
        // One in sixteen has the key of another, or none.
        let key = KEYS[if self.choices.below(16) == 15 { 0 } else { key }];
        match self.choices.below(6) {
            0 => self.put(key),
            1 => {
                self.put(&format!("[{key}, "));
                self.value(depth + 5);
                self.put("]");
            }
            2 => {
                self.put(&format!("{{\"b\":[3, 1, 2], \"a\":[{key}, {key}], \"0\":"));
                self.value(depth + 5);
                self.put("}");
            }
            _ => {
                self.put("{\"b\":");
                self.value(depth + 5);
                self.put(&format!(", \"a\":{key}}}"));
            }
        }
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
    match choice >> 1 & 15 {
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
        // The key is left out, or what it is in, for all elements or for one.
        7 => {
            rules.exclusions = vec![exclusion("/*/*/a")];
            rules.unordered = vec![unordered("/*", "/a")];
        }
        8 => {
            rules.exclusions = vec![exclusion("/a/1/a"), exclusion("/*/a/1")];
            rules.unordered = vec![unordered("/a", "/a/0"), unordered("", "/a/1")];
        }
        // Elements before are left out or moved, so that indices in the canonical form are others.
        9 => {
            rules.exclusions = vec![exclusion("/0"), exclusion("/a/0"), exclusion("/*/*/a/0")];
            rules.unordered = vec![unordered("/1", "/a"), unordered("/a", "/a/0"), unordered("/0", "/0")];
        }
        10 => rules.unordered = vec![unordered("", "/a"), unordered("/0/b", ""), unordered("/1/a", "")],
        11 => {
            rules.exclusions = vec![exclusion("/*/*/0"), exclusion("/*/1")];
            rules.unordered = vec![unordered("/a", "/a"), unordered("/*", "/0"), unordered("/a/2/b", "")];
        }
        12 => rules.unordered = vec![unordered("/a", "/a"), unordered("/*", "/a"), unordered("/*/*/b", "")],
        13 => {
            rules.exclusions = vec![exclusion("/a/*/b")];
            rules.unordered = vec![unordered("/a", "/a"), unordered("/0", "/a/1"), unordered("/a/*/b", "")];
        }
        _ => {}
    }
    rules
}
