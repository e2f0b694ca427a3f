//! The hub: a small block of shared memory through which the processes of a recording get their
//! arenas.
//!
//! ```text
//! 0                HubHeader, one page
//! children_offset  ChildEntry[child_capacity]: processes that are not followed
//! ```
//!
//! The recorder makes the hub before it starts the program, and names it by
//! [`crate::env::RECORDER`]. It prepares a few arenas, whose descriptors are in
//! [`HubHeader::spares`]. A process that starts, and a forked child at its first event,
//!
//! 1. takes an arena by an atomic exchange of its descriptor with 0;
//! 2. opens it as `/proc/RECORDER/fd/N`;
//! 3. claims it by a compare-and-swap of [`crate::arena::ArenaHeader::target_pid`];
//! 4. wakes the recorder by the doorbell, which then puts a new arena into the place.
//!
//! The recorder makes hub and arenas with [`OWNER_MODE`] and seals their size. A process takes them
//! only if they belong to its own user or root, no other user may open them for writing, and they
//! are sealed. All processes of a recording can write to the hub, even one that has dropped its
//! privileges since. So the hub can't be trusted to say which arenas are free. The recorder marks
//! free arenas by [`SPARE_MODE`], which only their owner can set, and unmarks them once they are
//! claimed.
//!
//! Both sides treat every number in the hub as untrusted input.

use crate::arena::{ARENA_VERSION, CHILD_CAPACITY, ChildEntry, PAGE};
use crate::wire::wire_struct;

/// First bytes of a hub.
pub const HUB_MAGIC: u64 = u64::from_le_bytes(*b"everyhub");
/// Version of the hub, and of the arenas that it hands out: a process of another version says so,
/// and runs on without it.
pub const HUB_VERSION: u32 = (4 << 8) | ARENA_VERSION;
/// Permissions of the hub's and the arenas' memory: for the recorder's user only.
pub const OWNER_MODE: u32 = 0o600;
/// Bit in the mode of an unclaimed arena (the sticky bit, which has no effect on memory files).
pub const SPARE_MODE: u32 = 0o1000;
/// Places for unclaimed arenas.
pub const SPARES: usize = 32;
/// Places for processes that wait for hooks.
pub const ASKING: usize = 16;

wire_struct! {
    /// First bytes of the hub; the rest of its page is zero.
    pub struct HubHeader [272] {
        /// [`HUB_MAGIC`].
        pub magic: u64,
        /// [`HUB_VERSION`].
        pub version: u32,
        /// Bytes of this structure.
        pub header_size: u32,
        /// Bytes of the hub.
        pub hub_size: u64,
        /// Where the table of children begins.
        pub children_offset: u64,
        /// Entries of the table of children.
        pub child_capacity: u32,
        /// Entries taken in it; may exceed its capacity.
        pub children: u32,
        /// Process that made the hub.
        pub recorder_pid: u32,
        /// 1 if children of the traced program are followed.
        pub follow: u32,
        /// Counts the runtimes' messages to the recorder; a shared futex.
        pub doorbell: u32,
        /// The last value of `doorbell` that the recorder has handled; a shared futex.
        pub acknowledged: u32,
        /// A set of [`silence`]: a process has waited for the recorder in vain. 0 again when the
        /// recorder answers.
        pub silent: u32,
        /// Processes that ran untraced though they should have been followed.
        pub untraced: u32,
        /// Descriptors of arenas in the recorder, plus 1; 0 for an empty place.
        pub spares: [u32; SPARES],
        /// 1 if the recorder adds functions of modules that are loaded to the selection in
        /// `EVERYCALL_ONLY`: a process reads that again.
        pub selects: u32,
        /// 1 if the recorder adds captures of modules that are loaded to the set in
        /// `EVERYCALL_ARGS`: a process reads that again.
        pub captures: u32,
        /// 1 if the recorder writes hooks into programs that are executed, and into libraries that
        /// are loaded later: a process asks for them, and waits.
        pub hooks: u32,
        /// Counts requests for hooks; a shared futex.
        pub asked: u32,
        /// Ids of processes that wait for hooks; 0 for an empty place. Shared futexes.
        pub asking: [u32; ASKING],
    }
}

/// [`HubHeader::silent`].
pub mod silence {
    /// The recorder didn't answer within some milliseconds: only processes that would otherwise
    /// miss calls of triggers wait for it.
    pub const SHORTLY: u32 = 1;
    /// It didn't answer within seconds: no process waits.
    pub const LONG: u32 = 2;
    /// The recording is over.
    pub const OVER: u32 = 4;
}

/// [`crate::arena::ArenaHeader::origin`], [`crate::ect::ProcessRecord::origin`]: how a process came
/// to be traced.
pub mod origin {
    /// A traced program was started.
    pub const START: u32 = 1;
    /// It was forked from a traced process.
    pub const FORK: u32 = 2;
    /// A traced process executed a traced program.
    pub const EXEC: u32 = 3;
}

impl HubHeader {
    /// The header of a new hub.
    #[must_use]
    pub fn new(recorder_pid: u32, follow: bool) -> HubHeader {
        HubHeader {
            magic: HUB_MAGIC,
            version: HUB_VERSION,
            header_size: size_of::<HubHeader>() as u32,
            hub_size: PAGE
                + (u64::from(CHILD_CAPACITY) * size_of::<ChildEntry>() as u64).next_multiple_of(PAGE),
            children_offset: PAGE,
            child_capacity: CHILD_CAPACITY,
            recorder_pid,
            follow: follow.into(),
            ..HubHeader::default()
        }
    }

    /// Whether every size and offset fits the others and `available` bytes of memory.
    #[must_use]
    pub fn is_consistent(&self, available: u64) -> bool {
        self.magic == HUB_MAGIC
            && self.version == HUB_VERSION
            && self.hub_size >= PAGE
            && self.hub_size <= available
            && self.children_offset >= PAGE
            && u64::from(self.child_capacity)
                .checked_mul(size_of::<ChildEntry>() as u64)
                .and_then(|bytes| bytes.checked_add(self.children_offset))
                .is_some_and(|end| end <= self.hub_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_hubs_are_consistent_and_lies_are_noticed() {
        let good = HubHeader::new(1, true);
        assert!(good.is_consistent(good.hub_size) && !good.is_consistent(good.hub_size - 1));
        let spoil: [fn(&mut HubHeader); 5] = [
            |h| h.magic += 1,
            |h| h.version += 1,
            |h| h.hub_size = 0,
            |h| h.children_offset = u64::MAX,
            |h| h.child_capacity = u32::MAX,
        ];
        for change in spoil {
            let mut bad = good;
            change(&mut bad);
            assert!(!bad.is_consistent(good.hub_size), "{bad:?}");
        }
    }
}
