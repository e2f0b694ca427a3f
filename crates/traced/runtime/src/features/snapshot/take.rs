//! Takes a snapshot: pins segments, and saves the state of each thread.
//!
//! 1. Take an entry in the table of pinners. Threads are asked to leave their oldest segments alone
//!    for a few milliseconds (`grow_until`).
//! 2. For each thread, save its header and its open calls. This precedes the events, so calls that
//!    end in between have their exits among these.
//! 3. Pin every segment. Then check which thread it belongs to, which can't change from then on.
//! 4. Save how far each thread has come in its newest segment. What it writes behind that isn't
//!    part of the snapshot.
#![allow(unsafe_code)] // Lists in memory of its own, and open calls that others write.

use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::snapshots::{Handle, snapshot_state};
use crate::sys::errors::error;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::arena::{OpenCall, PAGE, PINNERS, ThreadHeader, pinned_by, thread_state};
use everycall_format::event::{Word, kind};
use everycall_format::trigger::TriggeredCall;
use everycall_ring::GrowRequest;

/// Ticks, from now on, for which threads leave their oldest segments alone: some milliseconds.
const GROW_TICKS: u64 = 1 << 24;
/// Bits of a handle that hold the index in the table of pinners, plus 1.
const ENTRY_BITS: u32 = 8;
/// Calls of each thread that may be opened while the memory for the lists is being mapped.
const OPEN_CALLS_MORE: u64 = 64;

/// The part of a thread that a snapshot saves.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) header: ThreadHeader,
    /// Number of pinned segments; 0 if there is nothing of this thread.
    pub(super) segments: u32,
    /// The oldest one's index in the pool, and its number.
    pub(super) first: u32,
    pub(super) first_number: u64,
    pub(super) last_number: u64,
    /// Words of the last segment.
    pub(super) last_words: u64,
    /// Address of the list of open calls, and their number.
    pub(super) open_calls: u64,
    pub(super) open_calls_count: u64,
}

/// A snapshot, while it is in use.
pub(super) struct Pinned<'a> {
    handle: &'a Handle,
    pub(super) bit: u32,
    pub(super) ticks: u64,
    pub(super) threads: &'a [Noted],
    /// For one segment and the record before it.
    pub(super) buffer: &'a mut [u8],
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.handle.state.store(snapshot_state::READY, Release);
    }
}

/// Takes a snapshot of what the rings hold, or of the part from `since` (ticks) on. Returns its
/// handle.
pub(crate) fn take(process: &'static Process, since: u64) -> Result<u64, i32> {
    let arena = process.arena();
    let (entry, handle) = join(process, arena).ok_or(error::BUSY)?;
    let bit = pinned_by::FIRST << entry;
    let request = GrowRequest::begin(&arena.pool(), everycall_hooks::ticks, GROW_TICKS);
    let threads = note(process, arena, handle);
    let is_noted = threads.is_some();
    if let Some(threads) = threads {
        pin(process, arena, bit, threads);
        handle.ticks.store(everycall_hooks::ticks(), Relaxed);
        let_go_before(arena, bit, threads, since);
    }
    drop(request);
    if !is_noted {
        leave(arena, entry, handle);
        return Err(error::NO_MEMORY);
    }
    let uses = handle.uses.load(Relaxed);
    handle.state.store(snapshot_state::READY, Release);
    Ok(u64::from(uses) << ENTRY_BITS | u64::from(entry + 1))
}

/// Takes an entry in the table of pinners.
fn join<'a>(process: &'a Process, arena: &Arena) -> Option<(u32, &'a Handle)> {
    let own = process.pid.load(Relaxed);
    for (entry, handle) in (0..PINNERS).zip(&process.snapshots.0) {
        let (pid, since, started) = arena.pinner(entry);
        if pid.compare_exchange(0, own, AcqRel, Relaxed).is_ok() {
            // 0, so that it is never mistaken for another process with this id.
            started.store(0, Relaxed);
            since.store(everycall_hooks::ticks(), Relaxed);
            handle.state.store(snapshot_state::BUSY, Relaxed);
            handle.uses.store(handle.uses.load(Relaxed).wrapping_add(1), Relaxed);
            return Some((entry, handle));
        }
    }
    None
}

fn leave(arena: &Arena, entry: u32, handle: &Handle) {
    handle.state.store(snapshot_state::FREE, Relaxed);
    arena.pinner(entry).0.store(0, Release);
}

