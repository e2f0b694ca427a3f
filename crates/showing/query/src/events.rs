//! The table of all events, read from the timelines while a query runs. Memory holds one row.
//!
//! Conditions on kinds, processes, threads, functions, begins and durations are decided here,
//! before a row costs anything in SQLite; threads that don't pass aren't read. Calls with a
//! given number, and those that a given call made, are looked up in [`Calls`].

// rusqlite's traits are unsafe to implement: SQLite takes pointers to these structures for pointers
// to their first fields, so they are `repr(C)` and have SQLite's own structures there.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::rc::Rc;

use everycall_export::{CALL, Row, RowSubject, Source as _};
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator as _;
use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConnection, VTabCursor, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use crate::calls::Calls;
use crate::conditions::{Comparison, Conditions, column};
use crate::groups::{Groups, Order, is_of_functions};
use crate::lanes::{Lane, TraceRows};
use crate::schema;
use crate::traces::Shared;

/// Data of a module. SQLite has pointers to it in a connection that stays in its thread.
#[derive(Clone)]
pub(crate) struct Aux(pub(crate) Rc<Shared>);

// SAFETY: rusqlite asks for this because a connection can be sent to another thread. The only one
// that has these modules is owned by `Database`, which can't be sent or shared: it holds an `Rc`
// of the same. The modules' functions are called by SQLite within calls of that connection.
unsafe impl Send for Aux {}
// SAFETY: as above.
unsafe impl Sync for Aux {}

/// An error of ours, as SQLite passes it on.
pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::ModuleError(error.to_string())
}

/// Makes the table known to a connection.
pub(crate) fn register(connection: &Connection, shared: &Rc<Shared>) -> Result<()> {
    const MODULE: Module<'_, Events> = Module::eponymous_only_module();
    connection.create_module(schema::EVENTS.name, &MODULE, Some(Aux(shared.clone())))
}

/// How rows are found, as a plan's number.
mod way {
    /// All of them are read, in their order.
    pub(super) const SCAN: i32 = 0;
    /// All of them are read, in their order, and their numbers are needed.
    pub(super) const SCAN_NUMBERED: i32 = 1;
    /// The call with a number.
    pub(super) const BY_ID: i32 = 2;
    /// The calls that a call made.
    pub(super) const BY_PARENT: i32 = 3;
    /// Calls in the order of their functions; numbered as above.
    pub(super) const GROUPED: i32 = 4;
    pub(super) const GROUPED_NUMBERED: i32 = 5;
}

#[repr(C)]
struct Events {
    base: sqlite3_vtab,
    shared: Rc<Shared>,
}

/// A condition of a query on a column that is known here.
struct ColumnCondition {
    place: usize,
    column: i32,
    comparison: Comparison,
    is_sure: bool,
}

impl Events {
    /// The conditions that can be decided here.
    fn asked(info: &mut IndexInfo) -> Result<Vec<ColumnCondition>> {
        let mut asked = Vec::new();
        let constraints: Vec<(i32, IndexConstraintOp, bool)> =
            info.constraints().map(|one| (one.column(), one.operator(), one.is_usable())).collect();
        for (place, (column, operator, is_usable)) in constraints.into_iter().enumerate() {
            let Some(comparison) = Comparison::of(&operator).filter(|_| is_usable) else { continue };
            let is_text = matches!(column, column::KIND | column::FUNCTION);
            let is_known = match column {
                column::KIND | column::FUNCTION | column::PID | column::TID | column::ID | column::PARENT => {
                    comparison == Comparison::Equal
                }
                column::START | column::DURATION => true,
                _ => false,
            };
            if !is_known || is_text && info.collation(place)? != "BINARY" {
                continue;
            }
            let is_set = !matches!(column, column::ID | column::PARENT)
                && comparison == Comparison::Equal
                && info.is_in_constraint(place)?
                && info.set_in_constraint(place, true)?;
            let comparison = if is_set { Comparison::OneOf } else { comparison };
            let is_sure = column == column::KIND
                && !is_set
                && matches!(info.rhs_value(place)?, Some(ValueRef::Text(_)));
            asked.push(ColumnCondition { place, column, comparison, is_sure });
        }
        Ok(asked)
    }
}

