//! Where two reports part in virtual time (requirements B3 and D4).
//!
//! A diff lists thousands of pointers; the first event that differs says where to look. Requests are matched by their UUID
//! and pressure records by their ordinal, as written, so that any layout that has them can be compared. Every differing
//! member is given the time of the event it belongs to; the earliest one wins, and of several at one time the one that is
//! earlier in a request's life.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use canonical_json::{Event, ReadError, Reader, escape_token};
use serde::{Deserialize, Serialize};

use crate::canonical_report::elements;

/// The earliest difference between two reports.
#[must_use]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Divergence {
    /// Virtual time of the event; when the two put it at different times, the earlier one. Stored as its shortest exact
    /// text.
    #[serde(with = "exact_text")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at_ms: f64,
    /// The request.
    pub request_uuid: String,
    /// What happened, in words.
    pub event: String,
    /// The member, as a pointer into the left report, or into the right one when the left has no such record.
    pub pointer: String,
    /// The left value as written; `None` when there is none.
    pub left: Option<String>,
    /// The right value as written; `None` when there is none.
    pub right: Option<String>,
    /// Request records that are not written alike, or exist on one side only.
    pub differing_requests: u64,
    /// Pressure records that are not written alike, or exist on one side only.
    pub differing_pressure_records: u64,
    /// What the reports have in common all the same.
    #[serde(default)]
    pub equal: StayedEqual,
}

/// What two reports that differ have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StayedEqual {
    /// Request records that are written alike.
    pub requests: u64,
    /// Pressure records that are written alike.
    pub pressure_records: u64,
    /// Members that are written alike in every request, those of requests that differ included.
    pub request_members: Vec<String>,
    /// The same of pressure records.
    pub pressure_members: Vec<String>,
}

impl fmt::Display for StayedEqual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests, {} pressure records", self.requests, self.pressure_records)?;
        for (members, records) in
            [(&self.request_members, "request"), (&self.pressure_members, "pressure record")]
        {
            if !members.is_empty() {
                write!(f, "; {} of every {records}", members.join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let (left, right) = (side(&self.left), side(&self.right));
        write!(f, "at {:?} ms, request {}, {}: ", self.at_ms, self.request_uuid, self.event)?;
        write!(f, "{} is {left} on one side and {right} on the other", self.pointer)
    }
}

/// A double as text, so that reading it back cannot change its last bit.
mod exact_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The first event in virtual time that differs; `None` when no request and no pressure record does.
///
/// # Errors
///
/// A report is not JSON.
pub fn first_divergence(left: &[u8], right: &[u8]) -> Result<Option<Divergence>, ReadError> {
    let requests = compare(left, right, &REQUESTS)?;
    let pressure = compare(left, right, &PRESSURE)?;
    let (differing_requests, differing_pressure_records) = (requests.differing, pressure.differing);
    let equal = StayedEqual {
        requests: requests.equal,
        pressure_records: pressure.equal,
        request_members: requests.equal_members(),
        pressure_members: pressure.equal_members(),
    };
    let first = [requests.first, pressure.first].into_iter().flatten().min_by(Candidate::order);
    Ok(first.map(|candidate| Divergence {
        at_ms: candidate.at_ms,
        request_uuid: candidate.uuid,
        event: candidate.event,
        pointer: candidate.pointer,
        left: candidate.left,
        right: candidate.right,
        differing_requests,
        differing_pressure_records,
        equal,
    }))
}

/// A kind of record that both reports have a list of.
struct Kind {
    keys: &'static [&'static str],
    /// The member that identifies a record.
    identity: &'static str,
    uuid: &'static str,
    /// When the record as a whole begins.
    begins: &'static str,
    event_of: fn(&str, &Pair<'_, '_>) -> Moment,
}

const REQUESTS: Kind = Kind {
    keys: &["per_request"],
    identity: "/uuid",
    uuid: "/uuid",
    begins: "/arrival_time_ms",
    event_of: request_event,
};