/// Maps the memory for the lists, and saves headers and open calls.
fn note<'a>(process: &'static Process, arena: &Arena, handle: &Handle) -> Option<&'a mut [Noted]> {
    let count = arena.thread_count().load(Acquire).min(arena.layout().thread_capacity);
    let depth = |slot: u32| {
        let control = process.control(slot);
        let used = control.open_top.load(Relaxed).saturating_sub(control.open_base.load(Relaxed));
        used / size_of::<OpenCall>() as u64
    };
    let calls: u64 = (0..count).map(|slot| depth(slot) + OPEN_CALLS_MORE).sum();
    let list = u64::from(count) * size_of::<Noted>() as u64;
    let buffer = arena.layout().segment_size + PAGE;
    let size = (buffer + list + calls * size_of::<OpenCall>() as u64).next_multiple_of(PAGE);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let memory = system::map(size, PROT_READ | PROT_WRITE, flags, -1)?;
    handle.memory.store(memory as u64, Relaxed);
    handle.size.store(size, Relaxed);
    handle.threads.store(count, Relaxed);
    let first = memory.wrapping_add(buffer as usize).cast::<Noted>();
    // SAFETY: fresh zeroed memory, aligned to a page, known only to the caller; all zero is a valid
    // list.
    let threads = unsafe { core::slice::from_raw_parts_mut(first, count as usize) };
    let mut place = first as u64 + list;
    for (noted, slot) in threads.iter_mut().zip(0..) {
        let room = depth(slot).min(u64::from(arena.layout().open_call_capacity)) + OPEN_CALLS_MORE;
        let room = room.min((memory as u64 + size).saturating_sub(place) / size_of::<OpenCall>() as u64);
        noted.open_calls = place;
        if let Some(header) = arena.slot(slot).read() {
            noted.header = header;
            noted.open_calls_count = copy_open_calls(arena, &header, place, room, drops(process, slot));
        }
        place += noted.open_calls_count * size_of::<OpenCall>() as u64;
    }
    Some(threads)
}

/// Since when calls of a slot must have been open if they can't be dropped any more, in ticks.
fn drops(process: &'static Process, slot: u32) -> u64 {
    match process.control(slot).short.load(Relaxed) {
        0 => u64::MAX,
        short => everycall_hooks::ticks().saturating_sub(short.into()),
    }
}

/// Copies up to `room` open calls to `place`, without those that began after `until`: they may be
/// dropped before their thread's events are copied. Returns their number.
fn copy_open_calls(arena: &Arena, header: &ThreadHeader, place: u64, room: u64, until: u64) -> u64 {
    let Some(stack) = header.open_calls.checked_sub(1) else { return 0 };
    let (base, limit) = arena.open_calls(stack);
    let mut count = 0;
    // The first entry is the sentinel.
    let mut from = base + size_of::<OpenCall>() as u64;
    while count < room && from < limit {
        // SAFETY: both within memory that stays, aligned; the source is written by atomics.
        unsafe {
            let words = from as *const AtomicU64;
            let word = (*words).load(Relaxed);
            let high = (*words.add(2)).load(Relaxed) << 32;
            if word == 0 || until != u64::MAX && high | word >> 32 > until {
                break;
            }
            let to = (place + count * size_of::<OpenCall>() as u64) as *mut u64;
            to.write(word);
            to.add(1).write((*words.add(1)).load(Relaxed));
            to.add(2).write((*words.add(2)).load(Relaxed));
        }
        from += size_of::<OpenCall>() as u64;
        count += 1;
    }
    count
}

/// Pins all segments of the saved threads.
fn pin(process: &'static Process, arena: &Arena, bit: u32, threads: &mut [Noted]) {
    let pool = arena.pool();
    let mut index = 0;
    // Segments that come into use meanwhile are checked, too.
    while index < pool.taken.load(Acquire).min(arena.layout().segment_capacity) {
        if let Some(entry) = pool.entries.get(index as usize)
            && pool.pin(index, bit)
        {
            let number = entry.number.load(Relaxed);
            let generation = entry.generation.load(Relaxed);
            match threads.get_mut(entry.slot.load(Relaxed) as usize) {
                // A segment that only other snapshots pin isn't in the ring any more.
                Some(noted)
                    if noted.header.generation == generation
                        && is_there(&noted.header)
                        && pool.is_pinned(index, pinned_by::OWNER) =>
                {
                    if noted.segments == 0 || number < noted.first_number {
                        (noted.first, noted.first_number) = (index, number);
                    }
                    noted.last_number = noted.last_number.max(number);
                    noted.segments += 1;
                }
                // It belongs to a thread that has begun since, or is about to begin.
                _ => release(arena, index, bit),
            }
        }
        index += 1;
    }
    for (noted, slot) in threads.iter_mut().zip(0..) {
        let last = close_gaps(arena, bit, slot, noted);
        noted.last_words = pool.segment_words as u64;
        // The slot may belong to another thread by now, and a thread may move to the next segment
        // in between.
        let control = process.control(slot);
        let is_there = || last == Some(control.current.load(Acquire));
        if let Some(last) = last.filter(|_| is_there()) {
            let position = match control.suspended_position.load(Relaxed) {
                0 => control.position.load(Relaxed),
                suspended => suspended,
            };
            let words = position.wrapping_sub(pool.address(last)) / size_of::<u64>() as u64;
            if is_there() {
                noted.last_words = words.min(noted.last_words);
            }
        }
    }
}

