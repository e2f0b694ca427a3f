#pragma once
#include <stdint.h>

// ucontext_t of 64-bit Arm, the same in glibc and libucontext: flags, link, then stack_t.
struct context {
    uint64_t flags, link, stack_low, stack_flags, stack_size;
};
