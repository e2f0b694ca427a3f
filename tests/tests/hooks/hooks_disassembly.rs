//! Effects of the hooks on registers, proved from their machine code, and the code itself against
//! golden files.
//!
//! If `golden` fails after an intended change of the hooks: check the difference, then run the test
//! with `EVERYCALL_BLESS=1`, which rewrites the golden files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use everycall_kit::{FILES, MODULE_OBJECT, RUNTIME_OBJECT};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Formatter, GasFormatter, Instruction,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};

/// Where hooks begin.
const HOOKS: [&str; 13] = [
    "__fentry__",
    "__return__",
    "everycall_entry",
    "everycall_exit",
    "everycall_tail_exit",
    "everycall_capture_entry",
    "everycall_capture_exit",
    "everycall_called_entry",
    "everycall_called_exit",
    "everycall_unstamped_entry",
    "everycall_unstamped_exit",
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
];
/// Names of the hooks' way into the slow path begin like this.
const SLOW_PREFIX: &str = "everycall_slow_";
/// The restartable sequence of the hooks that may leave out stamps: its begin, its end, and where a
/// thread goes on that was stopped in it.
const SEQUENCE: [&str; 3] =
    ["everycall_unstamped_start", "everycall_unstamped_end", "everycall_unstamped_abort"];
/// The part of the slow path that calls the runtime.
const SLOW_COMMON: &str = "everycall_slow_common";
/// The part of capture hooks that calls the runtime.
const CAPTURE_COMMON: &str = "everycall_capture_common";
/// Bytes of the thread's own stack that a hook may use, the return address included.
const STACK_SIZE_MAX: i64 = 256;
/// As [`STACK_SIZE_MAX`], of a hook that copies values: it looks first whether there is so much.
const CAPTURE_STACK_MAX: i64 = 512;

const GENERAL: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
/// Registers that a called function may change.
const CALL_CLOBBERED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

fn vectors() -> impl Iterator<Item = Register> {
    (0..16).map(|number| Register::XMM0 + number)
}

/// A section with code.
struct Code {
    bytes: Vec<u8>,
    /// Names and addends of what the linker puts in, by place.
    relocations: BTreeMap<u64, (String, i64)>,
    /// Functions: first byte and size.
    functions: BTreeMap<String, (u64, u64)>,
}

impl Code {
    /// All instructions of a range.
    fn decode(&self, start: u64, size: u64) -> Vec<Instruction> {
        let bytes = &self.bytes[start as usize..(start + size) as usize];
        let all: Vec<_> = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE).into_iter().collect();
        assert!(all.iter().all(|instruction| !instruction.is_invalid()), "no code at {start:#x}");
        all
    }

    fn at(&self, address: u64) -> Instruction {
        Decoder::with_ip(64, &self.bytes[address as usize..], address, DecoderOptions::NONE).decode()
    }

    /// The relocation that the linker applies to an instruction.
    fn relocation(&self, instruction: &Instruction) -> Option<&(String, i64)> {
        self.relocations
            .range(instruction.ip()..instruction.next_ip())
            .next()
            .map(|(_, relocation)| relocation)
    }

    /// Where a jump leads, within this section.
    fn target(&self, instruction: &Instruction) -> u64 {
        match self.relocation(instruction) {
            None => instruction.near_branch_target(),
            Some((name, addend)) => {
                let (start, _) = self.functions[name];
                // Relative to the end of its four bytes, which end the instruction.
                start.wrapping_add_signed(addend + 4)
            }
        }
    }

    fn name_of(&self, address: u64) -> String {
        let (name, (start, _)) = self
            .functions
            .iter()
            .filter(|(_, (start, size))| *start <= address && address < start + size)
            .max_by_key(|(_, (start, _))| *start)
            .expect("hooks jump within hooks");
        if *start == address { name.clone() } else { format!("{name}+{:#x}", address - start) }
    }
}

