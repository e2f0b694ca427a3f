//! Hooks in objects that were built without them: the object's code jumps to trampolines, which
//! call the hooks.
//!
//! ```text
//! descriptor   a page before the region, written by the runtime
//! region       hooks, trampolines, sites, table
//! ```
//!
//! So the code offsets of such an object's events are places in its region, and the module's range
//! is that of the region. A table leads from the calls of hooks to instructions of the object. The
//! runtime puts it among the [names of frames](crate::frame), which everything that reads an arena
//! copies; the module's entry says which table is its own.
//!
//! `everycall` maps all of that into a process and has a thread of it call the runtime's `adopt`.

use crate::wire::wire_struct;

/// Bytes of memory that the descriptor gets, all zero.
pub const DESCRIPTOR_SIZE: u64 = 4096;
/// Where the runtime's table has the address of `adopt`, a function that takes an [`Adopted`]'s
/// address and returns nothing.
pub const ADOPT_OFFSET: u64 = 224;
/// The runtime's table: a dynamic symbol.
pub const RUNTIME_SYMBOL: &str = "everycall_runtime_v1";

wire_struct! {
    /// An object with trampolines, as the runtime gets to know it. Process addresses.
    pub struct Adopted [192] {
        /// Bytes of this record.
        pub record_size: u32,
        /// The table's number: a checksum of the plan that it belongs to, never 0.
        pub trampolines: u32,
        /// Memory for the object's descriptor, at the distance from the hooks at which they were
        /// linked.
        pub descriptor: u64,
        /// The object's ELF header.
        pub elf_header: u64,
        /// The region.
        pub start: u64,
        /// Behind the region.
        pub end: u64,
        /// The first [site](crate::site::Site), and what is behind the last one. They are ordered
        /// by function. Each is a call of a hook in a trampoline.
        pub sites: [u64; 2],
        /// The hooks, as [`hook`] numbers them.
        pub hooks: [u64; hook::COUNT],
        /// The table's first [`Trampoline`], and what is behind the last one.
        pub table: [u64; 2],
        /// Added to each [`Trampoline::origin`].
        pub first: u64,
        /// Zero.
        pub reserved: u64,
    }
}

/// Numbers of hooks, and of places in them.
pub mod hook {
    /// Records an entry.
    pub const ENTRY: usize = 0;
    /// Records an exit.
    pub const EXIT: usize = 1;
    /// Records a tail exit of a function that a trigger follows.
    pub const TAIL_EXIT: usize = 2;
    /// Counts an entry.
    pub const COUNT_ENTRY: usize = 3;
    /// Begins to time a call.
    pub const TIME_ENTRY: usize = 4;
    /// Ends to time a call.
    pub const TIME_EXIT: usize = 5;
    /// Records an entry, perhaps without a stamp.
    pub const UNSTAMPED_ENTRY: usize = 6;
    /// Records an exit, perhaps without a stamp.
    pub const UNSTAMPED_EXIT: usize = 7;
    /// Where the restartable sequence begins.
    pub const SEQUENCE: usize = 8;
    /// Where it ends.
    pub const SEQUENCE_END: usize = 9;
    /// Where threads go on that were stopped in it.
    pub const SEQUENCE_ABORT: usize = 10;
    /// Records an entry with values that are copied.
    pub const CAPTURE_ENTRY: usize = 11;
    /// Records an exit with such values.
    pub const CAPTURE_EXIT: usize = 12;
    /// How many there are.
    pub const COUNT: usize = 13;
}

/// Entries of a record of the table: see [`crate::frame::TRAMPOLINES`].
pub const ENTRIES_AT_ONCE: usize = crate::frame::TEXT_MAX / size_of::<Trampoline>();

wire_struct! {
    /// A call of a hook: an entry of the table.
    pub struct Trampoline [8] {
        /// The address behind the call, from the region's start.
        pub returns_to: u32,
        /// Image address of the instruction that the hook stands before, minus an address that all
        /// entries share: the function's first one, or the one by which it leaves.
        pub origin: u32,
    }
}
