//! Takes a snapshot: pins all segments of all threads, which takes a few atomic operations for
//! each, and copies only those that are still being written.
//!
//! 1. Threads are asked to leave their oldest segments alone until all are pinned (`grow_until`).
//! 2. It is read which segment each thread is writing, and which calls it has open: before the
//!    events, so that whatever ends in between stands in the events.
//! 3. Every segment is pinned. Then its owner is read: it doesn't change from then on.
//! 4. The newest segments of living threads are copied as far as they are written. Words that are
//!    zero are looked at again: their events were just being written. Segments of ended threads
//!    aren't written any more: being pinned is enough until it is their turn in the file.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};

use everycall_format::Wire as _;
use everycall_format::arena::{ClockReading, OpenCall, ThreadHeader, thread_state};
use everycall_format::ect::{SessionRecord, session_flags};
use everycall_format::event::{self, Word, kind};
use everycall_machine::clock;
use everycall_ring::GrowRequest;
use everycall_tracefile::AllCalls;
use rustix::time::{ClockId, clock_gettime};

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::pinner::Pinner;
use crate::process::ThreadNames;

/// Ticks for which threads leave their oldest segments alone, counted from now: some 100 ms, as we
/// may have to wait for a CPU. A process that dies is forgotten after that time.
const GROW_TICKS: u64 = 1 << 28;
/// Segments between two readings of the clock.
const LOOK_EACH: u32 = 256;
/// Words that are copied together; nothing was written behind a block of zeros.
const BLOCK: usize = 512;
/// How often words that are zero are read.
const LOOKS: usize = 3;
/// Words at the end that may be zero although nothing is lost: each signal handler that interrupts
/// a hook leaves one.
const IN_FLIGHT: usize = 8;
/// Words of the longest record.
const RECORD_MAX: usize = 32;

/// A segment that is pinned.
#[derive(Clone, Debug)]
pub(crate) struct PinnedSegment {
    /// Its place in the pool.
    pub index: u32,
    /// Its number in its thread's ring.
    pub number: u64,
    /// Its bytes, where it was copied and released already.
    pub copy: Option<Vec<u8>>,
}

/// A thread, whose segments are pinned.
#[derive(Debug)]
pub(crate) struct PinnedThread {
    pub slot: u32,
    pub header: ThreadHeader,
    pub open_calls: Vec<OpenCall>,
    /// Oldest first, with the last one.
    pub segments: Vec<PinnedSegment>,
    /// The number and the words of the last one, as far as they were written; of an ended thread,
    /// once [`PinnedThread::end`] was called.
    pub newest: Option<(u64, Vec<u64>)>,
}

impl PinnedThread {
    /// Gives the last segment back, which is copied as far as it is written. `words` is memory to
    /// do it in.
    pub fn end(&mut self, arena: &LiveArena, pinner: &Pinner<'_>, words: &mut Vec<u64>) {
        if self.newest.is_none() {
            copy_newest(arena, pinner, self, words);
            if let Some((_, words)) = &mut self.newest {
                end_well(words);
            }
        }
        let number = self.newest.as_ref().map(|(number, _)| *number);
        if let Some(last) = self.segments.pop_if(|last| Some(last.number) == number) {
            pinner.release(last.index);
        }
    }
}

/// A snapshot of a process that runs on: its segments stay as they are until they are written to a
/// file, or this is dropped.
#[derive(Debug)]
pub struct Snapshot<'a> {
    pub(crate) arena: &'a LiveArena,
    pub(crate) pinner: Pinner<'a>,
    pub(crate) threads: Vec<PinnedThread>,
    /// Segments that the rings had at the request and that were lost before they could be pinned.
    pub(crate) too_late: u64,
    /// CPU time until everything was pinned, in nanoseconds.
    cpu_ns: u64,
    pub(crate) before: ClockReading,
    pub(crate) after: ClockReading,
    /// The payload of the SESSION chunk, and all calls when the session became active.
    pub(crate) session: Option<(Vec<u8>, Option<AllCalls>)>,
}

