#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::poll_events_reply(data));