// SAFETY: `repr(C)`, and SQLite's structure comes first.
unsafe impl VTab<'_> for Events {
    type Aux = Aux;
    type Cursor = EventsCursor;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some(Aux(shared)) = aux else { return Err(failed("no traces")) };
        let declared = CString::new(schema::EVENTS.declaration())?;
        Ok((declared.into(), Events { base: sqlite3_vtab::default(), shared: shared.clone() }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let asked = Events::asked(info)?;
        let is_calls = asked.iter().any(|one| {
            one.column == column::KIND
                && one.is_sure
                && matches!(info.rhs_value(one.place), Ok(Some(ValueRef::Text(text))) if text == CALL.as_bytes())
        });
        let key = |wanted| asked.iter().find(|one| one.column == wanted);
        let lookup = match (key(column::ID), key(column::PARENT)) {
            (Some(id), _) => Some((way::BY_ID, id)),
            (None, Some(parent)) if is_calls => Some((way::BY_PARENT, parent)),
            _ => None,
        };
        let mut plan = String::new();
        let mut used = 0;
        let mut use_it = |info: &mut IndexInfo, one: &ColumnCondition| {
            used += 1;
            let mut usage = info.constraint_usage(one.place);
            usage.set_argv_index(used);
            usage.set_omit(one.is_sure);
            plan.push(letter(one.column));
            plan.push(one.comparison.letter());
        };
        if let Some((_, one)) = lookup {
            use_it(info, one);
        }
        // All rows have to be read, whatever passes of them.
        let all = self.shared.entries.max(1) as f64;
        let mut rows = if is_calls { all } else { all / 16.0 + 16.0 };
        let is_key = |one: &&ColumnCondition| !matches!(one.column, column::ID | column::PARENT);
        for one in asked.iter().filter(is_key) {
            use_it(info, one);
            rows /= match one.column {
                column::FUNCTION => 32.0,
                column::START | column::DURATION => 3.0,
                column::PID | column::TID => 2.0,
                _ => 1.0,
            };
        }
        let order: Order = info.order_bys().map(|by| (by.column(), by.is_order_by_desc())).collect();
        let is_grouped = is_calls
            && lookup.is_none()
            && !order.is_empty()
            && order.iter().all(|(by, _)| is_of_functions(*by));
        if is_grouped {
            for (column, is_descending) in order {
                plan.push(letter(column));
                plan.push(if is_descending { 'D' } else { 'A' });
            }
            info.set_order_by_consumed(true);
        }
        info.set_idx_str(&plan);
        let needs_numbers = info.col_used() & (1 << column::ID | 1 << column::PARENT) != 0;
        let (way, cost, rows) = match lookup {
            Some((way, _)) if way == way::BY_ID => (way, 10.0, 1.0),
            Some((way, _)) => (way, 40.0, 8.0),
            None if is_grouped && needs_numbers => (way::GROUPED_NUMBERED, all * 3.0 + rows, rows),
            None if is_grouped => (way::GROUPED, all * 3.0 + rows, rows),
            None if needs_numbers => (way::SCAN_NUMBERED, all * 2.0 + rows, rows),
            None => (way::SCAN, all * 2.0 + rows, rows),
        };
        info.set_idx_num(way);
        info.set_estimated_cost(cost);
        info.set_estimated_rows((rows as i64).max(1));
        Ok(true)
    }

    fn open(&mut self) -> Result<EventsCursor> {
        Ok(EventsCursor {
            base: sqlite3_vtab_cursor::default(),
            shared: self.shared.clone(),
            conditions: Conditions::default(),
            source: Reading::Nothing,
            current: None,
            row_number: 0,
        })
    }
}