/// The sections with code of one of the kit's objects.
fn sections(file: &str) -> Vec<Code> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == file).expect("in the kit");
    let object = object::File::parse(*bytes).expect("an object");
    let text = object.sections().filter(|section| section.kind() == SectionKind::Text && section.size() > 0);
    text.map(|section| {
        let relocations = section.relocations().filter_map(|(place, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let symbol = object.symbol_by_index(index).ok()?;
            let name = match symbol.name() {
                Ok("") | Err(_) => {
                    object.section_by_index(symbol.section_index()?).ok()?.name().ok()?.to_owned()
                }
                Ok(name) => name.to_owned(),
            };
            Some((place, (name, relocation.addend())))
        });
        let functions = object.symbols().filter(|symbol| symbol.section_index() == Some(section.index()));
        let mut functions: BTreeMap<_, _> = functions
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                Some((name.to_owned(), (symbol.address(), symbol.size())))
            })
            .collect();
        // A label in front of a function's begin has no size: it reaches to the function.
        let starts: Vec<u64> = functions.values().map(|(start, _)| *start).collect();
        for (start, size) in functions.values_mut().filter(|(_, size)| *size == 0) {
            let next = starts.iter().filter(|next| **next > *start).min();
            *size = next.map_or(0, |next| next - *start);
        }
        Code {
            bytes: section.data().expect("its bytes").to_vec(),
            relocations: relocations.collect(),
            functions,
        }
    })
    .collect()
}

/// The section with the hooks.
fn hooks(file: &str) -> Code {
    sections(file).into_iter().find(|code| code.functions.contains_key(SLOW_COMMON)).expect("the hooks")
}

/// The functions of the hooks and of their way into the slow path, in the order of their addresses.
fn hook_functions(code: &Code) -> Vec<(String, u64, u64)> {
    let ours = |name: &str| name == CAPTURE_COMMON || HOOKS.contains(&name) || name.starts_with(SLOW_PREFIX);
    let mut all: Vec<_> = code
        .functions
        .iter()
        .filter(|(name, (_, size))| ours(name) && *size > 0)
        .map(|(name, (start, size))| (name.clone(), *start, *size))
        .collect();
    all.sort_by_key(|(_, start, _)| *start);
    all
}

// The proof.

/// The value of a register or a place on the stack: a known value plus a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    base: Base,
    offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Base {
    /// The register's value when the hook was called.
    Initial(Register),
    /// Any other value: each has a number.
    Other(u32),
}

/// One way through a hook, up to an instruction.
#[derive(Clone)]
struct State {
    at: u64,
    registers: BTreeMap<Register, Value>,
    /// By address: size in bytes and content. The hook's own frame and the runtime's stack.
    stack: BTreeMap<Value, (i64, Value)>,
    others: u32,
    /// The lowest stack pointer on the thread's own stack.
    lowest: i64,
    steps: u32,
    /// How often each jump backwards was taken.
    rounds: BTreeMap<u64, u32>,
}

/// Known values of registers and of the stack.
type Known = (Vec<(Register, Option<Value>)>, Vec<(Value, Option<Value>)>);

/// Rounds of a loop that are followed: a second one shows what the first has changed for it.
const ROUNDS: u32 = 2;

impl State {
    fn new(at: u64) -> State {
        let initial = |register: Register| (register, Value { base: Base::Initial(register), offset: 0 });
        State {
            at,
            registers: GENERAL.into_iter().chain(vectors()).map(initial).collect(),
            stack: BTreeMap::new(),
            others: 0,
            lowest: 0,
            steps: 0,
            rounds: BTreeMap::new(),
        }
    }

    fn other(&mut self) -> Value {
        self.others += 1;
        Value { base: Base::Other(self.others), offset: 0 }
    }

    fn get(&self, register: Register) -> Value {
        self.registers[&register]
    }

    fn set(&mut self, register: Register, value: Value) {
        self.registers.insert(register, value);
        if register == Register::RSP && value.base == Base::Initial(Register::RSP) {
            self.lowest = self.lowest.min(value.offset);
        }
    }

    /// Known values of registers and stack, without the numbers of other values.
    fn known(&self) -> Known {
        let known = |value: Value| Some(value).filter(|value| matches!(value.base, Base::Initial(_)));
        let registers = self.registers.iter().map(|(register, value)| (*register, known(*value)));
        let stack = self.stack.iter().filter_map(|(at, (_, value))| Some((known(*at)?, known(*value))));
        (registers.collect(), stack.collect())
    }

    fn forget(&mut self, register: Register) {
        let value = self.other();
        self.set(register, value);
    }

    fn move_stack_pointer(&mut self, by: i64) {
        let Value { base, offset } = self.get(Register::RSP);
        self.set(Register::RSP, Value { base, offset: offset + by });
    }

