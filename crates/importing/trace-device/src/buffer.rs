//! The buffer in SRAM, which DMA at low priority empties line by line.

use crate::parameters::Dma;

/// A buffer between the instruction and DRAM.
#[derive(Clone, Debug)]
pub struct Buffer {
    dma: Dma,
    capacity: Option<u64>,
    level: u64,
    /// When the transfer of the next line will be complete.
    next_ns: Option<f64>,
    peak: u64,
    bursts: Vec<u32>,
    lost: u64,
}

/// How full the buffer became. A burst lasts from a request for a transfer until less than a line
/// is left.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    /// The highest levels, in bytes, in ascending order.
    peaks: Vec<u32>,
}

impl Bursts {
    /// The level that this part of all bursts stays below or reaches.
    #[must_use]
    pub fn quantile(&self, part: f64) -> u32 {
        let last = self.peaks.len().saturating_sub(1);
        self.peaks.get((part * last as f64).ceil() as usize).copied().unwrap_or(0)
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.peaks.len()
    }

    /// Adds those of another buffer.
    #[must_use]
    pub fn and(mut self, other: Bursts) -> Bursts {
        self.peaks.extend(other.peaks);
        self.peaks.sort_unstable();
        self
    }
}

impl Buffer {
    /// Empty. Without a capacity it takes everything: what it would have needed is measured.
    #[must_use]
    pub fn new(dma: Dma, capacity: Option<u64>) -> Buffer {
        Buffer { dma, capacity, level: 0, next_ns: None, peak: 0, bursts: Vec::new(), lost: 0 }
    }

    fn advance(&mut self, at_ns: f64) {
        while let Some(end) = self.next_ns.filter(|end| *end <= at_ns) {
            self.level -= self.dma.line_bytes;
            if self.level >= self.dma.line_bytes {
                self.next_ns = Some(end + self.line_ns());
            } else {
                self.next_ns = None;
                self.bursts.push(std::mem::take(&mut self.peak) as u32);
            }
        }
    }

    fn line_ns(&self) -> f64 {
        self.dma.line_bytes as f64 / self.dma.bytes_per_ns
    }

    /// Adds a record's bytes. `false`: there was no room, and the event is lost.
    pub fn push(&mut self, at_ns: f64, bytes: u64) -> bool {
        self.advance(at_ns);
        if self.capacity.is_some_and(|capacity| self.level + bytes > capacity) {
            self.lost += 1;
            return false;
        }
        self.level += bytes;
        self.peak = self.peak.max(self.level);
        if self.next_ns.is_none() && self.level >= self.dma.line_bytes {
            self.next_ns = Some(at_ns + self.dma.wait_ns + self.line_ns());
        }
        true
    }

    /// Events for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Empties it and returns its bursts.
    #[must_use]
    pub fn bursts(mut self) -> Bursts {
        self.advance(f64::INFINITY);
        self.bursts.sort_unstable();
        Bursts { peaks: self.bursts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DMA: Dma = Dma { line_bytes: 64, wait_ns: 100.0, bytes_per_ns: 1.0 };

    #[test]
    fn a_burst_fills_it_until_transfers_begin() {
        let mut buffer = Buffer::new(DMA, None);
        for number in 0..100 {
            assert!(buffer.push(f64::from(number), 4));
        }
        // The request comes with the 16th event, at 15 ns; no line is gone before 179 ns.
        let bursts = buffer.bursts();
        assert_eq!((bursts.count(), bursts.quantile(1.0)), (1, 400));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut buffer = Buffer::new(DMA, Some(128));
        let taken = (0..100).filter(|number| buffer.push(f64::from(*number), 4)).count();
        assert_eq!((taken, buffer.lost()), (32, 68));
        assert!(buffer.push(500.0, 4), "lines have left it since");
    }

    #[test]
    fn a_slow_stream_never_needs_more_than_a_line() {
        let mut buffer = Buffer::new(DMA, None);
        for number in 0..1000 {
            assert!(buffer.push(f64::from(number) * 200.0, 4));
        }
        assert!(buffer.bursts().quantile(1.0) <= 68);
    }
}
