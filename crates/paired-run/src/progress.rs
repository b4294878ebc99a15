//! How far a run has come: a state that events change and that says what is next. It does nothing itself, so
//! a run that was killed is continued by giving it the events that were kept.

use paired_stats::{Arm, Schedule};

use crate::attempt::{Attempt, ConditionKind, Ending, Execution, ProductFailure, Purpose};
use crate::definition::{Invalidation, RunDefinition};
use crate::event::{Event, Invalid};
use crate::run::RunOutcome;

/// One member of a pair that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// Which attempt.
    pub attempt: Attempt,
    /// What is known of it.
    pub execution: Execution,
}

/// What is next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    Start(Attempt),
    Invalidate { pair: u32, rerun: u32, reasons: Vec<Invalid> },
    Ended(RunOutcome),
}

/// The state of a run.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    definition: RunDefinition,
    schedule: Schedule,
    session: u32,
    attempts: u32,
    warmups_done: u32,
    in_flight: Option<Attempt>,
    accepted: Vec<[Taken; 2]>,
    current: Current,
    reruns: u32,
    failed: Option<(Attempt, ProductFailure)>,
}

/// The pair that is being taken.
#[derive(Debug, Clone, Default)]
struct Current {
    rerun: u32,
    members: Vec<Taken>,
    interrupted: Option<Invalid>,
    /// Why it was last invalidated, for the message should reruns run out.
    last_reasons: Vec<Invalid>,
}

impl Progress {
    pub(crate) fn new(definition: RunDefinition) -> Self {
        let schedule = definition.schedule();
        Self {
            definition,
            schedule,
            session: 0,
            attempts: 0,
            warmups_done: 0,
            in_flight: None,
            accepted: Vec::new(),
            current: Current::default(),
            reruns: 0,
            failed: None,
        }
    }

    pub(crate) fn began(&self) -> Event {
        Event::Began { definition: self.definition.clone(), schedule: self.schedule.clone() }
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    pub(crate) fn in_flight(&self) -> Option<Attempt> {
        self.in_flight
    }

    pub(crate) fn accepted(&self) -> &[[Taken; 2]] {
        &self.accepted
    }

    pub(crate) fn reruns(&self) -> u32 {
        self.reruns
    }

    /// The pair whose first member has been taken and whose second has not been started: a stop here parts
    /// them.
    pub(crate) fn parted(&self) -> Option<Attempt> {
        let [only] = &self.current.members[..] else { return None };
        (self.in_flight.is_none() && self.current.interrupted.is_none()).then_some(only.attempt)
    }

    /// What is next.
    pub(crate) fn next(&self) -> Next {
        if let Some((attempt, failure)) = &self.failed {
            return Next::Ended(RunOutcome::Failed { attempt: *attempt, failure: failure.clone() });
        }
        let pair = u32::try_from(self.accepted.len())
            .expect("there are at most as many pairs as the definition says");
        if pair == self.definition.pairs {
            return Next::Ended(RunOutcome::Complete);
        }
        let reasons = self.current.reasons(&self.definition.invalidation);
        if !reasons.is_empty() {
            return Next::Invalidate { pair, rerun: self.current.rerun, reasons };
        }
        if let Some(interrupted) = &self.current.interrupted {
            // An interruption that no rule answers cannot be taken again and cannot be used.
            return Next::Ended(RunOutcome::Blocked { pair, reasons: vec![interrupted.clone()] });
        }
        if self.exhausted() {
            let reasons = self.current.last_reasons.clone();
            return Next::Ended(RunOutcome::Blocked { pair, reasons });
        }
        self.next_attempt(pair)
    }

    /// Whether more reruns have been asked for than the definition allows.
    fn exhausted(&self) -> bool {
        let rules = &self.definition.invalidation;
        self.current.rerun > rules.reruns_per_pair
            || (self.current.rerun > 0 && self.reruns > rules.reruns_per_row)
    }

    fn next_attempt(&self, pair: u32) -> Next {
        let number = self.attempts;
        if let Some(&arm) = self.schedule.warmups.get(self.warmups_done as usize) {
            return Next::Start(Attempt {
                number,
                arm,
                purpose: Purpose::WarmUp { warmup: self.warmups_done },
            });
        }
        let order = self.schedule.pair(pair as usize).expect("the schedule has every pair of the definition");
        let first = self.current.members.is_empty();
        let arm = if first { order[0] } else { order[1] };
        Next::Start(Attempt {
            number,
            arm,
            purpose: Purpose::Pair { pair, rerun: self.current.rerun, first },
        })
    }

    /// Takes note of one event, which must be one that can follow.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<(), Unexpected> {
        match event {
            Event::Began { .. } => return Err(Unexpected::BeganTwice),
            Event::Resumed { session } => self.resumed(*session)?,
            Event::AttemptStarted { attempt } => self.started(*attempt)?,
            Event::AttemptEnded { attempt, execution } => self.ended(*attempt, execution)?,
            Event::AttemptInterrupted { attempt, evidence } => self.interrupted(*attempt, evidence)?,
            Event::PairInvalidated { pair, rerun, reasons } => self.invalidated(*pair, *rerun, reasons)?,
        }
        self.accept_complete_pair();
        Ok(())
    }

    fn resumed(&mut self, session: u32) -> Result<(), Unexpected> {
        if session != self.session + 1 {
            return Err(Unexpected::Session { expected: self.session + 1, found: session });
        }
        self.session = session;
        if self.definition.warm_up_on_resume {
            self.warmups_done = 0;
        }
        Ok(())
    }

