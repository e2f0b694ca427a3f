//! Writes a snapshot as a trace file (`docs/format.md`), in bounded memory: it copies one segment
//! at a time.
#![allow(unsafe_code)] // Lists in memory of its own, a C string.

use crate::features::snapshot::Sink;
use crate::features::snapshot::code_files::{self, Wanted};
use crate::features::snapshot::take::{Noted, Pinned, open, successor};
use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::{all_calls, beginning, dropped, frames, memory, stamps, times};
use crate::sys::crc::Crc;
use crate::sys::errors::{self, error};
use crate::sys::file::{self, File};
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use crate::sys::{clock, disk, processes};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};
use everycall_format::Wire;
use everycall_format::arch::ELF_MACHINE;
use everycall_format::arena::{
    ClockReading, ModuleEntry, OpenCall, PAGE, ThreadHeader, counter, thread_state,
};
use everycall_format::dropped::{FUNCTIONS, OTHERS, counting};
use everycall_format::ect::{
    ArrayHeader, CHUNK_ALIGN, ChunkHeader, ChunkPlace, CodeFileRecord, CountedCalls, CountsRecord,
    DroppedCalls, DroppedRecord, EndRecord, EventsRecord, FileHeader, FrameNamesRecord, KeptCall, MetaField,
    NO_PROCESS, ProcessRecord, SnapshotRecord, StampsRecord, ThreadRecord, TimedCalls, TriggerRecord, chunk,
    encoding, image_end, meta, reason,
};
use everycall_format::event::{self, WORD_SIZE, Word, kind};
use everycall_format::hub::origin;
use everycall_format::memory::{MemoryCalls, MemoryRecord, whose};
use everycall_format::stamp::EXACT;
use everycall_format::trigger::TriggeredCall;
use everycall_ring::Control;

/// The number of words at the end that may be zero although nothing is lost: each signal handler
/// that interrupts a hook leaves one.
const IN_FLIGHT: usize = 8;
const VERSION: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();
/// Bytes of a path, with the suffix that is added while the file is written.
const PATH_MAX: usize = 4096 + 64;

/// A call for which a snapshot was taken.
pub(crate) struct Moment<'a> {
    pub(crate) call: &'a TriggeredCall,
    /// All triggers of the process, and the texts to which they refer.
    pub(crate) triggers: &'a [TriggerRecord],
    pub(crate) texts: &'a [u8],
}

/// Writes a snapshot to `sink`.
pub(crate) fn write(process: &'static Process, snapshot: u64, sink: Sink) -> Result<(), i32> {
    write_any(process, snapshot, sink, None)
}

/// Writes a snapshot that was taken for a call.
pub(crate) fn write_moment(
    process: &'static Process,
    snapshot: u64,
    sink: Sink,
    moment: &Moment<'_>,
) -> Result<(), i32> {
    write_any(process, snapshot, sink, Some(moment))
}

fn write_any(
    process: &'static Process,
    snapshot: u64,
    sink: Sink,
    moment: Option<&Moment<'_>>,
) -> Result<(), i32> {
    let mut pinned = open(process, snapshot)?;
    // A process that writes beyond the limit gets a signal that ends it.
    let limit = if matches!(sink, Sink::File(_)) { system::file_size_limit() } else { u64::MAX };
    Output { sink, limit, position: 0, chunks: 0, moment }.all(process, &mut pinned)
}

/// Writes a snapshot to a file, which appears under its name only when it is complete.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn write_file(
    process: &'static Process,
    snapshot: u64,
    path: *const u8,
) -> Result<(), i32> {
    let mut length = 0;
    let mut name = [0; PATH_MAX];
    // SAFETY: by contract.
    while let byte @ 1.. = unsafe { *path.wrapping_add(length) } {
        *name.get_mut(length).filter(|_| length < PATH_MAX - 64).ok_or(error::ARGUMENT)? = byte;
        length += 1;
    }
    if !disk::is_for_files(&name) {
        return Err(error::ARGUMENT);
    }
    let mut temporary = name;
    let numbers = [process.pid.load(Relaxed).into(), everycall_hooks::ticks()];
    let mut end = length;
    for number in numbers {
        end = append_number(&mut temporary, end, number);
    }
    let file = File::create(&temporary).map_err(errors::told)?;
    let written = write(process, snapshot, Sink::File(file.descriptor()));
    let done = written.and_then(|()| file::rename(&temporary, &name).map_err(errors::told));
    if done.is_err() {
        file::remove(&temporary);
    }
    done
}

