//! Weak references of objects: they take nothing out of an archive, so a wrapper that lies in one
//! must be asked for. Without it, the program would take the function for missing.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache, ReadRef};

/// Which of these functions objects or members of archives refer to weakly. Files of other formats
/// have none.
pub(crate) fn references<'f>(files: impl Iterator<Item = PathBuf>, functions: &[&'f str]) -> Vec<&'f str> {
    let mut found = Vec::new();
    for file in files {
        in_file(&file, &mut |name| {
            let is_new = |function: &&&'f str| function.as_bytes() == name && !found.contains(*function);
            found.extend(functions.iter().find(is_new));
        });
    }
    found
}

fn in_file(path: &Path, found: &mut dyn FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    let cache = ReadCache::new(file);
    match ArchiveFile::parse(&cache) {
        Ok(archive) if archive.is_thin() => {
            let folder = path.parent().unwrap_or(Path::new(""));
            for member in archive.members().flatten() {
                let Ok(name) = std::str::from_utf8(member.name()) else { continue };
                if let Ok(file) = File::open(folder.join(name)) {
                    in_object(&ReadCache::new(file), found);
                }
            }
        }
        Ok(archive) => {
            for member in archive.members().flatten() {
                let (offset, size) = member.file_range();
                in_object(cache.range(offset, size), found);
            }
        }
        Err(_) => in_object(&cache, found),
    }
}

fn in_object<'d>(data: impl ReadRef<'d>, found: &mut dyn FnMut(&[u8])) {
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(data) else { return };
    for symbol in elf.symbols().filter(|symbol| symbol.is_undefined() && symbol.is_weak()) {
        if let Ok(name) = symbol.name_bytes() {
            found(name);
        }
    }
}
