//! Reads timelines, and adds up their calls by groups.

use everycall_export::{CALL, FunctionId, Row, RowSubject};
use rustc_hash::FxHashMap;

use super::Group;
use super::expression::{Call, Cell, Column, Depends, Expression, FunctionCells, LaneCells, Surprise, Texts};
use super::plan::Plan;
use super::sums::{State, value};
use super::{KEYS_MAX, SUMS_MAX};
use crate::lanes::TraceRows;
use crate::traces::Shared;

/// Memory of groups and of the values that percentiles need, in bytes.
const MEMORY: usize = 768 << 20;
/// Calls between two looks at the limits of the query.
const CALLS: u32 = 1 << 16;

/// Why there are no groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// SQLite has to do it.
    LeaveIt,
    /// A limit of the query was reached.
    Limit,
}

impl From<Surprise> for Ended {
    fn from(_: Surprise) -> Ended {
        Ended::LeaveIt
    }
}

impl Plan {
    /// All groups, in the order of their keys.
    pub(crate) fn run(
        &self,
        shared: &Shared,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Group>, Ended> {
        shared.scans.set(shared.scans.get() + 1);
        let mut scan = Scan::new(self);
        if self.is_whole {
            scan.group(&[])?;
        }
        let needs_numbers = self.expressions().any(|one| one.has(Column::Id) || one.has(Column::Parent));
        let mut last_id = 0;
        let mut rows: Option<(usize, TraceRows)> = None;
        for (number, lane) in shared.lanes.iter().enumerate() {
            let Some(trace) = shared.traces.get(lane.trace) else { continue };
            if rows.as_ref().is_none_or(|(index, _)| *index != lane.trace) {
                rows = Some((lane.trace, trace.rows()));
                scan.cells.clear();
            }
            let Some((_, rows)) = &mut rows else { continue };
            let (process, thread) = shared.names(number).unwrap_or_default();
            let cells = LaneCells {
                pid: lane.pid,
                tid: lane.tid,
                process: scan.texts.cell(process),
                thread: scan.texts.cell(thread),
                trace: scan.texts.cell(trace.name),
            };
            let is_wanted = scan.enter(&cells)?;
            if !is_wanted && !needs_numbers {
                continue;
            }
            rows.enter(lane.thread, last_id);
            let mut calls = 0_u32;
            while let Some(row) = rows.next_row() {
                calls = calls.wrapping_add(1);
                if calls.is_multiple_of(CALLS) && is_over() {
                    return Err(Ended::Limit);
                }
                if is_wanted && row.kind == CALL {
                    scan.add(&row, &cells, rows)?;
                }
            }
            last_id = rows.last_id();
        }
        Ok(scan.groups())
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let sums = self.sums.iter().flat_map(|sum| sum.of.iter().chain(&sum.filter));
        self.conditions.iter().chain(self.keys.iter().map(|key| &key.expression)).chain(sums)
    }
}

/// A function in a thread, as far as conditions and keys are concerned.
#[derive(Clone, Copy)]
struct Known {
    /// Its columns.
    cells: FunctionCells,
    /// Whether the conditions on it are true.
    passes: bool,
    /// The group of its calls, where function and thread determine that: 0 while it has none.
    group: usize,
}

struct Scan<'p> {
    plan: &'p Plan,
    texts: Texts,
    /// Conditions on the thread, on the function as well, on the call as well.
    conditions: [&'p [Expression]; 3],
    /// Whether function and thread determine the group.
    is_of_functions: bool,
    needs_remarks: bool,
    /// By function of the trace.
    cells: Vec<Option<FunctionCells>>,
    /// By function, for the thread that is read.
    functions: Vec<Option<Known>>,
    numbers: FxHashMap<Box<[Cell]>, usize>,
    keys: Vec<Box<[Cell]>>,
    /// For each group its aggregates.
    states: Vec<State>,
    bytes: usize,
}

impl<'p> Scan<'p> {
    fn new(plan: &'p Plan) -> Scan<'p> {
        let behind = |depends| plan.conditions.partition_point(|one| one.depends_on() <= depends);
        let (lane, function) = (behind(Depends::Lane), behind(Depends::Function));
        let (of_lanes, rest) = plan.conditions.split_at(lane);
        let (of_functions, of_calls) = rest.split_at(function - lane);
        Scan {
            plan,
            texts: plan.texts.clone(),
            conditions: [of_lanes, of_functions, of_calls],
            is_of_functions: plan.keys.iter().all(|key| key.expression.depends_on() <= Depends::Function),
            needs_remarks: plan.expressions().any(|one| one.has(Column::Remarks)),
            cells: Vec::new(),
            functions: Vec::new(),
            numbers: FxHashMap::default(),
            keys: Vec::new(),
            states: Vec::new(),
            bytes: 0,
        }
    }

    /// Begins with a thread; returns whether its calls may pass.
    fn enter(&mut self, lane: &LaneCells) -> Result<bool, Ended> {
        // Keys and conditions on functions may be on their threads as well.
        self.functions.clear();
        let call = Call { row: &Row::default(), lane, function: &FunctionCells::NONE, remarks: Cell::Null };
        self.holds(self.conditions[0], &call)
    }

    fn holds(&self, conditions: &[Expression], call: &Call<'_>) -> Result<bool, Ended> {
        for condition in conditions {
            if condition.value(call, &self.texts)?.truth() != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds out about a function, in this thread.
    fn known(
        &mut self,
        id: FunctionId,
        row: &Row,
        lane: &LaneCells,
        rows: &TraceRows,
    ) -> Result<Known, Ended> {
        let cells = self.cells_of(id, rows);
        let call = Call { row, lane, function: &cells, remarks: Cell::Null };
        let passes = self.holds(self.conditions[1], &call)?;
        let known = Known { cells, passes, group: 0 };
        set(&mut self.functions, id, known);
        Ok(known)
    }

    fn cells_of(&mut self, id: FunctionId, rows: &TraceRows) -> FunctionCells {
        if let Some(Some(cells)) = self.cells.get(id.index()) {
            return *cells;
        }
        let function = rows.function(id);
        let cells = FunctionCells {
            name: self.texts.cell(function.name),
            module: self.texts.maybe(function.module),
            file: self.texts.maybe(function.file),
            line: Cell::of_number(function.line.map(i64::from)),
        };
        set(&mut self.cells, id, cells);
        cells
    }

    #[inline]
    fn add(&mut self, row: &Row, lane: &LaneCells, rows: &TraceRows) -> Result<(), Ended> {
        let RowSubject::Function(id) = row.what else { return Ok(()) };
        let known = match self.functions.get(id.index()).copied().flatten() {
            Some(known) => known,
            None => self.known(id, row, lane, rows)?,
        };
        if !known.passes {
            return Ok(());
        }
        let remarks = match &row.remarks {
            Some(text) if self.needs_remarks => self.texts.cell(text),
            _ => Cell::Null,
        };
        let call = Call { row, lane, function: &known.cells, remarks };
        if !self.holds(self.conditions[2], &call)? {
            return Ok(());
        }
        let group = if known.group > 0 { known.group } else { self.group_of(&call)? };
        if known.group == 0
            && self.is_of_functions
            && let Some(Some(known)) = self.functions.get_mut(id.index())
        {
            known.group = group;
        }
        let sums = &self.plan.sums;
        let states = self.states.get_mut((group - 1) * sums.len()..).unwrap_or_default();
        for (sum, state) in sums.iter().zip(states) {
            if let Some(filter) = &sum.filter
                && filter.value(&call, &self.texts)?.truth() != Some(true)
            {
                continue;
            }
            let cell = match &sum.of {
                Some(of) => of.value(&call, &self.texts)?,
                None => Cell::TRUE,
            };
            self.bytes += sum.how.add(state, cell, &self.texts)?;
        }
        if self.bytes > MEMORY { Err(Ended::LeaveIt) } else { Ok(()) }
    }

    /// The group of a call: its number, from 1 on.
    fn group_of(&mut self, call: &Call<'_>) -> Result<usize, Ended> {
        let mut cells = [Cell::Null; KEYS_MAX];
        let keys = &self.plan.keys;
        for (cell, key) in cells.iter_mut().zip(keys) {
            *cell = key.expression.value(call, &self.texts)?;
        }
        self.group(cells.get(..keys.len()).unwrap_or_default())
    }

    /// The group of these keys.
    fn group(&mut self, cells: &[Cell]) -> Result<usize, Ended> {
        if let Some(number) = self.numbers.get(cells) {
            return Ok(*number);
        }
        let sums = &self.plan.sums;
        self.bytes += 128 + 3 * size_of_val(cells) + 2 * sums.len() * size_of::<State>();
        if self.bytes > MEMORY {
            return Err(Ended::LeaveIt);
        }
        self.keys.push(cells.into());
        self.states.extend(sums.iter().map(|sum| sum.how.start()));
        self.numbers.insert(cells.into(), self.keys.len());
        Ok(self.keys.len())
    }

    /// The rows of the table of groups.
    fn groups(self) -> Vec<Group> {
        let Scan { plan, texts, keys, states, .. } = self;
        let width = KEYS_MAX * 3 + SUMS_MAX;
        let mut states = states.into_iter();
        let mut rows: Vec<(Box<[Cell]>, Group)> = Vec::with_capacity(keys.len());
        for cells in keys {
            let mut row = vec![rusqlite::types::Value::Null; width];
            for (number, (cell, key)) in cells.iter().zip(&plan.keys).enumerate() {
                if let Some(place) = row.get_mut(key.affinity.place(number)) {
                    *place = value(*cell, &texts);
                }
            }
            for (number, sum) in plan.sums.iter().enumerate() {
                if let (Some(place), Some(state)) = (row.get_mut(KEYS_MAX * 3 + number), states.next()) {
                    *place = sum.how.value(state, &texts);
                }
            }
            rows.push((cells, row));
        }
        rows.sort_by(|(left, _), (right, _)| {
            let orders = left.iter().zip(right).map(|(left, right)| texts.compare(*left, *right));
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// Sets what belongs to a function.
fn set<T: Copy>(list: &mut Vec<Option<T>>, id: FunctionId, value: T) {
    if list.len() <= id.index() {
        list.resize(id.index() + 1, None);
    }
    if let Some(place) = list.get_mut(id.index()) {
        *place = Some(value);
    }
}
