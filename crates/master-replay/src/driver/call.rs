//! One event as a call, and its reply as what became of the event.

use std::time::Instant;

use master_wire::{
    Arrived, BatchExistKey, BatchGetReplicaList, BatchPutEnd, BatchPutRevoke, BatchPutStart, BatchRemove,
    ErrorCode, List, MountSegment, ObjectMeta, Outcome, ReMountSegment, ReplicaType, ReplicateConfig,
    ReplyError, SubmitError, UnmountSegment, WireStr,
};

use super::clients::{Clients, Segments};
use super::lane::Lane;
use crate::contract::{Event, Op, Trace};
use crate::outcome::{KeyStatus, Outcomes};

/// What dispatching an event came to.
#[derive(Debug)]
pub(super) enum Dispatched {
    /// It was queued.
    Queued,
    /// There is nothing to send; it has ended.
    NothingToSend,
    /// It cannot be sent.
    Failed(String),
}

/// Room for the parts of a request, used again and again.
///
/// The keys of a request borrow from the trace, which outlives every call.
#[derive(Debug, Default)]
pub(super) struct Parts<'t> {
    keys: Vec<WireStr<'t>>,
    metas: Vec<ObjectMeta<'t>>,
}

/// What every call needs.
pub(super) struct Context<'c> {
    pub(super) clients: &'c Clients,
    pub(super) segments: &'c mut Segments,
    pub(super) outcomes: &'c Outcomes,
    pub(super) tenant: &'c str,
    pub(super) deadline: Instant,
}

/// Queues the call of an event.
pub(super) fn dispatch<'t>(
    event: &Event<'t>,
    trace: &'t Trace,
    lane: &mut Lane,
    parts: &mut Parts<'t>,
    context: &mut Context<'_>,
) -> Dispatched {
    let registered = context.clients.is_registered(event.client());
    if !registered && event.op() != Op::ReMountSegment {
        return Dispatched::Failed("the client's registration failed".to_owned());
    }
    let queued = match event.op() {
        op if op.is_lifecycle() => match lifecycle(event, lane, context) {
            Some(queued) => queued,
            None => return Dispatched::Failed("the segment's mount failed".to_owned()),
        },
        op => {
            collect_keys(event, trace, context.outcomes, parts);
            if parts.keys.is_empty() {
                return Dispatched::NothingToSend;
            }
            keys(op, event, lane, parts, context)
        }
    };
    match queued {
        Ok(()) => Dispatched::Queued,
        Err(error) => Dispatched::Failed(describe(&error)),
    }
}

/// The keys to be sent: all, or for End and Revoke those whose Start succeeded.
fn collect_keys<'t>(event: &Event<'t>, trace: &'t Trace, outcomes: &Outcomes, parts: &mut Parts<'t>) {
    parts.keys.clear();
    match started(event, trace, outcomes) {
        None => parts.keys.extend(event.keys().map(WireStr::from)),
        Some(started) => {
            let keys = event.keys().zip(started).filter(|(_, status)| **status == KeyStatus::Ok);
            parts.keys.extend(keys.map(|(key, _)| WireStr::from(key)));
        }
    }
}

/// What became of the keys of the write that an event finalises.
fn started<'o>(event: &Event<'_>, trace: &Trace, outcomes: &'o Outcomes) -> Option<&'o [KeyStatus]> {
    event.put_start().map(|start| outcomes.statuses(trace.event(start).key_range()))
}

fn lifecycle(
    event: &Event<'_>,
    lane: &mut Lane,
    context: &mut Context<'_>,
) -> Option<Result<(), SubmitError>> {
    let client_id = context.clients.id(event.client());
    let (index, deadline) = (event.index(), context.deadline);
    Some(match (event.op(), event.segment()) {
        (Op::MountSegment, Some(segment)) => {
            let size_bytes = event.size_bytes().unwrap_or_default();
            let mounted = context.clients.segment(segment, event.client(), size_bytes);
            let queued = lane.submit(
                &MountSegment { segment: mounted.segment(lane.session.dialect()), client_id },
                index,
                deadline,
            );
            context.segments.insert(segment, mounted);
            queued
        }
        (Op::UnmountSegment, Some(segment)) => {
            let segment_id = context.segments.get(&segment)?.id;
            lane.submit(&UnmountSegment { segment_id, client_id }, index, deadline)
        }
        _ => lane.submit(&ReMountSegment { client_id, ..Default::default() }, index, deadline),
    })
}

