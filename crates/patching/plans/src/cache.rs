//! Kept plans: a file for each, in a folder of the user's.
//!
//! ```text
//! magic, planner          of another version: made again, and replaced
//! size, checksum          of the program or library
//! size, time              of the file with its symbols
//! length, checksum        of what follows
//! the plan's bytes
//! ```
//!
//! A file's name is the build id with the file's checksum. Files without build id aren't kept: what
//! is built again and again, and used once, would push out the rest.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use everycall_io::cache;
use everycall_rewrite::{HookLayout, Plan};

use crate::binary::{Binary, build_id, debug_file, read};
use crate::error::PlanError;

const MAGIC: &[u8; 8] = b"ecplan\0\x01";
/// The folder's name in a cache folder.
const FOLDER: &str = "plans";
const ENDING: &str = ".plan";
/// All kept plans together; the ones that weren't used for longest go.
const MAX_ALL: u64 = 256 << 20;
/// A single plan.
const MAX_PLAN: u64 = 64 << 20;
/// The longest build id that is part of a name.
const MAX_BUILD_ID: usize = 64;
/// A file that is used has at least so young a time.
const FRESH: Duration = Duration::from_secs(3600);

/// Where plans are kept.
pub struct Cache {
    folders: Vec<PathBuf>,
    most: u64,
}

/// The file and planner that a kept plan must have been made for.
struct Key {
    name: String,
    /// The begin of its file.
    begin: Vec<u8>,
}

impl Key {
    /// `None` for files whose plans aren't kept.
    fn of(file: &[u8]) -> Option<Self> {
        let id = build_id(file).filter(|id| !id.is_empty() && id.len() <= MAX_BUILD_ID)?;
        let checksum = crc32fast::hash(file);
        let hexadecimal: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let debug = debug_file(file).map(|(_, facts)| (facts.len(), facts.mtime(), facts.mtime_nsec()));
        let (length, seconds, nanoseconds) = debug.unwrap_or_default();
        let mut begin = MAGIC.to_vec();
        begin.extend(Plan::PLANNER.to_le_bytes());
        begin.extend((file.len() as u64).to_le_bytes());
        begin.extend(checksum.to_le_bytes());
        begin.extend(length.to_le_bytes());
        begin.extend(seconds.to_le_bytes());
        begin.extend(nanoseconds.to_le_bytes());
        Some(Self { name: format!("{hexadecimal}-{checksum:08x}{ENDING}"), begin })
    }
}

impl Cache {
    /// The user's own.
    pub fn of_user() -> Self {
        let folders = cache::user_folder().into_iter().chain([cache::shared_folder()]);
        Self { folders: folders.map(|folder| folder.join(FOLDER)).collect(), most: MAX_ALL }
    }

    /// In a folder of the caller's choice, which is made if it isn't there.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folders: vec![folder.to_owned()], most: MAX_ALL }
    }

    /// As [`crate::of_file`], with this cache.
    ///
    /// # Errors
    /// Those of [`crate::of_file`].
    pub fn plan(&self, path: &Path) -> Result<Plan, PlanError> {
        let file = read(path)?;
        let key = Key::of(&file);
        let folder = key.as_ref().and_then(|_| self.folder());
        let place = folder.as_deref().zip(key.as_ref());
        if let Some(plan) = place.and_then(|(folder, key)| kept(folder, key)) {
            return Ok(plan);
        }
        let binary = Binary::with_symbols(file);
        let mut plan = binary.analysis()?.plan(HookLayout::default(), &|_, _| true)?;
        // As if it had been kept.
        plan.functions.iter_mut().for_each(|function| function.name = String::new());
        plan.left_out.iter_mut().for_each(|function| function.name = String::new());
        if let Some((folder, key)) = place {
            // Full disks, and what others did to the folder meanwhile, only cost the next run time.
            let _ = keep(folder, key, &plan).and_then(|()| prune(folder, self.most));
        }
        Ok(plan)
    }

    /// The first folder that is there or can be made, and that is this user's alone.
    fn folder(&self) -> Option<PathBuf> {
        self.folders.iter().find_map(|folder| cache::secure(folder).ok())
    }
}

