//! Frames that have addresses in place of ids, where something depends on their names: triggers,
//! selections, counts. Such a frame gets one of the last ids, with the name that its compiler has
//! written into `perf-PID.map`, and is from then on a frame by id.
//!
//! The map is looked at before each such call, as the compiler may just have written a line, and
//! code at an address may be another one than before.
#![allow(unsafe_code)] // What the lock protects.

use crate::features::frames;
use crate::state::code_log::{CodeLog, Found, NamePlace};
use crate::state::frames::Name as FrameName;
use crate::state::process::Process;
use crate::state::trigger_table::Triggers;
use crate::state::{dropped, selection};
use crate::sys::block::Block;
use crate::sys::disk;
use crate::sys::lock::Lock;
use crate::sys::perf_files::{self, map_path};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::frame::TEXT_MAX;

/// Bytes of a map that are read at once; longer lines are lost.
const BUFFER: u64 = 64 << 10;
/// Most bytes of a map.
const MAP_MAX: u64 = 256 << 20;

/// The parent's map, then the process's own.
static MAPS: [Map; 2] = [const { Map::new() }; 2];
static LOG: Log = Log(UnsafeCell::new(CodeLog::new()));
/// Held while the log is used.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// Whether names of code were ever wanted: from then on, frames have ids.
static IS_WANTED: AtomicU32 = AtomicU32::new(0);

struct Log(UnsafeCell<CodeLog>);

// SAFETY: used under the lock alone.
unsafe impl Sync for Log {}

/// How far a map was read.
struct Map {
    /// Its size when it was read last.
    size: AtomicU64,
    /// Where the first line begins that wasn't complete then.
    read: AtomicU64,
}

impl Map {
    const fn new() -> Map {
        Map { size: AtomicU64::new(0), read: AtomicU64::new(0) }
    }
}

/// The id of the frame whose code is at `address`; `None` if nothing depends on its name, or it has
/// none. `is_entry`: the name may be new.
pub(crate) fn id_of(process: &'static Process, address: u64, is_entry: bool) -> Option<u32> {
    if !is_wanted(process) {
        return None;
    }
    let pids = [process.arena().forked_from(), process.pid.load(Relaxed)];
    let has_grown = |(map, pid): (&Map, u32)| {
        pid != 0 && disk::size_at(map_path(pid).text()).is_some_and(|size| size != map.size.load(Relaxed))
    };
    let has_news = is_entry && MAPS.iter().zip(pids).any(has_grown);
    let _lock = Lock::take(&LOCK);
    // SAFETY: the lock is held, and the slow path isn't entered again in this thread.
    let log = unsafe { &mut *LOG.0.get() };
    if has_news {
        for ((map, pid), file) in MAPS.iter().zip(pids).zip(0..) {
            read_lines(log, map, pid, file);
        }
    }
    match log.find(address) {
        Found::Nothing => None,
        Found::Id(id) => Some(id),
        Found::Unnamed(line, place) => {
            let pid = *pids.get(place.file as usize)?;
            let mut text = [0; TEXT_MAX];
            let name = name_at(pid, place, &mut text)?;
            let id = log.give_id(line)?;
            frames::name(process, FrameName { id, name, file: &[], line: 0 }).then_some(id)
        }
    }
}

/// Whether something depends on names.
fn is_wanted(process: &Process) -> bool {
    if IS_WANTED.load(Relaxed) != 0 {
        return true;
    }
    let is_wanted = dropped::is_counting()
        || !selection::is_everything()
        || Triggers::all(process.arena()).any(|triggers| triggers.frame_rules().next().is_some());
    IS_WANTED.store(u32::from(is_wanted), Relaxed);
    is_wanted
}

/// In a forked child: a thread of the parent may have held the lock, and the parent's map is the
/// one of the process that this one was forked from.
pub(crate) fn begin_child() {
    LOCK.store(0, Relaxed);
    let [parents, own] = &MAPS;
    parents.size.store(own.size.swap(0, Relaxed), Relaxed);
    parents.read.store(own.read.swap(0, Relaxed), Relaxed);
    // SAFETY: the only thread, and not within `id_of`.
    unsafe { &mut *LOG.0.get() }.begin_child();
}

/// Reads what was added to a map.
fn read_lines(log: &mut CodeLog, map: &Map, pid: u32, number: u32) {
    let Some((file, size)) = perf_files::open(map_path(pid).text()).filter(|_| pid != 0) else { return };
    let mut at = map.read.load(Relaxed);
    if size < at {
        // It was begun anew.
        log.forget(number);
        at = 0;
    }
    map.size.store(size, Relaxed);
    let Some(mut buffer) = Block::new(BUFFER) else { return };
    while at < size.min(MAP_MAX) {
        let count = file.read_at(buffer.bytes_mut(), at);
        let Some(bytes) = buffer.bytes().get(..count) else { break };
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(text) = line.strip_suffix(b"\n") {
                log.add(number, at + used, text.trim_ascii_end());
                used += line.len() as u64;
            }
        }
        if used == 0 {
            // The compiler is still writing the line, or it is too long.
            let is_too_long = count as u64 == BUFFER;
            at += if is_too_long { BUFFER } else { 0 };
            if !is_too_long {
                break;
            }
        }
        at += used;
    }
    map.read.store(at, Relaxed);
}

/// The name that begins at a place, up to the end of its line.
fn name_at(pid: u32, place: NamePlace, text: &mut [u8; TEXT_MAX]) -> Option<&[u8]> {
    let (file, _) = perf_files::open(map_path(pid).text())?;
    let count = file.read_at(text, place.offset);
    let name = text.get(..count)?.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    (!name.is_empty()).then_some(name)
}
