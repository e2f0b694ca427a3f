//! Programs run on a machine of the test's own: what each instruction does, and that any bytes that
//! pass the check end in bounded time with bounded output.

use std::cell::Cell;

use everycall_capture::{Item, Machine, Origin, Outcome, Plain, Program, Refusal};
use everycall_format::Wire;
use everycall_format::capture::{
    COPY_MAX, ERRNO, INSTRUCTIONS_MAX, Instruction, MAGIC, OUTPUT_MAX, ProgramHeader, READS_MAX, TextHeader,
    UNTIL_ZERO, calculation, comparison, likeness, operation, register, status, text_flag,
};

/// Memory from `BASE` on; nothing else can be read.
struct Fake {
    registers: Vec<u64>,
    memory: Vec<u8>,
    reads: Cell<usize>,
}

const BASE: u64 = 0x1000;
/// The number of the stack pointer.
const STACK_POINTER: u32 = 7;

impl Fake {
    fn new(memory: &[u8]) -> Self {
        Self { registers: vec![0; register::END as usize], memory: memory.to_vec(), reads: Cell::new(0) }
    }
}

impl Machine for Fake {
    fn register(&self, number: u32) -> Option<u64> {
        self.registers.get(number as usize).copied()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        let Some(start) = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok()) else {
            return 0;
        };
        let rest = self.memory.get(start..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    }
}

fn instruction(operation: u8, target: u8, left: u8, right: u8, size: u32, value: u64) -> Instruction {
    Instruction { operation, target, left, right, size, value }
}

