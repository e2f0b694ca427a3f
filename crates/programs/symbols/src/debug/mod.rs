//! Declarations of functions and the calls inlined into them, out of DWARF, one unit at a time.
//!
//! ```text
//! address --index of units' ranges--> unit --walk, once--> declaration of each function in it
//!                                      |
//!                                      +-- skeleton? --> .dwp, else .dwo
//! ```
//!
//! gimli reads the format. addr2line isn't used on top of it, for two reasons: it gives the line at
//! an address (which may be that of an inlined callee), but the line of a declaration is needed
//! here; and hostile files need the limits that `units` describes.

mod collect;
mod file;
mod inlined;
mod split;
mod units;
mod walk;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Dwarf, Unit};

pub(crate) use self::collect::EntryId;
use self::collect::{Collector, Finding};
pub(crate) use self::file::Slice;
use self::file::{DebugFile, DebugFileKind};
use self::inlined::{InlineReader, Inlines};
pub(crate) use self::inlined::{InlinedCall, InlinedCalls};
pub(crate) use self::split::SplitPlaces;
use self::split::{SplitUnits, UnitVisitor};
use self::units::{UnitLayout, Units};
use self::walk::Walk;
use crate::address_ranges::AddressRanges;
use crate::budget::{Budget, DebugError};
use crate::locate::LocatedFile;
use crate::source::CompiledSource;
use crate::table::FunctionTable;
use crate::warning::SymbolWarning;

/// The declaration of a function of the table, from DWARF.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declaration {
    pub file: Option<Arc<Path>>,
    pub line: Option<u32>,
    /// The name, if the table has none.
    pub name: Option<String>,
    /// The entry in DWARF: ranges of one function share it.
    pub entry: Option<EntryId>,
    /// The name of that entry, if it isn't the table's: linkers fold functions with the same code.
    pub entry_name: Option<Vec<u8>>,
}

/// Code from an address on, up to the next row.
#[derive(Clone, Debug)]
struct LineRow {
    address: u64,
    /// `None`: it has no line, or none of the unit's code follows.
    line: Option<(Arc<Path>, u32)>,
}

/// Reads the lines of a unit.
#[derive(Default)]
struct LineReader {
    rows: Vec<LineRow>,
    /// By number.
    files: HashMap<u64, Option<Arc<Path>>>,
}

impl UnitVisitor for LineReader {
    fn visit<'a>(&mut self, _: &mut Walk<'a>, _: &Rc<Unit<Slice<'a>>>) -> Result<(), DebugError> {
        Ok(())
    }

    fn visit_lines<'a>(&mut self, walk: &mut Walk<'a>, unit: &Unit<Slice<'a>>) -> Result<(), DebugError> {
        walk.rows(unit, |walk, address, file, line| {
            let path = || walk.file(unit, false, file).map(|path| Arc::from(&*path));
            let path = self.files.entry(file).or_insert_with(path).clone();
            let line = line.and_then(|line| Some((path?, line)));
            self.rows.push(LineRow { address, line });
        })
    }
}

/// The debugging information of one module.
pub(crate) struct DebugInfo {
    file: DebugFile,
    shared: Option<(DebugFile, UnitLayout)>,
    split: SplitUnits,
    layout: UnitLayout,
    unit_ranges: Vec<(u64, u64, u32)>,
    units_by_address: AddressRanges,
    is_read: Vec<bool>,
    declarations: HashMap<u32, Declaration>,
    /// By unit, whether its inlined calls were read.
    inlines_read: Vec<bool>,
    inlines: Inlines,
    /// By unit: the lines of its code, by address, if they were read.
    lines: HashMap<u32, Vec<LineRow>>,
    paths: HashSet<Arc<Path>>,
    budget: Budget,
    problems: Vec<String>,
}