/// A column as a letter of a plan.
fn letter(column: i32) -> char {
    char::from(b'a'.saturating_add(u8::try_from(column).unwrap_or(0)))
}

/// Where the rows of a cursor come from.
enum Reading {
    Nothing,
    Scan(Box<Scan>),
    /// Scanned rows, by function.
    Grouped(Box<Scan>, Box<Groups>),
    /// Calls with numbers from the first on, up to the last; each is followed by the next one that
    /// it didn't make itself.
    Lookup {
        calls: Rc<Calls>,
        next: i64,
        last: i64,
    },
}

/// Threads one after the other.
struct Scan {
    /// By trace, once it is read.
    rows: Vec<Option<TraceRows>>,
    /// By trace and function: whether it passes, once that is known.
    passes: Vec<Vec<Option<bool>>>,
    /// The lane that is read; the next one, while none is.
    lane: usize,
    is_in: bool,
    /// Whether numbers of calls matter.
    is_numbered: bool,
    /// The number of the last call before the lane.
    last_id: i64,
}

#[repr(C)]
struct EventsCursor {
    base: sqlite3_vtab_cursor,
    shared: Rc<Shared>,
    conditions: Conditions,
    source: Reading,
    current: Option<(usize, Row)>,
    row_number: i64,
}

impl Scan {
    /// The next row that may pass, with its lane.
    fn next(&mut self, shared: &Shared, conditions: &Conditions) -> Option<(usize, Row)> {
        loop {
            let lane = *shared.lanes.get(self.lane)?;
            if !self.is_in && !self.enter(shared, conditions, &lane) {
                self.lane += 1;
                continue;
            }
            let rows = self.rows.get_mut(lane.trace)?.as_mut()?;
            let passes = self.passes.get_mut(lane.trace)?;
            while let Some(row) = rows.next_row() {
                if conditions.admit(&row) && admits_what(rows, passes, conditions, &row) {
                    return Some((self.lane, row));
                }
                // All that ends from here on began later.
                if !self.is_numbered
                    && rows.outermost_start_ns().is_none()
                    && row.start_ns > conditions.start.last
                {
                    break;
                }
            }
            self.leave(shared, &lane);
            self.lane += 1;
        }
    }

    /// Begins to read a lane. Returns false if there is nothing to read in it.
    fn enter(&mut self, shared: &Shared, conditions: &Conditions, lane: &Lane) -> bool {
        let passes = conditions.admit_lane(lane);
        let known = shared.counts.borrow().get(self.lane).copied().flatten();
        if let (false, Some(count)) = (passes, known) {
            self.last_id += count;
            return false;
        }
        if !passes && !self.is_numbered {
            return false;
        }
        let Some(trace) = shared.traces.get(lane.trace) else { return false };
        let Some(place) = self.rows.get_mut(lane.trace) else { return false };
        let rows = place.get_or_insert_with(|| trace.rows());
        rows.enter(lane.thread, self.last_id);
        if !passes {
            // Only to count its calls.
            while rows.next_row().is_some() {}
            self.leave(shared, lane);
            return false;
        }
        self.is_in = true;
        true
    }

    /// Ends with a lane.
    fn leave(&mut self, shared: &Shared, lane: &Lane) {
        if self.is_numbered
            && let Some(Some(rows)) = self.rows.get(lane.trace)
        {
            if let Some(count) = shared.counts.borrow_mut().get_mut(self.lane) {
                *count = Some(rows.last_id() - self.last_id);
            }
            self.last_id = rows.last_id();
        }
        self.is_in = false;
    }
}

