//! Files of modules that were deleted or replaced since they were mapped: the trace must contain
//! them, because their functions can't be named otherwise.

use std::fs::File;
use std::io::{self, Write};

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_format::ect::chunk;
use everycall_tracefile::{ChunkWriter, IMAGES_SIZE_MAX, Images};

use crate::find::deleted_range;
use crate::process;

/// Writes each such file into the trace. One that can't be read becomes a warning.
///
/// # Errors
///
/// The output's.
pub(crate) fn write_deleted<W: Write>(
    file: &mut ChunkWriter<W>,
    pid: u32,
    modules: &[(ModuleEntry, Vec<u8>)],
    warnings: &mut Vec<String>,
) -> io::Result<()> {
    let Ok(maps) = process::read(pid, "maps") else { return Ok(()) };
    let maps = String::from_utf8_lossy(&maps);
    let mut images = Images::default();
    let mut not_taken = 0_u64;
    for (index, (module, path)) in (0..).zip(modules) {
        if module.state != module_state::COMPLETE || module.unloaded_ticks != 0 {
            continue;
        }
        let Some(range) = deleted_range(&maps, module.start) else { continue };
        let source = match module.flags & module_flags::EXECUTABLE {
            0 => format!("/proc/{pid}/map_files/{range}"),
            _ => format!("/proc/{pid}/exe"),
        };
        match File::open(source).and_then(|source| images.take(index, &source)) {
            // The process writes the module table: one file many times would fill the disk.
            Ok(None) => not_taken += 1,
            Ok(Some([record, packed])) => file.chunk(chunk::MODULE_IMAGE, &[&record, &packed])?,
            Err(error) => warnings.push(format!(
                "{} was deleted or replaced while the program ran, and can't be read any more ({error}); its functions will be \
                 shown as module+offset. Root can read it",
                String::from_utf8_lossy(path)
            )),
        }
    }
    if not_taken > 0 {
        warnings.push(format!(
            "{not_taken} modules' files, deleted or replaced while the program ran, are not in the trace: they are files of other modules, \
             or exceed {} GiB with these; their functions will be shown as module+offset",
            IMAGES_SIZE_MAX >> 30
        ));
    }
    Ok(())
}
