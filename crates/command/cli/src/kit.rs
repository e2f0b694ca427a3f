//! The runtime and what else the command has inside of it, as files.

use std::io;
use std::path::PathBuf;

/// Unpacks them; the folder.
pub fn kit() -> io::Result<PathBuf> {
    everycall_kit::unpack()
}
