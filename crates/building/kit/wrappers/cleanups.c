// C's cleanups (`__attribute__((cleanup))` with -fexceptions), and C++ functions that only clean
// up, if link-time optimisation has chosen this routine for them.
//
// In an archive, so that it is linked only if the program refers to the routine: it pulls in the
// unwinder's library.
#include "landing_pads.h"

extern int __real___gcc_personality_v0(int, int, uint64_t, void*, void*);
EVERYCALL_WRAPPER int __wrap___gcc_personality_v0(
    int version, int actions, uint64_t class, void* exception, void* context) {
    const int result = __real___gcc_personality_v0(version, actions, class, exception, context);
    if (result == INSTALL_CONTEXT) everycall_tell_cleanup(actions, context);
    return result;
}
