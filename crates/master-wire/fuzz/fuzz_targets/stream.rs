#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| master_wire_fuzz::check_stream(data));
