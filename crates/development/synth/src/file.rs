//! Trace files.

use crate::{
    Bytes, Member, Process, Ring, Scheduling, Thread, clock_reading, compact, module_entry, open_call,
};

/// A trace file that is being written.
#[derive(Clone, Debug)]
pub struct File {
    bytes: Bytes,
    chunks: u32,
    /// Number of the process and of its snapshot, for the chunks that follow.
    process: u32,
    /// Whether events are stored in compact form.
    is_compact: bool,
    /// Bytes that were taken.
    taken: u64,
}

impl Default for File {
    fn default() -> File {
        File::new(2, 0)
    }
}

impl File {
    /// A file of version `major.minor` without chunks.
    #[must_use]
    pub fn new(major: u16, minor: u16) -> File {
        let mut bytes = Bytes::default();
        bytes.padded(b"everycall trace\n", 16).u16(major).u16(minor).u32(32).u32(0);
        let checksum = crc32(&bytes.0);
        bytes.u32(checksum);
        File { bytes, chunks: 0, process: 0, is_compact: false, taken: 0 }
    }

    /// The whole file of a process with one snapshot, taken at its end, in version 1.0. Later
    /// versions store more about processes, see [`File::of_processes`].
    #[must_use]
    pub fn of(process: &Process) -> Vec<u8> {
        File::new(1, 0).whole(process)
    }

    /// The whole file of a process with one snapshot, in version 2.1, with events in compact form.
    #[must_use]
    pub fn of_compact(process: &Process) -> Vec<u8> {
        let mut file = File::new(2, 1);
        file.is_compact = true;
        file.whole(process)
    }

    /// The whole file of a process with unstamped events, in version 2.14: `stamps` is 1 where
    /// their times are bounded, 2 where only their order counts.
    #[must_use]
    pub fn of_unstamped(process: &Process, stamps: u32) -> Vec<u8> {
        let mut file = File::new(2, 14);
        let mut record = Bytes::default();
        record.u32(16).u32(stamps).u32(stamps).u32(0);
        file.chunk(31, &record.0);
        file.whole(process)
    }

    fn whole(mut self, process: &Process) -> Vec<u8> {
        self.meta(process);
        self.clock(process);
        self.process(process);
        let mut end = Bytes::default();
        end.u32(process.pid).u32(1).u32(0).u32(0).u64(process.end_ticks);
        self.chunk(9, &end.0);
        self.end()
    }

    /// The whole file of several processes.
    #[must_use]
    pub fn of_processes(members: &[Member]) -> Vec<u8> {
        File::of_processes_in(0, members)
    }

    /// The whole file of several processes, in version 2.`minor`.
    #[must_use]
    pub fn of_processes_in(minor: u16, members: &[Member]) -> Vec<u8> {
        let mut file = File::new(2, minor);
        if let Some(first) = members.first() {
            file.meta(&first.process);
            file.clock(&first.process);
        }
        for member in members {
            file.process = member.number;
            file.member(member);
            file.process(&member.process);
        }
        file.process = 0;
        file.end()
    }

    /// The whole file of a process of which the kernel's scheduling events are known, in version
    /// 2.9. Their clock is `CLOCK_MONOTONIC_RAW`.
    #[must_use]
    pub fn of_scheduled(process: &Process, source: u32, events: &[Scheduling]) -> Vec<u8> {
        File::scheduled(9, process, source, events, 0)
    }

    /// The whole file of a process whose scheduling events are known until a moment, in version
    /// 2.10.
    #[must_use]
    pub fn of_scheduled_until(process: &Process, events: &[Scheduling], until_raw_ns: u64) -> Vec<u8> {
        File::scheduled(10, process, 3, events, until_raw_ns)
    }

    /// The whole file of a process with scheduling events, also renames of threads, in version
    /// 2.11.
    #[must_use]
    pub fn of_renamed(process: &Process, events: &[Scheduling], until_raw_ns: u64) -> Vec<u8> {
        File::scheduled(11, process, 3, events, until_raw_ns)
    }

    fn scheduled(minor: u16, process: &Process, source: u32, events: &[Scheduling], until: u64) -> Vec<u8> {
        let mut file = File::new(2, minor);
        let text = b"some is missing";
        let mut payload = Bytes::default();
        payload.u32(48).u32(source).u32(2).u32(24).u64(events.len() as u64).u64(0);
        payload.u32(text.len() as u32).u32(0).u64(until).padded(text, text.len().next_multiple_of(8));
        for event in events {
            payload.u64(event.raw_ns).u32(process.pid).u32(event.tid).u32(event.other).u16(event.cpu);
            payload.u16(u16::from(event.state) << 8 | u16::from(event.kind));
        }
        file.meta(process);
        file.clock(process);
        file.chunk(22, &payload.0);
        file.process(process);
        file.end()
    }

