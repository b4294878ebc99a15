//! Values on the wire: what a type must say of itself, and the types all others are made of.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use crate::codec::{Decoder, Encoder, Measure};
use crate::dialect::Dialect;
use crate::error::{DecodeError, ErrorCode};
use crate::literal;
use crate::visit::Visitor;

/// A type that knows its literal.
pub trait Describe {
    /// No value takes fewer bytes than this.
    const MIN_BYTES: usize;

    /// How many bytes every value takes in every dialect, if that is always the same.
    const FIXED_BYTES: Option<usize> = None;

    /// Appends the type literal.
    fn literal(dialect: Dialect, out: &mut Vec<u8>);
}

/// A value that can be written.
pub trait Encode: Describe {
    /// Notes the lengths and counts within, and what the dialect cannot say.
    fn measure(&self, measure: &mut Measure);

    /// Appends the value; [`measure`](Encode::measure) came before.
    fn encode(&self, encoder: &mut Encoder<'_>);

    /// Tells a visitor every part of the value that exists in the dialect.
    fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor);
}

/// A value that can be read. It borrows what it holds from the bytes it was read from.
pub trait Decode<'a>: Describe + Copy {
    /// Reads one value.
    ///
    /// # Errors
    ///
    /// When the bytes are no value of this type.
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;

    /// Passes over one value, checking it as [`decode`](Decode::decode) does.
    ///
    /// # Errors
    ///
    /// As [`decode`](Decode::decode).
    #[inline]
    fn skip(decoder: &mut Decoder<'a>) -> Result<(), DecodeError> {
        match Self::FIXED_BYTES {
            Some(bytes) => decoder.take(bytes).map(drop),
            None => Self::decode(decoder).map(drop),
        }
    }

    /// The value a key stands for, for the types a list of keys can be given as.
    #[doc(hidden)]
    fn from_key(_key: WireStr<'a>) -> Option<Self> {
        None
    }
}

/// A string of the protocol: bytes, nearly always UTF-8.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireStr<'a>(&'a [u8]);

impl<'a> WireStr<'a> {
    /// A string of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        WireStr(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, if it is UTF-8.
    #[must_use]
    pub const fn to_str(self) -> Option<&'a str> {
        match std::str::from_utf8(self.0) {
            Ok(text) => Some(text),
            Err(_) => None,
        }
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for WireStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for WireStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            if chunk.invalid().is_empty() { Ok(()) } else { f.write_str("\u{fffd}") }
        })
    }
}

impl<'a> From<&'a str> for WireStr<'a> {
    fn from(text: &'a str) -> Self {
        WireStr(text.as_bytes())
    }
}

impl<'a> From<&'a String> for WireStr<'a> {
    fn from(text: &'a String) -> Self {
        WireStr(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for WireStr<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        WireStr(bytes)
    }
}

impl PartialEq<str> for WireStr<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for WireStr<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl Describe for WireStr<'_> {
    const MIN_BYTES: usize = 1;

    fn literal(_: Dialect, out: &mut Vec<u8>) {
        out.extend([literal::STRING, literal::CHAR]);
    }
}

impl Encode for WireStr<'_> {
    #[inline]
    fn measure(&self, measure: &mut Measure) {
        measure.size(self.0.len());
    }

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        encoder.size(self.0.len());
        encoder.bytes(self.0);
    }

    fn visit(&self, _: Dialect, visitor: &mut dyn Visitor) {
        visitor.text(*self);
    }
}

impl<'a> Decode<'a> for WireStr<'a> {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let len = decoder.size()?;
        decoder.take_long(len).map(WireStr)
    }

    fn from_key(key: WireStr<'a>) -> Option<Self> {
        Some(key)
    }
}

/// A client, a segment: 128 bits in two halves.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    /// The half that travels first.
    pub first: u64,
    /// The half that travels second.
    pub second: u64,
}

impl Uuid {
    /// From its halves.
    #[must_use]
    pub const fn new(first: u64, second: u64) -> Self {
        Uuid { first, second }
    }

    /// One that nobody else has, as good as certainly. Not for secrets.
    #[must_use]
    pub fn random() -> Self {
        let half = || RandomState::new().hash_one(Instant::now());
        Uuid { first: half(), second: half() }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.first, self.second)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Describe for Uuid {
    const MIN_BYTES: usize = 16;
    const FIXED_BYTES: Option<usize> = Some(16);

    /// The one type that travels as its memory image: its literal ends in packing and alignment, eight bytes each.
    fn literal(_: Dialect, out: &mut Vec<u8>) {
        out.extend([literal::STRUCT, literal::U64, literal::U64]);
        literal::push_size(align_of::<u64>(), out);
        literal::push_size(align_of::<u64>(), out);
        out.push(literal::END);
    }
}

impl Encode for Uuid {
    #[inline]
    fn measure(&self, _: &mut Measure) {}

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        encoder.bytes(&self.first.to_le_bytes());
        encoder.bytes(&self.second.to_le_bytes());
    }

