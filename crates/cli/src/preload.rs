//! Libraries of the kit that are loaded into the program.

use std::path::PathBuf;

use crate::exit_code;
use crate::failure::Failure;

/// A library of the kit that is preloaded.
pub fn kit_library(name: &str) -> Result<PathBuf, Failure> {
    let kit = everycall_kit::unpack().map_err(|error| {
        Failure::new(
            exit_code::NOT_RECORDED,
            format!("can't unpack the runtime that is loaded into the program: {error}"),
        )
    })?;
    let library = kit.join(name);
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(Failure::new(
            exit_code::NOT_RECORDED,
            format!(
                "{} can't be preloaded, because the dynamic linker treats spaces and colons as separators; set \
                XDG_CACHE_HOME to a \
                 folder without them",
                library.display()
            ),
        ));
    }
    Ok(library)
}