fn bytes_of(instructions: &[Instruction], pool: &[u8]) -> Vec<u8> {
    let header = ProgramHeader {
        magic: MAGIC,
        id: 7,
        instructions: instructions.len() as u32,
        pool: pool.len() as u32,
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(instructions.iter().flat_map(Wire::to_bytes));
    bytes.extend(pool);
    bytes
}

fn run(instructions: &[Instruction], pool: &[u8], machine: &Fake) -> (Outcome, Vec<u8>) {
    let bytes = bytes_of(instructions, pool);
    let program = Program::check(&bytes).unwrap();
    let mut output = vec![0xee; program.output_max()];
    let outcome = program.run(machine, &mut output);
    if let Outcome::Captured(length) = outcome {
        output.truncate(length);
    }
    (outcome, output)
}

const ITEM: u8 = operation::ITEM;

/// Where `errno` isn't known, as here, its item is lost alone, and hooks can't copy it themselves.
#[test]
fn an_error_may_be_unknown() {
    use operation::{EMIT, ITEM, REGISTER};
    let bytes = bytes_of(
        &[
            instruction(ITEM, 0, 0, 0, 3, 0),
            instruction(REGISTER, 0, 0, 0, ERRNO, 0),
            instruction(EMIT, 0, 0, 0, 4, 0),
            instruction(ITEM, 0, 0, 0, 6, 0),
            instruction(REGISTER, 0, 0, 0, 0, 0),
            instruction(EMIT, 0, 0, 0, 1, 0),
        ],
        &[],
    );
    let program = Program::check(&bytes).unwrap();
    let mut output = [0; 16];
    assert_eq!(program.run(&Fake::new(&[]), &mut output), Outcome::Captured(3));
    assert_eq!(output[..3], [status::UNREADABLE, status::PRESENT, 0]);
    assert_eq!(Plain::of(&program), None);
    assert_eq!(
        Program::check(&bytes_of(&[instruction(REGISTER, 0, 0, 0, ERRNO + 1, 0)], &[])),
        Err(Refusal::Instruction(0))
    );
}

#[test]
fn values_and_texts_are_copied() {
    let mut machine = Fake::new(b"\x2a\xff\xff\xffGET /index\0rest");
    machine.registers[5] = BASE;
    let (outcome, output) = run(
        &[
            instruction(ITEM, 0, 0, 0, 3, 0),
            instruction(operation::REGISTER, 1, 0, 0, 5, 0),
            instruction(operation::COPY, 0, 1, 0, 4, 0),
            instruction(ITEM, 0, 0, 0, 7, 0),
            instruction(operation::CONSTANT, 2, 0, 0, 0, 4),
            instruction(operation::CALCULATE, 1, 1, 2, calculation::ADD, 0),
            instruction(operation::COPY_TEXT, 0, 1, UNTIL_ZERO, 6, 0),
            instruction(operation::END, 0, 0, 0, 0, 0),
        ],
        &[],
        &machine,
    );
    assert_eq!(outcome, Outcome::Captured(1 + 4 + 1 + TextHeader::SIZE + 6));
    assert_eq!(output[..6], [status::PRESENT, 0x2a, 0xff, 0xff, 0xff, status::PRESENT]);
    let header = TextHeader::read(&output[6..]).unwrap();
    assert_eq!(header, TextHeader { length: 6, copied: 6, flags: text_flag::CUT });
    assert_eq!(&output[14..], b"GET /i");
}

#[test]
fn an_unreadable_item_leaves_the_others_whole() {
    let machine = Fake::new(&[1; 16]);
    let (outcome, output) = run(
        &[
            instruction(ITEM, 0, 0, 0, 3, 0),
            instruction(operation::CONSTANT, 1, 0, 0, 0, BASE + 8),
            instruction(operation::COPY, 0, 1, 0, 16, 0),
            instruction(ITEM, 0, 0, 0, 6, 0),
            instruction(operation::LOAD, 2, 1, 1, 8, 0),
            instruction(operation::EMIT, 0, 2, 0, 2, 0),
            instruction(ITEM, 0, 0, 0, 7, u64::from(status::ABSENT)),
        ],
        &[],
        &machine,
    );
    assert_eq!(outcome, Outcome::Captured(5));
    assert_eq!(output, [status::UNREADABLE, status::PRESENT, 1, 1, status::ABSENT]);
}

#[test]
fn texts_that_end_where_memory_does() {
    let text = |memory: &[u8], address: u64, length: Option<u64>, size: u32| {
        let (_, output) = run(
            &[
                instruction(ITEM, 0, 0, 0, 4, 0),
                instruction(operation::CONSTANT, 1, 0, 0, 0, address),
                instruction(operation::CONSTANT, 2, 0, 0, 0, length.unwrap_or(0)),
                instruction(operation::COPY_TEXT, 0, 1, length.map_or(UNTIL_ZERO, |_| 2), size, 0),
            ],
            &[],
            &Fake::new(memory),
        );
        let header = TextHeader::read(&output[1..]).unwrap();
        assert_eq!(output.len(), 9 + usize::from(header.copied));
        (header.length, header.copied, header.flags)
    };
    assert_eq!(text(b"abc\0", BASE, None, 16), (3, 3, 0));
    assert_eq!(text(b"abc", BASE, None, 16), (3, 3, text_flag::UNREADABLE));
    assert_eq!(text(b"abc", BASE, None, 3), (3, 3, text_flag::CUT));
    assert_eq!(text(b"", 0, None, 3), (0, 0, text_flag::NULL));
    assert_eq!(text(b"", 5, None, 3), (0, 0, text_flag::UNREADABLE));
    assert_eq!(text(b"a\0c", BASE, Some(3), 8), (3, 3, 0));
    assert_eq!(text(b"a\0c", BASE, Some(9), 8), (9, 3, text_flag::UNREADABLE));
    assert_eq!(text(&[1; 64], BASE, Some(u64::MAX), 8), (u32::MAX, 8, text_flag::CUT));
    // An empty text needs no memory.
    assert_eq!(text(b"", 3, Some(0), 8), (0, 0, 0));
    assert_eq!(text(b"", 0, Some(0), 8), (0, 0, 0));
}

/// Whether a program of one condition accepts.
fn is_kept(left: u64, right: u64, how: u32) -> bool {
    let condition = [
        instruction(operation::CONSTANT, 1, 0, 0, 0, left),
        instruction(operation::CONSTANT, 2, 0, 0, 0, right),
        instruction(operation::COMPARE, 3, 1, 2, how, 0),
        instruction(operation::JUMP_UNLESS_ZERO, 0, 3, 0, 5, 0),
        instruction(operation::REJECT, 0, 0, 0, 0, 0),
    ];
    run(&condition, &[], &Fake::new(&[])).0 != Outcome::Rejected
}

#[test]
fn comparisons_know_signs_and_floats() {
    let minus = -1_i64 as u64;
    assert!(is_kept(1, minus, comparison::LESS) && !is_kept(1, minus, comparison::LESS_SIGNED));
    let floats = [f64::NEG_INFINITY, -2.5, -0.0, 0.0, 1e-310, 3.5, f64::INFINITY, f64::NAN];
    for a in floats {
        for b in floats {
            let (x, y) = (a.to_bits(), b.to_bits());
            assert_eq!(is_kept(x, y, comparison::LESS_FLOAT), a < b, "{a} {b}");
            assert_eq!(is_kept(x, y, comparison::LESS_EQUAL_FLOAT), a <= b, "{a} {b}");
            assert_eq!(is_kept(x, y, comparison::EQUAL_FLOAT), a == b, "{a} {b}");
        }
    }
}

#[test]
fn texts_are_compared_as_far_as_they_can_be_read() {
    let is_like = |memory: &[u8], other: &[u8], how: u32| {
        let condition = [
            instruction(operation::GUARD, 0, 0, 0, 4, 0),
            instruction(operation::CONSTANT, 1, 0, 0, 0, BASE),
            instruction(operation::COMPARE_TEXT, 3, 1, UNTIL_ZERO, how, (other.len() as u64) << 32),
            instruction(operation::JUMP_UNLESS_ZERO, 0, 3, 0, 5, 0),
            instruction(operation::REJECT, 0, 0, 0, 0, 0),
        ];
        run(&condition, other, &Fake::new(memory)).0 != Outcome::Rejected
    };
    assert!(is_like(b"POST\0", b"POST", likeness::EQUAL));
    assert!(!is_like(b"POSTS\0", b"POST", likeness::EQUAL));
    assert!(!is_like(b"POST", b"POST", likeness::EQUAL), "it can't be read to its end");
    assert!(is_like(b"POST", b"POS", likeness::PREFIX));
    assert!(is_like(b"a longer text\0", b"longer", likeness::CONTAINS));
    assert!(!is_like(b"a longer text\0", b"shorter", likeness::CONTAINS));
    assert!(is_like(b"\0", b"", likeness::EQUAL));
}

#[test]
fn undefined_results_fail() {
    for (how, left, right) in [
        (calculation::DIVIDE, 1, 0),
        (calculation::REST_SIGNED, 1, 0),
        (calculation::DIVIDE_SIGNED, i64::MIN as u64, u64::MAX),
        (calculation::SHIFT_LEFT, 1, 64),
        (calculation::SHIFT_RIGHT, 1, 1 << 32),
    ] {
        let (outcome, output) = run(
            &[
                instruction(ITEM, 0, 0, 0, 5, 0),
                instruction(operation::CONSTANT, 1, 0, 0, 0, left),
                instruction(operation::CONSTANT, 2, 0, 0, 0, right),
                instruction(operation::CALCULATE, 3, 1, 2, how, 0),
                instruction(operation::EMIT, 0, 3, 0, 8, 0),
            ],
            &[],
            &Fake::new(&[]),
        );
        assert_eq!((outcome, output), (Outcome::Captured(1), vec![status::UNREADABLE]), "{how}");
    }
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let end = instruction(operation::END, 0, 0, 0, 0, 0);
    let refusal =
        |instructions: &[Instruction]| Program::check(&bytes_of(instructions, b"pool")).unwrap_err();
    assert_eq!(refusal(&[]), Refusal::Header);
    assert_eq!(refusal(&vec![end; INSTRUCTIONS_MAX + 1]), Refusal::Header);
    assert_eq!(refusal(&[end, instruction(operation::JUMP, 0, 0, 0, 1, 0)]), Refusal::Jump(1));
    assert_eq!(refusal(&[end, instruction(operation::JUMP, 0, 0, 0, 3, 0)]), Refusal::Jump(1));
    assert_eq!(refusal(&[instruction(operation::EMIT, 0, 16, 0, 8, 0)]), Refusal::Instruction(0));
    assert_eq!(refusal(&[instruction(99, 0, 0, 0, 0, 0)]), Refusal::Instruction(0));
    assert_eq!(refusal(&[instruction(operation::REGISTER, 0, 0, 0, 16, 0)]), Refusal::Instruction(0));
    assert_eq!(
        refusal(&[instruction(operation::COMPARE_TEXT, 0, 0, 0, 0, 2 | 3 << 32)]),
        Refusal::Instruction(0),
        "it is beyond the pool"
    );
    let item = instruction(ITEM, 0, 0, 0, 1, 0);
    let copy = instruction(operation::COPY, 0, 0, 0, COPY_MAX as u32, 0);
    assert_eq!(refusal(&[item, copy, copy]), Refusal::Output);
    assert_eq!(refusal(&vec![instruction(operation::LOAD, 0, 0, 0, 8, 0); READS_MAX + 1]), Refusal::Reads);
    let mut cut = bytes_of(&[end], b"pool");
    cut.pop();
    assert_eq!(Program::check(&cut).unwrap_err(), Refusal::Header);
    cut.extend(b"ls");
    assert_eq!(Program::check(&cut).unwrap_err(), Refusal::Header);
}

/// A generator of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[test]
fn whatever_passes_the_check_ends_within_its_bounds() {
    let mut numbers = Numbers(0x5eed_1234_9876_abcd);
    let (rounds, seeds) = if cfg!(miri) { (300, 1) } else { (60_000, 1) };
    let (mut accepted, mut captured, mut wild) = (0, 0, 0);
    for round in 0..rounds * seeds {
        let count = 1 + numbers.below(24);
        let mut instructions = Vec::new();
        for at in 0..count {
            let kind = numbers.below(20) as u8;
            let size = match kind {
                operation::ITEM..=operation::GUARD | operation::JUMP..=operation::JUMP_UNLESS_ZERO => {
                    (at + 1 + numbers.below(4)).min(count)
                }
                operation::LOAD => 1 << numbers.below(4),
                operation::EMIT | operation::BITS => 1 + numbers.below(8),
                operation::COPY | operation::COPY_TEXT => numbers.below(80),
                operation::REGISTER => numbers.below(u64::from(register::END)),
                _ => numbers.below(6),
            };
            let mut number = || numbers.below(16) as u8;
            let (target, left, right) = (number(), number(), number());
            let right = match kind {
                operation::LOAD | operation::BITS => right & 1,
                operation::COPY_TEXT | operation::COMPARE_TEXT if right > 8 => UNTIL_ZERO,
                _ => right,
            };
            let value = match kind {
                operation::COMPARE_TEXT => numbers.below(8) | numbers.below(8) << 32,
                operation::ITEM => numbers.below(3),
                operation::BITS => numbers.below(64),
                operation::CONSTANT => BASE + numbers.below(300),
                _ => numbers.next() >> numbers.below(64),
            };
            instructions.push(instruction(kind, target, left, right, size as u32, value));
        }
        let mut bytes = bytes_of(&instructions, b"a pool of bytes");
        if round % 4 == 3 {
            // Damage.
            wild += 1;
            for _ in 0..1 + numbers.below(6) {
                let at = numbers.below(bytes.len() as u64) as usize;
                bytes[at] = numbers.next() as u8;
            }
        }
        let Ok(program) = Program::check(&bytes) else { continue };
        accepted += 1;
        let memory: Vec<u8> = (0..256).map(|_| numbers.below(5) as u8).collect();
        let mut machine = Fake::new(&memory);
        machine.registers.fill_with(|| BASE + numbers.below(300));
        assert!(program.output_max() <= OUTPUT_MAX);
        let room = if round % 8 == 0 { program.output_max() / 2 } else { program.output_max() };
        let mut output = vec![0xee; room];
        match program.run(&machine, &mut output) {
            Outcome::Captured(length) => {
                captured += 1;
                assert!(length <= room);
            }
            Outcome::Rejected => {}
            Outcome::NoSpace => assert!(room < program.output_max()),
        }
        assert!(machine.reads.get() <= READS_MAX);
    }
    assert!(accepted > rounds / 50 && captured > accepted / 4 && wild > 0, "{accepted} {captured} {wild}");
}

#[test]
fn any_bytes_are_refused_or_run() {
    let mut numbers = Numbers(42);
    for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
        let length = numbers.below(200) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        if length >= 16 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8..16].fill(0);
            bytes[8] = ((length - 16) / 16) as u8;
            bytes[12] = ((length - 16) % 16) as u8;
        }
        if let Ok(program) = Program::check(&bytes) {
            program.run(&Fake::new(&[3; 64]), &mut [0; OUTPUT_MAX]);
        }
    }
}

