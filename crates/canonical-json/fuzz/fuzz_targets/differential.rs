#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| canonical_json_fuzz::check_differential(data));
