#![no_main]

libfuzzer_sys::fuzz_target!(|case: targets::extents::Case| targets::extents::run(&case));
