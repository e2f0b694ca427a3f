//! A new file that has no name until it is complete: if the program ends meanwhile, nothing is
//! left.

use crate::features::snapshot::Sink;
use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::folder::Folder;
use crate::sys::name::Name;

/// Writes a file into `folder`, under the first unused name; `next_name` returns one candidate
/// after the other. Returns the name. `None` if that fails; then nothing is left.
pub(crate) fn write_new(
    folder: &Folder,
    mut next_name: impl FnMut() -> Option<Name>,
    write: impl FnOnce(Sink) -> Result<(), i32>,
) -> Option<Name> {
    let folder = File::open_folder_or_link(folder.path()).ok()?;
    let mut name_it = |give: &mut dyn FnMut(&Name) -> Result<(), isize>| {
        loop {
            let name = next_name()?;
            match give(&name) {
                Ok(()) => return Some(name),
                Err(errno::EEXIST) => {}
                Err(_) => return None,
            }
        }
    };
    if let Ok(file) = folder.create_unnamed_in() {
        write(Sink::File(file.descriptor())).ok()?;
        return name_it(&mut |name| file.give_name(&folder, name));
    }
    // A file system without unnamed files: if the program ends meanwhile, an incomplete file stays.
    let mut made: Option<File> = None;
    let name = name_it(&mut |name| {
        made = Some(folder.create_in(name.text())?);
        Ok(())
    })?;
    if write(Sink::File(made?.descriptor())).is_err() {
        folder.remove_in(name.text());
        return None;
    }
    Some(name)
}
