//! The folder of small files that compilers are pointed to: `as`, a link to this program, and gcc specs.
//!
//! ```text
//! FOLDER/as                  makes sites
//! FOLDER/exits/as            completes the unwind information at exits only
//! FOLDER/traces/as           makes TRACE instructions of hook calls
//! FOLDER/sleds/as            makes TRACE instructions of sleds
//! FOLDER/marks/as            makes sites of marked entries
//! FOLDER/hook-calls.specs
//! FOLDER/marks.specs
//! FOLDER/everycall-rustc   what cargo runs instead of rustc
//! FOLDER/HASH.FEATURE    whether a compiler has a feature; made as needed
//! FOLDER/linkers/NAME      what rustc runs instead of the linker of this name; made as needed
//! FOLDER/compilers/NAME    what build scripts run instead of gcc and g++; made as needed
//! ```
//!
//! Its path is a part of compiler command lines, so it is the same for every call of one installation and
//! differs between versions: compiler caches hash it. It is made once, complete or not at all.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::arch::marked;
use crate::mode::Step;

/// Name of the specs file that makes gcc emit hook calls.
pub(crate) const SPECS_FILE: &str = "hook-calls.specs";

/// gcc reads it as: append these options to those of every code-generating pass. The space at the end keeps them
/// apart from what follows.
const HOOK_CALLS_SPECS: &str = "*cc1_options:\n+ -p -mfentry -minstrument-return=call \n\n";

/// Name of the specs file that makes gcc mark entries.
const MARKS_FILE: &str = "marks.specs";

/// Its text.
fn marks_specs() -> String {
    format!("*cc1_options:\n+ {} \n\n", marked::OPTIONS)
}

/// The folders below with an `as` of their own, and its step.
const STEP_FOLDERS: [(&str, Step); 4] =
    [("exits", Step::Exits), ("traces", Step::Traces), ("sleds", Step::Sleds), ("marks", Step::Marks)];

/// Where the `as` of a step lies in the toolbox, with a slash at its end as gcc's `-B` wants it.
pub(crate) fn folder_of(step: Step) -> &'static str {
    match step {
        Step::Sites => "",
        Step::Exits => "exits/",
        Step::Traces => "traces/",
        Step::Sleds => "sleds/",
        Step::Marks => "marks/",
    }
}

/// The step that an `as` does, by the folder that it is called in.
pub(crate) fn step_of(called_as: &Path) -> Step {
    let folder = called_as.parent().and_then(Path::file_name);
    let known = STEP_FOLDERS.iter().find(|(name, _)| folder.is_some_and(|folder| folder == *name));
    known.map_or(Step::Sites, |(_, step)| *step)
}

/// Name of the link that cargo runs instead of rustc.
pub(crate) const RUSTC_NAME: &str = "everycall-rustc";

/// The folder below, with links that build scripts run instead of a compiler.
pub(crate) const COMPILERS_FOLDER: &str = "compilers";

/// The folder below, with links that rustc runs instead of a linker.
pub(crate) const LINKERS_FOLDER: &str = "linkers";

/// A folder with the assembler step and the specs.
pub struct Toolbox {
    folder: PathBuf,
}

impl Toolbox {
    /// The folder of this installation, made if it isn't there yet.
    ///
    /// # Errors
    ///
    /// Where no cache folder can be written; the text names those tried.
    pub fn open() -> io::Result<Toolbox> {
        let program = std::env::current_exe()?;
        let name = format!("tools-{}-{:016x}", env!("CARGO_PKG_VERSION"), identity(&program));
        let mut failures = Vec::new();
        for root in roots() {
            match folder_below(&root, &name, &program) {
                Ok(folder) => return Ok(Toolbox { folder }),
                Err(error) => failures.push(format!("{}: {error}", root.display())),
            }
        }
        Err(io::Error::other(format!(
            "no folder for the assembler step could be made ({}); set XDG_CACHE_HOME to a folder that can be written",
            failures.join("; ")
        )))
    }

