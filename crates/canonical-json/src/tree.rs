//! The plain way to a canonical form: read everything into a list of nodes, then write it in order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::Write;

use crate::members::key_end;
use crate::number::is_ecmascript;
use crate::read::{Event, Limits, Reader};
use crate::rules::{Exclusion, Rules, Unordered};
use crate::text::{Number, Text};
use crate::write::{noncharacter, push_number, push_string};
use crate::{CanonicalError, Form, Pattern, Pointer, ReadError, ReadErrorKind};

/// A whole document in document order; a container is followed by what it contains.
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

struct Node<'a> {
    kind: Kind<'a>,
    /// The first node after this one and all it contains.
    end: usize,
}

#[derive(Clone, Copy)]
enum Kind<'a> {
    Object,
    Array,
    /// The value is the next node.
    Key(Text<'a>),
    String(Text<'a>),
    Number(Number<'a>),
    Word(&'static str),
}

/// Writes the canonical form, and says which exclusions were present.
pub(crate) fn canonicalize(
    input: &[u8],
    rules: &Rules,
    limits: Limits,
    out: &mut impl Write,
) -> Result<Vec<bool>, CanonicalError> {
    let tree = Tree::read(input, rules.form, limits)?;
    let mut writer = Writer::new(&tree, rules, out);
    writer.run()?;
    Ok(writer.present)
}

/// Reads a document and says what is wrong with it.
pub(crate) fn check(input: &[u8], form: Form, limits: Limits) -> Result<(), ReadError> {
    let mut reader = Reader::with_limits(input, limits);
    while next_event(&mut reader, form)? != Event::End {}
    Ok(())
}

/// Takes the next step; in the `jcs` form, what I-JSON forbids is an error too.
fn next_event<'a>(reader: &mut Reader<'a>, form: Form) -> Result<Event<'a>, ReadError> {
    let event = reader.next_event()?;
    if form == Form::Jcs
        && let Some((into, kind)) = forbidden(&event)
    {
        return Err(reader.error_within(&event, into, kind));
    }
    Ok(event)
}

/// What I-JSON forbids in a text or number, and how many bytes into it that begins.
fn forbidden(event: &Event<'_>) -> Option<(usize, ReadErrorKind)> {
    match event {
        Event::Key(text) | Event::String(text) => {
            let (into, found) = noncharacter(*text)?;
            Some((into, ReadErrorKind::Noncharacter { code_point: found.into() }))
        }
        Event::Number(number) if number.as_f64().is_none() => Some((0, ReadErrorKind::NumberTooLarge)),
        _ => None,
    }
}

impl<'a> Tree<'a> {
    fn read(input: &'a [u8], form: Form, limits: Limits) -> Result<Self, ReadError> {
        let mut reader = Reader::with_limits(input, limits);
        let mut tree = Tree { nodes: Vec::new() };
        let mut open = Vec::new();
        loop {
            let kind = match next_event(&mut reader, form)? {
                Event::End => return Ok(tree),
                Event::ObjectEnd | Event::ArrayEnd => {
                    let opened: usize = open.pop().expect("the reader matches brackets");
                    tree.nodes[opened].end = tree.nodes.len();
                    continue;
                }
                Event::ObjectStart => Kind::Object,
                Event::ArrayStart => Kind::Array,
                Event::Key(key) => Kind::Key(key),
                Event::String(text) => Kind::String(text),
                Event::Number(number) => Kind::Number(number),
                Event::Bool(value) => Kind::Word(if value { "true" } else { "false" }),
                Event::Null => Kind::Word("null"),
            };
            if matches!(kind, Kind::Object | Kind::Array) {
                open.push(tree.nodes.len());
            }
            let end = tree.nodes.len() + 1;
            tree.nodes.push(Node { kind, end });
        }
    }

    /// The children of a container: keys of an object, elements of an array.
    fn children(&self, container: usize) -> impl Iterator<Item = usize> {
        let end = self.nodes[container].end;
        let mut next = container + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            let value = if let Kind::Key(_) = self.nodes[child].kind { child + 1 } else { child };
            next = self.nodes[value].end;
            Some(child)
        })
    }

    fn member(&self, object: usize, token: &str) -> Option<usize> {
        match self.nodes[object].kind {
            Kind::Object => self.children(object).find(|child| self.is_key(*child, token)).map(|key| key + 1),
            Kind::Array => {
                let index = token.parse::<usize>().ok().filter(|index| index.to_string() == token)?;
                self.children(object).nth(index)
            }
            _ => None,
        }
    }

    fn is_key(&self, node: usize, token: &str) -> bool {
        matches!(self.nodes[node].kind, Kind::Key(key) if key == token)
    }

    fn find(&self, node: usize, pointer: &Pointer) -> Option<usize> {
        pointer.tokens().try_fold(node, |node, token| self.member(node, &token))
    }
}

/// What remains to be written, innermost last.
enum Work {
    Node { node: usize, first: bool, path: usize, token: Option<String> },
    Close(u8),
}

