//! Crash files: arenas that outlive their process. What nobody could tell later of it stands in the header page.

use crate::arena::{ClockReading, HOLDERS, HOLDERS_OFFSET, HolderEntry, PAGE};
use crate::wire::wire_struct;

/// How the names of crash files end.
pub const ENDING: &str = ".arena";
/// Where the record lies in the arena.
pub const CRASH_OFFSET: u64 = 2048;
/// Bytes of the command line that are kept.
pub const COMMAND_MAX: usize = PAGE as usize - CRASH_OFFSET as usize - size_of::<CrashRecord>();
/// "crashrec".
pub const CRASH_MAGIC: u64 = u64::from_le_bytes(*b"crashrec");
/// Entries of an open-call stack: their disk space is taken as a whole.
pub const OPEN_CALL_CAPACITY: u32 = 1 << 14;

const _: () = assert!(HOLDERS_OFFSET + HOLDERS as u64 * size_of::<HolderEntry>() as u64 <= CRASH_OFFSET);

wire_struct! {
    /// A process whose arena is a file. The words of its command line follow, each ended by a zero byte.
    pub struct CrashRecord [192] {
        /// [`CRASH_MAGIC`].
        pub magic: u64,
        /// Bytes of this structure.
        pub record_size: u32,
        /// Bytes of the command line.
        pub command_length: u32,
        /// The kernel's id of this boot, as it writes it, NUL padded.
        pub boot: [u8; 40],
        /// The process's name at its begin, NUL padded.
        pub name: [u8; 16],
        /// The clocks, at the two last looks. The one whose ticks are 0 is being written.
        pub latest: [ClockReading; 2],
        /// Zero.
        pub reserved: [u64; 5],
    }
}
