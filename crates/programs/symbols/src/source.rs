//! Source text for paths that compilers recorded.
//!
//! The paths come from binaries, so they may name any file, for example a private file of the user.
//! Only regular text files outside of the kernel's file systems are read, each and all of them up
//! to a limit. A file that goes into an output for others ([`SourceFinder::compiled`]) must also
//! look like a compiled source:
//!
//! - it is below the folder that the compiler ran in, below one of that folder's parents (down to
//!   the second level), or below an allowed folder;
//! - it has the checksum that the line table contains (DWARF 5, clang); without a checksum, it has
//!   the name of a source file and no hidden folder in its path.
//!
//! For sources of interpreters, the folder in which the program was recorded stands for the
//! compiler's.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::file_bytes::open_resolved;
use crate::options::PathMap;

/// Largest source file, in bytes. Programs that come as one file (SQLite's has 9 MB) are sources
/// too.
const FILE_SIZE_MAX: u64 = 16 << 20;
/// Largest amount of text from one finder, in bytes.
const TOTAL_SIZE_MAX: u64 = 64 << 20;
/// File systems that the kernel generates; reading them may have effects or reveal secrets.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Why there is no text for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceRefusal {
    /// The file can't be opened or read.
    Unreadable(PathBuf, String),
    /// The path is relative, and it isn't known to what.
    Relative(PathBuf),
    /// The path leads into a tree that isn't source code.
    Forbidden(PathBuf),
    /// The file is too large.
    TooLarge(PathBuf, u64),
    /// The file isn't text.
    NotText(PathBuf),
    /// It is outside of the allowed folders.
    Outside(PathBuf),
    /// It isn't the file that was compiled.
    NotCompiled(PathBuf),
    /// It isn't called like a source file, or is in a hidden folder.
    NotSource(PathBuf),
    /// So much text was read already that no more is taken.
    LimitReached(PathBuf),
}

impl fmt::Display for SourceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, reason) => write!(
                f,
                "source file {} can't be read ({reason}); if it lies elsewhere on this machine, map its path",
                path.display()
            ),
            Self::Relative(path) => write!(
                f,
                "source file {} has a relative path; map it to where the file lies, or compile with absolute paths",
                path.display()
            ),
            Self::Forbidden(path) => write!(
                f,
                "{} was not read: only regular files outside of {} are source files",
                path.display(),
                KERNEL_TREES.join(", ")
            ),
            Self::Outside(path) => {
                write!(f, "{} lies outside of the folders that sources are taken from", path.display())
            }
            Self::NotCompiled(path) => {
                write!(f, "{} isn't the file that was compiled, as far as can be told", path.display())
            }
            Self::NotSource(path) => {
                write!(f, "{} isn't called like a source file, or is in a hidden folder", path.display())
            }
            Self::TooLarge(path, size) => write!(
                f,
                "source file {} has {size} bytes; at most {FILE_SIZE_MAX} are included",
                path.display()
            ),
            Self::NotText(path) => {
                write!(f, "{} was not included: it holds NUL bytes, so it is not source text", path.display())
            }
            Self::LimitReached(path) => write!(
                f,
                "source file {} was left out: {TOTAL_SIZE_MAX} bytes of source text are included already; narrow the export down",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SourceRefusal {}

/// A source file's checksum and folder, from debugging information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledSource {
    /// Its checksum when it was compiled.
    pub md5: Option<[u8; 16]>,
    /// The folder in which the compiler ran, or the interpreter.
    pub folder: Option<PathBuf>,
}

/// Folders of compilers and packages, with public headers, and of Python's library. Those that end
/// with `-` or `python3` are beginnings of names.
const SYSTEM_FOLDERS: [&str; 8] = [
    "/usr/include",
    "/usr/lib/gcc",
    "/usr/lib/llvm-",
    "/usr/lib/python3",
    "/usr/local/include",
    "/usr/local/lib/python3",
    "/usr/src",
    "/usr/share/include",
];

/// Whether a path without links is in one of [`SYSTEM_FOLDERS`].
fn is_in_system_folder(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    SYSTEM_FOLDERS.iter().any(|folder| {
        let rest = text.strip_prefix(folder.as_bytes());
        let is_beginning = folder.ends_with('-') || folder.ends_with("python3");
        rest.is_some_and(|rest| is_beginning || rest.starts_with(b"/"))
    })
}

