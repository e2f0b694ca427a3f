//! The files of modules, kept open.
//!
//! Paths come from the traced program. Only regular ELF files are opened, and only kept if they
//! have the build id that the module has in memory, or the inode that was mapped.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Weak};

use everycall_format::arena::{ModuleEntry, module_flags};
use everycall_machine::build_id;

/// Distinguishes versions of a file.
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

/// The file of one module, kept open.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    file: File,
    stamp: Stamp,
}

impl ModuleFile {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether `path` still leads to the file of `module`.
    pub(crate) fn is_still_at(&self, path: &Path, module: &ModuleEntry) -> bool {
        match std::fs::metadata(path) {
            Ok(now) if Stamp::of(&now) == self.stamp => true,
            // Rebuilt with identical bytes, or touched.
            Ok(now) if now.is_file() && module.build_id_length > 0 => open_if_same(path, module).is_some(),
            _ => false,
        }
    }

    /// The file if it still has the module's bytes, or the reason why it hasn't, as the second half
    /// of a sentence.
    pub(crate) fn image(&self, module: &ModuleEntry) -> Result<&File, String> {
        let now = self.file.metadata().map_err(|error| format!("can't be opened any more ({error})"))?;
        let now = Stamp::of(&now);
        let unchanged = now.size == self.stamp.size && now.modified == self.stamp.modified;
        if !(unchanged || module.build_id_length > 0 && is_same_module(&self.file, now, module)) {
            return Err("was overwritten in place".to_owned());
        }
        Ok(&self.file)
    }
}

/// Open files of all processes: processes with the same program share a descriptor.
#[derive(Debug, Default)]
pub struct Files {
    file: HashMap<Identity, Weak<ModuleFile>>,
    /// The program that was started, opened before it could remove itself.
    started: Option<Arc<ModuleFile>>,
}

/// Path, build id, device and inode of a module.
pub type Identity = (Vec<u8>, Vec<u8>, u64, u64);

/// From this number of files on, unused ones are closed.
const FILES_TIDIED: usize = 4096;

impl Files {
    /// Opens the program at `path`, which is about to be started.
    pub fn open_started(&mut self, path: &Path) {
        self.started = open_regular(path).map(Arc::new);
    }

    pub(crate) fn open(&mut self, path: Vec<u8>, module: &ModuleEntry, pid: u32) -> Option<Arc<ModuleFile>> {
        let identity = identity(path, module);
        if let Some(file) = self.file.get(&identity).and_then(Weak::upgrade) {
            return Some(file);
        }
        let found = find(Path::new(OsStr::from_bytes(&identity.0)), module, pid).map(Arc::new);
        let is_it = |file: &&Arc<ModuleFile>| is_same_module(&file.file, file.stamp, module);
        let file = found.or_else(|| self.started.as_ref().filter(is_it).cloned())?;
        if self.file.len() >= FILES_TIDIED {
            self.file.retain(|_, file| file.strong_count() > 0);
        }
        self.file.insert(identity, Arc::downgrade(&file));
        Some(file)
    }
}

/// Identifies a module.
pub(crate) fn identity(path: Vec<u8>, module: &ModuleEntry) -> Identity {
    let build_id = module.build_id.get(..module.build_id_length as usize).unwrap_or_default();
    (path, build_id.to_vec(), module.device, module.inode)
}

/// Opens the file that was mapped, even if it was moved.
fn find(path: &Path, module: &ModuleEntry, pid: u32) -> Option<ModuleFile> {
    let in_its_root =
        path.strip_prefix("/").ok().map(|path| Path::new(&format!("/proc/{pid}/root")).join(path));
    let of_the_process = (module.flags & module_flags::EXECUTABLE != 0)
        .then(|| Path::new(&format!("/proc/{pid}/exe")).to_owned());
    let candidates = [Some(path.to_owned()), in_its_root, of_the_process];
    candidates.into_iter().flatten().find_map(|path| open_if_same(&path, module))
}

fn open_if_same(path: &Path, module: &ModuleEntry) -> Option<ModuleFile> {
    open_regular(path).filter(|file| is_same_module(&file.file, file.stamp, module))
}

fn open_regular(path: &Path) -> Option<ModuleFile> {
    // Opening a device or a FIFO may have effects; such a path isn't a module.
    std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    let stamp = Stamp::of(&metadata);
    Some(ModuleFile { file, stamp })
}

/// Whether a file is the one that was mapped: by its build id if the module has one.
fn is_same_module(file: &File, stamp: Stamp, module: &ModuleEntry) -> bool {
    let expected = module.build_id.get(..module.build_id_length as usize).unwrap_or_default();
    match build_id(file) {
        Ok(Some(found)) if !expected.is_empty() => found == expected,
        Ok(_) => (stamp.device, stamp.inode) == (module.device, module.inode) && module.inode != 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

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

    fn bytes(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
        bytes
    }

    /// A deleted or replaced file is kept; a touched or different one isn't confused with it.
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
            let file = find(&path, &module, 0).unwrap();
            assert!(file.is_still_at(&path, &module));
            std::fs::remove_file(&path).unwrap();
            assert!(!file.is_still_at(&path, &module));
            assert_eq!(bytes(file.image(&module).unwrap()), std::fs::read("/proc/self/exe").unwrap());

            std::fs::write(&path, "another file").unwrap();
            assert!(!file.is_still_at(&path, &module));
            assert!(find(&path, &module, 0).is_none());

            std::fs::remove_file(&path).unwrap();
            copy();
            assert_eq!(file.is_still_at(&path, &module), with_build_id, "the same bytes in a new file");
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// The file and its process may be gone before the recorder reads them.
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
            assert!(Files::default().open(name.clone(), &module, NOBODY).is_none());
            let file = files.open(name.clone(), &module, NOBODY).unwrap();
            assert_eq!(bytes(file.image(&module).unwrap()), std::fs::read("/proc/self/exe").unwrap());
            // Another module isn't confused with it.
            let other = ModuleEntry { inode: 1, ..ModuleEntry::default() };
            assert!(files.open(name.clone(), &other, NOBODY).is_none());
            std::fs::rename(folder.path().join("away"), &path).unwrap();
        }
    }

    #[test]
    fn only_elf_files_are_opened() {
        let module = ModuleEntry::default();
        for path in ["/dev/zero", "/proc/self/mem", "/etc/passwd", "/", "/nowhere"] {
            assert!(open_if_same(Path::new(path), &module).is_none(), "{path}");
        }
    }
}
