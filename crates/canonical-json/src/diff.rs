//! Where two documents differ.
//!
//! Both are brought into canonical form first. There, members of objects and elements of unordered arrays are in the
//! same order on both sides, so one walk through the two texts, side by side, finds every difference, and nothing but
//! the place reached needs to be kept. Every key is read once and every step of a place is looked up once, however
//! many differences there are: a document made to be slow is only as slow as its length.

use std::cmp::Ordering;

use crate::canonical::canonical_text;
use crate::cursor::Cursor;
use crate::place::{Place, Token};
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
    /// How many bytes of each value and of each key of an element are kept.
    pub max_value_bytes: usize,
    /// How many bytes of each place and of each shape are kept.
    pub max_place_bytes: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        DiffLimits { max_groups: 100, max_examples: 3, max_value_bytes: 200, max_place_bytes: 4096 }
    }
}

/// How two documents differ under the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DiffGroup {
    /// The places as the text of a pattern: `/per_request/*/decode_worker_idx`. An array index is `*`, a key that really is an
    /// asterisk `~2`. A shape longer than the limit ends in `/…` after the last step for which there is room.
    pub shape: String,
    /// How many differences have this shape.
    pub count: u64,
    /// The first few of them.
    pub examples: Vec<Difference>,
}

/// One place at which the documents differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Difference {
    /// The place in the canonical form of the left document, or of the right one if only that has it. If it is longer
    /// than the limit, then of the innermost container around it whose place is not.
    pub pointer: Pointer,
    /// The key of the innermost element of an unordered array that the place is in: the string that is meant, or the
    /// digits of an integer. Cut like values.
    pub key: Option<String>,
    /// The canonical text of the left value; nothing if there is none. Cut to the limit, and `…` put after it.
    pub left: Option<String>,
    /// The canonical text of the right value; nothing if there is none. Cut in the same way.
    pub right: Option<String>,
    /// Whether the place, the key or a value is longer than the limit, and cut.
    #[cfg_attr(feature = "serde", serde(default))]
    pub truncated: bool,
    /// How many steps from one double to the next lie between two numbers, where both have a double.
    pub ulps: Option<u64>,
}

/// Compares two documents under the same rules.
///
/// Members that only one side has, values that differ and elements beyond the end of the shorter array are
/// differences. Elements of unordered arrays are matched by their key, those of other arrays by their index. An index
/// in a pattern of the rules is that in the input; should the canonical form have another array there, whose elements
/// do not have the key in ascending order on both sides, that array is compared by index.
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
    if left == right {
        let both = Sha256::of(&left);
        return Ok(Diff { left: both, right: both, total: 0, groups: Vec::new(), truncated: false });
    }
    let mut walk = Walk::new(rules, limits, [&left, &right]);
    walk.run();
    let Walk { total, groups, truncated, .. } = walk;
    Ok(Diff { left: Sha256::of(&left), right: Sha256::of(&right), total, groups, truncated })
}

