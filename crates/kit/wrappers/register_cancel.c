// Cleanups of C at a thread's end.
//
// pthread_cleanup_push in C without -fexceptions: the function that cleans up calls sigsetjmp and
// registers the buffer. When the thread ends, glibc jumps to that buffer by a longjmp of its own,
// which no link can wrap. So the buffer is changed to lead to everycall_cleanup_landing, which
// reports which frames have been left and goes on where the function called sigsetjmp.
#include "jumps.h"

// glibc's __pthread_unwind_buf_t. It leaves `code` (padding behind an int) and `rbx` alone, unless
// the thread has a shadow stack.
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

// `stack_pointer`: that of the function that registers the buffer. Anything unexpected leaves the
// buffer as it is: then stack pointers tell in the end.
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

extern void EVERYCALL_REAL(struct cancel_buffer*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void EVERYCALL_WRAP(struct cancel_buffer* buffer) {
    lead_to_landing(buffer, EVERYCALL_HERE);
    EVERYCALL_REAL(buffer);
}
