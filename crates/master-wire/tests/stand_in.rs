//! The stand-in is honest like the real masters, and each of its faults gives a typed error in time.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use master_wire::{
    BatchExistKey, BatchPutStart, BatchRemove, CallError, ConnectError, ConnectOptions, Connection,
    DecodeError, DetectError, Dialect, ErrorCode, ExistKey, FakeSegment, FrameError, FrameReader,
    MountSegment, ObjectMeta, Ping, ProtocolError, PutEnd, PutStart, ReMountSegment, Reconnect, ReplicaType,
    ReplicateConfig, Request, ResponseHeader, RpcErrorCode, ServiceReady, Style, SubmitError, Uuid,
};
use testkit::master::{Script, Settings, StandIn};
use testkit::masters;

const DEADLINE: Duration = Duration::from_millis(400);

fn connect(master: &StandIn, dialect: Dialect) -> Connection {
    let mut options = ConnectOptions::in_dialect(dialect);
    options.call_timeout = DEADLINE;
    Connection::connect(master.address(), &options).unwrap()
}

/// Sends the requests one by one and returns the frames of the replies.
fn frames(address: SocketAddr, dialect: Dialect, requests: &[Request<'_>]) -> Vec<Vec<u8>> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = FrameReader::<ResponseHeader>::new(1 << 16, 1 << 20);
    let mut answers = Vec::new();
    for (request, seq_num) in requests.iter().zip(0..) {
        let mut out = Vec::new();
        request.encode(&mut out, seq_num, dialect, Style::Official).unwrap();
        stream.write_all(&out).unwrap();
        loop {
            if let Some(frame) = reader.next_frame().unwrap() {
                answers.push([&frame.header.to_bytes()[..], frame.body].concat());
                break;
            }
            let len = stream.read(reader.space()).unwrap();
            assert!(len > 0, "closed after {request:?}");
            reader.filled(len);
        }
    }
    answers
}

fn check_honest(dialect: Dialect) {
    let client_id = Uuid::new(1, u64::MAX);
    let stranger = Uuid::new(7, 7);
    let replica_type = ReplicaType::usual(dialect);
    let segments = [0, 1].map(|number| FakeSegment::new(Uuid::new(3, number.into()), number, 16 << 20));
    let keys = ["a", "b", "none", "a"];
    let lengths = [100, 1000, 7, 7];
    let metas = [ObjectMeta::from("b"), "none".into()];
    let mut preferred = ReplicateConfig { preferred_segment: "fake-0:1".into(), ..Default::default() };
    let exist = |key: &'static str| Request::from(ExistKey { key: key.into(), ..Default::default() });
    let put = |key: &'static str, client_id, slice_length, config| {
        Request::from(PutStart { client_id, key: key.into(), slice_length, config, ..Default::default() })
    };
    let end = |key: &'static str, client_id| {
        Request::from(PutEnd { client_id, object_meta: key.into(), replica_type, ..Default::default() })
    };
    let remove = |key: &'static str, force| {
        Request::from(master_wire::Remove { key: key.into(), force, ..Default::default() })
    };
    let revoke = |key: &'static str, client_id| {
        Request::from(master_wire::PutRevoke {
            client_id,
            key: key.into(),
            replica_type,
            ..Default::default()
        })
    };
    let locate = |key: &'static str| {
        Request::from(master_wire::GetReplicaList { key: key.into(), ..Default::default() })
    };
    preferred.replica_num = 1;
    let requests: Vec<Request<'_>> = vec![
        ServiceReady {}.into(),
        master_wire::GetFsdir {}.into(),
        master_wire::GetStorageConfig {}.into(),
        Ping { client_id }.into(),
        put("early", client_id, 1, preferred),
        ReMountSegment { client_id, ..Default::default() }.into(),
        Ping { client_id }.into(),
        MountSegment { segment: segments[0].segment(), client_id }.into(),
        MountSegment { segment: segments[0].segment(), client_id }.into(),
        put("k", client_id, 100, preferred),
        put("k", client_id, 100, preferred),
        exist("k"),
        locate("k"),
        remove("k", true),
        end("k", stranger),
        end("k", client_id),
        end("k", client_id),
        revoke("k", client_id),
        remove("k", false),
        put("", client_id, 1, preferred),
        put("zero", client_id, 0, preferred),
        put("big", client_id, 1 << 30, preferred),
        put("k", client_id, 1000, preferred),
        end("k", client_id),
        locate("k"),
        exist("k"),
        remove("k", false),
        BatchPutStart {
            client_id,
            keys: (&keys).into(),
            slice_lengths: (&lengths).into(),
            config: preferred,
            ..Default::default()
        }
        .into(),
        master_wire::BatchPutEnd {
            client_id,
            object_metas: (&metas).into(),
            replica_type: if dialect == Dialect::A { ReplicaType::MEMORY } else { replica_type },
            ..Default::default()
        }
        .into(),
        BatchExistKey { keys: (&keys).into(), ..Default::default() }.into(),
        master_wire::BatchGetReplicaList { keys: (&keys).into(), ..Default::default() }.into(),
        master_wire::BatchPutRevoke { client_id, keys: (&keys).into(), replica_type, ..Default::default() }
            .into(),
        BatchRemove { keys: (&keys).into(), ..Default::default() }.into(),
        BatchRemove { keys: (&keys).into(), force: true, ..Default::default() }.into(),
        master_wire::RemoveAll { force: true, ..Default::default() }.into(),
        MountSegment { segment: segments[1].segment(), client_id: stranger }.into(),
        put("two", client_id, 3, ReplicateConfig { replica_num: 2, ..preferred }),
        master_wire::UnmountSegment { segment_id: segments[0].id(), client_id }.into(),
        exist("two"),
        locate("two"),
        BatchExistKey::default().into(),
    ];
    let stand_in = StandIn::start(dialect, Script::honest());
    let found = frames(stand_in.address(), dialect, &requests);
    let recorded = recorded(dialect);
    assert_eq!(found.len(), recorded.len());
    for ((request, recorded), found) in requests.iter().zip(&recorded).zip(found) {
        assert_eq!(hex(&found), *recorded, "{request:?} in dialect {dialect}, against the recorded reply");
    }
    // An allocation that fails, of which there are some, has the real master evict what nobody holds a few milliseconds later.
    let real = masters::start(dialect.master_version(), &["--eviction_ratio=0"]);
    let replies = frames(real.address(), dialect, &requests);
    for ((request, recorded), reply) in requests.iter().zip(&recorded).zip(replies) {
        assert_eq!(hex(&reply), *recorded, "{request:?} in dialect {dialect}, by the real master");
    }
}

