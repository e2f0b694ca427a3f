//! The newest scheduling events of a process in its arena, and their chunk.

use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ClockReading};
use everycall_format::kept_states::{KEPT_MAGIC, KEPT_SLACK, KEPT_TEXT_MAX, KeptHeader};
use everycall_format::sched::{KEPT_EVENTS, KEPT_EVENTS_AT, SchedEvent, SchedRecord, clock, kind};

/// How often the header is read while the recorder writes it.
const TRIES: usize = 10;

/// The events, as an arena has them.
#[derive(Clone, Debug)]
pub struct KeptStates {
    record: SchedRecord,
    text: Vec<u8>,
    events: Vec<SchedEvent>,
    reading: ClockReading,
}

impl KeptStates {
    /// Those of process `pid` in an arena with this layout. `read` reads bytes at an offset, and
    /// says whether it could. `None` if there are none, or if they make no sense.
    #[must_use]
    pub fn read(
        layout: &ArenaHeader,
        pid: u32,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<KeptStates> {
        let at = Some(layout.states_offset).filter(|at| *at != 0)?;
        let header = (0..TRIES).find_map(|_| {
            let mut bytes = [0; KeptHeader::SIZE];
            let header =
                Some(()).filter(|()| read(at, &mut bytes)).and_then(|()| KeptHeader::read(&bytes))?;
            Some(header).filter(|header| header.magic == KEPT_MAGIC && header.check == header.sum())
        })?;
        let is_known = header.record_size as usize == KeptHeader::SIZE
            && header.event_size as usize == SchedEvent::SIZE
            && matches!(header.clock, clock::TICKS | clock::MONOTONIC_RAW)
            && header.begun >= header.written;
        let capacity = u64::from(KEPT_EVENTS);
        let text_length = (header.text_length as usize).min(KEPT_TEXT_MAX);
        let mut text = vec![0; text_length];
        let mut bytes = vec![0; header.written.min(capacity) as usize * SchedEvent::SIZE];
        if !is_known
            || !read(at + KeptHeader::SIZE as u64, &mut text)
            || !read(at + KEPT_EVENTS_AT, &mut bytes)
        {
            return None;
        }
        // A recorder that runs may have gone on.
        let mut begun = [0; 8];
        let begun_at = at + std::mem::offset_of!(KeptHeader, begun) as u64;
        let is_there = read(begun_at, &mut begun);
        let begun = if is_there { u64::from_le_bytes(begun).max(header.begun) } else { header.begun };
        let first = match begun.checked_sub(capacity) {
            None | Some(0) => 0,
            Some(overwritten) => overwritten.saturating_add(KEPT_SLACK.into()),
        };
        let first = first.min(header.written);
        let entries: Vec<SchedEvent> =
            bytes.chunks_exact(SchedEvent::SIZE).filter_map(SchedEvent::read).collect();
        let of_number = |number: u64| entries.get((number % capacity) as usize).copied();
        let mut events: Vec<SchedEvent> = (first.max(header.written.saturating_sub(capacity))
            ..header.written)
            .filter_map(of_number)
            .filter(|event| event.pid == pid || matches!(event.kind, kind::LOST | kind::WAKEUPS_LOST))
            .filter(|event| event.time <= header.until)
            .collect();
        events.sort_by_key(|event| event.time);
        let record = SchedRecord {
            record_size: SchedRecord::SIZE as u32,
            source: header.source,
            clock: header.clock,
            event_size: SchedEvent::SIZE as u32,
            events: events.len() as u64,
            overwritten: first,
            text_length: text.len() as u32,
            reserved: 0,
            until: header.until,
        };
        text.resize(text_length.next_multiple_of(8), 0);
        Some(KeptStates { record, text, events, reading: header.reading })
    }

    /// The parts of the payload of a SCHED chunk.
    #[must_use]
    pub fn chunk(&self) -> [Vec<u8>; 3] {
        let mut events = vec![0; size_of_val(&self.events[..])];
        events
            .chunks_exact_mut(SchedEvent::SIZE)
            .zip(&self.events)
            .for_each(|(bytes, event)| event.write(bytes));
        [self.record.to_bytes().to_vec(), self.text.clone(), events]
    }

    /// All clocks at the moment until which the events are known.
    #[must_use]
    pub fn reading(&self) -> ClockReading {
        self.reading
    }
}
