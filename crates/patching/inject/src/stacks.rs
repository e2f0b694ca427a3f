//! Contents of threads' stacks: frames that signals left, and addresses.
//!
//! A signal handler returns to where the thread was interrupted, which may be between two
//! instructions that a patch replaces. The kernel's frame is found by its shape; nothing has to be
//! unwound. A frame on a stack that no thread is on (a handler that switched to another coroutine)
//! isn't found.

use std::ops::Range;

use crate::error::{InjectError, failed};
use crate::frame::{SEEN, interrupted};
use crate::gadget::is_restorer;
use crate::maps::{Mapping, holding};
use crate::memory::Memory;
use crate::sys::Registers;

/// Of an alternate stack inside a heap, whose end isn't known.
const UNKNOWN_STACK_MAX: u64 = 1 << 20;
/// Stacks that one signal handler after the other was started on.
const NESTED_MAX: usize = 16;

/// The live parts of the stacks that threads are on, or return to from signal handlers.
#[derive(Default)]
pub(crate) struct Stacks {
    /// Where threads go on when signal handlers return.
    pub(crate) interrupted: Vec<u64>,
    parts: Vec<Vec<u8>>,
}

impl Stacks {
    pub(crate) fn of(memory: &Memory, maps: &[Mapping], threads: &[Registers]) -> Result<Self, InjectError> {
        let mut stacks = Self::default();
        for registers in threads {
            let mut next = vec![registers.rsp];
            let mut seen: Vec<Range<u64>> = Vec::new();
            while let Some(rsp) = next.pop() {
                if seen.len() >= NESTED_MAX || seen.iter().any(|part| part.contains(&rsp)) {
                    continue;
                }
                let Some(part) = live_part(maps, rsp, registers.fs_base) else { continue };
                let size = usize::try_from(part.end - part.start).unwrap_or(0);
                let bytes = memory.read(part.start, size).map_err(failed("reading a thread's stack"))?;
                for (rip, interrupted_rsp) in frames(memory, part.start, &bytes) {
                    stacks.interrupted.push(rip);
                    next.push(interrupted_rsp);
                }
                seen.push(part);
                stacks.parts.push(bytes);
            }
        }
        Ok(stacks)
    }

    /// Some word on a stack points into a range.
    pub(crate) fn point_into(&self, range: &Range<u64>) -> bool {
        self.parts
            .iter()
            .flat_map(|part| part.as_chunks().0)
            .any(|word| range.contains(&u64::from_le_bytes(*word)))
    }
}

fn live_part(maps: &[Mapping], rsp: u64, fs_base: u64) -> Option<Range<u64>> {
    let stack = holding(maps, rsp).filter(|mapping| mapping.is_readable)?;
    let is_whole = stack.name == "[stack]" || stack.range.contains(&fs_base);
    let start = rsp & !7;
    let end = if is_whole { stack.range.end } else { stack.range.end.min(start + UNKNOWN_STACK_MAX) };
    Some(start..end)
}

fn frames(memory: &Memory, start: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    // The kernel aligns frames so that the handler sees a stack as after a call.
    let first = (8u64.wrapping_sub(start) & 15) as usize;
    (first..bytes.len())
        .step_by(16)
        .filter_map(|offset| {
            let frame = bytes.get(offset..offset + SEEN)?;
            let found = interrupted(frame)?;
            let restorer = u64::from_le_bytes(frame.get(..8)?.try_into().ok()?);
            is_restorer(memory, restorer).then_some(found)
        })
        .collect()
}
