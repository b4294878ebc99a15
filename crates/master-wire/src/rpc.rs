//! The calls: their names, arguments and results.

use std::fmt;
use std::sync::LazyLock;

use crate::body::{Body, Style, decode_body, encode_body};
use crate::dialect::Dialect;
use crate::error::{DecodeError, EncodeError, UnknownFunction};
use crate::list::List;
use crate::literal;
use crate::schema::record;
use crate::types::{
    DEFAULT_TENANT, ObjectMeta, PingReport, Replica, ReplicaList, ReplicaType, ReplicateConfig, Segment,
    StorageConfig,
};
use crate::visit::Visitor;
use crate::wire::{Decode, Describe, Encode, Outcome, Uuid, WireStr};

/// The arguments of a call, knowing which call and what it answers.
pub trait Call: Encode {
    /// Which call.
    const RPC: Rpc;

    /// What the master answers. It borrows from the reply's bytes.
    type Reply<'r>: Encode + Decode<'r>;
}

/// What a body of a certain type begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    literal: Box<[u8]>,
    hash: u32,
}

impl Signature {
    pub(crate) fn of<T: Describe>(dialect: Dialect) -> Signature {
        let mut literal = Vec::new();
        T::literal(dialect, &mut literal);
        Signature { hash: literal::type_hash(&literal), literal: literal.into() }
    }

    /// The type literal. Empty for a call without arguments, whose body is empty too.
    #[must_use]
    pub fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// The hash of the literal, its lowest bit cleared.
    #[must_use]
    pub const fn hash(&self) -> u32 {
        self.hash
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.literal.is_empty()
    }
}

/// What is taken from the schema once: both signatures of every call in every dialect.
struct Table {
    signatures: Vec<[Signature; 2]>,
    function_ids: Vec<u32>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table {
    signatures: Rpc::ALL
        .iter()
        .flat_map(|rpc| Dialect::ALL.map(|dialect| Request::describe(*rpc, dialect)))
        .collect(),
    function_ids: Rpc::ALL.iter().map(|rpc| literal::function_id(rpc.name())).collect(),
});