/// A segment that came into use during the scan may have been checked too early. It is found
/// through its thread's list. If a segment can't be pinned any more, those before it are released,
/// because a snapshot holds one contiguous range of each thread's events. Returns the last
/// segment's index.
fn close_gaps(arena: &Arena, bit: u32, slot: u32, noted: &mut Noted) -> Option<u32> {
    let pool = arena.pool();
    let generation = noted.header.generation;
    if noted.segments == 0 {
        return None;
    }
    noted.segments = 1;
    let (mut index, mut number) = (noted.first, noted.first_number);
    while number < noted.last_number {
        let next = pool.entries.get(index as usize).and_then(|entry| entry.next.load(Acquire).checked_sub(1));
        let is_next =
            next.and_then(|next| Some((next, pool.entries.get(next as usize)?))).filter(|(next, entry)| {
                let was_pinned = pool.is_pinned(*next, bit);
                let is_own = (was_pinned || pool.pin(*next, bit))
                    && entry.slot.load(Relaxed) == slot
                    && entry.generation.load(Relaxed) == generation
                    && entry.number.load(Relaxed) == number + 1;
                if !was_pinned && !is_own {
                    release(arena, *next, bit);
                }
                is_own
            });
        if let Some((next, _)) = is_next {
            (index, number) = (next, number + 1);
            noted.segments += 1;
            continue;
        }
        let Some((later, of)) = successor(arena, bit, slot, noted, index, number) else {
            noted.last_number = number;
            break;
        };
        let mut old = Some((noted.first, noted.first_number));
        while let Some((place, before)) = old.filter(|(_, before)| *before <= number) {
            old = successor(arena, bit, slot, noted, place, before);
            release(arena, place, bit);
        }
        (index, number) = (later, of);
        (noted.first, noted.first_number, noted.segments) = (later, of, 1);
    }
    Some(index)
}

fn is_there(header: &ThreadHeader) -> bool {
    matches!(header.state, thread_state::USED | thread_state::ENDED)
}

/// Releases the segments that end before `since`. A segment ends where the next one begins, so the
/// newest one stays.
fn let_go_before(arena: &Arena, bit: u32, threads: &mut [Noted], since: u64) {
    for (noted, slot) in threads.iter_mut().zip(0..) {
        while noted.segments > 1 && since > 0 {
            let Some((next, number)) = successor(arena, bit, slot, noted, noted.first, noted.first_number)
            else {
                break;
            };
            if begin_ticks(arena, next).is_none_or(|ticks| ticks > since) {
                break;
            }
            release(arena, noted.first, bit);
            (noted.first, noted.first_number) = (next, number);
            noted.segments -= 1;
        }
    }
}

/// Reduces each thread's segments to what its ring held at the end of `call`, and what came since.
/// For the thread that made the call, everything since the call's begin stays. Some rings were
/// larger because a reader had asked them to keep their events; they get their normal size.
pub(crate) fn leave_rings(process: &'static Process, snapshot: u64, call: &TriggeredCall) -> Result<(), i32> {
    let arena = process.arena();
    let (entry, handle) = claim(process, snapshot)?;
    let bit = pinned_by::FIRST << entry;
    for (noted, slot) in lists(arena, handle).1.iter_mut().zip(0..) {
        let is_it = (slot, noted.header.generation) == (call.slot, call.generation);
        let (mut until_end, mut until_begin) = (0_u32, 0_u32);
        let mut next = Some((noted.first, noted.first_number)).filter(|_| noted.segments > 0);
        while let Some((index, number)) = next {
            let begin = begin_ticks(arena, index);
            if begin.is_none_or(|ticks| ticks > call.end_ticks) {
                break;
            }
            until_end += 1;
            until_begin += u32::from(begin.is_some_and(|ticks| ticks <= call.start_ticks));
            next = successor(arena, bit, slot, noted, index, number);
        }
        let mut too_many = until_end.saturating_sub(noted.header.ring_segments.max(1));
        if is_it {
            too_many = too_many.min(until_begin.saturating_sub(1));
        }
        for _ in 0..too_many {
            let Some((next, number)) = successor(arena, bit, slot, noted, noted.first, noted.first_number)
            else {
                break;
            };
            release(arena, noted.first, bit);
            (noted.first, noted.first_number) = (next, number);
            noted.segments -= 1;
        }
    }
    handle.state.store(snapshot_state::READY, Release);
    Ok(())
}