/// Appends `.` and a number in hexadecimal. Returns the new length of the text.
fn append_number(text: &mut [u8], at: usize, number: u64) -> usize {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1) as usize;
    if let Some(place) = text.get_mut(at) {
        *place = b'.';
    }
    for index in 0..digits {
        let digit = (number >> (4 * (digits - 1 - index))) as u8 & 15;
        if let Some(place) = text.get_mut(at + 1 + index) {
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
    }
    at + 1 + digits
}

/// The file that is being written.
struct Output<'a> {
    sink: Sink,
    /// The most bytes that it may take.
    limit: u64,
    position: u64,
    chunks: u32,
    /// The call that the snapshot was taken for.
    moment: Option<&'a Moment<'a>>,
}

impl Output<'_> {
    fn put(&mut self, part: &[u8]) -> Result<(), i32> {
        self.position += part.len() as u64;
        if self.position > self.limit {
            return Err(error::DISK_FULL);
        }
        self.sink.put(part)
    }

    /// Writes a chunk whose payload is `parts`, one after the other.
    fn chunk(&mut self, kind: u32, parts: &[&[u8]]) -> Result<(), i32> {
        let mut payload = Crc::new();
        let mut length = 0;
        for part in parts {
            payload.add(part);
            length += part.len() as u64;
        }
        let place = ChunkPlace { kind, number: self.chunks, process: 0 };
        self.put(&ChunkHeader::new(place, length, payload.value(), Crc::of).to_bytes())?;
        for part in parts {
            self.put(part)?;
        }
        let padding = length.next_multiple_of(CHUNK_ALIGN) - length;
        self.put([0; CHUNK_ALIGN as usize].get(..padding as usize).unwrap_or(&[]))?;
        self.chunks += 1;
        Ok(())
    }

    fn all(&mut self, process: &'static Process, pinned: &mut Pinned<'_>) -> Result<(), i32> {
        let arena = process.arena();
        self.put(&FileHeader::new(Crc::of).to_bytes())?;
        self.description(pinned)?;
        let start = arena.start().unwrap_or_default();
        let array = |size: usize, count: u32| ArrayHeader { entry_size: size as u32, count };
        let now = clock::reading();
        self.chunk(
            chunk::CLOCK,
            &[&array(ClockReading::SIZE, 2).to_bytes(), &start.to_bytes(), &now.to_bytes()],
        )?;
        self.process(process, pinned, &start)?;
        self.modules(arena, pinned.buffer)?;
        self.threads(process, arena, pinned)?;
        self.frames(arena)?;
        self.code_files(process, pinned.buffer)?;
        if let Some(moment) = self.moment {
            self.chunk(chunk::KEPT, &[&kept_call(arena, pinned.threads, moment).to_bytes()])?;
            let count = moment.triggers.len() as u32;
            // SAFETY: structures of the format have no padding, and have the same layout in memory
            // as in files.
            let records = unsafe {
                core::slice::from_raw_parts(moment.triggers.as_ptr().cast(), size_of_val(moment.triggers))
            };
            let list = array(TriggerRecord::SIZE, count);
            self.chunk(chunk::TRIGGERS, &[&list.to_bytes(), records, moment.texts])?;
        }
        let size = (ChunkHeader::SIZE + EndRecord::SIZE) as u64;
        let end = EndRecord { chunks: self.chunks, reserved: 0, file_length: self.position + size };
        self.chunk(chunk::END, &[&end.to_bytes()])
    }

    /// Entries change when libraries are loaded and unloaded, but the written bytes must match the
    /// checksum, so they are copied first. Paths are only added.
    fn modules(&mut self, arena: &Arena, buffer: &mut [u8]) -> Result<(), i32> {
        let (modules, paths) = arena.module_tables();
        if let Some(copy) = buffer.get_mut(..modules.len()) {
            return self.module_table(modules, copy, paths);
        }
        aside(modules.len(), |copy| self.module_table(modules, copy, paths))
    }

    fn module_table(&mut self, modules: &[u8], copy: &mut [u8], paths: &[u8]) -> Result<(), i32> {
        copy.iter_mut().zip(modules).for_each(|(to, from)| *to = *from);
        let entry_size = ModuleEntry::SIZE as u32;
        let count = (copy.len() as u32).checked_div(entry_size).unwrap_or(0);
        self.chunk(chunk::MODULES, &[&ArrayHeader { entry_size, count }.to_bytes(), copy, paths])
    }

    fn description(&mut self, pinned: &mut Pinned<'_>) -> Result<(), i32> {
        // Without space, only its length is counted.
        let length = put_description(&mut []);
        if let Some(place) = pinned.buffer.get_mut(..length) {
            put_description(place);
            return self.chunk(chunk::META, &[place]);
        }
        aside(length, |place| {
            put_description(place);
            self.chunk(chunk::META, &[place])
        })
    }

    fn process(
        &mut self,
        process: &'static Process,
        pinned: &Pinned<'_>,
        start: &ClockReading,
    ) -> Result<(), i32> {
        let command = beginning::command_line();
        let record = ProcessRecord {
            record_size: ProcessRecord::SIZE as u32,
            pid: process.pid.load(Relaxed),
            parent_pid: system::parent_id(),
            parent: NO_PROCESS,
            origin: origin::START,
            ending: image_end::RUNNING,
            start_ticks: start.ticks,
            end_ticks: pinned.ticks,
            name: processes::process_name(),
            command_length: command.len() as u32,
            machine: ELF_MACHINE.into(),
        };
        self.chunk(chunk::PROCESS, &[&record.to_bytes(), command])?;
        let stamps = stamps::mode();
        if stamps != EXACT {
            let record_size = size_of::<StampsRecord>() as u32;
            let record = StampsRecord { record_size, stamps, wanted: stamps, ..StampsRecord::default() };
            self.chunk(chunk::STAMPS, &[&record.to_bytes()])?;
        }
        let calibration = process.arena().calibration();
        if calibration.record_size == 0 {
            return Ok(());
        }
        self.chunk(chunk::CALIBRATION, &[&calibration.to_bytes()])
    }

    fn threads(
        &mut self,
        process: &'static Process,
        arena: &Arena,
        pinned: &mut Pinned<'_>,
    ) -> Result<(), i32> {
        let layout = arena.layout();
        let pid = process.pid.load(Relaxed);
        let record = SnapshotRecord {
            snapshot: 0,
            reason: if self.moment.is_some() { reason::TRIGGER } else { reason::REQUEST },
            pid,
            threads: pinned.threads.iter().filter(|noted| noted.segments > 0).count() as u32,
            ticks: pinned.ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters: arena.counters(),
        };
        self.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
        let mut thread = 0;
        for (noted, slot) in pinned.threads.iter().zip(0..) {
            if noted.segments == 0 {
                continue;
            }
            self.thread(process, arena, pinned.bit, pinned.buffer, noted, (slot, thread, pid))?;
            thread += 1;
        }
        match () {
            () if dropped::is_timing() => {
                let others = |slot| times::read(arena, slot, OTHERS).calls;
                let of = |function: &TimedCalls| function.calls;
                let counting = if dropped::counts_memory() { counting::MEMORY } else { counting::TIMES };
                self.counts(process, (chunk::TIMES, counting), || timed(process, arena), of, others, counts)?;
                if dropped::counts_memory() { self.memory(process, arena) } else { Ok(()) }
            }
            () if dropped::is_counting() => {
                let others = |slot| dropped::count(arena, slot, OTHERS);
                let of = |function: &CountedCalls| function.calls;
                let functions = || counted(process, arena, dropped::count, counts);
                self.counts(process, (chunk::COUNTS, counting::CALLS), functions, of, others, counts)
            }
            () => {
                self.dropped(process, arena)?;
                let others = |slot| all_calls::count(arena, slot, OTHERS);
                let of = |function: &CountedCalls| function.calls;
                let functions = || counted(process, arena, all_calls::count, all_calls::is_counted);
                self.counts(
                    process,
                    (chunk::ALL_CALLS, counting::OFF),
                    functions,
                    of,
                    others,
                    all_calls::is_counted,
                )
            }
        }
    }

    /// The names of frames by id.
    fn frames(&mut self, arena: &Arena) -> Result<(), i32> {
        let Some((records, lost)) = frames::records_told(arena) else { return Ok(()) };
        let record = FrameNamesRecord {
            record_size: FrameNamesRecord::SIZE as u32,
            length: records.len() as u64,
            lost,
            ..FrameNamesRecord::default()
        };
        self.chunk(chunk::FRAME_NAMES, &[&record.to_bytes(), records])
    }

    /// The files with names of code, if the process has called such code, or has frames by id, which
    /// may be named there.
    fn code_files(&mut self, process: &'static Process, buffer: &mut [u8]) -> Result<(), i32> {
        let arena = process.arena();
        let wanted = match arena.counters().get(counter::UNKNOWN_CODE) {
            Some(1..) => Wanted::All,
            _ if frames::records_told(arena).is_some() => Wanted::Maps,
            _ => return Ok(()),
        };
        let pids = [arena.forked_from(), process.pid.load(Relaxed)];
        code_files::each(wanted, pids, buffer, |file, kind, size| {
            let written = aside(size as usize, |place| {
                let mut length = 0;
                while let Some(rest) = place.get_mut(length..)
                    && let count @ 1.. = file.read(rest)
                {
                    length += count;
                }
                let bytes_of_file = place.get(..length).unwrap_or_default();
                let record_size = CodeFileRecord::SIZE as u32;
                let record = CodeFileRecord { record_size, kind, length: length as u64 };
                self.chunk(chunk::CODE_FILE, &[&record.to_bytes(), bytes_of_file])
            });
            // A snapshot without these names is better than none.
            if written == Err(error::NO_MEMORY) { Ok(()) } else { written }
        })
    }

    /// The calls that were counted so far, by function and thread slot.
    fn counts<T: Wire, I: Iterator<Item = T>>(
        &mut self,
        process: &'static Process,
        (kind, counting): (u32, u32),
        entries: impl Fn() -> I,
        calls_of: impl Fn(&T) -> u64,
        others: impl Fn(u32) -> u64,
        is_there: fn(&Control) -> bool,
    ) -> Result<(), i32> {
        self.list(kind, entries, calls_of, |calls| {
            let others = slots(process, process.arena(), is_there).map(&others);
            let others = others.fold(0, u64::saturating_add);
            let calls = calls.saturating_add(others);
            CountsRecord { snapshot: 0, counting, calls, others, ..CountsRecord::default() }
        })
    }

    /// Writes the memory allocated and freed so far, by function and thread slot.
    fn memory(&mut self, process: &'static Process, arena: &Arena) -> Result<(), i32> {
        self.list(
            chunk::MEMORY,
            || allocated(process, arena),
            |_| 0,
            |_| {
                let elsewhere =
                    dropped::memory_elsewhere(arena).each_ref().map(|number| number.load(Relaxed));
                let facts = dropped::memory_facts(arena).load(Relaxed);
                MemoryRecord { snapshot: 0, facts, elsewhere, ..MemoryRecord::default() }
            },
        )
    }

    /// Writes a chunk with a list of entries behind a record, which is made of the sum of what
    /// `number_of` returns for each entry.
    fn list<T: Wire, I: Iterator<Item = T>, R: Wire>(
        &mut self,
        kind: u32,
        entries: impl Fn() -> I,
        number_of: impl Fn(&T) -> u64,
        record: impl Fn(u64) -> R,
    ) -> Result<(), i32> {
        let length = entries().count() * T::SIZE;
        aside(length.max(1), |memory| {
            let (list, _) = memory.split_at_mut_checked(length).ok_or(error::NO_MEMORY)?;
            let (mut sum, mut written) = (0_u64, 0);
            // Functions that were called for the first time since are left for the next snapshot.
            for (place, entry) in list.chunks_exact_mut(T::SIZE).zip(entries()) {
                // Each has this length, which the compiler doesn't see.
                let Some(place) = place.get_mut(..T::SIZE) else { break };
                sum = sum.saturating_add(number_of(&entry));
                entry.write(place);
                written += 1;
            }
            let record = record(sum);
            let array = ArrayHeader { entry_size: T::SIZE as u32, count: written };
            let list = list.get(..written as usize * T::SIZE).unwrap_or(&[]);
            self.chunk(kind, &[record.to_bytes().as_ref(), &array.to_bytes(), list])
        })
    }

    /// The short calls that were dropped so far, by function.
    fn dropped(&mut self, process: &'static Process, arena: &Arena) -> Result<(), i32> {
        let (places, is_full) = dropped::places(arena);
        let (threshold_ns, highest_ns) = dropped::thresholds_ns(arena);
        if highest_ns == 0 {
            return Ok(());
        }
        let length = places.saturating_sub(1) as usize * DroppedCalls::SIZE;
        aside(length.max(1), |memory| {
            let (list, _) = memory.split_at_mut_checked(length).ok_or(error::NO_MEMORY)?;
            let calls = add_dropped(process, arena, list);
            let record = DroppedRecord {
                snapshot: 0,
                // Short calls of functions with later places are recorded.
                is_full: (is_full || places > FUNCTIONS).into(),
                threshold_ns,
                highest_ns,
                calls,
                ..DroppedRecord::default()
            };
            let array =
                ArrayHeader { entry_size: DroppedCalls::SIZE as u32, count: places.saturating_sub(1) };
            self.chunk(chunk::DROPPED, &[&record.to_bytes(), &array.to_bytes(), list])
        })
    }

    fn thread(
        &mut self,
        process: &'static Process,
        arena: &Arena,
        bit: u32,
        buffer: &mut [u8],
        noted: &Noted,
        (slot, thread, pid): (u32, u32, u32),
    ) -> Result<(), i32> {
        let header = &noted.header;
        // SAFETY: as the snapshot has copied them.
        let open_calls = unsafe {
            core::slice::from_raw_parts(
                noted.open_calls as *const u8,
                noted.open_calls_count as usize * size_of::<OpenCall>(),
            )
        };
        let record = ThreadRecord {
            snapshot: 0,
            thread,
            pid,
            tid: header.tid,
            slot,
            generation: header.generation,
            start_ticks: header.start_ticks,
            first_segment: noted.first_number,
            segments: noted.last_number.saturating_sub(noted.first_number) + 1,
            // Readers of the events count them.
            holes: 0,
            name: newest_name(arena, slot, header),
            unwound: header.unwound,
            orphan_exits: header.orphan_exits,
            lost_busy: header.lost_busy,
            deep: header.deep,
            fiber: header.fiber,
            dropped: dropped_of(process, arena, slot),
            ..ThreadRecord::default()
        };
        let list =
            ArrayHeader { entry_size: size_of::<OpenCall>() as u32, count: noted.open_calls_count as u32 };
        self.chunk(chunk::THREAD, &[&record.to_bytes(), &list.to_bytes(), open_calls])?;
        let mut next = Some((noted.first, noted.first_number));
        while let Some((index, number)) = next {
            let is_last = number == noted.last_number;
            let words = if is_last { noted.last_words } else { u64::MAX };
            if let Some(copied) = copy(arena, bit, index, (number, noted.last_number), words, buffer) {
                let record = EventsRecord {
                    snapshot: 0,
                    thread,
                    first_segment: number,
                    words: copied as u64,
                    encoding: encoding::RAW,
                    lost: 0,
                };
                self.chunk(
                    chunk::EVENTS,
                    &[&record.to_bytes(), buffer.get(..copied * WORD_SIZE).unwrap_or(&[])],
                )?;
            }
            next = if is_last { None } else { successor(arena, bit, slot, noted, index, number) };
        }
        Ok(())
    }
}

