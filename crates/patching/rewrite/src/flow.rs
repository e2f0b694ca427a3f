//! Units (a function with its parts), their exits, and every address that may be jumped to.

use rustc_hash::FxHashMap;

use crate::bitmap::Bitmap;
use crate::code::decode;
use crate::functions::{Function, Functions};
use crate::image::Image;
use crate::parallel;
use crate::parts::Parts;
use crate::references::References;
use crate::refusal::Refusal;
use crate::scan::{Scan, Scans};
use crate::tables::{Indirect, Judge, Targets};
use crate::unwind::Unwind;

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitKind {
    Return,
    /// A jump into another function.
    Tail,
    /// Such a jump, if a condition holds.
    ConditionalTail,
    IndirectTail,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    pub(crate) at: u64,
    pub(crate) kind: ExitKind,
}

/// A function with its parts.
pub(crate) struct Unit<'a> {
    pub(crate) start: u64,
    pub(crate) name: &'a str,
    /// The first one has the entry.
    pub(crate) parts: Vec<(u64, u64)>,
    /// Sorted by their addresses.
    pub(crate) exits: Vec<Exit>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) has_entry_loop: bool,
    /// It calls nothing, has no table and one part, and other code knows no addresses in its
    /// middle.
    pub(crate) is_leaf: bool,
}

impl Unit<'_> {
    /// Bytes of all parts.
    pub(crate) fn size(&self) -> u64 {
        self.parts.iter().map(|(start, end)| end - start).sum()
    }

    fn contains(&self, at: u64) -> bool {
        self.parts.iter().any(|&(start, end)| at >= start && at < end)
    }

    pub(crate) fn part_of(&self, at: u64) -> Option<(u64, u64)> {
        self.parts.iter().copied().find(|&(start, end)| at >= start && at < end)
    }

    pub(crate) fn exit_at(&self, at: u64) -> Option<Exit> {
        let index = self.exits.binary_search_by_key(&at, |exit| exit.at).ok()?;
        self.exits.get(index).copied()
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refusal = self.refusal.or(Some(refusal));
    }
}

/// All units of a file.
pub(crate) struct Flow<'a> {
    /// Sorted by their starts.
    pub(crate) units: Vec<Unit<'a>>,
    /// Every address that something may jump, call or return to, but not by continuing.
    pub(crate) targets: Bitmap,
    /// Those that something else leads to than a jump with a displacement in the same function.
    pub(crate) entered: Bitmap,
    pub(crate) starts: Bitmap,
    /// Bytes that do nothing and aren't reached.
    pub(crate) padding: Bitmap,
    /// Parts whose function isn't known.
    pub(crate) lost_parts: usize,
}

/// Names of functions that don't return as others do.
const SPECIAL: [&str; 20] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "savectx",
    "vfork",
    "__vfork",
    "getcontext",
    "setcontext",
    "swapcontext",
    "__start_context",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "__restore_rt",
    "__restore",
    "_start",
    "_rust_probestack",
];