/// What the real master of this dialect replied to the scenario of [`check_honest`].
fn recorded(dialect: Dialect) -> Vec<&'static str> {
    let lines =
        include_str!("../../../testdata/wire/scenario.tsv").lines().filter(|line| !line.starts_with('#'));
    let replies = lines.map(|line| line.split_once('\t').unwrap());
    replies.filter(|(version, _)| *version == dialect.master_version()).map(|(_, reply)| reply).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn honest_like_the_real_master_in_a() {
    check_honest(Dialect::A);
}

#[test]
fn honest_like_the_real_master_in_b() {
    check_honest(Dialect::B);
}

#[test]
fn honest_like_the_real_master_in_c() {
    check_honest(Dialect::C);
}

#[test]
fn honest_like_the_real_master_in_d() {
    check_honest(Dialect::D);
}

#[test]
fn dialects_are_detected() {
    for dialect in Dialect::ALL {
        for style in [Style::Official, Style::Compact] {
            let master = StandIn::with(dialect, Script::honest(), Settings::of(dialect), style);
            let mut connection = Connection::connect(master.address(), &ConnectOptions::default()).unwrap();
            assert_eq!(connection.dialect(), dialect);
            assert_eq!(connection.call(&ServiceReady {}).unwrap().unwrap(), "2.0.0");
        }
    }
    let unsupported = |script: &str| {
        let master = StandIn::start(Dialect::D, Script::parse(script));
        Connection::connect(master.address(), &ConnectOptions::default()).unwrap_err()
    };
    // The hash of the answer's type, and its literal.
    let error = unsupported("* * corrupt 17 1");
    let ConnectError::Detect { source: DetectError::Unsupported { hash, literal }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(hash, 0x20c5_453a ^ 0x100);
    assert!(literal.starts_with("8487fd84fd0486"), "{literal}");
    let error = unsupported("* * fail 4");
    assert!(matches!(error, ConnectError::Detect { source: DetectError::Refused(_), .. }), "{error:?}");
}

/// A call against a master with one fault: which error, and that it comes in time.
fn check_fault(script: &str, is_expected: impl Fn(&CallError) -> bool) {
    let master = StandIn::start(Dialect::D, Script::parse(script));
    let mut connection = connect(&master, Dialect::D);
    let began = Instant::now();
    let error = connection.call(&BatchExistKey { keys: (&["k"]).into(), ..Default::default() }).unwrap_err();
    let took = began.elapsed();
    assert!(is_expected(&error), "{script}: {error:?}");
    assert!(took < DEADLINE + Duration::from_secs(2), "{script}: {took:?}");
    if matches!(error, CallError::Deadline { .. }) {
        assert!(took >= DEADLINE, "{script}: {took:?}");
    }
    let next = connection.call(&ServiceReady {}).map(drop);
    if error.breaks_connection() {
        assert!(matches!(next, Err(CallError::Broken)), "{script}: {next:?}");
    }
}

#[test]
fn each_fault_gives_a_typed_error_in_time() {
    let deadline = |error: &CallError| matches!(error, CallError::Deadline { .. });
    let closed = |error: &CallError| matches!(error, CallError::Closed { lost: 1, .. });
    let decode = |error: &CallError| matches!(error, CallError::Decode { .. });
    check_fault("* * delay 900", deadline);
    check_fault("* * reorder", deadline);
    check_fault("* * stall", deadline);
    check_fault("* * swallow", deadline);
    check_fault("* * trickle 60", deadline);
    check_fault("* * lie 1", deadline);
    check_fault("* * lie 100000000", |error| {
        matches!(
            error,
            CallError::Protocol { source: ProtocolError::Frame(FrameError::TooLong { .. }), lost: 1 }
        )
    });
    check_fault("* * lie -1", decode);
    check_fault("* * drop", closed);
    for bytes in [0, 1, 15, 16, 17, 28] {
        check_fault(
            &format!("* * truncate {bytes}"),
            |error| matches!(error, CallError::Closed { lost: 1, partial_bytes } if *partial_bytes == bytes),
        );
    }
    check_fault("* * corrupt 0 1", |error| {
        matches!(
            error,
            CallError::Protocol { source: ProtocolError::Frame(FrameError::Magic { found: 20 }), .. }
        )
    });
    check_fault("* * corrupt 1 7", |error| {
        matches!(
            error,
            CallError::Protocol { source: ProtocolError::Frame(FrameError::Version { found: 7 }), .. }
        )
    });
    check_fault("* * corrupt 4 255", |error| {
        matches!(error, CallError::Protocol { source: ProtocolError::UnknownReply { seq_num: 255 }, .. })
    });
    check_fault("* * renumber 77", |error| {
        matches!(error, CallError::Protocol { source: ProtocolError::UnknownReply { seq_num: 77 }, .. })
    });
    check_fault("* * corrupt 16 2", |error| {
        matches!(error, CallError::Decode { source: DecodeError::TypeHash { .. }, .. })
    });
    check_fault("* * corrupt 21 1", |error| {
        matches!(error, CallError::Decode { source: DecodeError::Literal { at: 0 }, .. })
    });
    // The count of results, the mark of an outcome, and its value.
    check_fault("* * corrupt 26 2", decode);
    check_fault("* * corrupt 27 2", |error| {
        matches!(error, CallError::Decode { source: DecodeError::Flag { value: 3, .. }, .. })
    });
    check_fault(
        "* * fail 4",
        |error| matches!(error, CallError::DialectMismatch { dialect: Dialect::D, source, .. } if source.message() == "scripted"),
    );
}

#[test]
fn each_code_of_the_framework_arrives_by_name() {
    for code in RpcErrorCode::NAMED.iter().copied().chain([RpcErrorCode(255), RpcErrorCode(200)]) {
        if code == RpcErrorCode::OK || code == RpcErrorCode::INVALID_RPC_ARGUMENTS {
            continue;
        }
        check_fault(&format!("BatchExistKey * fail {}", code.0), |error| match error {
            CallError::Failed { source, .. } => {
                source.code == code && source.inner_code.is_some() == (code.0 == 255)
            }
            _ => false,
        });
    }
}

#[test]
fn each_code_of_the_master_arrives_by_name() {
    let master = StandIn::start(Dialect::D, Script::honest());
    let mut connection = connect(&master, Dialect::D);
    for code in ErrorCode::NAMED.iter().copied() {
        master.set_script(Script::parse(&format!("* * refuse {}", code.0)));
        let keys = ["a", "b"];
        let exist = connection.call(&BatchExistKey { keys: (&keys).into(), ..Default::default() }).unwrap();
        assert!(exist.iter().eq([Err(code), Err(code)]), "{code}");
        let ready = connection.call(&ServiceReady {}).unwrap();
        assert_eq!(ready.unwrap_err().name(), code.name());
    }
}

#[test]
fn replies_out_of_order_find_their_calls() {
    let master = StandIn::start(Dialect::D, Script::parse("* 1 reorder\n* 4 reorder"));
    let mut connection = connect(&master, Dialect::D);
    let tickets: Vec<_> = (0..6).map(|_| connection.submit(&ServiceReady {}).unwrap()).collect();
    let order: Vec<u32> = (0..5).map(|_| connection.receive().unwrap().ticket.seq_num).collect();
    assert_eq!(order, [1, 0, 2, 4, 3]);
    let last = connection.receive_of(tickets[5]).unwrap();
    assert_eq!(last.decode::<ServiceReady>().unwrap().unwrap(), "2.0.0");
    let error = connection.receive().map(drop).unwrap_err();
    assert!(matches!(error, CallError::Idle), "{error:?}");
}

#[test]
fn a_repeated_reply_is_noticed() {
    let master = StandIn::start(Dialect::D, Script::parse("* 1 repeat"));
    let mut connection = connect(&master, Dialect::D);
    assert_eq!(connection.call(&ServiceReady {}).unwrap().unwrap(), "2.0.0");
    let error = connection.call(&ServiceReady {}).map(drop).unwrap_err();
    let CallError::Protocol { source, lost: 1 } = error else { panic!("{error:?}") };
    assert_eq!(source, ProtocolError::UnknownReply { seq_num: 0 });
}

#[test]
fn replies_are_kept_for_those_who_ask_later() {
    let master = StandIn::start(Dialect::D, Script::honest());
    let mut connection = connect(&master, Dialect::D);
    let first = connection.submit(&ServiceReady {}).unwrap();
    let second = connection.submit(&Ping { client_id: Uuid::random() }).unwrap();
    assert_eq!(connection.call(&ServiceReady {}).unwrap().unwrap(), "2.0.0");
    let arrived = connection.receive_of(second).unwrap();
    assert!(arrived.decode::<Ping>().is_ok() && arrived.decode::<ServiceReady>().is_err());
    assert_eq!(connection.receive().unwrap().ticket, first);
}

#[test]
fn a_late_reply_is_dropped_and_the_connection_lives() {
    let master = StandIn::start(Dialect::D, Script::parse("ServiceReady 1 delay 600"));
    let mut connection = connect(&master, Dialect::D);
    let error = connection.call(&ServiceReady {}).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "ServiceReady was not answered in time");
    assert_eq!(connection.in_flight(), 1, "its reply may still come");
    let ready = connection.call_within(&ServiceReady {}, Duration::from_secs(5)).unwrap();
    assert_eq!(ready.unwrap(), "2.0.0");
    assert_eq!(connection.in_flight(), 0);
}