/// Where a list finds 64 bits of the call.
fn bits_at(machine: &Fake, origin: Origin) -> u64 {
    match origin {
        Origin::Register(number) => machine.registers[number as usize],
        Origin::Stack(above) => {
            let mut bytes = [0; 8];
            machine.read(machine.registers[STACK_POINTER as usize] + u64::from(above), &mut bytes);
            u64::from_le_bytes(bytes)
        }
    }
}

/// The work of a hook with a list.
fn copied(plain: &Plain, machine: &Fake) -> (Outcome, Vec<u8>) {
    for test in plain.tests() {
        let up = 64 - test.bits;
        let place = (machine.registers[test.register as usize] << up).wrapping_sub(test.first << up);
        if place > test.span << up {
            return (Outcome::Rejected, Vec::new());
        }
    }
    let mut bytes = Vec::new();
    for item in plain.items() {
        if !matches!(item, Item::Word { .. }) {
            bytes.push(status::PRESENT);
        }
        match *item {
            Item::Value { origin, size } | Item::Word { origin, size } => {
                bytes.extend_from_slice(&bits_at(machine, origin).to_le_bytes()[..size as usize]);
            }
            Item::Text { origin, size } => {
                let address = bits_at(machine, origin);
                let mut text = vec![0; size as usize];
                let read = if address == 0 { 0 } else { machine.read(address, &mut text) };
                let end = text[..read].iter().position(|byte| *byte == 0);
                let flags = match (address, end) {
                    (0, _) => text_flag::NULL,
                    (_, Some(_)) => 0,
                    _ if read < text.len() => text_flag::UNREADABLE,
                    _ => text_flag::CUT,
                };
                let copied = end.unwrap_or(read);
                let header = TextHeader { length: copied as u32, copied: copied as u16, flags };
                bytes.extend(header.to_bytes());
                bytes.extend_from_slice(&text[..copied]);
            }
        }
    }
    (Outcome::Captured(bytes.len()), bytes)
}

