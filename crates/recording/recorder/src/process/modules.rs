//! The present and former modules of a program.
//!
//! Their files are opened when they are loaded, so that a file that is deleted or replaced later
//! can still be symbolized. Only files that are no longer at their paths are copied into the trace.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use everycall_format::arena::{ModuleEntry, module_state};
use everycall_tracefile::{IMAGES_SIZE_MAX, Images};

use crate::memory::arena::Arena;
use crate::process::module_files::{Files, Identity, ModuleFile, identity};

/// A module that the program has or had.
#[derive(Debug)]
struct ProgramModule {
    entry: ModuleEntry,
    path: Option<Vec<u8>>,
    file: Option<Arc<ModuleFile>>,
}

impl ProgramModule {
    fn parts(&self) -> (&ModuleEntry, &[u8], Option<&File>) {
        (&self.entry, self.path.as_deref().unwrap_or_default(), self.file.as_ref().map(|file| file.file()))
    }
}

/// All modules that were ever seen: an entry of the arena's table may be reused after its module
/// was unloaded.
#[derive(Debug, Default)]
pub struct Modules {
    known: Vec<ProgramModule>,
    /// The module of each table entry.
    current: Vec<usize>,
    /// Bytes of all their paths.
    path_bytes: usize,
}

/// Largest number of modules that are stored per process; readers accept no more.
const KNOWN_MAX: usize = 1 << 16;
/// Largest number of path bytes that are stored per process: an arena has room for a megabyte at a
/// time, which a program may reuse.
const PATH_BYTES_MAX: usize = 16 << 20;

impl Modules {
    /// Opens the files of modules that are new since the last look.
    pub fn look(&mut self, arena: &Arena, files: &mut Files) {
        let pid = arena.header().target_pid;
        for index in 0..arena.module_count() {
            let place = index as usize;
            let module = arena.module(index);
            if module.state != module_state::COMPLETE {
                if place < self.current.len() {
                    // The entry is being reused; its process will ring the doorbell.
                    continue;
                }
                // It will be there when the doorbell rings next.
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
            let file = path.clone().and_then(|path| files.open(path, &module, pid));
            let number = self.known.len();
            self.path_bytes += path.as_ref().map_or(0, Vec::len);
            self.known.push(ProgramModule { entry: module, path, file });
            match self.current.get_mut(place) {
                Some(current) => *current = number,
                None => self.current.push(number),
            }
        }
    }

    /// All modules with their paths for a file: present modules come first, at the positions of
    /// their entries.
    pub fn table(&self, arena: &Arena) -> Vec<(ModuleEntry, Vec<u8>)> {
        // Entries that share their paths were overwritten: their paths are copied within a memory limit.
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

    /// Modules whose entries were reused.
    fn former(&self) -> impl Iterator<Item = &ProgramModule> {
        let current: HashSet<usize> = self.current.iter().copied().collect();
        self.known
            .iter()
            .enumerate()
            .filter(move |(number, _)| !current.contains(number))
            .map(|(_, known)| known)
    }

    /// The present modules at the positions of their entries: each with its path and, if it could
    /// be opened, its file.
    pub fn present(&self) -> impl Iterator<Item = (&ModuleEntry, &[u8], Option<&File>)> {
        let known = self.current.iter().filter_map(|number| self.known.get(*number));
        known.map(ProgramModule::parts)
    }

    /// Modules from the `first`-th on that was ever seen, in the same form.
    pub fn since(&self, first: usize) -> impl Iterator<Item = (&ModuleEntry, &[u8], Option<&File>)> {
        self.known.iter().skip(first).map(ProgramModule::parts)
    }

    /// How many modules were ever seen.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Calls `keep` for each file that is no longer at its path, with a function that takes it for
    /// the trace: it returns the payload for its module's position in [`Modules::table`], or a
    /// sentence that says why there is none.
    ///
    /// # Errors
    ///
    /// The first error of `keep`.
    pub fn moved(
        &mut self,
        arena: &Arena,
        mut keep: impl FnMut(Identity, &dyn Fn(&mut Images) -> Result<[Vec<u8>; 2], String>) -> io::Result<()>,
    ) -> io::Result<()> {
        let present = self.current.iter().filter_map(|number| self.known.get(*number));
        let former = (arena.module_count()..).zip(self.former());
        for (index, known) in (0..).zip(present).chain(former) {
            let (Some(file), Some(path_bytes)) = (&known.file, &known.path) else { continue };
            let module = &known.entry;
            let path = Path::new(OsStr::from_bytes(path_bytes));
            if file.is_still_at(path, module) {
                continue;
            }
            let take = |images: &mut Images| {
                let taken = file.image(module).and_then(|file| match images.take(index, file) {
                    Ok(Some(image)) => Ok(image),
                    Ok(None) => Err(format!(
                        "is in the trace as another module's file, or exceeds {} GiB with others",
                        IMAGES_SIZE_MAX >> 30
                    )),
                    Err(error) => Err(format!("can't be read any more ({error})")),
                });
                taken.map_err(|reason| {
                    format!(
                        "{} was changed while the program ran, and {reason}; its functions will be shown as module+offset",
                        path.display()
                    )
                })
            };
            keep(identity(path_bytes.clone(), module), &take)?;
        }
        Ok(())
    }
}
