//! System calls by number, without a library: so they don't change `errno`, and can't be
//! interposed. There are few on purpose; `docs/reference/system-calls.md` lists them for seccomp
//! filters.
#![allow(unsafe_code)] // System calls.

use crate::sys::errors::{self, errno};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use everycall_format::arena::PAGE;
use everycall_hooks::arch::number;
use everycall_hooks::{BLOCKED_SIGNALS, TRAP_SIGNAL, syscall};

pub(crate) const PROT_READ: usize = 1;
pub(crate) const PROT_WRITE: usize = 2;
pub(crate) const PROT_EXEC: usize = 4;
pub(crate) const MAP_SHARED: usize = 0x01;
pub(crate) const MAP_FIXED: usize = 0x10;
pub(crate) const MAP_PRIVATE: usize = 0x02;
pub(crate) const MAP_ANONYMOUS: usize = 0x20;
pub(crate) const MAP_NORESERVE: usize = 0x4000;
pub(crate) const MADV_DONTNEED: usize = 4;
pub(crate) const MADV_DONTFORK: usize = 10;
pub(crate) const MADV_DONTDUMP: usize = 16;
pub(crate) const MADV_DODUMP: usize = 17;
pub(crate) const MADV_WIPEONFORK: usize = 18;
const MADV_POPULATE_READ: usize = 22;
pub(crate) const MADV_POPULATE_WRITE: usize = 23;
pub(crate) const CLOCK_REALTIME: usize = 0;
pub(crate) const CLOCK_MONOTONIC: usize = 1;
pub(crate) const CLOCK_MONOTONIC_RAW: usize = 4;
const PR_SET_NAME: usize = 15;
const PR_GET_NAME: usize = 16;
/// CPU time of the process, and of the calling thread.
pub(crate) const CLOCK_PROCESS_CPU: usize = 2;
pub(crate) const CLOCK_THREAD_CPU: usize = 3;
const RLIMIT_AS: usize = 9;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const RLIMIT_FSIZE: usize = 1;
const RLIMIT_DATA: usize = 2;
const RLIMIT_STACK: usize = 3;
const RLIMIT_MEMLOCK: usize = 8;

/// Maps memory; `descriptor` is -1 for anonymous memory.
pub(crate) fn map(length: u64, protection: usize, flags: usize, descriptor: isize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe {
        syscall(number::MMAP, [0, length as usize, protection, flags, descriptor.cast_unsigned(), 0])
    };
    (address > 0).then_some(address as *mut u8)
}

/// Moves a mapping of [`map`] or [`map_segment`] to the place of another one of the same length,
/// which it replaces. On failure, the first one is unmapped.
pub(crate) fn move_mapping(from: *mut u8, length: u64, to: *mut u8) -> Option<*mut u8> {
    const MAYMOVE_FIXED: usize = 3;
    let size = length as usize;
    // SAFETY: both belong to the caller, who keeps no references to them.
    let address =
        unsafe { syscall(number::MREMAP, [from as usize, size, size, MAYMOVE_FIXED, to as usize, 0]) };
    if address != to as isize {
        unmap(from, length);
        return None;
    }
    Some(to)
}

