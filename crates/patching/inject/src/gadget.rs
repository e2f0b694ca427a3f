//! Two pieces of the process's own code that a borrowed thread executes.

use memchr::memmem;

use crate::error::InjectError;
use crate::maps::Mapping;
use crate::memory::Memory;

/// `syscall; ret`: in every C library, for `getpid` at least.
const SYSCALL_RET: &[u8] = b"\x0f\x05\xc3";
/// `__restore_rt` of glibc and musl: `mov $15, %rax; syscall`.
pub(crate) const RESTORER: &[u8] = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05";
/// Another encoding of it: `mov $15, %eax; syscall`.
const RESTORER_SHORT: &[u8] = b"\xb8\x0f\x00\x00\x00\x0f\x05";
/// Larger mappings aren't searched further.
const MAPPING_MAX: u64 = 256 << 20;

pub(crate) struct Gadgets {
    /// Makes a system call and returns.
    pub(crate) syscall_ret: u64,
    /// Returns from a signal handler.
    pub(crate) restorer: u64,
}

impl Gadgets {
    pub(crate) fn find(pid: i32, memory: &Memory, mappings: &[Mapping]) -> Result<Self, InjectError> {
        let mut found = (None, None);
        // Libraries first: a program itself is seldom where the C library's code is.
        let mut executable: Vec<&Mapping> = mappings
            .iter()
            .filter(|mapping| {
                mapping.is_executable
                    && mapping.is_readable
                    && !mapping.is_writable
                    && !mapping.name.is_empty()
            })
            .collect();
        executable.sort_by_key(|mapping| !is_c_library(&mapping.name));
        for mapping in executable {
            let size = (mapping.range.end - mapping.range.start).min(MAPPING_MAX);
            let Ok(bytes) = memory.read(mapping.range.start, size as usize) else { continue };
            let at =
                |pattern| memmem::find(&bytes, pattern).map(|offset| mapping.range.start + offset as u64);
            found.0 = found.0.or_else(|| at(SYSCALL_RET));
            found.1 = found.1.or_else(|| at(RESTORER)).or_else(|| at(RESTORER_SHORT));
            if let (Some(syscall_ret), Some(restorer)) = found {
                return Ok(Self { syscall_ret, restorer });
            }
        }
        Err(InjectError::Refused(format!(
            "process {pid} has no C library's code for system calls and signals, which is needed to map memory in it"
        )))
    }
}

/// Where the C library's first page is mapped, unless the program has it in itself.
pub(crate) fn c_library(mappings: &[Mapping]) -> Option<u64> {
    let is_loader = |mapping: &&Mapping| mapping.name.contains("/ld-linux");
    let found = mappings.iter().find(|mapping| is_c_library(&mapping.name) && !is_loader(mapping));
    found.map(|mapping| mapping.range.start)
}

pub(crate) fn is_musl(path: &str) -> bool {
    path.rsplit('/').next().unwrap_or(path).starts_with("ld-musl")
}

fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["libc.so", "libc-", "ld-musl", "ld-linux"].iter().any(|start| name.starts_with(start))
}

/// A return address at which a signal handler ends.
pub(crate) fn is_restorer(memory: &Memory, address: u64) -> bool {
    let starts = |pattern: &[u8]| memory.read(address, pattern.len()).is_ok_and(|bytes| bytes == pattern);
    starts(RESTORER) || starts(RESTORER_SHORT)
}
