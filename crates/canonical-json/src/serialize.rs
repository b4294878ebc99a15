//! Canonical bytes of anything that implements `serde::Serialize`.

use std::fmt::{self, Display, Write};

use serde::ser::{self, Serialize};
use thiserror::Error;

use crate::canonical::canonicalize;
use crate::text::Text;
use crate::write::push_escaped;
use crate::{CanonicalError, Limits, Rules};

/// Why a value has no canonical bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SerializeError {
    /// JSON has no infinities, and nothing that is not a number.
    #[error("the number {value} cannot be written")]
    NotFinite {
        /// The number.
        value: f64,
    },
    /// The keys of objects are strings; numbers and words are written as strings, anything else has no form.
    #[error("a key is {found}, not a string")]
    Key {
        /// What it is.
        found: &'static str,
    },
    /// Too many parts of the value are in each other.
    #[error("the value is more than {limit} {what} deep")]
    TooDeep {
        /// Objects and arrays, or options and newtypes.
        what: &'static str,
        /// How many of these are allowed.
        limit: usize,
    },
    /// The value has no canonical form: it has a key twice, or the rules do not fit it.
    #[error("the value has no canonical form")]
    Canonical(#[from] CanonicalError),
    /// The implementation of `Serialize` gave up.
    #[error("the value cannot be serialized: {message}")]
    Custom {
        /// What it said.
        message: String,
    },
}

/// The lexical form of a value.
///
/// Doubles are written with the fewest digits that read back as the same double, integers of any size with all their
/// digits. Numbers and values that `serde_json` keeps as text (its features `arbitrary_precision` and `raw_value`) stay
/// that text.
///
/// Whoever reads doubles back must read them exactly: `str::parse` does, and so does `serde_json` with its feature
/// `float_roundtrip`; without it, it can be off by one in the last bit.
///
/// As an implementation of `Serialize` calls itself for what is in a value, at most [`Limits::DEFAULT_MAX_DEPTH`] objects and arrays
/// may be in each other, and as many options and newtypes, which leave no trace in the text.
///
/// ```
/// let value = std::collections::HashMap::from([("b", 0.1), ("a", 1e300)]);
/// assert_eq!(canonical_json::to_canonical_vec(&value)?, br#"{"a":1e300,"b":0.1}"#);
/// # Ok::<(), canonical_json::SerializeError>(())
/// ```
///
/// # Errors
///
/// The value has no canonical form: a number is not finite, a key is not a string or is there twice, or it is too deep.
pub fn to_canonical_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, SerializeError> {
    to_canonical_vec_with(value, &Rules::default())
}

/// The canonical form of a value under these rules.
///
/// # Errors
///
/// As [`to_canonical_vec`]; or the rules do not fit the value.
pub fn to_canonical_vec_with<T: Serialize + ?Sized>(
    value: &T,
    rules: &Rules,
) -> Result<Vec<u8>, SerializeError> {
    let mut text = Vec::new();
    within(value, Serializer { out: &mut text, depth: Depth::default() })?;
    let mut canonical = Vec::with_capacity(text.len());
    canonicalize(&text, rules, &mut canonical)?;
    Ok(canonical)
}

impl ser::Error for SerializeError {
    fn custom<T: Display>(message: T) -> Self {
        SerializeError::Custom { message: message.to_string() }
    }
}

type Result<T, E = SerializeError> = std::result::Result<T, E>;

struct Serializer<'o> {
    out: &'o mut Vec<u8>,
    depth: Depth,
}

/// How many parts of a value are in each other, each of which takes machine stack.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    levels: usize,
    wrappers: usize,
}

impl Depth {
    const LIMIT: usize = Limits::DEFAULT_MAX_DEPTH;

    /// Inside of one more object or array.
    fn level(self) -> Result<Self> {
        match self.levels {
            Self::LIMIT => Err(SerializeError::TooDeep { what: "objects and arrays", limit: Self::LIMIT }),
            levels => Ok(Depth { levels: levels + 1, ..self }),
        }
    }

    /// Inside of one more of what is written as that which is in it.
    fn wrapper(self) -> Result<Self> {
        match self.wrappers {
            Self::LIMIT => Err(SerializeError::TooDeep { what: "options and newtypes", limit: Self::LIMIT }),
            wrappers => Ok(Depth { wrappers: wrappers + 1, ..self }),
        }
    }
}

