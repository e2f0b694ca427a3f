//! Tables that are small: they are made whole when a query reads them, or before.

// rusqlite's traits are unsafe to implement: SQLite takes pointers to these structures for pointers
// to their first fields, so they are `repr(C)` and have SQLite's own structures there.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::rc::Rc;

use everycall_analysis::{SamplePlaces, SampledCalls, kept_calls};
use everycall_export::{CALL, RowSubject, Source as _};
use rusqlite::types::Value;
use rusqlite::vtab::{
    Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Result};

use crate::aggregation;
use crate::events::{Aux, failed};
use crate::lanes::OpenTrace;
use crate::schema::{From, TABLES, TableFacts};
use crate::traces::Shared;

type Line = Vec<Value>;

/// The table of the groups of a query that adds up calls. Users don't see it.
pub(crate) const GROUPS: &str = "everycall_groups";

/// Makes all lists known to a connection.
pub(crate) fn register(connection: &Connection, shared: &Rc<Shared>) -> Result<()> {
    const MODULE: Module<'_, List> = Module::eponymous_only_module();
    for table in TABLES.iter().filter(|table| table.rows == From::List) {
        connection.create_module(table.list().as_str(), &MODULE, Some(Aux(shared.clone())))?;
    }
    connection.create_module(GROUPS, &MODULE, Some(Aux(shared.clone())))
}

#[repr(C)]
struct List {
    base: sqlite3_vtab,
    shared: Rc<Shared>,
    /// None for the table of groups.
    facts: Option<&'static TableFacts>,
}

// SAFETY: `repr(C)`, and SQLite's structure comes first.
unsafe impl VTab<'_> for List {
    type Aux = Aux;
    type Cursor = ListCursor;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Aux>,
        module: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let facts = TABLES.iter().find(|table| table.list().as_bytes() == module);
        let Some(Aux(shared)) = aux.filter(|_| facts.is_some() || module == GROUPS.as_bytes()) else {
            return Err(failed("no such list"));
        };
        let declared = CString::new(facts.map_or_else(declaration_of_groups, TableFacts::declaration))?;
        Ok((declared.into(), List { base: sqlite3_vtab::default(), shared: shared.clone(), facts }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        info.set_estimated_cost(1000.0);
        info.set_estimated_rows(100);
        Ok(true)
    }

    fn open(&mut self) -> Result<ListCursor> {
        let (shared, facts) = (self.shared.clone(), self.facts);
        let lines = Rc::default();
        Ok(ListCursor { base: sqlite3_vtab_cursor::default(), shared, facts, lines, place: 0 })
    }
}

#[repr(C)]
struct ListCursor {
    base: sqlite3_vtab_cursor,
    shared: Rc<Shared>,
    facts: Option<&'static TableFacts>,
    lines: Rc<Vec<Line>>,
    place: usize,
}

// SAFETY: `repr(C)`, and SQLite's structure comes first.
unsafe impl VTabCursor for ListCursor {
    fn filter(&mut self, _: i32, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        let traces = self.shared.traces.iter();
        self.lines = match self.facts.map(|facts| facts.name) {
            None => self.shared.groups.borrow().clone(),
            Some("functions") => functions(&self.shared).into(),
            Some("threads") => threads(&self.shared).into(),
            Some("processes") => Rc::new(traces.flat_map(processes).collect()),
            Some("samples") => samples(&self.shared).into(),
            Some("kept_calls") => Rc::new(traces.flat_map(kept).collect()),
            Some("modules") => Rc::new(traces.flat_map(modules).collect()),
            Some(_) => Rc::new(traces.map(about).collect()),
        };
        self.place = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.place += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.place >= self.lines.len()
    }

    fn column(&self, out: &mut Context, column: i32) -> Result<()> {
        let cell = self.lines.get(self.place).zip(usize::try_from(column).ok());
        out.set_result(cell.and_then(|(line, column)| line.get(column)))
    }

    fn rowid(&self) -> Result<i64> {
        Ok(i64::try_from(self.place).unwrap_or(i64::MAX))
    }
}

fn declaration_of_groups() -> String {
    let columns: Vec<String> =
        aggregation::columns().into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    format!("create table {GROUPS}({})", columns.join(", "))
}

fn number(value: u64) -> Value {
    Value::Integer(value.cast_signed())
}

fn maybe(value: Option<u64>) -> Value {
    value.map_or(Value::Null, number)
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn maybe_text(value: Option<&str>) -> Value {
    value.map_or(Value::Null, text)
}

fn lossy(bytes: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(bytes).into_owned())
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    total_ns: i64,
    own_ns: i64,
    max_ns: i64,
}

/// Functions of one name and place are one, as in `report`.
fn functions(shared: &Shared) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, trace) in shared.traces.iter().enumerate() {
        let mut rows = trace.rows();
        // By number of the function.
        let mut sums: Vec<Option<(everycall_export::FunctionId, Sums)>> = Vec::new();
        for lane in shared.lanes.iter().filter(|lane| lane.trace == index) {
            rows.enter(lane.thread, 0);
            while let Some(row) = rows.next_row() {
                let (RowSubject::Function(id), CALL) = (row.what, row.kind) else { continue };
                if sums.len() <= id.index() {
                    sums.resize(id.index() + 1, None);
                }
                let Some(place) = sums.get_mut(id.index()) else { continue };
                let (_, sums) = place.get_or_insert((id, Sums::default()));
                let duration_ns = row.duration_ns.unwrap_or(0);
                sums.calls += 1;
                sums.own_ns = sums.own_ns.saturating_add(row.own_ns.unwrap_or(0));
                sums.max_ns = sums.max_ns.max(duration_ns);
                if row.recursion == Some(0) {
                    sums.total_ns = sums.total_ns.saturating_add(duration_ns);
                }
            }
        }
        let mut by_name: BTreeMap<_, Sums> = BTreeMap::new();
        for (id, sums) in sums.into_iter().flatten() {
            let function = rows.function(id);
            let all =
                by_name.entry((function.name, function.module, function.file, function.line)).or_default();
            all.calls += sums.calls;
            all.total_ns = all.total_ns.saturating_add(sums.total_ns);
            all.own_ns = all.own_ns.saturating_add(sums.own_ns);
            all.max_ns = all.max_ns.max(sums.max_ns);
        }
        lines.extend(by_name.into_iter().map(|((name, module, file, line), sums)| {
            vec![
                text(name),
                maybe_text(module),
                maybe_text(file),
                maybe(line.map(u64::from)),
                number(sums.calls),
                Value::Integer(sums.total_ns),
                Value::Integer(sums.own_ns),
                Value::Integer(sums.max_ns),
                text(trace.name),
            ]
        }));
    }
    lines
}

