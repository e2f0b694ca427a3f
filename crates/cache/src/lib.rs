//! Where the folders lie that everycall keeps files in, and whether one of them is the user's alone.
//!
//! What lies there becomes a part of programs, or is executed when they are compiled: in a folder that others may write to, they
//! could put something of theirs in its place.

// Messages go through `everycall_messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user's own cache: `$XDG_CACHE_HOME/everycall`, else `~/.cache/everycall`. `None` where the environment names no place. It need
/// not be there yet.
#[must_use]
pub fn user_folder() -> Option<PathBuf> {
    user_folder_in(|name| std::env::var_os(name))
}

/// Relative paths are no places: they would be others in each folder that a build goes through.
fn user_folder_in(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    base.map(|base| base.join("everycall"))
}

/// The folder for users without a home that can be written, as services have: `/var/tmp/everycall-UID`. Anybody may make it; see
/// [`is_private`].
#[must_use]
pub fn shared_folder() -> PathBuf {
    PathBuf::from(format!("/var/tmp/everycall-{}", rustix::process::getuid().as_raw()))
}

/// Whether `path` is a folder that belongs to the user and that nobody else may write to. A symbolic link is none.
///
/// # Errors
///
/// It isn't there, or can't be looked at.
pub fn is_private(path: &Path) -> io::Result<bool> {
    let data = fs::symlink_metadata(path)?;
    Ok(data.is_dir() && data.uid() == rustix::process::getuid().as_raw() && data.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn the_environment_names_the_users_folder() {
        let folder = |cache: Option<&str>, home: Option<&str>| {
            user_folder_in(|name| if name == "HOME" { home } else { cache }.map(OsString::from))
        };
        assert_eq!(folder(Some("/c"), Some("/h")), Some(PathBuf::from("/c/everycall")));
        for no_place in [None, Some(""), Some("c"), Some("./c")] {
            assert_eq!(folder(no_place, Some("/h")), Some(PathBuf::from("/h/.cache/everycall")));
            assert_eq!(folder(no_place, no_place), None);
        }
    }

    #[test]
    fn private_is_what_nobody_else_writes_to() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("folder");
        assert!(is_private(&folder).is_err());
        fs::create_dir(&folder).unwrap();
        for (mode, private) in [(0o700, true), (0o755, true), (0o770, false), (0o702, false), (0o777, false)]
        {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(&folder).unwrap(), private, "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let (link, file) = (root.path().join("link"), root.path().join("file"));
        symlink(&folder, &link).unwrap();
        fs::write(&file, "").unwrap();
        assert!(!is_private(&link).unwrap() && !is_private(&file).unwrap());
        // Only root can give it away, and to others the system's root is another user's.
        let strange = if chown(&folder, Some(65534), None).is_ok() { &folder } else { Path::new("/") };
        assert!(!is_private(strange).unwrap());
    }
}
