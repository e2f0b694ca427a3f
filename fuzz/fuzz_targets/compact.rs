//! The compact form, both ways: the input as words, and as bytes in that form. Its first two bytes are a number of words.
#![no_main]

use everycall_compact::{decode, encode, encoded_max};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((count, bytes)) = input.split_first_chunk() else { return };
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    round_trip(&words);

    let count = usize::from(u16::from_le_bytes(*count));
    let mut words = vec![7];
    let result = decode(bytes, count, &mut words);
    assert!(words.len() <= 1 + count && words[0] == 7);
    assert!(result.is_err() || words.len() == 1 + count);
    round_trip(&words);
});

fn round_trip(words: &[u64]) {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    assert!(bytes.len() <= encoded_max(words.len()));
    let mut back = Vec::new();
    assert_eq!(decode(&bytes, words.len(), &mut back), Ok(()));
    assert!(back == words);
}
