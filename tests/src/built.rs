//! Programs of `tests/programs` are built once for all tests: many tests run the same ones, and
//! compilers take half of the time that all tests take.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use crate::place::{Mode, everycall, programs, successful};

/// Beginnings of options that name no file.
const NAME_NO_FILE: [&str; 11] =
    ["-O", "-g", "-D", "-f", "-l", "-m", "-std=", "-pthread", "-shared", "-static", "-no-pie"];

/// Builds a program of which all sources are in `tests/programs`, unless some test did it before,
/// and copies it to `output`. None if other files decide what it will be.
pub fn shared(mode: Mode, arguments: &[&str], output: &Path) -> Option<()> {
    let is_source = |argument: &str| !argument.starts_with('-') && programs().join(argument).exists();
    let names_no_file = |argument: &str| NAME_NO_FILE.iter().any(|start| argument.starts_with(start));
    if !arguments.iter().all(|argument| is_source(argument) || names_no_file(argument)) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    (mode.name, mode.cc, arguments).hash(&mut hasher);
    let folder = folder()?.join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).ok()?;
    let built = folder.join("program");
    // Tests are processes of their own: the first one builds, the others wait.
    let lock = File::create(folder.join("lock")).ok()?;
    lock.lock().ok()?;
    if !built.exists() {
        let unfinished = folder.join("unfinished");
        let mut command = Command::new(everycall());
        command.current_dir(&folder);
        successful(mode.compiler(&mut command, &folder, arguments, &unfinished));
        fs::rename(unfinished, &built).ok()?;
    }
    fs::copy(built, output).ok()?;
    Some(())
}

/// The folder of what this command has built of these sources. Others' folders are removed.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            state_of(everycall())?.hash(&mut hasher);
            let mut sources: Vec<PathBuf> =
                fs::read_dir(programs()).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
            sources.sort();
            for source in sources {
                (state_of(&source)?, source).hash(&mut hasher);
            }
            let test = std::env::current_exe().ok()?;
            // target/PROFILE/deps/test
            let all = test.ancestors().nth(2)?.join("traced-programs");
            let own = all.join(format!("{:016x}", hasher.finish()));
            if !own.exists() {
                let _ = fs::remove_dir_all(&all);
                fs::create_dir_all(&own).ok()?;
            }
            Some(own)
        })
        .as_deref()
}

/// Facts that change with a file's content.
fn state_of(path: &Path) -> Option<(u64, u128)> {
    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((metadata.len(), changed.as_nanos()))
}
