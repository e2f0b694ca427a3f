//! Declarations of functions, out of DWARF, one unit at a time.
//!
//! ```text
//! address --index of units' ranges--> unit --walk, once--> declaration of each function in it
//!                                      |
//!                                      +-- skeleton? --> .dwp, else .dwo
//! ```
//!
//! gimli reads the format. addr2line isn't used on top of it: what is wanted here is the line of a declaration,
//! where it answers for the line at an address (which may be that of an inlined callee), and hostile files
//! need the bounds that `units` describes.

mod file;
mod units;
mod walk;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Dwarf, Unit};

use self::file::{DebugFile, DebugFileKind, Slice};
use self::units::{UnitLayout, Units};
use self::walk::{Found, Walk};
use crate::address_ranges::AddressRanges;
use crate::budget::{Budget, DebugError};
use crate::file_bytes::FileBytes;
use crate::locate::{LocatedFile, path_from_bytes};
use crate::options::PathMap;
use crate::table::FunctionTable;
use crate::warning::SymbolWarning;

/// What DWARF says of one function of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declaration {
    pub file: Option<Arc<Path>>,
    pub line: Option<u32>,
    /// The name, where the table has none.
    pub name: Option<String>,
    /// Identifies the entry: ranges of one function share it.
    pub entry: Option<(u32, usize)>,
}

/// Where split units may lie.
pub(crate) struct SplitPlaces {
    /// Whether any file may be opened for them.
    pub may_open: bool,
    /// Files whose `.dwp` neighbour may hold the units.
    pub neighbours: Vec<PathBuf>,
    pub maps: Vec<PathMap>,
}

/// The debugging information of one module.
pub(crate) struct DebugInfo {
    file: DebugFile,
    shared: Option<(DebugFile, UnitLayout)>,
    /// `None` until it is looked for.
    package: Option<Option<DebugFile>>,
    places: SplitPlaces,
    layout: UnitLayout,
    unit_ranges: Vec<(u64, u64, u32)>,
    units_by_address: AddressRanges,
    is_read: Vec<bool>,
    declarations: HashMap<u32, Declaration>,
    paths: HashSet<Arc<Path>>,
    budget: Budget,
    missing_split: Option<(PathBuf, usize)>,
    problems: Vec<String>,
}

impl DebugInfo {
    /// Loads the sections and finds out which unit covers which addresses; `None` where there are no units.
    pub(crate) fn load(
        located: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
    ) -> Result<Option<Self>, SymbolWarning> {
        guard(|| Self::load_unguarded(located, shared, places))
            .unwrap_or_else(Err)
            .map_err(|reason| SymbolWarning::DamagedDebugInfo { path: located.path.clone(), reason })
    }

