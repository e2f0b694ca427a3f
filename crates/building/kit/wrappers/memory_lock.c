// mlockall: excludes the runtime's own memory, most of which is only reserved address space.
#include "runtime.h"

enum { CURRENT = 1, ALL_FLAGS = 7 };
extern int __real_mlockall(int) EVERYCALL_WEAK;
extern int* __errno_location(void) EVERYCALL_WEAK;

EVERYCALL_WRAPPER int __wrap_mlockall(int flags) {
    const struct everycall_runtime* runtime = &everycall_runtime_v1;
    const int is_told = (flags & CURRENT) && !(flags & ~ALL_FLAGS) && __errno_location;
    if (!is_told || !runtime || runtime->size < offsetof(struct everycall_runtime, lock_memory) + sizeof runtime->lock_memory)
        return __real_mlockall(flags);
    const int error = runtime->lock_memory((uint32_t)flags);
    if (!error) return 0;
    *__errno_location() = error;
    return -1;
}
