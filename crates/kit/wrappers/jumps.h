// The buffers of setjmp, for wrappers of jumps and of cleanups.
#ifndef EVERYCALL_WRAPPERS_JUMPS_H
#define EVERYCALL_WRAPPERS_JUMPS_H
#include "runtime.h"

// Wrappers of functions that are alike are compiled from one file, one object for each: see NAMED
// in build.rs.
#define EVERYCALL_JOINED_(first, second) first##second
#define EVERYCALL_JOINED(first, second) EVERYCALL_JOINED_(first, second)
#define EVERYCALL_REAL EVERYCALL_JOINED(__real_, EVERYCALL_NAME)
#define EVERYCALL_WRAP EVERYCALL_JOINED(__wrap_, EVERYCALL_NAME)

// jmp_buf of x86-64: rbx, rbp, r12, r13, r14, r15, rsp, rip. glibc mangles rsp and rip with a value
// after the thread pointer; others keep them plain. An unknown layout is ignored: stack pointers
// show the jump at the next event.
enum { RSP = 6, RIP = 7 };
// After the registers, glibc has a flag for a saved signal mask, then the mask; others differ.
enum { MASK_WAS_SAVED = 8, MASK = 9, WORDS = 25 };
struct jump_buffer {
    uint64_t words[WORDS];
};

static inline uint64_t pointer_guard(void) {
    uint64_t guard;
    __asm__("movq %%fs:0x30, %0" : "=r"(guard));
    return guard;
}

static inline uint64_t unscrambled(uint64_t value) { return (value >> 17 | value << 47) ^ pointer_guard(); }

static inline uint64_t scrambled(uint64_t value) {
    value ^= pointer_guard();
    return value << 17 | value >> 47;
}

// An address of user space that can hold code or a stack.
static inline int is_address(uint64_t value) { return value >= 4096 && value < (uint64_t)1 << 47; }

static inline int are_registers(uint64_t stack_pointer, uint64_t code) {
    return is_address(stack_pointer) && stack_pointer % 8 == 0 && is_address(code);
}

// Sets the mask as glibc does before it jumps: all signals except those reserved for glibc. Leaves
// errno unchanged.
static inline void set_signal_mask(uint64_t mask) {
    enum { RT_SIGPROCMASK = 14, SIG_SETMASK_ = 2, FIRST_OWN = 32, OWN = 2 };
    mask &= ~((((uint64_t)1 << OWN) - 1) << (FIRST_OWN - 1));
    register uint64_t size __asm__("r10") = sizeof mask;
    uint64_t result = RT_SIGPROCMASK;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"((uint64_t)SIG_SETMASK_), "S"(&mask), "d"((uint64_t)0), "r"(size)
                     : "rcx", "r11", "memory");
}
#endif
