//! Writes the `.ect` file chunk by chunk, directly from the arenas, in bounded memory.
//!
//! Readers need modules and clocks first, so these come first and a truncated file still has them.
//! Processes that end while others run may be written before the others' ends are known.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::arena::{ArenaHeader, ChildEntry, counter, process_state};
use everycall_format::ect::{ProcessEnd, chunk, image_end};
use everycall_format::stamp::EXACT;
use everycall_machine::clock::Readings;
use everycall_sched::Sched;
use everycall_stacks::Stacks;
use everycall_tracefile::{
    Child, ChunkWriter, Images, Progress, Runs, Summary, array, module_table, write_code_names, write_stamps,
};
use rustix::time::{ClockId, clock_gettime};

use crate::output::log_files::{self, LogFile};
use crate::output::records::{meta, process_record, stamps_wanted, with_start};
use crate::output::rings;
use crate::output::rotation::Rotation;
use crate::output::sampled::Sampled;
use crate::output::streams::{PASS_PAUSES, Streams};
use crate::process::member::Member;
use crate::process::module_files::Identity;
use crate::sys::launch::Launch;
use crate::tree::sampler::AllSamples;

/// The kernel's facts that are recorded beside the calls.
pub(crate) struct Beside<'a> {
    pub sched: Option<&'a mut Sched>,
    pub stacks: Option<&'a mut Stacks>,
}

impl Beside<'_> {
    fn reborrow(&mut self) -> Beside<'_> {
        Beside { sched: self.sched.as_deref_mut(), stacks: self.stacks.as_deref_mut() }
    }
}

/// A trace file that is being written.
pub struct TraceWriter<W> {
    file: ChunkWriter<W>,
    /// Empty between two threads.
    runs: Runs,
    summary: Summary,
    /// Files of modules that are in the trace, by their modules and as files.
    images: (HashSet<Identity>, Images),
    /// Ticks of the newest clock reading in the file.
    clock_until: u64,
    /// The first error of an early write.
    failed: Option<io::Error>,
    /// The streams, if everything is written while the program runs.
    streams: Option<Streams>,
    /// Counters of processes, if they are sampled.
    sampled: Option<Sampled>,
    /// Files of the program whose lines are added at the end.
    log_files: Vec<LogFile>,
    /// The META payload, for files to come.
    meta: Vec<u8>,
    /// Which events should have a time of their own: one of [`everycall_format::stamp`].
    stamps_wanted: u32,
    rotation: Option<Rotation<W>>,
    /// When this file began.
    begun: Instant,
}

