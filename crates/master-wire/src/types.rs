//! The structures that travel.

use crate::list::List;
use crate::schema::{open_enum, record, variant};
use crate::wire::{Uuid, WireStr};

/// The tenant of a master that has no tenants.
pub(crate) const DEFAULT_TENANT: WireStr<'static> = WireStr::new(b"default");

record! {
    /// Memory that a client lends to the master.
    structure Segment<'a> {
        /// The segment's own id.
        id: Uuid;
        /// Its name, by convention the endpoint.
        name: WireStr<'a>;
        /// Where it begins; 0 is refused.
        base: u64;
        /// How long it is, in bytes; 0 is refused.
        size: u64;
        /// Where its transfer engine is reached.
        te_endpoint: WireStr<'a>;
        /// How its memory is reached.
        protocol: WireStr<'a>;
        /// On which host it is.
        host_id: WireStr<'a> [C..];
    }
}

record! {
    /// How an object is to be replicated.
    structure ReplicateConfig<'a> {
        /// Replicas in memory; 0 is refused.
        replica_num: u64 = 1;
        /// Replicas on NVMe over fabrics.
        nof_replica_num: u64 [B..];
        /// Replicas on a distributed file system.
        dfs_replica_num: u64 [D..];
        /// Whether eviction takes the object last.
        with_soft_pin: bool [..=C];
        /// What happens to the soft pin.
        soft_pin_action: SoftPinAction [D..];
        /// How long the soft pin holds, in milliseconds.
        soft_pin_ttl_ms: Option<u64> [D..];
        /// Whether eviction never takes the object.
        with_hard_pin: bool;
        /// Segments to prefer, by name.
        preferred_segments: List<'a, WireStr<'a>>;
        /// The segment to prefer, by name.
        preferred_segment: WireStr<'a>;
        /// NVMe segments to prefer, by name.
        preferred_nof_segments: List<'a, WireStr<'a>> [B..];
        /// Whether all replicas should be on one node.
        prefer_alloc_in_same_node: bool;
        /// What the object is.
        data_type: DataType [B..];
        /// On which host the caller is.
        host_id: WireStr<'a> [C..];
        /// A group for each key.
        group_ids: Option<List<'a, WireStr<'a>>> [C..];
    }
}

record! {
    /// A place in a segment.
    structure Buffer<'a> {
        /// Its length, in bytes.
        size: u64;
        /// Where it begins.
        buffer_address: u64;
        /// How it is reached.
        protocol: WireStr<'a>;
        /// Where its transfer engine is reached.
        transport_endpoint: WireStr<'a>;
    }
}

record! {
    /// A replica that is a place in a segment.
    structure BufferReplica<'a> {
        /// The place.
        buffer_descriptor: Buffer<'a>;
    }
}

record! {
    /// A replica that is a file.
    structure DiskReplica<'a> {
        /// The file.
        file_path: WireStr<'a>;
        /// Its length, in bytes.
        object_size: u64;
    }
}

record! {
    /// A replica on a client's own disk.
    structure LocalDiskReplica<'a> {
        /// The client.
        client_id: Uuid;
        /// Its length, in bytes.
        object_size: u64;
        /// Where the client's transfer engine is reached.
        transport_endpoint: WireStr<'a>;
    }
}

record! {
    /// A replica in a distributed file system.
    structure DfsReplica<'a> {
        /// The file.
        file_path: WireStr<'a>;
        /// Where in the file it begins.
        offset: u64;
        /// Its length, in bytes.
        object_size: u64;
        /// The length it takes, in bytes.
        aligned_size: u64;
        /// The shard.
        shard_idx: i32;
    }
}

