// The buffers of setjmp, for wrappers of jumps and of cleanups.
#ifndef EVERYCALL_WRAPPERS_JUMPS_H
#define EVERYCALL_WRAPPERS_JUMPS_H
#include "jump_buffer.h"
#include "runtime.h"
#include "system_call.h"

// Wrappers of functions that are alike are compiled from one file, one object for each: see NAMED
// in build.rs.
#define EVERYCALL_JOINED_(first, second) first##second
#define EVERYCALL_JOINED(first, second) EVERYCALL_JOINED_(first, second)
#define EVERYCALL_REAL EVERYCALL_JOINED(__real_, EVERYCALL_NAME)
#define EVERYCALL_WRAP EVERYCALL_JOINED(__wrap_, EVERYCALL_NAME)

// Sets the mask as glibc does before it jumps: all signals except those reserved for glibc. Leaves
// errno unchanged.
static inline void set_signal_mask(uint64_t mask) {
    enum { SIG_SETMASK_ = 2, FIRST_OWN = 32, OWN = 2 };
    mask &= ~((((uint64_t)1 << OWN) - 1) << (FIRST_OWN - 1));
    system_call(CALL_RT_SIGPROCMASK, SIG_SETMASK_, (long)&mask, 0, sizeof mask, 0, 0);
}
#endif