const PRESSURE: Kind = Kind {
    keys: &["coverage", "pressure", "records"],
    identity: "/pressure_ordinal",
    uuid: "/request_uuid",
    begins: "/at_ms",
    event_of: pressure_event,
};

/// The event a member belongs to: when, what, and how early in a request's life.
struct Moment {
    at_ms: Option<f64>,
    event: String,
    rank: u8,
}

struct Candidate {
    at_ms: f64,
    rank: u8,
    uuid: String,
    event: String,
    pointer: String,
    left: Option<String>,
    right: Option<String>,
}

impl Candidate {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let by_time = self.at_ms.total_cmp(&other.at_ms);
        by_time.then_with(|| self.rank.cmp(&other.rank)).then_with(|| self.uuid.cmp(&other.uuid))
    }
}

/// The scalars of one record by pointer, as they are written.
type Flat<'a> = BTreeMap<String, &'a str>;

/// One record on both sides; an absent side is empty.
struct Pair<'l, 'r> {
    left: Flat<'l>,
    right: Flat<'r>,
}

impl Pair<'_, '_> {
    /// The earliest time that either side has at a pointer.
    fn time(&self, pointer: &str) -> Option<f64> {
        let sides = [self.left.get(pointer), self.right.get(pointer)];
        sides.into_iter().flatten().filter_map(|text| text.parse().ok()).min_by(f64::total_cmp)
    }

    fn first_time(&self, pointers: &[&str]) -> Option<f64> {
        pointers.iter().find_map(|pointer| self.time(pointer))
    }
}

#[derive(Default)]
struct Compared {
    first: Option<Candidate>,
    differing: u64,
    equal: u64,
    /// Of records that differ: every member by its name, and whether it is written alike in all of them.
    members: BTreeMap<String, bool>,
}

fn compare(left: &[u8], right: &[u8], kind: &Kind) -> Result<Compared, ReadError> {
    let left = records(left, kind)?;
    let mut unmatched: HashMap<&str, (usize, Record<'_>)> = records(right, kind)?
        .into_iter()
        .enumerate()
        .map(|(at, record)| (record.identity, (at, record)))
        .collect();
    let mut compared = Compared::default();
    for (at, record) in left.into_iter().enumerate() {
        let other = unmatched.remove(record.identity).map(|(_, other)| other);
        compared.add(kind, at, Some(record), other)?;
    }
    let mut rest: Vec<_> = unmatched.into_values().collect();
    rest.sort_unstable_by_key(|(at, _)| *at);
    for (at, record) in rest {
        compared.add(kind, at, None, Some(record))?;
    }
    Ok(compared)
}

/// One record as it is written, with what is needed to match it and to tell whether it can matter.
#[derive(Clone, Copy)]
struct Record<'a> {
    raw: &'a [u8],
    identity: &'a str,
    begins: Option<f64>,
}

fn records<'a>(report: &'a [u8], kind: &Kind) -> Result<Vec<Record<'a>>, ReadError> {
    elements(report, kind.keys)?.into_iter().map(|raw| Record::read(raw, kind)).collect()
}

impl<'a> Record<'a> {
    fn read(raw: &'a [u8], kind: &Kind) -> Result<Self, ReadError> {
        let mut record = Record { raw, identity: "", begins: None };
        let mut reader = Reader::new(raw);
        if reader.next_event()? != Event::ObjectStart {
            return Ok(record);
        }
        while let Event::Key(key) = reader.next_event()? {
            let text = reader.skip_value()?.and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or_default();
            if key == kind.identity[1..] {
                record.identity = text;
            }
            if key == kind.begins[1..] {
                record.begins = text.parse().ok();
            }
        }
        Ok(record)
    }
}

impl Compared {
    fn add(
        &mut self,
        kind: &Kind,
        at: usize,
        left: Option<Record<'_>>,
        right: Option<Record<'_>>,
    ) -> Result<(), ReadError> {
        if left.map(|record| record.raw) == right.map(|record| record.raw) {
            self.equal += 1;
            return Ok(());
        }
        self.differing += 1;
        self.note_members(left, right)?;
        if self.is_too_late(left) && self.is_too_late(right) {
            return Ok(());
        }
        let pair = Pair { left: flatten_side(left)?, right: flatten_side(right)? };
        let found = earliest(kind, at, &pair);
        self.first = self.first.take().into_iter().chain(found).min_by(Candidate::order);
        Ok(())
    }

