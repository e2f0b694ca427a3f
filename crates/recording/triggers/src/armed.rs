//! Triggers that a client has armed in a running process: where it finds what threads post, and all
//! that keeping calls needs.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use everycall_format::arena::{ArenaHeader, OpenCall, ThreadHeader};
use everycall_format::event::WORD_SIZE;
use everycall_format::trigger::{LIVE_AREAS, LIVE_SITES, site_flags};
use everycall_live::LiveArena;
use everycall_recorder::{ArenaContents, ArenaFront, SharedTriggers};
use everycall_ring::Pool;

/// The arena of a process that runs, as what keeps calls wants it.
#[derive(Clone, Debug)]
pub struct ArmedArena(pub Arc<LiveArena>);

impl ArenaFront for ArmedArena {
    fn word_at(&self, offset: u64) -> Option<&AtomicU32> {
        self.0.word_at(offset)
    }

    fn long_at(&self, offset: u64) -> Option<&AtomicU64> {
        self.0.long_at(offset)
    }

    fn pool(&self) -> Pool<'_> {
        self.0.pool()
    }
}

impl ArenaContents for ArmedArena {
    fn file(&self) -> Option<(BorrowedFd<'_>, &ArenaHeader)> {
        None
    }

    fn thread_count(&self) -> u32 {
        self.0.thread_count()
    }

    fn thread(&self, slot: u32) -> ThreadHeader {
        let thread = if slot < self.0.thread_count() { self.0.thread(slot) } else { None };
        thread.unwrap_or_default()
    }

    fn open_calls(&self, slot: u32) -> Vec<OpenCall> {
        self.0.open_calls(&ArenaContents::thread(self, slot))
    }

    fn frame_names_since(&self, from: u64) -> Vec<u8> {
        self.0.frame_names_since(from)
    }

    fn segment_size(&self) -> u64 {
        self.0.layout().segment_size
    }

    fn read_segment(&self, index: u32, bytes: &mut [u8]) {
        let pool = self.0.pool();
        let words = if index < self.0.layout().segment_capacity { pool.segment(index) } else { &[] };
        for (place, word) in bytes.as_chunks_mut::<WORD_SIZE>().0.iter_mut().zip(words) {
            *place = word.load(Relaxed).to_le_bytes();
        }
    }
}

/// The triggers in an area of an arena for clients; `None` where there is no such area.
#[must_use]
pub fn armed(arena: &Arc<LiveArena>, area: u32) -> Option<SharedTriggers> {
    let at = arena.layout().live_triggers_at(area)?;
    let front: Arc<dyn ArenaFront> = Arc::new(ArmedArena(Arc::clone(arena)));
    Some(SharedTriggers::in_area(front, at, LIVE_SITES))
}

/// The numbers of the conditions on values that triggers have in a process, a bit for each.
/// `except`: the area of a client whose conditions don't count.
#[must_use]
pub fn conditions_in_use(arena: &Arc<LiveArena>, except: Option<u32>) -> u32 {
    let layout = arena.layout();
    let own = layout.triggers_at().map(|at| {
        let front: Arc<dyn ArenaFront> = Arc::new(ArmedArena(Arc::clone(arena)));
        SharedTriggers::in_area(front, at, layout.trigger_sites)
    });
    let others = (0..LIVE_AREAS).filter(|area| Some(*area) != except).filter_map(|area| armed(arena, area));
    let conditions = |triggers: SharedTriggers| {
        let flags = triggers.all_sites().map(|site| site.flags);
        flags.fold(0, |all, flags| all | site_flags::at_entry(flags) | site_flags::at_return(flags))
    };
    own.into_iter().chain(others).map(conditions).fold(0, |all, some| all | some)
}
