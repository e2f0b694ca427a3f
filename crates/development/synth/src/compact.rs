//! Event words in compact form, as docs/format.md specifies it, without predictions.

/// Words in compact form: each with its low half unchanged and the difference in as few bytes as
/// possible. A run of more than two equal words is stored as its length.
#[must_use]
pub fn compact(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut ticks = 0_u32;
    for run in words.chunk_by(|one, next| one == next) {
        let (low, high) = (run[0] as u32, (run[0] >> 32) as u32);
        let has_ticks = low != 0 && low < 0xff00_0000;
        let told = if run.len() > 2 { 1 } else { run.len() };
        for _ in 0..told {
            let difference = if has_ticks { high.wrapping_sub(ticks) } else { high };
            if has_ticks {
                ticks = high;
            }
            match difference {
                0..=0xff => bytes.extend([0xfd, difference as u8]),
                0x100..=0xffff => bytes.extend([0xfe, difference as u8, (difference >> 8) as u8]),
                _ => {
                    bytes.push(0xff);
                    bytes.extend(difference.to_le_bytes());
                }
            }
            bytes.extend(low.to_le_bytes());
        }
        let mut again = run.len() - told;
        while again > 0 {
            let count = again.min(1 << 16);
            bytes.push(0xef);
            bytes.extend(((count - 1) as u16).to_le_bytes());
            again -= count;
        }
    }
    bytes
}
