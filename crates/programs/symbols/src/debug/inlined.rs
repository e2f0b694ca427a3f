//! Which calls the compiler inlined into each function, out of DWARF, one unit at a time.
//!
//! ```text
//! subprogram with code
//!   inlined_subroutine     abstract_origin -> who; call_file, call_line -> where
//!     inlined_subroutine   one level deeper
//!   lexical_block
//!     inlined_subroutine
//! ```
//!
//! The number of stored calls is limited for each function and for the module; the rest is counted.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{AttributeValue, Unit};

use super::file::Slice;
use super::split::UnitVisitor;
use super::walk::{Entry, Walk, read_entry};
use crate::budget::DebugError;

/// Limit on stored calls of one function.
const CALLS_MAX: usize = 256;
/// Memory of one call or name beyond its text, in bytes.
const ROW_SIZE: u64 = 64;

/// A call that was inlined.
#[derive(Clone, Debug)]
pub(crate) struct InlinedCall {
    /// Inlined calls around it.
    pub level: u32,
    /// The linker's name of the function; if it has none, its plain name.
    pub name: Arc<[u8]>,
    pub file: Option<Arc<Path>>,
    pub line: Option<u32>,
    /// Where its code is: begins and ends.
    pub ranges: Arc<[(u64, u64)]>,
}

/// The calls inlined into one function, each before those inlined into it.
#[derive(Clone, Debug, Default)]
pub(crate) struct InlinedCalls {
    pub calls: Vec<InlinedCall>,
    /// How many more there are.
    pub more: u64,
    /// Whether gcc compiled it, if the producer is known.
    pub by_gcc: Option<bool>,
}

/// The inlined calls of a module's functions, as far as their units were read.
#[derive(Default)]
pub(super) struct Inlines {
    /// By unit and offset of the function's entry.
    of: HashMap<(u32, usize), InlinedCalls>,
    /// Units that gcc compiled, and that others did.
    by_gcc: HashMap<u32, bool>,
    /// By unit, code that was made one of that of several places: where it begins and ends,
    /// ascending, and whether it has a line.
    several_places: HashMap<u32, Vec<(u64, u64, bool)>>,
    names: HashMap<Arc<[u8]>, ()>,
    paths: HashMap<Arc<Path>, ()>,
    /// Bytes that may still be stored.
    room: u64,
}

impl Inlines {
    /// For debugging information of `size` bytes.
    pub(super) fn for_input(size: u64) -> Self {
        Self { room: size / 2 + (4 << 20), ..Self::default() }
    }

    pub(super) fn of(&self, entry: (u32, usize)) -> InlinedCalls {
        let by_gcc = self.by_gcc.get(&entry.0).copied();
        InlinedCalls { by_gcc, ..self.of.get(&entry).cloned().unwrap_or_default() }
    }

    /// Whether code of a unit that was read is that of several places. `is_hook`: it calls a hook,
    /// which never has a column.
    pub(super) fn is_of_several_places(&self, unit: u32, address: u64, is_hook: bool) -> bool {
        let Some(ranges) = self.several_places.get(&unit) else { return false };
        let before = ranges.partition_point(|range| range.0 <= address);
        before.checked_sub(1).is_some_and(|at| {
            let (_, end, has_line) = ranges[at];
            address < end && !(has_line && is_hook)
        })
    }

    /// Whether another call of this function may be stored; otherwise it is counted.
    fn takes(&mut self, function: (u32, usize)) -> bool {
        let of = self.of.entry(function).or_default();
        let takes = of.calls.len() < CALLS_MAX && charge(&mut self.room, ROW_SIZE);
        of.more += u64::from(!takes);
        takes
    }

    fn add(&mut self, function: (u32, usize), call: Option<InlinedCall>) {
        let of = self.of.entry(function).or_default();
        match call {
            Some(call) => of.calls.push(call),
            None => of.more += 1,
        }
    }
}

/// Subtracts `bytes` from `room`, the bytes left. Returns false if there are too few.
fn charge(room: &mut u64, bytes: u64) -> bool {
    let left = room.checked_sub(bytes);
    *room = left.unwrap_or(*room);
    left.is_some()
}

/// A text, kept once.
fn keep<T: ?Sized + Eq + std::hash::Hash>(
    texts: &mut HashMap<Arc<T>, ()>,
    room: &mut u64,
    text: &T,
) -> Option<Arc<T>>
where
    Arc<T>: for<'t> From<&'t T>,
{
    if let Some((known, ())) = texts.get_key_value(text) {
        return Some(known.clone());
    }
    if !charge(room, size_of_val(text) as u64 + ROW_SIZE) {
        return None;
    }
    let new: Arc<T> = Arc::from(text);
    texts.insert(new.clone(), ());
    Some(new)
}

