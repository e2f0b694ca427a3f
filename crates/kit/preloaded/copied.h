// Memory of the program, read by means that can fail.
//
// Memory that a function of the C library was given may not be readable: the kernel returns EFAULT,
// or never looks at it (a write to /dev/null), and another thread may unmap it meanwhile. A read of
// our own would end the program.
#pragma once
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

// A system call of our own: it leaves errno as it is.
static inline long system_call(long number, long first, const void* second, long third, const void* fourth, long fifth) {
    long result;
    register const void* in_r10 __asm__("r10") = fourth;
    register long in_r8 __asm__("r8") = fifth;
    register long in_r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8), "r"(in_r9)
                     : "rcx", "r11", "memory");
    return result;
}

// Whether the thread has come under a filter of system calls since this library was loaded: one
// that may end the program for a call that it doesn't expect.
static inline int is_filtered(void) {
    // One more than the mode.
    static long at_start;
    const long mode = system_call(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) + 1;
    long known = __atomic_load_n(&at_start, __ATOMIC_RELAXED);
    if (!known) __atomic_store_n(&at_start, known = mode, __ATOMIC_RELAXED);
    return mode != known;
}

// Copies `size` bytes. Returns how many could be copied: fewer where a page can't be read, 0 also
// where a filter refuses the system call, or might.
static inline size_t copy_of_program(void* to, const void* from, size_t size) {
    const struct iovec here = {to, size}, there = {(void*)from, size};
    if (is_filtered()) return 0;
    // The id is asked for each time: this may be a child.
    const long process = system_call(SYS_getpid, 0, 0, 0, 0, 0);
    const long done = system_call(SYS_process_vm_readv, process, &here, 1, &there, 1);
    return done > 0 ? (size_t)done : 0;
}
