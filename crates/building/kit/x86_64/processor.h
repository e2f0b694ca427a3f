#pragma once
#include <stdint.h>

// Lets the other threads of this core run.
static inline void pause_a_little(void) { __asm__ volatile("pause"); }

// The counter that hooks read.
static inline uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }
