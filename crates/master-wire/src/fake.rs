//! Segments without memory, for those who only exercise the master.

use crate::types::Segment;
use crate::wire::Uuid;

/// A segment whose memory does not exist: the master hands out its addresses and never looks at them.
///
/// ```
/// use master_wire::{FakeSegment, Uuid};
///
/// let fake = FakeSegment::new(Uuid::random(), 0, 64 << 20);
/// assert_eq!(fake.segment().size, 64 << 20);
/// assert_ne!(fake.segment().base, 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeSegment {
    id: Uuid,
    name: String,
    base: u64,
    size_bytes: u64,
}

impl FakeSegment {
    /// A segment whose name and addresses follow from its number; those of two numbers do not overlap below 1 TiB.
    #[must_use]
    pub fn new(id: Uuid, number: u16, size_bytes: u64) -> Self {
        FakeSegment { id, name: format!("fake-{number}:1"), base: (u64::from(number) + 1) << 40, size_bytes }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// What is mounted.
    #[must_use]
    pub fn segment(&self) -> Segment<'_> {
        let endpoint = (&self.name).into();
        Segment {
            id: self.id,
            name: endpoint,
            base: self.base,
            size: self.size_bytes,
            te_endpoint: endpoint,
            protocol: "tcp".into(),
            ..Segment::default()
        }
    }
}
