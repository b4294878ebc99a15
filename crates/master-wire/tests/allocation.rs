//! Steady calls allocate nothing.
#![expect(clippy::unwrap_used, reason = "a test panics at every surprise")]

use master_wire::{
    BatchExistKey, BatchGetReplicaList, BatchPutEnd, BatchPutStart, ConnectOptions, Connection, Dialect,
    ExistKey, FakeSegment, GetReplicaList, Location, MountSegment, ReplicaType, Uuid,
};
use testkit::master::{Script, StandIn};
use testkit::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn steady_calls_allocate_nothing() {
    assert!(allocations(|| std::hint::black_box(vec![1, 2])).0 > 0, "the allocator counts");
    for dialect in Dialect::ALL {
        let master = StandIn::start(dialect, Script::honest());
        let mut connection = Connection::connect(master.address(), &ConnectOptions::default()).unwrap();
        let client_id = Uuid::random();
        let fake = FakeSegment::new(Uuid::random(), 0, 64 << 20);
        connection.call(&MountSegment { segment: fake.segment(), client_id }).unwrap().unwrap();
        let keys: Vec<String> = (0..64).map(|number| format!("key-{number}")).collect();
        put(&mut connection, client_id, &keys);
        let mut round = || {
            look(&mut connection, &keys);
            pipeline(&mut connection, &keys);
        };
        round();
        let (count, ()) = allocations(|| (0..20).for_each(|_| round()));
        assert_eq!(count, 0, "allocations in 20 rounds in dialect {dialect}");
    }
}

fn put(connection: &mut Connection, client_id: Uuid, keys: &[String]) {
    let slice_lengths = vec![4096; keys.len()];
    let start = BatchPutStart {
        client_id,
        keys: keys.into(),
        slice_lengths: (&slice_lengths).into(),
        ..Default::default()
    };
    assert!(connection.call(&start).unwrap().iter().all(|started| started.is_ok()));
    let usual = ReplicaType::usual(connection.dialect());
    let end = BatchPutEnd { client_id, object_metas: keys.into(), replica_type: usual, ..Default::default() };
    assert!(connection.call(&end).unwrap().iter().all(|ended| ended.is_ok()));
}

fn look(connection: &mut Connection, keys: &[String]) {
    let key = (&keys[0]).into();
    assert!(connection.call(&ExistKey { key, ..Default::default() }).unwrap().unwrap());
    let found = connection.call(&GetReplicaList { key, ..Default::default() }).unwrap().unwrap();
    assert_eq!(found.replicas.len(), 1);
    let found = connection.call(&BatchGetReplicaList { keys: keys.into(), ..Default::default() }).unwrap();
    let bytes: u64 = found
        .iter()
        .flat_map(|found| found.unwrap().replicas)
        .map(|replica| match replica.descriptor {
            Location::Memory(memory) => memory.buffer_descriptor.size,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(bytes, 64 * 4096);
}

fn pipeline(connection: &mut Connection, keys: &[String]) {
    for key in keys {
        let key = [key.as_str()];
        connection.submit(&BatchExistKey { keys: (&key).into(), ..Default::default() }).unwrap();
    }
    for _ in keys {
        let results = connection.receive().unwrap().decode::<BatchExistKey<'_>>().unwrap();
        assert!(results.iter().eq([Ok(true)]));
    }
}
