//! Memory files of sealed size, so that neither reading nor mapping them can fail.

use std::io;
use std::os::fd::OwnedFd;

use everycall_format::Wire;
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};

/// The hub's name, which the kernel lists among a process's mappings.
pub const HUB: &str = "everycall-hub";
/// An arena's.
pub const ARENA: &str = "everycall-arena";

/// Makes a memory file of `size` bytes of zeros, with the access mode `mode`.
///
/// # Errors
///
/// The system has no memory or no descriptor for it.
pub fn create(name: &str, size: u64, mode: u32) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, size)?;
    fchmod(&file, Mode::from_raw_mode(mode))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Writes `value` to `offset`.
///
/// # Errors
///
/// There is no memory for it.
pub fn write_at<T: Wire>(file: &OwnedFd, value: &T, offset: u64) -> io::Result<()> {
    write_bytes_at(file, value.to_bytes().as_ref(), offset)
}

/// Writes these bytes to `offset`.
///
/// # Errors
///
/// There is no memory for them.
pub fn write_bytes_at(file: &OwnedFd, bytes: &[u8], offset: u64) -> io::Result<()> {
    if pwrite(file, bytes, offset)? == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Reads the bytes there; zeros beyond the end.
pub fn read_at(file: &OwnedFd, mut offset: u64, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match pread(file, &mut *bytes, offset) {
            Ok(0) => break,
            Ok(count) => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    bytes.fill(0);
}

/// Its inode; 0, which no file has, if the kernel doesn't provide it.
pub fn inode(file: &OwnedFd) -> u64 {
    fstat(file).map_or(0, |stat| stat.st_ino)
}
