//! System calls, files, mappings and locks. Nothing here knows about arenas, threads or events.
//!
//! ```text
//! system        system calls that belong to no other file; errors: the kernel's errors
//! block         private memory for one purpose; socket: Unix sockets
//! filter        filters of system calls that the program installs
//! file, disk    files, and those that are mapped; folder, name: paths and names
//! kept_path     the path of a file that is read again later
//! perf_files    where just-in-time compilers tell the names of their code
//! processes     facts about processes and threads that the kernel provides
//! mapping       bounds of a mapping; mapped_file: which file is mapped at an address
//! unwind_table  where functions begin and end
//! image         an object in memory: its code, its build id
//! helper        threads of the runtime's own
//! own_memory    memory for an arena of the process's own
//! wiped         memory that a forked child finds wiped
//! ```

pub(crate) mod block;
pub(crate) mod clock;
pub(crate) mod crc;
pub(crate) mod disk;
pub(crate) mod errors;
pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod folder;
pub(crate) mod helper;
pub(crate) mod image;
pub(crate) mod kept_path;
pub(crate) mod lock;
pub(crate) mod mapped_file;
pub(crate) mod mapping;
pub(crate) mod name;
pub(crate) mod own_memory;
pub(crate) mod perf_files;
pub(crate) mod processes;
pub(crate) mod socket;
pub(crate) mod system;
pub(crate) mod text;
pub(crate) mod unwind_table;
pub(crate) mod wiped;