/// Endings of the names of source files.
const ENDINGS: [&str; 55] = [
    "c", "cc", "cp", "cpp", "cxx", "c++", "C", "cppm", "ixx", "h", "hh", "hp", "hpp", "hxx", "h++", "H",
    "inc", "inl", "ipp", "tcc", "tpp", "txx", "def", "s", "S", "asm", "y", "yy", "l", "ll", "rs", "m", "mm",
    "cu", "py", "pyw", "pyi", "pyx", "pxd", "pxi", "lua", "rb", "js", "mjs", "cjs", "jsx", "ts", "mts",
    "cts", "tsx", "pl", "pm", "php", "tcl", "scm",
];

/// Whether a path is that of a source file by its looks: as files are called, and not in a hidden
/// folder.
fn looks_like_source(path: &Path) -> bool {
    let is_hidden = path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str());
    !is_hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// A source file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceText {
    /// Its text.
    pub text: Arc<str>,
    /// Whether bytes that are not UTF-8 became replacement characters in it.
    pub is_lossy: bool,
    /// Its checksum.
    pub md5: [u8; 16],
    /// When it was last modified, if the file system knows.
    pub modified: Option<SystemTime>,
    /// The path, without links, of the file that was opened.
    pub place: PathBuf,
    /// Whether all users may read it.
    pub is_public: bool,
}

/// Reads source files, each once.
#[derive(Debug, Default)]
pub struct SourceFinder {
    maps: Vec<PathMap>,
    /// If not empty, only files below one of these are read.
    roots: Vec<PathBuf>,
    /// Folders from which [`SourceFinder::compiled`] takes sources, in addition to those of
    /// compilers.
    allowed: Vec<PathBuf>,
    /// Whether it takes any.
    allows_any: bool,
    total_size: u64,
    texts: HashMap<PathBuf, Result<SourceText, SourceRefusal>>,
}

impl SourceFinder {
    /// A finder that looks up mapped paths under their new place; the longest matching prefix wins.
    pub fn new(maps: Vec<PathMap>) -> Self {
        Self { maps, ..Self::default() }
    }

    /// Reads files below these directories only (links resolved); by default any.
    #[must_use]
    pub fn limited_to(mut self, roots: impl IntoIterator<Item = PathBuf>) -> Self {
        self.roots.extend(roots.into_iter().map(|root| root.canonicalize().unwrap_or(root)));
        self
    }

    /// The text of the file that a compiler recorded as `path`; bytes that are not UTF-8 become
    /// replacement characters.
    ///
    /// # Errors
    ///
    /// The reason if there is no text. It is the same each time that the path is looked up.
    pub fn text(&mut self, path: &Path) -> Result<Arc<str>, SourceRefusal> {
        self.source(path).map(|source| source.text)
    }

    /// The text of the file that a compiler recorded as `path`, with facts about the file.
    ///
    /// # Errors
    ///
    /// As [`SourceFinder::text`].
    pub fn source(&mut self, path: &Path) -> Result<SourceText, SourceRefusal> {
        if let Some(known) = self.texts.get(path) {
            return known.clone();
        }
        let text = self.read(path);
        self.texts.insert(path.to_path_buf(), text.clone());
        text
    }

    /// Takes what goes into outputs from below these folders, too.
    #[must_use]
    pub fn allowing(mut self, folders: impl IntoIterator<Item = PathBuf>, allows_any: bool) -> Self {
        let places = self.maps.iter().map(|map| map.new_place().to_owned());
        self.allowed =
            folders.into_iter().chain(places).filter_map(|folder| folder.canonicalize().ok()).collect();
        self.allows_any = allows_any;
        self
    }

    /// The text of `path` for an output that others may see, if it is the file that was compiled;
    /// see the module's head.
    ///
    /// # Errors
    ///
    /// As [`SourceFinder::text`], and if it isn't that file.
    pub fn compiled(&mut self, path: &Path, compiled: &CompiledSource) -> Result<SourceText, SourceRefusal> {
        if self.allows_any {
            return self.source(path);
        }
        let mapped = PathMap::apply_all(&self.maps, path).unwrap_or_else(|| path.to_path_buf());
        // A file that doesn't exist is missing, not refused.
        if let Ok(resolved) = mapped.canonicalize() {
            self.check_place(&mapped, &resolved, true, compiled)?;
        }
        let source = self.source(path)?;
        // The path may have become a link meanwhile: the place of the opened file counts.
        self.check_place(&mapped, &source.place, source.is_public, compiled)?;
        if compiled.md5.is_some_and(|md5| md5 != source.md5) {
            return Err(SourceRefusal::NotCompiled(path.to_path_buf()));
        }
        Ok(source)
    }