    /// A stream of several processes, in version 2.2: each as announced while it ran, with the
    /// events of all threads mixed and in compact form, and once more after its end.
    #[must_use]
    pub fn of_stream(members: &[Member]) -> Vec<u8> {
        let mut file = File::new(2, 2);
        file.is_compact = true;
        if let Some(first) = members.first() {
            file.meta(&first.process);
            file.clock(&first.process);
        }
        for member in members {
            let process = &member.process;
            file.process = member.number;
            file.member_as(member, 3);
            file.modules(process);
            file.snapshot_as(process, 4, (0, 0));
            for (index, thread) in process.threads.iter().enumerate() {
                file.thread_as(process.pid, index as u32, thread, false);
            }
            let longest =
                process.threads.iter().map(|thread| thread.ring.segments().count()).max().unwrap_or(0);
            for place in 0..longest {
                for (index, thread) in process.threads.iter().enumerate() {
                    if let Some(segment) = thread.ring.segments().nth(place) {
                        file.events(index as u32, thread.ring.first_segment() + place as u64, &[segment]);
                    }
                }
            }
            file.member_as(member, 1);
            file.snapshot_as(process, 4, (process.end_ticks, process.threads.len() as u32));
            for (index, thread) in process.threads.iter().enumerate() {
                file.thread(process.pid, index as u32, thread);
            }
        }
        file.process = 0;
        file.end()
    }

    fn member(&mut self, member: &Member) {
        self.member_as(member, 1);
    }

    /// With its ending: 1 for ended, 3 for running.
    fn member_as(&mut self, member: &Member, ending: u32) {
        let process = &member.process;
        let command: Vec<u8> =
            process.arguments.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let mut payload = Bytes::default();
        payload.u32(64).u32(process.pid).u32(1).u32(member.parent).u32(member.origin).u32(ending);
        payload.u64(process.threads.first().map_or(0, |thread| thread.start_ticks)).u64(process.end_ticks);
        payload.padded(b"name", 16).u32(command.len() as u32).u32(0);
        payload.0.extend(command);
        self.chunk(10, &payload.0);
    }

    /// Modules, snapshot and threads of a process.
    fn process(&mut self, process: &Process) {
        self.modules(process);
        self.snapshot(process);
        for (index, thread) in process.threads.iter().enumerate() {
            self.thread(process.pid, index as u32, thread);
            let segments: Vec<&[u64]> = thread.ring.segments().collect();
            // Small chunks, so that damage in a test affects many of them.
            for (place, part) in segments.chunks(2).enumerate() {
                self.events(index as u32, thread.ring.first_segment() + 2 * place as u64, part);
            }
        }
    }

    /// A chunk of any kind.
    pub fn chunk(&mut self, kind: u32, payload: &[u8]) {
        let mut header = Bytes::default();
        header.padded(b"ECTc", 4).u32(kind).u32(self.chunks).u32(self.process);
        header.u64(payload.len() as u64).u32(crc32(payload));
        let checksum = crc32(&header.0);
        header.u32(checksum);
        self.bytes.0.extend(header.0);
        self.bytes.0.extend(payload);
        self.bytes.zeros(payload.len().next_multiple_of(8) - payload.len());
        self.chunks += 1;
    }

    fn meta(&mut self, process: &Process) {
        let mut texts = vec![(1, "0.1.0-synth")];
        texts.extend(process.arguments.iter().map(|word| (2, word.as_str())));
        texts.extend([(3, "/home/user"), (4, "box"), (5, "Linux 6.1"), (6, "A CPU"), (7, "8"), (8, "tsc")]);
        texts.push((9, "yes"));
        let mut payload = Bytes::default();
        for (key, text) in texts {
            payload.u32(key).u32(text.len() as u32);
            payload.padded(text.as_bytes(), text.len().next_multiple_of(4));
        }
        self.chunk(1, &payload.0);
    }

    fn clock(&mut self, process: &Process) {
        let mut payload = Bytes::default();
        payload.u32(40).u32(process.clock.len() as u32);
        process.clock.iter().for_each(|reading| clock_reading(&mut payload, reading));
        self.chunk(2, &payload.0);
    }

    fn modules(&mut self, process: &Process) {
        let mut payload = Bytes::default();
        payload.u32(128).u32(process.modules.len() as u32);
        let mut path_offset = 0;
        for (index, module) in process.modules.iter().enumerate() {
            module_entry(&mut payload, module, path_offset, index == 0);
            path_offset += module.path.len() as u32;
        }
        process.modules.iter().for_each(|module| payload.0.extend(module.path.as_bytes()));
        self.chunk(3, &payload.0);
    }

