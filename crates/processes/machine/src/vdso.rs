//! The code that the kernel puts into each process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// Largest one.
const SIZE_MAX: u64 = 1 << 20;

/// The vDSO as an ELF file, read from this process: it is one for all processes. `None` if there is
/// none, or it can't be read.
#[must_use]
pub fn vdso() -> Option<Vec<u8>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
    let [begin, end] = [begin, end].map(|number| u64::from_str_radix(number, 16).ok());
    let length = end?.checked_sub(begin?).filter(|length| *length <= SIZE_MAX)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, begin?).ok()?;
    Some(bytes)
}
