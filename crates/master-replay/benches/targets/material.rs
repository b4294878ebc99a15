//! Traces that are made, not stored.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub(crate) struct Material {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Bytes of ids and keys.
    pub(crate) string_bytes: u64,
}

/// Reads of one key each, none of which is there; at so many a second, or all at once.
pub(crate) fn one_key_events(folder: &Path, events: u64, rate: u64) -> Material {
    let path = folder.join(format!("exist-{events}-{rate}.jsonl"));
    let mut out = BufWriter::new(File::create(&path).expect("a file"));
    writeln!(out, r#"{{"type":"master_rpc_trace","version":1,"time_unit":"us"}}"#).expect("written");
    let mut string_bytes = 0;
    for event in 0..events {
        let due_us = (event * 1_000_000).checked_div(rate).unwrap_or(0);
        let (id, key) = (
            format!("event-{event:09}"),
            format!("model-7b/block-{:032x}", u128::from(event) * 0x9E37_79B9_7F4A_7C15),
        );
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
    Material { path, bytes, string_bytes }
}