/// The slots whose threads count, as `is_there` says.
fn slots(
    process: &'static Process,
    arena: &Arena,
    is_there: fn(&Control) -> bool,
) -> impl Iterator<Item = u32> {
    let slots = arena.thread_count().load(Acquire).min(arena.layout().thread_capacity);
    (0..slots).filter(move |slot| is_there(process.control(*slot)))
}

/// Whether a thread counts calls that aren't recorded.
fn counts(control: &Control) -> bool {
    control.short_counts.load(Relaxed) != 0
}

/// The calls that these have counted, by function.
fn counted<'a>(
    process: &'static Process,
    arena: &'a Arena,
    count: fn(&Arena, u32, u32) -> u64,
    is_there: fn(&Control) -> bool,
) -> impl Iterator<Item = CountedCalls> + 'a {
    let (places, _) = dropped::places(arena);
    slots(process, arena, is_there).flat_map(move |slot| {
        (1..places).filter_map(move |place| {
            let (code, ticks) = dropped::function(arena, place);
            let calls = if place == OTHERS { 0 } else { count(arena, slot, place) };
            (calls > 0).then_some(CountedCalls { code, slot, ticks, calls })
        })
    })
}

/// The calls that these have timed, by function.
fn timed<'a>(process: &'static Process, arena: &'a Arena) -> impl Iterator<Item = TimedCalls> + 'a {
    let (places, _) = dropped::places(arena);
    slots(process, arena, counts).flat_map(move |slot| {
        (1..places).filter_map(move |place| {
            let (code, ticks) = dropped::function(arena, place);
            let calls = TimedCalls { code, slot, ticks, ..times::read(arena, slot, place) };
            (calls.calls > 0 && place != OTHERS).then_some(calls)
        })
    })
}

