//! Errors and warnings of an input. After an error, nothing can be read; after a warning, the rest
//! can.

use std::fmt;
use std::io;

use crate::kinds::name_of;

/// Why an input can't be read at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    Io(io::Error),
    /// Not a trace file; the value says what it looks like.
    NotATrace(Found),
    /// It was written by a newer everycall whose files this one would misread.
    Newer {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
    /// It is not an arena, or one whose sizes contradict each other or the bytes that are there.
    NotAnArena {
        /// Bytes that are there.
        available: u64,
    },
    /// An arena of another version.
    ArenaVersion(u32),
    /// The requested file of a module can't be read.
    ModuleImage {
        /// Index of the module.
        module: u32,
        /// The problem.
        problem: &'static str,
    },
    /// The place to write a module's file to failed.
    Write(io::Error),
}

/// The kind of an input that isn't a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// No bytes.
    Empty,
    /// Fewer bytes than a header, which could be the beginning of one.
    CutHeader(u64),
    /// An ELF file.
    Elf,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
    /// xz.
    Xz,
    /// A zip archive.
    Zip,
    /// JSON, or something that begins like it.
    Json,
    /// An arena of everycall.
    Arena,
    /// A file of Linux perf.
    Perf,
    /// Text.
    Text,
    /// Only zeros at its beginning.
    Zeros,
    /// Something else.
    Unknown,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Found::Empty => "an empty file",
            Found::CutHeader(count) => {
                return write!(f, "a trace file truncated at byte {count}, within its header");
            }
            Found::Elf => "an ELF file (a program, shared object or core dump)",
            Found::Gzip => "gzip data",
            Found::Zstd => "zstd data",
            Found::Xz => "xz data",
            Found::Zip => "a zip archive",
            Found::Json => "JSON",
            Found::Arena => "an everycall arena",
            Found::Perf => "a recording of Linux perf",
            Found::Text => "text",
            Found::Zeros => "zeros",
            Found::Unknown => "data of an unknown kind",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "reading failed: {error}"),
            Error::NotATrace(found) => write!(
                f,
                "expected an everycall trace file (.ect) and found {found}; traces are made by `everycall record`"
            ),
            Error::Newer { major, minor } => write!(
                f,
                "the trace file has format {major}.{minor} and this everycall reads up to {}.x; read it with the everycall that wrote it, or a newer one",
                everycall_format::ect::VERSION_MAJOR
            ),
            Error::NotAnArena { available } => write!(
                f,
                "expected an everycall arena and found {available} bytes whose header is missing or contradicts itself"
            ),
            Error::ArenaVersion(version) => write!(
                f,
                "the arena has version {version} and this everycall reads version {}; use the everycall that the program was built with",
                everycall_format::arena::ARENA_VERSION
            ),
            Error::ModuleImage { module, problem } => {
                write!(f, "the stored file of module {module} can't be used: {problem}")
            }
            Error::Write(error) => write!(f, "writing a module's file failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) | Error::Write(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

/// Something that was damaged, missing or not understood. The rest was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The file ends before its last chunk.
    Cut {
        /// Bytes that are there.
        at: u64,
    },
    /// The file's header fails its checksum.
    HeaderDamaged,
    /// Bytes that are no chunk were skipped.
    Skipped {
        /// Where they begin.
        at: u64,
        /// How many.
        bytes: u64,
    },
    /// A chunk's content fails its checksum and was left out.
    ChunkDamaged {
        /// Where the chunk begins.
        at: u64,
        /// Its kind, one of [`everycall_format::ect::chunk`].
        kind: u32,
    },
    /// A chunk's content contradicts itself and was left out, or some of it.
    ChunkMalformed {
        /// Where the chunk begins.
        at: u64,
        /// Its kind.
        kind: u32,
        /// The problem.
        problem: &'static str,
    },
    /// Chunks that this version doesn't know were skipped.
    UnknownChunks {
        /// Their kind.
        kind: u32,
        /// How many.
        count: u64,
    },
    /// Chunks are missing between two that were read.
    ChunksMissing {
        /// Number of the first one.
        first: u32,
        /// How many.
        count: u32,
    },
    /// The file is longer or shorter than its last chunk says.
    Length {
        /// The stated length.
        expected: u64,
        /// The real length.
        found: u64,
    },
    /// Fewer threads than the snapshot says.
    ThreadsMissing {
        /// Number of the snapshot.
        snapshot: u32,
        /// How many there should be.
        expected: u32,
        /// How many there are.
        found: u32,
    },
    /// Fewer segments than the thread's record says.
    SegmentsMissing {
        /// Thread.
        tid: u32,
        /// Segments are missing or damaged.
        count: u64,
    },
    /// A segment was left out because it doesn't begin with its own segment record.
    SegmentInvalid {
        /// Thread.
        tid: u32,
        /// Its number.
        segment: u64,
    },
    /// A segment was overwritten while it was read, and left out.
    SegmentOverwritten {
        /// Thread.
        tid: u32,
        /// Its number.
        segment: u64,
    },
    /// The table of children had no room for all.
    ChildrenMissing {
        /// How many are missing.
        count: u64,
    },
    /// There are more entries of a kind than any real recording has; the rest was left out.
    TooMany {
        /// Their kind.
        what: &'static str,
        /// How many were kept.
        kept: usize,
    },
    /// So many further warnings were not stored.
    More {
        /// How many.
        count: u64,
    },
    /// Reading failed at one place.
    Unreadable {
        /// Where.
        at: u64,
        /// The system's word for it.
        kind: io::ErrorKind,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Cut { at } => {
                write!(f, "the file is truncated at byte {at}; everything before it was read")
            }
            Warning::HeaderDamaged => {
                write!(f, "the file's header is damaged; its chunks were read all the same")
            }
            Warning::Skipped { at, bytes } => {
                write!(f, "{bytes} damaged bytes at byte {at} were skipped")
            }
            Warning::ChunkDamaged { at, kind } => {
                write!(f, "the {} at byte {at} are damaged and were left out", name_of(*kind))
            }
            Warning::ChunkMalformed { at, kind, problem } => {
                write!(f, "the {} at byte {at} can't be used as they are: {problem}", name_of(*kind))
            }
            Warning::UnknownChunks { kind, count } => write!(
                f,
                "{count} chunks of kind {kind}, which this everycall doesn't know, were skipped; a newer one reads more"
            ),
            Warning::ChunksMissing { first, count } => {
                write!(f, "{count} chunks are missing, from number {first} on")
            }
            Warning::Length { expected, found } => {
                write!(f, "the file should have {expected} bytes and has {found}")
            }
            Warning::ThreadsMissing { snapshot, expected, found } => {
                write!(f, "snapshot {snapshot} should have {expected} threads and has {found}")
            }
            Warning::SegmentsMissing { tid, count } => {
                write!(f, "{count} segments of thread {tid} are missing")
            }
            Warning::SegmentInvalid { tid, segment } => {
                write!(
                    f,
                    "segment {segment} of thread {tid} doesn't begin with its own record and was left out"
                )
            }
            Warning::SegmentOverwritten { tid, segment } => {
                write!(f, "segment {segment} of thread {tid} was overwritten while it was read, and left out")
            }
            Warning::ChildrenMissing { count } => {
                write!(f, "the list of children has no room for {count} more")
            }
            Warning::TooMany { what, kept } => {
                write!(f, "there are more than {kept} {what}; the rest was left out")
            }
            Warning::More { count } => write!(f, "{count} more warnings"),
            Warning::Unreadable { at, kind } => write!(f, "reading failed at byte {at}: {kind}"),
        }
    }
}

/// Limit on stored warnings: a hostile input could cause any number.
const WARNINGS_MAX: usize = 256;

/// Adds a warning, or counts it where there are many already.
pub(crate) fn warn(warnings: &mut Vec<Warning>, warning: Warning) {
    if let Some(Warning::More { count }) = warnings.last_mut() {
        *count += 1;
    } else if warnings.len() < WARNINGS_MAX {
        warnings.push(warning);
    } else {
        warnings.push(Warning::More { count: 1 });
    }
}

impl Warning {
    /// Adds this one to `warnings`, or counts it where there are hundreds already.
    pub fn add_to(self, warnings: &mut Vec<Warning>) {
        warn(warnings, self);
    }
}