/// A session's request, to be written into its file: readers show nothing else.
#[derive(Clone, Debug, Default)]
pub struct SessionFacts {
    /// Its name; the first 63 bytes are written.
    pub name: String,
    /// When it became active, by [`crate::now_ticks`].
    pub start_ticks: u64,
    /// Its functions: a site set.
    pub functions: Vec<u8>,
    /// The functions within whose calls it records, likewise; empty for all calls.
    pub within: Vec<u8>,
    /// Only calls whose caller is in another module, or isn't traced.
    pub crossing: bool,
    /// It requested some threads only, see [`Snapshot::retain_threads`].
    pub some_threads: bool,
    /// Until then, all functions had been recorded since the process began.
    pub has_all_callers: bool,
    /// [All calls](LiveArena::all_calls) when it became active, to which its own are the
    /// difference; `None` if counts can't say which calls are its own.
    pub before: Option<AllCalls>,
}

/// The payload of a session's chunk.
pub(crate) fn session_record(facts: &SessionFacts, end_ticks: u64) -> Vec<u8> {
    let mut name = [0; 64];
    name.iter_mut().zip(facts.name.bytes().take(63)).for_each(|(to, from)| *to = from);
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let record = SessionRecord {
        record_size: SessionRecord::SIZE as u32,
        flags: flag(facts.crossing, session_flags::CROSSING)
            | flag(facts.some_threads, session_flags::SOME_THREADS)
            | flag(facts.has_all_callers, session_flags::ALL_CALLERS),
        start_ticks: facts.start_ticks,
        end_ticks,
        owner: std::process::id(),
        functions_length: facts.functions.len() as u32,
        within_length: facts.within.len() as u32,
        reserved: 0,
        name,
    };
    [record.to_bytes().to_vec(), facts.functions.clone(), facts.within.clone()].concat()
}

/// The time-stamp counter as in events.
#[must_use]
pub fn now_ticks() -> u64 {
    clock::ticks()
}

impl Snapshot<'_> {
    /// Restricts the file to what a session requested, until now.
    pub fn show_session(&mut self, facts: &SessionFacts) {
        self.session = Some((session_record(facts, self.after.ticks), facts.before.clone()));
    }

    /// Leaves the threads for which `is_wanted` returns true; the others' segments are unpinned.
    pub fn retain_threads(&mut self, is_wanted: impl Fn(&ThreadHeader) -> bool) {
        for thread in self.threads.extract_if(.., |thread| !is_wanted(&thread.header)) {
            thread.segments.iter().for_each(|segment| self.pinner.release(segment.index));
        }
    }
}

/// Takes a snapshot of everything that the rings contain now; with `last_ns`, of at least the last
/// so many nanoseconds.
///
/// # Errors
///
/// Too many others take snapshots.
pub fn take(arena: &LiveArena, last_ns: Option<u64>) -> Result<Snapshot<'_>, LiveError> {
    let cpu_before = cpu_nanoseconds();
    let pinner = Pinner::join(arena)?;
    let before = clock::read();
    let mut request = GrowRequest::begin(&arena.pool(), clock::ticks, GROW_TICKS);
    let known = threads(arena, &mut request);
    let pinned = pin_all(arena, &pinner, &mut request);
    // Else a ring that is smaller than it may be has only just been allowed to grow.
    let is_late = clock::ticks().saturating_sub(before.ticks) > GROW_TICKS;
    let (mut threads, gone) = by_thread(arena, &pinner, pinned, known);
    let too_late = if is_late { gone } else { 0 };
    let mut words = Vec::new();
    for thread in threads.iter_mut().filter(|thread| thread.header.state != thread_state::ENDED) {
        copy_newest(arena, &pinner, thread, &mut words);
    }
    drop(request);
    // If words are taken back, the copy contains only words that existed together: nothing is
    // added.
    let looks = if arena.young_from().is_some() { 1 } else { LOOKS };
    for _ in 1..looks {
        for thread in &mut threads {
            look_again(arena, thread);
        }
    }
    for (_, words) in threads.iter_mut().filter_map(|thread| thread.newest.as_mut()) {
        end_well(words);
    }
    let after = clock::read();
    look_at_names(arena, &mut threads, &after);
    let cpu_ns = cpu_nanoseconds().saturating_sub(cpu_before);
    let mut snapshot = Snapshot { arena, pinner, threads, too_late, cpu_ns, before, after, session: None };
    if let Some(last_ns) = last_ns {
        snapshot.let_go_before(last_ns);
    }
    Ok(snapshot)
}

