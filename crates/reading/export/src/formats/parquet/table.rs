//! The table: its columns, and the rows of a group.

use std::sync::Arc;

use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::coded::{Packer, compression};
use super::columns::{AnyColumn, Column, Context, OfSubject, Output, Runs, Subject, SubjectId, TextId};
use crate::rows::{CALL, Call, Row, RowFunction};

/// The thread of rows.
#[derive(Default)]
pub(super) struct RowThread {
    pub(super) pid: i64,
    pub(super) tid: i64,
    pub(super) process: String,
    pub(super) name: String,
}

/// The rows of a group.
pub(super) struct Table {
    context: Context,
    packer: Packer,
    kind: Runs<&'static str>,
    pid: Runs<i64>,
    process: Runs<Arc<str>>,
    tid: Runs<i64>,
    thread: Runs<Arc<str>>,
    id: Column<i64>,
    parent: Column<i64>,
    depth: Column<i32>,
    recursion: Column<i32>,
    start_ns: Column<i64>,
    start_realtime_ns: Column<i64>,
    duration_ns: Column<i64>,
    own_ns: Column<i64>,
    /// Least and largest duration, if there are columns for them.
    bounds_ns: Option<[Column<i64>; 2]>,
    /// Arguments and results as JSON, if there are columns for them.
    values: Option<[Column<TextId>; 2]>,
    function: OfSubject,
    module: OfSubject,
    file: OfSubject,
    line: OfSubject,
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
            context: Context::default(),
            packer: Packer::default(),
            kind: Runs::new(CALL),
            pid: Runs::new(0).with_statistics(),
            process: Runs::new("".into()),
            tid: Runs::new(0).with_statistics(),
            thread: Runs::new("".into()),
            id: Column::optional().with_statistics(),
            parent: Column::optional(),
            depth: Column::required().with_statistics(),
            recursion: Column::optional(),
            start_ns: Column::required().with_statistics(),
            start_realtime_ns: Column::mostly_empty().with_statistics(),
            duration_ns: Column::optional().with_statistics(),
            own_ns: Column::optional(),
            bounds_ns: None,
            values: None,
            function: OfSubject::Text(|subject| subject.name),
            module: OfSubject::Text(|subject| subject.module),
            file: OfSubject::Text(|subject| subject.file),
            line: OfSubject::Line(|subject| subject.line),
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
    fn columns(&mut self) -> (&Context, &mut Packer, Vec<(&'static str, &mut dyn AnyColumn)>) {
        let mut columns: Vec<(&str, &mut dyn AnyColumn)> = vec![
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
        if let Some([low, high]) = &mut self.bounds_ns {
            columns.push(("duration_low_ns", low));
            columns.push(("duration_high_ns", high));
        }
        if let Some([arguments, result]) = &mut self.values {
            columns.push(("arguments", arguments));
            columns.push(("result", result));
        }
        (&self.context, &mut self.packer, columns)
    }

    /// There are columns for the bounds of durations.
    pub(super) fn add_bounds(&mut self) {
        self.bounds_ns = Some([Column::optional(), Column::optional()]);
    }

    /// There are columns for arguments and results.
    pub(super) fn add_values(&mut self) {
        self.values = Some([Column::rare(), Column::rare()]);
    }

    /// The values of the call that was pushed last, as JSON.
    pub(super) fn push_values(&mut self, (arguments, result): (Option<String>, Option<String>)) {
        let Some(at) = self.context.rows.checked_sub(1) else { return };
        let mut texts = [arguments, result].map(|text| text.map(|text| self.context.texts.id(&text)));
        for (column, text) in self.values.iter_mut().flatten().zip(&mut texts) {
            if let Some(text) = text.take() {
                column.maybe(at as u32, Some(text));
            }
        }
    }

    pub(super) fn schema(&mut self) -> Result<TypePtr> {
        let (_, _, columns) = self.columns();
        let fields = columns.into_iter().map(|(name, column)| column.declared(name).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>>>()?;
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

    /// Rows of this thread follow.
    pub(super) fn thread(&mut self, thread: RowThread) {
        let at = self.rows();
        self.pid.set(at, thread.pid);
        self.tid.set(at, thread.tid);
        self.process.set(at, thread.process.into());
        self.thread.set(at, thread.name.into());
    }

    /// A function that rows of this group are about.
    pub(super) fn function(&mut self, function: &RowFunction<'_>) -> SubjectId {
        let texts = &mut self.context.texts;
        let subject = Subject {
            name: Some(texts.id(function.name)),
            module: function.module.map(|name| texts.id(name)),
            file: function.file.map(|path| texts.id(path)),
            line: function.line.and_then(|line| i32::try_from(line).ok()),
        };
        self.context.subject(subject)
    }

    /// Another subject of rows of this group, by its name.
    pub(super) fn named(&mut self, name: Option<&str>) -> SubjectId {
        let name = name.map(|name| self.context.texts.id(name));
        self.context.subject(Subject { name, ..Subject::default() })
    }

    pub(super) fn rows(&self) -> usize {
        self.context.rows
    }

    #[inline]
    pub(super) fn push_call(&mut self, call: &Call, subject: SubjectId) {
        let at = self.begin_row(CALL, subject);
        self.id.push(call.id);
        self.parent.maybe(at, call.parent);
        self.depth.push(call.depth);
        self.recursion.push(call.recursion);
        self.start_ns.push(call.start_ns);
        self.start_realtime_ns.maybe(at, call.start_realtime_ns);
        self.duration_ns.push(call.duration_ns);
        self.own_ns.push(call.own_ns);
        if let (Some([low, high]), Some((least, most))) = (&mut self.bounds_ns, call.bounds_ns) {
            low.push(least);
            high.push(most);
        }
        if let Some(remarks) = &call.remarks {
            self.remark(at, remarks);
        }
    }

    pub(super) fn push(&mut self, row: &Row, subject: SubjectId) {
        let at = self.begin_row(row.kind, subject);
        self.id.maybe(at, row.id);
        self.parent.maybe(at, row.parent);
        self.depth.push(row.depth);
        self.recursion.maybe(at, row.recursion);
        self.start_ns.push(row.start_ns);
        self.start_realtime_ns.maybe(at, row.start_realtime_ns);
        self.duration_ns.maybe(at, row.duration_ns);
        self.own_ns.maybe(at, row.own_ns);
        if let Some([low, high]) = &mut self.bounds_ns {
            low.maybe(at, row.duration_low_ns);
            high.maybe(at, row.duration_high_ns);
        }
        self.value.maybe(at, row.value);
        self.real_value.maybe(at, row.real_value);
        self.blocked_ns.maybe(at, row.blocked_ns);
        self.runnable_ns.maybe(at, row.runnable_ns);
        self.other_tid.maybe(at, row.other_tid);
        if let Some(remarks) = &row.remarks {
            self.remark(at, remarks);
        }
    }

    /// Its number.
    #[inline]
    fn begin_row(&mut self, kind: &'static str, subject: SubjectId) -> u32 {
        let at = self.context.rows;
        self.context.push(subject);
        self.kind.set(at, kind);
        at as u32
    }

    #[cold]
    fn remark(&mut self, at: u32, remarks: &str) {
        let id = self.context.texts.id(remarks);
        self.remarks.maybe(at, Some(id));
    }

    /// Writes the rows as a group.
    pub(super) fn write(&mut self, file: &mut SerializedFileWriter<Vec<u8>>) -> Result<()> {
        let descriptors = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group()?;
        let (context, packer, columns) = self.columns();
        for ((_, column), descriptor) in columns.into_iter().zip(&descriptors) {
            column.write(context, &mut Output { packer, descriptor, group: &mut group })?;
        }
        group.close().map(drop)
    }

    /// Forgets the rows and their texts.
    pub(super) fn clear(&mut self) {
        for (_, column) in self.columns().2 {
            column.clear();
        }
        self.context.clear();
    }
}