#[test]
fn calls_in_flight_are_bounded() {
    let master = StandIn::start(Dialect::D, Script::honest());
    let mut options = ConnectOptions::in_dialect(Dialect::D);
    options.session.max_in_flight = 3;
    let mut connection = Connection::connect(master.address(), &options).unwrap();
    for _ in 0..3 {
        connection.submit(&ServiceReady {}).unwrap();
    }
    let error = connection.submit(&ServiceReady {}).unwrap_err();
    assert!(matches!(error, CallError::Submit(SubmitError::Full { limit: 3 })), "{error:?}");
    connection.receive().unwrap();
    connection.submit(&ServiceReady {}).unwrap();
}

#[test]
fn more_is_in_flight_than_the_sockets_hold() {
    let master = StandIn::start(Dialect::D, Script::honest());
    let mut options = ConnectOptions::in_dialect(Dialect::D);
    options.session.max_in_flight = 1 << 15;
    let mut connection = Connection::connect(master.address(), &options).unwrap();
    let keys: Vec<String> = (0..2000).map(|number| format!("key-{number:04}")).collect();
    let call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
    for _ in 0..600 {
        connection.submit(&call).unwrap();
    }
    connection.flush().unwrap();
    for _ in 0..600 {
        let results = connection.receive().unwrap().decode::<BatchExistKey<'_>>().unwrap();
        assert_eq!(results.len(), 2000);
    }
}