/// Asks the kernel for the names of living threads: a thread that names itself and then waits has
/// written no event with its name.
fn look_at_names(arena: &LiveArena, threads: &mut [PinnedThread], now: &ClockReading) {
    let names = ThreadNames::of(arena.process());
    let start = arena.layout().start;
    // A fiber's name isn't that of the thread that runs it.
    let living =
        |thread: &&mut PinnedThread| thread.header.state == thread_state::USED && thread.header.fiber == 0;
    for thread in threads.iter_mut().filter(living) {
        let age_ns = nanoseconds_since(&start, now, thread.header.start_ticks);
        if let Some(name) = names.new_name(thread.header.tid, age_ns, &thread.header.name) {
            thread.header.name = name;
        }
    }
}

/// Nanoseconds from `ticks` to `now`, by the counter's rate since `start`; 0 where that isn't
/// known.
pub(crate) fn nanoseconds_since(start: &ClockReading, now: &ClockReading, ticks: u64) -> u64 {
    let span = u128::from(now.ticks.saturating_sub(start.ticks));
    let time = u128::from(now.monotonic_raw_ns.saturating_sub(start.monotonic_raw_ns));
    if span == 0 || start.monotonic_raw_ns == 0 {
        return 0;
    }
    u64::try_from(u128::from(now.ticks.saturating_sub(ticks)) * time / span).unwrap_or(u64::MAX)
}

/// CPU time that this process has taken so far, in nanoseconds.
#[must_use]
pub fn cpu_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// Threads with their slots, in their order, and with the calls that were open.
type Threads = Vec<(u32, ThreadHeader, Vec<OpenCall>)>;

/// The threads that exist at the request, before any segment is pinned. Ended threads may be
/// discarded at any time; segments pinned for them then still belong to them.
fn threads(arena: &LiveArena, request: &mut GrowRequest<'_>) -> Threads {
    let mut all = Threads::new();
    // Each stack is one thread's. Where it was written over whose they are, they must not be read
    // again and again.
    let mut stacks = HashSet::new();
    for slot in 0..arena.thread_count() {
        if slot.is_multiple_of(LOOK_EACH) {
            request.renew(GROW_TICKS);
        }
        if let Some(thread) = arena.thread(slot) {
            let is_own = stacks.insert(thread.open_calls);
            let young_from = arena.young_from();
            let mut open_calls = if is_own { arena.open_calls(&thread) } else { Vec::new() };
            if let Some(from) = young_from {
                // The others may be dropped before their thread's events are copied.
                let began = OpenCall::ticks;
                let old = open_calls.iter().take_while(|call| began(call) <= from).count();
                open_calls.truncate(old);
            }
            all.push((slot, thread, open_calls));
        }
    }
    all
}

/// Whose a segment is, once it is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pinned {
    slot: u32,
    generation: u32,
    number: u64,
    index: u32,
}

fn pin_all(arena: &LiveArena, pinner: &Pinner<'_>, request: &mut GrowRequest<'_>) -> Vec<Pinned> {
    let mut pinned = Vec::new();
    let pool = arena.pool();
    for index in 0..arena.segments_taken() {
        if index.is_multiple_of(LOOK_EACH) {
            request.renew(GROW_TICKS);
        }
        if pinner.pin(index)
            && let Some(entry) = pool.entries.get(index as usize)
        {
            pinned.push(Pinned {
                slot: entry.slot.load(Relaxed),
                generation: entry.generation.load(Relaxed),
                number: entry.number.load(Relaxed),
                index,
            });
        }
    }
    pinned.sort_unstable();
    pinned
}

