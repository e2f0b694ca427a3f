//! Parquet: one table, with a row for each call, written when it ends, and rows for everything else
//! that the trace has. `docs/parquet.md` says what the columns mean.
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

use self::columns::TextId;
use self::table::{Cells, Table};
use crate::driver::{Export, Sink};
use crate::filtered::Event;
use crate::names::{FunctionId, Functions};
use crate::portions::Portions;
use crate::rows::{CALL, Row, RowFunction, RowMaker, What};
use crate::source::{Source, Thread};

/// Rows of a group: each is compressed and can be skipped by itself.
const GROUP: usize = 1 << 17;

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
    maker: RowMaker,
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

impl<'o> Parquet<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Parquet {
            portions: Portions::new(out),
            table: Table::default(),
            file: None,
            failure: None,
            thread: ThreadCells::default(),
            functions: Vec::new(),
            maker: RowMaker::default(),
        }
    }

    /// The texts of the thread's name, its process's and `call`, in this group.
    #[inline]
    fn thread_cells(&mut self) -> (TextId, TextId, TextId) {
        match self.thread.ids {
            Some(ids) => ids,
            None => {
                let (process, name) = (&self.thread.process, &self.thread.name);
                let ids = (self.table.text(process), self.table.text(name), self.table.text(CALL));
                *self.thread.ids.insert(ids)
            }
        }
    }

    #[inline]
    fn function(&mut self, id: FunctionId, functions: &Functions<'_>) -> FunctionCells {
        match self.functions.get(id.index()) {
            Some(Some(known)) => *known,
            _ => self.new_function(id, functions),
        }
    }

    #[cold]
    fn new_function(&mut self, id: FunctionId, functions: &Functions<'_>) -> FunctionCells {
        if self.functions.len() <= id.index() {
            self.functions.resize(id.index() + 1, None);
        }
        let RowFunction { name, module, file, line } = RowFunction::of(id, functions);
        let cells = FunctionCells {
            name: self.table.text(name),
            module: module.map(|name| self.table.text(name)),
            file: file.map(|path| self.table.text(path)),
            line: line.and_then(|line| i32::try_from(line).ok()),
        };
        self.functions[id.index()] = Some(cells);
        cells
    }

    #[inline]
    fn put(&mut self, row: &Row, functions: &Functions<'_>) {
        let (process, thread, call) = self.thread_cells();
        let mut cells = Cells {
            kind: if row.kind == CALL { call } else { self.table.text(row.kind) },
            pid: self.thread.pid,
            process,
            tid: self.thread.tid,
            thread,
            ..Cells::default()
        };
        match &row.what {
            What::Function(id) => {
                let FunctionCells { name, module, file, line } = self.function(*id, functions);
                cells = Cells { function: Some(name), module, file, line, ..cells };
            }
            What::Text(name) => cells.function = Some(self.table.text(name)),
            What::Nothing => {}
        }
        cells.remarks = row.remarks.as_ref().map(|remarks| self.table.text(remarks));
        self.table.push(&cells, row);
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
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(Table::properties(facts)))
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
        self.maker.thread();
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        if let Some(row) = self.maker.row(event, &export.functions, export.source) {
            self.put(&row, &export.functions);
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
