//! Allocates disk space for an arena in a file before anything is written there.
#![allow(unsafe_code)] // The clocks' place in the arena.

use crate::state::arena::Arena;
use crate::state::crash_file::{IS_FILE, SEGMENTS};
use crate::state::process::Process;
use crate::state::{all_calls, dropped, times};
use crate::sys::lock::Lock;
use crate::sys::{clock, disk};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use everycall_format::Wire;
use everycall_format::arena::{ClockReading, counter};
use everycall_format::crash::{CRASH_OFFSET, CrashRecord};

/// Space is allocated in steps of this many bytes of segments.
const STEP: u64 = 256 << 10;
/// Number of segments for which space is allocated ahead of use.
const AHEAD: u32 = 2;
/// How often a thread tries to allocate space that others may use up first.
pub(crate) const ROOM_TRIES: u32 = 4;
/// Ticks until the next try after the disk was full. A try on a full disk takes long.
const PAUSE: u64 = 1 << 32;
/// Ticks between two clock readings.
const LOOK: u64 = 1 << 28;

/// Allocates space for more segments when the segments with space run out. `in_need`: a thread has
/// found none. Then the thread doesn't wait for another one that is already allocating, which may
/// take long: both allocate the same space.
pub(crate) fn make_room(process: &Process, arena: &Arena, in_need: bool) {
    if !IS_FILE.load(Relaxed) {
        return;
    }
    let layout = arena.layout();
    let pool = arena.pool();
    let capacity = layout.segment_capacity;
    let ahead = if in_need { 1 } else { AHEAD };
    let is_short = || {
        let has = SEGMENTS.load(Acquire);
        has < capacity
            && pool.taken.load(Relaxed).saturating_add(ahead) > has
            && pool.free.load(Relaxed) as u32 == 0
            && process.crash.no_room_until.load(Relaxed) <= everycall_hooks::ticks()
    };
    if !is_short() {
        return;
    }
    let lock = Lock::try_take(&process.crash.room_lock);
    if lock.is_none() && !in_need || !is_short() {
        return;
    }
    let has = SEGMENTS.load(Relaxed);
    let step = STEP.checked_div(layout.segment_size).unwrap_or(1).max(1) as u32;
    let end = has.saturating_add(step).min(capacity);
    let place = arena.base() as u64 + layout.segment_at(has);
    if take_room(process, arena, place, u64::from(end - has) * layout.segment_size) {
        SEGMENTS.fetch_max(end, Release);
    }
}

/// Allocates space for open-call stack `index`, from `base` to `limit`, unless a thread has used it
/// before. Returns whether it has space. (A stack without space must not even be read: on tmpfs,
/// reading allocates, too.)
pub(crate) fn make_room_for_calls(
    process: &Process,
    arena: &Arena,
    index: u32,
    base: u64,
    limit: u64,
) -> bool {
    if !IS_FILE.load(Relaxed) {
        return true;
    }
    make_room_once(process, arena, &process.crash.stacks, index, base..limit)
}

/// Allocates space for the counts of dropped calls of a slot, or for the times of its calls, unless
/// that was done before. Returns whether they have space.
pub(crate) fn make_room_for_counts(process: &Process, arena: &Arena, slot: u32) -> bool {
    let part = if dropped::is_timing() {
        let first = times::sums_at(arena, slot);
        first..first + arena.layout().times_size()
    } else {
        let first = dropped::counts_at(arena, slot);
        first..first + arena.layout().counts_size()
    };
    !IS_FILE.load(Relaxed) || make_room_once(process, arena, &process.crash.counts, slot, part)
}

/// Allocates space for a slot's counts of all calls, unless that was done before. Returns whether
/// they have space.
pub(crate) fn make_room_for_all_calls(process: &Process, arena: &Arena, slot: u32) -> bool {
    let first = all_calls::counts_at(arena, slot);
    let part = first..first + arena.layout().counts_size();
    !IS_FILE.load(Relaxed) || make_room_once(process, arena, &process.crash.all_calls, slot, part)
}

/// Allocates space for the names of frames by id, which begin at the offset `first`, up to `end`.
/// Returns whether they have space.
pub(crate) fn make_room_for_frames(process: &Process, arena: &Arena, first: u64, end: u64) -> bool {
    /// Bytes that get space at a time.
    const AT_ONCE: u64 = 256 << 10;
    let wanted = end.saturating_sub(first);
    let has = process.crash.frames.load(Relaxed);
    if !IS_FILE.load(Relaxed) || wanted <= has {
        return true;
    }
    let size = wanted.next_multiple_of(AT_ONCE).min(arena.layout().frames_size);
    let address = arena.base() as u64 + first + has;
    let has_room = process.crash.no_room_until.load(Relaxed) <= everycall_hooks::ticks()
        && take_room(process, arena, address, size.saturating_sub(has));
    if has_room {
        process.crash.frames.fetch_max(size, Relaxed);
    }
    has_room
}

/// Allocates space for a part of the arena, unless bit `index` of `done` says that it has space.
fn make_room_once(
    process: &Process,
    arena: &Arena,
    done: &[AtomicU64],
    index: u32,
    part: Range<u64>,
) -> bool {
    let Some(word) = done.get((index / u64::BITS) as usize) else { return false };
    let bit = 1 << (index % u64::BITS);
    if word.load(Relaxed) & bit != 0 {
        return true;
    }
    let has_room = process.crash.no_room_until.load(Relaxed) <= everycall_hooks::ticks()
        && take_room(process, arena, part.start, part.end.saturating_sub(part.start));
    if has_room {
        word.fetch_or(bit, Relaxed);
    }
    has_room
}

fn take_room(process: &Process, arena: &Arena, address: u64, size: u64) -> bool {
    let has_room = disk::take_room_at(address, size).is_ok();
    if !has_room {
        process.crash.no_room_until.store(everycall_hooks::ticks().wrapping_add(PAUSE), Relaxed);
        arena.count(counter::CRASH_NO_ROOM, 1);
    }
    has_room
}

/// Stores a clock reading now and then, so that the tick rate is known whenever the process dies.
pub(crate) fn look_at_clocks(process: &Process, arena: &Arena) {
    if !IS_FILE.load(Relaxed) {
        return;
    }
    let now = everycall_hooks::ticks();
    let looked = &process.crash.looked;
    if now.wrapping_sub(looked.load(Relaxed)) < LOOK {
        return;
    }
    let Some(_lock) = Lock::try_take(&process.crash.clock_lock) else { return };
    looked.store(now, Relaxed);
    arena.put_latest(&clock::reading());
}

impl Arena {
    /// Stores a clock reading in the older of the two places. Its ticks are cleared first and
    /// written last.
    pub(crate) fn put_latest(&self, reading: &ClockReading) {
        let first = CRASH_OFFSET + offset_of!(CrashRecord, latest) as u64;
        let ticks = |place: u64| {
            let address = self.base() as u64 + first + place * ClockReading::SIZE as u64;
            // SAFETY: within the header page, aligned.
            unsafe { &*(address as *const AtomicU64) }
        };
        let place = u64::from(ticks(1).load(Relaxed) < ticks(0).load(Relaxed));
        ticks(place).store(0, Relaxed);
        let bytes = reading.to_bytes();
        let ticks_size = size_of::<u64>();
        fence(Release);
        self.put_bytes(
            first + place * ClockReading::SIZE as u64 + ticks_size as u64,
            bytes.get(ticks_size..).unwrap_or(&[]),
        );
        ticks(place).store(reading.ticks, Release);
    }
}
