#![no_main]

libfuzzer_sys::fuzz_target!(|case: targets::division::Case| targets::division::run(&case));
