//! From packets to branches: the code is followed, and packets say what it leaves open.

use crate::clock::{Clock, Rates, Time};
use crate::code::{Block, Code, Image, Kind};
use crate::packet::{Ip, Packet};

/// Returns that a CPU compresses have their calls among this many last ones.
const RETURNS: usize = 64;
/// The most branches of a TNT packet of one byte, and of eight.
const SHORT_BRANCHES: u8 = 6;
const LONG_BRANCHES: u8 = 47;
/// Blocks that are followed without a packet, at most: more is a loop that no CPU was in.
const WITHOUT_PACKET: u32 = 1 << 16;

/// Why branches are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gap {
    /// The CPU could not write all packets.
    Overflow,
    /// Packets that are none, or were cut.
    Packets,
    /// Packets and code don't belong together.
    Code,
    /// The recorder lost a part.
    Recorder,
}

/// Receives the branches.
pub trait Sink {
    /// A call, and the address it returns to.
    fn call(&mut self, at: Time, to: &Block, return_to: u64);
    /// A return.
    fn ret(&mut self, at: Time, from: &Block, to: &Block);
    /// A jump out of a function, or by a register.
    fn jump(&mut self, at: Time, from: &Block, to: &Block);
    /// The program was left at `from`, and would go on at `next`: a system call, an interrupt, or a
    /// filter.
    fn leave(&mut self, at: Time, from: u64, next: u64);
    /// The program goes on.
    fn enter(&mut self, at: Time, to: &Block);
    /// Branches are missing up to here.
    fn gap(&mut self, at: Time, why: Gap);
    /// The code at this address isn't known: branches are missing until the next `enter`.
    fn missing(&mut self, at: Time, address: u64);
}

/// Where the CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It isn't known: the next synchronization point says it.
    Lost,
    /// Packets were lost, the next FUP or TIP.PGE says where it goes on.
    Overflow,
    /// Outside of what is traced, or of code that is known.
    Outside,
    /// At the beginning of this block, or within it.
    At(u32),
}

/// The packet before, as far as it changes what a FUP means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The FUP belongs to it, and has no other meaning.
    Bound,
    /// A FUP has been there, at this address.
    Event(u64),
}

/// A stream of packets of one CPU, or thread, and where in the code it is.
#[derive(Debug)]
pub struct Flow {
    /// The time.
    pub clock: Clock,
    state: State,
    /// The block's first address.
    start: u64,
    /// The address within the block, from which on it is run.
    address: u64,
    /// That of the blocks; `None` if the block has to be found again.
    generation: Option<u32>,
    last_ip: u64,
    /// Conditional branches that are known and haven't been met, the first one in the highest bit.
    bits: u64,
    count: u8,
    /// Addresses behind the last calls, as CPUs have them to compress returns.
    returns: [u64; RETURNS],
    returns_end: usize,
    returns_count: usize,
    /// Since the last synchronization point, the program was in code that isn't known. Its calls
    /// aren't among the last ones, and a CPU compresses returns to behind them nevertheless.
    has_unseen: bool,
    before: Before,
    in_psb: bool,
    /// When what is followed happened.
    time: Time,
    /// The time of the last packet about branches: what follows happened since.
    since: u64,
    /// Whether there were TNT packets of 8 bytes.
    has_long: bool,
    /// Conditional and indirect branches so far.
    branches: u64,
}

/// An address of the kernel.
fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

impl Flow {
    /// A stream at its beginning.
    #[must_use]
    pub fn new(rates: Rates) -> Flow {
        Flow {
            clock: Clock::new(rates),
            state: State::Lost,
            start: 0,
            address: 0,
            generation: None,
            last_ip: 0,
            bits: 0,
            count: 0,
            returns: [0; RETURNS],
            returns_end: 0,
            returns_count: 0,
            has_unseen: false,
            before: Before::Nothing,
            in_psb: false,
            time: Time::default(),
            since: 0,
            has_long: false,
            branches: 0,
        }
    }

