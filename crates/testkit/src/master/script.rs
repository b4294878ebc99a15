//! What goes wrong, and when.

use std::time::Duration;

use master_wire::{ErrorCode, Rpc, RpcErrorCode};

/// What happens to one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `delay MS`: it is sent that much later, and so is everything behind it.
    Delay(Duration),
    /// `reorder`: it is sent behind the next reply.
    Reorder,
    /// `truncate BYTES`: so much of it is sent, then the connection is closed.
    Truncate(usize),
    /// `corrupt OFFSET MASK`: in one of its bytes the bits of the mask are flipped.
    Corrupt {
        /// Which byte, from the header's first.
        at: usize,
        /// Which bits.
        mask: u8,
    },
    /// `stall`: it is not sent, nor is any reply after it; the connection stays open.
    Stall,
    /// `swallow`: it alone is not sent.
    Swallow,
    /// `drop`: the connection is closed in place of it.
    Drop,
    /// `lie DIFFERENCE`: its header says a length that differs from the true one.
    Lie(i32),
    /// `fail CODE`: it is a failure of the framework, by number.
    Fail(RpcErrorCode),
    /// `refuse CODE`: the handler refuses, by number; for each key of a batch.
    Refuse(ErrorCode),
    /// `miscount RESULTS`: of a batch, so many results, whatever was asked for: each that there is no such object.
    Miscount(usize),
    /// `repeat`: it is sent twice.
    Repeat,
    /// `renumber SEQ_NUM`: it carries another seq_num.
    Renumber(u32),
    /// `trickle MS`: it is sent byte by byte, with this pause after each.
    Trickle(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    rpc: Option<Rpc>,
    nth: Option<u64>,
    fault: Fault,
    seen: u64,
}

/// Rules for replies, of which the first that fits applies.
///
/// Written as text, one rule is a line `CALL NTH FAULT`: the call's name or `*`, its number among the requests for that
/// call (from 1, over all connections) or `*`, and a [`Fault`] as its variants show it.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
}

impl Script {
    /// Nothing goes wrong.
    #[must_use]
    pub fn honest() -> Self {
        Script::default()
    }

    /// A script from its text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Script { rules: lines.map(rule).collect() }
    }

    /// What happens to the reply to this request.
    pub(super) fn next(&mut self, rpc: Rpc) -> Option<Fault> {
        let mut applies = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.rpc.is_none_or(|wanted| wanted == rpc)) {
            rule.seen += 1;
            if rule.nth.is_none_or(|nth| nth == rule.seen) {
                applies = applies.or(Some(rule.fault));
            }
        }
        applies
    }

    pub(super) const fn is_honest(&self) -> bool {
        self.rules.is_empty()
    }
}

fn rule(line: &str) -> Rule {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [call, nth, fault @ ..] = &words[..] else { panic!("rule {line:?} is not `CALL NTH FAULT`") };
    let number =
        |word: &str| word.parse().unwrap_or_else(|_| panic!("{word:?} in rule {line:?} is no number"));
    let rpc = |name: &str| Rpc::of_name(name).unwrap_or_else(|| panic!("no call {name:?} in rule {line:?}"));
    Rule {
        rpc: (*call != "*").then(|| rpc(call)),
        nth: (*nth != "*").then(|| number(nth)),
        fault: parse_fault(fault).unwrap_or_else(|| panic!("no fault in rule {line:?}")),
        seen: 0,
    }
}

fn parse_fault(words: &[&str]) -> Option<Fault> {
    let ms = |word: &str| word.parse().ok().map(Duration::from_millis);
    Some(match words {
        ["delay", time] => Fault::Delay(ms(time)?),
        ["reorder"] => Fault::Reorder,
        ["truncate", bytes] => Fault::Truncate(bytes.parse().ok()?),
        ["corrupt", at, mask] => Fault::Corrupt { at: at.parse().ok()?, mask: mask.parse().ok()? },
        ["stall"] => Fault::Stall,
        ["swallow"] => Fault::Swallow,
        ["drop"] => Fault::Drop,
        ["lie", difference] => Fault::Lie(difference.parse().ok()?),
        ["fail", code] => Fault::Fail(RpcErrorCode(code.parse().ok()?)),
        ["refuse", code] => Fault::Refuse(ErrorCode(code.parse().ok()?)),
        ["miscount", results] => Fault::Miscount(results.parse().ok()?),
        ["repeat"] => Fault::Repeat,
        ["renumber", seq_num] => Fault::Renumber(seq_num.parse().ok()?),
        ["trickle", time] => Fault::Trickle(ms(time)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_applies() {
        let mut script = Script::parse("Ping 2 stall\n* 3 drop\n  Ping * refuse -704\n");
        assert_eq!(script.next(Rpc::Ping), Some(Fault::Refuse(ErrorCode::OBJECT_NOT_FOUND)));
        assert_eq!(script.next(Rpc::Ping), Some(Fault::Stall));
        assert_eq!(script.next(Rpc::ExistKey), Some(Fault::Drop));
        assert_eq!(script.next(Rpc::ExistKey), None);
    }

    #[test]
    fn every_fault_can_be_written() {
        let words = "delay 1|reorder|truncate 2|corrupt 0 255|stall|swallow|drop|lie -3|fail 4|refuse -704|miscount 3|repeat|\
                     renumber 9|trickle 5";
        for fault in words.split('|') {
            let script = Script::parse(&format!("* * {fault}"));
            assert!(!script.is_honest());
        }
    }

    #[test]
    #[should_panic(expected = "no fault in rule \"* * explode\"")]
    fn unknown_faults_are_refused() {
        let _ = Script::parse("* * explode");
    }
}
