//! Third-party sources, brought by cargo into the target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::place::successful;

/// The folder of this crate's drivers and its list of third-party sources.
pub(super) fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads")
}

/// The folder that cargo builds into.
///
/// # Panics
/// Where the test isn't in such a folder.
#[must_use]
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.ancestors().nth(3).expect("TARGET/PROFILE/deps/test").to_owned()
}

/// Locks the files made in the target folder until it is dropped: several test binaries run at the
/// same time.
///
/// # Panics
/// When the file of the lock can't be made.
#[must_use]
pub(crate) fn lock(name: &str) -> File {
    let folder = target_folder().join("workloads/locks");
    fs::create_dir_all(&folder).expect("a folder in the target folder");
    let file = File::create(folder.join(name)).expect("a file in the target folder");
    file.lock().expect("a lock in the target folder");
    file
}

/// The folder of the sources, one folder per crate. The first call may need the network.
///
/// # Panics
/// Where cargo can't bring them.
pub(super) fn vendored() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let list = fs::read_to_string(own_folder().join("fetch/Cargo.toml")).expect("the list of sources");
        let around = target_folder().join("workloads");
        let (sources, fetch) = (around.join("sources"), around.join("fetch"));
        let _lock = lock("sources");
        let complete = sources.join(".complete");
        if fs::read_to_string(&complete).is_ok_and(|known| known == list) {
            return sources;
        }
        let _ = fs::remove_dir_all(&sources);
        fs::create_dir_all(&fetch).expect("a folder in the target folder");
        fs::write(fetch.join("Cargo.toml"), &list).expect("a file in the target folder");
        fs::write(fetch.join("empty.rs"), "").expect("a file in the target folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["vendor", "--quiet"]).arg(&sources).current_dir(&fetch);
        successful(&mut cargo);
        fs::write(complete, list).expect("a file in the target folder");
        sources
    })
}

/// The files that a pattern stands for: at most one `*`, in the file's name.
pub(super) fn matching(pattern: &str, except: &[&str]) -> Vec<PathBuf> {
    let path = vendored().join(pattern);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a pattern with a file name");
    let Some((prefix, suffix)) = name.split_once('*') else { return vec![path] };
    let folder = path.parent().expect("a pattern with a folder");
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(prefix)
                && name.ends_with(suffix)
                && !except.iter().any(|part| name.contains(part))
        })
        .collect();
    found.sort();
    found
}
