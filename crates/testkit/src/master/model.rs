//! What the stand-in knows and how it answers: segments, clients, objects, leases, after the real master's behaviour.
//!
//! It does not evict, keeps no files and has no tenants.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use master_wire::{
    BatchPutStart, Buffer, BufferReplica, ClientStatus, Dialect, ErrorCode, List, Location, ObjectMeta,
    Outcome, PingReport, PutStart, Replica, ReplicaList, ReplicaStatus, ReplicaType, ReplicateConfig,
    Request, Response, Segment, StorageConfig, Uuid, WireStr,
};

/// What a real master takes as flags.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a lease holds.
    pub lease_ttl: Duration,
    /// How long a client lives after its last sign of life.
    pub client_ttl: Duration,
    /// After how long an unfinished put may be taken over.
    pub discard_timeout: Duration,
}

impl Settings {
    /// What masters of the dialect do without flags.
    #[must_use]
    pub fn of(dialect: Dialect) -> Self {
        let lease_s = if dialect < Dialect::C { 5 } else { 10 };
        Settings {
            lease_ttl: Duration::from_secs(lease_s),
            client_ttl: Duration::from_secs(10),
            discard_timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
struct Mounted {
    id: Uuid,
    owner: Uuid,
    name: Vec<u8>,
    endpoint: Vec<u8>,
    protocol: Vec<u8>,
    base: u64,
    /// Unused stretches, by offset: where and how long.
    free: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Client {
    registered: bool,
    seen: Instant,
}

#[derive(Debug)]
struct Object {
    client: Uuid,
    complete: bool,
    started: Instant,
    leased_until: Option<Instant>,
    checksum: Option<u64>,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    replica_id: u64,
    segment: Uuid,
    address: u64,
    size: u64,
    taken: u64,
}

/// All that a master remembers.
#[derive(Debug)]
pub(super) struct Model {
    dialect: Dialect,
    settings: Settings,
    segments: Vec<Mounted>,
    clients: HashMap<Uuid, Client>,
    objects: HashMap<Vec<u8>, Object>,
    last_replica_id: u64,
}

impl Model {
    pub(super) fn new(dialect: Dialect, settings: Settings) -> Self {
        Model {
            dialect,
            settings,
            segments: Vec::new(),
            clients: HashMap::new(),
            objects: HashMap::new(),
            last_replica_id: 0,
        }
    }

    /// Does what is asked and hands the answer to `reply`.
    pub(super) fn answer(&mut self, request: &Request<'_>, now: Instant, reply: impl FnOnce(&Response<'_>)) {
        self.expire(now);
        match *request {
            Request::ServiceReady(_) => reply(&Response::ServiceReady(Ok("2.0.0".into()))),
            Request::GetFsdir(_) => reply(&Response::GetFsdir(Ok("".into()))),
            Request::GetStorageConfig(_) => {
                let config = StorageConfig { enable_disk_eviction: true, ..Default::default() };
                reply(&Response::GetStorageConfig(Ok(config)));
            }
            Request::Ping(call) => reply(&Response::Ping(Ok(self.ping(call.client_id, now)))),
            Request::MountSegment(call) => {
                reply(&Response::MountSegment(self.mount(&call.segment, call.client_id, now)));
            }
            Request::ReMountSegment(call) => {
                reply(&Response::ReMountSegment(self.remount(call.segments, call.client_id, now)));
            }
            Request::UnmountSegment(call) => {
                self.unmount(|segment| segment.id == call.segment_id);
                reply(&Response::UnmountSegment(Ok(())));
            }
            Request::ExistKey(call) => reply(&Response::ExistKey(Ok(self.exists(call.key, now)))),
            Request::BatchExistKey(call) => {
                let results: Vec<_> = call.keys.iter().map(|key| Ok(self.exists(key, now))).collect();
                reply(&Response::BatchExistKey((&results).into()));
            }
            Request::GetReplicaList(call) => self.answer_located(call.key, now, reply),
            Request::BatchGetReplicaList(call) => self.answer_all_located(call.keys, now, reply),
            Request::PutStart(call) => self.answer_started(&call, now, reply),
            Request::BatchPutStart(call) => self.answer_all_started(&call, now, reply),
            Request::PutEnd(call) => {
                reply(&Response::PutEnd(self.end(call.client_id, &call.object_meta, call.replica_type)));
            }
            Request::BatchPutEnd(call) => {
                let metas = call.object_metas.iter();
                let results: Vec<_> =
                    metas.map(|meta| self.end(call.client_id, &meta, call.replica_type)).collect();
                reply(&Response::BatchPutEnd((&results).into()));
            }
            Request::PutRevoke(call) => reply(&Response::PutRevoke(self.revoke(call.client_id, call.key))),
            Request::BatchPutRevoke(call) => {
                let results: Vec<_> = call.keys.iter().map(|key| self.revoke(call.client_id, key)).collect();
                reply(&Response::BatchPutRevoke((&results).into()));
            }
            Request::Remove(call) => reply(&Response::Remove(self.remove(call.key, call.force, now))),
            Request::BatchRemove(call) => {
                let results: Vec<_> = call.keys.iter().map(|key| self.remove(key, call.force, now)).collect();
                reply(&Response::BatchRemove((&results).into()));
            }
            Request::RemoveAll(call) => reply(&Response::RemoveAll(self.remove_all(call.force, now))),
            ref other => panic!("the stand-in does not know {}", other.rpc()),
        }
    }

    fn answer_located(&mut self, key: WireStr<'_>, now: Instant, reply: impl FnOnce(&Response<'_>)) {
        let replicas = self.find(key, now).map(|()| self.replicas(key));
        reply(&Response::GetReplicaList(self.located(key, &replicas)));
    }

    fn answer_all_located(
        &mut self,
        keys: List<'_, WireStr<'_>>,
        now: Instant,
        reply: impl FnOnce(&Response<'_>),
    ) {
        let found: Vec<Outcome<()>> = keys.iter().map(|key| self.find(key, now)).collect();
        let replicas: Vec<_> =
            keys.iter().zip(found).map(|(key, found)| found.map(|()| self.replicas(key))).collect();
        let lists: Vec<_> =
            keys.iter().zip(&replicas).map(|(key, replicas)| self.located(key, replicas)).collect();
        reply(&Response::BatchGetReplicaList((&lists).into()));
    }

    fn located<'a>(
        &self,
        key: WireStr<'_>,
        replicas: &'a Outcome<Vec<Replica<'a>>>,
    ) -> Outcome<ReplicaList<'a>> {
        let replicas = as_list(replicas)?;
        let object_checksum = self.objects.get(key.as_bytes()).and_then(|object| object.checksum);
        Ok(ReplicaList { replicas, lease_ttl_ms: self.lease_ms(), object_checksum })
    }

    fn answer_started(&mut self, call: &PutStart<'_>, now: Instant, reply: impl FnOnce(&Response<'_>)) {
        let started = self.put(call.client_id, call.key, call.slice_length, &call.config, now);
        let replicas = started.map(|()| self.replicas(call.key));
        reply(&Response::PutStart(as_list(&replicas)));
    }

