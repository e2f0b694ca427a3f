//! Parquet: one table, with a row for each call, written when it ends, and rows for everything else
//! that the trace has. `docs/reference/parquet.md` says what the columns mean.
//!
//! Names stand in every row, as dictionary-encoded texts: they cost next to nothing, and who reads
//! the table needs no second one. Times are nanoseconds as 64-bit integers. Memory holds one group
//! of rows.

mod coded;
mod columns;
mod deltas;
mod table;

use std::io::{self, Write};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use self::columns::SubjectId;
use self::table::{RowThread, Table};
use crate::driver::{Export, Sink};
use crate::filtered::Event;
use crate::names::{FunctionId, Functions};
use crate::portions::Portions;
use crate::rows::{Call, Row, RowFunction, RowMaker, RowSubject};
use crate::source::Source;
use crate::values;
use everycall_calls::Thread;

/// Rows of a group: each is compressed and can be skipped by itself.
const GROUP: usize = 1 << 17;

/// The output.
pub(crate) struct Parquet<'o> {
    portions: Portions<'o>,
    table: Table,
    /// Writes into memory, from where [`Portions`] takes it; `None` after an error.
    file: Option<SerializedFileWriter<Vec<u8>>>,
    failure: Option<ParquetError>,
    /// By function: its number in this group.
    functions: Vec<Option<SubjectId>>,
    maker: RowMaker,
}

impl<'o> Parquet<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Parquet {
            portions: Portions::new(out),
            table: Table::default(),
            file: None,
            failure: None,
            functions: Vec::new(),
            maker: RowMaker::default(),
        }
    }

    #[inline]
    fn function(&mut self, id: FunctionId, functions: &Functions<'_>) -> SubjectId {
        match self.functions.get(id.index()) {
            Some(Some(known)) => *known,
            _ => self.new_function(id, functions),
        }
    }

    #[cold]
    fn new_function(&mut self, id: FunctionId, functions: &Functions<'_>) -> SubjectId {
        if self.functions.len() <= id.index() {
            self.functions.resize(id.index() + 1, None);
        }
        let subject = self.table.function(&RowFunction::of(id, functions));
        self.functions[id.index()] = Some(subject);
        subject
    }

    #[inline]
    fn put_call(&mut self, call: &Call, functions: &Functions<'_>, source: &impl Source) {
        let subject = self.function(call.function, functions);
        self.table.push_call(call, subject);
        if call.values.are_any() {
            self.table.push_values(values::json(source, call.values));
        }
        self.end_row();
    }

    fn put(&mut self, row: &Row, functions: &Functions<'_>) {
        let subject = match &row.what {
            RowSubject::Function(id) => self.function(*id, functions),
            RowSubject::Text(name) => self.table.named(Some(name)),
            RowSubject::Nothing => self.table.named(None),
        };
        self.table.push(row, subject);
        self.end_row();
    }

    #[inline]
    fn end_row(&mut self) {
        if self.table.rows() >= GROUP {
            self.write_group();
        }
    }

    #[cold]
    fn write_group(&mut self) {
        let written = self.file.as_mut().map(|file| {
            self.table.write(file)?;
            // Bytes that are written stay valid: the file counts its bytes by itself.
            self.portions.put(file.inner());
            file.inner_mut().clear();
            Ok(())
        });
        if let Some(Err(error)) = written {
            (self.file, self.failure) = (None, Some(error));
        }
        self.table.clear();
        self.functions.clear();
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
        if export.source.has_bounds() {
            self.table.add_bounds();
        }
        if export.source.has_values() {
            self.table.add_values();
        }
        match self.table.schema().and_then(|schema| {
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(Table::properties(facts)))
        }) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.failure = Some(error),
        }
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        let process = export.source.processes().get(thread.process);
        self.table.thread(RowThread {
            pid: thread.pid.into(),
            tid: thread.tid.into(),
            process: process.map(|process| process.name.clone()).unwrap_or_default(),
            name: thread.name.clone(),
        });
        self.maker.thread();
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        match event {
            Event::Begin { .. } | Event::End { .. } => {
                if let Some(call) = self.maker.call((event, export.bars), export.source) {
                    self.put_call(&call, &export.functions, export.source);
                }
            }
            _ => {
                if let Some(row) = self.maker.row((event, None), &export.functions, export.source) {
                    self.put(&row, &export.functions);
                }
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
