//! Traces that are made, not stored.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub(crate) struct Material {
    pub(crate) path: PathBuf,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// Bytes of ids and keys.
    pub(crate) string_bytes: u64,
}

/// What the ids of a trace look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    Counted,
    Scattered,
}

/// Reads of one key each, none of which is there; at so many a second, or all at once. 176 bytes a line, as in the trace
/// with which upstream's replayer was measured; keys end in something like a SHA-256, in no order.
pub(crate) fn one_key_events(folder: &Path, events: u64, rate: u64, ids: Ids) -> Material {
    let path = folder.join(format!("exist-{events}-{rate}-{ids:?}.jsonl"));
    let mut out = BufWriter::new(File::create(&path).expect("a file"));
    writeln!(out, r#"{{"type":"master_rpc_trace","version":1,"time_unit":"us"}}"#).expect("written");
    let mut string_bytes = 0;
    for event in 0..events {
        let due_us = (event * 1_000_000).checked_div(rate).unwrap_or(0);
        let id = match ids {
            Ids::Counted => format!("event-{event:09}"),
            Ids::Scattered => format!("ev-{:012x}", scattered(event) >> 16),
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|word| scattered(4 * event + word));
        let key = format!("model-7b/tp-0/{a:016x}{b:016x}{c:016x}{d:016x}");
        string_bytes += (id.len() + key.len()) as u64;
        writeln!(
            out,
            r#"{{"id":"{id}","timestamp_us":{due_us},"client_id":"worker-{}","op":"BatchExistKey","keys":["{key}"]}}"#,
            event % 8
        )
        .expect("written");
    }
    out.flush().expect("written");
    let bytes = path.metadata().expect("a file").len();
    Material { path, events, bytes, string_bytes }
}

/// Every number becomes another one (the finaliser of SplitMix64).
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
