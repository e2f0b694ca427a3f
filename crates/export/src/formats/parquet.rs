//! Parquet: one table, with a row for each call, written when it ends, and rows for everything else
//! that the trace has. `docs/parquet.md` says what the columns mean.
//!
//! Names stand in every row, as dictionary-encoded texts: they cost next to nothing, and who reads
//! the table needs no second one. Times are nanoseconds as 64-bit integers. Memory holds one group
//! of rows.

mod coded;
mod columns;
mod table;

use std::io::{self, Write};
use std::sync::Arc;

use everycall_timeline::{Gap, GapKind, Mark, MarkKind};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use self::columns::TextId;
use self::table::{Row, Table};
use crate::driver::{Export, Sink};
use crate::filtered::{Event, Point, PointKind};
use crate::names::{FunctionId, Functions};
use crate::off_cpu::OffCpu;
use crate::portions::Portions;
use crate::source::{Source, Thread, Times};
use crate::text;

/// Rows of a group: each is compressed and can be skipped by itself.
const GROUP: usize = 1 << 17;

/// The kind of most rows.
const CALL: &str = "call";

/// The output.
pub(crate) struct Parquet<'o> {
    portions: Portions<'o>,
    table: Table,
    /// Writes into memory, from where [`Portions`] takes it; `None` after an error.
    file: Option<SerializedFileWriter<Vec<u8>>>,
    failure: Option<ParquetError>,
    thread: ThreadCells,
    /// By function: its texts in this group.
    functions: Vec<Option<FunctionCells>>,
    /// By function: its open calls.
    recursion: Vec<i32>,
    open: Vec<Open>,
    /// Calls so far.
    calls: i64,
}

#[derive(Clone, Default)]
struct ThreadCells {
    pid: i64,
    tid: i64,
    process: String,
    name: String,
    /// The two texts in this group, and `call`.
    ids: Option<(TextId, TextId, TextId)>,
}

#[derive(Clone, Copy)]
struct FunctionCells {
    name: TextId,
    module: Option<TextId>,
    file: Option<TextId>,
    line: Option<i32>,
}

struct Open {
    id: i64,
    /// Time in its callees, and in which its stack was suspended.
    inner_ns: u64,
}

