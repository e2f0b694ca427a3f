//! The names of code that a process's just-in-time compilers made.

use std::io::{self, Write};

use everycall_format::arena::{ClockReading, counter};
use everycall_recorder::{CodeFiles, Wanted};
use everycall_tracefile::{ChunkWriter, Summary, write_code_names};

use crate::arena::LiveArena;

/// Writes their chunk, if the process has called such code, or, as it `has_frames` by id, if there
/// are names for ids. `now` is a reading of the clocks.
pub(crate) fn write<W: Write>(
    arena: &LiveArena,
    has_frames: bool,
    now: &ClockReading,
    file: &mut ChunkWriter<W>,
    summary: &mut Summary,
) -> io::Result<()> {
    let header = arena.header();
    let wanted = if header.counters[counter::UNKNOWN_CODE] > 0 { Wanted::All } else { Wanted::Ids };
    if wanted == Wanted::Ids && !has_frames {
        return Ok(());
    }
    let parent = (header.forked_from != 0).then(|| CodeFiles::new(header.forked_from, None));
    let mut files = CodeFiles::new(arena.process().pid, parent.as_ref());
    files.look();
    if let Some(names) = files.read(wanted, &[arena.layout().start, *now]) {
        write_code_names(file, &names.codes, names.lost)?;
        summary.warnings.extend(names.warnings);
    }
    Ok(())
}
