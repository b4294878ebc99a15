//! Which release of the master is spoken to.

use std::fmt;

/// A version of the master's protocol, named by the letter its specification gives it.
///
/// Later dialects compare greater. A field or an alternative of the schema names the range of dialects it exists in, so
/// a release that changes one structure is one more variant here and one more range there: the new dialect is in every
/// range without an end, and what the release dropped gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Master 0.3.10.post2.
    A,
    /// Master 0.3.11.post1.
    B,
    /// Master 0.3.12.post1.
    C,
    /// Master 0.3.13.post1.
    D,
}

impl Dialect {
    /// Every dialect, oldest first.
    pub const ALL: [Dialect; 4] = [Dialect::A, Dialect::B, Dialect::C, Dialect::D];

    /// The one spoken by the latest master known.
    pub const NEWEST: Dialect = Dialect::ALL[Dialect::ALL.len() - 1];

    /// The one spoken by the earliest master known.
    pub const OLDEST: Dialect = Dialect::ALL[0];

    /// The release of the master this dialect was verified on.
    #[must_use]
    pub const fn master_version(self) -> &'static str {
        match self {
            Dialect::A => "0.3.10.post2",
            Dialect::B => "0.3.11.post1",
            Dialect::C => "0.3.12.post1",
            Dialect::D => "0.3.13.post1",
        }
    }

    /// The dialect of a release of the master, by its exact version.
    #[must_use]
    pub fn of_master_version(version: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.master_version() == version)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({})", self.master_version())
    }
}

/// A span of dialects, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DialectRange {
    pub(crate) first: Dialect,
    pub(crate) last: Option<Dialect>,
}

impl DialectRange {
    pub(crate) const ALL: DialectRange = DialectRange { first: Dialect::A, last: None };

    #[inline]
    pub(crate) const fn contains(self, dialect: Dialect) -> bool {
        let below = match self.last {
            None => true,
            Some(last) => dialect as u8 <= last as u8,
        };
        self.first as u8 <= dialect as u8 && below
    }

    /// Whether every dialect is within.
    pub(crate) const fn is_all(self) -> bool {
        self.first as u8 == Dialect::A as u8 && self.last.is_none()
    }
}

/// A range as the schema writes it: nothing, `C..`, `..=B` or `B..=C`.
macro_rules! dialects {
    () => {
        $crate::dialect::DialectRange::ALL
    };
    ($first:ident ..) => {
        $crate::dialect::DialectRange { first: $crate::dialect::Dialect::$first, last: None }
    };
    (..= $last:ident) => {
        $crate::dialect::DialectRange {
            first: $crate::dialect::Dialect::A,
            last: Some($crate::dialect::Dialect::$last),
        }
    };
    ($first:ident ..= $last:ident) => {
        $crate::dialect::DialectRange {
            first: $crate::dialect::Dialect::$first,
            last: Some($crate::dialect::Dialect::$last),
        }
    };
}
pub(crate) use dialects;