    /// Whether a place in the program is known.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::At(_))
    }

    /// Where the program is, if that is known.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What follows is decoded with other blocks.
    pub fn forget_blocks(&mut self) {
        self.generation = None;
    }

    /// Whether packets before the next PSB say nothing.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Branches that have been followed.
    #[must_use]
    pub fn branches(&self) -> u64 {
        self.branches
    }

    /// Branches are missing from here on, until the next PSB.
    pub fn lose(&mut self, why: Gap, sink: &mut impl Sink) {
        if self.state != State::Lost {
            sink.gap(self.clock.here(), why);
        }
        self.forget(State::Lost);
    }

    fn forget(&mut self, state: State) {
        self.state = state;
        self.count = 0;
        self.returns_count = 0;
        self.before = Before::Nothing;
        self.in_psb = false;
    }

    /// Takes a packet.
    #[inline]
    pub fn packet<I: Image, S: Sink>(&mut self, packet: Packet, code: &mut Code, image: &I, sink: &mut S) {
        if let Packet::Cyc(cycles) = packet {
            return self.clock.cyc(cycles);
        }
        // What is followed before the packet's own branch.
        self.time = Time { ticks: self.since, is_exact: false };
        match packet {
            Packet::Tnt(bits, count) => self.conditional(bits, count, code, image, sink),
            Packet::Tip(ip) => self.tip(ip, code, image, sink),
            other => self.rare(other, code, image, sink),
        }
        self.clock.other();
        let ends = match packet {
            // One that isn't full was written later than its last branch.
            Packet::Tnt(_, count) => {
                self.has_long |= count > SHORT_BRANCHES;
                count == if self.has_long { LONG_BRANCHES } else { SHORT_BRANCHES }
            }
            Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_) | Packet::Fup(_) => true,
            Packet::PsbEnd | Packet::Ovf => true,
            _ => false,
        };
        if ends {
            self.since = self.clock.now();
        }
    }

    fn rare<I: Image, S: Sink>(&mut self, packet: Packet, code: &mut Code, image: &I, sink: &mut S) {
        match packet {
            Packet::Psb => {
                self.in_psb = true;
                self.last_ip = 0;
                // CPUs compress no return whose call was before this.
                self.returns_count = 0;
                self.has_unseen = false;
                self.before = Before::Nothing;
            }
            Packet::PsbEnd => {
                if self.in_psb && self.state == State::Lost {
                    // Without a FUP: tracing is off here.
                    self.state = State::Outside;
                }
                self.in_psb = false;
            }
            Packet::Ovf => {
                if self.state != State::Lost {
                    sink.gap(self.clock.here(), Gap::Overflow);
                }
                self.forget(State::Overflow);
            }
            Packet::Fup(ip) => self.fup(ip, code, image, sink),
            Packet::TipPge(ip) => self.begin(ip, code, image, sink),
            Packet::TipPgd(ip) => self.end(ip, code, image, sink),
            Packet::Tsc(tsc) => self.clock.tsc(tsc),
            Packet::Tma { ctc, fast } => self.clock.tma(ctc, fast),
            Packet::Mtc(mtc) => self.clock.mtc(mtc),
            Packet::Cbr(ratio) => self.clock.cbr(ratio),
            Packet::ModeTsx { is_abort } => {
                self.before = if is_abort { Before::Nothing } else { Before::Bound };
            }
            Packet::PtWrite(_, true) | Packet::ExStop(true) | Packet::Bep(true) | Packet::Trig(true) => {
                self.before = Before::Bound;
            }
            _ => {}
        }
    }

    /// Whether the place in the program is known. Blocks that were forgotten are found again.
    fn is_placed<I: Image>(&mut self, code: &mut Code, image: &I) -> bool {
        if self.generation != Some(code.generation()) {
            self.generation = Some(code.generation());
            if self.is_inside() {
                // What follows must not depend on when blocks were forgotten.
                self.state = State::At(code.at(image, self.start));
            }
        }
        self.is_inside()
    }

    fn place<I: Image>(&mut self, address: u64, code: &mut Code, image: &I) -> u32 {
        code.begin();
        self.generation = Some(code.generation());
        let index = code.at(image, address);
        self.state = State::At(index);
        (self.start, self.address) = (address, address);
        index
    }

    fn go(&mut self, index: u32, code: &Code) {
        self.state = State::At(index);
        self.start = code.block(index).map_or(0, |block| block.start);
        self.address = self.start;
    }

    /// The program goes on at this address.
    fn enter<I: Image, S: Sink>(&mut self, address: u64, code: &mut Code, image: &I, sink: &mut S) {
        if is_kernel(address) {
            self.state = State::Outside;
            return;
        }
        self.time = self.clock.here();
        let index = self.place(address, code, image);
        if let Some(block) = code.block(index) {
            let block = *block;
            if block.kind == Kind::Missing {
                self.state = State::Outside;
                self.has_unseen = true;
                sink.missing(self.time, address);
            } else {
                sink.enter(self.time, &block);
            }
        }
    }

    fn push_return(&mut self, address: u64) {
        if let Some(place) = self.returns.get_mut(self.returns_end) {
            *place = address;
        }
        self.returns_end = (self.returns_end + 1) % RETURNS;
        self.returns_count = (self.returns_count + 1).min(RETURNS);
    }

    fn pop_return(&mut self) -> Option<u64> {
        self.returns_count = self.returns_count.checked_sub(1)?;
        self.returns_end = (self.returns_end + RETURNS - 1) % RETURNS;
        self.returns.get(self.returns_end).copied()
    }

    /// Follows one block whose branch needs no packet. `None`: it needs one, or led to where
    /// nothing is known.
    #[inline]
    fn follow<I: Image, S: Sink>(
        &mut self,
        index: u32,
        code: &mut Code,
        image: &I,
        sink: &mut S,
    ) -> Option<u32> {
        let block = *code.block(index)?;
        let to = match block.kind {
            Kind::Jump => {
                let to = code.taken(image, index);
                self.cross(&block, to, code, sink);
                to
            }
            Kind::Call => {
                let to = code.taken(image, index);
                self.push_return(block.next);
                if let Some(target) = code.block(to) {
                    sink.call(self.time, target, block.next);
                }
                to
            }
            Kind::Next => code.behind(image, index),
            _ => return None,
        };
        self.arrive(to, code, sink)
    }

    /// The branch led to this block. `None` if its code isn't known.
    #[inline]
    fn arrive<S: Sink>(&mut self, to: u32, code: &Code, sink: &mut S) -> Option<u32> {
        let block = code.block(to)?;
        if block.kind == Kind::Missing {
            sink.missing(self.time, block.start);
            self.forget(State::Outside);
            self.has_unseen = true;
            return None;
        }
        Some(to)
    }

    /// A direct jump: of interest if it leads to another function.
    #[inline]
    fn cross<S: Sink>(&mut self, from: &Block, to: u32, code: &Code, sink: &mut S) {
        if let Some(to) = code.block(to)
            && to.function != from.function
        {
            sink.jump(self.time, from, to);
        }
    }

    fn conditional<I: Image, S: Sink>(
        &mut self,
        bits: u64,
        count: u8,
        code: &mut Code,
        image: &I,
        sink: &mut S,
    ) {
        self.before = Before::Nothing;
        if !self.is_placed(code, image) || count == 0 {
            return;
        }
        if self.count > 0 {
            // These were deferred: a TIP packet had to come first.
            if u32::from(self.count) + u32::from(count) > 64 {
                return self.lose(Gap::Code, sink);
            }
            self.bits |= bits >> self.count;
            self.count += count;
            return;
        }
        (self.bits, self.count) = (bits, count);
        self.use_bits(code, image, sink);
    }

    /// Follows the code as far as the known conditional branches lead.
    fn use_bits<I: Image, S: Sink>(&mut self, code: &mut Code, image: &I, sink: &mut S) {
        let State::At(mut index) = self.state else { return };
        let mut without_packet = 0;
        while self.count > 0 {
            let Some(block) = code.block(index) else { break };
            let next = match block.kind {
                Kind::Conditional => {
                    let is_taken = self.take_bit();
                    without_packet = 0;
                    if is_taken {
                        let from = *block;
                        let to = code.taken(image, index);
                        self.cross(&from, to, code, sink);
                        self.arrive(to, code, sink)
                    } else {
                        let to = code.behind(image, index);
                        self.arrive(to, code, sink)
                    }
                }
                Kind::Return => {
                    let from = *block;
                    let is_compressed = self.bits >> 63 != 0;
                    if is_compressed && self.returns_count == 0 && self.has_unseen {
                        return self.vanish(&from, sink);
                    }
                    if !is_compressed || self.returns_count == 0 {
                        // Not a compressed one, and no TIP packet is deferred behind a TNT packet
                        // that has no place.
                        self.go(index, code);
                        if self.returns_count == 0 {
                            return;
                        }
                        return self.lose(Gap::Code, sink);
                    }
                    self.take_bit();
                    without_packet = 0;
                    let Some(address) = self.pop_return() else { return };
                    let to = code.at(image, address);
                    if let Some(block) = code.block(to) {
                        sink.ret(self.time, &from, block);
                    }
                    self.arrive(to, code, sink)
                }
                Kind::IndirectJump | Kind::IndirectCall | Kind::Far => {
                    // Deferred TIP packets follow.
                    self.go(index, code);
                    return;
                }
                _ => {
                    without_packet += 1;
                    if without_packet > WITHOUT_PACKET {
                        return self.lose(Gap::Code, sink);
                    }
                    self.follow(index, code, image, sink)
                }
            };
            let Some(next) = next else { return };
            index = next;
        }
        self.go(index, code);
    }

    /// A return to code that isn't known, at a place that isn't either.
    fn vanish<S: Sink>(&mut self, from: &Block, sink: &mut S) {
        let now = self.time;
        sink.ret(now, from, &Block::NOWHERE);
        sink.missing(now, from.last);
        self.forget(State::Outside);
    }

    #[inline]
    fn take_bit(&mut self) -> bool {
        let is_taken = self.bits >> 63 != 0;
        self.bits <<= 1;
        self.count -= 1;
        self.branches += 1;
        is_taken
    }

    /// Follows the code to a branch that a packet has to explain. `None`: it isn't known where.
    fn seek_branch<I: Image, S: Sink>(
        &mut self,
        code: &mut Code,
        image: &I,
        sink: &mut S,
        mut stop: impl FnMut(&Block) -> bool,
    ) -> Option<Block> {
        let State::At(mut index) = self.state else { return None };
        for _ in 0..WITHOUT_PACKET {
            let block = *code.block(index)?;
            if stop(&block) {
                self.go(index, code);
                return Some(block);
            }
            match block.kind {
                Kind::Jump | Kind::Call | Kind::Next => index = self.follow(index, code, image, sink)?,
                _ => break,
            }
        }
        self.lose(Gap::Code, sink);
        None
    }

    fn tip<I: Image, S: Sink>(&mut self, ip: Ip, code: &mut Code, image: &I, sink: &mut S) {
        let target = self.ip(ip);
        let before = std::mem::replace(&mut self.before, Before::Nothing);
        if !self.is_placed(code, image) {
            if let Some(target) = target
                && self.state == State::Outside
            {
                self.enter(target, code, image, sink);
            }
            return;
        }
        let now = self.clock.here();
        self.branches += 1;
        if let Before::Event(from) = before {
            sink.leave(now, from, from);
            self.count = 0;
            return match target {
                Some(target) => self.enter(target, code, image, sink),
                None => self.forget(State::Outside),
            };
        }
        let is_indirect = |block: &Block| {
            matches!(block.kind, Kind::IndirectJump | Kind::IndirectCall | Kind::Return | Kind::Far)
        };
        let Some(from) = self.seek_branch(code, image, sink, is_indirect) else { return };
        let Some(target) = target else { return self.lose(Gap::Packets, sink) };
        if from.kind == Kind::Far || is_kernel(target) {
            sink.leave(now, from.last, from.next);
            self.count = 0;
            return self.enter(target, code, image, sink);
        }
        let (bits, count) = (self.bits, self.count);
        self.time = now;
        let index = self.place(target, code, image);
        let Some(to) = code.block(index).copied() else { return };
        match from.kind {
            Kind::IndirectCall => {
                self.push_return(from.next);
                sink.call(now, &to, from.next);
            }
            Kind::Return => {
                self.pop_return();
                sink.ret(now, &from, &to);
            }
            _ => sink.jump(now, &from, &to),
        }
        if self.arrive(index, code, sink).is_some() && count > 0 {
            (self.bits, self.count) = (bits, count);
            self.use_bits(code, image, sink);
        }
    }

    fn ip(&mut self, ip: Ip) -> Option<u64> {
        let address = ip.after(self.last_ip)?;
        self.last_ip = address;
        Some(address)
    }

    fn begin<I: Image, S: Sink>(&mut self, ip: Ip, code: &mut Code, image: &I, sink: &mut S) {
        let target = self.ip(ip);
        self.before = Before::Nothing;
        if self.is_placed(code, image) {
            // Its end is missing.
            sink.gap(self.clock.here(), Gap::Packets);
            self.forget(State::Outside);
        }
        if self.state == State::Lost {
            return;
        }
        match target {
            Some(target) => self.enter(target, code, image, sink),
            None => self.state = State::Outside,
        }
    }

    fn end<I: Image, S: Sink>(&mut self, ip: Ip, code: &mut Code, image: &I, sink: &mut S) {
        let target = self.ip(ip);
        let before = std::mem::replace(&mut self.before, Before::Nothing);
        if !self.is_placed(code, image) {
            if self.state == State::Overflow {
                self.state = State::Outside;
            }
            return;
        }
        let (from, next) = match before {
            Before::Event(from) => (from, from),
            _ => {
                let ends = |block: &Block| match block.kind {
                    Kind::Jump | Kind::Call => Some(block.target) == target,
                    Kind::Conditional => target.is_some_and(|ip| ip == block.target || ip == block.next),
                    Kind::Next | Kind::Missing => false,
                    _ => true,
                };
                let Some(block) = self.seek_branch(code, image, sink, ends) else { return };
                match block.kind {
                    // A filter: the branch itself leads out.
                    Kind::Jump | Kind::Conditional | Kind::IndirectJump => {
                        (block.last, target.unwrap_or(block.next))
                    }
                    Kind::Return => {
                        self.pop_return();
                        (block.last, target.unwrap_or(block.next))
                    }
                    _ => (block.last, block.next),
                }
            }
        };
        sink.leave(self.clock.here(), from, next);
        self.count = 0;
        self.state = State::Outside;
    }

    fn fup<I: Image, S: Sink>(&mut self, ip: Ip, code: &mut Code, image: &I, sink: &mut S) {
        let before = std::mem::replace(&mut self.before, Before::Nothing);
        let Some(address) = self.ip(ip) else { return };
        // Tracing is on where a synchronization point has an address.
        if self.state == State::Overflow || self.in_psb && !self.is_inside() {
            return self.enter(address, code, image, sink);
        }
        if before == Before::Bound || !self.is_placed(code, image) {
            return;
        }
        if is_kernel(address) {
            // Packets of the way there are missing.
            return self.lose(Gap::Code, sink);
        }
        let here = self.address;
        let mut is_first = true;
        let found = self.seek_branch(code, image, sink, |block| {
            let start = if std::mem::take(&mut is_first) { here } else { block.start };
            start <= address && (address <= block.last || block.kind == Kind::Next && address < block.next)
        });
        if found.is_some() {
            // The block goes on from there.
            self.address = address;
            if !self.in_psb {
                self.before = Before::Event(address);
            }
        } else if self.in_psb && self.state == State::Lost {
            self.enter(address, code, image, sink);
        }
    }
}
