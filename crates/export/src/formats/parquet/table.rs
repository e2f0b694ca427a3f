//! The table: its columns, and the rows of a group.

use std::sync::Arc;

use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::coded::compression;
use super::columns::{AnyColumn, Column, TextId, Texts};
use crate::rows::Row;

/// What a row has besides its numbers: texts, by their numbers in the group, and its thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Cells {
    pub(super) kind: TextId,
    pub(super) pid: i64,
    pub(super) process: TextId,
    pub(super) tid: i64,
    pub(super) thread: TextId,
    pub(super) function: Option<TextId>,
    pub(super) module: Option<TextId>,
    pub(super) file: Option<TextId>,
    pub(super) line: Option<i32>,
    pub(super) remarks: Option<TextId>,
}

/// The rows of a group.
pub(super) struct Table {
    rows: usize,
    texts: Texts,
    kind: Column<TextId>,
    pid: Column<i64>,
    process: Column<TextId>,
    tid: Column<i64>,
    thread: Column<TextId>,
    id: Column<i64>,
    parent: Column<i64>,
    depth: Column<i32>,
    recursion: Column<i32>,
    start_ns: Column<i64>,
    start_realtime_ns: Column<i64>,
    duration_ns: Column<i64>,
    own_ns: Column<i64>,
    function: Column<TextId>,
    module: Column<TextId>,
    file: Column<TextId>,
    line: Column<i32>,
    value: Column<i64>,
    real_value: Column<f64>,
    blocked_ns: Column<i64>,
    runnable_ns: Column<i64>,
    other_tid: Column<i64>,
    remarks: Column<TextId>,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            rows: 0,
            texts: Texts::default(),
            kind: Column::required(),
            pid: Column::required().with_statistics(),
            process: Column::required(),
            tid: Column::required().with_statistics(),
            thread: Column::required(),
            id: Column::optional().with_statistics(),
            parent: Column::optional(),
            depth: Column::required().with_statistics(),
            recursion: Column::optional(),
            start_ns: Column::required().with_statistics(),
            start_realtime_ns: Column::mostly_empty().with_statistics(),
            duration_ns: Column::optional().with_statistics(),
            own_ns: Column::optional(),
            function: Column::optional(),
            module: Column::optional(),
            file: Column::optional(),
            line: Column::optional(),
            value: Column::rare(),
            real_value: Column::rare(),
            blocked_ns: Column::rare(),
            runnable_ns: Column::rare(),
            other_tid: Column::rare(),
            remarks: Column::rare(),
        }
    }
}

impl Table {
    /// The columns in their order in the file.
    fn columns(&mut self) -> (&Texts, [(&'static str, &mut dyn AnyColumn); 23]) {
        let columns: [(&str, &mut dyn AnyColumn); 23] = [
            ("kind", &mut self.kind),
            ("pid", &mut self.pid),
            ("process", &mut self.process),
            ("tid", &mut self.tid),
            ("thread", &mut self.thread),
            ("id", &mut self.id),
            ("parent", &mut self.parent),
            ("depth", &mut self.depth),
            ("recursion", &mut self.recursion),
            ("start_ns", &mut self.start_ns),
            ("start_realtime_ns", &mut self.start_realtime_ns),
            ("duration_ns", &mut self.duration_ns),
            ("own_ns", &mut self.own_ns),
            ("function", &mut self.function),
            ("module", &mut self.module),
            ("file", &mut self.file),
            ("line", &mut self.line),
            ("value", &mut self.value),
            ("real_value", &mut self.real_value),
            ("blocked_ns", &mut self.blocked_ns),
            ("runnable_ns", &mut self.runnable_ns),
            ("other_tid", &mut self.other_tid),
            ("remarks", &mut self.remarks),
        ];
        (&self.texts, columns)
    }

    pub(super) fn schema(&mut self) -> Result<TypePtr> {
        let (_, columns) = self.columns();
        let fields = columns.map(|(name, column)| column.declared(name).map(Arc::new));
        let fields = fields.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(Type::group_type_builder("everycall").with_fields(fields).build()?))
    }

    /// How the file is written; `facts` stand in its footer.
    pub(super) fn properties(facts: Vec<KeyValue>) -> WriterProperties {
        WriterProperties::builder()
            .set_created_by(concat!("everycall ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(compression())
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(facts))
            .build()
    }

    pub(super) fn text(&mut self, text: &str) -> TextId {
        self.texts.id(text)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    #[inline]
    pub(super) fn push(&mut self, cells: &Cells, row: &Row) {
        let at = self.rows as u32;
        self.rows += 1;
        self.kind.push(cells.kind);
        self.pid.push(cells.pid);
        self.process.push(cells.process);
        self.tid.push(cells.tid);
        self.thread.push(cells.thread);
        self.id.maybe(at, row.id);
        self.parent.maybe(at, row.parent);
        self.depth.push(row.depth);
        self.recursion.maybe(at, row.recursion);
        self.start_ns.push(row.start_ns);
        self.start_realtime_ns.maybe(at, row.start_realtime_ns);
        self.duration_ns.maybe(at, row.duration_ns);
        self.own_ns.maybe(at, row.own_ns);
        self.function.maybe(at, cells.function);
        self.module.maybe(at, cells.module);
        self.file.maybe(at, cells.file);
        self.line.maybe(at, cells.line);
        self.value.maybe(at, row.value);
        self.real_value.maybe(at, row.real_value);
        self.blocked_ns.maybe(at, row.blocked_ns);
        self.runnable_ns.maybe(at, row.runnable_ns);
        self.other_tid.maybe(at, row.other_tid);
        self.remarks.maybe(at, cells.remarks);
    }

    /// Writes the rows as a group.
    pub(super) fn write(&mut self, file: &mut SerializedFileWriter<Vec<u8>>) -> Result<()> {
        let descriptors = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group()?;
        let rows = self.rows;
        let (texts, columns) = self.columns();
        for ((_, column), descriptor) in columns.into_iter().zip(&descriptors) {
            column.write(rows, texts, descriptor, &mut group)?;
        }
        group.close().map(drop)
    }

    /// Forgets the rows and their texts.
    pub(super) fn clear(&mut self) {
        self.rows = 0;
        for (_, column) in self.columns().1 {
            column.clear();
        }
        self.texts.clear();
    }
}
