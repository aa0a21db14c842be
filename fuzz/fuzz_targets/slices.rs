#![no_main]

libfuzzer_sys::fuzz_target!(|case: targets::slices::Case| targets::slices::run(&case));
