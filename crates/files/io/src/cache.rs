//! Where everycall's cache folders are, and whether only the user can change them.
//!
//! Files in these folders become part of programs, or are executed when programs are compiled: in a
//! folder that others may write to, they could replace them by their own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The user's own cache: `$XDG_CACHE_HOME/everycall`, otherwise `~/.cache/everycall`. `None` if the
/// environment names no place. The folder may not exist yet.
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

/// The folder for users without a home that can be written, as services have:
/// `/var/tmp/everycall-UID`. Anybody may make it; see [`secure`].
#[must_use]
pub fn shared_folder() -> PathBuf {
    PathBuf::from(format!("/var/tmp/everycall-{}", rustix::process::geteuid().as_raw()))
}

/// Makes a folder, unless it exists, for the user alone. Returns its path without links. No other
/// user can replace anything on that path, now or later: the files that were checked are the ones
/// that compilers find.
///
/// # Errors
///
/// It can't be made, or another user could replace it or write to it.
pub fn secure(path: &Path) -> io::Result<PathBuf> {
    let user = user();
    let (there, missing) = split(path)?;
    let named = fs::symlink_metadata(there)?;
    // Where anybody may make names, a link could lead to any folder of ours.
    if named.is_symlink() && !user.trusts(named.uid()) {
        return Err(not_private(there));
    }
    let there = there.canonicalize()?;
    check(&there, &user)?;
    let mut folder = there;
    for name in missing {
        folder.push(name);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    // Who made it meanwhile may have made a link.
    let folder = folder.canonicalize()?;
    check(&folder, &user)?;
    if is_private(&folder)? { Ok(folder) } else { Err(not_private(&folder)) }
}

/// The part of a path that exists, and the names of the rest, outermost first.
fn split(path: &Path) -> io::Result<(&Path, Vec<&OsStr>)> {
    let mut missing = Vec::new();
    let mut there = path;
    while fs::symlink_metadata(there).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let (Some(folder), Some(name)) = (there.parent(), there.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        missing.push(name);
        there = folder;
    }
    missing.reverse();
    Ok((there, missing))
}

fn not_private(folder: &Path) -> io::Error {
    let shown = folder.display();
    io::Error::other(format!("{shown} belongs to another user, is no folder, or others may write to it"))
}

/// Whether each folder on a path without links belongs to the user or root, and nobody else can
/// rename an entry of the path in it.
fn check(path: &Path, user: &User) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    for folder in path.ancestors().filter(|folder| *folder != Path::new("")) {
        let facts = fs::symlink_metadata(folder)?;
        let is_trusted = user.trusts(facts.uid()) || folder.parent().is_none();
        // In a sticky folder names are their owners', and the folder's.
        if !facts.is_dir() || !is_trusted || facts.mode() & 0o022 != 0 && facts.mode() & STICKY == 0 {
            return Err(not_private(folder));
        }
    }
    Ok(())
}

/// Who we are, as far as files are concerned.
struct User {
    id: u32,
    /// The owner that the system shows for files of users who have no number here, if root has none
    /// either: in sandboxes that map only their own user, the system's own folders look like that.
    root: u32,
}

impl User {
    fn trusts(&self, owner: u32) -> bool {
        owner == self.id || owner == 0 || owner == self.root
    }
}

fn user() -> User {
    let id = rustix::process::geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = overflow.and_then(|number| number.trim().parse().ok());
    let root = overflow.filter(|_| !map.is_empty() && !knows_root(&map)).unwrap_or(0);
    User { id, root }
}

/// Whether root has a number in this map of users: `first here, first outside, count` in each line.
fn knows_root(map: &str) -> bool {
    map.lines().any(|line| line.split_ascii_whitespace().next() == Some("0"))
}

/// Whether `path` is a folder that belongs to the user and that nobody else may write to. A
/// symbolic link is not. Whether another user can replace the folder is checked by [`secure`].
///
/// # Errors
///
/// It doesn't exist, or can't be examined.
pub fn is_private(path: &Path) -> io::Result<bool> {
    let data = fs::symlink_metadata(path)?;
    Ok(data.is_dir() && is_own(&data))
}

/// Whether `path` is a file of the user's that nobody else may write to, and contains these bytes.
#[must_use]
pub fn holds(path: &Path, bytes: &[u8]) -> bool {
    let is_plain = fs::symlink_metadata(path)
        .is_ok_and(|data| data.is_file() && is_own(&data) && data.len() == bytes.len() as u64);
    is_plain && fs::read(path).is_ok_and(|content| content == bytes)
}

