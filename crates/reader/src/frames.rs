//! The names of frames by id, and the module that they make.

use everycall_format::Wire;
use everycall_format::arena::module_flags;
use everycall_format::ect::FrameNamesRecord;
use everycall_format::frame::{FIRST, FrameName, IDS, RECORD_ALIGN, STEP};

use crate::model::{Frame, Frames, Module, Recording};
use crate::payload::TABLE_MAX;

/// What stands for the path of the module.
const PATH: &[u8] = b"frames by id";

/// Adds the names of the process with index `process`. `Err` says what is wrong with the payload.
pub(crate) fn read_names(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let record = FrameNamesRecord::read(bytes).ok_or("it is too short")?;
    let records = bytes.get(record.record_size as usize..).ok_or("it is too short")?;
    add(records.get(..record.length as usize).unwrap_or(records), record.lost, process, recording);
    let is_whole = records.len() as u64 >= record.length;
    if is_whole { Ok(()) } else { Err("it has fewer names than it says") }
}

/// Adds the names in these records; they replace earlier ones of the process.
pub(crate) fn add(records: &[u8], lost: u64, process: usize, recording: &mut Recording) {
    let frames = Frames { process, lost, names: names(records) };
    let all = &mut recording.frames;
    match all.iter().position(|frames| frames.process == process) {
        Some(known) => all[known] = frames,
        None if all.len() < TABLE_MAX => all.push(frames),
        None => {}
    }
}

/// Those of the last record of each id, by id.
fn names(mut records: &[u8]) -> Vec<Frame> {
    let mut names = Vec::new();
    while let Some(record) = FrameName::read(records) {
        let size = record.size as usize;
        // Nothing is known of what follows a record without a size: its thread was killed.
        if size < FrameName::SIZE || !u64::from(record.size).is_multiple_of(RECORD_ALIGN) {
            break;
        }
        let Some((whole, rest)) = records.split_at_checked(size) else { break };
        records = rest;
        let texts = &whole[FrameName::SIZE..];
        let Some((name, rest)) = texts.split_at_checked(record.name_length as usize) else { continue };
        let Some(file) = rest.get(..record.file_length as usize) else { continue };
        if record.is_complete != 0 && record.id < IDS {
            let line = (record.line != 0).then_some(record.line);
            names.push(Frame { id: record.id, name: name.to_vec(), file: file.to_vec(), line });
        }
    }
    // The sort is stable, so the last one of each id is the last of its equals.
    names.sort_by_key(|frame| frame.id);
    names.reverse();
    names.dedup_by_key(|frame| frame.id);
    names.reverse();
    names
}

/// The module of a process's frames by id: the image address of an id is `id * STEP`.
pub(crate) fn module() -> Module {
    Module {
        path: PATH.to_vec(),
        flags: module_flags::FRAMES,
        end: u64::from(IDS) * u64::from(STEP),
        code_start: FIRST,
        ..Module::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32, name: &str, file: &str, is_complete: u32) -> Vec<u8> {
        let size = (FrameName::SIZE + name.len() + file.len()).next_multiple_of(8);
        let record = FrameName {
            size: size as u32,
            id,
            line: id,
            name_length: name.len() as u32,
            file_length: file.len() as u32,
            is_complete,
        };
        let mut bytes = vec![0; size];
        record.write(&mut bytes);
        bytes[FrameName::SIZE..][..name.len()].copy_from_slice(name.as_bytes());
        bytes[FrameName::SIZE + name.len()..][..file.len()].copy_from_slice(file.as_bytes());
        bytes
    }

    fn read(records: &[u8]) -> Vec<(u32, String)> {
        let text = |frame: Frame| (frame.id, String::from_utf8(frame.name).unwrap());
        names(records).into_iter().map(text).collect()
    }

    #[test]
    fn the_last_name_counts_and_what_is_damaged_is_left_out() {
        let all = [
            record(7, "old", "a.lua", 1),
            record(3, "three", "", 1),
            record(7, "new", "a.lua", 1),
            record(9, "half", "", 0),
            record(IDS, "too high", "", 1),
            record(8, "eight", "", 1),
        ]
        .concat();
        let expected = [(3, "three".to_owned()), (7, "new".to_owned()), (8, "eight".to_owned())];
        assert_eq!(read(&all), expected);
        for end in 0..all.len() {
            assert!(read(&all[..end]).len() <= 3);
        }
        let mut lie = all.clone();
        lie[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&lie), []);
        let mut longer = record(1, "one", "", 1);
        longer[12..16].copy_from_slice(&1000_u32.to_le_bytes());
        assert_eq!(read(&[longer, record(2, "two", "", 1)].concat()), [(2, "two".to_owned())]);
    }

    #[test]
    fn a_chunk_that_is_cut_says_so() {
        let records = record(7, "seven", "file", 1);
        let head = FrameNamesRecord {
            record_size: FrameNamesRecord::SIZE as u32,
            length: records.len() as u64,
            lost: 5,
            ..Default::default()
        };
        let mut bytes = vec![0; FrameNamesRecord::SIZE];
        head.write(&mut bytes);
        bytes.extend(&records);
        for end in 0..bytes.len() {
            assert!(read_names(&bytes[..end], 0, &mut Recording::default()).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        read_names(&bytes, 2, &mut recording).unwrap();
        let frames = &recording.frames[0];
        assert_eq!((frames.process, frames.lost, frames.names.len()), (2, 5, 1));
        assert_eq!((frames.names[0].file.as_slice(), frames.names[0].line), (&b"file"[..], Some(7)));
    }
}
