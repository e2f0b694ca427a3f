//! Triggers that a client has armed in a running process: where it finds what threads post.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::arena::{OpenCall, ThreadHeader};
use everycall_format::event::WORD_SIZE;
use everycall_format::trigger::LIVE_SITES;
use everycall_recorder::SharedTriggers;
use everycall_recorder::scan::Source;
use everycall_recorder::triggers::Fields;
use everycall_ring::Pool;

use std::sync::atomic::Ordering::Relaxed;

use crate::arena::LiveArena;

impl Fields for LiveArena {
    fn word_at(&self, offset: u64) -> Option<&AtomicU32> {
        self.mapping().u32_at(offset)
    }

    fn long_at(&self, offset: u64) -> Option<&AtomicU64> {
        self.mapping().u64_at(offset)
    }
}

impl Source for LiveArena {
    fn pool(&self) -> Pool<'_> {
        LiveArena::pool(self)
    }

    fn thread(&self, slot: u32) -> Option<ThreadHeader> {
        if slot < self.thread_count() { LiveArena::thread(self, slot) } else { None }
    }

    fn segment_size(&self) -> u64 {
        self.layout().segment_size
    }

    fn read_segment(&self, index: u32, bytes: &mut [u8]) {
        let capacity = self.layout().segment_capacity;
        let pool = LiveArena::pool(self);
        let words = if index < capacity { pool.segment(index) } else { &[] };
        for (place, word) in bytes.as_chunks_mut::<WORD_SIZE>().0.iter_mut().zip(words) {
            *place = word.load(Relaxed).to_le_bytes();
        }
    }
}

impl LiveArena {
    /// The triggers in an area for clients; `None` where there is no such area.
    #[must_use]
    pub fn armed(self: &Arc<LiveArena>, area: u32) -> Option<SharedTriggers> {
        let at = self.layout().live_triggers_at(area)?;
        let fields: Arc<dyn Fields> = Arc::<LiveArena>::clone(self);
        Some(SharedTriggers::in_memory(fields, at, LIVE_SITES))
    }

    /// The threads that are there, and the calls that each has open.
    pub fn stacks(&self) -> impl Iterator<Item = (u32, ThreadHeader, Vec<OpenCall>)> + '_ {
        (0..self.thread_count()).filter_map(|slot| {
            let thread = LiveArena::thread(self, slot)?;
            let calls = self.open_calls(&thread);
            Some((slot, thread, calls))
        })
    }
}