/// As much stack as what lies between two calls of [`within`] may take: the implementation of `Serialize` of one value.
const STACK_LEFT_BYTES: usize = 128 << 10;

/// How much is added at once where less is left.
const STACK_ADDED_BYTES: usize = 1 << 20;

/// Serializes what is in another value, with room on the stack, whoever's thread this is.
fn within<T: Serialize + ?Sized>(value: &T, serializer: Serializer<'_>) -> Result<()> {
    stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || value.serialize(serializer))
}

impl<'o> Serializer<'o> {
    /// Inside of one more object or array, which begins here.
    fn open(self, open: &str, close: &'static str) -> Result<Compound<'o>> {
        let depth = self.depth.level()?;
        self.out.extend_from_slice(open.as_bytes());
        Ok(Compound { out: self.out, depth, is_first: true, close, is_text: false })
    }

    /// `{"variant":` and then what opens its content.
    fn open_variant(self, variant: &str, open: &str, close: &'static str) -> Result<Compound<'o>> {
        let Compound { out, depth, .. } = self.open("{", "")?;
        Serializer { out, depth }.string(variant)?;
        out.push(b':');
        Serializer { out, depth }.open(open, close)
    }

    fn wrapped<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        within(value, Serializer { depth: self.depth.wrapper()?, ..self })
    }

    fn put(self, text: impl Display) -> Result<()> {
        write!(Utf8(self.out), "{text}").expect("memory can be written");
        Ok(())
    }

    fn string(self, text: &str) -> Result<()> {
        self.out.push(b'"');
        push_escaped(self.out, text);
        self.out.push(b'"');
        Ok(())
    }

    fn float(self, value: f64, shortest: &dyn fmt::Debug) -> Result<()> {
        if !value.is_finite() {
            return Err(SerializeError::NotFinite { value });
        }
        // The debug form has an exponent where that is shorter, and always a point or an exponent.
        self.put(format_args!("{shortest:?}"))
    }
}

/// A vector that text is written to.
struct Utf8<'o>(&'o mut Vec<u8>);

impl Write for Utf8<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// An array or object that is being written, with what closes it.
struct Compound<'o> {
    out: &'o mut Vec<u8>,
    /// With itself.
    depth: Depth,
    is_first: bool,
    close: &'static str,
    /// It is not an object, but wraps the text of a value.
    is_text: bool,
}

/// The names of structs by which `serde_json` says that the string in them is the text of a value.
const TEXTS: [&str; 2] = ["$serde_json::private::Number", "$serde_json::private::RawValue"];

impl Compound<'_> {
    /// Of what is in it.
    fn inside(&mut self) -> Serializer<'_> {
        Serializer { out: self.out, depth: self.depth }
    }

    fn comma(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.comma();
        within(value, self.inside())
    }

    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<()> {
        if self.is_text {
            return self.text(value);
        }
        self.comma();
        self.inside().string(key)?;
        self.out.push(b':');
        within(value, self.inside())
    }

    /// Writes the text that this string is, which is read like all the rest once everything is written.
    fn text<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let mut quoted = Vec::new();
        value.serialize(Serializer { out: &mut quoted, depth: self.depth })?;
        let quoted = String::from_utf8(quoted).map_err(<SerializeError as ser::Error>::custom)?;
        let raw = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let raw =
            raw.ok_or_else(|| <SerializeError as ser::Error>::custom("the text of a value is not a string"))?;
        self.out.extend_from_slice(Text::new(raw, true).decode().as_bytes());
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.out.extend_from_slice(self.close.as_bytes());
        Ok(())
    }
}

macro_rules! put_as_is {
    ($($method:ident: $type:ty),+) => {
        $(fn $method(self, value: $type) -> Result<()> {
            self.put(value)
        })+
    };
}

impl<'o> ser::Serializer for Serializer<'o> {
    type Ok = ();
    type Error = SerializeError;
    type SerializeSeq = Compound<'o>;
    type SerializeTuple = Compound<'o>;
    type SerializeTupleStruct = Compound<'o>;
    type SerializeTupleVariant = Compound<'o>;
    type SerializeMap = Compound<'o>;
    type SerializeStruct = Compound<'o>;
    type SerializeStructVariant = Compound<'o>;

    put_as_is!(serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64);
    put_as_is!(serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);
    put_as_is!(serialize_u128: u128);

