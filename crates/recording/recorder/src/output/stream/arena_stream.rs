//! One process's events on their way to the file while it runs.
//!
//! ```text
//! thread ends a segment      pins: OWNER | RECORDER
//! pass: copied, looked at    pins: OWNER, or back in the pool; the doorbell rings for threads that wait
//!       packed, written      EVENTS; where segments are missing, with the number of events that were in them
//! end:  what is left         the segments that threads had not ended
//! ```
//!
//! Threads that find no room take their own oldest segment, stored or not: it is missing here then. How many events
//! it had is known from the next one, which says how many were written before it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::thread;
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::arena::{OpenCall, ThreadHeader, pinned_by, stream, thread_state};
use everycall_format::ect::{ThreadRecord, chunk};
use everycall_format::event::WORD_SIZE;
use everycall_machine::clock::ticks;
use everycall_tracefile::{
    ChunkWriter, Dropped, Place, Runs, StreamedThread, ThreadSummary, array, is_segment, keep_settled, tally,
};
use rustix::thread::futex;

use crate::memory::arena::Arena;
use crate::memory::open_calls::OpenCallBudget;
use crate::memory::shared_pool::SharedPool;
use crate::output::stream::modules::WrittenModules;
use crate::output::stream::waiting::{self, Found, Owner, has_gaps, seen_twice};

/// Largest number of bytes per pass: signals are forwarded between two passes.
const PASS_BYTES: u64 = 16 << 20;
/// Time between two checks for ended threads.
const ENDS_PAUSE: Duration = Duration::from_millis(50);
/// Largest number of known threads, as a multiple of an arena's capacity: beyond it, owners of
/// segments were overwritten.
const THREADS_KNOWN: usize = 16;

/// Counts of what was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stored {
    /// Bytes in the arena.
    pub bytes: u64,
    /// Entries and exits.
    pub events: u64,
    /// Events of segments that were overwritten.
    pub lost: u64,
}

/// One process's stream.
#[derive(Debug)]
pub(crate) struct ArenaStream {
    arena: Arc<Arena>,
    shared: SharedPool,
    /// Number of the process and of its snapshot.
    number: u32,
    pid: u32,
    threads: HashMap<Owner, StreamedThread>,
    next_index: u32,
    modules: WrittenModules,
    ends_due: Instant,
    /// Slot that was served last.
    last_slot: u32,
    buffer: Vec<u8>,
    /// When the process began or was first seen: from then on no CPU writes more than one event per
    /// tick.
    since: u64,
    cpus: u64,
    open_calls: OpenCallBudget,
    /// The dropped calls, once the process is read for the last time.
    dropped: Dropped,
    /// Whether this is the last read, and calls are dropped.
    is_last: bool,
    pub stored: Stored,
}

impl ArenaStream {
    /// The stream of process `number`, which writes `arena` and began at `start_ticks`.
    pub fn new(arena: Arc<Arena>, number: u32, pid: u32, start_ticks: u64) -> io::Result<ArenaStream> {
        let shared = arena.shared_pool()?;
        let buffer = vec![0; arena.layout().segment_size as usize];
        Ok(ArenaStream {
            arena,
            shared,
            number,
            pid,
            threads: HashMap::new(),
            next_index: 0,
            modules: WrittenModules::default(),
            ends_due: Instant::now(),
            last_slot: 0,
            buffer,
            since: start_ticks,
            cpus: thread::available_parallelism().map_or(1, NonZero::get) as u64,
            open_calls: OpenCallBudget::default(),
            dropped: Dropped::default(),
            is_last: false,
            stored: Stored::default(),
        })
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Number of segments that wait to be written.
    pub fn waiting(&self) -> usize {
        waiting::find(&self.shared).len()
    }

    /// Writes the segments that threads have finished, up to `bytes`. Returns whether there are
    /// more.
    pub fn pass<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        bytes: u64,
    ) -> io::Result<bool> {
        if let Some(table) = self.modules.next(&self.arena) {
            file.set_process(self.number);
            file.chunk(chunk::MODULES, &[&table])?;
        }
        let mut found = waiting::find(&self.shared);
        if has_gaps(&found, |owner| self.next_of(owner)) {
            found = seen_twice(&found, waiting::find(&self.shared));
        }
        // The thread after the one that was served last comes first.
        let begin = found.partition_point(|((slot, _), ..)| *slot <= self.last_slot);
        found.rotate_left(begin);
        let limit = (bytes.min(PASS_BYTES) / self.arena.layout().segment_size).max(1) as usize;
        let is_more = found.len() > limit;
        for (owner, number, index) in found.into_iter().take(limit) {
            self.last_slot = owner.0;
            self.store(file, runs, owner, number, index)?;
        }
        if self.ends_due <= Instant::now() {
            self.store_ended(file, runs)?;
            self.ends_due = Instant::now() + ENDS_PAUSE;
        }
        Ok(is_more)
    }

