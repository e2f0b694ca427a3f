//! A CPU with Intel Processor Trace: programs made at random, run, and the packets that a CPU would
//! write of it, beside the calls that were made.

use crate::rng::Rng;

/// A writer of packets, as the CPU's.
#[derive(Debug, Default)]
pub struct PtEncoder {
    /// The packets so far.
    pub bytes: Vec<u8>,
    last_ip: u64,
    branches: Vec<bool>,
    returns: Vec<u64>,
    /// Write every return as a TIP packet.
    pub uncompressed: bool,
    /// Write TNT packets of 8 bytes if there are more than 6 branches.
    pub long: bool,
    /// Write a CYC packet before each packet about branches, if time has passed since the last.
    pub cycles: bool,
    /// Write a TSC packet after so many ticks; 0: only where programs are interrupted.
    pub tsc_period: u64,
    /// When each call and return of the last run happened, in ticks.
    pub times: Vec<u64>,
    now: u64,
    last_cycle: u64,
    last_tsc: u64,
}

impl PtEncoder {
    /// Writes the conditional branches and compressed returns that are pending.
    pub fn flush(&mut self) {
        if !self.branches.is_empty() {
            self.cycle();
        }
        for part in std::mem::take(&mut self.branches).chunks(if self.long { 47 } else { 6 }) {
            let bits = part.iter().fold(1_u64, |bits, taken| bits << 1 | u64::from(*taken));
            if part.len() <= 6 {
                self.bytes.push((bits << 1) as u8);
            } else {
                self.bytes.extend([2, 0xa3]);
                self.bytes.extend(&bits.to_le_bytes()[..6]);
            }
        }
    }

    /// Core cycles since the last such packet: as many as ticks of the time-stamp counter.
    fn cycle(&mut self) {
        let mut cycles = self.now.saturating_sub(self.last_cycle);
        if !self.cycles || cycles == 0 {
            return;
        }
        self.last_cycle = self.now;
        let first = (cycles as u8 & 0x1f) << 3 | 3;
        cycles >>= 5;
        self.bytes.push(if cycles > 0 { first | 4 } else { first });
        while cycles > 0 {
            let byte = (cycles as u8 & 0x7f) << 1;
            cycles >>= 7;
            self.bytes.push(byte | u8::from(cycles > 0));
        }
    }

    /// A conditional branch.
    pub fn conditional(&mut self, taken: bool) {
        self.branches.push(taken);
        if self.branches.len() == if self.long { 47 } else { 6 } {
            self.flush();
        }
    }

    /// A call: nothing is written of it, if it is direct.
    pub fn call(&mut self, return_to: u64) {
        if self.returns.len() == 64 {
            self.returns.remove(0);
        }
        self.returns.push(return_to);
    }

    /// A return.
    pub fn ret(&mut self, to: u64) {
        if self.returns.pop() == Some(to) && !self.uncompressed {
            self.conditional(true);
        } else {
            self.tip(to);
        }
    }

    fn ip(&mut self, opcode: u8, ip: Option<u64>) {
        self.flush();
        self.cycle();
        let Some(ip) = ip else { return self.bytes.push(opcode) };
        let differing = ip ^ self.last_ip;
        let (compression, length) = match differing {
            0..=0xffff => (1, 2),
            0x1_0000..=0xffff_ffff => (2, 4),
            0x1_0000_0000..=0xffff_ffff_ffff => (4, 6),
            _ if (ip << 16) as i64 >> 16 == ip as i64 => (3, 6),
            _ => (6, 8),
        };
        self.bytes.push(compression << 5 | opcode);
        self.bytes.extend(&ip.to_le_bytes()[..length]);
        self.last_ip = ip;
    }

    /// An indirect branch.
    pub fn tip(&mut self, to: u64) {
        self.ip(0x0d, Some(to));
    }

    /// Tracing begins.
    pub fn pge(&mut self, to: u64) {
        self.ip(0x11, Some(to));
    }

