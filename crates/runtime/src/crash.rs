//! The arena in a file that outlives any death (`EVERYCALL_CRASH`).
//!
//! The file is as large as the arena and mostly a hole. Room on the disk is taken before anybody writes there: a write to a mapped
//! hole of a full disk would end the program. So its tables get their room at the start, an open-call stack when a thread first has it, and segments
//! a few at a time, before the pool hands them out ([`make_room`]). Where there is no room, rings stay shorter, and new threads run untraced.
//!
//! The file goes at `exit` ([`remove`]). What ends the process otherwise leaves it, whoever that is: nobody has to do anything then.

use crate::arena::Arena;
use crate::beginning;
use crate::disk::{self, Disk};
use crate::file::{File, errno};
use crate::folder::{Folder, NAME_MAX, Name};
use crate::lock::Lock;
use crate::process::{self, Process};
use crate::start;
use crate::system;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ClockReading, PAGE, THREAD_CAPACITY, counter};
use everycall_format::crash::{CRASH_MAGIC, CRASH_OFFSET, CrashRecord, ENDING};

/// Files of the same name and process id that may lie there: those of earlier processes.
const TRIES: u32 = 1000;
/// Bytes of segments for which room is taken at a time.
const STEP: u64 = 256 << 10;
/// Segments that are to have room before anybody needs them.
const AHEAD: u32 = 2;
/// How often a thread takes room that others may use up before it comes to it.
pub(crate) const ROOM_TRIES: u32 = 4;
/// Ticks until room is asked for again where there was none: a full disk is slow to say so.
const PAUSE: u64 = 1 << 32;
/// Ticks between two looks at the clocks.
const LOOK: u64 = 1 << 28;

static FOLDER: Folder = Folder::new();
/// Whether the arena is a file.
static IS_FILE: AtomicBool = AtomicBool::new(false);
/// Segments from the pool's begin that have room on the disk.
static SEGMENTS: AtomicU32 = AtomicU32::new(u32::MAX);

/// A process's part of it: wiped in a forked child, which is not to remove its parent's file.
pub(crate) struct State {
    name: UnsafeCell<[u8; NAME_MAX]>,
    /// Device and inode.
    identity: UnsafeCell<(u64, u64)>,
    /// Held while room is taken.
    room_lock: AtomicU32,
    /// Until then nobody asks for room.
    no_room_until: AtomicU64,
    /// Open-call stacks that have room on the disk: a set of their indices.
    stacks: [AtomicU64; (THREAD_CAPACITY / u64::BITS) as usize],
    /// Held while the clocks are looked at.
    clock_lock: AtomicU32,
    /// When that was, ticks.
    looked: AtomicU64,
}

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
    /// What is wrong with the folder, and what helps.
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

