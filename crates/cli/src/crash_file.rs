//! Crash files: the arena of a process, read as if it were a trace.
//!
//! While its process runs, a snapshot of that is taken; else the file says all. Either way the trace goes into memory and from
//! there through the reader, as every other one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use everycall_coredump::{Core, CrashFacts, Snapshot};
use everycall_format::arena::ARENA_MAGIC;
use everycall_format::crash::ENDING;
use everycall_format::ect;
use everycall_messages::say;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::Failure;
use crate::output::BUFFER;

/// The trace in `file`, if it is an arena; `None` where it is something else.
pub fn trace_of(file: &mut File, path: &Path) -> Result<Option<File>, Failure> {
    let failed = |reason: &dyn std::fmt::Display| Failure::of(path, reason);
    // The arena's magic is the beginning of a trace's.
    let mut magic = [0; 16];
    let is_arena = file.read_exact(&mut magic).is_ok()
        && magic.starts_with(&ARENA_MAGIC.to_le_bytes())
        && magic != ect::MAGIC;
    file.rewind().map_err(|error| failed(&error))?;
    if !is_arena {
        return Ok(None);
    }
    let memory = memfd_create("everycall-trace", MemfdFlags::CLOEXEC).map_err(|error| failed(&error))?;
    let mut trace = File::from(memory);
    let version = env!("CARGO_PKG_VERSION");
    let mut out = BufWriter::with_capacity(BUFFER, &mut trace);
    let summary = if let Some(arena) = everycall_live::attach_to_file(file) {
        let snapshot = everycall_live::take(&arena, None).map_err(|error| failed(&error))?;
        snapshot.write(&mut out, version)
    } else {
        let file = file.try_clone().map_err(|error| failed(&error))?;
        let core = Core::open(file, None).map_err(|error| failed(&error))?;
        let image = core.arena().map_err(|error| failed(&error))?;
        let (snapshot, _) = read(&core, &image).map_err(|error| failed(&error))?;
        snapshot.write(&mut out, version)
    };
    let summary =
        summary.and_then(|summary| out.flush().map(|()| summary)).map_err(|error| failed(&error))?;
    drop(out);
    for warning in &summary.warnings {
        say!("everycall: {}: {warning}", path.display());
    }
    trace.rewind().map_err(|error| failed(&error))?;
    Ok(Some(trace))
}

/// The snapshot of a crash file, with all that is known of its process.
pub fn read<'a>(
    core: &Core<'_>,
    image: &'a everycall_reader::ArenaImage<'a>,
) -> Result<(Snapshot<'a>, Option<CrashFacts>), everycall_reader::Error> {
    let mut snapshot = Snapshot::read(image, None)?;
    let crash = core.crash();
    if let Some(crash) = &crash {
        snapshot.set_crash(crash.clone());
        if is_of_this_boot(crash) {
            snapshot.add_clock_readings(&[everycall_recorder::clock::read()]);
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

/// Whether clocks read now go on from those of the file.
pub fn is_of_this_boot(crash: &CrashFacts) -> bool {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    !crash.boot.is_empty() && boot.trim_ascii_end() == crash.boot
}

/// A crash file that nobody writes any more.
pub struct LeftBehind {
    pub path: PathBuf,
    pub pid: u32,
    /// The words of the command line, or the name alone.
    pub command: Vec<String>,
    /// When the process wrote last, in nanoseconds since 1970, as far as that is known.
    pub last_ns: Option<u64>,
    pub threads: usize,
    /// Bytes that it takes on the disk.
    pub disk: u64,
}

/// The crash files in `folder` that nobody writes any more, and why others couldn't be read.
pub fn left_behind(folder: &Path) -> io::Result<(Vec<LeftBehind>, Vec<String>)> {
    let (mut found, mut odd) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes()) {
            continue;
        }
        const NO_FOLLOW: i32 = 0o400_000;
        const NO_BLOCK: i32 = 0o4_000;
        let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW | NO_BLOCK).open(&path);
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
                let disk = std::os::unix::fs::MetadataExt::blocks(&facts) * 512;
                found.push(LeftBehind { path, pid, command, last_ns, threads, disk });
            }
            Err(error) => odd.push(format!("{}: {error}", path.display())),
        }
    }
    found.sort_by(|one, other| (other.last_ns, &one.path).cmp(&(one.last_ns, &other.path)));
    Ok((found, odd))
}

type Facts = (u32, CrashFacts, Option<u64>, usize);

fn look_at(file: File) -> Result<Facts, Box<dyn std::error::Error>> {
    let core = Core::open(file, None)?;
    let image = core.arena()?;
    let (snapshot, crash) = read(&core, &image)?;
    let threads = everycall_reader::Source::recording(&image).snapshots.first();
    let threads = threads.map_or(0, |snapshot| snapshot.threads.len());
    Ok((image.header().target_pid, crash.unwrap_or_default(), snapshot.reached_realtime_ns(), threads))
}
