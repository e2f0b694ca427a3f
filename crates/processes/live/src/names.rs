//! Names of a process's frames by id, and of the code that its just-in-time compilers made.

use std::io::{self, Write};

use everycall_format::arena::{ClockReading, counter};
use everycall_machine::{CodeFiles, NameSet};
use everycall_tracefile::{ChunkWriter, Summary, write_code_names};

use crate::arena::LiveArena;

/// Writes the chunks of both. Files with names of code are only looked for if the process has called
/// such code, or has frames by id, which may be named there. `now` is a reading of the clocks.
pub(crate) fn write<W: Write>(
    arena: &LiveArena,
    now: &ClockReading,
    file: &mut ChunkWriter<W>,
    summary: &mut Summary,
) -> io::Result<()> {
    let of_frames = arena.frame_names();
    if let Some(names) = &of_frames {
        names.write(file)?;
    }
    let header = arena.header();
    let wanted = if header.counters[counter::UNKNOWN_CODE] > 0 { NameSet::All } else { NameSet::Ids };
    if wanted == NameSet::Ids && of_frames.is_none() {
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
