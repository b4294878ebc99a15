//! Every call and the master's behaviour, on the four real masters.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use master_wire::{
    BatchExistKey, BatchGetReplicaList, BatchPutEnd, BatchPutRevoke, BatchPutStart, BatchRemove, Call,
    CallError, ClientStatus, ConnectOptions, Connection, Dialect, ErrorCode, ExistKey, FakeSegment, GetFsdir,
    GetReplicaList, GetStorageConfig, Location, MountSegment, ObjectMeta, Outcome, Ping, PutEnd, PutRevoke,
    PutStart, ReMountSegment, Remove, RemoveAll, ReplicaStatus, ReplicaType, ReplicateConfig, Request,
    Response, Rpc, ServiceReady, Style, UnmountSegment, Uuid,
};
use testkit::masters::{self, Master};

const SEGMENT_BYTES: u64 = 64 << 20;

/// A master, a connection whose dialect was asked for, and a registered client with a segment.
struct Fixture {
    master: Master,
    connection: Connection,
    client: Uuid,
    segment: FakeSegment,
    used: BTreeSet<Rpc>,
}

impl Fixture {
    fn start(dialect: Dialect, arguments: &[&str]) -> Fixture {
        let master = masters::start(dialect.master_version(), arguments);
        let connection = Connection::connect(master.address(), &ConnectOptions::default()).unwrap();
        assert_eq!(connection.dialect(), dialect, "as the master says");
        let segment = FakeSegment::new(Uuid::random(), 0, SEGMENT_BYTES);
        let mut fixture =
            Fixture { master, connection, client: Uuid::random(), segment, used: BTreeSet::new() };
        fixture.register();
        fixture
    }

    fn register(&mut self) {
        let client_id = self.client;
        let segment = self.segment.clone();
        self.ok(&ReMountSegment { client_id, ..Default::default() }).unwrap();
        self.ok(&MountSegment { segment: segment.segment(), client_id }).unwrap();
    }

    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    fn replicas(&self) -> ReplicaType {
        ReplicaType::usual(self.dialect())
    }

    fn ok<C: Call>(&mut self, call: &C) -> C::Reply<'_> {
        self.used.insert(C::RPC);
        self.connection.call(call).unwrap()
    }

    fn exists(&mut self, key: &str) -> bool {
        self.ok(&ExistKey { key: key.into(), ..Default::default() }).unwrap()
    }

    fn get(&mut self, key: &str) -> Outcome<usize> {
        let found = self.ok(&GetReplicaList { key: key.into(), ..Default::default() });
        found.map(|found| found.replicas.len())
    }

    fn start_put(&mut self, key: &str, client_id: Uuid) -> Outcome<usize> {
        let call = PutStart { client_id, key: key.into(), slice_length: 100, ..Default::default() };
        self.ok(&call).map(|replicas| replicas.len())
    }

    fn end_put(&mut self, key: &str, client_id: Uuid) -> Outcome<()> {
        let replica_type = self.replicas();
        self.ok(&PutEnd { client_id, object_meta: key.into(), replica_type, ..Default::default() })
    }

    fn put(&mut self, key: &str) {
        assert_eq!(self.start_put(key, self.client), Ok(1));
        assert_eq!(self.end_put(key, self.client), Ok(()));
    }

    fn remove(&mut self, key: &str, force: bool) -> Outcome<()> {
        self.ok(&Remove { key: key.into(), force, ..Default::default() })
    }

    fn remove_all(&mut self) -> i64 {
        self.ok(&RemoveAll::default())
    }

    fn ping(&mut self) -> ClientStatus {
        let client_id = self.client;
        self.ok(&Ping { client_id }).unwrap().client_status
    }

    fn has_capacity(&self, bytes: u64) -> bool {
        (self.master.metric("master_total_capacity_bytes") - bytes as f64).abs() < 0.5
    }
}

/// One test for each dialect.
macro_rules! in_each_dialect {
    ($($test:ident: $check:ident;)*) => {$(
        mod $test {
            use super::*;

            #[test]
            fn in_a() {
                $check(Dialect::A);
            }

            #[test]
            fn in_b() {
                $check(Dialect::B);
            }

            #[test]
            fn in_c() {
                $check(Dialect::C);
            }

            #[test]
            fn in_d() {
                $check(Dialect::D);
            }
        }
    )*};
}

