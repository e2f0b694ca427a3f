//! The machine on which a program runs.

/// The traced call: its registers, and memory that may not be readable.
pub trait Machine {
    /// The register with this number of [`everycall_format::capture::register`], or the thread's
    /// `errno` ([`everycall_format::capture::ERRNO`]); `None` if its value isn't known.
    fn register(&self, number: u32) -> Option<u64>;

    /// Copies bytes from `address` on, and returns how many could be read: all, or as many as lie
    /// before the first one that can't. Never faults.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;
}
