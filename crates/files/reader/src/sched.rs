//! When the kernel ran which thread.

use everycall_format::sched::{SchedEvent, SchedRecord};
use everycall_format::{Wire, sched};

use crate::model::{Recording, Sched, SchedClock, SchedSource};
use crate::payload::SHORT;

/// Adds scheduling events. `Err` says what is wrong with the payload.
pub(crate) fn read_sched(bytes: &[u8], recording: &mut Recording) -> Result<(), &'static str> {
    let record = SchedRecord::read(bytes).ok_or(SHORT)?;
    let rest = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
    let text_length = record.text_length as usize;
    let text = rest.get(..text_length).ok_or(SHORT)?;
    let entries = rest.get(text_length.next_multiple_of(8)..).unwrap_or_default();
    let event_size = record.event_size as usize;
    if event_size < SchedEvent::SIZE {
        return Err("its events are too small");
    }
    let clock = match record.clock {
        sched::clock::TICKS => SchedClock::Ticks,
        sched::clock::MONOTONIC_RAW => SchedClock::MonotonicRaw,
        _ => return Err("its clock is unknown"),
    };
    let source = match record.source {
        sched::source::NONE => SchedSource::None,
        sched::source::PERF => SchedSource::Perf,
        sched::source::TRACEFS => SchedSource::Tracefs,
        sched::source::PERF_AND_TRACEFS => SchedSource::PerfAndTracefs,
        sched::source::SCHEDSTAT => SchedSource::Schedstat,
        other => SchedSource::Other(other),
    };
    let sched = recording.sched.get_or_insert_with(|| Sched {
        source,
        clock,
        text: Vec::new(),
        overwritten: 0,
        until: None,
        events: Vec::new(),
    });
    if sched.clock != clock {
        return Err("its clock is not that of the chunk before");
    }
    if !text.is_empty() {
        sched.text = text.to_vec();
    }
    sched.overwritten = sched.overwritten.saturating_add(record.overwritten);
    sched.until = Some(record.until).filter(|until| *until != 0);
    let there = entries.chunks_exact(event_size);
    let is_cut = (there.len() as u64) < record.events;
    let wanted = usize::try_from(record.events).unwrap_or(usize::MAX);
    let there = there.take(wanted);
    sched.events.reserve(there.len());
    sched.events.extend(there.filter_map(SchedEvent::read));
    if is_cut { Err("it has fewer events than it says") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(record: SchedRecord, text: &str, times: &[u64]) -> Vec<u8> {
        let mut bytes = record.to_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for time in times {
            bytes.extend(SchedEvent { time: *time, ..SchedEvent::default() }.to_bytes());
        }
        bytes
    }

    fn record(events: u64, text_length: u32) -> SchedRecord {
        SchedRecord {
            record_size: SchedRecord::SIZE as u32,
            source: sched::source::PERF,
            clock: sched::clock::MONOTONIC_RAW,
            event_size: SchedEvent::SIZE as u32,
            events,
            overwritten: 3,
            text_length,
            ..SchedRecord::default()
        }
    }

    #[test]
    fn chunks_add_up_and_cut_ones_are_read_up_to_there() {
        let mut recording = Recording::default();
        let whole = chunk(record(2, 5), "blind", &[7, 9]);
        read_sched(&whole, &mut recording).unwrap();
        read_sched(&chunk(record(1, 0), "", &[4]), &mut recording).unwrap();
        let sched = recording.sched.unwrap();
        assert_eq!(sched.until, None);
        assert_eq!((sched.text, sched.overwritten, sched.source), (b"blind".to_vec(), 6, SchedSource::Perf));
        assert_eq!(sched.events.iter().map(|event| event.time).collect::<Vec<_>>(), [7, 9, 4]);
        for end in 0..whole.len() {
            let mut recording = Recording::default();
            assert!(read_sched(&whole[..end], &mut recording).is_err(), "{end}");
        }
    }

    #[test]
    fn events_may_end_early() {
        let mut recording = Recording::default();
        let early = SchedRecord { until: 8, ..record(1, 0) };
        read_sched(&chunk(early, "", &[7]), &mut recording).unwrap();
        assert_eq!(recording.sched.unwrap().until, Some(8));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        let mut recording = Recording::default();
        let odd = |record: SchedRecord| chunk(record, "", &[1]);
        for wrong in [
            SchedRecord { clock: 9, ..record(1, 0) },
            SchedRecord { event_size: 8, ..record(1, 0) },
            SchedRecord { text_length: u32::MAX, ..record(1, 0) },
            SchedRecord { record_size: u32::MAX, ..record(1, 0) },
            SchedRecord { events: u64::MAX, ..record(1, 0) },
        ] {
            assert!(read_sched(&odd(wrong), &mut recording).is_err());
        }
    }
}