/// Reads one unit.
pub(super) struct InlineReader<'i> {
    pub unit: u32,
    pub inlines: &'i mut Inlines,
}

/// The entries that enclose the current entry.
struct Scope {
    /// Depth of the entry that opens it.
    depth: isize,
    /// The function, if it has code.
    function: Option<usize>,
    /// Level of a call inlined into it.
    level: u32,
}

impl UnitVisitor for InlineReader<'_> {
    fn visit<'a>(&mut self, walk: &mut Walk<'a>, unit: &Rc<Unit<Slice<'a>>>) -> Result<(), DebugError> {
        if let Some(root) = unit.entries().next_dfs()?
            && let Some(producer) = root.attr_value(gimli::DW_AT_producer)
        {
            let producer = walk.units.dwarf.attr_string(unit, producer)?;
            self.inlines.by_gcc.insert(self.unit, producer.slice().starts_with(b"GNU "));
        }
        let mut origins = HashMap::new();
        let mut scopes: Vec<Scope> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        let mut entry = Entry::null();
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                walk.units.budget.spend(1)?;
                continue;
            };
            let specifications = abbreviation.attributes();
            walk.units.budget.spend(1 + specifications.len() as u64)?;
            while scopes.last().is_some_and(|scope| scope.depth >= depth) {
                scopes.pop();
            }
            let has_code = specifications
                .iter()
                .any(|spec| matches!(spec.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
            entries.skip_attributes(specifications)?;
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    scopes.push(Scope { depth, function: has_code.then_some(offset.0), level: 0 });
                }
                gimli::DW_TAG_inlined_subroutine if has_code => {
                    let Some(&Scope { function: Some(function), level, .. }) = scopes.last() else {
                        continue;
                    };
                    scopes.push(Scope { depth, function: Some(function), level: level.saturating_add(1) });
                    let function = (self.unit, function);
                    if self.inlines.takes(function) {
                        read_entry(unit, offset, &mut entry)?;
                        let call = self.call(walk, unit, &entry, level, &mut origins)?;
                        self.inlines.add(function, call);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn visit_lines<'a>(&mut self, walk: &mut Walk<'a>, unit: &Unit<Slice<'a>>) -> Result<(), DebugError> {
        let Inlines { several_places, room, .. } = &mut *self.inlines;
        let ranges = several_places.entry(self.unit).or_default();
        let result = walk.code_of_several_places(unit, |begin, end, has_line| {
            if charge(room, 24) {
                ranges.push((begin, end, has_line));
            }
        });
        ranges.sort_unstable();
        result
    }
}

impl InlineReader<'_> {
    /// Reads the entry of an inlined call; `None` if it names no function, or there is no room for
    /// the name.
    fn call<'a>(
        &mut self,
        walk: &mut Walk<'a>,
        unit: &Rc<Unit<Slice<'a>>>,
        entry: &Entry<'a>,
        level: u32,
        origins: &mut HashMap<(u8, usize), Arc<[u8]>>,
    ) -> Result<Option<InlinedCall>, DebugError> {
        walk.units.budget.spend(entry.attrs().len() as u64)?;
        let origin = match entry.attr_value(gimli::DW_AT_abstract_origin) {
            Some(AttributeValue::UnitRef(offset)) => (0, offset.0),
            Some(AttributeValue::DebugInfoRef(offset)) => (1, offset.0),
            Some(AttributeValue::DebugInfoRefSup(offset)) => (2, offset.0),
            _ => return Ok(None),
        };
        let Inlines { names, paths, room, .. } = &mut *self.inlines;
        let name = match origins.get(&origin) {
            Some(known) => known.clone(),
            None => {
                let found = walk.describe(unit, entry)?;
                let Some(name) = found.linkage_name.or(found.plain_name) else { return Ok(None) };
                let Some(name) = keep(names, room, &*name) else { return Ok(None) };
                origins.insert(origin, name.clone());
                name
            }
        };
        let file = match entry.attr_value(gimli::DW_AT_call_file) {
            Some(AttributeValue::FileIndex(index)) => walk.file(unit, false, index),
            _ => None,
        };
        let file = file.and_then(|file| keep(paths, room, &*file));
        let line = entry.attr(gimli::DW_AT_call_line).and_then(gimli::Attribute::udata_value);
        let line = line.and_then(|line| u32::try_from(line).ok()).filter(|&line| line != 0);
        let mut ranges = Vec::new();
        walk.ranges(unit, entry, &mut ranges)?;
        if !charge(room, ranges.len() as u64 * 16) {
            ranges.clear();
        }
        Ok(Some(InlinedCall { level, name, file, line, ranges: ranges.into() }))
    }
}
