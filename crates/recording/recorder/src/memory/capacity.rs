//! The size of arenas within the limits of this process, which the program inherits.

use std::io;

use everycall_format::arena::{ArenaHeader, EXTRA_SIZE, OPEN_CALL_CAPACITY, THREAD_CAPACITY, stream};
use everycall_format::dropped::{FUNCTIONS, FUNCTIONS_MAX, TIMED_FUNCTIONS_MAX};
use everycall_format::trigger::SITES;
use rustix::process::{Resource, getrlimit};

use crate::memory::arena::{Arena, Unrecorded};
use crate::sys::error::RecordError;

/// Smallest useful number of threads.
const THREAD_CAPACITY_MIN: u32 = 4;
/// Bytes of segments beyond the rings if memory is limited.
const EXTRA_MIN: u64 = 1 << 20;
/// The arena takes at most this fraction of the program's address space.
const ADDRESS_SPACE_SHARE: u64 = 2;

/// How everything is recorded while the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Whether threads wait if there is no room; otherwise they overwrite, and the file has the
    /// count.
    pub stall: bool,
    /// Bytes beyond the threads' rings that may wait to be written.
    pub memory: u64,
}

/// The layout of the arenas of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    layout: ArenaHeader,
    /// Bytes that threads may use beyond their rings for triggers.
    trigger_memory: u64,
    unrecorded: Unrecorded,
}

impl Capacity {
    /// Arenas with rings of `ring_size` bytes and as many thread slots as the limits of this
    /// process allow, which the program inherits. With `stream`, finished segments wait in them to
    /// be written. With `trigger_memory`, there is room for triggers, and threads with their calls
    /// may use that many bytes beyond their rings. With `has_states`, there is room for scheduling
    /// events. `most_functions` can have counts, if limits allow it.
    ///
    /// # Errors
    ///
    /// Not even a few threads fit.
    pub fn find(
        ring_size: u64,
        stream: Option<Stream>,
        trigger_memory: Option<u64>,
        unrecorded: Unrecorded,
        has_states: bool,
        most_functions: u32,
    ) -> Result<Capacity, RecordError> {
        let sites = trigger_memory.map_or(0, |_| SITES);
        let trigger_memory = trigger_memory.unwrap_or(0);
        let extra_min = stream.map_or(EXTRA_MIN, |stream| stream.memory.min(EXTRA_MIN));
        let layout_for = |threads, functions, extra: u64| {
            let extra = extra.saturating_add(trigger_memory);
            let open_calls = OPEN_CALL_CAPACITY;
            let layout = ArenaHeader::with_stacks(ring_size, threads, extra, sites, open_calls, functions);
            let layout = if unrecorded.has_times() { layout.with_times() } else { layout };
            let layout = if has_states { layout.with_states() } else { layout };
            let layout = if unrecorded.has_values() { layout.with_values() } else { layout };
            ArenaHeader { stream: mode(stream), ..layout }
        };
        let allowed = allowed_size(layout_for(THREAD_CAPACITY_MIN, FUNCTIONS, extra_min).arena_size)?;
        let mut threads = THREAD_CAPACITY;
        let most = if unrecorded.has_times() { TIMED_FUNCTIONS_MAX } else { FUNCTIONS_MAX };
        let mut functions = most_functions.clamp(FUNCTIONS, most);
        let mut layout = layout_for(threads, functions, stream.map_or(EXTRA_SIZE, |stream| stream.memory));
        loop {
            let made =
                (layout.arena_size <= allowed).then(|| Arena::create(layout, trigger_memory, unrecorded));
            match made {
                Some(Ok(_)) => return Ok(Capacity { layout, trigger_memory, unrecorded }),
                Some(Err(source)) if threads <= THREAD_CAPACITY_MIN => {
                    return Err(RecordError::Arena { ring_size, source });
                }
                _ if functions == FUNCTIONS => threads /= 2,
                _ => functions = FUNCTIONS,
            }
            layout = layout_for(threads, functions, extra_min);
        }
    }

    /// Creates an arena.
    ///
    /// # Errors
    ///
    /// No memory, or no descriptor.
    pub fn arena(&self) -> io::Result<Arena> {
        Arena::create(self.layout, self.trigger_memory, self.unrecorded)
    }
}

/// The largest size of an arena in bytes; an error if `smallest` exceeds it.
fn allowed_size(smallest: u64) -> Result<u64, RecordError> {
    let limits = [
        ("RLIMIT_AS", "ulimit -v", Resource::As, ADDRESS_SPACE_SHARE),
        ("RLIMIT_FSIZE", "ulimit -f", Resource::Fsize, 1),
    ];
    let mut allowed = u64::MAX;
    for (limit, command, resource, share) in limits {
        let Some(bytes) = getrlimit(resource).current else { continue };
        if bytes / share < smallest {
            return Err(RecordError::Limit { limit, command, bytes, needed: smallest * share });
        }
        allowed = allowed.min(bytes / share);
    }
    Ok(allowed)
}

/// [`ArenaHeader::stream`] of `stream`.
fn mode(stream: Option<Stream>) -> u32 {
    match stream {
        None => stream::OFF,
        Some(Stream { stall: false, .. }) => stream::ON,
        Some(Stream { stall: true, .. }) => stream::STALL,
    }
}
