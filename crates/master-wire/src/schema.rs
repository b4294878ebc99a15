//! The words the schema is written in. Each describes a type once; literal, size, writer and reader follow.

/// A number with names: any value can travel, some have a name, in some dialects.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident($repr:ident) {
            $( $(#[$value_meta:meta])* $constant:ident = $number:literal, $text:literal $([$($range:tt)*])?; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            $(
                $(#[$value_meta])*
                #[doc = concat!("`", $text, "` on the wire: ", stringify!($number), ".")]
                pub const $constant: $name = $name($number);
            )*

            /// Every value that has a name.
            pub const NAMED: &'static [$name] = &[$($name($number)),*];

            const TABLE: &'static [($repr, &'static str, $crate::dialect::DialectRange)] =
                &[$(($number, $text, $crate::dialect::dialects!($($($range)*)?))),*];

            /// The name the master's sources give the value.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                $crate::error::entry(Self::TABLE, self.0).map(|entry| entry.1)
            }

            /// The value of a name.
            #[must_use]
            pub fn of_name(name: &str) -> Option<$name> {
                Self::TABLE.iter().find(|entry| entry.1 == name).map(|entry| $name(entry.0))
            }

            /// Whether masters of this dialect know the value.
            #[must_use]
            pub fn exists_in(self, dialect: $crate::dialect::Dialect) -> bool {
                $crate::error::entry(Self::TABLE, self.0).is_some_and(|entry| entry.2.contains(dialect))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::error::write_code(f, self.name(), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl $crate::wire::Describe for $name {
            const MIN_BYTES: usize = <$repr as $crate::wire::Describe>::MIN_BYTES;
            const FIXED_BYTES: Option<usize> = <$repr as $crate::wire::Describe>::FIXED_BYTES;

            fn literal(dialect: $crate::dialect::Dialect, out: &mut Vec<u8>) {
                <$repr as $crate::wire::Describe>::literal(dialect, out);
            }
        }

        impl $crate::wire::Encode for $name {
            #[inline]
            fn measure(&self, _: &mut $crate::codec::Measure) {}

            #[inline]
            fn encode(&self, encoder: &mut $crate::codec::Encoder<'_>) {
                self.0.encode(encoder);
            }

            fn visit(&self, dialect: $crate::dialect::Dialect, visitor: &mut dyn $crate::visit::Visitor) {
                self.0.visit(dialect, visitor);
            }
        }

        impl<'a> $crate::wire::Decode<'a> for $name {
            #[inline]
            fn decode(decoder: &mut $crate::codec::Decoder<'a>) -> Result<Self, $crate::error::DecodeError> {
                <$repr as $crate::wire::Decode<'a>>::decode(decoder).map($name)
            }
        }
    };
}