/// Whether the function or the name of a row passes.
#[inline]
fn admits_what(rows: &TraceRows, passes: &mut Vec<Option<bool>>, conditions: &Conditions, row: &Row) -> bool {
    if conditions.functions.is_none() {
        return true;
    }
    match &row.what {
        RowSubject::Nothing => false,
        RowSubject::Text(name) => conditions.admit_name(name),
        RowSubject::Function(id) => {
            if passes.len() <= id.index() {
                passes.resize(id.index() + 1, None);
            }
            let Some(known) = passes.get_mut(id.index()) else { return true };
            *known.get_or_insert_with(|| conditions.admit_name(rows.function(*id).name))
        }
    }
}

impl EventsCursor {
    fn advance(&mut self) -> Result<()> {
        self.row_number += 1;
        self.current = match &mut self.source {
            Reading::Nothing => None,
            Reading::Scan(scan) => scan.next(&self.shared, &self.conditions),
            Reading::Grouped(_, groups) => groups.next().map_err(failed)?,
            Reading::Lookup { calls, next, last } => loop {
                if *next > *last {
                    break None;
                }
                let Some(call) = calls.get(*next).map_err(failed)? else { break None };
                *next = call.last.saturating_add(1);
                if self.conditions.admit(&call.row) {
                    break Some((call.lane, call.row));
                }
            },
        };
        Ok(())
    }

    /// All calls of a scan, in the order of their functions.
    fn grouped(&self, scan: &mut Scan, order: &Order) -> std::io::Result<Groups> {
        let mut groups = Groups::new(self.shared.traces.len())?;
        while let Some((number, row)) = scan.next(&self.shared, &self.conditions) {
            let Some(lane) = self.shared.lanes.get(number) else { continue };
            if let Some(Some(rows)) = scan.rows.get(lane.trace) {
                groups.add(lane.trace, number, row, rows)?;
            }
        }
        let traces: Vec<&str> = self.shared.traces.iter().map(|trace| trace.name).collect();
        groups.sort(order, &traces);
        Ok(groups)
    }

    /// The rows by which the functions of the current one are named.
    fn namer(&self, lane: &Lane) -> Option<&TraceRows> {
        match &self.source {
            Reading::Nothing => None,
            Reading::Scan(scan) | Reading::Grouped(scan, _) => scan.rows.get(lane.trace)?.as_ref(),
            Reading::Lookup { calls, .. } => calls.rows(lane.trace),
        }
    }
}

// SAFETY: `repr(C)`, and SQLite's structure comes first.
unsafe impl VTabCursor for EventsCursor {
    fn filter(&mut self, way: i32, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        self.conditions = Conditions::default();
        self.row_number = 0;
        let mut key = None;
        let mut order = Order::new();
        let letters: Vec<char> = plan.unwrap_or_default().chars().collect();
        for (place, letters) in letters.chunks_exact(2).enumerate() {
            let [column, letter] = letters else { continue };
            let column = (*column as i32) - ('a' as i32);
            let Some(value) = values.iter().nth(place) else {
                order.push((column, *letter == 'D'));
                continue;
            };
            match Comparison::of_letter(*letter) {
                Some(Comparison::OneOf) => {
                    let mut list = values.in_values(place)?;
                    let mut owned = Vec::new();
                    while let Some(value) = list.next()? {
                        owned.push(rusqlite::types::Value::try_from(value.get_raw())?);
                    }
                    let values: Vec<ValueRef<'_>> = owned.iter().map(ValueRef::from).collect();
                    self.conditions.add(column, Comparison::OneOf, &values);
                }
                Some(Comparison::Equal) if matches!(column, column::ID | column::PARENT) => {
                    key = whole_number(value);
                }
                Some(comparison) => self.conditions.add(column, comparison, &[value]),
                None => {}
            }
        }
        self.source = match (way, key) {
            (way::BY_ID | way::BY_PARENT, None) => Reading::Nothing,
            (way::BY_ID, Some(id)) => {
                Reading::Lookup { calls: self.shared.calls().map_err(failed)?, next: id, last: id }
            }
            (way::BY_PARENT, Some(parent)) => {
                let calls = self.shared.calls().map_err(failed)?;
                let last = calls.get(parent).map_err(failed)?.map_or(0, |call| call.last);
                Reading::Lookup { calls, next: parent.saturating_add(1), last }
            }
            _ => {
                self.shared.scans.set(self.shared.scans.get() + 1);
                let traces = self.shared.traces.len();
                let mut scan = Box::new(Scan {
                    rows: (0..traces).map(|_| None).collect(),
                    passes: vec![Vec::new(); traces],
                    lane: 0,
                    is_in: false,
                    is_numbered: matches!(way, way::SCAN_NUMBERED | way::GROUPED_NUMBERED),
                    last_id: 0,
                });
                if matches!(way, way::GROUPED | way::GROUPED_NUMBERED) {
                    let groups = self.grouped(&mut scan, &order).map_err(failed)?;
                    Reading::Grouped(scan, Box::new(groups))
                } else {
                    Reading::Scan(scan)
                }
            }
        };
        self.advance()
    }