fn keys(
    op: Op,
    event: &Event<'_>,
    lane: &mut Lane,
    parts: &mut Parts<'_>,
    context: &Context<'_>,
) -> Result<(), SubmitError> {
    let Parts { keys: list, metas } = parts;
    let keys = List::from(&list[..]);
    let client_id = context.clients.id(event.client());
    let (index, deadline) = (event.index(), context.deadline);
    // Tenants exist since dialect C; the default one is left out before that.
    let tenant_id = WireStr::from(context.tenant);
    // Only memory replicas exist here, and the oldest dialect has no other kind to say.
    let replica_type = ReplicaType::MEMORY;
    match op {
        Op::BatchExistKey => lane.submit(&BatchExistKey { keys, tenant_id }, index, deadline),
        Op::BatchGetReplicaList => lane.submit(&BatchGetReplicaList { keys, tenant_id }, index, deadline),
        Op::BatchPutStart => {
            let config =
                ReplicateConfig { replica_num: event.replica_num().unwrap_or(1), ..Default::default() };
            let slice_lengths = List::from(event.value_bytes());
            let call = BatchPutStart { client_id, keys, slice_lengths, config, tenant_id };
            lane.submit(&call, index, deadline)
        }
        Op::BatchPutEnd => {
            metas.clear();
            metas.extend(list.iter().map(|key| ObjectMeta { key: *key, ..Default::default() }));
            let object_metas = List::from(&metas[..]);
            lane.submit(&BatchPutEnd { client_id, object_metas, replica_type, tenant_id }, index, deadline)
        }
        Op::BatchPutRevoke => {
            lane.submit(&BatchPutRevoke { client_id, keys, replica_type, tenant_id }, index, deadline)
        }
        _ => lane.submit(&BatchRemove { keys, force: false, tenant_id }, index, deadline),
    }
}

/// What a reply says.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// What became of each key that was sent, in that order.
    pub(super) statuses: Vec<KeyStatus>,
    /// What went wrong first.
    pub(super) error: Option<String>,
}

impl Settled {
    fn clear(&mut self) {
        self.statuses.clear();
        self.error = None;
    }

    fn key<T>(&mut self, outcome: Outcome<T>, ok: impl FnOnce(T) -> KeyStatus) {
        let status = match outcome {
            Ok(value) => ok(value),
            Err(ErrorCode::OBJECT_NOT_FOUND) => KeyStatus::Miss,
            Err(ErrorCode::REPLICA_IS_NOT_READY) => KeyStatus::NotReady,
            Err(ErrorCode::OBJECT_ALREADY_EXISTS) => KeyStatus::AlreadyExists,
            Err(code) => {
                self.error.get_or_insert_with(|| code.to_string());
                KeyStatus::Error
            }
        };
        self.statuses.push(status);
    }

    fn whole(&mut self, outcome: Outcome<()>) {
        if let Err(code) = outcome {
            self.error = Some(code.to_string());
        }
    }
}

/// Reads a reply to an event of this operation.
pub(super) fn settle(op: Op, arrived: &Arrived<'_>, settled: &mut Settled) {
    settled.clear();
    let result = match op {
        Op::BatchExistKey => arrived.decode::<BatchExistKey<'_>>().map(|keys| {
            let found = |exists| if exists { KeyStatus::Ok } else { KeyStatus::Miss };
            keys.iter().for_each(|outcome| settled.key(outcome, found));
        }),
        Op::BatchGetReplicaList => arrived
            .decode::<BatchGetReplicaList<'_>>()
            .map(|keys| keys.iter().for_each(|outcome| settled.key(outcome, |_| KeyStatus::Ok))),
        Op::BatchPutStart => arrived
            .decode::<BatchPutStart<'_>>()
            .map(|keys| keys.iter().for_each(|outcome| settled.key(outcome, |_| KeyStatus::Ok))),
        Op::BatchPutEnd => arrived
            .decode::<BatchPutEnd<'_>>()
            .map(|keys| keys.iter().for_each(|outcome| settled.key(outcome, |()| KeyStatus::Ok))),
        Op::BatchPutRevoke => arrived
            .decode::<BatchPutRevoke<'_>>()
            .map(|keys| keys.iter().for_each(|outcome| settled.key(outcome, |()| KeyStatus::Ok))),
        Op::BatchRemove => arrived
            .decode::<BatchRemove<'_>>()
            .map(|keys| keys.iter().for_each(|outcome| settled.key(outcome, |()| KeyStatus::Ok))),
        Op::ReMountSegment => arrived.decode::<ReMountSegment<'_>>().map(|outcome| settled.whole(outcome)),
        Op::MountSegment => arrived.decode::<MountSegment<'_>>().map(|outcome| settled.whole(outcome)),
        Op::UnmountSegment => arrived.decode::<UnmountSegment>().map(|outcome| settled.whole(outcome)),
    };
    if let Err(error) = result {
        settled.clear();
        settled.error = Some(describe_reply(&error));
    }
}

fn describe_reply(error: &ReplyError) -> String {
    format!("the call failed: {}", describe(error))
}

/// An error with its causes.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