/// The bytes of a file of at most `most` bytes that is the user's and that nobody else may write
/// to. A link isn't followed. Also returns the file.
///
/// # Errors
///
/// It doesn't exist, is another user's, is no such file, or can't be read.
pub fn read(path: &Path, most: u64) -> io::Result<(fs::File, Vec<u8>)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() || !is_own(&data) || data.len() > most {
        return Err(not_private(path));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or(0));
    // It may grow.
    io::Read::take(&mut file, most).read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

fn is_own(data: &fs::Metadata) -> bool {
    data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o022 == 0
}

#[cfg(test)]
#[allow(clippy::print_stderr)] // A test says why it was skipped.
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

    /// Other users than root, whose folders root can make.
    const OTHER: u32 = 65_533;

    #[test]
    fn other_users_cant_replace_cached_files() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let (outer, inner) = (base.join("a"), base.join("a/b"));
        assert_eq!(secure(&inner).unwrap(), inner);
        assert_eq!(fs::metadata(&outer).unwrap().mode() & 0o777, 0o700);
        // Others may write to a folder on the path: only if it is sticky can they not rename its
        // entries.
        for (bits, is_safe) in [(0o777, false), (0o770, false), (0o702, false), (0o1777, true), (0o755, true)]
        {
            mode(&outer, bits);
            assert_eq!(secure(&inner).is_ok(), is_safe, "{bits:o}");
            assert_eq!(secure(&inner.join("new/er")).is_ok(), is_safe, "{bits:o}");
            let _ = fs::remove_dir_all(inner.join("new"));
        }
        assert!(!inner.join("new").exists());
        // The folder itself has to be private, sticky or not.
        mode(&inner, 0o1777);
        assert!(secure(&inner).is_err());
        mode(&inner, 0o700);

        // The user's own links lead where they lead.
        symlink(&inner, base.join("link")).unwrap();
        assert_eq!(secure(&base.join("link")).unwrap(), inner);
        assert_eq!(secure(&base.join("link/c")).unwrap(), inner.join("c"));
        symlink("nowhere", base.join("dangling")).unwrap();
        assert!(secure(&base.join("dangling/c")).is_err());
        fs::write(base.join("file"), "").unwrap();
        assert!(secure(&base.join("file")).is_err() && secure(&base.join("file/c")).is_err());

        if chown(&outer, Some(OTHER), None).is_err() {
            eprintln!("skipped: only root can make another user's folder");
            return;
        }
        let error = secure(&inner).unwrap_err().to_string();
        assert!(error.contains(outer.to_str().unwrap()), "{error}");
        assert!(secure(&inner.join("new")).is_err() && !inner.join("new").exists());
        // A sticky folder of another user doesn't restrict its owner.
        mode(&outer, 0o1777);
        assert!(secure(&inner).is_err());
        mode(&outer, 0o755);
        chown(&outer, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        assert!(secure(&inner).is_ok());
        symlink(&inner, base.join("lure")).unwrap();
        std::os::unix::fs::lchown(base.join("lure"), Some(OTHER), None).unwrap();
        assert!(secure(&base.join("lure")).is_err(), "somebody else's link");
        // A link into it is no way round.
        chown(&outer, Some(OTHER), None).unwrap();
        assert!(secure(&base.join("link")).is_err());
    }

    #[test]
    fn root_may_have_no_number() {
        assert!(knows_root("         0          0 4294967295\n") && knows_root("0 1000 1\n1 100000 65536\n"));
        assert!(!knows_root("      1000       1000          1\n"));
        let sandboxed = User { id: 1000, root: 65_534 };
        assert!(sandboxed.trusts(65_534) && sandboxed.trusts(1000) && !sandboxed.trusts(1001));
        let ordinary = User { id: 1000, root: 0 };
        assert!(!ordinary.trusts(65_534) && ordinary.trusts(0));
    }

    #[test]
    fn files_are_compared_whole() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        assert!(!holds(&file, b"right"));
        fs::write(&file, "wrong").unwrap();
        assert!(!holds(&file, b"right"));
        fs::write(&file, "right").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(holds(&file, b"right"));
        let link = root.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(!holds(&link, b"right"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!holds(&file, b"right"), "others may write to it");
    }

    #[test]
    fn folders_writable_by_others_arent_private() {
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