#[test]
fn a_broken_connection_is_made_anew_if_that_is_wanted() {
    let master = StandIn::start(Dialect::D, Script::parse("ServiceReady 1 drop"));
    let mut options = ConnectOptions::default();
    options.reconnect = Reconnect::UpTo { attempts: 2, pause: Duration::from_millis(1) };
    let mut connection = Connection::connect(master.address(), &options).unwrap();
    let ping = connection.submit(&ServiceReady {}).unwrap();
    let error = connection.receive_of(ping).map(drop).unwrap_err();
    assert!(matches!(error, CallError::Closed { .. }), "the call itself is lost: {error:?}");
    assert_eq!(connection.call(&ServiceReady {}).unwrap().unwrap(), "2.0.0");
    assert_eq!((master.connections(), connection.dialect()), (2, Dialect::D));
    master.set_script(Script::parse("* * drop"));
    assert!(connection.call(&ServiceReady {}).is_err());
    drop(master);
    let error = connection.call(&ServiceReady {}).map(drop).unwrap_err();
    assert!(matches!(error, CallError::Reconnect(_)), "{error:?}");
}

#[test]
fn a_master_that_stops_running_is_noticed() {
    let master = masters::start("0.3.13.post1", &[]);
    let mut options = ConnectOptions::in_dialect(Dialect::D);
    options.call_timeout = DEADLINE;
    let mut connection = Connection::connect(master.address(), &options).unwrap();
    master.suspend();
    let error = connection.call(&ServiceReady {}).map(drop).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
    master.resume();
    let ready = connection.call_within(&ServiceReady {}, Duration::from_secs(10)).unwrap();
    assert_eq!(ready.unwrap(), "2.0.0");
    drop(master);
    let error = connection.call(&ServiceReady {}).map(drop).unwrap_err();
    assert!(error.breaks_connection(), "{error:?}");
}

#[test]
fn nobody_listens() {
    let address = StandIn::start(Dialect::D, Script::honest()).address();
    let error = Connection::connect(address, &ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("does not accept a connection"), "{error}");
}
