// Stacks of Boost.Context. For links that name its library, which must have the function.
#include "runtime.h"

extern void* __real_make_fcontext(void* top, size_t size, void (*entry)(void));
EVERYCALL_WRAPPER void* __wrap_make_fcontext(void* top, size_t size, void (*entry)(void)) {
    everycall_tell_stack((uint64_t)top - size, size);
    return __real_make_fcontext(top, size, entry);
}