    /// Tracing ends.
    pub fn pgd(&mut self, to: Option<u64>) {
        self.ip(0x01, to);
    }

    /// The address of an event.
    pub fn fup(&mut self, at: u64) {
        self.ip(0x1d, Some(at));
    }

    /// Any other packet.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.flush();
        self.bytes.extend(bytes);
    }

    /// A TSC packet.
    pub fn tsc(&mut self, tsc: u64) {
        self.flush();
        (self.last_tsc, self.last_cycle, self.now) = (tsc, tsc, tsc);
        self.bytes.push(0x19);
        self.bytes.extend(&tsc.to_le_bytes()[..7]);
    }

    /// A synchronization point; `at`: where the program is, if tracing is on.
    pub fn psb(&mut self, tsc: u64, at: Option<u64>) {
        self.flush();
        self.bytes.extend([2, 0x82].repeat(8));
        self.last_ip = 0;
        self.returns.clear();
        self.tsc(tsc);
        // CBR, MODE.Exec.
        self.bytes.extend([2, 3, 20, 0, 0x99, 1]);
        if let Some(at) = at {
            self.fup(at);
        }
        self.bytes.extend([2, 0x23]);
    }

    /// Packets were lost.
    pub fn overflow(&mut self) {
        self.branches.clear();
        self.returns.clear();
        self.bytes.extend([2, 0xf3]);
    }
}

/// Calls and returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtCall {
    /// A function was entered, at this address.
    Entry(u64),
    /// The function that was entered at this address returned, or jumped to another one.
    Exit(u64),
    /// So many calls were left without a return.
    Unwound(u32),
    /// The CPU lost packets.
    Gap,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Plain(u8),
    /// A conditional branch to this item.
    If(usize),
    Jump(usize),
    Call(usize),
    CallAny,
    Tail(usize),
    TailAny,
    SystemCall,
    /// Into the middle of a function that is open.
    Throw,
    Return,
}

impl Item {
    fn size(self) -> u64 {
        match self {
            Item::Plain(size) => size.into(),
            Item::If(_) => 6,
            Item::Jump(_) | Item::Call(_) | Item::Tail(_) => 5,
            Item::CallAny | Item::TailAny | Item::SystemCall | Item::Throw => 2,
            Item::Return => 1,
        }
    }
}