/// The memory that calls have allocated and freed, by function and thread slot.
fn allocated<'a>(process: &'static Process, arena: &'a Arena) -> impl Iterator<Item = MemoryCalls> + 'a {
    let (places, _) = dropped::places(arena);
    slots(process, arena, counts).flat_map(move |slot| {
        let places = core::iter::once(OTHERS).chain((0..places).filter(|place| *place != OTHERS));
        places.filter_map(move |place| {
            let (whose, (code, ticks)) = match place {
                0 => (whose::THREAD, (0, 0)),
                OTHERS => (whose::OTHERS, (0, 0)),
                _ => (whose::FUNCTION, dropped::function(arena, place)),
            };
            let (own, total) = memory::read(arena, slot, place);
            let is_there = own.iter().chain(&total).any(|number| *number > 0);
            is_there.then_some(MemoryCalls { code, slot, ticks, own, total, whose, reserved: 0 })
        })
    })
}

/// The calls that were dropped in a slot. Slots in which none were have memory that isn't touched.
fn dropped_of(process: &'static Process, arena: &Arena, slot: u32) -> u64 {
    if dropped::is_counting() {
        // The counts say it.
        return 0;
    }
    let control = process.control(slot);
    if control.short_counts.load(Relaxed) == 0 { 0 } else { dropped::count(arena, slot, 0) }
}

