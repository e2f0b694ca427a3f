//! Memory that a forked child finds wiped.
//!
//! The kernel wipes it (`MADV_WIPEONFORK`). Emulators of one program answer that they do, and may
//! not. There, the child wipes its copy itself, when the C library calls it.
#![allow(unsafe_code)] // System calls, which replace mappings of the runtime's own.

use crate::sys::system::{
    self, MADV_DONTDUMP, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ,
    PROT_WRITE,
};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_hooks::arch::number;
use everycall_hooks::syscall;

/// Memory that the child has to wipe itself: first address and bytes. Bytes of 0 are a free place.
/// A place that is taken or given back has the address 0 meanwhile: a child that is forked then
/// touches nothing by it.
static OWN: [[AtomicU64; 2]; 256] = [const { [const { AtomicU64::new(0) }; 2] }; 256];

/// Maps a table of which only what is used takes memory. It isn't in core dumps, and forked
/// children find it empty.
pub(crate) fn map_table(length: u64) -> Option<*mut u8> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let table = system::map(length, PROT_READ | PROT_WRITE, flags, -1)?;
    if !wipe_in_children(table, length) {
        system::unmap(table, length);
        return None;
    }
    let _ = system::advise(table, length, MADV_DONTDUMP);
    Some(table)
}

/// Unmaps a table.
pub(crate) fn unmap_table(table: *mut u8, length: u64) {
    for [first, bytes] in &OWN {
        if first.load(Relaxed) == table as u64 && bytes.load(Relaxed) == length {
            first.store(0, Relaxed);
            bytes.store(0, Release);
        }
    }
    system::unmap(table, length);
}

/// Lets forked children find private memory wiped. Returns whether they will.
pub(crate) fn wipe_in_children(memory: *mut u8, length: u64) -> bool {
    system::advise(memory, length, MADV_WIPEONFORK).is_ok()
        && (!system::is_advice_ignored() || note(memory, length))
}

fn note(memory: *mut u8, length: u64) -> bool {
    let free = |[_, bytes]: &&[AtomicU64; 2]| bytes.compare_exchange(0, length, Acquire, Relaxed).is_ok();
    let place = OWN.iter().find(free);
    if let Some([first, _]) = place {
        first.store(memory as u64, Relaxed);
    }
    place.is_some()
}

/// The C library calls the runtime in a forked child: wipes what the kernel hasn't.
pub(crate) fn begin_child() {
    for [first, bytes] in &OWN {
        let (first, bytes) = (first.load(Relaxed) as usize, bytes.load(Relaxed) as usize);
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        if bytes != 0 && first != 0 {
            let arguments = [first, bytes, PROT_READ | PROT_WRITE, flags, usize::MAX, 0];
            // SAFETY: replaces a mapping of the runtime's own, which may be zero at any time.
            unsafe { syscall(number::MMAP, arguments) };
        }
    }
}