/// A program made at random.
#[derive(Debug)]
pub struct PtProgram {
    /// Where its code is.
    pub base: u64,
    /// Its code.
    pub code: Vec<u8>,
    /// First addresses of its functions; the last one is that of a signal's handler, but for the
    /// code that ends it.
    pub functions: Vec<u64>,
    items: Vec<Vec<Item>>,
    places: Vec<Vec<u64>>,
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct PtRun {
    /// Instructions, about.
    pub steps: u64,
    /// Bytes between synchronization points.
    pub psb_period: usize,
    /// One instruction of so many is interrupted by a signal; 0: none.
    pub signals: u64,
    /// One instruction of so many is interrupted by the kernel.
    pub interrupts: u64,
    /// At one instruction of so many, packets are lost.
    pub overflows: u64,
}

impl PtProgram {
    /// A program with this many functions.
    #[must_use]
    pub fn new(rng: &mut Rng, base: u64, functions: usize) -> PtProgram {
        let functions = functions.max(4);
        let mut items: Vec<Vec<Item>> = Vec::new();
        for number in 0..functions {
            let length = 3 + rng.below(12) as usize;
            let mut list = Vec::new();
            let later =
                |rng: &mut Rng| number + 1 + rng.below((functions - number - 1).max(1) as u64) as usize;
            let is_leaf = number + 2 >= functions;
            for place in 0..length {
                list.push(match rng.below(if is_leaf { 7 } else { 16 }) {
                    0..=2 => Item::Plain(1 + rng.below(4) as u8),
                    3 => Item::SystemCall,
                    4 => Item::If(place.saturating_sub(rng.below(4) as usize)),
                    5 => Item::If(place + 1 + rng.below((length - place) as u64) as usize),
                    6 => Item::Jump(place + 1),
                    7..=11 => Item::Call(later(rng)),
                    12 => Item::CallAny,
                    13 => Item::Throw,
                    _ => Item::If(place + 1),
                });
            }
            list.push(match rng.below(6) {
                0 if !is_leaf => Item::Tail(later(rng)),
                1 if !is_leaf => Item::TailAny,
                _ => Item::Return,
            });
            items.push(list);
        }
        // The code that ends a signal's handler, and what calls the program's functions for ever.
        items.push(vec![Item::Plain(3), Item::SystemCall]);
        items.push(vec![Item::Plain(3), Item::CallAny, Item::Jump(0)]);
        let mut at = base;
        let mut places = Vec::new();
        for list in &items {
            at = at.next_multiple_of(16);
            let mut of = Vec::new();
            for item in list {
                of.push(at);
                at += item.size();
            }
            places.push(of);
        }
        let starts: Vec<u64> = places.iter().filter_map(|of| of.first().copied()).collect();
        let mut code = vec![0xcc; (at - base) as usize];
        for (list, of) in items.iter().zip(&places) {
            for (item, at) in list.iter().zip(of) {
                let to = |target: u64| (target.wrapping_sub(at + item.size()) as u32).to_le_bytes();
                let bytes = match item {
                    Item::Plain(size) => {
                        [&[0x90][..], &[0x66, 0x90], &[0x48, 0x89, 0xc0], &[0x0f, 0x1f, 0x40, 0]]
                            [usize::from(*size) - 1]
                            .to_vec()
                    }
                    Item::If(target) => [&[0x0f, 0x84][..], &to(of[*target])].concat(),
                    Item::Jump(target) => [&[0xe9][..], &to(of[*target])].concat(),
                    Item::Call(target) => [&[0xe8][..], &to(starts[*target])].concat(),
                    Item::Tail(target) => [&[0xe9][..], &to(starts[*target])].concat(),
                    Item::CallAny => vec![0xff, 0xd0],
                    Item::TailAny | Item::Throw => vec![0xff, 0xe0],
                    Item::SystemCall => vec![0x0f, 0x05],
                    Item::Return => vec![0xc3],
                };
                let place = (at - base) as usize;
                code[place..place + bytes.len()].copy_from_slice(&bytes);
            }
        }
        PtProgram { base, code, functions: starts, items, places }
    }

    /// The first address of the function at an address.
    #[must_use]
    pub fn function(&self, address: u64) -> u64 {
        let end = self.base + self.code.len() as u64;
        let index = self.functions.partition_point(|start| *start <= address);
        if address >= end || index == 0 { 0 } else { self.functions[index - 1] }
    }

