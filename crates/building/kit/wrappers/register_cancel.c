// Cleanups of C at a thread's end.
//
// pthread_cleanup_push in C without -fexceptions: the function that cleans up calls sigsetjmp and
// registers the buffer. When the thread ends, glibc jumps to that buffer by a longjmp of its own,
// which no link can wrap. So the buffer is changed to lead to everycall_cleanup_landing, which
// reports which frames have been left and goes on where the function called sigsetjmp.
#include "cancel_buffer.h"
#include "jumps.h"

extern const char everycall_cleanup_landing[] __attribute__((visibility("hidden")));

// `stack_pointer`: that of the function that registers the buffer. Anything unexpected leaves the
// buffer as it is: then stack pointers tell in the end.
static inline void lead_to_landing(struct cancel_buffer* buffer, uint64_t stack_pointer) {
    if (!&everycall_runtime_v1 || has_shadow_stack()) return;
    if (unscrambled(buffer->registers[STACK_POINTER]) != stack_pointer) return;
    const uint64_t landing = (uint64_t)everycall_cleanup_landing;
    const int64_t distance = (int64_t)(unscrambled(buffer->registers[CODE]) - landing);
    if (distance != (int32_t)distance) return;
    buffer->code = (int32_t)distance;
    buffer->kept = buffer->registers[KEPT];
    buffer->registers[KEPT] = (uint64_t)buffer;
    buffer->registers[CODE] = scrambled(landing);
}

extern void EVERYCALL_REAL(struct cancel_buffer*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void EVERYCALL_WRAP(struct cancel_buffer* buffer) {
    lead_to_landing(buffer, EVERYCALL_HERE);
    EVERYCALL_REAL(buffer);
}
