//! File systems of a test's own.

use crate::Place;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts one at `name` in the test's folder, for its owner alone. `None`, with a printed
    /// reason, if that isn't allowed here.
    pub fn new(place: &Place, name: &str, arguments: &[&str]) -> Option<Mount> {
        let path = place.file(name);
        fs::create_dir(&path).unwrap();
        let output = Command::new("mount").args(arguments).arg(&path).output().ok()?;
        if !output.status.success() {
            eprintln!("not run on {name}: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Some(Mount(path))
    }

    /// One in memory, of so many bytes.
    pub fn tmpfs(place: &Place, name: &str, size: &str) -> Option<Mount> {
        Mount::new(place, name, &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