/// Programs that only compare integers with constants and copy registers, words of the stack and
/// texts are lists, by which a hook rejects and copies what the interpreter does.
#[test]
fn lists_do_what_the_interpreter_does() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let (mut plain_ones, mut rejected, mut with_tests) = (0, 0, 0);
    for _ in 0..25_000 {
        let mut memory = b"\x2a\xff\xff\xffGET /index\0rest\0".to_vec();
        memory.extend((0..64).map(|_| next(4) as u8 * 85));
        let mut machine = Fake::new(&memory);
        machine.registers[STACK_POINTER as usize] = BASE + 8;
        let numbers = [0, 1, 2, 127, 128, 255, 1 << 31, u64::MAX >> 1, u64::MAX - 1, u64::MAX, 1 << 63];
        let mut number = || match next(3) {
            0 => numbers[next(numbers.len() as u64) as usize],
            1 => numbers[next(numbers.len() as u64) as usize].wrapping_add(next(3)).wrapping_sub(1),
            _ => next(1 << 53) << next(12),
        };
        for register in [0, 1, 2, 4, 5, 8, 9] {
            machine.registers[register] = number();
        }
        let constants: Vec<u64> = (0..4).map(|_| number()).collect();
        machine.registers[10] = BASE + next(24);
        machine.registers[11] = if next(4) == 0 { 0 } else { BASE + next(90) };
        let mut instructions = vec![instruction(operation::GUARD, 0, 0, 0, 0, 0)];
        let tests = next(3);
        for test in 0..tests {
            match next(3) {
                0 => {
                    instructions.push(instruction(operation::REGISTER, 1, 0, 0, STACK_POINTER, 0));
                    let size = 1 << next(4);
                    instructions.push(instruction(operation::LOAD, 2, 1, next(2) as u8, size, next(5) * 8));
                }
                _ => {
                    let register = [0, 1, 2, 4, 5, 8, 9][next(7) as usize];
                    instructions.push(instruction(operation::REGISTER, 2, 0, 0, register, 0));
                    let size = [8, 16, 32, 64, 1, 13][next(6) as usize];
                    if next(2) == 0 {
                        instructions.push(instruction(operation::BITS, 2, 2, next(2) as u8, size, 0));
                    }
                }
            }
            let constant = constants[test as usize];
            let constant = match next(3) {
                0 => constant,
                1 => constant as u8 as u64,
                _ => constant as i32 as u64,
            };
            if next(8) > 0 {
                instructions.push(instruction(operation::CONSTANT, 3, 0, 0, 0, constant));
                let (left, right) = if next(2) == 0 { (2, 3) } else { (3, 2) };
                let how = [comparison::EQUAL, comparison::LESS, comparison::LESS_SIGNED][next(3) as usize];
                instructions.push(instruction(operation::COMPARE, 4, left, right, how, 0));
            } else {
                instructions.push(instruction(operation::BITS, 4, 2, 0, 1 + next(8) as u32, 0));
            }
            let jump = [operation::JUMP_IF_ZERO, operation::JUMP_UNLESS_ZERO][next(2) as usize];
            instructions.push(instruction(jump, 0, 4, 0, u32::MAX, 0));
        }
        for _ in 0..next(6) {
            let end = instructions.len() as u32 + 3;
            if next(3) == 0 {
                let register = [0, 1, 2, 4, 5, 8, 9][next(7) as usize];
                instructions.push(instruction(operation::REGISTER, 5, 0, 0, register, 0));
                instructions.push(instruction(operation::EMIT, 0, 5, 0, 4 + 4 * next(2) as u32, 0));
                continue;
            }
            instructions.push(instruction(ITEM, 0, 0, 0, end, 0));
            if next(2) == 0 {
                let register = 10 + next(2) as u32;
                instructions.push(instruction(operation::REGISTER, 5, 0, 0, register, 0));
                let size = 16 * (1 + next(4)) as u32;
                instructions.push(instruction(operation::COPY_TEXT, 0, 5, UNTIL_ZERO, size, 0));
            } else {
                let register = [0, 1, 2, 4, 5, 8, 9][next(7) as usize];
                instructions.push(instruction(operation::REGISTER, 5, 0, 0, register, 0));
                instructions.push(instruction(operation::EMIT, 0, 5, 0, 1 + next(8) as u32, 0));
            }
        }
        instructions.push(instruction(operation::END, 0, 0, 0, 0, 0));
        let reject = instructions.len() as u32;
        instructions.push(instruction(operation::REJECT, 0, 0, 0, 0, 0));
        for it in &mut instructions {
            if it.size == u32::MAX || it.operation == operation::GUARD {
                it.size = reject;
            }
        }
        let bytes = bytes_of(&instructions, &[]);
        let program = Program::check(&bytes).unwrap();
        let Some(plain) = Plain::of(&program) else { continue };
        let exact = run(&instructions, &[], &machine);
        let found = copied(&plain, &machine);
        assert_eq!(found.0, exact.0, "{instructions:?} {plain:?}");
        if exact.0 != Outcome::Rejected {
            assert_eq!(found.1, exact.1, "{instructions:?} {plain:?}");
        }
        plain_ones += 1;
        rejected += usize::from(exact.0 == Outcome::Rejected);
        with_tests += usize::from(plain.tests().next().is_some());
    }
    // Most of these programs are lists; half of those with tests reject.
    assert!(plain_ones > 12_000 && with_tests > 6_000, "{plain_ones} {with_tests}");
    assert!(rejected > 2_000 && with_tests - rejected > 2_000, "{rejected} of {with_tests}");
}

