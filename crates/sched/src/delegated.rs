//! An instance of tracefs that root makes for a user, who can then record scheduling events without
//! privileges.
//!
//! The user gets the files that a recorder needs, and no others: with all of an instance's files,
//! one could trace every function of the kernel, and slow the machine down. `/sys/kernel/tracing`
//! stays closed: the instance is bound to a folder of its own.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::tracefs::{EVENTS, MOUNT, given, is_instance, mounted};

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
        return Ok(folder);
    }
    let root = match mounted() {
        Some(root) => root,
        None => {
            mount("tracefs", MOUNT, "tracefs", MountFlags::empty(), None)
                .map_err(|error| refused("tracefs can't be mounted", error.into()))?;
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

/// Takes back what [`give`] gave. Returns whether there was anything.
///
/// # Errors
///
/// The same.
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
    let make = || {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755).create(folder)?;
        mount_bind(instance, folder).map_err(io::Error::from)
    };
    make().map_err(|error| refused(&at(folder), error))
}

/// What a recorder uses of an instance: the instance first.
fn paths(instance: &Path) -> io::Result<Vec<PathBuf>> {
    const NAMES: [&str; 8] =
        ["", "tracing_on", "trace_clock", "buffer_size_kb", "trace", "events", "events/sched", "events/task"];
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

fn take(root: &Path, folder: &Path, uid: u32) -> Result<(), Error> {
    // While it is used, all stays as it is.
    let instance = root.join("instances").join(name(uid));
    match remove(&instance) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(refused(
                &format!(
                    "{} can't be removed: a recorder uses it now. End it, and try again",
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
    // Empty only if no other user has one.
    let _ = folder.parent().map(fs::remove_dir);
    Ok(())
}
