//! Reading and writing of bare values, inside an envelope whose size prefixes all have one width.

use crate::dialect::Dialect;
use crate::error::{DecodeError, EncodeError};

/// How many bytes every length and count of one body takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// One byte.
    #[default]
    One,
    /// Two bytes.
    Two,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl Width {
    /// The narrowest width that holds `size`.
    #[must_use]
    pub const fn narrowest(size: u64) -> Width {
        match size {
            0..=0xff => Width::One,
            0x100..=0xffff => Width::Two,
            0x1_0000..=0xffff_ffff => Width::Four,
            _ => Width::Eight,
        }
    }

    /// How many bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << self.class()
    }

    pub(crate) const fn class(self) -> u8 {
        match self {
            Width::One => 0,
            Width::Two => 1,
            Width::Four => 2,
            Width::Eight => 3,
        }
    }

    pub(crate) const fn of_class(class: u8) -> Width {
        match class & 3 {
            0 => Width::One,
            1 => Width::Two,
            2 => Width::Four,
            _ => Width::Eight,
        }
    }
}

/// What must be known of a value before its first byte is written.
#[derive(Debug)]
pub struct Measure {
    dialect: Dialect,
    largest: usize,
    refused: Option<&'static str>,
}

impl Measure {
    pub(crate) const fn new(dialect: Dialect) -> Self {
        Measure { dialect, largest: 0, refused: None }
    }

    /// The dialect to be written.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Notes a length or a count.
    #[inline]
    pub fn size(&mut self, size: usize) {
        self.largest = self.largest.max(size);
    }

    /// Notes a part that the dialect cannot say.
    #[cold]
    pub fn refuse(&mut self, part: &'static str) {
        self.refused.get_or_insert(part);
    }

    pub(crate) fn width(&self) -> Result<Width, EncodeError> {
        match self.refused {
            Some(part) => Err(EncodeError::NotInDialect { part, dialect: self.dialect }),
            None => Ok(Width::narrowest(self.largest as u64)),
        }
    }
}

/// Appends values to a buffer.
#[derive(Debug)]
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    width: Width,
    dialect: Dialect,
}

impl<'o> Encoder<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>, width: Width, dialect: Dialect) -> Self {
        Encoder { out, width, dialect }
    }

    /// The dialect being written.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Appends a length or a count.
    #[inline]
    pub fn size(&mut self, size: usize) {
        let bytes = (size as u64).to_le_bytes();
        match self.width {
            Width::One => self.out.push(bytes[0]),
            width => self.out.extend_from_slice(&bytes[..width.bytes()]),
        }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

/// Reads values from a body.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    /// Where the body ends, so that an offset can be told without being counted.
    end: usize,
    width: Width,
    dialect: Dialect,
}

impl<'a> Decoder<'a> {
    /// Reads `body` from `offset` on.
    pub(crate) fn new(body: &'a [u8], offset: usize, width: Width, dialect: Dialect) -> Self {
        Decoder { rest: body.get(offset..).unwrap_or_default(), end: body.len(), width, dialect }
    }

    /// The dialect being read.
    #[must_use]
    #[inline]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Where in the body the next byte is.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.end - self.rest.len()
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cold]
    fn truncated(&self, needed: u64) -> DecodeError {
        DecodeError::Truncated { needed, offset: self.offset(), available: self.rest.len() }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    ///
    /// When fewer are left.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        self.take_long(len as u64)
    }

    /// The next `len` bytes, where `len` came from the wire and may be anything.
    ///
    /// # Errors
    ///
    /// When fewer are left.
    #[inline]
    pub fn take_long(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let taken = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let Some((head, rest)) = taken else {
            return Err(self.truncated(len));
        };
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    ///
    /// When fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(N as u64));
        };
        self.rest = rest;
        Ok(*head)
    }

    /// A byte that says whether something follows.
    ///
    /// # Errors
    ///
    /// When it is neither 0 nor 1, or none is left.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [value] => Err(DecodeError::Flag { value, offset: self.offset() - 1 }),
        }
    }

    /// A length.
    ///
    /// # Errors
    ///
    /// When its bytes are not all there.
    #[inline]
    pub fn size(&mut self) -> Result<u64, DecodeError> {
        Ok(match self.width {
            Width::One => self.array::<1>()?[0].into(),
            Width::Two => u16::from_le_bytes(self.array()?).into(),
            Width::Four => u32::from_le_bytes(self.array()?).into(),
            Width::Eight => u64::from_le_bytes(self.array()?),
        })
    }

    /// A count of elements that take at least `min_bytes` each.
    ///
    /// # Errors
    ///
    /// When the bytes left cannot hold so many.
    #[inline]
    pub fn count(&mut self, min_bytes: usize) -> Result<usize, DecodeError> {
        let offset = self.offset();
        let count = self.size()?;
        let needed = count.checked_mul(min_bytes.max(1) as u64);
        match usize::try_from(count) {
            Ok(fits) if needed.is_some_and(|needed| needed <= self.rest.len() as u64) => Ok(fits),
            _ => Err(DecodeError::Count { count, offset, available: self.rest.len() }),
        }
    }
}
