//! Memory in the process, by a borrowed thread's system calls.

use std::fs::File;
use std::ops::Range;

use crate::error::{InjectError, failed};
use crate::maps::{gap_near, mappings};
use crate::memory::Memory;
use crate::remote::Borrowed;

const PRIVATE_FIXED: i32 = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
/// Gaps that others take between a look at the mappings and the call.
const ATTEMPTS: usize = 8;

/// The process's access to a region. Its contents are written from outside in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Code: the process may read and execute it.
    Execute,
    /// Data: the process may read and write it.
    Write,
}

impl Access {
    fn protection(self) -> i32 {
        match self {
            Self::Execute => libc::PROT_READ | libc::PROT_EXEC,
            Self::Write => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Maps and fills memory within reach of 32-bit displacements from all of `module`.
pub(crate) fn map_near(
    pid: i32,
    memory: &Memory,
    borrowed: &mut Borrowed,
    module: Range<u64>,
    contents: &[u8],
    access: Access,
) -> Result<u64, InjectError> {
    let size = contents.len().max(1) as u64;
    for _ in 0..ATTEMPTS {
        let at = gap_near(&mappings(pid)?, module.clone(), size).ok_or_else(|| {
            InjectError::Refused(format!(
                "process {pid} has no {size} free bytes within 2 GiB of {:#x}",
                module.start
            ))
        })?;
        match map_at(pid, memory, borrowed, at, contents, access) {
            Err(InjectError::System { error, .. }) if error.raw_os_error() == Some(libc::EEXIST) => {}
            result => return result.map(|()| at),
        }
    }
    Err(InjectError::Refused(format!("process {pid} maps memory faster than a gap can be taken")))
}

/// Maps and fills memory at a free place.
pub(crate) fn map_at(
    pid: i32,
    memory: &Memory,
    borrowed: &mut Borrowed,
    at: u64,
    contents: &[u8],
    access: Access,
) -> Result<(), InjectError> {
    let size = (contents.len().max(1) as u64).next_multiple_of(4096);
    let protection = access.protection() as u64;
    let anonymous = (PRIVATE_FIXED | libc::MAP_ANONYMOUS) as u64;
    let map = [at, size, protection, anonymous, u64::MAX, 0];
    let what = "mapping memory in the process";
    let result = match borrowed.call(what, libc::SYS_mmap, map) {
        // SELinux's execmem: code has to come from a file.
        Err(InjectError::System { error, .. })
            if access == Access::Execute
                && matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) =>
        {
            map_file(pid, borrowed, at, size, contents)?
        }
        result => result?,
    };
    is_there(borrowed, result, at, size)?;
    memory.write(at, contents).map_err(failed("writing to the process's memory"))
}

/// A kernel older than MAP_FIXED_NOREPLACE takes the address as a hint.
fn is_there(borrowed: &mut Borrowed, result: u64, at: u64, size: u64) -> Result<(), InjectError> {
    if result == at {
        return Ok(());
    }
    borrowed.call("unmapping", libc::SYS_munmap, [result, size, 0, 0, 0, 0])?;
    let error = std::io::Error::from_raw_os_error(libc::EEXIST);
    Err(InjectError::System { what: "mapping memory in the process", error })
}

/// From a file in memory that has no other name.
fn map_file(
    pid: i32,
    borrowed: &mut Borrowed,
    at: u64,
    size: u64,
    contents: &[u8],
) -> Result<u64, InjectError> {
    let map = (Access::Execute.protection(), PRIVATE_FIXED);
    map_new_file(pid, borrowed, (at, size), contents, map).map(|(at, _)| at)
}

/// Maps zeros that the process may write, and that its children share. The file of them stays when
/// the process has ended.
pub(crate) fn map_shared(pid: i32, borrowed: &mut Borrowed, at: u64, size: u64) -> Result<File, InjectError> {
    let map = (Access::Write.protection(), libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    let (result, file) = map_new_file(pid, borrowed, (at, size), &[], map)?;
    is_there(borrowed, result, at, size)?;
    Ok(file)
}

/// A file in memory of the process, open there under the number that is returned.
pub(crate) fn new_file(
    pid: i32,
    borrowed: &mut Borrowed,
    size: u64,
    contents: &[u8],
) -> Result<(u64, File), InjectError> {
    let file = borrowed.call(
        "creating a file in memory",
        libc::SYS_memfd_create,
        [borrowed.empty_text(), u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0],
    )?;
    let host = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/fd/{file}"))
        .and_then(|host| {
            host.set_len(size)?;
            std::os::unix::fs::FileExt::write_all_at(&host, contents, 0)?;
            Ok(host)
        })
        .map_err(failed("writing to a file in memory"));
    match host {
        Ok(host) => Ok((file, host)),
        Err(error) => {
            close(borrowed, file)?;
            Err(error)
        }
    }
}

pub(crate) fn close(borrowed: &mut Borrowed, file: u64) -> Result<(), InjectError> {
    borrowed.call("closing a file", libc::SYS_close, [file, 0, 0, 0, 0, 0]).map(|_| ())
}

/// `map`: protection and flags.
fn map_new_file(
    pid: i32,
    borrowed: &mut Borrowed,
    (at, size): (u64, u64),
    contents: &[u8],
    (protection, flags): (i32, i32),
) -> Result<(u64, File), InjectError> {
    let (file, host) = new_file(pid, borrowed, size, contents)?;
    let map = [at, size, protection as u64, flags as u64, file, 0];
    let result = borrowed.call("mapping a file in memory", libc::SYS_mmap, map).map(|at| (at, host));
    close(borrowed, file)?;
    result
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::tracer::on_tracer;

    #[test]
    fn code_from_a_file() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id().cast_signed();
        let result = on_tracer(|| {
            let memory = Memory::open(pid).map_err(failed("opening"))?;
            let deadline = Instant::now() + Duration::from_secs(60);
            // clock_nanosleep: the loader and its open files are done.
            let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("its state");
            while !call().starts_with("230 ") {}
            let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").count();
            let before = files();
            let mut borrowed = Borrowed::new(pid, &memory, None, deadline)?;
            let module = mappings(pid)?[0].range.clone();
            let at = gap_near(&mappings(pid)?, module, 8192).expect("a gap");
            map_file(pid, &mut borrowed, at, 8192, b"some code")?;
            let maps = mappings(pid)?;
            let mapping = maps.iter().find(|mapping| mapping.range.start == at).expect("the mapping");
            assert!(mapping.is_executable && !mapping.is_writable);
            assert!(mapping.name.starts_with("/memfd:"), "{}", mapping.name);
            // It can be changed all the same, and its file is closed.
            memory.write(at + 5, b"data").map_err(failed("writing"))?;
            assert_eq!(files(), before);
            memory.read(at, 12).map_err(failed("reading"))
        });
        let _ = (child.kill(), child.wait());
        assert_eq!(result.expect("a round"), b"some data\0\0\0");
    }
}
