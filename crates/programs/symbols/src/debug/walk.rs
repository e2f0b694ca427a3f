//! Reading one unit: which functions it declares, and where.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{
    AttributeValue, ColumnType, DebuggingInformationEntry, Dwarf, IncompleteLineProgram, Unit, UnitOffset,
};

use super::file::Slice;
use super::units::Units;
use crate::budget::DebugError;
use crate::locate::path_from_bytes;
use crate::source::CompiledSource;

pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Declarations refer to one another over at most this many steps.
const REFERENCE_DEPTH_MAX: usize = 8;
/// The system's limit on paths, in bytes.
const PATH_SIZE_MAX: usize = 4096;
/// Longest name taken from DWARF, in bytes.
const NAME_SIZE_MAX: usize = 4096;

/// Location and names of a function, from DWARF.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub file: Option<Rc<Path>>,
    pub line: Option<u32>,
    pub linkage_name: Option<Vec<u8>>,
    pub plain_name: Option<Vec<u8>>,
}

/// The source of a unit's entries: the module's own file, or a split unit with its skeleton.
pub(super) struct Walk<'a> {
    /// Units of the file that contains the entries.
    pub units: &'a Units<'a>,
    /// Units of the file that debug files share.
    pub shared: Option<&'a Units<'a>>,
    /// The skeleton, for split units: it has the directory.
    pub skeleton: Option<&'a Unit<Slice<'a>>>,
    /// The line program that file numbers of split units refer to, and the file that contains its
    /// strings.
    pub split_lines: Option<(IncompleteLineProgram<Slice<'a>>, &'a Dwarf<Slice<'a>>)>,
    paths: HashMap<(bool, usize, u64), Option<Rc<Path>>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(units: &'a Units<'a>, shared: Option<&'a Units<'a>>) -> Self {
        Self { units, shared, skeleton: None, split_lines: None, paths: HashMap::new() }
    }

    /// Calls `take` for each function with code, with the entry's offset and the start addresses of
    /// its ranges. `take` returns whether it needs more facts.
    pub(super) fn functions(
        &mut self,
        unit: &Rc<Unit<Slice<'a>>>,
        mut wanted: impl FnMut(&[u64]) -> bool,
        mut take: impl FnMut(usize, &[u64], Found),
    ) -> Result<(), DebugError> {
        let mut entries = unit.entries_raw(None)?;
        let mut entry = Entry::null();
        let mut starts = Vec::new();
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                self.units.budget.spend(1)?;
                continue;
            };
            let specifications = abbreviation.attributes();
            self.units.budget.spend(1 + specifications.len() as u64)?;
            let has_code = abbreviation.tag() == gimli::DW_TAG_subprogram
                && specifications
                    .iter()
                    .any(|spec| matches!(spec.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
            entries.skip_attributes(specifications)?;
            if !has_code {
                continue;
            }
            read_entry(unit, offset, &mut entry)?;
            starts.clear();
            self.starts(unit, &entry, &mut starts)?;
            if wanted(&starts) {
                let found = self.describe(unit, &entry)?;
                take(offset.0, &starts, found);
            }
        }
        Ok(())
    }

    /// Start addresses of the entry's ranges.
    fn starts(
        &self,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        starts: &mut Vec<u64>,
    ) -> Result<(), DebugError> {
        let mut ranges = Vec::new();
        self.ranges(unit, entry, &mut ranges)?;
        starts.extend(ranges.iter().map(|range| range.0));
        Ok(())
    }

    /// The entry's ranges of addresses: begins and ends.
    pub(super) fn ranges(
        &self,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        out: &mut Vec<(u64, u64)>,
    ) -> Result<(), DebugError> {
        let dwarf = self.units.dwarf;
        if let Some(value) = entry.attr_value(gimli::DW_AT_ranges) {
            if let Some(mut ranges) = dwarf.attr_ranges(unit, value)? {
                while let Some(range) = ranges.next()? {
                    self.units.budget.spend(8)?;
                    // A function has a handful of ranges.
                    if range.begin < range.end && out.len() < 64 {
                        out.push((range.begin, range.end));
                    }
                }
            }
        } else if let (Some(low), Some(high)) =
            (entry.attr_value(gimli::DW_AT_low_pc), entry.attr_value(gimli::DW_AT_high_pc))
            && let Some(low) = dwarf.attr_address(unit, low)?
        {
            let size = high.udata_value().map(|size| low.saturating_add(size));
            let end = size.or(dwarf.attr_address(unit, high)?);
            out.push((low, end.unwrap_or(low)));
        }
        Ok(())
    }

    /// Collects what the entry says, and what the entries say that it refers to: the nearest word
    /// counts, for file and line each, as compilers leave out what a definition shares with its
    /// declaration.
    pub(super) fn describe(
        &mut self,
        unit: &Rc<Unit<Slice<'a>>>,
        entry: &Entry<'a>,
    ) -> Result<Found, DebugError> {
        let mut found = Found::default();
        let mut unit = unit.clone();
        let mut entry = entry.clone();
        let mut is_shared = false;
        for _ in 0..REFERENCE_DEPTH_MAX {
            self.merge(&unit, &entry, is_shared, &mut found);
            let reference = entry
                .attr_value(gimli::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(gimli::DW_AT_specification));
            let offset = match reference {
                Some(AttributeValue::UnitRef(offset)) => offset,
                Some(AttributeValue::DebugInfoRef(offset)) => {
                    let units = if is_shared { self.shared } else { Some(self.units) };
                    let Some(units) = units else { break };
                    let (other, inside) = units.holding(offset)?;
                    unit = other;
                    inside
                }
                Some(AttributeValue::DebugInfoRefSup(offset)) => {
                    let Some(units) = self.shared else { break };
                    let (other, inside) = units.holding(offset)?;
                    unit = other;
                    is_shared = true;
                    inside
                }
                _ => break,
            };
            let mut next = Entry::null();
            read_entry(&unit, offset, &mut next)?;
            self.units.budget.spend(16 + next.attrs().len() as u64)?;
            entry = next;
        }
        Ok(found)
    }

    fn merge(&mut self, unit: &Unit<Slice<'a>>, entry: &Entry<'a>, is_shared: bool, found: &mut Found) {
        for attribute in entry.attrs() {
            match attribute.name() {
                gimli::DW_AT_decl_file if found.file.is_none() => {
                    if let AttributeValue::FileIndex(index) = attribute.value() {
                        found.file = self.file(unit, is_shared, index);
                    }
                }
                gimli::DW_AT_decl_line if found.line.is_none() => {
                    found.line =
                        attribute.udata_value().and_then(|line| u32::try_from(line).ok()).filter(|&l| l != 0);
                }
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name
                    if found.linkage_name.is_none() =>
                {
                    found.linkage_name = self.text(unit, attribute.value(), is_shared, NAME_SIZE_MAX);
                }
                gimli::DW_AT_name if found.plain_name.is_none() => {
                    found.plain_name = self.text(unit, attribute.value(), is_shared, NAME_SIZE_MAX);
                }
                _ => {}
            }
        }
    }

    fn text(
        &self,
        unit: &Unit<Slice<'a>>,
        value: AttributeValue<Slice<'a>>,
        is_shared: bool,
        size_max: usize,
    ) -> Option<Vec<u8>> {
        let units = if is_shared { self.shared? } else { self.units };
        self.text_of(units.dwarf, unit, value, size_max)
    }

    fn text_of(
        &self,
        dwarf: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        value: AttributeValue<Slice<'a>>,
        size_max: usize,
    ) -> Option<Vec<u8>> {
        let text = dwarf.attr_string(unit, value).ok()?;
        // Finding the end has read all of it.
        self.units.budget.spend(text.len() as u64).ok()?;
        (text.len() <= size_max && !text.is_empty()).then(|| text.slice().to_vec())
    }

    /// The path of file `index` in the unit's line program.
    pub(super) fn file(&mut self, unit: &Unit<Slice<'a>>, is_shared: bool, index: u64) -> Option<Rc<Path>> {
        let key = (is_shared, unit.header.debug_info_offset()?.0, index);
        if let Some(path) = self.paths.get(&key) {
            return path.clone();
        }
        let path = self.read_path(unit, is_shared, index).map(Rc::from);
        self.paths.insert(key, path.clone());
        path
    }

    fn read_path(&self, unit: &Unit<Slice<'a>>, is_shared: bool, index: u64) -> Option<PathBuf> {
        let own = unit.line_program.as_ref();
        let (program, dwarf) = match (own, &self.split_lines) {
            (Some(program), _) if is_shared => (program, self.shared?.dwarf),
            (Some(program), _) => (program, self.units.dwarf),
            (None, Some((program, dwarf))) => (program, *dwarf),
            (None, None) => return None,
        };
        let header = program.header();
        let file = header.file(index)?;
        let text = |value| self.text_of(dwarf, unit, value, PATH_SIZE_MAX);
        let directory = unit.comp_dir.or_else(|| self.skeleton.and_then(|skeleton| skeleton.comp_dir));
        let mut path = directory.map(|dir| path_from_bytes(dir.slice())).unwrap_or_default();
        // Joining an absolute path replaces the whole path.
        if let Some(directory) = file.directory(header).and_then(text) {
            path.push(path_from_bytes(&directory));
        }
        path.push(path_from_bytes(&text(file.path_name())?));
        if path.as_os_str().len() > PATH_SIZE_MAX {
            return None;
        }
        let source = CompiledSource {
            md5: header.file_has_md5().then(|| *file.md5()),
            folder: directory.map(|dir| path_from_bytes(dir.slice())),
        };
        self.units.budget.sources.borrow_mut().insert(path.clone(), source);
        Some(path)
    }

    /// Runs the unit's line program and calls `take` with address, file and line of each row. For
    /// functions that have no declaration: of assembly, or where only line tables were asked for.
    pub(super) fn lines(
        &mut self,
        unit: &Unit<Slice<'a>>,
        mut take: impl FnMut(&mut Self, u64, u64, u32),
    ) -> Result<(), DebugError> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row()? {
            self.units.budget.spend(1)?;
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            if let (false, Some(line)) = (row.end_sequence(), line) {
                let (address, file) = (row.address(), row.file_index());
                take(self, address, file, line);
            }
        }
        Ok(())
    }

    /// Runs the unit's line program and calls `take` with address, file and line of each row;
    /// `None` for the line of code that has none, and where code ends.
    pub(super) fn rows(
        &mut self,
        unit: &Unit<Slice<'a>>,
        mut take: impl FnMut(&mut Self, u64, u64, Option<u32>),
    ) -> Result<(), DebugError> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row()? {
            self.units.budget.spend(1)?;
            let line = row.line().filter(|_| !row.end_sequence());
            let line = line.and_then(|line| u32::try_from(line.get()).ok());
            let (address, file) = (row.address(), row.file_index());
            take(self, address, file, line);
        }
        Ok(())
    }

    /// Runs the unit's line program and calls `take` with the begin and end of code that has no
    /// line of its own, or that has a line but no column although other code has columns: compilers
    /// mark code this way if they merged it from several places. The flag says whether it has a
    /// line.
    pub(super) fn code_of_several_places(
        &self,
        unit: &Unit<Slice<'a>>,
        mut take: impl FnMut(u64, u64, bool),
    ) -> Result<(), DebugError> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut has_columns = false;
        let mut rows = program.clone().rows();
        while let (false, Some((_, row))) = (has_columns, rows.next_row()?) {
            self.units.budget.spend(1)?;
            has_columns = row.column() != ColumnType::LeftEdge;
        }
        let mut rows = program.rows();
        let mut begun = None;
        while let Some((_, row)) = rows.next_row()? {
            self.units.budget.spend(1)?;
            if let Some((begin, has_line)) = begun.take().filter(|(begin, _)| *begin < row.address()) {
                take(begin, row.address(), has_line);
            }
            let has_line = row.line().is_some();
            let is_several = !has_line || has_columns && row.column() == ColumnType::LeftEdge;
            begun = (is_several && !row.end_sequence()).then(|| (row.address(), has_line));
        }
        Ok(())
    }
}

/// Reads the entry at `offset` of a unit.
pub(super) fn read_entry<'a>(
    unit: &Unit<Slice<'a>>,
    offset: UnitOffset,
    entry: &mut Entry<'a>,
) -> gimli::Result<()> {
    unit.entries_raw(Some(offset))?.read_entry(entry)?;
    Ok(())
}
