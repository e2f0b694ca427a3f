//! The command line and folder with which the process was started. A program may overwrite its
//! command line and change its folder, so both are read when the runtime starts, and stored in each
//! arena of the process. An arena has little space, so a longer command line is kept in private
//! memory, for snapshots that the process takes itself.
#![allow(unsafe_code)] // Cells that are written at the start alone.

use crate::state::arena::Arena;
use crate::sys::system::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use crate::sys::{processes, system};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::Wire;
use everycall_format::arena::PAGE;
use everycall_format::crash::{BEGIN_MAGIC, COMMAND_MAX, CRASH_OFFSET, CrashRecord};

/// The most bytes of the folder that are kept. A longer one is left out.
const FOLDER_MAX: usize = 512;

/// The most bytes of a command line that are kept: as many as Linux allows with a stack limit of 8
/// MiB. The last word of a longer command line ends in [`CUT`].
const LONG_MAX: usize = 2 << 20;
/// Marks the end of a truncated command line.
const CUT: &[u8] = b"...\0";

/// The command line, if the arena has no space for it.
static LONG: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static LONG_LENGTH: AtomicU32 = AtomicU32::new(0);

struct Texts {
    /// The command line, then the folder.
    bytes: UnsafeCell<[u8; COMMAND_MAX]>,
    command: AtomicU32,
    folder: AtomicU32,
}

// SAFETY: written only at the start, by one thread, before any thread reads.
unsafe impl Sync for Texts {}

static TEXTS: Texts =
    Texts { bytes: UnsafeCell::new([0; COMMAND_MAX]), command: AtomicU32::new(0), folder: AtomicU32::new(0) };

/// Reads the command line and the folder. Call it only at the start.
pub(crate) fn note() {
    // SAFETY: as above.
    let bytes = unsafe { &mut *TEXTS.bytes.get() };
    let mut folder = [0; FOLDER_MAX];
    let length = processes::working_folder(&mut folder);
    let room = bytes.len().saturating_sub(length);
    let command = bytes.get_mut(..room).map_or(0, |bytes| processes::command_line(bytes).len());
    let place = bytes.get_mut(command..).unwrap_or(&mut []);
    place.iter_mut().zip(folder.iter().take(length)).for_each(|(to, from)| *to = *from);
    if command == room {
        note_long();
    }
    TEXTS.folder.store(length as u32, Relaxed);
    TEXTS.command.store(command as u32, Release);
}

/// Keeps a command line for which the arena may have no space. If there is no memory, only the part
/// in the arena is known.
fn note_long() {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Some(memory) = system::map(LONG_MAX as u64, PROT_READ | PROT_WRITE, flags, -1) else { return };
    // SAFETY: fresh memory, which no other code accesses.
    let bytes = unsafe { core::slice::from_raw_parts_mut(memory, LONG_MAX) };
    let length = processes::command_line(bytes).len();
    if length == LONG_MAX {
        let end = bytes.iter_mut().rev().zip(CUT.iter().rev());
        end.for_each(|(to, from)| *to = *from);
    }
    let used = (length as u64).next_multiple_of(PAGE);
    if used < LONG_MAX as u64 {
        system::unmap(memory.wrapping_add(used as usize), LONG_MAX as u64 - used);
    }
    if used > 0 {
        LONG_LENGTH.store(length as u32, Relaxed);
        LONG.store(memory, Release);
    }
}

/// The lengths of command line and folder, and the bytes of both.
fn texts() -> (usize, usize, &'static [u8]) {
    let command = TEXTS.command.load(Acquire) as usize;
    let folder = TEXTS.folder.load(Relaxed) as usize;
    // SAFETY: as above.
    let bytes = unsafe { &*TEXTS.bytes.get() };
    (command, folder, bytes.get(..command.saturating_add(folder)).unwrap_or(&[]))
}

/// The command line, with a NUL after each word. Empty if it could not be read.
pub(crate) fn command_line() -> &'static [u8] {
    let long = LONG.load(Acquire);
    if !long.is_null() {
        // SAFETY: never unmapped, and not written any more.
        return unsafe { core::slice::from_raw_parts(long, LONG_LENGTH.load(Relaxed) as usize) };
    }
    let (command, _, bytes) = texts();
    bytes.get(..command).unwrap_or(&[])
}

/// The folder in which the process was started. Empty if it isn't known.
pub(crate) fn folder() -> &'static [u8] {
    let (command, _, bytes) = texts();
    bytes.get(command..).unwrap_or(&[])
}

/// Puts `record` into an arena, with both texts.
pub(crate) fn put_record(arena: &Arena, record: &CrashRecord) {
    let (command, folder, texts) = texts();
    let record = CrashRecord {
        record_size: CrashRecord::SIZE as u32,
        command_length: command as u32,
        folder_length: folder as u32,
        ..*record
    };
    let bytes = record.to_bytes();
    arena.put_bytes(CRASH_OFFSET + CrashRecord::SIZE as u64, texts);
    arena.put_bytes(CRASH_OFFSET, &bytes);
}

/// Puts both texts into an arena that isn't a crash file.
pub(crate) fn put(arena: &Arena) {
    let name = system::thread_name();
    put_record(arena, &CrashRecord { magic: BEGIN_MAGIC, name, ..CrashRecord::default() });
}
