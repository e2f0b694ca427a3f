//! Calls by their numbers, for queries that join calls with their callers, callees or labels.
//!
//! They lie in a temporary file without a name, in records of one size in the order of their
//! numbers, which is the order of begins: what is below a call follows it. Memory holds one block
//! of records.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use everycall_export::{CALL, Row};

use crate::lanes::{Lane, OpenTrace, TraceRows};
use crate::records::{RECORD, Record, Remarks, from_bytes, to_bytes};

/// Records that are written at once.
const BLOCK: usize = 1 << 16;
/// Records that are read at once.
const PAGE: usize = 64;

/// The calls of all traces.
pub(crate) struct Calls {
    file: File,
    count: i64,
    /// The page that was read last.
    page: RefCell<(usize, Vec<u8>)>,
    /// By trace: the functions.
    rows: Vec<TraceRows>,
    remarks: Remarks,
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
        let bytes = to_bytes(record);
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
    /// Reads all of them; also returns how many calls each lane has.
    pub(crate) fn read(traces: &[OpenTrace], lanes: &[Lane]) -> io::Result<(Calls, Vec<i64>)> {
        let mut writer = Writer { file: tempfile::tempfile()?, first: 0, block: vec![0; BLOCK * RECORD] };
        let mut rows: Vec<TraceRows> = traces.iter().map(OpenTrace::rows).collect();
        let mut remarks = Remarks::default();
        let (mut last_id, mut counts) = (0, Vec::new());
        for (index, lane) in lanes.iter().enumerate() {
            let before = last_id;
            let Some(of_trace) = rows.get_mut(lane.trace) else {
                counts.push(0);
                continue;
            };
            of_trace.enter(lane.thread, before);
            while let Some(row) = of_trace.next_row() {
                if let (CALL, Some(id)) = (row.kind, row.id) {
                    writer.put(place(id), &remarks.record(index, row, of_trace.last_id()))?;
                }
            }
            last_id = of_trace.last_id();
            counts.push(last_id - before);
        }
        writer.flush()?;
        let page = RefCell::new((usize::MAX, Vec::new()));
        Ok((Calls { file: writer.file, count: last_id, page, rows, remarks }, counts))
    }

    /// The call with this number, if there is one.
    pub(crate) fn get(&self, id: i64) -> io::Result<Option<Call>> {
        if !(1..=self.count).contains(&id) {
            return Ok(None);
        }
        let record = self.record(place(id))?;
        let (lane, row) = self.remarks.row(&record);
        Ok(Some(Call { lane, row, last: record.last() }).filter(|call| call.row.id == Some(id)))
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
        let place = number % PAGE * RECORD;
        Ok(from_bytes(bytes.get(place..).unwrap_or_default()))
    }
}

/// The place of a call in the file.
fn place(id: i64) -> usize {
    usize::try_from(id - 1).unwrap_or(0)
}