    /// The address of a memory operand, where it is a register and a distance.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None
            && GENERAL.contains(&instruction.memory_base());
        plain.then(|| {
            let Value { base, offset } = self.get(instruction.memory_base());
            Value { base, offset: offset + instruction.memory_displacement64() as i64 }
        })
    }

    fn store(&mut self, address: Value, size: i64, value: Value) {
        let overlaps = |at: &Value, length: i64| {
            at.base == address.base
                && at.offset < address.offset + size
                && address.offset < at.offset + length
        };
        self.stack.retain(|at, (length, _)| !overlaps(at, *length));
        self.stack.insert(address, (size, value));
    }

    fn load(&mut self, address: Value, size: i64) -> Value {
        match self.stack.get(&address) {
            Some(&(length, value)) if length == size => value,
            _ => self.other(),
        }
    }
}

/// Follows every path through a hook to its `ret` and asserts that all registers have their old
/// values; also those on which the kernel interrupts the restartable sequence, anywhere. The
/// runtime's Rust function is assumed to preserve what the ABI requires. Returns the most bytes of
/// the thread's own stack that the hook uses, until it changes to the slow path's stack. (If all of
/// those stacks are in use, it continues on the current one.)
fn prove(code: &Code, hook: &str) -> i64 {
    let [begin, end, abort] = SEQUENCE.map(|name| code.functions.get(name).map_or(0, |(start, _)| *start));
    let is_exit = hook.contains("exit") || hook == "__return__";
    let mut ways = vec![State::new(code.functions[hook].0)];
    let mut seen = BTreeSet::new();
    let (mut returns, mut lowest, mut calls) = (0, 0, 0);
    while let Some(mut state) = ways.pop() {
        loop {
            state.steps += 1;
            assert!(state.steps < 1000, "{hook}: a loop");
            if (begin..end).contains(&state.at) && seen.insert((abort, state.known())) {
                ways.push(State { at: abort, ..state.clone() });
            }
            let instruction = code.at(state.at);
            let place = || format!("{hook}, at {}: {instruction}", code.name_of(instruction.ip()));
            state.at = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => step(&mut state, &instruction, &place),
                FlowControl::UnconditionalBranch => state.at = code.target(&instruction),
                // The sign is the exit bit of the event's word: known from the hook.
                FlowControl::ConditionalBranch if instruction.mnemonic() == Mnemonic::Js => {
                    if is_exit {
                        state.at = code.target(&instruction);
                    }
                }
                FlowControl::ConditionalBranch => {
                    let mut other = State { at: code.target(&instruction), ..state.clone() };
                    if other.at <= instruction.ip() {
                        *other.rounds.entry(instruction.ip()).or_default() += 1;
                    }
                    if other.rounds.values().all(|rounds| *rounds <= ROUNDS)
                        && seen.insert((other.at, other.known()))
                    {
                        ways.push(other);
                    }
                }
                FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => {
                    for register in [Register::RAX, Register::RCX, Register::R11] {
                        state.forget(register);
                    }
                }
                FlowControl::IndirectCall => {
                    calls += 1;
                    let name = code.name_of(instruction.ip());
                    let may_call = [SLOW_COMMON, CAPTURE_COMMON].iter().any(|may| name.starts_with(may));
                    assert!(may_call, "{}: a call", place());
                    CALL_CLOBBERED.into_iter().chain(vectors()).for_each(|register| state.forget(register));
                }
                FlowControl::Return => {
                    for register in GENERAL.into_iter().chain(vectors()) {
                        let initial = Value { base: Base::Initial(register), offset: 0 };
                        assert_eq!(state.get(register), initial, "{}: {register:?}", place());
                    }
                    let above = state
                        .stack
                        .keys()
                        .find(|at| at.base == Base::Initial(Register::RSP) && at.offset >= 0);
                    assert_eq!(above, None, "{}: the caller's stack was written to", place());
                    returns += 1;
                    lowest = lowest.min(state.lowest);
                    break;
                }
                other => panic!("{}: {other:?}", place()),
            }
        }
    }
    assert!(returns > 1 && calls > 0, "{hook}: {returns} ways back, {calls} calls of the slow path");
    8 - lowest
}