    fn check_place(
        &self,
        mapped: &Path,
        resolved: &Path,
        is_public: bool,
        compiled: &CompiledSource,
    ) -> Result<(), SourceRefusal> {
        let is_allowed = self.allowed.iter().any(|folder| resolved.starts_with(folder));
        // The system's folders may contain secrets, too, such as the key that signs kernel modules.
        if is_public && is_in_system_folder(resolved) || is_allowed {
            return Ok(());
        }
        let folder = compiled.folder.as_deref().and_then(|folder| folder.canonicalize().ok());
        let below = folder.as_deref().and_then(|folder| {
            // Build folders are beside the sources or below, at any depth; the first level belongs
            // to the system.
            let around = folder.ancestors().skip(1).filter(|parent| parent.components().count() > 2);
            let own = Some(folder).filter(|folder| folder.parent().is_some());
            own.into_iter().chain(around).find_map(|folder| resolved.strip_prefix(folder).ok())
        });
        let Some(below) = below else { return Err(SourceRefusal::Outside(mapped.to_path_buf())) };
        // A checksum is stronger evidence than any name.
        if compiled.md5.is_none() && !looks_like_source(below) {
            return Err(SourceRefusal::NotSource(mapped.to_path_buf()));
        }
        Ok(())
    }

    fn read(&mut self, recorded: &Path) -> Result<SourceText, SourceRefusal> {
        let mapped = PathMap::apply_all(&self.maps, recorded).unwrap_or_else(|| recorded.to_path_buf());
        if !mapped.is_absolute() {
            return Err(SourceRefusal::Relative(mapped));
        }
        let unreadable = |error: std::io::Error| SourceRefusal::Unreadable(mapped.clone(), error.to_string());
        // Links are resolved first, so that none leads into a forbidden tree.
        let path = mapped.canonicalize().map_err(unreadable)?;
        if !self.is_allowed(&path) {
            return Err(SourceRefusal::Forbidden(mapped));
        }
        let (file, metadata) = open_resolved(&path).map_err(unreadable)?;
        if metadata.len() > FILE_SIZE_MAX {
            return Err(SourceRefusal::TooLarge(mapped, metadata.len()));
        }
        if self.total_size + metadata.len() > TOTAL_SIZE_MAX {
            return Err(SourceRefusal::LimitReached(mapped));
        }
        let mut bytes = Vec::new();
        // The file may have grown meanwhile.
        file.take(FILE_SIZE_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.contains(&0) {
            return Err(SourceRefusal::NotText(mapped));
        }
        self.total_size += bytes.len() as u64;
        let md5 = md5::compute(&bytes).0;
        let text = String::from_utf8_lossy(&bytes);
        let is_lossy = matches!(text, Cow::Owned(_));
        Ok(SourceText {
            text: Arc::from(text),
            is_lossy,
            modified: metadata.modified().ok(),
            md5,
            place: path,
            is_public: metadata.mode() & 0o004 != 0,
        })
    }

    fn is_allowed(&self, path: &Path) -> bool {
        !KERNEL_TREES.iter().any(|tree| path.starts_with(tree))
            && (self.roots.is_empty() || self.roots.iter().any(|root| path.starts_with(root)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_mapped_and_lossy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.c"), b"int caf\xe9;\n").unwrap();
        std::fs::write(dir.path().join("utf8.c"), "int café; // \u{fffd}\n").unwrap();
        let mut finder = SourceFinder::new(vec![PathMap::new("/build/src", dir.path())]);
        let is_lossy = |finder: &mut SourceFinder, name| finder.source(Path::new(name)).unwrap().is_lossy;
        assert!(is_lossy(&mut finder, "/build/src/a.c") && !is_lossy(&mut finder, "/build/src/utf8.c"));
        assert_eq!(&*finder.text(Path::new("/build/src/a.c")).unwrap(), "int caf\u{fffd};\n");
        assert!(matches!(finder.text(Path::new("a.c")), Err(SourceRefusal::Relative(_))));
        assert!(matches!(finder.text(Path::new("/build/src/b.c")), Err(SourceRefusal::Unreadable(..))));
    }

    #[test]
    fn anything_but_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("large.c"), vec![b' '; (FILE_SIZE_MAX + 1) as usize]).unwrap();
        std::fs::write(path("binary.c"), b"\x7fELF\0").unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", path("link.c")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo.c")).status().unwrap().success());
        let mut finder = SourceFinder::default();
        assert!(matches!(finder.text(&path("large.c")), Err(SourceRefusal::TooLarge(_, 16_777_217))));
        assert!(matches!(finder.text(&path("binary.c")), Err(SourceRefusal::NotText(_))));
        assert!(matches!(finder.text(&path("link.c")), Err(SourceRefusal::Forbidden(_))));
        assert!(matches!(finder.text(&path("fifo.c")), Err(SourceRefusal::Unreadable(..))));
        assert!(matches!(finder.text(dir.path()), Err(SourceRefusal::Unreadable(..))));
        for device in ["/dev/zero", "/proc/self/maps", "/sys/kernel/notes"] {
            let refusal = finder.text(Path::new(device));
            assert!(
                matches!(refusal, Err(SourceRefusal::Forbidden(_) | SourceRefusal::Unreadable(..))),
                "{refusal:?}"
            );
        }
        let mut limited = SourceFinder::default().limited_to([path("elsewhere")]);
        std::fs::write(path("fine.c"), "int x;").unwrap();
        assert!(matches!(limited.text(&path("fine.c")), Err(SourceRefusal::Forbidden(_))));
        assert_eq!(&*finder.text(&path("fine.c")).unwrap(), "int x;");
    }

    /// The folder of a program's sources may belong to another user, who changes links in it while
    /// they are read.
    #[test]
    fn no_link_leads_out_of_the_folder_meanwhile() {
        use std::os::unix::fs::symlink;
        use std::sync::atomic::{AtomicBool, Ordering};
        const TRIES: usize = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["their", "secret"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        std::fs::write(path("their/real.c"), "int theirs;").unwrap();
        std::fs::write(path("secret/key.c"), "int secret;").unwrap();
        symlink("real.c", path("their/a.c")).unwrap();
        // Folders around the compiler's are allowed but for the outermost ones: this one is not
        // around it.
        let compiled = CompiledSource { md5: None, folder: Some(PathBuf::from("/nowhere")) };
        let is_over = AtomicBool::new(false);
        let mut taken = 0;
        std::thread::scope(|scope| {
            let swaps = || {
                let mut targets = ["../secret/key.c", "real.c"].into_iter().cycle();
                while !is_over.load(Ordering::Relaxed) {
                    let _ = std::fs::remove_file(path("their/new"));
                    symlink(targets.next().unwrap(), path("their/new")).unwrap();
                    std::fs::rename(path("their/new"), path("their/a.c")).unwrap();
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, swaps).unwrap();
            for _ in 0..TRIES {
                let mut finder = SourceFinder::default().allowing([path("their")], false);
                match finder.compiled(&path("their/a.c"), &compiled) {
                    Ok(source) if source.text.contains("secret") => taken += 1,
                    _ => {}
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(taken, 0, "of {TRIES}");
    }

    #[test]
    fn system_folders_are_distinguished_from_their_neighbours() {
        for (path, is_in) in [
            ("/usr/include/stdio.h", true),
            ("/usr/lib/llvm-19/include/x.h", true),
            ("/usr/lib/python3.11/json/decoder.py", true),
            ("/usr/lib/python3/dist-packages/x.py", true),
            ("/usr/include", false),
            ("/usr/include-private/key", false),
            ("/usr/srcs/key", false),
            ("/home/usr/include/key", false),
        ] {
            assert_eq!(is_in_system_folder(Path::new(path)), is_in, "{path}");
        }
    }

    #[test]
    fn secrets_in_system_folders_are_left_out() {
        let finder = SourceFinder::default();
        let key = Path::new("/usr/src/linux/certs/signing_key.pem");
        let compiled = CompiledSource::default();
        assert!(finder.check_place(key, key, true, &compiled).is_ok());
        assert!(matches!(finder.check_place(key, key, false, &compiled), Err(SourceRefusal::Outside(_))));
    }

    #[test]
    fn the_total_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let mut finder = SourceFinder::default();
        let mut read = 0;
        for index in 0..6 {
            let path = dir.path().join(format!("{index}.c"));
            std::fs::write(&path, vec![b'x'; FILE_SIZE_MAX as usize]).unwrap();
            read += usize::from(finder.text(&path).is_ok());
        }
        assert_eq!(read, 4);
    }
}