    /// Writes the files into a folder of the user's choice.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn create(folder: &Path, program: &Path) -> io::Result<Toolbox> {
        fs::create_dir_all(folder)?;
        fill(folder, program)?;
        Ok(Toolbox { folder: folder.to_owned() })
    }

    /// The folder of an assembler step, for gcc's `-B`.
    pub(crate) fn assembler_prefix(&self, step: Step) -> PathBuf {
        self.folder.join("").join(folder_of(step))
    }

    /// A file with this text, named after it: compiler caches hash the path, which stands for the text then.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn list(&self, text: &str) -> io::Result<PathBuf> {
        let hash = |seed: u64| {
            text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        };
        let path =
            self.folder.join(format!("{:016x}{:016x}.list", hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9)));
        if !everycall_io::cache::holds(&path, text.as_bytes()) {
            let draft = self.folder.join(format!(".draft-{}", std::process::id()));
            fs::write(&draft, text)?;
            fs::rename(&draft, &path)?;
        }
        Ok(path)
    }

    /// A remembered answer about a compiler: see `probe`.
    pub(crate) fn answer(&self, key: u64, question: &str) -> Option<bool> {
        match fs::read(self.folder.join(answer_name(key, question))).ok()?.as_slice() {
            b"yes" => Some(true),
            b"no" => Some(false),
            _ => None,
        }
    }

    /// Remembers an answer.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn remember(&self, key: u64, question: &str, answer: bool) -> io::Result<()> {
        let draft = self.folder.join(format!(".draft-{}", std::process::id()));
        fs::write(&draft, if answer { "yes" } else { "no" })?;
        fs::rename(&draft, self.folder.join(answer_name(key, question)))
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program for cargo's `RUSTC_WRAPPER`.
    pub fn rustc_wrapper(&self) -> PathBuf {
        self.folder.join(RUSTC_NAME)
    }

    /// The program that rustc runs instead of the linker of this name.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn linker(&self, name: &OsStr) -> io::Result<PathBuf> {
        self.link(LINKERS_FOLDER, name)
    }

    /// The program that build scripts run instead of the compiler of this name.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn compiler(&self, name: &OsStr) -> io::Result<PathBuf> {
        self.link(COMPILERS_FOLDER, name)
    }

    fn link(&self, folder: &str, name: &OsStr) -> io::Result<PathBuf> {
        let folder = self.folder.join(folder);
        match fs::DirBuilder::new().mode(0o755).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(name);
        match symlink(std::env::current_exe()?, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// The specs file, for gcc's `-specs=`.
    pub fn specs(&self) -> PathBuf {
        self.folder.join(SPECS_FILE)
    }

    /// The specs file by which gcc marks entries.
    pub(crate) fn marks(&self) -> PathBuf {
        self.folder.join(MARKS_FILE)
    }
}

/// Computed from this crate's sources and the program's path: two installations never share a
/// folder.
fn identity(program: &Path) -> u64 {
    let sources = env!("EVERYCALL_COMPILER_SOURCES").bytes();
    sources
        .chain(program.as_os_str().as_bytes().iter().copied())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Candidate folders, best first. Users of build services often have no writable home.
fn roots() -> impl Iterator<Item = PathBuf> {
    everycall_io::cache::user_folder()
        .filter(|root| survives_makefiles(root))
        .into_iter()
        .chain([everycall_io::cache::shared_folder()])
}

/// gcc's parallel link-time optimisation writes our options into a makefile without quoting them.
fn survives_makefiles(root: &Path) -> bool {
    root.as_os_str()
        .as_bytes()
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._+-@=".contains(byte) || *byte >= 0x80)
}

/// The folder below this root. The compiler executes the `as` that it finds there, so no other user may
/// be able to replace anything. The root may be the user's own link to an own folder: people move
/// caches to other disks that way.
fn folder_below(root: &Path, name: &str, program: &Path) -> io::Result<PathBuf> {
    let root = everycall_io::cache::secure(root)?;
    if !survives_makefiles(&root) {
        return Err(io::Error::other("link-time optimisation doesn't get along with its name"));
    }
    let folder = root.join(name);
    ensure(&folder, program)?;
    Ok(folder)
}

fn answer_name(key: u64, question: &str) -> String {
    format!("{key:016x}.{question}")
}

fn ensure(folder: &Path, program: &Path) -> io::Result<()> {
    if is_complete(folder, program) {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    let draft = parent.join(format!(".draft-{}", std::process::id()));
    let made =
        fs::DirBuilder::new().mode(0o700).create(&draft).and_then(|()| fill(&draft, program)).and_then(
            |()| {
                match fs::rename(&draft, folder) {
                    // Another process was faster.
                    Err(_) if is_complete(folder, program) => Ok(()),
                    // An incomplete folder is in the way: something deleted a part of it.
                    Err(_) => fs::remove_dir_all(folder).and_then(|()| fs::rename(&draft, folder)),
                    Ok(()) => Ok(()),
                }
            },
        );
    // A renamed draft doesn't exist any more; otherwise it is removed.
    let _ = fs::remove_dir_all(&draft);
    made
}

fn is_complete(folder: &Path, program: &Path) -> bool {
    let is_link = |step: PathBuf| fs::read_link(step).is_ok_and(|target| target == program);
    is_link(folder.join("as"))
        && is_link(folder.join(RUSTC_NAME))
        && everycall_io::cache::is_private(folder).unwrap_or(false)
        && STEP_FOLDERS.iter().all(|(name, _)| {
            let below = folder.join(name);
            is_link(below.join("as")) && everycall_io::cache::is_private(&below).unwrap_or(false)
        })
        && everycall_io::cache::holds(&folder.join(SPECS_FILE), HOOK_CALLS_SPECS.as_bytes())
        && everycall_io::cache::holds(&folder.join(MARKS_FILE), marks_specs().as_bytes())
}

fn fill(folder: &Path, program: &Path) -> io::Result<()> {
    let mut links = vec![folder.join("as"), folder.join(RUSTC_NAME)];
    for (name, _) in STEP_FOLDERS {
        let below = folder.join(name);
        // Writable for the owner only, whatever the umask is.
        match fs::DirBuilder::new().mode(0o755).create(&below) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => links.push(below.join("as")),
        }
    }
    for step in links {
        match fs::remove_file(&step) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(program, &step)?,
        }
    }
    let marks = marks_specs();
    [(SPECS_FILE, HOOK_CALLS_SPECS), (MARKS_FILE, &marks)].into_iter().try_for_each(|(name, text)| {
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(folder.join(name))?
            .write_all(text.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_folder_is_made_anew() {
        let root = std::env::temp_dir().join(format!("everycall-toolbox-{}", std::process::id()));
        let folder = root.join("tools");
        let program = Path::new("/bin/true");
        fs::create_dir_all(&root).unwrap();
        ensure(&folder, program).unwrap();
        assert!(is_complete(&folder, program));
        fs::remove_file(folder.join("as")).unwrap();
        assert!(!is_complete(&folder, program));
        ensure(&folder, program).unwrap();
        assert!(is_complete(&folder, program));
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["tools"]);
        fs::remove_dir_all(&root).unwrap();
    }
}
