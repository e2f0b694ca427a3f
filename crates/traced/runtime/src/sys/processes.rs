//! Facts about processes and threads that the kernel provides.
#![allow(unsafe_code)] // System calls.

use crate::sys::errors::errno;
use crate::sys::file::File;
use crate::sys::name::Name;
use crate::sys::system;
use everycall_hooks::arch::{kernel, number};
use everycall_hooks::syscall;

/// The name of the process: that of its first thread, NUL padded.
pub(crate) fn process_name() -> [u8; 16] {
    let mut name = [0; 16];
    if let Some(file) = File::open(b"/proc/self/comm\0", false) {
        let count = file.read(&mut name);
        if let Some(end) = name.get_mut(count.saturating_sub(1)) {
            *end = 0;
        }
    }
    name
}

/// Whether the process doesn't exist any more.
pub(crate) fn process_is_gone(process: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { syscall(number::KILL, [process as usize, 0, 0, 0, 0, 0]) == errno::ESRCH }
}

/// Whether a process has ended. This is also true for a zombie, which may exist for long.
pub(crate) fn process_has_ended(process: u32) -> bool {
    if process_is_gone(process) {
        return true;
    }
    // SAFETY: makes a descriptor, which is closed below.
    let descriptor = unsafe { syscall(number::PIDFD_OPEN, [process as usize, 0, 0, 0, 0, 0]) };
    // Before Linux 5.3, there is no such call.
    let Ok(file) = File::from_result(descriptor) else { return descriptor == errno::ESRCH };
    const POLLIN: u64 = 1;
    let mut polled = file.number() as u64 | POLLIN << 32;
    // SAFETY: reads and writes one pollfd, a 64-bit word: the descriptor, then the events that are
    // waited for.
    unsafe { kernel::poll(&raw mut polled, 1, 0) == 1 }
}

/// The beginning of the process's command line, with a NUL after each word: as much of it as fits.
/// Empty if it can't be read.
pub(crate) fn command_line(buffer: &mut [u8]) -> &[u8] {
    let Some(file) = File::open(b"/proc/self/cmdline\0", false) else { return &[] };
    let mut length = 0;
    while let Some(free) = buffer.get_mut(length..).filter(|free| !free.is_empty()) {
        match file.read(free) {
            0 => break,
            count => length += count,
        }
    }
    buffer.get(..length).unwrap_or(&[])
}

/// The name of thread `tid` of this process, NUL padded. `None` if the thread is gone or its name
/// can't be read.
pub(crate) fn name_of_thread(tid: u32) -> Option<[u8; 16]> {
    const HEAD: &[u8] = b"/proc/self/task/";
    const TAIL: &[u8] = b"/comm\0";
    let mut path = [0; HEAD.len() + 10 + TAIL.len()];
    let mut unit = 1_u32;
    while tid / 10 >= unit {
        unit *= 10;
    }
    let digits = core::iter::successors(Some(unit), |unit| Some(unit / 10)).take_while(|unit| *unit > 0);
    let digits = digits.map(|unit| b'0' + (tid.checked_div(unit).unwrap_or(0) % 10) as u8);
    let text = HEAD.iter().copied().chain(digits).chain(TAIL.iter().copied());
    path.iter_mut().zip(text).for_each(|(to, from)| *to = from);
    let mut name = [0; 16];
    let count = File::open(&path, false)?.read(&mut name);
    // The newline at the end.
    let end = name.get_mut(count.checked_sub(1)?).filter(|end| **end == b'\n')?;
    *end = 0;
    Some(name)
}

/// Writes the working folder, with a NUL. Returns its length without the NUL, or 0 if it has no
/// path.
pub(crate) fn working_folder(buffer: &mut [u8]) -> usize {
    // SAFETY: writes into the buffer only.
    let count = unsafe { syscall(number::GETCWD, [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0]) };
    // A folder that isn't reachable from the root begins with "(unreachable)".
    let is_path = buffer.first() == Some(&b'/');
    usize::try_from(count).ok().filter(|_| is_path).and_then(|count| count.checked_sub(1)).unwrap_or(0)
}

/// The process's name and id, as in `app-1234`.
pub(crate) fn file_name() -> Name {
    let mut name = Name::empty();
    for byte in process_name().into_iter().take_while(|byte| *byte != 0) {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | 0x80..);
        // It must not begin with a dot, which would hide the file.
        name.put(&[if is_plain && (byte != b'.' || !name.is_empty()) { byte } else { b'_' }]);
    }
    name.put(b"-");
    name.put_number(system::process_id());
    name
}

/// The address of the program's name, which the kernel puts at the top of the first thread's stack.
pub(crate) fn top_of_first_stack() -> Option<u64> {
    const AT_EXECFN: u64 = 31;
    auxiliary(AT_EXECFN)
}

/// A value of the auxiliary vector. `None` without `/proc`, or if the kernel doesn't let the process
/// read it.
pub(crate) fn auxiliary(wanted: u64) -> Option<u64> {
    let mut bytes = [0; 1024];
    let length = File::open(b"/proc/self/auxv\0", false)?.read(&mut bytes);
    let (values, _) = bytes.get(..length)?.as_chunks::<8>();
    let (pairs, _) = values.as_chunks::<2>();
    let found = pairs.iter().find(|[kind, _]| u64::from_le_bytes(*kind) == wanted);
    found.map(|[_, value]| u64::from_le_bytes(*value))
}