/// Members in wire order, each `name: Type [dialects] = default;` where no dialects means all of them.
///
/// A `structure` always has its marks around it. A `tuple` has them only in the dialects where it holds two members or
/// more, which is how the arguments of a call travel. A `keyed` record is a tuple that is its key alone in some dialects.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $kind:ident $name:ident $(<$life:lifetime>)? {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty $([$($range:tt)*])? $(= $default:expr)?; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                $name { $($field: $crate::schema::default_of!($($default)?),)* }
            }
        }

        impl $(<$life>)? $crate::wire::Describe for $name $(<$life>)? {
            const MIN_BYTES: usize = 0 $(+ if $crate::dialect::dialects!($($($range)*)?).is_all() {
                <$type as $crate::wire::Describe>::MIN_BYTES
            } else {
                0
            })*;

            #[allow(unused_variables, reason = "a call without arguments has no member")]
            fn literal(dialect: $crate::dialect::Dialect, out: &mut Vec<u8>) {
                let members: usize = 0 $(+ usize::from($crate::dialect::dialects!($($($range)*)?).contains(dialect)))*;
                let marked = $crate::schema::marked!($kind, members);
                if marked {
                    out.push($crate::literal::STRUCT);
                }
                $(if $crate::dialect::dialects!($($($range)*)?).contains(dialect) {
                    <$type as $crate::wire::Describe>::literal(dialect, out);
                })*
                if marked {
                    out.push($crate::literal::END);
                }
            }
        }

        impl $(<$life>)? $crate::wire::Encode for $name $(<$life>)? {
            #[inline]
            #[allow(unused_variables, reason = "a call without arguments has no member")]
            fn measure(&self, measure: &mut $crate::codec::Measure) {
                $(if $crate::dialect::dialects!($($($range)*)?).contains(measure.dialect()) {
                    $crate::wire::Encode::measure(&self.$field, measure);
                } else {
                    let default: $type = $crate::schema::default_of!($($default)?);
                    if self.$field != default {
                        measure.refuse(stringify!($field));
                    }
                })*
            }

            #[inline]
            #[allow(unused_variables, reason = "a call without arguments has no member")]
            fn encode(&self, encoder: &mut $crate::codec::Encoder<'_>) {
                $(if $crate::dialect::dialects!($($($range)*)?).contains(encoder.dialect()) {
                    $crate::wire::Encode::encode(&self.$field, encoder);
                })*
            }

            #[allow(unused_variables, reason = "a call without arguments has no member")]
            fn visit(&self, dialect: $crate::dialect::Dialect, visitor: &mut dyn $crate::visit::Visitor) {
                let members: usize = 0 $(+ usize::from($crate::dialect::dialects!($($($range)*)?).contains(dialect)))*;
                let bare = $crate::schema::bare!($kind, members);
                if !bare {
                    visitor.open_record();
                }
                $(if $crate::dialect::dialects!($($($range)*)?).contains(dialect) {
                    if !bare {
                        visitor.name(stringify!($field));
                    }
                    $crate::wire::Encode::visit(&self.$field, dialect, visitor);
                })*
                if !bare {
                    visitor.close();
                }
            }
        }

        impl<'a> $crate::wire::Decode<'a> for $name $(<$life>)? {
            #[inline]
            #[allow(unused_variables, reason = "a call without arguments has no member")]
            fn decode(decoder: &mut $crate::codec::Decoder<'a>) -> Result<Self, $crate::error::DecodeError> {
                Ok($name { $(
                    $field: if $crate::dialect::dialects!($($($range)*)?).contains(decoder.dialect()) {
                        <$type as $crate::wire::Decode<'a>>::decode(decoder)?
                    } else {
                        $crate::schema::default_of!($($default)?)
                    },
                )* })
            }

            #[inline]
            #[allow(unused_mut, unused_variables, reason = "a call without arguments has no member")]
            fn skip(decoder: &mut $crate::codec::Decoder<'a>) -> Result<(), $crate::error::DecodeError> {
                // Neighbours of fixed size are passed over together.
                let mut fixed = 0;
                $(if $crate::dialect::dialects!($($($range)*)?).contains(decoder.dialect()) {
                    if let Some(bytes) = <$type as $crate::wire::Describe>::FIXED_BYTES {
                        fixed += bytes;
                    } else {
                        if fixed > 0 {
                            decoder.take(fixed)?;
                            fixed = 0;
                        }
                        <$type as $crate::wire::Decode<'a>>::skip(decoder)?;
                    }
                })*
                if fixed > 0 {
                    decoder.take(fixed)?;
                }
                Ok(())
            }

            $crate::schema::from_key!($kind, $name);
        }
    };
}

