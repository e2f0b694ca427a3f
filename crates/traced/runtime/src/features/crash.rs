//! The arena in a file that outlives the process, however it dies (`EVERYCALL_CRASH`).
//!
//! The file is as large as the arena and mostly a hole. Disk space is allocated before anything is
//! written: on a full disk, a write to a mapped hole would end the program.
//!
//! - The tables get their space at the start.
//! - An open-call stack gets its space when a thread first uses it.
//! - Segments get their space a few at a time, before the pool hands them out ([`make_room`]).
//!
//! If there is no space, rings stay shorter, and new threads run untraced.
//!
//! The file is removed at `exit` ([`remove`]). Every other end of the process leaves it, without
//! anything having to be done at that moment.
#![allow(unsafe_code)] // Cells that the process's only thread writes at its start.

use crate::state::arena::Arena;
use crate::state::beginning;
use crate::state::crash_file::{IS_FILE, SEGMENTS};
use crate::state::process::{self, Process};
use crate::sys::disk::{self, Disk};
use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::folder::Folder;
use crate::sys::name::NAME_MAX;
use crate::sys::{processes, system};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::arena::{ArenaHeader, PAGE, counter};
use everycall_format::crash::{CRASH_MAGIC, CrashRecord, ENDING};

/// The most files of the same name and process id, left by earlier processes.
const TRIES: u32 = 1000;

static FOLDER: Folder = Folder::new();

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    NoPath,
    NoFolder,
    Link,
    NotPrivate,
    Disk,
    NotAllowed,
    Full,
    FileSize,
    OldKernel,
    TooMany,
    Other,
}

impl Trouble {
    /// The folder's problem, and how to fix it.
    pub(crate) fn text(self) -> &'static [u8] {
        match self {
            Trouble::NoPath => b"is no path of 1 to 1023 bytes; name a folder",
            Trouble::NoFolder => b"is not there, or is no folder; make it with mkdir -m 700",
            Trouble::Link => b"is a symbolic link; name the folder itself",
            Trouble::NotPrivate => {
                b"isn't this user's own, or others may write to it; name a folder of your own, chmod 700"
            }
            Trouble::Disk => {
                b"lies on a file system that can't keep room for a mapped file; ext4, XFS, Btrfs and tmpfs can"
            }
            Trouble::NotAllowed => b"can't be written to; name a folder that you may write to",
            Trouble::Full => b"lies on a disk without room; free some space",
            Trouble::FileSize => b"can't have a file of that size; raise the limit (ulimit -f)",
            Trouble::OldKernel => b"needs Linux 5.14 or newer",
            Trouble::TooMany => b"holds a thousand crash files of this name; delete old ones",
            Trouble::Other => b"can't have a file that is mapped; name another folder",
        }
    }

    fn of(error: isize) -> Trouble {
        match error {
            errno::ENOENT | errno::ENOTDIR => Trouble::NoFolder,
            errno::ELOOP => Trouble::Link,
            errno::ENOSPC | errno::EDQUOT => Trouble::Full,
            _ => Trouble::NotAllowed,
        }
    }
}

/// A mapped file, and its name.
pub(crate) struct Mapped {
    pub(crate) base: *mut u8,
    name: [u8; NAME_MAX],
    /// Device and inode.
    identity: (u64, u64),
}

/// Remembers the folder.
pub(crate) fn set_folder(path: &[u8]) -> Result<(), Trouble> {
    if FOLDER.set(path) { Ok(()) } else { Err(Trouble::NoPath) }
}

/// Makes a file for an arena of this layout and maps it. The header isn't written yet.
pub(crate) fn map(layout: &ArenaHeader) -> Result<Mapped, Trouble> {
    if layout.arena_size > system::file_size_limit() {
        return Err(Trouble::FileSize);
    }
    let folder = File::open_folder(FOLDER.path()).map_err(|error| match error {
        // A link to something else than a folder must not be followed. Either error means that it
        // is a link.
        errno::ENOTDIR if is_link() => Trouble::Link,
        other => Trouble::of(other),
    })?;
    if !disk::is_private(&folder) {
        return Err(Trouble::NotPrivate);
    }
    let disk = disk::disk_of(&folder);
    if disk == Disk::Other {
        return Err(Trouble::Disk);
    }
    let (file, name) = create(&folder)?;
    let identity = disk::identity_of(file.number()).unwrap_or_default();
    let mapped = fill(&file, disk, layout).map(|base| Mapped { base, name, identity });
    if mapped.is_err() {
        folder.remove_in(&name);
    }
    mapped
}

