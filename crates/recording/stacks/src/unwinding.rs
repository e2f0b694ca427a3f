//! From the kernel's records to stacks.

use std::ops::DerefMut;

use everycall_format::stacks::{StackSample, sample_flags};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};

use crate::arch::{INSTRUCTION, STACK};
use crate::code::Code;
use crate::kernel::KernelNames;
use crate::maps::{AllMaps, Mapping};
use crate::perf::{Perf, RecordKind, STACK_BYTES, Sample};
use crate::store::{Place, Store};
use crate::unwind::{Context, StackCopy, Step, step_by_frame_pointer};

/// Most frames of a program that are looked for in a sample.
const FRAMES_MAX: usize = 1024;
/// The kernel's name of the code that it puts into each process.
const VDSO: &[u8] = b"[vdso]";

/// Code that is mapped somewhere.
#[derive(Debug)]
struct Mapped {
    path: Vec<u8>,
    /// `None`: it is no file, or can't be read.
    code: Option<Box<Code>>,
}

/// Processes and files, as far as they are known, for unwinding.
#[derive(Default)]
pub struct Unwinding {
    maps: AllMaps,
    mapped: Vec<Mapped>,
    numbers: FxHashMap<Vec<u8>, usize>,
    kernel: Option<KernelNames>,
    context: Context,
    /// Records that may have come before others that aren't read yet.
    waiting: Vec<(u64, RecordKind)>,
    stack: Vec<Place>,
}

impl Unwinding {
    /// Takes what the kernel has recorded, all of it if it `is_over`. The store is locked for as long
    /// as it takes to add a sample.
    pub fn look<S: DerefMut<Target = Store>>(
        &mut self,
        perf: &mut Perf,
        is_over: bool,
        mut store: impl FnMut() -> S,
    ) {
        // A record of a CPU that is read first may be newer than one that another CPU writes while
        // this reads.
        let now = clock_gettime(ClockId::MonotonicRaw);
        let now = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        perf.drain(&mut self.waiting);
        self.waiting.sort_by_key(|(time, _)| *time);
        let ready = match is_over {
            true => self.waiting.len(),
            false => self.waiting.partition_point(|(time, _)| *time <= now),
        };
        let later = self.waiting.split_off(ready);
        for (time, what) in std::mem::replace(&mut self.waiting, later) {
            match what {
                RecordKind::Sample(sample) => self.sample(time, &sample, &mut store),
                RecordKind::Mapped { pid, begin, end, offset, path } => {
                    let code = self.code(pid, path);
                    self.maps.map(pid, begin, Mapping { end, code, offset });
                }
                RecordKind::Forked { parent, child } => self.maps.forked(parent, child),
                RecordKind::Executes { pid } => self.maps.executes(pid),
                RecordKind::Ended { pid } => self.maps.ended(pid),
                RecordKind::Lost(count) => store().losses.lost += count,
                RecordKind::Throttled => store().losses.throttled += 1,
            }
        }
    }

    /// The number of the code at a path.
    fn code(&mut self, pid: u32, path: Vec<u8>) -> usize {
        if let Some(number) = self.numbers.get(&path) {
            return *number;
        }
        let code = match path.first() {
            Some(b'/') => Code::read(pid, &path),
            _ if path == VDSO => Code::of_vdso(),
            _ => None,
        };
        self.numbers.insert(path.clone(), self.mapped.len());
        self.mapped.push(Mapped { path, code: code.map(Box::new) });
        self.mapped.len() - 1
    }

    fn sample<S: DerefMut<Target = Store>>(
        &mut self,
        time: u64,
        sample: &Sample,
        store: &mut impl FnMut() -> S,
    ) {
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        for address in &sample.kernel {
            let names = self.kernel.get_or_insert_with(KernelNames::read);
            let name = store().name(names.at(*address).unwrap_or_default());
            stack.push(Place::Kernel(name));
        }
        let flags = self.unwind(sample, &mut stack, store);
        let of = StackSample { time, pid: sample.pid, tid: sample.tid, node: 0, flags };
        store().push(of, &stack);
        self.stack = stack;
    }

    /// Adds the program's frames to `stack`. Returns the sample's flags.
    fn unwind<S: DerefMut<Target = Store>>(
        &mut self,
        sample: &Sample,
        stack: &mut Vec<Place>,
        store: &mut impl FnMut() -> S,
    ) -> u32 {
        let mut registers = sample.registers;
        let (Some(mut at), Some(begin)) = (registers.get(INSTRUCTION), registers.get(STACK)) else {
            return sample_flags::STOPPED;
        };
        let copy = StackCopy { begin, bytes: &sample.stack };
        let mut flags = 0;
        // Where the copy ends before the stack does.
        let is_cut = sample.stack.len() + 8 > STACK_BYTES as usize;
        let failed = if is_cut { sample_flags::CUT } else { sample_flags::STOPPED };
        for _ in 0..FRAMES_MAX {
            let Some((place, mapped, address)) = self.place(sample.pid, at, store) else {
                // A caller that is no code isn't one, but the first address is a fact.
                if stack.len() == sample.kernel.len() {
                    stack.push(Place::Memory(at));
                }
                return flags | sample_flags::STOPPED;
            };
            stack.push(place);
            let code = self.mapped.get_mut(mapped).and_then(|mapped| mapped.code.as_mut());
            let step = match code.zip(address) {
                Some((code, address)) => code.unwind.step(address, &registers, copy, &mut self.context),
                None => Step::Unknown,
            };
            let step = match step {
                Step::Unknown => {
                    let step = step_by_frame_pointer(&registers, copy);
                    if matches!(step, Step::Caller(..)) {
                        flags |= sample_flags::FRAME_POINTERS;
                    }
                    step
                }
                step => step,
            };
            match step {
                Step::Caller(caller, is_interrupted) => {
                    registers = caller;
                    let Some(back) = registers.get(INSTRUCTION) else { return flags | failed };
                    // A call may be a function's last instruction.
                    at = if is_interrupted { back } else { back.saturating_sub(1) };
                }
                Step::Outermost => return flags,
                Step::Unknown | Step::Failed => return flags | failed,
            }
        }
        flags | sample_flags::CUT
    }

    /// The place of an address, the number of what is mapped there, and the address in the file.
    fn place<S: DerefMut<Target = Store>>(
        &self,
        pid: u32,
        at: u64,
        store: &mut impl FnMut() -> S,
    ) -> Option<(Place, usize, Option<u64>)> {
        let (begin, mapping) = self.maps.at(pid, at)?;
        let mapped = self.mapped.get(mapping.code)?;
        let memory = (Place::Memory(at), mapping.code, None);
        let Some(code) = &mapped.code else { return Some(memory) };
        if mapped.path == VDSO {
            let address = at - begin;
            let name = store().name(code.function(address).unwrap_or("[vdso]"));
            return Some((Place::Vdso(name), mapping.code, Some(address)));
        }
        let Some(address) = code.address(mapping.offset.wrapping_add(at - begin)) else {
            return Some(memory);
        };
        let file = store().file(mapping.code, &mapped.path, &code.build_id);
        Some((Place::File(file, address), mapping.code, Some(address)))
    }
}
