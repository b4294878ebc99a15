//! Bodies: a value in its envelope.

use crate::codec::{Decoder, Encoder, Measure, Width};
use crate::dialect::Dialect;
use crate::error::{DecodeError, EncodeError};
use crate::rpc::Signature;
use crate::wire::{Decode, Encode};

/// What stands before a value: everything its writer was free to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The byte behind the hash; a body without one has size prefixes of one byte and no literal.
    meta: Option<u8>,
    /// The total length, in a body that says it.
    total_len: Option<u64>,
}

const TOTAL_LEN_MASK: u8 = 0b0000_0011;
const LITERAL_BIT: u8 = 0b0000_0100;
const WIDTH_SHIFT: u8 = 3;

impl Envelope {
    /// The shortest: no literal, and nothing but the hash where size prefixes of one byte do.
    #[must_use]
    pub const fn compact(width: Width) -> Envelope {
        let meta = match width {
            Width::One => None,
            width => Some(width.class() << WIDTH_SHIFT),
        };
        Envelope { meta, total_len: None }
    }

    /// What the official client and the published masters write: the literal is always there.
    #[must_use]
    pub const fn with_literal(width: Width) -> Envelope {
        Envelope { meta: Some(LITERAL_BIT | width.class() << WIDTH_SHIFT), total_len: None }
    }

    /// How wide every length and count is.
    #[must_use]
    pub fn width(self) -> Width {
        Width::of_class(self.meta.unwrap_or(0) >> WIDTH_SHIFT)
    }

    /// Whether the type literal is embedded.
    #[must_use]
    pub fn has_literal(self) -> bool {
        self.meta.is_some_and(|meta| meta & LITERAL_BIT != 0)
    }

    /// The total length, in a body that says it.
    #[must_use]
    pub const fn total_len(self) -> Option<u64> {
        self.total_len
    }

    fn total_len_bytes(self) -> usize {
        match self.meta.unwrap_or(0) & TOTAL_LEN_MASK {
            0 => 0,
            class => Width::of_class(class).bytes(),
        }
    }

    fn write(self, signature: &Signature, out: &mut Vec<u8>) {
        let Some(meta) = self.meta else {
            return out.extend_from_slice(&signature.hash().to_le_bytes());
        };
        out.extend_from_slice(&(signature.hash() | 1).to_le_bytes());
        out.push(meta);
        let total_len = self.total_len.unwrap_or(0).to_le_bytes();
        out.extend_from_slice(&total_len[..self.total_len_bytes()]);
        if self.has_literal() {
            out.extend_from_slice(signature.literal());
            out.push(0);
        }
    }

    /// Reads an envelope, and says where the value begins.
    fn read(body: &[u8], signature: &Signature, dialect: Dialect) -> Result<(Envelope, usize), DecodeError> {
        let mut head = Decoder::new(body, 0, Width::One, dialect);
        let hash = u32::from_le_bytes(head.array()?);
        if hash & !1 != signature.hash() {
            return Err(DecodeError::TypeHash { found: hash & !1, expected: signature.hash() });
        }
        let mut envelope = Envelope::default();
        if hash & 1 == 1 {
            envelope.meta = Some(head.array::<1>()?[0]);
            envelope.total_len = match envelope.total_len_bytes() {
                0 => None,
                bytes => Some(little_endian(head.take(bytes)?)),
            };
        }
        if envelope.has_literal() {
            check_literal(&mut head, signature.literal())?;
        }
        Ok((envelope, head.offset()))
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn check_literal(head: &mut Decoder<'_>, literal: &[u8]) -> Result<(), DecodeError> {
    let expected = literal.iter().chain([&0]);
    if let Some(at) = head.rest().iter().zip(expected).position(|(found, expected)| found != expected) {
        return Err(DecodeError::Literal { at });
    }
    head.take(literal.len() + 1).map(drop)
}

/// How a body is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// The fewest bytes: what a request should be.
    #[default]
    Compact,
    /// As the official client and the published masters do, the type literal embedded.
    Official,
    /// In exactly this envelope.
    Exact(Envelope),
}

/// A body that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Body<'a, T> {
    /// What it says.
    pub value: T,
    /// In which envelope.
    pub envelope: Envelope,
    /// What follows the value; the master ignores it.
    pub surplus: &'a [u8],
}

impl<'a, T> Body<'a, T> {
    pub(crate) fn map<U>(self, into: impl FnOnce(T) -> U) -> Body<'a, U> {
        Body { value: into(self.value), envelope: self.envelope, surplus: self.surplus }
    }

    /// The value, if nothing follows it.
    ///
    /// # Errors
    ///
    /// When there are surplus bytes.
    pub fn complete(self) -> Result<T, DecodeError> {
        match self.surplus.len() {
            0 => Ok(self.value),
            bytes => Err(DecodeError::Surplus { bytes }),
        }
    }
}

/// Appends a body; on an error nothing is appended.
pub(crate) fn encode_body<T: Encode>(
    out: &mut Vec<u8>,
    value: &T,
    signature: &Signature,
    dialect: Dialect,
    style: Style,
) -> Result<(), EncodeError> {
    let mut measure = Measure::new(dialect);
    value.measure(&mut measure);
    let needed = measure.width()?;
    if signature.is_empty() {
        return Ok(());
    }
    let envelope = match style {
        Style::Compact => Envelope::compact(needed),
        Style::Official => Envelope::with_literal(needed),
        Style::Exact(envelope) => envelope,
    };
    let width = envelope.width();
    if width < needed {
        return Err(EncodeError::Width { needed_bytes: needed.bytes(), asked_bytes: width.bytes() });
    }
    envelope.write(signature, out);
    value.encode(&mut Encoder::new(out, width, dialect));
    Ok(())
}

/// Reads a body.
pub(crate) fn decode_body<'a, T: Decode<'a>>(
    body: &'a [u8],
    signature: &Signature,
    dialect: Dialect,
) -> Result<Body<'a, T>, DecodeError> {
    let (envelope, offset) = match (signature.is_empty(), body.is_empty()) {
        (true, _) => (Envelope::default(), 0),
        (false, true) => return Err(DecodeError::EmptyBody),
        (false, false) => Envelope::read(body, signature, dialect)?,
    };
    let mut decoder = Decoder::new(body, offset, envelope.width(), dialect);
    let value = T::decode(&mut decoder)?;
    Ok(Body { value, envelope, surplus: decoder.rest() })
}
