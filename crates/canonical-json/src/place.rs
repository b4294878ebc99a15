//! The place that a comparison has reached, and the shapes of the places where something differed.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::text::Text;
use crate::{Pattern, Pointer, escape_token};

/// One step of the way to a place.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Key(Text<'a>),
    /// The index on each side; if only one has the element, that twice.
    Index([usize; 2]),
}

impl Token<'_> {
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

/// The way from the root, and all shapes seen.
#[derive(Default)]
pub(crate) struct Place<'a> {
    steps: Vec<(Token<'a>, Shape)>,
    /// The shapes one step below a shape, by that step; an index is nothing. The root is zero.
    below: HashMap<(usize, Option<Text<'a>>), usize>,
    /// The group of each shape that has one; zero, the root, first.
    groups: Vec<Option<usize>>,
}

impl<'a> Place<'a> {
    pub(crate) fn push(&mut self, token: Token<'a>) {
        self.steps.push((token, Shape::Unknown));
    }

    /// Goes back up; at the root nothing is left to go back to.
    pub(crate) fn pop(&mut self) {
        self.steps.pop();
    }

    /// Whether a pattern matches the place, on both sides.
    pub(crate) fn is_at(&self, pattern: &Pattern) -> bool {
        let steps = pattern.steps();
        steps.len() == self.steps.len()
            && steps.iter().zip(&self.steps).all(|(step, (token, _))| match token {
                Token::Key(key) => step.matches(&key.decode()),
                Token::Index(indices) => indices.iter().all(|index| step.matches(&index.to_string())),
            })
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
        let is_known = |step: &(Token<'_>, Shape)| !matches!(step.1, Shape::Unknown);
        let known = self.steps.iter().rposition(is_known);
        let mut shape = known.map_or(Shape::Known(0), |known| self.steps[known].1);
        for (token, own) in &mut self.steps[known.map_or(0, |known| known + 1)..] {
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

    /// The shape as text, of at most so many bytes and a mark that it goes on.
    pub(crate) fn shape(&self, max_bytes: usize) -> String {
        let mut shape = String::new();
        for (token, _) in &self.steps {
            let step = match token {
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
        for (token, _) in &self.steps {
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
