// A handler begins, behind the cleanups of what was inlined around it. Wrapped where the compiler reports inlined calls and not that an exception leaves
// them (clang's -finstrument-functions): they share the handler's frame.
#include "runtime.h"

extern void* __real___cxa_begin_catch(void*) EVERYCALL_WEAK;
EVERYCALL_WRAPPER void* __wrap___cxa_begin_catch(void* exception) {
    // The call's last byte.
    everycall_tell(EVERYCALL_HANDLED, EVERYCALL_HERE, (const char*)__builtin_return_address(0) - 1);
    return __real___cxa_begin_catch(exception);
}
