//! Deliberate damage.

use crate::{Rng, crc32};

/// Damages `bytes` in one of many ways. Often repairs the checksums of a trace file afterwards, so
/// that the damage gets past them.
pub fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let length = bytes.len() as u64;
        let at = rng.below(length) as usize;
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
            2 => bytes.iter_mut().skip(at).take(64).for_each(|byte| *byte = 0),
            3 => {
                let piece: Vec<u8> = bytes.iter().skip(at).take(rng.below(512) as usize).copied().collect();
                let to = rng.below(length) as usize;
                bytes.splice(to..to, piece);
            }
            4 => {
                let end = (at + rng.below(64) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let word = at & !7;
                let value = [u64::MAX, 1 << 63, 1 << 32, 0x7f01_0300, 0xff05_0100, 0x7fff_ffff]
                    [rng.below(6) as usize];
                if let Some(place) = bytes.get_mut(word..word + 8) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
            }
            6 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            _ => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = rng.number() as u8),
        }
    }
    if rng.one_in(2) {
        repair_checksums(bytes);
    }
}

/// Repairs the checksums of everything that looks like a chunk.
fn repair_checksums(bytes: &mut [u8]) {
    for at in (0..bytes.len().saturating_sub(32)).step_by(8) {
        if bytes[at..].starts_with(b"ECTc") {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at + 16..at + 24]);
            let length = u64::from_le_bytes(raw).min((bytes.len() - at - 32) as u64) as usize;
            let payload = crc32(&bytes[at + 32..at + 32 + length]);
            bytes[at + 24..at + 28].copy_from_slice(&payload.to_le_bytes());
            let header = crc32(&bytes[at..at + 28]);
            bytes[at + 28..at + 32].copy_from_slice(&header.to_le_bytes());
        }
    }
}
