//! Loading a library into a process, by its own `dlopen`.
//!
//! The library's file is one in memory that the process has open meanwhile: whatever namespaces it
//! is in, and whichever files it may read, it is there. That file's path leads to another file
//! later: in debuggers, and in whatever opens all libraries of a process for their symbols, to a
//! pipe that they would read for ever. So the loader's entry gets another name.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{InjectError, failed};
use crate::function::Caller;
use crate::gadget::{c_library, is_musl};
use crate::maps::{Mapping, holding, mappings};
use crate::memory::Memory;
use crate::region;
use crate::remote::Borrowed;
use crate::symbols;

/// A longer message of the loader is cut.
const MESSAGE_MAX: usize = 500;

/// The functions of the process that load.
struct Loader {
    open: u64,
    flags: u64,
    /// Tells why it failed.
    error: Option<u64>,
}

impl Loader {
    fn find(pid: i32, memory: &Memory, maps: &[Mapping]) -> Result<Self, InjectError> {
        const PUBLIC: u64 = (libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NODELETE) as u64;
        /// `__RTLD_DLOPEN`
        const PRIVATE: u64 = PUBLIC | 0x8000_0000;
        let refused = |why: String| Err(InjectError::Refused(why));
        let Some(start) = c_library(maps) else {
            return refused(format!(
                "process {pid} has its C library in itself (statically linked), so no library can be loaded into it"
            ));
        };
        if holding(maps, start).is_some_and(|mapping| is_musl(&mapping.name)) {
            return refused(format!(
                "the C library of process {pid} is musl, whose loader has no known safe moments"
            ));
        }
        // Before glibc 2.34, `dlopen` is in a library of its own, which not every program loads.
        let older = maps.iter().find(|mapping| {
            mapping
                .name
                .rsplit('/')
                .next()
                .is_some_and(|name| name.starts_with("libdl.so") || name.starts_with("libdl-"))
        });
        for start in [Some(start), older.map(|mapping| mapping.range.start)].into_iter().flatten() {
            if let Some(open) = symbols::address(memory, start, "dlopen") {
                return Ok(Self { open, flags: PUBLIC, error: symbols::address(memory, start, "dlerror") });
            }
        }
        match symbols::address(memory, start, "__libc_dlopen_mode") {
            Some(open) => Ok(Self { open, flags: PRIVATE, error: None }),
            None => refused(format!("the C library of process {pid} has no dlopen")),
        }
    }
}

/// Loads a library with these contents. Returns where its first page is mapped. `name`: see
/// [`crate::Remote::load_library`].
pub(crate) fn load(
    pid: i32,
    memory: &Memory,
    borrowed: &mut Borrowed,
    caller: &Caller,
    contents: &[u8],
    name: &Path,
) -> Result<u64, InjectError> {
    let name = name.as_os_str().as_bytes();
    let loader = Loader::find(pid, memory, &mappings(pid)?)?;
    let (descriptor, file) = region::new_file(pid, borrowed, contents.len() as u64, contents)?;
    let inode = file.metadata().map_err(failed("reading about a file in memory"))?.ino();
    let path = path_of(descriptor, inode, name.len());
    let result = open(memory, borrowed, caller, &loader, &path);
    if borrowed.is_left() {
        // It stays open.
        return result.map(|_| 0);
    }
    region::close(borrowed, descriptor)?;
    rename(memory, result?, &path, name);
    let maps = mappings(pid)?;
    let first = maps.iter().find(|mapping| mapping.inode == inode && mapping.name.starts_with("/memfd:"));
    first.map(|mapping| mapping.range.start).ok_or_else(|| {
        InjectError::Refused(format!("the library that was loaded into process {pid} isn't mapped in it"))
    })
}

/// A spelling that no other file has: the loader takes a library of a known name for the one that
/// it has loaded. It is at least so long.
fn path_of(descriptor: u64, inode: u64, length: usize) -> String {
    let spelling: String = (0..32).map(|bit| if inode >> bit & 1 == 1 { "./" } else { "/" }).collect();
    let padding = "./".repeat(length.saturating_sub(spelling.len()).div_ceil(2));
    format!("/proc/self/fd/{spelling}{padding}{descriptor}")
}

/// Changes the name in the loader's entry, which `dlopen` has returned. If it isn't where glibc has
/// it, it stays.
fn rename(memory: &Memory, entry: u64, path: &str, name: &[u8]) {
    /// Of `l_name` in `struct link_map`.
    const NAME_AT: u64 = 8;
    let is_path = |bytes: Vec<u8>| bytes.strip_suffix(b"\0") == Some(path.as_bytes());
    if let Ok(at) = memory.number(entry.wrapping_add(NAME_AT))
        && memory.read(at, path.len() + 1).is_ok_and(is_path)
        && name.len() <= path.len()
    {
        let _ = memory.write(at, &[name, b"\0"].concat());
    }
}

fn open(
    memory: &Memory,
    borrowed: &mut Borrowed,
    caller: &Caller,
    loader: &Loader,
    path: &str,
) -> Result<u64, InjectError> {
    let text = caller.put_text(memory, path)?;
    let entry = caller.call(memory, borrowed, loader.open, [text, loader.flags, 0, 0, 0, 0])?;
    if entry != 0 {
        return Ok(entry);
    }
    let mut why = String::new();
    // Asking for the message also clears it: the program didn't make this mistake.
    if let Some(error) = loader.error {
        let at = caller.call(memory, borrowed, error, [0; 6])?;
        let bytes: Vec<u8> = (0..MESSAGE_MAX as u64)
            .map_while(|offset| memory.read(at + offset, 1).ok()?.first().copied())
            .take_while(|byte| *byte != 0)
            .collect();
        why = String::from_utf8_lossy(&bytes).into_owned();
    }
    Err(InjectError::Refused(format!(
        "the loader of process {} refuses a library: {}",
        borrowed.pid(),
        if why.is_empty() { "it doesn't say why" } else { &why }
    )))
}
