use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use sha2::Digest;
use thiserror::Error;

/// A SHA-256 digest: thirty-two bytes, written as sixty-four lower-case hexadecimal digits.
///
/// ```
/// use canonical_json::Sha256;
///
/// let digest = Sha256::of(b"abc");
/// assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Sha256([u8; 32]);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Sha256 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Sha256".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A SHA-256 digest as lower-case hexadecimal digits.",
            "type": "string",
            "pattern": "^[0-9a-f]{64}$"
        })
    }
}

impl Sha256 {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Sha256(sha2::Sha256::digest(bytes).into())
    }

    /// The digest of everything a reader gives, and how many bytes that was; memory use is constant.
    ///
    /// # Errors
    ///
    /// The reader failed; an interrupted read is tried again.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok((Sha256(hasher.finalize().into()), total)),
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    total += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The digest of a file's bytes, as `sha256sum` gives it, and the file's length in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read.
    pub fn of_file(path: &Path) -> io::Result<(Self, u64)> {
        Self::of_reader(File::open(path)?)
    }

    /// A digest computed elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Sha256(bytes)
    }

    /// The thirty-two bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// SHA-256 of whole blocks, which are hashed elsewhere, and of what comes after them.
pub(crate) struct BlockHash {
    pub(crate) words: [u32; 8],
}

impl BlockHash {
    /// FIPS 180-4, section 5.3.3.
    pub(crate) const fn new() -> Self {
        let words =
            [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
        BlockHash { words }
    }

    /// The digest of a text of which all whole blocks were hashed.
    pub(crate) fn finish(self, text: &[u8]) -> Sha256 {
        let rest = text.as_chunks::<64>().1;
        self.finish_rest(rest, text.len() as u64)
    }

    /// The digest of so many bytes of which all but these last were hashed.
    pub(crate) fn finish_rest(mut self, rest: &[u8], bytes: u64) -> Sha256 {
        // A one bit, zeros, and the length in bits fill the last block, or the last two.
        let mut padded = [0; 128];
        padded[..rest.len()].copy_from_slice(rest);
        padded[rest.len()] = 0x80;
        let end = if rest.len() < 56 { 64 } else { 128 };
        padded[end - 8..end].copy_from_slice(&(bytes * 8).to_be_bytes());
        sha2::block_api::compress256(&mut self.words, padded[..end].as_chunks().0);
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(self.words) {
            *bytes = word.to_be_bytes();
        }
        Sha256(digest)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let hex = self
            .0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|half| char::from(DIGITS[usize::from(half)]));
        f.pad(&hex.collect::<String>())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl FromStr for Sha256 {
    type Err = ParseSha256Error;

    fn from_str(text: &str) -> Result<Self, ParseSha256Error> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseSha256Error::Length { found: text.chars().count() });
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(text, pair[0])? << 4 | hex_digit(text, pair[1])?;
        }
        Ok(Sha256(bytes))
    }
}

fn hex_digit(text: &str, digit: u8) -> Result<u8, ParseSha256Error> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(ParseSha256Error::Digit { text: text.to_owned() }),
    }
}

impl TryFrom<String> for Sha256 {
    type Error = ParseSha256Error;

    fn try_from(text: String) -> Result<Self, ParseSha256Error> {
        text.parse()
    }
}

impl From<Sha256> for String {
    fn from(digest: Sha256) -> String {
        digest.to_string()
    }
}

/// Why a text is not a SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseSha256Error {
    /// A digest has sixty-four digits.
    #[error("a SHA-256 digest has 64 hexadecimal digits, found {found} characters")]
    Length {
        /// How many characters the text has.
        found: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("`{text}` is not a SHA-256 digest: not all of it is hexadecimal")]
    Digit {
        /// The text.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_upper_case_is_read() {
        let digest = Sha256::of(b"");
        let text = digest.to_string();
        assert_eq!(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.to_uppercase().parse(), Ok(digest));
    }

    #[test]
    fn what_is_not_a_digest_is_refused() {
        assert_eq!("abc".parse::<Sha256>(), Err(ParseSha256Error::Length { found: 3 }));
        let text = "g".repeat(64);
        assert_eq!(text.parse::<Sha256>(), Err(ParseSha256Error::Digit { text: text.clone() }));
        assert!("é".repeat(32).parse::<Sha256>().is_err());
    }

    #[test]
    fn a_reader_gives_the_same_digest() {
        let bytes = vec![7; 200_000];
        let (digest, length) = Sha256::of_reader(bytes.as_slice()).expect("memory can be read");
        assert_eq!((digest, length), (Sha256::of(&bytes), 200_000));
    }
}
