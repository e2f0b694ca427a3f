//! Files that the environment names: sets of functions, read at the start.

use crate::sys::block::Block;
use crate::sys::disk;
use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::folder::FOLDER_MAX;
use crate::sys::system;
use everycall_format::site_set::SIZE_MAX;

/// Why there is no set.
pub(crate) enum Trouble {
    Path,
    NotThere,
    NotAllowed,
    NoFile,
    NotOwn,
    NoSet,
    OtherVersion,
    Damaged,
    NoMemory,
    NoTriggers,
    NoSelection,
}

impl Trouble {
    fn text(&self) -> &'static [u8] {
        match self {
            Trouble::Path => b"is no path of 1 to 1023 bytes; name a file that everycall resolve wrote",
            Trouble::NotThere => b"isn't there; name a file that everycall resolve wrote, by its whole path",
            Trouble::NotAllowed => b"can't be read by this program's user; make it that user's own with chown",
            Trouble::NoFile => b"is no regular file; name a file that everycall resolve wrote",
            Trouble::NotOwn => {
                b"may be written by others than this program's user and root; chown it to one of these, and chmod go-w"
            }
            Trouble::NoSet => b"is none of the files that everycall resolve writes",
            Trouble::OtherVersion => {
                b"was written by another version of everycall than the program was built with; write it again with that one's everycall resolve"
            }
            Trouble::Damaged => b"is damaged; write it again with everycall resolve",
            Trouble::NoMemory => b"has no room in memory",
            Trouble::NoTriggers => {
                b"is a selection of functions, not of triggers; name it in EVERYCALL_ONLY, or write one with everycall resolve --trigger"
            }
            Trouble::NoSelection => {
                b"is no selection that this version wrote; write one with everycall resolve --only PATTERN -o FILE PROGRAM"
            }
        }
    }
}

/// Says why the file that a variable names isn't used, and what happens instead.
pub(crate) fn refuse(variable: &str, path: &[u8], trouble: &Trouble, instead: &[u8]) {
    let shown = path.get(..path.len().min(200)).unwrap_or(path);
    system::warn(&[b"everycall: ", variable.as_bytes(), b"=", shown, b" ", trouble.text(), b". ", instead]);
}

/// A copy of the file at `path`, behind `before` free bytes. Not the mapped file: that may be
/// truncated, and the program would then get SIGBUS.
pub(crate) fn read(path: &[u8], before: usize) -> Result<Block, Trouble> {
    let mut name = [0; FOLDER_MAX + 1];
    if path.is_empty() || path.len() > FOLDER_MAX {
        return Err(Trouble::Path);
    }
    name.get_mut(..path.len()).ok_or(Trouble::Path)?.copy_from_slice(path);
    let file = File::open_to_read(name.get(..=path.len()).unwrap_or(&[])).map_err(|error| match error {
        errno::ENOENT | errno::ENOTDIR | errno::ELOOP => Trouble::NotThere,
        _ => Trouble::NotAllowed,
    })?;
    let facts = disk::facts_of(&file).filter(|facts| facts.is_regular).ok_or(Trouble::NoFile)?;
    if !facts.is_trusted {
        return Err(Trouble::NotOwn);
    }
    if facts.size == 0 || facts.size > SIZE_MAX {
        return Err(Trouble::NoSet);
    }
    let mut block = Block::new(before as u64 + facts.size).ok_or(Trouble::NoMemory)?;
    let mut length = before;
    while let Some(free) = block.bytes_mut().get_mut(length..).filter(|free| !free.is_empty()) {
        match file.read(free) {
            0 => break,
            count => length += count,
        }
    }
    Ok(block)
}
