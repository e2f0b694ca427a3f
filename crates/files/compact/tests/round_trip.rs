//! Decoding gives back the encoded words.

mod common;

use everycall_compact::{Error, decode, encode, encoded_max};
use everycall_synth::Rng;

use common::{by_the_book, calls, payload, record, sequences};

fn encoded(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    bytes
}

#[test]
fn words_come_back() {
    for (number, words) in sequences().iter().enumerate() {
        let bytes = encoded(words);
        assert!(bytes.len() <= encoded_max(words.len()), "{number}");
        let mut back = Vec::new();
        assert_eq!(decode(&bytes, words.len(), &mut back), Ok(()), "{number}");
        assert!(back == *words, "{number}");
        assert!(by_the_book(&bytes, words.len()).as_ref() == Some(words), "{number}: not as the book says");
    }
}

#[test]
fn both_append() {
    let words = calls(&mut Rng::new(1), 500, 26);
    let mut bytes = b"before".to_vec();
    encode(&words, &mut bytes);
    let mut back = vec![1, 2, 3];
    decode(&bytes[6..], words.len(), &mut back).unwrap();
    assert_eq!(back[..3], [1, 2, 3]);
    assert!(back[3..] == words);
}

#[test]
fn calls_take_little() {
    let mut rng = Rng::new(2);
    // A call tree that is repeated with different times.
    let tree = calls(&mut rng, 1_000, 0);
    let mut ticks = 0_u64;
    let mut words = Vec::new();
    while words.len() < 100_000 {
        for word in &tree {
            ticks += 20 + rng.below(100);
            let has_ticks = *word != 0 && *word as u32 >> 24 != 0xff;
            words.push(if has_ticks { ticks << 32 | u64::from(*word as u32) } else { *word });
        }
    }
    let bytes = encoded(&words);
    let each = bytes.len() as f64 / words.len() as f64;
    assert!(each < 1.2, "{each} bytes a word");
    let unwritten = encoded(&vec![0; 1 << 17]);
    assert!(unwritten.len() < 5_000, "{} bytes of nothing", unwritten.len());
}

#[test]
fn cut_bytes_give_the_words_before_the_cut() {
    let words = calls(&mut Rng::new(3), 3_000, 70);
    let bytes = encoded(&words);
    let mut before = 0;
    for length in 0..bytes.len() {
        let mut back = Vec::new();
        assert_eq!(decode(&bytes[..length], words.len(), &mut back), Err(Error::Short), "{length}");
        assert!(back == words[..back.len()], "{length}");
        assert!(back.len() >= before, "{length}");
        before = back.len();
    }
    assert!(before >= words.len() - 110, "{before}");
}

#[test]
fn wrong_counts_are_errors() {
    let words = calls(&mut Rng::new(4), 300, 26);
    let bytes = encoded(&words);
    for count in 0..words.len() {
        let mut back = Vec::new();
        assert_eq!(decode(&bytes, count, &mut back), Err(Error::Long), "{count}");
        assert!(back == words[..count], "{count}");
    }
    for count in [words.len() + 1, usize::MAX] {
        let mut back = Vec::new();
        assert_eq!(decode(&bytes, count, &mut back), Err(Error::Short));
        assert!(back == words);
    }
    // One byte too many in the dictionary's index.
    assert_eq!(decode(&[0xf8, 0x00, 0x10], 1, &mut Vec::new()), Err(Error::Place));
}

#[test]
fn any_bytes_are_words_or_an_error() {
    let mut rng = Rng::new(6);
    let good = encoded(&calls(&mut rng, 2_000, 26));
    for round in 0..2_000 {
        let mut bytes = good.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.number() as u8;
        }
        if round % 4 == 0 {
            bytes = (0..300).map(|_| rng.number() as u8).collect();
        }
        let count = rng.below(4_000) as usize;
        let mut back = Vec::new();
        let result = decode(&bytes, count, &mut back);
        assert!(back.len() <= count);
        match by_the_book(&bytes, count) {
            Some(words) => assert!(result.is_ok() && back == words),
            None => assert!(result.is_err()),
        }
    }
}

/// Files that are there stay readable: these bytes must never change their meaning.
#[test]
fn the_layout_is_the_documented_one() {
    let call = |ticks: u64, low: u64| ticks << 32 | low;
    let mut words = vec![
        record(0x1000, 1, 3),
        payload(0x2, 1, 1),
        payload(0, 1, 2),
        payload(0x1234, 1, 3),
        call(0x1010, 0x2000),
        call(0x1020, 0x8000_2008),
        call(0x1040, 0x2000),
        call(0x1030, 0x8000_2008),
        0,
        0,
        0,
        0,
        0,
    ];
    words.extend([record(0x1050, 14, 0); 7]);
    let bytes = [
        &[0xfe, 0x00, 0x10, 0x00, 0x03, 0x01, 0x7f][..],
        &[0xfd, 0x02, 0x00, 0x01, 0x01, 0xff],
        &[0xfd, 0x00, 0x00, 0x02, 0x01, 0xff],
        &[0xfe, 0x34, 0x12, 0x00, 0x03, 0x01, 0xff],
        &[0xfd, 0x10, 0x00, 0x20, 0x00, 0x00],
        &[0xfc, 0x08, 0x20, 0x00, 0x80],
        // (0x2000 * 0x9e3779b97f4a7c15 mod 2^64) >> 52 is 0xef3.
        &[0xf9, 0x20, 0xf3, 0x0e],
        &[0xf7, 0xf0, 0xff, 0xff, 0xff],
        &[0x00, 0xc3],
        &[0xfd, 0x20, 0x00, 0x00, 0x0e, 0x7f],
        &[0xef, 0x05, 0x00],
    ]
    .concat();
    let real = encoded(&words);
    assert_eq!(real, bytes, "{real:02x?}");
    let mut back = Vec::new();
    decode(&real, words.len(), &mut back).unwrap();
    assert_eq!(back, words);
}
