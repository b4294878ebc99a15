//! The life of an object on a real master: connect, register, mount, put, look up, remove, unmount.
//!
//! `cargo run -p master-wire --example lifecycle -- HOST:PORT` does it on the master there and leaves nothing behind.

use std::error::Error;
use std::process::ExitCode;

use master_wire::{
    CallError, ClientStatus, ConnectOptions, Connection, ExistKey, FakeSegment, GetReplicaList, Location,
    MountSegment, Ping, PutEnd, PutStart, ReMountSegment, Remove, ReplicaType, ServiceReady, UnmountSegment,
    Uuid,
};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: lifecycle HOST:PORT");
        return ExitCode::from(2);
    };
    match run(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lifecycle: {}", chain(&*error));
            ExitCode::from(6)
        }
    }
}

fn run(address: &str) -> Result<(), Box<dyn Error>> {
    let mut master = Connection::connect(address, &ConnectOptions::default())?;
    println!("the master at {address} speaks dialect {}", master.dialect());
    println!("its service is version {}", master.call(&ServiceReady {})??);

    let client_id = Uuid::random();
    let segment = FakeSegment::new(Uuid::random(), 0, 64 << 20);
    let known = master.call(&Ping { client_id })??.client_status;
    println!("client {client_id} is {known}");
    master.call(&ReMountSegment { client_id, ..Default::default() })??;
    let known = master.call(&Ping { client_id })??.client_status;
    println!("client {client_id} is {known} after it registered");
    assert_eq!(known, ClientStatus::OK);
    master.call(&MountSegment { segment: segment.segment(), client_id })??;
    println!("segment {} of {} bytes is mounted", segment.id(), segment.segment().size);

    let stored = store(&mut master, client_id);
    master.call(&UnmountSegment { segment_id: segment.id(), client_id })??;
    println!("segment {} is unmounted", segment.id());
    stored
}

fn store(master: &mut Connection, client_id: Uuid) -> Result<(), Box<dyn Error>> {
    let name = format!("lifecycle-{client_id}");
    let key = name.as_str().into();
    for replica in master.call(&PutStart { client_id, key, slice_length: 4096, ..Default::default() })?? {
        println!("replica {} of {name} is to be written {}", replica.id, place(&replica.descriptor));
    }
    println!("{name} {} before the put ends", readable(master, &name)?);
    let replica_type = ReplicaType::usual(master.dialect());
    master.call(&PutEnd { client_id, object_meta: key.into(), replica_type, ..Default::default() })??;
    println!("{name} {} after the put ended", readable(master, &name)?);

    let found = master.call(&GetReplicaList { key, ..Default::default() })??;
    println!("it is leased for {} ms and has {} replicas:", found.lease_ttl_ms, found.replicas.len());
    for replica in found.replicas {
        println!("  replica {} is {} {}", replica.id, replica.status, place(&replica.descriptor));
    }
    match master.call(&Remove { key, ..Default::default() })? {
        Ok(()) => println!("it is removed"),
        Err(code) => println!("it is not removed: {code}"),
    }
    master.call(&Remove { key, force: true, ..Default::default() })??;
    println!("it is removed by force, and {}", readable(master, &name)?);
    Ok(())
}

fn readable(master: &mut Connection, key: &str) -> Result<String, CallError> {
    Ok(match master.call(&ExistKey { key: key.into(), ..Default::default() })? {
        Ok(true) => "can be read".to_owned(),
        Ok(false) => "cannot be read".to_owned(),
        Err(code) => format!("is not looked up: {code}"),
    })
}

fn place(location: &Location<'_>) -> String {
    match location {
        Location::Memory(memory) => {
            let buffer = memory.buffer_descriptor;
            format!("at {:#x} of {}", buffer.buffer_address, buffer.transport_endpoint)
        }
        Location::Disk(disk) => format!("to {}", disk.file_path),
        other => format!("to {other:?}"),
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