    fn answer_all_started(
        &mut self,
        call: &BatchPutStart<'_>,
        now: Instant,
        reply: impl FnOnce(&Response<'_>),
    ) {
        let started = self.put_all(call, now);
        let of_key = |(key, started): (WireStr<'_>, Outcome<()>)| started.map(|()| self.replicas(key));
        let replicas: Vec<_> = call.keys.iter().zip(started).map(of_key).collect();
        let lists: Vec<_> = replicas.iter().map(as_list).collect();
        reply(&Response::BatchPutStart((&lists).into()));
    }

    fn lease_ms(&self) -> u64 {
        u64::try_from(self.settings.lease_ttl.as_millis()).expect("a lease in milliseconds")
    }

    /// Clients that gave no sign of life lose their segments.
    fn expire(&mut self, now: Instant) {
        let ttl = self.settings.client_ttl;
        if self.clients.values().all(|client| now.duration_since(client.seen) < ttl) {
            return;
        }
        let gone: Vec<Uuid> = self
            .clients
            .extract_if(|_, client| now.duration_since(client.seen) >= ttl)
            .map(|(id, _)| id)
            .collect();
        self.unmount(|segment| gone.contains(&segment.owner));
    }

    fn see(&mut self, client: Uuid, now: Instant) -> &mut Client {
        let client = self.clients.entry(client).or_insert(Client { registered: false, seen: now });
        client.seen = now;
        client
    }

    fn ping(&mut self, client: Uuid, now: Instant) -> PingReport {
        let owns = self.segments.iter().any(|segment| segment.owner == client);
        let registered = self.clients.get(&client).is_some_and(|client| client.registered);
        if registered || owns {
            self.see(client, now);
        }
        let client_status = if registered { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT };
        PingReport { view_version_id: 0, client_status }
    }

    fn mount(&mut self, segment: &Segment<'_>, owner: Uuid, now: Instant) -> Outcome<()> {
        if segment.base == 0 || segment.size == 0 {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        self.see(owner, now);
        if self.segments.iter().any(|mounted| mounted.id == segment.id) {
            return Ok(());
        }
        self.segments.push(Mounted {
            id: segment.id,
            owner,
            name: segment.name.as_bytes().into(),
            endpoint: segment.te_endpoint.as_bytes().into(),
            protocol: segment.protocol.as_bytes().into(),
            base: segment.base,
            free: vec![(0, segment.size)],
        });
        Ok(())
    }

    fn remount(&mut self, segments: List<'_, Segment<'_>>, client: Uuid, now: Instant) -> Outcome<()> {
        if self.clients.get(&client).is_some_and(|client| client.registered) {
            return Ok(());
        }
        for segment in segments {
            self.mount(&segment, client, now)?;
        }
        self.see(client, now).registered = true;
        Ok(())
    }

    fn unmount(&mut self, goes: impl Fn(&Mounted) -> bool) {
        let gone: Vec<Uuid> =
            self.segments.extract_if(.., |segment| goes(segment)).map(|segment| segment.id).collect();
        if !gone.is_empty() {
            self.objects.retain(|_, object| {
                object.places.retain(|place| !gone.contains(&place.segment));
                !object.places.is_empty()
            });
        }
    }

    fn exists(&mut self, key: WireStr<'_>, now: Instant) -> bool {
        self.find(key, now).is_ok()
    }

    /// An object that can be read; it gets a lease by being looked at.
    fn find(&mut self, key: WireStr<'_>, now: Instant) -> Outcome<()> {
        let lease = now + self.settings.lease_ttl;
        let object = self.objects.get_mut(key.as_bytes()).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if !object.complete {
            return Err(ErrorCode::REPLICA_IS_NOT_READY);
        }
        object.leased_until = object.leased_until.max(Some(lease));
        Ok(())
    }

    fn replicas(&self, key: WireStr<'_>) -> Vec<Replica<'_>> {
        let Some(object) = self.objects.get(key.as_bytes()) else { return Vec::new() };
        let status = if object.complete { ReplicaStatus::COMPLETE } else { ReplicaStatus::PROCESSING };
        let replica = |place: &Place| {
            let segment = self.segments.iter().find(|segment| segment.id == place.segment)?;
            let buffer_descriptor = Buffer {
                size: place.size,
                buffer_address: place.address,
                protocol: segment.protocol.as_slice().into(),
                transport_endpoint: segment.endpoint.as_slice().into(),
            };
            let descriptor = Location::Memory(BufferReplica { buffer_descriptor });
            Some(Replica { id: place.replica_id, descriptor, status })
        };
        object.places.iter().filter_map(replica).collect()
    }

    fn put_all(&mut self, call: &BatchPutStart<'_>, now: Instant) -> Vec<Outcome<()>> {
        let count = call.keys.len();
        let strict = self.dialect >= Dialect::C;
        let groups = call.config.group_ids.map_or(count, |groups| groups.len());
        if strict && (call.slice_lengths.len() != count || groups != count) {
            return vec![Err(ErrorCode::INVALID_PARAMS); count];
        }
        let lengths: Vec<u64> = call.slice_lengths.iter().collect();
        let mut lengths = lengths.into_iter();
        let start = |key| match lengths.next() {
            Some(length) => self.put(call.client_id, key, length, &call.config, now),
            None => Err(ErrorCode::INVALID_PARAMS),
        };
        call.keys.iter().map(start).collect()
    }

    fn put(
        &mut self,
        client: Uuid,
        key: WireStr<'_>,
        size: u64,
        config: &ReplicateConfig<'_>,
        now: Instant,
    ) -> Outcome<()> {
        if key.is_empty() || size == 0 || config.replica_num == 0 || config.nof_replica_num > 0 {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        if config.dfs_replica_num > 0 {
            return Err(ErrorCode::DFS_SERVICE_UNAVAILABLE);
        }
        if let Some(object) = self.objects.get(key.as_bytes()) {
            if object.complete || now.duration_since(object.started) < self.settings.discard_timeout {
                return Err(ErrorCode::OBJECT_ALREADY_EXISTS);
            }
            self.forget(key);
        }
        let places = self.allocate(size, config);
        if places.is_empty() {
            return Err(ErrorCode::NO_AVAILABLE_HANDLE);
        }
        let object =
            Object { client, complete: false, started: now, leased_until: None, checksum: None, places };
        self.objects.insert(key.as_bytes().into(), object);
        Ok(())
    }

    /// One place in each of as many segments as there should be replicas; preferred segments come first.
    fn allocate(&mut self, size: u64, config: &ReplicateConfig<'_>) -> Vec<Place> {
        let preferred = |segment: &Mounted| {
            let name = WireStr::new(&segment.name);
            let among = config.preferred_segments.iter().position(|wanted| wanted == name);
            let single = (config.preferred_segment == name).then_some(0);
            single.or(among).unwrap_or(usize::MAX)
        };
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        order.sort_by_key(|at| preferred(&self.segments[*at]));
        let wanted = usize::try_from(config.replica_num).unwrap_or(usize::MAX);
        let taken = rounded(size);
        let mut places = Vec::new();
        for at in order {
            if places.len() == wanted {
                break;
            }
            let segment = &mut self.segments[at];
            let Some(stretch) = segment.free.iter_mut().find(|(_, len)| *len >= taken) else { continue };
            let address = segment.base + stretch.0;
            *stretch = (stretch.0 + taken, stretch.1 - taken);
            self.last_replica_id += 1;
            places.push(Place {
                replica_id: self.last_replica_id,
                segment: segment.id,
                address,
                size,
                taken,
            });
        }
        places
    }

    fn end(&mut self, client: Uuid, meta: &ObjectMeta<'_>, replicas: ReplicaType) -> Outcome<()> {
        let known = replicas.exists_in(self.dialect);
        let object = self.objects.get_mut(meta.key.as_bytes()).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if object.client != client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        if known && [ReplicaType::MEMORY, ReplicaType::ALL].contains(&replicas) {
            object.complete = true;
            object.checksum = meta.object_checksum.or(object.checksum);
        }
        Ok(())
    }

    fn revoke(&mut self, client: Uuid, key: WireStr<'_>) -> Outcome<()> {
        let object = self.objects.get(key.as_bytes()).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if object.client != client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        if object.complete {
            return Err(ErrorCode::INVALID_WRITE);
        }
        self.forget(key);
        Ok(())
    }

    fn remove(&mut self, key: WireStr<'_>, force: bool, now: Instant) -> Outcome<()> {
        let object = self.objects.get(key.as_bytes()).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        let leased = object.leased_until.is_some_and(|until| until > now);
        match (object.complete, leased && !force) {
            (false, _) => return Err(ErrorCode::REPLICA_IS_NOT_READY),
            (true, true) => return Err(ErrorCode::OBJECT_HAS_LEASE),
            (true, false) => self.forget(key),
        }
        Ok(())
    }

    fn remove_all(&mut self, force: bool, now: Instant) -> i64 {
        let keys: Vec<Vec<u8>> = self.objects.keys().cloned().collect();
        let removed = keys.iter().filter(|key| self.remove(WireStr::new(key), force, now).is_ok()).count();
        i64::try_from(removed).expect("a count of objects")
    }

    /// Drops an object and gives its places back.
    fn forget(&mut self, key: WireStr<'_>) {
        let Some(object) = self.objects.remove(key.as_bytes()) else { return };
        for place in object.places {
            if let Some(segment) = self.segments.iter_mut().find(|segment| segment.id == place.segment) {
                give_back(&mut segment.free, (place.address - segment.base, place.taken));
            }
        }
    }
}

/// Puts a stretch back where it belongs and joins it with its neighbours.
fn give_back(free: &mut Vec<(u64, u64)>, stretch: (u64, u64)) {
    let at = free.partition_point(|(start, _)| *start < stretch.0);
    free.insert(at, stretch);
    free.dedup_by(|next, before| {
        let joins = before.0 + before.1 == next.0;
        if joins {
            before.1 += next.1;
        }
        joins
    });
}

/// What the master's allocator takes for a size: four significant bits, rounded up.
fn rounded(size: u64) -> u64 {
    let step = 1 << size.ilog2().saturating_sub(3);
    size.next_multiple_of(step)
}

fn as_list<'a>(replicas: &'a Outcome<Vec<Replica<'a>>>) -> Outcome<List<'a, Replica<'a>>> {
    replicas.as_ref().map(List::from).map_err(|code| *code)
}

/// An answer in which everything that can fail failed with this code; `None` if the call's result has no place for one.
pub(super) fn refusal(request: &Request<'_>, code: ErrorCode, reply: impl FnOnce(&Response<'_>)) -> bool {
    let response = match request {
        Request::ServiceReady(_) => Response::ServiceReady(Err(code)),
        Request::GetFsdir(_) => Response::GetFsdir(Err(code)),
        Request::GetStorageConfig(_) => Response::GetStorageConfig(Err(code)),
        Request::Ping(_) => Response::Ping(Err(code)),
        Request::MountSegment(_) => Response::MountSegment(Err(code)),
        Request::ReMountSegment(_) => Response::ReMountSegment(Err(code)),
        Request::UnmountSegment(_) => Response::UnmountSegment(Err(code)),
        Request::ExistKey(_) => Response::ExistKey(Err(code)),
        Request::GetReplicaList(_) => Response::GetReplicaList(Err(code)),
        Request::PutStart(_) => Response::PutStart(Err(code)),
        Request::PutEnd(_) => Response::PutEnd(Err(code)),
        Request::PutRevoke(_) => Response::PutRevoke(Err(code)),
        Request::Remove(_) => Response::Remove(Err(code)),
        other => return each(other, None, code, reply),
    };
    reply(&response);
    true
}

/// Answers a batch with so many results, or one for each key, that are all the same.
pub(super) fn each(
    request: &Request<'_>,
    results: Option<usize>,
    code: ErrorCode,
    reply: impl FnOnce(&Response<'_>),
) -> bool {
    match request {
        Request::BatchExistKey(call) => {
            reply(&Response::BatchExistKey((&vec![Err(code); results.unwrap_or(call.keys.len())]).into()));
        }
        Request::BatchGetReplicaList(call) => {
            reply(&Response::BatchGetReplicaList(
                (&vec![Err(code); results.unwrap_or(call.keys.len())]).into(),
            ));
        }
        Request::BatchPutStart(call) => {
            reply(&Response::BatchPutStart((&vec![Err(code); results.unwrap_or(call.keys.len())]).into()));
        }
        Request::BatchPutEnd(call) => {
            reply(&Response::BatchPutEnd(
                (&vec![Err(code); results.unwrap_or(call.object_metas.len())]).into(),
            ));
        }
        Request::BatchPutRevoke(call) => {
            reply(&Response::BatchPutRevoke((&vec![Err(code); results.unwrap_or(call.keys.len())]).into()));
        }
        Request::BatchRemove(call) => {
            reply(&Response::BatchRemove((&vec![Err(code); results.unwrap_or(call.keys.len())]).into()));
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_four_bits() {
        let check = |size, expected| assert_eq!(rounded(size), expected, "{size}");
        check(1, 1);
        check(5, 5);
        check(15, 15);
        check(17, 18);
        check(100, 104);
        check(300, 320);
        check(1000, 1024);
        check(1 << 20, 1 << 20);
    }

    #[test]
    fn stretches_join() {
        let mut free = vec![(0, 5), (20, 10)];
        give_back(&mut free, (10, 5));
        assert_eq!(free, [(0, 5), (10, 5), (20, 10)]);
        give_back(&mut free, (5, 5));
        assert_eq!(free, [(0, 15), (20, 10)]);
        give_back(&mut free, (15, 5));
        assert_eq!(free, [(0, 30)]);
    }
}
