//! Access to the processor: registers, system calls, other stacks.
#![allow(unsafe_code)] // Assembly.

use core::sync::atomic::AtomicU64;

/// The time-stamp counter.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: reads a counter; user mode may, otherwise the hooks could not work either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The thread pointer. Offsets of thread-local slots are relative to it.
#[inline(always)]
#[must_use]
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86-64 ABI keeps the thread pointer's own value at offset 0 of `fs`.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// A stack pointer in the frame of the calling function.
#[inline(always)]
#[must_use]
pub fn stack_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Changes a word from `from` to `to` if only the calling thread writes it. Returns whether it did.
/// It is one instruction, so no signal splits it, and it needs no lock prefix.
#[inline(always)]
#[must_use]
pub fn exchange_own(word: &AtomicU64, from: u64, to: u64) -> bool {
    let is_done: u8;
    // SAFETY: reads and writes a word that may be written.
    unsafe {
        core::arch::asm!(
            "cmpxchg qword ptr [{word}], {to}",
            "sete {is_done}",
            word = in(reg) word.as_ptr(),
            to = in(reg) to,
            is_done = lateout(reg_byte) is_done,
            inout("rax") from => _,
            options(nostack)
        );
    }
    is_done != 0
}

/// Adds to such a word, also by one instruction.
#[inline(always)]
pub fn add_own(word: &AtomicU64, count: u64) {
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("add qword ptr [{}], {}", in(reg) word.as_ptr(), in(reg) count, options(nostack));
    }
}

/// Whether the calling thread single-steps: its trap flag is set.
#[inline(always)]
#[must_use]
pub fn is_stepping() -> bool {
    const TRAP_FLAG: u64 = 0x100;
    let flags: u64;
    // SAFETY: reads a register through the stack.
    unsafe {
        core::arch::asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags));
    }
    flags & TRAP_FLAG != 0
}

/// A system call.
///
/// # Safety
/// Callers fulfil the contract of the system call.
#[inline(always)]
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves every register except these.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Calls `entry` with `argument` on another stack.
///
/// # Safety
/// `top` is the upper end of a stack that only the calling thread uses meanwhile, aligned to 16,
/// and the word above it is unused.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(
    argument: *mut core::ffi::c_void,
    entry: unsafe extern "C" fn(*mut core::ffi::c_void),
    top: u64,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        "mov rsp, rdx",
        "mov [rsp], rbx", // shows valgrind the switch of stacks, before anything is pushed
        "call rsi",
        "mov rsp, rbx",
        "pop rbx",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
}

/// Starts a thread by `clone` with these flags, on a stack of its own. The thread calls `entry`,
/// and ends when that returns. Returns the thread's id, or an error. If the flags request it, the
/// kernel sets `ended` to 0 when the thread is gone.
///
/// # Safety
/// `top` is the upper end of a stack that only the thread uses, aligned to 16. `entry` gets
/// `argument`, and must not need thread-local storage of its own: it has the caller's.
pub unsafe fn spawn(
    flags: usize,
    top: u64,
    ended: *mut u32,
    entry: unsafe extern "C" fn(u64),
    argument: u64,
) -> isize {
    const CLONE: isize = 56;
    let result: isize;
    // SAFETY: by contract. The caller's side preserves every register except these; the other side
    // never leaves this block.
    unsafe {
        let place = (top - 16) as *mut u64;
        place.write(entry as usize as u64);
        place.add(1).write(argument);
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "call rax",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") CLONE => result,
            in("rdi") flags,
            in("rsi") place,
            in("rdx") 0,
            in("r10") ended,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

// The return from a signal handler. Debuggers and unwinders recognise exactly these bytes.
#[cfg(any(feature = "executable", feature = "shared"))]
core::arch::global_asm!(
    "
    .text
    .p2align 4
    nop
    .globl  everycall_handler_end
    .hidden everycall_handler_end
    .type   everycall_handler_end, @function
everycall_handler_end:
    movq    $15, %rax
    syscall
    .size   everycall_handler_end, . - everycall_handler_end
    ",
    options(att_syntax)
);

/// The address to which signal handlers return.
#[cfg(any(feature = "executable", feature = "shared"))]
#[must_use]
pub fn handler_end() -> u64 {
    let address: u64;
    // SAFETY: an address in this object.
    unsafe {
        core::arch::asm!(
            "leaq everycall_handler_end(%rip), {}",
            out(reg) address,
            options(att_syntax, nostack, pure, nomem, preserves_flags)
        );
    }
    address
}

// The thread-local slot: first the address of the control block of the stack that the thread runs,
// then the runtime's other data for the thread.
#[cfg(any(feature = "executable", feature = "shared"))]
core::arch::global_asm!(
    "
    .section .tbss.everycall_thread, \"awT\", @nobits
    .p2align 3
    .type   everycall_thread, @object
    .size   everycall_thread, {SIZE}
    .globl  everycall_thread
    .hidden everycall_thread
everycall_thread:
    .zero   {SIZE}
    .text
    ",
    SIZE = const crate::THREAD_SLOT_SIZE,
    options(att_syntax)
);

/// Offset of the process's thread-local slot from the thread pointer.
#[cfg(any(feature = "executable", feature = "shared"))]
#[must_use]
pub fn local_thread_slot() -> u64 {
    let offset: u64;
    // SAFETY: loads a constant that the linker or the dynamic linker has stored.
    unsafe {
        core::arch::asm!(
            "movq everycall_thread@gottpoff(%rip), {}",
            out(reg) offset,
            options(att_syntax, nostack, pure, readonly, preserves_flags)
        );
    }
    offset
}