    /// Writes a segment that is pinned for us, and releases it.
    fn store<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        owner: Owner,
        number: u64,
        index: u32,
    ) -> io::Result<()> {
        self.arena.read_segment(index, &mut self.buffer);
        if self.is_last {
            // Its thread may still write to it.
            let mut again = vec![0; self.buffer.len()];
            self.arena.read_segment(index, &mut again);
            keep_settled(&mut self.buffer, &again);
        }
        let pool = self.shared.pool();
        let Some(entry) = pool.entries.get(index as usize) else { return Ok(()) };
        let before = entry.events_before.load(Relaxed);
        let identity =
            ((entry.slot.load(Relaxed), entry.generation.load(Relaxed)), entry.number.load(Relaxed));
        fence(Acquire);
        if !pool.is_pinned(index, pinned_by::RECORDER) || identity != (owner, number) {
            // It was overwritten meanwhile.
            return Ok(());
        }
        pool.release(index, pinned_by::RECORDER);
        self.wake_waiting();
        self.keep(file, runs, owner, number, before)
    }

    /// The largest possible number of events of the process: a larger number of lost events was
    /// overwritten.
    fn events_possible(&self) -> u64 {
        ticks().saturating_sub(self.since).saturating_mul(self.cpus)
    }

    /// Wakes threads that wait for room.
    fn wake_waiting(&self) {
        self.shared.doorbell().fetch_add(1, SeqCst);
        if self.shared.waiters().load(SeqCst) != 0 {
            let _ = futex::wake(self.shared.doorbell(), futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    /// Writes the segment in the buffer, before which its thread wrote `before` events.
    fn keep<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        owner: Owner,
        number: u64,
        before: u64,
    ) -> io::Result<()> {
        let thread = self.threads.get(&owner);
        let next = thread.map_or(0, |thread| thread.next);
        if number < next || !is_segment(&self.buffer, number) {
            return Ok(());
        }
        if thread.is_none_or(|thread| !thread.is_announced) {
            let known_max = THREADS_KNOWN * self.arena.layout().thread_capacity as usize;
            if thread.is_none() && self.threads.len() >= known_max {
                return Ok(());
            }
            self.announce(file, owner, number)?;
        }
        let room = self.events_possible().saturating_sub(self.stored.events).saturating_sub(self.stored.lost);
        let Some(thread) = self.threads.get_mut(&owner) else { return Ok(()) };
        let place = Place { snapshot: self.number, thread: thread.index, segment: number };
        if let Some(lost) = thread.lose(number, before, room) {
            runs.lose(file, place, lost)?;
            self.stored.lost = self.stored.lost.saturating_add(lost);
        }
        // Excludes the unwritten rest of a thread's last segment; in ended threads, the last word
        // is a filler.
        let mut written = &self.buffer[..];
        while let Some(rest) = written.strip_suffix(&[0; WORD_SIZE]) {
            written = rest;
        }
        let tally = tally(written);
        thread.take(number, before, &tally);
        self.stored.events += tally.events;
        self.stored.bytes += written.len() as u64;
        runs.add(file, place, written)
    }

    /// Writes a thread's first chunk in this file, before its segment `number`.
    fn announce<W: Write>(&mut self, file: &mut ChunkWriter<W>, owner: Owner, number: u64) -> io::Result<()> {
        let header = self.header(owner);
        let next_index = &mut self.next_index;
        let thread = self.threads.entry(owner).or_insert_with(|| {
            let index = *next_index;
            *next_index += 1;
            StreamedThread::new(index)
        });
        thread.header = header.unwrap_or(thread.header);
        thread.announce();
        let mut record = thread.record(self.number, self.pid, owner);
        record.first_segment = number;
        file.set_process(self.number);
        file.chunk(chunk::THREAD, &[&record.to_bytes(), &array::<OpenCall>(&[])])
    }

    /// Number of the thread's next segment.
    fn next_of(&self, owner: Owner) -> u64 {
        self.threads.get(&owner).map_or(0, |thread| thread.next)
    }

    /// The header of a thread that still occupies its slot.
    fn header(&self, (slot, generation): Owner) -> Option<ThreadHeader> {
        let header = (slot < self.arena.thread_count()).then(|| self.arena.thread(slot))?;
        let is_whole = matches!(header.state, thread_state::USED | thread_state::ENDED);
        (is_whole && header.generation == generation).then_some(header)
    }

    /// Writes the rest of ended threads.
    fn store_ended<W: Write>(&mut self, file: &mut ChunkWriter<W>, runs: &mut Runs) -> io::Result<()> {
        self.open_calls = OpenCallBudget::default();
        let mut ended = HashMap::new();
        for slot in 0..self.arena.thread_count() {
            let header = self.arena.thread(slot);
            let owner = (slot, header.generation);
            if header.state == thread_state::ENDED
                && self.threads.get(&owner).is_none_or(|thread| !thread.is_done)
            {
                ended.insert(owner, header);
            }
        }
        if !ended.is_empty() {
            let mut left: Vec<Found> = Vec::new();
            for (index, entry) in self.arena.segments() {
                let owner = (entry.slot, entry.generation);
                let next = self.next_of(owner);
                if ended.contains_key(&owner) && entry.number >= next {
                    left.push((owner, entry.number, index));
                }
            }
            for (owner, number, index) in left {
                if self.shared.pool().pin(index, pinned_by::RECORDER) {
                    self.store(file, runs, owner, number, index)?;
                }
            }
            for (owner, header) in ended {
                if let Some(thread) = self.threads.get_mut(&owner)
                    && thread.next > header.segment
                {
                    thread.header = header;
                    thread.is_done = true;
                    self.write_thread(file, owner, header.name)?;
                }
            }
        }
        self.forget_retired();
        Ok(())
    }

    /// Removes threads whose slots were reused, if there are many.
    fn forget_retired(&mut self) {
        if self.threads.len() > 2 * self.arena.layout().thread_capacity as usize {
            let arena = &self.arena;
            self.threads.retain(|(slot, generation), thread| {
                !thread.is_done || arena.thread(*slot).generation == *generation
            });
        }
    }

    fn write_thread<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        owner: Owner,
        name: [u8; 16],
    ) -> io::Result<()> {
        // While the process runs, the count of an ended thread is that of its slot, as long as no
        // other thread has the slot.
        let of_slot = match self.is_last {
            true => self.dropped.of_slot(owner.0),
            false => self.arena.dropped_in_slot(owner.0),
        };
        let is_there = self.header(owner).is_some();
        let Some(thread) = self.threads.get_mut(&owner) else { return Ok(()) };
        thread.is_announced = true;
        let dropped = if is_there { of_slot } else { 0 };
        let record = ThreadRecord { name, dropped, ..thread.record(self.number, self.pid, owner) };
        let open_calls =
            if is_there { self.arena.open_calls_within(owner.0, &mut self.open_calls) } else { Vec::new() };
        file.set_process(self.number);
        file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(&open_calls)])
    }

    /// Writes the rest of a process that has ended, or is read for the last time. `name` gives a
    /// thread's newest name; the threads' counts are added to `summary`.
    pub fn finish<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        name: impl Fn(u32, &ThreadHeader) -> [u8; 16],
    ) -> io::Result<()> {
        self.open_calls = OpenCallBudget::default();
        self.dropped = self.arena.dropped();
        self.is_last = self.dropped.is_there();
        let segments = || -> Vec<Found> {
            let all = self.arena.segments().into_iter();
            all.map(|(index, entry)| ((entry.slot, entry.generation), entry.number, index)).collect()
        };
        // The process may still run.
        for (owner, number, index) in seen_twice(&segments(), segments()) {
            let next = self.next_of(owner);
            if number >= next && self.shared.pool().pin(index, pinned_by::RECORDER) {
                self.store(file, runs, owner, number, index)?;
            }
        }
        runs.write(file)?;
        for slot in 0..self.arena.thread_count() {
            let generation = self.arena.thread(slot).generation;
            let Some(header) = self.header((slot, generation)) else { continue };
            if !self.threads.contains_key(&(slot, generation)) {
                self.announce(file, (slot, generation), header.segment)?;
            }
        }
        let mut owners: Vec<(u32, Owner)> = self
            .threads
            .iter()
            .filter(|(_, thread)| !thread.is_done)
            .map(|(owner, thread)| (thread.index, *owner))
            .collect();
        owners.sort_unstable();
        for (_, owner) in owners {
            let header = self.header(owner);
            if let Some(thread) = self.threads.get_mut(&owner) {
                thread.header = header.unwrap_or(thread.header);
                let name = name(owner.0, &thread.header);
                self.write_thread(file, owner, name)?;
            }
        }
        Ok(())
    }

    /// The counts of the threads.
    pub fn summaries(&self) -> Vec<ThreadSummary> {
        let mut threads: Vec<&StreamedThread> = self.threads.values().collect();
        threads.sort_by_key(|thread| thread.index);
        threads.into_iter().map(StreamedThread::summary).collect()
    }

    /// Number of threads that this file has a chunk of.
    pub fn announced(&self) -> u32 {
        self.threads.values().filter(|thread| thread.is_announced).count() as u32
    }

    /// A new file begins: it has nothing of this process.
    pub fn begin_file(&mut self) {
        self.modules.begin_file();
        self.threads.values_mut().for_each(StreamedThread::begin_file);
    }

    /// Ends the stream early: nothing more is written, and no thread waits.
    pub fn give_up(&self) {
        self.shared.stream().store(stream::OFF, SeqCst);
        for (_, _, index) in waiting::find(&self.shared) {
            self.shared.pool().release(index, pinned_by::RECORDER);
        }
        self.wake_waiting();
    }
}
