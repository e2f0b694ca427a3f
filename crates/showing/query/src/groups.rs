//! Calls in the order of their functions, for `group by function`: SQLite would sort all of them.
//!
//! Each function has its own chunks of records in a temporary file. Memory holds one chunk of each
//! function.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use everycall_export::{FunctionId, Row, RowFunction, RowSubject};
use rustc_hash::FxHashMap;

use crate::conditions::column;
use crate::lanes::TraceRows;
use crate::records::{RECORD, Remarks, from_bytes, to_bytes};

/// Bytes of a chunk.
const CHUNK: usize = 28 * RECORD;

/// Columns that are the same for all calls of a function, in the order in which a query names them,
/// and whether the last value comes first.
pub(crate) type Order = Vec<(i32, bool)>;

/// Whether calls can be in the order of this column.
pub(crate) fn is_of_functions(column: i32) -> bool {
    matches!(column, column::FUNCTION | column::MODULE | column::FILE | column::LINE | column::TRACE)
}

/// The columns that all calls of a function share.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    trace: usize,
    name: String,
    module: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Default)]
struct Group {
    /// Places of full chunks in the file.
    chunks: Vec<u64>,
    /// The last one.
    tail: Vec<u8>,
}

/// All calls of a query, by function.
pub(crate) struct Groups {
    file: File,
    /// Chunks in the file.
    written: u64,
    remarks: Remarks,
    keys: FxHashMap<Key, usize>,
    groups: Vec<Group>,
    /// By trace and function: its group.
    known: Vec<Vec<Option<usize>>>,
    /// Groups that weren't read yet, the next one last.
    left: Vec<usize>,
    /// Chunks of the group that is read, the next one last; its tail comes behind them.
    chunks: Vec<u64>,
    tail: Vec<u8>,
    /// The chunk that is read, and how far.
    chunk: Vec<u8>,
    place: usize,
}

impl Groups {
    pub(crate) fn new(traces: usize) -> io::Result<Groups> {
        Ok(Groups {
            file: tempfile::tempfile()?,
            written: 0,
            remarks: Remarks::default(),
            keys: FxHashMap::default(),
            groups: Vec::new(),
            known: vec![Vec::new(); traces],
            left: Vec::new(),
            chunks: Vec::new(),
            tail: Vec::new(),
            chunk: Vec::new(),
            place: 0,
        })
    }

    /// Adds a call of a lane of a trace.
    pub(crate) fn add(&mut self, trace: usize, lane: usize, row: Row, rows: &TraceRows) -> io::Result<()> {
        let RowSubject::Function(function) = row.what else { return Ok(()) };
        let Some(group) = self.group(trace, function, rows) else { return Ok(()) };
        let record = to_bytes(&self.remarks.record(lane, row, 0));
        let Some(group) = self.groups.get_mut(group) else { return Ok(()) };
        group.tail.extend_from_slice(&record);
        if group.tail.len() >= CHUNK {
            self.file.write_all_at(&group.tail, self.written * CHUNK as u64)?;
            group.tail.clear();
            group.chunks.push(self.written);
            self.written += 1;
        }
        Ok(())
    }

    #[inline]
    fn group(&mut self, trace: usize, function: FunctionId, rows: &TraceRows) -> Option<usize> {
        let known = self.known.get_mut(trace)?;
        if known.len() <= function.index() {
            known.resize(function.index() + 1, None);
        }
        let known = known.get_mut(function.index())?;
        if let Some(group) = *known {
            return Some(group);
        }
        let RowFunction { name, module, file, line } = rows.function(function);
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let key = Key { trace, name: name.to_owned(), module: owned(module), file: owned(file), line };
        let group = *self.keys.entry(key).or_insert_with(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        });
        *known = Some(group);
        Some(group)
    }

    /// All calls were added: they come in this order. `traces` are the names of the traces.
    pub(crate) fn sort(&mut self, order: &Order, traces: &[&str]) {
        let compare = |a: &Key, b: &Key| {
            let by_column = order.iter().map(|(column, is_descending)| {
                let trace = |key: &Key| traces.get(key.trace).copied();
                let ordering = match *column {
                    column::FUNCTION => a.name.cmp(&b.name),
                    column::MODULE => a.module.cmp(&b.module),
                    column::FILE => a.file.cmp(&b.file),
                    column::LINE => a.line.cmp(&b.line),
                    _ => trace(a).cmp(&trace(b)),
                };
                if *is_descending { ordering.reverse() } else { ordering }
            });
            by_column.fold(Ordering::Equal, Ordering::then)
        };
        let mut keys: Vec<(Key, usize)> = std::mem::take(&mut self.keys).into_iter().collect();
        keys.sort_by(|(a, _), (b, _)| compare(b, a));
        self.left = keys.into_iter().map(|(_, group)| group).collect();
    }

    /// The next call, with its lane.
    pub(crate) fn next(&mut self) -> io::Result<Option<(usize, Row)>> {
        loop {
            if let Some(bytes) = self.chunk.get(self.place..self.place + RECORD) {
                let record = from_bytes(bytes);
                self.place += RECORD;
                return Ok(Some(self.remarks.row(&record)));
            }
            self.place = 0;
            if let Some(chunk) = self.chunks.pop() {
                self.chunk.resize(CHUNK, 0);
                self.file.read_exact_at(&mut self.chunk, chunk * CHUNK as u64)?;
            } else if !self.tail.is_empty() {
                self.chunk = std::mem::take(&mut self.tail);
            } else {
                self.chunk.clear();
                let Some(group) = self.left.pop() else { return Ok(None) };
                let Some(group) = self.groups.get_mut(group).map(std::mem::take) else { continue };
                (self.chunks, self.tail) = (group.chunks, group.tail);
                self.chunks.reverse();
            }
        }
    }
}