    fn started(&mut self, attempt: Attempt) -> Result<(), Unexpected> {
        if self.in_flight.is_some() || self.next() != Next::Start(attempt) {
            return Err(Unexpected::Start { attempt });
        }
        self.in_flight = Some(attempt);
        self.attempts += 1;
        Ok(())
    }

    fn land(&mut self, attempt: Attempt) -> Result<(), Unexpected> {
        if self.in_flight.take_if(|flying| *flying == attempt).is_none() {
            return Err(Unexpected::End { attempt });
        }
        Ok(())
    }

    fn ended(&mut self, attempt: Attempt, execution: &Execution) -> Result<(), Unexpected> {
        self.land(attempt)?;
        if let Some(failure) = execution.failure() {
            self.failed = Some((attempt, failure));
        }
        match attempt.purpose {
            Purpose::WarmUp { .. } if execution.value().is_some() => self.warmups_done += 1,
            Purpose::WarmUp { .. } => {}
            Purpose::Pair { .. } => {
                self.current.members.push(Taken { attempt, execution: execution.clone() })
            }
        }
        if execution.ending == Ending::Cancelled {
            self.interrupt(attempt, "the run was cancelled during this attempt");
        }
        Ok(())
    }

    fn interrupted(&mut self, attempt: Attempt, evidence: &str) -> Result<(), Unexpected> {
        // A pair can also be parted between its members, when nothing is in flight.
        if self.parted() != Some(attempt) {
            self.land(attempt)?;
        }
        self.interrupt(attempt, evidence);
        Ok(())
    }

    /// An interrupted warm-up is simply next again; a pair is taken apart.
    fn interrupt(&mut self, attempt: Attempt, evidence: &str) {
        if matches!(attempt.purpose, Purpose::Pair { .. }) {
            let (attempt, kind, evidence) = (attempt.number, ConditionKind::Interrupted, evidence.to_owned());
            self.current.interrupted = Some(Invalid::Condition { attempt, kind, evidence });
        }
    }

    fn invalidated(&mut self, pair: u32, rerun: u32, reasons: &[Invalid]) -> Result<(), Unexpected> {
        let expected = Next::Invalidate { pair, rerun, reasons: reasons.to_vec() };
        if self.in_flight.is_some() || self.next() != expected {
            return Err(Unexpected::Invalidation { pair, rerun });
        }
        self.reruns += 1;
        self.current = Current { rerun: rerun + 1, last_reasons: reasons.to_vec(), ..Current::default() };
        Ok(())
    }

    fn accept_complete_pair(&mut self) {
        let valid = self.failed.is_none() && self.current.reasons(&self.definition.invalidation).is_empty();
        if valid && self.current.interrupted.is_none() && self.current.members.len() == 2 {
            let members = std::mem::take(&mut self.current).members;
            self.accepted.push(members.try_into().expect("two members were counted"));
        }
    }
}

impl Current {
    /// Every predeclared rule that applies to the members taken so far.
    fn reasons(&self, rules: &Invalidation) -> Vec<Invalid> {
        let kind_of = |reason: &Invalid| match reason {
            Invalid::Condition { kind, .. } => Some(*kind),
            Invalid::Above { .. } => None,
        };
        let declared = |reason: &Invalid| kind_of(reason).is_none_or(|kind| rules.conditions.contains(&kind));
        let seen = self.members.iter().flat_map(|taken| seen_in(taken, rules));
        seen.chain(self.interrupted.clone()).filter(declared).collect()
    }
}

fn seen_in(taken: &Taken, rules: &Invalidation) -> Vec<Invalid> {
    let attempt = taken.attempt.number;
    let conditions = taken.execution.conditions.iter().map(|condition| Invalid::Condition {
        attempt,
        kind: condition.kind,
        evidence: condition.evidence.clone(),
    });
    let above = rules.above.iter().filter_map(|(name, &limit)| {
        let value = *taken.execution.telemetry.get(name)?;
        (value > limit).then(|| Invalid::Above { attempt, name: name.clone(), value, limit })
    });
    conditions.chain(above).collect()
}

/// Why an event cannot follow those before it: the record is not that of one run of this definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unexpected {
    /// A run begins once.
    #[error("begin a run that has begun")]
    BeganTwice,
    /// Sessions are counted without gaps.
    #[error("resume as session {found} where session {expected} is next")]
    Session {
        /// What is next.
        expected: u32,
        /// What was found.
        found: u32,
    },
    /// The attempt is not the one that is next.
    #[error("start {attempt}, which is not what is next")]
    Start {
        /// The attempt.
        attempt: Attempt,
    },
    /// The attempt was not in flight.
    #[error("end {attempt}, which was not started")]
    End {
        /// The attempt.
        attempt: Attempt,
    },
    /// No predeclared rule says that the pair is invalid, or not for these reasons.
    #[error("invalidate pair {pair} (rerun {rerun}) for reasons that the rules do not give")]
    Invalidation {
        /// The pair.
        pair: u32,
        /// Which time it was taken.
        rerun: u32,
    },
}

/// The values of the accepted pairs, by arm.
pub(crate) fn by_arm(pair: &[Taken; 2]) -> Option<(&Taken, &Taken)> {
    let of = |arm: Arm| pair.iter().find(|taken| taken.attempt.arm == arm);
    Some((of(Arm::Baseline)?, of(Arm::Candidate)?))
}
