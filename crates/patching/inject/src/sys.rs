//! `ptrace` and `waitid`.
//!
//! No crate has all of this: `nix` can't pass real-time signals on.
//!
//! # Safety
//!
//! Each request is given memory of the size that the kernel reads or writes; no request here lets
//! the kernel keep a pointer.
#![allow(unsafe_code)]

use std::io;
use std::mem;

use libc::{c_uint, c_void};

/// Two processes have one address space. False if the kernel doesn't tell.
pub(crate) fn share_memory(pid: i32, other: i32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: the kernel compares, and is given no memory.
    other > 0 && unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0usize, 0usize) } == 0
}

/// All general registers of a thread.
pub(crate) type Registers = libc::user_regs_struct;

const GET_SIGNAL_MASK: c_uint = 0x420a;
const SET_SIGNAL_MASK: c_uint = 0x420b;
const GET_RSEQ: c_uint = 0x420f;
/// Vector registers as `xsave` stores them.
const XSTATE: usize = 0x202;

/// A stop by `PTRACE_INTERRUPT` or by job control.
pub(crate) const EVENT_STOP: i32 = 128;
/// The signal of [`Event::Stopped`] at a system call's begin and end.
pub(crate) const SYSCALL: i32 = libc::SIGTRAP | 0x80;

/// A state change of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Stopped { signal: i32, event: i32 },
    Ended,
}

fn request(request: c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers below pass for `data` a number or memory of the request's size.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Traces a thread without stopping it. If the tracing thread ends, it goes on untraced.
pub(crate) fn seize(tid: i32, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

pub(crate) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

pub(crate) fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// To the next begin or end of a system call.
pub(crate) fn resume_to_system_call(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

pub(crate) fn detach(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

pub(crate) fn registers(tid: i32) -> io::Result<Registers> {
    // SAFETY: the structure consists of integers.
    let mut registers: Registers = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers) as usize)?;
    Ok(registers)
}

pub(crate) fn set_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref(registers) as usize)
}

/// The vector registers as `xsave` stores them.
pub(crate) fn vector_state(tid: i32) -> io::Result<Vec<u8>> {
    let mut state = vec![0u8; 1 << 14];
    let mut part = libc::iovec { iov_base: state.as_mut_ptr().cast::<c_void>(), iov_len: state.len() };
    request(libc::PTRACE_GETREGSET, tid, XSTATE, (&raw mut part) as usize)?;
    state.truncate(part.iov_len);
    Ok(state)
}

pub(crate) fn set_vector_state(tid: i32, state: &[u8]) -> io::Result<()> {
    let base = state.as_ptr().cast_mut().cast::<c_void>();
    // The kernel only reads it.
    let mut part = libc::iovec { iov_base: base, iov_len: state.len() };
    request(libc::PTRACE_SETREGSET, tid, XSTATE, (&raw mut part) as usize)
}

/// Why a thread got the signal at which it is stopped: `si_code`, above 0 if the kernel sent it.
pub(crate) fn signal_cause(tid: i32) -> io::Result<i32> {
    // SAFETY: the structure consists of integers and pointers that nobody follows.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info) as usize)?;
    Ok(info.si_code)
}

/// The signals that a thread blocks.
pub(crate) fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    request(GET_SIGNAL_MASK, tid, mem::size_of::<u64>(), (&raw mut mask) as usize)?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    request(SET_SIGNAL_MASK, tid, mem::size_of::<u64>(), (&raw const mask) as usize)
}

/// Where a thread has its `struct rseq`; `None` if it has none or the kernel doesn't tell.
pub(crate) fn rseq_of(tid: i32) -> Option<u64> {
    // Address, size, signature, flags, padding.
    let mut configuration = [0u64; 3];
    request(GET_RSEQ, tid, mem::size_of_val(&configuration), configuration.as_mut_ptr() as usize).ok()?;
    Some(configuration[0]).filter(|address| *address != 0)
}

/// The event of a traced thread since the last call; `None` if there was none.
///
/// The end of a process's first thread is left to the process's parent.
pub(crate) fn poll(tid: i32, is_first: bool) -> io::Result<Option<Event>> {
    // SAFETY: the structure consists of integers and pointers that nobody follows.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let ends = if is_first { 0 } else { libc::WEXITED };
    // SAFETY: the kernel writes one structure, which is ours.
    let result = unsafe {
        let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | ends;
        libc::waitid(libc::P_PID, tid as libc::id_t, &raw mut info, options)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(Some(Event::Ended)),
            Some(libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `waitid` fills in both, or leaves zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok(match (pid, info.si_code) {
        (0, _) => None,
        (_, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
            Some(Event::Stopped { signal: status & 0xff, event: status >> 8 })
        }
        _ => Some(Event::Ended),
    })
}
