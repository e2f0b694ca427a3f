#pragma once
#include <stdint.h>

// glibc's __pthread_unwind_buf_t. No landing of ours is put into it on this machine: stack pointers
// tell, at the next event, which frames a cleanup at a thread's end has left.
struct cancel_buffer {
    uint64_t registers[22];
    int32_t mask_was_saved;
    int32_t code;
    void* priv[3];
    uint64_t kept;
};
enum { KEPT = 0 };
static inline int has_shadow_stack(void) { return 1; }
static inline uint64_t scrambled(uint64_t value) { return value; }
