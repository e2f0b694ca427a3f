//! Which format something has, by its content.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use everycall_io::infile;

use crate::error::ImportError;

/// Bytes of a file's beginning that are looked at.
const HEAD: u64 = 64 << 10;

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome's trace event format, as JSON, also compressed by gzip.
    Chrome,
    /// The file of an emulated device with the TRACE instruction.
    Device,
    /// funtrace's raw file.
    Funtrace,
    /// Text of `perf script` of an Intel PT trace: calls and returns, or all branches.
    Perf,
    /// perf's own file with an Intel PT trace.
    PerfData,
    /// uftrace's folder.
    Uftrace,
    /// XRay's basic log.
    XrayBasic,
    /// XRay's log of its flight data recorder.
    XrayFdr,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 8] = [
        Format::Chrome,
        Format::Device,
        Format::Funtrace,
        Format::Perf,
        Format::PerfData,
        Format::Uftrace,
        Format::XrayBasic,
        Format::XrayFdr,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Chrome => "chrome",
            Format::Device => "device",
            Format::Funtrace => "funtrace",
            Format::Perf => "perf",
            Format::PerfData => "perf-data",
            Format::Uftrace => "uftrace",
            Format::XrayBasic => "xray-basic",
            Format::XrayFdr => "xray-fdr",
        }
    }

    /// The format's description, for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Format::Chrome => "Chrome's JSON trace",
            Format::Device => "TRACE device's file",
            Format::Funtrace => "funtrace's raw file",
            Format::Perf => "perf script's text of Intel PT",
            Format::PerfData => "perf's own file of Intel PT",
            Format::Uftrace => "uftrace's folder",
            Format::XrayBasic => "XRay's basic log",
            Format::XrayFdr => "XRay's FDR log",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The format of the file or folder at `path`.
///
/// # Errors
///
/// It can't be read, is empty, or has none of the formats.
pub fn detect(path: &Path) -> Result<Format, ImportError> {
    let unreadable = |error| ImportError::Unreadable(None, error);
    let data = fs::metadata(path).map_err(unreadable)?;
    if data.is_dir() {
        let mut head = Vec::new();
        let info = infile::open(&path.join("info"));
        return match info.and_then(|info| info.take(HEAD).read_to_end(&mut head)) {
            Ok(_) if head.starts_with(b"Ftrace!\0") => Ok(Format::Uftrace),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(ImportError::Unknown(Some("a folder whose file `info` is not a regular file")))
            }
            _ if path.join("task.txt").exists() => Ok(Format::Uftrace),
            _ => Err(ImportError::Unknown(Some(
                "a folder, but not one of uftrace: it has no file `info` of it",
            ))),
        };
    }
    if !data.is_file() {
        return Err(ImportError::Unknown(Some("not a regular file")));
    }
    let mut head = Vec::new();
    infile::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)).map_err(unreadable)?;
    detect_bytes(&head)
}

/// The format of a file with this beginning.
///
/// # Errors
///
/// As [`detect`].
pub fn detect_bytes(head: &[u8]) -> Result<Format, ImportError> {
    let mut unpacked = Vec::new();
    let mut bytes = head;
    if head.starts_with(&[0x1f, 0x8b]) {
        // Its end is missing here.
        let _: io::Result<_> = flate2::read::MultiGzDecoder::new(head).take(HEAD).read_to_end(&mut unpacked);
        bytes = &unpacked;
    }
    let text = bytes.trim_ascii_start();
    if text.is_empty() {
        return Err(ImportError::Empty);
    }
    if head.starts_with(everycall_trace_device::MAGIC) {
        return Ok(Format::Device);
    }
    if head.starts_with(b"PROCMAPS") || head.starts_with(b"FUNTRACE") {
        return Ok(Format::Funtrace);
    }
    if head.starts_with(crate::pt::MAGIC) || head.starts_with(crate::pt::MAGIC_SWAPPED) {
        return Ok(Format::PerfData);
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.starts_with(b"[") || text.starts_with(b"{") {
        return Ok(Format::Chrome);
    }
    if let Some(format) = xray(head) {
        return Ok(format);
    }
    if crate::perf::looks_like(bytes) {
        return Ok(Format::Perf);
    }
    Err(ImportError::Unknown(other(head)))
}

/// XRay's header has a version, a type, and flags of which two are used.
fn xray(head: &[u8]) -> Option<Format> {
    let half = |at: usize| head.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
    if head.len() < 32 || !(1..=16).contains(&half(0)?) {
        return None;
    }
    match half(2)? {
        0 => Some(Format::XrayBasic),
        1 => Some(Format::XrayFdr),
        _ => None,
    }
}

/// The kind of a file that can't be imported, and what to do with it.
fn other(head: &[u8]) -> Option<&'static str> {
    let is_core = head.get(16..18) == Some(&[4, 0]);
    Some(match head {
        [0x7f, b'E', b'L', b'F', ..] if is_core => "a core dump; `everycall core` extracts its trace",
        [0x7f, b'E', b'L', b'F', ..] => {
            "a program or library, not a trace; name it with --binary, and an XRay log as FILE"
        }
        _ if head.starts_with(b"everycall trace\n") => {
            "a trace of everycall already; `everycall replay`, `report` and `export` read it as it is"
        }
        _ if head.starts_with(b"FUNCOUNT") => "funtrace's counts of calls, not a trace",
        _ if head.starts_with(b"Ftrace!\0") => "a part of uftrace's folder; name the folder",
        _ if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => {
            "compressed by zstd; decompress it first (zstd -d)"
        }
        _ => return None,
    })
}