/// A program that does anything else isn't a list.
#[test]
fn other_programs_are_no_lists() {
    let register = instruction(operation::REGISTER, 1, 0, 0, 5, 0);
    let item = instruction(ITEM, 0, 0, 0, 9, 0);
    // The caller's frame may end before that word.
    let stack = instruction(operation::REGISTER, 1, 0, 0, STACK_POINTER, 0);
    let word = instruction(operation::LOAD, 2, 1, 0, 4, 800);
    let other: [&[Instruction]; 7] = [
        &[stack, word, instruction(operation::JUMP_IF_ZERO, 0, 2, 0, 10, 0)],
        &[register, instruction(operation::LOAD, 2, 1, 0, 4, 0)],
        &[register, instruction(operation::MEET, 0, 0, 0, 0, 0)],
        &[register, item, instruction(operation::COPY, 0, 1, 0, 4, 0)],
        &[register, item, instruction(operation::COPY_TEXT, 0, 1, UNTIL_ZERO, 20, 0)],
        &[register, instruction(operation::JUMP_IF_ZERO, 0, 1, 0, 9, 0)],
        &[instruction(ITEM, 0, 0, 0, 9, u64::from(status::ABSENT))],
    ];
    for instructions in other {
        let mut all = instructions.to_vec();
        all.resize(10, instruction(operation::END, 0, 0, 0, 0, 0));
        all.push(instruction(operation::REJECT, 0, 0, 0, 0, 0));
        let bytes = bytes_of(&all, &[]);
        assert_eq!(Plain::of(&Program::check(&bytes).unwrap()), None, "{instructions:?}");
    }
}

