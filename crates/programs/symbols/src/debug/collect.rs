//! From the functions of a unit to those of the table.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use gimli::Unit;

use super::file::Slice;
use super::split::UnitVisitor;
use super::walk::{Found, Walk};
use crate::budget::DebugError;
use crate::table::FunctionTable;

/// An entry of the debugging information: the unit's index, and the offset in the unit.
pub(crate) type EntryId = (u32, usize);

/// A function of the table, and what its unit says of it.
pub(super) struct Finding {
    pub function: u32,
    pub entry: Option<EntryId>,
    pub found: Found,
}

/// Collects one unit's findings about functions of the table.
pub(super) struct Collector<'t> {
    unit: u32,
    table: &'t FunctionTable,
    /// The unit's address ranges.
    ranges: Vec<(u64, u64)>,
    pub findings: Vec<Finding>,
}

impl<'t> Collector<'t> {
    pub(super) fn new(unit: u32, table: &'t FunctionTable, ranges: Vec<(u64, u64)>) -> Self {
        Self { unit, table, ranges, findings: Vec::new() }
    }
}

impl UnitVisitor for Collector<'_> {
    /// Takes the declarations of a unit.
    fn visit<'a>(&mut self, walk: &mut Walk<'a>, unit: &Rc<Unit<Slice<'a>>>) -> Result<(), DebugError> {
        let table = self.table;
        let function_at = |start: u64| {
            let index = table.first_from(start);
            (table.start(index) == Some(start)).then_some(index as u32)
        };
        walk.functions(
            unit,
            |starts| starts.iter().any(|&start| function_at(start).is_some()),
            |offset, starts, found| {
                for function in starts.iter().filter_map(|&start| function_at(start)) {
                    let entry = Some((self.unit, offset));
                    self.findings.push(Finding { function, entry, found: found.clone() });
                }
            },
        )
    }

    /// Gives functions in the unit's ranges that have no declaration the line of their first
    /// instruction.
    fn visit_lines<'a>(&mut self, walk: &mut Walk<'a>, unit: &Unit<Slice<'a>>) -> Result<(), DebugError> {
        let declared: HashSet<u32> = self
            .findings
            .iter()
            .filter(|finding| finding.found.line.is_some())
            .map(|finding| finding.function)
            .collect();
        let mut wanted: HashMap<u64, u32> = HashMap::new();
        for &(start, end) in &self.ranges {
            let functions = self.table.first_from(start)..self.table.first_from(end);
            walk.units.budget.spend(functions.len() as u64)?;
            for function in functions {
                if !declared.contains(&(function as u32)) {
                    wanted.extend(self.table.start(function).map(|start| (start, function as u32)));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        walk.lines(unit, |walk, address, file, line| {
            // The first row of an address is that of the function itself.
            if let Some(function) = wanted.remove(&address) {
                let found =
                    Found { file: walk.file(unit, false, file), line: Some(line), ..Found::default() };
                self.findings.push(Finding { function, entry: None, found });
            }
        })
    }
}