    fn note_members(&mut self, left: Option<Record<'_>>, right: Option<Record<'_>>) -> Result<(), ReadError> {
        let (left, right) = (members(left)?, members(right)?);
        let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        for name in names {
            let alike = left.get(name) == right.get(name);
            self.members.entry(name.clone()).and_modify(|all| *all &= alike).or_insert(alike);
        }
        Ok(())
    }

    fn equal_members(&self) -> Vec<String> {
        self.members.iter().filter(|(_, alike)| **alike).map(|(name, _)| name.clone()).collect()
    }

    /// Nothing in a record happens before the record begins, so it cannot be earlier than what was found.
    fn is_too_late(&self, record: Option<Record<'_>>) -> bool {
        let begins = record.map_or(Some(f64::INFINITY), |record| record.begins);
        self.first.as_ref().zip(begins).is_some_and(|(first, begins)| begins > first.at_ms)
    }
}

/// The members of a record as they are written; none of a record that is absent.
fn members(record: Option<Record<'_>>) -> Result<BTreeMap<String, &[u8]>, ReadError> {
    let mut found = BTreeMap::new();
    let Some(record) = record else { return Ok(found) };
    let mut reader = Reader::new(record.raw);
    if reader.next_event()? != Event::ObjectStart {
        return Ok(found);
    }
    while let Event::Key(key) = reader.next_event()? {
        let name = key.decode().into_owned();
        found.insert(name, reader.skip_value()?.unwrap_or_default());
    }
    Ok(found)
}

fn earliest(kind: &Kind, at: usize, pair: &Pair<'_, '_>) -> Option<Candidate> {
    let place = format!("/{}/{at}", kind.keys.join("/"));
    let uuid = [&pair.left, &pair.right].into_iter().find_map(|side| side.get(kind.uuid));
    let uuid = uuid.map(|text| text.trim_matches('"').to_owned()).unwrap_or_default();
    if pair.left.is_empty() || pair.right.is_empty() {
        return Some(whole_record(kind, place, uuid, pair));
    }
    let pointers =
        pair.left.keys().chain(pair.right.keys().filter(|pointer| !pair.left.contains_key(*pointer)));
    let differing = pointers.filter(|pointer| pair.left.get(*pointer) != pair.right.get(*pointer));
    let candidates = differing.map(|pointer| {
        let moment = (kind.event_of)(pointer, pair);
        let text = |side: &Flat<'_>| side.get(pointer).map(|text| (*text).to_owned());
        Candidate {
            at_ms: moment.at_ms.or_else(|| pair.time(kind.begins)).unwrap_or(0.0),
            rank: moment.rank,
            uuid: uuid.clone(),
            event: moment.event,
            pointer: format!("{place}{pointer}"),
            left: text(&pair.left),
            right: text(&pair.right),
        }
    });
    candidates.min_by(Candidate::order)
}

fn whole_record(kind: &Kind, place: String, uuid: String, pair: &Pair<'_, '_>) -> Candidate {
    let present = |side: &Flat<'_>| (!side.is_empty()).then(|| "a record".to_owned());
    Candidate {
        at_ms: pair.time(kind.begins).unwrap_or(0.0),
        rank: 0,
        uuid,
        event: "the record exists on one side only".to_owned(),
        pointer: place,
        left: present(&pair.left),
        right: present(&pair.right),
    }
}

