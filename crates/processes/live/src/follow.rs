//! Reads the rings of a process while it writes them: the events since the last read.
//!
//! Each read copies, for each thread, the segments that it has finished since, and the written part
//! of the current one. A segment is pinned only while it is copied. Events that a thread overwrites
//! before they are copied are lost, with a count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};
use std::time::{Duration, Instant};

use everycall_format::arena::{OpenCall, ThreadHeader, thread_state};
use everycall_format::event::Word;
use everycall_machine::clock;

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::pinner::Pinner;
use crate::process::ThreadNames;
use crate::take::{begins, nanoseconds_since, unfinished};

/// How long a word may stay unwritten with others after it: a signal handler runs between a hook's
/// reservation and its word. If the handler leaves by `longjmp`, the word is never written.
const HOLE_PATIENCE: Duration = Duration::from_millis(500);
/// Largest number of segments of one thread that are copied in one read.
const SEGMENTS_AT_ONCE: usize = 64;

/// The owner of a ring: slot and generation.
pub type RingOwner = (u32, u32);

/// Events of a thread since the last read.
#[derive(Clone, Debug)]
pub struct Written {
    /// The thread.
    pub owner: RingOwner,
    /// Number of lost events before these words, if any.
    pub lost: Option<u64>,
    /// The words of a segment, as far as they are written.
    pub words: Vec<u64>,
    /// How many of them were read before.
    pub done: usize,
}

/// A thread whose ring is read.
#[derive(Clone, Debug)]
struct Reading {
    /// The segment to read next, and how many of its words were read.
    number: u64,
    done: usize,
    /// Its position in the pool, where it was found last.
    index: Option<u32>,
    /// Events before the segment, and those of it that were read.
    events: Option<u64>,
    /// Since when a word has been missing.
    hole: Option<(usize, Instant)>,
    /// Whether it has ended and was read completely.
    is_over: bool,
}

/// Reads the rings of a process.
#[derive(Debug)]
pub struct Follower<'a> {
    arena: &'a LiveArena,
    pinner: Pinner<'a>,
    threads: HashMap<RingOwner, Reading>,
    headers: HashMap<RingOwner, ThreadHeader>,
    settled: Settled,
    words: Vec<u64>,
    /// By slot: the generation that comes next.
    next: HashMap<u32, u32>,
    from_start: bool,
    /// Threads that ended before all that they had written was read.
    missed: u64,
}

/// How many of the words of a segment were written before a time in ticks.
pub type Settled = fn(&[u64], u64) -> usize;

