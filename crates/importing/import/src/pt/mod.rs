//! perf's own file with a trace of Intel PT.
//!
//! ```text
//! file       perf's records: what was mapped, forked, switched; where the trace lies
//! space      the files that were mapped, their code and functions
//! generated  code of just-in-time compilers, by the files that they left
//! mod        the traces of all CPUs, in the order of their times, as calls of threads
//! ```
//!
//! Each CPU's trace is decoded up to the time of the one furthest behind, so that a thread's
//! calls come in order, whichever CPUs it ran on.

mod file;
mod generated;
mod space;

use std::io::{self, Read, Seek, Write};

use everycall_format::arena::ClockReading;
use everycall_intel_pt::{
    Block, CallSink, Calls, Flow, Gap, Packet, PacketError, Packets, Rates, Sink, find_psb,
};
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use self::file::{MAGIC, MAGIC_SWAPPED};
use self::file::{PerfFile, Side, Stream, What, bytes_at};
use self::generated::{Generated, Wanted};
use self::space::{Files, Map, Maps, Space};
use crate::error::ImportError;
use crate::input::{ImportOptions, Input};
use crate::output::{Code, ModuleFacts, Output, ProcessFacts, ProcessId, ThreadId};

/// Bytes of a CPU's trace that are in memory.
const WINDOW: u64 = 256 << 10;
/// Forefathers of a process whose names of code are looked for.
const FOREFATHERS_MAX: usize = 8;
/// Bytes of a cut packet, at most.
const PACKET_MAX: usize = 16;

/// Reads perf's file.
pub(crate) fn read<W: Write>(
    input: &mut impl Input,
    options: &ImportOptions,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let mut file = PerfFile::read(input)?;
    let generated = Generated::new(options.folder.clone(), options.written);
    let mut world = World::new(&mut file, generated);
    let mut queues: Vec<Queue> =
        file.streams.into_values().map(|stream| Queue::new(stream, &world)).collect();
    loop {
        let waiting = queues.iter().enumerate().filter(|(_, queue)| !queue.is_done);
        let Some((first, _)) = waiting.min_by_key(|(_, queue)| queue.flow.clock.now()) else { break };
        let others = queues.iter().enumerate().filter(|(index, queue)| *index != first && !queue.is_done);
        let limit = others.map(|(_, queue)| queue.flow.clock.now()).min().unwrap_or(u64::MAX);
        let Some(queue) = queues.get_mut(first) else { break };
        queue.run(limit, input, &mut world, out)?;
        if let Some(error) = world.failed.take() {
            return Err(ImportError::Unwritable(error));
        }
    }
    let counts = |of: fn(&Queue) -> u64| queues.iter().map(of).sum::<u64>();
    let (bad, jumps) = (counts(|queue| queue.bad), counts(|queue| queue.flow.clock.jumps()));
    let has_times = queues.iter().any(|queue| queue.flow.clock.has_time());
    if world.shown == 0 {
        let mut notes = world.files.notes.iter().chain(&world.generated.notes);
        return Err(ImportError::Version(match notes.next() {
            Some(note) => format!("has no call that could be decoded: {note}"),
            None => "has no call that could be decoded".to_owned(),
        }));
    }
    world.finish(file.notes, (bad, jumps, has_times), out);
    out.facts.command = file.command;
    Ok(())
}

/// The trace of one CPU or thread, and how far it is decoded.
struct Queue {
    stream: Stream,
    flow: Flow,
    packets: Packets,
    bytes: Vec<u8>,
    /// Decoded ones of these.
    at: usize,
    /// The part that is read, and how much of it.
    part: usize,
    read: u64,
    /// Where the bytes begin among all that the CPU wrote.
    offset: u64,
    /// The next loss.
    loss: usize,
    /// The next switch of its CPU.
    switch: usize,
    /// Who runs.
    running: Option<(u32, u32)>,
    thread: Option<usize>,
    bad: u64,
    is_done: bool,
}

