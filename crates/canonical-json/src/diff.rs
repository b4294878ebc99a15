//! Where two documents differ.
//!
//! Both are brought into canonical form first. There, members of objects and elements of unordered arrays are in the
//! same order on both sides, so one walk through the two texts, side by side, finds every difference, and nothing but
//! the place reached needs to be kept.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

use crate::canonical::canonical_text;
use crate::cursor::Cursor;
use crate::text::Text;
use crate::tree::ElementKey;
use crate::{CanonicalError, Form, Number, Pointer, Rules, Sha256, Unordered};

/// How much of a difference is kept; everything is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffLimits {
    /// How many shapes of difference are told apart.
    pub max_groups: usize,
    /// How many concrete differences of each shape are kept.
    pub max_examples: usize,
    /// How many bytes of each value, and of each place, are kept.
    pub max_value_bytes: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        DiffLimits { max_groups: 100, max_examples: 3, max_value_bytes: 200 }
    }
}

/// How two documents differ under the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Diff {
    /// Whether the documents are the same under the rules.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.left == self.right
    }
}

/// All differences at places of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Difference {
    /// The place in the canonical form of the left document, or of the right one if only that has it.
    pub pointer: Pointer,
    /// The key of the innermost element of an unordered array that the place is in, as it is written.
    pub key: Option<String>,
    /// The canonical text of the left value, cut to the limit; nothing if there is none.
    pub left: Option<String>,
    /// The canonical text of the right value, cut to the limit; nothing if there is none.
    pub right: Option<String>,
    /// How many steps from one double to the next lie between two numbers, where both have a double.
    pub ulps: Option<u64>,
}

/// Compares two documents under the same rules.
///
/// Members that only one side has, values that differ and elements beyond the end of the shorter array are
/// differences. Elements of unordered arrays are matched by their key, those of other arrays by their index.
///
/// ```
/// use canonical_json::{DiffLimits, Rules, diff};
///
/// let left = br#"{"per_request": [{"worker": 1}, {"worker": 2}], "total": 2}"#;
/// let right = br#"{"per_request": [{"worker": 2}, {"worker": 1}], "total": 2}"#;
/// let found = diff(left, right, &Rules::default(), &DiffLimits::default())?;
/// assert_eq!(found.total, 2);
/// assert_eq!(found.groups[0].shape, "/per_request/*/worker");
/// assert_eq!(found.groups[0].examples[1].pointer.as_str(), "/per_request/1/worker");
/// # Ok::<(), canonical_json::CanonicalError>(())
/// ```
///
/// # Errors
///
/// One of the documents has no canonical form; see [`crate::canonicalize`].
pub fn diff(left: &[u8], right: &[u8], rules: &Rules, limits: &DiffLimits) -> Result<Diff, CanonicalError> {
    let (left, _) = canonical_text(left, rules)?;
    let (right, _) = canonical_text(right, rules)?;
    let mut walk = Walk::new(rules, limits);
    if left != right {
        walk.run(Cursor::new(&left), Cursor::new(&right));
    }
    let (left, right) = (Sha256::of(&left), Sha256::of(&right));
    Ok(Diff { left, right, total: walk.total, groups: walk.groups, truncated: walk.truncated })
}

/// One step of the way to a place.
#[derive(Clone, Copy)]
enum Token<'a> {
    Key(Text<'a>),
    Index(usize),
}

/// A container that both sides have.
struct Frame<'a, 'r> {
    kind: FrameKind<'r>,
    /// The index of the next element on each side.
    indices: [usize; 2],
    /// The key of the element of an unordered array that is being compared.
    key: Option<&'a str>,
}

#[derive(Clone, Copy)]
enum FrameKind<'r> {
    Object,
    Array,
    Unordered(&'r Unordered),
}