in_each_dialect! {
    every_call_is_answered: check_every_call;
    leases: check_leases;
    unfinished_puts: check_unfinished_puts;
    unmounted_segments: check_unmounted_segments;
    expired_clients: check_expired_clients;
    refusals: check_refusals;
    the_wire: check_the_wire;
}

fn check_every_call(dialect: Dialect) {
    let mut fixture = Fixture::start(dialect, &[]);
    let client_id = fixture.client;
    let replica_type = fixture.replicas();
    assert_eq!(fixture.ok(&ServiceReady {}).unwrap(), "2.0.0");
    assert_eq!(fixture.ok(&GetFsdir {}).unwrap(), "");
    assert_eq!(fixture.ok(&GetStorageConfig {}).unwrap().quota_bytes, 0);
    assert_eq!(fixture.ping(), ClientStatus::OK);
    assert!(fixture.has_capacity(SEGMENT_BYTES));

    fixture.put("one");
    assert!(fixture.exists("one") && !fixture.exists("none"));
    let found = fixture.ok(&GetReplicaList { key: "one".into(), ..Default::default() }).unwrap();
    let replica = found.replicas.first().unwrap();
    assert_eq!(replica.status, ReplicaStatus::COMPLETE);
    let Location::Memory(memory) = replica.descriptor else { panic!("{replica:?}") };
    assert_eq!((memory.buffer_descriptor.size, memory.buffer_descriptor.buffer_address), (100, 1 << 40));
    assert_eq!(memory.buffer_descriptor.transport_endpoint, "fake-0:1");

    let keys = ["b0", "b1", "b2"];
    let lengths = [1, 2, 3];
    let call = BatchPutStart {
        client_id,
        keys: (&keys).into(),
        slice_lengths: (&lengths).into(),
        ..Default::default()
    };
    assert!(fixture.ok(&call).iter().all(|started| started.is_ok_and(|replicas| replicas.len() == 1)));
    let metas = [ObjectMeta::from("b0"), "b1".into()];
    let ended = fixture.ok(&BatchPutEnd {
        client_id,
        object_metas: (&metas).into(),
        replica_type: if dialect == Dialect::A { ReplicaType::MEMORY } else { replica_type },
        ..Default::default()
    });
    assert!(ended.iter().eq([Ok(()), Ok(())]));
    let revoked = ["b2", "none"];
    let revoked = fixture.ok(&BatchPutRevoke {
        client_id,
        keys: (&revoked).into(),
        replica_type,
        ..Default::default()
    });
    assert!(revoked.iter().eq([Ok(()), Err(ErrorCode::OBJECT_NOT_FOUND)]));
    let exist = fixture.ok(&BatchExistKey { keys: (&keys).into(), ..Default::default() });
    assert!(exist.iter().eq([Ok(true), Ok(true), Ok(false)]));
    let found = fixture.ok(&BatchGetReplicaList { keys: (&keys).into(), ..Default::default() });
    let outcomes: Vec<Outcome<usize>> =
        found.iter().map(|found| found.map(|found| found.replicas.len())).collect();
    assert_eq!(outcomes, [Ok(1), Ok(1), Err(ErrorCode::OBJECT_NOT_FOUND)]);

    assert_eq!(fixture.start_put("given-up", client_id), Ok(1));
    let key = "given-up".into();
    fixture.ok(&PutRevoke { client_id, key, replica_type, ..Default::default() }).unwrap();
    let removed = fixture.ok(&BatchRemove { keys: (&keys).into(), force: true, ..Default::default() });
    assert!(removed.iter().eq([Ok(()), Ok(()), Err(ErrorCode::OBJECT_NOT_FOUND)]));
    assert_eq!(fixture.remove("one", true), Ok(()));
    fixture.put("two");
    assert_eq!(fixture.remove_all(), 1);
    let segment_id = fixture.segment.id();
    fixture.ok(&UnmountSegment { segment_id, client_id }).unwrap();
    assert!(fixture.has_capacity(0));
    assert_eq!(fixture.used.len(), Rpc::ALL.len(), "{:?}", fixture.used);
}

