//! Following the patterns of the rules through a document.
//!
//! Each pattern is a chain of states; a state waits for one step. An open container is watched if some state waits for
//! one of its members, or if its elements are sorted. Most containers are not watched, and cost nothing.

use std::borrow::Cow;

use crate::pointer::Step;
use crate::{Rules, Unordered};

/// What a member or an element turned out to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// It is left out.
    pub(crate) is_excluded: bool,
    /// Its value must be an array, which is sorted.
    pub(crate) is_unordered: bool,
    /// Its value is what an element of an unordered array is sorted by.
    pub(crate) is_element_key: bool,
}

#[derive(Clone, Debug)]
struct State<'r> {
    step: Cow<'r, Step>,
    /// What is reached with the last step.
    accept: Option<Accept>,
}

#[derive(Clone, Copy, Debug)]
enum Accept {
    Exclusion(usize),
    Unordered(usize),
    ElementKey(usize),
}

/// A watched container.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Where its states begin among all states waiting.
    states: usize,
    /// The index of the next element.
    index: usize,
    /// The rule its elements are sorted by.
    pub(crate) unordered: Option<usize>,
    /// Whether something in it is left out.
    pub(crate) excludes: bool,
    /// The members that are left out, or the elements that stay, by where they start.
    pub(crate) starts: Vec<usize>,
    /// Where the key of each element is.
    pub(crate) keys: Vec<usize>,
    /// The key of the last element, if the elements are only checked.
    pub(crate) last_key: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Watch<'r> {
    states: Vec<State<'r>>,
    waiting: Vec<usize>,
    /// The states that wait for members of the value that is about to begin.
    pending: Vec<usize>,
    /// The rule by which the value that is about to begin is sorted.
    pending_unordered: Option<usize>,
    /// The rules for which the value that is about to begin is the key of an element.
    pending_keys: Vec<usize>,
    watched: Vec<Watched>,
    pub(crate) present: Vec<bool>,
}

impl<'r> Watch<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        let mut watch = Watch {
            states: Vec::new(),
            waiting: Vec::new(),
            pending: Vec::new(),
            pending_unordered: None,
            pending_keys: Vec::new(),
            watched: Vec::new(),
            present: vec![false; rules.exclusions.len()],
        };
        for (rule, exclusion) in rules.exclusions.iter().enumerate() {
            watch.chain(exclusion.pattern.steps().iter().map(Cow::Borrowed), Accept::Exclusion(rule));
        }
        for (rule, Unordered { at, by }) in rules.unordered.iter().enumerate() {
            let at = at.steps().iter().map(Cow::Borrowed);
            let by = by.tokens().map(|token| Cow::Owned(Step::Token(token.into())));
            watch.chain(at.clone(), Accept::Unordered(rule));
            watch.chain(at.chain([Cow::Owned(Step::Any)]).chain(by), Accept::ElementKey(rule));
        }
        watch
    }

    fn chain(&mut self, steps: impl Iterator<Item = Cow<'r, Step>>, accept: Accept) {
        let first = self.states.len();
        self.states.extend(steps.map(|step| State { step, accept: None }));
        match (self.states[first..].last_mut(), accept) {
            (Some(last), _) => {
                last.accept = Some(accept);
                self.pending.push(first);
            }
            (None, Accept::Unordered(rule)) => self.pending_unordered = self.pending_unordered.or(Some(rule)),
            // Rules that leave out the whole document are refused before.
            (None, _) => {}
        }
    }

    /// Whether there is nothing to watch for.
    pub(crate) fn is_idle(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether the value that is about to begin must be an array.
    pub(crate) fn wants_array(&self) -> bool {
        self.pending_unordered.is_some()
    }

    /// A container begins; whether it is watched.
    pub(crate) fn open(&mut self) -> bool {
        let unordered = self.pending_unordered.take();
        if self.pending.is_empty() && unordered.is_none() {
            return false;
        }
        let states = self.waiting.len();
        self.waiting.append(&mut self.pending);
        self.watched.push(Watched {
            states,
            index: 0,
            unordered,
            excludes: false,
            starts: Vec::new(),
            keys: Vec::new(),
            last_key: Vec::new(),
        });
        true
    }

    /// The innermost watched container ends.
    pub(crate) fn close(&mut self) -> Option<Watched> {
        let watched = self.watched.pop()?;
        self.waiting.truncate(watched.states);
        self.pending.clear();
        self.pending_unordered = None;
        Some(watched)
    }

    /// The innermost watched container.
    pub(crate) fn innermost(&mut self) -> Option<&mut Watched> {
        self.watched.last_mut()
    }

    /// A member of the innermost watched object begins.
    pub(crate) fn member(&mut self, key: &str) -> Accepted {
        self.pending.clear();
        self.pending_unordered = None;
        self.pending_keys.clear();
        let mut is_excluded = false;
        let from = self.watched.last().map_or(0, |watched| watched.states);
        for waiting in from..self.waiting.len() {
            let state = self.waiting[waiting];
            if !self.states[state].step.matches(key) {
                continue;
            }
            match self.states[state].accept {
                None => self.pending.push(state + 1),
                Some(Accept::Exclusion(rule)) => {
                    self.present[rule] = true;
                    is_excluded = true;
                }
                Some(Accept::Unordered(rule)) => {
                    self.pending_unordered = self.pending_unordered.or(Some(rule))
                }
                Some(Accept::ElementKey(rule)) => self.pending_keys.push(rule),
            }
        }
        if is_excluded {
            self.exclude();
        }
        let is_unordered = self.pending_unordered.is_some();
        Accepted { is_excluded, is_unordered, is_element_key: !self.pending_keys.is_empty() }
    }

    /// Nothing inside of what begins now counts.
    fn exclude(&mut self) {
        self.pending.clear();
        self.pending_unordered = None;
        self.pending_keys.clear();
        if let Some(watched) = self.watched.last_mut() {
            watched.excludes = true;
        }
    }

    /// An element of the innermost watched array begins.
    pub(crate) fn element(&mut self) -> Accepted {
        let Some(watched) = self.watched.last_mut() else { return Accepted::default() };
        let index = watched.index;
        watched.index += 1;
        self.member(&index.to_string())
    }

    /// The arrays whose current element has its key in the value that is about to begin, and the key's place in the
    /// element.
    pub(crate) fn keyed(&mut self) -> impl Iterator<Item = &mut Watched> {
        let rules = &self.pending_keys;
        self.watched.iter_mut().filter(|watched| watched.unordered.is_some_and(|rule| rules.contains(&rule)))
    }
}