impl DebugInfo {
    /// Loads the sections and finds out which unit covers which addresses; `None` if there are no
    /// units.
    pub(crate) fn load(
        located: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
    ) -> Result<Option<Self>, SymbolWarning> {
        guard(|| Self::load_unguarded(located, shared, places, DebugFileKind::Linked))
            .unwrap_or_else(Err)
            .map_err(|reason| SymbolWarning::DamagedDebugInfo { path: located.path.clone(), reason })
    }

    /// Like [`Self::load`], with the places of variables.
    pub(crate) fn load_with_locations(
        located: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
    ) -> Result<Option<Self>, SymbolWarning> {
        guard(|| Self::load_unguarded(located, shared, places, DebugFileKind::Located))
            .unwrap_or_else(Err)
            .map_err(|reason| SymbolWarning::DamagedDebugInfo { path: located.path.clone(), reason })
    }

    fn load_unguarded(
        located: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
        kind: DebugFileKind,
    ) -> Result<Option<Self>, String> {
        let file = DebugFile::load(&located.path, located.bytes.clone(), kind)?;
        if !file.has_units() {
            return file.problems.first().map_or(Ok(None), |problem| Err(problem.clone()));
        }
        let shared = shared.and_then(|shared| DebugFile::load(&shared.path, shared.bytes.clone(), kind).ok());
        let size = file.size() + shared.as_ref().map_or(0, DebugFile::size);
        let mut info = Self {
            problems: file.problems.clone(),
            file,
            shared: None,
            split: SplitUnits::new(places),
            layout: UnitLayout::default(),
            unit_ranges: Vec::new(),
            units_by_address: AddressRanges::default(),
            is_read: Vec::new(),
            declarations: HashMap::new(),
            inlines_read: Vec::new(),
            inlines: Inlines::for_input(size),
            lines: HashMap::new(),
            paths: HashSet::new(),
            budget: Budget::for_input(size),
        };
        if let Some(shared) = shared {
            let layout = UnitLayout::scan(&shared.dwarf(), &info.budget).unwrap_or_default();
            info.shared = Some((shared, layout));
        }
        if let Err(error) = info.index_units() {
            info.problems.push(sentence(&error));
        }
        Ok(Some(info))
    }

    /// Notes the ranges of each unit. A damaged unit is skipped.
    fn index_units(&mut self) -> Result<(), DebugError> {
        let mut ranges = Vec::new();
        let dwarf = self.file.dwarf();
        self.layout = UnitLayout::scan(&dwarf, &self.budget)?;
        self.is_read = vec![false; self.layout.count()];
        self.inlines_read = self.is_read.clone();
        let units = Units::new(&dwarf, &self.layout, &self.budget);
        let mut result = Ok(());
        for index in 0..self.layout.count() {
            match unit_ranges(&units, index, &mut ranges) {
                Err(DebugError::Exhausted) => {
                    result = Err(DebugError::Exhausted);
                    break;
                }
                Err(error) if result.is_ok() => result = Err(error),
                _ => {}
            }
        }
        ranges.sort_unstable();
        self.units_by_address = AddressRanges::from_sorted(ranges.iter().copied());
        self.unit_ranges = ranges;
        self.unit_ranges.sort_unstable_by_key(|range| range.2);
        result
    }

    /// The declaration of function `index` of the table, reading its unit if that wasn't done yet.
    pub(crate) fn declaration(&mut self, index: u32, table: &FunctionTable) -> Option<Declaration> {
        let start = table.start(index as usize)?;
        let unit = self.units_by_address.find(start)?;
        if !std::mem::replace(self.is_read.get_mut(unit as usize)?, true) {
            let read = guard(|| self.read_unit(unit, table).map_err(|error| sentence(&error)));
            if let Err(problem) = read.and_then(|read| read) {
                self.problems.push(problem);
            }
        }
        self.declarations.get(&index).cloned()
    }