fn check_leases(dialect: Dialect) {
    let lease = Duration::from_millis(1500);
    let mut fixture = Fixture::start(dialect, &["--default_kv_lease_ttl=1500"]);
    fixture.put("k");
    assert_eq!(fixture.remove("k", false), Ok(()), "a put leaves no lease");

    for key in ["looked-at", "located", "batch"] {
        fixture.put(key);
    }
    assert!(!fixture.exists("missing"));
    assert!(fixture.exists("looked-at"));
    let located = fixture.ok(&GetReplicaList { key: "located".into(), ..Default::default() }).unwrap();
    assert_eq!(u128::from(located.lease_ttl_ms), lease.as_millis());
    let _ = fixture.ok(&BatchExistKey { keys: (&["batch"]).into(), ..Default::default() });
    let leased_at = Instant::now();
    for key in ["looked-at", "located", "batch"] {
        assert_eq!(fixture.remove(key, false), Err(ErrorCode::OBJECT_HAS_LEASE), "{key}");
    }
    assert_eq!(fixture.remove_all(), 0, "leased objects are skipped");
    assert_eq!(fixture.remove("batch", true), Ok(()), "force ignores a lease");
    sleep((lease + Duration::from_millis(200)).saturating_sub(leased_at.elapsed()));
    assert_eq!(fixture.remove("located", false), Ok(()), "the lease has ended");
    assert_eq!(fixture.remove_all(), 1);
}