pub(crate) fn flow<'a>(
    image: &Image<'_>,
    functions: &Functions<'a>,
    mut scans: Scans,
    unwind: &Unwind,
    references: &References,
    untouchable: &Bitmap,
) -> Flow<'a> {
    let taken = std::mem::take(&mut scans.taken);
    references.code.iter().chain(&taken).for_each(|&address| scans.enter(address));
    scans.taken = taken;
    unwind.landing_pads.iter().for_each(|&(_, pad)| scans.enter(pad));
    let parts = Parts::find(functions, &scans, unwind, references);
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); functions.all.len()];
    for (index, root) in parts.root.iter().enumerate() {
        if let Some(group) = root.and_then(|root| groups.get_mut(root)) {
            group.push(index);
        }
    }
    let jumps = indirect_jumps(image, functions, &scans, unwind, references, &groups, &parts);
    for (_, targets) in &jumps {
        targets.iter().for_each(|&target| scans.enter(target));
    }
    let kinds: FxHashMap<u64, Indirect> = jumps.into_iter().flat_map(|(kinds, _)| kinds).collect();
    let builder = Builder { image, functions, scans: &scans, unwind, references, kinds, roots: &parts.root };
    let mut shared: Vec<usize> = Vec::new();
    let mut units = Vec::new();
    let mut unit_of: Vec<Option<usize>> = vec![None; functions.all.len()];
    for (root, group) in groups.iter().enumerate().filter(|(_, group)| !group.is_empty()) {
        if let Some(slot) = unit_of.get_mut(root) {
            *slot = Some(units.len());
        }
        units.extend(builder.unit(root, group, &mut shared));
    }
    let mut refuse = |index: usize, refusal: Refusal| {
        let root = parts.root.get(index).copied().flatten().unwrap_or(index);
        if let Some(unit) = unit_of.get(root).copied().flatten().and_then(|unit| units.get_mut(unit)) {
            unit.refuse(refusal);
        }
    };
    parts.overlapping.iter().for_each(|&index| refuse(index, Refusal::Overlap));
    shared.iter().for_each(|&index| refuse(index, Refusal::SharedCode));
    // A call into the middle of a function makes it two.
    for &call in scans.all.iter().flat_map(|scan| &scan.calls) {
        if let Some(owner) = functions.owner(call)
            && functions.all.get(owner).is_some_and(|function| function.start != call)
        {
            refuse(owner, Refusal::SharedCode);
        }
    }
    for (index, scan) in scans.all.iter().enumerate().filter(|(_, scan)| scan.falls_through) {
        refuse(index, Refusal::FallsThrough);
        // Padding between the two may be run.
        let end = functions.all.get(index).map_or(0, |function| function.end);
        if scan.falls_through
            && functions.all.get(index + 1).is_some_and(|next| next.start >= end && next.start - end < 64)
        {
            refuse(index + 1, Refusal::FallsThrough);
        }
    }
    let padding = padding(image, functions, &scans, untouchable);
    let lost_parts = parts.root.iter().filter(|root| root.is_none()).count();
    Flow { units, targets: scans.targets, entered: scans.entered, starts: scans.starts, padding, lost_parts }
}

/// For each function with indirect jumps: what they are, and where they may lead to.
type Jumps = Vec<(Vec<(u64, Indirect)>, Vec<u64>)>;

fn indirect_jumps(
    image: &Image<'_>,
    functions: &Functions<'_>,
    scans: &Scans,
    unwind: &Unwind,
    references: &References,
    groups: &[Vec<usize>],
    parts: &Parts,
) -> Jumps {
    let with: Vec<(usize, &Scan)> =
        scans.all.iter().enumerate().filter(|(_, scan)| !scan.indirect.is_empty()).collect();
    let range = |&index: &usize| functions.all.get(index).map(|function| (function.start, function.end));
    let found = parallel::chunks(&with, |_, with| {
        let one = |&(index, scan): &(usize, &Scan)| {
            let function = functions.all.get(index)?;
            let root = parts.root.get(index).copied().flatten();
            let group = root.and_then(|root| groups.get(root)).map_or(&[][..], Vec::as_slice);
            let mut ranges: Vec<(u64, u64)> = group.iter().filter_map(range).collect();
            if ranges.is_empty() {
                ranges.push((function.start, function.end));
            }
            let inside = |list: &[u64]| {
                let first = list.partition_point(|address| *address <= function.start);
                list.partition_point(|address| *address < function.end).saturating_sub(first)
            };
            let labels = inside(&references.code) + inside(&scans.taken);
            let instructions = decode(image, function.start, function.end);
            let judge = Judge {
                image,
                unwind,
                references,
                scan,
                instructions: &instructions,
                ranges: &ranges,
                labels,
            };
            let mut targets = Targets::default();
            let mut kinds = Vec::new();
            for &at in &scan.indirect {
                let index = instructions.partition_point(|instruction| instruction.ip() < at);
                kinds.push((at, judge.judge(index, &mut targets)));
            }
            Some((kinds, targets.all))
        };
        with.iter().filter_map(one).collect::<Vec<_>>()
    });
    found.into_iter().flatten().collect()
}

struct Builder<'a, 'f> {
    image: &'a Image<'a>,
    functions: &'a Functions<'f>,
    scans: &'a Scans,
    unwind: &'a Unwind,
    references: &'a References,
    kinds: FxHashMap<u64, Indirect>,
    roots: &'a [Option<usize>],
}