/// What to do next.
enum Next<'a> {
    Both(Token<'a>),
    Left(Token<'a>),
    Right(Token<'a>),
    End,
}

struct Walk<'a, 'r> {
    form: Form,
    unordered: &'r [Unordered],
    limits: &'r DiffLimits,
    frames: Vec<Frame<'a, 'r>>,
    path: Vec<Token<'a>>,
    total: u64,
    groups: Vec<DiffGroup>,
    by_shape: HashMap<String, usize>,
    truncated: bool,
}

impl<'a, 'r> Walk<'a, 'r> {
    fn new(rules: &'r Rules, limits: &'r DiffLimits) -> Self {
        Walk {
            form: rules.form,
            unordered: &rules.unordered,
            limits,
            frames: Vec::new(),
            path: Vec::new(),
            total: 0,
            groups: Vec::new(),
            by_shape: HashMap::new(),
            truncated: false,
        }
    }

    fn run(&mut self, mut left: Cursor<'a>, mut right: Cursor<'a>) {
        self.values(&mut left, &mut right);
        while let Some(frame) = self.frames.last_mut() {
            match frame.next(&mut left, &mut right, self.form) {
                Next::Both(token) => {
                    self.path.push(token);
                    self.values(&mut left, &mut right);
                }
                Next::Left(token) => {
                    self.path.push(token);
                    self.differ(Some(left.value()), None);
                    self.path.pop();
                }
                Next::Right(token) => {
                    self.path.push(token);
                    self.differ(None, Some(right.value()));
                    self.path.pop();
                }
                Next::End => {
                    left.step();
                    right.step();
                    self.frames.pop();
                    self.path.pop();
                }
            }
        }
    }

    /// Compares the values at both cursors; the path is that of the values.
    fn values(&mut self, left: &mut Cursor<'a>, right: &mut Cursor<'a>) {
        let kind = match (left.peek(), right.peek()) {
            (b'{', b'{') => FrameKind::Object,
            (b'[', b'[') => self.array_kind(),
            _ => {
                let (left, right) = (left.value(), right.value());
                if left != right {
                    self.differ(Some(left), Some(right));
                }
                self.path.pop();
                return;
            }
        };
        left.step();
        right.step();
        self.frames.push(Frame { kind, indices: [0, 0], key: None });
    }

    fn array_kind(&self) -> FrameKind<'r> {
        let matches = |unordered: &&Unordered| {
            let steps = unordered.at.steps();
            steps.len() == self.path.len()
                && steps.iter().zip(&self.path).all(|(step, token)| step.matches(&token.text()))
        };
        self.unordered.iter().find(matches).map_or(FrameKind::Array, FrameKind::Unordered)
    }

    fn differ(&mut self, left: Option<&'a str>, right: Option<&'a str>) {
        self.total += 1;
        let shape = self.shape();
        let group = match self.by_shape.get(&shape) {
            Some(group) => *group,
            None if self.groups.len() == self.limits.max_groups => {
                self.truncated = true;
                return;
            }
            None => {
                self.by_shape.insert(shape.clone(), self.groups.len());
                self.groups.push(DiffGroup { shape, count: 0, examples: Vec::new() });
                self.groups.len() - 1
            }
        };
        self.groups[group].count += 1;
        if self.groups[group].examples.len() < self.limits.max_examples {
            let example = self.example(left, right);
            self.groups[group].examples.push(example);
        }
    }

    fn shape(&self) -> String {
        let mut shape = String::new();
        for token in &self.path {
            shape.push('/');
            match token {
                Token::Key(key) => shape.push_str(&crate::escape_token(&key.decode())),
                Token::Index(_) => shape.push('*'),
            }
        }
        shape
    }

    fn example(&self, left: Option<&str>, right: Option<&str>) -> Difference {
        let mut pointer = Pointer::root();
        for token in &self.path {
            match token {
                Token::Key(key) => pointer.push_key(&key.decode()),
                Token::Index(index) => pointer.push_index(*index),
            }
        }
        let key = self.frames.iter().rev().find_map(|frame| frame.key);
        let cut = |text: &str| shorten(text, self.limits.max_value_bytes);
        Difference {
            pointer,
            key: key.map(cut),
            left: left.map(cut),
            right: right.map(cut),
            ulps: left.zip(right).and_then(|(left, right)| ulps(left, right)),
        }
    }
}

impl Token<'_> {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Token::Key(key) => key.decode(),
            Token::Index(index) => Cow::Owned(index.to_string()),
        }
    }
}