/// The index and number of the next pinned segment of a thread, after segment `index`, whose number
/// is `number`.
pub(super) fn successor(
    arena: &Arena,
    bit: u32,
    slot: u32,
    noted: &Noted,
    index: u32,
    number: u64,
) -> Option<(u32, u64)> {
    let pool = arena.pool();
    let number_of = |index: u32| {
        let entry = pool.entries.get(index as usize)?;
        let is_own = pool.is_pinned(index, bit)
            && entry.slot.load(Relaxed) == slot
            && entry.generation.load(Relaxed) == noted.header.generation;
        let of = entry.number.load(Relaxed);
        (is_own && of > number && of <= noted.last_number).then_some(of)
    };
    // This follows the thread's own list. If a segment was taken from us, all segments have to be
    // checked.
    let next = pool.entries.get(index as usize)?.next.load(Relaxed).checked_sub(1);
    if let Some(next) = next
        && pool.is_pinned(index, bit)
        && number_of(next) == Some(number + 1)
    {
        return Some((next, number + 1));
    }
    let count = pool.taken.load(Acquire).min(arena.layout().segment_capacity);
    (0..count).filter_map(|index| Some((index, number_of(index)?))).min_by_key(|(_, of)| *of)
}

/// The ticks with which a segment begins.
fn begin_ticks(arena: &Arena, index: u32) -> Option<u64> {
    let [first, second, ..] = arena.pool().segment(index) else { return None };
    match (Word::decode(first.load(Relaxed)), Word::decode(second.load(Relaxed))) {
        (Word::Record { ticks_low, kind: kind::SEGMENT, .. }, Word::Payload { payload, .. }) => {
            Some(u64::from(payload) << 32 | u64::from(ticks_low))
        }
        _ => None,
    }
}

/// Releases a segment, and wakes the threads that wait for one.
fn release(arena: &Arena, index: u32, bit: u32) {
    if arena.pool().release(index, bit) && arena.pool_waiters().load(Acquire) != 0 {
        arena.pool_doorbell().fetch_add(1, Release);
        system::wake(arena.pool_doorbell());
    }
}

/// Claims the handle's entry for the caller: no other thread works with it until its state is set.
fn claim(process: &'static Process, snapshot: u64) -> Result<(u32, &'static Handle), i32> {
    let entry = (snapshot & ((1 << ENTRY_BITS) - 1)).checked_sub(1).ok_or(error::ARGUMENT)? as u32;
    let handle = process.snapshots.0.get(entry as usize).ok_or(error::ARGUMENT)?;
    let is_it = || u64::from(handle.uses.load(Relaxed)) == snapshot >> ENTRY_BITS;
    match handle.state.compare_exchange(snapshot_state::READY, snapshot_state::BUSY, Acquire, Relaxed) {
        Ok(_) if is_it() => Ok((entry, handle)),
        Ok(_) => {
            handle.state.store(snapshot_state::READY, Release);
            Err(error::ARGUMENT)
        }
        Err(snapshot_state::BUSY) if is_it() => Err(error::BUSY),
        Err(_) => Err(error::ARGUMENT),
    }
}

/// A handle's buffer and its threads, for the thread that has claimed it.
fn lists(arena: &Arena, handle: &Handle) -> (&'static mut [u8], &'static mut [Noted]) {
    let memory = handle.memory.load(Relaxed) as *mut u8;
    let buffer = (arena.layout().segment_size + PAGE) as usize;
    let first = memory.wrapping_add(buffer).cast::<Noted>();
    // SAFETY: laid out by `note`; only the caller uses it while the state is BUSY.
    unsafe {
        (
            core::slice::from_raw_parts_mut(memory, buffer),
            core::slice::from_raw_parts_mut(first, handle.threads.load(Relaxed) as usize),
        )
    }
}

/// Opens the snapshot for writing.
pub(super) fn open(process: &'static Process, snapshot: u64) -> Result<Pinned<'static>, i32> {
    let (entry, handle) = claim(process, snapshot)?;
    let (buffer, threads) = lists(process.arena(), handle);
    Ok(Pinned { handle, bit: pinned_by::FIRST << entry, ticks: handle.ticks.load(Relaxed), threads, buffer })
}

/// Frees a snapshot.
pub(crate) fn free(process: &'static Process, snapshot: u64) -> Result<(), i32> {
    let (entry, handle) = claim(process, snapshot)?;
    let arena = process.arena();
    let bit = pinned_by::FIRST << entry;
    for index in 0..arena.pool().taken.load(Acquire).min(arena.layout().segment_capacity) {
        if arena.pool().is_pinned(index, bit) {
            release(arena, index, bit);
        }
    }
    system::unmap(handle.memory.load(Relaxed) as *mut u8, handle.size.load(Relaxed));
    leave(arena, entry, handle);
    Ok(())
}