/// One of several alternatives, each `Name(Type) "name" [dialects];`. In each dialect those it has are numbered from 0.
macro_rules! variant {
    (
        $(#[$meta:meta])*
        $name:ident<$life:lifetime> {
            $( $(#[$alternative_meta:meta])* $alternative:ident($type:ty) $text:literal $([$($range:tt)*])?; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $name<$life> {
            $( $(#[$alternative_meta])* $alternative($type), )*
        }

        impl<$life> $crate::wire::Describe for $name<$life> {
            const MIN_BYTES: usize = 1;

            fn literal(dialect: $crate::dialect::Dialect, out: &mut Vec<u8>) {
                out.push($crate::literal::VARIANT);
                $(if $crate::dialect::dialects!($($($range)*)?).contains(dialect) {
                    <$type as $crate::wire::Describe>::literal(dialect, out);
                })*
                out.push($crate::literal::END);
            }
        }

        impl<$life> $crate::wire::Encode for $name<$life> {
            #[inline]
            fn measure(&self, measure: &mut $crate::codec::Measure) {
                match self {$(
                    $name::$alternative(value) => {
                        if !$crate::dialect::dialects!($($($range)*)?).contains(measure.dialect()) {
                            measure.refuse($text);
                        }
                        $crate::wire::Encode::measure(value, measure);
                    }
                )*}
            }

            #[inline]
            fn encode(&self, encoder: &mut $crate::codec::Encoder<'_>) {
                let dialect = encoder.dialect();
                let mut index: u8 = 0;
                $(
                    if let $name::$alternative(value) = self {
                        encoder.bytes(&[index]);
                        return $crate::wire::Encode::encode(value, encoder);
                    }
                    index += u8::from($crate::dialect::dialects!($($($range)*)?).contains(dialect));
                )*
                unreachable!("one of the {index} alternatives is held");
            }

            fn visit(&self, dialect: $crate::dialect::Dialect, visitor: &mut dyn $crate::visit::Visitor) {
                visitor.open_record();
                match self {$(
                    $name::$alternative(value) => {
                        visitor.name($text);
                        $crate::wire::Encode::visit(value, dialect, visitor);
                    }
                )*}
                visitor.close();
            }
        }

        impl<$life> $crate::wire::Decode<$life> for $name<$life> {
            #[inline]
            fn decode(decoder: &mut $crate::codec::Decoder<$life>) -> Result<Self, $crate::error::DecodeError> {
                let offset = decoder.offset();
                let [index] = decoder.array()?;
                let mut known: u8 = 0;
                $(if $crate::dialect::dialects!($($($range)*)?).contains(decoder.dialect()) {
                    if index == known {
                        return <$type as $crate::wire::Decode<$life>>::decode(decoder).map($name::$alternative);
                    }
                    known += 1;
                })*
                Err($crate::error::DecodeError::Alternative { index, offset, known, dialect: decoder.dialect() })
            }

            #[inline]
            fn skip(decoder: &mut $crate::codec::Decoder<$life>) -> Result<(), $crate::error::DecodeError> {
                let offset = decoder.offset();
                let [index] = decoder.array()?;
                let mut known: u8 = 0;
                $(if $crate::dialect::dialects!($($($range)*)?).contains(decoder.dialect()) {
                    if index == known {
                        return <$type as $crate::wire::Decode<$life>>::skip(decoder);
                    }
                    known += 1;
                })*
                Err($crate::error::DecodeError::Alternative { index, offset, known, dialect: decoder.dialect() })
            }
        }
    };
}

/// A member's value where its dialect has none.
macro_rules! default_of {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

macro_rules! marked {
    (structure, $members:ident) => {
        true
    };
    (tuple, $members:ident) => {
        $members > 1
    };
    (keyed, $members:ident) => {
        $members > 1
    };
}

/// A `keyed` record can be made of its key alone.
macro_rules! from_key {
    (keyed, $name:ident) => {
        fn from_key(key: $crate::wire::WireStr<'a>) -> Option<Self> {
            Some($name { key, ..$name::default() })
        }
    };
    ($kind:ident, $name:ident) => {};
}

/// Whether a visitor sees the only member in place of the record.
macro_rules! bare {
    (keyed, $members:ident) => {
        $members == 1
    };
    ($kind:ident, $members:ident) => {
        false
    };
}

pub(crate) use {bare, default_of, from_key, marked, open_enum, record, variant};
