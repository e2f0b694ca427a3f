// longjmp and related functions, and ends of threads: the runtime is notified before frames are
// left.
#include "runtime.h"

// jmp_buf of x86-64: rbx, rbp, r12, r13, r14, r15, rsp, rip. glibc mangles rsp and rip with a value
// after the thread pointer; others keep them plain. An unknown layout is ignored: stack pointers
// show the jump at the next event.
enum { RSP = 6, RIP = 7 };
// After the registers, glibc has a flag for a saved signal mask, then the mask; others differ.
enum { MASK_WAS_SAVED = 8, MASK = 9, WORDS = 25 };
struct jump_buffer {
    uint64_t words[WORDS];
};

static inline uint64_t unscrambled(uint64_t value) {
    uint64_t guard;
    __asm__("movq %%fs:0x30, %0" : "=r"(guard));
    return (value >> 17 | value << 47) ^ guard;
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

// Returns the buffer to jump with. If the jump restores a signal mask, this function restores it,
// and `copy` becomes a buffer without one: handlers of signals that this unblocks run, and may jump
// themselves, while the frames that this jump leaves still exist.
static const void* jump(const uint64_t* registers, struct jump_buffer* copy) {
    uint64_t stack_pointer = registers[RSP], code = registers[RIP];
    const void* to = registers;
    if (!are_registers(stack_pointer, code)) {
        const int is_glibcs = are_registers(unscrambled(stack_pointer), unscrambled(code));
        if (is_glibcs && &everycall_runtime_v1 && (uint32_t)registers[MASK_WAS_SAVED] == 1) {
            set_signal_mask(registers[MASK]);
            // (Not by a call of memcpy. A handler may have changed the buffer, too.)
            void* target = copy;
            const void* source = registers;
            uint64_t count = WORDS;
            __asm__ volatile("rep movsq" : "+D"(target), "+S"(source), "+c"(count) : : "memory");
            copy->words[MASK_WAS_SAVED] = 0;
            to = registers = copy->words;
        }
        stack_pointer = unscrambled(registers[RSP]);
        code = unscrambled(registers[RIP]);
    }
    if (are_registers(stack_pointer, code)) everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
    return to;
}

#define JUMP(name)                                                                   \
    extern void __real_##name(const void*, int) EVERYCALL_WEAK __attribute__((noreturn)); \
    EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap_##name(const void* to, int value) { \
        struct jump_buffer copy;                                                     \
        __real_##name(jump(to, &copy), value);                                       \
    }

JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

#define THREAD_END(name)                                                           \
    extern void __real_##name(void*) EVERYCALL_WEAK __attribute__((noreturn));     \
    EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap_##name(void* result) { \
        everycall_tell(EVERYCALL_THREAD_END, EVERYCALL_HERE, 0);                   \
        __real_##name(result);                                                     \
    }

THREAD_END(pthread_exit)
THREAD_END(thrd_exit)

// In glibc and musl, a pthread_t is the thread pointer. A cancelled thread reports nothing itself
// if none of its frames cleans up.
extern int __real_pthread_cancel(uint64_t) EVERYCALL_WEAK;
EVERYCALL_WRAPPER int __wrap_pthread_cancel(uint64_t thread) {
    enum { ESRCH_ = 3 };
    if (!__real_pthread_cancel) return ESRCH_;
    everycall_tell(EVERYCALL_CANCEL, thread, 0);
    return __real_pthread_cancel(thread);
}