impl<'o> Parquet<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Parquet {
            portions: Portions::new(out),
            table: Table::default(),
            file: None,
            failure: None,
            thread: ThreadCells::default(),
            functions: Vec::new(),
            recursion: Vec::new(),
            open: Vec::new(),
            calls: 0,
        }
    }

    /// What all rows of the thread have, at this depth.
    #[inline]
    fn row(&mut self, kind: &'static str, source: &impl Source, start_ns: u64) -> Row {
        let (process, thread, call) = match self.thread.ids {
            Some(ids) => ids,
            None => {
                let (process, name) = (&self.thread.process, &self.thread.name);
                let ids = (self.table.text(process), self.table.text(name), self.table.text(CALL));
                *self.thread.ids.insert(ids)
            }
        };
        let realtime_ns = match source.times() {
            Times::Wall(_) => source.realtime_ns(start_ns).map(u64::cast_signed),
            _ => None,
        };
        Row {
            kind: if kind == CALL { call } else { self.table.text(kind) },
            pid: self.thread.pid,
            process,
            tid: self.thread.tid,
            thread,
            parent: self.open.last().map(|open| open.id),
            depth: i32::try_from(self.open.len()).unwrap_or(i32::MAX),
            start_ns: start_ns.cast_signed(),
            start_realtime_ns: realtime_ns,
            ..Row::default()
        }
    }

    fn function(&mut self, id: FunctionId, functions: &Functions<'_>) -> FunctionCells {
        if self.functions.len() <= id.index() {
            self.functions.resize(id.index() + 1, None);
        }
        if let Some(known) = self.functions[id.index()] {
            return known;
        }
        let function = functions.get(id);
        let cells = FunctionCells {
            name: self.table.text(&function.name),
            module: Some(&function.module).filter(|name| !name.is_empty()).map(|name| self.table.text(name)),
            file: function.file.as_deref().map(|path| self.table.text(path)),
            line: function.line.and_then(|line| i32::try_from(line).ok()),
        };
        self.functions[id.index()] = Some(cells);
        cells
    }

    fn recursion(&mut self, id: FunctionId) -> &mut i32 {
        if self.recursion.len() <= id.index() {
            self.recursion.resize(id.index() + 1, 0);
        }
        &mut self.recursion[id.index()]
    }

    fn begin(&mut self, function: FunctionId) {
        *self.recursion(function) += 1;
        self.calls += 1;
        self.open.push(Open { id: self.calls, inner_ns: 0 });
    }

    #[inline]
    fn call(&mut self, event: &Event, functions: &Functions<'_>, source: &impl Source) {
        let Event::End { function, start_ns, end_ns, start, how } = *event else { return };
        let Some(Open { id, inner_ns }) = self.open.pop() else { return };
        let duration_ns = end_ns.saturating_sub(start_ns);
        if let Some(caller) = self.open.last_mut() {
            caller.inner_ns = caller.inner_ns.saturating_add(duration_ns);
        }
        let recursion = self.recursion(function);
        *recursion = recursion.saturating_sub(1);
        let recursion = *recursion;
        let remarks = self.joined(text::remarks(start.cut, start.caller_unsure, how));
        let cells = self.function(function, functions);
        let row = self.row(CALL, source, start_ns);
        self.put(Row {
            id: Some(id),
            recursion: Some(recursion),
            duration_ns: Some(duration_ns.cast_signed()),
            own_ns: Some(duration_ns.saturating_sub(inner_ns).cast_signed()),
            remarks,
            ..row.of(cells)
        });
    }

    fn point(&mut self, point: &Point, functions: &Functions<'_>, source: &impl Source) {
        let (kind, function) = match point.kind {
            PointKind::Lost(_) => ("lost", None),
            PointKind::OrphanExit(function) => ("orphan exit", Some(function)),
            PointKind::LeftOut => ("left out", None),
            PointKind::Dropped => ("dropped", None),
        };
        let (_, detail) = text::point(point, functions);
        let remarks = if function.is_none() { self.joined(std::iter::once(detail)) } else { None };
        let cells = function.map(|function| self.function(function, functions));
        let row = self.row(kind, source, point.at_ns);
        let row = Row { value: point.count.map(u64::cast_signed), remarks, ..row };
        self.put(cells.map_or(row, |cells| row.of(cells)));
    }

    fn mark(&mut self, mark: &Mark, source: &impl Source) {
        let Some((kind, start)) = text::mark_kind(mark) else { return };
        let name = match mark.kind {
            MarkKind::Throw | MarkKind::Catch => text::type_name(source.mark_name(mark.name)),
            _ => Some(text::mark_title(source, mark).into_owned()),
        };
        let is_real = mark.kind == MarkKind::CounterReal;
        let row = self.row(kind, source, start.map_or(mark.at_ns, |(start_ns, ..)| start_ns));
        let row = Row {
            function: name.map(|name| self.table.text(&name)),
            value: mark.value.filter(|_| !is_real).map(u64::cast_signed),
            real_value: mark.value.filter(|_| is_real).map(f64::from_bits),
            duration_ns: start.map(|(start_ns, ..)| mark.at_ns.saturating_sub(start_ns).cast_signed()),
            remarks: start.and_then(|(_, cut, how)| self.joined(text::span_remarks(cut, how))),
            ..row
        };
        self.put(row);
    }

    fn gap(&mut self, gap: &Gap, source: &impl Source) {
        let length_ns = gap.until_ns.saturating_sub(gap.at_ns);
        let is_suspended = gap.why == GapKind::Suspended;
        if let Some(open) = self.open.last_mut().filter(|_| is_suspended) {
            open.inner_ns = open.inner_ns.saturating_add(length_ns);
        }
        let kind = if is_suspended { "suspended" } else { "not recorded" };
        let row = self.row(kind, source, gap.at_ns);
        let row = Row {
            duration_ns: Some(length_ns.cast_signed()),
            other_tid: gap.resumed_by.map(i64::from),
            remarks: self.joined(std::iter::once(text::gap_reason(gap.why))),
            ..row
        };
        self.put(row);
    }

    fn off_cpu(&mut self, off: &OffCpu, source: &impl Source) {
        let row = self.row("off cpu", source, off.at_ns);
        let row = Row {
            duration_ns: Some(off.until_ns.saturating_sub(off.at_ns).cast_signed()),
            blocked_ns: Some(off.times.blocked.cast_signed()),
            runnable_ns: Some(off.times.runnable.cast_signed()),
            other_tid: off.woken_by.map(i64::from),
            remarks: self.joined(off.parts().map(|(state, _)| state)),
            ..row
        };
        self.put(row);
    }

    /// Several texts as one.
    #[inline]
    fn joined<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> Option<TextId> {
        let mut joined = String::new();
        for text in texts {
            if !joined.is_empty() {
                joined.push_str("; ");
            }
            joined.push_str(text);
        }
        (!joined.is_empty()).then(|| self.table.text(&joined))
    }

    #[inline]
    fn put(&mut self, row: Row) {
        self.table.push(row);
        if self.table.rows() >= GROUP {
            self.write_group();
        }
    }

    #[cold]
    fn write_group(&mut self) {
        let written = self.file.as_mut().map(|file| {
            self.table.write(file)?;
            // What is written stays valid: the file counts its bytes by itself.
            self.portions.put(file.inner());
            file.inner_mut().clear();
            Ok(())
        });
        if let Some(Err(error)) = written {
            (self.file, self.failure) = (None, Some(error));
        }
        self.table.clear();
        self.functions.clear();
        self.thread.ids = None;
    }
}