/// Sorts the pinned segments by thread, up to the segment that each was writing at first. Newer
/// ones are unpinned: they are not part of the request, and threads that write fast would run out
/// of segments. Segments of threads that began meanwhile are unpinned, too.
///
/// Also returns how many segments of living threads were lost before they could be pinned: this
/// happens if this process got no CPU for longer than threads leave their oldest segments alone.
fn by_thread(
    arena: &LiveArena,
    pinner: &Pinner<'_>,
    pinned: Vec<Pinned>,
    known: Threads,
) -> (Vec<PinnedThread>, u64) {
    let mut pinned = pinned.into_iter().peekable();
    let mut threads = Vec::new();
    let mut too_late = 0;
    for (slot, header, open_calls) in known {
        let generation = header.generation;
        let mut segments: Vec<PinnedSegment> = Vec::new();
        while let Some(next) = pinned.next_if(|next| (next.slot, next.generation) <= (slot, generation)) {
            let is_own = (next.slot, next.generation) == (slot, generation)
                && next.number <= header.segment
                && segments.last().is_none_or(|last| last.number < next.number);
            if is_own {
                segments.push(PinnedSegment { index: next.index, number: next.number, copy: None });
            } else {
                pinner.release(next.index);
            }
        }
        // Older ones that the ring has left long ago stay where others pin them.
        for older in segments.drain(..whole_from(&segments)).collect::<Vec<_>>() {
            pinner.release(older.index);
        }
        let lives = |header: &ThreadHeader| header.state == thread_state::USED;
        let gone = if lives(&header) { missing(&header, segments.len()) } else { 0 };
        // If no segment of an ended thread could be pinned, it was discarded at that moment.
        let is_there = !segments.is_empty()
            || gone > 0 && arena.thread(slot).is_some_and(|now| now.generation == generation);
        if is_there {
            too_late = u64::saturating_add(too_late, gone);
            threads.push(PinnedThread { slot, header, open_calls, segments, newest: None });
        }
    }
    pinned.for_each(|other| pinner.release(other.index));
    (threads, too_late)
}

/// How many segments the ring of a thread had beyond those that are `pinned`, not counting the one
/// that may just have been cleared.
fn missing(header: &ThreadHeader, pinned: usize) -> u64 {
    let had = u64::from(header.ring_segments).saturating_sub(1).min(header.segment.saturating_add(1));
    had.saturating_sub(pinned as u64)
}

/// Where the segments begin that follow one another up to the last one.
fn whole_from(segments: &[PinnedSegment]) -> usize {
    let follows =
        |pair: &[PinnedSegment]| matches!(pair, [a, b] if a.number.checked_add(1) == Some(b.number));
    segments.windows(2).rposition(|pair| !follows(pair)).map_or(0, |place| place + 1)
}

/// Copies the last segment of a thread, as far as it is written. `words` is memory to do it in:
/// with thousands of threads that have written little, fresh pages for whole blocks of each would
/// take most of the time.
fn copy_newest(arena: &LiveArena, pinner: &Pinner<'_>, thread: &mut PinnedThread, words: &mut Vec<u64>) {
    let Some(last) = thread.segments.last() else { return };
    let (index, number) = (last.index, last.number);
    let source = arena.pool().segment(index);
    words.clear();
    for block in source.chunks(BLOCK) {
        let before = words.len();
        words.extend(block.iter().map(|word| word.load(Relaxed)));
        if words[before..].iter().all(|word| *word == 0) {
            break;
        }
    }
    fence(Acquire);
    if arena.young_from().is_some() {
        // Words at the end are taken back and written again. Those that are the same twice were
        // there together.
        let settled = words.iter().zip(source).take_while(|(word, now)| **word == now.load(Relaxed)).count();
        words.truncate(settled);
        fence(Acquire);
    }
    trim(words);
    if pinner.is_pinned(index) && begins(words) {
        thread.newest = Some((number, words.clone()));
        // Later events of the thread aren't part of this.
        thread.header.segment = number;
    }
}

/// Takes the zeros off the end.
fn trim(words: &mut Vec<u64>) {
    words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
}

pub(crate) fn begins(words: &[u64]) -> bool {
    words.first().is_some_and(|word| matches!(Word::decode(*word), Word::Record { kind: kind::SEGMENT, .. }))
}