#[test]
fn conditions_are_met_one_by_one() {
    let mut machine = Fake::new(&[]);
    for (value, expected) in [(0, 0b10), (1, 0b1001), (5, 0b1001)] {
        machine.registers[5] = value;
        let instructions = [
            instruction(operation::REGISTER, 1, 0, 0, 5, 0),
            instruction(operation::JUMP_IF_ZERO, 0, 1, 0, 4, 0),
            instruction(operation::MEET, 0, 0, 0, 0, 0),
            instruction(operation::JUMP, 0, 0, 0, 5, 0),
            instruction(operation::MEET, 0, 0, 0, 1, 0),
            // A value that can't be read meets no condition.
            instruction(operation::GUARD, 0, 0, 0, 8, 0),
            instruction(operation::LOAD, 2, 1, 0, 4, 0),
            instruction(operation::MEET, 0, 0, 0, 2, 0),
            instruction(operation::JUMP_IF_ZERO, 0, 1, 0, 10, 0),
            instruction(operation::MEET, 0, 0, 0, 3, 0),
        ];
        let bytes = bytes_of(&instructions, &[]);
        let program = Program::check(&bytes).unwrap();
        assert_eq!(program.judge(&machine, &mut []), (Outcome::Captured(0), expected));
    }
    let wrong = bytes_of(&[instruction(operation::MEET, 0, 0, 0, 32, 0)], &[]);
    assert_eq!(Program::check(&wrong).err(), Some(Refusal::Instruction(0)));
}
