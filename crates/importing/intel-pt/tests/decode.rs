//! Random programs, run by a model of a CPU that writes packets: their calls come out again.

use everycall_intel_pt::{
    Block, CallSink, Calls, Code, Flow, Gap, Image, PacketError, Packets, Rates, Sink, Time, find_psb,
};
use everycall_synth::{PtCall, PtEncoder, PtProgram, PtRun, Rng, mutate};

struct Memory<'p>(&'p PtProgram);

impl Image for Memory<'_> {
    fn bytes(&self, address: u64) -> &[u8] {
        let at = address.checked_sub(self.0.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.0.code.get(at..)).unwrap_or_default()
    }

    fn function(&self, address: u64) -> u64 {
        self.0.function(address)
    }
}

#[derive(Default)]
struct Found {
    calls: Vec<PtCall>,
    gaps: Vec<Gap>,
    last: u64,
}

impl Found {
    fn add(&mut self, at: Time, call: PtCall) {
        assert!(at.ticks >= self.last, "{at:?} after {}", self.last);
        self.last = at.ticks;
        self.calls.push(call);
    }
}

impl CallSink for Found {
    fn entry(&mut self, at: Time, address: u64) {
        self.add(at, PtCall::Entry(address));
    }
    fn exit(&mut self, at: Time, address: u64) {
        self.add(at, PtCall::Exit(address));
    }
    fn unwound(&mut self, at: Time, count: u32) {
        self.add(at, PtCall::Unwound(count));
    }
    fn lose(&mut self, at: Time) {
        self.add(at, PtCall::Gap);
    }
}

#[derive(Default)]
struct Thread {
    calls: Calls,
    found: Found,
}

impl Sink for Thread {
    fn call(&mut self, at: Time, to: &Block, return_to: u64) {
        self.calls.call(at, &to.place(), return_to, &mut self.found);
    }
    fn ret(&mut self, at: Time, from: &Block, to: &Block) {
        self.calls.ret(at, &from.place(), &to.place(), &mut self.found);
    }
    fn jump(&mut self, at: Time, from: &Block, to: &Block) {
        self.calls.jump(at, &from.place(), &to.place(), &mut self.found);
    }
    fn leave(&mut self, _at: Time, from: u64, next: u64) {
        self.calls.leave(from, next);
    }
    fn enter(&mut self, at: Time, to: &Block) {
        self.calls.enter(at, &to.place(), &mut self.found);
    }
    fn gap(&mut self, at: Time, why: Gap) {
        self.found.gaps.push(why);
        self.calls.gap(at, &mut self.found);
    }
    fn missing(&mut self, _at: Time, _address: u64) {
        self.calls.missing();
    }
}

/// Decodes packets; returns the calls and the branches.
fn decode(bytes: &[u8], program: &PtProgram) -> (Found, u64) {
    let mut flow = Flow::new(Rates { mtc_shift: 3, crystal: (84, 1), tsc_ratio: 20 });
    let (mut code, memory, mut thread) = (Code::default(), Memory(program), Thread::default());
    let mut rest = find_psb(bytes).and_then(|at| bytes.get(at..)).unwrap_or_default();
    let mut packets = Packets::default();
    while !rest.is_empty() {
        match packets.next(rest) {
            Ok((packet, length)) => {
                flow.packet(packet, &mut code, &memory, &mut thread);
                rest = &rest[length..];
            }
            Err(PacketError::Truncated) => break,
            Err(PacketError::Unknown) => {
                flow.lose(Gap::Packets, &mut thread);
                packets = Packets::default();
                rest = find_psb(&rest[1..]).and_then(|at| rest.get(1 + at..)).unwrap_or_default();
            }
        }
    }
    (thread.found, flow.branches())
}

fn how(steps: u64) -> PtRun {
    PtRun { steps, psb_period: 2048, signals: 700, interrupts: 90, overflows: 0 }
}

fn assert_same(found: &[PtCall], made: &[PtCall], seed: u64) {
    let differ = found.iter().zip(made).position(|(found, made)| found != made);
    let at = differ.unwrap_or(found.len().min(made.len()));
    let around = |calls: &[PtCall]| calls[at.saturating_sub(3)..calls.len().min(at + 3)].to_vec();
    assert!(
        found == made,
        "seed {seed}, call {at} of {} and {}: {:x?} instead of {:x?}",
        found.len(),
        made.len(),
        around(found),
        around(made)
    );
}

#[test]
fn calls_of_random_programs_come_out_again() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let program = PtProgram::new(&mut rng, 0x5555_5555_0000, 4 + (seed % 40) as usize);
        let mut encoder = PtEncoder::default();
        (encoder.uncompressed, encoder.long) = (seed % 3 == 0, seed % 2 == 0);
        let mut how = how(20_000);
        how.overflows = if seed % 5 == 0 { 500 } else { 0 };
        let made = program.run(&mut rng, how, &mut 1000, &mut encoder);
        let (found, branches) = decode(&encoder.bytes, &program);
        let (lost, others): (Vec<Gap>, Vec<Gap>) = found.gaps.iter().partition(|gap| **gap == Gap::Overflow);
        assert_eq!(others, [], "seed {seed}");
        assert_eq!(lost.is_empty(), how.overflows == 0);
        assert!(branches > 1000);
        // Two gaps without a call between them are one.
        let mut made = made;
        made.dedup_by(|next, before| *next == PtCall::Gap && *before == PtCall::Gap);
        assert_same(&found.calls, &made, seed);
    }
}

#[test]
fn damaged_packets_end_in_gaps_and_decoding_goes_on() {
    let mut rng = Rng::new(7);
    let program = PtProgram::new(&mut rng, 0x5555_5555_0000, 30);
    let mut encoder = PtEncoder::default();
    program.run(&mut rng, how(4000), &mut 1000, &mut encoder);
    for cut in (0..encoder.bytes.len()).step_by(7) {
        decode(&encoder.bytes[..cut], &program);
        decode(&encoder.bytes[cut..], &program);
    }
    for seed in 0..300 {
        let mut bytes = encoder.bytes.clone();
        mutate(&mut bytes, &mut Rng::new(seed));
        decode(&bytes, &program);
    }
}

#[test]
fn branches_that_never_come_are_counted_safely() {
    let mut rng = Rng::new(3);
    let program = PtProgram::new(&mut rng, 0x5555_5555_0000, 30);
    let mut encoder = PtEncoder::default();
    // At an indirect call, with branches that can't be placed, up to the most that are kept.
    encoder.psb(1000, program.functions.last().copied());
    for _ in 0..3 {
        encoder.bytes.extend([2, 0xa3, 0xff, 0xff, 0xff, 0xff, 0xff, 0]);
        encoder.bytes.extend([2, 0xa3, 0xff, 0xff, 0x01, 0, 0, 0]);
        encoder.bytes.extend([2, 0xa3, 1, 0, 0, 0, 0, 0]);
        encoder.bytes.extend([0b110; 9]);
        encoder.bytes.extend([2, 0xa3, 1, 0, 0, 0, 0, 0]);
    }
    decode(&encoder.bytes, &program);
}