impl Queue {
    fn new(stream: Stream, world: &World) -> Queue {
        let running = stream.cpu.is_none().then(|| (world.pid_of(stream.tid), stream.tid));
        Queue {
            flow: Flow::new(world.rates),
            packets: Packets::default(),
            bytes: Vec::new(),
            at: 0,
            part: 0,
            read: 0,
            offset: 0,
            loss: 0,
            switch: 0,
            running,
            thread: None,
            bad: 0,
            is_done: false,
            stream,
        }
    }

    /// Decodes up to a time, or to the end.
    fn run<W: Write>(
        &mut self,
        limit: u64,
        input: &mut (impl Read + Seek),
        world: &mut World,
        out: &mut Output<W>,
    ) -> Result<(), ImportError> {
        while self.flow.clock.now() <= limit {
            if self.flow.is_lost() && !self.synchronize(input, world, out)? {
                self.is_done = true;
                return Ok(());
            }
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            match self.packets.next(rest) {
                Ok((Packet::Pad, _)) => {
                    self.at += rest.iter().take_while(|byte| **byte == 0).count().max(1);
                }
                Ok((packet, length)) => {
                    self.at += length;
                    self.packet(packet, world, out);
                    if world.failed.is_some() {
                        return Ok(());
                    }
                    self.notice_loss(world, out);
                }
                Err(PacketError::Truncated) => {
                    if !self.fill(input, world, out)? {
                        self.is_done = true;
                        return Ok(());
                    }
                }
                Err(PacketError::Unknown) => {
                    self.bad += 1;
                    self.lose(Gap::Packets, world, out);
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    /// Reads on. Returns whether there is more.
    fn fill<W: Write>(
        &mut self,
        input: &mut (impl Read + Seek),
        world: &mut World,
        out: &mut Output<W>,
    ) -> Result<bool, ImportError> {
        loop {
            let Some(part) = self.stream.parts.get(self.part).copied() else { return Ok(false) };
            if self.read >= part.size {
                self.part += 1;
                self.read = 0;
                continue;
            }
            let end = self.offset.saturating_add(self.bytes.len() as u64);
            if self.read == 0 && self.part > 0 {
                if part.offset < end {
                    // A snapshot repeats what the one before had.
                    self.read = (end - part.offset).min(part.size);
                    if self.read == part.size {
                        continue;
                    }
                } else if part.offset > end {
                    self.lose(Gap::Recorder, world, out);
                    self.bytes.clear();
                    self.at = 0;
                }
            }
            self.offset = self.offset.saturating_add(self.at as u64);
            self.bytes.drain(..self.at);
            self.at = 0;
            if self.bytes.is_empty() {
                self.offset = part.offset.saturating_add(self.read);
            }
            let wanted = (part.size - self.read).min(WINDOW);
            let more = bytes_at(input, part.at.saturating_add(self.read), wanted, WINDOW)?;
            if more.is_empty() {
                world.is_truncated = true;
                self.part = usize::MAX;
                return Ok(false);
            }
            self.read += more.len() as u64;
            self.bytes.extend(more);
            return Ok(true);
        }
    }

    /// Goes to the next synchronization point. Returns whether there is one.
    fn synchronize<W: Write>(
        &mut self,
        input: &mut (impl Read + Seek),
        world: &mut World,
        out: &mut Output<W>,
    ) -> Result<bool, ImportError> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            if let Some(found) = find_psb(rest) {
                self.at += found;
                self.packets = Packets::default();
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                // The packets up to its end belong to it: the flow knows then where it is.
                if rest.len() < 512 && self.fill(input, world, out)? {
                    continue;
                }
                self.point(world, out);
                return Ok(true);
            }
            // Its beginning may be there.
            self.at = self.at.max(self.bytes.len().saturating_sub(PACKET_MAX - 1));
            if !self.fill(input, world, out)? {
                return Ok(false);
            }
        }
    }

    /// Takes the packets of a synchronization point: outside of one, lost bytes say nothing.
    fn point<W: Write>(&mut self, world: &mut World, out: &mut Output<W>) {
        for _ in 0..64 {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Ok((packet, length)) = self.packets.next(rest) else {
                self.at += usize::from(!rest.is_empty());
                return;
            };
            self.at += length;
            self.packet(packet, world, out);
            if packet == Packet::PsbEnd || !self.flow.is_lost() && packet == Packet::Ovf {
                return;
            }
        }
    }

    fn packet<W: Write>(&mut self, packet: Packet, world: &mut World, out: &mut Output<W>) {
        let leads = matches!(packet, Packet::TipPge(_) | Packet::Tip(_) | Packet::Fup(_));
        if leads && !self.flow.is_inside() || self.thread.is_none() {
            self.find_thread(world, out);
        }
        let ticks = self.flow.clock.now();
        let Some((flow, mut sink, blocks, maps)) =
            world.split(&mut self.flow, self.thread, ticks, leads, out)
        else {
            return;
        };
        flow.packet(packet, blocks, maps, &mut sink);
    }

    fn lose<W: Write>(&mut self, why: Gap, world: &mut World, out: &mut Output<W>) {
        let ticks = self.flow.clock.now();
        if let Some((flow, mut sink, _, _)) = world.split(&mut self.flow, self.thread, ticks, false, out) {
            flow.lose(why, &mut sink);
        }
    }

    fn notice_loss<W: Write>(&mut self, world: &mut World, out: &mut Output<W>) {
        if let Some(lost) = self.stream.losses.get(self.loss)
            && self.offset.saturating_add(self.at as u64) >= *lost
        {
            self.loss += 1;
            self.lose(Gap::Recorder, world, out);
        }
    }

    /// Who runs at this time.
    fn find_thread<W: Write>(&mut self, world: &mut World, out: &mut Output<W>) {
        let now = self.flow.clock.now();
        if let Some(cpu) = self.stream.cpu {
            let switches = world.switches.get(&cpu).map_or(&[][..], |list| list);
            while let Some((ticks, pid, tid)) = switches.get(self.switch) {
                if *ticks > now && self.running.is_some() {
                    break;
                }
                self.running = Some((*pid, *tid));
                self.switch += 1;
            }
        }
        let (pid, tid) = self.running.unwrap_or(world.only);
        self.thread = world.thread(pid, tid, now, out);
    }
}

/// A process, from its start or the execution of its program on.
struct Image {
    pid: u32,
    from: u64,
    name: Vec<u8>,
    parent: Option<usize>,
    is_fork: bool,
    maps: Vec<Map>,
    /// Where its calls go, once it has some.
    shown: Option<Shown>,
}

struct Shown {
    id: ProcessId,
    space: Space,
    codes: FxHashMap<(u64, u64), Option<Code>>,
    last: (u64, u64, u32),
}

/// No file was met yet.
const NO_CODE: (u64, u64, u32) = (1, 0, 0);

struct Thread {
    image: usize,
    id: ThreadId,
    calls: Calls,
    last: u64,
}

/// Processes and threads.
struct World {
    rates: Rates,
    clocks: file::Clocks,
    images: Vec<Image>,
    by_pid: FxHashMap<u32, Vec<usize>>,
    names: FxHashMap<u32, Vec<u8>>,
    pids: FxHashMap<u32, u32>,
    switches: FxHashMap<u32, Vec<(u64, u32, u32)>>,
    threads: Vec<Thread>,
    by_tid: FxHashMap<(usize, u32), usize>,
    files: Files,
    generated: Generated,
    /// Processes whose end was recorded.
    ended: FxHashSet<u32>,
    /// Who runs where nothing says it.
    only: (u32, u32),
    gaps: FxHashMap<Gap, u64>,
    missing: u64,
    shown: u64,
    is_truncated: bool,
    failed: Option<io::Error>,
}

impl World {
    fn new(file: &mut PerfFile, generated: Generated) -> World {
        let clocks = file.clocks;
        let mut world = World {
            rates: Rates {
                mtc_shift: clocks.mtc_shift,
                crystal: clocks.crystal,
                tsc_ratio: clocks.tsc_ratio,
            },
            clocks,
            images: Vec::new(),
            by_pid: FxHashMap::default(),
            names: FxHashMap::default(),
            pids: FxHashMap::default(),
            switches: FxHashMap::default(),
            threads: Vec::new(),
            by_tid: FxHashMap::default(),
            files: Files::new(std::mem::take(&mut file.files)),
            generated,
            ended: FxHashSet::default(),
            only: (0, 0),
            gaps: FxHashMap::default(),
            missing: 0,
            shown: 0,
            is_truncated: false,
            failed: None,
        };
        for side in std::mem::take(&mut file.sides) {
            world.side(side);
        }
        let first = world.images.first().map_or(0, |image| image.pid);
        if world.only == (0, 0) {
            world.only = (first, first);
        }
        world
    }

    fn pid_of(&self, tid: u32) -> u32 {
        self.pids.get(&tid).copied().unwrap_or(tid)
    }

    /// The process as it is now.
    fn current(&mut self, pid: u32) -> usize {
        if let Some(index) = self.by_pid.get(&pid).and_then(|list| list.last()) {
            return *index;
        }
        self.add(Image {
            pid,
            from: 0,
            name: Vec::new(),
            parent: None,
            is_fork: false,
            maps: Vec::new(),
            shown: None,
        })
    }

    fn add(&mut self, image: Image) -> usize {
        let index = self.images.len();
        self.by_pid.entry(image.pid).or_default().push(index);
        self.images.push(image);
        index
    }

    fn side(&mut self, side: Side) {
        let Side { ns, cpu, pid, tid, what } = side;
        let from = if ns == 0 { 0 } else { self.clocks.ticks(ns) };
        // The kernel's own.
        if pid == u32::MAX {
            return;
        }
        if !matches!(what, What::Switch) || pid != 0 {
            self.pids.insert(tid, pid);
        }
        match what {
            What::Map(start, size, offset, number) => {
                let index = self.current(pid);
                if let Some(image) = self.images.get_mut(index) {
                    image.maps.push(Map {
                        start,
                        end: start.saturating_add(size),
                        offset,
                        number,
                        from,
                        file: None,
                    });
                }
            }
            What::Name(name, is_new) => {
                let mut index = self.current(pid);
                // A record about a process that ran before isn't an execution.
                let has_maps = self.images.get(index).is_some_and(|image| !image.maps.is_empty());
                if is_new && ns > 0 && has_maps {
                    index = self.add(Image {
                        pid,
                        from,
                        name: name.clone(),
                        parent: Some(index),
                        is_fork: false,
                        maps: Vec::new(),
                        shown: None,
                    });
                }
                if let Some(image) = self.images.get_mut(index).filter(|_| pid == tid) {
                    image.name.clone_from(&name);
                }
                self.names.insert(tid, name);
            }
            What::Fork(parent) if parent != pid => {
                let parent = self.current(parent);
                let Some(image) = self.images.get(parent) else { return };
                let (maps, name) = (image.maps.clone(), image.name.clone());
                self.add(Image { pid, from, name, parent: Some(parent), is_fork: true, maps, shown: None });
            }
            What::Exit if pid == tid => {
                self.ended.insert(pid);
            }
            What::Fork(_) | What::Exit => {}
            What::Switch => {
                self.switches.entry(cpu).or_default().push((from, pid, tid));
                if self.only == (0, 0) {
                    self.only = (pid, tid);
                }
            }
        }
    }

    /// The thread, at this time.
    fn thread<W: Write>(&mut self, pid: u32, tid: u32, now: u64, out: &mut Output<W>) -> Option<usize> {
        let list = self.by_pid.get(&pid).filter(|list| !list.is_empty());
        let image = match list {
            Some(list) => {
                let later = list
                    .partition_point(|index| self.images.get(*index).is_some_and(|image| image.from <= now));
                *list.get(later.saturating_sub(1))?
            }
            None => self.current(pid),
        };
        if let Some(index) = self.by_tid.get(&(image, tid)) {
            return Some(*index);
        }
        match self.add_thread(image, tid, out) {
            Ok(index) => index,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn add_thread<W: Write>(
        &mut self,
        image: usize,
        tid: u32,
        out: &mut Output<W>,
    ) -> io::Result<Option<usize>> {
        let id = self.show(image, out)?;
        let Some(id) = id else { return Ok(None) };
        let name = self.names.get(&tid).cloned().unwrap_or_default();
        let id = out.thread(id, tid, &name, true);
        self.threads.push(Thread { image, id, calls: Calls::default(), last: 0 });
        self.by_tid.insert((image, tid), self.threads.len() - 1);
        Ok(Some(self.threads.len() - 1))
    }

    fn show<W: Write>(&mut self, index: usize, out: &mut Output<W>) -> io::Result<Option<ProcessId>> {
        let Some(image) = self.images.get(index) else { return Ok(None) };
        if let Some(shown) = &image.shown {
            return Ok(Some(shown.id));
        }
        let parent = image.parent.and_then(|parent| self.images.get(parent));
        let facts = ProcessFacts {
            pid: image.pid,
            parent_pid: parent.map_or(0, |parent| parent.pid),
            parent: parent.and_then(|parent| parent.shown.as_ref()).map(|shown| shown.id),
            is_fork: image.is_fork,
            name: image.name.clone(),
            command: Vec::new(),
        };
        let id = out.process(facts)?;
        let found = self.generated.find(&self.wanted(index), &self.clocks);
        out.code_names(id, found.names, found.lost);
        let Some(image) = self.images.get_mut(index) else { return Ok(None) };
        let mut maps = std::mem::take(&mut image.maps);
        maps.extend(found.maps);
        maps.sort_by_key(|map| map.from);
        let space = Space::new(maps, &mut self.files);
        image.shown = Some(Shown { id, space, codes: FxHashMap::default(), last: NO_CODE });
        Ok(Some(id))
    }

    /// Whose generated code a process has.
    fn wanted(&self, index: usize) -> Wanted {
        let mut wanted = Wanted::default();
        let mut at = Some(index);
        while let Some(image) = at.and_then(|at| self.images.get(at))
            && wanted.pids.len() < FOREFATHERS_MAX
        {
            // The map of a process that executed several programs is the last one's.
            let is_last = self.by_pid.get(&image.pid).and_then(|list| list.last().copied()) == at;
            if is_last {
                wanted.pids.push((image.pid, self.ended.contains(&image.pid)));
            }
            at = image.parent.filter(|_| image.is_fork);
        }
        wanted.pids.reverse();
        let maps = self.images.get(index).map_or(&[][..], |image| &image.maps);
        let path = |map: &Map| self.files.name(map.number).map_or(&b""[..], |name| &name.path);
        if maps.iter().any(|map| generated::is_injected(path(map))) {
            return wanted;
        }
        for map in maps.iter().filter(|map| generated::is_dump(path(map))) {
            if wanted.dumps.iter().all(|(known, _)| known != path(map)) {
                wanted.dumps.push((path(map).to_vec(), map.from));
            }
        }
        wanted
    }

    /// The facts of one thread that a packet needs.
    #[inline]
    fn split<'w, W: Write>(
        &'w mut self,
        flow: &'w mut Flow,
        thread: Option<usize>,
        ticks: u64,
        leads: bool,
        out: &'w mut Output<W>,
    ) -> Option<(&'w mut Flow, ThreadSink<'w, W>, &'w mut everycall_intel_pt::Code, &'w Maps)> {
        let thread = self.threads.get_mut(thread?)?;
        let image = self.images.get_mut(thread.image)?;
        let shown = image.shown.as_mut()?;
        if leads && shown.space.reach(ticks, &mut self.files) {
            shown.last = NO_CODE;
        }
        let Space { maps, blocks, .. } = &mut shown.space;
        let maps = &*maps;
        let emit = Emit {
            out,
            process: shown.id,
            thread: thread.id,
            last: &mut thread.last,
            maps,
            codes: &mut shown.codes,
            recent: &mut shown.last,
            files: &self.files,
            shown: &mut self.shown,
            failed: &mut self.failed,
        };
        let sink =
            ThreadSink { calls: &mut thread.calls, emit, gaps: &mut self.gaps, missing: &mut self.missing };
        Some((flow, sink, blocks, maps))
    }

    fn finish<W: Write>(&mut self, notes: Vec<String>, counts: (u64, u64, bool), out: &mut Output<W>) {
        let (bad, jumps, has_times) = counts;
        let clocks = self.clocks;
        out.facts.clock = if clocks.are_known {
            "the CPU's time-stamp counter and its rate".to_owned()
        } else {
            "the CPU's time-stamp counter, without its rate".to_owned()
        };
        if let Some((first, last)) = out.reach().filter(|_| clocks.are_known) {
            let reading = |ticks: u64| ClockReading {
                ticks,
                monotonic_raw_ns: clocks.ns(ticks),
                ..ClockReading::default()
            };
            out.facts.readings =
                [first, last.max(first.saturating_add(1))].into_iter().map(reading).collect();
        }
        let list = &mut out.facts.notes;
        list.push("functions in which the trace begins, or goes on behind a gap, began earlier".to_owned());
        list.extend(notes);
        list.append(&mut self.files.notes);
        list.append(&mut self.generated.notes);
        let mut gaps: Vec<(Gap, u64)> = self.gaps.iter().map(|(gap, count)| (*gap, *count)).collect();
        gaps.sort_unstable();
        for (gap, count) in gaps {
            let why = match gap {
                Gap::Overflow => "the CPU could not write the trace fast enough",
                Gap::Packets => "packets are damaged or missing",
                Gap::Code => {
                    "the trace and the code of the files don't agree (code that changed while it ran, or other builds)"
                }
                Gap::Recorder => "perf lost a part of the trace",
            };
            list.push(format!("in {count} places {why}: calls there are missing"));
        }
        if bad > 0 {
            list.push(format!("{bad} packets are of no known kind"));
        }
        if self.missing > 0 {
            list.push(format!(
                "the program was {} times in code that isn't known: calls within it are missing",
                self.missing
            ));
        }
        if jumps > 0 {
            list.push(format!(
                "the time-stamp counter went back {jumps} times: times wait until it is where it was"
            ));
        }
        if !has_times {
            list.push("the trace has no times: it was recorded with tsc=0".to_owned());
        }
        if self.is_truncated {
            list.push("the file is truncated within the trace".to_owned());
        }
    }
}

/// Where the calls of a thread go.
struct Emit<'w, W> {
    out: &'w mut Output<W>,
    process: ProcessId,
    thread: ThreadId,
    last: &'w mut u64,
    maps: &'w Maps,
    codes: &'w mut FxHashMap<(u64, u64), Option<Code>>,
    /// First address, last address and code offset of the file that was met last.
    recent: &'w mut (u64, u64, u32),
    files: &'w Files,
    shown: &'w mut u64,
    failed: &'w mut Option<io::Error>,
}

impl<W: Write> Emit<'_, W> {
    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            *self.failed = Some(error);
        }
    }

    fn time(&mut self, ticks: u64) -> u64 {
        // CPUs' counters may differ a little.
        *self.last = ticks.max(*self.last);
        *self.last
    }

    #[inline]
    fn code(&mut self, address: u64) -> Option<Code> {
        let (start, end, code) = *self.recent;
        if (start..end).contains(&address) {
            return Some(Code(code + (address - start) as u32));
        }
        let map = self.maps.find(address)?;
        if map.is_generated() || map.file.is_none() && self.files.is_memory(map.number) {
            return None;
        }
        let known = self.codes.get(&(map.start, map.offset ^ u64::from(map.number) << 48)).copied();
        let code = match known {
            Some(code) => code,
            None => {
                let name = self.files.name(map.number);
                let build_id = match map.file.as_ref() {
                    Some(file) => file.build_id.clone(),
                    None => name.map(|name| name.build_id.clone()).unwrap_or_default(),
                };
                let code = self.out.module(
                    self.process,
                    ModuleFacts {
                        path: name.map(|name| name.path.clone()).unwrap_or_default(),
                        build_id,
                        base: map.file.as_ref().map_or(map.start.wrapping_sub(map.offset), |file| {
                            file.bias(map.start, map.offset)
                        }),
                        start: map.start,
                        end: map.end,
                        loaded: map.from,
                        image: None,
                    },
                );
                self.codes.insert((map.start, map.offset ^ u64::from(map.number) << 48), code);
                code
            }
        };
        let code = code?;
        *self.recent = (map.start, map.end, code.0);
        Some(Code(code.0 + (address - map.start) as u32))
    }

    fn call(&mut self, ticks: u64, address: u64, is_exit: bool) {
        *self.shown += 1;
        let ticks = self.time(ticks);
        let code = self.code(address);
        let result = crate::modules::call(self.out, self.thread, ticks, (address, code), is_exit);
        self.note(result);
    }
}

