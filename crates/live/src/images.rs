//! Files of modules that were deleted or replaced since they were mapped: the trace must contain
//! them, because their functions can't be named otherwise.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_format::ect::chunk;
use everycall_tracefile::{ChunkWriter, module_image_of};

use crate::find::deleted_range;
use crate::process;

/// All files that are put into a trace have at most so many bytes.
const IMAGES_SIZE_MAX: u64 = 2 << 30;
/// A file that takes more when it is packed is not put into a trace.
const PACKED_SIZE_MAX: usize = 512 << 20;

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
    let (mut taken, mut left) = (HashSet::new(), IMAGES_SIZE_MAX);
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
        match image(index, &source, &mut taken, &mut left) {
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

/// The payload of a file, unless it was taken already or is larger than `left`.
fn image(
    index: u32,
    path: &str,
    taken: &mut HashSet<(u64, u64)>,
    left: &mut u64,
) -> io::Result<Option<[Vec<u8>; 2]>> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no file"));
    }
    if data.len() > *left || !taken.insert((data.dev(), data.ino())) {
        return Ok(None);
    }
    *left -= data.len();
    module_image_of(index, file, data.len(), PACKED_SIZE_MAX).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_once_and_all_have_a_bound() {
        let path = std::env::temp_dir().join(format!("everycall-image-{}", std::process::id()));
        let link = path.with_extension("link");
        let file = File::create(&path).unwrap();
        // It takes neither disk nor, packed, memory.
        file.set_len(64 << 20).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let (mut taken, mut left) = (HashSet::new(), 65 << 20);
        let mut take =
            |path: &std::path::Path| image(0, path.to_str().unwrap(), &mut taken, &mut left).unwrap();
        let [record, packed] = take(&path).unwrap();
        assert!(!record.is_empty() && packed.len() < 1 << 20, "{}", packed.len());
        assert!(take(&path).is_none() && take(&link).is_none());
        std::fs::remove_file(&path).unwrap();
        let other = File::create(&path).unwrap();
        other.set_len(2 << 20).unwrap();
        assert!(take(&path).is_none(), "more than is left");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&link).unwrap();
        let noise: Vec<u8> =
            (0..100_000_u64).flat_map(|n| (n.wrapping_mul(n) ^ n << 20).to_le_bytes()).collect();
        assert!(module_image_of(0, &noise[..], noise.len() as u64, 1000).is_err());
    }
}
