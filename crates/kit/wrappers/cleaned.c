// A handler begins, behind the cleanups of what was inlined around it. Wrapped where the compiler reports inlined calls, and their exits in cleanups (gcc's
// -finstrument-functions): exits from the landing pad on up to here are part of that, and those behind aren't.
#include "runtime.h"

// Of this module alone.
__attribute__((visibility("hidden"))) const char everycall_cleanups_tell_of_exits = 1;

extern void* __real___cxa_begin_catch(void*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void* __wrap___cxa_begin_catch(void* exception) {
    everycall_tell(EVERYCALL_CLEANED, EVERYCALL_HERE, 0);
    return __real___cxa_begin_catch(exception);
}
