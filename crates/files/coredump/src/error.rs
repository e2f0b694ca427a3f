//! Why a file gave no trace; each message ends with a remedy.

use std::fmt;
use std::io;

use everycall_reader as reader;

/// Why there is no snapshot.
#[derive(Debug)]
#[non_exhaustive]
pub enum CoreError {
    /// The device failed.
    Io(io::Error),
    /// The file is not a core; the value says what it is.
    NotACore(&'static str),
    /// It is packed in a way that isn't unpacked here; the command that does it.
    Packed {
        /// The format's name.
        format: &'static str,
        /// The command that unpacks it.
        command: &'static str,
    },
    /// It could not be unpacked.
    Unpack {
        /// The format's name.
        format: &'static str,
        /// The decoder's error.
        source: io::Error,
    },
    /// The unpacked data can't be stored.
    Temporary(io::Error),
    /// A core of another kind of machine.
    OtherMachine(&'static str),
    /// The file ends within the core's own headers.
    CutHeaders {
        /// Bytes that are there.
        available: u64,
    },
    /// The core's headers contradict themselves.
    Broken(&'static str),
    /// No memory of everycall is in the core.
    NoArena {
        /// Facts about the process, from the core's notes.
        process: String,
        /// The core's list of mapped files has our memory.
        listed: bool,
        /// How many bytes are missing at the core's end.
        cut: u64,
    },
    /// The process stored its calls in a crash file, which cores leave out.
    CrashFile {
        /// Facts about the process, from the core's notes.
        process: String,
        /// The file.
        path: String,
    },
    /// Only other processes' memory of everycall is in the core.
    OtherProcess {
        /// Facts about the process, from the core's notes.
        process: String,
        /// The processes whose memory the core contains.
        found: Vec<u32>,
    },
    /// The core contains everycall's memory, but it can't be read.
    Arena(reader::Error),
}

impl fmt::Display for CoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoreError::Io(error) => write!(out, "can't be read: {error}"),
            CoreError::NotACore(found) => write!(
                out,
                "expected a core dump and found {found}; name a core of a traced program (`coredumpctl dump -o core` gets \
                 the newest one from systemd)"
            ),
            CoreError::Packed { format, command } => {
                write!(out, "is packed with {format}; unpack it first, with `{command}`")
            }
            CoreError::Unpack { format, source } => write!(
                out,
                "can't be unpacked as {format}: {source}; the file is damaged or truncated: copy it again"
            ),
            CoreError::Temporary(source) => {
                write!(out, "there is no room to unpack it: {source}; set TMPDIR to a folder with more room")
            }
            CoreError::OtherMachine(found) => {
                write!(out, "is a core of {found}, and everycall traces 64-bit little-endian programs")
            }
            CoreError::CutHeaders { available } => write!(
                out,
                "the core is truncated at byte {available}, within its headers, so nothing in it can be found; \
                raise the limit of \
                 cores (ulimit -c unlimited, or ProcessSizeMax= and ExternalSizeMax= in coredump.conf)"
            ),
            CoreError::Broken(what) => write!(out, "the core is damaged: {what}; copy it again"),
            CoreError::NoArena { process, cut, .. } if *cut > 0 => write!(
                out,
                "the core of {process} is truncated: {cut} bytes are missing at its end, and the rest contains none of everycall's \
                 memory; raise the limit of cores (ulimit -c unlimited, or ProcessSizeMax= and ExternalSizeMax= in \
                 coredump.conf)"
            ),
            CoreError::CrashFile { process, path } => write!(
                out,
                "the calls of {process} are in its crash file, not in the core; show them with `everycall replay {path}`"
            ),
            CoreError::NoArena { process, listed: true, .. } => write!(
                out,
                "the core of {process} lists everycall's memory, but its bytes were left out: let shared memory into cores \
                 (bit 1 of /proc/PID/coredump_filter, which is set unless somebody cleared it)"
            ),
            CoreError::NoArena { process, .. } => write!(
                out,
                "no memory of everycall is in the core of {process}: either the program wasn't built for tracing (`everycall \
                 cc -- g++ ...`), or the core was made without shared memory (see bit 1 of /proc/PID/coredump_filter)"
            ),
            CoreError::OtherProcess { process, found } => {
                let found: Vec<String> = found.iter().map(u32::to_string).collect();
                write!(
                    out,
                    "{process} wrote no calls here: what is here is memory of process {}, as forked children inherit their parent's. \
                     --pid {} shows that one",
                    found.join(", "),
                    found.first().map_or("PID", |pid| pid)
                )
            }
            CoreError::Arena(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for CoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CoreError::Io(error) | CoreError::Unpack { source: error, .. } | CoreError::Temporary(error) => {
                Some(error)
            }
            CoreError::Arena(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for CoreError {
    fn from(error: io::Error) -> CoreError {
        CoreError::Io(error)
    }
}
