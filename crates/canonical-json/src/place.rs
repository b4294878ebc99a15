//! The place that a comparison has reached, and the shapes of the places where something differed.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::pointer::Step;
use crate::text::Text;
use crate::{Pointer, Unordered, escape_token};

/// One step of the way to a place.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Key(Text<'a>),
    /// The index on each side; if only one has the element, that twice.
    Index([usize; 2]),
}

impl Token<'_> {
    /// Whether a step of a pattern matches it, on both sides.
    fn is_at(&self, step: &Step) -> bool {
        match (step, self) {
            (Step::Any, _) => true,
            (Step::Token(own), Token::Key(key)) => *key == **own,
            (Step::Token(_), Token::Index(indices)) => {
                indices.iter().all(|index| step.matches(&index.to_string()))
            }
        }
    }

    fn left_text(&self) -> Cow<'_, str> {
        match self {
            Token::Key(key) => key.decode(),
            Token::Index([left, _]) => Cow::Owned(left.to_string()),
        }
    }
}

/// What is known of the shape of a place.
#[derive(Clone, Copy, Default)]
enum Shape {
    #[default]
    Unknown,
    Known(usize),
    /// It was never seen, and no new ones are taken.
    Refused,
}

/// One step of the way, and what is known of the place that it leads to.
struct Taken<'a> {
    token: Token<'a>,
    shape: Shape,
    /// How many of `Place::alive` are of the places before it.
    alive_before: usize,
}

/// The way from the root, and all shapes seen.
pub(crate) struct Place<'a, 'r> {
    steps: Vec<Taken<'a>>,
    unordered: &'r [Unordered],
    /// The rules that all steps so far match, for the root and then for each step: so a step is compared once, however much is below.
    alive: Vec<usize>,
    /// The shapes one step below a shape, by that step; an index is nothing. The root is zero.
    below: HashMap<(usize, Option<Text<'a>>), usize>,
    /// The group of each shape that has one; zero, the root, first.
    groups: Vec<Option<usize>>,
}

impl<'a, 'r> Place<'a, 'r> {
    /// The root, and the rules that may hold below it.
    pub(crate) fn new(unordered: &'r [Unordered]) -> Self {
        let alive = (0..unordered.len()).collect();
        Place { steps: Vec::new(), unordered, alive, below: HashMap::new(), groups: Vec::new() }
    }

    pub(crate) fn push(&mut self, token: Token<'a>) {
        let (depth, alive_before) = (self.steps.len(), self.alive.len());
        for at in self.alive_from()..alive_before {
            let rule = self.alive[at];
            if self.unordered[rule].at.steps().get(depth).is_some_and(|step| token.is_at(step)) {
                self.alive.push(rule);
            }
        }
        self.steps.push(Taken { token, shape: Shape::Unknown, alive_before });
    }

    /// Goes back up; at the root nothing is left to go back to.
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.steps.pop() {
            self.alive.truncate(last.alive_before);
        }
    }

    /// Where the rules that all steps match begin.
    fn alive_from(&self) -> usize {
        self.steps.last().map_or(0, |last| last.alive_before)
    }

    /// The first rule whose pattern is that of this place, on both sides.
    pub(crate) fn unordered(&self) -> Option<&'r Unordered> {
        let alive = self.alive[self.alive_from()..].iter().map(|rule| &self.unordered[*rule]);
        alive.into_iter().find(|rule| rule.at.steps().len() == self.steps.len())
    }

    /// The group of places of this shape: `next` if it is a new one, nothing if new ones are refused.
    pub(crate) fn group(&mut self, next: usize, is_full: bool) -> Option<usize> {
        let shape = self.shape_number(is_full)?;
        match self.groups.get(shape).copied().flatten() {
            Some(group) => Some(group),
            None if is_full => None,
            None => {
                self.groups.resize(self.groups.len().max(shape + 1), None);
                self.groups[shape] = Some(next);
                Some(next)
            }
        }
    }

    /// The number of the shape. Each step is looked up once, and then known for as long as the way leads over it.
    fn shape_number(&mut self, is_full: bool) -> Option<usize> {
        let is_known = |step: &Taken<'_>| !matches!(step.shape, Shape::Unknown);
        let known = self.steps.iter().rposition(is_known);
        let mut shape = known.map_or(Shape::Known(0), |known| self.steps[known].shape);
        for Taken { token, shape: own, .. } in &mut self.steps[known.map_or(0, |known| known + 1)..] {
            if let Shape::Known(above) = shape {
                let step = match token {
                    Token::Key(key) => Some(*key),
                    Token::Index(_) => None,
                };
                let new = self.below.len() + 1;
                shape = match (self.below.get(&(above, step)), is_full) {
                    (Some(known), _) => Shape::Known(*known),
                    (None, true) => Shape::Refused,
                    (None, false) => {
                        self.below.insert((above, step), new);
                        Shape::Known(new)
                    }
                };
            }
            *own = shape;
        }
        match shape {
            Shape::Known(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape as the text of a pattern, of at most so many bytes and a mark that it goes on.
    pub(crate) fn shape(&self, max_bytes: usize) -> String {
        let mut shape = String::new();
        for Taken { token, .. } in &self.steps {
            let step = match token {
                Token::Key(key) if *key == "*" => "~2".to_owned(),
                Token::Key(key) => escape_token(&key.decode()).into_owned(),
                Token::Index(_) => "*".to_owned(),
            };
            if shape.len() + 1 + step.len() > max_bytes {
                shape.push_str("/…");
                break;
            }
            shape.push('/');
            shape.push_str(&step);
        }
        shape
    }

    /// The place, or that of the innermost container around it that has no more than so many bytes; whether it is.
    pub(crate) fn pointer(&self, max_bytes: usize) -> (Pointer, bool) {
        let mut pointer = Pointer::root();
        for Taken { token, .. } in &self.steps {
            let length = pointer.as_str().len();
            pointer.push_key(&token.left_text());
            if pointer.as_str().len() > max_bytes {
                pointer.truncate(length);
                return (pointer, true);
            }
        }
        (pointer, false)
    }
}