impl<'a> Frame<'a, '_> {
    /// Goes to the next member or element of one side or both.
    fn next(&mut self, left: &mut Cursor<'a>, right: &mut Cursor<'a>, form: Form) -> Next<'a> {
        left.skip_comma();
        right.skip_comma();
        let order = match (left.is_at_end(), right.is_at_end()) {
            (true, true) => return Next::End,
            (false, true) => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, false) => self.order(left, right, form),
        };
        match (self.kind, order) {
            (FrameKind::Object, Ordering::Less) => Next::Left(Token::Key(left.key())),
            (FrameKind::Object, Ordering::Greater) => Next::Right(Token::Key(right.key())),
            (FrameKind::Object, Ordering::Equal) => {
                right.key();
                Next::Both(Token::Key(left.key()))
            }
            (_, order) => self.element(left, right, order),
        }
    }

    /// Which side has the member or element that comes first.
    fn order(&self, left: &Cursor<'a>, right: &Cursor<'a>, form: Form) -> Ordering {
        match self.kind {
            FrameKind::Object => match form {
                Form::Lexical => left.clone().key().cmp(&right.clone().key()),
                Form::Jcs => left.clone().key().cmp_utf16(&right.clone().key()),
            },
            FrameKind::Array => Ordering::Equal,
            FrameKind::Unordered(unordered) => {
                let key = |side: &Cursor<'a>| ElementKey::read(side.find(&unordered.by).as_bytes(), form);
                key(left).cmp(&key(right))
            }
        }
    }

    fn element(&mut self, left: &Cursor<'a>, right: &Cursor<'a>, order: Ordering) -> Next<'a> {
        let [left_index, right_index] = self.indices;
        if let FrameKind::Unordered(unordered) = self.kind {
            let side = if order == Ordering::Greater { right } else { left };
            self.key = Some(side.find(&unordered.by));
        }
        match order {
            Ordering::Less => {
                self.indices[0] += 1;
                Next::Left(Token::Index(left_index))
            }
            Ordering::Greater => {
                self.indices[1] += 1;
                Next::Right(Token::Index(right_index))
            }
            Ordering::Equal => {
                self.indices = self.indices.map(|index| index + 1);
                Next::Both(Token::Index(left_index))
            }
        }
    }
}

