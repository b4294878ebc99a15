//! Documents of several kinds, always the same ones.

/// A document in memory; the members of objects are in order.
pub(crate) enum Value {
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

/// A sequence of numbers that only depends on its seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    /// A number of milliseconds as a simulator writes it.
    fn milliseconds(&mut self) -> Value {
        let whole = f64::from(u32::try_from(self.next() >> 44).expect("20 bits"));
        let part = f64::from(u32::try_from(self.next() >> 32).expect("32 bits"));
        Value::Text(format!("{:?}", whole + part / 4_294_967_296.0))
    }
}

fn text(text: impl ToString) -> Value {
    Value::Text(text.to_string())
}

fn string(text: &str) -> Value {
    Value::Text(format!("\"{text}\""))
}

fn object(members: Vec<(&str, Value)>) -> Value {
    let mut members: Vec<_> = members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    members.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(members)
}

/// Makes a document of about so many bytes, in canonical form.
pub(crate) type Kind = fn(&mut Random, usize) -> Value;

pub(crate) const KINDS: [(&str, Kind); 5] = [
    ("report", report),
    ("deep", deep),
    ("strings", strings),
    ("numbers", numbers),
    ("small objects", small_objects),
];

pub(crate) fn document(kind: Kind, bytes: usize) -> Value {
    kind(&mut Random::new(7), bytes)
}

fn records(bytes: usize, length: usize, mut record: impl FnMut(usize) -> Value) -> Vec<Value> {
    (0..bytes / length).map(&mut record).collect()
}

/// A replay report of Dynamo's harness: many wide records with long numbers and many nulls.
fn report(random: &mut Random, bytes: usize) -> Value {
    let requests = records(bytes, 1_900, |ordinal| request(random, ordinal));
    let summary = object(vec![
        ("completed_requests", text(requests.len())),
        ("mean_ttft_ms", random.milliseconds()),
        ("p99_e2e_latency_ms", random.milliseconds()),
        ("total_input_tokens", text(65_330_959)),
    ]);
    object(vec![("per_request", Value::Array(requests)), ("planner", text("null")), ("summary", summary)])
}

fn request(random: &mut Random, ordinal: usize) -> Value {
    let null = || text("null");
    let tokens = |random: &mut Random| text(random.below(20_000));
    let admission = object(vec![
        ("admission_ordinal", text(0)),
        ("at_ms", random.milliseconds()),
        ("is_readmission", text("false")),
        ("pool", string("agg")),
        ("pool_admission_ordinal", text(ordinal)),
        ("reused_input_tokens", tokens(random)),
    ]);
    let routing = object(vec![
        ("best_available_overlap_blocks", text(random.below(400))),
        ("dp_rank", text(0)),
        ("logical_worker_id", text(random.below(4))),
        ("outcome", string("immediate")),
        ("overlap_regret_blocks", text(0)),
        ("placement_replica_id", null()),
        ("pool", string("agg")),
        ("queue_entered_at_ms", null()),
        ("queue_wait_ms", text("0.0")),
        ("released_at_ms", null()),
        ("reported_overlap_tokens", tokens(random)),
        ("scheduler_id", text(random.below(4))),
        ("selected_overlap_blocks", text(random.below(400))),
    ]);
    object(vec![
        ("admission_count", text(1)),
        ("admission_history", Value::Array(vec![admission])),
        ("arrival_time_ms", random.milliseconds()),
        ("decode_admit_ms", null()),
        ("decode_reused_input_tokens", null()),
        ("decode_route_overlap_tokens", null()),
        ("decode_worker_idx", text(random.below(4))),
        ("destination_activated_ms", null()),
        ("destination_reserved_ms", null()),
        ("dispatched_at_ms", null()),
        ("e2e_latency_ms", random.milliseconds()),
        ("first_admit_ms", random.milliseconds()),
        ("first_token_ms", random.milliseconds()),
        ("input_length", tokens(random)),
        ("itl_ms", random.milliseconds()),
        ("last_token_ms", random.milliseconds()),
        ("output_length", text(random.below(900))),
        ("prefill_admit_ms", null()),
        ("prefill_route_overlap_tokens", null()),
        ("prefill_worker_idx", null()),
        ("pressure_record_ordinals", Value::Array(Vec::new())),
        ("readmission_count", text(0)),
        ("requested_output_length", text(random.below(900))),
        ("reused_input_tokens", tokens(random)),
        ("routing_history", Value::Array(vec![routing])),
        ("session_id", null()),
        ("source_held_ms", null()),
        ("source_released_ms", null()),
        ("terminal_status", string("completed")),
        ("terminal_time_ms", random.milliseconds()),
        ("ttft_ms", random.milliseconds()),
        ("ttst_ms", random.milliseconds()),
        ("turn_index", null()),
        ("uuid", string(&format!("00000000-0000-0000-0000-{ordinal:012x}"))),
    ])
}