/// A container that both sides have.
struct Frame<'a, 'r> {
    kind: Kind<'r>,
    /// The index of the next element on each side.
    indices: [usize; 2],
    /// What comes next on each side, once it was read.
    heads: [Option<Head<'a>>; 2],
    /// The key of the element of an unordered array that is being compared.
    key: Option<ElementKey<'a>>,
}

#[derive(Clone, Copy)]
enum Kind<'r> {
    Object,
    Array,
    Unordered(&'r Unordered),
}

/// What comes next in a container.
#[derive(Clone, Copy)]
enum Head<'a> {
    End,
    /// A member; its key was read, its value was not.
    Member(Text<'a>),
    Element,
    Keyed(ElementKey<'a>),
}

/// Who has the member or element that comes next.
#[derive(Clone, Copy)]
enum Owner {
    Left,
    Right,
    Both,
}

struct Walk<'a, 'r> {
    form: Form,
    limits: &'r DiffLimits,
    sides: [Cursor<'a>; 2],
    frames: Vec<Frame<'a, 'r>>,
    place: Place<'a, 'r>,
    total: u64,
    groups: Vec<DiffGroup>,
    truncated: bool,
}

impl<'a, 'r> Walk<'a, 'r> {
    fn new(rules: &'r Rules, limits: &'r DiffLimits, texts: [&'a [u8]; 2]) -> Self {
        Walk {
            form: rules.form,
            limits,
            sides: texts.map(Cursor::new),
            frames: Vec::new(),
            place: Place::new(&rules.unordered),
            total: 0,
            groups: Vec::new(),
            truncated: false,
        }
    }

    fn run(&mut self) {
        self.values();
        while let Some(frame) = self.frames.last_mut() {
            let Some((owner, token)) = frame.next(&mut self.sides, self.form) else {
                self.sides.iter_mut().for_each(Cursor::step);
                self.frames.pop();
                self.place.pop();
                continue;
            };
            self.place.push(token);
            match owner {
                Owner::Both => self.values(),
                Owner::Left => {
                    let value = self.sides[0].value();
                    self.differ(Some(value), None);
                    self.place.pop();
                }
                Owner::Right => {
                    let value = self.sides[1].value();
                    self.differ(None, Some(value));
                    self.place.pop();
                }
            }
        }
    }

    /// Compares the values at both cursors, whose place was reached; leaves the place unless they must be entered.
    fn values(&mut self) {
        let kind = match self.sides.each_ref().map(Cursor::peek) {
            [b'{', b'{'] => Kind::Object,
            [b'[', b'['] => self.array_kind(),
            _ => {
                let [left, right] = self.sides.each_mut().map(Cursor::value);
                if left != right {
                    self.differ(Some(left), Some(right));
                }
                return self.place.pop();
            }
        };
        self.sides.iter_mut().for_each(Cursor::step);
        self.frames.push(Frame { kind, indices: [0, 0], heads: [None, None], key: None });
    }

    /// Whether the rules call the arrays at both cursors unordered, and they are such arrays.
    fn array_kind(&self) -> Kind<'r> {
        let is_sorted = |by| self.sides.iter().all(|side| is_sorted(side.clone(), by, self.form));
        match self.place.unordered() {
            Some(unordered) if is_sorted(&unordered.by) => Kind::Unordered(unordered),
            _ => Kind::Array,
        }
    }

    fn differ(&mut self, left: Option<&str>, right: Option<&str>) {
        self.total += 1;
        let Some(group) = self.group() else {
            self.truncated = true;
            return;
        };
        self.groups[group].count += 1;
        if self.groups[group].examples.len() < self.limits.max_examples {
            let example = self.example(left, right);
            self.groups[group].examples.push(example);
        }
    }

    /// The group of differences at places like this; nothing if there are too many groups.
    fn group(&mut self) -> Option<usize> {
        let is_full = self.groups.len() >= self.limits.max_groups;
        let group = self.place.group(self.groups.len(), is_full)?;
        if group == self.groups.len() {
            let shape = self.place.shape(self.limits.max_place_bytes);
            self.groups.push(DiffGroup { shape, count: 0, examples: Vec::new() });
        }
        Some(group)
    }

    fn example(&self, left: Option<&str>, right: Option<&str>) -> Difference {
        let (pointer, mut truncated) = self.place.pointer(self.limits.max_place_bytes);
        let mut cut = |text: &str| {
            truncated |= text.len() > self.limits.max_value_bytes;
            shorten(text, self.limits.max_value_bytes)
        };
        let key = self.frames.iter().rev().find_map(|frame| frame.key);
        let key = key.map(|key| cut(&key.decode()));
        let (cut_left, cut_right) = (left.map(&mut cut), right.map(&mut cut));
        let ulps = left.zip(right).and_then(|(left, right)| ulps(left, right));
        Difference { pointer, key, left: cut_left, right: cut_right, truncated, ulps }
    }
}

/// Whether every element of the array at the cursor has a key, and each comes after that of the element before.
fn is_sorted<'a>(mut array: Cursor<'a>, by: &Pointer, form: Form) -> bool {
    array.step();
    let mut last = None;
    while !array.is_at_end() {
        let key = array.find(by).and_then(|key| ElementKey::whole(key, form));
        if key.is_none() || last >= key {
            return false;
        }
        last = key;
        array.value();
        array.skip_comma();
    }
    true
}

impl<'a> Frame<'a, '_> {
    /// Goes to the next member or element of one side or both; nothing if both end.
    fn next(&mut self, sides: &mut [Cursor<'a>; 2], form: Form) -> Option<(Owner, Token<'a>)> {
        let [left, right] =
            [0, 1].map(|i| *self.heads[i].get_or_insert_with(|| self.kind.head(&mut sides[i], form)));
        let owner = match (left, right) {
            (Head::End, Head::End) => return None,
            (_, Head::End) => Owner::Left,
            (Head::End, _) => Owner::Right,
            _ => left.order(&right, form),
        };
        let (head, token) = match owner {
            Owner::Left => (left, self.token(&left, [0, 0])),
            Owner::Right => (right, self.token(&right, [1, 1])),
            Owner::Both => (left, self.token(&left, [0, 1])),
        };
        if let Head::Keyed(key) = head {
            self.key = Some(key);
        }
        let takes = |side| match owner {
            Owner::Left => side == 0,
            Owner::Right => side == 1,
            Owner::Both => true,
        };
        for side in [0, 1].into_iter().filter(|side| takes(*side)) {
            self.heads[side] = None;
            self.indices[side] += 1;
        }
        Some((owner, token))
    }

    fn token(&self, head: &Head<'a>, sides: [usize; 2]) -> Token<'a> {
        match head {
            Head::Member(key) => Token::Key(*key),
            _ => Token::Index(sides.map(|side| self.indices[side])),
        }
    }
}

impl Kind<'_> {
    /// Reads what comes next on one side.
    fn head<'a>(&self, side: &mut Cursor<'a>, form: Form) -> Head<'a> {
        side.skip_comma();
        if side.is_at_end() {
            return Head::End;
        }
        match self {
            Kind::Object => Head::Member(side.key()),
            Kind::Array => Head::Element,
            Kind::Unordered(unordered) => {
                let key = side.find(&unordered.by).and_then(|key| ElementKey::whole(key, form));
                Head::Keyed(key.expect("every element was seen to have a key"))
            }
        }
    }
}

