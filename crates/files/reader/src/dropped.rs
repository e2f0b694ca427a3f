//! Calls that were counted and not recorded: short ones, or all.

use everycall_format::event::{ESCAPE_FIRST, EXIT};
use everycall_format::value_counts::{PLACES, ValueCount};
use everycall_format::{Wire, ect};

use crate::model::{
    CallTimes, CountedCalls, CountedValues, Counts, Dropped, DroppedCalls, Recording, ValueCounts,
};
use crate::payload::{Array, TABLE_MAX};

/// Adds what the process with index `process` has dropped. `Err` says what is wrong with the
/// payload.
pub(crate) fn read_dropped(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let (record, array) = Array::behind::<ect::DroppedRecord, ect::DroppedCalls>(bytes)?;
    if recording.dropped.len() >= TABLE_MAX {
        return Err("too many processes have dropped calls");
    }
    let functions = array.iter::<ect::DroppedCalls>().take(TABLE_MAX).map(|function| DroppedCalls {
        offset: offset_of(function.code),
        ticks: function.ticks,
        calls: function.calls,
    });
    recording.dropped.push(Dropped {
        snapshot: record.snapshot,
        process,
        threshold_ns: record.threshold_ns,
        highest_ns: record.highest_ns,
        is_full: record.is_full != 0,
        calls: record.calls,
        functions: functions.collect(),
    });
    array.is_whole()
}

/// Adds what the process with index `process` has counted. `Err` says what is wrong with the
/// payload.
pub(crate) fn read_counts(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    read_calls(bytes, process, &mut recording.counts, false, counted)
}

/// Adds all calls that the process with index `process` has recorded. `Err` says what is wrong with
/// the payload.
pub(crate) fn read_all_calls(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    read_calls(bytes, process, &mut recording.all_calls, false, counted)
}

/// Adds how often the calls of the process with index `process` had the same values. `Err` says
/// what is wrong with the payload.
pub(crate) fn read_value_counts(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let (record, array) = Array::behind::<ect::ValueCountsRecord, ValueCount>(bytes)?;
    if recording.value_counts.len() >= TABLE_MAX {
        return Err("too many processes have counts of values");
    }
    let places = array.iter::<ValueCount>().take(PLACES as usize).filter(ValueCount::is_ready);
    let values =
        places.map(|place| CountedValues { id: place.id, bytes: place.capture().into(), calls: place.calls });
    recording.value_counts.push(ValueCounts {
        snapshot: record.snapshot,
        process,
        others: record.others,
        values: values.collect(),
    });
    array.is_whole()
}

fn counted(function: ect::CountedCalls) -> CountedCalls {
    CountedCalls {
        offset: offset_of(function.code),
        slot: function.slot,
        ticks: function.ticks,
        calls: function.calls,
        times: None,
    }
}

/// Adds what the process with index `process` has timed. `Err` says what is wrong with the payload.
pub(crate) fn read_times(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    read_calls(bytes, process, &mut recording.counts, true, |function: ect::TimedCalls| CountedCalls {
        offset: offset_of(function.code),
        slot: function.slot,
        ticks: function.ticks,
        calls: function.calls,
        times: Some(Box::new(CallTimes {
            total: function.total,
            nested: function.nested,
            own: function.own,
            shortest: function.shortest,
            longest: function.longest,
            histogram: function.histogram,
        })),
    })
}

/// A code offset, if it is one.
pub(crate) fn offset_of(code: u32) -> Option<u32> {
    Some(code & !EXIT).filter(|code| *code < ESCAPE_FIRST)
}