    fn visit(&self, _: Dialect, visitor: &mut dyn Visitor) {
        visitor.open_list(2);
        visitor.unsigned(self.first);
        visitor.unsigned(self.second);
        visitor.close();
    }
}

impl<'a> Decode<'a> for Uuid {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let first = u64::decode(decoder)?;
        Ok(Uuid { first, second: u64::decode(decoder)? })
    }
}

macro_rules! integer {
    ($($type:ty, $literal:ident, $told:ident;)*) => {$(
        impl Describe for $type {
            const MIN_BYTES: usize = size_of::<$type>();
            const FIXED_BYTES: Option<usize> = Some(size_of::<$type>());

            fn literal(_: Dialect, out: &mut Vec<u8>) {
                out.push(literal::$literal);
            }
        }

        impl Encode for $type {
            #[inline]
            fn measure(&self, _: &mut Measure) {}

            #[inline]
            fn encode(&self, encoder: &mut Encoder<'_>) {
                encoder.bytes(&self.to_le_bytes());
            }

            fn visit(&self, _: Dialect, visitor: &mut dyn Visitor) {
                visitor.$told((*self).into());
            }
        }

        impl<'a> Decode<'a> for $type {
            #[inline]
            fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                decoder.array().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

integer! {
    u8, U8, unsigned;
    u16, U16, unsigned;
    i32, I32, signed;
    i64, I64, signed;
    u64, U64, unsigned;
}

impl Describe for bool {
    const MIN_BYTES: usize = 1;

    fn literal(_: Dialect, out: &mut Vec<u8>) {
        out.push(literal::BOOL);
    }
}

impl Encode for bool {
    #[inline]
    fn measure(&self, _: &mut Measure) {}

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        encoder.bytes(&[u8::from(*self)]);
    }

    fn visit(&self, _: Dialect, visitor: &mut dyn Visitor) {
        visitor.boolean(*self);
    }
}

impl<'a> Decode<'a> for bool {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        decoder.flag()
    }
}

impl Describe for () {
    const MIN_BYTES: usize = 0;
    const FIXED_BYTES: Option<usize> = Some(0);

    fn literal(_: Dialect, out: &mut Vec<u8>) {
        out.push(literal::VOID);
    }
}

impl Encode for () {
    #[inline]
    fn measure(&self, _: &mut Measure) {}

    #[inline]
    fn encode(&self, _: &mut Encoder<'_>) {}

    fn visit(&self, _: Dialect, visitor: &mut dyn Visitor) {
        visitor.nothing();
    }
}

impl<'a> Decode<'a> for () {
    #[inline]
    fn decode(_: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<T: Describe> Describe for Option<T> {
    const MIN_BYTES: usize = 1;

    fn literal(dialect: Dialect, out: &mut Vec<u8>) {
        out.push(literal::OPTIONAL);
        T::literal(dialect, out);
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn measure(&self, measure: &mut Measure) {
        if let Some(value) = self {
            value.measure(measure);
        }
    }

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        self.is_some().encode(encoder);
        if let Some(value) = self {
            value.encode(encoder);
        }
    }

    fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor) {
        match self {
            Some(value) => value.visit(dialect, visitor),
            None => visitor.nothing(),
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if decoder.flag()? { T::decode(decoder).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn skip(decoder: &mut Decoder<'a>) -> Result<(), DecodeError> {
        if decoder.flag()? { T::skip(decoder) } else { Ok(()) }
    }
}

/// What a handler of the master answers: a value or one of its error codes.
pub type Outcome<T> = Result<T, ErrorCode>;

impl<T: Describe> Describe for Outcome<T> {
    const MIN_BYTES: usize = if T::MIN_BYTES < 4 { 1 + T::MIN_BYTES } else { 5 };

    fn literal(dialect: Dialect, out: &mut Vec<u8>) {
        out.push(literal::EXPECTED);
        T::literal(dialect, out);
        ErrorCode::literal(dialect, out);
    }
}

impl<T: Encode> Encode for Outcome<T> {
    #[inline]
    fn measure(&self, measure: &mut Measure) {
        if let Ok(value) = self {
            value.measure(measure);
        }
    }

    #[inline]
    fn encode(&self, encoder: &mut Encoder<'_>) {
        self.is_ok().encode(encoder);
        match self {
            Ok(value) => value.encode(encoder),
            Err(code) => code.encode(encoder),
        }
    }

    fn visit(&self, dialect: Dialect, visitor: &mut dyn Visitor) {
        visitor.open_record();
        match self {
            Ok(value) => {
                visitor.name("ok");
                value.visit(dialect, visitor);
            }
            Err(code) => {
                visitor.name("err");
                code.visit(dialect, visitor);
            }
        }
        visitor.close();
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Outcome<T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if decoder.flag()? { T::decode(decoder).map(Ok) } else { ErrorCode::decode(decoder).map(Err) }
    }

    #[inline]
    fn skip(decoder: &mut Decoder<'a>) -> Result<(), DecodeError> {
        if decoder.flag()? { T::skip(decoder) } else { ErrorCode::skip(decoder) }
    }
}