/// Looks once more at words that aren't complete.
fn look_again(arena: &LiveArena, thread: &mut PinnedThread) {
    let (Some((_, words)), Some(last)) = (&mut thread.newest, thread.segments.last()) else { return };
    let now = arena.pool().segment(last.index);
    let missing = |word: u64| word as u32 == 0;
    for (word, now) in words.iter_mut().zip(now).filter(|(word, _)| missing(**word)) {
        *word = now.load(Relaxed);
    }
    // A record of several words whose end wasn't there.
    if let Some(wanted) = unfinished(words).map(|(_, wanted)| wanted) {
        let more = now.get(words.len()..wanted).unwrap_or_default();
        words.extend(more.iter().map(|word| word.load(Relaxed)));
        trim(words);
    }
}

/// Where the record begins that the words end within, and how many words there would be with all of
/// it.
pub(crate) fn unfinished(words: &[u64]) -> Option<(usize, usize)> {
    let first = words.len().saturating_sub(RECORD_MAX);
    (first..words.len())
        .rev()
        .find_map(|at| match Word::decode(words[at]) {
            Word::Record { count, .. } => Some((at, at + 1 + usize::from(count))),
            _ => None,
        })
        .filter(|(_, wanted)| *wanted > words.len())
}

/// Events still being written when the snapshot is taken aren't part of it: they are no loss
/// either.
fn end_well(words: &mut Vec<u64>) {
    if let Some((begin, _)) = unfinished(words) {
        words.truncate(begin);
    }
    let from = words.len().saturating_sub(IN_FLIGHT);
    for word in words.iter_mut().skip(from).filter(|word| **word as u32 == 0) {
        *word = event::record_word(0, kind::FILLER, 0, 0);
    }
}

impl Snapshot<'_> {
    /// The index of the thread in slot `slot` with this generation, and how many events it wrote
    /// before its oldest pinned segment; `None` if it isn't in the snapshot.
    #[must_use]
    pub fn thread(&self, slot: u32, generation: u32) -> Option<(u32, u64)> {
        let is_it = |thread: &PinnedThread| (thread.slot, thread.header.generation) == (slot, generation);
        let place = self.threads.iter().position(is_it)?;
        let oldest = self.threads.get(place)?.segments.first()?;
        let entry = self.arena.pool().entries.get(oldest.index as usize)?;
        Some((u32::try_from(place).ok()?, entry.events_before.load(Relaxed)))
    }

    /// When it was taken, in ticks.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.after.ticks
    }

    /// Nanoseconds from the request until everything was pinned.
    #[must_use]
    pub fn nanoseconds_to_pin(&self) -> u64 {
        self.after.monotonic_raw_ns.saturating_sub(self.before.monotonic_raw_ns)
    }

    /// Leaves of each thread the contents of its ring at `moment`, in ticks, and what came since;
    /// of the thread in slot `slot` with this generation, at least everything from `since` on.
    /// Rings that had grown because a snapshot was requested are reduced to their normal size.
    pub fn leave_rings(&mut self, moment: u64, slot: u32, generation: u32, since: u64) {
        let pool = self.arena.pool();
        for thread in &mut self.threads {
            let place_at = |ticks: u64| {
                let begins = |segment: &PinnedSegment| segment_ticks(pool.segment(segment.index));
                thread.segments.partition_point(|segment| begins(segment).is_some_and(|begin| begin <= ticks))
            };
            let limit = thread.header.ring_segments.max(1) as usize;
            let mut first = place_at(moment).saturating_sub(limit);
            if (thread.slot, thread.header.generation) == (slot, generation) {
                first = first.min(place_at(since).saturating_sub(1));
            }
            for segment in thread.segments.drain(..first) {
                self.pinner.release(segment.index);
            }
        }
    }

    /// CPU time of this process from the request until everything was pinned, in nanoseconds.
    #[must_use]
    pub fn cpu_nanoseconds_to_pin(&self) -> u64 {
        self.cpu_ns
    }

    /// Releases segments that end before the last `last_ns` nanoseconds.
    fn let_go_before(&mut self, last_ns: u64) {
        let start = self.arena.layout().start;
        let since = ticks_before(&start, &self.after, last_ns);
        let pool = self.arena.pool();
        for thread in &mut self.threads {
            let begins = |segment: &PinnedSegment| segment_ticks(pool.segment(segment.index));
            // A segment ends where the next one begins; the newest always stays.
            let old = thread
                .segments
                .windows(2)
                .take_while(|pair| begins(&pair[1]).is_some_and(|ticks| ticks <= since));
            let count = old.count();
            for segment in thread.segments.drain(..count) {
                self.pinner.release(segment.index);
            }
        }
    }
}

