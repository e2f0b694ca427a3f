//! The log of XRay's flight data recorder: buffers, each of one thread.
//!
//! A buffer is (since version 2) a record of its length, then so many bytes of records. A record
//! has 8 bytes for a function, or 16 for anything else, by its lowest bit:
//!
//! ```text
//! function:  u32  bit 0: 0, bits 3..1: as in the basic log, bits 31..4: the function;  u32  ticks since the record before
//! other:     u8   bit 0: 1, bits 7..1: the kind;  15 bytes by kind
//! ```
//!
//! | kind | what | bytes behind the first |
//! |---|---|---|
//! | 0 | new buffer | thread, 4 |
//! | 1 | end of the buffer (version 1) | |
//! | 2 | new CPU | CPU, 2; ticks, 8 |
//! | 3 | the counter's difference doesn't fit | ticks, 8 |
//! | 4 | the system's monotonic time | seconds, 8; microseconds, 4 |
//! | 5 | custom event | bytes of its data, 4; its time; the data follow |
//! | 6 | argument of the entry before | 8 |
//! | 7 | bytes of the buffer behind this record | 8 |
//! | 8 | typed event | bytes of its data, 4; ticks since the record before, 4; type, 2; the data follow |
//! | 9 | process | 4 |
//!
//! Buffers lie in the file in the order in which they were taken up; those of a thread in the order
//! of time. They are used again and again: older ones may be missing, and how many isn't known.

use std::io::{self, SeekFrom, Write};

use everycall_format::label;

use super::log::{ENTER_ARGUMENT, HEADER, Log, OfProcess, fill, number};
use crate::error::ImportError;
use crate::input::Input;
use crate::output::{Output, ThreadId};

const META: usize = 16;
/// Largest buffer that is read.
const BUFFER_MAX: u64 = 1 << 30;

/// A buffer in the file.
struct Buffer {
    pid: u32,
    tid: u32,
    /// Ticks of its first event.
    first: u64,
    at: u64,
    length: u64,
}

pub(super) fn read<W: Write>(
    input: &mut impl Input,
    log: &mut Log,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let unreadable = |error| ImportError::Unreadable(None, error);
    let mut state = State::default();
    let mut buffers = find(input, log, &mut state)?;
    if buffers.is_empty() {
        return Err(ImportError::damaged(
            HEADER as u64,
            "a buffer of XRay's flight data recorder is expected here; the log is empty if the program didn't flush it",
        ));
    }
    // Each thread's one after the other, by their times.
    buffers.sort_by_key(|buffer| (buffer.pid, buffer.tid, buffer.first));
    let mut bytes = Vec::new();
    for buffer in &buffers {
        bytes.clear();
        bytes
            .try_reserve(buffer.length as usize)
            .map_err(|_| unreadable(io::ErrorKind::OutOfMemory.into()))?;
        bytes.resize(buffer.length as usize, 0);
        input.seek(SeekFrom::Start(buffer.at)).map_err(unreadable)?;
        let count = fill(input, &mut bytes).map_err(unreadable)?;
        let (process, thread) =
            log.thread((buffer.pid, buffer.tid), true, out).map_err(ImportError::Unwritable)?;
        let records = bytes.get(..count).unwrap_or_default();
        state.buffer(records, buffer.at, (process, thread), log, out).map_err(ImportError::Unwritable)?;
    }
    state.tell(&mut out.facts.notes);
    Ok(())
}

/// Goes through the file from buffer to buffer.
fn find(input: &mut impl Input, log: &Log, state: &mut State) -> Result<Vec<Buffer>, ImportError> {
    let unreadable = |error| ImportError::Unreadable(None, error);
    let size = input.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let mut buffers = Vec::new();
    let mut at = HEADER as u64;
    let mut head = [0; 5 * META];
    while at < size {
        input.seek(SeekFrom::Start(at)).map_err(unreadable)?;
        let count = fill(input, &mut head[..META]).map_err(unreadable)?;
        let extents = head[0] == 7 << 1 | 1;
        let (begin, length) = if log.header.version == 1 {
            (at, log.header.buffer)
        } else if count == META && extents {
            (at + META as u64, u64::from_le_bytes(number(&head, 1)))
        } else {
            state.rest = Some(at);
            break;
        };
        if length > BUFFER_MAX || length == 0 && log.header.version == 1 {
            state.rest = Some(at);
            break;
        }
        let there = length.min(size.saturating_sub(begin));
        state.cut |= there < length;
        input.seek(SeekFrom::Start(begin)).map_err(unreadable)?;
        let count = fill(input, &mut head).map_err(unreadable)?.min(there as usize);
        let facts = Beginning::of(head.get(..count).unwrap_or_default());
        if let Some(tid) = facts.tid {
            let pid = facts.pid.unwrap_or(0);
            buffers.push(Buffer { pid, tid, first: facts.ticks, at: begin, length: there });
        } else if there > 0 {
            state.without_thread += 1;
        }
        at = begin + length;
    }
    Ok(buffers)
}

/// Facts from the first records of a buffer.
#[derive(Default)]
struct Beginning {
    tid: Option<u32>,
    pid: Option<u32>,
    ticks: u64,
}