/// The signature of a failed call's message.
pub(crate) static MESSAGE: LazyLock<Signature> =
    LazyLock::new(|| Signature::of::<WireStr<'static>>(Dialect::A));

macro_rules! calls {
    ($(
        $(#[$meta:meta])*
        $name:ident $(<$life:lifetime>)? { $($members:tt)* } -> $reply:ty;
    )*) => {
        /// The name of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rpc {
            $(#[doc = concat!("[`", stringify!($name), "`](crate::", stringify!($name), ")")] $name,)*
        }

        impl Rpc {
            /// Every call.
            pub const ALL: &'static [Rpc] = &[$(Rpc::$name),*];

            /// The name, as the master's sources write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Rpc::$name => stringify!($name),)* }
            }

        }

        $(
            record! {
                $(#[$meta])*
                tuple $name $(<$life>)? { $($members)* }
            }

            impl $(<$life>)? Call for $name $(<$life>)? {
                const RPC: Rpc = Rpc::$name;
                type Reply<'r> = $reply;
            }

            impl<'a> From<$name $(<$life>)?> for Request<'a> {
                fn from(call: $name $(<$life>)?) -> Self {
                    Request::$name(call)
                }
            }
        )*

        /// The arguments of any call.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Request<'a> {
            $(#[doc = concat!("Arguments of [`", stringify!($name), "`].")] $name($name $(<$life>)?),)*
        }

        impl<'a> Request<'a> {
            /// Which call.
            #[must_use]
            pub const fn rpc(&self) -> Rpc {
                match self { $(Request::$name(_) => Rpc::$name,)* }
            }

            fn describe(rpc: Rpc, dialect: Dialect) -> [Signature; 2] {
                match rpc { $(Rpc::$name => [
                    Signature::of::<$name $(<$life>)?>(dialect),
                    Signature::of::<<$name $(<$life>)? as Call>::Reply<'a>>(dialect),
                ],)* }
            }

            pub(crate) fn encode_body(
                &self, out: &mut Vec<u8>, dialect: Dialect, style: Style,
            ) -> Result<(), EncodeError> {
                let signature = self.rpc().request(dialect);
                match self { $(Request::$name(call) => encode_body(out, call, signature, dialect, style),)* }
            }

            /// Reads the body of a request.
            ///
            /// # Errors
            ///
            /// When the body does not hold the arguments of the call.
            pub fn decode(rpc: Rpc, dialect: Dialect, body: &'a [u8]) -> Result<Body<'a, Request<'a>>, DecodeError> {
                let signature = rpc.request(dialect);
                match rpc { $(Rpc::$name => {
                    decode_body::<$name $(<$life>)?>(body, signature, dialect).map(|body| body.map(Request::$name))
                })* }
            }

            /// Tells a visitor every argument that exists in the dialect.
            pub fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor) {
                match self { $(Request::$name(call) => call.visit(dialect, visitor),)* }
            }
        }

        /// The result of any call.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Response<'r> {
            $(#[doc = concat!("Result of [`", stringify!($name), "`].")] $name($reply),)*
        }

        impl<'r> Response<'r> {
            /// Which call was answered.
            #[must_use]
            pub const fn rpc(&self) -> Rpc {
                match self { $(Response::$name(_) => Rpc::$name,)* }
            }

            pub(crate) fn encode_body(
                &self, out: &mut Vec<u8>, dialect: Dialect, style: Style,
            ) -> Result<(), EncodeError> {
                let signature = self.rpc().response(dialect);
                match self { $(Response::$name(result) => encode_body(out, result, signature, dialect, style),)* }
            }

            /// Reads the body of a reply whose `err_code` is 0.
            ///
            /// # Errors
            ///
            /// When the body does not hold the call's result.
            pub fn decode(rpc: Rpc, dialect: Dialect, body: &'r [u8]) -> Result<Body<'r, Response<'r>>, DecodeError> {
                let signature = rpc.response(dialect);
                match rpc { $(Rpc::$name => {
                    decode_body::<$reply>(body, signature, dialect).map(|body| body.map(Response::$name))
                })* }
            }

            /// Tells a visitor every part of the result that exists in the dialect.
            pub fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor) {
                match self { $(Response::$name(result) => result.visit(dialect, visitor),)* }
            }
        }
    };
}

impl Rpc {
    /// The id the master's framework gives the call: taken from its name.
    #[must_use]
    pub fn function_id(self) -> u32 {
        TABLE.function_ids[self as usize]
    }

    /// The call of a function id.
    ///
    /// # Errors
    ///
    /// When no call has this id.
    pub fn of_function_id(function_id: u32) -> Result<Rpc, UnknownFunction> {
        let index = TABLE.function_ids.iter().position(|id| *id == function_id);
        index.map(|index| Rpc::ALL[index]).ok_or(UnknownFunction { function_id })
    }

    /// The call of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Rpc> {
        Rpc::ALL.iter().copied().find(|rpc| rpc.name() == name)
    }

    fn signatures(self, dialect: Dialect) -> &'static [Signature; 2] {
        &TABLE.signatures[self as usize * Dialect::ALL.len() + dialect as usize]
    }

    /// What the body of a request begins with.
    #[must_use]
    pub fn request(self, dialect: Dialect) -> &'static Signature {
        &self.signatures(dialect)[0]
    }

    /// What the body of a reply begins with.
    #[must_use]
    pub fn response(self, dialect: Dialect) -> &'static Signature {
        &self.signatures(dialect)[1]
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