/// The reading of the counter `nanoseconds` before `now`, by its rate since `start`.
fn ticks_before(start: &ClockReading, now: &ClockReading, nanoseconds: u64) -> u64 {
    let ticks = u128::from(now.ticks.saturating_sub(start.ticks));
    let time = u128::from(now.monotonic_raw_ns.saturating_sub(start.monotonic_raw_ns));
    if time == 0 || start.monotonic_raw_ns == 0 {
        return 0;
    }
    let back = u64::try_from(u128::from(nanoseconds) * ticks / time).unwrap_or(u64::MAX);
    now.ticks.saturating_sub(back)
}

/// The ticks with which a segment begins.
fn segment_ticks(words: &[AtomicU64]) -> Option<u64> {
    let [first, second, ..] = words else { return None };
    let (first, second) = (Word::decode(first.load(Relaxed)), Word::decode(second.load(Relaxed)));
    match (first, second) {
        (
            Word::Record { ticks_low, kind: kind::SEGMENT, .. },
            Word::Payload { payload, kind: kind::SEGMENT, index: 1 },
        ) => Some(u64::from(payload) << 32 | u64::from(ticks_low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::{call_word, payload_word, record_word};

    #[test]
    fn what_is_just_being_written_is_no_loss() {
        let call = |ticks| call_word(ticks, 0x1000);
        // An interrupted hook's slot near the end; one further back was lost.
        let mut words: Vec<u64> = (1..40).map(call).collect();
        words[5] = 0;
        words[36] = 0;
        end_well(&mut words);
        assert_eq!((words.len(), words[5]), (39, 0));
        assert!(matches!(Word::decode(words[36]), Word::Record { kind: kind::FILLER, .. }));
        // A record whose end is missing.
        let mut words = vec![call(1), record_word(2, kind::UNWOUND, 2, 0), payload_word(1, kind::UNWOUND, 1)];
        assert_eq!(unfinished(&words), Some((1, 4)));
        end_well(&mut words);
        assert_eq!(words, [call(1)]);
        let mut whole = vec![record_word(2, kind::EPOCH, 1, 0), payload_word(0, kind::EPOCH, 1), call(3)];
        end_well(&mut whole);
        assert_eq!(whole.len(), 3);
    }

    #[test]
    fn unpinnable_segments_are_counted_as_lost() {
        let gone = |segment, pinned| {
            missing(&ThreadHeader { segment, ring_segments: 16, ..Default::default() }, pinned)
        };
        assert_eq!((gone(99, 16), gone(99, 15), gone(99, 14), gone(99, 0)), (0, 0, 1, 15));
        assert_eq!((gone(0, 1), gone(0, 0), gone(3, 4), gone(3, 1)), (0, 1, 0, 3));
        assert_eq!(missing(&ThreadHeader::default(), 0), 0);
    }

    #[test]
    fn what_only_others_pin_is_no_part_of_a_ring() {
        let from = |numbers: &[u64]| {
            let pinned = |number: &u64| PinnedSegment { index: 0, number: *number, copy: None };
            whole_from(&numbers.iter().map(pinned).collect::<Vec<_>>())
        };
        assert_eq!((from(&[]), from(&[7]), from(&[3, 4, 5]), from(&[1, 2, 9, 10])), (0, 0, 0, 2));
        assert_eq!((from(&[1, 3, 5]), from(&[u64::MAX - 1, u64::MAX])), (2, 0));
    }

    #[test]
    fn times_become_ticks() {
        let reading =
            |ticks, monotonic_raw_ns| ClockReading { ticks, monotonic_raw_ns, ..Default::default() };
        let (start, now) = (reading(1000, 500), reading(4000, 1500));
        assert_eq!(ticks_before(&start, &now, 100), 3700);
        assert_eq!(ticks_before(&start, &now, u64::MAX), 0);
        assert_eq!(ticks_before(&ClockReading::default(), &now, 100), 0, "nothing is known: everything");
        assert_eq!(ticks_before(&now, &start, 100), 0);
    }
}
