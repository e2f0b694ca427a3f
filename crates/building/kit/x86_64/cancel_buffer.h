#pragma once
#include <stddef.h>
#include <stdint.h>

// glibc's __pthread_unwind_buf_t. It leaves `code` (padding behind an int) and `kept` alone, unless
// the thread has a shadow stack.
struct cancel_buffer {
    uint64_t registers[8];
    int32_t mask_was_saved;
    // Distance from everycall_cleanup_landing to where the function goes on.
    int32_t code;
    void* priv[3];
    // The function's own rbx. The buffer's address takes its place among the registers.
    uint64_t kept;
};
_Static_assert(offsetof(struct cancel_buffer, code) == 68 && offsetof(struct cancel_buffer, kept) == 96,
               "everycall_cleanup_landing has these offsets");
enum { KEPT = 0 };
