// longjmp and its relatives, and the ends of threads: the runtime learns which frames are left before they are.
#include "runtime.h"

// jmp_buf of x86-64: rbx, rbp, r12, r13, r14, r15, rsp, rip. glibc scrambles the last two with a value that lies behind the thread
// pointer; others keep them plain. What isn't understood is passed over: stack pointers tell in the end.
enum { RSP = 6, RIP = 7 };

static inline uint64_t unscrambled(uint64_t value) {
    uint64_t guard;
    __asm__("movq %%fs:0x30, %0" : "=r"(guard));
    return (value >> 17 | value << 47) ^ guard;
}

// An address of user space where there can be code or a stack.
static inline int is_address(uint64_t value) { return value >= 4096 && value < (uint64_t)1 << 47; }

static inline int are_registers(uint64_t stack_pointer, uint64_t code) {
    return is_address(stack_pointer) && stack_pointer % 8 == 0 && is_address(code);
}

static void jump(const uint64_t* registers) {
    uint64_t stack_pointer = registers[RSP], code = registers[RIP];
    if (!are_registers(stack_pointer, code)) {
        stack_pointer = unscrambled(stack_pointer);
        code = unscrambled(code);
    }
    if (are_registers(stack_pointer, code)) everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
}

#define JUMP(name)                                                                   \
    extern void __real_##name(void*, int) EVERYCALL_WEAK __attribute__((noreturn));  \
    EVERYCALL_WRAPPER __attribute__((noreturn)) void __wrap_##name(void* to, int value) { \
        jump(to);                                                                    \
        __real_##name(to, value);                                                    \
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
