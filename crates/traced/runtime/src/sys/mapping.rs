//! The mapping that contains an address, from `/proc/self/maps`. That is read once for each
//! unregistered stack.
#![allow(unsafe_code)] // System calls.

use crate::sys::file::File;
use everycall_hooks::arch::number;
use everycall_hooks::syscall;

/// The kernel's `struct procmap_query` (Linux 6.11).
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    permissions: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const PROCMAP_QUERY: usize = 0xc068_6611;
const READABLE: u64 = 1;
/// Bytes of the text that are read at a time. Small, because this runs on a small stack.
const BUFFER: usize = 512;

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether a guard, a mapping that isn't readable, lies directly below it.
    pub(crate) has_guard: bool,
}

/// The mapping that contains `address`. `None` if there is none, or if it can't be read.
pub(crate) fn at(address: u64) -> Option<Mapping> {
    let maps = File::open(b"/proc/self/maps\0", false)?;
    match asked(&maps, address) {
        Ok((start, end, _)) => {
            let below = asked(&maps, start.wrapping_sub(1));
            let has_guard = below.is_ok_and(|(_, _, permissions)| permissions & READABLE == 0);
            Some(Mapping { start, end, has_guard })
        }
        Err(NO_MAPPING) => None,
        Err(_) => read(&maps, address),
    }
}

const NO_MAPPING: isize = -2;

/// Asks the kernel for start, end and permissions of the mapping that contains an address.
fn asked(maps: &File, address: u64) -> Result<(u64, u64, u64), isize> {
    let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
    // SAFETY: reads and writes the query.
    let result =
        unsafe { syscall(number::IOCTL, [maps.number(), PROCMAP_QUERY, &raw mut query as usize, 0, 0, 0]) };
    if result == 0 { Ok((query.start, query.end, query.permissions)) } else { Err(result) }
}

/// Reads the mapping that contains an address from the text.
fn read(maps: &File, address: u64) -> Option<Mapping> {
    find(maps, |mapping| (mapping.start..mapping.end).contains(&address))
}

/// Passes all mappings, in the order of their addresses. Returns false if they can't be read.
pub(crate) fn each(mut then: impl FnMut(&Mapping)) -> bool {
    let Some(maps) = File::open(b"/proc/self/maps\0", false) else { return false };
    let mut are_any = false;
    find(&maps, |mapping| {
        are_any = true;
        then(mapping);
        false
    });
    are_any
}

/// The path of the first mapping that may be executed and whose path `is_wanted` accepts, with a NUL.
/// `line` has room for a line of the text.
pub(crate) fn executable(line: &mut [u8], is_wanted: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
    let maps = File::open(b"/proc/self/maps\0", false)?;
    let mut buffer = [0; BUFFER];
    let mut length = 0;
    'all: loop {
        let count = maps.read(&mut buffer);
        for byte in buffer.get(..count).filter(|bytes| !bytes.is_empty())? {
            // The end of a line that is too long is lost, and so its path isn't wanted.
            if let Some(place) = line.get_mut(length) {
                *place = if *byte == b'\n' { 0 } else { *byte };
                length += 1;
            }
            if *byte == b'\n' {
                let text = line.get(..length).unwrap_or_default();
                if executable_path(text).is_some_and(&is_wanted) {
                    break 'all;
                }
                length = 0;
            }
        }
    }
    let start = line.iter().position(|byte| *byte == b'/')?;
    line.get(start..length)
}

/// The path in a line that ends with NUL, if its mapping may be executed and has one.
fn executable_path(line: &[u8]) -> Option<&[u8]> {
    let permissions = line.split(|byte| *byte == b' ').nth(1)?;
    let start = line.iter().position(|byte| *byte == b'/')?;
    let path = line.strip_suffix(b"\0")?.get(start..)?;
    (permissions.get(2) == Some(&b'x')).then_some(path)
}

/// The first mapping for which `is_wanted` returns true.
fn find(maps: &File, mut is_wanted: impl FnMut(&Mapping) -> bool) -> Option<Mapping> {
    let mut lines = Lines::default();
    let mut buffer = [0; BUFFER];
    loop {
        let count = maps.read(&mut buffer);
        for byte in buffer.get(..count).filter(|bytes| !bytes.is_empty())? {
            if let Some(mapping) = lines.take(*byte).filter(&mut is_wanted) {
                return Some(mapping);
            }
        }
    }
}

/// Parses `start-end rwxp ...` byte by byte.
#[derive(Default)]
struct Lines {
    start: u64,
    end: u64,
    /// 0: in the start, 1: in the end, 2: at the first permission, 3: after it.
    field: u8,
    /// The end of the previous line's mapping, if it isn't readable.
    guard_end: Option<u64>,
}

impl Lines {
    /// The mapping, if this byte is its first permission.
    fn take(&mut self, byte: u8) -> Option<Mapping> {
        match (self.field, byte) {
            (_, b'\n') => *self = Lines { guard_end: self.guard_end, ..Lines::default() },
            (0, b'-') | (1, b' ') => self.field += 1,
            (0, _) => self.start = self.start << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0)),
            (1, _) => self.end = self.end << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0)),
            (2, _) => {
                self.field = 3;
                let has_guard = self.guard_end == Some(self.start);
                self.guard_end = (byte != b'r').then_some(self.end);
                return Some(Mapping { start: self.start, end: self.end, has_guard });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::sys::system;

    #[test]
    fn files_of_executable_mappings_are_found() {
        let mut line = [0; 4200];
        let me = std::env::current_exe().unwrap();
        let me = me.to_str().unwrap().as_bytes();
        let found = executable(&mut line, |path| path == me).unwrap();
        assert_eq!(found.strip_suffix(b"\0"), Some(me));
        assert_eq!(executable(&mut line, |_| false), None);
        assert_eq!(executable(&mut line[..20], |path| path == me), None);
        let text = b"7f0000000000-7f0000001000 r-xp 00000000 00:2f 1234      /a b/jit-77.dump\0";
        assert_eq!(executable_path(text), Some(&b"/a b/jit-77.dump"[..]));
        assert_eq!(executable_path(b"7f0000000000-7f0000001000 r--p 00000000 00:2f 1234 /a\0"), None);
    }

    #[test]
    fn the_text_says_what_the_kernel_does() {
        let size = 16 << 12;
        let flags = system::MAP_PRIVATE | system::MAP_ANONYMOUS;
        let base = system::map(size, 0, flags, -1).unwrap() as u64;
        assert!(system::protect(base + 4096, 8192, system::PROT_READ | system::PROT_WRITE).is_ok());
        let expected = Mapping { start: base + 4096, end: base + 12288, has_guard: true };
        assert_eq!(at(base + 5000), Some(expected));
        let maps = || File::open(b"/proc/self/maps\0", false).unwrap();
        assert_eq!(read(&maps(), base + 5000), Some(expected));
        assert_eq!(read(&maps(), 5), None);
        let here = everycall_hooks::stack_pointer();
        let (one, other) = (at(here).unwrap(), read(&maps(), here).unwrap());
        assert!((one.start..one.end).contains(&here));
        assert_eq!((one.end, one.has_guard), (other.end, other.has_guard));
        assert!(
            system::is_readable(base + 4096, 8192)
                && !system::is_readable(base, 8)
                && !system::is_readable(base + 12287, 2)
        );
        system::unmap(base as *mut u8, size);
    }
}