/// Writes the functions whose calls were dropped, with the numbers of these, into `list`. Returns
/// the sum.
fn add_dropped(process: &'static Process, arena: &Arena, list: &mut [u8]) -> u64 {
    let slots = arena.thread_count().load(Acquire).min(arena.layout().thread_capacity);
    let entries = list.as_chunks_mut::<{ DroppedCalls::SIZE }>().0;
    let mut sum = 0_u64;
    for (entry, place) in entries.iter_mut().zip(1..) {
        let (code, ticks) = dropped::function(arena, place);
        DroppedCalls { code, ticks, ..DroppedCalls::default() }.write(entry);
    }
    for slot in 0..slots {
        let mut left = dropped_of(process, arena, slot);
        for (entry, place) in entries.iter_mut().zip(1..) {
            // The rest may be memory that was never touched.
            if left == 0 {
                break;
            }
            let count = dropped::count(arena, slot, place);
            left = left.saturating_sub(count);
            sum += count;
            if let Some(mut function) = DroppedCalls::read(entry) {
                function.calls += count;
                function.write(entry);
            }
        }
    }
    sum
}

/// The chunk that describes the call for which a snapshot was taken.
fn kept_call(arena: &Arena, threads: &[Noted], moment: &Moment<'_>) -> KeptCall {
    let call = moment.call;
    let is_it = |(slot, noted): &(u32, &Noted)| {
        *slot == call.slot && noted.header.generation == call.generation && noted.segments > 0
    };
    let thread = (0..).zip(threads).find(is_it).map(|(_, noted)| {
        let before = threads.iter().take(call.slot as usize).filter(|noted| noted.segments > 0).count();
        let oldest = arena.pool().entries.get(noted.first as usize);
        (before as u32, oldest.map_or(u64::MAX, |entry| entry.events_before.load(Relaxed)))
    });
    KeptCall::of(call, 0, thread)
}