/// Whether the last part of the folder's path is a symbolic link.
fn is_link() -> bool {
    // With a slash behind it, a link to a folder is followed.
    File::open_folder(FOLDER.path_of(b"").text()).is_ok()
}

/// Makes a new file: NAME-PID.arena, or NAME-PID.NUMBER.arena if an earlier process left one with
/// that name.
fn create(folder: &File) -> Result<(File, [u8; NAME_MAX]), Trouble> {
    for attempt in 0..TRIES {
        let mut name = processes::file_name();
        if attempt > 0 {
            name.put(b".");
            name.put_number(attempt);
        }
        name.put(ENDING.as_bytes());
        match folder.create_in(name.text()) {
            Ok(file) => return Ok((file, name.bytes())),
            Err(errno::EEXIST) => {}
            Err(error) => return Err(Trouble::of(error)),
        }
    }
    Err(Trouble::TooMany)
}

fn fill(file: &File, disk: Disk, layout: &ArenaHeader) -> Result<*mut u8, Trouble> {
    if disk == Disk::Marked && !disk::mark(file) {
        return Err(Trouble::Disk);
    }
    let size = layout.arena_size;
    disk::set_size(file, size).map_err(|_| Trouble::FileSize)?;
    let touched = match disk::take_room(file, layout.open_calls_offset) {
        Ok(()) => PAGE,
        Err(error @ (errno::ENOSPC | errno::EDQUOT)) => return Err(Trouble::of(error)),
        // The file system has no such request, so space is allocated page by page.
        Err(_) => layout.open_calls_offset,
    };
    let base = file.map_shared(size).ok_or(Trouble::Other)?;
    if let Err(error) = disk::take_room_at(base as u64, touched) {
        system::unmap(base, size);
        return Err(if error == errno::EINVAL { Trouble::OldKernel } else { Trouble::Full });
    }
    Ok(base)
}

/// The arena is in a file now. From here on, disk space has to be allocated.
pub(crate) fn begin(arena: &Arena) {
    SEGMENTS.store(0, Relaxed);
    IS_FILE.store(true, Relaxed);
    let mut record =
        CrashRecord { magic: CRASH_MAGIC, name: processes::process_name(), ..CrashRecord::default() };
    if let Some(file) = File::open(b"/proc/sys/kernel/random/boot_id\0", false) {
        let length = file.read(&mut record.boot);
        // The newline at the end.
        if let Some(end) = record.boot.get_mut(length.saturating_sub(1)) {
            *end = 0;
        }
    }
    beginning::put_record(arena, &record);
}

/// Removes the file that [`map`] made.
pub(crate) fn give_up(mapped: &Mapped) {
    remove_file(&mapped.name, mapped.identity);
}

/// Disables crash files from here on.
pub(crate) fn forget() {
    FOLDER.forget();
}

/// The arena is in memory, though the parent's was in a file.
pub(crate) fn begin_without(arena: &Arena) {
    SEGMENTS.store(u32::MAX, Relaxed);
    IS_FILE.store(false, Relaxed);
    arena.count(counter::CRASH_NO_ROOM, 1);
}

/// Remembers the file's name in the process to which it belongs.
pub(crate) fn own(process: &Process, mapped: &Mapped) {
    // SAFETY: the thread that starts a process is the only one.
    unsafe {
        *process.crash.name.get() = mapped.name;
        *process.crash.identity.get() = mapped.identity;
    }
}

/// The process ends by `exit`, so the file isn't needed.
pub(crate) fn remove() {
    let Some(process) = process::process() else { return };
    // A child that was forked from it has a file of its own, or none: its memory is wiped. A child
    // that shares its memory isn't the owner.
    // SAFETY: written when the process began.
    let (name, identity) = unsafe { (&*process.crash.name.get(), *process.crash.identity.get()) };
    if name.first() != Some(&0) && process.pid.load(Relaxed) == system::process_id() {
        remove_file(name, identity);
    }
}

/// Removes the file if it is still the same one. By now, the folder's path may lead elsewhere.
fn remove_file(name: &[u8; NAME_MAX], identity: (u64, u64)) {
    let Ok(folder) = File::open_folder(FOLDER.path()) else { return };
    let named = folder.named_in(name).ok().and_then(|file| disk::identity_of(file.number()));
    if named == Some(identity) {
        folder.remove_in(name);
    }
}