/// Makes a file for an arena of this layout and maps it. Its header isn't written.
pub(crate) fn map(layout: &ArenaHeader) -> Result<Mapped, Trouble> {
    if layout.arena_size > system::file_size_limit() {
        return Err(Trouble::FileSize);
    }
    let folder = File::open_folder(FOLDER.path()).map_err(|error| match error {
        // A link that is no folder may not be followed: either error says so.
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

/// A new file: NAME-PID.arena, or NAME-PID.NUMBER.arena where an earlier process left such a one.
fn create(folder: &File) -> Result<(File, [u8; NAME_MAX]), Trouble> {
    for attempt in 0..TRIES {
        let mut name = Name::of_process();
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
        // The file system has no such request: by pages, then.
        Err(_) => layout.open_calls_offset,
    };
    let base = file.map_shared(size).ok_or(Trouble::Other)?;
    if let Err(error) = disk::take_room_at(base as u64, touched) {
        system::unmap(base, size);
        return Err(if error == errno::EINVAL { Trouble::OldKernel } else { Trouble::Full });
    }
    Ok(base)
}

/// The arena lies in a file now: from here on, room has to be taken.
pub(crate) fn begin(arena: &Arena) {
    SEGMENTS.store(0, Relaxed);
    IS_FILE.store(true, Relaxed);
    let mut record =
        CrashRecord { magic: CRASH_MAGIC, name: system::process_name(), ..CrashRecord::default() };
    if let Some(file) = File::open(b"/proc/sys/kernel/random/boot_id\0", false) {
        let length = file.read(&mut record.boot);
        // The line's end.
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

/// No crash files from here on.
pub(crate) fn forget() {
    FOLDER.forget();
}

/// Whether the arena is a file.
pub(crate) fn is_file() -> bool {
    IS_FILE.load(Relaxed)
}

/// The arena lies in memory, though the parent's lay in a file.
pub(crate) fn begin_without(arena: &Arena) {
    SEGMENTS.store(u32::MAX, Relaxed);
    IS_FILE.store(false, Relaxed);
    arena.count(counter::CRASH_NO_ROOM, 1);
}

/// Remembers the file's name in the process that it is of.
pub(crate) fn own(process: &Process, mapped: &Mapped) {
    // SAFETY: whoever starts a process is alone.
    unsafe {
        *process.crash.name.get() = mapped.name;
        *process.crash.identity.get() = mapped.identity;
    }
}

/// How many segments have room on the disk, where that matters.
pub(crate) fn room() -> Option<&'static AtomicU32> {
    IS_FILE.load(Relaxed).then_some(&SEGMENTS)
}

/// Takes room for some more segments where they run out. `in_need`: a thread found none. It doesn't wait for another one that is at it,
/// which may take long to come to its end: both take the same room.
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

/// Takes room for open-call stack `index`, from `base` to `limit`, unless a thread had it before. Whether it has room. (Nobody may even
/// look at one without: on tmpfs, that takes room too.)
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
    let Some(word) = process.crash.stacks.get((index / u64::BITS) as usize) else { return false };
    let bit = 1 << (index % u64::BITS);
    if word.load(Relaxed) & bit != 0 {
        return true;
    }
    let has_room = process.crash.no_room_until.load(Relaxed) <= everycall_hooks::ticks()
        && take_room(process, arena, base, limit.saturating_sub(base));
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

/// Notes what the clocks say, now and then: so the counter's rate is known whenever the process dies.
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
    arena.put_latest(&start::clock_reading());
}

/// The process ends by `exit`: nobody needs the file.
pub(crate) fn remove() {
    let Some(process) = process::process() else { return };
    // A child that was forked from it has its own, or nothing: its memory is wiped. One that shares its memory isn't it.
    // SAFETY: written when the process began.
    let (name, identity) = unsafe { (&*process.crash.name.get(), *process.crash.identity.get()) };
    if name.first() != Some(&0) && process.pid.load(Relaxed) == system::process_id() {
        remove_file(name, identity);
    }
}

/// Removes the file, if it is this one: by now the folder's path may lead elsewhere.
fn remove_file(name: &[u8; NAME_MAX], identity: (u64, u64)) {
    let Ok(folder) = File::open_folder(FOLDER.path()) else { return };
    let named = folder.named_in(name).ok().and_then(|file| disk::identity_of(file.number()));
    if named == Some(identity) {
        folder.remove_in(name);
    }
}

impl Arena {
    /// Stores what the clocks say into the older of the two places: first its ticks go, and they come last.
    fn put_latest(&self, reading: &ClockReading) {
        let first = CRASH_OFFSET + offset_of!(CrashRecord, latest) as u64;
        let ticks = |place: u64| {
            let address = self.base() as u64 + first + place * ClockReading::SIZE as u64;
            // SAFETY: within the header page, aligned.
            unsafe { &*(address as *const AtomicU64) }
        };
        let place = u64::from(ticks(1).load(Relaxed) < ticks(0).load(Relaxed));
        ticks(place).store(0, Relaxed);
        let mut bytes = [0; ClockReading::SIZE];
        reading.write(&mut bytes);
        let ticks_size = size_of::<u64>();
        fence(Release);
        self.put_bytes(
            first + place * ClockReading::SIZE as u64 + ticks_size as u64,
            bytes.get(ticks_size..).unwrap_or(&[]),
        );
        ticks(place).store(reading.ticks, Release);
    }
}