variant! {
    /// Where a replica is.
    Location<'a> {
        /// In a segment.
        Memory(BufferReplica<'a>) "memory";
        /// On NVMe over fabrics.
        Nof(BufferReplica<'a>) "nof" [B..];
        /// In a file.
        Disk(DiskReplica<'a>) "disk";
        /// On a client's own disk.
        LocalDisk(LocalDiskReplica<'a>) "local_disk";
        /// In a distributed file system.
        Dfs(DfsReplica<'a>) "dfs" [D..];
    }
}

impl Default for Location<'_> {
    fn default() -> Self {
        Location::Memory(BufferReplica::default())
    }
}

record! {
    /// One replica of an object.
    structure Replica<'a> {
        /// Its number. Garbage for a replica on local disk in dialect A.
        id: u64;
        /// Where it is.
        descriptor: Location<'a>;
        /// How far it is.
        status: ReplicaStatus;
    }
}

record! {
    /// What is known of an object that can be read.
    structure ReplicaList<'a> {
        /// Its replicas.
        replicas: List<'a, Replica<'a>>;
        /// How long a lease the master gives, in milliseconds: its setting, not the time left.
        lease_ttl_ms: u64;
        /// The object's checksum.
        object_checksum: Option<u64> [D..];
    }
}

record! {
    /// What the master thinks of a client.
    structure PingReport {
        /// The view of a master with high availability, else 0.
        view_version_id: i64;
        /// Whether the client is known.
        client_status: ClientStatus;
    }
}

record! {
    /// Where the master keeps files.
    structure StorageConfig<'a> {
        /// The folder, or nothing.
        fsdir: WireStr<'a>;
        /// Whether files are evicted.
        enable_disk_eviction: bool;
        /// How many bytes of files there may be.
        quota_bytes: u64;
    }
}

record! {
    /// A finished object: its key and, from dialect D on, its checksum.
    keyed ObjectMeta<'a> {
        /// The key.
        key: WireStr<'a>;
        /// The checksum.
        object_checksum: Option<u64> [D..];
    }
}

impl<'a, K: Into<WireStr<'a>>> From<K> for ObjectMeta<'a> {
    fn from(key: K) -> Self {
        ObjectMeta { key: key.into(), object_checksum: None }
    }
}

open_enum! {
    /// Which replicas of an object are meant.
    ReplicaType(i32) {
        MEMORY = 0, "MEMORY";
        DISK = 1, "DISK";
        LOCAL_DISK = 2, "LOCAL_DISK";
        NOF_SSD = 3, "NOF_SSD" [B..];
        /// In dialect A a master answers ok to it and completes nothing.
        ALL = 4, "ALL" [B..];
        DFS = 100, "DFS" [D..];
    }
}

impl ReplicaType {
    /// What the official client sends: `ALL` where it exists, else `MEMORY`.
    #[must_use]
    pub fn usual(dialect: crate::Dialect) -> ReplicaType {
        if ReplicaType::ALL.exists_in(dialect) { ReplicaType::ALL } else { ReplicaType::MEMORY }
    }
}

open_enum! {
    /// How far a replica is.
    ReplicaStatus(i32) {
        UNDEFINED = 0, "UNDEFINED";
        INITIALIZED = 1, "INITIALIZED";
        PROCESSING = 2, "PROCESSING";
        COMPLETE = 3, "COMPLETE";
        REMOVED = 4, "REMOVED";
        FAILED = 5, "FAILED";
    }
}

open_enum! {
    /// Whether the master knows a client.
    ClientStatus(i32) {
        UNDEFINED = 0, "UNDEFINED";
        OK = 1, "OK";
        /// The client is not registered: it has to mount its segments anew.
        NEED_REMOUNT = 2, "NEED_REMOUNT";
    }
}

open_enum! {
    /// What an object is.
    DataType(u8) {
        UNKNOWN = 0, "UNKNOWN" [B..];
        KVCACHE = 1, "KVCACHE" [B..];
        TENSOR = 2, "TENSOR" [B..];
        GENERAL = 9, "GENERAL" [B..];
    }
}

open_enum! {
    /// What happens to an object's soft pin.
    SoftPinAction(u8) {
        PRESERVE = 0, "PRESERVE" [D..];
        ENABLE = 1, "ENABLE" [D..];
        DISABLE = 2, "DISABLE" [D..];
    }
}
