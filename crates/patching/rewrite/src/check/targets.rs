//! Every address that the checker knows something to lead to.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::decode::{Decoder, Next};
use super::elf::{Bytes, Loaded};
use super::frames;
use crate::parallel;

/// A reference to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A jump at this address.
    Jump(u64),
    /// A call, data, an exception, or an address that is computed.
    Other,
}

/// References in the whole file.
#[derive(Default)]
pub(super) struct References {
    /// Sorted.
    targets: Vec<(u64, Source)>,
    /// Starts of functions, with their ends.
    pub(super) functions: BTreeMap<u64, u64>,
    /// Of the functions asked for: where they return, and the instruction that continues there.
    pub(super) returns: FxHashMap<u64, Vec<(u64, Option<u64>)>>,
    /// NOPs behind what doesn't continue, and code that can't be read, sorted.
    dead: Vec<(u64, u64)>,
    /// Jumps with a displacement of 32 bits, by where that is, of those asked for.
    pub(super) jumps: FxHashMap<u64, u64>,
}

impl References {
    /// `planned`: functions whose returns are needed; `displacements`: where jumps are needed.
    pub(super) fn of(file: &Loaded<'_>, planned: &FxHashSet<u64>, displacements: &FxHashSet<u64>) -> Self {
        let mut known = Self::default();
        let frames = frames::read(file);
        for (start, size) in file.symbols().into_iter().chain(frames.functions) {
            if file.is_code(start) {
                let end = known.functions.entry(start).or_default();
                *end = (*end).max(start.saturating_add(size));
            }
        }
        known.targets.extend(file.addresses().into_iter().chain(frames.pads).map(|at| (at, Source::Other)));
        let functions: Vec<(u64, u64)> = known.functions.iter().map(|(start, end)| (*start, *end)).collect();
        let parts = parallel::chunks(&functions, |_, functions| {
            let (mut part, decoder) = (Self::default(), Decoder::new());
            for &(start, end) in functions {
                part.function(file, &decoder, (start, end), planned.contains(&start), displacements);
            }
            part
        });
        for part in parts {
            known.targets.extend(part.targets);
            known.returns.extend(part.returns);
            known.dead.extend(part.dead);
            known.jumps.extend(part.jumps);
        }
        known.targets.sort_unstable_by_key(|(at, _)| *at);
        known.dead.sort_unstable();
        known
    }

    fn function(
        &mut self,
        file: &Loaded<'_>,
        decoder: &Decoder,
        (start, end): (u64, u64),
        is_planned: bool,
        displacements: &FxHashSet<u64>,
    ) {
        let bytes = file.from(start);
        let bytes = &bytes[..bytes.len().min(usize::try_from(end - start).unwrap_or(0))];
        let mut at = 0;
        let mut before = None;
        let mut tables = Vec::new();
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let here = start + at as u64;
            // From another place on, it might find jumps that aren't there.
            let Some(decoded) = decoder.decode(rest, here) else {
                self.dead.push((here, end));
                break;
            };
            let next = here + decoded.length;
            at += decoded.length as usize;
            match decoded.next {
                Next::Jump(target) | Next::Branch(target) => {
                    self.targets.push((target, Source::Jump(here)));
                    if decoded.length >= 5 && displacements.contains(&(next - 4)) {
                        self.jumps.insert(next - 4, here);
                    }
                }
                Next::Call(Some(target)) => self.targets.push((target, Source::Other)),
                Next::Return if is_planned => self.returns.entry(start).or_default().push((here, before)),
                _ => {}
            }
            before = Some(here).filter(|_| decoded.next.continues());
            let is_over = !decoded.next.continues();
            let is_last = at >= bytes.len() && matches!(decoded.next, Next::Call(_));
            if is_over || is_last {
                let length = nops(decoder, file.from(next));
                if length > 0 {
                    self.dead.push((next, next + length));
                }
            }
            let absolute = decoded.immediate.filter(|_| file.is_fixed);
            for address in decoded.relative.filter(|_| decoded.is_lea).into_iter().chain(absolute) {
                if file.is_code(address) {
                    self.targets.push((address, Source::Other));
                } else {
                    tables.push(address);
                }
            }
        }
        // Each may be a table of offsets to code of this function.
        for table in tables {
            let bytes = Bytes(file.from(table));
            let entries = (0..).map_while(|index: u64| bytes.u32(4 * index));
            let entries = entries.map(|entry| table.wrapping_add_signed(i64::from(entry as i32)));
            // Those that are never used may lead to the function's end.
            let inside = entries.take_while(|&entry| entry >= start && entry <= end);
            self.targets.extend(inside.map(|entry| (entry, Source::Other)));
        }
    }

    /// Whether nothing reaches `start..end` but a jump, which it isn't known to.
    pub(super) fn is_dead(&self, start: u64, end: u64) -> bool {
        let behind = self.dead.partition_point(|(first, _)| *first <= start);
        let holds = |index: usize| self.dead.get(index).is_some_and(|&(_, last)| last >= end);
        behind.checked_sub(1).is_some_and(holds)
    }

    /// Those in `start..end`.
    pub(super) fn within(&self, start: u64, end: u64) -> &[(u64, Source)] {
        let first = self.targets.partition_point(|(at, _)| *at < start);
        let last = self.targets.partition_point(|(at, _)| *at < end);
        self.targets.get(first..last).unwrap_or_default()
    }
}

/// How many of the first bytes do nothing: NOPs, `int3`, zeros.
pub(super) fn nops(decoder: &Decoder, bytes: &[u8]) -> u64 {
    /// More isn't asked for.
    const MAX: usize = 8192;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty() && at < MAX) {
        if matches!(rest[0], 0xcc | 0x90 | 0) {
            at += 1;
            continue;
        }
        match decoder.decode(rest, 0) {
            Some(decoded) if decoded.is_nop() => at += decoded.length as usize,
            _ => break,
        }
    }
    at as u64
}
