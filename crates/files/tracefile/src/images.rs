//! Files of modules that are put into a trace because they aren't where they were any more.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::MetadataExt;

use crate::payload::module_image_of;

/// All files that are put into a trace have at most so many bytes.
pub const IMAGES_SIZE_MAX: u64 = 2 << 30;
/// A file that takes more when it is packed is not put into a trace.
const PACKED_SIZE_MAX: usize = 512 << 20;

/// The files that are in a trace: each once, and all together within a bound. The traced process
/// writes the module table, so one file may be in it many times, and sparse files take no disk.
#[derive(Debug)]
pub struct Images {
    /// Devices and inodes.
    taken: HashSet<(u64, u64)>,
    left: u64,
}

impl Default for Images {
    fn default() -> Images {
        Images { taken: HashSet::new(), left: IMAGES_SIZE_MAX }
    }
}

impl Images {
    /// The two parts of a MODULE_IMAGE payload of a file, which is read in pieces; `None` if it was
    /// taken already, or is larger than what is left.
    ///
    /// # Errors
    ///
    /// It isn't a regular file, can't be read, takes too much even when it is packed, or there is
    /// no memory for it.
    pub fn take(&mut self, module: u32, mut file: &File) -> io::Result<Option<[Vec<u8>; 2]>> {
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no file"));
        }
        if data.len() > self.left || !self.taken.insert((data.dev(), data.ino())) {
            return Ok(None);
        }
        self.left -= data.len();
        file.rewind()?;
        module_image_of(module, file, data.len(), PACKED_SIZE_MAX).map(Some)
    }
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
        let mut images = Images { left: 65 << 20, ..Images::default() };
        let mut take = |path: &std::path::Path| images.take(0, &File::open(path).unwrap()).unwrap();
        let [record, packed] = take(&path).unwrap();
        assert!(!record.is_empty() && packed.len() < 1 << 20, "{}", packed.len());
        assert!(take(&path).is_none() && take(&link).is_none());
        std::fs::remove_file(&path).unwrap();
        let other = File::create(&path).unwrap();
        other.set_len(2 << 20).unwrap();
        assert!(take(&path).is_none(), "more than is left");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&link).unwrap();
        assert!(Images::default().take(0, &File::open("/dev/zero").unwrap()).is_err());
        let noise: Vec<u8> =
            (0..100_000_u64).flat_map(|n| (n.wrapping_mul(n) ^ n << 20).to_le_bytes()).collect();
        assert!(module_image_of(0, &noise[..], noise.len() as u64, 1000).is_err());
    }
}
