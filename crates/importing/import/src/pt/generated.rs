//! Code that no file of a program has: what just-in-time compilers say of theirs.
//!
//! A jitdump file has code, names and times; a process that writes one has mapped it, which perf
//! has recorded. `perf-PID.map` has names alone, and doesn't say which process with this number it
//! is of. Both are looked for beside perf's file first, then where the process left them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufReader, Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use everycall_jit::{Code, Table, jitdump, perf_map};
use everycall_machine::open_code_file;
use rustc_hash::FxHashMap;

use super::file::Clocks;
use super::space::{CodeFile, GENERATED, Map};

/// The largest jitdump file that is read.
const DUMP_MAX: u64 = 1 << 30;
/// Where compilers leave maps.
const FOLDER: &str = "/tmp";
/// How much later than perf's file the map of a process may be written that ended before.
const LATER_MAX: Duration = Duration::from_secs(1);

/// Files that compilers left.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    /// The folder of perf's file; without one, only jitdump files are looked for.
    folder: Option<PathBuf>,
    /// When perf's file was written.
    written: Option<SystemTime>,
    read: Mutex<Left>,
}

/// What was read.
#[derive(Debug, Default)]
struct Left {
    dumps: FxHashMap<Vec<u8>, Option<Arc<Vec<u8>>>>,
    /// By the process for which files were read, as several threads read them.
    notes: BTreeSet<(usize, String)>,
}

/// A process whose code is wanted.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Those that it was forked from, itself last: the process's number, and whether its end was
    /// recorded.
    pub pids: Vec<(u32, bool)>,
    /// The jitdump files that it has mapped, and when, in ticks.
    pub dumps: Vec<(Vec<u8>, u64)>,
}

/// Code of a process.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// With bytes, in the order in which it was loaded.
    pub maps: Vec<Map>,
    pub names: Vec<Code>,
    /// Names that made no sense or for which there was no room.
    pub lost: u64,
}

impl Generated {
    /// Those beside perf's file, which is in `folder` and was last written at that time.
    pub fn new(folder: Option<PathBuf>, written: Option<SystemTime>) -> Generated {
        Generated { folder, written, ..Generated::default() }
    }

    /// Code of the process with this index.
    pub fn find(&self, index: usize, wanted: &Wanted, clocks: &Clocks) -> Found {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut table, mut found) = (Table::default(), Found::default());
        let mut search = Search { files: self, read: &mut read, index };
        for (pid, has_ended) in &wanted.pids {
            search.read_map(*pid, *has_ended, &mut table);
        }
        for (path, from) in &wanted.dumps {
            search.read_dump(path, *from, clocks, &mut table, &mut found.maps);
        }
        (found.names, found.lost) = table.finish();
        found
    }

    /// What is wrong with files.
    pub fn notes(&self) -> Vec<String> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.notes.iter().map(|(_, note)| note.clone()).collect()
    }
}

/// A search for the files of one process.
struct Search<'g> {
    files: &'g Generated,
    read: &'g mut Left,
    index: usize,
}

impl Search<'_> {
    fn read_map(&mut self, pid: u32, has_ended: bool, table: &mut Table) {
        let Some(folder) = self.files.folder.clone() else { return };
        let name = format!("perf-{pid}.map");
        for path in [folder.join(&name), Path::new(FOLDER).join(&name)] {
            let (file, data) = match open_code_file(&path) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(why) => {
                    self.note(&path, &format!("was not read: {why}"));
                    continue;
                }
            };
            let latest = self.files.written.map(|written| written + LATER_MAX).filter(|_| has_ended);
            if latest.is_some_and(|latest| data.modified().is_ok_and(|time| time > latest)) {
                self.note(&path, "was not read: it was written after the process had ended");
                continue;
            }
            match perf_map::read(BufReader::new(file), table) {
                Ok(()) => self.note(&path, "names generated code, and doesn't say of which process it is"),
                Err(error) => self.note(&path, &format!("was read in part: {error}")),
            }
            return;
        }
    }

    fn read_dump(&mut self, path: &[u8], from: u64, clocks: &Clocks, table: &mut Table, maps: &mut Vec<Map>) {
        let Some(bytes) = self.dump(path) else { return };
        // The file's own clock isn't perf's: both have the moment at which the file was opened.
        let opened = jitdump::opened(&bytes[..]).map_or(0, |(_, time)| time);
        let ticks = |clock, time: u64| match clock {
            jitdump::Clock::Ticks => time,
            jitdump::Clock::Monotonic if from == 0 => 0,
            jitdump::Clock::Monotonic => {
                clocks.ticks(clocks.ns(from).saturating_add(time.saturating_sub(opened)))
            }
        };
        let images = match jitdump::read_with_images(Cursor::new(&bytes[..]), table, &ticks) {
            Ok(images) => images,
            Err(error) => return self.note(Path::new(OsStr::from_bytes(path)), &error.to_string()),
        };
        let parts: Vec<(u64, u64)> = images.iter().map(|image| (image.at, image.size)).collect();
        let file = Arc::new(CodeFile::of_generated(bytes, &parts));
        maps.extend(images.into_iter().filter(|image| image.size > 0).map(|image| Map {
            start: image.start,
            end: image.start.saturating_add(image.size),
            offset: image.at,
            number: GENERATED,
            from: image.loaded,
            file: Some(file.clone()),
        }));
    }

    /// The bytes of a jitdump file.
    fn dump(&mut self, path: &[u8]) -> Option<Arc<Vec<u8>>> {
        if let Some(known) = self.read.dumps.get(path) {
            return known.clone();
        }
        let recorded = Path::new(OsStr::from_bytes(path));
        let beside = self.files.folder.as_ref().and_then(|folder| Some(folder.join(recorded.file_name()?)));
        let places = beside.into_iter().chain(recorded.is_absolute().then(|| recorded.to_owned()));
        let mut found = None;
        for place in places {
            match open_code_file(&place) {
                Ok(Some((file, _))) => {
                    let mut bytes = Vec::new();
                    match file.take(DUMP_MAX).read_to_end(&mut bytes) {
                        Ok(_) => found = Some(Arc::new(bytes)),
                        Err(error) => self.note(&place, &format!("was not read: {error}")),
                    }
                    break;
                }
                Ok(None) => {}
                Err(why) => self.note(&place, &format!("was not read: {why}")),
            }
        }
        if found.is_none() {
            self.note(recorded, "can't be read: calls in the code that it has are missing");
        }
        self.read.dumps.insert(path.to_vec(), found.clone());
        found
    }

    fn note(&mut self, path: &Path, what: &str) {
        let path = path.to_string_lossy();
        let note = format!("{} {what}", everycall_io::terminal::line(&path));
        self.read.notes.insert((self.index, note));
    }
}