/// Copies up to `count` words of a segment. Returns their number. `None` if the segment was taken
/// from us.
fn copy(
    arena: &Arena,
    bit: u32,
    index: u32,
    (number, newest): (u64, u64),
    count: u64,
    buffer: &mut [u8],
) -> Option<usize> {
    let source = arena.pool().segment(index);
    let count = (count as usize).min(source.len());
    let places = buffer.as_chunks_mut::<WORD_SIZE>().0;
    for (place, word) in places.iter_mut().zip(source).take(count) {
        *place = word.load(Relaxed).to_le_bytes();
    }
    fence(Acquire);
    let is_newest = number == newest;
    let places = places.get_mut(..count)?;
    // Where calls are dropped, words at the end are taken back and written again: those that were
    // the same twice were there together.
    let same = if is_newest && dropped::thresholds_ns(arena).1 != 0 {
        let is_same =
            |(place, word): (&[u8; WORD_SIZE], &AtomicU64)| *place == word.load(Relaxed).to_le_bytes();
        places.iter().zip(source).position(|pair| !is_same(pair)).unwrap_or(count)
    } else {
        count
    };
    fence(Acquire);
    let is_it = arena.pool().is_pinned(index, bit)
        && arena.pool().entries.get(index as usize).is_some_and(|entry| entry.number.load(Relaxed) == number);
    if !is_it {
        return None;
    }
    // Behind the written part of a thread's last segment, there are zeros.
    let written =
        places.iter().take(same).rposition(|word| *word != [0; WORD_SIZE]).map_or(0, |last| last + 1);
    let words = places.get_mut(..if is_newest { written } else { count })?;
    // An event that was still being written when the snapshot was taken isn't part of it, so it
    // isn't lost either.
    for place in words.iter_mut().rev().take(IN_FLIGHT) {
        if u64::from_le_bytes(*place) as u32 == 0 {
            *place = event::record_word(0, kind::FILLER, 0, 0).to_le_bytes();
        }
    }
    Some(whole_records(words))
}

