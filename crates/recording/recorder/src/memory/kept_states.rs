//! The newest scheduling events of a process in its arena: a core of the process has them, and they
//! are there when this recorder was killed.
//!
//! Nothing is read back from there: the traced process may have written anything.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

use everycall_format::Wire;
use everycall_format::arena::ClockReading;
use everycall_format::kept_states::KeptHeader;
use everycall_format::sched::{KEPT_EVENTS, KEPT_EVENTS_AT, SchedEvent, clock};

use crate::memory::arena::Arena;

/// One process's.
#[derive(Debug)]
pub struct KeptStates {
    arena: Arc<Arena>,
    header: KeptHeader,
}

impl KeptStates {
    /// Begins in `arena`; `None` if it has no room for them.
    pub fn begin(arena: Arc<Arena>, header: KeptHeader, text: &str) -> Option<KeptStates> {
        let at = Some(arena.layout().states_offset).filter(|at| *at != 0)?;
        arena.write_bytes(at + KeptHeader::SIZE as u64, text.as_bytes()).ok()?;
        Some(KeptStates { arena, header })
    }

    /// Adds `events`, and says that these are all until `reading`.
    ///
    /// # Errors
    ///
    /// There is no memory for them. Nothing may be added any more.
    pub fn add(&mut self, events: &[SchedEvent], reading: ClockReading) -> io::Result<()> {
        let at = self.arena.layout().states_offset;
        // Older ones would be overwritten by newer ones.
        let first = events.len().saturating_sub(KEPT_EVENTS as usize);
        let mut number = self.header.written + first as u64;
        self.header.begun = self.header.written + events.len() as u64;
        if !events.is_empty() {
            self.put(offset_of!(KeptHeader, begun)..offset_of!(KeptHeader, written))?;
        }
        // Whoever sees one of the events sees that it was begun.
        fence(SeqCst);
        let mut rest = events.get(first..).unwrap_or_default();
        while !rest.is_empty() {
            let place = number % u64::from(KEPT_EVENTS);
            let until_end = u64::from(KEPT_EVENTS) - place;
            let (part, more) = rest.split_at(rest.len().min(until_end as usize));
            let mut bytes = vec![0; size_of_val(part)];
            bytes.chunks_exact_mut(SchedEvent::SIZE).zip(part).for_each(|(bytes, event)| event.write(bytes));
            let offset = at + KEPT_EVENTS_AT + place * SchedEvent::SIZE as u64;
            self.arena.write_bytes(offset, &bytes)?;
            number += part.len() as u64;
            rest = more;
        }
        fence(SeqCst);
        self.header.written = self.header.begun;
        let is_ticks = self.header.clock == clock::TICKS;
        self.header.until = if is_ticks { reading.ticks } else { reading.monotonic_raw_ns };
        self.header.reading = reading;
        self.header.check = self.header.sum();
        self.put(0..KeptHeader::SIZE)
    }

    /// Writes a part of the header.
    fn put(&self, part: std::ops::Range<usize>) -> io::Result<()> {
        let bytes = self.header.to_bytes();
        let offset = self.arena.layout().states_offset + part.start as u64;
        self.arena.write_bytes(offset, bytes.get(part).unwrap_or_default())
    }
}
