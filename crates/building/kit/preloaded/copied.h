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

#include "system_call.h"

// Whether the thread has come under a filter of system calls since this library was loaded: one
// that may end the program for a call that it doesn't expect.
static inline int is_filtered(void) {
    // One more than the mode.
    static long at_start;
    const long mode = system_call(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) + 1;
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
    const long process = system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    const long done = system_call(SYS_process_vm_readv, process, (long)&here, 1, (long)&there, 1, 0);
    return done > 0 ? (size_t)done : 0;
}
