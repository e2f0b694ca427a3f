//! Whether a thread may load a library now: it must hold no lock that `dlopen` needs.
//!
//! Those are the loader's locks, those of the allocator, and of the C library's list of stacks. All
//! other threads go on and release theirs. Locks can't be looked at from outside, but glibc and
//! allocators hold them at few system calls only: those for memory (`mmap`, `munmap`, `mprotect`,
//! `madvise`, `brk`), for regular files (`open`, `read`, `fstat`, `close`), `clone`, and when they
//! wait for the next lock (`futex`, short sleeps). At the calls below they hold none, except that
//! initialisers of libraries run under the loader's lock, which the thread may take twice.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use crate::error::InjectError;
use crate::maps::{Mapping, holding};
use crate::memory::Memory;
use crate::stacks::Stacks;
use crate::sys::Registers;
use crate::thread::SYSCALL_SIZE;

/// Calls that wait, and for which no lock is held.
const WAITS: [i64; 24] = [
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_msgrcv,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_flock,
];

/// Calls on descriptors: the loader makes some of them, but on regular files.
const ON_DESCRIPTORS: [i64; 4] = [libc::SYS_read, libc::SYS_readv, libc::SYS_write, libc::SYS_writev];

/// Calls that don't wait, and that neither the loader nor an allocator makes.
const OTHERS: [i64; 8] = [
    libc::SYS_ioctl,
    libc::SYS_epoll_ctl,
    libc::SYS_sendfile,
    libc::SYS_getppid,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_kill,
    libc::SYS_timerfd_settime,
];

/// Spinning locks of allocators sleep for less.
const SHORT_SLEEP_NS: u64 = 10_000_000;

/// A thread stopped in or before a system call.
pub(crate) struct Place<'a> {
    pub(crate) pid: i32,
    pub(crate) memory: &'a Memory,
    /// `rip` is behind the `syscall` instruction, `orig_rax` the call's number.
    pub(crate) registers: &'a Registers,
}

impl Place<'_> {
    /// The thread holds no lock that loading a library needs.
    pub(crate) fn is_calm(&self, maps: &[Mapping]) -> Result<bool, InjectError> {
        let is_loaders = holding(maps, self.registers.rip).is_none_or(|code| is_loader(&code.name));
        if is_loaders || !self.is_calm_call() {
            return Ok(false);
        }
        // A signal handler may have interrupted the allocator.
        let stacks = Stacks::of(self.memory, maps, std::slice::from_ref(self.registers))?;
        Ok(stacks.interrupted.is_empty())
    }

    fn is_calm_call(&self) -> bool {
        let mut number = self.registers.orig_rax.cast_signed();
        if number == libc::SYS_restart_syscall {
            let Some(interrupted) = self.interrupted_call() else { return false };
            number = interrupted;
        }
        match number {
            libc::SYS_futex => is_event(self.registers.rsi),
            libc::SYS_nanosleep => self.is_long(self.registers.rdi),
            libc::SYS_clock_nanosleep => {
                self.registers.rsi.cast_signed() as i32 == libc::TIMER_ABSTIME
                    || self.is_long(self.registers.rdx)
            }
            _ if ON_DESCRIPTORS.contains(&number) => self.is_no_file(self.registers.rdi),
            _ => WAITS.contains(&number) || OTHERS.contains(&number),
        }
    }

    /// The kernel goes on with a call under another number. Its own one is in the code.
    fn interrupted_call(&self) -> Option<i64> {
        // `mov $number, %eax; syscall`
        const MOVE: u8 = 0xb8;
        let start = self.registers.rip.checked_sub(SYSCALL_SIZE + 5)?;
        let [MOVE, number @ ..] = *self.memory.read(start, 5).ok()?.first_chunk::<5>()? else { return None };
        Some(i64::from(u32::from_le_bytes(number)))
    }

    fn is_long(&self, time: u64) -> bool {
        let part = |offset: u64| self.memory.number(time.wrapping_add(offset)).unwrap_or(0);
        part(0) > 0 || part(8) >= SHORT_SLEEP_NS
    }

    /// The descriptor is a pipe, a socket, a terminal or something that the kernel makes.
    fn is_no_file(&self, descriptor: u64) -> bool {
        let link = format!("/proc/{}/fd/{}", self.pid, descriptor as u32);
        fs::metadata(&link)
            .map(|metadata| metadata.file_type())
            .is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_char_device())
            || fs::read_link(&link).is_ok_and(|name| name.to_string_lossy().starts_with("anon_inode:"))
    }
}

/// Waiting for an event: with a bit set, as condition variables, semaphores and `pthread_join` of
/// glibc and Rust's standard library do. Mutexes of glibc, and locks of allocators, wait without.
fn is_event(operation: u64) -> bool {
    const OPERATION: u64 = 127;
    operation & OPERATION == libc::FUTEX_WAIT_BITSET as u64
}

fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld-2.")
}