impl<W: Write> CallSink for Emit<'_, W> {
    #[inline]
    fn entry(&mut self, ticks: u64, address: u64) {
        self.call(ticks, address, false);
    }

    #[inline]
    fn exit(&mut self, ticks: u64, address: u64) {
        self.call(ticks, address, true);
    }

    fn unwound(&mut self, ticks: u64, count: u32) {
        let ticks = self.time(ticks);
        let result = self.out.unwound(self.thread, ticks, count);
        self.note(result);
    }

    fn lose(&mut self, ticks: u64) {
        self.time(ticks);
        let result = self.out.lose(self.thread, None);
        self.note(result);
    }
}

struct ThreadSink<'w, W> {
    calls: &'w mut Calls,
    emit: Emit<'w, W>,
    gaps: &'w mut FxHashMap<Gap, u64>,
    missing: &'w mut u64,
}

impl<W: Write> Sink for ThreadSink<'_, W> {
    fn call(&mut self, ticks: u64, to: &Block, return_to: u64) {
        self.calls.call(ticks, to, return_to, &mut self.emit);
    }

    fn ret(&mut self, ticks: u64, from: &Block, to: &Block) {
        self.calls.ret(ticks, from, to, &mut self.emit);
    }

    fn jump(&mut self, ticks: u64, from: &Block, to: &Block) {
        self.calls.jump(ticks, from, to, &mut self.emit);
    }

    fn leave(&mut self, _ticks: u64, from: u64, next: u64) {
        self.calls.leave(from, next);
    }

    fn enter(&mut self, ticks: u64, to: &Block) {
        self.calls.enter(ticks, to, &mut self.emit);
    }

    fn gap(&mut self, ticks: u64, why: Gap) {
        *self.gaps.entry(why).or_default() += 1;
        self.calls.gap(ticks, &mut self.emit);
    }

    fn missing(&mut self, _ticks: u64, _address: u64) {
        *self.missing += 1;
        self.calls.missing();
    }
}