    fn next(&mut self) -> Result<()> {
        self.advance()
    }

    fn eof(&self) -> bool {
        self.current.is_none()
    }

    fn column(&self, out: &mut Context, column: i32) -> Result<()> {
        let Some((number, row)) = &self.current else { return Ok(()) };
        let Some(lane) = self.shared.lanes.get(*number) else { return Ok(()) };
        let names = || self.shared.names(*number).unwrap_or_default();
        let function = || match &row.what {
            RowSubject::Function(id) => self.namer(lane).map(|rows| rows.function(*id)),
            _ => None,
        };
        let trace = || self.shared.traces.get(lane.trace);
        // Exact, if nothing else is said.
        let duration_of_call = || row.duration_ns.filter(|_| row.kind == CALL);
        match column {
            0 => out.set_result(row.kind),
            1 => out.set_result(lane.pid),
            2 => out.set_result(names().0),
            3 => out.set_result(lane.tid),
            4 => out.set_result(names().1),
            5 => out.set_result(row.id),
            6 => out.set_result(row.parent),
            7 => out.set_result(row.depth),
            8 => out.set_result(row.recursion),
            9 => out.set_result(row.start_ns),
            10 => {
                let at_ns = row.start_ns.cast_unsigned();
                out.set_result(trace().and_then(|trace| trace.view.realtime_ns(at_ns)).map(u64::cast_signed))
            }
            11 => out.set_result(row.duration_ns),
            12 => out.set_result(row.own_ns),
            13 => match &row.what {
                RowSubject::Text(name) => out.set_result(name.as_str()),
                _ => out.set_result(function().map(|function| function.name)),
            },
            14 => out.set_result(function().and_then(|function| function.module)),
            15 => out.set_result(function().and_then(|function| function.file)),
            16 => out.set_result(function().and_then(|function| function.line)),
            17 => out.set_result(row.value),
            18 => out.set_result(row.real_value),
            19 => out.set_result(row.blocked_ns),
            20 => out.set_result(row.runnable_ns),
            21 => out.set_result(row.other_tid),
            22 => out.set_result(row.remarks.as_deref()),
            24 => out.set_result(row.duration_low_ns.or(duration_of_call())),
            25 => out.set_result(row.duration_high_ns.or(duration_of_call())),
            26 => out.set_result(
                row.arguments
                    .zip(trace())
                    .map(|(arguments, trace)| everycall_export::arguments_json(trace.view, arguments)),
            ),
            27 => out.set_result(
                row.result
                    .zip(trace())
                    .map(|(result, trace)| everycall_export::result_json(trace.view, result)),
            ),
            _ => out.set_result(trace().map(|trace| trace.name)),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row_number)
    }
}

/// A number of a call; `None` for what none can be.
fn whole_number(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) if number.fract() == 0.0 => Some(number as i64),
        // A column of integers compared with a text: SQLite makes a number of it.
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}
