//! Functions of the process that a borrowed thread calls.
//!
//! They run on a stack of their own, with clean vector registers. Their caller is a stub, which
//! afterwards puts `errno` back, returns to the thread's own stack and makes a system call. There
//! the tracer takes the result. Without a tracer, the stub's `ret` leads to the
//! [frame](crate::frame) by which the thread gets back to what it did.

use std::ops::Range;

use crate::error::{InjectError, failed};
use crate::gadget::c_library;
use crate::maps::mappings;
use crate::memory::Memory;
use crate::region::{self, Access};
use crate::remote::Borrowed;
use crate::symbols;
use crate::sys::Registers;

/// The stub. When it starts, `rsp` is the end of the function's stack.
#[rustfmt::skip]
const STUB: [u8; 19] = [
    0xff, 0xd3,             // call *%rbx           the function
    0x45, 0x89, 0x3e,       // mov %r15d, (%r14)    errno
    0x48, 0x89, 0xc7,       // mov %rax, %rdi       getpid ignores it
    0x4c, 0x89, 0xec,       // mov %r13, %rsp       the thread's own stack
    0xb8, 39, 0, 0, 0,      // mov $getpid, %eax
    0x0f, 0x05,             // syscall
    0xc3,                   // ret                  to `__restore_rt`
];
/// From the stub's begin to the end of its system call.
const SYSCALL_END: u64 = STUB.len() as u64 - 1;

/// As much as a thread has at least, with any C library.
const STACK_SIZE: u64 = 1 << 20;
const GUARD_SIZE: u64 = 4096;
/// At the end of the stack: a word that is written in place of `errno` where that isn't known.
const STACK_RESERVED: u64 = 64;

/// Direction, trap, alignment check: clear when a function is called.
const CLEARED_FLAGS: u64 = 0x400 | 0x100 | 0x4_0000;

/// Memory in the process by which its functions are called.
pub(crate) struct Caller {
    stub: u64,
    stack: Range<u64>,
    /// Of the borrowed thread. `None`: no C library tells.
    errno: Option<u64>,
}

impl Caller {
    pub(crate) fn map(pid: i32, memory: &Memory, borrowed: &mut Borrowed) -> Result<Self, InjectError> {
        let what = "mapping a stack in the process";
        let size = STACK_SIZE + GUARD_SIZE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let map = [0, size, access as u64, flags as u64, u64::MAX, 0];
        let start = borrowed.call(what, libc::SYS_mmap, map)?;
        borrowed.call(what, libc::SYS_mprotect, [start, GUARD_SIZE, 0, 0, 0, 0])?;
        let module = borrowed.code_of_c_library();
        let stub = region::map_near(pid, memory, borrowed, module, &STUB, Access::Execute)?;
        let mut caller = Self { stub, stack: start..start + size, errno: None };
        // It only computes an address. Before a C library begins, there is no thread-local memory.
        let location = c_library(&mappings(pid)?)
            .and_then(|start| symbols::address(memory, start, "__errno_location"))
            .filter(|_| borrowed.has_thread_pointer());
        if let Some(location) = location {
            caller.errno = Some(caller.call(memory, borrowed, location, [0; 6])?);
        }
        Ok(caller)
    }

    pub(crate) fn call(
        &self,
        memory: &Memory,
        borrowed: &mut Borrowed,
        function: u64,
        arguments: [u64; 6],
    ) -> Result<u64, InjectError> {
        let rsp = self.stack.end - STACK_RESERVED;
        let errno = self.errno.unwrap_or(rsp);
        let kept = memory.number(errno).map_err(failed("reading errno"))? & u64::from(u32::MAX);
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        let own = borrowed.own();
        let registers = Registers {
            rip: self.stub,
            rsp,
            rbp: 0,
            rbx: function,
            r13: borrowed.frame_at(),
            r14: errno,
            r15: kept,
            rax: 0,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            eflags: own.eflags & !CLEARED_FLAGS,
            ..own
        };
        match borrowed.run(&registers, self.stub + SYSCALL_END) {
            // `mov %rax, %rdi` of the stub.
            Ok(then) => Ok(then.rdi),
            Err(error) => {
                if let InjectError::Faulted { .. } = error {
                    let bytes = (kept as u32).to_le_bytes();
                    memory.write(errno, &bytes).map_err(failed("restoring errno"))?;
                }
                Err(error)
            }
        }
    }

    /// Memory for a text, which lasts until the next call of a function.
    pub(crate) fn put_text(&self, memory: &Memory, text: &str) -> Result<u64, InjectError> {
        let at = self.stack.start + GUARD_SIZE;
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        memory.write(at, &bytes).map_err(failed("writing to the process's memory"))?;
        Ok(at)
    }

    pub(crate) fn unmap(self, borrowed: &mut Borrowed) -> Result<(), InjectError> {
        let what = "unmapping a stack in the process";
        let size = self.stack.end - self.stack.start;
        borrowed.call(what, libc::SYS_munmap, [self.stub, 4096, 0, 0, 0, 0])?;
        borrowed.call(what, libc::SYS_munmap, [self.stack.start, size, 0, 0, 0, 0]).map(|_| ())
    }
}
