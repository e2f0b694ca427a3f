// System calls of our own: they leave errno as it is.
#pragma once

// For files that are compiled without the C library's headers.
enum { CALL_MMAP = 9, CALL_MUNMAP = 11, CALL_RT_SIGPROCMASK = 14, CALL_GETPID = 39 };

static inline long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result = number;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
