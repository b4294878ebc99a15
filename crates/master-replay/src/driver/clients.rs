//! The logical clients: their ids on the wire, their segments, and which of them are registered.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use master_wire::{Connection, ReMountSegment, Segment, UnmountSegment, Uuid};

use super::{ReplayError, ReplayOptions, connect};
use crate::contract::{Dialect, Trace};

/// Where every fake segment claims to begin. No memory is there: only its size counts.
const BASE: u64 = 0x1_0000_0000;

/// A segment that the master knows, as we named it.
#[derive(Clone, Debug)]
pub(super) struct Mounted {
    pub(super) id: Uuid,
    pub(super) client: u32,
    name: String,
    endpoint: String,
    host: String,
    size_bytes: u64,
    /// Whether the master is known to know it; of a mount without an answer it is not.
    is_sure: bool,
}

impl Mounted {
    /// One of which it is not known whether the master has it.
    pub(super) fn unsure(self) -> Self {
        Mounted { is_sure: false, ..self }
    }

    /// The segment as it is said in a dialect; hosts are named only in later ones.
    pub(super) fn segment(&self, dialect: master_wire::Dialect) -> Segment<'_> {
        let host = if dialect < master_wire::Dialect::C { "" } else { self.host.as_str() };
        Segment {
            id: self.id,
            name: self.name.as_bytes().into(),
            base: BASE,
            size: self.size_bytes,
            te_endpoint: self.endpoint.as_bytes().into(),
            protocol: "tcp".into(),
            host_id: host.into(),
        }
    }
}

/// The logical clients of a trace.
#[derive(Debug)]
pub(super) struct Clients {
    seed: u64,
    ids: Vec<Uuid>,
    hosts: Vec<String>,
    registered: Vec<AtomicBool>,
}

/// What an id is made for.
#[derive(Clone, Copy, Hash)]
enum Named {
    Client,
    Host,
    Segment,
}

impl Clients {
    /// Names clients and segments after the seed: the same in every replayer that has it. Clients that another replayer
    /// registers have to be believed to be so, since this one begins after it.
    pub(super) fn new(trace: &Trace, options: &ReplayOptions, is_measured: bool) -> Self {
        let seed = options.id_seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let mut clients = Clients {
            // The clients of the trace that fills the master are others.
            seed: if is_measured { seed } else { !seed },
            ids: Vec::new(),
            hosts: Vec::new(),
            registered: Vec::new(),
        };
        let is_registered = !options.registers(trace.dialect());
        for client in (0..).take(trace.clients()) {
            let host = clients.name(Named::Host, client);
            clients.ids.push(clients.name(Named::Client, client));
            clients.hosts.push(format!("trace_{}", hexadecimal(host)));
            clients.registered.push(AtomicBool::new(is_registered));
        }
        clients
    }

    fn name(&self, what: Named, number: u32) -> Uuid {
        let word = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (self.seed, what, number, half).hash(&mut hasher);
            hasher.finish()
        };
        Uuid::new(word(0), word(1))
    }

    pub(super) fn id(&self, client: u32) -> Uuid {
        self.ids[client as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn is_registered(&self, client: u32) -> bool {
        self.registered[client as usize].load(Ordering::Acquire)
    }

    pub(super) fn set_registered(&self, client: u32) {
        self.registered[client as usize].store(true, Ordering::Release);
    }

    /// The segment of this number.
    pub(super) fn segment(&self, number: u32, client: u32, size_bytes: u64) -> Mounted {
        let id = self.name(Named::Segment, number);
        let host = self.hosts[client as usize].clone();
        let name = format!("trace_{}", hexadecimal(id));
        Mounted { id, client, name, endpoint: format!("{host}:12345"), host, size_bytes, is_sure: true }
    }
}

fn hexadecimal(id: Uuid) -> String {
    let text = format!("{:016x}{:016x}", id.first, id.second);
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// Version 1: every client gets one registration carrying one segment, before anything is timed.
pub(super) fn register_all(
    trace: &Trace,
    clients: &Clients,
    address: SocketAddr,
    wire: master_wire::Dialect,
    options: &ReplayOptions,
) -> Result<Vec<Mounted>, ReplayError> {
    let mut mounted = Vec::new();
    if trace.dialect() != Dialect::V1 || !options.registers(trace.dialect()) {
        return Ok(mounted);
    }
    let mut connection = connect(address, options, Some(wire))?;
    for client in (0..).take(clients.len()) {
        let segment = clients.segment(client, client, options.segment_bytes.get());
        register(&mut connection, trace, clients, client, &segment)?;
        clients.set_registered(client);
        mounted.push(segment);
    }
    Ok(mounted)
}

fn register(
    connection: &mut Connection,
    trace: &Trace,
    clients: &Clients,
    client: u32,
    segment: &Mounted,
) -> Result<(), ReplayError> {
    let segments = [segment.segment(connection.dialect())];
    let call = ReMountSegment { segments: (&segments).into(), client_id: clients.id(client) };
    let name = || trace.client_name(client).to_owned();
    let answer = connection
        .call(&call)
        .map_err(|source| ReplayError::Register { client: name(), source: Box::new(source) })?;
    answer.map_err(|code| ReplayError::Refused { client: name(), code: code.to_string() })
}

/// Unmounts what is still mounted; says how many segments that failed for.
pub(super) fn unmount_all<'m>(
    mounted: impl Iterator<Item = &'m Mounted>,
    clients: &Clients,
    address: SocketAddr,
    wire: master_wire::Dialect,
    options: &ReplayOptions,
) -> u64 {
    let mut mounted = mounted.peekable();
    if mounted.peek().is_none() {
        return 0;
    }
    let Ok(mut connection) = connect(address, options, Some(wire)) else {
        // What is not unmounted is counted, whatever the reason.
        return mounted.count() as u64;
    };
    let mut unmount = |segment: &Mounted| {
        let call = UnmountSegment { segment_id: segment.id, client_id: clients.id(segment.client) };
        match connection.call(&call) {
            Ok(Ok(())) => true,
            // It may never have been mounted.
            Ok(Err(_)) => !segment.is_sure,
            Err(_) => false,
        }
    };
    mounted.filter(|segment| !unmount(segment)).count() as u64
}

/// The segments that are mounted, by their numbers in the trace.
pub(super) type Segments = BTreeMap<u32, Mounted>;