fn flatten_side(record: Option<Record<'_>>) -> Result<Flat<'_>, ReadError> {
    let mut flat = Flat::new();
    if let Some(record) = record {
        flatten_into(record.raw, "", &mut flat)?;
    }
    Ok(flat)
}

/// Records are a few levels deep; the reader bounds the depth in any case.
fn flatten_into<'a>(raw: &'a [u8], place: &str, flat: &mut Flat<'a>) -> Result<(), ReadError> {
    let mut reader = Reader::new(raw);
    match reader.next_event()? {
        Event::ObjectStart => {
            while let Event::Key(key) = reader.next_event()? {
                let value = reader.skip_value()?.unwrap_or_default();
                flatten_into(value, &format!("{place}/{}", escape_token(&key.decode())), flat)?;
            }
        }
        Event::ArrayStart => {
            let mut index = 0;
            while let Some(value) = reader.skip_value()? {
                flatten_into(value, &format!("{place}/{index}"), flat)?;
                index += 1;
            }
        }
        _ => {
            flat.insert(place.to_owned(), std::str::from_utf8(raw).unwrap_or_default());
        }
    }
    Ok(())
}

/// Instants of a request's life in causal order: member, words, rank.
const INSTANTS: [(&str, &str, u8); 12] = [
    ("/arrival_time_ms", "arrival", 0),
    ("/dispatched_at_ms", "dispatch", 1),
    ("/first_admit_ms", "first admission", 5),
    ("/prefill_admit_ms", "prefill admission", 5),
    ("/source_held_ms", "source hold", 4),
    ("/destination_reserved_ms", "destination reservation", 4),
    ("/destination_activated_ms", "destination activation", 4),
    ("/decode_admit_ms", "decode admission", 5),
    ("/source_released_ms", "source release", 6),
    ("/first_token_ms", "first token", 7),
    ("/last_token_ms", "last token", 8),
    ("/terminal_time_ms", "end", 9),
];

/// Members that belong to an instant without being one: the member, the first of these instants that is there, words.
/// A member that sums up a history is not here: it belongs to the end, or it would claim to differ before the history does.
const BELONGS_TO: [(&str, &[&str], &str); 11] = [
    ("/uuid", &["/arrival_time_ms"], "arrival"),
    ("/input_length", &["/arrival_time_ms"], "arrival"),
    ("/requested_output_length", &["/arrival_time_ms"], "arrival"),
    ("/session_id", &["/arrival_time_ms"], "arrival"),
    ("/turn_index", &["/arrival_time_ms"], "arrival"),
    ("/prefill_worker_idx", &["/prefill_admit_ms"], "prefill admission"),
    ("/prefill_route_overlap_tokens", &["/prefill_admit_ms"], "prefill admission"),
    ("/decode_worker_idx", &["/decode_admit_ms", "/first_admit_ms"], "decode admission"),
    ("/decode_route_overlap_tokens", &["/decode_admit_ms", "/first_admit_ms"], "decode admission"),
    ("/ttft_ms", &["/first_token_ms"], "first token"),
    ("/ttst_ms", &["/last_token_ms"], "last token"),
];

fn request_event(pointer: &str, pair: &Pair<'_, '_>) -> Moment {
    if let Some((_, words, rank)) = INSTANTS.iter().find(|(member, ..)| *member == pointer) {
        return Moment { at_ms: pair.time(pointer), event: (*words).to_owned(), rank: *rank };
    }
    if let Some((_, instants, words)) = BELONGS_TO.iter().find(|(member, ..)| *member == pointer) {
        return Moment { at_ms: pair.first_time(instants), event: (*words).to_owned(), rank: 10 };
    }
    if let Some(index) = element_of(pointer, "/routing_history/") {
        return Moment { at_ms: route_time(index, pair), event: format!("route decision {index}"), rank: 2 };
    }
    if let Some(index) = element_of(pointer, "/admission_history/") {
        let at_ms = pair.time(&format!("/admission_history/{index}/at_ms"));
        return Moment { at_ms, event: format!("admission {index}"), rank: 3 };
    }
    Moment {
        at_ms: pair.time("/terminal_time_ms"),
        event: "what the record says in the end".to_owned(),
        rank: 11,
    }
}

/// The index in a pointer that begins with `prefix`.
fn element_of<'p>(pointer: &'p str, prefix: &str) -> Option<&'p str> {
    pointer.strip_prefix(prefix).and_then(|rest| rest.split('/').next())
}