calls! {
    /// The version of the service, the same in all four dialects.
    ServiceReady {} -> Outcome<WireStr<'r>>;

    /// The folder in which the master keeps files.
    GetFsdir {} -> Outcome<WireStr<'r>>;

    /// Where and how the master keeps files.
    GetStorageConfig {} -> Outcome<StorageConfig<'r>>;

    /// Keeps a client and its segments alive, and asks whether it is registered.
    Ping {
        /// The client.
        client_id: Uuid;
    } -> Outcome<PingReport>;

    /// Lends a segment to the master.
    MountSegment<'a> {
        /// The segment.
        segment: Segment<'a>;
        /// The client it belongs to.
        client_id: Uuid;
    } -> Outcome<()>;

    /// Registers a client with all its segments; nothing happens if it is registered.
    ReMountSegment<'a> {
        /// The segments.
        segments: List<'a, Segment<'a>>;
        /// The client.
        client_id: Uuid;
    } -> Outcome<()>;

    /// Takes a segment back, and with it all that is stored there.
    UnmountSegment {
        /// The segment.
        segment_id: Uuid;
        /// The client.
        client_id: Uuid;
    } -> Outcome<()>;

    /// Whether an object can be read; if so, it gets a lease.
    ExistKey<'a> {
        /// The object.
        key: WireStr<'a>;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<bool>;

    /// Which objects can be read; those get a lease.
    BatchExistKey<'a> {
        /// The objects.
        keys: List<'a, WireStr<'a>>;
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<bool>>;

    /// Where an object is; it gets a lease.
    GetReplicaList<'a> {
        /// The object.
        key: WireStr<'a>;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<ReplicaList<'r>>;

    /// Where objects are; they get a lease.
    BatchGetReplicaList<'a> {
        /// The objects.
        keys: List<'a, WireStr<'a>>;
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<ReplicaList<'r>>>;

    /// Allocates the replicas of a new object, which can be read after [`PutEnd`].
    PutStart<'a> {
        /// The client, who alone can end or revoke the put.
        client_id: Uuid;
        /// The object.
        key: WireStr<'a>;
        /// Its length, in bytes; 0 is refused.
        slice_length: u64;
        /// How it is replicated.
        config: ReplicateConfig<'a>;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<List<'r, Replica<'r>>>;

    /// Allocates the replicas of new objects.
    BatchPutStart<'a> {
        /// The client, who alone can end or revoke the puts.
        client_id: Uuid;
        /// The objects.
        keys: List<'a, WireStr<'a>>;
        /// Their lengths, in bytes.
        slice_lengths: List<'a, u64>;
        /// How they are replicated.
        config: ReplicateConfig<'a>;
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<List<'r, Replica<'r>>>>;

    /// Makes an object readable.
    PutEnd<'a> {
        /// The client that started the put.
        client_id: Uuid;
        /// The object: a key alone before dialect D.
        object_meta: ObjectMeta<'a>;
        /// Which replicas are complete; see [`ReplicaType::usual`].
        replica_type: ReplicaType;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<()>;

    /// Makes objects readable.
    BatchPutEnd<'a> {
        /// The client that started the puts.
        client_id: Uuid;
        /// The objects: keys alone before dialect D.
        object_metas: List<'a, ObjectMeta<'a>>;
        /// Which replicas are complete; see [`ReplicaType::usual`].
        replica_type: ReplicaType [B..];
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<()>>;

    /// Gives up a put.
    PutRevoke<'a> {
        /// The client that started the put.
        client_id: Uuid;
        /// The object.
        key: WireStr<'a>;
        /// Which replicas are given up; see [`ReplicaType::usual`].
        replica_type: ReplicaType;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<()>;

    /// Gives up puts.
    BatchPutRevoke<'a> {
        /// The client that started the puts.
        client_id: Uuid;
        /// The objects.
        keys: List<'a, WireStr<'a>>;
        /// Which replicas are given up; see [`ReplicaType::usual`].
        replica_type: ReplicaType [B..];
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<()>>;

    /// Removes an object.
    Remove<'a> {
        /// The object.
        key: WireStr<'a>;
        /// Whether a lease is ignored.
        force: bool;
        /// Whose it is.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> Outcome<()>;

    /// Removes objects.
    BatchRemove<'a> {
        /// The objects.
        keys: List<'a, WireStr<'a>>;
        /// Whether leases are ignored.
        force: bool;
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> List<'r, Outcome<()>>;

    /// Removes every object, and says how many those were.
    RemoveAll<'a> {
        /// Whether leases are ignored.
        force: bool;
        /// Whose they are.
        tenant_id: WireStr<'a> [C..] = DEFAULT_TENANT;
    } -> i64;
}
