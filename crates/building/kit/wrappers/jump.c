// longjmp and functions like it: the runtime is notified before frames are left.
#include "jumps.h"

// Returns the buffer to jump with. If the jump restores a signal mask, this function restores it,
// and `copy` becomes a buffer without one: handlers of signals that this unblocks run, and may jump
// themselves, while the frames that this jump leaves still exist.
static const void* jump(const uint64_t* registers, struct jump_buffer* copy) {
    uint64_t stack_pointer = registers[STACK_POINTER], code = registers[CODE];
    const void* to = registers;
    if (!are_registers(stack_pointer, code)) {
        const int is_glibcs = are_registers(unscrambled(stack_pointer), unscrambled(code));
        if (is_glibcs && &everycall_runtime_v1 && (uint32_t)registers[MASK_WAS_SAVED] == 1) {
            set_signal_mask(registers[MASK]);
            // A handler may have changed the buffer, too.
            copy_words(copy, registers, WORDS);
            copy->words[MASK_WAS_SAVED] = 0;
            to = registers = copy->words;
        }
        stack_pointer = unscrambled(registers[STACK_POINTER]);
        code = unscrambled(registers[CODE]);
    }
    if (are_registers(stack_pointer, code)) everycall_tell(EVERYCALL_JUMP, stack_pointer, 0);
    return to;
}

extern void EVERYCALL_REAL(const void*, int) EVERYCALL_WEAK __attribute__((noreturn));
EVERYCALL_WRAPPER __attribute__((noreturn)) void EVERYCALL_WRAP(const void* to, int value) {
    struct jump_buffer copy;
    EVERYCALL_REAL(jump(to, &copy), value);
}