    fn load_unguarded(
        located: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
    ) -> Result<Option<Self>, String> {
        let file = DebugFile::load(&located.path, located.bytes.clone(), DebugFileKind::Linked)?;
        if !file.has_units() {
            return file.problems.first().map_or(Ok(None), |problem| Err(problem.clone()));
        }
        let shared = shared.and_then(|shared| {
            DebugFile::load(&shared.path, shared.bytes.clone(), DebugFileKind::Linked).ok()
        });
        let size = file.size() + shared.as_ref().map_or(0, DebugFile::size);
        let mut info = Self {
            problems: file.problems.clone(),
            file,
            shared: None,
            package: None,
            places,
            layout: UnitLayout::default(),
            unit_ranges: Vec::new(),
            units_by_address: AddressRanges::default(),
            is_read: Vec::new(),
            declarations: HashMap::new(),
            paths: HashSet::new(),
            budget: Budget::for_input(size),
            missing_split: None,
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

    /// What went wrong since the last call.
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
        if let Some((example, count)) = self.missing_split.take() {
            warnings.push(SymbolWarning::MissingSplitUnits { path: module.to_path_buf(), example, count });
        }
        warnings
    }

    fn read_unit(&mut self, index: u32, table: &FunctionTable) -> Result<(), DebugError> {
        let mut findings = Vec::new();
        let result = self.find_in_unit(index, table, &mut findings);
        for (function, entry, found) in findings {
            self.keep(function, entry, found, table);
        }
        result
    }

    fn find_in_unit(
        &mut self,
        index: u32,
        table: &FunctionTable,
        findings: &mut Vec<(u32, Option<(u32, usize)>, Found)>,
    ) -> Result<(), DebugError> {
        self.open_package();
        let mut dwarf = self.file.dwarf();
        if let Some((shared, _)) = &self.shared {
            dwarf.set_sup(shared.dwarf());
        }
        let units = Units::new(&dwarf, &self.layout, &self.budget);
        let shared_dwarf = self.shared.as_ref().map(|(shared, layout)| (shared.dwarf(), layout));
        let shared = shared_dwarf.as_ref().map(|(dwarf, layout)| Units::new(dwarf, layout, &self.budget));
        let unit = units.open(index as usize)?;
        let mut walk = Walk::new(&units, shared.as_ref());
        let result = match split_name(&dwarf, &unit) {
            None => walk_functions(&mut walk, &unit, index, table, findings),
            Some(name) => {
                let package = self.package.as_ref().and_then(Option::as_ref);
                let split = find_in_split(
                    package,
                    &self.places,
                    &dwarf,
                    &unit,
                    &name,
                    &self.budget,
                    index,
                    table,
                    findings,
                );
                if matches!(split, Err(DebugError::Malformed(gimli::Error::MissingUnitDie))) {
                    let missing = self.missing_split.get_or_insert_with(|| (name.clone(), 0));
                    missing.1 += 1;
                    Ok(())
                } else {
                    split
                }
            }
        };
        let ranges = &self.unit_ranges;
        let from = ranges.partition_point(|range| range.2 < index);
        let ranges = ranges[from..].iter().take_while(|range| range.2 == index);
        let lines = walk_lines(&mut walk, &unit, ranges.map(|range| (range.0, range.1)), table, findings);
        result.and(lines)
    }

    fn keep(&mut self, function: u32, entry: Option<(u32, usize)>, found: Found, table: &FunctionTable) {
        let file = found.file.map(|path| match self.paths.get(&*path) {
            Some(known) => known.clone(),
            None => {
                let path: Arc<Path> = Arc::from(&*path);
                self.paths.insert(path.clone());
                path
            }
        });
        let is_named =
            table.entry(crate::FunctionId(function)).is_some_and(|entry| !entry.linkage_name.is_empty());
        let name = found.linkage_name.or(found.plain_name).filter(|_| !is_named);
        let declaration = self.declarations.entry(function).or_default();
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

    fn open_package(&mut self) {
        if self.package.is_some() || !self.places.may_open {
            return;
        }
        let package = self.places.neighbours.iter().find_map(|path| {
            let mut path = path.clone().into_os_string();
            path.push(".dwp");
            open_debug_file(Path::new(&path), DebugFileKind::Package)
        });
        self.package = Some(package);
    }
}

fn open_debug_file(path: &Path, kind: DebugFileKind) -> Option<DebugFile> {
    let (bytes, _) = FileBytes::open(path).ok()?;
    DebugFile::load(path, Arc::new(bytes), kind).ok()
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

/// For the skeleton of a split unit: the path of its `.dwo` file as recorded.
fn split_name<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Option<PathBuf> {
    unit.dwo_id?;
    let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
    let directory = unit.comp_dir.map(|dir| path_from_bytes(dir.slice())).unwrap_or_default();
    Some(directory.join(path_from_bytes(name.slice())))
}

/// Reads the functions of a split unit; [`gimli::Error::MissingUnitDie`] where it can't be found.
#[allow(clippy::too_many_arguments)]
fn find_in_split(
    package: Option<&DebugFile>,
    places: &SplitPlaces,
    parent: &Dwarf<Slice<'_>>,
    skeleton: &Unit<Slice<'_>>,
    name: &Path,
    budget: &Budget,
    index: u32,
    table: &FunctionTable,
    findings: &mut Vec<(u32, Option<(u32, usize)>, Found)>,
) -> Result<(), DebugError> {
    let id = skeleton.dwo_id.ok_or(gimli::Error::MissingUnitDie)?;
    let from_package = match package {
        Some(package) => package.package()?.find_cu(id, parent)?,
        None => None,
    };
    let opened;
    let split = match from_package {
        Some(split) => split,
        None => {
            opened = open_split(places, name).ok_or(gimli::Error::MissingUnitDie)?;
            budget.grant(opened.size());
            let mut split = opened.dwarf();
            split.make_dwo(parent);
            split
        }
    };
    let layout = UnitLayout::scan(&split, budget)?;
    let units = Units::new(&split, &layout, budget);
    for split_index in 0..layout.count() {
        let mut unit = units.parse(split_index)?;
        if unit.dwo_id != Some(id) {
            continue;
        }
        unit.copy_relocated_attributes(skeleton);
        let mut walk = Walk::new(&units, None);
        walk.skeleton = Some(skeleton);
        // File numbers mean the split file's own line table where it has one (gcc), else the skeleton's (clang).
        let own = split.debug_line.program(gimli::DebugLineOffset(0), 8, skeleton.comp_dir, skeleton.name);
        let of_skeleton = || Some((skeleton.line_program.clone()?, parent));
        walk.split_lines = own.ok().map(|program| (program, &split)).or_else(of_skeleton);
        return walk_functions(&mut walk, &Rc::new(unit), index, table, findings);
    }
    Err(gimli::Error::MissingUnitDie.into())
}

fn open_split(places: &SplitPlaces, name: &Path) -> Option<DebugFile> {
    if !places.may_open {
        return None;
    }
    let mapped = PathMap::apply_all(&places.maps, name);
    let beside = places.neighbours.iter().filter_map(|path| Some(path.parent()?.join(name.file_name()?)));
    mapped
        .into_iter()
        .chain([name.to_path_buf()])
        .chain(beside)
        .filter(|path| path.is_absolute())
        .find_map(|path| open_debug_file(&path, DebugFileKind::Split).filter(DebugFile::has_units))
}

fn walk_functions<'a>(
    walk: &mut Walk<'a>,
    unit: &Rc<Unit<Slice<'a>>>,
    index: u32,
    table: &FunctionTable,
    findings: &mut Vec<(u32, Option<(u32, usize)>, Found)>,
) -> Result<(), DebugError> {
    let function_at = |start: u64| {
        let index = table.first_from(start);
        (table.start(index) == Some(start)).then_some(index as u32)
    };
    walk.functions(
        unit,
        |starts| starts.iter().any(|&start| function_at(start).is_some()),
        |offset, starts, found| {
            for function in starts.iter().filter_map(|&start| function_at(start)) {
                findings.push((function, Some((index, offset)), found.clone()));
            }
        },
    )
}

/// Gives functions of the unit that have no declaration the line of their first instruction.
fn walk_lines<'a>(
    walk: &mut Walk<'a>,
    unit: &Unit<Slice<'a>>,
    ranges: impl Iterator<Item = (u64, u64)>,
    table: &FunctionTable,
    findings: &mut Vec<(u32, Option<(u32, usize)>, Found)>,
) -> Result<(), DebugError> {
    let declared: HashSet<u32> = findings
        .iter()
        .filter(|(_, _, found)| found.line.is_some())
        .map(|(function, ..)| *function)
        .collect();
    let mut wanted: HashMap<u64, u32> = HashMap::new();
    for (start, end) in ranges {
        let functions = table.first_from(start)..table.first_from(end);
        walk.units.budget.spend(functions.len() as u64)?;
        for function in functions {
            if !declared.contains(&(function as u32)) {
                wanted.extend(table.start(function).map(|start| (start, function as u32)));
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    walk.lines(unit, |walk, address, file, line| {
        // The first row of an address is that of the function itself.
        if let Some(function) = wanted.remove(&address) {
            let file = walk.file(unit, false, file);
            findings.push((function, None, Found { file, line: Some(line), ..Found::default() }));
        }
    })
}
