//! What must hold for any bytes and any values.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets use it as a crate")]
mod any_bytes;

use any_bytes::{check_message, check_stream};
use master_wire::{
    BatchExistKey, BatchPutStart, DecodeError, Dialect, EncodeError, Envelope, Frame, Header, List,
    ReplicateConfig, Request, RequestHeader, Rpc, Segment, Style, Uuid, Width, WireStr, decode_request,
    encode_request,
};
use proptest::collection::vec;
use proptest::prelude::*;

const RECORDED: &str = include_str!("../../../testdata/wire/vectors.jsonl");

/// Frames of recorded messages.
fn recorded() -> Vec<Vec<u8>> {
    let frame = |line: &str| {
        let hex = line.split_once("\"hex\":\"").unwrap().1.split_once('"').unwrap().0.to_owned();
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    RECORDED.lines().map(frame).collect()
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(Dialect::ALL.to_vec())
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(data in vec(any::<u8>(), 0..200)) {
        check_message(&data);
        check_stream(&data);
    }

    #[test]
    fn recorded_messages_with_a_flaw_are_read_or_refused(
        frame in prop::sample::select(recorded()),
        flaws in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        picks in any::<[u8; 2]>(),
    ) {
        let mut frame = frame;
        for (at, byte) in flaws {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(cut.index(frame.len() * 2));
        check_stream(&[&[picks[0]], &frame[..]].concat());
        for what in 0..8 {
            for header in [RequestHeader::BYTES, 16] {
                let body = frame.get(header..).unwrap_or_default();
                check_message(&[&[picks[0], picks[1], what], body].concat());
            }
        }
    }

    #[test]
    fn streams_are_cut_anywhere(order in vec(prop::sample::select(recorded()), 1..6), piece in any::<u8>()) {
        check_stream(&[&[piece], &order.concat()[..]].concat());
    }

    #[test]
    fn keys_of_any_bytes_travel(
        keys in prop_oneof![
            9 => vec(vec(any::<u8>(), 0..300), 0..12),
            1 => vec(vec(any::<u8>(), 0..3), 250..260),
        ],
        tenant in vec(any::<u8>(), 0..5),
        dialect in dialect(),
        official in any::<bool>(),
    ) {
        let keys: Vec<WireStr<'_>> = keys.iter().map(|key| WireStr::new(key)).collect();
        let mut call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
        if dialect >= Dialect::C {
            call.tenant_id = WireStr::new(&tenant);
        }
        let largest = keys.iter().map(|key| key.len()).chain([keys.len()]).max().unwrap_or(0);
        check_travels(call.into(), dialect, official, largest);
    }

    #[test]
    fn puts_of_any_shape_travel(
        ids in any::<[u64; 4]>(),
        texts in vec(".{0,40}", 3),
        keys in vec(".{0,8}", 0..6),
        flags in any::<[bool; 3]>(),
        ttl in any::<Option<u64>>(),
        grouped in any::<bool>(),
        dialect in dialect(),
        official in any::<bool>(),
    ) {
        let lengths = &ids[..keys.len().min(4)];
        let [soft, hard, same_node] = flags;
        let mut config = ReplicateConfig {
            replica_num: ids[3],
            with_hard_pin: hard,
            prefer_alloc_in_same_node: same_node,
            preferred_segment: (&texts[0]).into(),
            ..Default::default()
        };
        let groups: Vec<WireStr<'_>> = keys.iter().map(Into::into).collect();
        config.with_soft_pin = soft && dialect <= Dialect::C;
        if dialect >= Dialect::B {
            config.nof_replica_num = ids[2];
            config.preferred_nof_segments = (&groups).into();
        }
        if dialect >= Dialect::C {
            config.host_id = (&texts[1]).into();
            config.group_ids = grouped.then(|| (&groups).into());
        }
        if dialect >= Dialect::D {
            config.soft_pin_ttl_ms = ttl;
        }
        let call = BatchPutStart {
            client_id: Uuid::new(ids[0], ids[1]),
            keys: (&keys).into(),
            slice_lengths: lengths.into(),
            config,
            ..Default::default()
        };
        check_travels(call.into(), dialect, official, 0);
    }
}

/// Written, read, equal; and in no wider prefixes than the largest length needs.
fn check_travels(request: Request<'_>, dialect: Dialect, official: bool, largest: usize) {
    let style = if official { Style::Official } else { Style::Compact };
    let mut out = vec![0xee; 3];
    request.encode(&mut out, 5, dialect, style).unwrap();
    let (frame, len) = Frame::<RequestHeader>::split(&out[3..], usize::MAX).unwrap().unwrap();
    assert_eq!(len, out.len() - 3);
    let read = decode_request(&frame, dialect).unwrap();
    assert_eq!(read.value, request);
    assert_eq!(read.envelope.has_literal(), official);
    assert!(read.surplus.is_empty());
    if largest > 0 {
        assert_eq!(read.envelope.width(), Width::narrowest(largest.max(7) as u64));
    }
}

#[test]
fn what_a_dialect_cannot_say_is_refused() {
    let check = |request: Request<'_>, dialect: Dialect, expected: &'static str| {
        let mut out = vec![1, 2];
        let refused = request.encode(&mut out, 1, dialect, Style::Compact).unwrap_err();
        assert_eq!(refused, EncodeError::NotInDialect { part: expected, dialect });
        assert_eq!(out, [1, 2], "nothing is left behind");
    };
    let tenant = BatchExistKey { tenant_id: "other".into(), ..Default::default() };
    check(tenant.into(), Dialect::B, "tenant_id");
    let segment = Segment { host_id: "h".into(), ..Default::default() };
    let mount = master_wire::MountSegment { segment, client_id: Uuid::default() };
    check(mount.into(), Dialect::A, "host_id");
    let config = ReplicateConfig { with_soft_pin: true, ..Default::default() };
    check(master_wire::PutStart { config, ..Default::default() }.into(), Dialect::D, "with_soft_pin");
    let metas = [master_wire::ObjectMeta { key: "k".into(), object_checksum: Some(1) }];
    let end = master_wire::BatchPutEnd { object_metas: (&metas).into(), ..Default::default() };
    check(end.into(), Dialect::C, "object_checksum");
    let dfs = master_wire::Replica {
        descriptor: master_wire::Location::Dfs(master_wire::DfsReplica::default()),
        ..Default::default()
    };
    let mut out = Vec::new();
    let replicas = [dfs];
    let response = master_wire::Response::PutStart(Ok((&replicas).into()));
    let refused = response.encode(&mut out, 1, Dialect::C, Style::Official).unwrap_err();
    assert_eq!(refused.to_string(), "dialect C (0.3.12.post1) has no dfs");
}

#[test]
fn a_width_that_is_too_narrow_is_refused() {
    let key = "k".repeat(256);
    let call = master_wire::ExistKey { key: (&key).into(), ..Default::default() };
    let exact = Style::Exact(Envelope::compact(Width::One));
    let refused = encode_request(&mut Vec::new(), 1, Dialect::A, &call, exact).unwrap_err();
    assert_eq!(refused, EncodeError::Width { needed_bytes: 2, asked_bytes: 1 });
}

#[test]
fn announced_lengths_allocate_nothing() {
    // A list of 2^62 strings, and a string of 2^62 bytes: refused at once.
    let signature = Rpc::BatchExistKey.request(Dialect::A);
    let head = [&(signature.hash() | 1).to_le_bytes()[..], &[0x18]].concat();
    let count = [&head[..], &(1u64 << 62).to_le_bytes()].concat();
    let refused = Request::decode(Rpc::BatchExistKey, Dialect::A, &count).unwrap_err();
    assert_eq!(refused, DecodeError::Count { count: 1 << 62, offset: 5, available: 0 });
    let text = [&head[..], &1u64.to_le_bytes(), &(1u64 << 62).to_le_bytes()].concat();
    let refused = Request::decode(Rpc::BatchExistKey, Dialect::A, &text).unwrap_err();
    assert_eq!(refused, DecodeError::Truncated { needed: 1 << 62, offset: 21, available: 0 });
}

#[test]
fn lists_are_made_of_slices_of_keys() {
    let strings = ["a".to_owned(), "b".to_owned()];
    let keys: List<'_, WireStr<'_>> = (&strings[..]).into();
    assert_eq!(keys, List::from(&["a", "b"]));
    assert_eq!(format!("{keys:?} {}", keys.len()), "[\"a\", \"b\"] 2");
    assert_eq!(keys.first(), Some("a".into()));
    assert!(List::<'_, u64>::default().is_empty());
}