    /// The calls inlined into the function with this entry.
    pub(crate) fn inlined(&mut self, entry: EntryId) -> InlinedCalls {
        let unit = entry.0;
        if self.inlines_read.get_mut(unit as usize).is_some_and(|is_read| !std::mem::replace(is_read, true)) {
            let mut inlines = std::mem::take(&mut self.inlines);
            let read = guard(|| {
                let mut reader = InlineReader { unit, inlines: &mut inlines };
                self.visit(unit, &mut reader).map_err(|error| sentence(&error))
            });
            self.inlines = inlines;
            if let Err(problem) = read.and_then(|read| read) {
                self.problems.push(problem);
            }
        }
        self.inlines.of(entry)
    }

    /// Whether code of the function with this entry, whose inlined calls were read, is that of
    /// several places. `is_hook`: it calls a hook.
    pub(crate) fn is_of_several_places(&self, entry: EntryId, address: u64, is_hook: bool) -> bool {
        self.inlines.is_of_several_places(entry.0, address, is_hook)
    }

    /// File and line of the code at an address: of the innermost function that was inlined there.
    pub(crate) fn line_at(&mut self, address: u64) -> Option<(Arc<Path>, u32)> {
        let unit = self.units_by_address.find(address)?;
        if !self.lines.contains_key(&unit) {
            let mut reader = LineReader::default();
            let read = guard(|| self.visit(unit, &mut reader).map_err(|error| sentence(&error)));
            let mut rows = reader.rows;
            if let Err(problem) = read.and_then(|result| result) {
                self.problems.push(problem);
                rows.clear();
            }
            // Where code ends, other code may begin.
            rows.sort_by_key(|row| (row.address, row.line.is_some()));
            self.lines.insert(unit, rows);
        }
        let rows = self.lines.get(&unit)?;
        let row = rows.partition_point(|row| row.address <= address).checked_sub(1)?;
        rows.get(row)?.line.clone()
    }

    /// Errors since the last call.
    pub(crate) fn take_warnings(&mut self, module: &Path) -> Vec<SymbolWarning> {
        let mut warnings = Vec::new();
        let mut problems = std::mem::take(&mut self.problems);
        problems.dedup();
        if let Some(first) = problems.first() {
            let reason = match problems.len() {
                1 => first.clone(),
                count => format!("{first}; and {} more", count - 1),
            };
            warnings.push(SymbolWarning::DamagedDebugInfo { path: self.file.path.clone(), reason });
        }
        if let Some((example, count)) = self.split.take_missing() {
            warnings.push(SymbolWarning::MissingSplitUnits { path: module.to_path_buf(), example, count });
        }
        warnings
    }

    fn read_unit(&mut self, index: u32, table: &FunctionTable) -> Result<(), DebugError> {
        let from = self.unit_ranges.partition_point(|range| range.2 < index);
        let ranges = self.unit_ranges[from..].iter().take_while(|range| range.2 == index);
        let mut collector = Collector::new(index, table, ranges.map(|range| (range.0, range.1)).collect());
        let result = self.visit(index, &mut collector);
        for finding in collector.findings {
            self.keep(finding, table);
        }
        result
    }

    /// Calls `read` with the unit that contains an address, split or not. `Ok(false)`: there is
    /// none.
    ///
    /// # Errors
    ///
    /// A sentence, if the unit can't be read.
    pub(crate) fn read_unit_at(&mut self, address: u64, read: UnitReader<'_>) -> Result<bool, String> {
        let Some(unit) = self.units_by_address.find(address) else { return Ok(false) };
        let mut reading = Reading { read, is_done: false };
        guard(|| self.visit(unit, &mut reading).map_err(|error| sentence(&error)))
            .and_then(|result| result)?;
        Ok(reading.is_done)
    }

