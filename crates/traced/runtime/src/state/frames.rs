//! The names of frames by id in the arena: see [`everycall_format::frame`]. Any thread may add some
//! at any time, without a lock.
#![allow(unsafe_code)] // Shared memory: the names in the arena, by their addresses.

use crate::state::arena::Arena;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::Wire;
use everycall_format::frame::{FrameName, FrameNames, NamedFrame, RECORD_ALIGN, Records, TEXT_MAX, used};

/// Bytes for records.
fn room(arena: &Arena) -> u64 {
    arena.layout().frames_size.saturating_sub(FrameNames::SIZE as u64)
}

/// A name that is to be stored.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) id: u32,
    pub(crate) name: &'a [u8],
    pub(crate) file: &'a [u8],
    pub(crate) line: u32,
}

fn header(arena: &Arena) -> *mut u8 {
    arena.base().wrapping_add(arena.layout().frames_offset as usize)
}

fn records(arena: &Arena) -> *mut u8 {
    header(arena).wrapping_add(FrameNames::SIZE)
}

fn used_bytes(arena: &Arena) -> &'static AtomicU64 {
    field!(header(arena), FrameNames, used, AtomicU64)
}

/// Notes in the arena that the process has frames by id.
pub(crate) fn begin(arena: &Arena) {
    field!(header(arena), FrameNames, is_used, AtomicU32).fetch_or(used::FRAMES, Relaxed);
}

/// Notes in the arena that there are tables of trampolines.
pub(crate) fn begin_trampolines(arena: &Arena) {
    field!(header(arena), FrameNames, is_used, AtomicU32).fetch_or(used::TRAMPOLINES, Relaxed);
}

/// Notes in the arena that there are layouts of captures.
pub(crate) fn begin_captures(arena: &Arena) {
    field!(header(arena), FrameNames, is_used, AtomicU32).fetch_or(used::CAPTURES, Relaxed);
}

/// Counts a name that found no room.
pub(crate) fn lose(arena: &Arena) {
    field!(header(arena), FrameNames, lost, AtomicU64).fetch_add(1, Relaxed);
}

/// The bytes that a name takes.
fn size_of_record(name: &Name<'_>) -> u64 {
    ((FrameName::SIZE + name.name.len() + name.file.len()) as u64).next_multiple_of(RECORD_ALIGN)
}

/// Stores a name. `make_room`: makes sure that the arena's bytes from the first offset to the
/// second one can be written. Returns whether there was room.
pub(crate) fn put(arena: &Arena, name: Name<'_>, make_room: impl FnOnce(u64, u64) -> bool) -> bool {
    let cut = |text: &'_ [u8]| text.len().min(TEXT_MAX);
    let name = Name {
        name: name.name.get(..cut(name.name)).unwrap_or_default(),
        file: name.file.get(..cut(name.file)).unwrap_or_default(),
        ..name
    };
    let size = size_of_record(&name);
    let used = used_bytes(arena);
    let first = arena.layout().frames_offset;
    // Before the place is taken: a record that is never written would hide what follows it.
    let behind = |at: u64| first + FrameNames::SIZE as u64 + at;
    let (at, room) = (used.load(Relaxed), room(arena));
    if at.saturating_add(2 * size) > room || !make_room(first, behind(at + 2 * size)) {
        return false;
    }
    let Ok(at) = used.fetch_update(Relaxed, Relaxed, |used| Some(used + size).filter(|end| *end <= room))
    else {
        return false;
    };
    let record = records(arena).wrapping_add(at as usize);
    field!(record, FrameName, size, AtomicU32).store(size as u32, Release);
    field!(record, FrameName, id, AtomicU32).store(name.id, Relaxed);
    field!(record, FrameName, line, AtomicU32).store(name.line, Relaxed);
    field!(record, FrameName, name_length, AtomicU32).store(name.name.len() as u32, Relaxed);
    field!(record, FrameName, file_length, AtomicU32).store(name.file.len() as u32, Relaxed);
    let texts = record.wrapping_add(FrameName::SIZE);
    // SAFETY: within the names; the place was taken for this record alone.
    unsafe {
        core::ptr::copy_nonoverlapping(name.name.as_ptr(), texts, name.name.len());
        core::ptr::copy_nonoverlapping(
            name.file.as_ptr(),
            texts.wrapping_add(name.name.len()),
            name.file.len(),
        );
    }
    field!(record, FrameName, is_complete, AtomicU32).store(1, Release);
    true
}

/// The header of the names and the records so far, without those that are just being written and
/// what follows them; with their offset in the arena. Empty if the process has no frames by id.
pub(crate) fn told(arena: &Arena) -> (u64, &'static [u8]) {
    let first = arena.layout().frames_offset;
    if field!(header(arena), FrameNames, is_used, AtomicU32).load(Relaxed) == 0 {
        return (first, &[]);
    }
    let end = used_bytes(arena).load(Acquire).min(room(arena)) as usize;
    let mut size = 0;
    while size + FrameName::SIZE <= end {
        let record = records(arena).wrapping_add(size);
        let length = field!(record, FrameName, size, AtomicU32).load(Acquire) as usize;
        let is_complete = field!(record, FrameName, is_complete, AtomicU32).load(Acquire) != 0;
        if length < FrameName::SIZE || !length.is_multiple_of(RECORD_ALIGN as usize) || !is_complete {
            break;
        }
        size += length;
    }
    let size = FrameNames::SIZE + size.min(end);
    // SAFETY: within the arena by its layout; complete records don't change.
    let bytes = unsafe { core::slice::from_raw_parts(header(arena).cast_const(), size) };
    (first, bytes)
}

/// The records alone, and how many names found no room. `None` if the process has no frames by id.
pub(crate) fn records_told(arena: &Arena) -> Option<(&'static [u8], u64)> {
    let (_, bytes) = told(arena);
    let records = bytes.get(FrameNames::SIZE..)?;
    Some((records, field!(header(arena), FrameNames, lost, AtomicU64).load(Relaxed)))
}

/// Calls `each` with the names so far, in their order: the last one of an id counts.
pub(crate) fn each(arena: &Arena, mut each: impl FnMut(Name<'static>)) {
    let (_, bytes) = told(arena);
    for NamedFrame { id, name, file, line } in Records::of(bytes.get(FrameNames::SIZE..).unwrap_or(&[])) {
        each(Name { id, name, file, line });
    }
}

/// In a forked child, whose arena has its parent's complete records: later ones follow them.
/// Returns the bytes that are there.
pub(crate) fn begin_child(arena: &Arena) -> u64 {
    let (_, bytes) = told(arena);
    if let Some(records) = bytes.get(FrameNames::SIZE..) {
        used_bytes(arena).store(records.len() as u64, Relaxed);
    }
    bytes.len() as u64
}