/// Chains of objects and arrays, thirty-two of them one in the other.
fn deep(random: &mut Random, bytes: usize) -> Value {
    Value::Array(records(bytes, 640, |_| {
        (0..32).fold(text(random.below(100)), |inner, level| match random.below(4) {
            0 => Value::Array(vec![inner]),
            1 => Value::Array(vec![text(level), inner]),
            _ => object(vec![("child", inner), ("level", text(level)), ("name", string("node"))]),
        })
    }))
}

/// Names, words and short sentences, some with escapes, some in other scripts.
fn strings(random: &mut Random, bytes: usize) -> Value {
    const WORDS: [&str; 12] = [
        "the",
        "tokens",
        "of",
        "worker",
        "né",
        "キャッシュ",
        "tab\\tstop",
        "\\\"quoted\\\"",
        "line\\n",
        "C:\\\\path",
        "/usr/bin",
        "Größe",
    ];
    Value::Array(records(bytes, 30, |_| {
        let words: Vec<&str> = (0..=random.below(6)).map(|_| random.one(&WORDS)).collect();
        string(&words.join(" "))
    }))
}

/// Vectors of whole numbers and of doubles.
fn numbers(random: &mut Random, bytes: usize) -> Value {
    Value::Array(records(bytes, 64, |row| {
        Value::Array(
            (0..8)
                .map(|_| if row % 2 == 0 { text(random.below(100_000)) } else { random.double() })
                .collect(),
        )
    }))
}

impl Random {
    fn double(&mut self) -> Value {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        text(format!("{:?}", (unit - 0.5) * 10_f64.powi(i32::try_from(self.below(9)).expect("small") - 6)))
    }
}

fn small_objects(random: &mut Random, bytes: usize) -> Value {
    Value::Array(records(bytes, 36, |id| {
        let kind = random.one(&["on", "off", "idle"]);
        object(vec![("id", text(id)), ("state", string(kind)), ("x", text(random.below(1_000)))])
    }))
}

pub(crate) fn canonical(value: &Value) -> Vec<u8> {
    let mut out = String::new();
    write_canonical(&mut out, value);
    out.into_bytes()
}

fn write_canonical(out: &mut String, value: &Value) {
    match value {
        Value::Text(text) => out.push_str(text),
        Value::Array(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_canonical(out, value);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                out.push_str(if i > 0 { ",\"" } else { "\"" });
                out.push_str(key);
                out.push_str("\":");
                write_canonical(out, value);
            }
            out.push('}');
        }
    }
}

/// The same document on many lines, with the members of every object in another order.
pub(crate) fn shuffled_pretty(value: &Value) -> Vec<u8> {
    let mut out = String::new();
    write_pretty(&mut out, value, 0, &mut Random::new(11));
    out.push('\n');
    out.into_bytes()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

fn write_pretty(out: &mut String, value: &Value, depth: usize, random: &mut Random) {
    match value {
        Value::Text(text) => out.push_str(text),
        Value::Array(values) if values.is_empty() => out.push_str("[]"),
        Value::Array(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                new_line(out, depth + 1);
                write_pretty(out, value, depth + 1, random);
            }
            new_line(out, depth);
            out.push(']');
        }
        Value::Object(members) => {
            let mut left: Vec<_> = members.iter().collect();
            out.push('{');
            while !left.is_empty() {
                let (key, value) = left.swap_remove(random.below(left.len()));
                new_line(out, depth + 1);
                out.push('"');
                out.push_str(key);
                out.push_str("\": ");
                write_pretty(out, value, depth + 1, random);
                out.push_str(if left.is_empty() { "" } else { "," });
            }
            new_line(out, depth);
            out.push('}');
        }
    }
}
