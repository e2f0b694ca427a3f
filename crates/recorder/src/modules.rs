//! The files of the modules that the program loads. They are opened when they are loaded, so that a file which is
//! deleted or replaced later keeps its names; only what isn't at its path any more goes into the trace.
//!
//! A path comes from the traced program. Only regular ELF files are opened, and what is kept has the build id
//! that the module has in memory, or the inode that was mapped.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Weak};

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::arena::Arena;

/// Larger files are not put into a trace.
const IMAGE_SIZE_MAX: u64 = 2 << 30;
/// Bytes of notes that are looked at for a build id; linkers write some dozens.
const NOTES_MAX: u64 = 1 << 20;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The file of one module, held open.
#[derive(Debug)]
struct Held {
    file: File,
    stamp: Stamp,
}

/// A module that the program has or had.
#[derive(Debug)]
struct Known {
    entry: ModuleEntry,
    path: Option<Vec<u8>>,
    held: Option<Arc<Held>>,
}

/// Every module that was ever seen: an entry of the arena's table may be given to another module when its own was unloaded.
#[derive(Debug, Default)]
pub struct Modules {
    known: Vec<Known>,
    /// Which of them each entry of the table has now.
    current: Vec<usize>,
    /// Bytes of the paths of all of them.
    path_bytes: usize,
}

/// So many modules are remembered of one process; a reader takes no more.
const KNOWN_MAX: usize = 1 << 16;
/// Bytes of paths that are remembered of one process: an arena has room for a megabyte at a time, which a program may use again and again.
const PATH_BYTES_MAX: usize = 16 << 20;

/// Files that are held, for all processes together: those that run the same program share one descriptor.
#[derive(Debug, Default)]
pub struct Files {
    held: HashMap<Identity, Weak<Held>>,
    /// The program that was started: it was opened before it could remove itself.
    started: Option<Arc<Held>>,
}

/// Path, build id, device and inode of a module.
pub type Identity = (Vec<u8>, Vec<u8>, u64, u64);

/// When there are so many files, those that nobody holds any more are forgotten.
const FILES_TIDIED: usize = 4096;

impl Files {
    /// Opens the program at `path`, which is about to be started.
    pub fn open_started(&mut self, path: &Path) {
        self.started = open_regular(path).map(Arc::new);
    }

    fn hold(&mut self, path: Vec<u8>, module: &ModuleEntry, pid: u32) -> Option<Arc<Held>> {
        let identity = identity(path, module);
        if let Some(held) = self.held.get(&identity).and_then(Weak::upgrade) {
            return Some(held);
        }
        let found = hold(Path::new(OsStr::from_bytes(&identity.0)), module, pid).map(Arc::new);
        let is_it = |held: &&Arc<Held>| is_same_module(&held.file, held.stamp, module);
        let held = found.or_else(|| self.started.as_ref().filter(is_it).cloned())?;
        if self.held.len() >= FILES_TIDIED {
            self.held.retain(|_, held| held.strong_count() > 0);
        }
        self.held.insert(identity, Arc::downgrade(&held));
        Some(held)
    }
}

impl Modules {
    /// Opens the files of modules that are new since the last look.
    pub fn look(&mut self, arena: &Arena, files: &mut Files) {
        let pid = arena.header().target_pid;
        for index in 0..arena.module_count() {
            let place = index as usize;
            let module = arena.module(index);
            if module.state != module_state::COMPLETE {
                if place < self.current.len() {
                    // It is being given to another one, which will ring.
                    continue;
                }
                // It will be there at the next bell.
                break;
            }
            let current = self.current.get(place).and_then(|number| self.known.get_mut(*number));
            if let Some(known) = current {
                if known.entry.predecessors == module.predecessors {
                    known.entry = module;
                    continue;
                }
                if known.entry.unloaded_ticks == 0 {
                    known.entry.unloaded_ticks = module.loaded_ticks;
                }
            }
            if self.known.len() == KNOWN_MAX || self.path_bytes > PATH_BYTES_MAX {
                continue;
            }
            let path = arena.module_path(&module);
            if arena.module(index).predecessors != module.predecessors {
                continue;
            }
            let held = path.clone().and_then(|path| files.hold(path, &module, pid));
            let number = self.known.len();
            self.path_bytes += path.as_ref().map_or(0, Vec::len);
            self.known.push(Known { entry: module, path, held });
            match self.current.get_mut(place) {
                Some(current) => *current = number,
                None => self.current.push(number),
            }
        }
    }