impl Beginning {
    fn of(bytes: &[u8]) -> Beginning {
        let mut found = Beginning::default();
        for record in bytes.chunks_exact(META) {
            match record.first().map(|first| (first & 1, first >> 1)) {
                Some((1, 0)) => found.tid = Some(u32::from_le_bytes(number(record, 1))),
                Some((1, 9)) => found.pid = Some(u32::from_le_bytes(number(record, 1))),
                Some((1, 4)) => {}
                Some((1, 2)) => {
                    found.ticks = u64::from_le_bytes(number(record, 3));
                    break;
                }
                _ => break,
            }
        }
        found
    }
}

#[derive(Default)]
struct State {
    arguments: u64,
    without_thread: u64,
    /// Where the file's rest begins that makes no sense.
    rest: Option<u64>,
    /// Buffers whose rests make no sense, and where the first of them does so.
    damaged: (u64, u64),
    cut: bool,
}

impl State {
    fn buffer<W: Write>(
        &mut self,
        bytes: &[u8],
        begin: u64,
        (process, thread): (OfProcess, ThreadId),
        log: &mut Log,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let mut ticks = 0;
        let mut at = 0;
        while let Some(first) = bytes.get(at).copied() {
            if first & 1 == 0 {
                let Some(record) = bytes.get(at..at + 8) else { break };
                let word = u32::from_le_bytes(number(record, 0));
                let kind = (word >> 1 & 7) as u8;
                if kind > ENTER_ARGUMENT {
                    return self.is_damaged(begin + at as u64, thread, out);
                }
                ticks = u64::wrapping_add(ticks, u32::from_le_bytes(number(record, 4)).into());
                at += 8;
                log.event((process, thread), kind, word >> 4, ticks, out)?;
                continue;
            }
            let Some(record) = bytes.get(at..at + META) else { break };
            at += META;
            let data = match first >> 1 {
                0 | 4 | 7 | 9 => continue,
                1 => return Ok(()),
                2 => {
                    ticks = u64::from_le_bytes(number(record, 3));
                    continue;
                }
                3 => {
                    ticks = u64::from_le_bytes(number(record, 1));
                    continue;
                }
                6 => {
                    self.arguments += 1;
                    continue;
                }
                kind @ (5 | 8) => {
                    let size = u32::from_le_bytes(number(record, 1)) as usize;
                    let is_late = log.header.version >= 5;
                    if is_late || kind == 8 {
                        ticks = u64::wrapping_add(ticks, u32::from_le_bytes(number(record, 5)).into());
                    } else {
                        ticks = u64::from_le_bytes(number(record, 5)).max(ticks);
                    }
                    let Some(data) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else { break };
                    at += size;
                    let value = (kind == 8).then(|| u64::from(u16::from_le_bytes(number(record, 9))));
                    (data, value)
                }
                _ => return self.is_damaged(begin + (at - META) as u64, thread, out),
            };
            // As everycall shows events of XRay.
            let (data, value) = data;
            out.label(thread, ticks, label::INSTANT, &event_name(data, value), None)?;
        }
        self.cut |= at < bytes.len();
        Ok(())
    }

    fn is_damaged<W: Write>(&mut self, offset: u64, thread: ThreadId, out: &mut Output<W>) -> io::Result<()> {
        if self.damaged.0 == 0 {
            self.damaged.1 = offset;
        }
        self.damaged.0 += 1;
        out.lose(thread, None)
    }

    fn tell(&self, notes: &mut Vec<String>) {
        notes.push(
            "XRay uses its buffers again and leaves out calls shorter than its threshold (func_duration_threshold_us); \
             the log doesn't say how many events were overwritten or left out"
                .to_owned(),
        );
        if self.arguments > 0 {
            notes.push(format!("arguments of {} entries were left out", self.arguments));
        }
        if self.without_thread > 0 {
            notes.push(format!("{} buffers without a thread were left out", self.without_thread));
        }
        if self.cut {
            notes.push("the log's end is missing".to_owned());
        }
        if let Some(at) = self.rest {
            notes.push(format!("the log is damaged at byte {at}, and its rest was left out"));
        }
        if self.damaged.0 > 0 {
            notes.push(format!(
                "{} buffers are damaged, the first at byte {}, and their rests were left out",
                self.damaged.0, self.damaged.1
            ));
        }
    }
}

/// The name of the instant that stands for an event of XRay: its data as text, if they are.
fn event_name(data: &[u8], kind: Option<u64>) -> Vec<u8> {
    let data = data.get(..data.len().min(64)).unwrap_or_default();
    let text = data.strip_suffix(b"\0").unwrap_or(data);
    let is_text =
        str::from_utf8(text).is_ok_and(|text| !text.is_empty() && !text.chars().any(char::is_control));
    let mut name = kind.map(|kind| format!("type {kind}: ").into_bytes()).unwrap_or_default();
    if is_text {
        name.extend(text);
    } else {
        name.extend(data.iter().take(24).flat_map(|byte| format!("{byte:02x}").into_bytes()));
    }
    name
}
