//! Calls by their numbers, for queries that join calls with their callers, callees or labels.
//!
//! They lie in a temporary file without a name, in records of one size in the order of their
//! numbers, which is the order of begins: what is below a call follows it. Memory holds one block
//! of records.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use everycall_export::{CALL, FunctionId, Row, What};
use rustc_hash::FxHashMap;

use crate::traces::{Shared, TraceRows};

/// Numbers of a record.
const WORDS: usize = 9;
/// Bytes of a record.
const RECORD: usize = WORDS * 8;
/// Records that are written at once.
const BLOCK: usize = 1 << 16;
/// Records that are read at once.
const PAGE: usize = 64;

type Record = [i64; WORDS];

/// The calls of all traces.
pub(crate) struct Calls {
    file: File,
    count: i64,
    /// The page that was read last.
    page: RefCell<(usize, Vec<u8>)>,
    /// By trace: the functions.
    rows: Vec<TraceRows>,
    /// By number: functions and their traces, and texts of remarks.
    functions: Vec<FunctionId>,
    remarks: Vec<String>,
}

/// A call.
pub(crate) struct Call {
    pub(crate) lane: usize,
    pub(crate) row: Row,
    /// The number of the last call that it made, or a callee of it; its own if there is none.
    pub(crate) last: i64,
}

/// Records on their way into the file.
struct Writer {
    file: File,
    /// The first record of the block in memory.
    first: usize,
    block: Vec<u8>,
}

impl Writer {
    fn put(&mut self, number: usize, record: &Record) -> io::Result<()> {
        let mut bytes = [0; RECORD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(record) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        if number >= self.first + BLOCK {
            self.flush()?;
            self.first = number / BLOCK * BLOCK;
        }
        match number.checked_sub(self.first) {
            Some(place) => {
                if let Some(place) = self.block.get_mut(place * RECORD..(place + 1) * RECORD) {
                    place.copy_from_slice(&bytes);
                }
                Ok(())
            }
            // A call that was open for long.
            None => self.file.write_all_at(&bytes, (number * RECORD) as u64),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.block, (self.first * RECORD) as u64)?;
        self.block.fill(0);
        Ok(())
    }
}

impl Calls {
    /// Reads all of them.
    pub(crate) fn read(shared: &Shared) -> io::Result<Calls> {
        let mut writer = Writer { file: tempfile::tempfile()?, first: 0, block: vec![0; BLOCK * RECORD] };
        let mut rows: Vec<TraceRows> = shared.traces.iter().map(|trace| trace.rows()).collect();
        let mut functions: Vec<FunctionId> = Vec::new();
        let (mut remarks, mut numbers) = (vec![String::new()], FxHashMap::default());
        let mut last_id = 0;
        for (index, lane) in shared.lanes.iter().enumerate() {
            let Some(of_trace) = rows.get_mut(lane.trace) else { continue };
            let before = last_id;
            of_trace.enter(lane.thread, before);
            while let Some(row) = of_trace.next_row() {
                let (What::Function(function), true, Some(id)) = (&row.what, row.kind == CALL, row.id) else {
                    continue;
                };
                while functions.len() <= function.index() {
                    // Numbers of functions are dense.
                    functions.push(*function);
                }
                if let Some(place) = functions.get_mut(function.index()) {
                    *place = *function;
                }
                let remark = match row.remarks {
                    None => 0,
                    Some(text) => *numbers.entry(text).or_insert_with_key(|text: &String| {
                        remarks.push(text.clone());
                        remarks.len() - 1
                    }),
                };
                let record = [
                    row.parent.unwrap_or(0),
                    pair(index, function.index()),
                    i64::from(row.depth) << 32 | i64::from(row.recursion.unwrap_or(0)),
                    row.start_ns,
                    row.duration_ns.unwrap_or(0),
                    row.own_ns.unwrap_or(0),
                    remark as i64,
                    of_trace.last_id(),
                    id,
                ];
                writer.put(place(id), &record)?;
            }
            last_id = of_trace.last_id();
            if let Some(count) = shared.counts.borrow_mut().get_mut(index) {
                *count = Some(last_id - before);
            }
        }
        writer.flush()?;
        let page = RefCell::new((usize::MAX, Vec::new()));
        Ok(Calls { file: writer.file, count: last_id, page, rows, functions, remarks })
    }

    /// The call with this number, if there is one.
    pub(crate) fn get(&self, id: i64) -> io::Result<Option<Call>> {
        if !(1..=self.count).contains(&id) {
            return Ok(None);
        }
        let [parent, whose, levels, start_ns, duration_ns, own_ns, remark, last, number] =
            self.record(place(id))?;
        if number != id {
            return Ok(None);
        }
        let (lane, function) = ((whose >> 32) as usize, (whose & 0xffff_ffff) as usize);
        let function = self.functions.get(function).copied();
        let row = Row {
            kind: CALL,
            id: Some(id),
            parent: Some(parent).filter(|parent| *parent > 0),
            depth: (levels >> 32) as i32,
            recursion: Some((levels & 0xffff_ffff) as i32),
            start_ns,
            start_realtime_ns: None,
            duration_ns: Some(duration_ns),
            own_ns: Some(own_ns),
            what: function.map_or(What::Nothing, What::Function),
            value: None,
            real_value: None,
            blocked_ns: None,
            runnable_ns: None,
            other_tid: None,
            remarks: self.remarks.get(remark as usize).filter(|text| !text.is_empty()).cloned(),
        };
        Ok(Some(Call { lane, row, last }))
    }

    /// The rows of a trace, by which functions are named.
    pub(crate) fn rows(&self, trace: usize) -> Option<&TraceRows> {
        self.rows.get(trace)
    }

    fn record(&self, number: usize) -> io::Result<Record> {
        let mut page = self.page.borrow_mut();
        let (known, bytes) = &mut *page;
        if *known != number / PAGE {
            bytes.resize(PAGE * RECORD, 0);
            *known = usize::MAX;
            // The file has whole blocks, and these are whole pages.
            self.file.read_exact_at(bytes, (number / PAGE * PAGE * RECORD) as u64)?;
            *known = number / PAGE;
        }
        let mut record = Record::default();
        let words = bytes.chunks_exact(8).skip(number % PAGE * WORDS);
        for (word, bytes) in record.iter_mut().zip(words) {
            *word = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(record)
    }
}

/// The place of a call in the file.
fn place(id: i64) -> usize {
    usize::try_from(id - 1).unwrap_or(0)
}

fn pair(high: usize, low: usize) -> i64 {
    (high as i64) << 32 | low as i64
}
