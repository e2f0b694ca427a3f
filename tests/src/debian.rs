//! Programs of Debian's packages, used without installing them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::workloads::{lock, target_folder};

/// The files of packages, unpacked into a folder in the target folder. `None` where they can't be
/// had, which is said.
///
/// # Panics
/// When nothing can be written into the target folder.
#[must_use]
pub fn unpacked(packages: &[&str]) -> Option<PathBuf> {
    let list = packages.join(" ");
    let folder = target_folder().join("debian").join(packages.join("+"));
    let _lock = lock("debian");
    if folder.join(".complete").exists() {
        return Some(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder in the target folder");
    let script = "apt-get download -qq $0 && for one in ./*.deb; do dpkg -x $one . || exit 1; done";
    let output = Command::new("sh").args(["-c", script, &list]).current_dir(&folder).output();
    let output = output.expect("sh starts");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        println!("skipped: apt-get doesn't bring {list}: {said}");
        return None;
    }
    fs::write(folder.join(".complete"), list).expect("a file in the target folder");
    Some(folder)
}