    /// Every module with its path, as they go into a file, those first that the process has now, at the places of their entries.
    pub fn table(&self, arena: &Arena) -> Vec<(ModuleEntry, Vec<u8>)> {
        // Entries that name each other's paths were written over: no more is told of them than there is memory for.
        let mut left = arena.layout().paths_size;
        let mut within =
            move |(entry, path): (ModuleEntry, Vec<u8>)| match left.checked_sub(path.len() as u64) {
                Some(rest) => {
                    left = rest;
                    (entry, path)
                }
                None => (entry, Vec::new()),
            };
        (0..arena.module_count())
            .map(|index| within(self.now(arena, index)))
            .chain(self.former().map(|known| (known.entry, known.path.clone().unwrap_or_default())))
            .collect()
    }

    fn now(&self, arena: &Arena, index: u32) -> (ModuleEntry, Vec<u8>) {
        let entry = arena.module(index);
        let path = arena.module_path(&entry).unwrap_or_default();
        match self.current.get(index as usize).and_then(|number| self.known.get(*number)) {
            Some(known) if entry.predecessors != known.entry.predecessors => {
                (known.entry, known.path.clone().unwrap_or_default())
            }
            _ => (entry, path),
        }
    }

    /// Those whose entries were given to others.
    fn former(&self) -> impl Iterator<Item = &Known> {
        let current: HashSet<usize> = self.current.iter().copied().collect();
        self.known
            .iter()
            .enumerate()
            .filter(move |(number, _)| !current.contains(number))
            .map(|(_, known)| known)
    }

    /// The modules that the process has now, at the places of their entries: each with its path and, where it could be opened, its file.
    pub fn present(&self) -> impl Iterator<Item = (&ModuleEntry, &[u8], Option<&File>)> {
        let known = self.current.iter().filter_map(|number| self.known.get(*number));
        known.map(|known| {
            let path = known.path.as_deref().unwrap_or_default();
            (&known.entry, path, known.held.as_ref().map(|held| &held.file))
        })
    }

    /// The files that are no longer at their paths, with their modules' places in [`Modules::table`]; calls `keep` for one after the
    /// other, which may ask for its bytes: they, or a sentence that says why there are none.
    ///
    /// # Errors
    ///
    /// The first error of `keep`.
    pub fn moved(
        &mut self,
        arena: &Arena,
        mut keep: impl FnMut(Identity, u32, &dyn Fn() -> Result<Vec<u8>, String>) -> io::Result<()>,
    ) -> io::Result<()> {
        let present = self.current.iter().filter_map(|number| self.known.get(*number));
        let former = (arena.module_count()..).zip(self.former());
        for (index, known) in (0..).zip(present).chain(former) {
            let (Some(held), Some(path_bytes)) = (&known.held, &known.path) else { continue };
            let module = &known.entry;
            let path = Path::new(OsStr::from_bytes(path_bytes));
            if is_still_there(path, held, module) {
                continue;
            }
            let bytes = || {
                read_image(held, module).map_err(|reason| {
                    format!(
                        "{} was changed while the program ran, and {reason}; its functions will be shown as module+offset",
                        path.display()
                    )
                })
            };
            keep(identity(path_bytes.clone(), module), index, &bytes)?;
        }
        Ok(())
    }
}

fn identity(path: Vec<u8>, module: &ModuleEntry) -> Identity {
    let build_id = module.build_id.get(..module.build_id_length as usize).unwrap_or_default();
    (path, build_id.to_vec(), module.device, module.inode)
}

/// Opens the file that was mapped, wherever it is now.
fn hold(path: &Path, module: &ModuleEntry, pid: u32) -> Option<Held> {
    let in_its_root =
        path.strip_prefix("/").ok().map(|path| Path::new(&format!("/proc/{pid}/root")).join(path));
    let of_the_process = (module.flags & module_flags::EXECUTABLE != 0)
        .then(|| Path::new(&format!("/proc/{pid}/exe")).to_owned());
    let candidates = [Some(path.to_owned()), in_its_root, of_the_process];
    candidates.into_iter().flatten().find_map(|path| open_if_same(&path, module))
}

fn open_if_same(path: &Path, module: &ModuleEntry) -> Option<Held> {
    open_regular(path).filter(|held| is_same_module(&held.file, held.stamp, module))
}

fn open_regular(path: &Path) -> Option<Held> {
    // Opening a device or a FIFO may do something; a path of this kind is no module.
    std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    let stamp = Stamp::of(&metadata);
    Some(Held { file, stamp })
}

/// Whether a file is the one that was mapped: by its build id where the module has one.
fn is_same_module(file: &File, stamp: Stamp, module: &ModuleEntry) -> bool {
    let expected = module.build_id.get(..module.build_id_length as usize).unwrap_or_default();
    match build_id(file) {
        Ok(Some(found)) if !expected.is_empty() => found == expected,
        Ok(_) => (stamp.device, stamp.inode) == (module.device, module.inode) && module.inode != 0,
        Err(_) => false,
    }
}