struct Writer<'t, 'a, W> {
    tree: &'t Tree<'a>,
    rules: &'t Rules,
    out: &'t mut W,
    present: Vec<bool>,
    path: Vec<String>,
    work: Vec<Work>,
    buffer: Vec<u8>,
}

impl<'t, 'a, W: Write> Writer<'t, 'a, W> {
    fn new(tree: &'t Tree<'a>, rules: &'t Rules, out: &'t mut W) -> Self {
        let present = vec![false; rules.exclusions.len()];
        Writer { tree, rules, out, present, path: Vec::new(), work: Vec::new(), buffer: Vec::new() }
    }

    fn run(&mut self) -> Result<(), CanonicalError> {
        self.work.push(Work::Node { node: 0, first: true, path: 0, token: None });
        while let Some(work) = self.work.pop() {
            match work {
                Work::Close(bracket) => self.buffer.push(bracket),
                Work::Node { node, first, path, token } => {
                    self.path.truncate(path);
                    self.path.extend(token);
                    if !first {
                        self.buffer.push(b',');
                    }
                    self.node(node)?;
                }
            }
            if self.buffer.len() >= 1 << 16 {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CanonicalError> {
        self.out.write_all(&self.buffer).map_err(CanonicalError::Output)?;
        self.buffer.clear();
        Ok(())
    }

    fn node(&mut self, node: usize) -> Result<(), CanonicalError> {
        let mut value = node;
        if let Kind::Key(key) = self.tree.nodes[node].kind {
            push_string(&mut self.buffer, key);
            self.buffer.push(b':');
            value += 1;
        }
        let unordered = self.unordered_here();
        match self.tree.nodes[value].kind {
            Kind::Array => self.array(value, unordered)?,
            _ if unordered.is_some() => {
                return Err(CanonicalError::UnorderedNotArray { pointer: self.pointer() });
            }
            Kind::Object => self.object(value),
            Kind::String(text) | Kind::Key(text) => push_string(&mut self.buffer, text),
            Kind::Number(number) => {
                push_number(&mut self.buffer, number, self.rules.form)
                    .expect("numbers were checked when read");
            }
            Kind::Word(word) => self.buffer.extend_from_slice(word.as_bytes()),
        }
        Ok(())
    }

    fn pointer(&self) -> Pointer {
        let mut pointer = Pointer::root();
        self.path.iter().for_each(|token| pointer.push_key(token));
        pointer
    }

    fn unordered_here(&self) -> Option<&'t Unordered> {
        self.rules.unordered.iter().find(|unordered| matches(&unordered.at, &self.path, None))
    }

    /// Whether a child is left out, which is noted.
    fn is_excluded(&mut self, token: &str) -> bool {
        let mut excluded = false;
        for (exclusion, present) in self.rules.exclusions.iter().zip(&mut self.present) {
            if matches(&exclusion.pattern, &self.path, Some(token)) {
                excluded = true;
                *present = true;
            }
        }
        excluded
    }

    fn object(&mut self, object: usize) {
        let tree = self.tree;
        let mut members: Vec<(Text<'a>, usize)> = Vec::new();
        for child in tree.children(object) {
            if let Kind::Key(key) = tree.nodes[child].kind
                && !self.is_excluded(&key.decode())
            {
                members.push((key, child));
            }
        }
        match self.rules.form {
            Form::Lexical => members.sort_by_key(|member| member.0),
            Form::Jcs => members.sort_by(|a, b| a.0.cmp_utf16(&b.0)),
        }
        let children = members.iter().map(|(key, child)| (*child, key.decode().into_owned())).collect();
        self.push_children(children, *b"{}");
    }

    fn array(&mut self, array: usize, unordered: Option<&Unordered>) -> Result<(), CanonicalError> {
        let mut elements = Vec::new();
        for (index, child) in self.tree.children(array).enumerate() {
            let token = index.to_string();
            if !self.is_excluded(&token) {
                elements.push((child, token));
            }
        }
        if let Some(unordered) = unordered {
            self.sort_elements(&mut elements, unordered)?;
        }
        self.push_children(elements, *b"[]");
        Ok(())
    }

    fn sort_elements(
        &self,
        elements: &mut Vec<(usize, String)>,
        unordered: &Unordered,
    ) -> Result<(), CanonicalError> {
        let mut keyed = Vec::new();
        for (element, token) in elements.drain(..) {
            keyed.push((self.element_key(element, &token, &unordered.by)?, element, token));
        }
        keyed.sort_by_key(|item| item.0);
        if let Some(pair) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (first, second) = (self.child_pointer(&pair[0].2), self.child_pointer(&pair[1].2));
            return Err(CanonicalError::KeyRepeated { first, second, by: unordered.by.clone() });
        }
        elements.extend(keyed.into_iter().map(|(_, element, token)| (element, token)));
        Ok(())
    }

    fn child_pointer(&self, token: &str) -> Pointer {
        let mut pointer = self.pointer();
        pointer.push_key(token);
        pointer
    }

    fn element_key(
        &self,
        element: usize,
        token: &str,
        by: &Pointer,
    ) -> Result<ElementKey<'a>, CanonicalError> {
        let element_pointer = || self.child_pointer(token);
        let Some(found) = self.tree.find(element, by) else {
            return Err(CanonicalError::KeyAbsent { element: element_pointer(), by: by.clone() });
        };
        if self.is_key_excluded(token, by) {
            return Err(CanonicalError::KeyExcluded { element: element_pointer(), by: by.clone() });
        }
        let key = match self.tree.nodes[found].kind {
            Kind::String(text) => Some(ElementKey::String(text)),
            Kind::Number(number) => Integer::new(number.text(), self.rules.form).map(ElementKey::Integer),
            _ => None,
        };
        key.ok_or_else(|| CanonicalError::KeyKind { element: element_pointer(), by: by.clone() })
    }

    /// Whether the key of this child is left out, or something that it is in.
    fn is_key_excluded(&self, token: &str, by: &Pointer) -> bool {
        let mut path = self.path.clone();
        path.push(token.to_owned());
        by.tokens().any(|step| {
            let is_excluded = |exclusion: &Exclusion| matches(&exclusion.pattern, &path, Some(&step));
            let is_left_out = self.rules.exclusions.iter().any(is_excluded);
            path.push(step.into_owned());
            is_left_out
        })
    }

    fn push_children(&mut self, children: Vec<(usize, String)>, brackets: [u8; 2]) {
        self.buffer.push(brackets[0]);
        self.work.push(Work::Close(brackets[1]));
        let path = self.path.len();
        let last = children.len().saturating_sub(1);
        for (back, (node, token)) in children.into_iter().rev().enumerate() {
            self.work.push(Work::Node { node, first: back == last, path, token: Some(token) });
        }
    }
}

/// Whether a pattern matches the place `path`, or its child `token`.
fn matches(pattern: &Pattern, path: &[String], token: Option<&str>) -> bool {
    let steps = pattern.steps();
    let tokens = path.iter().map(String::as_str).chain(token);
    steps.len() == path.len() + usize::from(token.is_some())
        && steps.iter().zip(tokens).all(|(s, t)| s.matches(t))
}

/// What an element of an unordered array is sorted by: integers by value, then strings by code point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ElementKey<'a> {
    Integer(Integer<'a>),
    String(Text<'a>),
}

impl<'a> ElementKey<'a> {
    /// Reads the key at the front of this text; nothing if there is none that is allowed, or if its end is not in the
    /// text.
    pub(crate) fn read(text: &'a [u8], form: Form) -> Option<Self> {
        let length = match text.strip_prefix(b"\"") {
            Some(rest) => key_end(rest, 0).0 + 2,
            // What ends a number must be seen: the text may be a window that ends in the midst of the digits.
            None => text.iter().position(|byte| b",]} \t\r\n".contains(byte))?,
        };
        ElementKey::whole(std::str::from_utf8(text.get(..length)?).ok()?, form)
    }

    /// The key that is this value; nothing if it is none that is allowed.
    pub(crate) fn whole(value: &'a str, form: Form) -> Option<Self> {
        match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(raw) => Some(ElementKey::String(Text::new(raw, raw.contains('\\')))),
            None => Some(ElementKey::Integer(Integer::new(value, form)?)),
        }
    }

    /// The string that is meant, or the integer as it is written.
    pub(crate) fn decode(&self) -> Cow<'a, str> {
        match self {
            ElementKey::String(text) => text.decode(),
            ElementKey::Integer(Integer { negative: false, digits }) => Cow::Borrowed(digits),
            ElementKey::Integer(Integer { negative: true, digits }) => Cow::Owned(format!("-{digits}")),
        }
    }

    /// How long it is in the input.
    pub(crate) fn length(&self) -> usize {
        match self {
            ElementKey::Integer(integer) => usize::from(integer.negative) + integer.digits.len(),
            ElementKey::String(text) => text.raw().len() + 2,
        }
    }
}

/// An integer of any size, compared by value; `-0` comes just before `0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Integer<'a> {
    negative: bool,
    digits: &'a str,
}

impl<'a> Integer<'a> {
    /// Nothing if the number is written with a fraction or an exponent, or if the form writes it in another way.
    pub(crate) fn new(text: &'a str, form: Form) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_kept = is_integer && (form == Form::Lexical || is_ecmascript(text.as_bytes()) == Some(true));
        is_kept.then_some(Integer { negative: digits.len() < text.len(), digits })
    }
}

impl Ord for Integer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // There are no leading zeros.
        let by_size = (self.digits.len(), self.digits).cmp(&(other.digits.len(), other.digits));
        match (self.negative, other.negative) {
            (false, false) => by_size,
            (true, true) => by_size.reverse(),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Integer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
