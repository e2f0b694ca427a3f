//! Units of one DWARF file: where they are, and how to open one without doing more work than the
//! file's size justifies.
//!
//! Two things make naive readers quadratic on hostile files, so they are bounded here. Abbreviation
//! tables end where the next one starts, as linkers lay them out, so overlapping tables are errors.
//! And headers of line programs, which several units may share, are paid for each time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfoOffset, DebugLineOffset, Dwarf,
    LittleEndian, Section, Unit, UnitType,
};

use super::file::Slice;
use crate::budget::{Budget, DebugError};

/// Largest abbreviation table and line program header, in bytes. Compilers stay far below.
const TABLE_SIZE_MAX: usize = 256 << 10;

/// Offsets of all units and abbreviation tables, ascending.
#[derive(Debug, Default)]
pub(super) struct UnitLayout {
    units: Vec<usize>,
    abbreviation_tables: Vec<usize>,
}

impl UnitLayout {
    /// Scans the unit headers; stops at the first damaged one.
    pub(super) fn scan(dwarf: &Dwarf<Slice<'_>>, budget: &Budget) -> Result<Self, DebugError> {
        let mut layout = Self::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            budget.spend(8)?;
            if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
                continue;
            }
            if let Some(offset) = header.debug_info_offset() {
                layout.units.push(offset.0);
                layout.abbreviation_tables.push(header.debug_abbrev_offset().0);
            }
        }
        layout.abbreviation_tables.sort_unstable();
        layout.abbreviation_tables.dedup();
        Ok(layout)
    }

    pub(super) fn count(&self) -> usize {
        self.units.len()
    }

    /// The unit that contains an offset in `.debug_info`.
    fn holding(&self, offset: usize) -> Option<usize> {
        self.units.partition_point(|&start| start <= offset).checked_sub(1)
    }
}

/// Opens units of one DWARF file.
pub(super) struct Units<'a> {
    pub dwarf: &'a Dwarf<Slice<'a>>,
    layout: &'a UnitLayout,
    pub budget: &'a Budget,
    /// Units often share the table of the one before.
    last_table: RefCell<Option<(usize, Arc<Abbreviations>)>>,
    /// Units that others refer to; few at a time.
    open: RefCell<Vec<(usize, Rc<Unit<Slice<'a>>>)>>,
}

impl<'a> Units<'a> {
    pub(super) fn new(dwarf: &'a Dwarf<Slice<'a>>, layout: &'a UnitLayout, budget: &'a Budget) -> Self {
        Self { dwarf, layout, budget, last_table: RefCell::default(), open: RefCell::default() }
    }

    /// Opens the unit with this index in the layout.
    pub(super) fn open(&self, index: usize) -> Result<Rc<Unit<Slice<'a>>>, DebugError> {
        let known = self.open.borrow().iter().find(|(open, _)| *open == index).map(|(_, unit)| unit.clone());
        if let Some(unit) = known {
            return Ok(unit);
        }
        let unit = Rc::new(self.parse(index)?);
        let mut open = self.open.borrow_mut();
        if open.len() == 16 {
            open.remove(0);
        }
        open.push((index, unit.clone()));
        Ok(unit)
    }

    /// Opens a unit for the caller alone.
    pub(super) fn parse(&self, index: usize) -> Result<Unit<Slice<'a>>, DebugError> {
        let offset = *self.layout.units.get(index).ok_or(gimli::Error::MissingUnitDie)?;
        let header = self.dwarf.unit_header(DebugInfoOffset(offset))?;
        let abbreviations = self.abbreviations(header.debug_abbrev_offset())?;
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs()?.ok_or(gimli::Error::MissingUnitDie)?;
        self.budget.spend(16 + root.attrs().len() as u64)?;
        if let Some(AttributeValue::DebugLineRef(offset)) = root.attr_value(gimli::DW_AT_stmt_list) {
            self.spend_line_header(offset)?;
        }
        Ok(Unit::new_with_abbreviations(self.dwarf, header, abbreviations)?)
    }

    fn abbreviations(&self, offset: DebugAbbrevOffset) -> Result<Arc<Abbreviations>, DebugError> {
        if let Some((last, table)) = &*self.last_table.borrow()
            && *last == offset.0
        {
            return Ok(table.clone());
        }
        let data = self.dwarf.debug_abbrev.reader().slice();
        let tables = &self.layout.abbreviation_tables;
        let next = tables.get(tables.partition_point(|&start| start <= offset.0)).copied();
        let end = next.unwrap_or(data.len()).min(offset.0.saturating_add(TABLE_SIZE_MAX)).min(data.len());
        self.budget.spend(end.saturating_sub(offset.0) as u64)?;
        let table = Arc::new(DebugAbbrev::new(&data[..end], LittleEndian).abbreviations(offset)?);
        *self.last_table.borrow_mut() = Some((offset.0, table.clone()));
        Ok(table)
    }

    /// Pays for the header of the line program at `offset`: its files and directories are all read
    /// at once.
    fn spend_line_header(&self, offset: DebugLineOffset) -> Result<(), DebugError> {
        let data = self.dwarf.debug_line.reader().slice();
        let Some(header) = data.get(offset.0..) else { return Ok(()) };
        let word = |at: usize, size: usize| -> usize {
            let bytes = header.get(at..at + size).unwrap_or_default();
            bytes.iter().rev().fold(0_usize, |value, &byte| value << 8 | usize::from(byte))
        };
        let (at, word_size) = if word(0, 4) == 0xffff_ffff { (12, 8) } else { (4, 4) };
        let skip = if word(at, 2) >= 5 { 4 } else { 2 };
        let size = word(at + skip, word_size).min(header.len());
        if size > TABLE_SIZE_MAX {
            return Err(DebugError::Exhausted);
        }
        self.budget.spend(size as u64)
    }

    /// The unit that contains an offset in `.debug_info`, and the offset inside it.
    pub(super) fn holding(
        &self,
        offset: DebugInfoOffset,
    ) -> Result<(Rc<Unit<Slice<'a>>>, gimli::UnitOffset), DebugError> {
        let index = self.layout.holding(offset.0).ok_or(gimli::Error::MissingUnitDie)?;
        let unit = self.open(index)?;
        let inside = offset.to_unit_offset(&unit.header).ok_or(gimli::Error::MissingUnitDie)?;
        Ok((unit, inside))
    }
}
