//! Every size, rate and energy of the model.

/// Sizes of the device that both ends of the encoding have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Nanoseconds of a unit of time stamps.
    pub unit_ns: u64,
    /// Entries of the table of places met last; a power of two, at most 256.
    pub places: usize,
    /// Open calls whose stack pointers the device keeps.
    pub frames: usize,
    /// Bytes of a block: each can be decoded alone.
    pub block_bytes: usize,
}

impl Parameters {
    /// The device of the document: 256 places are 2 KiB of SRAM, 32 frames are 256 bytes.
    pub const DEVICE: Parameters = Parameters { unit_ns: 4, places: 256, frames: 32, block_bytes: 64 << 10 };

    /// Whether a decoder accepts them.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        self.unit_ns > 0
            && (1..=256).contains(&self.places)
            && self.places.is_power_of_two()
            && (1..=4096).contains(&self.frames)
            && (256..=1 << 24).contains(&self.block_bytes)
    }
}

/// How the buffer is emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dma {
    /// Bytes of a transfer: a cache line.
    pub line_bytes: u64,
    /// From a request to the first transfer, nanoseconds: others come first.
    pub wait_ns: f64,
    /// Bytes that it transfers in a nanosecond once it may.
    pub bytes_per_ns: f64,
}

impl Dma {
    /// 1 GB/s, some 3 % of a channel, after a wait of 1 us: three refreshes of a DDR4 device of
    /// 8 Gbit (tRFC = 350 ns, JESD79-4) one after the other.
    pub const LOW_PRIORITY: Dma = Dma { line_bytes: 64, wait_ns: 1000.0, bytes_per_ns: 1.0 };
}

/// Bytes of the ring in DRAM whose reach is computed.
pub const RING_BYTES: u64 = 64 << 20;
/// Bytes in a nanosecond of one channel of DDR4-3200: 3,200 MT/s of 8 bytes.
pub const CHANNEL_BYTES_PER_NS: f64 = 25.6;
/// Bytes that the hooks of this project write for an entry or exit.
pub const HOOK_BYTES: f64 = 8.0;

/// Energy of an instruction on a simple core at 45 nm, picojoules: M. Horowitz, "Computing's energy
/// problem", ISSCC 2014, figure 1.1.9 (70 pJ, of which 25 are the instruction cache and 6 the
/// register file).
pub const INSTRUCTION_PJ: f64 = 70.0;
/// Energy of 64 bits in an SRAM of 8 KiB, picojoules: the same table.
pub const SRAM_64_BITS_PJ: f64 = 10.0;
/// Energy of 64 bits in an L1 cache of 32 KiB, picojoules: the same table.
pub const L1_64_BITS_PJ: f64 = 20.0;
/// Energy of a bit to or from DRAM, picojoules: the same table has 1.3 to 2.6 nJ for 64 bits; this
/// is the lower end.
pub const DRAM_BIT_PJ: f64 = 1300.0 / 64.0;
/// Instructions of a hook of this project for an event, rounded (`docs/design/hooks-and-rings.md`).
pub const HOOK_INSTRUCTIONS: f64 = 20.0;
/// Data accesses of a hook to the L1 cache.
pub const HOOK_L1_ACCESSES: f64 = 6.0;

/// Picojoules of an event that hooks record.
#[must_use]
pub fn hook_pj() -> f64 {
    HOOK_INSTRUCTIONS * INSTRUCTION_PJ + HOOK_L1_ACCESSES * L1_64_BITS_PJ + HOOK_BYTES * 8.0 * DRAM_BIT_PJ
}

/// Picojoules of an event that the device records in so many bytes: one instruction, its place
/// looked up, the bytes into the buffer and out of it, and to DRAM.
#[must_use]
pub fn device_pj(bytes: f64) -> f64 {
    INSTRUCTION_PJ + SRAM_64_BITS_PJ + 2.0 * bytes / 8.0 * SRAM_64_BITS_PJ + bytes * 8.0 * DRAM_BIT_PJ
}

/// Picojoules of Intel PT's bytes: no instruction, a buffer, and DRAM.
#[must_use]
pub fn branch_trace_pj(bytes: f64) -> f64 {
    2.0 * bytes / 8.0 * SRAM_64_BITS_PJ + bytes * 8.0 * DRAM_BIT_PJ
}
