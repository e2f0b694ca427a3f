//! Files of modules that were deleted or replaced since they were mapped: the trace must contain
//! them, because their functions can't be named otherwise.

use std::fs::File;
use std::io::{self, Read, Write};

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_format::ect::chunk;
use everycall_tracefile::{ChunkWriter, module_image};

use crate::find::deleted_range;
use crate::process;

/// Larger files are not put into a trace.
const IMAGE_SIZE_MAX: u64 = 2 << 30;

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
    for (index, (module, path)) in (0..).zip(modules) {
        if module.state != module_state::COMPLETE || module.unloaded_ticks != 0 {
            continue;
        }
        let Some(range) = deleted_range(&maps, module.start) else { continue };
        let source = match module.flags & module_flags::EXECUTABLE {
            0 => format!("/proc/{pid}/map_files/{range}"),
            _ => format!("/proc/{pid}/exe"),
        };
        match read(&source) {
            Ok(bytes) => {
                let [record, packed] = module_image(index, &bytes)?;
                file.chunk(chunk::MODULE_IMAGE, &[&record, &packed])?;
            }
            Err(error) => warnings.push(format!(
                "{} was deleted or replaced while the program ran, and can't be read any more ({error}); its functions will be \
                 shown as module+offset. Root can read it",
                String::from_utf8_lossy(path)
            )),
        }
    }
    Ok(())
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    if !data.is_file() || data.len() > IMAGE_SIZE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no file, or too large"));
    }
    let mut bytes = Vec::new();
    file.take(IMAGE_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
