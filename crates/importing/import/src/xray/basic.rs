//! The basic log: records of 32 bytes. The threads' buffers are written one after the other, as
//! they fill up.
//!
//! | offset | size | record |
//! |---|---|---|
//! | 0 | 2 | 0: an event, 1: an argument of the event before |
//! | 2 | 1 | CPU |
//! | 3 | 1 | 0 enter, 1 exit, 2 tail exit, 3 enter with an argument |
//! | 4 | 4 | function |
//! | 8 | 8 | ticks |
//! | 16 | 4 | thread |
//! | 20 | 4 | process, since version 3 |

use std::io::{self, Write};

use super::log::{ENTER_ARGUMENT, HEADER, Log, OfProcess, fill, number};
use crate::error::ImportError;
use crate::input::Input;
use crate::output::{Output, ThreadId};

const RECORD: usize = 32;
const BLOCK: usize = RECORD << 12;

pub(super) fn read<W: Write>(
    input: &mut impl Input,
    log: &mut Log,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let mut block = vec![0; BLOCK];
    let mut state = State::default();
    let mut offset = HEADER as u64;
    loop {
        let count = fill(input, &mut block).map_err(|error| ImportError::Unreadable(None, error))?;
        for record in block.get(..count).unwrap_or_default().chunks_exact(RECORD) {
            state.record(record, log, out).map_err(ImportError::Unwritable)?;
        }
        offset += count as u64;
        if count < BLOCK {
            state.cut = count % RECORD > 0;
            break;
        }
    }
    if state.events == 0 && state.cut {
        return Err(ImportError::damaged(offset, "a record of 32 bytes is expected here"));
    }
    let notes = &mut out.facts.notes;
    // Limits of the log.
    notes.push(
        "XRay leaves out calls shorter than its threshold (func_duration_threshold_us) and loses the last records of \
         threads of a program that died; the log doesn't say how many"
            .to_owned(),
    );
    if state.arguments > 0 {
        notes.push(format!("arguments of {} entries were left out", state.arguments));
    }
    if state.strange > 0 {
        notes.push(format!("{} records of unknown kinds were left out", state.strange));
    }
    if state.cut {
        notes.push("the last record is incomplete".to_owned());
    }
    Ok(())
}

#[derive(Default)]
struct State {
    current: Option<((u32, u32), OfProcess, ThreadId)>,
    events: u64,
    arguments: u64,
    strange: u64,
    cut: bool,
}

impl State {
    #[inline]
    fn record<W: Write>(&mut self, record: &[u8], log: &mut Log, out: &mut Output<W>) -> io::Result<()> {
        let kind = record.get(3).copied().unwrap_or(0);
        match u16::from_le_bytes(number(record, 0)) {
            0 if kind <= ENTER_ARGUMENT => {}
            1 => {
                self.arguments += 1;
                return Ok(());
            }
            _ => {
                self.strange += 1;
                return Ok(());
            }
        }
        let function = u32::from_le_bytes(number(record, 4));
        let ticks = u64::from_le_bytes(number(record, 8));
        let tid = u32::from_le_bytes(number(record, 16));
        let pid = if log.header.version >= 3 { u32::from_le_bytes(number(record, 20)) } else { 0 };
        let key = (pid, tid);
        let (process, thread) = match self.current {
            Some((current, process, thread)) if current == key => (process, thread),
            _ => {
                let (process, thread) = log.thread(key, false, out)?;
                self.current = Some((key, process, thread));
                (process, thread)
            }
        };
        self.events += 1;
        log.event((process, thread), kind, function, ticks, out)
    }
}
