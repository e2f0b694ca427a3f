//! The compiled runtime and the headers, inside the binary, and their way into files where
//! compilers and the dynamic linker need some.

// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use everycall_format::env::{SETTINGS_MARK, SETTINGS_SIZE};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The object that executables are linked with.
pub const RUNTIME_OBJECT: &str = "everycall-rt.o";
/// The object that shared objects are linked with.
pub const MODULE_OBJECT: &str = "everycall-module.o";
/// The library that is preloaded into programs without a runtime.
pub const PRELOAD_LIBRARY: &str = "libeverycall.so";
/// The library that is preloaded to record calls that wait.
pub const WAITS_LIBRARY: &str = "libeverycall-waits.so";
/// The library that is preloaded to record what the program writes to its standard output and
/// error.
pub const OUTPUT_LIBRARY: &str = "libeverycall-output.so";
/// The library that is preloaded to count what the program allocates.
pub const MEMORY_LIBRARY: &str = "libeverycall-memory.so";
/// The library that is preloaded beside any other, and leaves them out where they can't be loaded.
pub const EXEC_LIBRARY: &str = "libeverycall-exec.so";

/// The contents of [`PRELOAD_LIBRARY`] with settings, for a process that runs already. They stand
/// for the environment ([`SETTINGS_MARK`]). `None` if they are too long.
pub fn library_with_settings(settings: &[(&str, &str)]) -> Option<Vec<u8>> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == PRELOAD_LIBRARY)?;
    let mut library = bytes.to_vec();
    let mut texts = Vec::new();
    for (name, value) in settings {
        texts.extend_from_slice(format!("{name}={value}\0").as_bytes());
    }
    let mark = library.windows(SETTINGS_MARK.len()).position(|window| window == SETTINGS_MARK)?;
    let start = mark + SETTINGS_MARK.len();
    // The last zero stays.
    let place = library.get_mut(start..start + texts.len()).filter(|place| place.len() < SETTINGS_SIZE)?;
    place.copy_from_slice(&texts);
    Some(library)
}

/// The folder of `everycall.h`.
pub const INCLUDE_FOLDER: &str = "include";

/// The kit's files, which `build.rs` makes and lists.
pub const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The hooks as bytes that may lie anywhere, for programs that were built without them. Their
/// descriptor is [`DESCRIPTOR_BEFORE`] bytes before them.
pub const HOOKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hooks.bin"));
/// Where each hook is in them, in the order of `everycall_format::trampoline::hook`.
pub const HOOK_PLACES: [u32; 13] = include!(concat!(env!("OUT_DIR"), "/hooks.rs"));
/// The hooks' `.eh_frame`, if it is at [`HOOK_FRAMES_AT`] and the hooks are at [`HOOKS_AT`].
pub const HOOK_FRAMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hooks.frames"));
/// See [`HOOK_FRAMES`].
pub const HOOK_FRAMES_AT: u64 = 0x10_0000;
/// See [`HOOK_FRAMES`].
pub const HOOKS_AT: u64 = 0x1000;
/// Bytes from the descriptor to the hooks.
pub const DESCRIPTOR_BEFORE: u64 = 4096;

/// Where the kit is in a cache folder.
const FOLDER: &str = concat!("kit-", env!("CARGO_PKG_VERSION"), "-", env!("EVERYCALL_KIT_CHECKSUM"));

/// The folder that contains this version's kit; unpacks it if it isn't there yet. The folder's name
/// contains the version and a checksum of the content, so its content never changes, and versions
/// don't collide.
///
/// It is in `$XDG_CACHE_HOME/everycall`, otherwise in `~/.cache/everycall`, otherwise, for users
/// without a writable home, in `/var/tmp/everycall-UID`.
///
/// # Errors
/// Where none of these can be made or written.
pub fn unpack() -> io::Result<PathBuf> {
    unpack_below(everycall_io::cache::user_folder().as_deref(), &everycall_io::cache::shared_folder())
}

fn unpack_below(cache: Option<&Path>, shared: &Path) -> io::Result<PathBuf> {
    let first = match cache.map(unpack_into) {
        Some(Ok(folder)) => return Ok(folder),
        Some(Err(error)) => error.to_string(),
        None => "no folder for everycall's runtime files: set HOME or XDG_CACHE_HOME to a writable folder"
            .to_owned(),
    };
    let second = |error: io::Error| {
        io::Error::new(error.kind(), format!("{first} (nor into {}: {error})", shared.display()))
    };
    unpack_into(shared).map_err(second)
}