impl Head<'_> {
    /// Which of two comes first.
    fn order(&self, right: &Self, form: Form) -> Owner {
        let order = match (self, right) {
            (Head::Member(left), Head::Member(right)) if form == Form::Jcs => left.cmp_utf16(right),
            (Head::Member(left), Head::Member(right)) => left.cmp(right),
            (Head::Keyed(left), Head::Keyed(right)) => left.cmp(right),
            _ => Ordering::Equal,
        };
        match order {
            Ordering::Less => Owner::Left,
            Ordering::Greater => Owner::Right,
            Ordering::Equal => Owner::Both,
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
    use proptest::prelude::*;

    use super::*;
    use crate::digest;
    use crate::testing::{records, some_rules};

    fn check(left: &str, right: &str, rules: &Rules, expected: &[&str]) {
        let found =
            diff(left.as_bytes(), right.as_bytes(), rules, &DiffLimits::default()).expect("documents");
        let side = |value: &Option<String>| value.clone().unwrap_or("-".to_owned());
        let mut lines = Vec::new();
        for DiffGroup { shape, count, examples } in &found.groups {
            lines.push(format!("{shape} {count}"));
            for Difference { pointer, key, left, right, ulps, .. } in examples {
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
                "  /r/0/w/0/x 1 2 in a by 4503599627370496",
                "/r/* 2",
                r#"  /r/2 {"id":"c"} - in c"#,
                r#"  /r/2 - {"id":"d"} in d"#,
            ],
        );
        check("[10,9]", "[9,8]", &unordered("", ""), &["/* 2", "  /0 - 8 in 8", "  /1 10 - in 10"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Also where the rules leave keys out, or name indices that move.
        #[test]
        fn documents_differ_exactly_where_their_digests_do(seeds: [Vec<u8>; 2], rules: u8, same_seed: bool) {
            let rules = some_rules(rules);
            let texts = [records(&seeds[0]), records(&seeds[usize::from(!same_seed)])];
            let compare = |left: &[u8], right: &[u8]| diff(left, right, &rules, &DiffLimits::default());
            let digests = texts.each_ref().map(|text| digest(text, &rules).ok());
            let found = compare(&texts[0], &texts[1]);
            prop_assert_eq!(found.is_ok(), digests.iter().all(Option::is_some));
            if let (Ok(found), [Some(left), Some(right)]) = (found, digests) {
                prop_assert_eq!((found.left, found.right), (left.sha256, right.sha256));
                prop_assert_eq!(found.total == 0, found.is_same());
                let back = compare(&texts[1], &texts[0]).expect("documents");
                prop_assert_eq!((back.total, back.groups.len()), (found.total, found.groups.len()));
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let text = |start: u32| {
            let members: Vec<String> =
                (0..500).map(|i| format!("\"k{i}\":[{},\"{}\"]", start + i, "é".repeat(300))).collect();
            format!("{{{}}}", members.join(","))
        };
        let limits =
            DiffLimits { max_groups: 4, max_examples: 1, max_value_bytes: 7, ..DiffLimits::default() };
        let found =
            diff(text(0).as_bytes(), text(1).as_bytes(), &Rules::default(), &limits).expect("documents");
        assert_eq!((found.total, found.groups.len(), found.truncated), (500, 4, true));
        let (left, right) = (format!("\"{}\"", "é".repeat(9)), "0");
        let found = diff(left.as_bytes(), right.as_bytes(), &Rules::default(), &limits).expect("documents");
        assert_eq!(found.groups[0].examples[0].left.as_deref(), Some("\"ééé…"));
        assert!(found.groups[0].examples[0].truncated);
    }

    #[test]
    fn places_are_bounded() {
        let limits = DiffLimits { max_place_bytes: 10, ..DiffLimits::default() };
        let text = |value: u32| format!(r#"{{"a":[0,{{"{}":{value},"b":{value}}}]}}"#, "k".repeat(10));
        let found =
            diff(text(0).as_bytes(), text(1).as_bytes(), &Rules::default(), &limits).expect("documents");
        let shapes: Vec<_> = found.groups.iter().map(|group| group.shape.as_str()).collect();
        assert_eq!(shapes, ["/a/*/b", "/a/*/…"]);
        let examples: Vec<_> = found.groups.iter().map(|group| &group.examples[0]).collect();
        let places: Vec<_> =
            examples.iter().map(|example| (example.pointer.as_str(), example.truncated)).collect();
        assert_eq!(places, [("/a/1/b", false), ("/a/1", true)]);
    }

    /// What is printed can be given back as a rule, and means no more than it did.
    #[test]
    fn a_shape_is_a_pattern() {
        let text = |left: u32, right: u32| {
            format!(r#"{{"a":{{"*":{left},"b":{right},"~2":0}},"\u002a":[{left},{{"*/~*":{left}}}]}}"#)
        };
        let (left, right) = (text(0, 0), text(1, 0));
        let found = diff(left.as_bytes(), right.as_bytes(), &Rules::default(), &DiffLimits::default());
        let groups = found.expect("documents").groups;
        let pattern = |group: &DiffGroup| group.shape.parse::<crate::Pattern>().expect("a pattern");
        assert!(groups.iter().all(|group| pattern(group).matches(&group.examples[0].pointer)), "{groups:?}");
        let shapes: Vec<_> = groups.iter().map(|group| group.shape.as_str()).collect();
        assert_eq!(shapes, ["/~2/*", "/~2/*/*~1~0*", "/a/~2"]);
        let exclusion = |group| crate::Exclusion { pattern: pattern(group), required: false };
        let rules = Rules { exclusions: groups.iter().map(exclusion).collect(), ..Rules::default() };
        let same = |right: &str| {
            diff(left.as_bytes(), right.as_bytes(), &rules, &DiffLimits::default())
                .expect("documents")
                .is_same()
        };
        assert!(same(&right));
        assert!(!same(&text(0, 1)), "`/a/b` is not meant by `/a/~2`");
    }

    /// Rules whose patterns begin alike, end at several depths, and match indices and keys.
    #[test]
    fn the_first_rule_that_matches_a_place_counts() {
        let mut rules = unordered("/a/*/r", "/absent");
        rules.unordered.insert(0, unordered("/a/0/r", "/id").unordered.remove(0));
        rules.unordered.insert(0, unordered("/a", "/n").unordered.remove(0));
        rules.unordered.insert(0, unordered("/~2/0/r", "/x").unordered.remove(0));
        let text =
            |first: u32| format!(r#"{{"a":[{{"n":1,"r":[{{"id":{first},"w":0}},{{"id":2,"w":1}}]}}]}}"#);
        let found = diff(text(1).as_bytes(), text(3).as_bytes(), &rules, &DiffLimits::default());
        let found = found.expect("documents");
        // Matched by `/id`, not by place: 2 is the same on both sides.
        assert_eq!((found.total, found.groups[0].shape.as_str()), (2, "/a/*/r/*"));
        assert_eq!(found.groups[0].examples[0].key.as_deref(), Some("1"));
    }

    /// The key of the array is itself left out.
    #[test]
    fn a_key_that_is_left_out_is_an_error_and_no_panic() {
        let excluded = |pattern: &str| {
            let mut rules = unordered("/r", "/id/n");
            let pattern = pattern.parse().expect("a pattern");
            rules.exclusions.push(crate::Exclusion { pattern, required: false });
            rules
        };
        let text = br#"{"r":[{"id":{"n":1},"w":1},{"id":{"n":2},"w":2}]}"#;
        for pattern in ["/r/*/id/n", "/r/*/id", "/*/*/*/*", "/r/1/id"] {
            let error = diff(text, text, &excluded(pattern), &DiffLimits::default()).expect_err(pattern);
            assert!(matches!(error, CanonicalError::KeyExcluded { .. }), "{pattern}: {error}");
        }
        // Nothing is sorted that is left out.
        for pattern in ["/r", "/r/*"] {
            let found = diff(text, br#"{"r":[]}"#, &excluded(pattern), &DiffLimits::default());
            assert!(found.expect("documents").is_same());
        }
    }

    /// What is at `/0` and `/1` in the input is not there in the canonical form.
    #[test]
    fn indices_in_rules_are_those_of_the_input() {
        let mut rules = unordered("/1", "/id");
        rules
            .exclusions
            .push(crate::Exclusion { pattern: "/0".parse().expect("a pattern"), required: false });
        check(r#"[0,[{"id":2},{"id":1}],[5,4]]"#, r#"[1,[{"id":1},{"id":2}],[5,4]]"#, &rules, &[]);
        check(
            r#"[0,[{"id":2,"w":0},{"id":1}],[5,4]]"#,
            r#"[1,[{"id":2,"w":1}],[4,5]]"#,
            &rules,
            &[
                "/*/*/id 1",
                "  /0/0/id 1 2 by 4503599627370496",
                "/*/*/w 1",
                "  /0/0/w - 1",
                "/*/* 3",
                r#"  /0/1 {"id":2,"w":0} -"#,
                "  /1/0 5 4 by 1125899906842624",
                "  /1/1 4 5 by 1125899906842624",
            ],
        );
    }
}
