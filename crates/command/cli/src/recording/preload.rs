//! Libraries of the kit that are loaded into the program.

use std::path::PathBuf;

use everycall_kit::WAITS_LIBRARY;

use crate::arguments::RecordArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::program::{self, Objects};

/// The objects with traced functions that a recorded program has from its start, with the library
/// that `--waits` loads; `None` if the program can't be read, or only starts other programs.
pub fn traced_objects(arguments: &RecordArguments) -> Result<Option<Objects>, Failure> {
    let Some(mut objects) = program::traced_objects(&arguments.command[0]) else { return Ok(None) };
    if arguments.waits {
        objects.traced.push(kit_library(WAITS_LIBRARY)?);
    }
    Ok(Some(objects))
}

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