    /// Runs it. Packets are appended to the encoder; returned are the calls.
    pub fn run(&self, rng: &mut Rng, how: PtRun, tsc: &mut u64, encoder: &mut PtEncoder) -> Vec<PtCall> {
        let main = self.items.len() - 1;
        let restorer = main - 1;
        let handler = restorer - 1;
        let callable = handler as u64;
        // Function, entered at, next item of the caller; where a signal interrupted it.
        struct Frame {
            function: usize,
            place: usize,
            signal: bool,
        }
        let mut calls = Vec::new();
        // Open calls whose entry isn't lost.
        let mut known = 1_usize;
        let mut open: Vec<Frame> = vec![Frame { function: main, place: 0, signal: false }];
        let address = |function: usize, place: usize| self.places[function][place];
        encoder.times.clear();
        encoder.psb(*tsc, Some(address(main, 0)));
        calls.push(PtCall::Entry(address(main, 0)));
        let mut last_psb = encoder.bytes.len();
        let mut steps = 0;
        // Bytes that are written, and the calls that they tell of.
        let mut written = (0, 0);
        loop {
            steps += 1;
            if encoder.bytes.len() > written.0 {
                written = (encoder.bytes.len(), calls.len());
            }
            encoder.times.resize(calls.len(), *tsc);
            *tsc += 1;
            encoder.now = *tsc;
            if encoder.tsc_period > 0 && *tsc - encoder.last_tsc >= encoder.tsc_period {
                encoder.tsc(*tsc);
            }
            let depth = open.len();
            let Some(frame) = open.last_mut() else { break };
            let (function, place) = (frame.function, frame.place);
            let at = address(function, place);
            if steps > how.steps && !open.iter().any(|frame| frame.signal) {
                encoder.fup(at);
                encoder.pgd(None);
                break;
            }
            let happens = |rng: &mut Rng, rate: u64| rate > 0 && rng.below(rate) == 0;
            if encoder.bytes.len() - last_psb > how.psb_period {
                encoder.psb(*tsc, Some(at));
                last_psb = encoder.bytes.len();
            }
            if happens(rng, how.interrupts) {
                encoder.fup(at);
                encoder.pgd(None);
                *tsc += 1000;
                encoder.tsc(*tsc);
                encoder.pge(at);
            }
            if encoder.bytes.len() > written.0 {
                written = (encoder.bytes.len(), calls.len());
            }
            let is_in_handler = open.iter().any(|frame| frame.signal);
            if !is_in_handler && function != main && happens(rng, how.overflows) {
                encoder.overflow();
                if encoder.bytes.len() - 2 == written.0 {
                    calls.truncate(written.1);
                }
                encoder.tsc(*tsc);
                encoder.fup(at);
                calls.push(PtCall::Gap);
                known = 0;
                if place == 0 {
                    // At its beginning, a function counts as entered.
                    calls.push(PtCall::Entry(at));
                    known = 1;
                }
            }
            if !is_in_handler && function < handler && happens(rng, how.signals) {
                encoder.fup(at);
                encoder.pgd(None);
                encoder.tsc(*tsc);
                encoder.pge(address(handler, 0));
                calls.push(PtCall::Entry(address(handler, 0)));
                known += 1;
                open.push(Frame { function: handler, place: 0, signal: true });
                continue;
            }
            let item = self.items[function][place];
            let next = at + item.size();
            let Some(frame) = open.last_mut() else { break };
            frame.place += 1;
            match item {
                Item::Plain(_) => {}
                Item::If(target) => {
                    let taken = rng.below(2) == 0;
                    encoder.conditional(taken);
                    if taken {
                        frame.place = target;
                    }
                }
                Item::Jump(target) => frame.place = target,
                Item::SystemCall => {
                    encoder.pgd(None);
                    *tsc += 100;
                    encoder.now = *tsc;
                    if function == restorer {
                        open.pop();
                        let Some(frame) = open.last_mut() else { break };
                        encoder.pge(address(frame.function, frame.place));
                    } else {
                        encoder.pge(next);
                    }
                }
                Item::Call(_) | Item::CallAny => {
                    let target = match item {
                        Item::Call(target) => target,
                        _ if function == main => rng.below(callable) as usize,
                        _ => function + 1 + rng.below((handler - function) as u64) as usize,
                    };
                    let target = target.min(handler);
                    encoder.call(next);
                    let start = address(target, 0);
                    if !matches!(item, Item::Call(_)) {
                        encoder.tip(start);
                    }
                    calls.push(PtCall::Entry(start));
                    known += 1;
                    open.push(Frame { function: target, place: 0, signal: false });
                }
                Item::Tail(_) | Item::TailAny => {
                    let target = match item {
                        Item::Tail(target) => target,
                        _ => (function + 1 + rng.below((handler - function) as u64) as usize).min(handler),
                    };
                    let start = address(target, 0);
                    if matches!(item, Item::TailAny) {
                        encoder.tip(start);
                    }
                    calls.push(PtCall::Exit(address(function, 0)));
                    calls.push(PtCall::Entry(start));
                    known = known.saturating_sub(1) + 1;
                    frame.function = target;
                    frame.place = 0;
                }
                Item::Throw => {
                    // To an open call of another function, in the middle.
                    let first = open.iter().rposition(|frame| frame.signal).map_or(1, |place| place + 1);
                    let count = rng.below(3) as usize + 1;
                    let catches = depth.saturating_sub(1 + count);
                    if catches >= first {
                        open.truncate(catches + 1);
                        let left = count.min(known);
                        known -= left;
                        if left > 0 {
                            calls.push(PtCall::Unwound(left as u32));
                        }
                        if let Some(frame) = open.last() {
                            encoder.tip(address(frame.function, frame.place));
                        }
                    } else {
                        encoder.tip(next);
                    }
                }
                Item::Return => {
                    calls.push(PtCall::Exit(address(function, 0)));
                    known = known.saturating_sub(1);
                    if frame.signal {
                        encoder.ret(address(restorer, 0));
                        frame.function = restorer;
                        frame.place = 0;
                    } else {
                        open.pop();
                        let Some(frame) = open.last() else { break };
                        encoder.ret(address(frame.function, frame.place));
                    }
                }
            }
        }
        calls
    }
}

/// The places of a program's code in its file, and in memory.
const TEXT_AT: u64 = 0x1000;

impl PtProgram {
    /// An ELF file with the program's code and functions, to be mapped at `base`.
    #[must_use]
    pub fn elf(&self, build_id: &[u8; 20]) -> Vec<u8> {
        let names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0.note.gnu.build-id\0";
        let name = |text: &str| {
            let found =
                names.windows(text.len() + 1).position(|window| window == [text.as_bytes(), b"\0"].concat());
            found.unwrap_or(0) as u32
        };
        let mut strings = vec![0_u8];
        let mut symbols = vec![0_u8; 24];
        let end = self.base + self.code.len() as u64;
        let ends = self.functions.iter().skip(1).copied().chain([end]);
        for (number, (start, end)) in self.functions.iter().zip(ends).enumerate() {
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([0x12, 0, 1, 0]);
            symbols.extend((TEXT_AT + start - self.base).to_le_bytes());
            symbols.extend((end - start).to_le_bytes());
            strings.extend(format!("function_{number}\0").bytes());
        }
        let mut note = Vec::new();
        [4_u32, 20, 3].iter().for_each(|word| note.extend(word.to_le_bytes()));
        note.extend(b"GNU\0");
        note.extend(build_id);

        let mut file = Vec::new();
        file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        let text_end = TEXT_AT + self.code.len() as u64;
        let parts: [&[u8]; 4] = [&note, &symbols, &strings, names];
        let mut at = text_end.next_multiple_of(8);
        let places = parts.map(|part| {
            let place = at;
            at = (at + part.len() as u64).next_multiple_of(8);
            place
        });
        for word in [TEXT_AT, 64, at] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for half in [64_u16, 56, 2, 64, 6, 5] {
            file.extend(half.to_le_bytes());
        }
        let mut segment = |kind: u32, flags: u32, at: u64, size: u64| {
            [kind, flags].iter().for_each(|word| file.extend(word.to_le_bytes()));
            [at, at, at, size, size, 0x1000].iter().for_each(|word| file.extend(word.to_le_bytes()));
        };
        segment(1, 5, 0, text_end);
        segment(4, 4, places[0], note.len() as u64);
        file.resize(TEXT_AT as usize, 0);
        file.extend(&self.code);
        for (part, place) in parts.iter().zip(places) {
            file.resize(place as usize, 0);
            file.extend(*part);
        }
        file.resize(at as usize, 0);
        let mut section =
            |name: u32, kind: u32, flags: u64, places: [u64; 3], links: [u32; 2], rest: [u64; 2]| {
                [name, kind].iter().for_each(|word| file.extend(word.to_le_bytes()));
                file.extend(flags.to_le_bytes());
                places.iter().for_each(|word| file.extend(word.to_le_bytes()));
                links.iter().for_each(|word| file.extend(word.to_le_bytes()));
                rest.iter().for_each(|word| file.extend(word.to_le_bytes()));
            };
        section(0, 0, 0, [0, 0, 0], [0, 0], [0, 0]);
        section(name(".text"), 1, 6, [TEXT_AT, TEXT_AT, self.code.len() as u64], [0, 0], [16, 0]);
        section(name(".note.gnu.build-id"), 7, 2, [places[0], places[0], note.len() as u64], [0, 0], [4, 0]);
        section(name(".symtab"), 2, 0, [0, places[1], symbols.len() as u64], [4, 1], [8, 24]);
        section(name(".strtab"), 3, 0, [0, places[2], strings.len() as u64], [0, 0], [1, 0]);
        section(name(".shstrtab"), 3, 0, [0, places[3], names.len() as u64], [0, 0], [1, 0]);
        file
    }
}

/// A writer of perf's own files.
#[derive(Debug, Default)]
pub struct PerfData {
    records: Vec<u8>,
}

/// Whose a record is, and when it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerfWhose {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// perf's time.
    pub ns: u64,
    /// The CPU.
    pub cpu: u32,
}

