//! The rules of the contract, by the names that reports use.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal;)+) => {
        /// A rule of the contract. Its [name](Rule::id) is stable; reports and tools match on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// Every rule, in the order in which a row is checked.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// The stable name.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Rule::$name => $id,)+ }
            }
        }
    };
}

rules! {
    /// A line is not well-formed UTF-8.
    JUtf8 = "J-UTF8";
    /// A line starts with a byte order mark.
    JBom = "J-BOM";
    /// A line is not JSON.
    JSyntax = "J-SYNTAX";
    /// A control character stands unescaped in a string.
    JControl = "J-CONTROL";
    /// A `\u` escape is one half of a surrogate pair.
    JSurrogate = "J-SURROGATE";
    /// A number has no finite double.
    JNumber = "J-NUMBER";
    /// An object names a member twice.
    JDupKey = "J-DUPKEY";
    /// Something follows the object.
    JTrailing = "J-TRAILING";
    /// More than 128 containers are nested.
    JDepth = "J-DEPTH";
    /// A row is JSON, but no object.
    JObject = "J-OBJECT";
    /// The header has an unknown field.
    HField = "H-FIELD";
    /// The header's `type` is not `master_rpc_trace`.
    HType = "H-TYPE";
    /// The header's `version` is neither 1 nor 2 nor absent.
    HVersion = "H-VERSION";
    /// The header's `time_unit` is not `us`.
    HTimeUnit = "H-TIMEUNIT";
    /// The header's `metadata` is not an object.
    HMetadata = "H-METADATA";
    /// An event has an unknown field.
    EField = "E-FIELD";
    /// An event has a field of a sibling dialect.
    UForeign = "U-FOREIGN";
    /// `id` is missing, empty or not a string.
    EId = "E-ID";
    /// `id` is that of an earlier event.
    EIdDup = "E-ID-DUP";
    /// `client_id` is missing, empty or not a string.
    EClient = "E-CLIENT";
    /// `op` is missing, empty or not a string.
    EOp = "E-OP";
    /// `phase` is not one of the three.
    EPhase = "E-PHASE";
    /// An earlier phase follows a later one.
    EPhaseOrder = "E-PHASE-ORDER";
    /// Version 1 knows no phases.
    EPhaseV1 = "E-PHASE-V1";
    /// Pings are the replayer's own.
    UPing = "U-PING";
    /// `op` is not one of the known ones.
    EOpUnknown = "E-OP-UNKNOWN";
    /// Version 1 knows no lifecycle operation.
    EOpV1 = "E-OP-V1";
    /// `timestamp_us` is not a whole number of plain digits below 2^64.
    ETs = "E-TS";
    /// `timestamp_us` is smaller than the one before.
    ETsOrder = "E-TS-ORDER";
    /// A lifecycle operation has keys.
    EKeysLifecycle = "E-KEYS-LIFECYCLE";
    /// `keys` is not a nonempty array of nonempty strings.
    EKeys = "E-KEYS";
    /// `depends_on` is not an array.
    EDepsType = "E-DEPS-TYPE";
    /// `depends_on` names no earlier event.
    EDepsRef = "E-DEPS-REF";
    /// A registration outside setup.
    RSetup = "R-SETUP";
    /// A client registered twice.
    RDup = "R-DUP";
    /// `segments` of a registration is not the empty array.
    RSegments = "R-SEGMENTS";
    /// An event of a client that is not registered yet.
    RRequired = "R-REQUIRED";
    /// A mount outside setup.
    MPhase = "M-PHASE";
    /// The `segment_id` of a mount is not a nonempty string.
    MSegment = "M-SEGMENT";
    /// A `segment_id` mounted before.
    MDup = "M-DUP";
    /// `size_bytes` is not a whole number between 1 and 2^64-1.
    MSize = "M-SIZE";
    /// An unmount outside teardown.
    UPhase = "U-PHASE";
    /// The `segment_id` of an unmount is not a nonempty string.
    USegment = "U-SEGMENT";
    /// A segment that was never mounted.
    UUnknown = "U-UNKNOWN";
    /// A segment unmounted before.
    UTwice = "U-TWICE";
    /// A segment of another client.
    UOwner = "U-OWNER";
    /// `segment_id` on an operation without one.
    FSegment = "F-SEGMENT";
    /// `size_bytes` on an operation without one.
    FSize = "F-SIZE";
    /// `segments` on an operation without them.
    FSegments = "F-SEGMENTS";
    /// A key operation outside the workload.
    KPhase = "K-PHASE";
    /// Not exactly one of `value_sizes` and `value_slices`.
    SOneOf = "S-ONEOF";
    /// `value_slices` is not an array as long as `keys`.
    SSlices = "S-SLICES";
    /// An object's slices are not a nonempty array.
    SSliceList = "S-SLICE-LIST";
    /// A slice is not a whole number between 1 and 2^64-1.
    SSlice = "S-SLICE";
    /// The slices of one object add up to 2^64 or more.
    SOverflow = "S-OVERFLOW";
    /// `value_sizes` is not an array as long as `keys`.
    SSizes = "S-SIZES";
    /// A size is not a whole number between 1 and 2^64-1.
    SSize = "S-SIZE";
    /// A key twice in one write.
    SDupKey = "S-DUPKEY";
    /// `replica_num` is not a whole number between 1 and 2^64-1.
    SReplica = "S-REPLICA";
    /// Sizes, slices or `replica_num` on an operation that writes nothing.
    FPutFields = "F-PUTFIELDS";
    /// `put_start` is missing, empty or not a string.
    PField = "P-FIELD";
    /// `put_start` names no earlier event.
    PRef = "P-REF";
    /// `put_start` names something else than a write of the same client and keys.
    PMatch = "P-MATCH";
    /// `put_start` names a write that is finalised already.
    PTwice = "P-TWICE";
    /// `put_start` on an operation that finalises nothing.
    FPutStart = "F-PUTSTART";
    /// No header, or no event.
    TEmpty = "T-EMPTY";
    /// No segment is ever mounted.
    TNoMount = "T-NOMOUNT";
    /// A mount that is never undone.
    TUnmounted = "T-UNMOUNTED";
    /// A write that is never finalised.
    TUnfinished = "T-UNFINISHED";
    /// More events, keys, dependencies, sizes or slices than the compact form can number (ours).
    TTooLarge = "T-TOO-LARGE";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
