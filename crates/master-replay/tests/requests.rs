//! What the master is asked, as a stand-in hears it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use cpu_placement::CancelToken;
use master_replay::{Alone, Progress, ReplayOptions, Replayed, Trace, replay};
use master_wire::{
    BatchExistKey, BatchGetReplicaList, BatchPutEnd, BatchPutRevoke, BatchPutStart, BatchRemove, Dialect,
    ObjectMeta, ReplicaType, ReplicateConfig, Request, UnmountSegment, Uuid,
};
use testkit::master::{Script, StandIn};

/// Replays a trace; gives what the closure made of each request, in the order of their arrival.
fn heard<T: Send + 'static>(
    trace: &str,
    dialect: Dialect,
    script: &str,
    options: &ReplayOptions,
    hear: impl Fn(usize, &Request<'_>) -> Option<T> + Send + 'static,
) -> (Vec<T>, Replayed) {
    let trace = Trace::parse(trace.as_bytes()).expect("valid");
    let master = StandIn::start(dialect, Script::parse(script));
    let all = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&all);
    master.hear(move |connection, request| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend(hear(connection, request));
    });
    let progress = Progress::default();
    let replayed = replay(&trace, master.address(), options, &mut Alone, &progress, &CancelToken::new());
    drop(master);
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    (std::mem::take(&mut *all), replayed.expect("replayed"))
}

const OPERATIONS: &str = r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}
{"id":"r","timestamp_us":0,"client_id":"c","op":"ReMountSegment","phase":"setup","segments":[]}
{"id":"m","timestamp_us":0,"client_id":"c","op":"MountSegment","phase":"setup","segment_id":"s","size_bytes":67108864}
{"id":"00","timestamp_us":0,"client_id":"c","op":"BatchPutStart","phase":"workload","keys":["c"],"value_sizes":[4]}
{"id":"0","timestamp_us":0,"client_id":"c","op":"BatchPutEnd","phase":"workload","keys":["c"],"put_start":"00"}
{"id":"1","timestamp_us":0,"client_id":"c","op":"BatchPutStart","phase":"workload","depends_on":["0"],"keys":["a","c","b"],"value_slices":[[5,6],[7],[8]],"replica_num":2}
{"id":"2","timestamp_us":0,"client_id":"c","op":"BatchPutEnd","phase":"workload","keys":["a","c","b"],"put_start":"1"}
{"id":"3","timestamp_us":0,"client_id":"c","op":"BatchPutStart","phase":"workload","keys":["\u00e9\n"],"value_sizes":[9],"depends_on":["2"]}
{"id":"4","timestamp_us":0,"client_id":"c","op":"BatchPutRevoke","phase":"workload","keys":["\u00e9\n"],"put_start":"3"}
{"id":"5","timestamp_us":0,"client_id":"c","op":"BatchExistKey","phase":"workload","keys":["b","a","b"],"depends_on":["4"]}
{"id":"6","timestamp_us":0,"client_id":"c","op":"BatchGetReplicaList","phase":"workload","keys":["b"],"depends_on":["5"]}
{"id":"7","timestamp_us":0,"client_id":"c","op":"BatchRemove","phase":"workload","keys":["b"],"depends_on":["6"]}
{"id":"u","timestamp_us":0,"client_id":"c","op":"UnmountSegment","phase":"teardown","segment_id":"s"}
"#;

#[derive(Clone, Debug)]
enum Heard {
    Registered(Uuid),
    Mounted { owner: Uuid, id: Uuid },
    Other(String),
}

fn note(request: &Request<'_>) -> Option<Heard> {
    Some(match request {
        Request::Ping(_) => return None,
        Request::ReMountSegment(call) if call.segments.is_empty() => Heard::Registered(call.client_id),
        Request::MountSegment(call) => Heard::Mounted { owner: call.client_id, id: call.segment.id },
        _ => Heard::Other(format!("{request:?}")),
    })
}

/// Every request after the two that name the client and the segment.
fn expected(client_id: Uuid, segment_id: Uuid, tenant: &str) -> Vec<String> {
    let (tenant_id, replica_type) = (tenant.into(), ReplicaType::MEMORY);
    let text = |request: Request<'_>| format!("{request:?}");
    let put = |keys: &[&str], lengths: &[u64], replica_num| {
        let config = ReplicateConfig { replica_num, ..ReplicateConfig::default() };
        let (keys, slice_lengths) = (keys.into(), lengths.into());
        text(Request::BatchPutStart(BatchPutStart { client_id, keys, slice_lengths, config, tenant_id }))
    };
    let end = |keys: &[&str]| {
        let metas: Vec<_> =
            keys.iter().map(|key| ObjectMeta { key: (*key).into(), ..ObjectMeta::default() }).collect();
        let object_metas = (&metas).into();
        text(Request::BatchPutEnd(BatchPutEnd { client_id, object_metas, replica_type, tenant_id }))
    };
    vec![
        put(&["c"], &[4], 1),
        end(&["c"]),
        put(&["a", "c", "b"], &[11, 7, 8], 2),
        // There is a `c` already: its start did not succeed.
        end(&["a", "b"]),
        put(&["é\n"], &[9], 1),
        text(Request::BatchPutRevoke(BatchPutRevoke {
            client_id,
            keys: (&["é\n"]).into(),
            replica_type,
            tenant_id,
        })),
        text(Request::BatchExistKey(BatchExistKey { keys: (&["b", "a", "b"]).into(), tenant_id })),
        text(Request::BatchGetReplicaList(BatchGetReplicaList { keys: (&["b"]).into(), tenant_id })),
        text(Request::BatchRemove(BatchRemove { keys: (&["b"]).into(), force: false, tenant_id })),
        text(Request::UnmountSegment(UnmountSegment { segment_id, client_id })),
    ]
}