/// Maps a System V segment and marks it for removal at once. It has no name, file or descriptor,
/// but other processes of the same user can attach it by its number as long as a process has it
/// attached. Linux frees it when the last such process ends, in whatever way. `None` if the system
/// refuses a segment of that size.
pub(crate) fn map_segment(length: u64) -> Option<*mut u8> {
    const IPC_PRIVATE: usize = 0;
    const OWNER_ONLY: usize = 0o600;
    const IPC_CREAT: usize = 0o1000;
    const SHM_NORESERVE: usize = 0o10000;
    const IPC_RMID: usize = 0;
    let flags = IPC_CREAT | SHM_NORESERVE | OWNER_ONLY;
    // SAFETY: makes a segment, touches no memory.
    let segment = unsafe { syscall(number::SHMGET, [IPC_PRIVATE, length as usize, flags, 0, 0, 0]) };
    let segment = usize::try_from(segment).ok()?;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe { syscall(number::SHMAT, [segment, 0, 0, 0, 0, 0]) };
    // SAFETY: our own segment; it stays while it is attached.
    unsafe { syscall(number::SHMCTL, [segment, IPC_RMID, 0, 0, 0, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Unmaps memory from [`map`] or [`map_segment`].
pub(crate) fn unmap(address: *mut u8, length: u64) {
    // SAFETY: the caller's own mapping, to which it keeps no references.
    unsafe { syscall(number::MUNMAP, [address as usize, length as usize, 0, 0, 0, 0]) };
}

pub(crate) fn protect(address: u64, length: u64, protection: usize) -> Result<(), isize> {
    // SAFETY: callers change text pages between readable-executable and writable, content
    // untouched.
    done(unsafe { syscall(number::MPROTECT, [address as usize, length as usize, protection, 0, 0, 0]) })
}

/// Orders the memory accesses of all threads, according to the command.
pub(crate) fn membarrier(command: usize) -> Result<(), isize> {
    // SAFETY: changes no memory.
    done(unsafe { syscall(number::MEMBARRIER, [command, 0, 0, 0, 0, 0]) })
}

/// Whether a seccomp filter applies to the calling thread.
pub(crate) fn is_filtered() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: only returns a number.
    let result = unsafe { syscall(number::PRCTL, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) };
    // EINVAL: the kernel has no filters.
    result != 0 && result != errno::EINVAL
}

/// Locks all of the process's memory, as `mlockall` does.
pub(crate) fn lock_all(flags: u32) -> Result<(), isize> {
    // SAFETY: changes no memory.
    done(unsafe { syscall(number::MLOCKALL, [flags as usize, 0, 0, 0, 0, 0]) })
}

/// Locks as much of a range as possible. Its pages are loaded at once, or when they are touched
/// (`on_fault`).
pub(crate) fn lock_range(start: u64, size: u64, on_fault: bool) {
    // SAFETY: changes no memory.
    unsafe { syscall(number::MLOCK2, [start as usize, size as usize, on_fault.into(), 0, 0, 0]) };
}

/// Gives advice about memory. Returns the kernel's error if it is rejected.
pub(crate) fn advise(address: *mut u8, length: u64, advice: usize) -> Result<(), isize> {
    // SAFETY: the kinds of advice in use (DONTFORK, DONTDUMP, DODUMP, WIPEONFORK, POPULATE_READ and
    // _WRITE) don't change memory here.
    done(unsafe { syscall(number::MADVISE, [address as usize, length as usize, advice, 0, 0, 0]) })
}

/// Whether the kernel, or what stands for it, accepts advice that doesn't exist. Emulators of one
/// program do (QEMU's takes any advice for a hint), so that nothing follows from a success.
pub(crate) fn is_advice_ignored() -> bool {
    /// 0: not checked yet, 1: no, 2: yes.
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    const NOTHING: usize = 0x7fff_0000;
    if KNOWN.load(Relaxed) == 0 {
        let page = KNOWN.as_ptr() as u64 & !(PAGE - 1);
        KNOWN.store(if advise(page as *mut u8, PAGE, NOTHING).is_ok() { 2 } else { 1 }, Relaxed);
    }
    KNOWN.load(Relaxed) == 2
}

/// The result of a call that returns 0 or an error.
pub(crate) fn done(result: isize) -> Result<(), isize> {
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Writes a warning to standard error.
pub(crate) fn warn(parts: &[&[u8]]) {
    let mut line = [0; 512];
    let length = put_plain(&mut line, parts);
    // SAFETY: reads the line only.
    unsafe { syscall(number::WRITE, [2, line.as_ptr() as usize, length, 0, 0, 0]) };
}

/// Copies text into `line`, as far as it fits. Returns its length. Some of the text comes from
/// others, so control characters become question marks. The newline at the end of the line stays.
fn put_plain(line: &mut [u8], parts: &[&[u8]]) -> usize {
    let mut length = 0;
    let mut last = 0;
    for (index, part) in parts.iter().enumerate() {
        for (place, byte) in part.iter().copied().enumerate() {
            let is_end = byte == b'\n' && index + 1 == parts.len() && place + 1 == part.len();
            // Control characters beyond ASCII have two bytes, the first of which is C2.
            let is_control = byte.is_ascii_control() || last == 0xC2 && matches!(byte, 0x80..=0x9F);
            last = byte;
            if let Some(place) = line.get_mut(length) {
                *place = if is_control && !is_end { b'?' } else { byte };
                length += 1;
            }
        }
    }
    length
}

/// Writes some of `bytes`. Returns their number.
pub(crate) fn write(descriptor: i32, bytes: &[u8]) -> Result<usize, i32> {
    loop {
        let arguments = [descriptor as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        // SAFETY: only reads the bytes; the program chose the destination.
        match unsafe { syscall(number::WRITE, arguments) } {
            errno::EINTR => {}
            count @ 1.. => return Ok(count.cast_unsigned()),
            other => return Err(errors::told(other)),
        }
    }
}

pub(crate) fn process_id() -> u32 {
    // SAFETY: only returns a number.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

pub(crate) fn parent_id() -> u32 {
    // SAFETY: only returns a number.
    unsafe { syscall(number::GETPPID, [0; 6]) as u32 }
}

/// Whether the process's effective user or group differs from the real one.
pub(crate) fn has_other_rights() -> bool {
    let get = |number| {
        // SAFETY: only returns a number.
        unsafe { syscall(number, [0; 6]) }
    };
    get(number::GETUID) != get(number::GETEUID) || get(number::GETGID) != get(number::GETEGID)
}

/// The process's real user. `None` if the effective user is another one.
pub(crate) fn user() -> Option<u32> {
    let get = |number| {
        // SAFETY: only returns a number.
        unsafe { syscall(number, [0; 6]) as u32 }
    };
    let user = get(number::GETUID);
    (user == get(number::GETEUID)).then_some(user)
}

/// Whether the calling thread has capabilities, or can acquire some. True if that is unknown.
pub(crate) fn has_capabilities() -> bool {
    // Version 3 of the structures, and the calling thread.
    let header = [0x2008_0522_u32, 0];
    // The effective, permitted and inheritable sets: lower halves, then upper halves.
    let mut sets = [0_u32; 6];
    let arguments = [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: reads the header and writes the two structures behind it.
    let result = unsafe { syscall(number::CAPGET, arguments) };
    result != 0 || sets[1] != 0 || sets[4] != 0
}

/// The calling thread's id. `None` if a seccomp filter refuses the call.
pub(crate) fn thread_id() -> Option<u32> {
    // SAFETY: only returns a number.
    u32::try_from(unsafe { syscall(number::GETTID, [0; 6]) }).ok()
}

/// Whether the process no longer has this thread.
pub(crate) fn thread_is_gone(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { syscall(number::TGKILL, [process as usize, thread as usize, 0, 0, 0, 0]) == errno::ESRCH }
}

/// Sets a signal's handler, in which all signals are blocked. Interrupted system calls are
/// restarted.
pub(crate) fn handle_signal(signal: u32, handler: unsafe extern "C" fn(core::ffi::c_int), handler_end: u64) {
    const SA_RESTORER: u64 = 0x0400_0000;
    const SA_ONSTACK: u64 = 0x0800_0000;
    const SA_RESTART: u64 = 0x1000_0000;
    let action = [handler as usize as u64, SA_RESTORER | SA_ONSTACK | SA_RESTART, handler_end, u64::MAX];
    let arguments = [signal as usize, action.as_ptr() as usize, 0, size_of::<u64>(), 0, 0];
    // SAFETY: reads the kernel's sigaction: handler, flags, where it returns to, mask.
    unsafe { syscall(number::RT_SIGACTION, arguments) };
}

/// Closes all descriptors of the calling thread, which has a descriptor table of its own. Before
/// Linux 5.9, they stay open until the thread ends.
pub(crate) fn close_all() {
    // SAFETY: no other thread uses this table.
    unsafe { syscall(number::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]) };
}

/// Gives the calling thread the ordinary scheduling policy instead of an inherited one.
pub(crate) fn be_ordinary() {
    const SCHED_OTHER: usize = 0;
    let priority = 0_u32;
    // SAFETY: reads the priority.
    unsafe { syscall(number::SCHED_SETSCHEDULER, [0, SCHED_OTHER, &raw const priority as usize, 0, 0, 0]) };
}

/// Blocks the calling thread's signals as hooks do in the slow path. Returns the previous mask; its
/// signals stay blocked.
pub(crate) fn block_signals() -> u64 {
    const SIG_BLOCK: usize = 0;
    let unless_stepping = if everycall_hooks::is_stepping() { TRAP_SIGNAL } else { 0 };
    change_signal_mask(SIG_BLOCK, BLOCKED_SIGNALS & !unless_stepping)
}

/// Sets the calling thread's signal mask. Returns the previous one.
pub(crate) fn set_signal_mask(mask: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    change_signal_mask(SIG_SETMASK, mask)
}

fn change_signal_mask(how: usize, set: u64) -> u64 {
    let mut before = 0_u64;
    let arguments = [how, &raw const set as usize, &raw mut before as usize, size_of::<u64>(), 0, 0];
    // SAFETY: reads and writes one signal set of 64 bits.
    unsafe { syscall(number::RT_SIGPROCMASK, arguments) };
    before
}

/// The name of the calling thread, NUL padded.
pub(crate) fn thread_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: writes at most 16 bytes into the name.
    unsafe { syscall(number::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Names the calling thread; `name` ends with NUL.
pub(crate) fn set_thread_name(name: &[u8; 16]) {
    // SAFETY: reads the name up to its end.
    unsafe { syscall(number::PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// `RLIMIT_AS`, the most bytes of address space of the process.
pub(crate) fn address_space_limit() -> u64 {
    limit(RLIMIT_AS)
}

/// The hard limit, to which a process may raise that.
pub(crate) fn hard_address_space_limit() -> u64 {
    limits(RLIMIT_AS)[1]
}

/// `RLIMIT_STACK`, the most bytes of the first thread's stack.
pub(crate) fn stack_limit() -> u64 {
    limit(RLIMIT_STACK)
}

/// `RLIMIT_DATA`, the most bytes of private memory.
pub(crate) fn data_limit() -> u64 {
    limit(RLIMIT_DATA)
}

/// `RLIMIT_FSIZE`, the most bytes of a file. A process that exceeds it gets a signal that ends it.
pub(crate) fn file_size_limit() -> u64 {
    limit(RLIMIT_FSIZE)
}

/// `RLIMIT_MEMLOCK`, the most bytes that it may lock.
pub(crate) fn locked_memory_limit() -> u64 {
    limit(RLIMIT_MEMLOCK)
}

fn limit(resource: usize) -> u64 {
    limits(resource)[0]
}

/// Soft and hard limit.
fn limits(resource: usize) -> [u64; 2] {
    let mut limits = [u64::MAX; 2];
    // SAFETY: writes one rlimit64, two 64-bit words; changes no limit.
    unsafe { syscall(number::PRLIMIT64, [0, resource, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    limits
}

pub(crate) fn clock_ns(clock: usize) -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: writes one timespec, two 64-bit words.
    unsafe { syscall(number::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

pub(crate) fn yield_now() {
    // SAFETY: only yields the CPU.
    unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
}

/// Wakes all threads that wait on a futex, in any process.
pub(crate) fn wake(futex: &core::sync::atomic::AtomicU32) {
    // SAFETY: reads nothing of ours but the address.
    unsafe { syscall(number::FUTEX, [futex.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize, 0, 0, 0]) };
}

/// Waits until the futex isn't `value`, for at most `nanoseconds` (below one second).
pub(crate) fn wait(futex: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let time = [0_u64, nanoseconds];
    // SAFETY: reads the futex and the time.
    unsafe {
        syscall(
            number::FUTEX,
            [futex.as_ptr() as usize, FUTEX_WAIT, value as usize, time.as_ptr() as usize, 0, 0],
        )
    };
}

/// The alternate signal stack of the calling thread: its first address, and the address after it.
pub(crate) fn alternate_stack() -> Option<(u64, u64)> {
    const SS_DISABLE: u64 = 2;
    let mut stack = [0_u64; 3]; // pointer, flags, size
    // SAFETY: writes one stack_t, three 64-bit words.
    let result = unsafe { syscall(number::SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (result == 0 && stack[1] & SS_DISABLE == 0).then(|| (stack[0], stack[0].saturating_add(stack[2])))
}

/// Whether all pages that contain these bytes are readable. They need not be mapped.
pub(crate) fn is_readable(address: u64, size: u64) -> bool {
    let first = address & !(PAGE - 1);
    let end = address.saturating_add(size).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    match advise(first as *mut u8, end - first, MADV_POPULATE_READ) {
        Ok(()) if !is_advice_ignored() => true,
        Err(errno::EFAULT | errno::ENOMEM) => false,
        // The kernel is older than Linux 5.14, or an emulator, or a seccomp filter refuses the call.
        _ => (first..end).step_by(PAGE as usize).all(is_page_readable),
    }
}

/// Whether one page is readable: the kernel reads a signal set there and then rejects the request.
/// (Valgrind reports that.)
fn is_page_readable(address: u64) -> bool {
    const NOTHING: usize = usize::MAX;
    // SAFETY: no signal mask changes, because the request is invalid.
    unsafe {
        syscall(number::RT_SIGPROCMASK, [NOTHING, address as usize, 0, size_of::<u64>(), 0, 0])
            != errno::EFAULT
    }
}

/// Copies memory of this process from `address` on, which need not be readable. Returns how many
/// bytes could be read: all, or those before the first page that can't. `process`: the own id.
pub(crate) fn read_own(process: u32, address: u64, into: &mut [u8]) -> usize {
    /// A range that is longer is read up to there.
    const PIECES: usize = 4;
    let here = [into.as_mut_ptr() as u64, into.len() as u64];
    // Page by page: what the kernel can't read of a piece, it may not read at all.
    let mut pieces = [[0_u64; 2]; PIECES];
    let (mut at, mut left, mut count) = (address, into.len() as u64, 0);
    for piece in &mut pieces {
        if left == 0 {
            break;
        }
        let size = left.min(PAGE - at % PAGE);
        *piece = [at, size];
        (at, left, count) = (at.wrapping_add(size), left - size, count + 1);
    }
    let arguments = [process as usize, here.as_ptr() as usize, 1, pieces.as_ptr() as usize, count, 0];
    // SAFETY: writes at most as many bytes into the buffer as it has.
    let read = unsafe { syscall(number::PROCESS_VM_READV, arguments) };
    usize::try_from(read).unwrap_or(0).min(into.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_up_to_what_cant_be() {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        let base = map(3 * PAGE, PROT_READ | PROT_WRITE, flags, -1).unwrap() as u64;
        protect(base + 2 * PAGE, PAGE, 0).unwrap();
        // SAFETY: mapped above.
        unsafe { core::slice::from_raw_parts_mut(base as *mut u8, 2 * PAGE as usize) }.fill(7);
        let mut bytes = [0; 100];
        let mut read = |address: u64| {
            bytes.fill(0);
            let count = read_own(process_id(), address, &mut bytes);
            assert!(bytes[..count].iter().all(|byte| *byte == 7));
            count
        };
        assert_eq!(read(base), 100);
        assert_eq!(read(base + PAGE - 50), 100);
        assert_eq!(read(base + 2 * PAGE - 30), 30);
        assert_eq!(read(base + 2 * PAGE), 0);
        for address in [0, 1, 1 << 47, u64::MAX - 50, 0x8000_0000_0000_0000, 0xffff_ffff_ff60_0000] {
            assert_eq!(read(address), 0, "{address:x}");
        }
    }

    #[test]
    fn terminals_obey_no_warning() {
        let put = |parts: &[&[u8]], size: usize| {
            let mut line = [0; 64];
            let length = put_plain(line.get_mut(..size).unwrap_or_default(), parts);
            line[..length].to_vec()
        };
        assert_eq!(put(&[b"A=", b"\x1b[31m\nx\x7f", b" isn't.\n"], 64), b"A=?[31m?x? isn't.\n");
        // Names in other languages are kept; control characters beyond ASCII aren't.
        assert_eq!(
            put(&["caf\u{e9} \u{9b}31m\u{a0}".as_bytes(), b"\n"], 64),
            b"caf\xc3\xa9 \xc2?31m\xc2\xa0\n"
        );
        assert_eq!(put(&[b"abcdef\n"], 3), b"abc");
    }
}