/// perf's times are those of a counter with two ticks for a nanosecond, from this time on.
const PERF_ZERO: u64 = 1 << 40;

impl PerfData {
    /// perf's time of a value of the time-stamp counter.
    #[must_use]
    pub fn ns(tsc: u64) -> u64 {
        PERF_ZERO + tsc / 2
    }

    fn bare(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend(kind.to_le_bytes());
        self.records.extend(misc.to_le_bytes());
        self.records.extend((8 + body.len() as u16).to_le_bytes());
        self.records.extend(body);
    }

    fn record(&mut self, kind: u32, misc: u16, whose: PerfWhose, body: &[u8]) {
        let mut body = body.to_vec();
        for word in [whose.pid, whose.tid] {
            body.extend(word.to_le_bytes());
        }
        body.extend(whose.ns.to_le_bytes());
        body.extend(u64::from(whose.cpu).to_le_bytes());
        // The second event's id.
        body.extend(2_u64.to_le_bytes());
        // Of a program in user mode.
        self.bare(kind, misc | 2, &body);
    }

    fn ids(whose: PerfWhose) -> Vec<u8> {
        [whose.pid.to_le_bytes(), whose.tid.to_le_bytes()].concat()
    }

    /// A file was mapped: address, size, offset in the file, name; a build id if it is known.
    pub fn map(&mut self, whose: PerfWhose, place: (u64, u64, u64), path: &str, build_id: Option<&[u8; 20]>) {
        let mut body = PerfData::ids(whose);
        for word in [place.0, place.1, place.2] {
            body.extend(word.to_le_bytes());
        }
        match build_id {
            Some(id) => {
                body.extend([20, 0, 0, 0]);
                body.extend(id);
            }
            None => body.extend([0; 24]),
        }
        body.extend([5, 0, 0, 0, 2, 0, 0, 0]);
        body.extend(path.bytes());
        body.resize((body.len() + 1).next_multiple_of(8), 0);
        self.record(10, if build_id.is_some() { 1 << 14 } else { 0 }, whose, &body);
    }

