//! An instance of tracefs that root makes for a user, who can then record scheduling events without
//! privileges.
//!
//! The user gets the files that a recorder needs, and no others: with all of an instance's files,
//! one could trace every function of the kernel, and slow the machine down. Nor the size of its
//! buffers: root chooses it. `/sys/kernel/tracing` stays closed: the instance is bound to a folder
//! of its own.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::tracefs::{BUFFER_KB, EVENTS, MOUNT, UNUSED_KB, given, is_instance, mounted};

/// A file beside the users' folders: tracefs was mounted for them.
const MOUNTED: &str = "mounted";

/// The name of a user's instance.
fn name(uid: u32) -> String {
    format!("everycall-user-{uid}")
}

/// Why an instance can't be given, or taken back.
#[derive(Debug)]
pub enum Error {
    /// Only root may do it.
    NotRoot,
    /// There is no such user.
    NoUser,
    /// The kernel refuses: what, and why.
    Refused(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotRoot => f.write_str("only root may give access to the kernel's scheduling events"),
            Error::NoUser => f.write_str("there is no such user"),
            Error::Refused(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Gives `user` (a name or a number) an instance, until the machine is restarted. Does nothing if
/// there is one already. Returns its folder.
///
/// # Errors
///
/// The caller isn't root, the user is unknown, or the kernel refuses.
pub fn give(user: &str) -> Result<PathBuf, Error> {
    let uid = known(user)?;
    let folder = given(uid);
    if is_instance(&folder) {
        // One that an older version gave included it.
        bound(&folder).map_err(|error| refused(&format!("{} can't be bounded", folder.display()), error))?;
        return Ok(folder);
    }
    let root = match mounted() {
        Some(root) => root,
        None => {
            mount("tracefs", MOUNT, "tracefs", MountFlags::empty(), None)
                .map_err(|error| refused("tracefs can't be mounted", error.into()))?;
            mark_mounted(&folder);
            PathBuf::from(MOUNT)
        }
    };
    let instance = root.join("instances").join(name(uid));
    let made = make(&instance, &folder, uid);
    if made.is_err() {
        let _ = take(&root, &folder, uid);
    }
    made.map(|()| folder)
}

/// Takes back the instance that [`give`] gave. Returns whether there was one.
///
/// # Errors
///
/// The caller isn't root, the user is unknown, or the kernel refuses.
pub fn take_back(user: &str) -> Result<bool, Error> {
    let uid = known(user)?;
    let folder = given(uid);
    let Some(root) = mounted() else { return Ok(false) };
    let was_given = folder.exists() || root.join("instances").join(name(uid)).exists();
    if was_given {
        take(&root, &folder, uid)?;
    }
    Ok(was_given)
}

fn refused(what: &str, error: io::Error) -> Error {
    Error::Refused(what.to_owned(), error)
}

/// The user's number, if the caller may act for it.
fn known(user: &str) -> Result<u32, Error> {
    if !Uid::effective().is_root() {
        return Err(Error::NotRoot);
    }
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    User::from_name(user).ok().flatten().map(|user| user.uid.as_raw()).ok_or(Error::NoUser)
}

fn make(instance: &Path, folder: &Path, uid: u32) -> Result<(), Error> {
    let at = |path: &Path| format!("{} can't be made", path.display());
    match fs::create_dir(instance) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused(&at(instance), error));
        }
        _ => {}
    }
    for path in paths(instance).map_err(|error| refused(&at(instance), error))? {
        chown(&path, Some(uid), None)
            .map_err(|error| refused(&format!("{} can't be given to the user", path.display()), error))?;
    }
    bound(instance).map_err(|error| refused(&format!("{} can't be bounded", instance.display()), error))?;
    let make = || {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755).create(folder)?;
        mount_bind(instance, folder).map_err(io::Error::from)
    };
    make().map_err(|error| refused(&at(folder), error))
}

/// Remembers that tracefs was mounted for this, so that it is unmounted when the last user's
/// instance is taken back.
fn mark_mounted(folder: &Path) {
    let Some(parent) = folder.parent() else { return };
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
    let mark = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(parent.join(MOUNTED))
    };
    // Without it, tracefs stays mounted.
    let _ = made.and_then(|()| mark());
}