/// The build id of the ELF file at `path`; none where it has none or isn't one.
#[must_use]
pub fn build_id_of(path: &Path) -> Option<Vec<u8>> {
    std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    build_id(&File::open(path).ok()?).ok()?
}

/// The build id of an ELF file; an error where it is none. It reads the notes that the program has in memory too, and
/// nothing else: the program waits, and symbol tables are large.
fn build_id(file: &File) -> Result<Option<Vec<u8>>, object::Error> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, &cache)? {
        if segment.p_filesz(endian) > NOTES_MAX {
            continue;
        }
        let Some(mut notes) = segment.notes(endian, &cache)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Ok(Some(note.desc().to_vec()));
            }
        }
    }
    Ok(None)
}

fn is_still_there(path: &Path, held: &Held, module: &ModuleEntry) -> bool {
    match std::fs::metadata(path) {
        Ok(now) if Stamp::of(&now) == held.stamp => true,
        // Rebuilt to the same bytes, or touched.
        Ok(now) if now.is_file() && module.build_id_length > 0 => open_if_same(path, module).is_some(),
        _ => false,
    }
}

fn read_image(held: &Held, module: &ModuleEntry) -> Result<Vec<u8>, String> {
    let now = held.file.metadata().map_err(|error| format!("can't be looked at any more ({error})"))?;
    let now = Stamp::of(&now);
    let unchanged = now.size == held.stamp.size && now.modified == held.stamp.modified;
    if !(unchanged || module.build_id_length > 0 && is_same_module(&held.file, now, module)) {
        return Err("was overwritten in place".to_owned());
    }
    if now.size > IMAGE_SIZE_MAX {
        return Err(format!("is larger than {} GiB", IMAGE_SIZE_MAX >> 30));
    }
    let mut file = &held.file;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(IMAGE_SIZE_MAX).read_to_end(&mut bytes))
        .map_err(|error| format!("can't be read any more ({error})"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(path: &Path, with_build_id: bool) -> ModuleEntry {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        let mut module =
            ModuleEntry { device: metadata.dev(), inode: metadata.ino(), ..ModuleEntry::default() };
        let id = build_id(&file).unwrap();
        if with_build_id && let Some(id) = id {
            module.build_id[..id.len()].copy_from_slice(&id);
            module.build_id_length = id.len() as u32;
        }
        module
    }

    /// A file that was deleted or replaced is kept; one that was touched or is another one isn't mistaken for it.
    #[test]
    fn files_keep_their_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("module.so");
        let copy = || std::fs::copy("/proc/self/exe", &path).unwrap();
        for with_build_id in [false, true] {
            copy();
            let module = entry_of(&path, with_build_id);
            if with_build_id && module.build_id_length == 0 {
                continue;
            }
            let held = hold(&path, &module, 0).unwrap();
            assert!(is_still_there(&path, &held, &module));
            std::fs::remove_file(&path).unwrap();
            assert!(!is_still_there(&path, &held, &module));
            assert_eq!(read_image(&held, &module).unwrap(), std::fs::read("/proc/self/exe").unwrap());

            std::fs::write(&path, "another file").unwrap();
            assert!(!is_still_there(&path, &held, &module));
            assert!(hold(&path, &module, 0).is_none());

            std::fs::remove_file(&path).unwrap();
            copy();
            assert_eq!(is_still_there(&path, &held, &module), with_build_id, "the same bytes in a new file");
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// It may be gone, and its process too, before anybody looks.
    #[test]
    fn a_program_that_removes_itself_keeps_its_file() {
        const NOBODY: u32 = u32::MAX;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let name = path.as_os_str().as_bytes().to_vec();
        for with_build_id in [false, true] {
            let module = entry_of(Path::new("/proc/self/exe"), with_build_id);
            let module = if module.build_id_length > 0 { module } else { entry_of(&path, false) };
            let mut files = Files::default();
            files.open_started(&path);
            std::fs::rename(&path, folder.path().join("away")).unwrap();
            assert!(Files::default().hold(name.clone(), &module, NOBODY).is_none());
            let held = files.hold(name.clone(), &module, NOBODY).unwrap();
            assert_eq!(read_image(&held, &module).unwrap(), std::fs::read("/proc/self/exe").unwrap());
            // Another module isn't taken for it.
            let other = ModuleEntry { inode: 1, ..ModuleEntry::default() };
            assert!(files.hold(name.clone(), &other, NOBODY).is_none());
            std::fs::rename(folder.path().join("away"), &path).unwrap();
        }
    }

    #[test]
    fn only_elf_files_are_held() {
        let module = ModuleEntry::default();
        for path in ["/dev/zero", "/proc/self/mem", "/etc/passwd", "/", "/nowhere"] {
            assert!(open_if_same(Path::new(path), &module).is_none(), "{path}");
        }
    }
}