/// The plan that was kept, if it is whole and was made for this file by this planner.
fn kept(folder: &Path, key: &Key) -> Option<Plan> {
    let (file, bytes) = cache::read(&folder.join(&key.name), MAX_PLAN + 1024).ok()?;
    let rest = bytes.strip_prefix(&*key.begin)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let is_whole = u64::from_le_bytes(*length) == rest.len() as u64
        && u32::from_le_bytes(*checksum) == crc32fast::hash(rest);
    let plan = Plan::from_bytes(rest).filter(|_| is_whole)?;
    let now = SystemTime::now();
    let time = file.metadata().and_then(|facts| facts.modified()).unwrap_or(now);
    if age(time, now).is_none_or(|age| age >= FRESH) {
        // If it fails, this one is removed too early, and made again.
        let _ = file.set_modified(now);
    }
    Some(plan)
}

/// `None` for a time to come.
fn age(time: SystemTime, now: SystemTime) -> Option<Duration> {
    now.duration_since(time).ok()
}

/// Others see all of a file or nothing.
fn keep(folder: &Path, key: &Key, plan: &Plan) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let bytes = plan.to_bytes();
    if bytes.len() as u64 > MAX_PLAN {
        return Ok(());
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}.{}-{number}", key.name, std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&key.begin)?;
        file.write_all(&(bytes.len() as u64).to_le_bytes())?;
        file.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
        file.write_all(&bytes)?;
        fs::rename(&temporary, folder.join(&key.name))
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes the plans that weren't used for longest, until all others have at most so many bytes;
/// and what processes left that were killed.
fn prune(folder: &Path, most: u64) -> io::Result<()> {
    let now = SystemTime::now();
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(facts) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let time = facts.modified().unwrap_or(now);
        if name.ends_with(ENDING) {
            all.push((time, facts.len(), entry.path()));
        } else if name.starts_with('.') && name.contains(ENDING) && age(time, now) > Some(FRESH) {
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
    all.sort();
    let mut size: u64 = all.iter().map(|(_, length, _)| length).sum();
    for (_, length, path) in all {
        if size <= most {
            break;
        }
        let _ = fs::remove_file(path);
        size -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::process::Command;

    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        cache: Cache,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = Cache::in_folder(&folder.path().join("cache"));
            Self { folder, cache }
        }

        /// A library with a function that returns this number.
        fn library(&self, number: u32, id: &str) -> PathBuf {
            let (source, library) =
                (self.folder.path().join("a.c"), self.folder.path().join(format!("{number}.so")));
            fs::write(&source, format!("int number(int *a) {{ return *a * {number} + 5; }}\n")).unwrap();
            let id = format!("-Wl,--build-id={id}");
            let arguments = ["-O1", "-shared", "-fPIC", &id];
            let status = Command::new("cc").args(arguments).arg(&source).arg("-o").arg(&library).status();
            assert!(status.unwrap().success());
            library
        }

        fn kept(&self, library: &Path) -> Option<Plan> {
            let key = Key::of(&read(library).unwrap())?;
            kept(&self.cache.folder()?, &key)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(self.cache.folder().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect()
        }

        /// The only kept plan.
        fn file(&self) -> PathBuf {
            let files = self.files();
            assert_eq!(files.len(), 1, "{files:?}");
            files[0].clone()
        }
    }

    #[test]
    fn the_second_plan_is_the_first() {
        let place = Place::new();
        let library = place.library(7, "0x1234");
        assert_eq!(place.kept(&library), None);
        let plan = place.cache.plan(&library).unwrap();
        assert!(plan.functions.iter().all(|function| function.name.is_empty()) && !plan.patches.is_empty());
        assert_eq!(place.kept(&library).as_ref(), Some(&plan));
        let before = fs::metadata(place.file()).unwrap();
        assert_eq!(before.mode() & 0o777, 0o600);
        assert_eq!(place.cache.plan(&library).unwrap(), plan);
        assert_eq!(fs::metadata(place.file()).unwrap().ino(), before.ino(), "written again");
        // Use keeps it young.
        let old = SystemTime::now() - 100 * FRESH;
        File::open(place.file()).unwrap().set_modified(old).unwrap();
        assert_eq!(place.cache.plan(&library).unwrap(), plan);
        assert!(fs::metadata(place.file()).unwrap().modified().unwrap() > old + FRESH);
    }

    #[test]
    fn another_file_with_the_same_build_id_has_its_own() {
        let place = Place::new();
        let (one, other) = (place.library(7, "0x1234"), place.library(9, "0x1234"));
        let plan = place.cache.plan(&one).unwrap();
        assert_eq!(place.kept(&other), None);
        assert_ne!(place.cache.plan(&other).unwrap(), plan);
        assert_eq!(place.kept(&one), Some(plan));
    }

    #[test]
    fn files_without_build_id_arent_kept() {
        let place = Place::new();
        let library = place.library(7, "none");
        place.cache.plan(&library).unwrap();
        assert!(!place.folder.path().join("cache").exists());
    }

    /// Each byte, and each length.
    #[test]
    fn damage_is_noticed() {
        let place = Place::new();
        let library = place.library(7, "sha1");
        let plan = place.cache.plan(&library).unwrap();
        let file = place.file();
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&file, &damaged).unwrap();
            assert_eq!(place.kept(&library), None, "byte {at} of {}", whole.len());
            fs::write(&file, &whole[..at]).unwrap();
            assert_eq!(place.kept(&library), None, "{at} bytes of {}", whole.len());
        }
        fs::write(&file, [&whole[..], &[0]].concat()).unwrap();
        assert_eq!(place.kept(&library), None);
        assert_eq!(place.cache.plan(&library).unwrap(), plan);
        assert_eq!(fs::read(&file).unwrap(), whole, "repaired");
    }

    #[test]
    fn only_own_files_are_read() {
        let place = Place::new();
        let library = place.library(7, "sha1");
        let plan = place.cache.plan(&library).unwrap();
        let file = place.file();
        for (mode, is_read) in [(0o620, false), (0o602, false), (0o644, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(place.kept(&library).is_some(), is_read, "{mode:o}");
        }
        let elsewhere = place.folder.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(place.kept(&library), None, "a link");
        assert_eq!(place.cache.plan(&library).unwrap(), plan);
        assert!(place.kept(&library).is_some() && !file.is_symlink());
        if chown(&file, Some(65_533), None).is_ok() {
            assert_eq!(place.kept(&library), None, "of another user");
            assert_eq!(place.cache.plan(&library).unwrap(), plan);
        }
        // Others may write to the folder: nothing in it is read or written.
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(place.cache.folder(), None);
        assert_eq!(place.cache.plan(&library).unwrap(), plan);
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn plans_are_made_where_nothing_can_be_kept() {
        let place = Place::new();
        let library = place.library(7, "sha1");
        let file = place.folder.path().join("file");
        fs::write(&file, "").unwrap();
        for folder in [file.join("no"), PathBuf::from("/proc/self/no"), PathBuf::from("/dev/full")] {
            let plan = Cache::in_folder(&folder).plan(&library).unwrap();
            assert!(!plan.patches.is_empty());
        }
        let nobodys = Cache { folders: Vec::new(), most: 0 };
        assert!(!nobodys.plan(&library).unwrap().patches.is_empty());
    }

    #[test]
    fn the_oldest_go() {
        let mut place = Place::new();
        let libraries = [place.library(3, "0x0003"), place.library(5, "0x0005"), place.library(7, "0x0007")];
        place.cache.plan(&libraries[0]).unwrap();
        let one = fs::metadata(place.file()).unwrap().len();
        let left = place.file().with_file_name(".0003.plan.1-1");
        fs::write(&left, "killed").unwrap();
        File::open(&left).unwrap().set_modified(SystemTime::now() - 2 * FRESH).unwrap();
        place.cache.most = 2 * one + one / 2;
        place.cache.plan(&libraries[1]).unwrap();
        assert!(!left.exists());
        // The first one is used later than the second.
        for (library, age) in [(&libraries[0], 1), (&libraries[1], 2)] {
            let key = Key::of(&read(library).unwrap()).unwrap();
            let file = File::open(place.cache.folder().unwrap().join(&key.name)).unwrap();
            file.set_modified(SystemTime::now() - age * Duration::from_secs(60)).unwrap();
        }
        place.cache.plan(&libraries[2]).unwrap();
        let is_kept = libraries.each_ref().map(|library| place.kept(library).is_some());
        assert_eq!(is_kept, [true, false, true]);
        place.cache.most = 0;
        place.cache.plan(&libraries[1]).unwrap();
        assert!(place.files().is_empty());
    }

    #[test]
    fn several_at_once_keep_one() {
        let place = Place::new();
        let library = place.library(7, "sha1");
        let plan = || place.cache.plan(&library).unwrap();
        let plans: Vec<Plan> = std::thread::scope(|scope| {
            let start = || std::thread::Builder::new().spawn_scoped(scope, plan).unwrap();
            let threads: Vec<_> = (0..8).map(|_| start()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(plans.iter().all(|plan| *plan == plans[0]));
        assert_eq!(place.kept(&library).as_ref(), plans.first());
        place.file();
    }
}