    fn snapshot(&mut self, process: &Process) {
        self.snapshot_as(process, 1, (process.end_ticks, process.threads.len() as u32));
    }

    /// With its reason, and when it was taken and of how many threads.
    fn snapshot_as(&mut self, process: &Process, reason: u32, (ticks, threads): (u64, u32)) {
        let words = |ring: &Ring| ring.segment_words() as u64 * 8;
        let segment_size = process.threads.first().map_or(4096, |thread| words(&thread.ring));
        let ring_size =
            process.threads.first().map_or(65536, |thread| segment_size * thread.ring.capacity() as u64);
        let mut payload = Bytes::default();
        payload.u32(self.process).u32(reason).u32(process.pid).u32(threads);
        payload.u64(ticks).u64(ring_size).u64(segment_size).zeros(32 * 8);
        self.chunk(5, &payload.0);
    }

    /// A thread of the process's snapshot, with its open calls.
    pub fn thread(&mut self, pid: u32, index: u32, thread: &Thread) {
        self.thread_as(pid, index, thread, true);
    }

    /// Complete, or as announced in a stream: without what is only known at its end.
    fn thread_as(&mut self, pid: u32, index: u32, thread: &Thread, is_whole: bool) {
        let ring = &thread.ring;
        let mut payload = Bytes::default();
        payload
            .u32(self.process)
            .u32(index)
            .u32(pid)
            .u32(thread.tid)
            .u32(index)
            .u32(0)
            .u64(thread.start_ticks);
        payload.u64(ring.first_segment());
        payload.u64(if is_whole { ring.segments().count() as u64 } else { 0 }).u64(0);
        payload.padded(thread.name.as_bytes(), 16).zeros(4 * 8 + 3 * 8);
        let open_calls = if is_whole { ring.open_calls() } else { &[] };
        payload.u32(24).u32(open_calls.len() as u32);
        open_calls.iter().enumerate().for_each(|(place, call)| open_call(&mut payload, call, place));
        self.chunk(6, &payload.0);
    }

    /// Segments of a thread of the process's snapshot, the first of them with this number.
    pub fn events(&mut self, thread: u32, first_segment: u64, segments: &[&[u64]]) {
        let words: Vec<u64> = segments.iter().copied().flatten().copied().collect();
        let mut payload = Bytes::default();
        payload.u32(self.process).u32(thread).u64(first_segment).u64(words.len() as u64);
        payload.u32(if self.is_compact { 2 } else { 0 }).u32(0);
        if self.is_compact {
            payload.0.extend(compact(&words));
        } else {
            words.iter().for_each(|word| {
                payload.u64(*word);
            });
        }
        self.chunk(7, &payload.0);
    }

    /// The beginning of a file whose events follow, in version 2.2: everything of the process but
    /// the events. Its threads' rings are only asked for their size.
    #[must_use]
    pub fn begun(process: &Process) -> File {
        let mut file = File::new(2, 2);
        file.meta(process);
        file.clock(process);
        file.modules(process);
        file.snapshot(process);
        for (index, thread) in process.threads.iter().enumerate() {
            file.thread(process.pid, index as u32, thread);
        }
        file
    }

    /// A chunk of `words` event words of a thread, encoded by the caller.
    pub fn events_encoded(
        &mut self,
        thread: u32,
        first_segment: u64,
        words: u64,
        encoding: u32,
        bytes: &[u8],
    ) {
        let mut payload = Bytes::default();
        payload.u32(self.process).u32(thread).u64(first_segment).u64(words).u32(encoding).u32(0);
        payload.0.extend(bytes);
        self.chunk(7, &payload.0);
    }

    /// Takes the bytes so far, to be written; the file continues behind them.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.bytes.0.len() as u64;
        std::mem::take(&mut self.bytes.0)
    }

    /// Adds the chunk that marks the file as complete. Returns the file's bytes.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        let length = self.taken + self.bytes.0.len() as u64 + 32 + 16;
        let mut payload = Bytes::default();
        payload.u32(self.chunks).u32(0).u64(length);
        self.chunk(15, &payload.0);
        self.bytes.0
    }

    /// The bytes of the file so far, without its end.
    #[must_use]
    pub fn cut(self) -> Vec<u8> {
        self.bytes.0
    }
}

/// CRC-32 as in zlib, computed byte by byte.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut sum = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
                bit += 1;
            }
            table[byte] = sum;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(u32::MAX, |sum, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}