fn check_unfinished_puts(dialect: Dialect) {
    let mut fixture = Fixture::start(dialect, &["--put_start_discard_timeout_sec=1"]);
    let (client, other) = (fixture.client, Uuid::random());
    assert_eq!(fixture.start_put("k", client), Ok(1));
    assert!(fixture.master.metric("master_allocated_bytes") >= 100.0, "allocated at once");
    assert!(!fixture.exists("k"));
    assert_eq!(fixture.get("k"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(fixture.remove("k", true), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(fixture.remove_all(), 0);
    assert_eq!(fixture.start_put("k", client), Err(ErrorCode::OBJECT_ALREADY_EXISTS));
    assert_eq!(fixture.end_put("k", other), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(fixture.end_put("none", client), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(fixture.end_put("k", client), Ok(()));
    assert_eq!(fixture.end_put("k", client), Ok(()), "ending twice is fine");
    let replica_type = fixture.replicas();
    let revoke = PutRevoke { client_id: client, key: "k".into(), replica_type, ..Default::default() };
    assert_eq!(fixture.ok(&revoke), Err(ErrorCode::INVALID_WRITE));

    assert_eq!(fixture.start_put("old", client), Ok(1));
    sleep(Duration::from_millis(2200));
    assert_eq!(fixture.start_put("old", other), Ok(1), "another client takes over");
    assert_eq!(fixture.end_put("old", client), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(fixture.end_put("old", other), Ok(()));

    if dialect == Dialect::A {
        assert_eq!(fixture.start_put("all", client), Ok(1));
        let object_meta = "all".into();
        let replica_type = ReplicaType::ALL;
        let end = PutEnd { client_id: client, object_meta, replica_type, ..Default::default() };
        assert_eq!(fixture.ok(&end), Ok(()), "dialect A says ok");
        assert!(!fixture.exists("all"), "and completes nothing");
    }
}

fn check_unmounted_segments(dialect: Dialect) {
    let mut fixture = Fixture::start(dialect, &[]);
    fixture.put("k");
    let (segment_id, client_id) = (fixture.segment.id(), Uuid::random());
    fixture.ok(&UnmountSegment { segment_id, client_id }).unwrap();
    assert!(!fixture.exists("k"));
    assert_eq!(fixture.get("k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(fixture.start_put("k", fixture.client), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    assert!(fixture.has_capacity(0));
    let segment_id = Uuid::random();
    assert_eq!(fixture.ok(&UnmountSegment { segment_id, client_id }), Ok(()), "an unknown segment is fine");
    assert_eq!(fixture.ping(), ClientStatus::OK, "the client is still registered");
}

fn check_expired_clients(dialect: Dialect) {
    let mut fixture = Fixture::start(dialect, &["--client_ttl=2"]);
    fixture.put("k");
    assert_eq!(fixture.ping(), ClientStatus::OK);
    let deadline = Instant::now() + Duration::from_secs(20);
    sleep(Duration::from_secs(2));
    while !fixture.has_capacity(0) {
        assert!(Instant::now() < deadline, "the segment of a silent client goes");
        sleep(Duration::from_millis(100));
    }
    assert_eq!(fixture.ping(), ClientStatus::NEED_REMOUNT);
    assert!(!fixture.exists("k"));
    assert_eq!(fixture.get("k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(fixture.start_put("k", fixture.client), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    let segment = fixture.segment.clone();
    let (client_id, segments) = (fixture.client, [segment.segment()]);
    fixture.ok(&ReMountSegment { segments: (&segments).into(), client_id }).unwrap();
    assert!(fixture.has_capacity(SEGMENT_BYTES));
    assert_eq!(fixture.start_put("k", fixture.client), Ok(1));
}

fn check_refusals(dialect: Dialect) {
    let mut fixture = Fixture::start(dialect, &[]);
    let client_id = fixture.client;
    let refused = Err(ErrorCode::INVALID_PARAMS);
    assert_eq!(fixture.start_put("", client_id), refused);
    let unusable = FakeSegment::new(Uuid::random(), 1, SEGMENT_BYTES);
    let mut segment = unusable.segment();
    segment.base = 0;
    let mount = MountSegment { segment, client_id };
    assert_eq!(fixture.ok(&mount), refused.map(drop));

    let config = ReplicateConfig { replica_num: 3, ..Default::default() };
    let put = PutStart { client_id, key: "k".into(), slice_length: 1, config, ..Default::default() };
    assert_eq!(fixture.ok(&put).unwrap().len(), 1, "fewer replicas than asked for");
    let put = PutStart { key: "big".into(), slice_length: 2 * SEGMENT_BYTES, ..put };
    assert_eq!(fixture.ok(&put), Err(ErrorCode::NO_AVAILABLE_HANDLE));

    let keys = ["x", "y"];
    let slice_lengths = [7];
    let put = BatchPutStart {
        client_id,
        keys: (&keys).into(),
        slice_lengths: (&slice_lengths).into(),
        ..Default::default()
    };
    let outcomes: Vec<_> =
        fixture.ok(&put).iter().map(|started| started.map(|replicas| replicas.len())).collect();
    let first = if dialect < Dialect::C { Ok(1) } else { refused };
    assert_eq!(outcomes, [first, refused]);
}

/// What the framework says of frames that no typed call makes.
fn check_the_wire(dialect: Dialect) {
    let fixture = Fixture::start(dialect, &[]);
    let other = if dialect < Dialect::C { Dialect::D } else { Dialect::A };
    let mut connection =
        Connection::connect(fixture.master.address(), &ConnectOptions::in_dialect(other)).unwrap();
    let error = connection.call(&ExistKey { key: "k".into(), ..Default::default() }).unwrap_err();
    let CallError::DialectMismatch { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.message(), "invalid rpc arg");

    // With the literal and without, and with a dependent burst in flight: replies come in order.
    for style in [Style::Compact, Style::Official] {
        let mut options = ConnectOptions::in_dialect(dialect);
        options.session.style = style;
        let mut connection = Connection::connect(fixture.master.address(), &options).unwrap();
        let (client_id, key) = (fixture.client, "burst");
        let replica_type = fixture.replicas();
        let burst: [Request<'_>; 5] = [
            PutStart { client_id, key: key.into(), slice_length: 5, ..Default::default() }.into(),
            PutEnd { client_id, object_meta: key.into(), replica_type, ..Default::default() }.into(),
            ExistKey { key: key.into(), ..Default::default() }.into(),
            Remove { key: key.into(), force: true, ..Default::default() }.into(),
            ExistKey { key: key.into(), ..Default::default() }.into(),
        ];
        let tickets = burst.map(|request| connection.submit_request(&request).unwrap());
        let mut exists = Vec::new();
        for ticket in tickets {
            let arrived = connection.receive().unwrap();
            assert_eq!(arrived.ticket, ticket);
            if let Response::ExistKey(exist) = arrived.response().unwrap() {
                exists.push(exist);
            }
        }
        assert_eq!(exists, [Ok(true), Ok(false)]);
    }
}