/// A text cut to a number of bytes, with an ellipsis if anything was cut.
fn shorten(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// How far two numbers are apart, in steps from one double to the next; nothing if one is no number or has no double.
fn ulps(left: &str, right: &str) -> Option<u64> {
    let place = |text: &str| {
        let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let value = is_number.then(|| Number::new(text).as_f64())??;
        // Doubles are ordered as their bits are, once negative ones are counted downwards.
        let magnitude = i128::from(value.to_bits() & !(1 << 63));
        Some(if value.is_sign_negative() { -magnitude } else { magnitude })
    };
    u64::try_from(place(left)?.abs_diff(place(right)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: &str, right: &str, rules: &Rules, expected: &[&str]) {
        let found =
            diff(left.as_bytes(), right.as_bytes(), rules, &DiffLimits::default()).expect("documents");
        let side = |value: &Option<String>| value.clone().unwrap_or("-".to_owned());
        let mut lines = Vec::new();
        for DiffGroup { shape, count, examples } in &found.groups {
            lines.push(format!("{shape} {count}"));
            for Difference { pointer, key, left, right, ulps } in examples {
                let mut line = format!("  {pointer} {} {}", side(left), side(right));
                line.extend(key.iter().map(|key| format!(" in {key}")));
                line.extend(ulps.iter().map(|ulps| format!(" by {ulps}")));
                lines.push(line);
            }
        }
        assert_eq!(lines, expected, "{left} {right}");
        assert_eq!(found.total, found.groups.iter().map(|group| group.count).sum::<u64>());
        assert_eq!(found.is_same(), found.total == 0);
    }

    fn unordered(at: &str, by: &str) -> Rules {
        let unordered = Unordered { at: at.parse().expect("a pattern"), by: by.parse().expect("a pointer") };
        Rules { unordered: vec![unordered], ..Rules::default() }
    }

    #[test]
    fn equal_documents_do_not_differ() {
        check(r#"{"a": [1, {}], "b": "A"}"#, r#"{"b":"\u0041","a":[1,{}]}"#, &Rules::default(), &[]);
    }

    #[test]
    fn values_and_members_and_elements() {
        let rules = Rules::default();
        check("1", "2", &rules, &[" 1", "   1 2 by 4503599627370496"]);
        check("[]", "{}", &rules, &[" 1", "   [] {}"]);
        check(r#"{"a":1,"c":3}"#, r#"{"b":2,"c":3}"#, &rules, &["/a 1", "  /a 1 -", "/b 1", "  /b - 2"]);
        check("[1,2]", "[1]", &rules, &["/* 1", "  /1 2 -"]);
        check("[1]", r#"[1,{"a":[]},3]"#, &rules, &["/* 2", r#"  /1 - {"a":[]}"#, "  /2 - 3"]);
        check(
            r#"{"a/b":{"~":[0]}}"#,
            r#"{"a/b":{"~":[-0]}}"#,
            &rules,
            &["/a~1b/~0/* 1", "  /a~1b/~0/0 0 -0 by 0"],
        );
        check(
            r#"[[1,"x"],[2]]"#,
            r#"[[1,true],[null]]"#,
            &rules,
            &["/*/* 2", r#"  /0/1 "x" true"#, "  /1/0 2 null"],
        );
    }

    #[test]
    fn numbers_are_some_doubles_apart() {
        check("0.1", "0.10000000000000002", &Rules::default(), &[" 1", "   0.1 0.10000000000000002 by 1"]);
        check("5e-324", "-5e-324", &Rules::default(), &[" 1", "   5e-324 -5e-324 by 2"]);
        check("1e400", "1", &Rules::default(), &[" 1", "   1e400 1"]);
        check(
            "9007199254740993",
            "9007199254740992",
            &Rules::default(),
            &[" 1", "   9007199254740993 9007199254740992 by 0"],
        );
    }

    #[test]
    fn unordered_elements_are_matched_by_key() {
        let left = r#"{"r":[{"id":"b","w":1},{"id":"a","w":[{"x":1}]},{"id":"c"}]}"#;
        let right = r#"{"r":[{"id":"d"},{"id":"a","w":[{"x":2}]},{"id":"b","w":1}]}"#;
        check(
            left,
            right,
            &unordered("/r", "/id"),
            &[
                "/r/*/w/*/x 1",
                r#"  /r/0/w/0/x 1 2 in "a" by 4503599627370496"#,
                "/r/* 2",
                r#"  /r/2 {"id":"c"} - in "c""#,
                r#"  /r/2 - {"id":"d"} in "d""#,
            ],
        );
        check("[10,9]", "[9,8]", &unordered("", ""), &["/* 2", "  /0 - 8 in 8", "  /1 10 - in 10"]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let text = |start: u32| {
            let members: Vec<String> =
                (0..500).map(|i| format!("\"k{i}\":[{},\"{}\"]", start + i, "é".repeat(300))).collect();
            format!("{{{}}}", members.join(","))
        };
        let limits = DiffLimits { max_groups: 4, max_examples: 1, max_value_bytes: 7 };
        let found =
            diff(text(0).as_bytes(), text(1).as_bytes(), &Rules::default(), &limits).expect("documents");
        assert_eq!((found.total, found.groups.len(), found.truncated), (500, 4, true));
        let (left, right) = (format!("\"{}\"", "é".repeat(9)), "0");
        let found = diff(left.as_bytes(), right.as_bytes(), &Rules::default(), &limits).expect("documents");
        assert_eq!(found.groups[0].examples[0].left.as_deref(), Some("\"ééé…"));
    }
}