/// A decision through the queue has its own time. Otherwise the first is made on arrival, and the second, of a
/// disaggregated row, when the first step of the handoff is done: the source holds (vLLM) or the destination has
/// reserved (SGLang).
fn route_time(index: &str, pair: &Pair<'_, '_>) -> Option<f64> {
    let route = |member: &str| format!("/routing_history/{index}/{member}");
    let queued = pair.first_time(&[&route("queue_entered_at_ms"), &route("released_at_ms")]);
    let pool = route("pool");
    let is = |name: &str| [&pair.left, &pair.right].iter().any(|side| side.get(&pool) == Some(&name));
    queued.or_else(|| match index {
        "0" => pair.time("/arrival_time_ms"),
        _ if is("\"decode\"") => pair.first_time(&["/source_held_ms", "/arrival_time_ms"]),
        _ => pair.first_time(&["/destination_reserved_ms", "/arrival_time_ms"]),
    })
}

fn pressure_event(pointer: &str, pair: &Pair<'_, '_>) -> Moment {
    match pointer {
        "/readmitted_at_ms" => Moment { at_ms: pair.time(pointer), event: "readmission".to_owned(), rank: 3 },
        _ => Moment { at_ms: pair.time("/at_ms"), event: "pressure event".to_owned(), rank: 2 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical_report::tests::{edit, report};

    const VD: &str = "dynamo-1.5.1-vllm-disaggregated";

    fn divergence(edits: &[(&str, &str)]) -> Option<Divergence> {
        let left = report(VD);
        let right = edits.iter().fold(left.clone(), |bytes, (pointer, value)| edit(&bytes, pointer, value));
        first_divergence(&left, &right).expect("two reports")
    }

    fn check(edits: &[(&str, &str)], at_ms: f64, event: &str, pointer: &str) {
        let found = divergence(edits).expect("a difference");
        let summary = (found.at_ms, found.event.as_str(), found.pointer.as_str());
        assert_eq!(summary, (at_ms, event, pointer), "{found}");
    }

    #[test]
    fn equal_reports_do_not_diverge() {
        assert_eq!(divergence(&[]), None);
        assert_eq!(divergence(&[("/summary/duration_ms", "1.0")]), None, "a summary has no time of its own");
    }

    #[test]
    fn a_reformatted_report_does_not_diverge() {
        let left = report(VD);
        let text = String::from_utf8(left.clone()).expect("reports are UTF-8").replace(",\"", ", \n\"");
        assert_eq!(first_divergence(&left, text.as_bytes()).expect("two reports"), None);
    }

    #[test]
    fn a_member_is_at_the_time_of_its_event() {
        let admission = "/per_request/12/admission_history/2/reused_input_tokens";
        check(&[(admission, "0")], 64765.74175621969, "admission 2", admission);
        let earlier = "/per_request/12/admission_history/2/at_ms";
        check(&[(earlier, "64000.5")], 64000.5, "admission 2", earlier);
        let held = "/per_request/12/source_held_ms";
        check(&[(held, "430.0")], 427.931259, "source hold", held);
        let released = "/per_request/12/source_released_ms";
        check(&[(released, "null")], 472.08876399999997, "source release", released);
        let prefill = "/per_request/12/routing_history/0/logical_worker_id";
        check(&[(prefill, "1")], 365.75, "route decision 0", prefill);
        let decode = "/per_request/12/routing_history/1/logical_worker_id";
        check(&[(decode, "1")], 427.931259, "route decision 1", decode);
        let unknown = "/per_request/12/readmission_count";
        check(&[(unknown, "0")], 79015.93175621766, "what the record says in the end", unknown);
    }

    #[test]
    fn the_earliest_of_many_wins() {
        let edits = [
            ("/per_request/30/terminal_time_ms", "1.0e5"),
            ("/per_request/12/routing_history/1/logical_worker_id", "1"),
            ("/per_request/12/decode_worker_idx", "1"),
            ("/coverage/pressure/records/0/worker_id", "0"),
        ];
        check(&edits, 427.931259, "route decision 1", "/per_request/12/routing_history/1/logical_worker_id");
        let found = divergence(&edits).expect("a difference");
        assert_eq!((found.differing_requests, found.differing_pressure_records), (2, 1));
        assert_eq!(found.request_uuid, "00000000-0000-0000-0000-00000000000d");
        assert_eq!((found.left.as_deref(), found.right.as_deref()), (Some("0"), Some("1")));
    }

    #[test]
    fn what_stayed_equal_is_told() {
        let edits = [
            ("/per_request/30/terminal_time_ms", "1.0e5"),
            ("/per_request/12/routing_history/1/logical_worker_id", "1"),
            ("/coverage/pressure/records/0/worker_id", "0"),
        ];
        let equal = divergence(&edits).expect("a difference").equal;
        let count = |list: &str| {
            let report: serde_json::Value = serde_json::from_slice(&report(VD)).expect("JSON");
            report.pointer(list).and_then(serde_json::Value::as_array).expect("a list").len() as u64
        };
        assert_eq!(equal.requests, count("/per_request") - 2);
        assert_eq!(equal.pressure_records, count("/coverage/pressure/records") - 1);
        let has = |members: &[String], name: &str| members.iter().any(|member| member == name);
        for (name, expected) in [
            ("arrival_time_ms", true),
            ("admission_history", true),
            ("terminal_time_ms", false),
            ("routing_history", false),
        ] {
            assert_eq!(has(&equal.request_members, name), expected, "{name}: {equal}");
        }
        assert!(has(&equal.pressure_members, "request_uuid") && !has(&equal.pressure_members, "worker_id"));
        assert!(equal.to_string().contains("arrival_time_ms"), "{equal}");
    }

    #[test]
    fn what_sums_up_a_history_does_not_come_before_it() {
        let edits = [
            ("/per_request/12/reused_input_tokens", "4000"),
            ("/per_request/12/admission_history/2/reused_input_tokens", "4000"),
        ];
        check(
            &edits,
            64765.74175621969,
            "admission 2",
            "/per_request/12/admission_history/2/reused_input_tokens",
        );
    }

    #[test]
    fn pressure_records_diverge_too() {
        let kind = "/coverage/pressure/records/3/request_active_blocks_before";
        check(&[(kind, "1")], 13496.728879820072, "pressure event", kind);
        let readmitted = "/coverage/pressure/records/3/readmitted_at_ms";
        check(&[(readmitted, "70000.0")], 62354.59848581987, "readmission", readmitted);
    }

    #[test]
    fn a_record_on_one_side_only_is_at_its_begin() {
        let left =
            br#"{"per_request":[{"arrival_time_ms":5.0,"uuid":"a"},{"arrival_time_ms":7.0,"uuid":"b"}]}"#;
        let right = br#"{"per_request":[{"arrival_time_ms":5.0,"uuid":"a"}]}"#;
        let found = first_divergence(left, right).expect("two reports").expect("a difference");
        assert_eq!(
            (found.at_ms, found.request_uuid.as_str(), found.pointer.as_str()),
            (7.0, "b", "/per_request/1")
        );
        assert_eq!((found.left.as_deref(), found.right), (Some("a record"), None));
        let found = first_divergence(right, left).expect("two reports").expect("a difference");
        assert_eq!((found.left, found.right.as_deref()), (None, Some("a record")));
    }

    #[test]
    fn a_stored_divergence_keeps_its_time() {
        let found = divergence(&[("/per_request/12/source_held_ms", "108919.39951607985")]);
        let mut found = found.expect("a difference");
        // A time that serde_json's fast path for doubles reads one bit too low.
        found.at_ms = 108_919.399_516_079_85;
        let text = serde_json::to_string(&found).expect("serializable");
        assert!(text.starts_with("{\"at_ms\":\"108919.39951607985\","), "{text}");
        assert_eq!(serde_json::from_str::<Divergence>(&text).expect("readable"), found);
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        assert!(first_divergence(b"{\"per_request\":[{]}", b"{}").is_err());
        assert_eq!(first_divergence(b"{}", b"{\"per_request\":5}").expect("two documents"), None);
    }
}
