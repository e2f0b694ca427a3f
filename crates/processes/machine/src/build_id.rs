//! Build ids of ELF files.

use std::fs::{File, Metadata};
use std::path::Path;

use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

/// Largest number of note bytes that are searched for a build id; linkers write a few dozen.
const NOTES_MAX: u64 = 1 << 20;

/// The build id of the ELF file at `path`; `None` if it has none or isn't an ELF file.
#[must_use]
pub fn build_id_of(path: &Path) -> Option<Vec<u8>> {
    std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    build_id(&File::open(path).ok()?).ok()?
}

/// The build id of an ELF file; an error if it isn't one. Reads only the notes that are loaded into
/// memory, because the program waits and symbol tables are large.
///
/// # Errors
///
/// Those of reading the file, and what isn't an ELF file.
pub fn build_id(file: &File) -> Result<Option<Vec<u8>>, object::Error> {
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
