//! Where this program is.

use std::path::PathBuf;

use crate::exit_code;
use crate::failure::Failure;

/// The path of this program.
pub fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(exit_code::FAILED, format!("can't find the path of this program: {error}"))
    })
}