/// Applies an instruction that doesn't branch to the registers and the stack.
fn step(state: &mut State, instruction: &Instruction, place: &dyn Fn() -> String) {
    let kinds = (instruction.op0_kind(), instruction.op1_kind());
    let (to, from) = (instruction.op0_register(), instruction.op1_register());
    let is_wide = |register: Register| register.is_gpr64();
    match (instruction.mnemonic(), kinds) {
        (Mnemonic::Push, (OpKind::Register, _)) => {
            let value = state.get(to);
            state.move_stack_pointer(-8);
            state.store(state.get(Register::RSP), 8, value);
        }
        (Mnemonic::Pushfq, _) => {
            state.move_stack_pointer(-8);
            let value = state.other();
            state.store(state.get(Register::RSP), 8, value);
        }
        (Mnemonic::Pop, (kind, _)) => {
            let value = state.load(state.get(Register::RSP), 8);
            state.move_stack_pointer(8);
            if kind == OpKind::Register {
                state.set(to, value);
            } else {
                let address = state.address(instruction).unwrap_or_else(|| panic!("{}", place()));
                state.store(address, 8, value);
            }
        }
        (Mnemonic::Mov, (OpKind::Register, OpKind::Register)) if is_wide(to) => {
            state.set(to, state.get(from))
        }
        (Mnemonic::Mov, (OpKind::Memory, OpKind::Register))
            if is_wide(from) && state.address(instruction).is_some() =>
        {
            let address = state.address(instruction).expect("just seen");
            state.store(address, 8, state.get(from));
            // Below the stack pointer.
            if address.base == Base::Initial(Register::RSP) {
                state.lowest = state.lowest.min(address.offset);
            }
        }
        (Mnemonic::Mov | Mnemonic::Movaps | Mnemonic::Movups, (OpKind::Register, OpKind::Memory))
            if (is_wide(to) || to.is_xmm()) && state.address(instruction).is_some() =>
        {
            let address = state.address(instruction).expect("just seen");
            let value = state.load(address, if to.is_xmm() { 16 } else { 8 });
            state.set(to, value);
        }
        (Mnemonic::Movaps | Mnemonic::Movups, (OpKind::Memory, OpKind::Register)) => {
            let address = state.address(instruction).unwrap_or_else(|| panic!("{}", place()));
            state.store(address, 16, state.get(from));
        }
        (Mnemonic::Add | Mnemonic::Sub, (OpKind::Register, kind))
            if is_wide(to) && kind != OpKind::Register =>
        {
            let Value { base, offset } = state.get(to);
            if kind == OpKind::Memory {
                state.forget(to);
            } else {
                let by = instruction.immediate(1) as i64;
                let by = if instruction.mnemonic() == Mnemonic::Add { by } else { -by };
                state.set(to, Value { base, offset: offset + by });
            }
        }
        (Mnemonic::Lea, _) if is_wide(to) && state.address(instruction).is_some() => {
            let address = state.address(instruction).expect("just seen");
            state.set(to, address);
        }
        _ => other_step(state, instruction, place),
    }
}

/// An instruction of which only that it writes matters, and where.
fn other_step(state: &mut State, instruction: &Instruction, place: &dyn Fn() -> String) {
    let foreign = [CpuidFeature::FPU, CpuidFeature::MMX, CpuidFeature::FXSR, CpuidFeature::XSAVE];
    let features = instruction.cpuid_features();
    assert!(!features.iter().any(|feature| foreign.contains(feature)), "{}", place());
    assert_eq!(instruction.encoding(), EncodingKind::Legacy, "{}", place());
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let writes = |access: OpAccess| {
        !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    };
    for used in info.used_memory() {
        if writes(used.access()) && GENERAL.contains(&used.base()) {
            // Into the frame, or through a pointer that isn't the stack's: the control block, the
            // ring, the open-call stack.
            let Value { base, offset } = state.get(used.base());
            let address = Value { base, offset: offset + used.displacement() as i64 };
            let value = state.other();
            state.store(address, used.memory_size().size() as i64, value);
        }
    }
    for used in info.used_registers() {
        if writes(used.access()) {
            let register = used.register();
            let known = register.is_gpr() || register.is_xmm();
            assert!(known, "{}: writes {register:?}", place());
            state.forget(if register.is_gpr() { register.full_register() } else { register });
        }
    }
}

