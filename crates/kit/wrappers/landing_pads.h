// Landing pads, as the unwinder enters them: it asks the personality routine of every frame, first whether the frame catches the exception, then where its
// landing pad is.
#ifndef EVERYCALL_WRAPPERS_LANDING_PADS_H
#define EVERYCALL_WRAPPERS_LANDING_PADS_H
#include "runtime.h"

// What the unwinder does, and what personality routines answer.
enum { CLEANUP_PHASE = 2, HANDLER_FRAME = 4, FORCED = 8, INSTALL_CONTEXT = 7 };
// The CFA of a context is the frame's stack pointer, as it is where the frame is entered again; with libgcc, less what it has pushed as arguments.
extern uint64_t _Unwind_GetCFA(void*) EVERYCALL_WEAK;
extern uint64_t _Unwind_GetRegionStart(void*) EVERYCALL_WEAK;

// There where cleaned.c is.
extern const char everycall_cleanups_tell_of_exits EVERYCALL_WEAK __attribute__((visibility("hidden")));
// Where it isn't, calls that were inlined into the frame may end there untold.
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
    // Forced unwinding is how glibc ends a thread, by pthread_exit or cancellation. A name, though an empty one, says that this frame runs yet.
    if (actions & FORCED) everycall_tell(EVERYCALL_THREAD_END, stack_pointer, "");
    everycall_tell_landing(EVERYCALL_CLEANUP | everycall_untold_ends(), stack_pointer, 0, everycall_function(context));
}
#endif
