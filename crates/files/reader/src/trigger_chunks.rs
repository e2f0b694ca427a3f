//! Triggers and their kept calls.

use everycall_format::event::{ESCAPE_FIRST, EXIT};
use everycall_format::trigger::call_flags;
use everycall_format::{Wire, ect};

use crate::model::{KeptCall, Recording, Tail, Trigger};
use crate::payload::{Array, NO_ARRAY, SHORT, TABLE_MAX};

/// Adds the triggers of a chunk. `Err` says what is wrong with it.
pub(crate) fn read_triggers(bytes: &[u8], recording: &mut Recording) -> Result<(), &'static str> {
    let array = Array::parse::<ect::TriggerRecord>(bytes).ok_or(NO_ARRAY)?;
    // The texts together are no longer than the payload.
    let mut room = array.rest.len();
    let mut text = |record: &ect::TriggerRecord| {
        let rest = array.rest.get(record.text_offset as usize..)?;
        let text = rest.get(..record.text_length as usize)?;
        room = room.checked_sub(text.len())?;
        Some(text.to_vec())
    };
    recording.triggers = array
        .iter::<ect::TriggerRecord>()
        .take(TABLE_MAX)
        .map(|record| Trigger {
            text: text(&record).unwrap_or_default(),
            functions: record.functions,
            late: record.late,
            not_armed: record.not_armed,
            fired: record.fired,
            perhaps: record.perhaps,
            kept: record.kept,
            missed: record.missed,
        })
        .collect();
    array.is_whole()
}

/// Adds a kept call of the process with index `process`. `Err` says what is wrong with it.
pub(crate) fn read_kept(bytes: &[u8], process: usize, recording: &mut Recording) -> Result<(), &'static str> {
    let record = ect::KeptCall::read(bytes).ok_or(SHORT)?;
    if recording.kept.len() >= TABLE_MAX {
        return Err("too many calls were kept");
    }
    let snapshot = recording.snapshots.iter().rev().find(|snapshot| snapshot.number == record.snapshot);
    let thread = (record.thread != ect::NO_THREAD).then_some(record.thread as usize);
    let facts = snapshot.zip(thread).and_then(|(snapshot, thread)| snapshot.threads.get(thread));
    recording.kept.push(KeptCall {
        snapshot: record.snapshot,
        process,
        trigger: record.trigger as usize,
        thread: facts.and(thread),
        tid: record.tid,
        thread_name: facts.map(|thread| thread.name.clone()).unwrap_or_default(),
        offset: Some(record.code & !EXIT).filter(|code| *code < ESCAPE_FIRST),
        start_ticks: record.start_ticks,
        end_ticks: record.end_ticks,
        threshold_ticks: record.threshold,
        is_call: record.flags & call_flags::NO_CALL == 0,
        is_entry: record.flags & call_flags::ENTERED != 0,
        is_throw: record.flags & call_flags::THREW != 0,
        is_unwound: record.flags & call_flags::UNWOUND != 0,
        tail: (record.flags & call_flags::TAIL != 0).then_some(Tail {
            jump_ticks: record.jump_ticks,
            goes_on: record.flags & call_flags::AT_MOST == 0 && record.end_ticks == record.jump_ticks,
            is_at_most: record.flags & call_flags::AT_MOST != 0,
            is_perhaps_short: record.flags & call_flags::PERHAPS != 0,
            target: (record.target != 0).then_some(record.target),
            jump_offset: (record.jump_code != 0).then_some(record.jump_code),
            has_next: record.flags & call_flags::NO_NEXT == 0,
        }),
        missing: record.missing,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_lies_costs_no_more_than_itself() {
        let text = b"f > 1ms";
        let record =
            ect::TriggerRecord { text_length: text.len() as u32, fired: 3, kept: 2, ..Default::default() };
        let lie = ect::TriggerRecord { text_offset: u32::MAX, text_length: u32::MAX, ..Default::default() };
        let array = ect::ArrayHeader { entry_size: ect::TriggerRecord::SIZE as u32, count: 2 };
        let whole =
            [array.to_bytes().to_vec(), record.to_bytes().to_vec(), lie.to_bytes().to_vec(), text.to_vec()]
                .concat();
        for end in 0..=whole.len() {
            let mut recording = Recording::default();
            let read = read_triggers(&whole[..end], &mut recording);
            assert_eq!(read.is_ok(), end >= whole.len() - text.len(), "{end}");
            assert!(recording.triggers.len() <= 2);
        }
        let mut recording = Recording::default();
        read_triggers(&whole, &mut recording).unwrap();
        assert_eq!((&recording.triggers[0].text[..], recording.triggers[0].fired), (&text[..], 3));
        assert!(recording.triggers[1].text.is_empty());
        // Texts that overlap.
        let array = ect::ArrayHeader { entry_size: ect::TriggerRecord::SIZE as u32, count: 1000 };
        let records = record.to_bytes().to_vec().repeat(1000);
        read_triggers(&[array.to_bytes().to_vec(), records, text.to_vec()].concat(), &mut recording).unwrap();
        let texts: usize = recording.triggers.iter().map(|trigger| trigger.text.len()).sum();
        assert_eq!((recording.triggers.len(), texts), (1000, text.len()));

        let call = ect::KeptCall { snapshot: 7, thread: 99, code: u32::MAX, ..Default::default() };
        let whole = call.to_bytes().to_vec();
        for end in 0..whole.len() {
            assert!(read_kept(&whole[..end], 0, &mut recording).is_err(), "{end}");
        }
        read_kept(&whole, 0, &mut recording).unwrap();
        assert_eq!(
            (recording.kept.len(), recording.kept[0].thread, recording.kept[0].offset),
            (1, None, None)
        );
    }
}
