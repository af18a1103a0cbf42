#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::test_lock_reply(data));
