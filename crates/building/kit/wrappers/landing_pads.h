// Landing pads. The unwinder calls the personality routine of every frame: first to find whether
// the frame catches the exception, then for the address of its landing pad.
#ifndef EVERYCALL_WRAPPERS_LANDING_PADS_H
#define EVERYCALL_WRAPPERS_LANDING_PADS_H
#include "runtime.h"

// The unwinder's actions, and results of personality routines.
enum { SEARCH_PHASE = 1, CLEANUP_PHASE = 2, HANDLER_FRAME = 4, FORCED = 8, INSTALL_CONTEXT = 7 };
// The CFA of a context is the stack pointer with which the frame is entered again; with libgcc,
// minus its pushed arguments.
extern uint64_t _Unwind_GetCFA(void*) EVERYCALL_WEAK;
extern uint64_t _Unwind_GetRegionStart(void*) EVERYCALL_WEAK;

// Defined if cleaned.c is linked.
extern const char everycall_cleanups_tell_of_exits EVERYCALL_WEAK __attribute__((visibility("hidden")));
// Without it, calls that were inlined into the frame may end there without an exit event.
static inline uint32_t everycall_untold_ends(void) {
    return &everycall_cleanups_tell_of_exits ? 0 : EVERYCALL_UNTOLD_ENDS;
}

static inline uint64_t everycall_function(void* context) {
    return _Unwind_GetRegionStart ? _Unwind_GetRegionStart(context) : 0;
}

// A frame is entered again, to clean up.
static inline void everycall_tell_cleanup(int actions, void* context) {
    if (!(actions & CLEANUP_PHASE) || !_Unwind_GetCFA) return;
    const uint64_t stack_pointer = _Unwind_GetCFA(context);
    // glibc ends a thread by forced unwinding (pthread_exit, cancellation). A name, even an empty
    // one, means that this frame still runs.
    if (actions & FORCED) everycall_tell(EVERYCALL_THREAD_END, stack_pointer, "");
    everycall_tell_landing(EVERYCALL_CLEANUP | everycall_untold_ends(), stack_pointer, 0, everycall_function(context));
}
#endif
