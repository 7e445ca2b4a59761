//! The body is in the tests package.
#![no_main]

use kafscale_proxy_tests::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz::world(input));
