//! A call whose registers and memory are bytes of the input.

use everycall_capture::Machine;

/// Memory from address 0 on, as often as it is needed but for each third page; registers from its
/// end.
pub struct Bytes<'b>(pub &'b [u8]);

impl Machine for Bytes<'_> {
    fn register(&self, number: u32) -> Option<u64> {
        let from = self.0.len().checked_sub(8 * (number as usize + 1));
        Some(from.and_then(|from| self.0[from..].first_chunk()).map_or(7, |word| u64::from_le_bytes(*word)))
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut count = 0;
        for (place, at) in into.iter_mut().zip(address..) {
            if self.0.is_empty() || at >> 12 & 3 == 3 {
                break;
            }
            *place = self.0[at as usize % self.0.len()];
            count += 1;
        }
        count
    }
}
