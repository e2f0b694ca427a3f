//! Calls as records of one size, for temporary files.

use everycall_export::{CALL, FunctionId, Row, RowSubject, ValuesNumber};
use rustc_hash::FxHashMap;

/// Numbers of a record.
const WORDS: usize = 12;
/// Bytes of a record.
pub(crate) const RECORD: usize = WORDS * 8;

/// A call: its caller, lane and function, depth and recursion, times and their bounds, remarks, its
/// values, the last call below it, its number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record([i64; WORDS]);

impl Record {
    /// The number of the last call below it.
    pub(crate) fn last(&self) -> i64 {
        let [.., last, _] = self.0;
        last
    }
}

/// As it lies in a file.
pub(crate) fn to_bytes(record: &Record) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (place, word) in bytes.chunks_exact_mut(8).zip(record.0) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The first record of these bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> Record {
    let mut record = Record::default();
    for (word, bytes) in record.0.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    record
}

/// Arguments and result in a word: 0 where there are none.
fn numbers_of_values(arguments: Option<ValuesNumber>, result: Option<ValuesNumber>) -> i64 {
    let number = |values: Option<ValuesNumber>| values.map_or(0, |values| values.index() as i64 + 1);
    number(arguments) << 32 | number(result)
}

fn values_of(number: u32) -> Option<ValuesNumber> {
    number.checked_sub(1).and_then(ValuesNumber::of_index)
}

/// The remarks of records, each once.
#[derive(Default)]
pub(crate) struct Remarks {
    texts: Vec<String>,
    /// The number behind the place of each.
    numbers: FxHashMap<String, usize>,
}

impl Remarks {
    /// The record of a call in a lane.
    pub(crate) fn record(&mut self, lane: usize, row: Row, last: i64) -> Record {
        let remark = row.remarks.map_or(0, |text| {
            *self.numbers.entry(text).or_insert_with_key(|text| {
                self.texts.push(text.clone());
                self.texts.len()
            })
        });
        let function = if let RowSubject::Function(function) = row.what { function.index() } else { 0 };
        Record([
            row.parent.unwrap_or(0),
            (lane as i64) << 32 | function as i64,
            i64::from(row.depth) << 32 | i64::from(row.recursion.unwrap_or(0)),
            row.start_ns,
            row.duration_ns.unwrap_or(0),
            row.own_ns.unwrap_or(0),
            row.duration_low_ns.or(row.duration_ns).unwrap_or(0),
            row.duration_high_ns.or(row.duration_ns).unwrap_or(0),
            remark as i64,
            numbers_of_values(row.arguments, row.result),
            last,
            row.id.unwrap_or(0),
        ])
    }

    /// The lane and the row of a record.
    pub(crate) fn row(&self, record: &Record) -> (usize, Row) {
        let [parent, whose, levels, start_ns, duration_ns, own_ns, low_ns, high_ns, remark, values, _, id] =
            record.0;
        let remark = usize::try_from(remark).ok().and_then(|number| self.texts.get(number.checked_sub(1)?));
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
            duration_low_ns: Some(low_ns),
            duration_high_ns: Some(high_ns),
            what: RowSubject::Function(FunctionId::of_index((whose & 0xffff_ffff) as usize)),
            value: None,
            real_value: None,
            blocked_ns: None,
            runnable_ns: None,
            other_tid: None,
            arguments: values_of((values >> 32) as u32),
            result: values_of(values as u32),
            remarks: remark.cloned(),
        };
        ((whose >> 32) as usize, row)
    }
}