impl<'f> Builder<'_, 'f> {
    /// `shared` gets functions into whose middle it jumps.
    fn unit(&self, root: usize, group: &[usize], shared: &mut Vec<usize>) -> Option<Unit<'f>> {
        let function = self.functions.all.get(root)?;
        let members: Vec<(&Function<'f>, &Scan)> = std::iter::once(root)
            .chain(group.iter().copied().filter(|&index| index != root))
            .filter_map(|index| Some((self.functions.all.get(index)?, self.scans.all.get(index)?)))
            .collect();
        let mut unit = Unit {
            start: function.start,
            name: function.name,
            parts: members.iter().map(|(part, _)| (part.start, part.end)).collect(),
            exits: Vec::new(),
            refusal: None,
            has_entry_loop: false,
            is_leaf: members.len() == 1,
        };
        if members.iter().any(|(part, _)| part.is_signal) || SPECIAL.contains(&function.name) {
            unit.refuse(Refusal::Special);
        }
        if !function.has_unwind {
            unit.refuse(Refusal::NoUnwind);
        }
        let is_root = |scan: &Scan| members.first().is_some_and(|(_, first)| std::ptr::eq(*first, scan));
        for &(part, scan) in &members {
            if scan.has_data {
                unit.refuse(Refusal::Data);
            }
            if is_root(scan) && scan.reads_flags {
                unit.refuse(Refusal::ReadsFlags);
            }
            unit.has_entry_loop |= is_root(scan) && scan.has_entry_loop;
            unit.is_leaf &= !scan.has_calls && !part.has_landing_pads;
            unit.is_leaf &= !self.is_known_inside(part.start, part.end);
            unit.exits.extend(scan.returns.iter().map(|&at| Exit { at, kind: ExitKind::Return }));
            for &at in &scan.indirect {
                match self.kinds.get(&at) {
                    Some(Indirect::Table) => unit.is_leaf = false,
                    Some(Indirect::Tail) => unit.exits.push(Exit { at, kind: ExitKind::IndirectTail }),
                    Some(Indirect::Unknown) | None => unit.refuse(Refusal::UnknownJump),
                }
            }
            for jump in &scan.leaving {
                if jump.to == function.start {
                    unit.has_entry_loop = true;
                    continue;
                }
                if unit.contains(jump.to) {
                    continue;
                }
                let owner = self.functions.owner(jump.to);
                let has_frame = self.unwind.is_at_entry_level(jump.at) == Some(false);
                let is_entry = match owner.and_then(|owner| self.functions.all.get(owner)) {
                    Some(other) => other.start == jump.to,
                    None => self.image.is_code(jump.to) && !has_frame,
                };
                if is_entry {
                    let kind = if jump.is_conditional { ExitKind::ConditionalTail } else { ExitKind::Tail };
                    unit.exits.push(Exit { at: jump.at, kind });
                } else {
                    unit.refuse(Refusal::SharedCode);
                    shared
                        .extend(owner.map(|owner| self.roots.get(owner).copied().flatten().unwrap_or(owner)));
                }
            }
        }
        unit.exits.sort_by_key(|exit| exit.at);
        Some(unit)
    }

    /// Whether data or instructions have addresses in the middle of `start..end`.
    fn is_known_inside(&self, start: u64, end: u64) -> bool {
        let first = self.scans.taken.partition_point(|address| *address <= start);
        self.references.any(start + 1, end)
            || self.scans.taken.get(first).is_some_and(|address| *address < end)
    }
}

/// Bytes that nothing reaches: behind unconditional jumps, and between functions.
fn padding(image: &Image<'_>, functions: &Functions<'_>, scans: &Scans, untouchable: &Bitmap) -> Bitmap {
    /// More isn't needed.
    const MAX: u64 = 4096;
    let mut free = Bitmap::new(image.code.0, image.code.1);
    let mut add = |start: u64, end: u64| {
        let end = scans.targets.first(start, end).unwrap_or(end);
        let end = untouchable.first(start, end).unwrap_or(end);
        free.set_all(start, end);
    };
    for (index, scan) in scans.all.iter().enumerate() {
        let Some(function) = functions.all.get(index) else { continue };
        if scan.has_data {
            continue;
        }
        scan.padding.iter().for_each(|&(start, end)| add(start, end));
        if scan.ends_dead {
            let next = functions.all.get(index + 1).map_or(u64::MAX, |next| next.start);
            let end = next.min(function.end.saturating_add(MAX));
            let dead = crate::code::padding(image.bytes(function.end, end)) as u64;
            add(function.end, function.end + dead);
        }
    }
    free
}
