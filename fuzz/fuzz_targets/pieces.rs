#![no_main]

libfuzzer_sys::fuzz_target!(|case: targets::pieces::Case| targets::pieces::run(&case));