#[test]
fn every_way_through_every_hook_keeps_every_register() {
    for file in [RUNTIME_OBJECT, MODULE_OBJECT] {
        let code = hooks(file);
        for hook in HOOKS {
            let used = prove(&code, hook);
            let most = if hook.contains("capture") || hook.ends_with("__") {
                CAPTURE_STACK_MAX
            } else {
                STACK_SIZE_MAX
            };
            assert!(used <= most, "{file}: {hook} uses {used} bytes of the thread's stack");
            println!("{file}: {hook}: {used} bytes of the thread's own stack");
        }
    }
}

#[test]
fn hooks_use_general_registers_only_and_make_no_calls() {
    let mut factory = InstructionInfoFactory::new();
    for file in [RUNTIME_OBJECT, MODULE_OBJECT] {
        let code = hooks(file);
        for (name, start, size) in hook_functions(&code) {
            if name == SLOW_COMMON || name == CAPTURE_COMMON {
                continue;
            }
            for instruction in code.decode(start, size) {
                let place = format!("{file}: {name}: {instruction}");
                let calls =
                    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
                assert!(!calls, "{place}");
                assert_eq!(instruction.encoding(), EncodingKind::Legacy, "{place}");
                for used in factory.info(&instruction).used_registers() {
                    let register = used.register();
                    let plain = register.is_gpr() || register.is_segment_register();
                    assert!(plain, "{place}: {register:?}");
                }
            }
        }
    }
}

#[test]
fn the_runtime_leaves_upper_halves_masks_and_modes_alone() {
    let mut factory = InstructionInfoFactory::new();
    for file in [RUNTIME_OBJECT, MODULE_OBJECT] {
        let mut count = 0;
        for code in sections(file) {
            let all = code.decode(0, code.bytes.len() as u64);
            count += all.len();
            for (index, instruction) in all.iter().enumerate() {
                if instruction.mnemonic() == Mnemonic::Fxsave64 {
                    // It writes state to memory, and leaves it as it is.
                    continue;
                }
                let place = format!("{file}: {:?}: {instruction}", code.functions.keys().next());
                // VEX and EVEX instructions clear or need the upper halves, which the slow path
                // doesn't save.
                assert_eq!(instruction.encoding(), EncodingKind::Legacy, "{place}");
                let foreign = [CpuidFeature::FPU, CpuidFeature::MMX, CpuidFeature::FXSR, CpuidFeature::XSAVE];
                assert!(
                    !instruction.cpuid_features().iter().any(|feature| foreign.contains(feature)),
                    "{place}"
                );
                for used in factory.info(instruction).used_registers() {
                    let register = used.register();
                    let allowed = register.is_gpr() || register.is_xmm() || register.is_segment_register();
                    assert!(allowed && !(Register::XMM16..=Register::XMM31).contains(&register), "{place}");
                }
                match instruction.mnemonic() {
                    Mnemonic::Ldmxcsr | Mnemonic::Popfq | Mnemonic::Wrfsbase | Mnemonic::Wrgsbase => {
                        panic!("{place}")
                    }
                    Mnemonic::Std if !code.is_hook(instruction.ip()) => {
                        let until = all[index..].iter().position(|next| next.mnemonic() == Mnemonic::Cld);
                        let between = &all[index..index + until.unwrap_or_else(|| panic!("{place}: no cld"))];
                        let straight = between.iter().all(|next| next.flow_control() == FlowControl::Next);
                        assert!(straight, "{place}: may leave before cld");
                    }
                    _ => {}
                }
            }
        }
        assert!(count > 300, "{file}: {count} instructions are not all");
    }
}

impl Code {
    /// Whether the address is in hooks or in their way into the slow path.
    fn is_hook(&self, address: u64) -> bool {
        self.functions.iter().any(|(name, (start, size))| {
            (name == CAPTURE_COMMON || HOOKS.contains(&&name[..]) || name.starts_with(SLOW_PREFIX))
                && (*start..start + size).contains(&address)
        })
    }
}

