//! Finds everycall's memory among the memory of a process.

use everycall_format::Wire;
use everycall_format::arena::{ARENA_MAGIC, ARENA_VERSION, ArenaHeader, ChildEntry, ModuleEntry};
use everycall_reader::{Error, ReadAt};

use crate::elf::{Elf, Load};
use crate::error::CoreError;

/// The name of the mapping under `record`, as the kernel shows it.
const MAPPING_NAME: &[u8] = b"/memfd:everycall-arena";
/// Most bytes of a table in use, of modules, children or paths: untrusted tables may claim any
/// size, and a core's holes read as endless zeros.
const TABLE_MAX: u64 = 16 << 20;
/// Thread slots that may be in use.
const THREADS_MAX: u32 = 1 << 16;
/// Segments that may be in use, of 64 KiB at most each.
const SEGMENTS_MAX: u32 = 1 << 24;

/// Where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub base: u64,
    pub size: u64,
    pub pid: u32,
}

/// The arena header in `bytes`, if it is one whose numbers make sense.
pub(crate) fn header(bytes: &[u8]) -> Result<Option<ArenaHeader>, Error> {
    let Some(header) = ArenaHeader::read(bytes).filter(|header| header.magic == ARENA_MAGIC) else {
        return Ok(None);
    };
    if header.version != ARENA_VERSION {
        return Err(Error::ArenaVersion(header.version));
    }
    let table = |count: u32, capacity: u32, size: usize| u64::from(count.min(capacity)) * size as u64;
    let sane = header.is_consistent(header.arena_size)
        && table(header.modules, header.module_capacity, ModuleEntry::SIZE) <= TABLE_MAX
        && table(header.children, header.child_capacity, ChildEntry::SIZE) <= TABLE_MAX
        && header.paths.min(header.paths_size) <= TABLE_MAX
        && header.segments_taken.min(header.segment_capacity) <= SEGMENTS_MAX
        && header.threads.min(header.thread_capacity) <= THREADS_MAX;
    if sane { Ok(Some(header)) } else { Err(Error::NotAnArena { available: header.arena_size }) }
}

/// Finds the arena of process `pid`, or that of the core's own process. Its mapping may be split
/// into many, as parts that were never used are left out of cores; the first part begins with its
/// header.
pub(crate) fn find(file: &dyn ReadAt, core: &Elf, pid: Option<u32>) -> Result<Place, CoreError> {
    let mut places = Vec::new();
    let mut unreadable = None;
    for load in &core.loads {
        match header_at(file, load)? {
            Ok(None) => {}
            Ok(Some(header)) => {
                let (base, size) = (load.address, header.arena_size);
                places.push(Place { base, size, pid: header.target_pid });
            }
            Err(error) => unreadable = Some(error),
        }
    }
    // Waiting ones belong to a recorder.
    places.retain(|place| place.pid != 0);
    let process = core.process.describe();
    let found = match pid.or(core.process.pid) {
        Some(pid) => places.iter().find(|place| place.pid == pid),
        None => places.first().filter(|_| places.len() == 1),
    };
    match (found, unreadable) {
        (Some(place), _) => Ok(*place),
        (None, Some(error)) => Err(CoreError::Arena(error)),
        (None, None) if places.is_empty() => {
            if let Some(path) = core.process.crash_file() {
                return Err(CoreError::CrashFile { process, path });
            }
            Err(CoreError::NoArena { process, listed: core.maps_file(MAPPING_NAME), cut: core.cut })
        }
        (None, None) => {
            let found = places.iter().map(|place| place.pid).collect();
            let process = pid.map_or(process, |pid| format!("process {pid}"));
            Err(CoreError::OtherProcess { process, found })
        }
    }
}

/// The arena header with which `load` begins.
fn header_at(file: &dyn ReadAt, load: &Load) -> Result<Result<Option<ArenaHeader>, Error>, CoreError> {
    let mut bytes = [0; ArenaHeader::SIZE];
    let wanted = usize::try_from(load.size).unwrap_or(usize::MAX).min(bytes.len());
    let count = file.read_full_at(load.offset, &mut bytes[..wanted])?;
    Ok(header(&bytes[..count]))
}
