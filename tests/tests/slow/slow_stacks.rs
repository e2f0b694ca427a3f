//! The stacks of the slow path are large enough for its deepest chain of calls: read from the
//! machine code.

use std::collections::{BTreeMap, BTreeSet};

use everycall_hooks::SLOW_STACK_SIZE;
use everycall_kit::{FILES, RUNTIME_OBJECT};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// Stack bytes that a function of the C library may take: `memcpy` and its like are all that the
/// runtime calls.
const LIBRARY: u64 = 256;
/// Bytes that a call may take before it is on one of these stacks.
const OWN_MAX: u64 = 320;
/// The hook's way into the slow path, which comes before.
const SLOW_COMMON: &str = "everycall_slow_common";

/// A function: bytes of its own frame, and what it calls.
#[derive(Default)]
struct Function {
    name: String,
    frame: u64,
    /// By where it begins: bytes that the call itself takes. `None` for the C library.
    calls: BTreeSet<(Option<u64>, u64)>,
}

/// All functions of the runtime by where they begin.
fn functions() -> BTreeMap<u64, Function> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == RUNTIME_OBJECT).expect("in the kit");
    let object = object::File::parse(*bytes).expect("an object");
    let text = object.section_by_name(".text").expect("code");
    let code = text.data().expect("its bytes");
    let symbols = object.symbols().filter(|symbol| symbol.section_index() == Some(text.index()));
    let mut functions: BTreeMap<u64, Function> = symbols
        .filter(|symbol| symbol.size() > 0)
        .map(|symbol| {
            let name = symbol.name().expect("a name").to_owned();
            (symbol.address(), Function { name, ..Function::default() })
        })
        .collect();
    // Targets of relocations: a place in the same section, or something elsewhere.
    let targets: BTreeMap<u64, Option<u64>> = text
        .relocations()
        .filter_map(|(place, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let symbol = object.symbol_by_index(index).ok()?;
            let is_here = symbol.section_index() == Some(text.index());
            // Relative to the end of its four bytes, which end the instruction.
            Some((place, is_here.then(|| symbol.address().wrapping_add_signed(relocation.addend() + 4))))
        })
        .collect();
    let begins: Vec<u64> = functions.keys().copied().collect();
    let ends = begins.iter().skip(1).copied().chain([code.len() as u64]);
    for (begin, end) in begins.iter().copied().zip(ends) {
        let function = functions.get_mut(&begin).expect("it is there");
        let bytes = &code[begin as usize..end as usize];
        for instruction in &mut Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE) {
            function.frame += stack_taken(&instruction);
            let by_call = match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => 8,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => 0,
                _ => continue,
            };
            let target = match targets.range(instruction.ip()..instruction.next_ip()).next() {
                Some((_, target)) => *target,
                None if instruction.flow_control() == FlowControl::IndirectCall => None,
                None => Some(instruction.near_branch_target()),
            };
            let called = target.map(|target| *begins.iter().rfind(|begin| **begin <= target).expect("code"));
            if called != Some(begin) || by_call != 0 {
                function.calls.insert((called, by_call));
            }
        }
    }
    functions
}

/// Bytes of the stack that an instruction takes. Summed up over a function, whichever of them run,
/// they are its frame at most.
fn stack_taken(instruction: &Instruction) -> u64 {
    match instruction.mnemonic() {
        Mnemonic::Push => 8,
        Mnemonic::Sub if instruction.op0_register() == Register::RSP => match instruction.op1_kind() {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => instruction.immediate(1),
            // Of a size that is known when it runs: there are none.
            other => panic!("{other:?} at {:#x}", instruction.ip()),
        },
        _ => 0,
    }
}

/// The deepest chain of calls from a function on: bytes, and its functions.
fn deepest(functions: &BTreeMap<u64, Function>, at: u64, callers: &mut Vec<u64>) -> (u64, Vec<String>) {
    let function = &functions[&at];
    let mut most = (0, Vec::new());
    // A handler's stack pointer leads to that of what it interrupted: what asks for the one asks
    // for the other, once.
    let may_go_on = callers.iter().filter(|caller| **caller == at).count() < 2;
    callers.push(at);
    for (called, by_call) in &function.calls {
        let (bytes, chain) = match called {
            None => (LIBRARY, Vec::new()),
            Some(called) if may_go_on => deepest(functions, *called, callers),
            Some(_) => continue,
        };
        if bytes + by_call > most.0 {
            most = (bytes + by_call, chain);
        }
    }
    callers.pop();
    most.1.insert(0, format!("{} {}", function.frame, function.name));
    (function.frame + most.0, most.1)
}

#[test]
fn hold_the_deepest_calls() {
    let functions = functions();
    let find =
        |name: &str| *functions.iter().find(|(_, function)| function.name.contains(name)).expect(name).0;
    let way_in = functions[&find(SLOW_COMMON)].frame + 8;
    let (bytes, chain) = deepest(&functions, find("4slow9slow_path"), &mut Vec::new());
    assert!(chain.len() > 3 && bytes > 4096, "that is too little for the slow path: {chain:?}");
    assert!(way_in + bytes <= SLOW_STACK_SIZE as u64, "{way_in} + {bytes} of {SLOW_STACK_SIZE}: {chain:#?}");
    // Other functions that run on these stacks.
    let others: Vec<u64> = functions
        .iter()
        .filter(|(_, function)| function.name.contains("slow_stacks6run_on5entry"))
        .map(|(begin, _)| *begin)
        .collect();
    assert!(others.len() >= 4, "{others:?}");
    for other in others {
        let (bytes, chain) = deepest(&functions, other, &mut Vec::new());
        assert!(bytes + 8 <= SLOW_STACK_SIZE as u64, "{bytes} of {SLOW_STACK_SIZE}: {chain:#?}");
    }
}

/// Where frames are left, the stack may be that of a signal handler, of which little is left.
#[test]
fn wrappers_need_little_of_a_threads_own_stack() {
    let functions = functions();
    let find = |name: &str| functions.iter().find(|(_, function)| function.name.contains(name)).expect(name);
    let switch = *find("13call_on_stack").0;
    for way in [
        &["9unwinding9unwinding"][..],
        &["6fibers5fiber"],
        &["3api4mark", "3api9slow_mark"],
        &["3api10quick_mark", "3api9slow_mark"],
    ] {
        let (first, last) = (find(way[0]), find(way[way.len() - 1]));
        assert!(last.1.calls.contains(&(Some(switch), 8)), "{way:?} doesn't change stacks");
        if way.len() > 1 {
            assert!(first.1.calls.iter().any(|(called, _)| *called == Some(*last.0)), "{way:?}");
        }
        let frames: u64 = way.iter().map(|entry| find(entry).1.frame + 8).sum();
        assert!(frames <= OWN_MAX, "{way:?} take {frames}");
    }
}