/// Gives an instance its memory, and keeps that root's: its user could take any amount of the
/// kernel's.
fn bound(instance: &Path) -> io::Result<()> {
    let size = instance.join("buffer_size_kb");
    chown(&size, Some(0), None)?;
    fs::write(&size, BUFFER_KB.start().to_string())
}

/// The paths of an instance that a recorder uses, the instance first.
fn paths(instance: &Path) -> io::Result<Vec<PathBuf>> {
    const NAMES: [&str; 7] =
        ["", "tracing_on", "trace_clock", "trace", "events", "events/sched", "events/task"];
    let mut all: Vec<PathBuf> = NAMES.iter().map(|name| instance.join(name)).collect();
    for event in EVENTS {
        let event = instance.join("events").join(event);
        all.extend([event.join("enable"), event.join("filter"), event.join("format"), event]);
    }
    let cpus = instance.join("per_cpu");
    for entry in fs::read_dir(&cpus)? {
        let cpu = entry?.path();
        all.extend([cpu.join("trace_pipe_raw"), cpu]);
    }
    all.push(cpus);
    Ok(all)
}

/// Removes an instance. The kernel may close the files of a recorder that has just ended somewhat
/// later, so what is busy is tried again for a second.
fn remove(instance: &Path) -> io::Result<()> {
    for _ in 0..20 {
        match fs::remove_dir(instance) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
    fs::remove_dir(instance)
}

/// Takes back what can be: the kernel can't close files that are open. New ones can't be opened any
/// more, and nothing is recorded.
fn revoke(instance: &Path) {
    for path in paths(instance).unwrap_or_default() {
        let _ = chown(&path, Some(0), None);
    }
    for event in EVENTS {
        let _ = fs::write(instance.join("events").join(event).join("enable"), "0");
    }
    for (name, value) in [("tracing_on", "0"), ("trace", ""), ("buffer_size_kb", UNUSED_KB)] {
        let _ = fs::write(instance.join(name), value);
    }
}

/// The processes that have files of an instance open, with their names, as far as they can be seen.
fn holders(instance: &Path) -> Vec<(u32, String)> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    let files: HashSet<_> =
        paths(instance).unwrap_or_default().iter().filter_map(|path| identity(path)).collect();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| identity(&entry.path())).any(|file| files.contains(&file))
    };
    let name =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    let mut found: Vec<(u32, String)> = pids.filter(holds).map(|pid| (pid, name(pid))).collect();
    found.sort_unstable();
    found
}

fn take(root: &Path, folder: &Path, uid: u32) -> Result<(), Error> {
    let instance = root.join("instances").join(name(uid));
    revoke(&instance);
    match remove(&instance) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let holders = holders(&instance);
            let shown: Vec<String> =
                holders.iter().map(|(pid, command)| format!("{pid} (`{command}`)")).collect();
            let who = match shown.len() {
                0 => "a process that can't be seen from here has files of it open".to_owned(),
                1 => format!("process {} has files of it open", shown.join(", ")),
                _ => format!("processes {} have files of it open", shown.join(", ")),
            };
            let ids: Vec<String> = holders.iter().map(|(pid, _)| pid.to_string()).collect();
            let end =
                if ids.is_empty() { "End it".to_owned() } else { format!("End it (kill {})", ids.join(" ")) };
            return Err(refused(
                &format!(
                    "{} can't be removed yet: {who}, which the kernel can't close. The user can't open others any more, and nothing is \
                     recorded. {end}, and try again",
                    instance.display()
                ),
                error,
            ));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(refused(&format!("{} can't be removed", instance.display()), error));
        }
        _ => {}
    }
    match unmount(folder, UnmountFlags::DETACH) {
        // It isn't mounted, or isn't there.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => {
            return Err(refused(&format!("{} can't be unmounted", folder.display()), error.into()));
        }
    }
    let _ = fs::remove_dir(folder);
    let Some(parent) = folder.parent() else { return Ok(()) };
    let others = fs::read_dir(parent).into_iter().flatten().flatten();
    if others.into_iter().all(|entry| entry.file_name() == MOUNTED) {
        // No other user has one. A mount that was made for them goes too, unless it is in use.
        let mark = parent.join(MOUNTED);
        if mark.exists() && !matches!(unmount(MOUNT, UnmountFlags::empty()), Err(Errno::BUSY)) {
            let _ = fs::remove_file(&mark);
        }
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}