impl<'a> Follower<'a> {
    /// Begins with the segments that threads are writing now; with `from_start`, with the oldest
    /// existing ones. `settled` is called if short calls are dropped, because their words are taken
    /// back.
    ///
    /// # Errors
    ///
    /// Too many other processes read this process's rings.
    pub fn begin(
        arena: &'a LiveArena,
        from_start: bool,
        settled: Settled,
    ) -> Result<Follower<'a>, LiveError> {
        let pinner = Pinner::join(arena)?;
        let mut follower = Follower {
            arena,
            pinner,
            threads: HashMap::new(),
            headers: HashMap::new(),
            settled,
            words: Vec::new(),
            next: HashMap::new(),
            from_start,
            missed: 0,
        };
        if from_start {
            return Ok(follower);
        }
        // Events of ended threads aren't read.
        let segments = follower.segments();
        for owner in segments.keys() {
            follower.threads.insert(*owner, Reading { is_over: true, ..Reading::at(0) });
        }
        for (owner, header) in arena.current_threads() {
            follower.next.insert(owner.0, owner.1.saturating_add(1));
            if header.state == thread_state::USED {
                let mut reading = Reading::at(header.segment);
                // The segment may be overwritten before it is read.
                if let Some(index) = segments.get(&owner).and_then(|own| own.get(&header.segment))
                    && follower.pinner.pin(*index)
                {
                    reading.events = follower.events_before(owner, header.segment, *index);
                    follower.pinner.release(*index);
                }
                follower.threads.insert(owner, reading);
            }
        }
        Ok(follower)
    }

    /// The header of a thread, as last read.
    #[must_use]
    pub fn header(&self, owner: RingOwner) -> Option<&ThreadHeader> {
        self.headers.get(&owner)
    }

    /// The present name of a thread.
    #[must_use]
    pub fn name(&self, owner: RingOwner) -> Option<[u8; 16]> {
        let header = self.headers.get(&owner)?;
        if header.fiber != 0 {
            return Some(header.name);
        }
        let age = nanoseconds_since(&self.arena.layout().start, &clock::read(), header.start_ticks);
        let names = ThreadNames::of(self.arena.process());
        Some(names.new_name(header.tid, age, &header.name).unwrap_or(header.name))
    }

    /// How many threads have ended, since this was last asked, before all that they had written was read.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Whether everything that a thread has written was read, and it writes no more.
    #[must_use]
    pub fn is_over(&self, owner: RingOwner) -> bool {
        self.threads.get(&owner).is_none_or(|reading| reading.is_over)
    }

    /// How many threads have rings now.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.headers.values().filter(|header| header.state == thread_state::USED).count()
    }

    /// The open calls of a thread.
    #[must_use]
    pub fn open_calls(&self, owner: RingOwner) -> Vec<OpenCall> {
        let header = self.arena.thread(owner.0).filter(|header| header.generation == owner.1);
        header.map(|header| self.arena.open_calls(&header)).unwrap_or_default()
    }

    /// Segments in use, by owner and number.
    fn segments(&self) -> HashMap<RingOwner, BTreeMap<u64, u32>> {
        let mut all: HashMap<RingOwner, BTreeMap<u64, u32>> = HashMap::new();
        let pool = self.arena.pool();
        for index in 0..self.arena.segments_taken() {
            let Some(entry) = pool.entries.get(index as usize).filter(|entry| entry.pins.load(Acquire) != 0)
            else {
                continue;
            };
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            all.entry(owner).or_default().insert(entry.number.load(Relaxed), index);
        }
        all
    }

    /// Passes on the events since the last read, in the order in which each thread wrote them.
    /// `take` decides whether it needs the `open` calls, which are read before the words.
    pub fn look(&mut self, take: &mut dyn FnMut(&Follower<'a>, &[OpenCall], Written)) {
        let current: HashMap<RingOwner, ThreadHeader> = self.arena.current_threads().into_iter().collect();
        for (owner, header) in &current {
            self.headers.insert(*owner, *header);
            self.threads.entry(*owner).or_insert_with(|| Reading::at(0));
        }
        let mut segments = None;
        for (slot, generation) in current.keys() {
            let next = self.next.entry(*slot).or_insert(if self.from_start { 0 } else { *generation });
            let passed = *next..*generation;
            *next = (*next).max(generation.saturating_add(1));
            if !passed.is_empty() {
                let segments = segments.get_or_insert_with(|| self.segments());
                let is_read = |owner: &&RingOwner| owner.0 == *slot && passed.contains(&owner.1);
                let there: HashSet<&RingOwner> =
                    segments.keys().filter(is_read).chain(self.threads.keys().filter(is_read)).collect();
                self.missed += u64::from(passed.end - passed.start).saturating_sub(there.len() as u64);
            }
        }
        let owners: Vec<RingOwner> = self.threads.keys().copied().collect();
        for owner in owners {
            let Some(mut reading) = self.threads.get(&owner).cloned().filter(|reading| !reading.is_over)
            else {
                continue;
            };
            let header = current.get(&owner);
            if header.is_some_and(|header| self.is_idle(&reading, header)) {
                continue;
            }
            let segments = segments.get_or_insert_with(|| self.segments());
            let none = BTreeMap::new();
            let own = segments.get(&owner).unwrap_or(&none);
            for _ in 0..SEGMENTS_AT_ONCE {
                if !self.read_next(owner, header, own, &mut reading, take) {
                    break;
                }
            }
            // Another thread has the slot, and nothing is left to read.
            let was_over = reading.is_over;
            reading.is_over = reading.is_over
                || header.is_none()
                    && own
                        .range(reading.number..)
                        .next()
                        .is_none_or(|(number, _)| *number == reading.number && reading.done > 0);
            // Its last segments were taken before they were read.
            let last = self.headers.get(&owner).map_or(0, |header| header.segment);
            let is_whole = reading.number > last || reading.number == last && reading.done > 0;
            if reading.is_over && !was_over && header.is_none() && !is_whole {
                self.missed += 1;
            }
            self.threads.insert(owner, reading);
        }
        if let Some(segments) = segments {
            self.threads.retain(|owner, reading| {
                !reading.is_over || current.contains_key(owner) || segments.contains_key(owner)
            });
            // Threads that began and ended since the last look, and whose slots are others'.
            for owner in segments.into_keys() {
                self.threads.entry(owner).or_insert_with(|| Reading::at(0));
            }
        }
        let kept: Vec<RingOwner> = current.into_keys().collect();
        self.headers.retain(|owner, _| {
            kept.contains(owner) || self.threads.get(owner).is_some_and(|reading| !reading.is_over)
        });
    }

    /// Whether nothing was written, as far as this is known without copying.
    fn is_idle(&self, reading: &Reading, header: &ThreadHeader) -> bool {
        let Some(index) = reading.index.filter(|_| header.segment == reading.number) else { return false };
        let segment = self.arena.pool().segment(index);
        reading.hole.is_none()
            && header.state == thread_state::USED
            && segment.get(reading.done).is_none_or(|word| is_missing(word.load(Relaxed)))
    }

    /// Continues in the next segment. Returns whether there may be another one.
    fn read_next(
        &mut self,
        owner: RingOwner,
        header: Option<&ThreadHeader>,
        own: &BTreeMap<u64, u32>,
        reading: &mut Reading,
        take: &mut dyn FnMut(&Follower<'a>, &[OpenCall], Written),
    ) -> bool {
        // Missing segments were overwritten.
        let Some((&number, &index)) = own.range(reading.number..).next() else { return false };
        let open_calls = self.open_calls(owner);
        let Some(before) = self.copy(owner, number, index) else { return false };
        let mut words = std::mem::take(&mut self.words);
        let is_ended = header.is_none_or(|header| {
            header.segment > number || header.state == thread_state::ENDED && header.segment == number
        });
        let skipped = number != reading.number;
        let done = if skipped { 0 } else { reading.done };
        let lost = (skipped && reading.events.is_some())
            .then(|| before.saturating_sub(reading.events.unwrap_or(before)));
        trim(&mut words);
        if !is_ended {
            self.stop_at_holes(&mut words, done, reading);
        }
        reading.index = Some(index);
        if !begins(&words) {
            self.words = words;
            return false;
        }
        if skipped || reading.events.is_none() {
            reading.events = Some(before);
        }
        (reading.number, reading.done) = (number, words.len().max(done));
        let fresh = words.get(done..).unwrap_or_default();
        let events = fresh.iter().filter(|word| Word::decode(**word).is_event()).count() as u64;
        reading.events = reading.events.map(|sum| sum + events);
        if !fresh.is_empty() || lost.is_some() {
            let copy = words.clone();
            take(self, &open_calls, Written { owner, lost, words: copy, done });
        }
        self.words = words;
        let is_last = header.is_some_and(|header| header.segment == number);
        if is_ended && is_last {
            reading.is_over = true;
        } else if is_ended {
            (reading.number, reading.done, reading.index) = (number + 1, 0, None);
        }
        is_ended && !is_last
    }

    /// Number of a thread's events before one of its segments, which is pinned. `None` if that was
    /// reused.
    fn events_before(&self, owner: RingOwner, number: u64, index: u32) -> Option<u64> {
        let entry = self.arena.pool().entries.get(index as usize)?;
        let is_it = (entry.slot.load(Relaxed), entry.generation.load(Relaxed)) == owner
            && entry.number.load(Relaxed) == number;
        is_it.then(|| entry.events_before.load(Relaxed))
    }

    /// Copies a segment and returns the number of events before it. `None` if it was reused.
    fn copy(&mut self, owner: RingOwner, number: u64, index: u32) -> Option<u64> {
        if !self.pinner.pin(index) {
            return None;
        }
        let before = self.events_before(owner, number, index);
        if before.is_some() {
            let words = self.arena.pool().segment(index).iter();
            self.words.clear();
            self.words.extend(words.map(|word| word.load(Relaxed)));
            fence(Acquire);
        }
        let is_whole = self.pinner.is_pinned(index);
        self.pinner.release(index);
        before.filter(|_| is_whole)
    }

    /// Reduces the words of an unfinished segment to the complete ones.
    fn stop_at_holes(&self, words: &mut Vec<u64>, done: usize, reading: &mut Reading) {
        if let Some(young_from) = self.arena.young_from() {
            // Later calls may be taken back, with their words.
            let settled = (self.settled)(words, young_from).max(done);
            words.truncate(settled);
        }
        let hole = words.iter().skip(done).position(|word| is_missing(*word)).map(|place| place + done);
        match hole {
            None => reading.hole = None,
            Some(place) => {
                let since = match reading.hole {
                    Some((known, since)) if known == place => since,
                    _ => Instant::now(),
                };
                reading.hole = Some((place, since));
                if since.elapsed() < HOLE_PATIENCE {
                    words.truncate(place);
                }
            }
        }
        if let Some((begin, _)) = unfinished(words) {
            words.truncate(begin);
        }
    }
}

impl Reading {
    fn at(number: u64) -> Reading {
        // Nothing comes before a thread's first segment.
        let events = (number == 0).then_some(0);
        Reading { number, done: 0, index: None, events, hole: None, is_over: false }
    }
}

fn is_missing(word: u64) -> bool {
    word as u32 == 0
}

fn trim(words: &mut Vec<u64>) {
    words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
}
