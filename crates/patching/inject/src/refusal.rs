//! Whether a process may be changed: everything that can be known before it is touched.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use crate::error::InjectError;
use crate::procfs::{Status, threads};
use crate::sys;

/// Whether a process can be changed from outside.
///
/// # Errors
///
/// [`InjectError::Refused`] says what is in the way, [`InjectError::Ended`] that it is gone.
pub fn check(pid: i32) -> Result<(), InjectError> {
    let refused = |why: String| Err(InjectError::Refused(why));
    let status = Status::of(pid, pid).ok_or(InjectError::Ended { pid })?;
    if status.has_ended() {
        return Err(InjectError::Ended { pid });
    }
    if status.number("Kthread") == Some(1) {
        return refused(format!("process {pid} is a thread of the kernel"));
    }
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let owner = status.number("Uid").unwrap_or(0);
    if user != 0 && owner != i64::from(user) {
        return refused(format!(
            "process {pid} belongs to another user ({owner}): run as this user or as root"
        ));
    }
    for tid in threads(pid) {
        let Some(status) = Status::of(pid, tid).filter(|status| !status.has_ended()) else { continue };
        if let Some(tracer) = status.number("TracerPid").filter(|tracer| *tracer != 0) {
            return refused(format!("process {pid} is traced by process {tracer} already (a debugger?)"));
        }
        match status.number("Seccomp") {
            Some(1) => {
                return refused(format!("thread {tid} of process {pid} may make no system calls (seccomp)"));
            }
            Some(2) => {
                return refused(format!(
                    "thread {tid} of process {pid} is restricted by a seccomp filter, which may end the process"
                ));
            }
            _ => {}
        }
        if status.field("x86_Thread_features").is_some_and(|features| features.contains("shstk")) {
            return refused(format!("process {pid} has a shadow stack, which isn't supported"));
        }
    }
    let memory = fs::metadata(format!("/proc/{pid}/mem")).map_err(|_| InjectError::Ended { pid })?;
    // The kernel gives files about an undumpable process to root.
    if owner != 0 && memory.uid() == 0 && user != 0 {
        return refused(format!(
            "process {pid} isn't dumpable (setuid, or by prctl): only root may change it"
        ));
    }
    if let Some(parent) = status.number("PPid").and_then(|parent| i32::try_from(parent).ok())
        && sys::share_memory(pid, parent)
    {
        return refused(format!(
            "process {pid} shares its memory with its parent, process {parent} (vfork, CLONE_VM)"
        ));
    }
    if user != 0 {
        scope(pid)?;
    }
    check_traced(pid)
}

/// Whether a program may be started and changed by this process.
///
/// # Errors
///
/// [`InjectError::Refused`] says what is in the way.
pub fn check_start() -> Result<(), InjectError> {
    let scope = yama_scope();
    let is_root = fs::metadata("/proc/self").map_or(0, |own| own.uid()) == 0;
    let why = match scope.as_str() {
        "3" => "no process may be changed until the next boot",
        "2" if !is_root => "only root may change processes",
        _ => return Ok(()),
    };
    Err(InjectError::Refused(format!("{why} (/proc/sys/kernel/yama/ptrace_scope is {scope})")))
}

fn yama_scope() -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    scope.trim().to_owned()
}

/// Checks that also a program that this process started must pass.
pub(crate) fn check_traced(pid: i32) -> Result<(), InjectError> {
    let refused = |why: String| Err(InjectError::Refused(why));
    let mut head = [0u8; 5];
    let exe = fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut file| file.read_exact(&mut head));
    match exe {
        Ok(()) if head == *b"\x7fELF\x01" => refused(format!("process {pid} is a 32-bit program")),
        Ok(()) => Ok(()),
        Err(error) => refused(format!("the executable of process {pid} can't be read: {error}")),
    }
}

/// Whether all threads run: one that waits for a lock of a stopped one would wait, too.
pub(crate) fn check_goes_on(pid: i32) -> Result<(), InjectError> {
    match Status::of(pid, pid).map(|status| status.state()) {
        Some('T') => Err(InjectError::Refused(format!(
            "process {pid} is stopped; let it go on first: kill -CONT {pid}"
        ))),
        _ => Ok(()),
    }
}

/// Yama's restriction, for users that aren't root.
fn scope(pid: i32) -> Result<(), InjectError> {
    let scope = yama_scope();
    let why = match scope.as_str() {
        "1" if !is_descendant(pid) => "only processes that everycall started may be changed",
        "2" => "only root may change processes",
        "3" => "no process may be changed until the next boot",
        _ => return Ok(()),
    };
    Err(InjectError::Refused(format!(
        "{why} (/proc/sys/kernel/yama/ptrace_scope is {scope}): process {pid} wasn't touched"
    )))
}

fn is_descendant(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let parent = |pid: i32| Status::of(pid, pid)?.number("PPid").and_then(|pid| i32::try_from(pid).ok());
    let mut current = pid;
    // Parents end at 0; the bound is for processes that come and go meanwhile.
    for _ in 0..1000 {
        match parent(current) {
            Some(next) if next == own => return true,
            Some(next) if next > 1 => current = next,
            _ => return false,
        }
    }
    false
}
