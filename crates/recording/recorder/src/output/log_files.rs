//! Writes lines of files that the program has written, as the event words that a thread would have
//! written: each file is a thread that is none, in a snapshot of its own.

use std::io::{self, Write};

use everycall_format::Wire as _;
use everycall_format::arena::OpenCall;
use everycall_format::ect::{LOG_FILE_TID, SnapshotRecord, ThreadRecord, chunk, reason};
use everycall_format::event::{WORD_SIZE, kind, payload_word, record_word};
use everycall_format::log_line::{OUTPUT, TEXT_MAX, argument, stream, with_type};
use everycall_tracefile::{ChunkWriter, Place, Runs, array};

use crate::process::member::Member;

/// Numbers of the snapshots begin here. Processes have lower ones, sampled counters higher ones.
const FIRST_SNAPSHOT: u32 = 1 << 29;
/// Bytes of a segment.
const SEGMENT_SIZE: u64 = 8192;
const SEGMENT_WORDS: usize = SEGMENT_SIZE as usize / WORD_SIZE;
/// Texts of a line; the rest of it isn't kept.
const TEXTS_MAX: usize = 7;

/// Lines of a file.
#[derive(Clone, Debug, Default)]
pub struct LogFile {
    /// The file's name.
    pub name: Vec<u8>,
    /// Its lines.
    pub lines: Vec<LogFileLine>,
}

/// A line of a file.
#[derive(Clone, Debug)]
pub struct LogFileLine {
    /// When it was written, in ticks.
    pub ticks: u64,
    /// Its number in the file, from 1.
    pub number: u64,
    /// The kept part of it, without the line end.
    pub text: Vec<u8>,
    /// Bytes that aren't kept.
    pub cut: u64,
}

/// The record of a line.
fn record(line: &LogFileLine) -> Vec<u64> {
    let mut types = OUTPUT;
    for (index, kind) in [argument::INT32, argument::INT64, argument::INT64].into_iter().enumerate() {
        types = with_type(types, index, kind);
    }
    let mut texts = Vec::new();
    for (index, text) in line.text.chunks(TEXT_MAX).take(TEXTS_MAX).enumerate() {
        types = with_type(types, 3 + index, argument::TEXT);
        texts.push(text.len() as u32);
        texts.extend(text.chunks(4).map(|four| {
            let byte = |index: usize| u32::from(four.get(index).copied().unwrap_or(0)) << (8 * index);
            (0..4).map(byte).sum::<u32>()
        }));
    }
    let cut = line.cut.saturating_add(line.text.len().saturating_sub(TEXTS_MAX * TEXT_MAX) as u64);
    let wide = |value: u64| [value as u32, (value >> 32) as u32];
    // No format: its address is 0.
    let mut payloads = vec![types, 0, 0, stream::FILE];
    payloads.extend([line.number, cut].into_iter().flat_map(wide));
    payloads.extend(texts);
    let mut words = vec![record_word(line.ticks, kind::LOG, payloads.len() as u8, 0)];
    words.extend((1..).zip(payloads).map(|(index, payload)| payload_word(payload, kind::LOG, index)));
    words
}

/// The segments of all lines, which are in the order of their times.
fn segments(lines: &[LogFileLine]) -> Vec<Vec<u64>> {
    let mut segments: Vec<Vec<u64>> = Vec::new();
    let mut high = 0;
    for line in lines {
        let words = record(line);
        let upper = (line.ticks >> 32) as u32;
        let fits = |segment: &Vec<u64>| segment.len() + 2 + words.len() <= SEGMENT_WORDS;
        if !segments.last().is_some_and(fits) {
            if let Some(full) = segments.last_mut() {
                full.resize(SEGMENT_WORDS, record_word(0, kind::FILLER, 0, 0));
            }
            let payloads = [upper, 0, segments.len() as u32];
            let mut begin = vec![record_word(line.ticks, kind::SEGMENT, payloads.len() as u8, 0)];
            begin.extend(
                (1..).zip(payloads).map(|(index, payload)| payload_word(payload, kind::SEGMENT, index)),
            );
            segments.push(begin);
        } else if upper != high {
            let segment = segments.last_mut();
            segment.into_iter().for_each(|segment| {
                segment.push(record_word(line.ticks, kind::EPOCH, 1, 0));
                segment.push(payload_word(upper, kind::EPOCH, 1));
            });
        }
        high = upper;
        segments.iter_mut().last().into_iter().for_each(|segment| segment.extend(&words));
    }
    segments
}

/// Writes a file's lines as those of `member`. `number` is the file's among all files.
pub(crate) fn write<W: Write>(
    file: &mut ChunkWriter<W>,
    runs: &mut Runs,
    member: &Member,
    (number, log): (u32, &LogFile),
    end_ticks: u64,
) -> io::Result<()> {
    let mut lines = log.lines.clone();
    lines.sort_by_key(|line| line.ticks);
    let segments = segments(&lines);
    let Some(first) = lines.first() else { return Ok(()) };
    let snapshot = FIRST_SNAPSHOT | number;
    file.set_process(member.number);
    let record = SnapshotRecord {
        snapshot,
        reason: reason::STREAM,
        pid: member.pid,
        threads: 1,
        ticks: end_ticks,
        segment_size: SEGMENT_SIZE,
        ..SnapshotRecord::default()
    };
    let mut name = [0; 16];
    let last = name.len() - 1;
    name.iter_mut().take(last).zip(&log.name).for_each(|(place, byte)| *place = *byte);
    let thread = ThreadRecord {
        snapshot,
        pid: member.pid,
        tid: LOG_FILE_TID.saturating_add(number),
        start_ticks: first.ticks,
        segments: segments.len() as u64,
        name,
        ..ThreadRecord::default()
    };
    file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
    file.chunk(chunk::THREAD, &[&thread.to_bytes(), &array::<OpenCall>(&[])])?;
    for (segment, words) in (0..).zip(&segments) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        runs.add(file, Place { snapshot, thread: 0, segment }, &bytes)?;
    }
    runs.write(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::Word;

    #[test]
    fn lines_fill_segments_that_stand_alone() {
        let line = |number: u64| LogFileLine {
            ticks: number << 25,
            number,
            text: vec![b'x'; number as usize * 10],
            cut: 0,
        };
        let lines: Vec<_> = (1..200).map(line).collect();
        let segments = segments(&lines);
        assert!(segments.len() > 10);
        let decoded = |segment: &Vec<u64>| segment.iter().map(|word| Word::decode(*word)).collect::<Vec<_>>();
        let mut records = 0;
        for (index, segment) in segments.iter().enumerate() {
            assert!(segment.len() == SEGMENT_WORDS || index + 1 == segments.len());
            let words = decoded(segment);
            assert!(matches!(words[0], Word::Record { kind: kind::SEGMENT, .. }), "{index}");
            records +=
                words.iter().filter(|word| matches!(word, Word::Record { kind: kind::LOG, .. })).count();
        }
        assert_eq!(records, lines.len());
    }
}