    /// Lets `visitor` go through the entries of a unit.
    fn visit(&mut self, index: u32, visitor: &mut dyn UnitVisitor) -> Result<(), DebugError> {
        let mut dwarf = self.file.dwarf();
        if let Some((shared, _)) = &self.shared {
            dwarf.set_sup(shared.dwarf());
        }
        let units = Units::new(&dwarf, &self.layout, &self.budget);
        let shared_dwarf = self.shared.as_ref().map(|(shared, layout)| (shared.dwarf(), layout));
        let shared = shared_dwarf.as_ref().map(|(dwarf, layout)| Units::new(dwarf, layout, &self.budget));
        let unit = units.open(index as usize)?;
        let mut walk = Walk::new(&units, shared.as_ref());
        let result = match split::name(&dwarf, &unit) {
            None => visitor.visit(&mut walk, &unit),
            Some(name) => self.split.read(&dwarf, &unit, &name, &self.budget, visitor),
        };
        let lines = visitor.visit_lines(&mut walk, &unit);
        result.and(lines)
    }

    /// Checksum and folder of a source file that was named.
    pub(crate) fn compiled_source(&self, path: &Path) -> Option<CompiledSource> {
        self.budget.sources.borrow().get(path).cloned()
    }

    fn keep(&mut self, finding: Finding, table: &FunctionTable) {
        let Finding { function, entry, found } = finding;
        let file = found.file.map(|path| match self.paths.get(&*path) {
            Some(known) => known.clone(),
            None => {
                let path: Arc<Path> = Arc::from(&*path);
                self.paths.insert(path.clone());
                path
            }
        });
        let known = table.entry(crate::FunctionId(function)).map_or(&[][..], |entry| entry.linkage_name);
        let name = found.linkage_name.or(found.plain_name);
        let is_same =
            |name: &[u8]| String::from_utf8_lossy(known).split('.').next() == str::from_utf8(name).ok();
        let is_exact = name.as_deref().is_some_and(is_same);
        let declaration = self.declarations.entry(function).or_default();
        if entry.is_some() && (is_exact || declaration.entry.is_none()) {
            // Of several functions that were folded into one, use the one that gives its name.
            if is_exact && declaration.entry_name.is_some() {
                *declaration = Declaration::default();
            }
            declaration.entry_name = name.clone().filter(|_| !is_exact);
        }
        let name = name.filter(|_| known.is_empty());
        // The first word stays, for file and line together: the second may be the line program's.
        if declaration.line.is_none() && found.line.is_some() {
            declaration.line = found.line;
            declaration.file = file;
        } else if declaration.file.is_none() {
            declaration.file = file;
        }
        declaration.name =
            declaration.name.take().or(name.map(|name| String::from_utf8_lossy(&name).into_owned()));
        declaration.entry = declaration.entry.or(entry);
    }
}

/// Reads a unit, with the sections that its entries are in.
pub type UnitReader<'r> = &'r mut dyn for<'a> FnMut(&Dwarf<Slice<'a>>, &Rc<Unit<Slice<'a>>>);

/// Hands a unit to a reader outside of this crate.
struct Reading<'r> {
    read: UnitReader<'r>,
    is_done: bool,
}

impl UnitVisitor for Reading<'_> {
    fn visit<'a>(&mut self, walk: &mut Walk<'a>, unit: &Rc<Unit<Slice<'a>>>) -> Result<(), DebugError> {
        self.is_done = true;
        (self.read)(walk.units.dwarf, unit);
        Ok(())
    }
}

/// Runs `read`; a panic in a library becomes a sentence.
fn guard<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| "its reader gave up on it".to_owned())
}

fn sentence(error: &DebugError) -> String {
    match error {
        DebugError::Malformed(error) => format!("DWARF is damaged: {error}"),
        DebugError::Exhausted => "DWARF asks for more work than its size can justify".to_owned(),
    }
}

fn unit_ranges(units: &Units<'_>, index: usize, out: &mut Vec<(u64, u64, u32)>) -> Result<(), DebugError> {
    let unit = units.open(index)?;
    let mut ranges = units.dwarf.unit_ranges(&unit)?;
    while let Some(range) = ranges.next()? {
        // As much as the memory that it takes, so that the list stays below the input's size.
        units.budget.spend(64)?;
        if range.begin != 0 && range.begin < range.end {
            out.push((range.begin, range.end, index as u32));
        }
    }
    Ok(())
}