/// Adds a process's calls, whose entries are of type `T`, to `counts`.
fn read_calls<T: Wire>(
    bytes: &[u8],
    process: usize,
    counts: &mut Vec<Counts>,
    is_timed: bool,
    of: impl Fn(T) -> CountedCalls,
) -> Result<(), &'static str> {
    let (record, array) = Array::behind::<ect::CountsRecord, T>(bytes)?;
    if counts.len() >= TABLE_MAX {
        return Err("too many processes have counts");
    }
    counts.push(Counts {
        snapshot: record.snapshot,
        process,
        is_timed,
        calls: record.calls,
        others: record.others,
        functions: array.iter::<T>().map(of).collect(),
    });
    array.is_whole()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_cut_are_read_up_to_there() {
        let record = ect::CountsRecord { calls: 9, others: 2, ..Default::default() };
        let array = ect::ArrayHeader { entry_size: ect::CountedCalls::SIZE as u32, count: 2 };
        let one = ect::CountedCalls { code: 0x1000, slot: 1, ticks: 5, calls: 4 };
        let other = ect::CountedCalls { code: u32::MAX, slot: 2, ticks: 6, calls: 3 };
        let whole = [
            record.to_bytes().to_vec(),
            array.to_bytes().to_vec(),
            one.to_bytes().to_vec(),
            other.to_bytes().to_vec(),
        ]
        .concat();
        for end in 0..whole.len() {
            let mut recording = Recording::default();
            assert!(read_counts(&whole[..end], 0, &mut recording).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        read_counts(&whole, 3, &mut recording).unwrap();
        let counts = &recording.counts[0];
        assert_eq!((counts.process, counts.calls, counts.others), (3, 9, 2));
        let found: Vec<_> = counts.functions.iter().map(|one| (one.offset, one.slot, one.calls)).collect();
        assert_eq!(found, [(Some(0x1000), 1, 4), (None, 2, 3)]);
    }

    #[test]
    fn times_that_are_cut_are_read_up_to_there() {
        let record = ect::CountsRecord { calls: 4, ..Default::default() };
        let array = ect::ArrayHeader { entry_size: ect::TimedCalls::SIZE as u32, count: 1 };
        let mut one = ect::TimedCalls { code: 0x1000, slot: 1, ticks: 5, calls: 4, ..Default::default() };
        (one.total, one.nested, one.own, one.shortest, one.longest) = (90, 7, 60, 10, 40);
        one.histogram[3] = 4;
        let whole = [record.to_bytes().to_vec(), array.to_bytes().to_vec(), one.to_bytes().to_vec()].concat();
        for end in 0..whole.len() {
            assert!(read_times(&whole[..end], 0, &mut Recording::default()).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        read_times(&whole, 3, &mut recording).unwrap();
        let found = &recording.counts[0].functions[0];
        let times = found.times.as_deref().unwrap();
        assert_eq!((found.offset, found.slot, found.calls), (Some(0x1000), 1, 4));
        assert_eq!((times.total, times.nested, times.own), (90, 7, 60));
        assert_eq!((times.shortest, times.longest, times.histogram[3]), (10, 40, 4));
    }

    #[test]
    fn what_is_cut_costs_no_more_than_itself() {
        let record =
            ect::DroppedRecord { threshold_ns: 500, highest_ns: 700, calls: 7, ..Default::default() };
        let array = ect::ArrayHeader { entry_size: ect::DroppedCalls::SIZE as u32, count: 2 };
        let good = ect::DroppedCalls { code: 0x1000, ticks: 5, calls: 4, ..Default::default() };
        let lie = ect::DroppedCalls { code: u32::MAX, ticks: 6, calls: 3, ..Default::default() };
        let whole = [
            record.to_bytes().to_vec(),
            array.to_bytes().to_vec(),
            good.to_bytes().to_vec(),
            lie.to_bytes().to_vec(),
        ]
        .concat();
        for end in 0..=whole.len() {
            let mut recording = Recording::default();
            assert_eq!(read_dropped(&whole[..end], 0, &mut recording).is_ok(), end == whole.len(), "{end}");
        }
        let mut recording = Recording::default();
        read_dropped(&whole, 3, &mut recording).unwrap();
        let dropped = &recording.dropped[0];
        assert_eq!(
            (dropped.process, dropped.threshold_ns, dropped.highest_ns, dropped.calls),
            (3, 500, 700, 7)
        );
        let offsets: Vec<_> = dropped.functions.iter().map(|function| function.offset).collect();
        assert_eq!(offsets, [Some(0x1000), None]);
    }
}