/// The number of words without an incomplete record at the end.
fn whole_records(words: &[[u8; WORD_SIZE]]) -> usize {
    for (word, following) in words.iter().rev().zip(0..=event::RECORD_MAX_PAYLOAD) {
        match Word::decode(u64::from_le_bytes(*word)) {
            Word::Payload { .. } => {}
            Word::Record { count, .. } if usize::from(count) > following => {
                return words.len().saturating_sub(following + 1);
            }
            _ => break,
        }
    }
    words.len()
}

/// A thread's name. The kernel is asked, because a thread that names itself and then waits has not
/// recorded its new name. If the thread has ended meanwhile, the last recorded name is returned.
fn newest_name(arena: &Arena, slot: u32, header: &ThreadHeader) -> [u8; 16] {
    let now = arena.slot(slot);
    let is_there = header.fiber == 0
        && now.state().load(Acquire) == thread_state::USED
        && now.generation().load(Relaxed) == header.generation;
    // `None` if the thread belongs to another process that shares our memory.
    let name = if is_there { processes::name_of_thread(header.tid) } else { None };
    name.unwrap_or(header.name)
}

/// Writes the fields of META into `place`, as far as they fit. Returns their length.
fn put_description(place: &mut [u8]) -> usize {
    let mut length = 0;
    let mut add = |part: &[u8]| {
        let padding = part.len().next_multiple_of(4) - part.len();
        for byte in part.iter().chain([0; 3].iter().take(padding)) {
            if let Some(place) = place.get_mut(length) {
                *place = *byte;
            }
            length += 1;
        }
    };
    let mut field = |key: u32, text: &[u8]| {
        add(&MetaField { key, length: text.len() as u32 }.to_bytes());
        add(text);
    };
    field(meta::TOOL_VERSION, VERSION);
    words_of(beginning::command_line()).for_each(|word| field(meta::ARGUMENT, word));
    let folder = beginning::folder();
    if !folder.is_empty() {
        field(meta::WORKING_FOLDER, folder);
    }
    length
}

/// Runs something with `length` bytes of memory that is mapped only for that.
fn aside(length: usize, work: impl FnOnce(&mut [u8]) -> Result<(), i32>) -> Result<(), i32> {
    let size = (length as u64).next_multiple_of(PAGE);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let memory = system::map(size, PROT_READ | PROT_WRITE, flags, -1).ok_or(error::NO_MEMORY)?;
    // SAFETY: fresh memory, which no other code accesses until it is unmapped.
    let done = work(unsafe { core::slice::from_raw_parts_mut(memory, length) });
    system::unmap(memory, size);
    done
}

fn words_of(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.strip_suffix(b"\0").unwrap_or(line).split(|byte| *byte == 0).filter(|_| !line.is_empty())
}