    /// A thread's name, and whether it is that of a program that was executed.
    pub fn name(&mut self, whose: PerfWhose, name: &str, is_new: bool) {
        let mut body = PerfData::ids(whose);
        body.extend(name.bytes());
        body.resize((body.len() + 1).next_multiple_of(8), 0);
        self.record(3, if is_new { 1 << 13 } else { 0 }, whose, &body);
    }

    /// A thread made another one, or a process.
    pub fn fork(&mut self, parent: PerfWhose, pid: u32, tid: u32) {
        let mut body = Vec::new();
        for word in [pid, parent.pid, tid, parent.tid] {
            body.extend(word.to_le_bytes());
        }
        body.extend(parent.ns.to_le_bytes());
        self.record(7, 0, parent, &body);
    }

    /// Tracing of a thread began.
    pub fn start(&mut self, whose: PerfWhose) {
        self.record(12, 0, whose, &PerfData::ids(whose));
    }

    /// A thread runs on a CPU from now on, or no longer.
    pub fn switch(&mut self, whose: PerfWhose, is_out: bool) {
        self.record(14, if is_out { 1 << 13 } else { 0 }, whose, &[]);
    }

    /// So many bytes of the trace were written; some were lost behind them.
    pub fn aux(&mut self, whose: PerfWhose, offset: u64, size: u64, is_cut: bool) {
        let body = [offset, size, u64::from(is_cut)].map(u64::to_le_bytes).concat();
        self.record(11, 0, whose, &body);
    }

