//! The names of tokio's tasks as an object for the linker, whose only section has them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use everycall_format::arch::ELF_MACHINE;
use everycall_format::tasks::SECTION;

use super::tokio;

/// The variable with the object for a link with tokio.
pub(super) const TASKS_VARIABLE: &str = "EVERYCALL_RUST_TASKS";

/// Writes the object for a link into a folder: with the names in the crate's own file, and in those
/// beside the libraries that it may use. Which of them it does use isn't known: with link-time
/// optimisation, rustc itself reads them.
///
/// # Errors
/// Those of the file system.
pub(super) fn write<'f>(
    own: Option<&Path>,
    folders: impl Iterator<Item = &'f Path>,
    to: &Path,
) -> io::Result<PathBuf> {
    let entries = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == tokio::EXTENSION));
    files.extend(own.map(Path::to_path_buf));
    files.sort_unstable();
    files.dedup();
    // Another build may remove one at any time.
    let text: String = files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let object = to.join("tasks.o");
    fs::write(&object, object_of(text.as_bytes()))?;
    Ok(object)
}

/// A relocatable object with this text in its section, which linkers keep.
fn object_of(text: &[u8]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const ENTRY: u64 = 64;
    const ALLOCATED_AND_RETAINED: u64 = 1 << 21 | 2;
    let names = [b"\0", SECTION.as_bytes(), b"\0.shstrtab\0.note.GNU-stack\0"].concat();
    let name_of_names = 1 + SECTION.len() as u32 + 1;
    let (at_names, at_entries) = {
        let names_end = HEADER + text.len() as u64 + names.len() as u64;
        (HEADER + text.len() as u64, names_end.next_multiple_of(8))
    };
    let mut out = Vec::new();
    // 64 bits, little endian, version 1, with extensions of GNU's.
    out.extend(b"\x7fELF\x02\x01\x01\x03\0\0\0\0\0\0\0\0");
    let relocatable = 1_u16;
    out.extend([relocatable, ELF_MACHINE].iter().flat_map(|half| half.to_le_bytes()));
    out.extend(1_u32.to_le_bytes());
    out.extend([0, 0, at_entries].iter().flat_map(|word| word.to_le_bytes()));
    out.extend(0_u32.to_le_bytes());
    let (entries, index_of_names) = (4_u16, 2_u16);
    let halves = [HEADER as u16, 0, 0, ENTRY as u16, entries, index_of_names];
    out.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
    out.extend(text);
    out.extend(&names);
    out.resize(at_entries as usize, 0);
    let mut entry = |name: u32, kind: u32, flags: u64, at: u64, size: u64| {
        out.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
        out.extend([flags, 0, at, size].iter().flat_map(|word| word.to_le_bytes()));
        out.extend([0_u32; 2].iter().flat_map(|word| word.to_le_bytes()));
        out.extend([1_u64, 0].iter().flat_map(|word| word.to_le_bytes()));
    };
    let (data, strings) = (1, 3);
    entry(0, 0, 0, 0, 0);
    entry(1, data, ALLOCATED_AND_RETAINED, HEADER, text.len() as u64);
    entry(name_of_names, strings, 0, at_names, names.len() as u64);
    // The stack need not be executable.
    entry(name_of_names + ".shstrtab".len() as u32 + 1, data, 0, at_names, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection};

    #[test]
    fn the_object_has_the_text() {
        let bytes = object_of(b"a\tb\n");
        let object = object::File::parse(&bytes[..]).unwrap();
        let section = object.section_by_name(SECTION).unwrap();
        assert_eq!(section.data().unwrap(), b"a\tb\n");
        assert!(object.section_by_name(".note.GNU-stack").is_some() && object.sections().count() == 3);
    }

    #[test]
    fn names_are_those_of_the_crate_and_of_its_libraries() {
        let folder = std::env::temp_dir().join(format!("everycall-tasks-{}", std::process::id()));
        let libraries = folder.join("deps");
        fs::create_dir_all(&libraries).unwrap();
        let own = folder.join("libapp-1.tokio");
        let written = || {
            let object = write(Some(&own), [&*libraries].into_iter(), &folder).unwrap();
            let bytes = fs::read(object).unwrap();
            let object = object::File::parse(&bytes[..]).unwrap();
            object.section_by_name(SECTION).unwrap().data().unwrap().to_vec()
        };
        assert_eq!(written(), b"");
        for (name, text) in [("libc-3.tokio", "c\td\n"), ("libc-3.rlib", "not it")] {
            fs::write(libraries.join(name), text).unwrap();
        }
        fs::write(&own, "a\tb\n").unwrap();
        assert_eq!(written(), b"c\td\na\tb\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
