//! Type literals and the hashes taken from them.

use md5::{Digest, Md5};

pub(crate) const I32: u8 = 0x01;
pub(crate) const I64: u8 = 0x03;
pub(crate) const U64: u8 = 0x04;
pub(crate) const U8: u8 = 0x06;
pub(crate) const U16: u8 = 0x08;
pub(crate) const BOOL: u8 = 0x0b;
pub(crate) const CHAR: u8 = 0x0c;
pub(crate) const STRING: u8 = 0x80;
pub(crate) const VECTOR: u8 = 0x84;
pub(crate) const OPTIONAL: u8 = 0x85;
pub(crate) const VARIANT: u8 = 0x86;
pub(crate) const EXPECTED: u8 = 0x87;
pub(crate) const VOID: u8 = 0xfa;
pub(crate) const STRUCT: u8 = 0xfd;
pub(crate) const END: u8 = 0xff;

/// Appends a number as literals hold it: base 127, least significant digit first, the last digit marked.
pub(crate) fn push_size(mut number: usize, out: &mut Vec<u8>) {
    let digit = |value: usize| u8::try_from(value % 127).expect("a remainder of 127 fits a byte");
    while number >= 127 {
        out.push(digit(number) + 1);
        number /= 127;
    }
    out.push(digit(number) + 129);
}

/// The first four bytes of the MD5 digest, as a big-endian number.
fn digest_head(bytes: &[u8]) -> u32 {
    let digest = Md5::digest(bytes);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// The hash of a type, whose lowest bit the envelope uses for itself.
pub(crate) fn type_hash(literal: &[u8]) -> u32 {
    digest_head(literal) & !1
}

/// The id the master gives the handler of a call.
pub(crate) fn function_id(name: &str) -> u32 {
    digest_head(format!("mooncake::WrappedMasterService::{name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |number, expected: &[u8]| {
            let mut out = Vec::new();
            push_size(number, &mut out);
            assert_eq!(out, expected, "{number}");
        };
        check(0, &[129]);
        check(8, &[0x89]);
        check(126, &[255]);
        check(127, &[1, 130]);
        check(127 * 127 + 5, &[6, 1, 130]);
    }
}
