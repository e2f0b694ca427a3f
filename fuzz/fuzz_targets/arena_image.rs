//! Arenas.
#![no_main]

mod pairing;

use everycall_reader::ArenaImage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = ArenaImage::open(bytes) {
        pairing::check(image);
    }
});
