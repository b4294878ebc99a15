#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cpu_placement_fuzz::check_sets(data));