impl<'o, S: Source> Sink<'o, S> for Parquet<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        let fact = |key: &str, value: String| KeyValue::new(format!("everycall.{key}"), value);
        let mut facts = vec![fact("end_ns", export.source.end_ns().to_string())];
        facts.extend(export.source.origin_realtime_ns().map(|ns| fact("origin_realtime_ns", ns.to_string())));
        match self.table.schema().and_then(|schema| {
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(self.table.properties(facts)))
        }) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.failure = Some(error),
        }
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        let process = export.source.processes().get(thread.process);
        self.thread = ThreadCells {
            pid: thread.pid.into(),
            tid: thread.tid.into(),
            process: process.map(|process| process.name.clone()).unwrap_or_default(),
            name: thread.name.clone(),
            ids: None,
        };
        self.open.clear();
        self.recursion.clear();
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: Event) {
        export.summary.event(&event);
        match event {
            Event::Begin { function, .. } => self.begin(function),
            Event::End { .. } => self.call(&event, &export.functions, export.source),
            Event::Point(point) => self.point(&point, &export.functions, export.source),
            Event::Mark(mark) => self.mark(&mark, export.source),
            Event::Gap(gap) => self.gap(&gap, export.source),
            Event::OffCpu(off) => self.off_cpu(&off, export.source),
            Event::Untraced(slice) => {
                let cells = self.function(slice.function, &export.functions);
                let remarks = self.joined(std::iter::once(text::UNTRACED));
                let row = self.row("untraced", export.source, slice.at_ns);
                let duration_ns = Some(slice.until_ns.saturating_sub(slice.at_ns).cast_signed());
                self.put(Row { duration_ns, remarks, ..row.of(cells) });
            }
        }
    }

    fn end(&mut self, _: &mut Export<'_, S>) -> io::Result<()> {
        if self.table.rows() > 0 {
            self.write_group();
        }
        if let Some(mut file) = self.file.take() {
            match file.finish() {
                Ok(_) => self.portions.put(file.inner()),
                Err(error) => self.failure = Some(error),
            }
        }
        self.failure.take().map_or(Ok(()), |error| Err(io::Error::other(error)))
    }
}

impl Row {
    /// Of this function.
    fn of(self, cells: FunctionCells) -> Row {
        let FunctionCells { name, module, file, line } = cells;
        Row { function: Some(name), module, file, line, ..self }
    }
}
