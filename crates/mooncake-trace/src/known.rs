use canonical_json::Sha256;
use serde::{Deserialize, Serialize};

/// A trace that was published, named by the digest of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownTrace {
    /// The name this project gives it.
    pub name: &'static str,
    /// Who published it, and under which name.
    pub origin: &'static str,
    /// Its rows.
    pub rows: u64,
    /// Its digest.
    pub sha256: Sha256,
    /// Windows of it that campaigns have used.
    pub windows: &'static [KnownWindow],
}

/// A window of a published trace, named by the digest of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownWindow {
    /// Rows before it.
    pub offset: u64,
    /// Rows in it.
    pub count: u64,
    /// Its digest.
    pub sha256: Sha256,
}

/// What a digest was recognised as: a published trace, or a window of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recognised {
    /// [`KnownTrace::name`].
    pub trace: String,
    /// Rows of the trace before the bytes recognised.
    pub offset: u64,
    /// Rows in the bytes recognised.
    pub count: u64,
    /// Whether that is the whole trace.
    pub whole: bool,
}

/// The published traces, by digests computed from the published files.
const PUBLISHED: &[KnownTrace] = &[
    KnownTrace {
        name: "mooncake-conversation",
        origin: "kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl",
        rows: 12_031,
        sha256: hex("b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"),
        windows: &[KnownWindow {
            offset: 0,
            count: 5_000,
            sha256: hex("c2157405477e02aeaaa01e5fcc9794bd9ac146f64643a03aef067853471356b0"),
        }],
    },
    KnownTrace {
        name: "mooncake-synthetic",
        origin: "kvcache-ai/Mooncake, FAST25-release/traces/synthetic_trace.jsonl",
        rows: 3_993,
        sha256: hex("bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131"),
        windows: &[],
    },
    KnownTrace {
        name: "mooncake-arxiv",
        origin: "kvcache-ai/Mooncake, FAST25-release/arxiv-trace/mooncake_trace.jsonl",
        rows: 23_608,
        sha256: hex("b434f1816a707f4bac697235588184ebc374c9907cb981bb65fb0643471fe711"),
        windows: &[KnownWindow {
            offset: 0,
            count: 5_000,
            sha256: hex("3892ae19ae480b643155f0c6b9d798591cbe2e73bec6a0fa5ae3d3bc0332fb8a"),
        }],
    },
    KnownTrace {
        name: "dynamo-bench-1000",
        origin: "ai-dynamo/dynamo, lib/bench/testdata/mooncake_trace_1000.jsonl",
        rows: 1_000,
        sha256: hex("e2bec9bccd21978f69a2ace7886ee2e5192a64839f7aa2c4dd5d8766fd392510"),
        windows: &[],
    },
];

/// Every trace that [`recognise`] knows.
#[must_use]
pub const fn published() -> &'static [KnownTrace] {
    PUBLISHED
}

/// Names the published trace, or the window of one, that has this digest.
///
/// ```
/// let digest = "3892ae19ae480b643155f0c6b9d798591cbe2e73bec6a0fa5ae3d3bc0332fb8a".parse()?;
/// let window = mooncake_trace::recognise(&digest).expect("the golden window");
/// assert_eq!((window.trace.as_str(), window.offset, window.count), ("mooncake-arxiv", 0, 5_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn recognise(digest: &Sha256) -> Option<Recognised> {
    PUBLISHED.iter().find_map(|known| known.recognise(digest))
}

impl KnownTrace {
    fn recognise(&self, digest: &Sha256) -> Option<Recognised> {
        if self.sha256 == *digest {
            return Some(self.recognised(0, self.rows, true));
        }
        let window = self.windows.iter().find(|window| window.sha256 == *digest)?;
        Some(self.recognised(window.offset, window.count, false))
    }

    fn recognised(&self, offset: u64, count: u64, whole: bool) -> Recognised {
        Recognised { trace: self.name.to_owned(), offset, count, whole }
    }
}

/// A digest in the table above; a typing error there does not compile.
const fn hex(text: &str) -> Sha256 {
    let text = text.as_bytes();
    assert!(text.len() == 64, "a SHA-256 has 64 digits");
    let mut bytes = [0; 32];
    let mut index = 0;
    while index < 32 {
        bytes[index] = nibble(text[2 * index]) << 4 | nibble(text[2 * index + 1]);
        index += 1;
    }
    Sha256::from_bytes(bytes)
}

const fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => panic!("a digest is written in lower-case hexadecimal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_written_as_it_is_read() {
        for known in published() {
            let text = known.sha256.to_string();
            assert_eq!(text.parse::<Sha256>().unwrap(), known.sha256);
            assert_eq!(recognise(&known.sha256), Some(known.recognised(0, known.rows, true)));
            for window in known.windows {
                let expected = known.recognised(window.offset, window.count, false);
                assert_eq!(recognise(&window.sha256), Some(expected));
                assert!(window.offset + window.count <= known.rows);
            }
        }
        assert_eq!(
            hex("b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df").as_bytes()[31],
            0xdf
        );
    }

    #[test]
    fn other_bytes_are_not_recognised() {
        assert_eq!(recognise(&Sha256::from_bytes([0; 32])), None);
    }

    #[test]
    fn names_and_digests_are_different() {
        let mut digests: Vec<_> = published().iter().map(|known| known.sha256).collect();
        digests.extend(published().iter().flat_map(|known| known.windows).map(|window| window.sha256));
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }
}