/// As [`unpack`], below a folder of the caller's choice.
///
/// These files are linked into programs. So no other user may be able to replace them between this
/// check and the linker's read, and the files are compared byte by byte.
///
/// # Errors
/// The folder can't be made or written, or another user could replace it.
pub fn unpack_into(cache: &Path) -> io::Result<PathBuf> {
    everycall_io::cache::secure(&cache.join(FOLDER))
        .and_then(|folder| if is_whole(&folder) { Ok(folder) } else { fill(&folder).map(|()| folder) })
        .map_err(|error| {
            let sentence = format!(
                "the runtime's files can't be put into {}: {error}; set XDG_CACHE_HOME to a folder that you may write to, \
                 with a megabyte to spare, and that nobody else may rename or write to",
                cache.join(FOLDER).display()
            );
            io::Error::new(error.kind(), sentence)
        })
}

fn fill(folder: &Path) -> io::Result<()> {
    FILES.iter().try_for_each(|(name, bytes)| {
        let path = folder.join(name);
        put(&everycall_io::cache::secure(path.parent().unwrap_or(folder))?.join(name_of(&path)), bytes)
    })
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Whether all files are there.
fn is_whole(folder: &Path) -> bool {
    FILES.iter().all(|(name, bytes)| {
        let path = folder.join(name);
        path.parent().is_some_and(|folder| everycall_io::cache::is_private(folder).unwrap_or(false))
            && everycall_io::cache::holds(&path, bytes)
    })
}

/// Puts a file in place atomically: others see all of it or nothing.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = name_of(path).to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file: File =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&temporary)?;
        file.write_all(bytes)?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    #[test]
    fn settings_are_in_the_library_once() {
        let is_mark = |window: &&[u8]| **window == super::SETTINGS_MARK;
        let library = super::library_with_settings(&[("A", "b"), ("C", "")]).unwrap();
        assert_eq!(library.windows(16).filter(is_mark).count(), 1);
        let text = b"given\xffA=b\0C=\0\0";
        assert_eq!(library.windows(text.len()).filter(|window| *window == text).count(), 1);
        let long = "x".repeat(super::SETTINGS_SIZE);
        assert_eq!(super::library_with_settings(&[("A", &long)]), None);
    }

    use super::*;

    /// Two kits with one name would meet in one folder.
    #[test]
    fn the_folder_is_named_by_all_files() {
        let checksum =
            FILES.iter().flat_map(|(_, bytes)| bytes.iter()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        assert_eq!(FOLDER, format!("kit-{}-{checksum:016x}", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn unpacks_once_and_repairs() {
        let cache = std::env::temp_dir().join(format!("everycall-kit-test-{}", std::process::id()));
        let folder = unpack_into(&cache).unwrap();
        assert_eq!(fs::read(folder.join(RUNTIME_OBJECT)).unwrap(), FILES[0].1);
        let before = fs::metadata(folder.join(MODULE_OBJECT)).unwrap().modified().unwrap();
        assert_eq!(unpack_into(&cache).unwrap(), folder);
        assert_eq!(
            fs::metadata(folder.join(MODULE_OBJECT)).unwrap().modified().unwrap(),
            before,
            "left alone"
        );
        fs::write(folder.join(PRELOAD_LIBRARY), b"cut").unwrap();
        unpack_into(&cache).unwrap();
        assert_eq!(fs::read(folder.join(PRELOAD_LIBRARY)).unwrap(), FILES[2].1);
        fs::remove_dir_all(&cache).unwrap();
    }

    /// Users of services have no home; files in a folder that all may write to must belong to the
    /// user alone.
    #[test]
    fn without_a_home_a_private_folder_is_taken() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let root = std::env::temp_dir().join(format!("everycall-kit-shared-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let nowhere = Some(Path::new("/proc/nowhere"));
        for (name, cache) in [("a", None), ("b", nowhere)] {
            let shared = root.join(name);
            let folder = unpack_below(cache, &shared).unwrap();
            assert!(folder.starts_with(&shared) && is_whole(&folder));
            assert_eq!(fs::metadata(&shared).unwrap().mode() & 0o777, 0o700);
            assert_eq!(unpack_below(cache, &shared).unwrap(), folder);
        }
        symlink("nowhere", root.join("link")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o777)).unwrap();
        for name in ["link", "file", "b"] {
            let error = unpack_below(nowhere, &root.join(name)).unwrap_err().to_string();
            assert!(error.contains("XDG_CACHE_HOME") && error.contains(name), "{error}");
            assert!(name != "b" || error.contains("others may write"), "{error}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = unpack_into(Path::new("/proc/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/proc/nowhere/kit-") && error.contains("XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn the_runtime_is_small() {
        for (name, bytes) in FILES {
            assert!(bytes.len() <= 832 << 10, "{name}: {} bytes", bytes.len());
        }
    }
}