    /// Perf's record of the CPU's trace, before all parts of that.
    pub fn info(&mut self, kind: u32) {
        let mut body = [kind.to_le_bytes(), [0; 4]].concat();
        // The event's type; shift, factor, zero; whether they hold; bits of the configuration.
        for word in
            [8_u64, 1, 1, PERF_ZERO, 1, 1 << 10, 1 << 11, 0, 0, 1, 1 << 9, 15 << 14, 84, 1, 1 << 1, 20, 0]
        {
            body.extend(word.to_le_bytes());
        }
        self.bare(70, 0, &body);
    }

    /// A part of the trace: of a CPU, or of a thread if there is none.
    pub fn part(&mut self, index: u32, cpu: Option<u32>, tid: u32, offset: u64, bytes: &[u8]) {
        let size = bytes.len().next_multiple_of(8);
        let mut body = [size as u64, offset, 0].map(u64::to_le_bytes).concat();
        for word in [index, tid, cpu.unwrap_or(u32::MAX), 0] {
            body.extend(word.to_le_bytes());
        }
        self.bare(71, 0, &body);
        self.records.extend(bytes);
        self.records.resize(self.records.len() + size - bytes.len(), 0);
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let attr = |kind: u32, config: u64, flags: u64, id_at: u64| {
            let mut attr = [kind.to_le_bytes(), 128_u32.to_le_bytes()].concat();
            // Configuration, period, samples with IP, TID, TIME, CPU, IDENTIFIER; read format.
            for word in [config, 1, 1 | 2 | 4 | 1 << 7 | 1 << 16, 4, flags] {
                attr.extend(word.to_le_bytes());
            }
            attr.resize(128, 0);
            attr.extend(id_at.to_le_bytes());
            attr.extend(8_u64.to_le_bytes());
            attr
        };
        let (ids_at, attrs_at) = (104_u64, 120_u64);
        let data_at = attrs_at + 2 * 144;
        let mut file = b"PERFILE2".to_vec();
        for word in [104, 144, attrs_at, 288, data_at, self.records.len() as u64, 0, 0, 1 << 18, 0, 0, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend([1_u64, 2].map(u64::to_le_bytes).concat());
        // Inherited, without the kernel, every record with its origin.
        let flags = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 18;
        // Branches, times, MTC packets at every eighth tick.
        file.extend(attr(8, 1 | 1 << 13 | 1 << 10 | 1 << 9 | 3 << 14, flags, ids_at));
        // Software, a dummy: mapped files, names, forks, switches.
        let sides = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24 | 1 << 26;
        file.extend(attr(1, 9, flags | sides, ids_at + 8));
        file.extend(&self.records);
        // That there is a trace: an index without entries.
        let at = file.len() as u64 + 16;
        file.extend([at, 8, 0].map(u64::to_le_bytes).concat());
        file
    }
}
