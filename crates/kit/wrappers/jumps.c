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

// pthread_cleanup_push in C without -fexceptions: the function that cleans up calls sigsetjmp and registers the buffer. When the thread
// ends, glibc jumps to that buffer by a longjmp of its own, which no link can wrap. So the buffer is changed to lead to
// everycall_cleanup_landing, which reports which frames have been left and goes on where the function called sigsetjmp.

// glibc's __pthread_unwind_buf_t. It leaves `code` (padding behind an int) and `rbx` alone, unless the thread has a shadow stack.
struct cancel_buffer {
    uint64_t registers[8];
    int32_t mask_was_saved;
    // Distance from everycall_cleanup_landing to where the function goes on.
    int32_t code;
    void* priv[3];
    // The function's own rbx. The buffer's address takes its place among the registers.
    uint64_t rbx;
};
_Static_assert(offsetof(struct cancel_buffer, code) == 68 && offsetof(struct cancel_buffer, rbx) == 96,
               "everycall_cleanup_landing has these offsets");
enum { RBX = 0 };

static inline int has_shadow_stack(void) {
    uint32_t features;
    __asm__("movl %%fs:0x48, %0" : "=r"(features));
    return (features & 2) != 0;
}

extern const char everycall_cleanup_landing[] __attribute__((visibility("hidden")));

// `stack_pointer`: that of the function that registers the buffer. Anything unexpected leaves the buffer as it is: then
// stack pointers tell in the end.
static inline void lead_to_landing(struct cancel_buffer* buffer, uint64_t stack_pointer) {
    if (!&everycall_runtime_v1 || has_shadow_stack()) return;
    if (unscrambled(buffer->registers[RSP]) != stack_pointer) return;
    const uint64_t landing = (uint64_t)everycall_cleanup_landing;
    const int64_t distance = (int64_t)(unscrambled(buffer->registers[RIP]) - landing);
    if (distance != (int32_t)distance) return;
    buffer->code = (int32_t)distance;
    buffer->rbx = buffer->registers[RBX];
    buffer->registers[RBX] = (uint64_t)buffer;
    buffer->registers[RIP] = scrambled(landing);
}

#define REGISTER_CANCEL(name)                                                    \
    extern void __real_##name(struct cancel_buffer*) EVERYCALL_WEAK;             \
    EVERYCALL_WRAPPER void __wrap_##name(struct cancel_buffer* buffer) {         \
        lead_to_landing(buffer, EVERYCALL_HERE);                                 \
        __real_##name(buffer);                                                   \
    }

REGISTER_CANCEL(__pthread_register_cancel)
REGISTER_CANCEL(__pthread_register_cancel_defer)

// The program goes on in a frame, to clean up at the thread's end. What was inlined into the frame has been left, too.
__attribute__((visibility("hidden"), used)) void everycall_cleans_up_at(uint64_t stack_pointer) {
    everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
    // A name, though an empty one, says that this frame runs yet.
    everycall_tell(EVERYCALL_THREAD_END, stack_pointer, "");
}

// Entered by glibc's jump, with the registers of the function that cleans up; its stack pointer and result of sigsetjmp stay.
// With the address pushed where that function goes on, this is a frame below it like any other.
__asm__(".pushsection .text.everycall_cleanup_landing,\"ax\",@progbits\n"
        ".p2align 4\n"
        ".globl everycall_cleanup_landing\n"
        ".hidden everycall_cleanup_landing\n"
        ".type everycall_cleanup_landing, @function\n"
        "everycall_cleanup_landing:\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa %rsp, 0\n"
        ".cfi_undefined %rip\n"
        "    endbr64\n"
        "    movslq 68(%rbx), %rdx\n"
        "    leaq everycall_cleanup_landing(%rip), %rcx\n"
        "    addq %rcx, %rdx\n"
        "    movq 96(%rbx), %rbx\n"
        "    pushq %rdx\n"
        ".cfi_def_cfa_offset 8\n"
        ".cfi_offset %rip, -8\n"
        "    pushq %rax\n"
        ".cfi_def_cfa_offset 16\n"
        "    leaq 16(%rsp), %rdi\n"
        "    call everycall_cleans_up_at\n"
        "    popq %rax\n"
        ".cfi_def_cfa_offset 8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size everycall_cleanup_landing, . - everycall_cleanup_landing\n"
        ".popsection\n");