#[test]
fn the_proof_sees_what_hooks_must_not_do() {
    // push rax; <change>; pop rax; ret - and a path through the slow path's call, which the proof
    // requires.
    let hook = |change: &[u8]| {
        let mut bytes = vec![0x75, 0x01, 0xc3]; // jne +1; ret
        bytes.push(0x50);
        bytes.extend_from_slice(change);
        bytes.extend([0x58, 0xc3]);
        let size = bytes.len() as u64;
        let functions = [(SLOW_COMMON.to_owned(), (0, size))].into_iter().collect();
        let code = Code { bytes, relocations: BTreeMap::new(), functions };
        std::panic::catch_unwind(|| prove(&code, SLOW_COMMON)).is_ok()
    };
    // Saves what the call may change, calls, restores.
    let (mut save, mut restore) = (Vec::new(), Vec::new());
    for number in 0..9_u8 {
        let codes: [&[u8]; 9] = [
            &[0x50],
            &[0x51],
            &[0x52],
            &[0x56],
            &[0x57],
            &[0x41, 0x50],
            &[0x41, 0x51],
            &[0x41, 0x52],
            &[0x41, 0x53],
        ];
        let code = codes[usize::from(number)];
        save.extend_from_slice(code);
        let mut pop = code.to_vec();
        *pop.last_mut().expect("not empty") += 8;
        restore.splice(0..0, pop);
    }
    save.extend([0x48, 0x81, 0xec, 0, 1, 0, 0]); // sub $256, %rsp
    restore.splice(0..0, [0x48, 0x81, 0xc4, 0, 1, 0, 0]);
    for number in 0..16_u8 {
        let (prefix, field) = (0x40 | (number >> 3) << 2, 0x84 | (number & 7) << 3);
        save.extend([prefix, 0x0f, 0x29, field, 0x24, number << 4, 0, 0, 0]); // movaps to the stack
        restore.splice(0..0, [prefix, 0x0f, 0x28, field, 0x24, number << 4, 0, 0, 0]);
    }
    let call = [0xff, 0x10];
    let with = |extra: &[u8]| [&save[..], &call, extra, &restore].concat();
    assert!(hook(&with(&[])), "a good hook");
    assert!(hook(&with(&[0x31, 0xc0])), "a register that is restored");
    assert!(!hook(&call), "nothing saved");
    assert!(!hook(&with(&[0x31, 0xdb])), "xor ebx, ebx");
    assert!(!hook(&with(&[0x45, 0x31, 0xff])), "xor r15d, r15d");
    assert!(!hook(&with(&[0x48, 0x83, 0xc4, 8])), "add $8, %rsp");
    assert!(!hook(&with(&[0xc6, 0x04, 0x24, 0])), "movb $0, (%rsp): into what was saved");
    assert!(!hook(&with(&[0xdb, 0xe3])), "fninit");
    assert!(!hook(&with(&[0xc5, 0xf4, 0x57, 0xc9])), "vxorps %ymm1, %ymm1, %ymm1");
}

// The code itself.

/// The hooks as text, with names instead of addresses.
fn listing(code: &Code) -> String {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_gas_show_mnemonic_size_suffix(true);
    for (name, start, size) in hook_functions(code) {
        writeln!(text, "{name}:").expect("string");
        for mut instruction in code.decode(start, size) {
            let relocation = code.relocation(&instruction).cloned();
            let mut note = String::new();
            if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() {
                write!(note, "  # {}", code.name_of(code.target(&instruction))).expect("string");
                instruction.set_near_branch64(0);
            } else if let Some((symbol, addend)) = relocation {
                write!(note, "  # {symbol}").expect("string");
                if instruction.is_ip_rel_memory_operand() {
                    // Behind the four bytes there may be an immediate operand.
                    let place = *code.relocations.range(instruction.ip()..).next().expect("just seen").0;
                    let distance = addend + (instruction.next_ip() - place) as i64;
                    write!(note, "{distance:+}").expect("string");
                    instruction.set_memory_displacement64(0);
                }
            }
            let mut line = String::new();
            formatter.format(&instruction, &mut line);
            writeln!(text, "  {line}{note}").expect("string");
        }
        text.push('\n');
    }
    text
}

#[test]
fn golden() {
    for (file, name) in [(RUNTIME_OBJECT, "executable"), (MODULE_OBJECT, "module")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/hooks-x86_64-{name}.txt"));
        let now = listing(&hooks(file));
        if std::env::var_os("EVERYCALL_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder of golden files");
            std::fs::write(&path, now).expect("the golden file");
            continue;
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        let changed = golden.lines().zip(now.lines()).position(|(golden, now)| golden != now);
        assert!(
            golden == now,
            "{}: the hooks aren't what they were, first at line {:?}; if that is wanted, run with EVERYCALL_BLESS=1",
            path.display(),
            changed.map(|line| line + 1)
        );
    }
}