    fn serialize_f32(self, value: f32) -> Result<()> {
        self.float(value.into(), &value)
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        self.float(value, &value)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.string(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        self.string(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<()> {
        self.put("null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        self.wrapped(value)
    }

    fn serialize_unit(self) -> Result<()> {
        self.put("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.put("null")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        self.string(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        self.wrapped(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let mut object = self.open("{", "}")?;
        object.member(variant, value)?;
        object.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'o>> {
        self.open("[", "]")
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'o>> {
        self.open("[", "]")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'o>> {
        self.open("[", "]")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'o>> {
        self.open_variant(variant, "[", "]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'o>> {
        self.open("{", "}")
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'o>> {
        if TEXTS.contains(&name) {
            let Serializer { out, depth } = self;
            return Ok(Compound { out, depth, is_first: true, close: "", is_text: true });
        }
        self.open("{", "}")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'o>> {
        self.open_variant(variant, "{", "}}")
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<()> {
        self.string(&value.to_string())
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident),+) => {
        $(impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = SerializeError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.element(value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        })+
    };
}

elements!(SerializeSeq serialize_element, SerializeTuple serialize_element);
elements!(SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field);

macro_rules! members {
    ($($trait:ident),+) => {
        $(impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = SerializeError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
                self.member(key, value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        })+
    };
}

members!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = SerializeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.comma();
        let start = self.out.len();
        within(key, self.inside())?;
        self.quote_key(start)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out.push(b':');
        within(value, self.inside())
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl Compound<'_> {
    /// Makes a string of a key that was written as a value: numbers and words become strings.
    fn quote_key(&mut self, start: usize) -> Result<()> {
        match self.out.get(start) {
            Some(b'"') => Ok(()),
            Some(b'{') => Err(SerializeError::Key { found: "an object" }),
            Some(b'[') => Err(SerializeError::Key { found: "an array" }),
            Some(b'n') | None => Err(SerializeError::Key { found: "null" }),
            Some(_) => {
                self.out.insert(start, b'"');
                self.out.push(b'"');
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value as Json;

    use super::*;

    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Unit,
        Newtype(u8),
        Tuple(u8, u8),
        Struct { b: u8, a: u8 },
    }

    #[derive(serde::Serialize)]
    struct Everything<'a> {
        text: &'a str,
        kinds: Vec<Kind>,
        large: u128,
        small: i128,
        double: (f64, f64, f64, f32),
        nothing: Option<()>,
        character: char,
        map: BTreeMap<i32, bool>,
    }

    fn check<T: Serialize>(value: &T, expected: &str) {
        let bytes = to_canonical_vec(value).expect("a value");
        assert_eq!(String::from_utf8(bytes).as_deref(), Ok(expected));
    }

    #[test]
    fn every_kind_of_value() {
        let value = Everything {
            text: "a\"\n\u{1f}é",
            kinds: vec![Kind::Unit, Kind::Newtype(1), Kind::Tuple(2, 3), Kind::Struct { b: 4, a: 5 }],
            large: u128::MAX,
            small: i128::MIN,
            double: (1.0, 1e-7, -1e22, 0.1),
            nothing: None,
            character: '😀',
            map: BTreeMap::from([(-2, true), (10, false)]),
        };
        let expected = concat!(
            r#"{"character":"😀","double":[1.0,1e-7,-1e22,0.1],"kinds":["unit",{"newtype":1},{"tuple":[2,3]},"#,
            r#"{"struct":{"a":5,"b":4}}],"large":340282366920938463463374607431768211455,"map":{"-2":true,"10":false},"#,
            r#""nothing":null,"small":-170141183460469231731687303715884105728,"text":"a\"\n\u001fé"}"#,
        );
        check(&value, expected);
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        assert!(matches!(to_canonical_vec(&f64::NAN), Err(SerializeError::NotFinite { .. })));
        assert!(matches!(to_canonical_vec(&[f32::INFINITY]), Err(SerializeError::NotFinite { .. })));
        let map = BTreeMap::from([(vec![1], 1)]);
        assert!(matches!(to_canonical_vec(&map), Err(SerializeError::Key { found: "an array" })));
        assert!(matches!(
            to_canonical_vec(&BTreeMap::from([((), 1)])),
            Err(SerializeError::Key { found: "null" })
        ));
    }

    #[test]
    fn text_that_serde_json_keeps_is_kept() {
        let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).expect("a value");
        check(&raw("1.50e+007"), "1.50e+007");
        check(
            &BTreeMap::from([("b", raw(r#"{ "z": "\u0041\n\"", "a": 123456789012345678901234567890.10 }"#))]),
            r#"{"b":{"a":123456789012345678901234567890.10,"z":"A\n\""}}"#,
        );
    }

    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Nest {
        End,
        Newtype(Box<Nest>),
        Tuple(Box<Nest>, u8),
        Struct { inner: Box<Nest> },
    }

    #[derive(serde::Serialize)]
    struct Wrapper(Option<Box<Wrapper>>);

    /// Never dropped: that would take the stack, too.
    fn nested<T>(depth: usize, end: T, around: impl Fn(Box<T>) -> T) -> std::mem::ManuallyDrop<T> {
        std::mem::ManuallyDrop::new((0..depth).fold(end, |inner, _| around(Box::new(inner))))
    }

    #[test]
    fn too_deep_values_are_refused_before_the_stack_ends() {
        let values = || {
            for depth in [1_025, 200_000] {
                let errors = [
                    to_canonical_vec(&*nested(depth, Nest::End, Nest::Newtype)),
                    to_canonical_vec(&*nested(depth, Nest::End, |inner| Nest::Tuple(inner, 0))),
                    to_canonical_vec(&*nested(depth, Nest::End, |inner| Nest::Struct { inner })),
                    to_canonical_vec(&*nested(depth, Json::Null, |inner| Json::Array(vec![*inner]))),
                    to_canonical_vec(&*nested(depth, Wrapper(None), |inner| Wrapper(Some(inner)))),
                ];
                let what = errors.map(|result| match result {
                    Err(SerializeError::TooDeep { what, limit: 1_024 }) => what,
                    other => panic!("{other:?}"),
                });
                assert_eq!(what[..4], ["objects and arrays"; 4]);
                assert_eq!(what[4], "options and newtypes");
            }
            let text = to_canonical_vec(&*nested(1_024, Nest::End, Nest::Newtype)).expect("not too deep");
            assert_eq!(
                text,
                [r#"{"newtype":"#.repeat(1_024), r#""end""#.to_owned(), "}".repeat(1_024)]
                    .concat()
                    .as_bytes()
            );
            let text = to_canonical_vec(&*nested(511, Wrapper(None), |inner| Wrapper(Some(inner))));
            assert_eq!(text.expect("not too deep"), b"null");
        };
        for stack_bytes in [256 << 10, 2 << 20] {
            let thread = std::thread::Builder::new().stack_size(stack_bytes).spawn(values).expect("a thread");
            thread.join().expect("no panic");
        }
    }

    proptest::proptest! {
        /// What is written for a double reads back as that double, bit for bit.
        #[test]
        fn every_double_comes_back(bits: u64, single: f32) {
            let value = f64::from_bits(bits);
            proptest::prop_assume!(value.is_finite() && single.is_finite());
            let text = |value: &dyn Fn() -> Result<Vec<u8>>| String::from_utf8(value().expect("a number")).expect("text");
            let double: f64 = text(&|| to_canonical_vec(&value)).parse().expect("a number");
            proptest::prop_assert_eq!(double.to_bits(), bits);
            let read: f32 = text(&|| to_canonical_vec(&single)).parse().expect("a number");
            proptest::prop_assert_eq!(read.to_bits(), single.to_bits());
        }
    }

    #[test]
    fn rules_apply() {
        let rules = Rules::new(crate::Form::Jcs);
        assert_eq!(to_canonical_vec_with(&(1.0, 1e21), &rules).expect("a value"), b"[1,1e+21]");
    }

    #[test]
    fn the_public_types_are_read_back() {
        let text = r#"{"exclusions":[{"pattern":"/a/*","required":true}],"form":"jcs","unordered":[{"at":"/b","by":"/c"}]}"#;
        let rules: Rules = serde_json::from_str(text).expect("rules");
        check(&rules, text);
        assert!(serde_json::from_str::<Rules>(r#"{"exclude":[]}"#).is_err());
        let digest = crate::Sha256::of(b"");
        let text = format!("\"{digest}\"");
        assert_eq!(serde_json::from_str::<crate::Sha256>(&text).expect("a digest"), digest);
        check(&digest, &text);
    }
}