fn threads(shared: &Shared) -> Vec<Line> {
    let line = |number_of_lane: usize| {
        let lane = shared.lanes.get(number_of_lane)?;
        let trace = shared.traces.get(lane.trace)?;
        let (process, thread) = shared.names(number_of_lane)?;
        let info = trace.view.thread_info(lane.thread)?;
        Some(vec![
            Value::Integer(lane.pid),
            text(process),
            Value::Integer(lane.tid),
            text(thread),
            number(info.entries),
            maybe(info.reach.map(|(first, _)| first)),
            maybe(info.reach.map(|(_, last)| last)),
            number(info.losses),
            text(trace.name),
        ])
    };
    (0..shared.lanes.len()).filter_map(line).collect()
}

/// Sampled stacks within calls of the threads that are read.
fn samples(shared: &Shared) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, trace) in shared.traces.iter().enumerate() {
        let Some(mut places) = SamplePlaces::new(trace.view) else { continue };
        let (since_ns, until_ns) = trace.filter.bounds(trace.view);
        for lane in shared.lanes.iter().filter(|lane| lane.trace == index) {
            let Some(thread) = trace.view.threads().get(lane.thread) else { continue };
            let of = places.of_thread(thread).to_vec();
            let Some(events) = trace.view.timeline_from(lane.thread, None).filter(|_| !of.is_empty()) else {
                continue;
            };
            let mut calls = SampledCalls::new(of);
            for event in events {
                calls.event(&event, &mut |at_ns, sample, open| {
                    if !(since_ns..=until_ns).contains(&at_ns) {
                        return;
                    }
                    let number_of = open.last().map(|call| places.functions().number(*call));
                    let place = places.place(sample, number_of);
                    let stack = places.frames(sample);
                    let names: Vec<&str> = stack.iter().map(|frame| frame.name.as_str()).collect();
                    let function = number_of.and_then(|of| places.functions().functions().get(of));
                    let identity = function.map(|function| &function.identity);
                    lines.push(vec![
                        Value::Integer(lane.pid),
                        Value::Integer(lane.tid),
                        number(at_ns),
                        number(open.len() as u64),
                        maybe_text(identity.map(|identity| identity.name.as_str())),
                        Value::Text(place.label(identity.map_or("", |identity| &identity.module))),
                        Value::Text(names.join(";")),
                        text(trace.name),
                    ]);
                });
            }
        }
    }
    lines
}

fn processes(trace: &OpenTrace) -> Vec<Line> {
    let line = |process: &everycall_export::Process| {
        vec![
            number(process.pid.into()),
            maybe(Some(process.parent_pid).filter(|pid| *pid > 0).map(u64::from)),
            text(&process.name),
            text(&process.command.join(" ")),
            text(trace.name),
        ]
    };
    trace.view.processes().iter().map(line).collect()
}

fn kept(trace: &OpenTrace) -> Vec<Line> {
    let calls = kept_calls(trace.view.trace(), trace.view.names()).into_iter();
    calls
        .map(|call| {
            vec![
                number(call.number as u64),
                maybe(Some(call.pid).filter(|pid| *pid > 0).map(u64::from)),
                number(call.tid.into()),
                text(&call.thread),
                maybe_text(call.function.as_deref()),
                number(call.start_ns),
                if call.is_call { number(call.took_ns) } else { Value::Null },
                if call.is_call { number(call.least_ns()) } else { Value::Null },
                maybe(call.most_ns().filter(|_| call.is_call)),
                if call.is_call { number(call.threshold_ns) } else { Value::Null },
                text(trace.name),
            ]
        })
        .collect()
}

fn modules(trace: &OpenTrace) -> Vec<Line> {
    let timeline = trace.view.trace();
    let modules = timeline.modules().iter();
    modules
        .map(|module| {
            let name = module.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            let pid = timeline.processes().get(module.process).map(|process| u64::from(process.pid));
            vec![
                maybe(pid),
                lossy(name),
                lossy(&module.path),
                if build_id.is_empty() { Value::Null } else { Value::Text(build_id) },
                number(module.start),
                number(module.end),
                number(timeline.clock().ns(module.loaded_ticks)),
                maybe(module.unloaded_ticks.map(|ticks| timeline.clock().ns(ticks))),
                text(trace.name),
            ]
        })
        .collect()
}

fn about(trace: &OpenTrace) -> Line {
    let meta = trace.view.trace().meta();
    let words: Vec<_> = meta.arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
    vec![
        text(trace.name),
        Value::Text(words.join(" ")),
        lossy(&meta.host),
        maybe(trace.view.origin_realtime_ns()),
        number(trace.view.end_ns()),
        lossy(&meta.tool_version),
    ]
}
