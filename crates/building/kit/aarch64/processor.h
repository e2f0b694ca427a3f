#pragma once
#include <stdint.h>

// Lets the other threads of this core run.
static inline void pause_a_little(void) { __asm__ volatile("yield"); }

// The counter that hooks read.
static inline uint64_t ticks(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
}
