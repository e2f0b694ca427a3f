//! Crash files: the arena of a process, read as if it were a trace.
//!
//! While its process runs, a snapshot is taken; otherwise the file holds everything. In both cases
//! the trace is made in memory and read by the same reader as every other trace.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use everycall_coredump::{Core, CrashFacts, Snapshot};
use everycall_format::arena::ARENA_MAGIC;
use everycall_format::crash::ENDING;
use everycall_format::ect;
use rustix::fs::{MemfdFlags, OFlags, memfd_create};

use crate::code_names;

/// Bytes that are buffered before they are written.
const BUFFER: usize = 256 << 10;

/// A trace made in memory, and sentences about what could not be included.
type MadeTrace = (File, Vec<String>);

/// The trace in `file`, with sentences about what could not be included, if it is an arena;
/// otherwise `None`.
pub(crate) fn trace_of(file: &mut File) -> Result<Option<MadeTrace>, Box<dyn Error + Send + Sync>> {
    // The arena's magic begins like a trace file's.
    let mut magic = [0; 16];
    let is_arena = file.read_exact(&mut magic).is_ok()
        && magic.starts_with(&ARENA_MAGIC.to_le_bytes())
        && magic != ect::MAGIC;
    file.rewind()?;
    if !is_arena {
        return Ok(None);
    }
    let mut trace = File::from(memfd_create("everycall-trace", MemfdFlags::CLOEXEC)?);
    let version = env!("CARGO_PKG_VERSION");
    let mut out = BufWriter::with_capacity(BUFFER, &mut trace);
    let summary = if let Some(arena) = everycall_live::attach_to_file(file) {
        everycall_live::take(&arena, None)?.write(&mut out, version)?
    } else {
        let core = Core::open(file.try_clone()?, None)?;
        let image = core.arena()?;
        let (mut snapshot, _) = read(&core, &image)?;
        code_names::add(&mut snapshot, image.header(), file.metadata()?.uid());
        snapshot.write(&mut out, version)?
    };
    out.flush()?;
    drop(out);
    trace.rewind()?;
    Ok(Some((trace, summary.warnings)))
}

/// The snapshot in a crash file, with all that is known about its process.
///
/// # Errors
///
/// The arena in it is damaged beyond use.
pub fn read<'a>(
    core: &Core<'_>,
    image: &'a everycall_reader::ArenaImage<'a>,
) -> Result<(Snapshot<'a>, Option<CrashFacts>), everycall_reader::Error> {
    let mut snapshot = Snapshot::read(image, None)?;
    let crash = core.crash();
    if let Some(crash) = &crash {
        snapshot.set_crash(crash.clone());
        if is_of_this_boot(crash) {
            snapshot.add_clock_readings(&[everycall_machine::clock::read()]);
        } else if crash.latest.is_empty() {
            snapshot.add_warning(
                "the file is of another machine or of an earlier boot of this one, and its process lived too briefly to tell the \
                 counter's rate: times are ticks, shown as nanoseconds"
                    .to_owned(),
            );
        }
    }
    Ok((snapshot, crash))
}

/// Whether the system has not been restarted since: clocks read now continue those of the file.
fn is_of_this_boot(crash: &CrashFacts) -> bool {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    !crash.boot.is_empty() && boot.trim_ascii_end() == crash.boot
}

/// A crash file whose process has ended.
#[derive(Clone, Debug)]
pub struct LeftBehind {
    /// The file.
    pub path: PathBuf,
    /// The id that the process had.
    pub pid: u32,
    /// The words of the command line, or only the name.
    pub command: Vec<String>,
    /// The time of the process's last event, in nanoseconds since 1970, if known.
    pub last_ns: Option<u64>,
    /// Threads that it holds.
    pub threads: usize,
    /// Bytes that it occupies on disk.
    pub disk: u64,
}

/// The crash files in `folder` whose processes have ended, and sentences that say why others
/// couldn't be read.
///
/// # Errors
///
/// The folder can't be read.
pub fn left_behind(folder: &Path) -> io::Result<(Vec<LeftBehind>, Vec<String>)> {
    let (mut found, mut odd) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes()) {
            continue;
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let file = file.and_then(|file| Ok((file.metadata()?, file)));
        let (facts, file) = match file {
            Ok((facts, file)) if facts.is_file() => (facts, file),
            Ok(_) => continue,
            Err(error) => {
                odd.push(format!("{}: can't be read: {error}", path.display()));
                continue;
            }
        };
        if everycall_live::attach_to_file(&file).is_some() {
            continue;
        }
        match look_at(file) {
            Ok((pid, crash, last_ns, threads)) => {
                let words = if crash.command.is_empty() { vec![crash.name] } else { crash.command };
                let command = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                let disk = facts.blocks() * 512;
                found.push(LeftBehind { path, pid, command, last_ns, threads, disk });
            }
            Err(error) => odd.push(format!("{}: {error}", path.display())),
        }
    }
    found.sort_by(|one, other| (other.last_ns, &one.path).cmp(&(one.last_ns, &other.path)));
    Ok((found, odd))
}

type Facts = (u32, CrashFacts, Option<u64>, usize);

fn look_at(file: File) -> Result<Facts, Box<dyn Error>> {
    let core = Core::open(file, None)?;
    let image = core.arena()?;
    let (snapshot, crash) = read(&core, &image)?;
    let threads = everycall_reader::Source::recording(&image).snapshots.first();
    let threads = threads.map_or(0, |snapshot| snapshot.threads.len());
    Ok((image.header().target_pid, crash.unwrap_or_default(), snapshot.reached_realtime_ns(), threads))
}