#[test]
fn every_request_says_what_its_event_means() {
    for (dialect, tenant) in
        [(Dialect::A, "default"), (Dialect::B, "default"), (Dialect::C, "other"), (Dialect::D, "other")]
    {
        let mut options = ReplayOptions::default();
        options.tenant = tenant.to_owned();
        let (all, replayed) = heard(OPERATIONS, dialect, "", &options, |_, request| note(request));
        // A remove without force leaves what was asked for a moment ago.
        assert_eq!(replayed.outcomes.error_counts(), [("OBJECT_HAS_LEASE (-706)", 1)], "{dialect}");
        // What came before is how the dialect was told.
        let from = all.iter().position(|heard| matches!(heard, Heard::Registered(..))).expect("registered");
        let Some([Heard::Registered(client), Heard::Mounted { owner, id }, others @ ..]) = all.get(from..)
        else {
            panic!("{dialect}: {all:?}");
        };
        assert_eq!(owner, client);
        let others: Vec<&str> = others
            .iter()
            .map(|heard| match heard {
                Heard::Other(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(others, expected(*client, *id, tenant), "{dialect}");
    }
}

/// A segment of which there is nothing, named after itself, on a host that its client has for itself.
#[test]
fn segments_say_what_the_contract_says() {
    let hear = |_, request: &Request<'_>| match request {
        Request::MountSegment(call) => Some([
            call.segment.name.to_string(),
            call.segment.id.to_string(),
            call.segment.te_endpoint.to_string(),
            call.segment.host_id.to_string(),
            call.segment.protocol.to_string(),
            format!("{:#x} {}", call.segment.base, call.segment.size),
        ]),
        _ => None,
    };
    let (mounted, _) = heard(OPERATIONS, Dialect::D, "", &ReplayOptions::default(), hear);
    let [[name, id, endpoint, host, protocol, place]] = mounted.as_slice() else { panic!("{mounted:?}") };
    let hyphenated = name.strip_prefix("trace_").expect("a name after an id");
    assert_eq!(hyphenated.replace('-', ""), id.replace('-', ""));
    assert_eq!(hyphenated.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert_eq!((endpoint.as_str(), protocol.as_str()), (format!("{host}:12345").as_str(), "tcp"));
    assert_eq!(place, "0x100000000 67108864");
    assert!(host.starts_with("trace_") && host != name, "{host}");
}

/// Nothing in such a trace says that one mount comes before the other; the master sees the order of the file all the same.
#[test]
fn lifecycle_calls_of_a_client_go_one_after_the_other_over_one_connection() {
    const CLIENTS: u64 = 9;
    const SEGMENTS: usize = 12;
    let mut rows = vec![r#"{"type":"master_rpc_trace","version":2,"time_unit":"us"}"#.to_owned()];
    let mut row = |client: u64, id: String, op: &str, more: String| {
        rows.push(format!(r#"{{"id":"{id}","timestamp_us":0,"client_id":"c{client}","op":"{op}",{more}}}"#));
    };
    let each = || (0..SEGMENTS as u64).flat_map(|segment| (0..CLIENTS).map(move |client| (client, segment)));
    for client in 0..CLIENTS {
        row(client, format!("r{client}"), "ReMountSegment", r#""phase":"setup","segments":[]"#.to_owned());
    }
    for (client, segment) in each() {
        let bytes = (segment + 1) << 26;
        let more = format!(r#""phase":"setup","segment_id":"s{client}-{segment}","size_bytes":{bytes}"#);
        row(client, format!("m{client}-{segment}"), "MountSegment", more);
    }
    for (client, segment) in each() {
        let more = format!(r#""phase":"teardown","segment_id":"s{client}-{segment}""#);
        row(client, format!("u{client}-{segment}"), "UnmountSegment", more);
    }
    let mut options = ReplayOptions::default();
    options.connections = NonZeroU32::new(4).expect("four");
    options.in_flight = NonZeroU32::new(64).expect("some");
    let hear = |connection, request: &Request<'_>| match request {
        Request::ReMountSegment(call) => Some((call.client_id, connection, Uuid::default(), 0)),
        Request::MountSegment(call) => {
            Some((call.client_id, connection, call.segment.id, call.segment.size >> 26))
        }
        Request::UnmountSegment(call) => Some((call.client_id, connection, call.segment_id, 0)),
        _ => None,
    };
    // Some connections answer later than others.
    let script = "MountSegment 3 delay 5\nMountSegment 20 delay 5\nUnmountSegment 7 delay 5";
    let (all, replayed) = heard(&rows.join("\n"), Dialect::D, script, &options, hear);
    assert!(!replayed.outcomes.has_errors(), "{:?}", replayed.outcomes.error_counts());
    let mut clients: BTreeMap<(u64, u64), Vec<_>> = BTreeMap::new();
    for (client, connection, segment, size) in all {
        clients.entry((client.first, client.second)).or_default().push((connection, segment, size));
    }
    assert_eq!(clients.len() as u64, CLIENTS);
    let mut connections = BTreeSet::new();
    for calls in clients.values() {
        connections.insert(calls[0].0);
        assert!(calls.iter().all(|(connection, ..)| *connection == calls[0].0), "{calls:?}");
        let (mounts, unmounts) = calls[1..].split_at(SEGMENTS);
        assert!(mounts.iter().map(|(.., size)| *size).eq(1..=SEGMENTS as u64), "{mounts:?}");
        assert!(mounts.iter().map(|mount| mount.1).eq(unmounts.iter().map(|unmount| unmount.1)), "{calls:?}");
    }
    assert_eq!(connections.len(), 4, "the clients share all connections");
}