impl<W: Write> TraceWriter<W> {
    /// Begins the file. `tool_version` is everycall's. The output should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn begin(output: W, launch: &Launch, tool_version: &str) -> io::Result<TraceWriter<W>> {
        let mut file = ChunkWriter::begin(output)?;
        let meta = meta(launch, tool_version);
        file.chunk(chunk::META, &[&meta])?;
        Ok(TraceWriter {
            file,
            runs: Runs::default(),
            summary: Summary::default(),
            images: Default::default(),
            clock_until: 0,
            failed: None,
            streams: None,
            sampled: None,
            log_files: Vec::new(),
            meta,
            stamps_wanted: stamps_wanted(launch),
            rotation: None,
            begun: Instant::now(),
        })
    }

    /// Lets the stream continue in other files.
    pub fn rotate(&mut self, rotation: Rotation<W>) {
        self.rotation = Some(rotation);
    }

    /// Continues in the next file if it is time. Each file can be read on its own, because it
    /// announces the existing processes.
    fn next_file(&mut self, readings: &Readings, beside: Beside<'_>) -> io::Result<()> {
        let (Some(rotation), Some(streams)) = (&mut self.rotation, &mut self.streams) else { return Ok(()) };
        if !rotation.is_due(self.file.position(), self.begun) {
            return Ok(());
        }
        self.begun = Instant::now();
        let size = self.file.go_on(&mut rotation.next)?;
        self.summary.earlier_files += 1;
        self.summary.earlier_size = self.summary.earlier_size.saturating_add(size);
        self.file.chunk(chunk::META, &[&self.meta])?;
        streams.begin_file(&mut self.file)?;
        beside.sched.into_iter().for_each(Sched::begin_file);
        beside.stacks.into_iter().for_each(Stacks::begin_file);
        self.sampled.iter_mut().for_each(Sampled::begin_file);
        self.images = Default::default();
        self.clock_until = 0;
        self.clock(readings, None)
    }

    /// Enables streaming; `progress` is called from time to time.
    pub fn stream(&mut self, progress: Option<Box<dyn FnMut(Progress)>>) {
        self.streams = Some(Streams::new(progress));
        let flushed = self.file.flush();
        self.keep_error(flushed);
    }

    /// Calls `act` with the output once the program runs, for example to give a stream's file its
    /// name. An error is kept for later.
    pub fn with_output(&mut self, act: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.failed.is_none() {
            let done = act(self.file.output());
            self.keep_error(done);
        }
    }

    /// Adds lines of files that the program has written. They are written with the processes.
    pub fn add_log_files(&mut self, files: Vec<LogFile>) {
        self.log_files.extend(files);
    }

    /// Writes these lines, as those of the first process.
    pub(crate) fn log_files(&mut self, member: Option<&Member>, end_ticks: u64) -> io::Result<()> {
        let Some(member) = member else { return Ok(()) };
        for log in (0..).zip(&self.log_files) {
            log_files::write(&mut self.file, &mut self.runs, member, log, end_ticks)?;
        }
        Ok(())
    }

    /// Writes these samples with their processes.
    pub(crate) fn sampled(&mut self, samples: Arc<AllSamples>) {
        self.sampled = Some(Sampled::new(samples));
    }

    /// Writes samples of processes, given by number and id. An error is kept for later.
    pub(crate) fn pass_samples(&mut self, processes: Vec<(u32, u32)>) {
        let (Some(sampled), None) = (&mut self.sampled, &self.failed) else { return };
        let mut result = Ok(());
        for (number, pid) in processes {
            result = sampled.pass(&mut self.file, &mut self.runs, number, pid);
            if result.is_err() {
                break;
            }
        }
        self.keep_error(result);
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.streams.is_some()
    }

    /// Begins to stream new members. An error is kept for later: the program continues.
    pub(crate) fn join<'m>(&mut self, members: impl Iterator<Item = &'m Member>) {
        for member in members {
            let Some(streams) = self.streams.as_mut().filter(|streams| !streams.has(member)) else {
                continue;
            };
            let joined = match self.failed {
                None => streams.join(&mut self.file, member, self.stamps_wanted),
                Some(_) => streams.join_in_vain(member),
            };
            self.keep_error(joined);
        }
    }

    /// Writes what waits. Returns the time until the next pass. An error is kept for later.
    pub(crate) fn pass(&mut self, readings: &Readings, mut beside: Beside<'_>) -> Duration {
        if self.failed.is_some() {
            return *PASS_PAUSES.end();
        }
        let size = self.file.position();
        let limit = self.rotation.as_ref().map_or(u64::MAX, |rotation| rotation.pass_limit(size));
        let Some(streams) = &mut self.streams else { return *PASS_PAUSES.end() };
        let (pass, stored) = streams.pass(&mut self.file, &mut self.runs, limit);
        let stored = stored.and_then(|()| self.clock(readings, None));
        let stored = stored.and_then(|()| self.sched(beside.sched.as_deref_mut()));
        let stored = stored.and_then(|()| self.stacks(beside.stacks.as_deref_mut(), false));
        let stored = stored.and_then(|()| self.next_file(readings, beside));
        let stored = if pass.bytes > 0 { stored.and_then(|()| self.file.flush()) } else { stored };
        self.keep_error(stored);
        if let Some(streams) = &mut self.streams {
            streams.tell_progress(self.file.position());
        }
        pass.pause
    }

    /// Writes what waits of a process that has ended, or is read for the last time, into as many
    /// files as needed. (What remains are the segments that threads hadn't finished.)
    fn pass_all(&mut self, number: u32, readings: &Readings, mut beside: Beside<'_>) {
        if self.rotation.is_none() {
            return;
        }
        let waiting = |writer: &Self| writer.streams.as_ref().map_or(0, |streams| streams.waiting(number));
        // A running process may write as fast as we do. Each pass writes at least one segment.
        for _ in 0..waiting(self) {
            if self.failed.is_some() || waiting(self) == 0 {
                break;
            }
            self.pass(readings, beside.reborrow());
        }
    }

    /// Stores the first error of writes while the program runs. From then on no thread waits for
    /// the disk.
    fn keep_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
            self.streams.iter().for_each(Streams::give_up);
        }
    }

    /// Writes processes that have ended while others run. An error is kept for later: the program
    /// continues.
    pub(crate) fn early(&mut self, members: Vec<Member>, readings: &Readings, mut beside: Beside<'_>) {
        for mut member in members {
            if self.failed.is_none() {
                let written = self
                    .clock(readings, None)
                    .and_then(|()| self.member(&mut member, readings, beside.reborrow()));
                self.keep_error(written);
            }
        }
    }

    /// Writes the clock readings that aren't in the file, with the start of `member` among them.
    pub(crate) fn clock(&mut self, readings: &Readings, first: Option<&Member>) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut new = match first {
            Some(member) if self.clock_until == 0 => with_start(readings.all(), &member.arena.header()),
            _ => readings.all().to_vec(),
        };
        new.retain(|reading| reading.ticks > self.clock_until);
        let Some(last) = new.last() else { return Ok(()) };
        self.clock_until = last.ticks;
        self.file.set_process(0);
        self.file.chunk(chunk::CLOCK, &[&array(&new)])
    }

    /// Writes a process that has ended, or is read for the last time.
    pub(crate) fn member(
        &mut self,
        member: &mut Member,
        readings: &Readings,
        beside: Beside<'_>,
    ) -> io::Result<()> {
        self.join(std::iter::once(&*member));
        self.pass_all(member.number, readings, beside);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (ending, end_ticks) = member.end.unwrap_or((image_end::RUNNING, 0));
        self.summary.processes += 1;
        self.summary.without_libraries += u32::from(member.lacks_libraries);
        self.summary.running += u32::from(ending == image_end::RUNNING);
        self.file.set_process(member.number);
        let process = process_record(member, ending, end_ticks).to_bytes().to_vec();
        self.file.chunk(chunk::PROCESS, &[&process, member.title_or_command()])?;
        let stamps = member.arena.header().stamps;
        write_stamps(&mut self.file, stamps, self.stamps_wanted)?;
        self.summary.exact_instead += u32::from(stamps == EXACT && self.stamps_wanted != EXACT);
        member.arena.write_calibration(&mut self.file, member.cpu_ns)?;
        self.modules(member)?;
        let (file, runs) = (&mut self.file, &mut self.runs);
        let streamed = match &mut self.streams {
            Some(streams) => streams.finish(file, runs, member)?,
            None => None,
        };
        let (header, threads) = match streamed {
            Some(streamed) => {
                self.summary.streamed = true;
                self.summary.missing = self.summary.missing.saturating_add(streamed.lost);
                (streamed.header, streamed.threads)
            }
            None => rings::write(file, runs, member, readings)?,
        };
        if let Some(names) = member.code_names(readings) {
            self.file.set_process(member.number);
            write_code_names(&mut self.file, &names.codes, names.lost)?;
            self.summary.warnings.extend(names.warnings);
        }
        self.add_to_summary(member, &header);
        self.summary.threads.extend(threads);
        if let Some(sampled) = &mut self.sampled {
            sampled.finish(&mut self.file, &mut self.runs, member.number, member.pid, end_ticks)?;
        }
        Ok(())
    }

    /// Writes the scheduling events that aren't in the file.
    pub(crate) fn sched(&mut self, sched: Option<&mut Sched>) -> io::Result<()> {
        let Some(sched) = sched else { return Ok(()) };
        while let Some(payload) = sched.take_chunk() {
            self.file.set_process(0);
            self.file.chunk(chunk::SCHED, &[&payload])?;
        }
        Ok(())
    }

    /// Writes the sampled stacks that aren't in the file: all of them if they are the last ones,
    /// otherwise if there are enough for a chunk.
    pub(crate) fn stacks(&mut self, stacks: Option<&mut Stacks>, are_last: bool) -> io::Result<()> {
        let Some(stacks) = stacks else { return Ok(()) };
        if are_last && let Some(reason) = stacks.refusal() {
            self.summary.warnings.push(format!("no stacks are sampled (--samples): {reason}"));
        }
        let Some(payload) = stacks.take_chunk(are_last) else { return Ok(()) };
        self.file.set_process(0);
        self.file.chunk(chunk::STACKS, &[&payload])
    }

    /// Writes a finished chunk of process number `process`.
    pub(crate) fn chunk(&mut self, process: u32, kind: u32, payload: &[u8]) -> io::Result<()> {
        self.file.set_process(process);
        self.file.chunk(kind, &[payload])
    }

    fn add_to_summary(&mut self, member: &Member, header: &ArenaHeader) {
        let layout = member.arena.layout();
        let summary = &mut self.summary;
        summary.traced = true;
        summary.off |= header.state == process_state::OFF;
        summary.ring_size = layout.ring_size;
        summary.thread_capacity = layout.thread_capacity;
        member.arena.dropped().add_to(summary);
        for (sum, count) in summary.counters.iter_mut().zip(header.counters) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Ends the file with the records about the whole recording.
    pub(crate) fn end(
        mut self,
        children: &[ChildEntry],
        untraced: u32,
        end: &ProcessEnd,
        readings: &Readings,
    ) -> io::Result<(Summary, W)> {
        self.file.set_process(0);
        self.file.chunk(chunk::PROCESS_END, &[&end.to_bytes()])?;
        self.file.chunk(chunk::CHILDREN, &[&array(children)])?;
        self.summary.children = children.iter().map(Child::from).collect();
        self.summary.untraced_processes = untraced;
        self.summary.stall_ns = readings.nanoseconds(self.summary.counters[counter::STALL_TICKS]);
        let (file_size, output) = self.file.end()?;
        self.summary.file_size = file_size;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        self.summary.cpu_ns = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
        Ok((self.summary, output))
    }

    fn modules(&mut self, member: &mut Member) -> io::Result<()> {
        let arena = &member.arena;
        let table = module_table(member.modules.table(arena), &mut self.summary);
        self.file.chunk(chunk::MODULES, &[&table])?;
        let (file, images) = (&mut self.file, &mut self.images);
        member.modules.moved(arena, |identity, take| {
            if !images.0.insert(identity) {
                return Ok(());
            }
            match take(&mut images.1) {
                Ok([record, packed]) => file.chunk(chunk::MODULE_IMAGE, &[&record, &packed]),
                Err(sentence) => {
                    self.summary.warnings.push(sentence);
                    Ok(())
                }
            }
        })
    }
}
