#![no_main]

libfuzzer_sys::fuzz_target!(|case: targets::family::Case| targets::family::run(&case));
